//! `broker`: whom `allocate` asks for bandwidth, in the same process or elsewhere.

use crate::limits::MAX_EDGE;
use crate::plan::{Broker, Door, Elsewhere};
use crate::reader::{Done, Reader, at};
use crate::words::{Word, Words};
use std::fmt::Write;
use weir_core::units::{Duration, Rate};
use weir_text::Trouble;
use weir_text::number;

/// What a broker elsewhere may have, as far as anybody knows here.
const ANY: Rate = Rate::from_bps(1_000_000_000_000_000);
/// How long a lease holds if it is not said.
const TTL: Duration = Duration::from_secs(30);
/// The shortest and the longest lease.
const TTLS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3_600)];
/// The port of COPS, and the one of COPS by TLS.
const COPS: [u16; 2] = [3288, 3183];

impl Reader<'_> {
    /// `broker NAME local CAPACITY`, or `broker NAME WHERE [words]`
    pub fn broker(&mut self, words: &mut Words<'_>) -> Done {
        const FORM: &str = "a broker is `broker NAME local CAPACITY`, or one elsewhere: \
                            `https://HOST:PORT ca FILE`, `unix:PATH` or `cops HOST`";
        let name = words.need("the name of the broker", FORM)?;
        if self.plan.brokers.iter().any(|b| b.name == name.text) {
            let message = format!("broker `{}` is there already", name.text);
            return Err(Trouble::new(name.place, message, "choose another name").into());
        }
        let kind = words.need("where the broker is", FORM)?;
        let (capacity, elsewhere) = if kind.text == "local" {
            let word = words.need("the capacity of the broker", FORM)?;
            (number::rate(word.text).map_err(|bad| at(word, bad))?, None)
        } else {
            (ANY, Some(elsewhere(kind, words, FORM)?))
        };
        self.plan.brokers.push(Broker { name: name.text.into(), capacity, elsewhere, place: name.place });
        Ok(())
    }
}

/// A host and a port, which may be left out if one is usual.
fn host(word: Word<'_>, text: &str, usual: Option<u16>) -> Result<(String, Option<u16>), Trouble> {
    let wrong = |help: &str| Trouble::new(word.place, format!("`{text}` is no host and port"), help);
    let form = "write a name or an address, and a port: `bb.example.net:7443`, `[2001:db8::1]:7443`";
    let (host, port) = match text.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
        None => (text, None),
        Some((host, port)) => {
            (host, Some(port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(|| wrong(form))?))
        }
    };
    let inside = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let good = match inside {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-'),
    };
    if !good || (port.is_none() && usual.is_none()) {
        return Err(wrong(form));
    }
    Ok((host.into(), port.or(usual)))
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn elsewhere(kind: Word<'_>, words: &mut Words<'_>, form: &str) -> Done<Elsewhere> {
    let mut found =
        Elsewhere { door: Door::Unix(String::new()), ca: None, own: None, token: None, edge: None, ttl: TTL };
    let to = if kind.text == "cops" { words.need("the host of the broker", form)? } else { kind };
    let (mut cert, mut key) = (None, None);
    while let Some(word) = words.take() {
        match word.text {
            "ca" => found.ca = Some(file(words)?.text.into()),
            "cert" => cert = Some(file(words)?),
            "key" => key = Some(file(words)?),
            "token" => found.token = Some(file(words)?.text.into()),
            "edge" => found.edge = Some(edge(words)?),
            "ttl" => found.ttl = ttl(words)?,
            other => {
                let known = ["ca", "cert", "key", "token", "edge", "ttl"];
                let message = format!("a broker elsewhere has no `{other}`");
                let mut trouble = Trouble::new(word.place, message, format!("expected {}", known.join(", ")));
                if let Some(near) = weir_text::nearest(other, known) {
                    trouble.help = format!("did you mean `{near}`?");
                    trouble.replacement = Some(near.into());
                }
                return Err(trouble.into());
            }
        }
    }
    found.own = match (cert, key) {
        (Some(cert), Some(key)) => Some([cert.text.into(), key.text.into()]),
        (None, None) => None,
        (Some(one), None) | (None, Some(one)) => {
            let help = "add the other one: `cert edge.pem key edge.key`";
            return Err(Trouble::new(one.place, "a certificate and its key go together", help).into());
        }
    };
    if let (Some(_), Some(cert)) = (&found.token, cert) {
        let help = "take one of them away: a certificate says who this is, and so does a token";
        return Err(Trouble::new(cert.place, "a certificate and a token", help).into());
    }
    found.door = door(kind, to, &found, form)?;
    Ok(found)
}

