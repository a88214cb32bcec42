//! Scenarios whose ports an altq.conf describes.

use crate::{Error, Options, run};
use weir_report::report::Count;
use weir_scenario::Scenario;

const CONF: &str = "interface em0 bandwidth 10M priq\\nclass priq em0 hi NULL priority 1\\n\
                    class priq em0 lo NULL priority 0 default\\nfilter em0 hi 0 5002 0 0 17\\n";

fn scenario(conf: &str) -> Scenario {
    let text = scenario_text(conf);
    Scenario::from_toml("test.toml", &text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn scenario_text(conf: &str) -> String {
    format!(
        "duration = \"2s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
         [[link]]\na = \"a\"\nb = \"box\"\nrate = \"100M\"\n\
         [[link]]\na = \"box\"\nb = \"b\"\nrate = \"10M\"\noverhead = 0\n\
         [[port]]\nat = \"box\"\nto = \"b\"\ntext = \"{conf}\"\n\
         [[flow]]\nname = \"hi\"\nfrom = \"a\"\nto = \"b\"\nkind = \"udp\"\nport = 5002\nsize = 500\n\
         rate = \"4M\"\nclass = \"hi\"\n\
         [[flow]]\nname = \"lo\"\nfrom = \"a\"\nto = \"b\"\nkind = \"udp\"\nsize = 1000\nrate = \"20M\"\nclass = \"lo\"\n"
    )
}

/// The whole way from text to report: priority first, the rest gets what is left.
#[test]
fn an_altq_conf_rules_a_port() {
    let share = |conf: &str, class: &str| {
        let report = run(&scenario(conf), Options::default()).unwrap();
        assert!(report.pass(), "{:?}", report.checks);
        let port = &report.ports[0];
        assert_eq!((port.name.as_str(), port.discipline.as_str()), ("box>b", "priq"));
        for class in &port.classes {
            let gone = class.sent.packets + class.dropped_in_all().packets + class.left.packets;
            assert_eq!(class.offered.packets, gone, "{}", class.name);
        }
        port.class(class).unwrap().sent.bytes as f64 * 8.0 / 2.0 / 10e6
    };
    assert!((share(CONF, "hi") - 0.4).abs() < 0.005);
    assert!((share(CONF, "lo") - 0.6).abs() < 0.005);
    // Reversed: with the priorities exchanged the greedy flow takes all.
    let turned = CONF.replace("priority 1", "priority 7").replace("priority 0", "priority 8");
    assert!(share(&turned, "hi") < 0.005);
}

#[test]
fn faults_of_a_configuration_are_told_with_their_place() {
    let error = |conf: &str| match run(&scenario(conf), Options::default()) {
        Err(Error::Input(text)) => text,
        other => panic!("{other:?}"),
    };
    let misspelt = error(&CONF.replace("class priq em0 lo", "class priq em1 lo"));
    assert!(misspelt.contains("port box>b") && misspelt.contains(":3:"), "{misspelt}");
    assert!(misspelt.contains("em1"), "{misspelt}");
}

/// The link is what is simulated; a bandwidth that says otherwise is noted.
#[test]
fn another_bandwidth_is_noted() {
    let report = run(&scenario(&CONF.replace("10M", "5M")), Options::default()).unwrap();
    let note = report.meta.notes.iter().find(|note| note.contains("bandwidth 5M")).unwrap();
    assert!(note.contains("has 10M"), "{note}");
}

/// An edge marks what keeps its profile and drops the rest; the next box knows the mark, and the
/// report of each says what was dropped where.
#[test]
fn a_mark_is_carried_to_the_next_box() {
    let edge = "interface em0 bandwidth 100M cdnr\\n\
                conditioner em0 premium <tbmeter 2M 3000 <mark EF><drop>>\\n\
                filter em0 premium 0 5002 0 0 17\\n";
    let core = "interface em0 bandwidth 10M priq\\nclass priq em0 hi NULL priority 1\\n\
                class priq em0 lo NULL priority 0 default\\nfilter em0 hi 0 0 0 0 0 dscp EF\\n";
    let run = |edge: &str| {
        let text = format!(
            "duration = \"4s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
             [[link]]\na = \"a\"\nb = \"edge\"\nrate = \"100M\"\n\
             [[link]]\na = \"edge\"\nb = \"core\"\nrate = \"100M\"\n\
             [[link]]\na = \"core\"\nb = \"b\"\nrate = \"10M\"\n\
             [[port]]\nat = \"edge\"\nto = \"core\"\ntext = \"{edge}\"\n\
             [[port]]\nat = \"core\"\nto = \"b\"\ntext = \"{core}\"\n\
             [[flow]]\nname = \"p\"\nfrom = \"a\"\nto = \"b\"\nkind = \"udp\"\nport = 5002\nsize = 500\nrate = \"4M\"\n\
             [[flow]]\nname = \"q\"\nfrom = \"a\"\nto = \"b\"\nkind = \"udp\"\nport = 5003\nsize = 500\nrate = \"1M\"\n"
        );
        let scenario = Scenario::from_toml("test.toml", &text).unwrap_or_else(|errors| panic!("{errors}"));
        run(&scenario, Options::default()).unwrap()
    };
    let report = run(edge);
    let bps = |class: &str| report.ports[1].class(class).unwrap().sent.bytes as f64 * 2.0;
    // 500 bytes of UDP are frames of 542 bytes, and 566 on the wire.
    assert!((bps("hi") - 2e6 * 542.0 / 566.0).abs() < 2e4, "{}", bps("hi"));
    assert!((bps("lo") - 1e6).abs() < 2e4, "{}", bps("lo"));
    let all = &report.ports[0].classes[0];
    let policed = all.dropped.iter().find(|(reason, _)| reason.as_str() == "policed").unwrap().1;
    let gone = all.sent.packets + policed.packets + all.left.packets;
    assert_eq!(all.offered.packets, gone);
    assert!((policed.bytes as f64 * 2.0 - (4e6 - bps("hi"))).abs() < 2e4, "{}", policed.bytes);
    // The report says of each conditioner and meter what it did, the next port has none.
    let [premium, meter] = &report.ports[0].conditioners[..] else { panic!("{:?}", report.ports[0]) };
    assert_eq!((premium.name.as_str(), meter.name.as_str()), ("premium", "premium tbmeter"));
    assert_eq!((premium.counts["dropped"], meter.counts["out"]), (*policed, *policed));
    assert_eq!((premium.counts["marked"], premium.counts["passed"]), (meter.counts["in"], Count::default()));
    let mut ended = premium.counts["marked"];
    ended.merge(*policed);
    assert_eq!(premium.counts["offered"], ended);
    assert_eq!(ended.packets, report.flows[0].sent.packets, "flow p, and no packet of flow q");
    assert!(report.ports[1].conditioners.is_empty());
    // Reversed: without the edge everything is best effort.
    let report = run("interface em0 bandwidth 100M fifoq\\n");
    assert!(report.ports[0].conditioners.is_empty());
    assert_eq!(report.ports[1].class("hi").unwrap().sent.packets, 0);
}

/// T53: a class says after which silence a call has ended, and a scenario sets it at times. Calls that pause are admitted
/// anew after each longer pause.
#[test]
fn t53_a_scenario_sets_what_silence_is() {
    let admitted = |timeout: &str, set: &str| {
        let edge = format!(
            "interface em0 bandwidth 10M hfsc\\nclass hfsc em0 hi root [ls 0 0 8M] [ul 0 0 1M]\\n\
             class hfsc em0 lo root [ls 0 0 2M] default\\nfilter em0 hi 0 0 0 0 0 dscp EF\\n\
             recognise em0 rtp 4/2s\\nallocate em0 hi window 100ms 1 from 64K to 8M initial 1M{timeout}\\n"
        );
        let text = format!(
            "duration = \"40s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
             [[link]]\na = \"a\"\nb = \"box\"\nrate = \"100M\"\n[[link]]\na = \"box\"\nb = \"b\"\nrate = \"10M\"\n\
             [[port]]\nat = \"box\"\nto = \"b\"\ntext = \"{edge}\"\nset = [{set}]\n\
             [[flow]]\nfrom = \"a\"\nto = \"b\"\nkind = \"rtp\"\ncodec = \"opus\"\nsuppression = true\ncount = 5\n"
        );
        let scenario = Scenario::from_toml("test.toml", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let report = run(&scenario, Options::default()).unwrap();
        report.ports[0].class("hi").unwrap().statistics["edge-admitted"]
    };
    let usual = admitted("", "");
    let short = admitted(" timeout 200ms", "");
    let set = admitted("", "{ at = \"0s\", class = \"hi\", handler = \"admit.timeout=200ms\" }");
    let late = admitted("", "{ at = \"20s\", class = \"hi\", handler = \"admit.timeout=200ms\" }");
    // 15 pauses a call, a few of them longer than 5 s.
    assert!(usual >= 5.0 && short > 5.0 * usual, "{usual} {short}");
    assert_eq!(set, short);
    assert!((1.5 * usual..0.8 * short).contains(&late), "{usual} {late} {short}");
}

const EDGE: &str = "interface em0 bandwidth 10M hfsc\\nclass hfsc em0 hi root [ls 0 0 8M] [ul 0 0 1M]\\n\
                    class hfsc em0 lo root [ls 0 0 2M] default\\nfilter em0 hi 0 5002 0 0 17\\n\
                    allocate em0 hi window 100ms 1 from 64K to 8M initial 1M\\n";

fn setting(set: &str) -> Scenario {
    let port = format!("text = \"{EDGE}\"\nset = [{set}]\n[[flow]]\nname = \"hi\"");
    let text = scenario_text(EDGE).replace(&format!("text = \"{EDGE}\"\n[[flow]]\nname = \"hi\""), &port);
    Scenario::from_toml("test.toml", &text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// T46: a scenario sets handlers while it runs, by name and by the paper's: the class then has what they say.
#[test]
fn t46_a_scenario_sets_handlers() {
    let allocated = |set: &str| {
        let report = run(&setting(set), Options::default()).unwrap();
        report.ports[0].class("hi").unwrap().statistics["edge-allocated"]
    };
    let free = allocated("");
    // Half of the time as before, half of it at 200 kbit/s.
    let bounded = allocated("{ at = \"1s\", class = \"hi\", handler = \"request.to=200K\" }");
    assert!(free > 3e6 && (bounded - (free + 200e3) / 2.0).abs() < free / 5.0, "{free} {bounded}");
    // In the order of their times, whatever the order of the list.
    let twice = allocated(
        "{ at = \"1s\", class = \"hi\", handler = \"law.step=1K\" }, \
         { at = \"0s\", class = \"hi\", handler = \"law=log\" }, { at = \"1s\", class = \"hi\", handler = \"BB_response=1\" }",
    );
    assert!(twice > 1e6, "{twice}");
    let refused = |set: &str, words: &[&str]| match run(&setting(set), Options::default()) {
        Err(Error::Input(text)) => {
            words.iter().for_each(|word| assert!(text.contains(word), "{word}: {text}"))
        }
        other => panic!("{set}: {other:?}"),
    };
    let at = |class: &str, handler: &str| {
        format!("{{ at = \"1s\", class = \"{class}\", handler = \"{handler}\" }}")
    };
    refused(
        &at("ho", "l_max=80"),
        &["port box>b: `set` at 1s", "class `ho` has no allocator", "did you mean `hi`?"],
    );
    refused(&at("hi", "l_maxx=80"), &["no handler `l_maxx`", "did you mean `l_max`?"]);
    refused(&at("hi", "law.gain=1M"), &["follows `law threshold`", "set `law=log` first"]);
    refused(&at("hi", "l_min=88"), &["up and down", "write `"]);
}
