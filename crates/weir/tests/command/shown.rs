//! What people read: 80 columns, units, sums of copies.

use crate::support::{Folder, TWO_CLASSES, scenario, source, unfolded, weir};

/// Fails if a line of the output is too long or ends in a blank.
fn fits(arguments: &[&str]) -> String {
    let run = weir(arguments).ok();
    for line in run.out.lines() {
        assert!(line.chars().count() <= 80, "{arguments:?}: {line}");
        assert_eq!(line, line.trim_end(), "{arguments:?}: blanks at the end");
    }
    run.out
}

#[test]
fn tables_fit_80_columns() {
    let list = fits(&["disciplines"]);
    for line in list.lines().skip(1).filter(|line| !line.starts_with(' ')) {
        fits(&["disciplines", line.split(' ').next().unwrap()]);
    }
    fits(&["experiment", "list"]);
    fits(&["experiment", "run", "ds2-fig5"]);
    let folder = Folder::new();
    let conf = folder.write("a.altq", TWO_CLASSES);
    let trace = folder.write("t.csv", "rate 10000000\n0,voice,200\n1000,rest,1500\n2000,rest,1500\n");
    let replayed = fits(&["replay", &conf, "em0", &trace, "--out", &folder.path("out.csv")]);
    assert!(replayed.contains("2.558 ms"), "{replayed}");
    for name in ["examples/two-agencies.toml", "examples/two-bit.toml"] {
        let file = source(name);
        fits(&["check", &file]);
        for seed in ["1", "2"] {
            let report = fits(&["sim", &file, "--all", "--out", &folder.path(seed), "--seed", seed]);
            assert!(!report.contains(".000000"), "{report}");
        }
        fits(&["compare", &folder.path("1/report.json"), &folder.path("2/report.json")]);
    }
}

/// The help of every command, and of those below it.
#[test]
fn help_fits_80_columns() {
    fn of(command: &[&str]) -> usize {
        let help = weir(&[command, &["--help"]].concat()).ok().out;
        let long = help.lines().find(|line| line.chars().count() > 80);
        assert_eq!(long, None, "{command:?}");
        let listed = help.split("\nCommands:\n").nth(1).unwrap_or_default();
        let listed = listed.lines().take_while(|line| !line.is_empty());
        // Further lines of what is said of a command stand deeper.
        let names = listed.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
        let names = names.map(|line| line.split(' ').next().unwrap()).filter(|name| *name != "help");
        1 + names.map(|name| of(&[command, &[name]].concat())).sum::<usize>()
    }
    assert!(of(&[]) > 40);
}

/// What is wrong, what is odd and what is explained, too; but for the lines of a file, and those to type.
#[test]
fn messages_fit_80_columns() {
    let folder = Folder::new();
    let conf = folder.write(
        "a.altq",
        "interface em0 bandwidth 10M cbq\nclass cbq em0 top NULL pbandwidth 100\nclass cbq em0 rest top pbandwidth 98 borrow default\n\
         filter em0 rest 0 0 10.0.0.0 netmask 255.255.255.0 0 17 dontwarn\nfilter em0 rest 0 0 10.0.0.1 0 17 dontwarn\n",
    );
    let explained = fits(&["explain", &conf, "em0", "udp 10.0.0.1:5000 > 10.0.0.2:80"]);
    assert!(explained.contains("and of equal ruleno the later\n        is asked first"), "{explained}");
    let whole = std::fs::read_to_string(&conf).unwrap();
    let misspelt = folder.write("b.altq", whole.replace("bandwidth 10M cbq", "bandwidth 10Mbps cbq"));
    let toml =
        folder.write("s.toml", scenario("90%").replace("what = \"utilisation\"", "what = \"utilization\""));
    let line =
        |text: &str| text.split_once(" | ").is_some_and(|(number, _)| number.trim().parse::<u32>().is_ok());
    for arguments in [
        &["check", &misspelt][..],
        &["check", &toml],
        &["sim", &toml],
        &["explain", &misspelt, "em0", "udp 10.0.0.1:5000 > 10.0.0.2:80"],
        &["explain", &conf, "em0", "udp 10.0.0.1:5000 -> 10.0.0.2:80"],
        &["disciplines", "cbp"],
        &["experiment", "run", "nonsense"],
        &["bench", "cpq-20"],
        &["sim", "/nonexistent/a/folder/with/a/long/name/and/another/and/another/and/another/s.toml"],
    ] {
        let run = weir(arguments);
        assert_eq!(run.code, 2, "{run:?}");
        let said = run.out.lines().chain(run.err.lines());
        for long in said.filter(|text| text.chars().count() > 80 && !text.contains("--> ")) {
            assert!(line(long), "{arguments:?}: {long}");
        }
    }
}

