use super::*;
use crate::fixture;
use crate::report::RunKind;

/// All open tags are closed, and in order: enough of XML for what plotters writes.
fn well_formed(svg: &str) -> bool {
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let Some((tag, _)) = tag.split_once('>') else { return false };
        let name = |tag: &str| tag.split_whitespace().next().unwrap_or_default().to_string();
        match (tag.strip_prefix('/'), tag.ends_with('/')) {
            (Some(closed), _) if open.pop() != Some(name(closed)) => return false,
            (None, false) => open.push(name(tag)),
            _ => {}
        }
    }
    open.is_empty() && svg.starts_with("<svg")
}

fn words(svg: &str) -> Vec<String> {
    svg.split("<text")
        .skip(1)
        .filter_map(|text| Some(text.split_once('>')?.1.split_once('<')?.0.trim().to_string()))
        .collect()
}

#[test]
fn plots_have_their_words() {
    let sim = fixture::report(RunKind::Sim, 1, false);
    let lab = fixture::report(RunKind::Lab, 2, false);
    for (plot, x, y) in [
        (Plot::Rate, "time, s", "rate, Mbit/s"),
        (Plot::Delay, "queue delay, ms", "packets not delayed longer, %"),
        (Plot::Drops, "time, s", "packets dropped since the start"),
    ] {
        let svg = draw(plot, "no such port", &[&sim, &lab]).unwrap();
        assert!(well_formed(&svg), "{plot:?} without its port");
        let svg = draw(plot, "box>sink", &[&sim, &lab]).unwrap();
        assert!(well_formed(&svg), "{plot:?}");
        assert!(!well_formed(&svg[..svg.len() / 2]), "half a plot is not whole");
        let words = words(&svg);
        for word in [x, y, "c0", "c1", "c3", "c4", "def", "2 runs", "sim", "lab"] {
            assert!(words.iter().any(|known| known == word), "{plot:?} lacks {word}: {words:?}");
        }
        assert!(words[0].starts_with("Two agencies share 20 Mbit/s: "), "{words:?}");
        if let Some(folder) = std::env::var_os("WEIR_PLOTS") {
            std::fs::write(Path::new(&folder).join(format!("{}.svg", plot.name())), svg).unwrap();
            let one = draw(plot, "box>sink", &[&sim]).unwrap();
            std::fs::write(Path::new(&folder).join(format!("{}-one.svg", plot.name())), one).unwrap();
        }
    }
}

/// A rate over windows that slide: as many points, each the mean of those that it covers.
#[test]
fn rates_slide() {
    let mut report = fixture::report(RunKind::Sim, 1, false);
    let class = report.ports[0].class("c0").unwrap().clone();
    let single = rate(&report, &class);
    let probe_ns = report.meta.probe_ns;
    report.meta.window_ns = Some(4 * probe_ns);
    let sliding = rate(&report, &class);
    // Whole windows only.
    let whole = (report.meta.duration_ns / probe_ns) as usize;
    assert_eq!(sliding.len(), whole - 3);
    for (n, (at, mbps)) in sliding.iter().enumerate() {
        let covered = &single[n..n + 4];
        let mean = |part: fn(&(f64, f64)) -> f64| covered.iter().map(part).sum::<f64>() / 4.0;
        assert!((at - mean(|p| p.0)).abs() < 1e-9 && (mbps - mean(|p| p.1)).abs() < 1e-9, "{n}");
    }
    assert!(sliding.windows(2).any(|pair| pair[0].1 != pair[1].1), "the fixture's rate changes");
}

/// A run without a packet, and one of a single packet, still give a plot that says so.
#[test]
fn plots_of_nothing_are_plots() {
    let mut empty = fixture::report(RunKind::Sim, 1, false);
    for class in &mut empty.ports[0].classes {
        *class = ClassReport { name: class.name.clone(), ..ClassReport::default() };
    }
    let mut one = empty.clone();
    let class = &mut one.ports[0].classes[0];
    class.offered.add(1514);
    class.delay.histogram.record(0);
    for plot in Plot::ALL {
        let svg = draw(plot, "box>sink", &[&empty]).unwrap();
        assert!(well_formed(&svg) && words(&svg).contains(&"no packets".to_string()), "{plot:?}");
        assert!(well_formed(&draw(plot, "box>sink", &[&one, &empty]).unwrap()), "{plot:?}");
    }
}

