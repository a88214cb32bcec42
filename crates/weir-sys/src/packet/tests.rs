use super::*;
use weir_core::units::Duration;

/// Runs `test` with a pair of interfaces in a namespace of its own, which ends with its thread.
pub(super) fn on_a_pair(test: impl FnOnce(PacketSocket, PacketSocket) + Send + 'static) {
    if !crate::is_root() {
        eprintln!("SKIPPED: needs root for a network namespace");
        return;
    }
    let ip = |arguments: &str| {
        let done = std::process::Command::new("ip").args(arguments.split(' ')).output().unwrap();
        assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let run = move || {
        crate::enter_new_network().unwrap();
        ip("link add name sa type veth peer name sb");
        for name in ["sa", "sb"] {
            // No packets of the kernel's own: only what the test sends.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
            ip(&format!("link set {name} up"));
        }
        // The kernel notices a carrier in the background, and drops what is sent before.
        while !["sa", "sb"].iter().all(|name| crate::interface(name).unwrap().running) {
            std::thread::yield_now();
        }
        test(PacketSocket::open("sa", 0).unwrap(), PacketSocket::open("sb", 0).unwrap());
    };
    std::thread::spawn(run).join().unwrap();
}

#[test]
fn an_interface_that_is_renamed_meanwhile_is_not_gone() {
    on_a_pair(|a, _| {
        let lines: String = (0..60).map(|_| "link set sa name other\nlink set other name sa\n").collect();
        let mut batch = std::process::Command::new("ip")
            .args(["-batch", "-"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut batch.stdin.take().unwrap(), lines.as_bytes()).unwrap();
        let mut asked = 0;
        let status = loop {
            match a.interface() {
                Ok(interface) => asked += u32::from(interface.running),
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock, "{e}"),
            }
            if let Some(status) = batch.try_wait().unwrap() {
                break status;
            }
        };
        assert!(status.success() && asked > 0, "{status}, asked {asked} times");
    });
}

#[test]
fn frames_are_gathered_from_two_buffers_and_scattered_into_two() {
    on_a_pair(|mut a, mut b| {
        let mut frame = vec![0u8; OFFLOAD_BYTES + 100];
        frame[OFFLOAD_BYTES..].copy_from_slice(&[7; 100]);
        frame[OFFLOAD_BYTES + 12..OFFLOAD_BYTES + 14].copy_from_slice(&[0x88, 0xb5]);
        let (head, tail) = frame.split_at(60);
        let sent = [[IoSlice::new(head), IoSlice::new(tail)], [IoSlice::new(&frame), IoSlice::new(&[])]];
        assert_eq!(a.send(&sent).unwrap(), 2);
        let mut rooms = [[0u8; 64]; 4];
        let mut got = 0;
        while got < 2 {
            assert!(crate::wait(&[b.as_fd()], Some(Duration::from_secs(5))).unwrap(), "nothing came");
            let [first, second, third, _] = &mut rooms;
            let mut into = [
                [IoSliceMut::new(first), IoSliceMut::new(second)],
                [IoSliceMut::new(third), IoSliceMut::new(&mut [])],
            ];
            got += b.receive(&mut into[got..]).unwrap();
            if got == 1 {
                assert_eq!(b.received(0).len_bytes, frame.len());
            }
        }
        assert_eq!([&rooms[0][..], &rooms[1][..46]].concat(), frame);
        assert_eq!(rooms[2], frame[..64]);
        // One part of 64 bytes is too little for the second frame.
        let second = (0..2).map(|i| b.received(i)).find(|r| r.truncated).unwrap();
        assert_eq!(second, Received { len_bytes: 64, truncated: true, vlan_tag: None });
        let mut room = [0u8; 200];
        let nothing = b.receive(&mut [[IoSliceMut::new(&mut room), IoSliceMut::new(&mut [])]]);
        assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!((a.take_overruns(), b.take_overruns()), (0, 0));
    });
}

/// As in another process: the same socket, with what waits in it.
#[test]
fn a_socket_is_passed_with_what_waits_in_it() {
    on_a_pair(|mut a, b| {
        let mut frame = vec![0u8; OFFLOAD_BYTES + 60];
        frame[OFFLOAD_BYTES + 12..OFFLOAD_BYTES + 14].copy_from_slice(&[0x88, 0xb5]);
        assert_eq!(a.send(&[[IoSlice::new(&frame), IoSlice::new(&[])]]), Ok(1));
        let (index, same) = (b.index(), b.as_fd().try_clone_to_owned().unwrap());
        drop(b);
        let mut passed = PacketSocket::passed(same, None).unwrap();
        assert_eq!(passed.index(), index);
        assert!(crate::wait(&[passed.as_fd()], Some(Duration::from_secs(5))).unwrap(), "nothing waits");
        let mut room = [0u8; 200];
        let got = passed.receive(&mut [[IoSliceMut::new(&mut room), IoSliceMut::new(&mut [])]]);
        assert_eq!((got.unwrap(), &room[..frame.len()]), (1, &frame[..]));
        let other = std::os::unix::net::UnixDatagram::unbound().unwrap();
        assert!(PacketSocket::passed(other.into(), None).is_err());
    });
}

/// A filter on a heartbeat: what comes while the heart does not beat never enters the socket.
/// The program above it drops the frame for the kernel, and the socket has its copy all the same.
#[test]
fn a_filter_keeps_frames_out_while_no_heart_beats() {
    use crate::bpf::{Assembler, Heartbeat, Kind, attach_to_ingress};
    on_a_pair(|mut a, _| {
        let Ok(heartbeat) = Heartbeat::new() else {
            eprintln!("SKIPPED: needs bpf(2)");
            return;
        };
        heartbeat.set_limit(Duration::from_secs(1000));
        let alive = |then| Assembler::default().skip_if_dead(&heartbeat, 2).set(0, then).exit();
        let filter = alive(-1).set(0, 0).exit().into_program(Kind::SocketFilter, "weir_test").unwrap();
        let drop = alive(2).set(0, -1).exit().into_program(Kind::Classifier, "weir_test").unwrap();
        let mut filtered = PacketSocket::open_filtered("sb", 0, Some(filter.as_fd())).unwrap();
        let attached = attach_to_ingress(&drop, interface_index("sb").unwrap());
        if let Err(e) = &attached {
            eprintln!("SKIPPED in part: no TCX here: {e}");
        }
        let mut frame = vec![0u8; OFFLOAD_BYTES + 60];
        frame[OFFLOAD_BYTES + 12..OFFLOAD_BYTES + 14].copy_from_slice(&[0x88, 0xb5]);
        let mut send = |number: u8| {
            frame[OFFLOAD_BYTES + 20] = number;
            assert_eq!(a.send(&[[IoSlice::new(&frame), IoSlice::new(&[])]]).unwrap(), 1);
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        send(1);
        heartbeat.beat(crate::now());
        send(2);
        heartbeat.stop();
        send(3);
        let mut room = [0u8; 200];
        let mut got = Vec::new();
        while let Ok(1) = filtered.receive(&mut [[IoSliceMut::new(&mut room), IoSliceMut::new(&mut [])]]) {
            got.push(room[OFFLOAD_BYTES + 20]);
        }
        assert_eq!(got, [2]);
    });
}

/// A queueing discipline that lets nothing out for a while holds what was sent.
#[test]
fn what_stands_in_the_device_is_told_and_limited() {
    on_a_pair(|mut a, _b| {
        let slow = "qdisc add dev sa root tbf rate 64kbit burst 1600 limit 1000000";
        let done = std::process::Command::new("tc").args(slow.split(' ')).output().unwrap();
        assert!(done.status.success(), "tc {slow}: {}", String::from_utf8_lossy(&done.stderr));
        let mut frame = vec![0u8; OFFLOAD_BYTES + 1514];
        frame[OFFLOAD_BYTES + 12..OFFLOAD_BYTES + 14].copy_from_slice(&[0x88, 0xb5]);
        let sent = [[IoSlice::new(&frame), IoSlice::new(&[])]; 20];
        assert_eq!((a.queued_bytes(), a.send(&sent)), (0, Ok(20)));
        let one = a.queued_bytes() / 19;
        assert!((1514..=1514 + BUFFER_BYTES).contains(&one), "the first left: {one}");
        a.keep_queue_short(one * 10).unwrap();
        assert_eq!(a.send(&sent), Err(SendError::Full));
        a.keep_queue_short(one * 25 - 1).unwrap();
        assert_eq!((a.send(&sent), a.queued_bytes()), (Ok(6), 25 * one));
    });
}

#[test]
fn a_missing_interface_is_named() {
    let error = PacketSocket::open("no-such-if0", 0).err().unwrap().to_string();
    assert!(error.contains("no-such-if0"), "{error}");
}

#[test]
fn control_messages_of_any_length_are_read_safely() {
    for len in 0..=CONTROL_BYTES {
        assert_eq!(vlan_tag(&vec![0xff; len]), None);
    }
}
