//! The laws of what waits and of what is refused: liveness, work conservation, routing, law 6.

use super::super::spy;
use super::super::waiting::ShownBacklogs;
use super::*;

impl Rig {
    /// No more arrivals: time passes from each `At` to the next until nothing waits.
    ///
    /// By law 2 each `At` ends with a packet that leaves or is dropped, so there are at most as
    /// many as packets; each is at most `PATIENCE_NS` away. Whoever is held for ever needs a cause
    /// that the configuration shows.
    pub(super) fn drain(&mut self) -> Law {
        while self.queued.packets > 0 && self.cx.now < END {
            let before = self.queued.packets;
            match self.take()? {
                Head::Held(cause) => return self.held_rightly(cause),
                Head::At(at) if at >= END => return Ok(()),
                Head::At(at) => {
                    if at.since(self.cx.now).as_nanos() > PATIENCE_NS {
                        return Err(format!(
                            "liveness: {} is not before {at}, over a year from now",
                            self.oldest_waiting()
                        ));
                    }
                    self.cx.now = at;
                    self.take()?;
                    if self.queued.packets == before {
                        return Err(format!(
                            "liveness: {} neither left nor was dropped at {at}, the time it was told to wait for",
                            self.oldest_waiting()
                        ));
                    }
                }
                Head::Packet { .. } | Head::Idle => {}
            }
            while self.in_flight.len() > IN_FLIGHT {
                self.complete()?;
            }
            self.settle(None)?;
            self.audit(false)?;
        }
        Ok(())
    }
    /// Each packet that is held for ever needs a cause.
    pub(super) fn held_rightly(&self, cause: Cause) -> Law {
        for (serial, entry) in self.packets.iter().enumerate().filter(|(_, entry)| entry.queued) {
            if let Some(objection) = self.waiting.objection(Some(cause), entry.leaf) {
                return Err(format!(
                    "liveness: {} is held ({cause:?}) with no more arrivals, and {objection}",
                    self.name(serial as u32)
                ));
            }
        }
        Ok(())
    }
    /// A packet in words.
    pub(super) fn name(&self, serial: u32) -> String {
        let Some(entry) = self.packets.get(serial as usize) else { return format!("packet {serial}") };
        format!(
            "packet {serial} of class {} (leaf {}, flow {})",
            self.waiting.class(entry.leaf),
            entry.leaf,
            entry.flow
        )
    }
    /// The first that came of those that wait.
    pub(super) fn oldest_waiting(&self) -> String {
        let first = self.packets.iter().position(|entry| entry.queued);
        first.map_or("no packet".into(), |serial| self.name(serial as u32))
    }
    /// The law of work conservation, where it applies, for an answer that is not a packet.
    pub(super) fn conserves(&self, told: Head) -> Law {
        if self.waiting.conserving() {
            return Err(format!(
                "work conservation: told {told:?} while {} waits, and no discipline of the tree lets packets wait",
                self.oldest_waiting()
            ));
        }
        let (Some(true), Some((ready, leaf))) = (self.waiting.spied(), spy::first_ready()) else {
            return Ok(());
        };
        let late = match told {
            Head::At(at) => at > ready.max(self.cx.now + Duration::from_nanos(1)),
            _ => true,
        };
        if ready <= self.cx.now || late {
            return Err(format!(
                "work conservation: told {told:?}, and the child of class {} (leaf {leaf}) gives a packet at {ready}",
                self.waiting.class(leaf)
            ));
        }
        Ok(())
    }
    /// True if a packet is shown and not taken: it is in no class.
    pub(super) fn is_holding(&self) -> bool {
        self.shown.is_some()
    }
    /// Statistics show each packet in the class that it came for.
    pub(super) fn audit_classes(&self) -> Law {
        let mut shown = ShownBacklogs::default();
        match &self.asked {
            Asked::Child(child) => child.visit_stats(&mut shown),
            Asked::Plain { discipline, .. } => discipline.visit_stats(&mut shown),
        }
        let mut queued = vec![0; self.left.len() / FLOWS as usize];
        for entry in self.packets.iter().filter(|entry| entry.queued) {
            queued[entry.leaf as usize] += 1;
        }
        self.waiting.audit(&shown, |leaf| queued[leaf as usize])
    }
    /// A reconfiguration that must be refused, in words, and must change nothing. It leaves no
    /// trace in the log, so that what comes after can be held against a run without it.
    pub(in super::super) fn refuse(&mut self, class: &str, params: &Params) -> Law {
        let (before, hash) = (self.stats(), self.hash);
        let (cx, queued) = (&mut self.cx, self.queued);
        let result = match &mut self.asked {
            Asked::Plain { discipline, .. } => discipline.reconfigure(cx, class, params),
            Asked::Child(child) if class.is_empty() => child.reconfigure_queue(cx, class, params, &[]),
            Asked::Child(child) => child.reconfigure_below(cx, class, params),
        };
        let Err(error) = result else {
            return Err(format!("class `{class}` accepted {params:?}"));
        };
        if error.field.is_empty() || error.found.is_empty() || error.expected.is_empty() {
            return Err(format!("{params:?} was refused with `{error}`, which does not say what is wrong"));
        }
        self.settle(None)?;
        if self.stats() != before || self.queued != queued || self.hash != hash {
            return Err(format!("a reconfiguration was refused ({error}) and changed something"));
        }
        self.audit(false)
    }
    /// True if it was accepted; refused, nothing may have changed.
    pub(super) fn try_reconfigure(&mut self, class: &str, params: &Params) -> Result<bool, String> {
        let before = self.stats();
        let (cx, queued) = (&mut self.cx, self.queued);
        let result = match &mut self.asked {
            Asked::Plain { discipline, .. } => discipline.reconfigure(cx, class, params),
            Asked::Child(child) if class.is_empty() => child.reconfigure_queue(cx, class, params, &[]),
            Asked::Child(child) => child.reconfigure_below(cx, class, params),
        };
        self.mix(u64::from(result.is_ok()));
        self.settle(None)?;
        if let Err(error) = &result
            && (self.stats() != before || self.queued != queued)
        {
            return Err(format!("a reconfiguration was refused ({error}) and changed something"));
        }
        Ok(result.is_ok())
    }
}
