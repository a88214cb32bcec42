//! From plan to tree, classifier and regulator; and what cannot be built, said at its place.

#![allow(clippy::unwrap_used)]

use weir_conf::{Diagnostic, Plan, judge, packet_spec, read};
use weir_core::queue::{Discipline, Kind, Link, ParamError, ParamSpec, TimeUnit, Value};
use weir_core::sched::{Builder, Classes, Entry, Node, Registry};
use weir_core::units::Rate;

fn plan_with(text: &str, registry: &Registry) -> Plan {
    let outcome = read("altq.conf", text, registry);
    let said: Vec<String> = outcome.diagnostics.iter().map(ToString::to_string).collect();
    outcome.plan.unwrap_or_else(|| panic!("{}", said.join("\n\n")))
}

fn plan(text: &str) -> Plan {
    plan_with(text, &Registry::builtin())
}

fn link(mbps: u64) -> Link {
    Link::new(Rate::from_mbps(mbps), 24, 1514)
}

/// The class in whose queue each packet waits.
fn classes(text: &str, packets: &[&str]) -> Vec<String> {
    let plan = plan(text);
    let built = plan.interface("").unwrap().build(&Registry::builtin(), link(10)).unwrap();
    packets
        .iter()
        .map(|packet| {
            let key = packet_spec::parse(packet).unwrap();
            let leaf = built.classifier.classify(&key).map_or(built.default_leaf, |m| m.class);
            built.tree.leaves[leaf as usize].name.clone()
        })
        .collect()
}

#[test]
fn filters_lead_to_leaves() {
    let text = "interface em0 bandwidth 10M priq
class priq em0 low NULL priority 0 default
class priq em0 web NULL priority 1
class priq em0 voice NULL priority 2
filter em0 web 0 80 0 0 tcp
filter em0 voice 0 0 0 0 0 dscp EF
filter6 em0 voice 2001:db8::/32 0 0 0 udp\n";
    let packets = [
        "tcp 10.0.0.1:5000 > 10.0.0.2:80",
        "tcp 10.0.0.1:5000 > 10.0.0.2:80 tos 0xba",
        "udp 10.0.0.1:1 > 10.0.0.2:2",
        "udp [::1]:1 > [2001:db8::2]:2",
        "udp [::1]:1 > [2001:db9::2]:2",
    ];
    assert_eq!(classes(text, &packets), ["web", "voice", "low", "voice", "low"]);
}

#[test]
fn a_filter_to_a_class_with_a_discipline_inside_lands_in_its_default() {
    let text = "interface em0 bandwidth 10M priq
class priq em0 low NULL priority 0 default
class priq em0 home NULL priority 1 priq
class priq em0 first home priority 0
class priq em0 second home priority 1 default
class priq em0 lab NULL priority 2 wfq nqueues 16
filter em0 home 0 80 0 0 tcp
filter em0 first 0 81 0 0 tcp
filter em0 lab 0 82 0 0 tcp\n";
    let to = |port| format!("tcp 10.0.0.1:5000 > 10.0.0.2:{port}");
    let packets = [to(80), to(81), to(82), to(83)];
    let packets: Vec<&str> = packets.iter().map(String::as_str).collect();
    assert_eq!(classes(text, &packets), ["second", "first", "lab", "low"]);
}

#[test]
fn cbq_gets_its_control_class_out_of_the_default_class() {
    let text = "interface em0 bandwidth 10M cbq
class cbq em0 top NULL pbandwidth 100
filter em0 top 0 0 0 0 tcp
class cbq em0 def top borrow pbandwidth 10 maxburst 20 default red
filter em0 def 0 0 10.0.0.1 0 icmp\n";
    let plan = plan(text);
    let view = plan.interface("em0").unwrap();
    let node = view.node(&Registry::builtin());
    let names: Vec<&str> = node.classes.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["top", "def", "ctl_class"]);
    let (default, control) = (&node.classes[1].params, &node.classes[2].params);
    assert_eq!(default.rate("exactbandwidth"), Some(Rate::from_bps(800_000)));
    assert!(!default.has("pbandwidth") && default.has("red"));
    assert_eq!(control.rate("exactbandwidth"), Some(Rate::from_bps(200_000)));
    assert_eq!((control.count("priority"), control.count("maxburst")), (Some(6), Some(20)));
    assert!(control.has("borrow") && control.has("control") && !control.has("red"));
    assert_eq!(node.classes[2].parent, Some(0));
    // The filters that come with it stand in line: after those above, before those below.
    let packets = [
        "icmp 10.0.0.2 > 10.0.0.3",
        "icmp 10.0.0.1 > 10.0.0.3",
        "icmp ::1 > ::2",
        "rsvp 10.0.0.2 > 10.0.0.3",
        "tcp 10.0.0.1:1 > 10.0.0.3:2",
        "udp 10.0.0.1:1 > 10.0.0.3:2",
    ];
    assert_eq!(classes(text, &packets), ["ctl_class", "def", "ctl_class", "ctl_class", "top", "def"]);
}

