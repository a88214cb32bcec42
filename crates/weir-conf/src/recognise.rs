//! The command `recognise`: how real-time flows are found.

use crate::options::typed;
use crate::plan::{Interface, Options, Recognise};
use crate::reader::{Done, Reader};
use crate::words::{Word, Words};
use weir_core::queue::Value;
use weir_core::units::Duration;
use weir_edge::params::{self, RECOGNISE};
use weir_text::{Place, Trouble};

/// What `rtp 4/2s` says.
const CHAIN: [&str; 2] = ["packets", "within"];
const LONGEST: Duration = Duration::from_secs(3_600);

impl Reader<'_> {
    /// `recognise IF [options]`
    pub fn recognise(&mut self, words: &mut Words<'_>) -> Done {
        let is_option = |word: &str| weir_text::nearest(word, RECOGNISE.iter().map(|s| s.name)).is_some();
        let interface =
            self.interface_before(words, |_, _, words| words.peek().is_none_or(|w| is_option(w.text)))?;
        let place = words.peek().map_or(words.end(), |w| w.place);
        let mut options = Options::new();
        self.words_of(words, "recognise", RECOGNISE, &mut options, |_, _, _| Ok(false))?;
        fits(&options)?;
        let slot = &mut self.plan.interfaces[interface].recognise;
        if slot.is_some() {
            let message = "a second `recognise` for this interface";
            return Err(Trouble::new(place, message, "make one line of the two").into());
        }
        *slot = Some(Recognise { options, place });
        Ok(())
    }

    /// `4/2s`: so many packets, within that time. False if the next word is none of these.
    pub fn packets_within(&mut self, words: &mut Words<'_>, options: &mut Options) -> Done<bool> {
        const FORM: &str = "write `rtp 4/2s`: so many packets within that time; or `rtp on`, or `rtp off`";
        let both = match words.peek() {
            Some(word) if matches!(word.text, "on" | "off") => return Ok(false),
            Some(word) if word.text.starts_with(|c: char| c.is_ascii_digit() || c == '/') => word,
            _ => {
                let word = words.need("the value of `rtp`", FORM)?;
                let message = format!("`rtp` cannot be `{}`", word.text);
                return Err(Trouble::new(word.place, message, FORM).into());
            }
        };
        let Some((packets, within)) = both.text.split_once('/') else {
            let message = format!("`{}` says packets, but not within which time", both.text);
            let help = format!("write both, as in `rtp {}/2s`", both.text);
            return Err(Trouble::new(both.place, message, help).into());
        };
        words.take();
        let column = both.place.column;
        let parts = [(packets, column), (within, column + packets.len() as u32 + 1)];
        for ((text, column), name) in parts.into_iter().zip(CHAIN) {
            let place = Place { column, length: text.chars().count().max(1) as u32, ..both.place };
            if let Some(spec) = RECOGNISE.iter().find(|spec| spec.name == name) {
                self.declared(&mut Words::new(vec![Word { text, place }]), spec, place, options)?;
            }
        }
        Ok(true)
    }
}

/// What options mean together.
fn fits(options: &Options) -> Done {
    if let Some(given) = options.get("within")
        && let Value::Time(within) = given.value
        && (within == Duration::ZERO || within > LONGEST)
    {
        let message = format!("packets within {within}");
        return Err(Trouble::new(given.place, message, "write a time above 0, up to 60min").into());
    }
    let rules = params::recognition(&options.params()).0.rules;
    let refuse = |words: &[&str], needs: &str, help: &str| -> Done {
        let Some(given) = words.iter().find_map(|word| options.get(word)) else { return Ok(()) };
        let message = format!("`{}` without `{needs}`", given.spec.name);
        Err(Trouble::new(given.place, message, help).into())
    };
    if rules.rtp.is_none() {
        let words = ["packets", "within", "offsets", "stun", "dtls"];
        refuse(&words, "rtp", "take this option away, or `rtp off`: without it no payload is looked at")?;
    }
    if rules.statistical.is_none() {
        let help = "add `statistical`, or take this option away";
        refuse(&["rate", "size", "over", "skip", "per"], "statistical", help)?;
    }
    Ok(())
}

/// The line of an interface, if it has one.
pub(crate) fn print(interface: &Interface) -> Option<String> {
    let options = &interface.recognise.as_ref()?.options;
    let mut line = format!("recognise {}", interface.name);
    if CHAIN.iter().any(|name| options.has(name)) {
        let value = |name| match options.get(name) {
            Some(given) => given.value.to_string(),
            None => RECOGNISE.iter().find(|s| s.name == name).map_or("", |s| s.default).to_string(),
        };
        line += &format!(" rtp {}/{}", value(CHAIN[0]), value(CHAIN[1]));
    }
    let rest = options.iter().filter(|option| !CHAIN.contains(&option.spec.name));
    rest.for_each(|option| typed(&mut line, option));
    Some(line)
}
