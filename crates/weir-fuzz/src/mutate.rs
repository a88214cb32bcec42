//! Damage to an input, as a fuzzer without feedback does it.

use crate::Target;
use std::fs;
use std::path::{Path, PathBuf};
use weir_core::Random;

/// Numbers that readers get wrong.
const EDGES: [u64; 10] = [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 63, u64::MAX];
/// Inputs longer than this teach nothing that shorter ones do not.
const MAX_BYTES: usize = 1 << 14;

/// The corpus of a target, and a source of damaged inputs.
pub struct Mutator {
    words: &'static [&'static str],
    corpus: Vec<Vec<u8>>,
    random: Random,
}

impl Mutator {
    /// Reads the corpus of `target`; every draw depends on `seed` alone.
    pub fn new(target: &Target, seed: u64) -> Self {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = Vec::new();
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name), &mut files);
        for more in target.more {
            collect(&repository.join(more), &mut files);
        }
        files.sort();
        let corpus = files.iter().filter_map(|file| fs::read(file).ok()).collect();
        Mutator { words: target.words, corpus, random: Random::new(seed) }
    }
    /// The good inputs, as they are.
    pub fn corpus(&self) -> &[Vec<u8>] {
        &self.corpus
    }
    /// A damaged input.
    pub fn damaged(&mut self) -> Vec<u8> {
        let mut bytes = match self.corpus.len() {
            0 => Vec::new(),
            n => self.corpus[self.random.below(n as u64) as usize].clone(),
        };
        for _ in 0..=self.random.below(4) {
            mutate(&mut bytes, self.words, &mut self.random);
        }
        bytes.truncate(MAX_BYTES);
        bytes
    }
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().for_each(|entry| collect(&entry.path(), files)),
        Err(_) => files.push(path.to_owned()),
    }
}

/// One piece of damage.
pub fn mutate(bytes: &mut Vec<u8>, words: &[&str], random: &mut Random) {
    let below = |random: &mut Random, n: usize| random.below(n.max(1) as u64) as usize;
    let at = below(random, bytes.len() + 1);
    let span = below(random, 12).min(bytes.len() - at);
    match random.below(8) {
        0 => drop(bytes.drain(at..at + span)),
        1 => {
            let copy = bytes[at..at + span].to_vec();
            let to = below(random, bytes.len() + 1);
            bytes.splice(to..to, copy);
        }
        2 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        3 if at < bytes.len() => bytes[at] = random.next_u64() as u8,
        4 => bytes.truncate(at),
        5 => {
            let edge = EDGES[below(random, EDGES.len())];
            let width = [1, 2, 4, 8][below(random, 4)];
            let mut number = edge.to_le_bytes()[..width].to_vec();
            if random.below(2) == 0 {
                number.reverse();
            }
            let end = (at + width).min(bytes.len());
            bytes.splice(at..end, number);
        }
        6 => {
            let fresh: Vec<u8> = (0..below(random, 64)).map(|_| random.next_u64() as u8).collect();
            bytes.splice(at..at, fresh);
        }
        _ if !words.is_empty() => {
            let word = words[below(random, words.len())];
            bytes.splice(at..at + span, word.bytes());
        }
        _ => bytes.rotate_left(at),
    }
}
