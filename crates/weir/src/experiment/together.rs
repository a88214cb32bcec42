//! Several experiments at a time, told in their order.

use super::{Manifest, Memory};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

/// Neighbours that begin with the same scenario: they are run one after the other, so that it is simulated once.
pub fn neighbours<'m>(manifests: impl Iterator<Item = &'m Manifest>) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut before = None;
    for (index, manifest) in manifests.enumerate() {
        let first = manifest.run.first().map(|run| (&run.scenario, &run.replace));
        match groups.last_mut() {
            Some(group) if first.is_some() && first == before => group.end = index + 1,
            _ => groups.push(index..index + 1),
        }
        before = first;
    }
    groups
}

/// Runs all of `groups`, on so many threads: each group on one, with a memory of its own. Those that are to be `alone`
/// are run before, one after the other. `told` hears the results in the order of their numbers, as soon as that is
/// possible.
pub fn in_order<R: Send>(
    groups: &[Range<usize>],
    threads: usize,
    alone: impl Fn(usize) -> bool + Sync,
    run: impl Fn(&Memory, usize) -> R + Sync,
    mut told: impl FnMut(R),
) {
    let (next, (done, results)) = (AtomicUsize::new(0), channel());
    let mut waiting = BTreeMap::new();
    for index in groups.iter().cloned().flatten().filter(|index| alone(*index)) {
        waiting.insert(index, run(&Memory::default(), index));
    }
    let work = |done: std::sync::mpsc::Sender<(usize, R)>| {
        while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
            let memory = Memory::default();
            for index in group.clone().filter(|index| !alone(*index)) {
                // Nobody hears it only if the process ends.
                let _ = done.send((index, run(&memory, index)));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, groups.len().max(1)) {
            let done = done.clone();
            scope.spawn(|| work(done));
        }
        drop(done);
        let mut first = 0;
        let mut tell = |waiting: &mut BTreeMap<usize, R>| {
            while let Some(result) = waiting.remove(&first) {
                told(result);
                first += 1;
            }
        };
        tell(&mut waiting);
        for (index, result) in results {
            waiting.insert(index, result);
            tell(&mut waiting);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::time::Duration;

    /// The first ones take longest, so that the last ones are done before them.
    #[test]
    fn results_come_in_order_from_any_number_of_threads() {
        let groups = [0..1, 1..4, 4..5, 5..6];
        for threads in [1, 2, 3, 9] {
            let (running, most, first) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
            let mut heard = Vec::new();
            let run = |_: &Memory, index: usize| {
                first.lock().unwrap().push(index);
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(6 - index as u64));
                let beside = running.fetch_sub(1, Ordering::SeqCst) - 1;
                assert!(index != 2 || beside == 0, "it was to be alone");
                index * 10
            };
            in_order(&groups, threads, |index| index == 2, run, |result| heard.push(result));
            assert_eq!(heard, [0, 10, 20, 30, 40, 50]);
            assert_eq!(first.lock().unwrap()[0], 2, "what is to be alone goes first");
            assert!(most.into_inner() <= threads);
        }
        in_order(&[], 2, |_| false, |_, index| index, |_| panic!("there is nothing to tell"));
    }

    /// With two threads two groups are on at once: each of these waits for the other.
    #[test]
    fn two_threads_do_two_things() {
        let both = std::sync::Barrier::new(2);
        let mut heard = Vec::new();
        let run = |_: &Memory, index| {
            both.wait();
            index
        };
        in_order(&[0..1, 1..2], 2, |_| false, run, |index| heard.push(index));
        assert_eq!(heard, [0, 1]);
    }

    #[test]
    fn neighbours_share_their_first_scenario() {
        let manifest = |runs: &str| -> Manifest {
            let text = format!("title = \"t\"\nsource = \"s\"\nabout = \"a\"\n{runs}");
            Manifest::parse("x.toml", &text).unwrap()
        };
        let of = |scenario: &str| format!("[[run]]\nscenario = \"{scenario}\"\n");
        let swept = of("a") + "replace = { x = \"y\" }\n";
        let runs = [of("a"), of("a"), swept.clone(), swept, of("b"), of("a"), String::new(), String::new()];
        let all: Vec<Manifest> = runs.iter().map(|runs| manifest(runs)).collect();
        assert_eq!(neighbours(all.iter()), [0..2, 2..4, 4..5, 5..6, 6..7, 7..8]);
    }
}
