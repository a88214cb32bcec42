//! A plan with one value changed, or one contract.

use crate::plan::Plan;
use crate::print::{self, Line, print, print_line};
use crate::read::read;
use std::sync::Arc;
use weir_core::queue::Scope;
use weir_core::sched::Registry;
use weir_text::{Diagnostic, Place, Severity, Source, Trouble};

/// Options that say the same in other words: to set one takes the others away.
const INSTEAD: [&[&str]; 1] = [&["exactbandwidth", "pbandwidth"]];

impl Plan {
    /// The plan with `words`, an option and its value as altq.conf writes them, on the line of
    /// `class` of `interface`, or of the interface itself.
    ///
    /// # Errors
    /// What there is to be said against it: no such interface, class or option, or a value that
    /// cannot be.
    pub fn with(
        &self,
        registry: &Registry,
        interface: &str,
        class: Option<&str>,
        words: &str,
    ) -> Result<Plan, Vec<Diagnostic>> {
        let view = self.interface(interface).map_err(|refused| vec![refused])?;
        let mut changed = view.interface.clone();
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let option = words.split_whitespace().next().unwrap_or_default().trim_start_matches('[');
        let line = match class {
            None => format!("{} {words}", print_line(&changed, &Line::Interface)),
            Some(name) => {
                let names: Vec<&str> = view.classes.iter().map(|c| &*c.name).collect();
                let Some(class) = changed.classes.iter_mut().find(|c| c.name == name) else {
                    let message = format!("interface `{interface}` has no class `{name}`");
                    let help = weir_text::suggest(name, names.iter().copied());
                    let help = help.unwrap_or_else(|| format!("it has {}", names.join(", ")));
                    let trouble = Trouble::new(Place::default(), message, help);
                    return Err(vec![Source::new("weir set", "").diagnostic(Severity::Error, trouble)]);
                };
                for others in INSTEAD.iter().filter(|all| all.contains(&option)) {
                    others
                        .iter()
                        .filter(|name| **name != option)
                        .for_each(|name| _ = class.options.remove(name));
                }
                let entry = registry.find(&class.discipline);
                let own = entry.is_some_and(|e| registry.param(e, Scope::Class, option).is_some());
                // What the class does not have goes to the discipline behind it on the line.
                let queue = class.queue.take_if(|_| own);
                let mut line = format!("{} {words}", print_line(view.interface, &Line::Class(class)));
                if let Some(queue) = queue {
                    print::queue(&mut line, &queue);
                }
                line
            }
        };
        // All other lines as they are; this one by its words.
        let own = |text: &str| match class {
            None => {
                text.starts_with(&format!("interface {} ", view.name))
                    || text == format!("interface {}", view.name)
            }
            Some(class) => {
                let mut words = text.split(' ');
                words.next() == Some("class")
                    && words.nth(1) == Some(&view.name)
                    && words.next() == Some(class)
            }
        };
        let lines =
            print(self).lines().map(|text| if own(text) { line.clone() } else { text.to_string() }).collect();
        reread("weir set", lines, registry)
    }

    /// The plan with another contract `id` of what enters by `interface`.
    ///
    /// # Errors
    /// What there is to be said against it: no such interface, a contract that is there already or is not, or words that
    /// no `sla` line can have.
    pub fn with_contract(
        &self,
        registry: &Registry,
        interface: &str,
        id: u32,
        change: &ContractChange,
    ) -> Result<Plan, Vec<Diagnostic>> {
        const NAME: &str = "weir sla";
        let view = self.interface(interface).map_err(|refused| vec![refused])?;
        let begin = format!("sla {} {id} ", view.name);
        let mut lines: Vec<String> = print(self).lines().map(str::to_owned).collect();
        let place = lines.iter().position(|line| line.starts_with(&begin));
        let wrong = |message: String, help: String| {
            let trouble = Trouble::new(Place::default(), message, help);
            vec![Source::new(NAME, "").diagnostic(Severity::Error, trouble)]
        };
        match (place, change) {
            (None, ContractChange::Add(words)) => lines.push(begin + &words.join(" ")),
            (Some(_), ContractChange::Add(_)) => {
                let message = format!("`{interface}` has a contract {id} already");
                return Err(wrong(message, format!("`weir sla set {interface} {id}` changes it")));
            }
            (None, _) => {
                let known: Vec<String> = view.slas.iter().take(8).map(|sla| sla.id.to_string()).collect();
                let known = match view.slas.len() {
                    0 => "it has none".to_owned(),
                    n if n > known.len() => format!("it has {n}, as {}", known.join(", ")),
                    _ => format!("it has {}", known.join(", ")),
                };
                let help = format!("{known}: `weir sla add {interface} {id} PREFIX bw RATE` makes one");
                return Err(wrong(format!("`{interface}` has no contract {id}"), help));
            }
            (Some(place), ContractChange::Remove) => _ = lines.remove(place),
            (Some(place), ContractChange::Set(words)) => {
                let is_prefix = |word: &&String| word.contains(['.', ':']);
                let (prefixes, words) = match words.split_first().filter(|(first, _)| is_prefix(first)) {
                    Some((prefixes, rest)) => (Some(prefixes), rest),
                    None => (None, words.as_slice()),
                };
                let rest = &lines[place][begin.len()..];
                let (before, options) = rest.split_once(' ').unwrap_or((rest, ""));
                let prefixes = prefixes.map_or(before, String::as_str);
                lines[place] = format!("{begin}{prefixes} {options} {}", words.join(" "));
            }
        }
        reread(NAME, lines, registry)
    }
}

/// What becomes of a contract.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ContractChange {
    /// It is new: its prefixes and options, as an `sla` line has them behind its number.
    Add(Vec<String>),
    /// Other prefixes, if the first word is some, and other options.
    Set(Vec<String>),
    /// It ends.
    Remove,
}

/// The plan of these lines, printed anew: without words that a later one has overruled.
fn reread(name: &str, lines: Vec<String>, registry: &Registry) -> Result<Plan, Vec<Diagnostic>> {
    let mut plan = read(name, &(lines.join("\n") + "\n"), registry).into_result()?;
    plan.source = Arc::new(Source::new(name, &print(&plan)));
    Ok(plan)
}
