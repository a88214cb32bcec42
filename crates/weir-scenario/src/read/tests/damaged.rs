//! Scenarios that something has happened to.

use super::{EVERY_KEY, GOOD};
use crate::Scenario;
use weir_report::RunKind;

/// 12,000 damaged scenarios: read or refused, never a panic; what is read can be used and written.
#[test]
fn damaged_scenarios_never_panic() {
    let mut state = weir_seed::seed();
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    };
    let pieces = [
        "\"",
        "[[",
        "]]",
        "=",
        "0",
        "-1",
        "1e308",
        "nan",
        "inf",
        "18446744073709551615",
        "\"99999999999999999999s\"",
        "\"0.0000001ns\"",
        "[[flow]]\n",
        "[[expect]]\n",
        "[[link]]\n",
        "count = 4294967295\n",
        "\"1000000000G\"",
        "\u{fffd}",
        "é",
        "\t",
        "\r\n",
        "#",
        "'''",
        "{a=1}",
        "1979-05-27T07:32:00Z",
        "per = [\"c\"]\n",
        "every = \"1ns\"\n",
        "0x7fff_ffff_ffff_ffff",
        "\0",
    ];
    let (mut read, mut refused) = (0, 0);
    for case in 0..12_000 {
        let mut text = if case % 3 == 0 { EVERY_KEY } else { GOOD }.to_string();
        for _ in 0..=random(3) {
            let mut at = random(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            match random(5) {
                0 => text.insert_str(at, pieces[random(pieces.len())]),
                1 => text.truncate(at),
                2 => {
                    text.remove(at.min(text.len() - 1));
                }
                3 => {
                    let lines: Vec<&str> = text.lines().collect();
                    let (from, to) = (random(lines.len()), random(lines.len()));
                    let mut lines: Vec<String> = lines.into_iter().map(String::from).collect();
                    let line = lines.remove(from);
                    lines.insert(to.min(lines.len()), line);
                    text = lines.join("\n");
                }
                _ => {
                    let digit = char::from(b'0' + random(10) as u8).to_string();
                    if text.as_bytes()[at].is_ascii_digit() {
                        text.replace_range(at..at + 1, &digit);
                    }
                }
            }
            if text.is_empty() {
                text.push('\n');
            }
        }
        match Scenario::from_toml("x.toml", &text) {
            Err(diagnostics) => {
                refused += 1;
                assert!(
                    diagnostics.0.iter().all(|one| one.line > 0 && !one.help.is_empty()),
                    "case {case}: {diagnostics}"
                );
            }
            Ok(scenario) => {
                read += 1;
                let written = scenario.to_toml();
                let again = Scenario::from_toml("y.toml", &written)
                    .map_err(|error| format!("case {case}: {error}\n{written}"))
                    .unwrap();
                assert_eq!(again.to_toml(), written, "case {case}");
                let _ = crate::lab_layout(&scenario);
                let report = scenario.recorder(RunKind::Sim, 0).finish();
                let checks = weir_report::evaluate(&scenario.expects, &report);
                assert!(checks.iter().all(|check| check.measured.is_some() || !check.pass), "case {case}");
            }
        }
    }
    assert!(
        read > 500 && refused > 500,
        "{read} read, {refused} refused: the damage is too mild or too strong"
    );
}
