//! Traffic control as RSVP asks for it (RFC 2205, section 3.11.2), over leases and pinned flows. ALTQ was glued to ISI's RSVP
//! by the same calls [ALTQ98 §1, §7].
//!
//! A signalling daemon says what a reservation needs and which packets belong to it. [`Reservations`] asks for a lease
//! of that rate, gives it to the data plane as the rate of a class, and pins the flows. What the broker does not grant is not
//! admitted. State is soft: what is not refreshed for [`LIFETIME`] ends, at the broker by itself.
//!
//! Weir has no RSVP daemon, and does not speak RSVP by COPS (RFC 2749).

use crate::book::{Book, Command, Event, Name, Refusal, Request, Verdict};
use crate::http::{self, HttpError, Target};
use crate::wire::{Answer, Entry, ResourcesNow, Wish};
use crate::{MILLISECOND, Nanos, Rate, SECOND};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

#[cfg(test)]
mod tests;

/// How often a daemon refreshes what it has (RFC 2205, section 3.7: R).
pub const REFRESH: Nanos = 30 * SECOND;
/// What is not refreshed for so long has ended.
pub const LIFETIME: Nanos = 3 * REFRESH;

/// What a reservation needs (RFC 2210): controlled load by its token bucket, guaranteed service by its own rate besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flowspec {
    /// r: the rate of the token bucket, in bit/s.
    pub bucket_bps: Rate,
    /// R: the rate of guaranteed service, in bit/s; 0 for controlled load.
    pub guaranteed_bps: Rate,
}

/// Which packets belong to a reservation (RFC 2205, section 3.11.1: session and filter spec).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The protocol of IP.
    pub protocol: u8,
    /// The sender and its port.
    pub source: (IpAddr, u16),
    /// The receiver and its port.
    pub destination: (IpAddr, u16),
}

/// A reservation (RHandle of the RFC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reservation(u64);

/// A filter of a reservation (FHandle of the RFC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterOf(Reservation, u64);

/// Why a reservation is not there, or not as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// The broker refuses.
    Refused(Refusal),
    /// The broker did not answer.
    NoAnswer(String),
    /// There is no such reservation any more.
    Ended,
}

impl fmt::Display for NotAdmitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAdmitted::Refused(why) => why.fmt(f),
            NotAdmitted::NoAnswer(why) => f.write_str(why),
            NotAdmitted::Ended => f.write_str("the reservation has ended: make it again"),
        }
    }
}

impl std::error::Error for NotAdmitted {}

/// The calls of a signalling daemon, each named as in RFC 2205, section 3.11.2. Times are those of one clock.
pub trait TrafficControl {
    /// TC_AddFlowspec: a reservation at `interface`.
    ///
    /// # Errors
    /// It is not admitted, and why.
    fn add_flowspec(
        &mut self,
        now: Nanos,
        interface: &str,
        needs: Flowspec,
    ) -> Result<Reservation, NotAdmitted>;

    /// TC_ModFlowspec: the reservation needs this from now on. The same again refreshes it.
    ///
    /// # Errors
    /// It is not admitted, and goes on as it was to the end of its lifetime; or it has ended.
    fn mod_flowspec(&mut self, now: Nanos, of: Reservation, needs: Flowspec) -> Result<(), NotAdmitted>;

    /// TC_DelFlowspec: the reservation ends, with its filters.
    fn del_flowspec(&mut self, now: Nanos, of: Reservation);

    /// TC_AddFilter: these packets belong to it.
    ///
    /// # Errors
    /// It has ended.
    fn add_filter(&mut self, of: Reservation, filter: Filter) -> Result<FilterOf, NotAdmitted>;

    /// TC_DelFilter: they no longer do.
    fn del_filter(&mut self, filter: FilterOf);

    /// TC_Advertise: what a new reservation at `interface` could have, in bit/s.
    fn advertise(&self, interface: &str) -> Rate;
}

/// Where leases are asked for.
pub trait Leases {
    /// What is decided about a request.
    ///
    /// # Errors
    /// Nobody answers, and why.
    fn ask(&mut self, now: Nanos, request: &Request) -> Result<Verdict, String>;

