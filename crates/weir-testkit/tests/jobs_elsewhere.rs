//! JoBS with its rates adjusted by another thread keeps every law of the contract.

use std::sync::mpsc::{Receiver, Sender, channel};
use weir_core::queue::{Discipline, ParamError};
use weir_core::sched::jobs::{Adjusted, Delegate, Sample, delegated};
use weir_core::sched::{Build, Builder, Entry, Node, Registry};
use weir_testkit::conformance;

/// A thread whose answers are taken up three polls after they were asked for.
struct Thread {
    to: Sender<Sample>,
    from: Receiver<Adjusted>,
    polls: Option<u32>,
}

impl Delegate for Thread {
    fn start(&mut self, sample: Sample) {
        self.polls = Some(3);
        self.to.send(sample).expect("the thread lives as long as this");
    }
    fn finished(&mut self) -> Option<Adjusted> {
        self.polls = match self.polls? {
            0 => return self.polls.take().and_then(|_| self.from.recv().ok()),
            n => Some(n - 1),
        };
        None
    }
}

fn build(node: &Node, builder: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    let ((to, samples), (results, from)) = (channel::<Sample>(), channel());
    std::thread::spawn(move || samples.iter().all(|sample| results.send(sample.adjust()).is_ok()));
    delegated(node, builder, Box::new(Thread { to, from, polls: None }))
}

#[test]
fn j33_jobs_with_a_thread_keeps_the_laws() {
    let mut registry = Registry::builtin();
    let jobs = *registry.find("jobs").expect("it is built in");
    let build: Build = build;
    registry.register(Entry { name: "jobs-elsewhere", build: Some(build), ..jobs });
    let seen = conformance::discipline(&registry, "jobs-elsewhere", weir_seed::seed(), 30_000);
    let seen = seen.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(seen.sent > 1_000 && seen.dropped > 100, "{seen:?}");
    for child in ["fifoq", "codel", "drr"] {
        let pair = conformance::pair(&registry, "jobs-elsewhere", child, weir_seed::seed(), 6_000);
        pair.unwrap_or_else(|failure| panic!("{failure}"));
    }
}
