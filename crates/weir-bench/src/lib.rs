//! What the benchmarks repeat, and how instructions are counted.
//!
//! A [`Bed`] is a tree, a port or a yardstick in its steady state. `weir bench` measures its nanoseconds; under
//! valgrind the same loop gives its instructions ([`callgrind`]). Those are the same on every machine of one
//! kind of processor, so that a test holds them.

mod bed;
pub mod callgrind;
pub mod changes;
pub mod cores;
mod edge;
mod other;
mod path;
pub mod scene;
mod yardstick;

pub use bed::{BURST, TreeBed};
use core::fmt;
use std::hint::black_box;
use std::str::FromStr;
use weir_core::sched::Registry;

/// What the packets of a benchmark do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Case {
    /// The packet just taken is offered again: its class, its line of memory, 64 bytes.
    Hot,
    /// It is offered to a random leaf or flow, with 64, 594 or 1518 bytes as 7:4:1.
    Random,
    /// Two are offered for each that is taken: half of the offers are refused or push another out.
    Overload,
    /// From the bytes of a frame to the event that it has left, among 1,000 filters; 64 flows.
    Port,
    /// The same, of 100,000 flows.
    PortRandom,
}

impl Case {
    /// Every case with its word.
    pub const ALL: [(Case, &'static str); 5] = [
        (Case::Hot, "hot"),
        (Case::Random, "random"),
        (Case::Overload, "overload"),
        (Case::Port, "port"),
        (Case::PortRandom, "port-random"),
    ];
    /// Its word.
    pub fn word(self) -> &'static str {
        Case::ALL.iter().find(|(case, _)| *case == self).map_or("", |(_, word)| word)
    }
}

/// One benchmark: what is measured, and in which case. Written `NAME` where it is hot, else `NAME/CASE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// What is measured.
    pub name: String,
    /// What its packets do.
    pub case: Case,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.case {
            Case::Hot => f.write_str(&self.name),
            case => write!(f, "{}/{}", self.name, case.word()),
        }
    }
}

impl FromStr for Row {
    type Err = String;
    /// # Errors
    /// A case that there is not.
    fn from_str(text: &str) -> Result<Row, String> {
        let (name, word) = text.split_once('/').unwrap_or((text, "hot"));
        match Case::ALL.iter().find(|(_, known)| *known == word) {
            Some(&(case, _)) => Ok(Row { name: name.into(), case }),
            None => Err(format!("no case `{word}`; there are {}", Case::ALL.map(|(_, word)| word).join(" "))),
        }
    }
}

/// Rows beside the hot ones of disciplines, in the order of the table.
pub const CASES: &[&str] = &[
    "red/random",
    "priq-4/random",
    "wfq-64/random",
    "cbq-20/random",
    "hfsc-64/random",
    "hfsc-ls-64/random",
    "tree-4096x4/random",
    "hfsc-ls-16384/random",
    "subscribers-10000/random",
    "fifo/overload",
    "red/overload",
    "wfq-64/overload",
    "drr-64/overload",
    "cbq-20/overload",
    "hfsc-64/overload",
    "jobs-set1/overload",
    "fifo-open/port",
    "fifo-regulator/port",
    "cbq-20-link/port",
    "cbq-20-conditioned/port",
    "hfsc-20-regulator/port",
    "fifo-regulator/port-random",
    "cbq-20-conditioned/port-random",
    "hfsc-20-regulator/port-random",
    "edge-known",
    "edge-known/random",
    "edge-candidate",
    "sla-10k",
    "sla-10k/random",
];

/// Rows that run only where they are named: each takes hundreds of megabytes.
pub const LARGE: &[&str] = &["subscribers-100000/random"];

/// What the edge makes of a packet of 64 flows. The random case has 100,000, or one of each of the
/// 10,000 contracts. What a port does is not in it.
const EDGES: [&str; 3] = ["edge-known", "edge-candidate", "sla-10k"];

/// Yardsticks, by which figures of different machines are read as ratios.
pub const YARDSTICKS: &[&str] = &["yardstick-ring", "yardstick-chase"];

