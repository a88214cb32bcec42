use super::*;
use crate::packet::{OFFLOAD_BYTES, PacketSocket};
use std::io::{IoSlice, IoSliceMut};
use weir_core::units::{Duration, Instant};

fn ip(arguments: &str) {
    let done = std::process::Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Runs `test` in a namespace of its own, which ends with its thread, with a pair of interfaces `xa`
/// and `xb`, and a raw socket on `xb`.
fn on_a_pair(test: impl FnOnce(PacketSocket) + Send + 'static) {
    if !crate::is_root() {
        eprintln!("SKIPPED: needs root for a network namespace");
        return;
    }
    let run = move || {
        crate::enter_new_network().unwrap();
        ip("link add name xa type veth peer name xb");
        for name in ["xa", "xb"] {
            // No packets of the kernel's own: only what the test sends.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
            ip(&format!("link set {name} up"));
        }
        until("a carrier", || ["xa", "xb"].iter().all(|name| crate::interface(name).unwrap().running));
        test(PacketSocket::open("xb", 0).unwrap());
    };
    std::thread::spawn(run).join().unwrap();
}

fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let start = crate::now();
    while !ready() {
        assert!(crate::now().since(start) < Duration::from_secs(10), "{what} did not come");
        std::thread::yield_now();
    }
}

