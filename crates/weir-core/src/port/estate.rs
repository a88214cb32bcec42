//! What a port leaves to one in another process, and how that one goes on with it.
//!
//! A swap gives one port another configuration. Here the port itself is another one, in a process that
//! takes over from this one. It gets the packets that wait, in order, with what was decided of
//! them, the accounts by the names of classes, and what is in the bucket. Disciplines, conditioners
//! and AQMs begin anew, as they do in a swap that exchanges the tree.

use super::ledger::{Account, Ledger};
use super::room::Room;
use super::succession::heirs;
use super::wire::Wire;
use super::{Event, EventKind, Port};
use crate::packet::{Meta, PacketState};
use crate::queue::DropReason;
use crate::units::Instant;
use alloc::string::String;
use alloc::vec::Vec;

/// What a port has, without its disciplines.
#[derive(Clone, Debug, Default)]
pub struct Estate {
    /// The names of the leaves, in the order of `Meta::leaf`, and their accounts.
    pub leaves: Vec<(String, Account)>,
    /// The account of control packets that went first.
    pub control: Account,
    /// The account of leaves that a swap took away.
    pub gone: Account,
    /// Packets that wait, in order of arrival, their times by the host's clock.
    pub packets: Vec<Meta>,
    /// Whole bytes in the regulator's bucket, below zero after a packet longer than it; `None` where
    /// there is none.
    pub tokens_bytes: Option<i64>,
    /// `Port::reassigned`, `Port::wake_ups` and `Port::refills`.
    pub counts: [u64; 3],
}

impl Port {
    /// What this port has at `now`, to be gone on with elsewhere: a copy. The port has been advanced to
    /// `now`. What is on an emulated link is left out, for that link belongs to the host.
    pub fn estate(&self, now: Instant) -> Estate {
        let names = self.leaves.iter().map(|leaf| String::from(&*leaf.name));
        let mut packets = self.cx.packets.waiting();
        for meta in &mut packets {
            meta.arrival = self.clock.came(meta.arrival);
        }
        Estate {
            leaves: names.zip(self.ledger.leaves.iter().copied()).collect(),
            control: self.ledger.control,
            gone: self.ledger.gone(),
            packets,
            tokens_bytes: match &self.wire {
                Wire::Bucket(bucket) => Some(bucket.level_bytes(self.clock.tree(now))),
                _ => None,
            },
            counts: [self.reassigned, self.wake_ups, self.refills],
        }
    }

