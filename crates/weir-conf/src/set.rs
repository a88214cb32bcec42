//! A plan with one value changed.

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
        let lines: Vec<String> =
            print(self).lines().map(|text| if own(text) { line.clone() } else { text.to_string() }).collect();
        let text = lines.join("\n") + "\n";
        let mut plan = read("weir set", &text, registry).into_result()?;
        // As it would be printed: without words that a later one has overruled.
        plan.source = Arc::new(Source::new("weir set", &print(&plan)));
        Ok(plan)
    }
}
