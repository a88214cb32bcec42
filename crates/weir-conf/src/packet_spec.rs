//! A packet in words, as `weir explain` takes it: `tcp 10.0.0.1:5000 > 10.0.0.2:80 tos 0x10`.

use crate::names;
use crate::words::{Word, Words};
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_core::packet::{Dscp, Family, Key};
use weir_text::number;
use weir_text::{Diagnostic, Place, Severity, Source, Trouble};

const FORM: &str = "a packet is written as `tcp 10.0.0.1:5000 > 10.0.0.2:80`, then perhaps `tos 0x10`, `dscp EF`, \
                    `flowlabel 7` or `gpi 0x100`; IPv6 as `udp [2001:db8::1]:5000 > [2001:db8::2]:53`";

/// The headers of the packet that `text` describes:
/// `PROTOCOL SOURCE[:PORT] > DESTINATION[:PORT] [tos V | dscp D] [flowlabel V] [gpi V]`, where the
/// protocol is a name or `proto NUMBER`.
///
/// # Errors
/// A diagnostic whose caret stands under what is wrong.
pub fn parse(text: &str) -> Result<Key, Diagnostic> {
    // One line, whatever is in it: no comments, no joining.
    let flat: String = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    let source = Source::new("packet", &flat);
    key(&flat).map_err(|trouble| source.diagnostic(Severity::Error, trouble))
}

fn key(text: &str) -> Result<Key, Trouble> {
    let mut column = 1;
    let mut words = Vec::new();
    for piece in text.split(' ') {
        let length = piece.chars().count() as u32;
        if length > 0 {
            words.push(Word { text: piece, place: Place { line: 1, column, length } });
        }
        column += length + 1;
    }
    if words.is_empty() {
        return Err(Trouble::new(Place { line: 1, column: 1, length: 1 }, "no packet", FORM));
    }
    let mut words = Words::new(words);
    let mut key = Key::default();
    let protocol = protocol(&mut words, &mut key)?;
    let source_word = words.need("the source address", FORM)?;
    let (family, address, port) = end(source_word)?;
    (key.family, key.src, key.src_port) = (family, address, port);
    match words.take() {
        Some(word) if word.text == ">" => {}
        Some(word) => {
            let message = format!("`{}` where `>` is expected", word.text);
            return Err(Trouble::new(word.place, message, FORM));
        }
        None => return Err(Trouble::new(words.end(), "`>` and the destination are missing", FORM)),
    }
    let destination_word = words.need("the destination address", FORM)?;
    let (family, address, port) = end(destination_word)?;
    (key.dst, key.dst_port) = (address, port);
    if family != key.family {
        let message = "one address is IPv4 and the other IPv6";
        return Err(Trouble::new(destination_word.place, message, "both must be of one family"));
    }
    let has_ports = matches!(key.protocol, 6 | 17);
    for (word, port) in [(source_word, key.src_port), (destination_word, key.dst_port)] {
        if port != 0 && !has_ports {
            let message = format!("a port, and the protocol is {}", protocol.text);
            return Err(Trouble::new(word.place, message, "only TCP and UDP have ports"));
        }
    }
    if key.family == Family::V6 && key.protocol == 1 && protocol.text == "icmp" {
        key.protocol = 58;
    }
    let mut tos_given = false;
    while let Some(word) = words.take() {
        option(&mut words, word, &mut key, &mut tos_given)?;
    }
    Ok(key)
}

fn protocol<'a>(words: &mut Words<'a>, key: &mut Key) -> Result<Word<'a>, Trouble> {
    const HELP: &str = "begin with tcp, udp, icmp, another protocol's name, or `proto NUMBER`";
    let word = words.need("the protocol", HELP)?;
    if word.text == "proto" {
        let (number, _) = integer(words, "the protocol's number", 0..=255)?;
        key.protocol = number as u8;
        return Ok(word);
    }
    match names::protocol(word.text) {
        Some(protocol) => key.protocol = protocol,
        None => {
            let mut trouble = Trouble::new(word.place, format!("no protocol `{}`", word.text), HELP);
            trouble.replacement = weir_text::nearest(word.text, names::protocols()).map(str::to_string);
            return Err(trouble);
        }
    }
    Ok(word)
}

fn option(words: &mut Words<'_>, word: Word<'_>, key: &mut Key, tos_given: &mut bool) -> Result<(), Trouble> {
    if matches!(word.text, "tos" | "tclass" | "dscp") && std::mem::replace(tos_given, true) {
        let message = format!("`{}` after another that sets the same byte", word.text);
        return Err(Trouble::new(word.place, message, "write one of them"));
    }
    match word.text {
        "tos" | "tclass" => key.tos = integer(words, word.text, 0..=255)?.0 as u8,
        "dscp" => key.tos = code_point(words)?.on_tos(0),
        "gpi" | "spi" => key.spi = integer(words, word.text, 0..=u32::MAX.into())?.0 as u32,
        "flowlabel" => {
            let (label, place) = integer(words, "flowlabel", 0..=0xf_ffff)?;
            if key.family != Family::V6 {
                return Err(Trouble::new(
                    place,
                    "a flow label in an IPv4 packet",
                    "only IPv6 has flow labels",
                ));
            }
            key.flow_label = label as u32;
        }
        other => {
            let message = format!("`{other}` is no field of a packet");
            return Err(Trouble::new(word.place, message, "fields are tos, dscp, flowlabel and gpi"));
        }
    }
    Ok(())
}

