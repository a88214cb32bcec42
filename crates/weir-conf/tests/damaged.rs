//! Configurations that were damaged at random: always an answer, never a panic, and what loads
//! prints and reads again as the same.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use weir_conf::plan::{Allocate, Attach, Elsewhere, Interface};
use weir_conf::{judge, packet_spec, print, read};
use weir_core::Random;
use weir_core::queue::Link;
use weir_core::sched::Registry;
use weir_core::units::Rate;

const CASES: u64 = 40_000;

fn corpus() -> Vec<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> =
        std::fs::read_dir(here.join("tests/valid")).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= VALID);
    let mut texts: Vec<String> = files.iter().map(|f| std::fs::read_to_string(f).unwrap()).collect();
    let errors = std::fs::read_to_string(here.join("tests/errors.txt")).unwrap();
    texts.extend(
        errors
            .split("\n==== ")
            .skip(1)
            .filter_map(|c| Some(c.split_once('\n')?.1.split_once("\n----")?.0.to_string())),
    );
    assert!(texts.len() > 100);
    texts
}

/// Files of `tests/valid`.
const VALID: usize = 8;

const PIECES: &[&str] = &[
    "0",
    "-1",
    "010",
    "08",
    "0x",
    "99999999999999999999999999",
    "1e12",
    "1e-12",
    "1.5",
    "10M",
    "10Mbps",
    "%",
    "#",
    "\\",
    "\\\n",
    "\n",
    "\t",
    " ",
    "[",
    "]",
    "<",
    ">",
    "[sc",
    "<tbmeter",
    "NULL",
    "root",
    "em0",
    "default",
    "borrow",
    "é",
    "\u{0}",
    "\u{1b}[31m",
    "/",
    "::",
    "/129",
    "netmask",
    "tos",
    "priq",
    "red",
    "class hfsc em0 x root",
];

fn damage(text: &str, random: &mut Random) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..=random.below(3) {
        let at = random.below(chars.len() as u64 + 1) as usize;
        let span = (random.below(12) as usize).min(chars.len() - at);
        match random.below(5) {
            0 => drop(chars.drain(at..at + span)),
            1 => {
                let copy: Vec<char> = chars[at..at + span].to_vec();
                let to = random.below(chars.len() as u64 + 1) as usize;
                chars.splice(to..to, copy);
            }
            2 if at < chars.len() => chars[at] = char::from_u32(random.below(0x250) as u32).unwrap_or('x'),
            3 => chars.truncate(at),
            _ => {
                let piece = PIECES[random.below(PIECES.len() as u64) as usize];
                chars.splice(at..at, piece.chars());
            }
        }
    }
    chars.into_iter().collect()
}