/// Of a hundred interfaces of which the same is said three are shown.
#[test]
fn what_is_said_of_many_interfaces_is_folded() {
    let folder = Folder::new();
    let each = |n: usize| format!("interface em{n} {} fifoq\n", if n == 50 { "bandwidth 10M" } else { "" });
    let conf = folder.write("a.altq", (0..100).map(each).collect::<String>());
    let shown = fits(&["check", &conf]);
    let of = |n: usize| shown.matches(&format!("interface em{n}: ")).count();
    assert_eq!((of(0), of(1), of(2), of(3), of(99)), (of(0), of(0), of(0), 0, 0), "{shown}");
    // What it takes depends on its rate, and so does what control packets get.
    assert!(of(0) >= 4 && (1..of(0)).contains(&of(50)), "{shown}");
    let rate = "has no `bandwidth`, so that it sends at most 100M";
    assert!(unfolded(&shown).contains(rate) && shown.contains("96 more like this"), "{shown}");
    assert!(shown.lines().count() < 40, "{shown}");
    let all = weir(&["check", "-j", &conf]).ok().json();
    assert_eq!(all["files"][0]["facts"].as_array().unwrap().len(), 100 * of(0) - 1, "{shown}");
}

/// Of ten classes of which the same is promised three are shown, and all with `-j`. A class with another promise
/// stands by itself.
#[test]
fn what_is_said_of_many_classes_is_folded() {
    let folder = Folder::new();
    let mut text = "interface em0 bandwidth 10M hfsc\n".to_string();
    for n in 0..11 {
        let (rate, default) = if n == 5 { ("200K", "default") } else { ("100K", "") };
        text += &format!("class hfsc em0 c{n} root [rt {rate} 10ms 100K] pshare 5 {default}\n");
    }
    let conf = folder.write("a.altq", &text);
    let shown = fits(&["check", &conf]);
    let promised = |n: usize| shown.contains(&format!("class c{n}: [rt "));
    assert_eq!((0..11).filter(|&n| promised(n)).collect::<Vec<_>>(), [0, 1, 2, 5], "{shown}");
    assert!(shown.contains("7 more like this: `weir check --json` has all"), "{shown}");
    let all = weir(&["check", "-j", &conf]).ok().json();
    let facts = all["files"][0]["facts"].as_array().unwrap();
    assert_eq!(facts.iter().filter(|fact| fact.as_str().unwrap().contains("[rt ")).count(), 11);
    // The same of errors.
    let conf = folder.write("b.altq", text.replace("[rt", "nonsense [rt"));
    let said = weir(&["check", &conf]).out;
    assert_eq!(said.matches("error: ").count(), 3, "{said}");
    assert!(said.contains("8 more like this"), "{said}");
}

#[test]
fn results_carry_units() {
    let folder = Folder::new();
    let more = "[[expect]]\nwhat = \"delay-max\"\nclass = \"voice\"\nmax = \"1ms\"\n\
                [[expect]]\nwhat = \"rate\"\nclass = \"voice\"\nmin = \"1k\"\n";
    let toml = folder.write("s.toml", format!("{}{more}", scenario("90%")));
    let run = weir(&["sim", &toml]);
    assert_eq!(run.code, 1, "{run:?}");
    let line = |what: &str| run.out.lines().find(|line| line.contains(what)).unwrap().to_string();
    let missed = line("delay-max of class voice");
    assert!(missed.starts_with("MISS") && missed.ends_with(" ms") && !missed.contains(", ns"), "{missed}");
    assert!(line("rate of class voice").ends_with(" kbit/s"), "{}", run.out);
    assert!(line("utilisation").ends_with(" %"), "{}", run.out);
}

#[test]
fn copies_of_a_flow_and_idle_classes_are_summed_up() {
    let folder = Folder::new();
    let many = "[[flow]]\nname = \"many\"\nfrom = \"a\"\nto = \"b\"\nkind = \"udp\"\nrate = \"10k\"\nsize = 100\n\
                count = 50\nclass = \"rest\"\n";
    let text =
        scenario("1%").replace("filter em0 voice 0 0 10.0.0.1 5000 6", "class priq em0 idle NULL priority 1");
    let toml = folder.write("s.toml", format!("{text}{many}"));
    let short = fits(&["sim", &toml]);
    assert!(short.contains("many (50 flows)") && !short.contains("many.7"), "{short}");
    assert!(short.contains("50 flows many: packets outside class rest"), "{short}");
    assert!(short.contains("without packets: idle"), "{short}");
    let all = fits(&["sim", "--all", &toml]);
    assert_eq!(all.matches("many.").count(), 100, "{all}");
    assert!(all.lines().any(|line| line.starts_with("idle ")), "{all}");
    // The sum is that of the copies.
    let report = weir(&["sim", "-j", &toml]).ok().json();
    let flows = report["flows"].as_array().unwrap();
    let copies = flows.iter().filter(|flow| flow["name"].as_str().unwrap().starts_with("many."));
    let bps: f64 = copies.map(|flow| flow["goodput_bps"].as_f64().unwrap()).sum();
    let row = short.lines().find(|line| line.starts_with("many (50")).unwrap();
    let shown: f64 = row.split_whitespace().nth(5 + 1).unwrap().parse().unwrap();
    assert!((shown * 1e3 - bps).abs() < bps / 1e3, "{row}: {bps}");
}

