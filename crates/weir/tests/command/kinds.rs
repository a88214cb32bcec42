//! A file of the wrong kind: whoever gives it hears what it is, and which command takes it.

use crate::support::{Folder, TWO_CLASSES, WEIR, scenario, source, unfolded, weir};
use std::process::{Command, Stdio};

const TABLE: &str = "ID,IP,Mask,BW,Shared,DSCP,Policy\n17,198.51.100.17,32,512K,0,EF,be\n";
const BROKER: &str = "domain = \"d\"\nstore = \"/nonexistent/store\"\n";
const EXPERIMENT: &str = "title = \"t\"\nsource = \"s\"\nabout = \"a\"\n[[run]]\nscenario = \"s.toml\"\n";
const RECORDING: &str = "rate 10000000\n0,voice,200\n1000,rest,1500\n";
const CAPTURE: [u8; 24] =
    [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];

/// The kinds: what a message calls one, a file of it, and words of the command that takes it.
fn kinds(folder: &Folder) -> Vec<(&'static str, String, &'static str)> {
    let report = weir(&["sim", "-j", &folder.write("s", scenario("1%"))]).ok().out;
    vec![
        ("configuration", folder.write("conf", TWO_CLASSES), "weir up"),
        ("scenario", folder.write("scenario", scenario("1%")), "weir sim"),
        ("experiment", folder.write("experiment", EXPERIMENT), "weir experiment run"),
        ("broker", folder.write("broker", BROKER), "weir broker run"),
        ("report", folder.write("report", report), "weir compare"),
        ("recording", folder.write("recording", RECORDING), "weir replay"),
        ("recording", folder.write("capture", CAPTURE), "weir replay"),
        ("recording", folder.write("compressed", [0x1f, 0x8b, 8, 0]), "weir replay"),
        ("contracts", folder.write("contracts", TABLE), "weir sla import"),
    ]
}

/// Every command that takes files, with the kinds that it takes; `FILE` stands for the file, `CONF`, `REPORT` and
/// `TRACE` for good ones.
const COMMANDS: [(&[&str], &[&str]); 17] = [
    (&["check", "FILE"], &["configuration", "scenario"]),
    (&["sim", "FILE"], &["scenario"]),
    (&["lab", "FILE"], &["scenario"]),
    (&["compare", "FILE", "REPORT"], &["report"]),
    (&["compare", "REPORT", "FILE"], &["report"]),
    (&["replay", "FILE", "em0", "TRACE"], &["configuration"]),
    (&["replay", "CONF", "em0", "FILE"], &["recording"]),
    (&["explain", "FILE", "em0", "udp 10.0.0.1:1 > 10.0.0.2:2"], &["configuration"]),
    (&["up", "FILE"], &["configuration"]),
    (&["apply", "FILE", "--socket", "/nonexistent"], &["configuration"]),
    (&["diff", "FILE", "--socket", "/nonexistent"], &["configuration"]),
    (&["down", "FILE"], &["configuration"]),
    (&["sla", "list", "FILE"], &["configuration"]),
    (&["sla", "export", "FILE"], &["configuration"]),
    (&["sla", "import", "FILE", "--interface", "em0"], &["contracts"]),
    (&["broker", "check", "FILE"], &["broker"]),
    (&["experiment", "run", "FILE"], &["experiment"]),
];

/// The words of a command about a file.
fn put(folder: &Folder, command: &[&str], file: &str) -> Vec<String> {
    let word = |word: &&str| match *word {
        "FILE" => file.to_string(),
        "CONF" => folder.path("conf"),
        "REPORT" => folder.path("report"),
        "TRACE" => folder.path("recording"),
        word => word.to_string(),
    };
    command.iter().map(word).collect()
}

/// All that a command says, without folds.
fn said(arguments: &[&str]) -> (i32, String) {
    let run = weir(arguments);
    (run.code, unfolded(&(run.out + &run.err)))
}