#[test]
fn a_control_class_of_the_files_own_leaves_the_default_class_whole() {
    let text = "interface em0 bandwidth 10M cbq
class cbq em0 top NULL pbandwidth 100
class cbq em0 net top pbandwidth 3 control
class cbq em0 def top pbandwidth 10 default\n";
    let node = plan(text).interface("").unwrap().node(&Registry::builtin());
    assert_eq!(node.classes.len(), 3);
    assert!(node.classes[2].params.has("pbandwidth"));
    assert_eq!(classes(text, &["igmp 10.0.0.2 > 10.0.0.3"]), ["net"]);
}

#[test]
fn the_later_of_two_options_about_one_curve_counts() {
    let text = "interface em0 bandwidth 10M hfsc
class hfsc em0 a root grate 1M [sc 2M 10 1500K] pshare 10 default
class hfsc em0 b root [sc 2M 10 1M] grate 3M\n";
    let node = plan(text).interface("").unwrap().node(&Registry::builtin());
    let curve = |class: usize, name: &str| node.classes[class].params.curve(name).map(|c| c.m2.as_bps());
    assert_eq!((curve(0, "rt"), curve(0, "ls")), (Some(1_500_000), Some(1_000_000)));
    assert_eq!((curve(1, "rt"), curve(1, "ls")), (Some(3_000_000), Some(1_000_000)));
    assert!(!node.classes[0].params.has("sc") && node.classes[0].params.has("default"));
}

#[test]
fn one_rate_is_a_straight_curve() {
    let of = |curve: &str| {
        let text = format!("interface em0 bandwidth 10M hfsc\nclass hfsc em0 a root {curve} default\n");
        let node = plan(&text).interface("").unwrap().node(&Registry::builtin());
        node.classes[0].params.curve("sc").map(|c| (c.m1.as_bps(), c.d.as_nanos(), c.m2.as_bps()))
    };
    let straight = Some((1_000_000, 0, 1_000_000));
    for curve in ["[sc 1M]", "[ sc 1M ]", "[sc 1M 0 1M]"] {
        assert_eq!(of(curve), straight, "{curve}");
    }
    assert_eq!(of("[sc 2M 5 1M]"), Some((2_000_000, 5_000_000, 1_000_000)));
}

#[test]
fn the_commands_red_and_rio_fill_what_a_discipline_leaves_open() {
    let text = "red 7 21 0\ninterface em0 bandwidth 10M red thmax 30\n";
    let node = plan(text).interface("").unwrap().node(&Registry::builtin());
    let given = |name| node.params.count(name);
    assert_eq!((given("thmin"), given("thmax"), given("invpmax")), (Some(7), Some(30), None));
    let text = "rio 40 50 10 20 30 11 5 15 12\ninterface em0 bandwidth 10M rio\n";
    let node = plan(text).interface("").unwrap().node(&Registry::builtin());
    let given = |name| node.params.count(name);
    assert_eq!((given("lo_thmin"), given("med_invpmax"), given("hi_thmax")), (Some(40), Some(11), Some(15)));
}

#[test]
fn the_automatic_bucket_is_a_millisecond_or_two_frames() {
    let depth = |options: &str| {
        let plan = plan(&format!("interface em0 {options}\n"));
        let view = plan.interface("").unwrap();
        view.regulator(&view.link(1_514)).map(|r| (r.rate.as_bps(), r.depth_bytes))
    };
    assert_eq!(depth("fifoq"), Some((100_000_000, 12_500)));
    assert_eq!(depth("bandwidth 1M fifoq"), Some((1_000_000, 3_076)));
    assert_eq!(depth("bandwidth 10M fifoq tbrsize auto"), Some((10_000_000, 3_076)));
    assert_eq!(depth("bandwidth 1G fifoq"), Some((1_000_000_000, 125_000)));
    assert_eq!(depth("bandwidth 400G fifoq"), Some((400_000_000_000, 50_000_000)));
    assert_eq!(depth("bandwidth 10M overhead 0 fifoq"), Some((10_000_000, 3_028)));
    assert_eq!(depth("bandwidth 10M tbrsize 3K fifoq"), Some((10_000_000, 3_072)));
    assert_eq!(depth("bandwidth 5M"), Some((5_000_000, 3_076)));
    assert_eq!(depth(""), None);
}