fn frame(number: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![number; len];
    frame[..6].fill(2);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

fn send(from: &mut PacketSocket, frame: &[u8]) {
    let whole = [&[0; OFFLOAD_BYTES], frame].concat();
    assert_eq!(from.send(&[[IoSlice::new(&whole), IoSlice::new(&[])]]), Ok(1));
}

/// All that comes within `wait_ms`, or until there are `most`.
fn received(socket: &mut XdpSocket, most: usize, wait_ms: u64) -> Vec<Vec<u8>> {
    let (start, mut got) = (crate::now(), Vec::new());
    while got.len() < most && crate::now().since(start) < Duration::from_millis(wait_ms) {
        socket.receive(32, |bytes| got.push(bytes.to_vec()));
    }
    got
}

fn raw_received(socket: &mut PacketSocket, most: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    let mut room = vec![0u8; 9000];
    until("a frame", || {
        while let Ok(1) = socket.receive(&mut [[IoSliceMut::new(&mut room), IoSliceMut::new(&mut [])]]) {
            got.push(room[OFFLOAD_BYTES..socket.received(0).len_bytes].to_vec());
        }
        got.len() >= most
    });
    got
}

/// More than there are chunks, so that all of them come around, in both directions.
#[test]
fn frames_of_every_length_come_and_go_in_order() {
    for busy_poll in [false, true] {
        on_a_pair(move |mut far| {
            let mut near = XdpSocket::open("xa", Options { heartbeat: None, busy_poll }).unwrap();
            assert_eq!(near.mode(), Mode { native: true, zero_copy: false, busy_poll });
            let all: Vec<_> = (0..2_500).map(|n| frame(n as u8, 60 + n % 1455)).collect();
            for some in all.chunks(30) {
                some.iter().for_each(|frame| send(&mut far, frame));
                assert!(received(&mut near, 30, 5_000) == *some);
                for frame in some {
                    let (head, tail) = frame.split_at(frame.len() / 2);
                    assert!(near.put([head, tail]));
                }
                assert_eq!(near.untaken(), some.len());
                near.send().unwrap();
                assert_eq!((near.untaken(), near.queued_bytes()), (0, 0));
                assert!(raw_received(&mut far, some.len()) == *some);
            }
            assert_eq!(near.take_overruns(), 0);
            let longest = near.longest_bytes() as usize;
            assert!(near.put([&vec![0; longest], &[]]) && !near.put([&vec![0; longest], &[1]]));
        });
    }
}

#[test]
fn the_kernel_has_the_frames_unless_the_heart_beats_and_after_the_end() {
    on_a_pair(|mut far| {
        let heartbeat = Heartbeat::new().unwrap();
        heartbeat.set_limit(Duration::from_secs(100));
        let options = Options { heartbeat: Some(&heartbeat), busy_poll: false };
        let mut near = XdpSocket::open("xa", options).unwrap();
        let mut kernel = PacketSocket::open("xa", 0).unwrap();
        let mut ask = |near: &mut XdpSocket, number| {
            send(&mut far, &frame(number, 60));
            received(near, 1, 50).len()
        };
        assert_eq!(ask(&mut near, 1), 0);
        heartbeat.beat(crate::now());
        assert_eq!(ask(&mut near, 2), 1);
        heartbeat.stop();
        assert_eq!(ask(&mut near, 3), 0);
        drop(near);
        send(&mut far, &frame(4, 60));
        let seen = raw_received(&mut kernel, 3);
        assert_eq!(seen.iter().map(|frame| frame[20]).collect::<Vec<_>>(), [1, 3, 4]);
    });
}

#[test]
fn what_is_not_fetched_in_time_is_counted() {
    on_a_pair(|mut far| {
        let mut near = XdpSocket::open("xa", Options::default()).unwrap();
        let sent = RECEIVE_CHUNKS as usize + 100;
        for n in 0..sent {
            send(&mut far, &frame(n as u8, 60));
            // The interface's own queue holds 256.
            if n % 64 == 0 {
                crate::sleep_until(crate::now() + Duration::from_millis(1));
            }
        }
        let mut lost = 0;
        until("the count", || {
            lost += near.take_overruns();
            lost >= 100
        });
        let got = received(&mut near, sent, 50);
        assert_eq!((got.len() as u64 + lost, near.take_overruns()), (sent as u64, 0));
        send(&mut far, &frame(9, 60));
        assert_eq!(received(&mut near, 1, 5_000), [frame(9, 60)]);
    });
}

#[test]
fn a_link_that_is_down_takes_nothing_and_one_that_is_gone_is_told() {
    on_a_pair(|_far| {
        let mut near = XdpSocket::open("xa", Options::default()).unwrap();
        assert!(near.interface().unwrap().running);
        ip("link set xa down");
        assert!(near.put([&frame(1, 60), &[]]));
        assert_eq!((near.send(), near.untaken()), (Err(SendError::LinkDown), 1));
        ip("link del xa");
        assert_eq!(near.send(), Err(SendError::LinkDown));
        assert!(near.interface().is_err());
        assert_eq!(near.receive(32, |_| ()), 0);
    });
}

#[test]
fn what_cannot_be_is_refused_with_the_way_out() {
    on_a_pair(|_far| {
        let refused = |name| XdpSocket::open(name, Options::default()).err().unwrap().to_string();
        assert!(refused("no-such-if0").contains("no-such-if0"));
        let first = XdpSocket::open("xa", Options::default()).unwrap();
        assert!(refused("xa").contains("`ip link set dev xa xdp off`"), "{}", refused("xa"));
        drop(first);
        for mtu in [3_700, 9_000] {
            ip(&format!("link set xa mtu {mtu}"));
            ip(&format!("link set xb mtu {mtu}"));
            assert!(refused("xa").contains("`ip link set xa mtu 1500`"), "{}", refused("xa"));
        }
        ip("link set xa mtu 3000");
        ip("link set xb mtu 3000");
        let near = XdpSocket::open("xa", Options::default()).unwrap();
        assert_eq!(near.longest_bytes(), CHUNK_SIZES[1] - HEADROOM);
    });
}

/// A bridge of the kernel's has no driver that runs programs.
#[test]
fn a_driver_without_a_place_for_the_program_has_it_behind() {
    on_a_pair(|_far| {
        ip("link add name xg type bridge");
        ip("link set xg up");
        let near = XdpSocket::open("xg", Options::default());
        match near {
            Ok(near) => assert!(!near.mode().native && !near.mode().zero_copy),
            Err(e) => panic!("{e}"),
        }
    });
}

#[test]
fn a_device_with_several_queues_is_heard_on_all() {
    on_a_pair(|_far| {
        ip("link add name xc numrxqueues 3 numtxqueues 3 type veth peer name xd numrxqueues 3 numtxqueues 3");
        for name in ["xc", "xd"] {
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
            ip(&format!("link set {name} up"));
        }
        until("a carrier", || ["xc", "xd"].iter().all(|name| crate::interface(name).unwrap().running));
        let mut near = XdpSocket::open("xc", Options::default()).unwrap();
        if near.queues() < 2 {
            eprintln!("SKIPPED: this kernel gives a pair of interfaces one queue");
            return;
        }
        let mut far = PacketSocket::open("xd", 0).unwrap();
        // The system chooses the queue by a hash of addresses and ports.
        let mut udp = frame(0, 60);
        udp[12..14].copy_from_slice(&[8, 0]);
        (udp[14], udp[23]) = (0x45, 17);
        let sent = 64;
        for port in 0..sent {
            (udp[34], udp[16], udp[17]) = (port, 0, 46);
            send(&mut far, &udp);
        }
        let start = crate::now();
        assert!(crate::wait(&[near.as_fd()], Some(Duration::from_secs(5))).unwrap());
        let mut got: Vec<u8> = received(&mut near, usize::from(sent), 5_000).iter().map(|f| f[34]).collect();
        got.sort_unstable();
        assert!(got.iter().copied().eq(0..sent), "{got:?} after {:?}", crate::now().since(start));
        assert!(start > Instant::ZERO && near.put([&udp, &[]]));
        near.send().unwrap();
        assert_eq!(raw_received(&mut far, 1), [udp]);
    });
}

/// The same socket once more, as in another process, with what it needs for that.
fn passed(near: &XdpSocket) -> XdpSocket {
    let (descriptors, place) = near.pass().unwrap();
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(|| io::Error::other("one is missing"));
    let same = XdpSocket::passed(&place, &mut next).unwrap();
    assert!(next().is_err(), "too many");
    assert!(XdpSocket::passed(&place, &mut next).is_err());
    same
}

/// What had come and was not fetched comes there, what has left is done with there, and chunks come around: more frames
/// than there are chunks, half of them before and half of them after the socket has passed.
#[test]
fn a_socket_passes_with_all_that_waits_in_it() {
    for busy_poll in [false, true] {
        on_a_pair(move |mut far| {
            let mut near = XdpSocket::open("xa", Options { heartbeat: None, busy_poll }).unwrap();
            let mode = near.mode();
            for round in 0..100u8 {
                let all: Vec<_> = (0..40).map(|n| frame(round, 60 + n)).collect();
                all.iter().for_each(|frame| send(&mut far, frame));
                let mut got = Vec::new();
                until("a half", || {
                    near.receive(20 - got.len(), |bytes| got.push(bytes.to_vec()));
                    got.len() == 20
                });
                got.iter().for_each(|frame| assert!(near.put([frame, &[]])));
                near.send().unwrap();
                // It never leaves.
                assert!(near.put([&frame(99, 60), &[]]));
                near.withdraw();
                let same = passed(&near);
                assert_eq!((same.mode(), same.index(), same.queues()), (mode, near.index(), near.queues()));
                near = same;
                got.extend(received(&mut near, 20, 5_000));
                assert!(got == all, "round {round}");
                got[20..].iter().for_each(|frame| assert!(near.put([frame, &[]])));
                near.send().unwrap();
                assert!(raw_received(&mut far, 40) == all, "round {round}");
            }
            assert_eq!((near.queued_bytes(), near.take_overruns()), (0, 0));
            assert_eq!(near.out.free.len(), SEND_CHUNKS as usize);
            let (mut descriptors, place) = near.pass().unwrap();
            descriptors.reverse();
            let mut next = || descriptors.pop().ok_or_else(|| io::Error::other("one is missing"));
            let larger = Place { chunk_bytes: CHUNK_SIZES[1], ..place };
            assert!(XdpSocket::passed(&larger, &mut next).is_err(), "memory of another size");
        });
    }
}
