//! Brokers that start, stop, take over, write and tell.

use super::{
    ABROAD, AGREEMENT, Broker, CORE, Clock, EDGES, FULL, GROUP, HOME, Party, Step, Stop, User, World,
};
use crate::agreement::Rules;
use crate::book::{Command, Event, Name};
use crate::holder::{GAP, Holder, Terms};
use crate::{MILLISECOND, Rate};

impl World {
    pub(super) fn start(&mut self, domain: usize) {
        let it = &mut self.domains[domain];
        it.term += 1;
        let clock = Clock::draw(&mut self.random);
        let agreement = (domain == 0).then(|| {
            let (lease, path) = (AGREEMENT.into(), vec![CORE.into()]);
            let (ttl_ms, epoch) = (self.pace.agreed_ms, it.term as u32);
            let terms = Terms { lease, path, ttl_ms, epoch, gap: GAP / 8, retry: self.pace.retry / 10 };
            User { holder: Holder::new(terms), clock, polls: 0 }
        });
        let mut gathered = vec![Command::Begin];
        if it.truth.resources().next().is_none() {
            let resource: Name = if domain == 0 { HOME.into() } else { CORE.into() };
            gathered.push(Command::Provide { resource, capacity: FULL });
            if domain == 0 {
                let (resource, ceiling) = (ABROAD.into(), FULL / 5 * 4);
                gathered.push(Command::Agree { resource, ceiling, bulk: self.bulk });
            }
        }
        let (number, book) = (it.term, it.truth.clone());
        let term = it.term;
        let (rules, wanted) = (Rules::default(), (0, 0));
        it.brokers.push(Broker { number, term, clock, book, gathered, agreement, rules, wanted });
        self.plan(self.now, Step::Commit(domain, number));
    }

    /// Whether the broker that took over last is there.
    pub(super) fn served(&self, domain: usize) -> bool {
        let it = &self.domains[domain];
        it.brokers.iter().any(|b| b.term == it.term)
    }

    pub(super) fn crash(&mut self, domain: usize, number: u64) {
        self.counts.crashes += 1;
        self.domains[domain].brokers.retain(|b| b.number != number);
        let back = self.now + self.random.below(self.pace.busy / 8);
        self.plan(back, Step::Start(domain));
    }

    pub(super) fn gather(&mut self, domain: usize, number: u64) {
        let broker = self.domains[domain].brokers.iter().find(|b| b.number == number);
        if broker.is_some_and(|b| b.gathered.len() == 1) {
            let at = self.now + self.random.below(GROUP);
            self.plan(at, Step::Commit(domain, number));
        }
    }

    pub(super) fn provide(&mut self, domain: usize, capacity: Rate) {
        let Some(broker) = self.domains[domain].brokers.last_mut() else { return };
        let resource: Name = if domain == 0 { HOME.into() } else { CORE.into() };
        broker.gathered.push(Command::Provide { resource, capacity });
        let number = broker.number;
        self.gather(domain, number);
    }

    /// Whether the broker that writes stops here.
    fn stops(&mut self, stop: Stop) -> bool {
        // It is drawn in any case: a history is the same up to the write at which it stops.
        self.chance(60) || (!self.calm && self.stop == Some((self.counts.writes, stop)))
    }