#[test]
fn ecn_is_off_where_filters_ask_for_its_bits() {
    for (tos, on) in [("tos 3", false), ("tos 4", false), ("tos 0x10", true), ("dscp 1", true)] {
        let text =
            format!("interface em0 priq\nclass priq em0 a NULL default\nfilter em0 a 0 0 0 0 0 {tos}\n");
        let built = plan(&text).interface("").unwrap().build(&Registry::builtin(), link(100)).unwrap();
        assert_eq!(built.ecn, on, "{tos}");
    }
}

#[test]
fn another_link_than_the_files_is_said() {
    let plan = plan("interface em0 bandwidth 20M fifoq\n");
    let built = plan.interface("em0").unwrap().build(&Registry::builtin(), link(10)).unwrap();
    let said: Vec<&str> = built.warnings.iter().map(|w| w.message.as_str()).collect();
    assert_eq!(said, ["interface `em0` says 20M bit/s, and the link has 10M"]);
}

#[test]
fn an_interface_that_is_not_there() {
    let plan = plan("interface em0 bandwidth 20M fifoq\ninterface em1 fifoq\n");
    let said = |name: &str| plan.interface(name).unwrap_err().to_string();
    assert_eq!(
        said("em2"),
        "error: no interface `em2` is declared\n--> altq.conf\n = help: did you mean `em0`?"
    );
    assert_eq!(said(""), "error: which interface is not said\n--> altq.conf\n = help: declared are em0, em1");
}

fn refused(text: &str, registry: &Registry) -> Diagnostic {
    let plan = plan_with(text, registry);
    let view = plan.interface("").unwrap();
    view.build(registry, link(10)).err().unwrap()
}

#[test]
fn a_discipline_that_does_not_exist_yet_is_refused_when_the_tree_is_built() {
    let mut registry = Registry::builtin();
    let priq = *registry.find("priq").unwrap();
    registry.register(Entry { build: None, ..priq });
    let text = "interface em0 bandwidth 10M priq\nclass priq em0 a NULL default\n";
    assert_eq!(
        refused(text, &registry).to_string(),
        "error: priq cannot run yet\n --> altq.conf:1:29\n  |\n1 | interface em0 bandwidth 10M priq\n  \
         |                             ^^^^\n  |\n  = help: it is read and checked, but not built yet; \
         `weir disciplines` lists\n          those that are"
    );
    let inner =
        "interface em0 bandwidth 10M hfsc\nclass hfsc em0 a root pshare 5 default\nclass priq em0 b a\n";
    let error = refused(inner, &registry);
    assert_eq!((error.line, error.column), (3, 16));
}

/// A discipline of somebody else's, with an option of every kind; it refuses to be built.
const PICKY: Entry = Entry {
    name: "picky",
    aliases: &[],
    source: "//! Picky: refuses everything.",
    params: &[&[
        ParamSpec::discipline("flag", Kind::Flag, "", ""),
        ParamSpec::discipline("count", Kind::Count { min: 0, max: 9 }, "", ""),
        ParamSpec::class("size", Kind::Bytes { min: 1, max: 1 << 20 }, "", ""),
        ParamSpec::class("speed", Kind::Rate, "", ""),
        ParamSpec::class("span", Kind::Time { bare: TimeUnit::Micros }, "", "").or_none(),
        ParamSpec::class("part", Kind::Percent, "", ""),
        ParamSpec::class("odds", Kind::Fraction, "", ""),
        ParamSpec::class("factor", Kind::Real, "", ""),
        ParamSpec::class("mood", Kind::Word(&["good", "bad"]), "", ""),
        ParamSpec::class("shape", Kind::Curve, "", ""),
    ]],
    classes: Classes::Tree,
    work_conserving: false,
    build: Some(refuse),
    ..Entry::PLAIN
};

