//! A flow as a row of numbers, on its way into another table.

use super::{Body, Cause, Flow, Links, Outside, Part, Standing, State};
use crate::admit::Evict;
use crate::recognise::{Found, Kind, Sign, Trial};
use crate::sla::Own;
use weir_core::units::{Duration, Fraction, Instant};

/// Numbers of a flow: nine that all have, six of how it was found, nine of what it is.
pub(crate) const ROW: usize = 24;

fn halves(number: u128) -> [u64; 2] {
    [number as u64, (number >> 64) as u64]
}

fn whole(low: u64, high: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

fn kind_of(index: u64, at: u64) -> Option<Kind> {
    let further = Kind::Further(at as u8);
    let all = [Kind::Rtp, Kind::Turn, further, Kind::Statistical, Kind::Marked, Kind::Aggregate];
    all.into_iter().find(|kind| kind.index() as u64 == index)
}

fn cause_of(cause: &Cause) -> [u64; 4] {
    match *cause {
        Cause::Load { load_bps, limit_bps, accept } => [0, load_bps, limit_bps, accept.raw()],
        Cause::Full { flows } => [1, flows.into(), 0, 0],
        Cause::Above { offered_bps, limit_bps, drop, evict } => {
            [2 | (evict as u64) << 8, offered_bps, limit_bps, drop.raw()]
        }
        Cause::Congested => [3, 0, 0, 0],
        Cause::Order => [4, 0, 0, 0],
    }
}

fn to_cause([cause, first, limit_bps, share]: [u64; 4]) -> Option<Cause> {
    let share = Fraction::ratio(share, 1 << 32);
    Some(match cause & 0xff {
        0 => Cause::Load { load_bps: first, limit_bps, accept: share },
        1 => Cause::Full { flows: first as u32 },
        2 => {
            let evict = Evict::ALL.get((cause >> 8) as usize).copied()?;
            Cause::Above { offered_bps: first, limit_bps, drop: share, evict }
        }
        3 => Cause::Congested,
        4 => Cause::Order,
        _ => return None,
    })
}

impl Flow {
    /// Whether it is passed on. What is on trial is found anew within a few packets, but who pinned it would
    /// have to do so again.
    pub(crate) fn is_passed(&self) -> bool {
        self.standing().is_some() || self.is_pinned()
    }

    /// Its numbers, where what its bucket has was brought up to `now`.
    pub(crate) fn row(&self, now: Instant) -> [u64; ROW] {
        let mut row = [0; ROW];
        [row[0], row[1]] = halves(self.src);
        [row[2], row[3]] = halves(self.dst);
        [row[4], row[5], row[6]] = [self.src_port.into(), self.dst_port.into(), self.contract.into()];
        [row[7], row[8], row[14]] = [self.last.as_nanos(), self.state() as u64, self.is_pinned().into()];
        if let Some(standing) = self.standing() {
            let Standing { ssrc, span_ms, kind, packets, pinned: _ } = *standing;
            let at = if let Kind::Further(at) = kind { at } else { 0 };
            [row[9], row[10]] = [ssrc.into(), span_ms.into()];
            [row[11], row[12], row[13]] = [kind.index() as u64, at.into(), packets.into()];
        }
        match &self.body {
            Body::Admitted { packets, bytes, part } => {
                [row[15], row[16]] = [part.since.as_nanos(), part.best_effort_until.as_nanos()];
                [row[17], row[18]] = [(*bytes).into(), part.last_bytes.into()];
                [row[19], row[20]] = [(*packets).into(), part.last_packets.into()];
                [row[21], row[23]] = [part.own.tokens(), now.as_nanos()];
            }
            Body::Outside(Outside { refused: Some((at, cause)), .. }) => {
                row[15] = at.as_nanos();
                row[16..20].copy_from_slice(&cause_of(cause));
            }
            Body::Free | Body::Candidate(..) | Body::Outside(_) => {}
        }
        row
    }

    /// The flow with these numbers, in no list. None if they mean nothing.
    pub(crate) fn of_row(row: &[u64; ROW]) -> Option<Flow> {
        let last = Instant::from_nanos(row[7]);
        let pinned = row[14] != 0;
        let span = Duration::from_millis(row[10]);
        let found =
            Found { kind: kind_of(row[11], row[12])?, ssrc: row[9] as u32, packets: row[13] as u8, span };
        let standing = Standing::new(&found, pinned);
        let body = match row[8] {
            n if n == State::Candidate as u64 => {
                let mut trial = Trial::new(last);
                trial.set(Sign::Pinned, pinned);
                Body::Candidate(trial, Links::NONE)
            }
            // The meter of its class begins anew, and so does what it sent in the present window.
            n if n == State::Admitted as u64 => Body::Admitted {
                packets: 0,
                bytes: 0,
                part: Part {
                    own: Own::new(row[21], row[22]),
                    since: Instant::from_nanos(row[15]),
                    best_effort_until: Instant::from_nanos(row[16]),
                    last_bytes: row[18] as u32,
                    last_packets: row[20] as u16,
                    last_charged: row[18] as u32,
                    uncharged: 0,
                    expected_bps: 0,
                    place: 0,
                    standing,
                },
            },
            n if n == State::Refused as u64 => {
                let cause = to_cause([row[16], row[17], row[18], row[19]])?;
                Body::Outside(Outside { refused: Some((Instant::from_nanos(row[15]), cause)), standing })
            }
            n if n == State::Silent as u64 => Body::Outside(Outside { refused: None, standing }),
            _ => return None,
        };
        Some(Flow {
            src: whole(row[0], row[1]),
            dst: whole(row[2], row[3]),
            src_port: row[4] as u16,
            dst_port: row[5] as u16,
            contract: row[6] as u32,
            last,
            body,
        })
    }
}
