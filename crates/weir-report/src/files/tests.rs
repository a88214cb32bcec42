use super::*;
use crate::fixture;
use crate::report::RunKind;

fn folder(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("weir-files-{name}-{}", std::process::id()))
}

#[test]
fn a_report_reads_back() {
    let mut report = fixture::report(RunKind::Lab, 3, false);
    report.checks = crate::evaluate(&fixture::expects(), &report);
    report.meta.notes.push("a note".into());
    let folder = folder("back");
    report.write(&folder).unwrap();
    // The unit in which a check is shown is no part of the schema.
    report.checks.iter_mut().for_each(|check| check.unit = Default::default());
    assert_eq!(Report::read(&folder).unwrap(), report);
    assert_eq!(Report::read(&folder.join("report.json")).unwrap(), report);
    assert_eq!(std::fs::read_to_string(folder.join("samples.csv")).unwrap(), report.samples_csv());
    assert!(!folder.join("flows.csv").exists(), "no flows were sampled");
    std::fs::remove_dir_all(folder).unwrap();
}

/// A line for every class and interval; the sums are those of the report.
#[test]
fn samples_add_up() {
    let mut report = fixture::report(RunKind::Sim, 1, false);
    report.ports[0].classes[1].name = "a,\"b\"".into();
    let csv = report.samples_csv();
    let lines: Vec<&str> = csv.lines().collect();
    // 45 s in intervals of 400 ms are 112 whole ones and a half.
    assert_eq!(lines.len(), 1 + 113 * 5);
    let columns = lines[0].split(',').count();
    assert_eq!((columns, lines[0].split(',').nth(5)), (13, Some("sent_bytes")));
    assert!(lines[2].starts_with("0,box>sink,\"a,\"\"b\"\"\","));
    assert!(lines[1 + 112 * 5].starts_with("44800000000,box>sink,def,"));
    for class in [0, 2, 3, 4] {
        let bytes: u64 = lines[1..]
            .iter()
            .skip(class)
            .step_by(5)
            .map(|line| line.split(',').nth(5).unwrap().parse::<u64>().unwrap())
            .sum();
        assert_eq!(bytes, report.ports[0].classes[class].sent.bytes);
    }
}

#[test]
fn flows_have_their_own_file() {
    let mut report = fixture::report(RunKind::Sim, 1, false);
    assert_eq!(report.flows_csv(), None);
    report.flows.truncate(1);
    report.flows[0].delivered = vec![1; (report.meta.duration_ns / report.meta.cell_ns) as usize];
    let csv = report.flows_csv().unwrap();
    let per_interval = report.meta.probe_ns / report.meta.cell_ns;
    assert!(csv.starts_with(&format!("time_ns,flow,delivered_bytes\n0,c0,{per_interval}\n400000000,c0,")));
    assert_eq!(csv.lines().count(), 1 + 113);
}

#[test]
fn what_is_no_report_is_refused() {
    let json = fixture::report(RunKind::Sim, 1, false).to_json();
    let refused = |from: &str, to: &str| {
        assert!(json.contains(from), "{from}");
        Report::from_json(&json.replacen(from, to, 1)).unwrap_err()
    };
    assert_eq!(refused("\"version\":1", "\"version\":2"), "has version 2; this program reads up to 1");
    assert!(refused("\"seed\":1", "\"seed\":-1").starts_with("is not a report of weir (invalid value"));
    assert_eq!(
        refused("\"cell_ns\":200000000", "\"cell_ns\":0"),
        "is broken: cell_ns, probe_ns and duration_ns do not fit each other"
    );
    assert!(
        Report::from_json(&json.replacen("\"seed\":1", "\"seed\":1,\"news\":[]", 1)).is_ok(),
        "fields may be added"
    );
    let error = Report::read(Path::new("/nonexistent")).unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent: No such file"), "{error}");
}

/// 3,000 damaged reports: read or refused; what is read can be written, evaluated, compared and drawn.
#[test]
fn damaged_reports_never_panic() {
    let mut small = fixture::report(RunKind::Sim, 1, false);
    small.ports[0].classes.truncate(2);
    for class in &mut small.ports[0].classes {
        class.series = crate::report::Series { sent_bytes: vec![1, 2, 3], ..Default::default() };
        class.delay = crate::report::Delay::of([5_000_000_u64, 7].iter().fold(
            crate::Histogram::default(),
            |mut sum, value| {
                sum.record(*value);
                sum
            },
        ));
    }
    small.links.truncate(1);
    small.links[0].wire_bytes.truncate(3);
    (small.meta.duration_ns, small.meta.cell_ns, small.meta.probe_ns) =
        (1_000_000_000, 200_000_000, 400_000_000);
    let (json, expects) = (small.to_json(), fixture::expects());
    let mut state = weir_seed::seed();
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let numbers = ["0", "1", "18446744073709551615", "-1", "1e300", "null", "[]", "9223372036854775808"];
    let (mut read, mut refused) = (0, 0);
    for case in 0..3000 {
        // Replace one number, or two, by an awkward one.
        let mut text = json.clone();
        for _ in 0..=random(2) {
            let starts: Vec<usize> =
                text.match_indices(|c: char| c.is_ascii_digit()).map(|(at, _)| at).collect();
            let at = starts[random(starts.len())];
            let end = at + text[at..].find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
            text.replace_range(at..end, numbers[random(numbers.len())]);
        }
        match Report::from_json(&text) {
            Err(_) => refused += 1,
            Ok(report) => {
                read += 1;
                let _ = (report.samples_csv(), report.flows_csv(), crate::evaluate(&expects, &report));
                let _ = crate::compare(&[&small, &report]).to_string();
                for plot in crate::plot::Plot::ALL {
                    let _ = crate::plot::draw(plot, "box>sink", &[&report, &small]);
                }
            }
        }
        assert!(case + 1 == read + refused);
    }
    assert!(read > 300 && refused > 300, "{read} read, {refused} refused");
}

/// The book's page names every field of a report.
#[test]
fn the_book_knows_every_field() {
    let page = include_str!("../../../../book/src/scenarios.md");
    let words: std::collections::BTreeSet<&str> =
        page.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect();
    let mut report = fixture::report(RunKind::Sim, 1, false);
    report.checks = crate::evaluate(&fixture::expects(), &report);
    report.ports[0].classes[0].statistics.insert("average".into(), 1.0);
    let series = &mut report.ports[0].classes[0].series;
    series.delays.push(Default::default());
    for list in [&mut series.measured_bytes, &mut series.requests] {
        list.push(1);
    }
    (series.allocated_bits, series.estimated_bits) = (vec![1], vec![1]);
    (report.meta.events, report.flows[0].delivered, report.checks[0].note) =
        (Some("0".into()), vec![1], Some("why".into()));
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    let (mut left, mut fields) = (vec![&json], 0);
    while let Some(value) = left.pop() {
        match value {
            serde_json::Value::Array(list) => left.extend(list),
            serde_json::Value::Object(object) => {
                for (field, value) in object {
                    // Names of reasons and of a discipline's numbers are not fields.
                    if !["tail", "average"].contains(&field.as_str()) {
                        assert!(words.contains(field.as_str()), "the page lacks the field {field}");
                    }
                    fields += 1;
                    left.push(value);
                }
            }
            _ => {}
        }
    }
    assert!(fields > 100);
}
