//! Inputs made from others, by a number: the same number makes the same inputs.

use crate::Target;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::io;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// No input is longer.
const BYTES_MAX: usize = 64 * 1024;
/// An input that takes longer is a fault as a panic is one.
const SLOW: Duration = Duration::from_secs(2);
const CHANGES_MAX: u32 = 8;

/// The inputs that a target begins with.
pub struct Corpus(Vec<Vec<u8>>);

impl Corpus {
    /// Those kept with this crate.
    pub fn of(target: &Target) -> io::Result<Self> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
        let mut files = std::fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        files.sort_by_key(std::fs::DirEntry::file_name);
        let inputs = files.iter().map(|file| std::fs::read(file.path())).collect::<io::Result<_>>()?;
        Ok(Self(inputs))
    }

    pub fn inputs(&self) -> &[Vec<u8>] {
        &self.0
    }
}

/// An input that broke a promise.
#[derive(Debug)]
pub struct Found {
    pub input: Vec<u8>,
    pub what: String,
}

/// Runs a target on each input of its corpus and then on changed ones until time is over; how many, or what was found.
pub fn fuzz(target: &Target, corpus: &Corpus, seed: u64, time: Duration) -> Result<u64, Found> {
    for input in corpus.inputs() {
        try_one(target, input)?;
    }
    let (started, mut random, mut runs) = (Instant::now(), StdRng::seed_from_u64(seed), 0);
    while started.elapsed() < time {
        try_one(target, &changed(&mut random, target, corpus.inputs()))?;
        runs += 1;
    }
    Ok(runs)
}

fn try_one(target: &Target, input: &[u8]) -> Result<(), Found> {
    let started = Instant::now();
    let run = target.run;
    let what = match catch_unwind(|| run(input)) {
        Ok(()) if started.elapsed() < SLOW => return Ok(()),
        Ok(()) => format!("it took {:?}", started.elapsed()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
        }
    };
    Err(Found { input: input.to_vec(), what })
}

fn changed(random: &mut StdRng, target: &Target, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = corpus.choose(random).cloned().unwrap_or_default();
    for _ in 0..random.random_range(1..=CHANGES_MAX) {
        change(random, target, corpus, &mut input);
    }
    input.truncate(BYTES_MAX);
    input
}

fn change(random: &mut StdRng, target: &Target, corpus: &[Vec<u8>], input: &mut Vec<u8>) {
    let at = random.random_range(0..=input.len());
    let end = random.random_range(at..=input.len().min(at + 64));
    match random.random_range(0..9) {
        // A bit, a byte.
        0 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
        1 if at < input.len() => input[at] = random.random(),
        // A number at the edge, where lengths and ids are.
        2 => {
            let number: u32 = *[0, 1, 0x7f, 0xff, 0x7fff_ffff, 0x8000_0000, u32::MAX].choose(random).unwrap_or(&0);
            input.splice(at..(at + 4).min(input.len()), number.to_le_bytes());
        }
        3 => drop(input.drain(at..end)),
        4 => {
            let part = input[at..end].to_vec();
            input.splice(at..at, part);
        }
        // Many of the same: nesting, and what takes more than linear time.
        5 => {
            let part = input[at..end.min(at + 8)].to_vec();
            let times = random.random_range(1..512);
            input.splice(at..at, part.repeat(times));
        }
        6 => {
            if let Some(other) = corpus.choose(random).filter(|other| !other.is_empty()) {
                let from = random.random_range(0..other.len());
                let to = random.random_range(from..=other.len());
                input.splice(at..end, other[from..to].iter().copied());
            }
        }
        _ => {
            let word = target.words.choose(random).map_or(&b"\0"[..], |word| word.as_bytes());
            input.splice(at..at, word.iter().copied());
        }
    }
    input.truncate(BYTES_MAX);
}