/// Rows whose instructions a test holds.
pub const HELD: &[&str] = &[
    "fifo",
    "priq-4",
    "red",
    "rio",
    "blue",
    "wfq-8",
    "wfq-64",
    "cbq-3",
    "cbq-20",
    "hfsc-4",
    "hfsc-64",
    "hfsc-ls-4",
    "hfsc-ls-64",
    "jobs-set1",
    "jobs-q8",
    "drr-64",
    "qfq-64",
    "codel",
    "pie",
    "fq_codel-1024",
    "red/random",
    "priq-4/random",
    "wfq-64/random",
    "cbq-20/random",
    "hfsc-64/random",
    "hfsc-ls-64/random",
    "fifo/overload",
    "red/overload",
    "wfq-64/overload",
    "drr-64/overload",
    "cbq-20/overload",
    "hfsc-64/overload",
    "jobs-set1/overload",
    "fifo-open/port",
    "fifo-regulator/port",
    "cbq-20-link/port",
    "cbq-20-conditioned/port",
    "hfsc-20-regulator/port",
    "fifo-regulator/port-random",
    "cbq-20-conditioned/port-random",
    "hfsc-20-regulator/port-random",
    "edge-known",
    "edge-known/random",
    "edge-candidate",
    "edge-candidate/random",
    "sla-10k",
    "sla-10k/random",
    "yardstick-ring",
    "yardstick-chase",
];

/// Something in its steady state, to repeat.
pub trait Bed {
    /// Repeats it `count` times: an enqueue and a dequeue, or a packet.
    ///
    /// # Errors
    /// Why it cannot go on.
    fn pairs(&mut self, count: u32) -> Result<(), String>;
}

/// What is counted: `count` pairs of `bed`.
///
/// # Errors
/// Why it cannot go on.
#[inline(never)]
pub fn run_pairs(bed: &mut dyn Bed, count: u32) -> Result<(), String> {
    black_box(bed.pairs(count))
}

/// The bed of a row.
///
/// # Errors
/// Why there is none.
pub fn bed(registry: &Registry, row: &Row) -> Result<Box<dyn Bed>, String> {
    match (row.case, row.name.as_str()) {
        (Case::Hot, "yardstick-ring") => Ok(Box::new(yardstick::Ring::new())),
        (Case::Hot, "yardstick-chase") => Ok(Box::new(yardstick::Chase::new())),
        (Case::Hot, name) if EDGES.contains(&name) => Ok(Box::new(edge::EdgeBed::new(name, 64)?)),
        (Case::Random, "sla-10k") => Ok(Box::new(edge::EdgeBed::new("sla-10k", 10_000)?)),
        (Case::Random, name) if EDGES.contains(&name) => Ok(Box::new(edge::EdgeBed::new(name, 100_000)?)),
        (Case::Port, name) => Ok(Box::new(path::PortBed::new(registry, name, 64)?)),
        (Case::PortRandom, name) => Ok(Box::new(path::PortBed::new(registry, name, 100_000)?)),
        (case, name) => {
            if let Some(bed) = other::bed(name).filter(|_| case == Case::Hot) {
                return Ok(bed);
            }
            let scene = scene::of(name).or_else(|| scene::own(registry, name));
            let scene = scene.ok_or_else(|| format!("no such benchmark as `{row}`"))?;
            Ok(Box::new(TreeBed::new(registry, &scene, case)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_runs_and_reads_back() {
        let registry = Registry::builtin();
        let other = ["meter-trtcm", "classify-1000", "tree-4096x4-red/random"];
        for name in CASES.iter().chain(HELD).chain(YARDSTICKS).chain(&other) {
            let row: Row = name.parse().unwrap();
            assert_eq!(row.to_string(), **name);
            let mut bed = bed(&registry, &row).unwrap_or_else(|why| panic!("{name}: {why}"));
            run_pairs(&mut *bed, 500).unwrap_or_else(|why| panic!("{name}: {why}"));
        }
        assert!("fifo/never".parse::<Row>().unwrap_err().contains("port-random"));
        assert!(bed(&registry, &"nonsense".parse().unwrap()).is_err());
    }
}
