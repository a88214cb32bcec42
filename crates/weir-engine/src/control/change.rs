//! What manages a direction, changed from outside.

use super::{Control, Request, await_all};
use crate::direction::{Change, Changed};
use crate::line::Line;
use std::io;
use std::sync::mpsc::channel;
use weir_core::port::Layout;

impl Control {
    /// How many workers run parts of a direction.
    pub fn parts(&self, direction: usize) -> usize {
        self.workers.iter().filter(|worker| worker.directions.contains(&direction)).count()
    }

    /// Changes what manages a direction (0: the egress on the right). What goes class by class is done here, before
    /// the worker hears of it.
    pub fn change(&self, direction: usize, change: Change) -> io::Result<Changed> {
        self.change_all(direction, vec![change]).map(|mut all| all.pop().unwrap_or(Changed::NoPort))
    }

    /// The same for a direction of which several workers run parts: to each what `of` gives. What became of the last.
    pub fn change_each(&self, direction: usize, of: impl FnMut() -> Change) -> io::Result<Changed> {
        let all = std::iter::repeat_with(of).take(self.parts(direction)).collect();
        self.change_all(direction, all).map(|mut all| all.pop().unwrap_or(Changed::NoPort))
    }

    /// The same with a change for each worker that runs a part of the direction, in their order. They stand still meanwhile,
    /// so that no part runs what is new beside one that runs what is old.
    ///
    /// # Errors
    /// A worker has ended or does not answer, or (`InvalidInput`) there are not as many changes as parts.
    pub fn change_all(&self, direction: usize, changes: Vec<Change>) -> io::Result<Vec<Changed>> {
        let parts = self.parts(direction);
        if parts > 0 && changes.len() != parts {
            let why = format!(
                "{} changes for a direction of {parts} parts: give `change_all` one for each, in their order",
                changes.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let runs = self.workers.iter().filter(|worker| worker.directions.contains(&direction));
        let mut hangs = None;
        let mut all: Vec<(&Line, Change)> = runs.zip(changes).collect();
        let (mut told, mut plans) = (Vec::new(), Vec::new());
        for (worker, change) in &mut all {
            let Some(plan) = change.plan_mut() else { continue };
            let (done, answer) = channel();
            worker.ask(Request::Layout { direction, done })?;
            told.push(answer);
            plans.push(plan);
        }
        for (layout, plan) in await_all(&told).into_iter().zip(plans) {
            match layout {
                Ok(layout) => layout.iter().for_each(|layout: &Layout| layout.prepare(plan)),
                // It has the change nonetheless, and makes it when it goes on.
                Err(why) => hangs = Some(why),
            }
        }
        let several = all.len() > 1;
        if several {
            self.stand_still();
        }
        let ask = |(worker, change): (&Line, Change)| {
            let (done, answer) = channel();
            worker.ask(Request::Change { direction, change, done }).map(|()| answer)
        };
        let asked = all.into_iter().map(ask).collect::<io::Result<Vec<_>>>();
        if several {
            self.release(false);
        }
        let changed = asked.and_then(|asked| match hangs {
            Some(why) => Err(why),
            None => await_all(&asked).into_iter().collect(),
        });
        self.forget();
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change of one part of several is refused, and nobody is asked anything.
    #[test]
    fn a_change_of_some_parts_is_refused() {
        let (lines, inboxes): (Vec<_>, Vec<_>) = (0..3).map(|_| Line::new(vec![0, 1]).unwrap()).unzip();
        let control = Control::of(lines);
        let refused = control.change(0, Change::Port(None)).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert!(refused.to_string().contains("1 changes for a direction of 3 parts"), "{refused}");
        assert!(inboxes.iter().all(|inbox: &crate::line::Inbox| inbox.requests.try_recv().is_err()));
    }
}