fn refuse(node: &Node, _: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    match node.params.count("count") {
        Some(n) => Err(ParamError::new("", "count", n, "no count at all")),
        None => Err(ParamError::new(&node.classes[0].name, "mood", "bad", "good: write `mood good`")),
    }
}

#[test]
fn a_third_partys_discipline_is_read_by_its_declaration() {
    let mut registry = Registry::builtin();
    registry.register(PICKY);
    let text = "interface em0 bandwidth 10M picky flag
class picky em0 a root size 2K speed 1.5M span 8ms part 12.5 odds 0.25 factor 1.5 mood bad [shape 0 10 1M]\n";
    let plan = plan_with(text, &registry);
    assert_eq!(judge(&plan, &registry), []);
    let node = plan.interface("").unwrap().node(&registry);
    assert!(node.params.has("flag"));
    let params = &node.classes[0].params;
    assert_eq!(params.bytes("size"), Some(2_048));
    assert_eq!(params.rate("speed"), Some(Rate::from_bps(1_500_000)));
    assert_eq!(params.time("span").map(|t| t.as_nanos()), Some(8_000_000));
    assert_eq!(params.fraction("part").map(|f| f.raw()), Some(1 << 29));
    assert_eq!(params.fraction("odds").map(|f| f.raw()), Some(1 << 30));
    assert_eq!(params.real("factor").map(|r| r.raw()), Some(3 << 31));
    assert_eq!(params.get("mood"), Some(&Value::Word("bad")));
    assert_eq!(params.curve("shape").map(|c| c.m2), Some(Rate::from_mbps(1)));
    assert_eq!(plan_with(&weir_conf::print(&plan), &registry), plan);
}

#[test]
fn what_a_discipline_refuses_is_said_at_its_word() {
    let mut registry = Registry::builtin();
    registry.register(PICKY);
    let text = "interface em0 bandwidth 10M picky\nclass picky em0 a root size 2K mood bad\n";
    assert_eq!(
        refused(text, &registry).to_string(),
        "error: class `a`: `mood` cannot be bad\n --> altq.conf:2:32\n  |\n2 | class picky em0 a root size 2K mood bad\n  \
         |                                ^^^^\n  |\n  = help: expected good: write `mood good`"
    );
    let text = "interface em0 bandwidth 10M picky count 5\nclass picky em0 a root\n";
    let error = refused(text, &registry);
    assert_eq!((error.line, error.column, error.message.as_str()), (1, 35, "`count` cannot be 5"));
    // A word that contradicts another.
    let text = "interface em0 bandwidth 10M priq\nclass priq em0 a NULL default codel pie\n";
    let outcome = read("altq.conf", text, &registry);
    let error = &outcome.diagnostics[0];
    assert!(outcome.plan.is_none(), "it is refused as soon as it is read");
    assert!(error.message.ends_with(" cannot stand here") && error.help.contains("not both"), "{error}");
    // Inside a class of another discipline.
    let text = "interface em0 priq\nclass priq em0 p NULL default picky count 5\nclass picky em0 a p\n";
    let error = refused(text, &registry);
    assert_eq!((error.line, error.column), (2, 37));
}

/// A53, ten times over.
#[test]
fn a_thousand_classes_and_filters_are_read_in_no_time() {
    let mut text =
        String::from("interface em0 bandwidth 400G hfsc\nclass hfsc em0 def root pshare 1 default\n");
    for n in 0..2_000 {
        let parent = if n < 40 { "root".to_string() } else { format!("c{}", n / 40 - 1) };
        let rate = [40_000_000, 1_000_000, 1_000][usize::from(n >= 40) + usize::from(n >= 1_640)];
        text.push_str(&format!("class hfsc em0 c{n} {parent} [ls {rate} 0 {rate}]\n"));
    }
    for n in 0..2_000 {
        text.push_str(&format!("filter em0 c{} 10.{}.{}.1 80 0 0 tcp\n", 50 + n % 1_900, n / 256, n % 256));
    }
    let start = std::time::Instant::now();
    let plan = plan(&text);
    let said = judge(&plan, &Registry::builtin());
    assert!(said.is_empty(), "{}", said[0]);
    assert!(
        start.elapsed().as_secs() < 20,
        "reading grows with the square of the file: {:?}",
        start.elapsed()
    );
}

