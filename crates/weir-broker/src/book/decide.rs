//! How a request is decided.

use super::{
    Book, Event, HOLD, Lease, LeaseAt, MAX_DOMAINS, MAX_PATH, MIN_TTL_MS, Name, Path, Refusal, Request,
    Resource, ResourceAt, Reverse, Verdict, Wait, freed_after,
};
use crate::{MILLISECOND, Nanos, Rate};

/// Why a request is decided now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Nobody need be asked, or all have answered.
    Known,
    /// A neighbour has not answered in time.
    TimedOut,
}

impl Book {
    pub(super) fn lease_at(&mut self, at: LeaseAt) -> &mut Lease {
        self.leases[at as usize].as_mut().expect("an index of a lease is dropped before the lease is")
    }

    /// The resource of this name. It is made, with nothing to give, if there is none.
    pub(super) fn resource(&mut self, name: &Name) -> ResourceAt {
        if let Some(&at) = self.resource_by_name.get(name) {
            return at;
        }
        let at = self.resources.len() as ResourceAt;
        self.resources.push(Resource {
            name: name.clone(),
            capacity: 0,
            declared: None,
            taken: 0,
            agreement: None,
        });
        self.resource_by_name.insert(name.clone(), at);
        at
    }

    /// What is counted above the new capacity is called back, from each lease in proportion. Who waits for
    /// a neighbour gets what can be had at once.
    pub(super) fn set_capacity(
        &mut self,
        now: Nanos,
        at: ResourceAt,
        capacity: Rate,
        events: &mut Vec<Event>,
    ) {
        let resource = &mut self.resources[at as usize];
        resource.capacity = capacity;
        if resource.taken <= capacity {
            return;
        }
        let waits =
            |&&w: &&LeaseAt| self.leases[w as usize].as_ref().is_some_and(|l| l.path.iter().any(|r| r == at));
        let waiting: Vec<LeaseAt> = self.waiting.iter().filter(waits).copied().collect();
        for w in waiting {
            self.decide(now, w, Why::Known, events);
        }
        let taken = self.resources[at as usize].taken;
        if taken <= capacity {
            return;
        }
        for lease in self.leases.iter_mut().flatten().filter(|l| l.base > 0 && l.path.iter().any(|r| r == at))
        {
            let share = (u128::from(lease.base) * u128::from(capacity) / u128::from(taken)) as Rate;
            lease.limit = lease.limit.min(share);
            let (name, version, rate) = (lease.name.clone(), lease.version, lease.limit);
            events.push(Event::CallBack { lease: name, version, rate });
        }
    }

    pub(super) fn ask(&mut self, now: Nanos, request: &Request, events: &mut Vec<Event>) {
        let refuse = |why| Event::Answer {
            lease: request.lease.clone(),
            version: request.version,
            verdict: Verdict::Refused(why),
        };
        if let Err(field) = request.check() {
            return events.push(refuse(Refusal::Bad { field }));
        }
        if request.domains.contains(&self.domain) || request.domains.len() == MAX_DOMAINS {
            return events.push(refuse(Refusal::Loop));
        }
        let mut path = Path::default();
        for name in &request.path {
            match self.resource_by_name.get(name) {
                Some(&at) => path.push(at),
                None => return events.push(refuse(Refusal::Unknown { resource: name.clone() })),
            }
        }
        let at = match self.lease_by_name.get(&request.lease).copied() {
            None => match self.add(now, request, path) {
                Ok(at) => at,
                Err(why) => return events.push(refuse(why)),
            },
            Some(at) => {
                let lease = self.lease_at(at);
                let same =
                    (lease.rate, lease.min, lease.ttl_ms) == (request.rate, request.min, request.ttl_ms);
                if request.version < lease.version {
                    return events.push(refuse(Refusal::Stale { newest: lease.version }));
                }
                if lease.path != path || (request.version == lease.version && !same) {
                    return events.push(refuse(Refusal::Differs));
                }
                if request.version == lease.version
                    && let Some(verdict) = lease.verdict.clone()
                {
                    let (lease, version) = (request.lease.clone(), request.version);
                    events.push(Event::Answer { lease, version, verdict });
                    return;
                }
                if lease.wait.is_some() && same {
                    // The neighbour is being asked for just that.
                    lease.version = request.version;
                    return;
                }
                at
            }
        };
        self.stop_waiting(at);
        let lease = self.lease_at(at);
        let before = lease.base;
        (lease.version, lease.rate, lease.min) = (request.version, request.rate, request.min);
        (lease.ttl_ms, lease.verdict) = (request.ttl_ms, None);
        // The edge has shaped down to what it asks for, if that is less.
        lease.base = before.min(request.rate);
        let (less, path) = (before - lease.base, lease.path);
        for r in path.iter() {
            self.resources[r as usize].taken -= less;
        }
        if request.rate == 0 && before > 0 {
            events.push(Event::Ended { lease: request.lease.clone(), freed: before });
        }
        self.decide_or_ask(now, at, &request.domains, events);
    }

