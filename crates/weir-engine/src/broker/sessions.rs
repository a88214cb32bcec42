//! Traffic for which a broker elsewhere has set bandwidth apart, beside the leases of the classes that it goes through.
//!
//! The edge before an interface is told all of its classes, whenever these or its classes are others. It is not told that there
//! are none, unless it was told of some.

use super::{Broker, Brokers, COMING_DOWN, Desk, Far, Lease, NotTaken, Order, PATIENCE, Who, Word};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;
use weir_edge::edge::Session;

/// Traffic for which a broker elsewhere has set bandwidth apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Booked {
    /// The classes that it goes through.
    pub classes: Vec<Who>,
    /// What it is. Its leaf is that of each class.
    pub session: Session,
}

/// Sessions that edges are about to take.
#[derive(Debug)]
pub struct Taking {
    /// Those of which a class is here.
    here: Vec<u128>,
    not_taken: Receiver<NotTaken>,
}

impl Taking {
    /// When this returns, no other sessions are in effect than these: their numbers, and why others of classes here are not. It
    /// waits for the workers, at most a second: one that is hung sends nothing.
    pub fn settle(self) -> (Vec<u128>, Vec<NotTaken>) {
        let Taking { mut here, not_taken } = self;
        let by = Instant::now() + COMING_DOWN;
        let wait = || not_taken.recv_timeout(by.saturating_duration_since(Instant::now())).ok();
        let not_taken: Vec<NotTaken> = std::iter::from_fn(wait).collect();
        here.retain(|id| not_taken.iter().all(|(other, _)| other != id));
        (here, not_taken)
    }
}

impl Desk {
    /// A broker elsewhere has set bandwidth apart for these sessions, and for no others.
    pub fn sessions(&self, broker: Arc<str>, sessions: Vec<Booked>) -> Taking {
        let ((done, not_taken), (to, heard)) = (channel(), channel());
        let _ = self.0.send(Word::Sessions { broker, sessions, here: to, done });
        Taking { here: heard.recv_timeout(PATIENCE).unwrap_or_default(), not_taken }
    }
}

impl Far {
    /// The place of a class in its edge, if that is there.
    fn place(&self, class: &Who) -> Option<u32> {
        self.leases.get(class).and_then(Lease::place)
    }

    /// The sessions of which a class is here.
    pub(super) fn of_classes_here(&self) -> Vec<u128> {
        let is_here = |booked: &&Booked| booked.classes.iter().any(|class| self.place(class).is_some());
        self.sessions.iter().filter(is_here).map(|booked| booked.session.id).collect()
    }
}

impl Brokers {
    /// Tells all edges the sessions of their classes.
    pub(super) fn tell_all_sessions(&mut self, done: Option<&Sender<NotTaken>>) {
        for interface in self.edges.keys().cloned().collect::<Vec<_>>() {
            self.tell_sessions(&interface, done.cloned());
        }
    }

    /// Tells the edge before an interface the sessions of its classes, those of all brokers.
    pub(super) fn tell_sessions(&mut self, interface: &Arc<str>, done: Option<Sender<NotTaken>>) {
        let Some(to) = self.edges.get(interface) else { return };
        let far = self.all.values().filter_map(|broker| match broker {
            Broker::Elsewhere(far) => Some(far),
            Broker::Local(_) => None,
        });
        let of = |far: &Far| {
            let here = |booked: &Booked| {
                let leaf = |class: &Who| far.place(class).filter(|_| class.0 == *interface);
                let leaves: Vec<u32> = booked.classes.iter().filter_map(leaf).collect();
                leaves.into_iter().map(|leaf| Session { leaf, ..booked.session.clone() }).collect::<Vec<_>>()
            };
            far.sessions.iter().flat_map(here).collect::<Vec<_>>()
        };
        let sessions: Vec<Session> = far.flat_map(of).collect();
        let had = if sessions.is_empty() {
            self.told.remove(interface)
        } else {
            self.told.insert(interface.clone());
            true
        };
        if !had {
            return;
        }
        to.tell(Order::Sessions { sessions, done });
    }
}
