//! The commands `filter` and `filter6`.

use crate::limits;
use crate::names;
use crate::plan::Filter;
use crate::reader::{Done, Reader, Stop, at};
use crate::words::{Word, Words};
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_core::packet::{Dscp, Family};
use weir_text::number;
use weir_text::{Place, Trouble};

const FORM_4: &str = "a filter line is `filter INTERFACE CLASS [name N] [ruleno R] DST [netmask M] DPORT SRC \
                      [netmask M] SPORT PROTOCOL [tos V [tosmask M]] [dscp D] [gpi SPI] [dontwarn]`";
const FORM_6: &str = "a filter6 line is `filter6 INTERFACE CLASS [name N] [ruleno R] DST[/LEN] DPORT SRC[/LEN] \
                      SPORT PROTOCOL [flowlabel V] [tclass V [tclassmask M]] [dscp D] [gpi SPI] [dontwarn]`";

impl Reader<'_> {
    pub fn filter(&mut self, words: &mut Words<'_>, place: Place, six: bool) -> Done {
        let interface = self.named_interface(words)?;
        let form = if six { FORM_6 } else { FORM_4 };
        let class = words.need("the class", form)?;
        let (name, ruleno) = self.name_and_rule(words, form)?;
        self.known_target(interface, class, words)?;
        let on = &self.plan.interfaces[interface];
        if on.filters.len() >= limits::FILTERS {
            return Err(limits::more_than_of(limits::FILTERS, "filters", &on.name, class.place).into());
        }
        let mut filter = Filter::any(class.text, if six { Family::V6 } else { Family::V4 });
        filter.name = name;
        filter.ruleno = ruleno;
        filter.place = place;
        filter.after_classes = self.plan.interfaces[interface].classes.len();
        filter.dst = self.address(words, six, "the destination address", form)?;
        filter.dst_port = self.port(words, "the destination port", form)?;
        filter.src = self.address(words, six, "the source address", form)?;
        filter.src_port = self.port(words, "the source port", form)?;
        filter.protocol = self.protocol(words, form)?;
        while words.peek().is_some() {
            self.filter_option(words, six, &mut filter)?;
        }
        self.plan.interfaces[interface].filters.push(filter);
        Ok(())
    }

    fn name_and_rule(&mut self, words: &mut Words<'_>, form: &str) -> Done<(Option<String>, i32)> {
        let (mut name, mut ruleno) = (None, 0);
        loop {
            if words.accept("name").is_some() {
                name = Some(words.need("the name of the filter", form)?.text.to_string());
            } else if words.accept("ruleno").is_some() {
                let range = i128::from(i32::MIN)..=i128::from(i32::MAX);
                ruleno = self.number(words, "ruleno", range)?.0 as i32;
            } else {
                return Ok((name, ruleno));
            }
        }
    }

    /// The class or conditioner must be there.
    fn known_target(&self, index: usize, class: Word<'_>, words: &Words<'_>) -> Done {
        let interface = &self.plan.interfaces[index];
        if self.index.named(index, class.text).is_some() {
            return Ok(());
        }
        if self.is_refused(index, class.text) {
            return Ok(());
        }
        // One word too early: the interface was misspelt.
        if let Some(next) = words.peek()
            && (self.index.is_anywhere(next.text) || self.refused.iter().any(|(_, n)| n == next.text))
        {
            return Err(self.no_interface(class));
        }
        let names: Vec<&str> = interface
            .classes
            .iter()
            .map(|c| c.name.as_str())
            .chain(interface.conditioners.iter().map(|c| c.name.as_str()))
            .chain(self.refused_on(&interface.name))
            .collect();
        let message = format!("no class `{}` on interface `{}`", class.text, interface.name);
        let mut trouble = Trouble::new(class.place, message, "a class stands above its filters");
        match weir_text::nearest(class.text, names.iter().copied()) {
            Some(name) => {
                trouble.help = format!("did you mean `{name}`?");
                trouble.replacement = Some(name.to_string());
            }
            None if !names.is_empty() && names.len() <= 20 => {
                trouble.help = format!("classes are {}", names.join(", "));
            }
            None => {}
        }
        Err(trouble.into())
    }

    /// An address and its mask.
    fn address(&mut self, words: &mut Words<'_>, six: bool, what: &str, form: &str) -> Done<(u128, u128)> {
        let word = words.need(what, form)?;
        if six { self.address_6(word) } else { self.address_4(word, words) }
    }

    fn address_4(&mut self, word: Word<'_>, words: &mut Words<'_>) -> Done<(u128, u128)> {
        let (text, length) = match word.text.split_once('/') {
            Some((text, length)) => (text, Some(prefix_length(word, length, 32)?)),
            None => (word.text, None),
        };
        let value = self.quad(Word { text, ..word })?;
        let full = u32::MAX;
        let mask = match (length, words.accept("netmask")) {
            (Some(_), Some(netmask)) => {
                let message = "a prefix length and a netmask";
                return Err(Trouble::new(netmask.place, message, "write one of them").into());
            }
            (Some(length), None) => full.checked_shl(32 - length).unwrap_or(0),
            (None, Some(_)) => {
                let word = words.need("the netmask", "write it as `255.255.255.0` or `0xffffff00`")?;
                let mask = self.quad(word)?;
                if mask == 0 && value != 0 {
                    let message = "a netmask of 0 after an address";
                    return Err(Trouble::new(word.place, message, "write `0` for any address").into());
                }
                mask
            }
            (None, None) => full,
        };
        self.bits_beyond(word, u128::from(value), u128::from(mask), |v| Ipv4Addr::from(v as u32).to_string());
        let value = value & mask;
        Ok(if value == 0 { (0, 0) } else { (u128::from(value), u128::from(mask)) })
    }

    fn bits_beyond(&mut self, word: Word<'_>, value: u128, mask: u128, show: fn(u128) -> String) {
        if value & !mask != 0 {
            let message = format!("`{}` has bits that its mask does not cover", word.text);
            let rest = word.text.find('/').map_or("", |at| &word.text[at..]);
            let right = show(value & mask);
            self.warn(
                Trouble::new(word.place, message, "they are not looked at").write(format!("{right}{rest}")),
            );
        }
    }

    /// `10.0.0.1`, `0` for any, `0xffffff00`.
    fn quad(&mut self, word: Word<'_>) -> Done<u32> {
        const HELP: &str = "write an address as `10.0.0.1`, or `0` for any";
        if let Some(hex) = word.text.strip_prefix("0x") {
            return match u32::from_str_radix(hex, 16) {
                Ok(value) => Ok(value),
                Err(_) => {
                    let message = format!("`{}` is no IPv4 address", word.text);
                    Err(Trouble::new(word.place, message, HELP).into())
                }
            };
        }
        if word.text == "0" {
            return Ok(0);
        }
        if word.text.parse::<Ipv6Addr>().is_ok() {
            let message = format!("`{}` is an IPv6 address", word.text);
            return Err(Trouble::new(word.place, message, "write `filter6` for IPv6").into());
        }
        if !word.text.bytes().all(|b| b.is_ascii_digit() || b == b'.') || word.text.is_empty() {
            let message = format!("`{}` is no IPv4 address", word.text);
            let help = "a host's name is not looked up: write its address, as in `10.0.0.1`, or `0` for any";
            return Err(Trouble::new(word.place, message, help).into());
        }
        let parts: Vec<&str> = word.text.split('.').collect();
        let (mut value, mut octal) = (0u32, false);
        for part in &parts {
            let read =
                number::integer(part, HELP).map_err(|bad| at(word, number::Bad { write: None, ..bad }))?;
            octal |= read.warning.is_some();
            let octet = u8::try_from(read.value).map_err(|_| {
                let message = format!("`{part}` in `{}` is not from 0 to 255", word.text);
                Stop::from(Trouble::new(word.place, message, HELP))
            })?;
            value = value << 8 | u32::from(octet);
        }
        if parts.len() != 4 {
            let message = format!("`{}` has {} of the four numbers of an address", word.text, parts.len());
            return Err(Trouble::new(word.place, message, HELP).into());
        }
        if octal {
            let meant = Ipv4Addr::from(value);
            let zeros = |part: &&str| match part.trim_start_matches('0') {
                "" => "0".to_string(),
                digits => digits.to_string(),
            };
            let decimal: Vec<String> = parts.iter().map(zeros).collect();
            let message = format!("a number of `{}` is octal: it means {meant}", word.text);
            let help = format!("write `{meant}`, or `{}` if it is decimal", decimal.join("."));
            self.warn(Trouble::new(word.place, message, help));
        }
        Ok(value)
    }

    fn address_6(&mut self, word: Word<'_>) -> Done<(u128, u128)> {
        const HELP: &str = "write an address as `2001:db8::1` or `2001:db8::/32`, or `0` for any";
        if word.text == "0" {
            return Ok((0, 0));
        }
        let (text, length) = match word.text.split_once('/') {
            Some((text, length)) => (text, prefix_length(word, length, 128)?),
            None => (word.text, 128),
        };
        let Ok(address) = text.parse::<Ipv6Addr>() else {
            let message = format!("`{}` is no IPv6 address", word.text);
            let help = if text.parse::<Ipv4Addr>().is_ok() { "write `filter` for IPv4" } else { HELP };
            return Err(Trouble::new(word.place, message, help).into());
        };
        let value = u128::from(address);
        let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
        self.bits_beyond(word, value, mask, |v| Ipv6Addr::from(v).to_string());
        let value = value & mask;
        Ok(if value == 0 { (0, 0) } else { (value, mask) })
    }

    fn port(&mut self, words: &mut Words<'_>, what: &str, form: &str) -> Done<u16> {
        const HELP: &str = "write a port from 1 to 65535, the name of a service, or 0 for any";
        let word = words.need(what, form)?;
        if word.text.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            words.untake();
            return Ok(self.number(words, "port", 0..=65_535)?.0 as u16);
        }
        names::service(word.text).ok_or_else(|| {
            let mut trouble = Trouble::new(word.place, format!("no service `{}`", word.text), HELP);
            trouble.replacement = weir_text::nearest(word.text, names::services()).map(str::to_string);
            trouble.into()
        })
    }

    fn protocol(&mut self, words: &mut Words<'_>, form: &str) -> Done<u8> {
        const HELP: &str = "write a number from 1 to 255, a name such as tcp, udp or icmp, or 0 for any";
        let word = words.need("the protocol", form)?;
        if word.text.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            words.untake();
            return Ok(self.number(words, "protocol", 0..=255)?.0 as u8);
        }
        names::protocol(word.text).ok_or_else(|| {
            let mut trouble = Trouble::new(word.place, format!("no protocol `{}`", word.text), HELP);
            trouble.replacement = weir_text::nearest(word.text, names::protocols()).map(str::to_string);
            trouble.into()
        })
    }

    fn filter_option(&mut self, words: &mut Words<'_>, six: bool, filter: &mut Filter) -> Done {
        let Some(word) = words.take() else { return Ok(()) };
        let (tos, tosmask) = if six { ("tclass", "tclassmask") } else { ("tos", "tosmask") };
        match word.text {
            "gpi" => filter.spi = self.number(words, "gpi", 0..=u32::MAX.into())?.0 as u32,
            "dontwarn" => filter.dontwarn = true,
            "flowlabel" if six => {
                filter.flow_label = self.number(words, "flowlabel", 0..=0xf_ffff)?.0 as u32;
            }
            "dscp" => self.dscp(words, word, filter)?,
            w if w == tos => self.tos(words, word, tosmask, filter)?,
            w if w == tosmask => {
                let message = format!("`{tosmask}` does not follow `{tos} VALUE`");
                let help = "ALTQ reads it only there, and passes over it elsewhere";
                return Err(Trouble::new(word.place, message, help).into());
            }
            other => {
                let known = ["gpi", "dontwarn", "dscp", tos, tosmask, if six { "flowlabel" } else { tos }];
                let message = format!("`{other}` is no option of a filter");
                let mut help = "take it away: ALTQ passed over it without a word".to_string();
                if matches!(other, "name" | "ruleno") {
                    help = format!("`{other}` stands behind the class, before the addresses");
                }
                let mut trouble = Trouble::new(word.place, message, help);
                if let Some(name) = weir_text::nearest(other, known) {
                    trouble.help = format!("did you mean `{name}`?");
                    trouble.replacement = Some(name.to_string());
                }
                return Err(trouble.into());
            }
        }
        Ok(())
    }

    fn tos_once(&self, word: Word<'_>, filter: &Filter) -> Done {
        match filter.tos {
            None => Ok(()),
            Some(_) => {
                let message = format!("`{}` after another that asks for the same byte", word.text);
                Err(Trouble::new(word.place, message, "write one of them").into())
            }
        }
    }

    fn dscp(&mut self, words: &mut Words<'_>, word: Word<'_>, filter: &mut Filter) -> Done {
        self.tos_once(word, filter)?;
        const HELP: &str = "write a name such as EF or AF11, or a number from 0 to 63";
        let value = words.need("the code point", HELP)?;
        let dscp = match Dscp::from_name(value.text) {
            Some(dscp) => dscp.value(),
            None if value.text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                words.untake();
                self.number(words, "dscp", 0..=63)?.0 as u8
            }
            None => {
                let message = format!("no code point `{}`", value.text);
                return Err(Trouble::new(value.place, message, HELP).into());
            }
        };
        filter.tos = Some((dscp << 2, 0xfc));
        Ok(())
    }

    /// The whole byte: `tos V [tosmask M]`, or `tclass` and `tclassmask`.
    fn tos(&mut self, words: &mut Words<'_>, word: Word<'_>, maskword: &str, filter: &mut Filter) -> Done {
        self.tos_once(word, filter)?;
        let (value, place) = self.number(words, word.text, 0..=255)?;
        let mut mask = 0xff;
        let masked = words.accept(maskword).is_some();
        if masked {
            mask = self.number(words, maskword, 0..=255)?.0;
        } else if let Some(next) = words.peek().filter(|w| matches!(w.text, "gpi" | "flowlabel")) {
            let message = format!("`{}` directly after `{}`", next.text, word.text);
            let help = format!(
                "ALTQ passes over the word that follows the value of `{}`: write `{maskword} 0xff` between",
                word.text
            );
            return Err(Trouble::new(next.place, message, help)
                .write(format!("{maskword} 0xff {}", next.text))
                .into());
        }
        let (value, mask) = (value as u8, mask as u8);
        if value & !mask != 0 {
            let message =
                format!("`{} {value:#x}` has bits that its mask {mask:#x} does not cover", word.text);
            self.warn(Trouble::new(place, message, "they are not looked at"));
        }
        if value & mask == 0 {
            let message = format!("`{} 0` asks for nothing", word.text);
            self.warn(Trouble::new(place, message, "write `dscp BE` for best effort, or leave it out"));
            return Ok(());
        }
        filter.tos = Some((value & mask, mask));
        if filter.asks_ecn_bits() {
            let message = format!("`{} {value:#x}` asks for the ECN bits", word.text);
            let help = match value {
                1..=4 => format!(
                    "ECN is off on this interface then; write `dscp {value}` if {value} is the code point"
                ),
                _ => "ECN is off on this interface then; write `dscp` to ask for the code point".to_string(),
            };
            self.warn(Trouble::new(place, message, help));
        }
        Ok(())
    }
}

fn prefix_length(word: Word<'_>, text: &str, most: u32) -> Done<u32> {
    match text.parse::<u32>() {
        Ok(length) if length <= most && !text.starts_with('+') => Ok(length),
        _ => {
            let message = format!("`/{text}` is no prefix length");
            Err(Trouble::new(word.place, message, format!("write a number from 0 to {most}")).into())
        }
    }
}
