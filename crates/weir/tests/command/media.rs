//! Real media through `weir up`: SIP calls, streams and WebRTC of other people's programs, each direction found
//! at its Nth packet. `make media` installs the programs and runs this.

use crate::bed::{Bed, Held, inside, mortal, possible, terminate};
use crate::support::{Folder, source, weir};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Calls go first in both directions, without contracts. Two packets suffice after ICE or DTLS.
const CONF: &str = "\
interface left0 bandwidth 50M cbq
class cbq left0 root NULL pbandwidth 100
class cbq left0 rt root priority 5 pbandwidth 80
class cbq left0 be root borrow pbandwidth 15 default
filter left0 rt 0 0 0 0 0 dscp EF
interface right0 bandwidth 50M attach bridge left0 cbq
class cbq right0 root NULL pbandwidth 100
class cbq right0 rt root priority 5 pbandwidth 80
class cbq right0 be root borrow pbandwidth 15 default
filter right0 rt 0 0 0 0 0 dscp EF
recognise left0 rtp 4/2s stun dtls
recognise right0 rtp 4/2s stun dtls
";

/// How long the programs send.
const SECONDS: u32 = 5;

/// What a program sends from the left to the right host, and the port that it goes to.
struct Stream {
    name: &'static str,
    port: u16,
    script: String,
}

fn streams() -> Vec<Stream> {
    let ffmpeg = |name, port, codec: &str, url: &str| {
        let input = if codec.contains("-c:v") {
            format!("testsrc=size=320x240:rate=25:duration={SECONDS}")
        } else {
            format!("sine=frequency=440:duration={SECONDS}")
        };
        let script = format!(
            "exec ffmpeg -nostdin -loglevel error -re -f lavfi -i {input} {codec} -f rtp '{}'",
            url.replace("HOST", &format!("10.0.0.2:{port}"))
        );
        Stream { name, port, script }
    };
    let gst = |name, port, source: &str| {
        let script = format!("exec gst-launch-1.0 -q {source} ! udpsink host=10.0.0.2 port={port}");
        Stream { name, port, script }
    };
    let key =
        "-srtp_out_suite AES_CM_128_HMAC_SHA1_80 -srtp_out_params MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkw";
    let secret = format!("-c:a pcm_mulaw -ar 8000 -ac 1 {key}");
    let tone =
        format!("audiotestsrc is-live=true num-buffers={} ! audioconvert ! audioresample", SECONDS * 40);
    vec![
        ffmpeg("ffmpeg PCMU", 5004, "-c:a pcm_mulaw -ar 8000 -ac 1", "rtp://HOST?pkt_size=186"),
        ffmpeg("ffmpeg PCMA", 5006, "-c:a pcm_alaw -ar 8000 -ac 1", "rtp://HOST?pkt_size=186"),
        ffmpeg("ffmpeg G.722", 5008, "-c:a g722 -ar 16000 -ac 1", "rtp://HOST"),
        ffmpeg("ffmpeg Opus", 5010, "-c:a libopus -ar 48000 -ac 1", "rtp://HOST"),
        ffmpeg("ffmpeg VP8", 5012, "-c:v libvpx -b:v 400k -deadline realtime", "rtp://HOST"),
        ffmpeg("ffmpeg SRTP", 5014, &secret, "srtp://HOST?pkt_size=186"),
        gst("GStreamer Opus", 5016, &format!("{tone} ! opusenc ! rtpopuspay")),
        gst(
            "GStreamer PCMA",
            5018,
            &format!("{tone} ! alawenc ! rtppcmapay max-ptime=20000000 min-ptime=20000000"),
        ),
        gst(
            "GStreamer VP8",
            5020,
            &format!(
                "videotestsrc is-live=true num-buffers={} ! vp8enc deadline=1 ! rtpvp8pay",
                SECONDS * 25
            ),
        ),
    ]
}

/// A script in the network of a host, until it ends or the test does.
fn run(host: &Held, script: &str, log: &str) -> Held {
    let mut command = mortal("timeout");
    command.args(["-k", "1", "20", "nsenter", "-t", &host.pid(), "-n", "bash", "-c", script]);
    let file = std::fs::File::create(log).unwrap();
    command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    Held(command.spawn().unwrap())
}

fn is_there(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .unwrap()
        .success()
}