#[test]
fn a_file_of_another_kind_is_named_with_the_command_that_takes_it() {
    let folder = Folder::new();
    let kinds = kinds(&folder);
    for (command, takes) in COMMANDS {
        for (kind, file, taken_by) in &kinds {
            let words = put(&folder, command, file);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let right = takes.contains(kind);
            // Those would begin, or ask what does not run here.
            if right && ["lab", "up", "apply", "diff", "down"].contains(&command[0]) {
                continue;
            }
            let (code, said) = said(&words);
            if right {
                assert!(!said.contains(&format!("{file} is a")), "{command:?} {kind}: {said}");
                continue;
            }
            assert_eq!(code, 2, "{command:?} {kind}: {said}");
            for part in [*kind, taken_by, takes[0]] {
                assert!(said.contains(part), "{command:?} {kind}: no `{part}` in {said}");
            }
            assert!(said.contains(&format!("{file} is ")), "{command:?} {kind}: {said}");
        }
        // What is no file of any kind.
        let folder_of_files = folder.path("");
        let utf16: Vec<u8> = "\u{feff}interface".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (file, words) in [
            (folder_of_files, "is a folder"),
            (folder.write("empty", ""), "is empty"),
            (folder.write("binary", [0x7f, b'E', b'L', b'F', 0, 1]), "is not text in UTF-8"),
            (folder.write("wide", utf16), "is not text in UTF-8"),
        ] {
            // It may have a report.
            if command[0] == "compare" && words == "is a folder" {
                continue;
            }
            let arguments = put(&folder, command, &file);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let (code, said) = said(&arguments);
            assert_eq!(code, 2, "{command:?} {file}: {said}");
            assert!(said.contains(words) && said.contains(takes[0]), "{command:?} {file}: {said}");
        }
    }
}

/// Files as other systems save them: with a mark at the beginning, and with two characters at the end of a line.
#[test]
fn files_of_other_systems_are_read() {
    let folder = Folder::new();
    let kinds = kinds(&folder);
    for (kind, file, _) in kinds.iter().filter(|(_, file, _)| !file.ends_with("capture")) {
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        let saved = folder.write("saved", format!("\u{feff}{}", text.replace('\n', "\r\n")));
        let conf = folder.path("conf");
        let arguments: &[&str] = match *kind {
            "configuration" | "scenario" => &["check", &saved],
            "report" => &["compare", &saved, &saved],
            "recording" => &["replay", &conf, "em0", &saved],
            "contracts" => &["sla", "import", &saved, "--interface", "em0"],
            "broker" => &["broker", "check", &saved],
            _ => continue,
        };
        weir(arguments).ok();
    }
    std::fs::create_dir(folder.path("experiments")).unwrap();
    let experiment = EXPERIMENT.replace("s.toml", "s.scenario").replace('\n', "\r\n");
    folder.write("experiments/e.toml", format!("\u{feff}{experiment}"));
    folder.write("experiments/s.scenario", format!("\u{feff}{}", scenario("1%").replace('\n', "\r\n")));
    let run = Command::new(WEIR)
        .args(["experiment", "run", "e"])
        .current_dir(folder.path(""))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
}

/// Whatever the name of a scenario ends in, it is judged as one; so are all files that come along what they are.
#[test]
fn check_goes_by_what_is_in_a_file() {
    let folder = Folder::new();
    let named_otherwise = folder.write("scenario.conf", scenario("1%"));
    let (code, shown) = said(&["check", &named_otherwise]);
    assert!(code == 0 && shown.contains("the lab can"), "{shown}");
    let configuration = folder.write("conf.toml", TWO_CLASSES);
    weir(&["check", &configuration]).ok();
    for entry in std::fs::read_dir(source("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "altq") {
            let (_, shown) = said(&["check", path.to_str().unwrap()]);
            assert!(!shown.contains(" is a"), "{shown}");
        }
    }
}

/// A pipe is read once, by the reader.
#[test]
fn a_pipe_is_read_whole() {
    let folder = Folder::new();
    let conf = folder.write("conf", TWO_CLASSES);
    let run = Command::new("sh")
        .args(["-c", "cat \"$1\" | \"$0\" check /dev/stdin", WEIR, &conf])
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
}

/// Who names the file of an experiment is told its id.
#[test]
fn the_file_of_an_experiment_is_told_its_id() {
    let run = weir(&["experiment", "run", &source("experiments/ds2-fig5.toml")]);
    run.fails(2, &["did you mean `ds2-fig5`?"]);
}
