use super::*;
use crate::PoolSize;
use crate::af_packet::AfPacket;
use crate::af_packet::tests::{collect, fill, frame, in_namespace, ip};
use crate::pool::OFFLOAD_BYTES;
use weir_sys::xdp::Options;

fn open(name: &str) -> AfXdp {
    AfXdp::over(XdpSocket::open(name, Options::default()).unwrap())
}

fn all(io: &mut AfXdp, pool: &mut Pool, frames: &[FrameRef]) -> Vec<Refusal> {
    let (mut done, mut refused) = (0, Vec::new());
    while done < frames.len() {
        done += io.send(pool, &frames[done..], &mut refused);
    }
    refused
}

#[test]
fn frames_cross_in_order_and_both_sides_count() {
    in_namespace(|| {
        let mut pool = Pool::new(PoolSize { frames: 256, tails: 1 });
        let (mut a, mut b) = (open("wa"), open("wb"));
        assert_eq!(a.way(), "AF_XDP in the driver, copying");
        assert!(!a.is_polled());
        let sent: Vec<_> = (0..100u8).map(|i| frame(60 + usize::from(i) * 14, i)).collect();
        let frames: Vec<_> = sent.iter().map(|bytes| fill(&mut pool, bytes)).collect();
        assert_eq!(all(&mut a, &mut pool, &frames), []);
        frames.iter().for_each(|&frame| pool.free(frame));
        assert_eq!(collect(&mut b, &mut pool, 100), sent);
        let (a_stats, b_stats) = (a.stats(), b.stats());
        assert_eq!((a_stats.tx_frames, a_stats.tx_errors, b_stats.rx_frames), (100, 0, 100));
        assert_eq!((a_stats.tx_bytes, a_stats.tx_queue_bytes), (b_stats.rx_bytes, 0));
        assert_eq!(a_stats.rx_frames, 0);
    });
}

/// Frames that the system has not taken when the carrier goes are lost, as is said: none of them leaves when it is
/// back, and the places and the room that they had are free again.
#[test]
fn what_a_lost_carrier_costs_is_lost() {
    in_namespace(|| {
        let mut pool = Pool::new(PoolSize { frames: 64, tails: 1 });
        let (mut a, mut b) = (open("wa"), open("wb"));
        let frames: Vec<_> = (0..8).map(|n| fill(&mut pool, &frame(60, n))).collect();
        a.device.trouble(|| a.socket.interface());
        assert_eq!(a.put(&mut pool, &frames), None);
        ip("link set wb down");
        let wait_for_carrier = |a: &AfXdp, carrier| {
            let until = weir_sys::now() + weir_core::units::Duration::from_millis(10_000);
            while a.socket.interface().is_ok_and(|wa| wa.running != carrier) {
                assert!(weir_sys::now() < until, "no end");
            }
        };
        wait_for_carrier(&a, false);
        a.device = Device::default();
        assert_eq!(all(&mut a, &mut pool, &frames).len(), 8);
        assert_eq!((a.waiting, a.socket.queued_bytes()), (0, 0));
        ip("link set wb up");
        wait_for_carrier(&a, true);
        a.device = Device::default();
        a.device.trouble(|| a.socket.interface());
        // As many rounds as fill the socket, if one of them left something there.
        for round in 0..400 {
            assert_eq!((a.put(&mut pool, &frames), a.waiting), (None, 8), "round {round}");
            a.socket.withdraw();
            a.waiting = 0;
        }
        let last = fill(&mut pool, &frame(60, 99));
        assert_eq!(all(&mut a, &mut pool, &[last]), []);
        assert_eq!(collect(&mut b, &mut pool, 1), [frame(60, 99)]);
        assert_eq!((a.stats().tx_frames, a.stats().tx_errors), (1, 8));
        weir_sys::sleep_until(weir_sys::now() + weir_core::units::Duration::from_millis(20));
        let mut more = Vec::new();
        b.receive(&mut pool, &mut more);
        assert!(more.is_empty(), "{} frames that were lost have left", more.len());
    });
}

/// The first of a batch, the last, and one between: the others leave, in order.
#[test]
fn what_is_too_long_is_refused_where_it_stands() {
    in_namespace(|| {
        let mut pool = Pool::new(PoolSize { frames: 256, tails: 8 });
        let (mut a, mut b) = (open("wa"), open("wb"));
        let mut tagged = frame(1518, 5);
        tagged[12..14].copy_from_slice(&[0x81, 0]);
        let sent = [frame(1515, 1), frame(60, 2), frame(4_000, 3), tagged, frame(1514, 4), frame(1515, 6)];
        let frames: Vec<_> = sent.iter().map(|bytes| fill(&mut pool, bytes)).collect();
        let refused = all(&mut a, &mut pool, &frames);
        assert_eq!(refused, [0, 2, 5].map(|n| (frames[n], DropReason::Toolong)));
        let crossed = collect(&mut b, &mut pool, 3);
        assert!(crossed == [1, 3, 4].map(|n: usize| sent[n].clone()));
        assert_eq!((a.stats().tx_frames, a.stats().tx_errors), (3, 3));
        // Without a carrier a device would take frames, and lose them.
        ip("link set wb down");
        let frames: Vec<_> = (0..40).map(|n| fill(&mut pool, &frame(60, n))).collect();
        weir_sys::sleep_until(weir_sys::now() + weir_core::units::Duration::from_millis(2));
        assert_eq!(all(&mut a, &mut pool, &frames).len(), 40);
        assert_eq!(a.stats().tx_errors, 43);
    });
}

