//! What a message tells to write, the reader takes: every line and every value of the corpus of mistakes.

#![allow(clippy::unwrap_used)]

use weir_conf::{Diagnostic, judge, read};
use weir_core::sched::Registry;

/// What reading says, and what `check` says beyond that.
fn said(input: &str) -> Vec<Diagnostic> {
    let registry = Registry::builtin();
    let outcome = read("altq.conf", input, &registry);
    let mut all = outcome.diagnostics;
    all.extend(outcome.plan.iter().flat_map(|plan| judge(plan, &registry)));
    all
}

/// The file with line `line` (from 1) in other words; the lines joined to it by a backslash go with it.
fn with_line(input: &str, line: u32, new: &str) -> String {
    let mut lines: Vec<&str> = input.lines().collect();
    let at = line as usize - 1;
    while lines[at].ends_with('\\') && at + 1 < lines.len() {
        lines.remove(at);
    }
    lines[at] = new;
    lines.join("\n") + "\n"
}

/// The values that a help tells to write: in backticks behind `write`, `as in`, `did you mean`, joined by commas,
/// `or` and conditions.
fn told(help: &str) -> Vec<String> {
    let mut values = Vec::new();
    for lead in ["write `", "as in `", "did you mean `", "written as `"] {
        let Some((before, rest)) = help.split_once(lead) else { continue };
        if before.contains("is ") && lead == "write `" && before.ends_with("is ") {
            continue;
        }
        // Up to the next sentence; conditions such as "if it is 10M bits per second" may stand between.
        let list = format!("`{}", rest.split(['\u{3b}', ':']).next().unwrap());
        // Dots stand for what only the person knows.
        values.extend(list.split('`').skip(1).step_by(2).filter(|v| !v.contains("...")).map(String::from));
    }
    values
}

/// The files in which the message's place says `value` instead, one of which the person will mean: in place of what is
/// underlined, with the word before or behind it, at the end of the line, on the line itself, or on a line above.
fn mended(input: &str, d: &Diagnostic, value: &str) -> Vec<String> {
    let line: Vec<char> = input.lines().nth(d.line as usize - 1).unwrap().chars().collect();
    let text = |part: &[char]| part.iter().collect::<String>();
    let (from, to) = ((d.column as usize - 1).min(line.len()), (d.column + d.length - 1) as usize);
    let (left, right) = (text(&line[..from]), text(&line[to.min(line.len())..]));
    let left_less = left.trim_end().rsplit_once(' ').map_or("", |(rest, _)| rest);
    let right_less = right.trim_start().split_once(' ').map_or("", |(_, rest)| rest);
    let mut lines = vec![
        format!("{left}{value}{right}"),
        format!("{left}{value} {right_less}"),
        format!("{left_less} {value}{right}"),
        format!("{left_less} {value} {right_less}"),
        format!("{}{right} {value}", text(&line[..to.min(line.len())])),
        format!("{left} {value} {}{right}", text(&line[from..to.min(line.len())])),
        format!("{}{right} {value}", left.trim_end()),
        value.to_string(),
        format!("{value}\n{}", text(&line)),
    ];
    // A curve as a whole, a word behind an opening bracket, and the command of the line.
    if let Some(open) = line[..to.min(line.len())].iter().rposition(|&c| c == '[') {
        let close = line.iter().position(|&c| c == ']').map_or(line.len(), |at| at + 1);
        lines.push(format!("{}{value}{}", text(&line[..open]), text(&line[close.max(open)..])));
    }
    if let Some((rest, _)) = left.trim_end().rsplit_once(['<', '[']) {
        lines.push(format!("{rest}{}{value}{right}", &left[rest.len()..=rest.len()]));
    }
    let rest = text(&line);
    lines.push(format!("{value} {}", rest.split_once(' ').map_or("", |(_, rest)| rest)));
    let mut files: Vec<String> = lines.iter().map(|new| with_line(input, d.line, new)).collect();
    let named = d.help.rsplit_once("on line ").and_then(|(_, line)| line.parse().ok());
    files.extend(named.map(|line| with_line(input, line, value)));
    files
}

/// True if the mistake is gone, and nothing new is said to be wrong with the line.
fn accepted(before: &[Diagnostic], d: &Diagnostic, after: &[Diagnostic]) -> bool {
    let gone = !after.iter().any(|other| (&other.message, other.line) == (&d.message, d.line));
    let known = |other: &Diagnostic| before.iter().any(|b| b.message == other.message);
    // Of a discipline that is named for the first time the classes are still to be written.
    let next = |other: &Diagnostic| other.message.ends_with("has no classes");
    gone && !after
        .iter()
        .any(|other| other.is_error() && other.line == d.line && !known(other) && !next(other))
}

#[test]
fn every_mend_is_accepted() {
    let corpus = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/errors.txt")).unwrap();
    let (mut lines, mut values, mut wrong) = (0, 0, Vec::new());
    for case in corpus.split("\n==== ").skip(1) {
        let (name, rest) = case.split_once('\n').unwrap();
        let input = rest.split_once("\n----\n").map_or(rest, |(input, _)| input);
        let all = said(input);
        for d in all.iter().filter(|d| d.line > 0) {
            if let Some(instead) = &d.instead {
                lines += 1;
                let after = said(&with_line(input, d.line, instead));
                if !accepted(&all, d, &after) {
                    wrong.push(format!("{name}: `{instead}` is not accepted: {after:#?}"));
                }
            }
            for value in told(&d.help) {
                values += 1;
                let tried = mended(input, d, &value);
                if !tried.iter().any(|file| accepted(&all, d, &said(file))) {
                    wrong.push(format!("{name}: {}: `{value}` is not accepted", d.message));
                }
            }
        }
    }
    assert!(lines >= 30 && values >= 80, "{lines} lines and {values} values were tried");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), lines + values, wrong.join("\n"));
}

/// Reversed: the test itself refuses a mend that leaves the mistake, or makes another.
#[test]
fn a_wrong_mend_is_not_accepted() {
    let input = "interface em0 bandwidth 10Mbps fifoq\n";
    let all = said(input);
    let try_with =
        |value: &str| mended(input, &all[0], value).iter().any(|file| accepted(&all, &all[0], &said(file)));
    assert!(try_with("10M"));
    assert!(!try_with("10Mbps") && !try_with("10Mx"));
}
