//! Edges, and a broker towards its neighbour: what they want, ask, hear and use; and the network between them.

use super::{ABROAD, AGREEMENT, Broker, EDGES, Party, Step, User, World};
use crate::agreement::Leased;
use crate::book::{Request, Verdict};
use crate::{MILLISECOND, Nanos, Rate};

impl World {
    pub(super) fn user(&mut self, party: Party) -> Option<&mut User> {
        match party {
            Party::Edge(edge) => Some(&mut self.edges[edge].user),
            Party::Broker(number) => {
                let broker = self.domains[0].brokers.iter_mut().find(|b| b.number == number)?;
                broker.agreement.as_mut()
            }
        }
    }

    pub(super) fn poll(&mut self, party: Party, polls: u64) -> Result<(), String> {
        if self.stopped && matches!(party, Party::Edge(_)) {
            return Ok(());
        }
        // As [`serve`](crate::serve): while its book has not heard what the neighbour gave, it may lend by what was before,
        // and no request may name less. With the write it looks again.
        if let Party::Broker(number) = party
            && !self.without.fall_heard_first
            && self.domains[0].brokers.iter().any(|b| b.number == number && b.hears())
        {
            return Ok(());
        }
        let (now, mut random) = (self.now, self.random.clone());
        let Some(user) = self.user(party).filter(|u| u.polls == polls) else { return Ok(()) };
        let request = user.holder.poll(user.clock.read(now), &mut random);
        self.random = random;
        if let Some(request) = request {
            if let Party::Broker(number) = party {
                self.neighbour_of(number).rules.asks(request.version);
            }
            self.send(party, request);
        }
        self.look_again(party);
        self.usage(party)
    }

    pub(super) fn look_again(&mut self, party: Party) {
        let now = self.now;
        let Some(user) = self.user(party) else { return };
        user.polls += 1;
        let (polls, clock) = (user.polls, user.clock);
        let Some(at) = user.holder.poll_at() else { return };
        // A poll that finds nothing to do must not find it again at the same instant.
        let at = clock.when(at).max(now + MILLISECOND);
        self.plan(at, Step::Poll(party, polls));
    }

    pub(super) fn wish(&mut self, edge: usize, wish: Rate, min: Rate) -> Result<(), String> {
        let now = self.now;
        let it = &mut self.edges[edge];
        let before = it.user.holder.rate(it.user.clock.read(now));
        it.user.holder.want(wish, min, &[]);
        if self.without.shaping_down_first {
            it.late = it.late.max(before);
        }
        self.look_again(Party::Edge(edge));
        self.usage(Party::Edge(edge))
    }

    pub(super) fn answer(&mut self, party: Party, version: u64, verdict: &Verdict) -> Result<(), String> {
        let (now, mut random) = (self.now, self.random.clone());
        let Some(user) = self.user(party) else { return Ok(()) };
        let at = user.clock.read(now);
        let heeded = user.holder.answer(at, version, verdict, &mut random);
        self.random = random;
        if heeded {
            match verdict {
                Verdict::Granted { .. } => self.counts.grants += 1,
                Verdict::Refused(_) => self.counts.refusals += 1,
            }
            match party {
                Party::Edge(edge) => self.edges[edge].late = 0,
                Party::Broker(number) => self.answered(number, at),
            }
        }
        if let (Party::Edge(edge), Verdict::Granted { rate, .. }) = (party, verdict) {
            let lease = self.edges[edge].lease.clone();
            let first = *self.granted.entry((lease, version)).or_insert(*rate);
            if first != *rate {
                return Err(format!("edge {edge}: version {version} was granted {first} and {rate}"));
            }
        }
        self.look_again(party);
        self.usage(party)
    }

    /// A broker of the first domain, which leases from the second.
    fn neighbour_of(&mut self, number: u64) -> &mut Broker {
        let broker = self.domains[0].brokers.iter_mut().find(|b| b.number == number);
        broker.expect("its agreement has just done something")
    }

    fn answered(&mut self, number: u64, at: Nanos) {
        let Broker { agreement, rules, .. } = self.neighbour_of(number);
        let leased = agreement.as_mut().and_then(|user| rules.answered(&mut user.holder, at));
        self.leased(number, leased);
    }

    /// What the neighbour grants becomes part of the book.
    pub(super) fn leased(&mut self, number: u64, leased: Option<Leased>) {
        let Some(leased) = leased else { return };
        self.neighbour_of(number).gathered.push(leased.of(ABROAD.into()));
        self.gather(0, number);
    }

    pub(super) fn called_back(&mut self, party: Party, version: u64, rate: Rate) {
        let now = self.now;
        let Some(user) = self.user(party) else { return };
        let at = user.clock.read(now);
        user.holder.called_back(at, version, rate);
        if let Party::Broker(number) = party {
            let Broker { agreement, rules, .. } = self.neighbour_of(number);
            let leased = agreement.as_ref().and_then(|user| rules.called_back(&user.holder, at));
            self.leased(number, leased);
        }
        self.look_again(party);
    }

    /// What an edge really sends.
    pub(super) fn used(&self, edge: usize) -> Rate {
        let it = &self.edges[edge];
        it.user.holder.rate(it.user.clock.read(self.now)).max(it.late)
    }

    /// Invariants 2 and 3: nobody uses more than what was written for it.
    pub(super) fn usage(&self, party: Party) -> Result<(), String> {
        if let Party::Edge(edge) = party {
            let it = &self.edges[edge];
            let used = self.used(edge);
            let granted = self.domains[it.domain].truth.lease(&it.lease).map_or(0, |l| l.granted);
            if used > granted {
                return Err(format!("edge {edge} uses {used} bit/s of {granted}"));
            }
            if it.abroad {
                return self.usage_abroad();
            }
        }
        Ok(())
    }

    pub(super) fn usage_abroad(&self) -> Result<(), String> {
        let used: Rate = (0..EDGES).filter(|&e| self.edges[e].abroad).map(|e| self.used(e)).sum();
        let granted = self.domains[1].truth.lease(AGREEMENT).map_or(0, |l| l.granted);
        if used > granted {
            return Err(format!("the first domain uses {used} bit/s of the {granted} of the second"));
        }
        Ok(())
    }

    fn send(&mut self, party: Party, request: Request) {
        let domain = match party {
            Party::Edge(edge) => self.edges[edge].domain,
            Party::Broker(_) => 1,
        };
        let brokers = self.domains[domain].brokers.len() as u64;
        if brokers == 0 {
            return;
        }
        // Mostly to who serves, at times to one who no longer does.
        let at = if self.random.below(4) == 0 { self.random.below(brokers) } else { brokers - 1 };
        let number = self.domains[domain].brokers[at as usize].number;
        for arrives in self.ways(party) {
            self.plan(arrives, Step::Request(domain, number, Box::new(request.clone())));
        }
    }

    /// When the copies of a message arrive.
    pub(super) fn ways(&mut self, party: Party) -> Vec<Nanos> {
        let cut_until = match party {
            Party::Edge(edge) => self.edges[edge].cut_until,
            Party::Broker(_) => self.severed_until,
        };
        let cut = cut_until > self.now;
        if !self.calm && (cut || self.random.below(10) == 0) {
            self.counts.lost += 1;
            return Vec::new();
        }
        let copies = if self.chance(10) { 2 } else { 1 };
        (0..copies)
            .map(|_| {
                let slow = if self.chance(20) { self.pace.slow } else { 20 * MILLISECOND };
                self.now + self.random.below(slow)
            })
            .collect()
    }
}
