//! The words behind `protect`: which control packets go before the classes, and how much of them.

use crate::plan::Protection;
use crate::reader::{Done, at};
use crate::view::View;
use crate::words::{Word, Words};
use std::fmt;
use weir_core::packet::{ControlKind, ControlSet};
use weir_core::port::Protect;
use weir_core::queue::Link;
use weir_text::{Place, Trouble, number};

/// `RATE|auto|off [except PROTOCOL,...]`
pub(crate) fn protection(words: &mut Words<'_>) -> Done<Protection> {
    const HELP: &str = "write `protect 500K`, `auto` or `off`";
    let value = words.need("how much control packets may take", HELP)?;
    // `None`: nothing is protected, as with a rate of 0.
    let rate = match value.text {
        "off" => None,
        "auto" => Some(None),
        text => {
            let rate = number::rate(text).map_err(|bad| at(value, bad))?;
            (!rate.is_zero()).then_some(Some(rate))
        }
    };
    let Some(except) = words.accept("except") else {
        let except = ControlSet::NONE;
        return Ok(rate.map_or(Protection::Off, |rate| Protection::On { rate, except }));
    };
    let list = words.need("the list of protocols", "write it as in `except bgp,dhcp`")?;
    match rate {
        Some(rate) => Ok(Protection::On { rate, except: kinds(list)? }),
        None => {
            let message = format!("`except` behind `protect {}`", value.text);
            let help = "nothing is protected, so nothing can be excepted: write a rate or `auto`, or take `except` away";
            Err(Trouble::new(except.place, message, help).into())
        }
    }
}

/// `bgp,dhcp`
fn kinds(list: Word<'_>) -> Done<ControlSet> {
    let mut set = ControlSet::NONE;
    let mut column = list.place.column;
    for name in list.text.split(',') {
        let length = name.chars().count() as u32;
        let place = Place { column, length: length.max(1), ..list.place };
        column += length + 1;
        let Some(kind) = ControlKind::from_name(name) else {
            let names = ControlKind::ALL.map(ControlKind::name);
            let message = match name {
                "" => "a protocol's name is missing".to_string(),
                name => format!("no control protocol `{name}`"),
            };
            let help = format!("they are {}, with commas and no blanks", names.join(", "));
            let mut trouble = Trouble::new(place, message, help);
            trouble.replacement = weir_text::nearest(name, names).map(str::to_string);
            return Err(trouble.into());
        };
        if set.contains(kind) {
            return Err(Trouble::new(place, format!("`{name}` stands here twice"), "take one away").into());
        }
        set = set.with(kind);
    }
    Ok(set)
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Protection::On { rate, except } = self else {
            return f.write_str("off");
        };
        match rate {
            None => f.write_str("auto")?,
            Some(rate) => write!(f, "{rate}")?,
        }
        if except.is_empty() {
            return Ok(());
        }
        write!(f, " except {}", names(*except, ","))
    }
}

/// The names of the kinds in a set, `between` them.
pub fn names(set: ControlSet, between: &str) -> String {
    set.kinds().map(ControlKind::name).collect::<Vec<_>>().join(between)
}

impl View<'_> {
    /// What control packets may take of `link` before all classes; `None` if the line says `protect off`.
    pub fn protect(&self, link: &Link) -> Option<Protect> {
        let Protection::On { rate, except } = self.interface.protect.unwrap_or_default() else {
            return None;
        };
        let every = rate.map_or_else(|| Protect::of(link), |rate| Protect::at(rate, link));
        Some(Protect { kinds: except.others(), ..every })
    }
}
