//! The plan: what a configuration says, typed. `Plan` is plain data; two plans are equal when
//! they say the same, wherever they stand in their files.

use std::sync::Arc;
pub use weir_core::meter::Meter;
use weir_core::packet::{ControlSet, Family};
use weir_core::port::Segment;
use weir_core::queue::{Kind, Link, ParamSpec, Params, Value};
use weir_core::units::Rate;
use weir_text::{Place, Source};

/// The rate of an interface whose line gives no `bandwidth`.
pub const DEFAULT_BANDWIDTH: Rate = Rate::from_mbps(100);
/// Ethernet's bytes on the wire beyond the frame: preamble, checksum, gap.
const ETHERNET_OVERHEAD: u32 = 24;

/// A configuration.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Plan {
    /// In the order of the file.
    pub interfaces: Vec<Interface>,
    /// The command `red`: defaults for RED where a discipline gives none.
    pub red: Option<RedDefaults>,
    /// The command `rio`: the same for each drop precedence, low first.
    pub rio: Option<[RedDefaults; 3]>,
    /// Brokers, in the order of the file.
    pub brokers: Vec<Broker>,
    /// The text it was read from, for messages.
    pub source: Arc<Source>,
}

/// Thresholds of RED, in packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RedDefaults {
    /// Lower threshold.
    pub thmin: u64,
    /// Upper threshold.
    pub thmax: u64,
    /// Inverse of the drop probability just below the upper threshold.
    pub invpmax: u64,
}

/// What stands at the egress of one interface.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its bandwidth, where the line gives one.
    pub bandwidth: Option<Rate>,
    /// Depth of the token bucket in bytes; `None` chooses by the rate.
    pub tbrsize: Option<u64>,
    /// `capacity`: packets that may wait in it together; `None`: as many as its queues take.
    pub capacity: Option<u32>,
    /// Bytes that each packet costs on the wire beyond its frame.
    pub overhead: Option<u32>,
    /// Which packet of a tunnel filters are asked about; the inner one if not said.
    pub tunnels: Option<Tunnels>,
    /// What control packets may take before the classes; all of them a twentieth of the link if not said.
    pub protect: Option<Protection>,
    /// Which aggregates are taken apart; the usual ones if not said.
    pub segment: Option<Segment>,
    /// How the packets come to Weir.
    pub attach: Attach,
    /// How the packets of its bridge come, if not as copies of the kernel's.
    pub xdp: Option<Xdp>,
    /// What becomes of the traffic of its bridge without Weir; the kernel carries it if not said.
    pub fail: Option<Fail>,
    /// Threads that run its bridge: one, two, of which each runs a direction, or more, of which each runs a part of
    /// both; one if not said.
    pub workers: Option<usize>,
    /// The discipline; `None` on an interface for conditioners only.
    pub discipline: Option<Queue>,
    /// Its classes; parents before children.
    pub classes: Vec<Class>,
    /// Its filters, in the order of the file.
    pub filters: Vec<Filter>,
    /// Conditioners of its input side, in the order of the file.
    pub conditioners: Vec<Conditioner>,
    /// How real-time flows are found that enter by it.
    pub recognise: Option<Recognise>,
    /// Contracts of the sources that enter by it.
    pub slas: Vec<Sla>,
    /// Classes whose rate is asked for.
    pub allocations: Vec<Allocate>,
    /// Where its name stands.
    pub place: Place,
}

/// `protect`: which control packets go before the classes, and how much they may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// None: they go where filters say.
    Off,
    /// All but some.
    On {
        /// Their rate on the link, above 0; `None`: a twentieth of the link.
        rate: Option<Rate>,
        /// Those that go where filters say.
        except: ControlSet,
    },
}

impl Default for Protection {
    fn default() -> Self {
        Protection::On { rate: None, except: ControlSet::NONE }
    }
}

/// `recognise`: how real-time flows are found.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Recognise {
    /// By [`weir_edge::params::RECOGNISE`].
    pub options: Options,
    /// Where its first option stands.
    pub place: Place,
}

/// `sla`: a contract.
#[derive(Clone, PartialEq, Debug)]
pub struct Sla {
    /// Its number.
    pub id: u32,
    /// Its sources.
    pub prefixes: Vec<weir_edge::sla::Prefix>,
    /// The code point of its packets in profile.
    pub dscp: weir_core::packet::Dscp,
    /// That of packets whose flow the statistical rule found; the same if not said.
    pub guessed_dscp: Option<weir_core::packet::Dscp>,
    /// Its class of the interface by which the packets leave; the first that is allocated if not said.
    pub class: Option<String>,
    /// By [`weir_edge::params::SLA`].
    pub options: Options,
    /// Where its number stands.
    pub place: Place,
}

/// `allocate`: a class whose rate follows its traffic.
#[derive(Clone, PartialEq, Debug)]
pub struct Allocate {
    /// The class.
    pub class: String,
    /// Whom it asks; its own edge if not said.
    pub broker: Option<String>,
    /// By [`weir_edge::params::ALLOCATE`].
    pub options: Options,
    /// Where the class's name stands.
    pub place: Place,
}