    /// What is free of a resource, in bit/s.
    fn free(&self, resource: &str) -> Rate;
}

/// A book in this process. Its resources are those of its own domain.
impl Leases for Book {
    fn ask(&mut self, now: Nanos, request: &Request) -> Result<Verdict, String> {
        let mut events = Vec::new();
        self.apply(now, &Command::Ask(request.clone()), &mut events);
        let answer = events.into_iter().find_map(|event| match event {
            Event::Answer { lease, version, verdict } => {
                (lease == request.lease && version == request.version).then_some(verdict)
            }
            _ => None,
        });
        answer.ok_or_else(|| format!("{} waits for a neighbour", request.lease))
    }

    fn free(&self, resource: &str) -> Rate {
        self.on(resource).map_or(0, |shown| shown.capacity.saturating_sub(shown.taken))
    }
}

/// A broker that is asked over REST, on a connection for each request.
#[derive(Clone, Debug)]
pub struct AtBroker {
    /// Where it is.
    pub target: Target,
    /// Who asks, if no certificate says it.
    pub token: Option<String>,
}

impl Leases for AtBroker {
    fn ask(&mut self, _: Nanos, request: &Request) -> Result<Verdict, String> {
        let Entry { lease, version, path, rate_bps, min_bps, ttl_ms, domains } = Entry::from(request);
        let wish = Wish { version, path, rate_bps, min_bps, ttl_ms, domains };
        let answer: Result<Answer, HttpError> =
            http::put(&self.target, self.token.as_deref(), &format!("/v1/leases/{lease}"), &wish);
        answer.map(|answer| answer.verdict).map_err(|why| why.to_string())
    }

    fn free(&self, resource: &str) -> Rate {
        let now: Result<ResourcesNow, _> = http::get(&self.target, self.token.as_deref(), "/v1/resources");
        let all = now.map(|now| now.resources).unwrap_or_default();
        let found = all.iter().find(|shown| *shown.resource == *resource);
        found.map_or(0, |shown| shown.capacity_bps.saturating_sub(shown.taken_bps))
    }
}

/// Who forwards packets.
pub trait DataPlane {
    /// The packets of the reservation have this rate at `interface` from now on, in bit/s; 0: it has ended. When this
    /// returns no more is used.
    fn shape(&mut self, of: Reservation, interface: &str, rate: Rate);
    /// These packets are its own from now on, and are not evicted.
    fn pin(&mut self, of: Reservation, filter: &Filter);
    /// They no longer are.
    fn unpin(&mut self, of: Reservation, filter: &Filter);
}

/// A reservation that is there.
struct Held {
    interface: Name,
    version: u64,
    rate: Rate,
    /// When it ends if it is not refreshed.
    until: Nanos,
    filters: BTreeMap<u64, Filter>,
}

/// Reservations as leases `OWNER/rsvp-N` of the resources `INTERFACE:CLASS`.
pub struct Reservations<L, D> {
    owner: Name,
    class: Name,
    leases: L,
    plane: D,
    held: BTreeMap<Reservation, Held>,
    newest: u64,
}

impl Flowspec {
    /// The rate that a class needs for it, in bit/s.
    pub fn rate(&self) -> Rate {
        self.bucket_bps.max(self.guaranteed_bps)
    }
}

impl<L: Leases, D: DataPlane> Reservations<L, D> {
    /// None yet. They are the leases of `owner`, for the class `class` of each interface.
    pub fn new(owner: &str, class: &str, leases: L, plane: D) -> Self {
        let (owner, class) = (owner.into(), class.into());
        Reservations { owner, class, leases, plane, held: BTreeMap::new(), newest: 0 }
    }

    /// Ends what was not refreshed. Says when the next one ends, if any.
    pub fn expire(&mut self, now: Nanos) -> Option<Nanos> {
        let over: Vec<Reservation> =
            self.held.iter().filter(|(_, held)| held.until <= now).map(|(&of, _)| of).collect();
        over.into_iter().for_each(|of| self.del_flowspec(now, of));
        self.held.values().map(|held| held.until).min()
    }