/// Nothing waits in `voice`, so that a packet needs the two links' times and the delay of 1 ms.
#[test]
fn the_one_way_delay_of_a_flow_can_be_expected() {
    let folder = Folder::new();
    let expect = |max: &str| {
        let more = format!("[[expect]]\nwhat = \"one-way-max\"\nflow = \"call\"\nmax = \"{max}\"\n");
        let toml = folder.write("s.toml", format!("{}{more}", scenario("1%")));
        weir(&["sim", &toml])
    };
    // Besides its own times and the delay of 1 ms it waits for full packets before it in the device ring.
    let held = expect("3.7ms").ok();
    assert!(held.out.contains("one-way-max of flow call"), "{}", held.out);
    assert_eq!(expect("1.1ms").code, 1, "reversed: 1 ms and the links' own times");
}

#[test]
fn a_run_can_be_marked_to_fail() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("experiments")).unwrap();
    let run = |max: &str| {
        let more = format!("[[expect]]\nwhat = \"delay-max\"\nclass = \"voice\"\nmax = \"{max}\"\n");
        folder.write("experiments/s.toml.in", format!("{}{more}", scenario("1%")));
        let head = "title = \"A bound bites\"\nsource = \"none\"\nabout = \"none\"\nseeds = 1\n";
        let part = "[[run]]\nname = \"too strict\"\nscenario = \"s.toml.in\"\nmust_fail = true\n";
        folder.write("experiments/bites.toml", format!("{head}{part}"));
        let mut command = std::process::Command::new(crate::support::WEIR);
        let output =
            command.args(["experiment", "run", "bites"]).current_dir(folder.path("")).output().unwrap();
        crate::support::Run::from(output)
    };
    let bites = run("1us").ok();
    assert!(bites.out.contains("must fail: at most 1 µs"), "{}", bites.out);
    assert!(bites.out.contains("too strict: expectations that fail"), "{}", bites.out);
    let loose = run("1s");
    assert_eq!(loose.code, 1);
    let words: Vec<&str> = loose.out.split_whitespace().collect();
    assert!(words.join(" ").contains("does not bite"), "{}", loose.out);
}

/// `replace` changes the scenario of one run; a text that is not there is refused, because the run would
/// silently be another's.
#[test]
fn a_sweep_shares_one_scenario() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("experiments")).unwrap();
    folder.write("experiments/s.toml.in", scenario("1%"));
    let run = |old: &str| {
        let head = "title = \"A sweep\"\nsource = \"none\"\nabout = \"none\"\nseeds = 1\n";
        let part = |name: &str, more: &str| {
            format!(
                "[[run]]\nname = \"{name}\"\nscenario = \"s.toml.in\"\n{more}\
                 expect = [{{ what = \"delay-max\", class = \"rest\", max = \"100s\" }}]\n"
            )
        };
        let compare = "[[compare]]\nwhat = \"a slow link delays\"\nat_least = true\ntimes = 2\n\
                       left = { run = \"slow\", what = \"delay-max of class rest, ns\" }\n\
                       right = { run = \"fast\", what = \"delay-max of class rest, ns\" }\n";
        let slow = part("slow", &format!("replace = {{ '{old}' = 'rate = \"2M\"' }}\n"));
        folder.write("experiments/sweep.toml", format!("{head}{}{slow}{compare}", part("fast", "")));
        let mut command = std::process::Command::new(crate::support::WEIR);
        let output =
            command.args(["experiment", "run", "sweep"]).current_dir(folder.path("")).output().unwrap();
        crate::support::Run::from(output)
    };
    assert!(run("rate = \"10M\"").ok().out.contains("a slow link delays"));
    let none = run("rate = \"11M\"");
    let words: Vec<&str> = none.out.split_whitespace().collect();
    assert!(
        none.code == 1 && words.join(" ").contains("does nothing; write a text of that file"),
        "{none:?}"
    );
}

#[test]
fn check_says_which_congestion_control_runs_where() {
    let folder = Folder::new();
    let toml = folder.write("s.toml", scenario("1%"));
    let shown = weir(&["check", &toml]).ok().out;
    assert!(shown.contains("TCP in the simulator: its own reno\n"), "{shown}");
    assert!(shown.contains("TCP in the lab: the kernel's reno\n"), "{shown}");
    let cubic = scenario("1%").replacen(
        "to = \"b\"\n[[flow]]\nname",
        "to = \"b\"\ncc = \"cubic\"\n[[flow]]\nname",
        1,
    );
    let toml = folder.write("c.toml", cubic);
    let shown = weir(&["check", &toml]).ok().out;
    assert!(shown.contains("the simulator cannot run it: flow f1: the simulator's TCP has no"), "{shown}");
    // A kernel without cubic is said to be one.
    assert!(
        shown.contains("TCP in the lab: the kernel's cubic\n") || shown.contains("wants cubic"),
        "{shown}"
    );
    let run = weir(&["sim", &toml]);
    assert_eq!(run.code, 3, "{run:?}");
}