    fn add(&mut self, now: Nanos, request: &Request, path: Path) -> Result<LeaseAt, Refusal> {
        let owner = request.owner();
        let count = self.owners.get(owner).copied().unwrap_or(0);
        if count >= self.per_owner {
            return Err(Refusal::TooMany { limit: self.per_owner });
        }
        if let Some(count) = self.owners.get_mut(owner) {
            *count += 1;
        } else {
            self.owners.insert(owner.into(), 1);
        }
        let until = now + freed_after(request.ttl_ms);
        let lease = Lease {
            name: request.lease.clone(),
            path,
            version: request.version,
            rate: request.rate,
            min: request.min,
            ttl_ms: request.ttl_ms,
            verdict: None,
            base: 0,
            hold: 0,
            limit: Rate::MAX,
            longest_ms: request.ttl_ms,
            until,
            wait: None,
        };
        let at = self.empty.pop().unwrap_or(self.leases.len() as LeaseAt);
        if at as usize == self.leases.len() {
            self.leases.push(Some(lease));
        } else {
            self.leases[at as usize] = Some(lease);
        }
        self.lease_by_name.insert(request.lease.clone(), at);
        self.ends.push(Reverse((until, at)));
        Ok(at)
    }

    /// The lease has ended, and what was remembered of it goes.
    pub(super) fn remove(&mut self, at: LeaseAt, events: &mut Vec<Event>) {
        self.stop_waiting(at);
        let lease = self.leases[at as usize].take().expect("it is there until now");
        for r in lease.path.iter() {
            self.resources[r as usize].taken -= lease.base;
        }
        self.lease_by_name.remove(&lease.name);
        self.notes.remove(&lease.name);
        self.empty.push(at);
        let owner = lease.owner();
        let last = self.owners.get_mut(owner).is_some_and(|count| {
            *count -= 1;
            *count == 0
        });
        if last {
            self.owners.remove(owner);
        }
        for r in lease.path.iter() {
            self.give_back(r, events);
        }
        if lease.base > 0 {
            events.push(Event::Ended { lease: lease.name, freed: lease.base });
        }
    }

    /// What was held and asked for it goes; what the edge may be using stays.
    pub(super) fn stop_waiting(&mut self, at: LeaseAt) {
        let lease = self.leases[at as usize].as_mut().expect("who waits is there");
        let Some(wait) = lease.wait.take() else { return };
        let hold = std::mem::take(&mut lease.hold);
        for (r, serial) in lease.path.iter().zip(wait.serials) {
            let resource = &mut self.resources[r as usize];
            match resource.agreement.as_mut() {
                Some(agreement) if serial > 0 => agreement.asked -= hold,
                _ => resource.taken -= hold,
            }
        }
        self.waiting.retain(|&w| w != at);
    }

    /// The most that the lease may have on this resource.
    fn room(resource: &Resource, lease: &Lease, now: Nanos) -> Rate {
        let capacity = resource.capacity_at(now);
        if resource.taken > capacity {
            lease.base.min(lease.limit)
        } else {
            capacity - (resource.taken - lease.base)
        }
    }

    /// The same if the neighbour gave all that the agreement allows.
    fn hope(resource: &Resource, lease: &Lease, now: Nanos) -> Rate {
        let others = resource.taken - lease.base;
        match &resource.agreement {
            Some(a) => Self::room(resource, lease, now).max(a.ceiling.saturating_sub(others + a.asked)),
            None => Self::room(resource, lease, now),
        }
    }

