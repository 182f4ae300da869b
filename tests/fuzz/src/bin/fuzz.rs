//! `cargo run --release -p toolfleet-fuzz --bin fuzz -- TARGET SECONDS [SEED]`: runs a target for so long. What it
//! finds is written to a file, which belongs into the target's corpus once the fault is mended.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it tells what it found")]

use rand::Rng;
use std::process::ExitCode;
use std::time::Duration;
use toolfleet_fuzz::{Corpus, TARGETS, fuzz, target};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, seconds) = match arguments.as_slice() {
        [name, seconds, ..] => (name.as_str(), seconds.parse().ok()),
        _ => ("", None),
    };
    let (Some(target), Some(seconds)) = (target(name), seconds) else {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("usage: fuzz TARGET SECONDS [SEED], where TARGET is one of: {}", names.join(", "));
        return ExitCode::from(2);
    };
    let seed = arguments.get(2).and_then(|seed| seed.parse().ok()).unwrap_or_else(|| rand::rng().random());
    let corpus = match Corpus::of(&target) {
        Ok(corpus) => corpus,
        Err(error) => {
            eprintln!("the corpus of {name} can't be read: {error}");
            return ExitCode::from(3);
        }
    };
    println!("{name}: {} inputs, {seconds} s, seed {seed}", corpus.inputs().len());
    match fuzz(&target, &corpus, seed, Duration::from_secs(seconds)) {
        Ok(runs) => {
            println!("{name}: {runs} runs, nothing found");
            ExitCode::SUCCESS
        }
        Err(found) => {
            let file = format!("found-{name}-{seed}");
            let written = std::fs::write(&file, &found.input);
            eprintln!("{name}: {:.500}\n{} bytes, in {file} ({written:?})", found.what, found.input.len());
            ExitCode::FAILURE
        }
    }
}