/// The kernel's TCP leaves its checksum to the device, and a pair of interfaces has none.
#[test]
fn a_checksum_that_was_left_to_the_device_leaves_complete() {
    in_namespace(|| {
        let mut pool = Pool::new(PoolSize { frames: 64, tails: 1 });
        let mut near = open("wa");
        let mut far = AfPacket::open("wb", 0).unwrap();
        let mut tcp = frame(114, 0);
        tcp[12..38].copy_from_slice(&[
            8, 0, 0x45, 0, 0, 100, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 80, 0, 81,
        ]);
        let partial = 0x0a00 + 1 + 0x0a00 + 2 + 6 + 80;
        tcp[50..52].copy_from_slice(&u16::to_be_bytes(partial));
        let mut whole = tcp.clone();
        let sum =
            tcp[34..].chunks(2).fold(0u32, |sum, pair| sum + u32::from(pair[0]) * 256 + u32::from(pair[1]));
        whole[50..52].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        let given = fill(&mut pool, &tcp);
        let mut header = [0; OFFLOAD_BYTES];
        (header[0], header[6], header[8]) = (1, 34, 16);
        pool.set_offload(given, header);
        assert_eq!(far.send(&mut pool, &[given], &mut Vec::new()), 1);
        let mut came = Vec::new();
        while came.is_empty() {
            near.receive(&mut pool, &mut came);
        }
        assert_eq!(pool.head(came[0]), tcp, "as the sender left it");
        assert_eq!(all(&mut near, &mut pool, &came), []);
        assert_eq!(collect(&mut far, &mut pool, 1), [whole]);
    });
}

#[test]
fn counters_go_on_over_an_exchange() {
    in_namespace(|| {
        let mut pool = Pool::new(PoolSize { frames: 64, tails: 1 });
        let mut near = open("wa");
        let one = fill(&mut pool, &frame(60, 1));
        assert_eq!(all(&mut near, &mut pool, &[one]), []);
        ip("link del wa");
        weir_sys::sleep_until(weir_sys::now() + weir_core::units::Duration::from_millis(2));
        assert_eq!(all(&mut near, &mut pool, &[one]), [(one, DropReason::Gone)]);
        ip("link add name wa type veth peer name wb");
        ip("link set wa up");
        ip("link set wb up");
        while !weir_sys::interface("wa").unwrap().running {}
        near.exchange(Socket::Xdp(Box::new(XdpSocket::open("wa", Options::default()).unwrap())));
        let mut far = open("wb");
        assert_eq!(all(&mut near, &mut pool, &[one]), []);
        assert_eq!(collect(&mut far, &mut pool, 1), [frame(60, 1)]);
        assert_eq!((near.stats().tx_frames, near.stats().tx_errors), (2, 1));
    });
}

/// Frames that the system has not taken leave once, from the process that goes on.
#[test]
fn what_was_offered_and_not_taken_leaves_once_in_another_process() {
    in_namespace(|| {
        let mut pool = Pool::new(PoolSize { frames: 64, tails: 1 });
        let (mut a, mut b) = (open("wa"), open("wb"));
        let sent: Vec<_> = (0..8).map(|n| frame(60, n)).collect();
        let frames: Vec<_> = sent.iter().map(|bytes| fill(&mut pool, bytes)).collect();
        a.device.trouble(|| a.socket.interface());
        assert_eq!((a.put(&mut pool, &frames), a.waiting), (None, 8));
        let (descriptors, place) = a.pass().unwrap();
        let mut descriptors = descriptors.into_iter();
        let next = || descriptors.next().ok_or_else(|| io::Error::other("one is missing"));
        let mut there = Socket::passed(&place, next).unwrap().resumed(a.stats());
        let (mut done, mut refused) = (0, Vec::new());
        while done < frames.len() {
            done += there.send(&mut pool, &frames[done..], &mut refused);
        }
        drop(a);
        assert_eq!((collect(&mut b, &mut pool, 8), refused), (sent, vec![]));
        weir_sys::sleep_until(weir_sys::now() + weir_core::units::Duration::from_millis(20));
        let mut more = Vec::new();
        b.receive(&mut pool, &mut more);
        assert!(more.is_empty(), "{} frames came twice", more.len());
        assert_eq!(there.way(), "AF_XDP in the driver, copying");
    });
}