#[test]
fn hfsc_says_within_what_time_a_burst_is_out() {
    let text = "interface em0 bandwidth 10M hfsc
class hfsc em0 calls root rate 2M delay 10ms burst 3000
class hfsc em0 bulk root pshare 50 default
class hfsc em0 slow root grate 100K pshare 5\n";
    let plan = plan(text);
    let all = plan.interface("").unwrap().guarantees(&Registry::builtin(), &link(10));
    let said: Vec<_> =
        all.iter().map(|g| (g.class.as_str(), g.burst_bytes, g.delay.map_or(0, |d| d.as_nanos()))).collect();
    assert_eq!(
        all[0].to_string(),
        "class calls: [rt 2400K 10ms 2M] has a burst of 3000 bytes out within 11.2304ms"
    );
    // The burst by its deadline, and one packet of 1,514 + 24 bytes that was on the wire.
    assert_eq!(said, [("calls", 3_000, 10_000_000 + 1_230_400), ("slow", 1_538, 123_040_000 + 1_230_400)]);
}

#[test]
fn disciplines_stand_in_one_another_to_a_depth() {
    let nested = |depth: u32| {
        let mut text = String::from("interface em0 priq\n");
        for n in 0..depth {
            let parent = if n == 0 { "NULL".to_string() } else { format!("c{}", n - 1) };
            let queue = if n + 1 < depth { "priq" } else { "" };
            text.push_str(&format!("class priq em0 c{n} {parent} default {queue}\n"));
        }
        read("altq.conf", &text, &Registry::builtin())
    };
    let deep = nested(16).plan.unwrap();
    let view = deep.interface("").unwrap();
    assert_eq!(view.build(&Registry::builtin(), link(100)).unwrap().tree.leaves[0].name, "c15");
    let said = nested(5_000).diagnostics;
    assert_eq!(said[0].message, "more than 16 disciplines in one another");
}

const EDGE: &str = "interface in0
conditioner in0 premium <tbmeter 8K 620 <mark EF><drop>>
filter in0 premium 0 5001 0 0 udp
interface out0 bandwidth 10M cdnr\n";

/// Packets of 100 bytes to UDP port 5001, all at once: code points of those that pass.
fn conditioned(text: &str, interface: &str) -> Vec<u8> {
    let registry = Registry::builtin();
    let plan = plan(text);
    let view = plan.interface(interface).unwrap();
    let built = view.build(&registry, link(10)).unwrap();
    let Some(mut conditioners) = built.conditioners else { return vec![0; 8] };
    let key = packet_spec::parse("udp 10.0.0.1:1 > 10.0.0.2:5001").unwrap();
    let mut random = weir_core::Random::new(1);
    let judged = (0..8)
        .map(|_| conditioners.judge(weir_core::units::Instant::ZERO, 100, &link(10), &key, &mut random));
    judged.filter(|j| j.passes).map(|j| j.dscp).collect()
}

/// A port gets the conditioners of the interface by which its packets come.
#[test]
fn conditioners_stand_at_the_entrance() {
    let marked = vec![46; 5];
    assert_eq!(conditioned(EDGE, "out0"), marked, "the other interface");
    assert_eq!(conditioned(EDGE, "in0"), [0; 8], "what enters by out0 has no conditioner");
    let alone = EDGE.replace("interface out0 bandwidth 10M cdnr\n", "");
    assert_eq!(conditioned(&alone, "in0"), marked, "the only interface");
    let cdnr = alone.replace("interface in0", "interface in0 bandwidth 10M cdnr");
    assert_eq!(conditioned(&cdnr, ""), marked);
    // A bridge says who belongs to whom, from either side.
    let second = "interface in1\nconditioner in1 x <drop>\nfilter in1 x 0 5001 0 0 udp\n";
    for (from, to) in [("in0\n", "in0 attach bridge out0\n"), ("out0 b", "out0 attach bridge in0 b")] {
        let bridged = format!("{second}{}", EDGE.replacen(from, to, 1));
        assert_eq!(conditioned(&bridged, "out0"), marked, "{bridged}");
        assert_eq!(conditioned(&bridged, "in0"), [0; 8]);
    }
    // Two entrances without a bridge: neither runs, and that is said.
    let two = format!("{second}{EDGE}");
    assert_eq!(conditioned(&two, "out0"), [0; 8]);
    let registry = Registry::builtin();
    let plan = plan(&two);
    let warnings = plan.interface("out0").unwrap().build(&registry, link(10)).unwrap().warnings;
    assert!(warnings[0].message.starts_with("conditioners of `in1` and `in0` do not run"), "{warnings:?}");
}