/// The configuration of a baresip that answers by itself.
fn baresip(folder: &Folder, name: &str, address: &str) -> String {
    let place = folder.path(&format!("baresip-{name}"));
    std::fs::create_dir(&place).unwrap();
    let modules =
        ["opus", "ausine", "aufile", "auconv", "auresamp"].map(|m| format!("module {m}.so\n")).concat();
    let config = format!(
        "sip_listen {address}:5071\naudio_player aufile,{place}/heard.wav\naudio_source ausine,440\n\
         audio_alert aufile,{place}/alert.wav\nausrc_srate 48000\nauplay_srate 48000\n\
         module_path /usr/lib/baresip/modules\n{modules}module_app account.so\nmodule_app menu.so\n"
    );
    let account = format!("<sip:{name}@{address}:5071>;regint=0;answermode=auto;audio_codecs=opus/48000/2\n");
    for (file, text) in [("config", config), ("accounts", account), ("contacts", String::new())] {
        std::fs::write(format!("{place}/{file}"), text).unwrap();
    }
    place
}

/// A direction of a flow as a host received it.
#[derive(Default)]
struct Direction {
    /// Code point and, if the packet is one of RTP by its form, its SSRC.
    packets: Vec<(u8, Option<u32>)>,
}

impl Direction {
    /// The SSRC that has most packets, if those are many: this direction carries media.
    fn media(&self) -> Option<u32> {
        let mut counts = BTreeMap::<u32, usize>::new();
        for ssrc in self.packets.iter().filter_map(|p| p.1) {
            *counts.entry(ssrc).or_default() += 1;
        }
        counts
            .into_iter()
            .filter(|(_, count)| *count >= 50)
            .max_by_key(|(_, count)| *count)
            .map(|(ssrc, _)| ssrc)
    }
    /// With which packet of the media the first mark came; whether all media behind it are marked.
    fn found(&self, ssrc: u32) -> (Option<usize>, bool) {
        let media: Vec<bool> = self.packets.iter().filter(|p| p.1 == Some(ssrc)).map(|p| p.0 == 46).collect();
        let first = media.iter().position(|marked| *marked);
        (first.map(|index| index + 1), first.is_none_or(|index| media[index..].iter().all(|marked| *marked)))
    }
    fn is_marked(&self) -> bool {
        self.packets.iter().any(|p| p.0 != 0)
    }
}

/// Source and destination, each an address and a port.
type Ends = ([u8; 4], u16, [u8; 4], u16);

/// What tcpdump wrote, by directions; of what comes to `host`.
fn directions(capture: &str, host: [u8; 4]) -> BTreeMap<Ends, Direction> {
    let file = std::fs::read(capture).unwrap();
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    assert_eq!(word(0), 0xa1b2_c3d4, "a pcap with microseconds");
    let (mut at, mut seen) = (24, BTreeMap::<Ends, Direction>::new());
    while at + 16 <= file.len() {
        let frame = &file[at + 16..(at + 16 + word(at + 8)).min(file.len())];
        at += 16 + word(at + 8);
        let Some(ip) = frame.get(14..).filter(|ip| ip.len() >= 28 && ip[0] == 0x45 && ip[9] == 17) else {
            continue;
        };
        let port = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
        let ends = (ip[12..16].try_into().unwrap(), port(20), ip[16..20].try_into().unwrap(), port(22));
        if ends.2 != host {
            continue;
        }
        let payload = &ip[28..];
        let is_rtp = payload.len() >= 12 && payload[0] >> 6 == 2 && !(64..=95).contains(&(payload[1] & 0x7f));
        let ssrc = is_rtp.then(|| u32::from_be_bytes(payload[8..12].try_into().unwrap()));
        seen.entry(ends).or_default().packets.push((ip[1] >> 2, ssrc));
    }
    seen
}