    /// Decides, or holds what is here and asks the neighbours for the rest.
    fn decide_or_ask(&mut self, now: Nanos, at: LeaseAt, domains: &[Name], events: &mut Vec<Event>) {
        let lease = self.leases[at as usize].as_ref().expect("it was just asked for");
        let on_path = || lease.path.iter().map(|r| &self.resources[r as usize]);
        let now_free = on_path().map(|r| Self::room(r, lease, now)).min().unwrap_or(0);
        let hope = on_path().map(|r| Self::hope(r, lease, now)).min().unwrap_or(0).min(lease.rate);
        if now_free >= lease.rate || hope <= now_free || hope < lease.min || hope <= lease.base {
            return self.decide(now, at, Why::Known, events);
        }
        let (hold, path) = (hope - lease.base, lease.path);
        let mut lacks = [false; MAX_PATH];
        for (lacks, resource) in lacks.iter_mut().zip(on_path()) {
            *lacks = Self::room(resource, lease, now) < hope;
        }
        let hold_for = HOLD.min(u64::from(lease.ttl_ms) * MILLISECOND / 4);
        // Who waits hears an answer before its lease is forgotten.
        let mut wait = Wait { until: (now + hold_for).min(lease.until), serials: [0; MAX_PATH], open: 0 };
        for (place, r) in path.iter().enumerate() {
            let resource = &mut self.resources[r as usize];
            match resource.agreement.as_mut() {
                Some(agreement) if lacks[place] => {
                    agreement.asked += hold;
                    wait.serials[place] = self.want(r, domains, events);
                    wait.open |= 1 << place;
                }
                _ => resource.taken += hold,
            }
        }
        let ends = |w: LeaseAt| self.leases[w as usize].as_ref()?.wait.as_ref().map(|wait| wait.until);
        let place = self.waiting.partition_point(|&w| ends(w) <= Some(wait.until));
        self.waiting.insert(place, at);
        let lease = self.lease_at(at);
        (lease.hold, lease.wait) = (hold, Some(wait));
    }

    /// Asks the neighbour for what is needed, unless it has been asked for as much. Says which want it is.
    pub(super) fn want(&mut self, at: ResourceAt, domains: &[Name], events: &mut Vec<Event>) -> u64 {
        let resource = &mut self.resources[at as usize];
        let Some(agreement) = resource.agreement.as_mut() else { return 0 };
        let need = resource.taken + agreement.asked;
        let rate = need.next_multiple_of(agreement.bulk).min(agreement.ceiling);
        if rate > agreement.want {
            (agreement.want, agreement.serial) = (rate, agreement.serial + 1);
            let (resource, domains) = (resource.name.clone(), domains.to_vec());
            events.push(Event::Want { resource, serial: agreement.serial, rate, domains });
        }
        agreement.serial
    }

    /// The neighbour behind `name` answered want `serial`, or its grant was renewed or has ended.
    pub(super) fn leased(
        &mut self,
        now: Nanos,
        name: &Name,
        serial: u64,
        rate: Rate,
        until: Nanos,
        events: &mut Vec<Event>,
    ) {
        let Some(&at) = self.resource_by_name.get(name) else { return };
        let resource = &mut self.resources[at as usize];
        let Some(agreement) = resource.agreement.as_mut() else { return };
        // The answer to an older want may promise what has been given back since.
        let newest = serial == agreement.serial;
        let capacity = if newest { rate.min(agreement.want) } else { rate.min(resource.capacity) };
        if newest {
            agreement.want = capacity;
        }
        agreement.until = until;
        self.set_capacity(now, at, capacity, events);
        let mut ready = Vec::new();
        for &w in &self.waiting {
            let lease = self.leases[w as usize].as_mut().expect("who waits is there");
            let (Some(wait), Some(place)) = (&mut lease.wait, lease.path.iter().position(|r| r == at)) else {
                continue;
            };
            if (1..=serial).contains(&wait.serials[place]) {
                wait.open &= !(1 << place);
                if wait.open == 0 {
                    ready.push(w);
                }
            }
        }
        for w in ready {
            self.decide(now, w, Why::Known, events);
        }
    }

