//! From text to plan, command by command.

use crate::limits;
use crate::plan::{Interface, Plan, RedDefaults};
use crate::reader::{Done, Reader, Stop};
use crate::rules;
use crate::words::{self, Words};
use std::collections::HashSet;
use std::sync::Arc;
use weir_core::sched::Registry;
use weir_text::{Diagnostic, Place, Severity, Source, Trouble, suggest};

/// The outcome of reading a configuration.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The plan; `None` if there is an error. Nothing is half applied.
    pub plan: Option<Plan>,
    /// Errors and warnings, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
}

impl Outcome {
    /// The plan, or everything that was said about the file.
    ///
    /// # Errors
    /// All diagnostics, if one of them is an error.
    pub fn into_result(self) -> Result<Plan, Vec<Diagnostic>> {
        self.plan.ok_or(self.diagnostics)
    }
}

/// Reads the text of an altq.conf that the person knows as `name`.
pub fn read(name: &str, text: &str, registry: &Registry) -> Outcome {
    if let Some(refused) = limits::of_text(name, text) {
        return Outcome { plan: None, diagnostics: vec![refused] };
    }
    let source = Arc::new(Source::whole(name, text));
    let mut reader = Reader::new(registry, source.clone());
    let mut said = Vec::new();
    let commands = words::commands(&source, &mut |severity, trouble| said.push((severity, trouble)));
    // A line that could not even be split may have been an interface or a class.
    let mut lost_lines = said.iter().any(|(severity, _)| *severity == Severity::Error);
    reader.said = said;
    for words in commands {
        let place = words.first().map(|w| w.place).unwrap_or_default();
        if reader.errors >= limits::ERRORS {
            reader.error(Trouble::new(
                place,
                format!("more than {} errors: from here on nothing is read", limits::ERRORS),
                "mend those above first",
            ));
            lost_lines = true;
            break;
        }
        reader.command(Words::new(words));
    }
    let mut diagnostics: Vec<Diagnostic> =
        reader.said.into_iter().map(|(severity, trouble)| source.diagnostic(severity, trouble)).collect();
    if !lost_lines {
        let partly: HashSet<&str> = reader.refused.iter().map(|(interface, _)| interface.as_str()).collect();
        let skip =
            |i: &Interface| reader.refused_interfaces.contains(&i.name) || partly.contains(i.name.as_str());
        diagnostics.extend(rules::errors(&reader.plan, registry, &skip));
    }
    diagnostics.sort_by_key(|d| (source.rank(&d.file), d.line, d.column, d.severity));
    let refused = diagnostics.iter().any(Diagnostic::is_error);
    Outcome { plan: (!refused).then_some(reader.plan), diagnostics }
}

/// The commands, in the order in which ALTQ looks for the first that a word abbreviates.
const COMMANDS: [&str; 18] = [
    "?",
    "help",
    "quit",
    "interface",
    "class",
    "filter",
    "altq",
    "delete",
    "filter6",
    "red",
    "rio",
    "conditioner",
    "debug",
    "recognise",
    "sla",
    "allocate",
    "broker",
    "include",
];

/// Whether a line of an altq.conf may begin with that word, written whole.
pub fn is_command(word: &str) -> bool {
    COMMANDS.contains(&word)
}

