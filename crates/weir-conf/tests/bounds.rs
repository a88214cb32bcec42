//! What a file may ask for has a limit, and the refusal says which.

#![allow(clippy::unwrap_used)]

use weir_conf::{Diagnostic, judge, read};
use weir_core::sched::{MAX_FLOW_QUEUES, Registry};

/// The errors that `weir check` finds.
fn errors(text: &str) -> Vec<Diagnostic> {
    let registry = Registry::builtin();
    let outcome = read("f", text, &registry);
    let mut all = outcome.diagnostics;
    if let Some(plan) = &outcome.plan {
        all.extend(judge(plan, &registry));
        all.extend(plan.check(&registry, 1514, &|| 0).into_iter().filter_map(Result::err));
    }
    all.retain(Diagnostic::is_error);
    all
}

/// The place, the message and the help of the only error.
fn error(text: &str) -> (u32, String, String) {
    let all = errors(text);
    assert_eq!(all.len(), 1, "{all:?}");
    (all[0].line, all[0].message.clone(), all[0].help.clone())
}

#[test]
fn flow_queues_of_all_classes_together_have_a_limit() {
    for (discipline, word) in
        [("fq_codel", "flows"), ("wfq", "nqueues"), ("drr", "nqueues"), ("qfq", "nqueues")]
    {
        let file = |classes: u64| {
            let mut text = String::from("interface em0 bandwidth 1G hfsc\n");
            for n in 0..classes {
                let default = if n == 0 { "default" } else { "" };
                text += &format!("class hfsc em0 c{n} root pshare 0.1 {default} {discipline} {word} 65536\n");
            }
            text
        };
        let most = MAX_FLOW_QUEUES / 65_536;
        assert_eq!(errors(&file(most)), []);
        let (line, message, help) = error(&file(most + 1));
        assert_eq!(u64::from(line), most + 2, "{message}");
        assert_eq!(message, format!("class `c{most}`: `{word}` cannot be 65536"));
        assert!(help.contains(&format!("at most {MAX_FLOW_QUEUES} flow queues")), "{help}");
    }
}

#[test]
fn flow_queues_of_all_interfaces_together_have_a_limit() {
    let file = |interfaces: u64| -> String {
        let line = |n| format!("interface em{n} bandwidth 1G fq_codel flows 65536\n");
        (0..interfaces).map(line).collect()
    };
    let most = 2 * MAX_FLOW_QUEUES / 65_536;
    assert_eq!(errors(&file(most)), []);
    // One error for the file, not one for each interface after it.
    let (line, message, help) = error(&file(most + 10));
    assert_eq!(u64::from(line), most + 1, "{message}");
    assert_eq!(message, "with interface `em256` the file has 16842752 flow queues, more than 16777216");
    assert!(help.contains("`flows`"), "{help}");
}

#[test]
fn masks_of_filters_have_a_limit() {
    let mut text =
        String::from("interface em0 bandwidth 10M hfsc\nclass hfsc em0 a root pshare 10 default\n");
    for n in 0..5_000u32 {
        let mask = 0x8000_0001 | n << 4;
        text += &format!("filter em0 a 128.0.0.1 netmask {mask:#x} 0 0 0 0 dontwarn\n");
    }
    let (line, message, help) = error(&text);
    assert_eq!(
        (line, message.as_str()),
        (4_099, "more than 4096 different masks of filters on interface `em0`")
    );
    assert!(help.contains("4096"), "{help}");
}

#[test]
fn a_file_of_errors_is_not_read_to_its_end() {
    let all = errors(&"interface em0 bandwith 10M fifoq\n".repeat(20_000));
    assert_eq!(all.len(), 101);
    assert_eq!(all[100].message, "more than 100 errors: from here on nothing is read");
    assert_eq!(all[100].line, 101);
}

#[test]
fn a_long_file_is_refused_before_it_is_read() {
    let (line, message, help) = error(&"\n".repeat(1_000_001));
    assert_eq!((line, message.as_str()), (0, "the file has 1000001 lines"));
    assert!(help.contains("1000000"), "{help}");
    let (_, message, _) = error(&" ".repeat(weir_conf::MAX_BYTES + 1));
    assert_eq!(message, "the file has 67108865 bytes");
}

#[test]
fn what_is_said_has_no_hidden_characters() {
    let head = "interface em0 bandwidth 10M hfsc\nclass hfsc em0 a root pshare 10 default\n";
    let hidden =
        ['\0', '\u{1b}', '\u{7f}', '\u{9b}', '\u{202e}', '\u{200b}', '\u{2066}', '\u{feff}', '\u{ad}'];
    for c in hidden {
        for line in [
            format!("class hfsc em0 x{c}y root pshare 10"),
            format!("conditioner em0 x{c}y <pass>"),
            format!("interface x{c}y bandwidth 10M fifoq"),
            format!("filter em0 a name x{c}y 10.0.0.1 0 0 0 0"),
            format!("filter em0 x{c}y 10.0.0.1 0 0 0 0 # {c}"),
            format!("{c}class hfsc em0 y root pshare 10"),
        ] {
            let all = errors(&format!("{head}{line}\n"));
            assert!(!all.is_empty(), "{line:?}");
            for said in &all {
                let shown = format!("{said}\n{}\n{}\n{}", said.message, said.help, said.text);
                let bad = |c: char| weir_text::is_hidden(c) && c != '\n' && c != '\t';
                assert!(!shown.contains(bad), "{line:?}: {shown:?}");
                assert_eq!(said.line, 3, "{line:?}");
            }
        }
    }
}

#[test]
fn small_files_that_ask_for_much_are_answered() {
    for number in
        ["18446744073709551616", "18446744073709551615", "99999999999999999999999999G", "-1", "1e400"]
    {
        for line in [
            format!("interface em0 bandwidth {number} fifoq"),
            format!("interface em0 bandwidth 10M tbrsize {number} fifoq"),
            format!("interface em0 bandwidth 10M overhead {number} fifoq"),
            format!("interface em0 bandwidth 10M fifoq qlimit {number}"),
            format!("interface em0 bandwidth 10M fq_codel flows {number} limit {number}"),
            format!("interface em0 bandwidth 10M wfq nqueues {number} qsize {number}"),
            format!("interface em0 bandwidth 10M red thmin {number} thmax {number}"),
            format!(
                "interface em0 bandwidth 10M\nconditioner em0 c <tbmeter {number} {number} <pass><drop>>"
            ),
            format!(
                "interface em0 bandwidth 10M\nconditioner em0 c <tswtcm {number} {number} {number} <pass><pass><drop>>"
            ),
            format!(
                "interface em0 bandwidth 10M hfsc\nclass hfsc em0 a root [sc {number} {number} {number}] default"
            ),
            format!(
                "interface em0 bandwidth 10M cbq\nclass cbq em0 a NULL pbandwidth {number} maxburst {number} packetsize {number} default"
            ),
            format!(
                "interface em0 bandwidth 10M jobs\nclass jobs em0 a NULL priority {number} adc {number} alc {number} arc {number} default"
            ),
        ] {
            // No panic; whether it is an error is for `errors.txt`.
            errors(&line);
        }
    }
    let deep = format!("interface em0 bandwidth 10M\nconditioner em0 c {}", "<tbmeter 1M 64K ".repeat(60));
    assert!(!errors(&deep).is_empty());
    let crlf = "\u{feff}interface em0 bandwidth 10M fifoq\r\n# \u{e9}\r\n";
    assert_eq!(errors(crlf), []);
}
