//! On a pair of virtual interfaces in a network namespace of the test's own: needs root.
use super::*;
use crate::PoolSize;
use std::process::Command;
use weir_core::units::Duration;
use weir_sys as sys;

/// Runs `test` in a thread with a namespace of its own, which ends with the thread.
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !sys::is_root() {
        eprintln!("SKIPPED: needs root for a network namespace");
        return;
    }
    let run = || {
        sys::enter_new_network().unwrap();
        make_pair();
        test();
    };
    std::thread::spawn(run).join().unwrap();
}

/// Two interfaces, `wa` and `wb`, that are each other's far end.
fn make_pair() {
    ip("link add name wa mtu 1500 type veth peer name wb mtu 1500");
    // No kernel chatter on the pair: only what the test sends.
    for name in ["wa", "wb"] {
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
    }
    ip("link set wa up");
    ip("link set wb up");
    await_running();
}

/// The kernel notices a carrier in the background, and drops what is sent before.
fn await_running() {
    while !["wa", "wb"].iter().all(|name| sys::interface(name).unwrap().running) {
        std::thread::yield_now();
    }
}

pub(crate) fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

pub(crate) fn collect(io: &mut impl Io, pool: &mut Pool, count: usize) -> Vec<Vec<u8>> {
    let (mut frames, mut out) = (Vec::new(), Vec::new());
    let mut silences = 0;
    while silences < 6 {
        io.receive(pool, &mut frames);
        for frame in frames.drain(..) {
            let mut bytes = Vec::new();
            pool.copy_to(frame, &mut bytes);
            pool.free(frame);
            out.push(bytes);
        }
        if out.len() >= count {
            break;
        }
        let waited = sys::wait(&[io.descriptor().unwrap()], Some(Duration::from_millis(50)));
        silences += u32::from(!waited.unwrap());
    }
    out
}

pub(crate) fn frame(len: usize, mark: u8) -> Vec<u8> {
    let mut bytes = vec![mark; len];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    bytes
}

pub(crate) fn fill(pool: &mut Pool, bytes: &[u8]) -> FrameRef {
    let frame = pool.alloc().unwrap();
    assert!(pool.fill(frame, bytes));
    frame
}

#[test]
fn frames_cross_unchanged_in_batches_and_both_sides_count() {
    in_namespace(|| {
        let mut pool = Pool::new(PoolSize { frames: 256, tails: 40 });
        let (mut a, mut b) = (AfPacket::open("wa", 0).unwrap(), AfPacket::open("wb", 0).unwrap());
        let sent: Vec<_> = (0..100u8).map(|i| frame(60 + usize::from(i) * 14, i)).collect();
        let frames: Vec<_> = sent.iter().map(|bytes| fill(&mut pool, bytes)).collect();
        let mut done = 0;
        while done < frames.len() {
            done += a.send(&mut pool, &frames[done..], &mut Vec::new());
        }
        frames.iter().for_each(|&f| pool.free(f));
        assert_eq!(collect(&mut b, &mut pool, 100), sent);
        let (a_stats, b_stats) = (a.stats(), b.stats());
        assert_eq!((a_stats.tx_frames, a_stats.tx_errors, b_stats.rx_frames), (100, 0, 100));
        assert_eq!(a_stats.tx_bytes, b_stats.rx_bytes);
        // What a socket sends does not come back to it.
        assert_eq!(a_stats.rx_frames, 0);
    });
}

#[test]
fn a_frame_longer_than_the_mtu_is_refused_and_the_next_one_leaves() {
    in_namespace(|| {
        let mut pool = Pool::new(PoolSize { frames: 128, tails: 64 });
        let (mut a, mut b) = (AfPacket::open("wa", 0).unwrap(), AfPacket::open("wb", 0).unwrap());
        let frames = [
            fill(&mut pool, &frame(60, 1)),
            fill(&mut pool, &frame(4000, 2)),
            fill(&mut pool, &frame(60, 3)),
        ];
        let mut refused = Vec::new();
        assert_eq!(a.send(&mut pool, &frames, &mut refused), 3);
        assert_eq!(refused, [(frames[1], DropReason::Toolong)]);
        assert_eq!((a.stats().tx_frames, a.stats().tx_errors), (2, 1));
        assert_eq!(collect(&mut b, &mut pool, 2), [frame(60, 1), frame(60, 3)]);
    });
}

