//! What a broker leases from a neighbour: when the book hears of it, and when the neighbour is asked no more.
//!
//! The book [wants](crate::book::Event::Want) a rate in all, under a serial number. A [`Holder`] keeps the lease there, as
//! an edge does. Between them stand these rules. [`serve`](crate::serve) and [`sim`](crate::sim) go by them alike.
//!
//! - A request that is sent again is for the want that it was made for.
//! - An answer to less than is wanted by now raises nothing: the next one follows. What it takes away counts at once.
//! - After a refusal no more is wanted than is held, until somebody asks again.
//! - What is leased already, or will never be leased, needs no question: the book hears of it at once.

use crate::book::{Command, Name};
use crate::holder::{Holder, State};
use crate::{Nanos, Rate};

/// What is known of one agreement, beside what its holder has.
#[derive(Clone, Default, Debug)]
pub(crate) struct Rules {
    /// The newest want, and the domains that it came through.
    wanted: u64,
    domains: Vec<Name>,
    /// The newest version that was asked, and the want that it was for.
    asked: (u64, u64),
    /// What the book was told last.
    written: Rate,
}

/// What the book is to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Leased {
    serial: u64,
    rate: Rate,
    until: Nanos,
}

impl Leased {
    pub fn of(self, resource: Name) -> Command {
        let Leased { serial, rate, until } = self;
        Command::Leased { resource, serial, rate, until }
    }
}

impl Rules {
    /// The book wants `rate` in all, for a request that has come through `domains`.
    pub fn want(
        &mut self,
        holder: &mut Holder,
        now: Nanos,
        serial: u64,
        rate: Rate,
        domains: Vec<Name>,
    ) -> Option<Leased> {
        (self.wanted, self.domains) = (serial, domains);
        holder.want(rate, 0, &self.domains);
        let is_leased = self.written < rate && rate <= holder.rate(now);
        if !is_leased && holder.state().0 != State::Replaced {
            return None;
        }
        self.asked.1 = serial;
        Some(self.tell(holder, now))
    }

    /// A request of that version goes out.
    pub fn asks(&mut self, version: u64) {
        if version != self.asked.0 {
            self.asked = (version, self.wanted);
        }
    }

    /// The holder has heeded an answer.
    pub fn answered(&mut self, holder: &mut Holder, now: Nanos) -> Option<Leased> {
        let held = holder.rate(now);
        let is_newest = self.asked.1 == self.wanted;
        let told = (is_newest || held < self.written).then(|| self.tell(holder, now));
        if is_newest && holder.state().0 == State::Refused {
            holder.want(held, 0, &self.domains);
        }
        told
    }

    /// The holder has heard that less is leased.
    pub fn called_back(&mut self, holder: &Holder, now: Nanos) -> Option<Leased> {
        (holder.rate(now) < self.written).then(|| self.tell(holder, now))
    }

    fn tell(&mut self, holder: &Holder, now: Nanos) -> Leased {
        self.written = holder.rate(now);
        Leased { serial: self.asked.1, rate: self.written, until: holder.until() }
    }
}
