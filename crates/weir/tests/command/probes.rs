//! Numbered packets through a box, and what became of them: lost, twice, overtaken, late.

use crate::bed::Held;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use weir_core::units::{Duration, Instant};

/// Runs `act` on a thread in a network namespace, before all ordinary threads.
fn within<T: Send + 'static>(namespace: &Held, act: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let pid = namespace.0.id();
    std::thread::spawn(move || {
        weir_sys::enter_network_of(pid).unwrap();
        weir_sys::take_priority(weir_sys::Priority::Fifo);
        act()
    })
}

/// What a sender sends: so many packets per second, in turn from so many flows. Flow n has the source
/// port [`Load::SOURCE`] + n.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub rate_pps: u32,
    pub flows: u16,
    /// Of a UDP packet; a frame on the wire has 66 more.
    pub payload_bytes: usize,
}

impl Load {
    /// The source port of the first flow.
    pub const SOURCE: u16 = 6_000;
    /// Where all flows go.
    pub const TARGET: u16 = 5_001;

    /// What it takes of a link, in bit/s, gaps and preambles counted.
    pub fn bps(self) -> u64 {
        u64::from(self.rate_pps) * (self.payload_bytes as u64 + 66) * 8
    }
    fn period(self) -> Duration {
        Duration::from_nanos(1_000_000_000 / u64::from(self.rate_pps))
    }
}

/// Probes on their way, until they are counted.
pub struct Probes {
    load: Load,
    stop: Arc<AtomicBool>,
    sender: JoinHandle<Vec<Instant>>,
    receiver: JoinHandle<Vec<(u32, Instant)>>,
}

/// All that is known of the probes of a run.
pub struct Seen {
    load: Load,
    /// When each was sent, by number.
    sent: Vec<Instant>,
    /// Number and time of each that came, in the order in which they came.
    came: Vec<(u32, Instant)>,
}

/// What became of the probes that were sent in some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fate {
    pub sent: u32,
    pub lost: u32,
    /// Arrivals of what had come before.
    pub twice: u32,
    /// Arrivals behind a later packet of the same flow.
    pub overtaken: u32,
    /// The longest time in which each probe that was sent was lost, or came later than [`LATE`].
    pub outage: Duration,
}

/// From here on a probe counts as missed. What waits in a queue at 80 % of a link waits for less.
pub const LATE: Duration = Duration::from_millis(50);

impl Probes {
    /// From `from`, an address of the host `sender`, to `to` of the host `receiver`.
    pub fn start(sender: (&Held, Ipv4Addr), receiver: (&Held, Ipv4Addr), load: Load) -> Probes {
        let stop = Arc::new(AtomicBool::new(false));
        let (from, to) = (sender.1, receiver.1);
        let (told, ready) = channel();
        let (heard, none_more) = (told.clone(), stop.clone());
        let receiver = within(receiver.0, move || {
            let socket = UdpSocket::bind((to, Load::TARGET)).unwrap();
            weir_sys::socket::set_receive_buffer(socket.as_fd(), 32 << 20).unwrap();
            socket.set_read_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
            heard.send(()).unwrap();
            let (mut came, mut buffer) = (Vec::new(), [0; 2_048]);
            loop {
                let more = !none_more.load(Ordering::Relaxed);
                match socket.recv(&mut buffer) {
                    Ok(_) => {
                        let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
                        came.push((number, weir_sys::now()));
                    }
                    Err(_) if more => {}
                    Err(_) => return came,
                }
            }
        });
        ready.recv().unwrap();
        let ended = stop.clone();
        let sender = within(sender.0, move || {
            // A virtual link has a queue for each processor: a sender that moves overtakes itself.
            let _ = weir_sys::pin_to(0);
            let sockets: Vec<UdpSocket> = (0..load.flows)
                .map(|flow| {
                    let socket = UdpSocket::bind((from, Load::SOURCE + flow)).unwrap();
                    socket.connect((to, Load::TARGET)).unwrap();
                    socket
                })
                .collect();
            told.send(()).unwrap();
            let (start, mut sent) = (weir_sys::now(), Vec::new());
            let mut probe = vec![0; load.payload_bytes];
            while !ended.load(Ordering::Relaxed) {
                let number = sent.len() as u32;
                probe[..4].copy_from_slice(&number.to_be_bytes());
                sent.push(weir_sys::now());
                let _ = sockets[number as usize % sockets.len()].send(&probe);
                weir_sys::sleep_until(start + load.period().saturating_mul(sent.len() as u64));
            }
            sent
        });
        ready.recv().unwrap();
        Probes { load, stop, sender, receiver }
    }

    /// Ends them: none comes for a second.
    pub fn end(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().unwrap();
        Seen { load: self.load, sent, came: self.receiver.join().unwrap() }
    }
}

impl Seen {
    /// A run of which all is known: when each was sent, and number and time of each that came.
    pub fn of(load: Load, sent: Vec<Instant>, came: Vec<(u32, Instant)>) -> Seen {
        Seen { load, sent, came }
    }

    /// Of all of them.
    pub fn fate(&self) -> Fate {
        self.between(Instant::ZERO, Instant::NEVER)
    }