/// Frames that are too long for the buffers that are left do not hide those behind them.
#[test]
fn what_is_too_long_for_its_buffer_ends_no_batch() {
    in_namespace(|| {
        ip("link set wa mtu 9000");
        ip("link set wb mtu 9000");
        let mut pool = Pool::new(PoolSize { frames: 256, tails: 100 });
        let (mut a, mut b) = (AfPacket::open("wa", 0).unwrap(), AfPacket::open("wb", 0).unwrap());
        // In the first two batches some are too long, in all later ones none.
        let lens = (0..100).map(|n| if n % 3 == 0 && n < 64 { 4000 } else { 60 });
        let frames: Vec<_> = lens.map(|len| fill(&mut pool, &frame(len, 1))).collect();
        let mut done = 0;
        while done < frames.len() {
            done += a.send(&mut pool, &frames[done..], &mut Vec::new());
        }
        // In this namespace a frame has arrived when its sender goes on, or soon after.
        let mut small = Pool::new(PoolSize { frames: 64, tails: 0 });
        while sys::wait(&[b.descriptor().unwrap()], Some(Duration::from_millis(300))).unwrap() {
            let mut out = Vec::new();
            b.receive(&mut small, &mut out);
            out.iter().for_each(|&frame| small.free(frame));
            let left = 100 - b.stats().rx_frames - b.stats().rx_nobuf;
            assert!(out.len() == BATCH || left == 0, "{} frames, {left} are left", out.len());
            if left == 0 {
                assert_eq!((b.stats().rx_frames, b.stats().rx_nobuf), (78, 22));
                return;
            }
        }
        panic!("not all came: {:?}", b.stats());
    });
}

/// Frames that end in their head buffer, at its end, and in the tail behind it; with a tag that is
/// put back in front, too.
#[test]
fn frames_cross_the_end_of_their_head_buffer() {
    in_namespace(|| {
        ip("link set wa mtu 9000");
        ip("link set wb mtu 9000");
        let with_ring: fn() -> AfPacket = || AfPacket::open("wb", 0).unwrap();
        let without: fn() -> AfPacket = || AfPacket::over(PacketSocket::open("wb", 0).unwrap());
        for (open, kept) in [(with_ring, 1), (without, BATCH - 1)] {
            let mut b = open();
            let mut pool = Pool::new(PoolSize { frames: 128, tails: 64 });
            let mut a = AfPacket::open("wa", 0).unwrap();
            for len in (1960..=2100).chain([4000, 9014]) {
                let plain = frame(len, len as u8);
                let mut tagged = plain.clone();
                tagged.splice(12..12, [0x81, 0x00, 0x60, 0x2a]);
                for bytes in [plain, tagged] {
                    let one = fill(&mut pool, &bytes);
                    assert_eq!(a.send(&mut pool, &[one], &mut Vec::new()), 1);
                    pool.free(one);
                    assert!(collect(&mut b, &mut pool, 1) == [bytes], "{len}");
                }
            }
            assert_eq!((a.stats().tx_errors, b.stats().rx_nobuf), (0, 0));
            assert_eq!(pool.available(), 128 - kept, "those that wait to be filled");
        }
    });
}

/// Short ones from the ring and long ones from the queue, in batches of any mixture.
#[test]
fn frames_of_any_length_keep_their_order() {
    in_namespace(|| {
        ip("link set wa mtu 9000");
        ip("link set wb mtu 9000");
        let mut pool = Pool::new(PoolSize { frames: 256, tails: 128 });
        let (mut a, mut b) = (AfPacket::open("wa", 0).unwrap(), AfPacket::open("wb", 0).unwrap());
        for seed in weir_seed::seeds(5) {
            let mut random = weir_core::Random::new(seed);
            let mut sent = Vec::new();
            for n in 0..1 + random.below(3 * BATCH as u64) {
                let len = [60, 1514, 1972, 1973, 2028, 2029, 9014][random.below(7) as usize];
                sent.push(frame(len, n as u8));
            }
            let frames: Vec<_> = sent.iter().map(|bytes| fill(&mut pool, bytes)).collect();
            let mut done = 0;
            while done < frames.len() {
                done += a.send(&mut pool, &frames[done..], &mut Vec::new());
            }
            frames.iter().for_each(|&f| pool.free(f));
            assert!(collect(&mut b, &mut pool, sent.len()) == sent, "seed {seed}");
        }
        assert_eq!(b.stats().rx_nobuf, 0);
    });
}

