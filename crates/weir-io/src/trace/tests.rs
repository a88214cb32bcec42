use super::*;

type Kept = (u64, u32, Vec<u8>);

fn all(bytes: &[u8]) -> Result<Vec<Kept>, TraceError> {
    let mut trace = Trace::read(io::Cursor::new(bytes.to_vec()))?;
    let mut out = Vec::new();
    while let Some(r) = trace.next()? {
        let content = match r.content {
            Content::Frame(bytes) => bytes.to_vec(),
            Content::Class { class, dscp } => format!("{class}/{dscp:?}").into_bytes(),
        };
        out.push((r.at.as_nanos(), r.len_bytes, content));
    }
    Ok(out)
}

fn error(bytes: &[u8]) -> String {
    all(bytes).expect_err("the file is wrong").to_string()
}

#[test]
fn csv_is_read_plain_and_compressed() {
    let text = b"rate 1500000\n0,1,190\n\n5400000,video A,500,46\r\n5400000,3,1000,0\n";
    let expected = vec![
        (0, 190, b"1/None".to_vec()),
        (5_400_000, 500, b"video A/Some(46)".to_vec()),
        (5_400_000, 1000, b"3/Some(0)".to_vec()),
    ];
    assert_eq!(all(text).unwrap(), expected);
    assert_eq!(Trace::read(&text[..]).unwrap().rate(), Some(Rate::from_bps(1_500_000)));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    io::Write::write_all(&mut packed, text).unwrap();
    assert_eq!(all(&packed.finish().unwrap()).unwrap(), expected);
}

#[test]
fn each_mistake_in_csv_is_told_with_its_line() {
    for (text, message) in [
        (
            "rate fast\n",
            "line 1: expected `rate BPS`, the wire's bits per second as a number, as in `rate 1500000`; found \"rate fast\"",
        ),
        (
            "0,1,190\n",
            "line 1: expected `rate BPS`, the wire's bits per second as a number, as in `rate 1500000`; found \"0,1,190\"",
        ),
        (
            "rate 1\n0,1\n",
            "line 2: expected `arrival_ns,class,size` or `arrival_ns,class,size,dscp`; found \"0,1\"",
        ),
        (
            "rate 1\n0,1,2,3,4\n",
            "line 2: expected `arrival_ns,class,size` or `arrival_ns,class,size,dscp`; found \"0,1,2,3,4\"",
        ),
        ("rate 1\nx,1,2\n", "line 2: arrival \"x\" is not a count of nanoseconds"),
        (
            "rate 1\n\n9,1,2\n8,1,2\n",
            "line 4: arrival 8 ns lies before the line above (9 ns): sort the file by time, as in `sort -t, -n`",
        ),
        ("rate 1\n0,,2\n", "line 2: no class: expected its name, or its index from 1"),
        ("rate 1\n0,1,0\n", "line 2: size \"0\" is not a packet's length in bytes, 1 to 65557"),
        ("rate 1\n0,1,99999999\n", "line 2: size \"99999999\" is not a packet's length in bytes, 1 to 65557"),
        ("rate 1\n0,1,2,64\n", "line 2: the fourth column is a DSCP from 0 to 63"),
        ("", "byte 0: the file is empty: expected pcap, pcapng, or CSV that begins with `rate BPS`"),
    ] {
        assert_eq!(error(text.as_bytes()), message);
    }
    assert!(error(&[0xff; 50]).contains("not text"));
    assert!(error(&[b'a'; 5000]).contains("more than 1024 bytes"));
}

fn put(out: &mut Vec<u8>, big: bool, numbers: &[u32]) {
    for n in numbers {
        out.extend_from_slice(&if big { n.to_be_bytes() } else { n.to_le_bytes() });
    }
}