fn code_point(words: &mut Words<'_>) -> Result<Dscp, Trouble> {
    const HELP: &str = "write a name such as EF or AF11, or a number from 0 to 63";
    let word = words.need("the code point", HELP)?;
    if let Some(dscp) = Dscp::from_name(word.text) {
        return Ok(dscp);
    }
    let number = number::integer(word.text, HELP).ok().and_then(|r| u8::try_from(r.value).ok());
    number
        .and_then(Dscp::new)
        .ok_or_else(|| Trouble::new(word.place, format!("no code point `{}`", word.text), HELP))
}

fn integer(
    words: &mut Words<'_>,
    what: &str,
    range: std::ops::RangeInclusive<i128>,
) -> Result<(i128, Place), Trouble> {
    let expected = format!("a whole number from {} to {}", range.start(), range.end());
    let word = words.need(what, &expected)?;
    let read = number::integer(word.text, &expected).map_err(|bad| crate::reader::at(word, bad))?;
    if !range.contains(&read.value) {
        return Err(Trouble::new(word.place, format!("{what} {} is out of range", word.text), expected));
    }
    Ok((read.value, word.place))
}

/// One end: an address with a port, or without.
fn end(word: Word<'_>) -> Result<(Family, u128, u16), Trouble> {
    const HELP: &str = "write an end as `10.0.0.1:5000`, `10.0.0.1`, `[2001:db8::1]:5000` or `2001:db8::1`";
    let bad = || Trouble::new(word.place, format!("`{}` is no address", word.text), HELP);
    if let Some(rest) = word.text.strip_prefix('[') {
        let (address, tail) = rest.split_once(']').ok_or_else(bad)?;
        let address: Ipv6Addr = address.parse().map_err(|_| bad())?;
        let port = match tail.strip_prefix(':') {
            Some(port) => port_of(word, port)?,
            None if tail.is_empty() => 0,
            None => return Err(bad()),
        };
        return Ok((Family::V6, address.into(), port));
    }
    if let Ok(address) = word.text.parse::<Ipv6Addr>() {
        return Ok((Family::V6, address.into(), 0));
    }
    let (address, port) = match word.text.split_once(':') {
        Some((address, port)) => (address, Some(port)),
        None => (word.text, None),
    };
    let address: Ipv4Addr = address.parse().map_err(|_| bad())?;
    let port = port.map_or(Ok(0), |port| port_of(word, port))?;
    Ok((Family::V4, u32::from(address).into(), port))
}

fn port_of(word: Word<'_>, port: &str) -> Result<u16, Trouble> {
    if let Some(known) = names::service(port) {
        return Ok(known);
    }
    let number = port.bytes().all(|b| b.is_ascii_digit()).then(|| port.parse::<u16>().ok()).flatten();
    number.ok_or_else(|| {
        let length = port.chars().count() as u32;
        let column = word.place.column + word.place.length - length;
        let place = Place { column, length: length.max(1), ..word.place };
        Trouble::new(
            place,
            format!("`{port}` is no port"),
            "write a number from 0 to 65535 or a service's name",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_in_words() {
        let key = parse("tcp 10.0.0.1:5000 > 10.0.0.2:80 tos 0x10").unwrap();
        let expected = Key {
            src: 0x0a00_0001,
            dst: 0x0a00_0002,
            src_port: 5000,
            dst_port: 80,
            family: Family::V4,
            protocol: 6,
            tos: 0x10,
            ..Key::default()
        };
        assert_eq!(key, expected);
        let key = parse("udp [2001:db8::1]:5000 > [2001:db8::2]:domain dscp EF flowlabel 7").unwrap();
        assert_eq!((key.family, key.dst_port, key.tos, key.flow_label), (Family::V6, 53, 0xb8, 7));
        let key = parse(" icmp  10.0.0.1 > 10.0.0.2").unwrap();
        assert_eq!((key.protocol, key.src_port), (1, 0));
        assert_eq!(parse("icmp ::1 > ::2").unwrap().protocol, 58);
        let key = parse("proto 50 10.0.0.1 > 10.0.0.2 gpi 0x100").unwrap();
        assert_eq!((key.protocol, key.spi), (50, 0x100));
    }

    #[test]
    fn what_is_wrong_has_its_caret() {
        let shown = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            shown("tcp 10.0.0.1:5000 > 10.0.0.2:99999"),
            "error: `99999` is no port\n --> packet:1:30\n  |\n1 | tcp 10.0.0.1:5000 > 10.0.0.2:99999\n  |                              ^^^^^\n  |\n  \
             = help: write a number from 0 to 65535 or a service's name"
        );
        for (text, column) in [
            ("", 1),
            ("tpc 10.0.0.1 > 10.0.0.2", 1),
            ("tcp", 5),
            ("tcp 10.0.0.300 > 10.0.0.2", 5),
            ("tcp 10.0.0.1 10.0.0.2", 14),
            ("tcp 10.0.0.1", 14),
            ("tcp 10.0.0.1 > ::1", 16),
            ("icmp 10.0.0.1:5 > 10.0.0.2", 6),
            ("tcp 10.0.0.1 > 10.0.0.2 tos 256", 29),
            ("tcp 10.0.0.1 > 10.0.0.2 tos 1 dscp EF", 31),
            ("tcp 10.0.0.1 > 10.0.0.2 flowlabel 5", 35),
            ("tcp 10.0.0.1 > 10.0.0.2 colour red", 25),
            ("tcp [::1 > ::2", 5),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!((error.line, error.column), (1, column), "{text}: {error}");
            assert!(!error.help.is_empty(), "{text}");
        }
    }
}
