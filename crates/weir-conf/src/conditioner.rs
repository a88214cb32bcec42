//! The command `conditioner`: actions in angle brackets, one inside the other.

use crate::index::Named;
use crate::limits;
use crate::plan::{Action, Conditioner, Meter};
use crate::reader::{Done, Reader, Stop, at};
use crate::words::{Word, Words};
use weir_core::packet::Dscp;
use weir_core::queue::TimeUnit;
use weir_core::units::Rate;
use weir_text::number;
use weir_text::{Place, Trouble};

/// How deep actions may stand in one another.
const MAX_DEPTH: u32 = 16;
const ACTIONS: [&str; 9] =
    ["pass", "drop", "mark", "conditioner", "tbmeter", "srtcm", "trtcm", "trtcm4115", "tswtcm"];

impl Reader<'_> {
    /// `conditioner IF NAME <action>`
    pub fn conditioner(&mut self, words: &mut Words<'_>) -> Done {
        const FORM: &str = "a conditioner line is `conditioner INTERFACE NAME <action>`";
        let interface = self.named_interface(words)?;
        let name = words.need("the name of the conditioner", FORM)?;
        if let Some(next) = words.peek()
            && !name.text.contains('<')
            && !next.text.starts_with('<')
        {
            // Two names: the first was meant as the interface.
            return Err(self.no_interface(name));
        }
        let done = self.conditioner_named(interface, name, words);
        if done.is_err() {
            self.refuse(interface, name.text);
        }
        done
    }

    fn conditioner_named(&mut self, interface: usize, name: Word<'_>, words: &mut Words<'_>) -> Done {
        if name.text.contains(['<', '>']) {
            let message = "the name of the conditioner is missing";
            return Err(Trouble::new(name.place, message, "write it before the action").into());
        }
        let on = &self.plan.interfaces[interface];
        if on.conditioners.len() >= limits::CONDITIONERS {
            return Err(
                limits::more_than_of(limits::CONDITIONERS, "conditioners", &on.name, name.place).into()
            );
        }
        if self.index.named(interface, name.text).is_some() {
            let message = format!("`{}` is there already", name.text);
            return Err(Trouble::new(name.place, message, "choose another name").into());
        }
        let end = words.end();
        let mut tokens = Words::new(tokens(words));
        if tokens.peek().is_none() {
            let help = "write it in angle brackets, as in `<tbmeter 1M 64K <pass><drop>>`";
            return Err(Trouble::new(end, "an action is missing", help).into());
        }
        let action = self.action(&mut tokens, interface, 0)?;
        if let Some(extra) = tokens.peek() {
            let message = format!("`{}` after the end of the action", extra.text);
            return Err(Trouble::new(extra.place, message, "a conditioner has one action").into());
        }
        let conditioner = Conditioner { name: name.text.to_string(), action, place: name.place };
        self.index.add_conditioner(&mut self.plan, interface, conditioner);
        Ok(())
    }

    fn action(&mut self, tokens: &mut Words<'_>, interface: usize, depth: u32) -> Done<Action> {
        let known = || format!("an action is one of {}, in angle brackets", ACTIONS.join(", "));
        let open = tokens.need("an action", &known())?;
        if open.text != "<" {
            let message = format!("`{}` where an action begins", open.text);
            return Err(Trouble::new(
                open.place,
                message,
                "an action stands in angle brackets, as in `<drop>`",
            )
            .into());
        }
        if depth == MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} actions in one another");
            let help = "give the inner ones names of their own, and refer to them by `<conditioner NAME>`";
            return Err(Trouble::new(open.place, message, help).into());
        }
        let word = tokens.need("the action", &known())?;
        let action = match word.text {
            "pass" => Action::Pass,
            "drop" => Action::Drop,
            "mark" => Action::Mark(self.mark(tokens)?),
            "conditioner" => Action::Conditioner(self.reference(tokens, interface)?),
            "tbmeter" => {
                let meter =
                    Meter::TokenBucket { rate: rate(tokens, "rate")?, depth: depth_of(tokens, "depth")? };
                self.meter(tokens, interface, depth, meter)?
            }
            "srtcm" => {
                let rate = rate(tokens, "committed rate")?;
                let (burst, excess) =
                    (depth_of(tokens, "committed burst")?, depth_of(tokens, "excess burst")?);
                let meter = Meter::SingleRate { rate, burst, excess, aware: false };
                self.meter(tokens, interface, depth, meter)?
            }
            "trtcm" | "trtcm4115" => {
                let rfc4115 = word.text == "trtcm4115";
                let (committed, burst) =
                    (rate(tokens, "committed rate")?, depth_of(tokens, "committed burst")?);
                let place = tokens.peek().map_or(tokens.end(), |w| w.place);
                let (peak, peak_burst) = (rate(tokens, "peak rate")?, depth_of(tokens, "peak burst")?);
                if !rfc4115 {
                    not_above(place, committed, peak)?;
                }
                let meter =
                    Meter::TwoRate { rate: committed, burst, peak, peak_burst, aware: false, rfc4115 };
                self.meter(tokens, interface, depth, meter)?
            }
            "tswtcm" => {
                let committed = rate(tokens, "committed rate")?;
                let place = tokens.peek().map_or(tokens.end(), |w| w.place);
                let peak = rate(tokens, "peak rate")?;
                not_above(place, committed, peak)?;
                let window = self.window(tokens)?;
                self.meter(tokens, interface, depth, Meter::TimeWindow { rate: committed, peak, window })?
            }
            other => {
                let message = format!("no action `{other}`");
                let mut trouble = Trouble::new(word.place, message, known());
                trouble.replacement = weir_text::nearest(other, ACTIONS).map(str::to_string);
                return Err(trouble.into());
            }
        };
        let close = tokens.need("`>`", "every `<` has its `>`")?;
        if close.text != ">" {
            let message = format!("`{}` where `>` is expected", close.text);
            let help = format!("nothing more belongs to `{}`", word.text);
            return Err(Trouble::new(close.place, message, help).into());
        }
        Ok(action)
    }

    /// The actions of a meter, and for those that can be: whether they see the colour that is
    /// there already.
    fn meter(
        &mut self,
        tokens: &mut Words<'_>,
        interface: usize,
        depth: u32,
        mut meter: Meter,
    ) -> Done<Action> {
        let mut actions = Vec::new();
        for _ in 0..meter.results() {
            actions.push(self.action(tokens, interface, depth + 1)?);
        }
        if let Meter::SingleRate { aware, .. } | Meter::TwoRate { aware, .. } = &mut meter {
            if tokens.accept("coloraware").is_some() {
                *aware = true;
            } else {
                tokens.accept("colorblind");
            }
        }
        Ok(Action::Meter { meter, actions })
    }

    fn mark(&mut self, tokens: &mut Words<'_>) -> Done<u8> {
        const HELP: &str = "write the whole byte, as in `mark 0xb8`, or the code point, as in `mark EF`";
        let word = tokens.need("the mark", HELP)?;
        if let Some(dscp) = Dscp::from_name(word.text) {
            return Ok(dscp.on_tos(0));
        }
        if !word.text.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            let message = format!("no code point `{}`", word.text);
            return Err(Trouble::new(word.place, message, HELP).into());
        }
        tokens.untake();
        let (byte, place) = self.number(tokens, "mark", 0..=255)?;
        if byte & 0x03 != 0 {
            let message = format!("`mark {byte:#x}` has ECN bits");
            let help = "only the upper six bits, the code point, are written";
            self.warn(Trouble::new(place, message, help).write(format!("{:#x}", byte & 0xfc)));
        }
        Ok(byte as u8 & 0xfc)
    }

    /// A conditioner that stands above, by its name.
    fn reference(&self, tokens: &mut Words<'_>, interface: usize) -> Done<String> {
        let word = tokens.need("the name of a conditioner", "it stands above this line")?;
        if self.index.named(interface, word.text) == Some(Named::Conditioner) {
            return Ok(word.text.to_string());
        }
        if self.is_refused(interface, word.text) {
            return Err(Stop::Silent);
        }
        let known = &self.plan.interfaces[interface].conditioners;
        let message = format!("no conditioner `{}`", word.text);
        let mut trouble =
            Trouble::new(word.place, message, "a conditioner stands above those that refer to it");
        trouble.replacement =
            weir_text::nearest(word.text, known.iter().map(|c| c.name.as_str())).map(str::to_string);
        Err(trouble.into())
    }

    fn window(&mut self, tokens: &mut Words<'_>) -> Done<weir_core::units::Duration> {
        let word =
            tokens.need("the averaging interval", "write a time, as in `500ms`; a bare number is in ms")?;
        let read = number::time(word.text, Some(TimeUnit::Millis)).map_err(|bad| at(word, bad))?;
        if let Some(warning) = read.warning {
            self.warn(at(word, warning));
        }
        if read.value.is_zero() {
            let message = "an averaging interval of 0";
            return Err(Trouble::new(word.place, message, "write a time, as in `500ms`").into());
        }
        Ok(read.value)
    }
}

