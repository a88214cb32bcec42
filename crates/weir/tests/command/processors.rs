//! On which processor the worker of `weir up` runs.

use crate::bed::{Bed, Held, inside, possible, terminate, wait};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_core::units::Duration;

const CONF: &str = "interface right0 bandwidth 10G fifoq attach bridge left0\n";

/// The processors that the workers ran on last.
fn of_workers(up: &Held) -> Vec<usize> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", up.pid())).unwrap();
    let stats =
        threads.filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")).ok());
    // Field 39 of proc(5); the first behind the name is field 3.
    let processor = |text: String| text.rsplit(')').next()?.split_whitespace().nth(39 - 3)?.parse().ok();
    stats.filter(|text| text.contains("(weir-worker)")).map(|text| processor(text).unwrap()).collect()
}

/// Datagrams are sent on one processor, few or as many as go, and on another one: the worker is beside the sender while
/// it has little to do, and leaves that processor as soon as it has much.
// Claim L99.
#[test]
fn a_worker_is_where_frames_come_unless_it_is_busy() {
    if !possible("the test of a worker's processor") {
        return;
    }
    let processors = weir_sys::processors().unwrap();
    let [first, .., last] = processors[..] else {
        eprintln!("SKIPPED: the test of a worker's processor: there is one only");
        return;
    };
    let bed = Bed::new(1);
    // An answer would come on the processor of the worker.
    inside(&bed.hosts[0].right, "ip route add blackhole 10.0.0.1");
    let up = bed.up(&[&bed.folder.write("a.altq", CONF)]);
    let (stop, pause_ns, on) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(10_000_000)), Arc::new(AtomicU64::new(0)));
    let namespace = bed.hosts[0].left.0.id();
    // Without a priority: two threads of one are kept apart by the system.
    let sender = std::thread::spawn({
        let (stop, pause_ns, on) = (stop.clone(), pause_ns.clone(), on.clone());
        move || {
            weir_sys::enter_network_of(namespace).unwrap();
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            while !stop.load(Ordering::Relaxed) {
                weir_sys::pin_to(on.load(Ordering::Relaxed) as usize).unwrap();
                (0..32).for_each(|_| _ = socket.send_to(&[0; 100], "10.0.0.2:9"));
                weir_sys::sleep_until(
                    weir_sys::now() + Duration::from_nanos(pause_ns.load(Ordering::Relaxed)),
                );
            }
        }
    });
    for cpu in [last, first, last] {
        on.store(cpu as u64, Ordering::Relaxed);
        pause_ns.store(100_000_000, Ordering::Relaxed);
        wait("a worker beside the sender", || of_workers(&up) == [cpu]);
        pause_ns.store(500_000, Ordering::Relaxed);
        wait("a worker away from the sender", || of_workers(&up) != [cpu]);
    }
    stop.store(true, Ordering::Relaxed);
    sender.join().unwrap();
    terminate(up).ok();
}

#[test]
fn two_workers_have_a_processor_each() {
    if !possible("the test of two workers' processors") {
        return;
    }
    let bed = Bed::new(1);
    let conf = CONF.replace("left0", "left0 workers 2");
    let up = bed.up(&[&bed.folder.write("a.altq", conf)]);
    let mut found = of_workers(&up);
    let wanted: Vec<usize> = weir_sys::processors().unwrap().into_iter().rev().take(2).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    assert!(found == wanted || wanted.len() < 2, "{found:?} {wanted:?}");
    terminate(up).ok();
}