#[test]
fn vlan_tags_survive() {
    in_namespace(|| {
        let mut pool = Pool::new(PoolSize { frames: 128, tails: 64 });
        let (mut a, mut b) = (AfPacket::open("wa", 0).unwrap(), AfPacket::open("wb", 0).unwrap());
        let mut tagged = frame(100, 5);
        tagged.splice(12..12, [0x81, 0x00, 0x60, 0x2a]);
        let mut double = frame(100, 6);
        double.splice(12..12, [0x88, 0xa8, 0x00, 0x07, 0x81, 0x00, 0x00, 0x08]);
        let sent = vec![frame(80, 4), tagged, double];
        let frames: Vec<_> = sent.iter().map(|bytes| fill(&mut pool, bytes)).collect();
        assert_eq!(a.send(&mut pool, &frames, &mut Vec::new()), 3);
        assert_eq!(collect(&mut b, &mut pool, 3), sent);
    });
}

#[test]
fn losses_on_receipt_are_counted_by_their_cause() {
    in_namespace(|| {
        // Too small a pool: one frame at a time, and no room for anything else.
        let mut tiny = Pool::new(PoolSize { frames: 1, tails: 0 });
        let mut pool = Pool::new(PoolSize { frames: 64, tails: 64 });
        let (mut a, mut b) = (AfPacket::open("wa", 0).unwrap(), AfPacket::open("wb", 1).unwrap());
        let one = fill(&mut pool, &frame(1514, 9));
        for _ in 0..400 {
            assert_eq!(a.send(&mut pool, &[one], &mut Vec::new()), 1);
        }
        // The socket's buffer, as small as the kernel allows, overflowed.
        let mut got = collect(&mut b, &mut tiny, 400).len() as u64;
        let stats = b.stats();
        assert!(stats.rx_overrun > 0 && got < 400, "{stats:?}");
        assert_eq!(stats.rx_frames + stats.rx_overrun, 400);
        got += stats.rx_overrun;
        assert_eq!(got, 400);
        // With every frame taken, nothing is received and nothing is lost for good.
        assert!(tiny.alloc().is_none(), "the socket keeps the only frame ready");
    });
}