#[test]
fn more_classes_than_colours_are_said_to_be_left_out() {
    let mut report = fixture::report(RunKind::Sim, 1, false);
    let class = report.ports[0].classes[1].clone();
    report.ports[0]
        .classes
        .extend((0..20).map(|n| ClassReport { name: format!("one<of>twenty&{n}"), ..class.clone() }));
    let svg = draw(Plot::Rate, "box>sink", &[&report]).unwrap();
    assert!(well_formed(&svg));
    assert!(words(&svg).contains(&"13 more not drawn".to_string()));
}

#[test]
fn axes_have_round_numbers() {
    assert_eq!(log_range(5.2, 66.0), (5.0, 100.0));
    assert_eq!(log_range(0.001, 0.001), (0.001, 0.01));
    assert_eq!(log_ticks(5.0, 100.0), [5.0, 10.0, 20.0, 50.0, 100.0]);
    assert_eq!(log_ticks(0.001, 1000.0).len(), 7);
    assert_eq!((decimal(0.05).as_str(), decimal(100.0).as_str()), ("0.05", "100"));
}

#[test]
fn one_file_for_each_plot_and_port() {
    let folder = std::env::temp_dir().join(format!("weir-plot-{}", std::process::id()));
    let mut report = fixture::report(RunKind::Sim, 1, false);
    let names = |paths: Vec<PathBuf>| -> Vec<String> {
        paths.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    };
    assert_eq!(names(write(&folder, &[&report]).unwrap()), ["rate.svg", "delay.svg", "drops.svg"]);
    report.ports.push(PortReport { name: "r2>r3".into(), ..report.ports[0].clone() });
    assert_eq!(
        names(write(&folder, &[&report]).unwrap())[3..],
        ["rate-r2-r3.svg", "delay-r2-r3.svg", "drops-r2-r3.svg"]
    );
    std::fs::remove_dir_all(folder).unwrap();
}

/// A few packets without delay do not stretch the axis; many do.
#[test]
fn rare_delays_stay_at_the_edge() {
    let mut report = fixture::report(RunKind::Sim, 1, false);
    for (short, from_zero) in [(1, false), (100, true)] {
        for class in &mut report.ports[0].classes {
            let mut delays = crate::Histogram::default();
            delays.record_many(0, short);
            delays.record_many(25_000_000, 500);
            delays.record_many(90_000_000, 500);
            class.delay = crate::report::Delay::of(delays);
        }
        let words = words(&draw(Plot::Delay, "box>sink", &[&report]).unwrap());
        let has = |tick: &str| words.iter().any(|word| word == tick);
        assert_eq!((has("0.001"), has("200")), (from_zero, !from_zero), "{short} of 1000 without delay");
    }
}

/// Four runs: each has its label in the legend, and its own kind of line.
#[test]
fn several_runs_have_their_labels_in_the_legend() {
    let runs: Vec<Report> = (1..=4)
        .map(|seed| {
            let mut report = fixture::report(RunKind::Sim, 1, false);
            report.meta.seed = seed;
            report
        })
        .collect();
    let all: Vec<&Report> = runs.iter().collect();
    let lines = |runs: &[&Report]| draw(Plot::Rate, "box>sink", runs).unwrap().matches("<polyline").count();
    let svg = draw(Plot::Rate, "box>sink", &all).unwrap();
    assert!(well_formed(&svg));
    for label in ["seed 1", "seed 2", "seed 3", "seed 4"] {
        assert!(words(&svg).iter().any(|word| word == label), "{label}: {:?}", words(&svg));
    }
    assert!(lines(&all) > lines(&all[..3]) && lines(&all[..3]) > lines(&all[..2]));
    assert_eq!(
        in_lines("Two agencies share 20 Mbit/s seed 1", 13),
        ["Two agencies", "share 20", "Mbit/s seed 1"]
    );
}
