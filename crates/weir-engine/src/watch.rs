//! A bridge's interfaces, watched: what happens to them is logged, counted and survived.
//!
//! A thread hears of every change from the kernel (netlink). Down and up, a lost carrier, another
//! MTU and another name leave the bridge's socket in place. So does somebody else who begins to take
//! the frames of an interface, but that is said. A device that is deleted takes its
//! socket along. When the interface is back, by its name, the worker gets a new socket, and goes
//! on with all else that it has.
//!
//! The name in the file decides. A device that is renamed stays bridged, until another one has
//! that name.

use crate::control::{Control, Exchange};
use crate::owner::{Claim, takers};
use crate::state::LinkState;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use weir_core::units::{Duration, Instant};
use weir_io::Socket;
use weir_sys::netlink::{Change, Link, LinkWatch, links};

/// Something that happened to an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Happening {
    Is(&'static str),
    Mtu(u32),
    Renamed(String),
    /// There is a device for it again, with this number.
    Back(u32),
}

impl Happening {
    /// The name under which it is counted.
    fn name(&self) -> &'static str {
        match self {
            Happening::Is(state) => state,
            Happening::Mtu(_) => "mtu",
            Happening::Renamed(_) => "renamed",
            Happening::Back(_) => "back",
        }
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Happening::Is("gone") => {
                f.write_str("is gone: what would leave by it is lost until there is one of that name again")
            }
            Happening::Is("no carrier") => f.write_str("has no carrier"),
            Happening::Is(state) => write!(f, "is {state}"),
            Happening::Mtu(mtu) => write!(f, "has an MTU of {mtu} bytes"),
            Happening::Renamed(name) => write!(f, "is now called {name}, and stays bridged"),
            Happening::Back(index) => write!(f, "is back as device {index}, and bridged again"),
        }
    }
}

/// The words for how a device is.
fn state_of(link: Option<&Link>) -> &'static str {
    match link {
        None => "gone",
        Some(Link { up: false, .. }) => "down",
        Some(Link { carrier: false, .. }) => "no carrier",
        Some(_) => "up",
    }
}

/// One interface of a bridge.
struct Side {
    /// Its name in the file.
    name: String,
    /// The number of the device that the worker's socket is bound to, while it is there.
    attached: Option<u32>,
    /// The name of that device.
    called: String,
    state: LinkState,
}

impl Side {
    fn new(name: String, attached: u32) -> Side {
        let called = String::new();
        Side { name, attached: Some(attached), called, state: LinkState::default() }
    }

    /// Looks at the devices as they are now: what has happened, in order.
    fn look(&mut self, devices: &BTreeMap<u32, Link>) -> Vec<Happening> {
        let named = devices.values().find(|link| link.is_called(&self.name));
        let found = named.or_else(|| devices.get(&self.attached?));
        let mut happened = Vec::new();
        let first = self.state.state.is_empty();
        let state = state_of(found);
        if let Some(Link { index, name, mtu, .. }) = found {
            let back = self.attached != Some(*index);
            if back {
                happened.push(Happening::Back(*index));
                self.attached = Some(*index);
            } else if !first && self.called != *name {
                happened.push(Happening::Renamed(name.clone()));
            }
            if !first && self.state.mtu != *mtu {
                happened.push(Happening::Mtu(*mtu));
            }
            (self.called, self.state.mtu) = (name.clone(), *mtu);
        } else {
            self.attached = None;
        }
        if self.state.state != state && !(first && state == "up") {
            happened.push(Happening::Is(state));
        }
        self.state.state = state.into();
        for what in &happened {
            *self.state.changes.entry(what.name().into()).or_default() += 1;
        }
        happened
    }
}