fn rate(tokens: &mut Words<'_>, what: &str) -> Done<Rate> {
    let word = tokens.need(&format!("the {what}"), "write a rate, as in `6M`")?;
    Ok(number::rate(word.text).map_err(|bad| at(word, bad))?)
}

fn depth_of(tokens: &mut Words<'_>, what: &str) -> Done<u64> {
    let word = tokens.need(&format!("the {what}"), "write bytes, as in `64K`")?;
    Ok(number::bytes(word.text).map_err(|bad| at(word, bad))?)
}

fn not_above(place: Place, committed: Rate, peak: Rate) -> Done {
    if committed <= peak {
        return Ok(());
    }
    let message = format!("the committed rate {committed} is above the peak rate {peak}");
    Err(Trouble::new(place, message, "write the committed rate first").into())
}

/// The rest of a line, with `<` and `>` as words of their own.
fn tokens<'a>(words: &mut Words<'a>) -> Vec<Word<'a>> {
    let mut tokens = Vec::new();
    while let Some(word) = words.take() {
        let mut start = 0;
        let mut column = word.place.column;
        let mut push = |text: &'a str, column: &mut u32| {
            let length = text.chars().count() as u32;
            if length > 0 {
                tokens.push(Word { text, place: Place { column: *column, length, ..word.place } });
            }
            *column += length;
        };
        for (at, c) in word.text.char_indices() {
            if matches!(c, '<' | '>') {
                push(&word.text[start..at], &mut column);
                push(&word.text[at..at + 1], &mut column);
                start = at + 1;
            }
        }
        push(&word.text[start..], &mut column);
    }
    tokens
}
