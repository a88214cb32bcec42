//! Traffic for which a broker elsewhere has set bandwidth apart, beside the leases of the classes that it goes through.
//!
//! The edge before an interface is told all of its classes, whenever these or its classes are others. It is not told that there
//! are none, unless it was told of some.

use super::{Broker, Brokers, ComingDown, Desk, Far, Lease, PATIENCE, To, Who, Word};
use crate::control::Request;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use weir_edge::edge::Session;

/// Traffic for which a broker elsewhere has set bandwidth apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Booked {
    /// The classes that it goes through.
    pub classes: Vec<Who>,
    /// What it is. Its leaf is that of each class.
    pub session: Session,
}

impl Desk {
    /// A broker elsewhere has set bandwidth apart for these sessions, and for no others: which of them are in effect, and
    /// what to wait for until no others are.
    pub fn sessions(&self, broker: Arc<str>, sessions: Vec<Booked>) -> (Vec<u128>, ComingDown) {
        let ((done, waits), (in_effect, heard)) = (channel(), channel());
        let _ = self.0.send(Word::Sessions { broker, sessions, in_effect, done });
        (heard.recv_timeout(PATIENCE).unwrap_or_default(), ComingDown(waits))
    }
}

impl Far {
    /// The place of a class in its edge, if that is there.
    fn place(&self, class: &Who) -> Option<u32> {
        self.leases.get(class).and_then(Lease::place)
    }

    /// The sessions of these that are in effect: those of which a class is here.
    pub(super) fn in_effect(&self) -> Vec<u128> {
        let is_here = |booked: &&Booked| booked.classes.iter().any(|class| self.place(class).is_some());
        self.sessions.iter().filter(is_here).map(|booked| booked.session.id).collect()
    }
}

impl Brokers {
    /// Tells all edges the sessions of their classes.
    pub(super) fn tell_all_sessions(&mut self, done: Option<&Sender<()>>) {
        for interface in self.edges.keys().cloned().collect::<Vec<_>>() {
            self.tell_sessions(&interface, done.cloned());
        }
    }

    /// Tells the edge before an interface the sessions of its classes, those of all brokers.
    pub(super) fn tell_sessions(&mut self, interface: &Arc<str>, done: Option<Sender<()>>) {
        let Some(To { back, direction, edge }) = self.edges.get(interface) else { return };
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
        back.ask(Request::Sessions { direction: *direction, edge: *edge, sessions, done });
    }
}
