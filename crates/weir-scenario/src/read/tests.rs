//! What is read, what is refused and with which words, and what is written.

use super::*;
use crate::scenario::{Distribution, Refill};
use weir_report::{FlowKind, Windows};
use weir_text::{Amount, BitRate, Dscp, Size, Time};

mod damaged;
mod mends;

/// A scenario without faults; tests add to it or change a line.
const GOOD: &str = r#"duration = "45s"
[[host]]
name = "a"
[[host]]
name = "b"
[[link]]
a = "a"
b = "box"
rate = "1G"
[[link]]
a = "box"
b = "b"
rate = "10M"
delay = "5ms"
[[port]]
at = "box"
to = "b"
text = "interface em0 bandwidth 10M fifoq"
[[flow]]
from = "a"
to = "b"
"#;

/// The diagnostics of a text that must be refused.
fn refused(text: &str) -> String {
    Scenario::from_toml("x.toml", text).expect_err(text).to_string()
}

/// The diagnostics when GOOD's line `line` is replaced by `new`.
fn with_line(line: &str, new: &str) -> String {
    assert!(GOOD.contains(line), "{line}");
    refused(&GOOD.replacen(line, new, 1))
}

/// Message and remedy, without the place, when `more` is added to GOOD.
fn with(more: &str) -> String {
    let Diagnostics(all) = Scenario::from_toml("x.toml", &format!("{GOOD}{more}")).expect_err(more);
    format!("{} | {}", all[0].message, all[0].help)
}

#[test]
fn the_good_one_is_good() {
    let scenario = Scenario::from_toml("x.toml", GOOD).unwrap();
    assert_eq!(scenario.links[1].rate, BitRate::from_bps(10_000_000));
    assert_eq!(
        (scenario.seed, scenario.links[0].mtu, scenario.links[0].refill),
        (1, Size::from_bytes(1500), Refill::Packet)
    );
    assert_eq!(
        (scenario.flows[0].port, scenario.flows[0].sack, scenario.flows[0].kind),
        (5001, true, FlowKind::Tcp)
    );
    assert_eq!(scenario.address(1).to_string(), "10.0.0.2");
    assert_eq!(scenario.address6(1).to_string(), "fd00::2");
    assert_eq!(scenario.flow_copies()[0].source_port, 20_000);
    assert_eq!(scenario.cell(), Time::from_millis(100));
}

/// The exact text of one error of each kind of place: value, key, table, file.
#[test]
fn errors_show_place_and_remedy() {
    assert_eq!(
        with_line("duration = \"45s\"", "duration = \"45s\"\nsed = 1"),
        "error: unknown key `sed`\n --> x.toml:2:1\n  |\n2 | sed = 1\n  | ^^^\n  |\n  = help: did you mean `seed`?"
    );
    assert_eq!(
        with_line("rate = \"10M\"", "rate = \"10Mbps\""),
        "error: `10Mbps` can be read in two ways\n  --> x.toml:13:8\n   |\n13 | rate = \"10Mbps\"\n   |        ^^^^^^^^\n   |\n   = help: write \"10M\" if it is 10M bits per second, \"80M\" if it is 10M bytes\n           per second"
    );
    assert_eq!(
        with_line("rate = \"10M\"\n", ""),
        "error: the key `rate` is missing\n  --> x.toml:10:1\n   |\n10 | [[link]]\n   | ^^^^^^^^\n   |\n   = help: add rate = \"10M\""
    );
    assert_eq!(
        with_line("to = \"b\"\ntext", "\tto = \"k\"  # not ü\ntext"),
        "error: there is no node `k`\n  --> x.toml:17:7\n   |\n17 |     to = \"k\"  # not ü\n   |          ^^^\n   |\n   = help: write one of: a, b, box"
    );
    assert_eq!(
        with_line("text = \"interface em0 bandwidth 10M fifoq\"\n", ""),
        "error: the port has no configuration\n  --> x.toml:15:1\n   |\n15 | [[port]]\n   | ^^^^^^^^\n   |\n   = help: add conf = \"FILE.altq\", or text = '''…''' with the configuration\n           itself"
    );
    assert_eq!(
        refused(""),
        "error: the key `duration` is missing\n --> x.toml:1:1\n  |\n1 |\n  | ^\n  |\n  = help: add duration = \"45s\" at the top"
    );
    assert_eq!(
        Scenario::read(Path::new("/nonexistent/x.toml")).unwrap_err().to_string(),
        "error: cannot be read: No such file or directory (os error 2)\n--> /nonexistent/x.toml\n = help: name an existing scenario file"
    );
    assert_eq!(
        with_line("duration = \"45s\"", "duration = \"45s"),
        "error: invalid basic string, expected `\"`\n --> x.toml:1:16\n  |\n1 | duration = \"45s\n  |                ^\n  |\n  = help: see toml.io for the syntax of TOML"
    );
}

