//! `cargo xtask mutants`: do the tests notice when a discipline is wrong?
//!
//! A mutant is weir-core with one small mistake: a comparison turned, a constant one off, a call left
//! out. Compiling each by itself would take hours. So all that are tried are compiled at once, each
//! behind a switch (`sites`), and the tests run once for each with its switch thrown (`run`). Only those
//! run that come to the switch, the quick ones first, until one fails. A mutant is *killed* if a test
//! fails or does not end. What survives is printed: either a test is missing, or the mistake makes no
//! difference; then `crates/weir-core/mutants.txt` says why.

mod run;
mod sites;

use sites::Site;
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use weir_core::Random;

/// Mutants that `make mutants` tries.
const USUAL: usize = 300;
/// Where mutants that change nothing are listed with the reason.
const KNOWN: &str = "crates/weir-core/mutants.txt";

const USAGE: &str =
    "usage: cargo xtask mutants [--sample N | --all | --again LOG] [--seed N] [--only PATH-PART] [--jobs N]";

struct Order {
    sample: usize,
    seed: u64,
    only: String,
    /// The output of an earlier run, whose survivors are tried once more.
    again: Option<String>,
    jobs: usize,
}

fn order(mut args: impl Iterator<Item = String>) -> Option<Order> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut order = Order { sample: USUAL, seed: 1, only: String::new(), again: None, jobs };
    while let Some(word) = args.next() {
        match word.as_str() {
            "--all" => order.sample = usize::MAX,
            "--sample" => order.sample = args.next()?.parse().ok()?,
            "--seed" => order.seed = args.next()?.parse().ok()?,
            "--only" => order.only = args.next()?,
            "--again" => order.again = Some(args.next()?),
            "--jobs" => order.jobs = args.next()?.parse().ok().filter(|&n| n > 0)?,
            _ => return None,
        }
    }
    Some(order)
}

pub fn main(root: &Path, args: impl Iterator<Item = String>) -> ExitCode {
    let Some(order) = order(args) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match mutants(root, &order) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::FAILURE
        }
    }
}

fn mutants(root: &Path, order: &Order) -> Result<bool, String> {
    let tree = run::copy(root)?;
    let all = sites::find(&tree.join(run::CORE), &order.only)?;
    let known = known(&tree)?;
    let stale: Vec<&String> = known.iter().filter(|k| !all.iter().any(|s| s.name() == **k)).collect();
    if order.only.is_empty() && !stale.is_empty() {
        return Err(format!("{KNOWN}: no such mutant any more: {}", stale[0]));
    }
    let (equivalent, tried): (Vec<Site>, Vec<Site>) =
        all.into_iter().partition(|s| known.contains(&s.name()));
    let places = tried.len();
    let chosen = match &order.again {
        Some(log) => again(tried, &fs::read_to_string(log).map_err(|e| format!("{log}: {e}"))?),
        None => choose(tried, order.sample, order.seed),
    };
    println!(
        "mutants: {} of {places} places, seed {}; {} that change nothing are left out",
        chosen.len(),
        order.seed,
        equivalent.len()
    );
    let outcome = run::run(root, &tree, chosen, order.jobs)?;
    let tried = outcome.killed + outcome.survived;
    println!(
        "mutants: {} of {tried} killed ({:.1} %), {} survived, {} did not compile",
        outcome.killed,
        100.0 * outcome.killed as f64 / tried.max(1) as f64,
        outcome.survived,
        outcome.not_compiled
    );
    Ok(outcome.survived == 0)
}

/// The names of mutants that change nothing. Each line is a name, two spaces, `# ` and the reason.
fn known(root: &Path) -> Result<HashSet<String>, String> {
    let text = fs::read_to_string(root.join(KNOWN)).unwrap_or_default();
    let mut names = HashSet::new();
    for (index, line) in text.lines().enumerate().filter(|(_, l)| !l.is_empty() && !l.starts_with('#')) {
        let Some((name, _)) = line.split_once("  # ") else {
            return Err(format!("{KNOWN}:{}: expected `NAME  # REASON`", index + 1));
        };
        names.insert(name.trim_end().to_owned());
    }
    Ok(names)
}

/// The places that survived in the run with that output, none inside another. Those that are no places
/// any more, or stand on the list by now, are said and left out.
fn again(mut places: Vec<Site>, log: &str) -> Vec<Site> {
    let mut chosen: Vec<Site> = Vec::new();
    let survived = log.split(['\r', '\n']).filter_map(|line| line.split_once("survived: "));
    for (_, line) in survived {
        let name = line.splitn(3, ':').nth(2).unwrap_or_default().trim();
        let found =
            places.iter().position(|place| place.name() == name && !chosen.iter().any(|c| c.overlaps(place)));
        match found {
            Some(at) => chosen.push(places.swap_remove(at)),
            None => println!("no place to try, or one on the list: {name}"),
        }
    }
    chosen
}

/// At most `sample` of the places, none inside another.
fn choose(mut places: Vec<Site>, sample: usize, seed: u64) -> Vec<Site> {
    let mut random = Random::new(seed);
    for last in (1..places.len()).rev() {
        places.swap(last, random.below(last as u64 + 1) as usize);
    }
    let mut chosen: Vec<Site> = Vec::new();
    for place in places {
        if chosen.len() == sample {
            break;
        }
        if !chosen.iter().any(|c| c.overlaps(&place)) {
            chosen.push(place);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survivors_of_a_run_are_tried_again() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let sites = sites::find(&root.join(run::CORE), "random.rs").expect("weir-core is Rust");
        let (one, other) = (&sites[0], sites.last().expect("it has places"));
        let line = |site: &Site| format!("survived: {}:{}: {}", site.file, site.line + 7, site.name());
        // Progress stands before a line that was printed meanwhile.
        let log = format!(
            "mutants: 3 tried\rmutants: 4 tried {}\n{}\nsurvived: x.rs:1: x.rs f: `1` -> `2`\n",
            line(other),
            line(one)
        );
        let names: Vec<String> = again(sites.clone(), &log).iter().map(Site::name).collect();
        assert_eq!(names, [other.name(), one.name()]);
    }

    /// A mistake on the list is left out by its name, so the name must be one.
    #[test]
    fn what_changes_nothing_is_somewhere() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let sites = sites::find(&root.join(run::CORE), "").expect("weir-core is Rust");
        let named: std::collections::HashSet<String> = sites.iter().map(Site::name).collect();
        let known = known(&root).expect("each line has a reason");
        let gone: Vec<String> = known.into_iter().filter(|name| !named.contains(name)).collect();
        assert!(gone.is_empty(), "{KNOWN}: no such places:\n{}", gone.join("\n"));
    }
}
