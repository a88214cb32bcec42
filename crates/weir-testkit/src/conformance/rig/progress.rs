//! The law of progress: no class is refused everything beside a link that idles.

use super::*;
use weir_core::Random;

/// Rounds before a class has been refused everything. An AQM that was told of an overload takes a while to forget it.
const ROUNDS: u32 = 3_000;
/// Time in which an AQM forgets, before the first round.
const REST_NS: u64 = 86_400 * 1_000_000_000;
/// The longest pause between two rounds, and between two packets of one.
const PAUSE_NS: u64 = 1_000_000_000;

/// What comes in every round: at most a packet of another class, which the link is busy with, and meanwhile
/// some of the class itself.
struct Round {
    other: Option<Arrival>,
    own: Vec<(u64, Arrival)>,
    busy_ns: u64,
}

impl Rig {
    /// The same few packets come again and again, and all leave or are dropped in between. Of each class at least one
    /// must have left, unless it waits for a rate or the suite's own discipline drops all. Where a discipline promises
    /// that nothing late is sent (JoBS, `relax loss-first`), a packet that was late when the link asked for it counts, too.
    pub(super) fn progress(&mut self) -> Law {
        let mut random = Random::new(self.seed ^ 0x9106_4e55);
        self.cx.now += Duration::from_nanos(REST_NS);
        for leaf in 0..self.waiting.leaves() as u32 {
            if !self.waiting.must_send(leaf) {
                continue;
            }
            let round = self.draw_round(&mut random, leaf);
            self.late[leaf as usize] = false;
            let before = self.sent_of(leaf);
            for round_number in 0.. {
                let late = self.late[leaf as usize] && self.waiting.drops_late(leaf);
                if late || self.sent_of(leaf) > before {
                    self.summary.progressed += 1;
                    break;
                }
                if self.cx.now > END || self.queued.packets > 0 {
                    // What still waits may leave after the end of time: that is not judged.
                    self.flush(DropReason::Portdown)?;
                    break;
                }
                if round_number == ROUNDS {
                    return Err(format!(
                        "progress: class {} (leaf {leaf}) sent nothing in {ROUNDS} rounds of {} packets, and the link idled after each",
                        self.waiting.class(leaf),
                        round.own.len()
                    ));
                }
                self.play(&round)?;
            }
        }
        Ok(())
    }
    fn draw_round(&self, random: &mut Random, leaf: u32) -> Round {
        let longest = u64::from(self.cx.link.mtu.min(1_500));
        let mut arrival = |leaf: u32| Arrival {
            len: (40 + random.below(longest - 39)) as u32,
            leaf,
            flow: random.below(u64::from(FLOWS)) as u32,
            dscp: random.below(64) as u8,
        };
        // A packet that is held for ever would keep the link from being idle.
        let mut others = (leaf + 1..self.waiting.leaves() as u32).chain(0..leaf);
        let other = others.find(|&other| self.waiting.must_send(other)).map(&mut arrival);
        let own = [arrival(leaf), arrival(leaf), arrival(leaf)];
        let busy_ns = self
            .cx
            .link
            .time_for(other.as_ref().map_or(own[0].len, |other| other.len))
            .ceil()
            .as_nanos()
            .min(PAUSE_NS);
        let count = 1 + random.below(own.len() as u64) as usize;
        let mut at: Vec<u64> = (0..count).map(|_| random.below(busy_ns + 1)).collect();
        at.sort_unstable();
        let other = other.filter(|_| random.below(2) == 0);
        Round { other, own: at.into_iter().zip(own).collect(), busy_ns }
    }
    /// A link that is free takes what comes at once, and what has come meanwhile when it is free again.
    fn play(&mut self, round: &Round) -> Law {
        let mut free = self.cx.now;
        if let Some(other) = &round.other {
            self.enqueue(other)?;
            // A packet that is held back could fill the buffer.
            if !self.take_one(&mut free)? {
                self.drain()?;
            }
        }
        let start = self.cx.now;
        for (at_ns, arrival) in &round.own {
            let at = start + Duration::from_nanos(*at_ns);
            while free <= at && self.queued.packets > 0 && self.take_one(&mut free)? {}
            self.cx.now = self.cx.now.max(at);
            self.enqueue(arrival)?;
        }
        while self.queued.packets > 0 && self.take_one(&mut free)? {}
        self.drain()?;
        while !self.in_flight.is_empty() {
            self.complete()?;
        }
        self.cx.now = self.cx.now.max(free) + Duration::from_nanos(10 * round.busy_ns);
        Ok(())
    }
    /// Asks for a packet when the link is free, and keeps it busy with it. False if none came.
    fn take_one(&mut self, free: &mut Instant) -> Result<bool, String> {
        self.cx.now = self.cx.now.max(*free);
        let head = self.take()?;
        self.settle(None)?;
        let Head::Packet { len } = head else { return Ok(false) };
        let busy_ns = self.cx.link.time_for(len).ceil().as_nanos();
        *free = self.cx.now + Duration::from_nanos(busy_ns.min(PAUSE_NS));
        Ok(true)
    }
    /// The serial numbers after the last that left, of all flows of a leaf.
    fn sent_of(&self, leaf: u32) -> u32 {
        let first = (leaf * FLOWS) as usize;
        self.left[first..first + FLOWS as usize].iter().copied().max().unwrap_or(0)
    }
}
