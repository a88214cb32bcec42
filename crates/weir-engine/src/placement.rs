//! On which processor a worker runs.
//!
//! The kernel puts a frame into a socket on the processor that received it. A worker of the same processor begins at
//! once, without an interrupt to another one. But it takes turns with the kernel, frame by frame: on a virtual
//! machine of two processors a packet then cost 12 us, and 71,000 passed a second. On the other processor a packet cost
//! 4 us, and 330,000 passed; a ping took 100 us there, and 45 on the same one.
//!
//! So a worker that has much to do leaves the processors that receive, and one that has little to do goes to one of
//! them. The system leaves a thread where it was, under `SCHED_FIFO` in any case: by itself it does neither.
//!
//! No worker is pinned by that: if something more urgent needs its processor, the system moves it to another one.
//!
//! A move may not help: what a host answers at once, over a virtual cable, comes on the processor of the worker that sent to
//! it, wherever that is. So a wish to move that comes again soon has to wait, each time twice as long.

use weir_core::units::{Duration, Instant};

/// On which processor a worker runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Processor {
    /// Where it serves best: see the head of this file. Of several workers each has another turn, so that they go to
    /// different ones.
    Best {
        /// How many choose before it.
        turn: usize,
    },
    /// It begins on this one, and stays as long as the system sees no reason to move it.
    First(usize),
    /// On this one.
    Only(usize),
}

impl Default for Processor {
    fn default() -> Self {
        Processor::Best { turn: 0 }
    }
}

impl Processor {
    /// That of a worker, if so many were started before it and there are `workers` in all. One that is `bound` has one for
    /// itself, because it polls without end, is one of several of a bridge, or nobody notes where its frames come. So has each where there are as many
    /// as processors: two of `SCHED_FIFO` on one were a third as fast as a single one, and the system may leave them there.
    /// They are given out from the last on, because the system prefers the first for its own work.
    pub fn of_worker(turn: usize, workers: usize, bound: bool) -> Processor {
        let allowed = weir_sys::processors().unwrap_or_default();
        Processor::of(turn, workers, bound, &allowed)
    }

    fn of(turn: usize, workers: usize, bound: bool, allowed: &[usize]) -> Processor {
        if !bound && workers < allowed.len() {
            return Processor::Best { turn };
        }
        let from_last = allowed.len().checked_sub(1 + turn % allowed.len().max(1));
        from_last.map_or(Processor::Best { turn }, |place| Processor::First(allowed[place]))
    }
}

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// From so many thousandths of its processor on a worker has much to do.
const BUSY: u64 = 100;
/// Below so many it has little to do. A packet costs up to three times as much on the processor that receives: what is busy
/// there has more to do than this elsewhere.
const CALM: u64 = 25;
/// It has had little to do when so many looks in turn found so: 0.2 s.
const CALM_LOOKS: u32 = 10;
/// The longest that a wish waits, in looks: a minute.
const LONGEST_WAIT: u32 = 3_000;
/// After so many looks without a wish, 10 s, the next one is granted at once.
const CONTENT: u32 = 500;

/// What decides it.
pub(crate) struct Placement {
    /// The processors that the thread may run on.
    allowed: Vec<usize>,
    turn: usize,
    looked: Instant,
    /// The processor time that the thread had used then.
    used: Duration,
    calm_looks: u32,
    /// Looks since the last move.
    stayed: u32,
    /// How many looks a wish waits for after a move.
    wait: u32,
    /// Looks since the last wish.
    content: u32,
}

impl Placement {
    /// Of the calling thread, if it may run on more than one processor.
    pub(crate) fn of_this_thread(now: Instant, turn: usize) -> Option<Placement> {
        let allowed = weir_sys::processors().ok().filter(|all| all.len() > 1)?;
        Some(Placement { looked: now, used: weir_sys::thread_cpu(), ..Placement::new(allowed, turn) })
    }

    /// Of a thread that has had nothing to do so far.
    fn new(allowed: Vec<usize>, turn: usize) -> Placement {
        let (looked, used) = (Instant::ZERO, Duration::ZERO);
        Placement { allowed, turn, looked, used, calm_looks: CALM_LOOKS, stayed: 0, wait: 0, content: 0 }
    }

    /// Moves the calling thread, if it is time to. `receiving` answers the processors on which frames came since it
    /// was asked last.
    pub(crate) fn look(&mut self, now: Instant, receiving: impl FnOnce() -> [Option<usize>; 2]) {
        let window = now.since(self.looked);
        if window < LOOK {
            return;
        }
        let used = weir_sys::thread_cpu();
        let busy = used.saturating_sub(self.used).as_nanos() * 1000 / window.as_nanos();
        (self.looked, self.used) = (now, used);
        let Some(own) = weir_sys::processor() else { return };
        if let Some(better) = self.decide(own, receiving(), busy) {
            // What the system refuses leaves the thread where it is.
            let _ = weir_sys::move_to(better, &self.allowed);
        }
    }