#[test]
fn segmentation_offload_goes_through_a_bridge_of_two_sockets() {
    in_namespace(|| {
        // a's end is another namespace's host; b the other's; here only the raw bytes matter: a
        // frame of 9000 bytes with a segmentation header leaves whole on an interface of 1500.
        let mut pool = Pool::new(PoolSize { frames: 128, tails: 64 });
        let (mut a, mut b) = (AfPacket::open("wa", 0).unwrap(), AfPacket::open("wb", 0).unwrap());
        let payload = 8 * 1448;
        let mut packet = vec![0u8; 14 + 20 + 20 + payload];
        packet[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        let total = (40 + payload) as u16;
        packet[14..34].copy_from_slice(&[
            0x45,
            0,
            (total >> 8) as u8,
            total as u8,
            0,
            1,
            0x40,
            0,
            64,
            6,
            0,
            0,
            10,
            0,
            0,
            1,
            10,
            0,
            0,
            2,
        ]);
        packet[46] = 0x50;
        packet[54..].iter_mut().enumerate().for_each(|(i, b)| *b = i as u8);
        let one = fill(&mut pool, &packet);
        // flags NEEDS_CSUM, type TCPV4, hdr_len 54, gso_size 1448, csum_start 34, csum_offset 16.
        let [head, _] = &mut pool.receive_rooms(&[one])[0];
        head[..OFFLOAD_BYTES].copy_from_slice(&[1, 1, 54, 0, 0xa8, 5, 34, 0, 16, 0]);
        assert_eq!(a.send(&mut pool, &[one], &mut Vec::new()), 1);
        assert_eq!(a.stats().tx_errors, 0);
        let mut frames = Vec::new();
        for _ in 0..40 {
            b.receive(&mut pool, &mut frames);
            if !frames.is_empty() {
                break;
            }
            sys::wait(&[b.descriptor().unwrap()], Some(Duration::from_millis(50))).unwrap();
        }
        assert_eq!(frames.len(), 1, "one frame, not eight");
        let mut back = Vec::new();
        pool.copy_to(frames[0], &mut back);
        assert_eq!(back, packet);
        let header = pool.send_parts(&frames)[0][0][..OFFLOAD_BYTES].to_vec();
        assert_eq!((header[1], &header[4..6]), (1, &[0xa8, 5][..]), "still to be segmented, at 1448");
    });
}

#[test]
fn a_link_that_goes_down_is_noticed_and_comes_back() {
    in_namespace(|| {
        let mut pool = Pool::new(PoolSize { frames: 128, tails: 64 });
        let (mut a, mut b) = (AfPacket::open("wa", 0).unwrap(), AfPacket::open("wb", 0).unwrap());
        let one = fill(&mut pool, &frame(60, 1));
        let believed = || std::thread::sleep(std::time::Duration::from_millis(2));
        let mut refused = Vec::new();
        // First the far end of the pair, so that this end has no carrier; then this end.
        for name in ["wb", "wa"] {
            ip(&format!("link set {name} down"));
            believed();
            // A socket is told once that its own interface went down.
            assert!(collect(&mut a, &mut pool, 1).is_empty() && collect(&mut b, &mut pool, 1).is_empty());
            refused.clear();
            assert_eq!(a.send(&mut pool, &[one], &mut refused), 1);
            assert_eq!(refused, [(one, DropReason::Portdown)], "{name}");
            ip(&format!("link set {name} up"));
            await_running();
            assert_eq!(a.send(&mut pool, &[one], &mut refused), 1);
            assert_eq!(collect(&mut b, &mut pool, 1), [frame(60, 1)]);
        }
        assert_eq!((a.stats().tx_frames, a.stats().tx_errors), (2, 2));
        assert_eq!((a.stats().rx_errors, b.stats().rx_errors), (1, 1));
        // Gone, and made again: another device, to which only another socket leads.
        ip("link del wa");
        make_pair();
        believed();
        refused.clear();
        for _ in 0..2 {
            assert_eq!((a.send(&mut pool, &[one], &mut refused), refused[0].1), (1, DropReason::Gone));
        }
        a.exchange(Socket::Packet(PacketSocket::open("wa", 0).unwrap()));
        b.exchange(Socket::Packet(PacketSocket::open("wb", 0).unwrap()));
        assert_eq!(a.send(&mut pool, &[one], &mut refused), 1);
        assert_eq!(collect(&mut b, &mut pool, 1), [frame(60, 1)]);
        assert_eq!((a.stats().tx_frames, a.stats().tx_errors, b.stats().rx_frames), (3, 4, 3));
    });
}

/// The limit of the device's queue stays over an exchange of sockets. Reversed: without one, and
/// after it was lifted, all frames are taken.
#[test]
fn the_device_queue_stays_short_over_an_exchange() {
    in_namespace(|| {
        let slow = "qdisc add dev wa root tbf rate 64kbit burst 1600 limit 1000000";
        assert!(Command::new("tc").args(slow.split(' ')).status().unwrap().success());
        let mut pool = Pool::new(PoolSize { frames: 128, tails: 64 });
        let mut a = AfPacket::open("wa", 0).unwrap();
        let one = fill(&mut pool, &frame(1514, 1));
        let mut taken = |a: &mut AfPacket| a.send(&mut pool, &[one; 20], &mut Vec::new());
        a.exchange(Socket::Packet(PacketSocket::open("wa", 0).unwrap()));
        assert_eq!(taken(&mut a), 20);
        a.keep_queue_short(Some(5 * 1514), 1514);
        for _ in 0..2 {
            a.exchange(Socket::Packet(PacketSocket::open("wa", 0).unwrap()));
            assert!((3..=7).contains(&taken(&mut a)));
            let stats = a.stats();
            assert!(stats.tx_queue_bytes >= 3 * 1514 && stats.tx_queue_most_bytes < 8 * 2538, "{stats:?}");
        }
        a.keep_queue_short(None, 0);
        assert_eq!(taken(&mut a), 20);
    });
}

#[test]
fn a_missing_interface_is_named() {
    let error = AfPacket::open("no-such-if0", 0).err().unwrap().to_string();
    assert!(error.contains("no-such-if0"), "{error}");
}
