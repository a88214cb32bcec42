//! What `-j` prints is what the book says, key by key and type by type.

use crate::shape::{fits, of};
use crate::support::{Folder, Run, TWO_CLASSES, scenario, source, weir};
use serde_json::Value;

fn page() -> String {
    std::fs::read_to_string(source("book/src/json.md")).unwrap()
}

/// The output of `weir` fits the shape in the book under `heading`, and is one document.
pub fn documented(heading: &str, arguments: &[&str]) -> Value {
    let run: Run = weir(arguments);
    let value = run.json();
    fits_the_page(heading, &value);
    value
}

/// `value` fits the shape in the book under `heading`.
pub fn fits_the_page(heading: &str, value: &Value) {
    if let Err(why) = fits(&of(&page(), heading), value, "") {
        panic!("{heading}: {why}");
    }
}

#[test]
fn check() {
    let folder = Folder::new();
    let good = folder.write("good.altq", TWO_CLASSES);
    let bad = folder.write("bad.altq", "interface em0 bandwidth 10Mbps priq\n");
    let warned = folder.write("warned.altq", format!("{TWO_CLASSES}filter em0 rest 0 0 0 5000 1\n"));
    let toml = folder.write("s.toml", scenario("1%"));
    let broken = folder.write("broken.toml", scenario("1%").replace("\"1G\"", "\"1Gbps\""));
    let value = documented("weir check -j", &["check", "-j", &good, &bad, &warned, &toml, &broken]);
    let usable: Vec<_> = value["files"].as_array().unwrap().iter().map(|f| f["usable"].clone()).collect();
    assert_eq!(usable, [true, false, true, true, false]);
    let first = |file: usize| &value["files"][file]["diagnostics"][0];
    assert_eq!((&first(1)["line"], &first(1)["column"]), (&1.into(), &25.into()));
    assert_eq!(first(2)["severity"], "warning", "{value}");
    assert_eq!(first(4)["severity"], "error", "{value}");
}

#[test]
fn reports() {
    let folder = Folder::new();
    let probed = scenario("90%")
        + "[[probe]]\nwhat = \"flows\"\n[[expect]]\nwhat = \"delay-p99\"\nclass = \"voice\"\nevery = \"500ms\"\nmax = \"1s\"\n";
    let toml = folder.write("s.toml", probed);
    let report = documented("weir sim -j", &["sim", "-j", &toml, "--out", &folder.path("out")]);
    assert!(!report["flows"][0]["delivered"].as_array().unwrap().is_empty(), "the probe asks for flows");
    assert!(!report["ports"][0]["classes"][0]["series"]["delays"].as_array().unwrap().is_empty());
    // The file is the same document.
    let file: Value = serde_json::from_str(&folder.read("out/report.json")).unwrap();
    assert_eq!(file, report);
    let path = folder.path("out/report.json");
    let comparison = documented("weir compare -j", &["compare", "-j", &path, &path]);
    assert!(!comparison["rows"].as_array().unwrap().is_empty());
}

/// Conditioners are in the report and in the table of it.
#[test]
fn reports_with_conditioners() {
    let edge = source("examples/two-bit.toml");
    let report = documented("weir sim -j", &["sim", "-j", &edge]);
    let ports = report["ports"].as_array().unwrap();
    let all: Vec<&Value> = ports.iter().filter_map(|p| p["conditioners"].as_array()).flatten().collect();
    assert!(!all.is_empty(), "two-bit.toml has an edge");
    let offered = |c: &Value| c["counts"]["offered"]["bytes"].as_u64();
    assert!(all.iter().any(|c| offered(c).is_some_and(|bytes| bytes > 0)));
    let text = weir(&["sim", &edge]).ok().out;
    assert!(text.contains("CONDITIONER, METER"), "{text}");
    for element in all {
        assert!(text.contains(element["name"].as_str().unwrap()), "{element}: {text}");
    }
}

#[test]
fn replay() {
    let folder = Folder::new();
    let conf = folder.write("a.altq", TWO_CLASSES);
    let trace = folder.write("t.csv", "rate 1000000\n0,voice,1000\n0,rest,500\n");
    let value = documented("weir replay -j", &["replay", "-j", &conf, "em0", &trace]);
    assert_eq!(value["classes"][1]["delay_max_ns"], 12_000_000);
}

#[test]
fn explain() {
    let folder = Folder::new();
    let conf = folder.write("a.altq", format!("{TWO_CLASSES}filter em0 rest 0 0 10.0.0.1 5000 1\n"));
    for packet in
        ["tcp 10.0.0.1:5000 > 10.0.0.2:80", "udp 10.0.0.1:5000 > 10.0.0.2:80", "icmp 10.0.0.1 > 10.0.0.2"]
    {
        documented("weir explain -j", &["explain", "-j", &conf, "em0", packet]);
    }
}

#[test]
fn disciplines() {
    let all = documented("weir disciplines -j", &["disciplines", "-j"]);
    for discipline in all["disciplines"].as_array().unwrap() {
        let name = discipline["name"].as_str().unwrap();
        let one = documented("weir disciplines NAME -j", &["disciplines", "-j", name]);
        assert_eq!(&one, discipline);
    }
}

#[test]
fn experiments() {
    let list = documented("weir experiment list -j", &["experiment", "list", "-j"]);
    assert!(list["experiments"].as_array().unwrap().len() >= 7);
    let value = documented("weir experiment run -j", &["experiment", "run", "-j", "ds2-fig3"]);
    // The part that others read, fixed word for word.
    let experiment = &value["experiments"][0];
    assert_eq!((&experiment["id"], &experiment["live"]), (&"ds2-fig3".into(), &false.into()));
    assert_eq!(experiment["verdict"], "pass");
    let check = &experiment["checks"][0];
    assert!(check["what"].is_string() && check["expected"].is_string());
    assert!(check["measured"].is_f64() && check["pass"].is_boolean());
}

