//! Who goes next: the eligible class of the earliest deadline [HFSC97 section 4.3], or else the one whose turn it is in
//! link sharing; and what is counted for it.

use super::Hfsc;
use super::class::{Eligibility, Shown};
use super::share::as_instant;
use crate::queue::{Cause, Cx, Head, Next};
use crate::units::Instant;

impl Hfsc {
    /// Takes the packet that a class has shown, and counts it: for sharing, and for its guarantee if it goes by that
    /// (`real_time`).
    #[inline(always)]
    pub(super) fn serve(&mut self, cx: &mut Cx, class: usize, real_time: bool) -> Next {
        let c = &mut self.classes[class];
        let bytes = c.shown.0;
        let Some((queue, id)) = c.queue.as_mut().and_then(|queue| queue.take_shown(cx).map(|id| (queue, id)))
        else {
            return Self::no_packet(cx);
        };
        debug_assert_eq!(bytes, cx.link.cost_bytes(cx.packets.get(&id).len), "not the packet that was shown");
        c.sent_packets += 1;
        match queue.look(cx) {
            Some(Head::Idle) => {
                if real_time && let Some(owed) = self.owed.get_mut(class) {
                    owed.served += bytes;
                }
                self.share.charge(class + 1, bytes, !real_time, true, cx.now);
                self.forget(class);
            }
            Some(Head::Packet { len }) => {
                debug_assert!(!c.late, "a queue that tells at once was late");
                c.shown = Shown(cx.link.cost_bytes(len));
                if real_time && let Some(owed) = self.owed.get_mut(class) {
                    owed.served += bytes;
                    owed.go_on();
                }
                self.share.charge(class + 1, bytes, !real_time, false, cx.now);
                self.owe(class, cx.now);
            }
            _ => self.served_inner(cx, class, bytes, real_time),
        }
        Next::Packet(id)
    }

    /// Counts a packet of a class whose queue has to be asked what follows.
    #[cold]
    fn served_inner(&mut self, cx: &mut Cx, class: usize, bytes: u64, real_time: bool) {
        let head = self.head(cx, class);
        if real_time && let Some(owed) = self.owed.get_mut(class) {
            owed.served += bytes;
            owed.go_on();
        }
        self.share.charge(class + 1, bytes, !real_time, head == Head::Idle, cx.now);
        match head {
            Head::Idle => self.forget(class),
            head => self.learn(cx, class, head),
        }
    }

    #[cold]
    fn no_packet(cx: &mut Cx) -> Next {
        cx.broken("hfsc", "an active class has no packet");
        Next::Idle
    }

    /// Asks the queues that were stirred.
    #[cold]
    pub(super) fn ask_stirred(&mut self, cx: &mut Cx) {
        while let Some(class) = self.stirred.pop() {
            self.classes[class as usize].stirred = false;
            if self.classes[class as usize].active {
                let head = self.head(cx, class as usize);
                self.learn(cx, class as usize, head);
            }
        }
    }

    /// The class of the earliest deadline among those that are eligible. One that has just
    /// become so, and is the only one, is not put among them first.
    #[inline(always)]
    pub(super) fn eligible(&mut self, cx: &mut Cx) -> Option<usize> {
        let mut only = None;
        // The greatest key stands for the end of time, which does not come.
        while let Some((slot, at)) = self.waiting.min_finite()
            && at <= cx.now.as_nanos()
        {
            let class = slot as usize;
            if self.classes[class].shown == Shown::NOTHING {
                if !self.show(cx, class) {
                    break;
                }
            } else if only.is_none() && self.ready.is_empty() {
                self.set_place(class, Eligibility::Out, Instant::NEVER);
                only = Some(class);
            } else {
                self.make_ready(class);
            }
        }
        if let Some(class) = only {
            if self.ready.is_empty() {
                return only;
            }
            self.make_ready(class);
        }
        self.ready.first().map(|slot| slot as usize)
    }

    #[inline(never)]
    fn make_ready(&mut self, class: usize) {
        let bytes = self.classes[class].shown.0;
        let deadline = self.owed.get(class).map_or(Instant::NEVER, |owed| owed.deadline(bytes));
        self.set_place(class, Eligibility::Ready, deadline);
    }

    /// Asks the queue of a class whose time has come and that has shown no packet. False if its
    /// queue is broken.
    #[cold]
    fn show(&mut self, cx: &mut Cx, class: usize) -> bool {
        let head = self.head(cx, class);
        self.learn(cx, class, head);
        let broken = matches!(head, Head::At(at) if at <= cx.now);
        if broken {
            cx.broken("hfsc", "a child's At(t) is not later than now");
        }
        !broken
    }

    /// The class whose turn it is in link sharing.
    #[inline(always)]
    pub(super) fn in_turn(&mut self, cx: &mut Cx) -> Option<usize> {
        loop {
            let class = self.share.choose(cx.now)? - 1;
            if self.classes[class].shown != Shown::NOTHING {
                return Some(class);
            }
            if !self.show(cx, class) {
                return None;
            }
        }
    }

    /// What there is to say where no class may go.
    #[cold]
    pub(super) fn pause(&self) -> Next {
        if self.busy == 0 {
            return Next::Idle;
        }
        let waiting = self.waiting.least().map_or(Instant::NEVER, as_instant);
        match waiting.min(self.share.next_fit()) {
            Instant::NEVER => Next::Held(self.cause()),
            at => Next::At(at),
        }
    }

    /// Why no class has a time at which it may go.
    #[cold]
    fn cause(&self) -> Cause {
        let mut classes = self.classes.iter().zip(&self.share.nodes[1..]);
        let is_held = classes.any(|(class, node)| class.active && node.queue_fit() == Instant::NEVER);
        if is_held { Cause::Child } else { Cause::Rate }
    }
}