// Claim L80.
#[test]
fn media_of_other_programs_is_found_at_its_nth_packet() {
    if !possible("the test of real media") {
        return;
    }
    let python = source("target/media/bin/python");
    let missing: Vec<&str> = ["ffmpeg", "gst-launch-1.0", "baresip", "sipp", "tcpdump"]
        .into_iter()
        .filter(|program| !is_there(program))
        .chain((!std::path::Path::new(&python).exists()).then_some("aiortc"))
        .collect();
    if !missing.is_empty() {
        let what = missing.join(", ");
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: real media needs {what}; `make media` installs all and runs this"
        );
        return;
    }
    let bed = Bed::new(1);
    let up = bed.up(&[&bed.folder.write("media.altq", CONF)]);
    let (left, right) = (&bed.hosts[0].left, &bed.hosts[0].right);
    let log = |name: &str| bed.folder.path(&format!("{name}.log"));
    let captures = [("left", left), ("right", right)].map(|(name, host)| {
        let file = bed.folder.path(&format!("{name}.pcap"));
        let script = format!("exec tcpdump -Z root -i eth0 -s 128 -U -w {file} udp");
        (run(host, &script, &log(&format!("{name}-tcpdump"))), file)
    });
    // Somebody listens where streams go, so that nobody is told that a port is closed.
    let ports: Vec<String> =
        streams().iter().flat_map(|s| [s.port, s.port + 1]).map(|p| p.to_string()).collect();
    let listen = format!(
        "exec python3 -c 'import socket, time\nall = []\nfor port in [{}]:\n s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n \
         s.bind((\"10.0.0.2\", port)); all.append(s)\ntime.sleep(20)'",
        ports.join(",")
    );
    let mut running = vec![run(right, &listen, &log("listen"))];
    let webrtc = source("crates/weir/tests/media/webrtc.py");
    for (side, host) in [("offer", left), ("answer", right)] {
        for what in ["voice", "data"] {
            let script = format!("exec {python} {webrtc} {side} {what} {} {SECONDS}", bed.folder.path(""));
            running.push(run(host, &script, &log(&format!("webrtc-{side}-{what}"))));
        }
    }
    // A scripted call that plays a recording, and the echo of it.
    std::os::unix::fs::symlink("/usr/share/sip-tester", bed.folder.path("pcap")).unwrap();
    let folder = bed.folder.path("");
    running.push(run(
        right,
        "exec sipp -sn uas -rtp_echo -i 10.0.0.2 -p 5060 -mp 5200 -nostdin",
        &log("sipp-uas"),
    ));
    let place = baresip(&bed.folder, "b", "10.0.0.2");
    running.push(run(right, &format!("(sleep 15) | exec baresip -f {place}"), &log("baresip-b")));
    std::thread::sleep(Duration::from_secs(1));
    let call =
        format!("cd {folder}; exec sipp -sn uac_pcap 10.0.0.2:5060 -i 10.0.0.1 -mp 5300 -m 1 -nostdin");
    running.push(run(left, &call, &log("sipp-uac")));
    let place = baresip(&bed.folder, "a", "10.0.0.1");
    let call = format!("exec baresip -f {place} -t {SECONDS} -e '/dial sip:b@10.0.0.2:5071'");
    running.push(run(left, &call, &log("baresip-a")));
    for stream in streams() {
        running.push(run(left, &stream.script, &log(&stream.name.replace(' ', "-"))));
    }
    std::thread::sleep(Duration::from_secs(u64::from(SECONDS) + 5));
    let flows = bed.ask(&["flows"]);
    drop(running);
    for (capture, _) in &captures {
        inside(left, &format!("kill -INT {}", capture.pid()));
    }
    std::thread::sleep(Duration::from_millis(300));
    let mut seen = directions(&captures[0].1, [10, 0, 0, 1]);
    seen.extend(directions(&captures[1].1, [10, 0, 0, 2]));
    terminate(up);

    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for (ends, direction) in &seen {
        let reverse = seen.get(&(ends.2, ends.3, ends.0, ends.1));
        match direction.media() {
            Some(ssrc) => {
                // Two packets suffice after ICE, after DTLS, and where the other direction is known.
                let fewer = reverse.is_some();
                let (at, stays) = direction.found(ssrc);
                println!("{ends:?}: {} packets, media found at packet {at:?}", direction.packets.len());
                let right = at.is_some_and(|n| n == 4 || fewer && (2..=4).contains(&n));
                found.push(*ends);
                if !right || !stays {
                    wrong.push(format!("{ends:?}: found at {at:?}, marked from there on: {stays}"));
                }
            }
            None if direction.is_marked() => wrong.push(format!("{ends:?} is no media, and marked")),
            None => {}
        }
    }
    println!("{}", flows.out);
    assert!(wrong.is_empty(), "{wrong:#?}");
    for Stream { name, port, .. } in streams() {
        assert!(
            found.iter().any(|ends| ends.3 == port),
            "{name} sent nothing: {}",
            read(&log(&name.replace(' ', "-")))
        );
    }
    // Both directions of baresip and of WebRTC, what sipp plays and its echo.
    let logs = ["sipp-uac", "sipp-uas", "baresip-a", "webrtc-offer-voice"].map(|name| read(&log(name)));
    assert_eq!(found.len(), streams().len() + 6, "{found:?}\n{logs:#?}");
    // The same from a capture.
    let replayed = weir(&["replay", &bed.folder.path("media.altq"), "right0", &captures[1].1]).ok();
    assert!(replayed.out.contains("directions of UDP flows are real-time"), "{}", replayed.out);
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
