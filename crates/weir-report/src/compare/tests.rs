use super::*;
use crate::fixture;
use crate::report::Count;
use crate::report::RunKind;

/// A report cut down to one class and one flow with round numbers.
fn small(kind: RunKind, bytes: u64, dropped: u64) -> Report {
    let mut report = fixture::report(kind, 1, false);
    report.ports[0].classes.truncate(1);
    let inner = ClassReport { name: "root".into(), ..ClassReport::default() };
    report.ports[0].classes.push(inner);
    let class = &mut report.ports[0].classes[0];
    class.sent = Count { packets: bytes / 1000, bytes };
    class.delay.mean_ns = bytes as f64;
    class.delay.p99_ns = 2 * bytes;
    class.dropped = [("tail".to_string(), Count { packets: dropped, bytes: 0 })].into();
    report.flows.truncate(1);
    report.flows[0].goodput_bps = bytes as f64;
    report
}

#[test]
fn side_by_side() {
    let comparison = compare(&[&small(RunKind::Sim, 45_000_000, 100), &small(RunKind::Lab, 54_000_000, 0)]);
    assert_eq!(
        comparison.to_string(),
        "                              sim         lab   difference
class def  rate          8 Mbit/s  9.6 Mbit/s      +20.0 %
           share          40.96 %     49.15 %  +8.2 points
           delay-mean       45 ms       54 ms      +20.0 %
           delay-p99        90 ms      108 ms      +20.0 %
           drops              100           0     -100.0 %
flow c0    goodput      45 Mbit/s   54 Mbit/s      +20.0 %
           retransmits          0           0            –
"
    );
    let reversed = compare(&[&small(RunKind::Lab, 54_000_000, 0), &small(RunKind::Sim, 45_000_000, 100)]);
    assert_eq!(reversed.names, ["lab", "sim"]);
    assert!((reversed.rows[0].difference.unwrap() + 100.0 / 6.0).abs() < 1e-9);
    assert_eq!(reversed.rows[4].difference, None, "nothing can be said in per cent of no drops");
}

/// Equal runs differ in nothing; other inputs, lengths and classes are said.
#[test]
fn what_does_not_pair_up_is_shown() {
    let a = fixture::report(RunKind::Sim, 1, false);
    let same = compare(&[&a, &a]);
    assert!(same.warnings.is_empty() && same.rows.iter().all(|row| row.difference.unwrap_or(0.0) == 0.0));
    assert_eq!(same.names, ["a", "b"]);
    assert_eq!(same.rows.len(), 5 * 6 + 5 * 2);
    let mut b = a.clone();
    b.meta.inputs = "other".into();
    b.meta.duration_ns /= 2;
    b.ports[0].classes[0].name = "new".into();
    let other = compare(&[&a, &b]);
    assert_eq!(
        other.warnings,
        [
            "the runs had different scenarios or configurations",
            "the runs had different lengths: 45 s and 22.5 s"
        ]
    );
    let of = |name: &str| {
        other.rows.iter().filter(|row| row.kind == "class" && row.name == name).collect::<Vec<_>>()
    };
    assert!(of("def").iter().all(|row| row.a.is_some() && row.b.is_none() && row.difference.is_none()));
    assert!(of("new").iter().all(|row| row.a.is_none() && row.b.is_some()));
    assert!(serde_json::to_string(&other).unwrap().contains("\"what\":\"delay-p99\""));
}

/// Three runs: each value stands under the label of its run, whatever the labels are made of.
#[test]
fn several_runs_carry_their_labels() {
    let run = |seed: u64, bytes| {
        let mut report = small(RunKind::Sim, bytes, 0);
        report.meta.seed = seed;
        report
    };
    let runs = [run(1, 45_000_000), run(2, 90_000_000), run(3, 135_000_000)];
    let all: Vec<&Report> = runs.iter().collect();
    let three = compare(&all);
    assert_eq!(three.names, ["seed 1", "seed 2", "seed 3"]);
    let text = three.to_string();
    let mut lines = text.lines();
    assert_eq!(
        lines.next().unwrap().split_whitespace().collect::<Vec<_>>().join(" "),
        "seed 1 seed 2 seed 3"
    );
    let rate = lines.next().unwrap();
    assert!(rate.ends_with("8 Mbit/s  16 Mbit/s   24 Mbit/s"), "{text}");
    assert_eq!(three.rows[0].others, [Some(24e6)]);
    // Scenarios of long names: letters, said above the table; and 80 columns.
    let mut long = runs.clone();
    for (run, name) in long.iter_mut().zip(["one long name", "another long name", "a third long name"]) {
        run.meta.scenario = name.into();
        run.ports[0].classes[0].name = "a_class_of_a_name_that_is_as_long_as_can_be".into();
    }
    let text = compare(&long.iter().collect::<Vec<_>>()).to_string();
    assert!(text.contains("b = another long name seed 2\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80 && line.trim_end() == line), "{text}");
    // What tells some runs apart but not all gets a letter.
    let alike = [&runs[0], &runs[0], &runs[1]];
    assert_eq!(labels(&alike), ["a seed 1", "b seed 1", "c seed 2"]);
    assert!(are_told_apart(&all) && !are_told_apart(&alike));
}
