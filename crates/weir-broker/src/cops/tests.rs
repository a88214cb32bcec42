use super::codec::{HEAD_BYTES, MESSAGE_BYTES, Message, Report, decode, length};
use super::field::Decided;
use super::object::{Code, Fault};
use super::{CLIENT_TYPE, KEEP_ALIVE_S};
use crate::book::{Fault as Wrong, Refusal, Request, Verdict};
use weir_core::Random;

/// The bytes that hexadecimal digits stand for. Blanks are passed over.
fn hex_bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn wish() -> Request {
    let (path, domains) = (vec!["wan:rt".into()], Vec::new());
    let (rate, min, ttl_ms) = (512_000, 64_000, 30_000);
    Request { lease: "e/1".into(), version: 1, path, rate, min, ttl_ms, domains }
}

fn answer(verdict: Verdict) -> Message {
    decided(Decided::Answer { lease: "e/1".into(), version: 1, verdict })
}

fn decided(decided: Decided) -> Message {
    Message::Decision { handle: 7, decided: Ok(decided) }
}

const fn code(code: u16, sub: u16) -> Code {
    Code { code, sub }
}

/// Every kind of message, and its bytes, written by hand from the drawings of RFC 2748, section 2.
fn vectors() -> Vec<(Message, &'static str)> {
    let full = Refusal::Full { resource: "wan:rt".into(), free: 500 };
    vec![
        (
            Message::Request { handle: 7, wish: wish() },
            "10 01 4001 00000060
             0008 01 01 00000007
             0008 02 01 0002 0000
             0048 09 01
               0007 01 01 652f31 00
               000a 02 01 77616e3a7274 0000
               000c 04 02 0000000000000001
               000c 05 02 000000000007d000
               000c 06 02 000000000000fa00
               000c 07 02 0000000000007530",
        ),
        (
            answer(Verdict::Granted { rate: 512_000, ttl_ms: 30_000 }),
            "11 02 4001 00000050
             0008 01 01 00000007
             0008 02 01 0002 0000
             0008 06 01 0001 0000
             0030 06 04
               0007 01 01 652f31 00
               000c 04 02 0000000000000001
               000c 05 02 000000000007d000
               000c 07 02 0000000000007530",
        ),
        (
            answer(Verdict::Refused(full)),
            "11 02 4001 0000005c
             0008 01 01 00000007
             0008 02 01 0002 0000
             0008 06 01 0002 0000
             003c 06 04
               0007 01 01 652f31 00
               000c 04 02 0000000000000001
               000c 08 02 0000000000000001
               000a 02 01 77616e3a7274 0000
               000c 09 02 00000000000001f4",
        ),
        (
            decided(Decided::CalledBack { lease: "e/1".into(), version: 1, rate: 256_000 }),
            "10 02 4001 00000044
             0008 01 01 00000007
             0008 02 01 0002 0000
             0008 06 01 0001 0000
             0024 06 04
               0007 01 01 652f31 00
               000c 04 02 0000000000000001
               000c 05 02 000000000003e800",
        ),
        (
            decided(Decided::Ended { lease: "e/1".into() }),
            "10 02 4001 0000002c
             0008 01 01 00000007
             0008 02 01 0002 0000
             0008 06 01 0002 0000
             000c 06 04
               0007 01 01 652f31 00",
        ),
        (
            Message::Decision { handle: 7, decided: Err(code(13, 0x1001)) },
            "11 02 4001 00000018  0008 01 01 00000007  0008 08 01 000d 1001",
        ),
        (
            Message::Report { handle: 7, report: Report::Success },
            "11 03 4001 00000018  0008 01 01 00000007  0008 0c 01 0001 0000",
        ),
        (
            Message::Delete { handle: 7, reason: code(4, 0) },
            "10 04 4001 00000018  0008 01 01 00000007  0008 05 01 0004 0000",
        ),
        (Message::SyncRequest { handle: None }, "10 05 4001 00000008"),
        (Message::SyncRequest { handle: Some(7) }, "10 05 4001 00000010  0008 01 01 00000007"),
        (
            Message::Open { pep: "edge1".into(), token: None },
            "10 06 4001 00000014  000a 0b 01 656467653100 0000",
        ),
        (
            Message::Open { pep: "edge1".into(), token: Some("ab".into()) },
            "10 06 4001 00000020  000a 0b 01 656467653100 0000  000c 09 01  0006 03 01 6162 0000",
        ),
        (Message::Accept { keep_alive_s: KEEP_ALIVE_S }, "10 07 4001 00000010  0008 0a 01 0000 001e"),
        (Message::Close { error: code(11, 0) }, "10 08 4001 00000010  0008 08 01 000b 0000"),
        (Message::KeepAlive, "10 09 0000 00000008"),
        (Message::SyncDone { handle: None }, "10 0a 4001 00000008"),
        (Message::SyncDone { handle: Some(7) }, "10 0a 4001 00000010  0008 01 01 00000007"),
    ]
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(CLIENT_TYPE, &mut bytes);
    bytes
}

