//! Sessions of applications: `weir broker run` takes them over HTTP, and `weir up` gives their traffic its class.

use crate::bed::{Bed, Held, ended, mortal, possible, terminate};
use crate::broker::Process;
use crate::calls::{class, documented, flood, ready};
use crate::fail_open::{pause, within};
use crate::leases::{FROM, conf, wait};
use crate::support::{Folder, WEIR};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_seed::{in_time, timed};

pub const QOD: &str = "/quality-on-demand/v1/sessions";
/// What a session has, bit/s.
pub const RATE: u64 = 400_000;

/// Sends a request to the socket of a broker as an application does: the status and the JSON of the answer.
pub fn http(socket: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    answered(socket, method, path, body).expect("a broker that answers")
}

/// The same; none without an answer.
pub fn answered(socket: &str, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let mut to = UnixStream::connect(socket).ok()?;
    to.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    to.write_all((head + &body).as_bytes()).ok()?;
    let mut answer = String::new();
    to.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(body).unwrap_or_default()))
}

/// The broker's file: one profile, at one box.
pub fn broker_file(folder: &Folder, capacity: u64) {
    folder.write(
        "broker.toml",
        format!(
            "domain = \"core\"\nstore = \"core.redb\"\nunix = \"broker.sock\"\n\
             [[resource]]\nname = \"right0:rt\"\ncapacity = \"{capacity}\"\n\
             [[profile]]\nname = \"QOS_E\"\npath = [\"right0:rt\"]\nrate = \"{RATE}\"\nlongest = \"60min\"\n\
             [[edge]]\nname = \"e0\"\ndevices = [\"10.0.0.0/24\"]\n"
        ),
    );
}

pub fn asked(port: u16, duration: u64) -> Value {
    json!({
        "device": {"ipv4Address": {"publicAddress": "10.0.0.1", "privateAddress": "10.0.0.1"}},
        "applicationServer": {"ipv4Address": "10.0.0.2"},
        "applicationServerPorts": {"ports": [port]},
        "qosProfile": "QOS_E",
        "duration": duration
    })
}