/// A thread that watches the interfaces of a bridge, until it is dropped.
pub(crate) struct Watch {
    bell: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// An interface, claimed and opened for raw frames.
pub(crate) struct Attached {
    pub(crate) claim: Option<Claim>,
    /// One, or one for each of more than two workers.
    pub(crate) sockets: Vec<Socket>,
}

/// Claims and opens the interface of a side (0: left), of that name, when it is back.
pub(crate) type Attach = Box<dyn Fn(usize, &str) -> io::Result<Attached> + Send>;

/// Who else takes frames is looked up at most this often: it costs a list of all interfaces and addresses.
const SELDOM: Duration = Duration::from_millis(200);

/// The claims on both sides: they end with the process, or pass to another one.
pub(crate) type Claims = Arc<Mutex<[Option<Claim>; 2]>>;

/// Nobody panics while he holds it, and what is in it is whole at any time.
pub(crate) fn lock(claims: &Claims) -> MutexGuard<'_, [Option<Claim>; 2]> {
    claims.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a worker may take to go on over a new socket before that is looked at again with the rest.
const ANSWER: std::time::Duration = std::time::Duration::from_millis(200);
/// How soon an interface that could not be opened is tried again.
const AGAIN: Duration = Duration::from_millis(200);

impl Watch {
    /// Watches interfaces of those names (left, right), whose sockets were opened on the devices of
    /// those numbers and claimed so. When one is back, `attach` claims and opens it anew.
    pub(crate) fn start(
        names: [String; 2],
        devices: [u32; 2],
        claims: Claims,
        control: Control,
        attach: Attach,
    ) -> io::Result<Watch> {
        let (bell, rung) = UnixStream::pair()?;
        let [left, right] = names;
        let mut sides = [Side::new(left, devices[0]), Side::new(right, devices[1])];
        // What happened before another process passed them on.
        for (side, known) in sides.iter_mut().zip(control.links()) {
            side.state.changes = known.changes;
        }
        // From here on nothing is missed; what has happened before, the list shows.
        let news = LinkWatch::open()?;
        let devices = listed()?;
        let seen = weir_sys::now();
        let (missing, given) = ([None, None], [None, None]);
        let mut run =
            Run { news, devices, sides, control, claims, attach, missing, given, seen, changed: false };
        run.look();
        run.see_takers(false);
        let thread = std::thread::Builder::new().name("weir-watch".into()).spawn(move || run.run(&rung))?;
        Ok(Watch { bell: Some(bell), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Its far end becomes readable.
        self.bell = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listed() -> io::Result<BTreeMap<u32, Link>> {
    Ok(links()?.into_iter().map(|link| (link.index, link)).collect())
}

struct Run {
    news: LinkWatch,
    devices: BTreeMap<u32, Link>,
    sides: [Side; 2],
    control: Control,
    claims: Claims,
    attach: Attach,
    /// The sides that are back, but have no socket yet.
    missing: [Option<Missing>; 2],
    /// What a worker that hangs was given and has not taken: one socket a side, however often it comes back.
    given: [Option<Given>; 2],
    /// When it was last looked up who else takes frames, and whether anything has changed since.
    seen: Instant,
    changed: bool,
}

struct Missing {
    device: u32,
    /// Whether the reason was given.
    said: bool,
}

struct Given {
    device: u32,
    claim: Option<Claim>,
    exchange: Exchange,
}

impl Run {
    fn run(mut self, bell: &UnixStream) {
        loop {
            let soon = self.changed.then(|| SELDOM.saturating_sub(weir_sys::now().since(self.seen)));
            let again = self.missing.iter().any(Option::is_some).then_some(AGAIN);
            let again = soon.into_iter().chain(again).min();
            let news = weir_sys::wait(&[bell.as_fd(), self.news.as_fd()], again).unwrap_or(false);
            if weir_sys::wait(&[bell.as_fd()], Some(Duration::ZERO)).unwrap_or(false) {
                return;
            }
            match self.news.changes() {
                Ok(changes) => changes.into_iter().for_each(|change| self.take(change)),
                // Too much at once: what was missed, the list shows.
                Err(_) => self.devices = listed().unwrap_or(std::mem::take(&mut self.devices)),
            }
            self.look();
            self.changed |= news;
            if self.changed && weir_sys::now().since(self.seen) >= SELDOM {
                self.see_takers(true);
            }
        }
    }

    /// Looks who else takes the frames of an interface now, and says it of those that are new.
    fn see_takers(&mut self, say: bool) {
        (self.seen, self.changed) = (weir_sys::now(), false);
        let [left, right] = &self.sides;
        // What cannot be told now stays as it was.
        let Ok(all) = takers([&left.called, &right.called]) else { return };
        for ((index, side), takers) in self.sides.iter_mut().enumerate().zip(all) {
            let taken: Vec<String> = takers.iter().map(ToString::to_string).collect();
            for new in taken.iter().filter(|taker| say && !side.state.taken.contains(taker)) {
                weir_sys::say(new);
            }
            if side.state.taken != taken {
                side.state.taken = taken;
                self.control.tell(index, &side.state);
            }
        }
    }

    fn take(&mut self, change: Change) {
        match change {
            Change::Is(link) => drop(self.devices.insert(link.index, link)),
            Change::Gone(index) => drop(self.devices.remove(&index)),
        }
        self.look();
    }

    fn look(&mut self) {
        for index in 0..2 {
            let happened = self.sides[index].look(&self.devices);
            for what in &happened {
                match what {
                    Happening::Back(device) => {
                        self.missing[index] = Some(Missing { device: *device, said: false });
                        self.attach(index);
                        continue;
                    }
                    Happening::Is("gone") => {
                        self.missing[index] = None;
                        lock(&self.claims)[index] = None;
                    }
                    _ => {}
                }
                weir_sys::say(&format!("interface {} {what}", self.sides[index].name));
            }
            self.attach(index);
            self.control.tell(index, &self.sides[index].state);
        }
    }

    /// Gives the worker a socket for an interface that is back.
    fn attach(&mut self, index: usize) {
        let Side { name, attached, .. } = &mut self.sides[index];
        let Some(missing) = &mut self.missing[index] else { return };
        let taken = match &mut self.given[index] {
            Some(given) => given.exchange.is_done(std::time::Duration::ZERO),
            None => (self.attach)(index, name).and_then(|Attached { claim, sockets }| {
                let device = sockets.first().map_or(0, Socket::index);
                let exchange = self.control.exchange(index, sockets)?;
                // The claim stays as long as the worker may take the socket.
                let given = self.given[index].insert(Given { device, claim, exchange });
                given.exchange.is_done(ANSWER)
            }),
        };
        let silent = || io::Error::new(io::ErrorKind::TimedOut, "the worker does not answer");
        let done = taken.and_then(|taken| if taken { Ok(()) } else { Err(silent()) });
        match done {
            Ok(()) => {
                let Some(Given { device, claim, .. }) = self.given[index].take() else { return };
                if device != missing.device {
                    // Another one has that name by now.
                    return;
                }
                self.missing[index] = None;
                lock(&self.claims)[index] = claim;
                *attached = Some(device);
                weir_sys::say(&format!("interface {name} {}", Happening::Back(device)));
            }
            Err(e) => {
                if e.kind() != io::ErrorKind::TimedOut {
                    self.given[index] = None;
                }
                if missing.said {
                    return;
                }
                missing.said = true;
                let device = missing.device;
                weir_sys::say(&format!(
                    "interface {name} is back as device {device}, but not bridged: {e}; tried again five times a second"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests;
