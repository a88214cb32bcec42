//! A small capture with real headers.

/// A UDP or TCP frame over IPv4 of `len` bytes.
pub fn frame(protocol: u8, source_port: u16, destination_port: u16, tos: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    let ip = &mut frame[14..];
    let total = (len - 14) as u16;
    ip[0] = 0x45;
    ip[1] = tos;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip[8] = 64;
    ip[9] = protocol;
    ip[12..16].copy_from_slice(&[10, 0, 0, 1]);
    ip[16..20].copy_from_slice(&[10, 0, 0, 2]);
    let sum: u32 = ip[..20].chunks(2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip[20..22].copy_from_slice(&source_port.to_be_bytes());
    ip[22..24].copy_from_slice(&destination_port.to_be_bytes());
    if protocol == 6 {
        ip[32] = 0x50;
        ip[33] = 0x10;
    } else {
        ip[24..26].copy_from_slice(&(total - 20).to_be_bytes());
    }
    frame
}

/// A pcap of frames with their times in microseconds; each is captured up to `snap` bytes.
pub fn file(frames: &[(u64, Vec<u8>)], snap: usize) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, snap as u32, 1] {
        file.extend(u32::to_le_bytes(word));
    }
    for (at_us, frame) in frames {
        let kept = frame.len().min(snap);
        let words = [(at_us / 1_000_000) as u32, (at_us % 1_000_000) as u32, kept as u32, frame.len() as u32];
        words.iter().for_each(|w| file.extend(w.to_le_bytes()));
        file.extend(&frame[..kept]);
    }
    file
}