/// T20
#[test]
fn every_kind_of_message_has_the_bytes_of_the_rfc() {
    for (message, hex) in vectors() {
        let bytes = hex_bytes(hex);
        assert_eq!(encoded(&message), bytes, "{message:?}");
        let client_type = if message == Message::KeepAlive { 0 } else { CLIENT_TYPE };
        assert_eq!(decode(&bytes), Ok((client_type, message)));
    }
}

/// T20
#[test]
fn what_is_malformed_is_said_with_its_place_and_its_error() {
    let handle = "0008 01 01 00000007";
    let context = "0008 02 01 0002 0000";
    let lease = "0007 01 01 652f31 00";
    let request = |rest: &str| format!("10 01 4001 LENGTH {handle} {context} {rest}");
    for (hex, error, what) in [
        ("10 01 4001".to_owned(), (3, 0), "byte 4: 4 bytes: expected a header of 8"),
        ("20 09 0000 00000008".into(), (3, 0), "byte 0: version 2: expected 1"),
        ("12 09 0000 00000008".into(), (3, 0), "byte 0: flags 0x2: expected 0 or 1"),
        ("10 00 0000 00000008".into(), (3, 0), "byte 1: op code 0: expected 1 to 10"),
        ("10 0b 0000 00000008".into(), (3, 0), "byte 1: op code 11: expected 1 to 10"),
        ("10 09 0000 00000004".into(), (3, 0), "byte 4: a length of 4: expected 8 to 65536, a multiple of 4"),
        (
            "10 09 0000 0000000a".into(),
            (3, 0),
            "byte 4: a length of 10: expected 8 to 65536, a multiple of 4",
        ),
        (
            "10 09 0000 00010004".into(),
            (3, 0),
            "byte 4: a length of 65540: expected 8 to 65536, a multiple of 4",
        ),
        (
            "10 09 0000 ffffffff".into(),
            (3, 0),
            "byte 4: a length of 4294967295: expected 8 to 65536, a multiple of 4",
        ),
        ("10 09 0000 0000000c".into(), (3, 0), "byte 4: a length of 12: 8 bytes are there"),
        ("10 09 4001 00000008".into(), (3, 0), "byte 2: a keep-alive of client-type 0x4001: expected 0"),
        (
            "10 09 0000 00000010 0008 01 01 00000007".into(),
            (3, 0),
            "byte 8: object 1, type 1: expected the end of the message",
        ),
        (
            "10 05 4001 0000000c 0003 01 01".into(),
            (3, 0),
            "byte 8: an object of 3 bytes: expected at least 4",
        ),
        ("10 05 4001 0000000c 0008 01 01".into(), (3, 0), "byte 8: an object of 8 bytes: 4 are left"),
        ("10 05 4001 0000000c 0004 01 01".into(), (3, 0), "byte 12: a handle of 0 bytes: expected 4"),
        (
            "10 05 4001 00000014 000c 01 01 0000000700000007".into(),
            (3, 0),
            "byte 12: a handle of 8 bytes: expected 4",
        ),
        (
            "10 05 4001 00000010 0008 10 01 00000000".into(),
            (13, 0x1001),
            "byte 8: object 16, type 1 is not known",
        ),
        (request("0008 63 02 00000000"), (13, 0x6302), "byte 24: object 99, type 2 is not known"),
        (request(""), (7, 0), "byte 24: the end of the message: expected what is wanted"),
        (format!("10 01 4001 LENGTH {context}"), (7, 0), "byte 8: object 2, type 1: expected a handle"),
        (
            format!("10 01 4001 LENGTH {handle} 0008 02 01 0001 0000"),
            (3, 0),
            "byte 20: a context of type 1: expected 2, resource allocation",
        ),
        (request("0004 09 01"), (5, 0), "byte 28: field `lease` is missing"),
        (request(&format!("000c 09 01 {lease}")), (5, 0), "byte 28: field `version` is missing"),
        (request(&format!("0014 09 01 {lease} {lease}")), (3, 0), "byte 36: field `lease` is there twice"),
        (
            request("0010 09 01 000c 63 02 0000000000000000"),
            (3, 0),
            "byte 28: field 99 of sort 2 is not known",
        ),
        (
            request("000c 09 01 0008 04 02 00000000"),
            (3, 0),
            "byte 32: field `version` of 4 bytes: expected 8",
        ),
        (
            request("000c 09 01 0007 01 01 652031 00"),
            (3, 0),
            "byte 32: field `lease`: expected 1 to 64 printable ASCII characters",
        ),
        (
            request(&format!("0070 09 01 {}", "000a 02 01 77616e3a7274 0000 ".repeat(9))),
            (3, 0),
            "byte 128: expected at most 8 resources",
        ),
        (
            format!("11 02 4001 LENGTH {handle} {context} 0008 06 01 0000 0000"),
            (3, 0),
            "byte 28: command 0: expected 1, install, or 2, remove",
        ),
        (
            format!("11 02 4001 LENGTH {handle} {context} 0008 06 01 0001 0000"),
            (7, 0),
            "byte 32: the end of the message: expected what is decided",
        ),
        (
            format!(
                "11 02 4001 LENGTH {handle} {context} 0008 06 01 0002 0000
                 0024 06 04 {lease} 000c 04 02 0000000000000001 000c 08 02 0000000000000009"
            ),
            (3, 0),
            "byte 36: field `why` is 9: expected 1 to 8",
        ),
        (
            format!("11 03 4001 LENGTH {handle} 0008 0c 01 0004 0000"),
            (3, 0),
            "byte 20: a report of type 4: expected 1 to 3",
        ),
        (
            "10 06 4001 LENGTH 0009 0b 01 6564676531 000000".into(),
            (3, 0),
            "byte 12: the name of the edge: expected 1 to 64 printable ASCII characters and a 0",
        ),
        ("10 07 4001 00000008".into(), (7, 0), "byte 8: the end of the message: expected a keep-alive timer"),
        ("10 08 4001 00000008".into(), (7, 0), "byte 8: the end of the message: expected an error"),
        (format!("10 04 4001 LENGTH {handle}"), (7, 0), "byte 16: the end of the message: expected a reason"),
    ] {
        let length = hex_bytes(&hex.replace("LENGTH", "00000000")).len();
        let bytes = hex_bytes(&hex.replace("LENGTH", &format!("{length:08x}")));
        let Err(fault @ Fault { code: said, .. }) = decode(&bytes) else { panic!("{hex}: it is a message") };
        assert_eq!(fault.to_string(), format!("COPS, {what}"), "{hex}");
        assert_eq!((said.code, said.sub), error, "{hex}");
    }
}