    /// The answer, by what is there now.
    pub(super) fn decide(&mut self, now: Nanos, at: LeaseAt, why: Why, events: &mut Vec<Event>) {
        self.stop_waiting(at);
        let lease = self.leases[at as usize].as_ref().expect("it was asked for");
        let on_path = || lease.path.iter().map(|r| &self.resources[r as usize]);
        let (free, scarce) = on_path()
            .map(|r| (Self::room(r, lease, now), r))
            .min_by_key(|&(free, _)| free)
            .expect("a path has at least one resource");
        // An edge may not use longer what the neighbour has granted for a shorter time.
        let (mut ttl_ms, mut short) = (lease.ttl_ms, None);
        for (resource, agreement) in on_path().filter_map(|r| Some((r, r.agreement.as_ref()?))) {
            let left = agreement.until.saturating_sub(now);
            let left_ms = u32::try_from((left - left / 1_000) / MILLISECOND).unwrap_or(u32::MAX);
            if left_ms < ttl_ms {
                (ttl_ms, short) = (left_ms, Some(resource));
            }
        }
        let rate = free.min(lease.rate);
        let verdict = if lease.rate == 0 {
            Verdict::Granted { rate: 0, ttl_ms: lease.ttl_ms }
        } else if rate == 0 || rate < lease.min {
            match why {
                Why::TimedOut => Verdict::Refused(Refusal::Neighbour { resource: self.neighbour(lease) }),
                Why::Known => Verdict::Refused(Refusal::Full { resource: scarce.name.clone(), free }),
            }
        } else if let Some(resource) = short.filter(|_| ttl_ms < MIN_TTL_MS) {
            Verdict::Refused(Refusal::Neighbour { resource: resource.name.clone() })
        } else {
            Verdict::Granted { rate, ttl_ms }
        };
        let more = self.settle(now, at, verdict, events);
        let path = self.lease_at(at).path;
        for r in path.iter() {
            self.resources[r as usize].taken += more;
        }
        for r in path.iter() {
            self.give_back(r, events);
        }
    }

    /// Writes the verdict into the lease. Says what it uses more than before.
    fn settle(&mut self, now: Nanos, at: LeaseAt, verdict: Verdict, events: &mut Vec<Event>) -> Rate {
        let lease = self.lease_at(at);
        let before = lease.base;
        if let Verdict::Granted { rate, ttl_ms } = verdict {
            // Called back: what the edge may still use stays counted until it says that it came down.
            lease.base = before.max(rate);
            if rate >= before {
                lease.limit = Rate::MAX;
            }
            // A grant in use may be longer than this one.
            lease.longest_ms = if before > 0 { lease.longest_ms.max(ttl_ms) } else { ttl_ms };
            let until = now + freed_after(ttl_ms);
            lease.until = if before > 0 { lease.until.max(until) } else { until };
        }
        let more = lease.base - before;
        lease.verdict = Some(verdict.clone());
        events.push(Event::Answer { lease: lease.name.clone(), version: lease.version, verdict });
        more
    }

    /// The first agreement on the path of a lease.
    fn neighbour(&self, lease: &Lease) -> Name {
        let mut on_path = lease.path.iter().map(|r| &self.resources[r as usize]);
        on_path.find(|r| r.agreement.is_some()).map_or_else(|| "".into(), |r| r.name.clone())
    }

    /// A neighbour gets back what is left over, in whole multiples of the bulk, one of them kept while any is used.
    pub(super) fn give_back(&mut self, at: ResourceAt, events: &mut Vec<Event>) {
        let resource = &mut self.resources[at as usize];
        let taken = resource.taken;
        let Some(agreement) = resource.agreement.as_mut() else { return };
        let need = (taken + agreement.asked).next_multiple_of(agreement.bulk).min(agreement.ceiling);
        let spare = if need > 0 && agreement.bulk > 1 { agreement.bulk } else { 0 };
        if agreement.want <= need.saturating_add(spare) {
            return;
        }
        (agreement.want, agreement.serial) = (need, agreement.serial + 1);
        resource.capacity = resource.capacity.min(need.max(taken));
        let (serial, resource) = (agreement.serial, resource.name.clone());
        events.push(Event::Want { resource, serial, rate: need, domains: Vec::new() });
    }
}