impl Reader<'_> {
    fn command(&mut self, mut words: Words<'_>) {
        let Some(word) = words.take() else { return };
        let known = COMMANDS.iter().find(|c| c.starts_with(word.text));
        let Some(command) = known else {
            let help = suggest(word.text, COMMANDS).unwrap_or_else(|| {
                "a line begins with interface, class, filter, filter6, conditioner, red, rio, recognise, sla, allocate, broker or include".into()
            });
            self.error(Trouble::new(word.place, format!("unknown command `{}`", word.text), help));
            return;
        };
        if *command != word.text {
            let message = format!("`{}` is short for `{command}`", word.text);
            self.warn(Trouble::new(word.place, message, "write it out").write(*command));
        }
        let done = match *command {
            "interface" => self.interface(&mut words),
            "class" => self.class(&mut words),
            "filter" => self.filter(&mut words, word.place, false),
            "filter6" => self.filter(&mut words, word.place, true),
            "conditioner" => self.conditioner(&mut words),
            "red" => self.red(&mut words),
            "rio" => self.rio(&mut words, word.place),
            "recognise" => self.recognise(&mut words),
            "sla" => self.sla(&mut words),
            "allocate" => self.allocate(&mut words),
            "broker" => self.broker(&mut words),
            "altq" => self.altq(&mut words, word.place),
            "include" => Err(Stop::Trouble(Trouble::new(
                word.place,
                "`include` in a text that is no file",
                "write the lines of that file here; or give this text to Weir as a file",
            ))),
            "delete" => Err(Stop::Trouble(Trouble::new(
                word.place,
                "`delete` is for a running box",
                "take away the line that adds what this line deletes, and this line",
            ))),
            "quit" => Err(Stop::Trouble(Trouble::new(
                word.place,
                "`quit` is for a running box",
                "nothing below this line would be read: take it away",
            ))),
            other => {
                let message = format!("`{other}` does nothing in a file");
                self.warn(Trouble::new(word.place, message, "take the line away"));
                Ok(())
            }
        };
        match done {
            Err(Stop::Trouble(trouble)) => self.error(trouble),
            Err(Stop::Silent) => {}
            Ok(()) => {
                if let Some(extra) = words.peek() {
                    let message = format!("`{}` after the end of the command", extra.text);
                    self.error(Trouble::new(extra.place, message, "take it away").write(""));
                }
            }
        }
    }

    fn red(&mut self, words: &mut Words<'_>) -> Done {
        self.plan.red = Some(self.red_values(words)?);
        Ok(())
    }

    fn rio(&mut self, words: &mut Words<'_>, place: Place) -> Done {
        let values = [self.red_values(words)?, self.red_values(words)?, self.red_values(words)?];
        for (upper, lower) in [(0, 1), (1, 2)] {
            if values[lower].thmax > values[upper].thmin {
                let names = ["low", "medium", "high"];
                let message = format!(
                    "th_max {} of {} precedence is above th_min {} of {}",
                    values[lower].thmax, names[lower], values[upper].thmin, names[upper]
                );
                let help =
                    "RIO protects a lower precedence only if the higher is all dropped before it begins";
                self.warn(Trouble::new(place, message, help));
            }
        }
        self.plan.rio = Some(values);
        Ok(())
    }

    fn red_values(&mut self, words: &mut Words<'_>) -> Done<RedDefaults> {
        let (thmin, _) = self.number(words, "th_min", 0..=1_000_000)?;
        let (thmax, place) = self.number(words, "th_max", 0..=1_000_000)?;
        let (invpmax, _) = self.number(words, "inv_pmax", 0..=1_000_000)?;
        // 0 stands for the default, as in the original.
        if thmin != 0 && thmax != 0 && thmax <= thmin {
            let message = format!("th_max {thmax} is not above th_min {thmin}");
            return Err(Trouble::new(place, message, "write the lower threshold first").into());
        }
        Ok(RedDefaults { thmin: thmin as u64, thmax: thmax as u64, invpmax: invpmax as u64 })
    }

    fn altq(&mut self, words: &mut Words<'_>, place: Place) -> Done {
        self.named_interface(words)?;
        let help = "enable, disable and reload are for a running box: take the line away";
        match words.take().map(|w| (w.text, w.place)) {
            None | Some(("enable", _)) => {
                let message = "`altq` does nothing in a file: every interface of it is enabled";
                self.warn(Trouble::new(place, message, "take the line away"));
                Ok(())
            }
            Some(("disable" | "reload", at)) => Err(Trouble::new(at, "not in a file", help).into()),
            Some((other, at)) => Err(Trouble::new(at, format!("unknown word `{other}`"), help).into()),
        }
    }
}
