//! What is different between two plans, thing by thing.

use crate::plan::{Filter, Interface, Plan};
use crate::print::{self, Line, print_line};
use std::collections::HashMap;
use std::fmt;

/// One thing that two plans say differently, or that only one of them says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// What it is, as in "class voice of eth1".
    pub what: String,
    /// How the first plan says it, as altq.conf; `None` if it does not.
    pub old: Option<String>,
    /// How the second one does.
    pub new: Option<String>,
}

impl Difference {
    /// "added", "removed" or "changed".
    pub fn kind(&self) -> &'static str {
        match (&self.old, &self.new) {
            (None, _) => "added",
            (_, None) => "removed",
            _ => "changed",
        }
    }
}

impl fmt::Display for Difference {
    /// What, and below it the lines that go and those that come.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.kind())?;
        for (sign, text) in [('-', &self.old), ('+', &self.new)] {
            text.iter().flat_map(|text| text.lines()).try_for_each(|line| write!(f, "\n  {sign} {line}"))?;
        }
        Ok(())
    }
}

/// What would change if `new` took the place of `old`, interface by interface.
pub fn diff(old: &Plan, new: &Plan) -> Vec<Difference> {
    let mut found = Vec::new();
    let defaults =
        |plan: &Plan| print::print(&Plan { interfaces: Vec::new(), brokers: Vec::new(), ..plan.clone() });
    let say = |text: String| Some(text.trim().to_string()).filter(|text| !text.is_empty());
    let (before, after) = (say(defaults(old)), say(defaults(new)));
    if before != after {
        found.push(Difference { what: "defaults of red and rio".into(), old: before, new: after });
    }
    for (before, after) in by_name(&old.brokers, &new.brokers, |b| &b.name) {
        let Some(one) = after.or(before) else { continue };
        let (old, new) = (before.map(crate::broker::print), after.map(crate::broker::print));
        if old != new {
            found.push(Difference { what: format!("broker {}", one.name), old, new });
        }
    }
    let whole = |i: &Interface| {
        print::print(&Plan { interfaces: vec![i.clone()], ..Plan::default() }).trim_end().to_string()
    };
    let what = |i: &Interface| format!("interface {}", i.name);
    let pairs = by_name(&old.interfaces, &new.interfaces, |i| &i.name);
    for pair in pairs {
        match pair {
            (Some(old), Some(new)) => interface(&mut found, old, new),
            (Some(i), None) => found.push(Difference { what: what(i), old: Some(whole(i)), new: None }),
            (None, Some(i)) => found.push(Difference { what: what(i), old: None, new: Some(whole(i)) }),
            (None, None) => {}
        }
    }
    found
}

/// What is in both, side by side, then what is in one only; each in the order of the second where it
/// is there.
fn by_name<'a, T>(
    old: &'a [T],
    new: &'a [T],
    name: impl Fn(&T) -> &str,
) -> Vec<(Option<&'a T>, Option<&'a T>)> {
    let mut known: HashMap<&str, &T> = old.iter().map(|one| (name(one), one)).collect();
    let mut pairs: Vec<_> = new.iter().map(|one| (known.remove(name(one)), Some(one))).collect();
    pairs.extend(old.iter().filter(|one| known.contains_key(name(one))).map(|one| (Some(one), None)));
    pairs
}

fn interface(found: &mut Vec<Difference>, old: &Interface, new: &Interface) {
    let mut note = |what: String, before: Option<String>, after: Option<String>| {
        if before != after {
            found.push(Difference { what, old: before, new: after });
        }
    };
    let name = &new.name;
    let line = |i: &Interface| Some(print_line(i, &Line::Interface));
    note(format!("interface {name}"), line(old), line(new));
    // The lines of the edge, each by itself: a contract more is one line more.
    let (before, after) = (crate::edge::print(old), crate::edge::print(new));
    let gone = before.iter().filter(|line| !after.contains(line));
    let come = after.iter().filter(|line| !before.contains(line));
    gone.for_each(|line| note(format!("edge of {name}"), Some(line.clone()), None));
    come.for_each(|line| note(format!("edge of {name}"), None, Some(line.clone())));
    for (before, after) in by_name(&old.conditioners, &new.conditioners, |c| &c.name) {
        let Some(one) = after.or(before) else { continue };
        let line = |c| print_line(new, &Line::Conditioner(c));
        note(format!("conditioner {} of {name}", one.name), before.map(line), after.map(line));
    }
    for (before, after) in by_name(&old.classes, &new.classes, |c| &c.name) {
        let Some(one) = after.or(before) else { continue };
        let line = |c| print_line(new, &Line::Class(c));
        note(format!("class {} of {name}", one.name), before.map(line), after.map(line));
    }
    let order = |all: Vec<&str>| Some(all.join("\n"));
    let names = |i: &Interface| order(i.classes.iter().map(|c| &*c.name).collect());
    let same = |old: &Option<String>, new: &Option<String>| {
        let sorted = |text: &Option<String>| {
            let mut lines: Vec<String> = text.iter().flat_map(|t| t.lines()).map(str::to_string).collect();
            lines.sort_unstable();
            lines
        };
        sorted(old) == sorted(new)
    };
    let (before, after) = (names(old), names(new));
    if same(&before, &after) {
        note(format!("order of the classes of {name}"), before, after);
    }
    let lines = |i: &Interface| -> Vec<String> {
        let line = |f: &Filter| print_line(new, &Line::Filter(f));
        i.filters.iter().map(line).collect()
    };
    let (before, after) = (lines(old), lines(new));
    let mut counts: HashMap<&str, i64> = HashMap::new();
    before.iter().for_each(|line| *counts.entry(line).or_default() -= 1);
    after.iter().for_each(|line| *counts.entry(line).or_default() += 1);
    let mut moved = true;
    for line in after.iter().chain(before.iter()) {
        match counts.get_mut(line.as_str()) {
            Some(count) if *count > 0 => note(format!("filter of {name}"), None, Some(line.clone())),
            Some(count) if *count < 0 => note(format!("filter of {name}"), Some(line.clone()), None),
            _ => continue,
        }
        moved = false;
        counts.insert(line, 0);
    }
    if moved {
        let order = |lines: &[String]| Some(lines.join("\n"));
        note(format!("order of the filters of {name}"), order(&before), order(&after));
    }
}