    /// Goes on with what another port had, before any packet has come to this one. A packet keeps its
    /// class by its name, or goes to the default one. No queue drops it, as in a swap. The bucket has
    /// what the other's had, at most its own depth. The host names the frames of `estate.packets` as its own.
    ///
    /// A packet for which the table has no row is dropped as `Nobuf`: compare `Port::capacity` first.
    pub fn inherit(&mut self, now: Instant, estate: Estate, host: &mut impl FnMut(Event<'_>)) {
        self.run(now, false, host);
        let Estate { leaves, control, gone, packets, tokens_bytes, counts } = estate;
        let heir = heirs(leaves.iter().map(|(name, _)| &**name), &self.leaves, self.default_leaf);
        let accounts: Vec<Account> = leaves.iter().map(|(_, account)| *account).collect();
        let mut moved = Vec::new();
        let mut inherited = Vec::with_capacity(packets.len());
        for mut meta in packets {
            let (leaf, same) = heir.get(meta.leaf as usize).copied().unwrap_or((self.default_leaf, true));
            meta.leaf = leaf;
            if !same && !meta.control {
                moved.push((leaf, meta.len));
            }
            inherited.push(meta);
        }
        self.ledger = Ledger::of(accounts, control, gone);
        self.ledger.inherit(&heir, self.leaves.len(), &moved);
        let [reassigned, wake_ups, refills] = counts;
        self.reassigned = reassigned + moved.len() as u64;
        (self.wake_ups, self.refills) = (wake_ups, refills);
        let mut queued = Vec::with_capacity(inherited.len());
        for mut meta in inherited {
            (meta.order, meta.state) = (self.order, PacketState::Held);
            self.order = self.order.wrapping_add(1);
            meta.arrival = self.clock.tree(meta.arrival);
            match self.cx.packets.insert(meta) {
                Ok(id) if self.cx.packets.get(&id).control => {
                    self.lane.queue.push_back(&mut self.cx.packets, id);
                }
                Ok(id) => queued.push(id),
                Err(meta) => {
                    match meta.control {
                        true => self.ledger.control.drop(meta.len, DropReason::Nobuf),
                        false => self.ledger.dropped(meta.leaf, meta.len, DropReason::Nobuf),
                    }
                    host(Event { at: now, meta: &meta, kind: EventKind::Dropped(DropReason::Nobuf) });
                }
            }
        }
        self.room = Room::new(
            self.leaves.iter().map(|leaf| leaf.limit),
            self.wire.ring_size(),
            self.capacity(),
            &self.ledger,
        );
        if let (Wire::Bucket(bucket), Some(tokens_bytes)) = (&mut self.wire, tokens_bytes) {
            bucket.set_level(self.cx.now, tokens_bytes);
        }
        self.take_on(queued, host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::classify::Classifier;
    use crate::packet::FrameRef;
    use crate::port::{PortConfig, PortPlan, Protect, WireConfig};
    use crate::queue::{Link, Params, Value, Verdict};
    use crate::sched::{ClassConfig, Node, Registry};
    use crate::units::{Duration, Rate};

    const MTU: u32 = 1_500;

    fn link() -> Link {
        Link::new(Rate::from_mbps(10), 0, MTU)
    }

    fn plan(names: &[&str]) -> PortPlan {
        let class = |(n, name): (usize, &&str)| ClassConfig {
            name: (*name).into(),
            params: Params::new().with("priority", Value::Count(n as u64)),
            ..ClassConfig::default()
        };
        let classes: Vec<ClassConfig> = names.iter().enumerate().map(class).collect();
        let node = Node { discipline: "priq".into(), classes, ..Node::default() };
        let mut tree = Registry::builtin().build(&node, link()).unwrap();
        tree.default_leaf = Some(0);
        PortPlan { protect: Some(Protect::of(&link())), ..PortPlan::new(tree, Classifier::empty()) }
    }

    fn port(names: &[&str], capacity: u32) -> Port {
        let wire = WireConfig::Regulator { depth_bytes: 3_000 };
        Port::new(PortConfig { capacity, ..PortConfig::new(link(), wire) }, plan(names))
    }

    /// What left, by frame, until nothing waits.
    fn drain(port: &mut Port) -> Vec<(u32, Instant)> {
        let mut sent = Vec::new();
        while port.next_wake_up() < Instant::NEVER {
            port.advance(port.next_wake_up(), &mut |Event { at, meta, kind }| {
                if kind == EventKind::Sent {
                    sent.push((meta.frame.0, at));
                }
            });
        }
        sent
    }

    /// Random traffic; then one of two equal ports goes on as another one. Both send the same packets, each class
    /// in its order, and are done at the same time. Their accounts end alike.
    #[test]
    fn an_heir_sends_what_the_port_would_have_sent() {
        for seed in weir_seed::seeds(100) {
            let mut random = Random::new(seed);
            let names = ["a", "b", "c"];
            let [mut stays, mut goes] = [port(&names, 400), port(&names, 400)];
            let mut now = Instant::from_millis(random.below(1_000));
            let mut classes = Vec::new();
            for frame in 0..100 + random.below(200) as u32 {
                now += Duration::from_micros(random.below(800));
                let (leaf, len) = (random.below(3) as u32, 60 + random.below(1_400) as u32);
                let control = random.below(10) == 0;
                classes.push(leaf as usize + if control { 3 } else { 0 });
                for port in [&mut stays, &mut goes] {
                    let mut meta = Meta::new(len, now, FrameRef(frame));
                    meta.leaf = leaf;
                    let _ = port.offer(now, meta.with_control(control), &mut |_| {});
                }
            }
            for port in [&mut stays, &mut goes] {
                port.advance(now, &mut |_| {});
            }
            let mut heir = port(&names, 400);
            let mut sent = Vec::new();
            heir.inherit(now, goes.estate(now), &mut |event| {
                if event.kind == EventKind::Sent {
                    sent.push((event.meta.frame.0, event.at));
                }
            });
            heir.check().unwrap();
            sent.extend(drain(&mut heir));
            let expected = drain(&mut stays);
            // A packet that the old tree had chosen already may be chosen anew, as in a swap. Bytes of the
            // bucket are whole.
            let of = |sent: &[(u32, Instant)], class: usize| -> Vec<u32> {
                sent.iter().map(|s| s.0).filter(|&frame| classes[frame as usize] == class).collect()
            };
            for class in 0..6 {
                assert_eq!(of(&sent, class), of(&expected, class), "seed {seed}");
            }
            let end = |sent: &[(u32, Instant)]| sent.last().map_or(now, |s| s.1);
            let packet = goes.link().time_for(MTU).ceil().since(Instant::ZERO);
            let apart = end(&sent).since(end(&expected)).max(end(&expected).since(end(&sent)));
            assert!(apart <= packet, "seed {seed}: {sent:?} {expected:?}");
            for leaf in 0..3 {
                assert_eq!(heir.account(leaf), stays.account(leaf), "seed {seed}");
            }
            assert_eq!(heir.protected(), stays.protected(), "seed {seed}");
            heir.check().unwrap();
        }
    }

    /// What came before the heir stands before what comes to it, also when its tree is exchanged later: however
    /// many packets the port before it has counted.
    #[test]
    fn what_is_taken_over_stays_before_what_comes_later() {
        let (mut old, mut now) = (port(&["a"], 400), Instant::ZERO);
        let put = |port: &mut Port, now: Instant, frames: core::ops::Range<u32>| {
            for frame in frames {
                let meta = Meta::new(1_000, now, FrameRef(frame));
                assert_eq!(port.offer(now, meta, &mut |_| {}), Verdict::Queued, "{frame}");
            }
        };
        for frame in 0..100 {
            now += Duration::from_millis(1);
            put(&mut old, now, frame..frame + 1);
        }
        put(&mut old, now, 100..120);
        let mut heir = port(&["a"], 400);
        heir.inherit(now, old.estate(now), &mut |_| {});
        put(&mut heir, now, 120..130);
        heir.swap(now, plan(&["a"]), &mut |_| {});
        let sent: Vec<u32> = drain(&mut heir).into_iter().map(|(frame, _)| frame).collect();
        assert!(sent.len() > 25 && sent.is_sorted() && sent.ends_with(&[129]), "{sent:?}");
    }

    /// Classes that the heir has not, and a table that is too small: nothing is forgotten.
    #[test]
    fn what_has_no_class_goes_to_the_default_one_and_what_has_no_row_is_counted() {
        let mut old = port(&["a", "b"], 400);
        for frame in 0..60 {
            let mut meta = Meta::new(1_000, Instant::ZERO, FrameRef(frame));
            meta.leaf = frame % 2;
            let _ = old.offer(Instant::ZERO, meta, &mut |_| {});
        }
        // Control packets have no class that could be gone.
        for frame in 60..64 {
            let meta = Meta::new(100, Instant::ZERO, FrameRef(frame)).with_control(true);
            let _ = old.offer(Instant::ZERO, meta, &mut |_| {});
        }
        let waits = old.total().inside();
        assert!(waits > 50);
        let mut heir = port(&["x", "a"], 400);
        heir.inherit(Instant::ZERO, old.estate(Instant::ZERO), &mut |_| {});
        heir.check().unwrap();
        assert_eq!(heir.total(), old.total());
        assert_eq!(heir.account(1), old.account(0));
        let gone_over = heir.account(0).unwrap().inside();
        assert!(gone_over > 20, "about half of what waits");
        assert_eq!(heir.reassigned(), gone_over);
        assert_eq!(drain(&mut heir).len() as u64, waits);
        let mut small = port(&["a", "b"], 20);
        let mut lost = 0;
        small.inherit(Instant::ZERO, old.estate(Instant::ZERO), &mut |event| {
            lost += u64::from(event.kind == EventKind::Dropped(DropReason::Nobuf));
        });
        small.check().unwrap();
        assert_eq!((lost, small.total().inside()), (waits - 20, 20));
        assert_eq!(small.total().offered_packets, old.total().offered_packets);
    }
}