/// A day has too many intervals of 100 ms, but not of 10 s.
#[test]
fn long_runs_want_longer_intervals() {
    let day = GOOD.replace("45s", "86400s");
    assert_eq!(
        refused(&day),
        "error: a run of 86400s is too long to be sampled every 100 ms\n --> x.toml:1:12\n  |\n1 | duration = \"86400s\"\n  |            ^^^^^^^^\n  |\n  = help: add a [[probe]] with what = \"classes\" and every = \"10s\""
    );
    assert!(
        Scenario::from_toml("x.toml", &format!("{day}[[probe]]\nwhat = \"classes\"\nevery = \"10s\"\n"))
            .is_ok()
    );
}

/// The flows over a link of a wrong MTU are judged, too.
#[test]
fn a_wrong_mtu_is_one_fault() {
    let text = GOOD.replace("delay = \"5ms\"", "mtu = 20") + "kind = \"rr\"\nipv6 = true\n";
    let all = Scenario::from_toml("x.toml", &text).unwrap_err().0;
    let said: Vec<_> = all.iter().map(|one| one.message.as_str()).collect();
    assert_eq!(said, ["`mtu` is 20"]);
}

/// Several faults are all reported, in the order of the kinds of tables.
#[test]
fn all_faults_at_once() {
    let text = GOOD.replace("delay = \"5ms\"", "delay = \"2min\"").replace("to = \"b\"\n", "to = \"c\"\n");
    let all = Scenario::from_toml("x.toml", &text).unwrap_err().0;
    let said: Vec<_> = all.iter().map(|one| (one.line, one.column, one.message.as_str())).collect();
    let wanted =
        [(14, 9, "`delay` is 120s"), (17, 6, "there is no node `c`"), (21, 6, "there is no host `c`")];
    assert_eq!(said, wanted);
}

