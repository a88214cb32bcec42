//! What is said of two plans, and a plan with one value changed.

#![allow(clippy::unwrap_used)]

use weir_conf::{ContractChange, Plan, diff, print, read};
use weir_core::sched::Registry;

const FILE: &str = "\
red 5 15 10
interface em0 bandwidth 10M attach bridge em1 cbq
class cbq em0 root NULL pbandwidth 100
class cbq em0 bulk root borrow pbandwidth 60 default
class cbq em0 voice root priority 5 pbandwidth 20
class cbq em0 deep root pbandwidth 5 fqcodel flows 100
filter em0 voice 0 0 0 0 17 dscp EF
filter em0 bulk 0 80 0 0 6
conditioner em0 police <tbmeter 1M 65536 <pass><drop>>
filter em0 police 0 0 0 0 17
interface em1
";

fn plan(text: &str) -> Plan {
    read("a.altq", text, &Registry::builtin()).into_result().unwrap()
}

fn said(old: &str, new: &str) -> Vec<String> {
    diff(&plan(old), &plan(new)).iter().map(ToString::to_string).collect()
}

#[test]
fn each_difference_is_said_once_with_its_lines() {
    assert_eq!(said(FILE, FILE), [""; 0]);
    let cases = [
        (
            "priority 5 pbandwidth 20",
            "priority 5 pbandwidth 30",
            "class voice of em0: changed\n  - class cbq em0 voice root priority 5 pbandwidth 20\n  + class cbq em0 voice root priority 5 pbandwidth 30",
        ),
        (
            "em0 bandwidth 10M",
            "em0 bandwidth 20M",
            "interface em0: changed\n  - interface em0 bandwidth 10M attach bridge em1 cbq\n  + interface em0 bandwidth 20M attach bridge em1 cbq",
        ),
        ("red 5 15 10", "red 6 15 10", "defaults of red and rio: changed\n  - red 5 15 10\n  + red 6 15 10"),
        ("filter em0 bulk 0 80 0 0 6\n", "", "filter of em0: removed\n  - filter em0 bulk 0 80 0 0 tcp"),
        (
            "<pass><drop>",
            "<pass><mark 0>",
            "conditioner police of em0: changed\n  - conditioner em0 police <tbmeter 1M 65536 <pass><drop>>\n  + conditioner em0 police <tbmeter 1M 65536 <pass><mark 0x00>>",
        ),
        ("interface em1\n", "", "interface em1: removed\n  - interface em1"),
        (
            "flows 100",
            "flows 200",
            "class deep of em0: changed\n  - class cbq em0 deep root pbandwidth 5 fqcodel flows 100\n  + class cbq em0 deep root pbandwidth 5 fqcodel flows 200",
        ),
    ];
    for (from, to, expected) in cases {
        let changed = FILE.replace(from, to);
        assert_ne!(changed, FILE, "{from}");
        assert_eq!(said(FILE, &changed), [expected]);
        // Backwards it is said the other way round.
        let back = said(&changed, FILE);
        let (added, removed) = (expected.contains("removed"), expected.contains("added"));
        assert_eq!((back.len(), back[0].contains("added"), back[0].contains("removed")), (1, added, removed));
    }
    let swapped = FILE.replace(
        "filter em0 voice 0 0 0 0 17 dscp EF\nfilter em0 bulk 0 80 0 0 6\n",
        "filter em0 bulk 0 80 0 0 6\nfilter em0 voice 0 0 0 0 17 dscp EF\n",
    );
    let said = said(FILE, &swapped);
    assert!(said.len() == 1 && said[0].starts_with("order of the filters of em0: changed"), "{said:?}");
}

