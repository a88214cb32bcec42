//! The command `class`.

use crate::index::Named;
use crate::limits;
use crate::plan::{Class, Given, Options, Queue};
use crate::reader::{Done, Reader, Stop};
use crate::words::{Word, Words};
use weir_core::queue::Scope;
use weir_core::sched::{Classes, Entry, Registry};
use weir_text::{Place, Trouble};

const FORM: &str = "a class line is `class DISCIPLINE INTERFACE NAME PARENT [options]`";

impl Reader<'_> {
    /// `class DISC IF NAME PARENT [options] [QUEUE [its options]]`
    pub fn class(&mut self, words: &mut Words<'_>) -> Done {
        let word = words.need("the discipline", FORM)?;
        let Some(entry) = self.registry.find(word.text).copied() else {
            // Whatever it is called, later lines may speak of it.
            let mut trouble = self.unknown_discipline(word);
            if let Stop::Trouble(t) = &mut trouble {
                t.message = format!("no discipline `{}`", word.text);
            }
            if let Ok(interface) = self.named_interface(words)
                && let Some(name) = words.take()
            {
                self.refuse(interface, name.text);
            }
            return Err(trouble);
        };
        let interface = self.named_interface(words)?;
        let name = words.need("the name of the class", FORM)?;
        let done = self.class_named(&entry, word, interface, name, words);
        if done.is_err() {
            self.refuse(interface, name.text);
        }
        done
    }

    /// Remembers that a class or conditioner was meant to be there.
    pub fn refuse(&mut self, interface: usize, name: &str) {
        let interface = self.plan.interfaces[interface].name.clone();
        self.refused.insert((interface, name.to_string()));
    }
    pub fn is_refused(&self, interface: usize, name: &str) -> bool {
        self.refused.contains(&(self.plan.interfaces[interface].name.clone(), name.to_string()))
    }

    /// The names of the classes and conditioners of an interface whose line was refused.
    pub fn refused_on<'a>(&'a self, interface: &'a str) -> impl Iterator<Item = &'a str> {
        self.refused.iter().filter(move |(on, _)| on == interface).map(|(_, name)| name.as_str())
    }

    /// True if a class may be called `root`: the discipline makes none of that name.
    fn root_is_free(&self, interface: usize) -> bool {
        let top = self.plan.interfaces[interface].discipline.as_ref();
        let entry = top.and_then(|q| self.registry.find(&q.name));
        entry.is_some_and(|e| e.classes == Classes::RootedTree)
    }

    fn class_named(
        &mut self,
        entry: &Entry,
        discipline: Word<'_>,
        interface: usize,
        name: Word<'_>,
        words: &mut Words<'_>,
    ) -> Done {
        let parent = words.need("the parent of the class", FORM)?;
        self.detect_misspelt_interface(interface, name, parent, words)?;
        if entry.classes == Classes::None {
            let message = format!("{} has no classes", entry.name);
            let help = format!(
                "it takes every packet of its interface; a class can name it as its queue: `class cbq ... {}`",
                entry.name
            );
            return Err(Trouble::new(discipline.place, message, help).into());
        }
        let at_top = self.at_top(entry, discipline, interface, name, parent)?;
        if matches!(name.text, "NULL" | "null") || (name.text == "root" && !self.root_is_free(interface)) {
            let message = format!("a class cannot be called `{}`", name.text);
            let help = "that is the name of the root: choose another".to_string();
            return Err(Trouble::new(name.place, message, help).into());
        }
        let on = &self.plan.interfaces[interface];
        if on.classes.len() >= limits::CLASSES {
            return Err(limits::more_than_of(limits::CLASSES, "classes", &on.name, name.place).into());
        }
        match self.index.named(interface, name.text) {
            None => {}
            Some(Named::Class(earlier)) => {
                let line = self.plan.source.at(self.plan.interfaces[interface].classes[earlier].place.line);
                let message = format!("class `{}` is there already", name.text);
                let help = format!("it stands on {line}: choose another name");
                return Err(Trouble::new(name.place, message, help).into());
            }
            Some(Named::Conditioner) => {
                let message = format!("`{}` is the name of a conditioner", name.text);
                return Err(Trouble::new(name.place, message, "choose another name").into());
            }
        }
        let parent_name = self.parent(entry, discipline, interface, parent, at_top)?;
        let mut class = Class {
            discipline: entry.name.to_string(),
            name: name.text.to_string(),
            parent: parent_name,
            place: name.place,
            ..Class::default()
        };
        self.class_options(entry, parent, &mut class, words)?;
        self.index.add_class(&mut self.plan, interface, class);
        Ok(())
    }

    /// With the interface left out, `name` and `parent` are one word too early if the first was
    /// meant as an interface that does not exist.
    fn detect_misspelt_interface(
        &self,
        interface: usize,
        name: Word<'_>,
        parent: Word<'_>,
        words: &Words<'_>,
    ) -> Done {
        let is_parent = |word: &str| {
            matches!(word, "NULL" | "null" | "root")
                || self.index.is_class_anywhere(word)
                || self.is_refused(interface, word)
        };
        match words.peek() {
            Some(next) if !is_parent(parent.text) && is_parent(next.text) => Err(self.no_interface(name)),
            _ => Ok(()),
        }
    }

    /// True if `parent` is none of the classes: the class stands right below the interface, whose discipline it
    /// must be then.
    fn at_top(
        &self,
        entry: &Entry,
        discipline: Word<'_>,
        interface_index: usize,
        name: Word<'_>,
        parent: Word<'_>,
    ) -> Done<bool> {
        let interface = &self.plan.interfaces[interface_index];
        let Some(top) = &interface.discipline else {
            let message = format!("interface `{}` has no discipline", interface.name);
            let help = format!(
                "write `interface {} bandwidth 10M {}` on {}",
                interface.name,
                entry.name,
                self.plan.source.at(interface.place.line)
            );
            return Err(Trouble::new(name.place, message, help).into());
        };
        let null = matches!(parent.text, "NULL" | "null");
        let root = parent.text == "root" && self.index.class(interface_index, "root").is_none();
        if (null || root) && entry.name != top.name {
            let message =
                format!("interface `{}` is scheduled by {}, not {}", interface.name, top.name, entry.name);
            if self.registry.find(&top.name).is_some_and(|of| of.classes == Classes::None) {
                let line = self.plan.source.at(interface.place.line);
                let (name, rate) = (&interface.name, interface.rate());
                let help = format!(
                    "{} has no classes: write `interface {name} bandwidth {rate} {}` on {line}",
                    top.name, entry.name
                );
                return Err(Trouble::new(discipline.place, message, help).into());
            }
            return Err(self.not_scheduled_by(interface_index, &top.name, discipline, null, message));
        }
        Ok(null || root)
    }

    /// Which class `parent` means: `None` for the top of the interface's discipline.
    fn parent(
        &self,
        entry: &Entry,
        discipline: Word<'_>,
        interface_index: usize,
        parent: Word<'_>,
        at_top: bool,
    ) -> Done<Option<String>> {
        let interface = &self.plan.interfaces[interface_index];
        if at_top {
            return match (entry.classes, parent.text != "root") {
                (Classes::Tree, true) => {
                    let message = format!("the parent of a top class of {} is `root`", entry.name);
                    Err(Trouble::new(parent.place, message, "the root is made by itself")
                        .write("root")
                        .into())
                }
                (Classes::Flat, false) => {
                    let message = format!("a class of {} has no parent", entry.name);
                    Err(Trouble::new(parent.place, message, "write NULL").write("NULL").into())
                }
                (Classes::RootedTree, false) => Err(self.no_parent(interface_index, parent)),
                (Classes::Tree, false) => Ok(Some("root".to_string())),
                _ => Ok(None),
            };
        }
        // Whatever that class is, the rest of this line can be read.
        if self.is_refused(interface_index, parent.text) {
            return Ok(Some(parent.text.to_string()));
        }
        let Some(above_index) = self.index.class(interface_index, parent.text) else {
            return Err(self.no_parent(interface_index, parent));
        };
        let above = &interface.classes[above_index];
        if let Some(queue) = &above.queue {
            if queue.name != entry.name {
                let message =
                    format!("the queue of class `{}` is {}, not {}", above.name, queue.name, entry.name);
                let help = format!("it was given so on {}", self.plan.source.at(above.place.line));
                return Err(Trouble::new(discipline.place, message, help).into());
            }
        } else if above.discipline == entry.name {
            if entry.classes == Classes::Flat {
                let message = format!("a class of {} has no parent", entry.name);
                let help = format!(
                    "write NULL; or name the queue of class `{}`, as in `class {} ... {} ... {}`",
                    above.name, above.discipline, above.name, entry.name
                );
                return Err(Trouble::new(parent.place, message, help).into());
            }
        } else if let Some(other) = self
            .index
            .first_below(interface_index, above_index)
            .iter()
            .map(|&c| &interface.classes[c])
            .find(|c| c.discipline != entry.name)
        {
            let message =
                format!("the classes below `{}` are {}, not {}", above.name, other.discipline, entry.name);
            let help = format!(
                "the first of them, `{}`, stands on {}",
                other.name,
                self.plan.source.at(other.place.line)
            );
            return Err(Trouble::new(discipline.place, message, help).into());
        }
        Ok(Some(above.name.clone()))
    }

    /// A top class of another discipline than the interface's. The line to write follows if only the
    /// discipline is wrong, so that the line is right then.
    fn not_scheduled_by(
        &self,
        interface: usize,
        top: &str,
        discipline: Word<'_>,
        null: bool,
        message: String,
    ) -> Stop {
        let shares = "name as parent the class whose queue it shares";
        let above = self.plan.interfaces[interface].classes.iter().find(|c| c.parent.is_none());
        let (right, parent) =
            match (self.registry.find(top).map_or(Classes::Flat, |entry| entry.classes), above) {
                (Classes::RootedTree, Some(above)) => (false, above.name.as_str()),
                (Classes::Tree, _) => (!null, "root"),
                _ => (null, "NULL"),
            };
        if right {
            let help = format!("write `{top}`, or {shares}");
            return Trouble::new(discipline.place, message, help).write(top).into();
        }
        let help = format!("{shares}, or let it be a class of {top} below `{parent}`");
        Trouble::new(discipline.place, message, help).into()
    }

    fn no_parent(&self, interface: usize, parent: Word<'_>) -> Stop {
        let interface = &self.plan.interfaces[interface];
        let refused = self.refused_on(&interface.name);
        let names = interface.classes.iter().map(|c| c.name.as_str()).chain(refused);
        let message = format!("no class `{}` on interface `{}`", parent.text, interface.name);
        let mut trouble = Trouble::new(parent.place, message, "a parent stands above its children");
        if let Some(name) = weir_text::nearest(parent.text, names.chain(["NULL"])) {
            trouble.help = format!("did you mean `{name}`?");
            trouble.replacement = Some(name.to_string());
        }
        trouble.into()
    }

    /// Options of the class, then perhaps the discipline that is its queue, with its options.
    fn class_options(
        &mut self,
        entry: &Entry,
        parent: Word<'_>,
        class: &mut Class,
        words: &mut Words<'_>,
    ) -> Done {
        let mut inner: Option<(Entry, Queue)> = None;
        while let Some(word) = words.peek() {
            if let Some((inner, queue)) = &mut inner
                && self.option(words, inner, Scope::Discipline, &mut queue.options)?
            {
                continue;
            }
            if self.option(words, entry, Scope::Class, &mut class.options)? {
                if word.text == "borrow" {
                    // The old form names the parent.
                    words.accept(parent.text);
                    self.borrows_from_parent(words, parent)?;
                }
                continue;
            }
            match self.registry.find(word.text).copied() {
                Some(found) if inner.is_none() => {
                    words.take();
                    let mut options = Options::new();
                    let flag = found.aliases.iter().find(|a| a.name == word.text).and_then(|a| a.implies);
                    if let Some(spec) = flag.and_then(|f| found.param(Scope::Discipline, f)) {
                        let value = weir_core::queue::Value::Flag;
                        options.set(Given { spec, value, place: word.place });
                    }
                    inner = Some((found, Queue { name: found.name.to_string(), options, place: word.place }));
                }
                Some(found) => {
                    let message = format!("a second queue, `{}`", found.name);
                    return Err(Trouble::new(word.place, message, "a class has one: take one away").into());
                }
                None if inner.is_none()
                    && let Some((found, place)) = self.flag_as_queue(class, word) =>
                {
                    inner = Some((found, Queue { name: found.name.to_string(), place, ..Queue::default() }));
                }
                None => {
                    let scope = if inner.is_some() { Scope::Discipline } else { Scope::Class };
                    let of = inner.as_ref().map_or(*entry, |(e, _)| *e);
                    return Err(self.unknown_option(word, &of, scope, &[]));
                }
            }
        }
        if let Some((inner, queue)) = &mut inner {
            hand_over(self.registry, &mut class.options, inner, &mut queue.options)?;
        }
        class.queue = inner.map(|(_, queue)| queue);
        Ok(())
    }

    /// Another class behind `borrow` is no lender.
    fn borrows_from_parent(&self, words: &Words<'_>, parent: Word<'_>) -> Done {
        match words.peek() {
            Some(next) if self.index.is_class_anywhere(next.text) => {
                let message = format!("cannot borrow from class `{}`", next.text);
                let help = "a class borrows from its parent, and the parent from its own";
                Err(Trouble::new(next.place, message, help).write(parent.text).into())
            }
            _ => Ok(()),
        }
    }

    /// `red thmin 10 thmax 40`: an option of RED's own behind the flag `red` of a class makes the
    /// flag the name of its queue.
    fn flag_as_queue(&self, class: &Class, word: Word<'_>) -> Option<(Entry, Place)> {
        class.options.iter().find_map(|given| {
            let found = *self.registry.find(given.spec.name)?;
            found.param(Scope::Discipline, word.text).map(|_| (found, given.place))
        })
    }
}

/// A class whose queue is a discipline has no queue of its own to which its options could
/// apply: they are the discipline's, if it has them.
fn hand_over(registry: &Registry, options: &mut Options, inner: &Entry, queue: &mut Options) -> Done {
    let own: Vec<Given> = options.iter().filter(|g| registry.is_about_queue(g.spec.name)).cloned().collect();
    for given in own {
        let name = given.spec.name;
        options.remove(name);
        if name == inner.name {
            continue;
        }
        match inner.param(Scope::Discipline, name) {
            Some(spec) if std::mem::discriminant(&spec.kind) == std::mem::discriminant(&given.spec.kind) => {
                if !queue.has(name) {
                    queue.set(Given { spec, ..given });
                }
            }
            _ => {
                let message =
                    format!("`{name}` does nothing here: the queue of this class is {}", inner.name);
                return Err(Trouble::new(given.place, message, "take it away").into());
            }
        }
    }
    Ok(())
}