/// Each kind of fault, as it is added to GOOD (its last table is the flow), and what is said about it.
#[rustfmt::skip]
const FAULTS: &[(&str, &str)] = &[
    (r#"kind = "udp""#, r#"a udp flow needs the length of its packets | add size = BYTES, the frame's length, such as 1000"#),
    (r#"kind = "udp"\nsize = 1000"#, r#"a udp flow needs to know how fast it sends | add rate = "1M", or burst = PACKETS and period = "150ms""#),
    (r#"kind = "udp"\nsize = 1000\nrate = "1M"\nburst = 3"#, r#"`rate` beside `burst` or `period`: the flow has two speeds | write either rate, or burst and period"#),
    (r#"kind = "udp"\nsize = 1000\nburst = 3"#, r#"`burst` without `period` | add period = "150ms": from one burst to the next"#),
    (r#"kind = "udp"\nsize = 1000\nperiod = "1ms""#, r#"`period` without `burst` | add burst = PACKETS"#),
    (r#"kind = "udp"\nsize = 20\nrate = "1M""#, r#"`size` is 20 | write a value from 60 to 1514"#),
    (r#"kind = "udp"\nsize = 1600\nrate = "0""#, r#"`size` is 1600 | write a value from 60 to 1514"#),
    (r#"kind = "udp"\nsize = 1000\nrate = "1M"\non = "1s""#, r#"`on` without `off` | add off = "1s": the mean time off"#),
    (r#"kind = "udp"\nsize = 1000\nrate = "1M"\noff = "1s""#, r#"`off` without `on` | add on = "1s": the mean time on"#),
    (r#"kind = "udp"\nsize = 1000\nburst = 0\nperiod = "1s"\non = "1s"\noff = "1s""#, r#"`burst` is 0 | write a value from 1 to 10000"#),
    (r#"kind = "udp"\nsize = 1000\nrates = ["0", "1M"]"#, r#"`rates` without `hold` | add hold = "10s": the mean time at each"#),
    (r#"kind = "udp"\nsize = 1000\nrates = ["0"]\nhold = "1s""#, r#"a flow whose rates are all 0 sends nothing | write a rate above 0 among them"#),
    (r#"kind = "udp"\nsize = 1000\nrates = ["1M"]\nhold = "1s"\nrate = "1M""#, r#"`rates` beside `rate`, `burst` or `period` | leave the others out"#),
    (r#"kind = "udp"\nsize = 1000\nrates = ["1M"]\nhold = "1s"\non = "1s"\noff = "1s""#, r#"`on` and `off` beside `rates` | write 0 among `rates`: it is silence"#),
    (r#"kind = "udp"\nsize = 1000\nrate = "1M"\nhold = "1s""#, r#"`hold` without `rates` | leave `hold` out, or add rates = …"#),
    (r#"kind = "udp"\nsize = 1000\nrate = "1M"\ndistribution = "pareto""#, r#"there are no times to draw | add on = "1s" and off = "1s", the means"#),
    (r#"kind = "udp"\nsize = 1000\nrate = "1M"\non = "1s"\noff = "1s"\nshape = 1.5"#, r#"`shape` is for the Pareto distribution | leave it out, or write distribution = "pareto""#),
    (r#"kind = "udp"\nsize = 1000\nrate = "1M"\non = "1s"\noff = "1s"\ndistribution = "pareto"\nshape = 1"#, r#"`shape` is 1 | write a value above 1 (where the mean exists) up to 100"#),
    (r#"kind = "udp"\nsize = 1000\nrate = "1M"\nwindow = 65536"#, r#"`window` means nothing for a flow of kind udp | leave it out, or write kind = "tcp""#),
    (r#"kind = "rr"\nrequest = 1473"#, r#"`request` is 1473 | write a value from 1 to 1472"#),
    (r#"kind = "rr"\nresponse = 1453\nipv6 = true"#, r#"`response` is 1453 | write a value from 1 to 1452"#),
    (r#"kind = "sctp""#, r#"`sctp` is not known here | write "tcp" or "udp" or "rr" or "rtp""#),
    (r#"kind = "rtp"\ncodec = "g722""#, r#"`g722` is not known here | write "g711" or "g723.1" or "g729" or "opus" or "video""#),
    (r#"kind = "rtp"\nrate = "1M""#, r#"`rate` means nothing for a flow of kind rtp | leave it out, or write kind = "udp""#),
    (r#"kind = "rtp"\nframes = 11"#, r#"`frames` is 11 | write a value from 1 to 10"#),
    (r#"kind = "rtp"\nssrc = 0"#, r#"`ssrc` is 0 | write a value from 1 to 4294957295"#),
    (r#"kind = "rtp"\nhidden = 65"#, r#"`hidden` is 65 | write a value from 0 to 64"#),
    (r#"kind = "rtp"\ncodec = "video"\nsuppression = true"#, r#"`suppression` is for voice | leave it out, or write codec = "g711""#),
    (r#"hidden = 27"#, r#"`hidden` means nothing for a flow of kind tcp | leave it out, or write kind = "rtp""#),
    (r#"rate = "1M""#, r#"`rate` means nothing for a flow of kind tcp | leave it out, or write kind = "udp""#),
    (r#"request = 64"#, r#"`request` means nothing for a flow of kind tcp | leave it out, or write kind = "rr""#),
    (r#"window = 100"#, r#"`window` is 100 | write a value from 536 to 1073741824"#),
    (r#"chunk = 0"#, r#"`chunk` is 0 | write a value from 1 to 1099511627776"#),
    (r#"pause = "1s""#, r#"`pause` without `chunk`: a greedy flow has no pauses | add chunk = BYTES, or write idle = [["5s", "10s"]] instead of `pause`"#),
    (r#"count = 0"#, r#"`count` is 0 | write a value from 1 to 10000"#),
    (r#"name = "a.b""#, r#"`a.b` cannot be a name | write 1 to 15 letters, digits, `-` or `_`"#),
    (r#"name = "f2"\n[[flow]]\nfrom = "b"\nto = "a""#, r#"there are two flows called `f2` | give each flow its own name"#),
    (r#"port = 0"#, r#"`port` is 0 | write a value from 1 to 65535"#),
    (r#"port = 70000"#, r#"integer `70000` does not fit here | write a whole number from 0 to 65535"#),
    (r#"start = "45s""#, r#"the flow starts at 45s, but stops at 45s | write a time before "45s""#),
    (r#"stop = "46s""#, r#"the flow stops at 46s, after the end of the run at 45s | write a time up to "45s", or leave `stop` out"#),
    (r#"idle = [["5s", "5s"]]"#, r#"the idle interval 5s to 5s has no length | write [begin, end] with begin before end"#),
    (r#"idle = [["5s", "6s"], ["5s", "7s"]]"#, r#"the idle interval 5s to 7s begins before 6s | write idle intervals in order, not overlapping, after `start`"#),
    (r#"idle = [["5s", "46s"]]"#, r#"the idle interval 5s to 46s ends after the flow, at 45s | write [begin, end] with an end up to "45s""#),
    (r#"idle = [["5s", "6s", "7s"]]"#, r#"an interval has a begin and an end, not 3 times | write pairs: [["5s", "10s"]]"#),
    (r#"idle = ["5s", "6s"]"#, r#"string "5s" does not fit here | write [[TABLE]] headers, or a list between [ and ]"#),
    (r#"dscp = "EFF""#, r#"`EFF` is not a DiffServ code point | write 0 to 63, or EF, AF11 to AF43, CS0 to CS7, BE, LE"#),
    (r#"dscp = 64"#, r#"`64` is not a DiffServ code point | write 0 to 63, or EF, AF11 to AF43, CS0 to CS7, BE, LE"#),
    (r#"window = "64KB""#, r#"`64KB` can be read in two ways | write "64000" or "65536""#),
    (r#"window = "64Q""#, r#"`Q` after the size in `64Q` | bytes are written as "1500", "64K" or "1M", with K = 1024"#),
    (r#"window = -1"#, r#"the size `-1` is negative | bytes are written as "1500", "64K" or "1M", with K = 1024"#),
    (r#"start = "5""#, r#"the time `5` has no unit | a time has a unit, as in "45s", "5ms", "300us", "20ns" or "2min""#),
    (r#"start = "5h""#, r#"`h` after the time in `5h` | a time has a unit, as in "45s", "5ms", "300us", "20ns" or "2min"; units are ns, us, ms, s and min"#),
    (r#"start = "0.5ns""#, r#"`0.5ns` is finer than a nanosecond | a time has a unit, as in "45s", "5ms", "300us", "20ns" or "2min""#),
    (r#"start = "1000000000000s""#, r#"the time `1000000000000s` is too long | a time has a unit, as in "45s", "5ms", "300us", "20ns" or "2min""#),
    (r#"start = "soon""#, r#"`soon` is not a number | a time has a unit, as in "45s", "5ms", "300us", "20ns" or "2min""#),
    (r#"sack = "no""#, r#"string "no" does not fit here | write true or false"#),
    (r#"[[flow]]\nfrom = "a"\nto = "a""#, r#"the flow goes from `a` to itself | name two different hosts"#),
    (r#"[[flow]]\nfrom = "box"\nto = "a""#, r#"`box` is a box: only hosts send and receive | write one of: a, b, or add a [[host]] with name = "box""#),
    (r#"[[flow]]\nfrom = "x"\nto = "a""#, r#"there is no host `x` | write one of: a, b"#),
    (r#"count = 10000\n[[flow]]\nfrom = "a"\nto = "b"\ncount = 10000\n[[flow]]\nfrom = "a"\nto = "b"\ncount = 10000\n[[flow]]\nfrom = "a"\nto = "b"\ncount = 10000\n[[flow]]\nfrom = "a"\nto = "b"\ncount = 10000"#, r#"these are 50000 flows | a scenario has at most 45000: each needs a source port"#),
    (r#"[[host]]\nname = "a""#, r#"there are two hosts called `a` | give each host its own name"#),
    (r#"[[host]]\nname = "a b""#, r#"`a b` cannot be a name | write 1 to 15 letters, digits, `-` or `_`"#),
    (r#"[[host]]\nname = "c"\naddress = "10.0.0.1""#, r#"10.0.0.1 is taken by another host | give each host its own address"#),
    (r#"[[host]]\nname = "c"\naddress6 = "fd00::1""#, r#"fd00::1 is taken by another host | give each host its own address6"#),
    (r#"[[host]]\nname = "c""#, r#"host `c` has no link | add a [[link]] with a = "c", b = "NODE" and rate = "10M""#),
    (r#"[[host]]\nname = "c"\naddress = "10.0.0""#, r#"invalid IPv4 address syntax | write an address such as "192.0.2.1""#),
    (r#"[[host]]\nname = "c"\n[[link]]\na = "c"\nb = "a"\nrate = "1M"\n[[flow]]\nfrom = "c"\nto = "b""#, r#"no path leads from `c` to `b` | add the links that are missing; hosts do not forward"#),
    (r#"[[link]]\na = "a"\nb = "a"\nrate = "1M""#, r#"the link joins `a` to itself | name two different ends"#),
    (r#"[[link]]\na = "box"\nb = "a"\nrate = "1M""#, r#"there is a link between `box` and `a` already | join two nodes by one link"#),
    (r#"[[link]]\na = "box"\nb = "c"\nrate = "0""#, r#"a link of rate 0 carries nothing | write a rate above 0, such as "10M""#),
    (r#"[[link]]\na = "box"\nb = "c"\nrate = "1M"\nmtu = 68"#, r#"`mtu` is 68 | write a value from 576 to 65535"#),
    (r#"[[link]]\na = "box"\nb = "c"\nrate = "1M"\noverhead = 2000"#, r#"`overhead` is 2000 | write a value from 0 to 1000"#),
    (r#"[[link]]\na = "box"\nb = "c"\nrate = "1M"\nring = 0"#, r#"`ring` is 0 | write a value from 1 to 4096"#),
    (r#"[[link]]\na = "box"\nb = "c"\nrate = "1M"\ntick = "2s""#, r#"`tick` is 2s | write a value from "0s" to "1s""#),
    (r#"[[link]]\na = "box"\nb = "c"\nrate = "1M"\nqueue = 0"#, r#"`queue` is 0 | write a value from 1 to 1000000"#),
    (r#"[[link]]\na = "box"\nb = "c"\nrate = "1M"\nrefill = "lazy""#, r#"`lazy` is not known here | write "packet" or "batch""#),
    (r#"[[link]]\na = "box"\nb = "c"\nrate = "0.3""#, r#"`0.3` is not a whole number of bits per second | a rate is bits per second, as in "10M", "64K", "1.5Mbit" or "9600""#),
    (r#"[[link]]\na = "box"\nb = "c"\nrate = "1P""#, r#"`P` after the rate in `1P` | a rate is bits per second, as in "10M", "64K", "1.5Mbit" or "9600""#),
    (r#"[[link]]\na = "box"\nb = "c"\nrate = true"#, r#"boolean `true` does not fit here | write a rate such as "10M""#),
    (r#"[[link]]\na = "box"\nb = "c"\nrate = "2.5MBPS""#, r#"`2.5MBPS` can be read in two ways | write "2.5M" if it is 2.5M bits per second, "20M" if it is 2.5M bytes per second"#),
    (r#"[[port]]\nat = "box"\nto = "b"\nconf = "x.altq""#, r#"the egress box>b is managed already | manage each egress once"#),
    (r#"[[port]]\nat = "c"\nto = "b"\nconf = "x.altq""#, r#"there is no node `c` | write one of: a, b, box"#),
    (r#"[[port]]\nat = "a"\nto = "b"\nconf = "x.altq""#, r#"there is no link from `a` to `b` | `a` has links to: box"#),
    (r#"[[port]]\nat = "box"\nto = "a"\nconf = "x.altq"\ntext = """#, r#"the port has two configurations | write either `conf` or `text`"#),
    (r#"[[probe]]\nwhat = "cwnd""#, r#"`cwnd` is not known here | write "classes" or "flows""#),
    (r#"[[probe]]\nwhat = "classes"\nevery = "1us""#, r#"`every` is 1us | write a value from "1ms" to "45s""#),
    (r#"[[probe]]\nwhat = "classes"\n[[probe]]\nwhat = "classes""#, r#"there are two probes of classes | keep one of them"#),
    (r#"[[expect]]\nwhat = "rates"\nvalue = "1M""#, r#"`rates` is nothing that can be measured | write one of: rate, offered, share, utilisation, drops, loss, marks, backlog-mean, backlog-max, requests, allocated, estimate, efficiency, estimate-excess, estimate-above, refused, evicted, windows-above, goodput, jain, retransmits, transactions, recognised, recognised-after, false, delay-mean, delay-max, delay-p99 (any percentile), rtt-mean, rtt-max, rtt-p99, one-way-mean, one-way-max, one-way-p99"#),
    (r#"[[expect]]\nwhat = "rate"\nmin = "1M"\nmust_fail = true"#, r#"unknown key `must_fail` | `must_fail` belongs into a [[run]] of an experiment, beside its expectations"#),
    (r#"[[expect]]\nwhat = "rate""#, r#"nothing is expected | add value = … and tolerance = …, or min = … or max = …"#),
    (r#"[[expect]]\nwhat = "rate"\nvalue = "1M"\nmin = "1M""#, r#"`value` beside `min` or `max` | write value and tolerance, or min and max"#),
    (r#"[[expect]]\nwhat = "rate"\nvalue = "5%""#, r#"`5%` does not fit rate | write a rate such as "10M""#),
    (r#"[[expect]]\nwhat = "rate"\nvalue = "5%"\nper = ["c0"]\ntolerance = "1M""#, r#"the tolerance `1M` does not fit a ratio of two rate | write a part of the value such as "5%", or a number such as 43"#),
    (r#"[[expect]]\nwhat = "share"\nvalue = "5pt""#, r#"`5pt` does not fit share | write a share such as "58%" or 0.58"#),
    (r#"[[expect]]\nwhat = "delay-p99"\nvalue = 8"#, r#"`8` does not fit delay-p99 | write a time such as "8ms""#),
    (r#"[[expect]]\nwhat = "delay-p100"\nvalue = 8"#, r#"`delay-p100` is nothing that can be measured | write one of: rate, offered, share, utilisation, drops, loss, marks, backlog-mean, backlog-max, requests, allocated, estimate, efficiency, estimate-excess, estimate-above, refused, evicted, windows-above, goodput, jain, retransmits, transactions, recognised, recognised-after, false, delay-mean, delay-max, delay-p99 (any percentile), rtt-mean, rtt-max, rtt-p99, one-way-mean, one-way-max, one-way-p99"#),
    (r#"[[expect]]\nwhat = "drops"\nvalue = "8ms""#, r#"`8ms` does not fit drops | write a number such as 43"#),
    (r#"[[expect]]\nwhat = "drops"\nvalue = "8x""#, r#"`8x` is not a quantity | write a number such as "43", a rate "10M", a time "8ms", a share "58%" or points "5pt""#),
    (r#"[[expect]]\nwhat = "drops"\nvalue = -8"#, r#"`-8` is not a quantity | write a number from 0 up"#),
    (r#"[[expect]]\nwhat = "rate"\nmin = "2M"\nmax = "1M""#, r#"no value is at least 2M and at most 1M | write min up to max"#),
    (r#"[[expect]]\nwhat = "rate"\nmin = "2M"\ntolerance = "5%""#, r#"`tolerance` without `value` | add value = …: min and max have no tolerance"#),
    (r#"[[expect]]\nwhat = "rate"\nmin = "2M"\nfrom = "5s"\nto = "5s""#, r#"the interval begins at 5s, but ends at 5s | write a time before "5s""#),
    (r#"[[expect]]\nwhat = "rate"\nmin = "2M"\nto = "46s""#, r#"the interval ends at 46s, after the end of the run at 45s | write a time up to "45s""#),
    (r#"[[expect]]\nwhat = "rate"\nmin = "2M"\nto = "3s"\nevery = "4s""#, r#"no window of 4s fits between 0s and 3s | write a window above 0 that fits"#),
    (r#"[[expect]]\nwhat = "rate"\nmin = "2M"\nto = "3s"\nevery = "1s"\nover = "4s""#, r#"no window of 4s fits between 0s and 3s | write a window above 0 that fits"#),
    (r#"[[expect]]\nwhat = "rate"\nmin = "2M"\nevery = "1s"\nover = "500ms""#, r#"windows of 500ms that begin every 1s | write a length from "1s" to "45s""#),
    (r#"[[expect]]\nwhat = "rate"\nmin = "2M"\nover = "500ms""#, r#"`over` without `every`: there is one window | add how often one begins, as in every = "100ms""#),
    (r#"[[probe]]\nwhat = "classes"\nover = "50s""#, r#"windows of 50s that begin every 100ms | write a length from "100ms" to "45s""#),
    (r#"[[expect]]\nwhat = "rate"\nmin = "2M"\nwindows = "90%""#, r#"`windows` without `every`: there is one window | add every = "1s", or leave `windows` out"#),
    (r#"[[expect]]\nwhat = "rate"\nmin = "2M"\nevery = "1s"\nwindows = "most""#, r#"`most` does not say which windows must hold | write "all", "median", "mean" or a share such as "90%""#),
    (r#"[[expect]]\nwhat = "rate"\nmin = "2M"\nflow = "f1""#, r#"rate is measured for classes, not by `flow` | leave `flow` out, or see what can be measured for it"#),
    (r#"[[expect]]\nwhat = "goodput"\nmin = "2M"\nclass = "c0""#, r#"goodput is measured for flows, not by `class` | leave `class` out, or see what can be measured for it"#),
    (r#"[[expect]]\nwhat = "goodput"\nmin = "2M"\nflow = "f9""#, r#"there is no flow `f9` | write one of: f1"#),
    (r#"[[expect]]\nwhat = "goodput"\nmin = "2M"\nport = "box>b""#, r#"goodput is measured at the hosts, not at a port | leave `port` out"#),
    (r#"[[expect]]\nwhat = "rate"\nmin = "2M"\nclass = "a"\nclasses = ["b"]"#, r#"`classes` beside `class` | put all names into `classes`"#),
    (r#"[[expect]]\nwhat = "rate"\nmin = "2M"\nport = "box>a""#, r#"there is no managed port `box>a` | write one of: box>b"#),
    (r#"[[expect]]\nwhat = "utilisation"\nmin = 1\nport = "box>c""#, r#"there is no link `box>c` | write one of: a>box, box>a, box>b, b>box"#),
    (r#"[[expect]]\nwhat = "utilisation"\nmin = 1\nclass = "c""#, r#"utilisation is of a link, not of a class | leave it out, or measure the share"#),
    (r#"[[expect]]\nwhat = "jain"\nmin = 1\nper = ["f1"]"#, r#"jain cannot be divided by that of others | leave `per` out"#),
    (r#"[[expect]]\nwhat = "rtt-mean"\nmin = "1ms"\nfrom = "1s""#, r#"rtt-mean is only known for the whole run | leave out from, to and every"#),
    (r#"[[expect]]\nwhat = "one-way-p99"\nmax = "1ms""#, r#"one-way-p99 is measured for flows of kind udp or rtp, and there is none | add kind = "udp" to a flow, or measure the delay of its class"#),
    (r#"[[expect]]\nwhat = "one-way-p99"\nmax = "1ms"\nflow = "f1""#, r#"one-way-p99 is measured for flows of kind udp or rtp, and `f1` is of kind tcp | name a flow of kind udp or rtp, or write what = "rtt-p99""#),
    (r#"kind = "udp"\nsize = 100\nrate = "1M"\n[[expect]]\nwhat = "rtt-max"\nmax = "1ms"\nflow = "f1""#, r#"rtt-max is measured for flows of kind tcp or rr, and `f1` is of kind udp | name a flow of kind tcp or rr, or write what = "one-way-max""#),
    (r#"[[expect]]\nwhat = "rate"\nmin = "2M"\nonly = "live""#, r#"`live` is not known here | write "sim" or "lab""#),
    (r#"[[expect]]\nwhat = "rate"\nmin = "2M"\nfrom = "1.000001s""#, r#"the series would need cells of 1us, more than 100000 of them | write rounder times, which all are multiples of a longer one"#),
    (r#"[[flow]]\nfrom = "a"\nto = "b"\nkind = "udp"\nsize = 100\nrate = "18446744073G""#, r#"the rate `18446744073G` is too large | rates go up to 1T"#),
    (r#"[[flow]]\nfrom = "a"\nto = "b"\nkind = "udp"\nsize = 1000\nburst = 10000\nperiod = "1ns""#, r#"the flow offers 80000000000000000 bit/s | a flow sends at most 1T: write less"#),
    (r#"[[flow]]\nfrom = "a"\nto = "b"\nkind = "udp"\nsize = 100\nrate = "1M"\non = "1ns"\noff = "1s"\ndistribution = "pareto""#, r#"`on` is 1ns | write a value from "1us" to "86400s""#),
    (r#"[[flow]]\nfrom = "a"\nto = "b"\nkind = "udp"\nsize = 100\nrate = "1M"\non = "1s"\noff = "999ns"\ndistribution = "pareto""#, r#"`off` is 999ns | write a value from "1us" to "86400s""#),
    (r#"[[flow]]\nfrom = "a"\nto = "b"\ncount = 10000\n[[probe]]\nwhat = "flows"\nevery = "1ms""#, r#"the report would hold 450675000 numbers: 45000 cells of 1ms with 10015 in each, of 10001 flows, 4 directions of links and 1 classes | write longer intervals for probes and expectations, a shorter duration, or fewer flows: a report holds at most 32000000 numbers, 256 MB"#),
    (r#"[[port]]\nat = "box"\nto = "a"\ntext = ""\n[[expect]]\nwhat = "rate"\nmin = "2M""#, r#"there are several managed ports | add port = "box>b", or another of: box>a"#),
];

#[test]
fn every_kind_of_fault_has_its_words() {
    for (more, said) in FAULTS {
        assert_eq!(with(&format!("{}\n", more.replace("\\n", "\n"))), *said, "{more}");
    }
}

/// What is said about a text; nothing if it is a scenario.
fn said(text: &str) -> Vec<Diagnostic> {
    Scenario::from_toml("x.toml", text).err().map_or(Vec::new(), |all| all.0)
}

/// Every key once, none at its default.
const EVERY_KEY: &str = r#"
name = "every key"
seed = 7
duration = "1min"
[[host]]
name = "a"
address = "192.0.2.1"
address6 = "2001:db8::1"
[[host]]
name = "b"
[[link]]
a = "a"
b = "b"
rate = "9.6k"
delay = "1.5ms"
mtu = 9180
overhead = "38"
ring = 128
refill = "batch"
tick = "10ms"
packet_events = false
queue = 50
[[port]]
at = "a"
to = "b"
conf = "x.altq"
interface = "em1"
[[flow]]
name = "t"
from = "a"
to = "b"
kind = "tcp"
count = 3
port = 80
start = "100us"
stop = "59s"
idle = [["1s", "2s"], ["3s", "4s"]]
dscp = "AF11"
ipv6 = true
class = "c"
size = 1510
cc = "cubic"
window = "64K"
chunk = "9000"
pause = "175ms"
ecn = true
sack = false
delayed_ack = false
slow_start = false
[[flow]]
from = "a"
to = "b"
kind = "udp"
size = 1052
rate = "2.5Mbit"
on = "2400ms"
off = "3.6s"
distribution = "pareto"
shape = 1.2
[[flow]]
from = "b"
to = "a"
kind = "udp"
size = 1052
burst = 20
period = "150ms"
[[flow]]
from = "b"
to = "a"
kind = "rr"
request = 1024
response = 64
pause = "1ms"
[[probe]]
what = "flows"
every = "200ms"
over = "400ms"
[[expect]]
what = "delay-p98.5"
port = "a>b"
classes = ["c", "d"]
per = ["e"]
from = "1s"
to = "2s"
every = "500ms"
over = "1s"
windows = "90%"
value = "58.3%"
tolerance = "5pt"
tolerance_live = "20%"
only = "sim"
[[expect]]
what = "rtt-mean"
flows = ["t", "f4"]
min = "2ms"
max = "8ms"
[[expect]]
what = "goodput"
flow = "t.2"
max = "1M"
[[expect]]
what = "drops"
class = "c"
min = 0.5
[[expect]]
what = "jain"
every = "1s"
windows = "median"
min = 0.99
"#;

#[test]
fn every_key_is_read_and_written() {
    let scenario = Scenario::from_toml("x.toml", EVERY_KEY).map_err(|error| error.to_string()).unwrap();
    let flow = &scenario.flows[0];
    assert_eq!((flow.idle[1], flow.dscp.code()), ((Time::from_secs(3), Time::from_secs(4)), 10));
    assert_eq!((flow.window, flow.size), (Some(Size::from_bytes(65_536)), Some(Size::from_bytes(1510))));
    assert_eq!(scenario.flows[1].distribution, Distribution::Pareto);
    assert_eq!(scenario.flows[1].rate, Some(BitRate::from_bps(2_500_000)));
    assert_eq!(scenario.links[0].rate, BitRate::from_bps(9600));
    assert_eq!((scenario.links[0].tick, scenario.links[0].refill), (Time::from_millis(10), Refill::Batch));
    assert_eq!(scenario.expects[0].windows, Windows::Share(0.9));
    assert_eq!(scenario.expects[0].value, Some(Amount::Percent(0.583)));
    assert_eq!(scenario.flows_called("t").len(), 3);
    assert_eq!(scenario.flows_called("t.2").into_iter().collect::<Vec<_>>(), [1]);
    // Sent from 100 us to 1 s, 2 s to 3 s, 4 s to 59 s.
    let sending: u64 =
        flow.active(scenario.duration).iter().map(|(from, to)| to.as_nanos() - from.as_nanos()).sum();
    assert_eq!(sending, 57_000_000_000 - 100_000);
    let text = scenario.to_toml();
    assert_eq!(Scenario::from_toml("y.toml", &text).unwrap(), scenario, "{text}");
    // Every key of the text above is in what is written, so none was passed over.
    for key in EVERY_KEY.lines().filter_map(|line| line.split_once(" = ").map(|(key, _)| key)) {
        assert!(text.lines().any(|line| line.starts_with(&format!("{key} = "))), "{key}");
    }
}

#[test]
fn quantities_read_back() {
    for text in ["0s", "1ns", "1500us", "250ms", "59s", "90s", "1min", "0"] {
        let time = Time::parse(text).unwrap();
        assert_eq!(Time::parse(&time.to_string()), Ok(time));
    }
    for (text, bps) in [
        ("64kbit", 64_000),
        ("10M", 10_000_000),
        ("1.5g", 1_500_000_000),
        ("9600", 9600),
        ("10 mbit", 10_000_000),
    ] {
        assert_eq!(BitRate::parse(text), Ok(BitRate::from_bps(bps)));
        assert_eq!(BitRate::parse(&BitRate::from_bps(bps).to_string()), Ok(BitRate::from_bps(bps)));
    }
    for (text, code) in [("EF", 46), ("af43", 38), ("CS7", 56), ("be", 0), ("LE", 1), ("17", 17)] {
        assert_eq!(Dscp::parse(text).map(Dscp::code), Ok(code));
    }
    for text in ["AF14", "AF51", "CS8", "AF", "-1", "1.0", "", "é1"] {
        assert!(Dscp::parse(text).is_err(), "{text}");
    }
    for text in ["58.3%", "5pt", "8ms", "10M", "0.25"] {
        let amount = Amount::parse(text).unwrap();
        assert_eq!(amount.to_string(), text);
    }
}

/// Equal inputs have equal hashes; whatever changes a run changes the hash. Expectations do not, and neither does
/// the seed, which a report has beside the hash.
#[test]
fn the_hash_is_of_what_a_run_depends_on() {
    let read = |text: &str| Scenario::from_toml("x.toml", text).unwrap();
    let good = read(GOOD);
    let conf = ["interface em0".to_string()];
    let hash = good.inputs_hash(&conf);
    assert_eq!(read(GOOD).inputs_hash(&conf), hash);
    assert_ne!(good.inputs_hash(&["interface em1".to_string()]), hash);
    assert_ne!(read(&GOOD.replace("5ms", "6ms")).inputs_hash(&conf), hash);
    assert_eq!(read(&format!("{GOOD}[[expect]]\nwhat = \"drops\"\nmax = 3\n")).inputs_hash(&conf), hash);
    assert_eq!(read(&format!("seed = 7\n{GOOD}")).inputs_hash(&conf), hash);
}

/// The demo's configuration reads without a warning and has the classes that its flows name.
#[test]
fn the_demo_and_its_configuration_fit() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/two-agencies.toml");
    let scenario = Scenario::read(&path).map_err(|error| error.to_string()).unwrap();
    let (name, text) = scenario.configuration(0).unwrap();
    let registry = weir_core::sched::Registry::builtin();
    let plan = weir_conf::read(&name, &text, &registry).into_result();
    let plan = plan.map_err(|all| all.iter().map(ToString::to_string).collect::<String>()).unwrap();
    let link = &scenario.links[scenario.link_between("box", "sink").unwrap().0];
    let view = plan.interface("").map_err(|error| error.to_string()).unwrap();
    let wire = weir_core::queue::Link::new(
        link.rate.rate(),
        link.overhead.as_bytes() as u32,
        link.mtu.as_bytes() as u32,
    );
    let built = view.build(&registry, wire).map_err(|error| error.to_string()).unwrap();
    let leaves: Vec<&str> = built.tree.leaves.iter().map(|leaf| leaf.name.as_str()).collect();
    for flow in &scenario.flows {
        assert!(leaves.contains(&flow.class.as_deref().unwrap()), "{leaves:?}");
    }
    let layout = crate::lab_layout(&scenario).unwrap();
    assert_eq!(layout.sides.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1]);
}

/// The book's page names every key of a scenario, and its example is one.
#[test]
fn the_book_knows_every_key() {
    let page = include_str!("../../../../book/src/scenarios.md");
    let words: std::collections::BTreeSet<&str> =
        page.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect();
    for key in EVERY_KEY.lines().filter_map(|line| line.split_once(" = ").map(|(key, _)| key)) {
        assert!(words.contains(key), "the page lacks the key {key}");
    }
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let scenario = Scenario::from_toml("scenarios.md", example).map_err(|error| error.to_string()).unwrap();
    assert!(crate::lab_layout(&scenario).is_ok());
}