#[test]
fn one_value_is_set_and_nothing_else_changes() {
    let (plan, registry) = (plan(FILE), Registry::builtin());
    let set = |class: Option<&str>, words: &str| plan.with(&registry, "em0", class, words);
    let cases = [
        (Some("voice"), "pbandwidth 30", "+ class cbq em0 voice root priority 5 pbandwidth 30"),
        (Some("voice"), "exactbandwidth 1M", "+ class cbq em0 voice root priority 5 exactbandwidth 1M"),
        (Some("voice"), "qlimit 7", "+ class cbq em0 voice root priority 5 pbandwidth 20 qlimit 7"),
        (Some("deep"), "pbandwidth 6", "+ class cbq em0 deep root pbandwidth 6 fqcodel flows 100"),
        (Some("deep"), "flows 300", "+ class cbq em0 deep root pbandwidth 5 fqcodel flows 300"),
        (None, "bandwidth 12M", "+ interface em0 bandwidth 12M attach bridge em1 cbq"),
        (None, "efficient", "+ interface em0 bandwidth 10M attach bridge em1 cbq efficient"),
    ];
    for (class, words, line) in cases {
        let changed = set(class, words).unwrap_or_else(|all| panic!("{words}: {}", all[0]));
        let found = diff(&plan, &changed);
        assert!(found.len() == 1 && found[0].to_string().contains(line), "{words}: {found:?}");
        // What is kept is its text, and that reads as the same plan.
        assert_eq!(changed.source.lines().join("\n"), print(&changed).trim_end());
    }
    for (class, words, complaint) in [
        (Some("vioce"), "pbandwidth 30", "did you mean `voice`?"),
        (Some("voice"), "pbandwidht 30", "pbandwidth"),
        (Some("voice"), "pbandwidth much", "much"),
        (Some("voice"), "pbandwidth 90", "`root`"),
        (None, "bandwidth 0", "bandwidth 0"),
        (None, "bandwidht 1M", "bandwidth"),
    ] {
        let refused = set(class, words).unwrap_err();
        let all: Vec<String> = refused.iter().map(ToString::to_string).collect();
        assert!(all.join("\n").contains(complaint), "{words}: {all:?}");
    }
    assert!(plan.with(&registry, "em7", None, "bandwidth 1M").is_err());
}

/// A contract comes, changes and goes; all other lines stay as they are.
#[test]
fn one_contract_changes_and_nothing_else() {
    const WITH_EDGE: &str = "interface lan0\ninterface wan0 bandwidth 10M hfsc\nclass hfsc wan0 rt root [ls 0 0 8M] [ul 0 0 1M]
class hfsc wan0 be root [ls 0 0 2M] default\nrecognise lan0 rtp 4/2s\nsla lan0 17 10.0.0.0/24 bw 512K shared 20 policy be
sla lan0 18 10.0.1.0/24 bw 1M\nallocate wan0 rt to 8M\n";
    let (plan, registry) = (plan(WITH_EDGE), Registry::builtin());
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let add = |text: &str| ContractChange::Add(words(text));
    let set = |text: &str| ContractChange::Set(words(text));
    let cases = [
        (
            19,
            add("10.0.2.0/24,2001:db8::/56 bw 2M policy drop"),
            "+ sla lan0 19 10.0.2.0/24,2001:db8::/56 bw 2M policy drop",
        ),
        (17, set("bw 1M"), "+ sla lan0 17 10.0.0.0/24 bw 1M shared 20 policy be"),
        (17, set("10.0.9.0/24 shared 30"), "+ sla lan0 17 10.0.9.0/24 bw 512K shared 30 policy be"),
        (17, set("2001:db8::/56"), "+ sla lan0 17 2001:db8::/56 bw 512K shared 20 policy be"),
        (18, ContractChange::Remove, "- sla lan0 18 10.0.1.0/24 bw 1M"),
    ];
    for (id, change, line) in cases {
        let changed = plan.with_contract(&registry, "lan0", id, &change);
        let changed = changed.unwrap_or_else(|all| panic!("{line}: {}", all[0]));
        let found: Vec<String> = diff(&plan, &changed).iter().map(ToString::to_string).collect();
        // Another line is one that went and one that came.
        let most = if matches!(change, ContractChange::Set(_)) { 2 } else { 1 };
        assert!(found.len() == most && found.join("\n").contains(line), "{line}: {found:?}");
        assert_eq!(changed.source.lines().join("\n"), print(&changed).trim_end());
    }
    for (interface, id, change, complaint) in [
        ("lan0", 17, add("10.0.2.0/24 bw 1M"), "`weir sla set lan0 17` changes it"),
        ("lan0", 1, ContractChange::Remove, "it has 17, 18: `weir sla add lan0 1 PREFIX bw RATE` makes one"),
        ("lan0", 1, set("bw 1M"), "has no contract 1"),
        ("lan0", 19, add("10.0.0.0/24 bw 1M"), "10.0.0.0/24"),
        ("lan0", 19, add("10.0.2.0/24 bandwidth 1M"), "bandwidth"),
        ("lan0", 17, set("10.0.0.1/24"), "has bits beyond its length"),
        ("wan0", 17, ContractChange::Remove, "it has none"),
        ("lan7", 17, ContractChange::Remove, "lan7"),
    ] {
        let refused = plan.with_contract(&registry, interface, id, &change).unwrap_err();
        let all: Vec<String> = refused.iter().map(ToString::to_string).collect();
        assert!(all.join("\n").contains(complaint), "{complaint}: {all:?}");
    }
}
