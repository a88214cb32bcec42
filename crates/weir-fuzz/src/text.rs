//! Texts that people write, and JSON that other programs do.

use std::fmt::{Debug, Display};
use weir::Manifest;
use weir_conf::{judge, packet_spec, print, read};
use weir_core::classify::{Classifier, explain as why};
use weir_core::queue::Link;
use weir_core::sched::Registry;
use weir_core::units::Rate;
use weir_engine::state::Snapshot;
use weir_report::{Report, compare};
use weir_scenario::Scenario;
use weir_text::{Amount, BitRate, Size, Time};

pub const ALTQ_WORDS: &[&str] = &[
    "interface",
    "class",
    "filter",
    "conditioner",
    "bandwidth",
    "cbq",
    "hfsc",
    "priq",
    "jobs",
    "fqcodel",
    "borrow",
    "default",
    "priority",
    "pbandwidth",
    "[sc 10M 10 5M]",
    "<tbmeter 1M 64K <pass><drop>>",
    "NULL",
    "root",
    "tos",
    "0x10",
    "netmask",
    "\\\n",
    "#",
    "10M",
    "99999999999999999999",
    "-1",
    "1e9",
    "%",
    "\u{1b}[31m",
    "\0",
];
pub const SCENARIO_WORDS: &[&str] = &[
    "[[flow]]",
    "[[link]]",
    "[[port]]",
    "[[expect]]",
    "[run]",
    "duration",
    "\"10 s\"",
    "\"10 Mbit/s\"",
    "kind",
    "\"udp\"",
    "\"tcp\"",
    "from",
    "to",
    "at",
    "=",
    "\n",
    "[",
    "]",
    "\"",
    "1e400",
    "-1",
    "18446744073709551616",
    "inf",
    "nan",
    "true",
];

/// Text, or nothing to try.
fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// No message may carry a stranger's control characters to a terminal.
fn harmless(message: &str) {
    let bad = message.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t'));
    assert!(bad.is_none(), "{bad:?} in a message: {message:?}");
}

pub fn altq_conf(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let registry = Registry::builtin();
    let outcome = read("fuzzed", text, &registry);
    for said in &outcome.diagnostics {
        harmless(&said.to_string());
        assert!(said.line as usize <= text.lines().count().max(1), "no such line: {said}");
    }
    let Some(plan) = outcome.plan else {
        assert!(outcome.diagnostics.iter().any(|d| d.is_error()), "refused without a word");
        return;
    };
    // A file without an interface reads, but there is nothing that it could be used for.
    let judged = judge(&plan, &registry);
    assert!(
        plan.interfaces.is_empty() || judged.iter().all(|d| !d.is_error()),
        "read, and yet judged as wrong"
    );
    let again = read("printed", &print(&plan), &registry);
    assert_eq!(again.plan.as_ref(), Some(&plan), "what is printed reads otherwise:\n{}", print(&plan));
    for interface in &plan.interfaces {
        let view = plan.interface(&interface.name).expect("it is one of the plan's");
        if let Err(error) = view.build(&registry, Link::new(Rate::from_mbps(10), 24, 1514)) {
            assert!(error.is_error() && !error.message.is_empty());
        }
    }
}

pub fn scenario(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match Scenario::from_toml("fuzzed", text) {
        Ok(read) => {
            let printed = read.to_toml();
            let again = Scenario::from_toml("printed", &printed).expect("what is printed reads");
            let twice = again.to_toml();
            let differs = printed.lines().zip(twice.lines()).find(|(a, b)| a != b);
            assert!(twice == printed, "printed twice, it differs: {differs:?}");
        }
        Err(errors) => {
            let said = errors.to_string();
            assert!(!said.is_empty(), "refused without a word");
            harmless(&said);
        }
    }
}

pub fn experiment(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    if let Err(said) = Manifest::parse("x.toml", text) {
        let said = said.to_string();
        assert!(!said.is_empty(), "refused without a word");
        harmless(&said);
    }
}

pub fn explain(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match packet_spec::parse(text) {
        Ok(key) => {
            let none = why::explain(&Classifier::empty(), &key, 3, |_| true);
            assert!(none.matched.is_none() && none.near.is_empty());
        }
        Err(error) => {
            assert!(error.to_string().contains('^'), "no caret: {error}");
            harmless(&error.to_string());
        }
    }
}

pub fn quantity(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    back(text, Time::parse);
    back(text, BitRate::parse);
    back(text, Size::parse);
    back(text, Amount::parse);
}

/// What is read prints as what reads as the same.
fn back<T: Display + Debug + PartialEq>(text: &str, parse: impl Fn(&str) -> Result<T, String>) {
    match parse(text) {
        Ok(value) => {
            let printed = value.to_string();
            assert_eq!(parse(&printed).as_ref(), Ok(&value), "{text:?} printed as {printed:?}");
        }
        Err(message) => harmless(&message),
    }
}

pub fn stats(bytes: &[u8]) {
    if let Ok(snapshot) = serde_json::from_slice::<Snapshot>(bytes) {
        let printed = serde_json::to_vec(&snapshot).expect("what was read has a form");
        let again: Snapshot = serde_json::from_slice(&printed).expect("what is printed reads");
        assert_eq!(serde_json::to_vec(&again).ok(), Some(printed));
    }
}

/// Two reports, one behind the other.
pub fn report(bytes: &[u8]) {
    let mut reports = serde_json::Deserializer::from_slice(bytes).into_iter::<Report>();
    let Some(Ok(first)) = reports.next() else { return };
    let second = match reports.next() {
        Some(Ok(second)) => second,
        _ => first.clone(),
    };
    let compared = compare(&[&first, &second]);
    harmless(&format!("{compared:?}"));
}