    fn resource(&self, interface: &str) -> Name {
        format!("{interface}:{}", self.class).into()
    }

    /// Asks for `rate` of the lease, all or nothing. Says the version that was decided, and when the grant ends.
    fn ask(
        &mut self,
        now: Nanos,
        of: Reservation,
        interface: &str,
        mut version: u64,
        rate: Rate,
    ) -> Result<(u64, Nanos), NotAdmitted> {
        for _ in 0..2 {
            let request = Request {
                lease: format!("{}/rsvp-{}", self.owner, of.0).into(),
                version,
                path: vec![self.resource(interface)],
                rate,
                min: rate,
                ttl_ms: (LIFETIME / MILLISECOND) as u32,
                domains: Vec::new(),
            };
            match self.leases.ask(now, &request).map_err(NotAdmitted::NoAnswer)? {
                Verdict::Granted { ttl_ms, .. } => {
                    return Ok((version, now + u64::from(ttl_ms) * MILLISECOND));
                }
                // A daemon before this one had a reservation of that number.
                Verdict::Refused(Refusal::Stale { newest }) => version = newest + 1,
                Verdict::Refused(why) => return Err(NotAdmitted::Refused(why)),
            }
        }
        Err(NotAdmitted::Refused(Refusal::Stale { newest: version - 1 }))
    }
}

impl<L: Leases, D: DataPlane> TrafficControl for Reservations<L, D> {
    fn add_flowspec(
        &mut self,
        now: Nanos,
        interface: &str,
        needs: Flowspec,
    ) -> Result<Reservation, NotAdmitted> {
        self.expire(now);
        let (of, rate) = (Reservation(self.newest + 1), needs.rate());
        let (version, until) = self.ask(now, of, interface, 1, rate)?;
        self.newest += 1;
        let held = Held { interface: interface.into(), version, rate, until, filters: BTreeMap::new() };
        self.held.insert(of, held);
        self.plane.shape(of, interface, rate);
        Ok(of)
    }

    fn mod_flowspec(&mut self, now: Nanos, of: Reservation, needs: Flowspec) -> Result<(), NotAdmitted> {
        self.expire(now);
        let Held { interface, version, rate: before, .. } = self.held.get(&of).ok_or(NotAdmitted::Ended)?;
        let (interface, version, before, rate) = (interface.clone(), version + 1, *before, needs.rate());
        if rate < before {
            // Whoever needs less comes down before the broker hears of it.
            self.plane.shape(of, &interface, rate);
        }
        let asked = self.ask(now, of, &interface, version, rate);
        let held = self.held.get_mut(&of).expect("it was there");
        held.version = version;
        if rate < before {
            held.rate = rate;
        }
        (held.version, held.until) = asked?;
        if rate > before {
            held.rate = rate;
            self.plane.shape(of, &interface, rate);
        }
        Ok(())
    }

    fn del_flowspec(&mut self, now: Nanos, of: Reservation) {
        let Some(held) = self.held.remove(&of) else { return };
        held.filters.values().for_each(|filter| self.plane.unpin(of, filter));
        self.plane.shape(of, &held.interface, 0);
        // If the broker does not hear it, the lease ends by itself.
        let _ = self.ask(now, of, &held.interface, held.version + 1, 0);
    }

    fn add_filter(&mut self, of: Reservation, filter: Filter) -> Result<FilterOf, NotAdmitted> {
        let held = self.held.get_mut(&of).ok_or(NotAdmitted::Ended)?;
        let number = held.filters.last_key_value().map_or(1, |(last, _)| last + 1);
        held.filters.insert(number, filter);
        self.plane.pin(of, &filter);
        Ok(FilterOf(of, number))
    }

    fn del_filter(&mut self, FilterOf(of, number): FilterOf) {
        if let Some(filter) = self.held.get_mut(&of).and_then(|held| held.filters.remove(&number)) {
            self.plane.unpin(of, &filter);
        }
    }

    fn advertise(&self, interface: &str) -> Rate {
        self.leases.free(&self.resource(interface))
    }
}
