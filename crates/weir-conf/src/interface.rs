//! The command `interface`.

use crate::limits;
use crate::plan::{Attach, Fail, Interface, Queue, Tunnels, Xdp};
use crate::protect::protection;
use crate::reader::{Done, Reader, Stop, at};
use crate::words::{Word, Words};
use weir_core::port::Segment;
use weir_core::queue::Scope;
use weir_core::sched::Entry;
use weir_core::units::Duration;
use weir_text::Trouble;
use weir_text::number;

/// Options of every interface.
const GENERAL: [&str; 10] = [
    "bandwidth",
    "tbrsize",
    "capacity",
    "overhead",
    "tunnels",
    "protect",
    "segment",
    "attach",
    "fail",
    "workers",
];
/// The only option of disciplines that may stand before their name, as in figure 1 of the QoSbox paper.
const BEFORE: &str = "qlimit";

impl Reader<'_> {
    /// `interface IF [bandwidth BPS] [tbrsize BYTES] [capacity PACKETS] [overhead BYTES]
    /// [tunnels inner|outer] [protect RATE|auto|off [except PROTOCOL,...]] [segment TIME|always|never]
    /// [attach bridge PEER [xdp [busy-poll]] | attach nfqueue] [fail open|closed] [workers N]
    /// [DISC [options]]`.
    /// What every interface has may also stand among the options of the discipline.
    pub fn interface(&mut self, words: &mut Words<'_>) -> Done {
        let name = words.need("the interface", "write its name, as in `interface em0 bandwidth 10M cbq`")?;
        let done = self.interface_named(name, words);
        if done.is_err() {
            self.refused_interfaces.insert(name.text.to_string());
            self.last_interface = self.index.interface(name.text);
        }
        done
    }

    fn interface_named(&mut self, name: Word<'_>, words: &mut Words<'_>) -> Done {
        if let Some(earlier) = self.index.interface(name.text).map(|i| &self.plan.interfaces[i]) {
            let message = format!("interface `{}` is declared twice", name.text);
            let line = self.plan.source.at(earlier.place.line);
            let help = format!("it is declared on {line}: make one line of the two");
            return Err(Trouble::new(name.place, message, help).into());
        }
        if self.plan.interfaces.len() >= limits::INTERFACES {
            return Err(limits::more_than(limits::INTERFACES, "interfaces", name.place).into());
        }
        if self.is_keyword(name.text) {
            let message = "the name of the interface is missing";
            let help = format!("`{}` is a keyword: write the name before it", name.text);
            return Err(Trouble::new(name.place, message, help).into());
        }
        let found = words.rest().iter().find_map(|w| self.registry.find(w.text).map(|e| (*w, *e)));
        let mut interface =
            Interface { name: name.text.to_string(), place: name.place, ..Interface::default() };
        let mut queue = found.map(|(word, entry)| Queue {
            name: entry.name.to_string(),
            place: word.place,
            ..Queue::default()
        });
        let read = self.interface_words(name, words, found, &mut interface, &mut queue);
        // With its discipline known, the lines about it can be read, so that all their mistakes are told
        // at once; what they come to together is not judged.
        if read.is_ok() || queue.is_some() {
            interface.discipline = queue;
            self.last_interface = Some(self.index.add_interface(&mut self.plan, interface));
        }
        read
    }

    /// The words behind the name.
    fn interface_words(
        &mut self,
        name: Word<'_>,
        words: &mut Words<'_>,
        found: Option<(Word<'_>, Entry)>,
        interface: &mut Interface,
        queue: &mut Option<Queue>,
    ) -> Done {
        let mut taken = false;
        while let Some(word) = words.peek() {
            if self.general(word, words, interface)? {
                continue;
            }
            let Some(((chosen, entry), queue)) = found.zip(queue.as_mut()) else {
                return Err(self.unknown_discipline(word));
            };
            if word.place.line == chosen.place.line && word.place.column == chosen.place.column {
                words.take();
                taken = true;
                let alias = entry.aliases.iter().find(|a| a.name == chosen.text);
                if let Some(spec) =
                    alias.and_then(|a| a.implies).and_then(|flag| entry.param(Scope::Discipline, flag))
                {
                    let value = weir_core::queue::Value::Flag;
                    queue.options.set(crate::plan::Given { spec, value, place: chosen.place });
                }
            } else if !taken && word.text != BEFORE {
                // ALTQ hands what follows the discipline's name to the discipline, and nothing else.
                return Err(self.before_discipline(word, chosen, &entry, words));
            } else if !self.option(words, &entry, Scope::Discipline, &mut queue.options)? {
                if let Some(second) = self.registry.find(word.text) {
                    let message = format!("a second discipline, `{}`", second.name);
                    let help =
                        format!("an interface has one: take `{}` or `{}` away", chosen.text, word.text);
                    return Err(Trouble::new(word.place, message, help).into());
                }
                return Err(self.unknown_option(word, &entry, Scope::Discipline, &GENERAL));
            }
        }
        if interface.rate().is_zero() && queue.is_some() {
            let message = format!("interface `{}` has bandwidth 0", name.text);
            let help = "write the rate of the link, as in `bandwidth 10M`";
            return Err(Trouble::new(name.place, message, help).into());
        }
        Ok(())
    }

    /// What cannot be the name of an interface: the words that follow it.
    fn is_keyword(&self, text: &str) -> bool {
        GENERAL.contains(&text) || self.registry.find(text).is_some()
    }

    /// The refusal of a word that stands before the discipline, and is none of every interface.
    fn before_discipline(&self, word: Word<'_>, chosen: Word<'_>, entry: &Entry, words: &Words<'_>) -> Stop {
        let known = word.text.starts_with('[') || entry.param(Scope::Discipline, word.text).is_some();
        if !known {
            return self.unknown_option(word, entry, Scope::Discipline, &GENERAL);
        }
        let message = format!("`{}` stands before `{}`", word.text, chosen.text);
        let help = format!("options of {} follow its name", entry.name);
        let mut trouble = Trouble::new(word.place, message, help);
        if word.place.line == chosen.place.line {
            let between = words.rest().iter().map(|w| w.text).take_while(|t| *t != chosen.text);
            let moved: Vec<&str> = std::iter::once(chosen.text).chain(between).collect();
            trouble.place.length = chosen.place.column + chosen.place.length - word.place.column;
            trouble.replacement = Some(moved.join(" "));
        }
        trouble.into()
    }

    /// An option that every interface has. False if the next word is none.
    fn general(&mut self, word: Word<'_>, words: &mut Words<'_>, interface: &mut Interface) -> Done<bool> {
        let twice = match word.text {
            "bandwidth" => {
                words.take();
                let value = words.need("the bandwidth", "write a rate, as in `bandwidth 10M`")?;
                interface.bandwidth.replace(number::rate(value.text).map_err(|bad| at(value, bad))?).is_some()
            }
            "tbrsize" => {
                words.take();
                let value = words.need("the size", "write bytes, as in `tbrsize 12K`, or `auto`")?;
                let size = match value.text {
                    "auto" => 0,
                    text => number::bytes(text).map_err(|bad| at(value, bad))?,
                };
                // 0 asks for the size that suits the rate, as in the original.
                std::mem::replace(&mut interface.tbrsize, (size > 0).then_some(size)).is_some()
            }
            "capacity" => {
                words.take();
                let (packets, _) = self.number(words, "capacity", limits::CAPACITY)?;
                interface.capacity.replace(packets as u32).is_some()
            }
            "overhead" => {
                words.take();
                let (bytes, _) = self.number(words, "overhead", 0..=1_000)?;
                interface.overhead.replace(bytes as u32).is_some()
            }
            "tunnels" => {
                words.take();
                const HELP: &str = "write `tunnels inner` or `tunnels outer`";
                let which = words.need("which packet of a tunnel is meant", HELP)?;
                let tunnels = match which.text {
                    "inner" => Tunnels::Inner,
                    "outer" => Tunnels::Outer,
                    other => {
                        let message = format!("a tunnel's packet is not `{other}`");
                        return Err(Trouble::new(which.place, message, HELP).into());
                    }
                };
                interface.tunnels.replace(tunnels).is_some()
            }
            "protect" => {
                words.take();
                interface.protect.replace(protection(words)?).is_some()
            }
            "segment" => {
                words.take();
                interface.segment.replace(segment(words)?).is_some()
            }
            "fail" => {
                words.take();
                const HELP: &str = "write `fail open` or `fail closed`";
                let how = words.need("what becomes of the traffic without Weir", HELP)?;
                let fail = match how.text {
                    "open" => Fail::Open,
                    "closed" => Fail::Closed,
                    other => {
                        let message = format!("a bridge does not fail `{other}`");
                        return Err(Trouble::new(how.place, message, HELP).into());
                    }
                };
                interface.fail.replace(fail).is_some()
            }
            "workers" => {
                words.take();
                const HELP: &str = "write `workers 1`, `workers 2`, one for each direction, or 3 to 16, which share the classes";
                let count = words.need("how many threads run the bridge", HELP)?;
                let mut all = limits::WORKERS;
                let Some(workers) = all.find(|workers| workers.to_string() == count.text) else {
                    let message = format!("a bridge has 1 to 16 workers, and not `{}`", count.text);
                    return Err(Trouble::new(count.place, message, HELP).into());
                };
                interface.workers.replace(workers).is_some()
            }
            "attach" => {
                words.take();
                const HELP: &str = "write `attach bridge em1`";
                let how = words.need("what to attach to", HELP)?;
                let attach = match how.text {
                    "nfqueue" => Attach::Nfqueue,
                    "bridge" => {
                        let peer = words.need("the other port of the bridge", HELP)?;
                        if self.is_keyword(peer.text) {
                            let message = "the other port of the bridge is missing";
                            let help = format!(
                                "`{}` is a keyword: write the port before it, as in `em1`",
                                peer.text
                            );
                            return Err(Trouble::new(peer.place, message, help).into());
                        }
                        if peer.text == interface.name {
                            let message = format!("`{}` cannot be bridged to itself", peer.text);
                            return Err(Trouble::new(peer.place, message, "name the other port").into());
                        }
                        Attach::Bridge(peer.text.to_string())
                    }
                    other => {
                        return Err(
                            Trouble::new(how.place, format!("cannot attach to `{other}`"), HELP).into()
                        );
                    }
                };
                let bridged = matches!(attach, Attach::Bridge(_));
                interface.xdp = match bridged.then(|| words.accept("xdp")).flatten() {
                    None => None,
                    Some(_) if words.accept("busy-poll").is_some() => Some(Xdp::BusyPoll),
                    Some(_) => Some(Xdp::Wait),
                };
                std::mem::replace(&mut interface.attach, attach) != Attach::Unsaid
            }
            _ => return Ok(false),
        };
        if twice {
            let message = format!("`{}` is given twice; the last one counts", word.text);
            self.warn(Trouble::new(word.place, message, "take one away"));
        }
        Ok(true)
    }

    pub fn unknown_discipline(&self, word: Word<'_>) -> Stop {
        let names: Vec<&str> = self.registry.iter().map(|e| e.name).collect();
        let known = names.iter().copied().chain(GENERAL);
        let mut trouble = Trouble::new(word.place, format!("no discipline or option `{}`", word.text), "");
        match weir_text::nearest(word.text, known) {
            Some(name) => {
                trouble.help = format!("did you mean `{name}`?");
                trouble.replacement = Some(name.to_string());
            }
            None => trouble.help = "`weir disciplines` lists those that there are".to_string(),
        }
        trouble.into()
    }
}

/// What follows the word `segment`.
fn segment(words: &mut Words<'_>) -> Done<Segment> {
    const HELP: &str = "write a time up to 1s, as in `segment 1ms`, or `always`, or `never`";
    let which = words.need("what is to be taken apart", HELP)?;
    let refuse = |what: &str| Trouble::new(which.place, format!("`{}` is {what}", which.text), HELP);
    match which.text {
        "always" => Ok(Segment::Always),
        "never" => Ok(Segment::Never),
        text => match number::time(text, None) {
            Ok(time) if time.value <= Duration::from_secs(1) => Ok(Segment::Beyond(time.value)),
            Ok(_) => Err(refuse("too long").into()),
            Err(_) => Err(refuse("no time").into()),
        },
    }
}
