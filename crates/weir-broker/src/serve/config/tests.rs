//! Files of brokers, and what is wrong in them.

use super::*;
use crate::serve::day::Day;

const SMALL: &str = "domain = \"core\"\nstore = \"core.redb\"\n";

#[test]
fn the_file_of_the_page_is_read() {
    let head = include_str!("../config.rs").lines().map_while(|line| line.strip_prefix("//!"));
    let text: Vec<_> =
        head.map(str::trim).skip_while(|l| *l != "```toml").skip(1).take_while(|l| *l != "```").collect();
    let config = Config::read(&text.join("\n"), Path::new("/etc/weir")).expect("it is an example");
    assert_eq!((config.store.to_string().as_str(), config.priority), ("/etc/weir/core.redb", Priority::Fifo));
    assert_eq!(config.resources[0].capacity.as_bps(), 8_000_000);
    let agreement = &config.agreements[0];
    assert_eq!((&*agreement.lease("core"), agreement.ttl_ms()), ("core/peer:rt", 30_000));
    assert_eq!(agreement.ca.as_deref(), Some(Path::new("/etc/weir/peer-ca.pem")));
    assert_eq!(config.tokens[0].expires, Some(Day(1_826_841_600_000)));
    let profile = &config.profiles[0];
    assert_eq!((&*profile.name, profile.rate.as_bps(), profile.longest_s()), ("QOS_E", 512_000, 3_600));
    let tables = include_str!("../config.rs").lines().map_while(|line| line.strip_prefix("//!"));
    let second = tables.map(str::trim).skip_while(|l| *l != "[store]").take_while(|l| *l != "```");
    let cluster = format!("domain = \"core\"\n{}\n", second.collect::<Vec<_>>().join("\n"));
    match Config::read(&cluster, Path::new("/etc/weir")) {
        Ok(mut config) if cfg!(feature = "etcd") => {
            assert!(config.store.to_string().starts_with("etcd at https://10.0.0.1:2379, "));
            let files: Vec<_> = config.store.files().map(|path| path.display().to_string()).collect();
            assert_eq!(files, ["/etc/weir/etcd-ca.pem", "/etc/weir/etcd.pem", "/etc/weir/etcd.key"]);
        }
        Err(why) if !cfg!(feature = "etcd") => {
            assert!(why.contains("built without it: build it by `cargo build"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    let small = Config::read(SMALL, Path::new("/etc/weir")).expect("the rest has defaults");
    assert_eq!((&*small.unix, small.priority), (Path::new(super::super::SOCKET), Priority::None));
}

#[test]
fn what_is_wrong_is_said_with_its_mend() {
    let token = |rest: &str| format!("[[token]]\nname = \"a\"\nrole = \"read\"\n{rest}\n");
    let digits = "sha256 = \"0000000000000000000000000000000000000000000000000000000000000000\"";
    let resource = |name: &str| format!("[[resource]]\nname = \"{name}\"\ncapacity = \"1M\"\n");
    for (more, said) in [
        ("http = \"0.0.0.0:80\"\n".to_owned(), "write 127.0.0.1:80, or use [tls]"),
        ("cops = \"0.0.0.0:3288\"\n".to_owned(), "write 127.0.0.1:3288, or add [tls]"),
        ("htpp = \"127.0.0.1:80\"\n".to_owned(), "unknown field `htpp`, expected one of"),
        ("audit-lines = 0\n".to_owned(), "expected at least 1"),
        ("priority = \"high\"\n".to_owned(), "priority = \"high\": write `fifo`, `nice` or `none`"),
        (resource("wan0"), "expected LINK:CLASS"),
        (resource("a:b") + &resource("a:b"), "is there twice"),
        ("[[resource]]\nname = \"a:b\"\ncapacity = \"8Mbps\"\n".to_owned(), "8Mbps"),
        ("[[resource]]\nname = \"a:b\"\ncapacity = \"2T\"\n".to_owned(), "rates go up to 1T"),
        (token("sha256 = \"secret\""), "expected the 64 digits"),
        (token(digits) + &token(digits), "is there twice"),
        (token(&format!("{digits}\nexpires = \"2027-02-29\"")), "expected a day"),
        (token(&format!("{digits}\nowner = \"a/b\"")), "without / or blanks"),
        (token(digits).replace("\"a\"", "\"socket\""), "write name = \"token-socket\""),
        (token(digits).replace("\"a\"", "\"operator\""), "write name = \"token-operator\""),
        (token(digits).replace("\"a\"", "\"broker\""), "write name = \"token-broker\""),
        (token(digits).replace("\"a\"", "\"edge:a\""), "write name = \"token-edge-a\""),
    ] {
        let why = Config::read(&format!("{SMALL}{more}"), Path::new("")).expect_err(&more);
        assert!(why.contains(said), "{more}: {why}");
    }
    let why = Config::read("store = \"x\"\n", Path::new("")).expect_err("no domain");
    assert!(why.contains("missing field `domain`"), "{why}");
}

#[test]
fn what_is_wrong_about_an_agreement_is_said_with_its_mend() {
    let good = "[[agreement]]\nresource = \"p:rt\"\nbroker = \"unix:/run/peer.sock\"\npath = [\"c:rt\"]\nceiling = \"4M\"\n";
    let read = |text: &str| Config::read(&format!("{SMALL}{text}"), Path::new(""));
    let small = read(good).expect("the rest has defaults");
    assert_eq!((small.agreements[0].bulk.as_bps(), small.agreements[0].ttl_ms()), (1, 30_000));
    for (from, to, said) in [
        ("unix:/run/peer.sock", "http://10.0.0.1:80", "broker: expected https://HOST:PORT, or unix:/PATH"),
        ("unix:/run/peer.sock", "https://10.0.0.1", "broker: expected https://HOST:PORT"),
        ("unix:/run/peer.sock", "https://10.0.0.1:80", "expected ca, cert and key"),
        ("[\"c:rt\"]", "[]", "path: expected 1 to 8 different resources"),
        ("[\"c:rt\"]", "[\"c:rt\", \"c:rt\"]", "path: expected 1 to 8 different resources"),
        ("\"4M\"", "\"2T\"", "rates go up to 1T"),
        ("\"4M\"", "\"4M\"\nbulk = \"5M\"", "bulk: expected 1 bit/s to the ceiling"),
        ("\"4M\"", "\"4M\"\nttl = \"2h\"", "2h"),
        ("\"4M\"", "\"4M\"\nttl = \"500ms\"", "ttl: expected 1s to 1h"),
        ("p:rt", "p", "expected LINK:CLASS"),
        ("\"4M\"", "\"4M\"\nrate = 1", "unknown field `rate`, expected one of"),
    ] {
        let why = read(&good.replace(from, to)).expect_err(to);
        assert!(why.contains(said), "{to}: {why}");
    }
    let neighbour = "[[neighbour]]\ndomain = \"d\"\nthrough = \"p:rt\"\n";
    assert_eq!(&*read(&format!("{good}{neighbour}")).expect("it is usable").neighbours[0].through, "p:rt");
    for (text, said) in [
        (neighbour.to_owned(), "write a [[resource]] whose capacity is the most"),
        (format!("{good}{neighbour}{neighbour}"), "is there twice"),
        (format!("{good}{}", neighbour.replace("\"d\"", "\"d/e\"")), "without / or blanks"),
    ] {
        let why = read(&text).expect_err(&text);
        assert!(why.contains(said), "{text}: {why}");
    }
    let twice = format!("{good}[[resource]]\nname = \"p:rt\"\ncapacity = \"1M\"\n");
    assert!(read(&twice).expect_err("twice").contains("is there twice"));
}

#[test]
fn a_device_is_behind_the_edge_with_its_longest_prefix() {
    let edge = |name: &str, devices: &str| format!("[[edge]]\nname = \"{name}\"\ndevices = [{devices}]\n");
    let read = |text: &str| Config::read(&format!("{SMALL}{text}"), Path::new(""));
    let good = edge("e0", "\"10.0.0.0/8\", \"2001:db8::/32\"") + &edge("e1", "\"10.1.0.0/16\", \"10.2.0.7\"");
    let config = read(&good).expect("it is usable");
    let of = |addresses: &[&str]| {
        let addresses: Vec<std::net::IpAddr> =
            addresses.iter().map(|a| a.parse().expect("an address")).collect();
        carrier(&config.edges, addresses.into_iter()).map(|edge| edge.name.to_string())
    };
    for (addresses, edge) in [
        (&["10.3.0.1"][..], Some("e0")),
        (&["10.1.255.255"], Some("e1")),
        (&["10.2.0.7"], Some("e1")),
        (&["10.2.0.8"], Some("e0")),
        (&["2001:db8:ffff::1"], Some("e0")),
        (&["2001:db9::1"], None),
        (&["11.0.0.0"], None),
        (&["192.168.0.1", "10.1.0.1"], Some("e1")),
        (&[], None),
    ] {
        assert_eq!(of(addresses).as_deref(), edge, "{addresses:?}");
    }
    let whole = read(&edge("e", "\"0.0.0.0/0\"")).expect("it is usable");
    let (v4, v6) = ("255.1.2.3".parse().expect("one"), "::1".parse().expect("one"));
    assert!(carrier(&whole.edges, [v4].into_iter()).is_some());
    assert!(carrier(&whole.edges, [v6].into_iter()).is_none());
    for (text, said) in [
        (
            edge("e/0", "\"10.0.0.0/8\""),
            "edge \"e/0\": expected 1 to 64 printable ASCII characters without / or blanks",
        ),
        (
            edge("e", ""),
            "edge \"e\": devices: expected the addresses of its devices, as [\"198.51.100.0/24\"]",
        ),
        (edge("e", "\"10.0.0.1/8\""), "`10.0.0.1/8` has bits beyond its length: the prefix is `10.0.0.0/8`"),
        (edge("e", "\"10.0.0.0/33\""), "`10.0.0.0/33` is no prefix: its length is at most 32"),
        (edge("e", "\"fe80::/129\""), "`fe80::/129` is no prefix: its length is at most 128"),
        (good.replace("e1", "e0"), "edge \"e0\" is there twice: leave one"),
        (
            good.replace("10.1.0.0/16", "10.0.0.0/8"),
            "edge \"e1\": devices: 10.0.0.0/8 is one of edge \"e0\" already: a prefix belongs to one edge",
        ),
        (edge("e", "\"10.0.0.1\", \"10.0.0.1/32\""), "is one of edge \"e\" already"),
        (good.replace("devices", "device"), "unknown field `device`, expected `name` or `devices`"),
    ] {
        let why = read(&text).expect_err(&text);
        assert!(why.contains(said), "{text}: {why}");
    }
}

#[test]
fn what_is_wrong_about_a_profile_is_said_with_its_mend() {
    let resource = "[[resource]]\nname = \"w:rt\"\ncapacity = \"1M\"\n";
    let good = "[[profile]]\nname = \"QOS_E\"\npath = [\"w:rt\"]\nrate = \"512k\"\nlongest = \"60min\"\n";
    let read = |profile: &str| Config::read(&format!("{SMALL}{resource}{profile}"), Path::new(""));
    assert!(read(good).is_ok());
    for (what, with, said) in [
        (
            "\"QOS_E\"",
            "\"QE\"",
            "profile \"QE\": name: expected 3 to 256 letters, digits, _ . and -, as \"QOS_E\"",
        ),
        ("\"QOS_E\"", "\"QOS E\"", "name: expected 3 to 256"),
        ("[\"w:rt\"]", "[]", "path: expected 1 to 8 different names of [[resource]]s in this file"),
        ("[\"w:rt\"]", "[\"x:rt\"]", "path: expected 1 to 8 different names"),
        ("[\"w:rt\"]", "[\"w:rt\", \"w:rt\"]", "path: expected 1 to 8 different names"),
        ("512k", "0", "rate: expected a rate above 0"),
        ("\"60min\"", "\"61min\"", "longest: expected 1s to 60min, as \"60min\""),
        ("\"60min\"", "\"1ms\"", "longest: expected 1s to 60min"),
    ] {
        let why = read(&good.replacen(what, with, 1)).expect_err(with);
        assert!(why.contains(said), "{with}: {why}");
    }
    let why = read(&good.repeat(2)).expect_err("twice");
    assert!(why.contains("profile \"QOS_E\" is there twice"), "{why}");
}

#[test]
fn what_is_wrong_about_a_cluster_is_said_with_its_place_and_its_mend() {
    let read =
        |store: &str| Config::read(&format!("domain = \"core\"\n{store}\n"), Path::new("")).expect_err(store);
    // What is wrong with a value is shown where it stands.
    for (store, said) in [
        ("store = 7", "a file, as store = \"core.redb\", or [store] with the nodes of etcd"),
        ("[store]\nnodes = []", "unknown field `nodes`, expected one of"),
        ("[store]\netcd = [\"10.0.0.1:2379\"]", "expected https://HOST:PORT, as \"https://10.0.0.1:2379\""),
        ("[store]\netcd = [\"https://10.0.0.1\"]", "expected HOST:PORT and nothing behind it"),
        ("[store]\netcd = [\"https://a:2379/v3\"]", "expected HOST:PORT and nothing behind it"),
        ("[store]\netcd = [\"http://10.0.0.1:2379\"]", "without TLS only an address of the loopback is safe"),
        ("[store]\netcd = []\nsilence = \"1s\"", "expected 2s to 60s"),
    ] {
        let why = read(store);
        assert!(why.contains(said) && why.contains("TOML parse error at line "), "{store}: {why}");
    }
    if cfg!(feature = "etcd") {
        let (http, https) = ("[store]\netcd = [\"http://[::1]:1\"]\n", "[store]\netcd = [\"https://a:1\"]\n");
        for (store, said) in [
            ("[store]\netcd = []".to_owned(), "expected at least one node"),
            ("[store]\netcd = [\"https://a:1\", \"http://127.0.0.1:1\"]".into(), "make all of them https"),
            (https.into(), "as ca = \"etcd-ca.pem\""),
            (format!("{https}ca = \"a\"\ncert = \"b\""), "expected the private key of `cert`"),
            (format!("{https}ca = \"a\"\nkey = \"b\""), "expected the certificate of `key`"),
            (format!("{http}ca = \"a\""), "write https, or leave these away"),
        ] {
            let why = read(&store);
            assert!(why.contains(said), "{store}: {why}");
        }
    }
}

#[test]
fn days_are_counted_as_the_calendar_does() {
    for (text, day) in
        [("1970-01-01", 0), ("1972-02-29", 789), ("2000-03-01", 11_017), ("2027-11-22", 21_144)]
    {
        assert_eq!(Day::parse(text), Some(Day(day * 86_400_000)), "{text}");
    }
}