    /// Of those that were sent from `from` until before `to`.
    pub fn between(&self, from: Instant, to: Instant) -> Fate {
        let first = self.sent.partition_point(|at| *at < from);
        let sent = &self.sent[first..self.sent.partition_point(|at| *at < to).max(first)];
        let mut fate = Fate { sent: sent.len() as u32, ..Fate::default() };
        let mut arrived: Vec<Option<Instant>> = vec![None; sent.len()];
        let mut highest = vec![None; usize::from(self.load.flows)];
        for &(number, at) in &self.came {
            let flow = &mut highest[number as usize % usize::from(self.load.flows)];
            let overtaken = flow.is_some_and(|highest| number < highest);
            *flow = (*flow).max(Some(number));
            let Some(place) = (number as usize).checked_sub(first).and_then(|n| arrived.get_mut(n)) else {
                continue;
            };
            match place {
                Some(_) => fate.twice += 1,
                None => fate.overtaken += u32::from(overtaken),
            }
            place.get_or_insert(at);
        }
        fate.lost = arrived.iter().filter(|at| at.is_none()).count() as u32;
        fate.outage = self.outage(sent, &arrived);
        fate
    }

    fn outage(&self, sent: &[Instant], arrived: &[Option<Instant>]) -> Duration {
        // A sender that slept tells nothing of the box in that time.
        let most = self.load.period().saturating_mul(4);
        let next = sent.iter().skip(1).chain(self.sent.last());
        let (mut longest, mut present) = (Duration::ZERO, Duration::ZERO);
        for ((at, next), arrived) in sent.iter().zip(next).zip(arrived) {
            let missed = arrived.is_none_or(|arrived| arrived.since(*at) > LATE);
            present = if missed { present + next.since(*at).min(most) } else { Duration::ZERO };
            longest = longest.max(present);
        }
        longest
    }

    /// How long it took until one came that was sent after `from`.
    pub fn until_one_came(&self, from: Instant) -> Option<Duration> {
        let first = self.sent.partition_point(|at| *at < from) as u32;
        self.came.iter().find(|(number, _)| *number >= first).map(|(_, at)| at.since(from))
    }

    /// When those that never came were sent.
    pub fn lost_at(&self) -> Vec<Instant> {
        let mut came = vec![false; self.sent.len()];
        self.came.iter().for_each(|(number, _)| came[*number as usize] = true);
        self.sent.iter().zip(came).filter(|(_, came)| !came).map(|(at, _)| *at).collect()
    }

    /// Arrivals behind a later packet, in these flows alone.
    pub fn overtaken_in(&self, wanted: impl Fn(u16) -> bool) -> u32 {
        let flow_of = |number: u32| (number % u32::from(self.load.flows)) as u16;
        let of = self.came.iter().filter(|(number, _)| wanted(flow_of(*number))).copied().collect();
        Seen { load: self.load, sent: self.sent.clone(), came: of }.fate().overtaken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load { rate_pps: 1_000, flows: 2, payload_bytes: 100 };

    /// A hundred probes that came a millisecond after they were sent, spoiled by `fault`.
    fn seen(fault: impl FnOnce(&mut Vec<(u32, Instant)>)) -> Fate {
        let at = |number: u32| Instant::from_millis(1_000 + u64::from(number));
        let sent = (0..100).map(at).collect();
        let mut came = (0..100).map(|n| (n, at(n) + Duration::from_millis(1))).collect();
        fault(&mut came);
        Seen::of(LOAD, sent, came).fate()
    }

    /// The judge sees each fault, and none where there is none.
    #[test]
    fn every_fault_is_seen() {
        let well = Fate { sent: 100, ..Fate::default() };
        let ms = Duration::from_millis;
        assert_eq!(seen(|_| {}), well);
        assert_eq!(
            seen(|came| came.retain(|(number, _)| *number != 40)),
            Fate { lost: 1, outage: ms(1), ..well }
        );
        assert_eq!(seen(|came| drop(came.drain(40..60))), Fate { lost: 20, outage: ms(20), ..well });
        assert_eq!(seen(|came| came.insert(50, came[40])), Fate { twice: 1, ..well });
        // Of the other flow, and of the same.
        assert_eq!(seen(|came| came.swap(40, 41)), well);
        assert_eq!(seen(|came| came.swap(40, 42)), Fate { overtaken: 1, ..well });
        assert_eq!(seen(|came| came[40].1 += LATE), Fate { outage: ms(1), ..well });
        // What is lost at the end is an outage, too.
        assert_eq!(seen(|came| came.truncate(90)), Fate { lost: 10, outage: ms(9), ..well });
    }

    #[test]
    fn a_window_has_its_own_probes_alone() {
        let at = |number: u32| Instant::from_millis(u64::from(number));
        let came = (0..100).filter(|n| !(20..30).contains(n)).map(|n| (n, at(n))).collect();
        let seen = Seen::of(LOAD, (0..100).map(at).collect(), came);
        let of = |from, to| seen.between(Instant::from_millis(from), Instant::from_millis(to));
        assert_eq!(of(0, 20), Fate { sent: 20, ..Fate::default() });
        assert_eq!((of(15, 25).lost, of(25, 35).lost, of(30, 100).lost), (5, 5, 0));
        assert_eq!(seen.until_one_came(Instant::from_millis(22)), Some(Duration::from_millis(8)));
        assert_eq!(seen.lost_at(), (20..30).map(at).collect::<Vec<_>>());
        assert_eq!((seen.overtaken_in(|_| true), seen.overtaken_in(|flow| flow == 1)), (0, 0));
    }
}