/// `broker NAME local CAPACITY`, a broker in the same process, or `broker NAME WHERE [words]`, one elsewhere.
#[derive(Clone, PartialEq, Debug)]
pub struct Broker {
    /// Its name.
    pub name: String,
    /// What it gives away. Of a broker elsewhere nobody knows it here: 10^15 bit/s, the most that any may name.
    pub capacity: Rate,
    /// Where it is, if it is not in the same process.
    pub elsewhere: Option<Elsewhere>,
    /// Where its name stands.
    pub place: Place,
}

/// A broker that is another process, and who comes to it. Files are as the line names them.
#[derive(Clone, PartialEq, Debug)]
pub struct Elsewhere {
    /// Where it listens, and what it speaks.
    pub door: Door,
    /// Who signs its certificate: it is spoken to by TLS then.
    pub ca: Option<String>,
    /// The certificate of this edge, and its key.
    pub own: Option<[String; 2]>,
    /// The file with a token.
    pub token: Option<String>,
    /// The name of this edge, as its leases begin; that of its certificate if not said.
    pub edge: Option<String>,
    /// How long a lease is to hold.
    pub ttl: weir_core::units::Duration,
}

/// The door of a broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Door {
    /// REST by TLS, `HOST:PORT`.
    Https(String),
    /// REST by a Unix socket, its path.
    Unix(String),
    /// COPS, `HOST:PORT`.
    Cops(String),
}

impl Interface {
    /// Its bandwidth, or the default.
    pub fn rate(&self) -> Rate {
        self.bandwidth.unwrap_or(DEFAULT_BANDWIDTH)
    }
    /// The link that its line describes, for packets of up to `mtu` bytes, layer-2 header included.
    pub fn link(&self, mtu: u32) -> Link {
        Link::new(self.rate(), self.overhead.unwrap_or(ETHERNET_OVERHEAD), mtu)
    }
    /// True if any of its lines is of the edge.
    pub(crate) fn has_edge(&self) -> bool {
        self.recognise.is_some() || !self.slas.is_empty() || !self.allocations.is_empty()
    }
    /// The class of that name.
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.iter().find(|c| c.name == name)
    }
    /// The index of the class of that name.
    pub fn class_index(&self, name: &str) -> Option<usize> {
        self.classes.iter().position(|c| c.name == name)
    }
    /// True if filters are asked about the packet inside a GRE or VXLAN tunnel.
    pub fn looks_inside(&self) -> bool {
        self.tunnels != Some(Tunnels::Outer)
    }
    /// True if filters ask for the two ECN bits, as `tos 1` to `tos 4` of the QoSbox do: then
    /// they are code points of the operator's own, and this port neither marks nor reads ECN.
    pub fn ecn_is_off(&self) -> bool {
        self.filters.iter().any(Filter::asks_ecn_bits)
    }
}

/// Which packet of a GRE or VXLAN tunnel filters are asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tunnels {
    /// The packet inside.
    Inner,
    /// The tunnel's own packet.
    Outer,
}

/// What becomes of the traffic of a bridge while Weir does not carry it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fail {
    /// The kernel carries it, without any discipline.
    Open,
    /// None passes.
    Closed,
}

/// How packets of a bridge come from the driver itself (AF_XDP).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Xdp {
    /// The worker sleeps until some have come.
    Wait,
    /// It has the driver look for them all the time.
    BusyPoll,
}

/// How packets come to Weir and go from it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Attach {
    /// Not said.
    #[default]
    Unsaid,
    /// From the kernel's packet filter, by verdict.
    Nfqueue,
    /// A bridge of two ports; the other one.
    Bridge(String),
}

/// A discipline and its options.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Queue {
    /// Its name in the registry.
    pub name: String,
    /// Its options.
    pub options: Options,
    /// Where its name stands.
    pub place: Place,
}

/// Options that were given, each by its declaration.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Options(Vec<Given>);

/// One option that was given.
#[derive(Clone, Debug)]
pub struct Given {
    /// Its declaration.
    pub spec: &'static ParamSpec,
    /// Its value.
    pub value: Value,
    /// Where it stands.
    pub place: Place,
}

impl PartialEq for Given {
    fn eq(&self, other: &Given) -> bool {
        self.spec.name == other.spec.name && self.value == other.value
    }
}

impl Options {
    /// None given.
    pub fn new() -> Self {
        Options::default()
    }
    /// Sets an option, in the place of an earlier value.
    pub fn set(&mut self, given: Given) -> Option<Given> {
        match self.0.iter_mut().find(|g| g.spec.name == given.spec.name) {
            Some(slot) => Some(std::mem::replace(slot, given)),
            None => {
                self.0.push(given);
                None
            }
        }
    }
    /// The option of that name.
    pub fn get(&self, name: &str) -> Option<&Given> {
        self.0.iter().find(|g| g.spec.name == name)
    }
    /// True if it was given.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
    /// Takes an option away.
    pub fn remove(&mut self, name: &str) -> Option<Given> {
        let at = self.0.iter().position(|g| g.spec.name == name)?;
        Some(self.0.remove(at))
    }
    /// All, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Given> {
        self.0.iter()
    }
    /// As disciplines read them.
    pub fn params(&self) -> Params {
        let mut params = Params::new();
        for given in &self.0 {
            params.set(given.spec.name, given.value.clone());
        }
        params
    }
}