#[test]
fn a_fault_after_the_handle_knows_it() {
    let bytes = hex_bytes("10 01 4001 00000018 0008 01 01 00000007 0008 63 01 00000000");
    assert_eq!(decode(&bytes).expect_err("99 is not known").handle, Some(7));
}

fn name(random: &mut Random) -> Box<str> {
    let length = 1 + random.below(64);
    (0..length).map(|_| char::from(b'!' + random.below(94) as u8)).collect::<String>().into()
}

fn random_message(random: &mut Random) -> Message {
    let handle = random.below(1 << 32) as u32;
    let some = code(random.below(1 << 16) as u16, random.below(1 << 16) as u16);
    let (lease, version, rate) = (name(random), random.below(u64::MAX), random.below(u64::MAX));
    let (resource, ttl_ms) = (name(random), random.below(1 << 32) as u32);
    let refusal = match random.below(8) {
        0 => Refusal::Full { resource, free: rate },
        1 => Refusal::Unknown { resource },
        2 => Refusal::Stale { newest: rate },
        3 => Refusal::Differs,
        4 => Refusal::TooMany { limit: ttl_ms },
        5 => Refusal::Loop,
        6 => Refusal::Neighbour { resource },
        _ => Refusal::Bad {
            field: [
                Wrong::Lease,
                Wrong::Version,
                Wrong::Path,
                Wrong::Rate,
                Wrong::Min,
                Wrong::Ttl,
                Wrong::Domains,
            ][random.below(7) as usize],
        },
    };
    let one = |random: &mut Random| (random.below(2) == 0).then_some(handle);
    match random.below(14) {
        0 => {
            let path = (0..random.below(9)).map(|_| name(random)).collect();
            let (min, domains) = (random.below(u64::MAX), Vec::new());
            Message::Request { handle, wish: Request { lease, version, path, rate, min, ttl_ms, domains } }
        }
        1 => answer(Verdict::Granted { rate, ttl_ms }),
        2 => answer(Verdict::Refused(refusal)),
        3 => decided(Decided::CalledBack { lease, version, rate }),
        4 => decided(Decided::Ended { lease }),
        5 => Message::Decision { handle, decided: Err(some) },
        6 => {
            let report = [Report::Success, Report::Failure, Report::Accounting][random.below(3) as usize];
            Message::Report { handle, report }
        }
        7 => Message::Delete { handle, reason: some },
        8 => Message::SyncRequest { handle: one(random) },
        9 => Message::Open { pep: lease, token: one(random).map(|_| name(random)) },
        10 => Message::Accept { keep_alive_s: some.code },
        11 => Message::Close { error: some },
        12 => Message::KeepAlive,
        _ => Message::SyncDone { handle: one(random) },
    }
}