/// What came of a burst of datagrams that are no media: how many, and how many of these with the code point EF.
pub fn burst(bed: &Bed, port: u16) -> (u32, u32) {
    let (told, heard) = std::sync::mpsc::channel();
    let came = within(&bed.hosts[0].right, move || {
        let socket = UdpSocket::bind(("10.0.0.2", port)).unwrap();
        weir_sys::socket::tell_tos(socket.as_fd()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        told.send(()).unwrap();
        let (mut came, mut marked, mut room) = (0, 0, [0; 200]);
        while let Ok((_, _, tos)) = weir_sys::socket::receive_with_tos(&socket, &mut room) {
            came += 1;
            marked += u32::from(tos >> 2 == 46);
        }
        (came, marked)
    });
    heard.recv().unwrap();
    let sent = within(&bed.hosts[0].left, move || {
        let socket = UdpSocket::bind(("10.0.0.1", port)).unwrap();
        for _ in 0..20 {
            // No header of RTP, and no protocol that is known.
            socket.send_to(&[0x7f; 100], ("10.0.0.2", port)).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    sent.join().unwrap();
    came.join().unwrap()
}

pub fn becomes(socket: &str, session: &Value, status: &str) -> Value {
    let path = format!("{QOD}/{}", session["sessionId"].as_str().unwrap());
    wait(status, || http(socket, "GET", &path, &Value::Null).1["qosStatus"] == status);
    http(socket, "GET", &path, &Value::Null).1
}

pub fn shape(bed: &Bed) -> (u64, u64) {
    let class = class(bed);
    (class["allocator"]["allocated_bps"].as_u64().unwrap(), class["sessions_bps"].as_u64().unwrap())
}

/// A session over HTTP puts a flow into the real-time class that nothing there would recognise, beside a flood that takes half
/// of everything else. DELETE takes it out. Its bandwidth comes on top of what the class has, and is counted at the
/// broker until the box has come down. Another process of the box, a broker that is killed, and the end of the session's time
/// are all lived through.
// Claim L93.
#[test]
fn a_session_gives_its_flow_the_class_until_it_is_deleted() {
    if !possible("the test of sessions of applications") {
        return;
    }
    timed(|| {
        let (folder, bed) = (Folder::new(), Bed::new(1));
        broker_file(&folder, 1_000_000);
        let socket = folder.path("broker.sock");
        let broker = Process::by(mortal(WEIR), &folder);
        let file = bed.folder.write("a.altq", conf(&format!("unix:{socket} edge e0")));
        let first = bed.up(&[&file]);
        ready(&bed);
        let stop = Arc::new(AtomicBool::new(false));
        let flood = flood(&bed, &stop);
        pause(300);
        let (came, marked) = burst(&bed, 7_001);
        assert_eq!(marked, 0, "before");
        println!("without a session {came} of 20 came");

        let (status, session) = http(&socket, "POST", QOD, &asked(7_001, 600));
        assert_eq!(status, 201, "{session}");
        let now = becomes(&socket, &session, "AVAILABLE");
        assert!(now["startedAt"].is_string(), "{now}");
        assert_eq!(shape(&bed), (FROM, RATE));
        assert_eq!(burst(&bed, 7_001), (20, 20), "with it");
        assert_eq!(burst(&bed, 7_002).1, 0, "another port is another flow");
        let flows = bed.ask(&["flows", "-j"]).ok().json();
        documented("weir flows -j", &flows);
        let all = flows["flows"].as_array().unwrap();
        let shown = all.iter().find(|flow| flow["kind"] == "session").unwrap();
        assert_eq!(
            (&shown["flow"], &shown["pinned"]),
            (&json!("10.0.0.1 > 10.0.0.2 port 7001"), &json!(true))
        );
        let one = bed.ask(&["flow", "explain", "udp 10.0.0.1:7001 > 10.0.0.2:7001", "-j"]).ok().json();
        documented("weir flow -j", &one);
        assert_eq!(one["why"], format!("session {}", session["sessionId"].as_str().unwrap()));
        documented("weir stats -j", &bed.ask(&["stats", "-j"]).ok().json());
        let text: Vec<String> = bed.ask(&["status"]).out.split_whitespace().map(str::to_owned).collect();
        assert!(text.join(" ").contains("1 session with 400 kbit/s besides"), "{text:?}");

        // Another process of the box has the session from the broker.
        let second = bed.begin(&[&file, "--takeover"]);
        ended(first).ok();
        wait("the session there", || shape(&bed) == (FROM, RATE));
        assert_eq!(burst(&bed, 7_001), (20, 20), "after a takeover");
        // Another configuration keeps it.
        bed.ask(&["apply", &bed.folder.write("b.altq", conf(&format!("unix:{socket} edge e0")) + "\n")]).ok();
        assert_eq!(burst(&bed, 7_001), (20, 20), "after an apply");
        // The broker is killed and comes back: the flow does not notice.
        broker.kill();
        assert_eq!(burst(&bed, 7_001), (20, 20), "without a broker");
        let broker = Process::by(mortal(WEIR), &folder);
        pause(3_000);
        assert_eq!(becomes(&socket, &session, "AVAILABLE"), now);
        assert_eq!(burst(&bed, 7_001), (20, 20), "with the broker that is back");

        let taken =
            || http(&socket, "GET", "/v1/resources", &Value::Null).1["resources"][0]["taken_bps"].clone();
        assert_eq!(taken(), json!(RATE));
        let path = format!("{QOD}/{}", session["sessionId"].as_str().unwrap());
        assert_eq!(http(&socket, "DELETE", &path, &Value::Null).0, 204);
        in_time!(shape(&bed) == (FROM, 0), "{}", class(&bed));
        assert_eq!(burst(&bed, 7_001).1, 0, "deleted");
        in_time!(taken() == json!(0), "{}", taken());
        assert_eq!(http(&socket, "GET", &path, &Value::Null).0, 404);

        // A short one ends by itself.
        let (_, short) = http(&socket, "POST", QOD, &asked(7_001, 3));
        becomes(&socket, &short, "AVAILABLE");
        assert_eq!(burst(&bed, 7_001), (20, 20), "a short one");
        let over = becomes(&socket, &short, "UNAVAILABLE");
        assert_eq!(over["statusInfo"], "DURATION_EXPIRED");
        wait("its end", || shape(&bed) == (FROM, 0) && taken() == json!(0));
        assert_eq!(burst(&bed, 7_001).1, 0, "over");
        stop.store(true, Ordering::Relaxed);
        flood.join().unwrap();
        terminate(second).ok();
        drop(broker);
    });
}

/// A box that has gone keeps what its session has for half a minute, and the broker counts it as long. One that never
/// comes ends the session.
#[test]
fn a_session_without_its_box_ends() {
    if !possible("the test of sessions without a box") {
        return;
    }
    timed(|| {
        let (folder, bed) = (Folder::new(), Bed::new(1));
        broker_file(&folder, 1_000_000);
        let socket = folder.path("broker.sock");
        let _broker = Process::by(mortal(WEIR), &folder);
        let taken =
            || http(&socket, "GET", "/v1/resources", &Value::Null).1["resources"][0]["taken_bps"].clone();
        let (_, alone) = http(&socket, "POST", QOD, &asked(7_001, 600));
        assert_eq!(
            (&alone["qosStatus"], &alone["startedAt"]),
            (&json!("REQUESTED"), &Value::Null),
            "{alone}"
        );
        let file = bed.folder.write("a.altq", conf(&format!("unix:{socket} edge e0")));
        let mut up: Held = bed.up(&[&file]);
        ready(&bed);
        let taken_up = becomes(&socket, &alone, "AVAILABLE");
        up.0.kill().unwrap();
        up.0.wait().unwrap();
        let path = format!("{QOD}/{}", alone["sessionId"].as_str().unwrap());
        assert_eq!(http(&socket, "DELETE", &path, &Value::Null).0, 204);
        assert_eq!(taken(), json!(RATE), "it may still be in use: {taken_up}");
        let (_, other) = http(&socket, "POST", QOD, &asked(7_001, 600));
        pause(25_000);
        assert_eq!(taken(), json!(2 * RATE));
        let since = std::time::Instant::now();
        while taken() != json!(0) {
            in_time!(since.elapsed() < Duration::from_secs(45), "{}", taken());
            pause(100);
        }
        let path = format!("{QOD}/{}", other["sessionId"].as_str().unwrap());
        let (_, other) = http(&socket, "GET", &path, &Value::Null);
        assert_eq!(
            (&other["qosStatus"], &other["statusInfo"]),
            (&json!("UNAVAILABLE"), &json!("NETWORK_TERMINATED"))
        );
    });
}