#[test]
fn benches() {
    let value = documented("weir bench -j", &["bench", "-j", "fifo", "classify-100", "fifo-open/port"]);
    let (fifo, classify, path) = (&value["benches"][0], &value["benches"][1], &value["benches"][2]);
    assert_eq!(fifo["name"], "fifo");
    let total = fifo["enqueue_ns"].as_f64().unwrap() + fifo["dequeue_ns"].as_f64().unwrap();
    assert!((total - fifo["total_ns"].as_f64().unwrap()).abs() < 0.1, "{fifo}");
    assert_eq!(fifo["allocations_per_packet"].as_f64(), Some(0.0), "counted, and none");
    assert_eq!(
        (&fifo["case"], &path["name"], &path["case"]),
        (&"hot".into(), &"fifo-open".into(), &"port".into())
    );
    // Counted where valgrind is: the whole path is more than the queue alone.
    let counted = |bench: &serde_json::Value| bench["instructions"].as_f64();
    match (counted(fifo), counted(path), counted(classify)) {
        (Some(fifo), Some(path), Some(classify)) => {
            assert!(fifo > 20.0 && path > 2.0 * fifo && classify > 20.0, "{value}");
        }
        (None, None, None) => eprintln!("SKIPPED: no instructions are counted here"),
        _ => panic!("one row is counted and another not: {value}"),
    }
    assert!(path["enqueue_ns"].is_null(), "{value}");
    // What has no queue has no enqueue.
    assert!(classify["enqueue_ns"].is_null() && classify["total_ns"].is_number(), "{classify}");
}

/// What `bench live` prints for these rows: what it measures takes minutes and a quiet machine.
#[test]
fn live_benches() {
    use weir_lab::bench::{BenchReport, BothSample, Mode, Sample};
    let sample = |pps_60: f64, pps_1514: f64| Sample {
        pps_60,
        pps_1514,
        tcp_bps: 9.1e9,
        ping_mean_us: 41.5,
        ping_least_us: 40.0,
        ping_p99_us: 60.25,
        cpu_us: 3.5,
        cpu_half_us: 1.5,
    };
    // More is asked of AF_XDP than of the kernel.
    let more = |mode| if matches!(mode, Mode::WeirXdp | Mode::WeirXdpBusy) { 3.0 } else { 1.0 };
    let rounds = |pps: [f64; 3]| {
        Mode::ALL.map(|mode| pps.map(|pps| sample(pps * more(mode), 8e5 * more(mode))).to_vec())
    };
    let both = |pps_60: f64| vec![BothSample { pps_60, pps_1514: 5e5 }; 3];
    let report = BenchReport::of(&Mode::ALL, &rounds([3e5, 1e5, 2e5])).unwrap();
    let value = report.with_both_ways(&[both(6e5), both(8e5)]);
    let value = serde_json::to_value(value).unwrap();
    let shape = of(&page(), "weir bench live -j");
    fits(&shape, &value, "").unwrap();
    assert_eq!((&value["rounds"], &value["rows"][0]["pps_60"]["median"]), (&3.into(), &2e5.into()));
    assert_eq!(value["rows"].as_array().unwrap().len(), Mode::ALL.len());
    let targets = value["targets"].as_array().unwrap();
    assert_eq!((targets.len(), value["both_ways"][1]["workers"].as_u64()), (17, Some(2)), "{value}");
    assert!(targets.iter().all(|target| target["verdict"] == "reached"), "{value}");
    // The page names every mode, and no other.
    let words = shape["rows"][0]["mode"].as_str().unwrap();
    assert_eq!(words, Mode::ALL.map(Mode::key).join("|"));
    // A figure that is none is an error, not a `null` among numbers.
    for nothing in [0.0, f64::NAN] {
        let error = BenchReport::of(&Mode::ALL, &rounds([nothing; 3])).unwrap_err();
        assert!(error.contains("kernel bridge: packets"), "{error}");
    }
}

#[test]
fn probes() {
    let value = documented("weir probe -j", &["probe", "-j", "--no-rates", "lo"]);
    let lo = &value["interfaces"][0];
    assert_eq!((&lo["interface"], &lo["receive_queues"]), (&"lo".into(), &1.into()));
    let ways: Vec<_> = lo["ways"].as_array().unwrap().iter().map(|way| way["attach"].clone()).collect();
    assert_eq!(ways, ["bridge PEER", "bridge PEER xdp", "bridge PEER xdp busy-poll", "nfqueue"]);
    // Its MTU is too large.
    assert_eq!(lo["ways"][1]["possible"], false, "{value}");
    weir(&["probe", "no-such-if0"]).fails(2, &["no interface \"no-such-if0\" here"]);
}

#[test]
fn simulator_benches() {
    let value = documented("weir bench sim -j", &["bench", "sim", "sim-dumbbell-10", "-j"]);
    let bench = &value["benches"][0];
    assert_eq!(bench["name"], "sim-dumbbell-10");
    let rate = bench["deliveries"].as_f64().unwrap() / bench["cpu_seconds"].as_f64().unwrap();
    assert!((bench["deliveries_per_cpu_second"].as_f64().unwrap() / rate - 1.0).abs() < 1e-6, "{bench}");
    assert!(bench["deliveries"].as_u64().unwrap() > 1_000_000, "{bench}");
    assert!(bench["peak_rss_bytes"].as_u64().unwrap() > 1_000_000, "{bench}");
}