fn pcap(big: bool, magic: u32, link: u32, packets: &[(u32, u32, u32, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, big, &[magic]);
    out.extend_from_slice(&if big { [0, 2, 0, 4] } else { [2, 0, 4, 0] });
    put(&mut out, big, &[0, 0, 65_535, link]);
    for &(seconds, fraction, len, data) in packets {
        put(&mut out, big, &[seconds, fraction, data.len() as u32, len]);
        out.extend_from_slice(data);
    }
    out
}

#[test]
fn pcap_is_read_in_both_byte_orders_and_both_resolutions() {
    let packets: &[(u32, u32, u32, &[u8])] = &[(100, 5, 60, &[1; 60]), (101, 4, 1514, &[2; 64])];
    for big in [false, true] {
        let micro = all(&pcap(big, 0xa1b2_c3d4, 1, packets)).unwrap();
        assert_eq!(micro, [(0, 60, vec![1; 60]), (999_999_000, 1514, vec![2; 64])]);
        let nano = all(&pcap(big, 0xa1b2_3c4d, 1, packets)).unwrap();
        assert_eq!(nano[1].0, 999_999_999);
    }
}

#[test]
fn times_never_run_backwards_and_say_so() {
    let bytes =
        pcap(false, 0xa1b2_c3d4, 1, &[(9, 0, 60, &[0; 60]), (8, 0, 60, &[0; 60]), (9, 1, 60, &[0; 60])]);
    let times: Vec<_> = all(&bytes).unwrap().iter().map(|r| r.0).collect();
    assert_eq!(times, [0, 0, 1000]);
    let mut trace = Trace::read(io::Cursor::new(bytes)).unwrap();
    while trace.next().unwrap().is_some() {}
    assert_eq!(trace.set_right(), 1);
}

#[test]
fn packets_without_an_ethernet_header_get_one() {
    let raw =
        all(&pcap(false, 0xa1b2_c3d4, 101, &[(0, 0, 20, &[0x45; 20]), (0, 0, 40, &[0x60; 40])])).unwrap();
    assert_eq!((raw[0].1, &raw[0].2[12..15]), (34, &[0x08, 0x00, 0x45][..]));
    assert_eq!((raw[1].1, &raw[1].2[12..15]), (54, &[0x86, 0xdd, 0x60][..]));
    let mut cooked = vec![0; 14];
    cooked.extend_from_slice(&[0x08, 0x06, 9, 9, 9]);
    let cooked = all(&pcap(false, 0xa1b2_c3d4, 113, &[(0, 0, 19, &cooked)])).unwrap();
    assert_eq!((cooked[0].1, &cooked[0].2[12..]), (17, &[0x08, 0x06, 9, 9, 9][..]));
    assert!(error(&pcap(false, 0xa1b2_c3d4, 105, &[])).contains("link type 105"));
}

/// BSD's loopback, PPP and Cisco's HDLC, with what each puts before IP, and what is no IP.
#[test]
fn headers_of_serial_links_and_loopbacks_are_exchanged() {
    let read = |link: u32, header: &[u8], rest: &[u8]| {
        let bytes = [header, rest].concat();
        let length = bytes.len() as u32;
        let read = all(&pcap(false, 0xa1b2_c3d4, link, &[(0, 0, length, &bytes)])).unwrap();
        assert_eq!(read[0].1, read[0].2.len() as u32);
        (u16::from_be_bytes([read[0].2[12], read[0].2[13]]), read[0].2[14..].to_vec())
    };
    let (v4, v6) = ([0x45; 20], [0x60; 40]);
    for (link, header) in [
        (0, &[2, 0, 0, 0][..]),
        (0, &[0, 0, 0, 2]),
        (108, &[0, 0, 0, 2]),
        (9, &[0xff, 3, 0, 0x21]),
        (9, &[0, 0x21]),
        (9, &[0x21]),
        (104, &[0x0f, 0, 8, 0]),
    ] {
        assert_eq!(read(link, header, &v4), (0x0800, v4.to_vec()), "{link} {header:?}");
    }
    for (link, header) in [
        (0, &[30, 0, 0, 0][..]),
        (108, &[0, 0, 0, 24]),
        (9, &[0xff, 3, 0, 0x57]),
        (9, &[0x57]),
        (104, &[0x8f, 0, 0x86, 0xdd]),
    ] {
        assert_eq!(read(link, header, &v6), (0x86dd, v6.to_vec()), "{link} {header:?}");
    }
    let request = [0xc0, 0x21, 1, 1, 0, 4];
    assert_eq!(read(9, &[0xff, 3], &request), (0x880b, request.to_vec()));
    assert_eq!(read(104, &[0x8f, 0, 0x80, 0x35], &[0; 4]), (0x8035, vec![0; 4]));
    for link in [0, 9, 104] {
        assert_eq!(all(&pcap(false, 0xa1b2_c3d4, link, &[(0, 0, 0, &[])])).unwrap()[0].1, 14);
    }
}

fn block(out: &mut Vec<u8>, big: bool, kind: u32, body: &[u8]) {
    let length = 12 + body.len().next_multiple_of(4) as u32;
    put(out, big, &[kind, length]);
    out.extend_from_slice(body);
    out.resize(out.len().next_multiple_of(4), 0);
    put(out, big, &[length]);
}

fn pcapng(big: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut section = Vec::new();
    put(&mut section, big, &[0x1a2b_3c4d]);
    section.extend_from_slice(&if big { [0, 1, 0, 0] } else { [1, 0, 0, 0] });
    section.extend_from_slice(&[0xff; 8]);
    block(&mut out, big, SECTION_KIND, &section);
    let short = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    for resolution in [6u8, 9, 0x80 | 20] {
        let mut interface = [short(1), short(0), short(0), short(0)].concat();
        interface
            .extend_from_slice(&[short(9), short(1), [resolution, 0], [0, 0], short(0), short(0)].concat());
        block(&mut out, big, 1, &interface);
    }
    block(&mut out, big, 5, &[7; 21]);
    for (interface, time) in [(0u32, 2_000_000u32), (1, 2_000_000_500), (2, 3 << 20)] {
        let mut packet = Vec::new();
        put(&mut packet, big, &[interface, 0, time, 61, 1514]);
        packet.extend_from_slice(&[interface as u8; 61]);
        block(&mut out, big, 6, &packet);
    }
    let mut simple = Vec::new();
    put(&mut simple, big, &[15]);
    simple.extend_from_slice(&[8; 15]);
    block(&mut out, big, 3, &simple);
    out
}
const SECTION_KIND: u32 = 0x0a0d_0d0a;

#[test]
fn pcapng_is_read_with_each_interface_s_own_time_unit() {
    for big in [false, true] {
        assert_eq!(
            all(&pcapng(big)).unwrap(),
            [
                (0, 1514, vec![0; 61]),
                (500, 1514, vec![1; 61]),
                (1_000_000_000, 1514, vec![2; 61]),
                (1_000_000_000, 15, vec![8; 15])
            ]
        );
    }
    // A second section, of the other byte order, starts afresh.
    let both = [pcapng(false), pcapng(true)].concat();
    assert_eq!(all(&both).unwrap().len(), 8);
}

/// Damaged files of all three formats: an error or fewer packets, never a panic. 12,000 cases.
#[test]
fn damaged_files_never_panic() {
    let mut random = weir_core::Random::new(weir_seed::seed());
    let mut next = || random.next_u64();
    let whole = [
        pcap(false, 0xa1b2_c3d4, 1, &[(1, 2, 60, &[3; 60]), (1, 3, 90, &[4; 90])]),
        pcapng(true),
        pcapng(false),
        b"rate 1500000\n0,1,190\n5400000,video,500,46\n".to_vec(),
    ];
    let mut failed = 0;
    for _ in 0..3000 {
        for file in &whole {
            let mut bytes = file.clone();
            for _ in 0..=next() % 4 {
                let at = (next() % bytes.len() as u64) as usize;
                bytes[at] = next() as u8;
            }
            if next().is_multiple_of(3) {
                bytes.truncate((next() % (bytes.len() as u64 + 1)) as usize);
            }
            failed += u32::from(all(&bytes).is_err());
        }
    }
    assert!(failed > 1000, "only {failed} damaged files were noticed");
}