#[test]
fn damaged_configurations_get_an_answer() {
    let registry = Registry::builtin();
    let corpus = corpus();
    let mut random = Random::new(weir_seed::seed());
    let (mut loaded, mut refused) = (0u64, 0u64);
    for case in 0..CASES {
        // Half of them from files that load as they are: those come first.
        let among = if random.below(2) == 0 { corpus.len() } else { VALID };
        let base = &corpus[random.below(among as u64) as usize];
        let text = damage(base, &mut random);
        let outcome = read("damaged", &text, &registry);
        for said in &outcome.diagnostics {
            assert!(!said.to_string().is_empty());
            assert!(said.line as usize <= text.lines().count(), "case {case}: {said}");
        }
        let Some(plan) = outcome.plan else {
            assert!(
                outcome.diagnostics.iter().any(|d| d.is_error()),
                "case {case}: refused without a word:\n{text}"
            );
            refused += 1;
            continue;
        };
        loaded += 1;
        let errors: Vec<_> = judge(&plan, &registry).into_iter().filter(|d| d.is_error()).collect();
        // Read, and yet not usable: only a file without an interface, what is not built, an
        // interface in two bridges, ports of a bridge that say different things of `fail`, `xdp` or `workers`,
        // more than two workers beside a conditioner, and two where there is one direction, or AF_XDP; and of the edge a broker elsewhere that cannot be asked, two workers
        // beside it, and a way out that no line describes.
        let pairs: Vec<[&String; 2]> = plan
            .interfaces
            .iter()
            .filter_map(|i| match &i.attach {
                Attach::Bridge(peer) => Some(if i.name < *peer { [&i.name, peer] } else { [peer, &i.name] }),
                _ => None,
            })
            .collect();
        let twice = |a: &[&String; 2]| pairs.iter().any(|b| a != b && a.iter().any(|name| b.contains(name)));
        let several = |i: &Interface| i.workers.is_some_and(|workers| workers > 1);
        let at_odds = |i: &Interface| match &i.attach {
            Attach::Bridge(peer) => {
                plan.interfaces.iter().any(|other| {
                    other.name == *peer
                        && (other.fail.zip(i.fail).is_some_and(|(theirs, own)| theirs != own)
                            || other.xdp.zip(i.xdp).is_some_and(|(theirs, own)| theirs != own)
                            || other.workers.zip(i.workers).is_some_and(|(theirs, own)| theirs != own)
                            || [other, i].iter().any(|one| several(one))
                                && [other, i].iter().any(|one| one.xdp.is_some()))
                }) || (several(i) && i.xdp.is_some())
            }
            Attach::Nfqueue => several(i),
            _ => false,
        };
        let has_edge =
            |i: &Interface| i.recognise.is_some() || !i.slas.is_empty() || !i.allocations.is_empty();
        // A broker elsewhere that does not hear who this box is, finds no file, or cannot name a lease.
        let asks_elsewhere = |i: &Interface| {
            let lines = i.allocations.iter().filter_map(|a| Some((a, a.broker.as_ref()?)));
            let bad = |(line, name): (&Allocate, &String)| {
                let broker = plan.brokers.iter().find(|b| b.name == *name)?;
                let Elsewhere { own, edge, ca, token, .. } = broker.elsewhere.as_ref()?;
                let relative = own.iter().flatten().chain(ca).chain(token).any(|file| !file.starts_with('/'));
                let name = edge.as_ref().map_or(32, String::len) + i.name.len() + line.class.len() + 2;
                let unnamed = name > 64 || !line.class.bytes().all(|b| b.is_ascii_graphic());
                Some(relative || unnamed || own.is_none() && edge.is_none())
            };
            i.attach != Attach::Unsaid && lines.filter_map(bad).any(|bad| bad)
        };
        let bad_edge = pairs.iter().any(|pair| {
            let lines: Vec<&Interface> = plan.interfaces.iter().filter(|i| pair.contains(&&i.name)).collect();
            let workers = lines.iter().any(|i| several(i)) && lines.iter().any(|i| has_edge(i));
            // A bucket has one owner.
            let shared = lines.iter().any(|i| i.workers.is_some_and(|workers| workers > 2))
                && lines.iter().any(|i| !i.conditioners.is_empty());
            shared
                || workers
                || lines.len() == 1 && (lines[0].recognise.is_some() || !lines[0].slas.is_empty())
        });
        let unusable = plan.interfaces.is_empty()
            || bad_edge
            || plan.interfaces.iter().any(asks_elsewhere)
            || plan.interfaces.iter().any(|i| match &i.attach {
                Attach::Bridge(peer) => plan.queues().any(|queue| queue == peer),
                _ => false,
            })
            || pairs.iter().any(twice)
            || plan.interfaces.iter().any(at_odds);
        assert_eq!(!errors.is_empty(), unusable, "case {case}: {errors:?}");
        let printed = print(&plan);
        let again = read("printed", &printed, &registry);
        let said: Vec<String> = again.diagnostics.iter().map(ToString::to_string).collect();
        assert_eq!(
            again.plan.as_ref(),
            Some(&plan),
            "case {case}:\n{text}\nprinted:\n{printed}\n{}",
            said.join("\n")
        );
        for interface in &plan.interfaces {
            let view = plan.interface(&interface.name).unwrap();
            // Built or refused with a reason; memory is bounded by what the file may ask for.
            if let Err(error) = view.build(&registry, Link::new(Rate::from_mbps(10), 24, 1514)) {
                assert!(!error.message.is_empty() && error.is_error());
            }
        }
    }
    assert!(loaded > CASES / 20 && refused > CASES / 20, "both ways are tried: {loaded} and {refused}");
}

#[test]
fn damaged_packets_get_an_answer() {
    let mut random = Random::new(weir_seed::seed());
    let bases = [
        "tcp 10.0.0.1:5000 > 10.0.0.2:80 tos 0x10",
        "udp [2001:db8::1]:5000 > [2001:db8::2]:53 dscp EF flowlabel 7",
        "proto 50 10.0.0.1 > 10.0.0.2 gpi 0x100",
    ];
    let mut good = 0;
    for _ in 0..CASES {
        let text = damage(bases[random.below(3) as usize], &mut random);
        match packet_spec::parse(&text) {
            Ok(_) => good += 1,
            Err(error) => assert!(error.to_string().contains('^'), "{text}: {error}"),
        }
    }
    assert!(good > 0 && good < CASES);
}