    pub(super) fn commit(&mut self, domain: usize, number: u64) -> Result<(), String> {
        let Some(at) = self.domains[domain].brokers.iter().position(|b| b.number == number) else {
            return Ok(());
        };
        if self.domains[domain].brokers[at].gathered.is_empty() {
            return Ok(());
        }
        self.counts.writes += u64::from(!self.calm);
        let now = self.now;
        let it = &mut self.domains[domain];
        let deposed = it.brokers[at].term != it.term;
        let broker = &mut it.brokers[at];
        let commands = std::mem::take(&mut broker.gathered);
        let (clock, mut events) = (broker.clock.read(now), Vec::new());
        for command in &commands {
            broker.book.apply(clock, command, &mut events);
        }
        // What speaks with the neighbour waits for what it has to have written. The history by which `fall_heard_first` is
        // shown to break is one in which nothing is asked before it is written.
        if !self.without.fall_heard_first
            && !commands.iter().any(|command| matches!(command, Command::Leased { .. }))
        {
            self.ask_first(domain, number, &events)?;
        }
        if self.stops(Stop::Before) {
            if self.without.commit_before_answer && (!deposed || self.without.fencing) {
                // It answered, and stops before it writes.
                self.tell(domain, number, events)?;
            }
            self.crash(domain, number);
            return Ok(());
        }
        if deposed && !self.without.fencing {
            self.domains[domain].brokers.retain(|b| b.number != number);
            return Ok(());
        }
        let it = &mut self.domains[domain];
        let mut again = Vec::new();
        for command in &commands {
            it.truth.apply(clock, command, &mut again);
        }
        // Invariants 1 and 5: the account is right, and who reads the log has the account of who wrote it.
        it.truth.check(clock)?;
        if !self.without.fencing && again != events {
            return Err(format!("domain {domain}: the log says something else than the broker"));
        }
        if self.stops(Stop::After) {
            self.crash(domain, number);
        } else {
            self.tell(domain, number, events)?;
        }
        for edge in 0..EDGES {
            if self.edges[edge].domain == domain {
                self.usage(Party::Edge(edge))?;
            }
        }
        self.usage_abroad()
    }

    /// The neighbour is asked for more before that is written.
    fn ask_first(&mut self, domain: usize, number: u64, events: &[Event]) -> Result<(), String> {
        let of = |world: &World| {
            world.domains[domain].brokers.iter().find(|b| b.number == number).map(|b| b.wanted)
        };
        let before = of(self);
        for event in events {
            let Event::Want { serial, rate, domains, .. } = event else { continue };
            if of(self).is_some_and(|(_, wanted)| *rate < wanted) {
                break;
            }
            self.want(domain, number, *serial, *rate, domains.clone());
        }
        let party = Party::Broker(number);
        match self.user(party).filter(|_| domain == 0).map(|user| user.polls) {
            // It may crash before it would look by itself.
            Some(polls) if of(self) != before => self.poll(party, polls),
            _ => Ok(()),
        }
    }

    /// A broker wants so much of its neighbour.
    fn want(&mut self, domain: usize, number: u64, serial: u64, rate: Rate, domains: Vec<Name>) {
        let now = self.now;
        let broker = self.domains[0].brokers.iter_mut().find(|b| b.number == number);
        let Some(broker) = broker.filter(|b| domain == 0 && b.wanted.0 < serial) else { return };
        broker.wanted = (serial, rate);
        let Some(User { holder, clock, .. }) = &mut broker.agreement else { return };
        let leased = broker.rules.want(holder, clock.read(now), serial, rate, domains);
        self.leased(number, leased);
    }

    /// The world hears of what was written.
    fn tell(&mut self, domain: usize, number: u64, events: Vec<Event>) -> Result<(), String> {
        for event in events {
            match event {
                Event::Answer { lease, version, verdict } => {
                    for party in self.who(&lease) {
                        for arrives in self.ways(party) {
                            self.plan(arrives, Step::Answer(party, version, verdict.clone()));
                        }
                    }
                }
                Event::CallBack { lease, version, rate } => {
                    for party in self.who(&lease) {
                        for arrives in self.ways(party) {
                            self.plan(arrives, Step::CallBack(party, version, rate));
                        }
                    }
                }
                Event::Want { serial, rate, domains, .. } => {
                    self.want(domain, number, serial, rate, domains);
                }
                Event::Ended { .. } => {}
            }
        }
        let broker = self.domains[domain].brokers.iter_mut().find(|b| b.number == number);
        let Some(broker) = broker else { return Ok(()) };
        let due = broker.book.due().map(|due| broker.clock.when(due));
        if let Some(user) = &mut broker.agreement {
            let lent = broker.book.resources().find(|r| r.resource == ABROAD).map_or(0, |r| r.taken);
            user.holder.lend(lent);
            self.look_again(Party::Broker(number));
        }
        if let Some(due) = due {
            self.plan(due.max(self.now + MILLISECOND), Step::Due(domain, number));
        }
        Ok(())
    }

    /// Who speaks for a lease. Every broker of the first domain hears of its agreement.
    fn who(&self, lease: &str) -> Vec<Party> {
        match self.edges.iter().position(|e| *e.lease == *lease) {
            Some(edge) => vec![Party::Edge(edge)],
            None => self.domains[0].brokers.iter().map(|b| Party::Broker(b.number)).collect(),
        }
    }
}