    /// The processor that the thread is to move to, if it is.
    fn decide(&mut self, own: usize, receiving: [Option<usize>; 2], busy: u64) -> Option<usize> {
        self.stayed = self.stayed.saturating_add(1);
        let Some(wish) = self.wish(own, receiving, busy) else {
            self.content += 1;
            if self.content >= CONTENT {
                (self.content, self.wait) = (0, 0);
            }
            return None;
        };
        self.content = 0;
        if self.stayed <= self.wait {
            return None;
        }
        (self.stayed, self.wait) = (0, (2 * self.wait).clamp(1, LONGEST_WAIT));
        Some(wish)
    }

    /// A processor that is better for a thread than its `own`, if one is. It was busy for so many thousandths
    /// of the time.
    fn wish(&mut self, own: usize, receiving: [Option<usize>; 2], busy: u64) -> Option<usize> {
        let receives = |cpu: &usize| receiving.contains(&Some(*cpu));
        self.calm_looks = if busy < CALM { self.calm_looks.saturating_add(1) } else { 0 };
        if busy >= BUSY && receives(&own) {
            let others: Vec<usize> = self.allowed.iter().copied().filter(|cpu| !receives(cpu)).collect();
            return others.get(self.turn % others.len().max(1)).copied();
        }
        if self.calm_looks < CALM_LOOKS {
            return None;
        }
        let near = |cpu: &usize| *cpu != own && self.allowed.contains(cpu);
        receiving.into_iter().flatten().find(near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(allowed: &[usize]) -> Placement {
        Placement::new(allowed.to_vec(), 0)
    }

    #[test]
    fn a_busy_worker_leaves_the_processors_that_receive() {
        let mut on = placement(&[0, 1, 2, 5]);
        assert_eq!(on.wish(0, [Some(0), None], BUSY), Some(1));
        assert_eq!(on.wish(0, [Some(0), Some(1)], 1000), Some(2));
        assert_eq!(on.wish(1, [Some(0), Some(1)], 1000), Some(2));
        // Another worker takes another one.
        let seconds = |turn| Placement::new(vec![0, 1, 2, 5], turn).wish(0, [Some(0), None], 1000);
        assert_eq!([1, 2, 3].map(seconds), [Some(2), Some(5), Some(1)]);
        // Less to do, elsewhere already, nothing comes, nowhere else to go.
        assert_eq!(on.wish(0, [Some(0), None], BUSY - 1), None);
        assert_eq!(on.wish(1, [Some(0), Some(2)], 1000), None);
        assert_eq!(on.wish(1, [None, None], 1000), None);
        assert_eq!(placement(&[0, 1]).wish(0, [Some(0), Some(1)], 1000), None);
    }

    #[test]
    fn a_calm_worker_goes_where_frames_come_after_a_while() {
        let mut on = placement(&[0, 1]);
        on.calm_looks = 0;
        let mut looks =
            |busy, receiving, count| (0..count).map(|_| on.wish(1, receiving, busy)).collect::<Vec<_>>();
        let came = [Some(0), None];
        assert!(looks(CALM - 1, came, CALM_LOOKS - 1).iter().all(Option::is_none));
        // Once with something to do: the while begins anew.
        assert_eq!(looks(CALM, came, 1), [None]);
        assert!(looks(CALM - 1, came, CALM_LOOKS - 1).iter().all(Option::is_none));
        assert_eq!(looks(CALM - 1, came, 1), [Some(0)]);
        // Where no frame comes there is nowhere to go, nor to a processor that it may not run on.
        assert!(looks(0, [None, None], 2 * CALM_LOOKS).iter().all(Option::is_none));
        assert!(looks(0, [Some(7), Some(1)], 2 * CALM_LOOKS).iter().all(Option::is_none));
        assert_eq!(looks(0, [Some(1), Some(0)], 1), [Some(0)]);
    }

    #[test]
    fn workers_share_processors_only_where_there_are_too_few() {
        let of = |turn, workers, bound| Processor::of(turn, workers, bound, &[2, 3, 7]);
        assert_eq!([0, 1].map(|turn| of(turn, 2, false)), [0, 1].map(|turn| Processor::Best { turn }));
        assert_eq!([0, 1, 2, 3].map(|turn| of(turn, 4, false)), [7, 3, 2, 7].map(Processor::First));
        assert_eq!([0, 1].map(|turn| of(turn, 2, true)), [7, 3].map(Processor::First));
        assert_eq!(Processor::of(5, 1, true, &[]), Processor::Best { turn: 5 });
    }

    /// Answers come on the processor of the worker, wherever it goes: it goes there more and more rarely. Once that
    /// has ended, it goes at once.
    #[test]
    fn moves_that_do_not_help_become_rare() {
        let mut on = placement(&[0, 1, 2, 3]);
        let mut own = 1;
        let mut moves = 0;
        for _ in 0..60 * 50 {
            if let Some(better) = on.decide(own, [Some(0), Some(own)], 500) {
                (own, moves) = (better, moves + 1);
            }
        }
        assert!((8..=13).contains(&moves), "{moves} moves in a minute");
        assert_eq!(on.decide(0, [Some(0), None], 500), None);
        assert!((0..CONTENT).all(|_| on.decide(own, [Some(0), None], 500).is_none()));
        assert!(on.decide(0, [Some(0), None], 500).is_some());
    }
}