#[test]
fn any_message_reads_back_and_its_beginnings_are_none() {
    let mut random = Random::new(weir_seed::seed());
    for _ in 0..weir_seed::effort(2_000) {
        let message = random_message(&mut random);
        let bytes = encoded(&message);
        assert_eq!(decode(&bytes).map(|(_, read)| read), Ok(message));
        assert_eq!(length(&bytes), Ok(Some(bytes.len())));
        assert!(bytes.len() <= MESSAGE_BYTES);
        let part = random.below(bytes.len() as u64) as usize;
        assert!(decode(&bytes[..part]).is_err());
        assert_eq!(length(&bytes[..part]), Ok((part >= HEAD_BYTES).then_some(bytes.len())));
    }
}

/// A capture of raw IPv4: each message is one segment to the port of COPS.
fn capture(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut file = hex_bytes("a1b2c3d4 0002 0004 00000000 00000000 0000ffff 00000065");
    let mut sequence = 1_u32;
    for (second, message) in (1_u32..).zip(messages) {
        let length = 40 + message.len();
        for word in [second, 0, length as u32, length as u32] {
            file.extend(word.to_be_bytes());
        }
        file.extend(hex_bytes("4500"));
        file.extend((length as u16).to_be_bytes());
        file.extend(hex_bytes("0000 4000 40 06 0000 7f000001 7f000001  c000 0cd8"));
        file.extend(sequence.to_be_bytes());
        file.extend(hex_bytes("00000001 5018 ffff 0000 0000"));
        file.extend(message);
        sequence += message.len() as u32;
    }
    file
}

/// T20
#[test]
fn another_reader_of_cops_understands_what_is_written() {
    let path = std::env::temp_dir().join(format!("weir-cops-{}.pcap", std::process::id()));
    let mut random = Random::new(weir_seed::seed());
    let messages: Vec<Message> = vectors().into_iter().map(|(message, _)| message).collect();
    let more = (0..200).map(|_| random_message(&mut random));
    let messages: Vec<Message> = messages.into_iter().chain(more).collect();
    let bytes: Vec<_> = messages.iter().map(encoded).collect();
    std::fs::write(&path, capture(&bytes)).expect("the folder for temporary files is writable");
    let fields = ["cops.op_code", "cops.flags", "cops.msg_len", "_ws.expert.message", "_ws.malformed"];
    let fields = fields.iter().flat_map(|field| ["-e", field]);
    let read = std::process::Command::new("tshark")
        .arg("-n")
        .arg("-r")
        .arg(&path)
        .args(["-T", "fields"])
        .args(fields)
        .output();
    let _ = std::fs::remove_file(&path);
    let Ok(read) = read else {
        return println!("SKIPPED: there is no tshark: write: apt-get install tshark");
    };
    let text = String::from_utf8_lossy(&read.stdout);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), messages.len(), "{}", String::from_utf8_lossy(&read.stderr));
    for ((line, bytes), message) in lines.iter().zip(&bytes).zip(&messages) {
        let read: Vec<_> = line.split('\t').map(str::trim).collect();
        let flags = u8::from_str_radix(read[1].trim_start_matches("0x"), 16);
        assert_eq!(read[0], bytes[1].to_string(), "{message:?}: {line}");
        assert_eq!(flags, Ok(bytes[0] & 0x0f), "{message:?}: {line}");
        assert_eq!(read[2], bytes.len().to_string(), "{message:?}: {line}");
        assert_eq!(read[3..].concat(), "", "{message:?}");
    }
}
