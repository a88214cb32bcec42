//! From text to plan: commands, and the state that lines share.

use crate::index::Index;
use crate::limits;
use crate::plan::{Interface, Plan, RedDefaults};
use crate::words::{self, Word, Words};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weir_core::sched::Registry;
use weir_text::number::{self, Bad};
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
    if let Some(refused) = crate::limits::of_text(name, text) {
        return Outcome { plan: None, diagnostics: vec![refused] };
    }
    let source = Arc::new(Source::whole(name, text));
    let mut reader = Reader {
        registry,
        plan: Plan { source: source.clone(), ..Plan::default() },
        index: Index::default(),
        said: Vec::new(),
        errors: 0,
        last_interface: None,
        refused_interfaces: HashSet::new(),
        refused: HashSet::new(),
        contract_ids: HashSet::new(),
        contract_prefixes: HashMap::new(),
    };
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
        diagnostics.extend(crate::rules::errors(&reader.plan, registry, &skip));
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

pub(crate) struct Reader<'r> {
    pub registry: &'r Registry,
    pub plan: Plan,
    /// What its names stand for.
    pub index: Index,
    pub said: Vec<(Severity, Trouble)>,
    /// How many errors lines had so far.
    errors: usize,
    /// The interface that a line means which names none.
    pub last_interface: Option<usize>,
    /// Interfaces whose line was refused: what is said about them is not judged.
    pub refused_interfaces: HashSet<String>,
    /// Classes and conditioners whose line was refused, with their interface.
    pub refused: HashSet<(String, String)>,
    /// Numbers of contracts, with their interface.
    pub contract_ids: HashSet<(usize, u32)>,
    /// Whose each prefix is, with its interface.
    pub contract_prefixes: HashMap<(usize, weir_edge::sla::Prefix), u32>,
}

/// What reading a command comes to: done, refused with a reason, or left out because it hangs
/// on a line that was refused.
pub(crate) enum Stop {
    Trouble(Trouble),
    Silent,
}
impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Stop::Trouble(trouble)
    }
}
pub(crate) type Done<T = ()> = Result<T, Stop>;

impl Reader<'_> {
    pub fn warn(&mut self, trouble: Trouble) {
        self.said.push((Severity::Warning, trouble));
    }
    pub fn error(&mut self, trouble: Trouble) {
        self.errors += 1;
        self.said.push((Severity::Error, trouble));
    }

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

    /// The interface that a line is about: the one it names, or else the last one named.
    pub fn named_interface(&mut self, words: &mut Words<'_>) -> Done<usize> {
        let word = words.need("the interface", "write the name of an interface declared above")?;
        if let Some(index) = self.index.interface(word.text) {
            self.last_interface = Some(index);
            return Ok(index);
        }
        if self.refused_interfaces.contains(word.text) {
            return Err(Stop::Silent);
        }
        words.untake();
        match self.last_interface {
            Some(index) => Ok(index),
            None if !self.refused_interfaces.is_empty() => Err(Stop::Silent),
            None => {
                let help = format!("declare it above, as in `interface {} bandwidth 10M cbq`", word.text);
                Err(Trouble::new(word.place, format!("no interface `{}`", word.text), help).into())
            }
        }
    }

    /// The interface of a line behind whose interface only a word may stand that `fits`, or its misspelling. Any
    /// other word, where the interface is left out, was meant as one.
    pub fn interface_before(
        &mut self,
        words: &mut Words<'_>,
        fits: impl Fn(&Self, usize, &Words<'_>) -> bool,
    ) -> Done<usize> {
        let first = words.peek();
        let interface = self.named_interface(words)?;
        match words.peek().filter(|next| first.is_some_and(|first| first.place == next.place)) {
            Some(next) if !fits(self, interface, words) => Err(self.no_interface(next)),
            _ => Ok(interface),
        }
    }

    /// The error for a word that must have been meant as an interface.
    pub fn no_interface(&self, word: Word<'_>) -> Stop {
        if self.refused_interfaces.contains(word.text) {
            return Stop::Silent;
        }
        let names: Vec<&str> = self.plan.interfaces.iter().map(|i| i.name.as_str()).collect();
        let mut trouble =
            Trouble::new(word.place, format!("no interface `{}` is declared", word.text), String::new());
        match weir_text::nearest(word.text, names.iter().copied()) {
            Some(name) => {
                trouble.help = format!("did you mean `{name}`?");
                trouble.replacement = Some(name.to_string());
            }
            None => trouble.help = format!("declared are {}", names.join(", ")),
        }
        trouble.into()
    }

    /// A whole number; a warning about its form is said at once.
    pub fn number(
        &mut self,
        words: &mut Words<'_>,
        what: &str,
        range: std::ops::RangeInclusive<i128>,
    ) -> Done<(i128, Place)> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let word = words.need(what, &expected)?;
        let read = number::integer(word.text, &expected).map_err(|bad| at(word, bad))?;
        if let Some(warning) = read.warning {
            self.warn(at(word, warning));
        }
        if !range.contains(&read.value) {
            let message = format!("{what} {} is out of range", word.text);
            return Err(Trouble::new(word.place, message, expected).into());
        }
        Ok((read.value, word.place))
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

/// A number's problem, at its word.
pub(crate) fn at(word: Word<'_>, bad: Bad) -> Trouble {
    Trouble { place: word.place, message: bad.message, help: bad.help, replacement: bad.write }
}