fn file<'a>(words: &mut Words<'a>) -> Done<Word<'a>> {
    Ok(words.need("a file", "name a file in PEM, or one with a token")?)
}

/// Where it is, by the word that says so. Nothing that a stranger could read goes beyond this machine.
fn door(kind: Word<'_>, to: Word<'_>, found: &Elsewhere, form: &str) -> Done<Door> {
    let Elsewhere { ca, own, .. } = found;
    let needs_ca = |what: &str| {
        let message = format!("{what} is spoken by TLS, and nobody says who signs the broker's certificate");
        Trouble::new(to.place, message, "add `ca FILE`")
    };
    let (door, with_tls) = if let Some(at) = kind.text.strip_prefix("https://") {
        let (host, port) = host(kind, at.trim_end_matches('/'), None)?;
        if ca.is_none() {
            return Err(needs_ca("https").into());
        }
        (Door::Https(format!("{host}:{}", port.unwrap_or_default())), true)
    } else if let Some(path) = kind.text.strip_prefix("unix:") {
        if !path.starts_with('/') {
            let help = "write the whole path: `unix:/run/weir-broker.sock`";
            return Err(Trouble::new(kind.place, format!("`{path}` is no whole path"), help).into());
        }
        (Door::Unix(path.into()), false)
    } else if kind.text == "cops" {
        let (host, port) = host(to, to.text, Some(COPS[usize::from(ca.is_some())]))?;
        if ca.is_none() && !is_loopback(&host) {
            return Err(needs_ca("COPS beyond this machine").into());
        }
        (Door::Cops(format!("{host}:{}", port.unwrap_or_default())), ca.is_some())
    } else {
        return Err(Trouble::new(kind.place, format!("no broker is at `{}`", kind.text), form).into());
    };
    if !with_tls && (ca.is_some() || own.is_some()) {
        let help = "take `ca`, `cert` and `key` away: they are for TLS";
        return Err(Trouble::new(kind.place, "certificates without TLS", help).into());
    }
    Ok(door)
}

fn edge(words: &mut Words<'_>) -> Done<String> {
    let word = words.need("the name of this edge", "as in `edge edge1`")?;
    if word.text.len() <= MAX_EDGE && word.text.bytes().all(|b| b.is_ascii_graphic() && b != b'/') {
        return Ok(word.text.into());
    }
    let message = format!("`{}` is no name of an edge", word.text);
    let help = format!("write 1 to {MAX_EDGE} ASCII characters without `/`");
    Err(Trouble::new(word.place, message, help).into())
}

fn ttl(words: &mut Words<'_>) -> Done<Duration> {
    let word = words.need("how long a lease is to hold", "as in `ttl 30s`")?;
    // The times that a reader of times offers are not all long enough.
    let help = || "write 1s to 3600s, as in `30s`".to_owned();
    let ttl = number::time(word.text, None)
        .map_err(|bad| at(word, number::Bad { help: help(), write: None, ..bad }))?
        .value;
    if (TTLS[0]..=TTLS[1]).contains(&ttl) {
        return Ok(ttl);
    }
    Err(Trouble::new(word.place, format!("a lease of {}", word.text), "write 1s to 3600s").into())
}

/// The line of a broker.
pub(crate) fn print(broker: &Broker) -> String {
    let Broker { name, capacity, elsewhere, .. } = broker;
    let Some(Elsewhere { door, ca, own, token, edge, ttl }) = elsewhere else {
        return format!("broker {name} local {capacity}");
    };
    let mut line = match door {
        Door::Https(at) => format!("broker {name} https://{at}"),
        Door::Unix(path) => format!("broker {name} unix:{path}"),
        Door::Cops(at) => format!("broker {name} cops {at}"),
    };
    let (cert, key) = (own.as_ref().map(|own| &own[0]), own.as_ref().map(|own| &own[1]));
    for (word, value) in [
        ("ca", ca.as_ref()),
        ("cert", cert),
        ("key", key),
        ("token", token.as_ref()),
        ("edge", edge.as_ref()),
    ] {
        if let Some(value) = value {
            let _ = write!(line, " {word} {value}");
        }
    }
    if *ttl != TTL {
        let _ = write!(line, " ttl {}ms", ttl.as_nanos() / 1_000_000);
    }
    line
}