impl Given {
    /// As altq.conf reads it, keyword included.
    pub fn text(&self) -> String {
        let name = self.spec.name;
        match (&self.value, self.spec.kind) {
            (Value::Flag, _) => name.to_string(),
            (Value::Fraction(f), Kind::Percent) => {
                format!("{name} {}", weir_text::number::shortest(f.raw(), 100))
            }
            (Value::Fraction(f), _) => format!("{name} {}", weir_text::number::shortest(f.raw(), 1)),
            (Value::Real(r), _) => {
                format!("{name} {}", weir_text::number::shortest(r.raw().unsigned_abs(), 1))
            }
            (Value::Curve(c), _) => format!("[{name} {} {} {}]", c.m1, c.d, c.m2),
            (value, _) => format!("{name} {value}"),
        }
    }
}

/// A class.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Class {
    /// The discipline that schedules it, by its name in the registry.
    pub discipline: String,
    /// Its name, unique in the interface.
    pub name: String,
    /// Its parent; `None` for `NULL`. `root`, where no class has that name, is HFSC's own.
    pub parent: Option<String>,
    /// Its options.
    pub options: Options,
    /// The discipline that it names as its queue.
    pub queue: Option<Queue>,
    /// Where its name stands.
    pub place: Place,
}

/// A filter: which packets go to a class, or to a conditioner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// The class or conditioner.
    pub class: String,
    /// Its own name, if it has one.
    pub name: Option<String>,
    /// Higher is matched first.
    pub ruleno: i32,
    /// IPv4 or IPv6.
    pub family: Family,
    /// Destination address and mask; a mask of 0 asks for nothing.
    pub dst: (u128, u128),
    /// Destination port; 0 asks for nothing.
    pub dst_port: u16,
    /// Source address and mask.
    pub src: (u128, u128),
    /// Source port.
    pub src_port: u16,
    /// Protocol; 0 asks for nothing.
    pub protocol: u8,
    /// Bits of the type of service byte or traffic class: value and mask.
    pub tos: Option<(u8, u8)>,
    /// IPv6 flow label; 0 asks for nothing.
    pub flow_label: u32,
    /// Security parameters index; 0 asks for nothing.
    pub spi: u32,
    /// True if it is known to intersect with others.
    pub dontwarn: bool,
    /// How many classes of the interface come before it in the file: the filters that a control
    /// class brings stand in line with the others.
    pub after_classes: usize,
    /// Where its line begins.
    pub place: Place,
}

impl Filter {
    /// A filter that matches every packet of `family`.
    pub fn any(class: &str, family: Family) -> Self {
        Filter {
            class: class.to_string(),
            name: None,
            ruleno: 0,
            family,
            dst: (0, 0),
            dst_port: 0,
            src: (0, 0),
            src_port: 0,
            protocol: 0,
            tos: None,
            flow_label: 0,
            spi: 0,
            dontwarn: false,
            after_classes: 0,
            place: Place::default(),
        }
    }
    /// Which bits it asks for: filters of one mask are found by one look-up.
    pub(crate) fn mask(&self) -> impl Eq + std::hash::Hash + use<> {
        let asks =
            [self.dst_port != 0, self.src_port != 0, self.protocol != 0, self.flow_label != 0, self.spi != 0];
        (self.family == Family::V6, self.dst.1, self.src.1, asks, self.tos.map(|(_, mask)| mask))
    }
    /// True if it asks for a value in the two ECN bits other than "not ECN-capable", or for one
    /// of the QoSbox's whole bytes 1 to 4.
    pub fn asks_ecn_bits(&self) -> bool {
        self.tos.is_some_and(|(value, mask)| value & mask & 0x03 != 0 || (value == 4 && mask == 0xff))
    }
}

/// A conditioner of an interface's input side.
#[derive(Clone, PartialEq, Debug)]
pub struct Conditioner {
    /// Its name.
    pub name: String,
    /// What it does.
    pub action: Action,
    /// Where its name stands.
    pub place: Place,
}

/// What a conditioner does with a packet.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Let it go on.
    Pass,
    /// Drop it.
    Drop,
    /// Write this code point: the whole byte, of which the upper six bits count.
    Mark(u8),
    /// Do what that conditioner does.
    Conditioner(String),
    /// Measure, and act by the result.
    Meter {
        /// How it measures.
        meter: Meter,
        /// One action for each result, the best first: in and out, or green, yellow and red.
        actions: Vec<Action>,
    },
}
