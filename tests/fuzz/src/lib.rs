//! What reads bytes that somebody hostile wrote, each as a function of bytes alone that panics where a promise is
//! broken, and a mutator to feed it.
#![forbid(unsafe_code)]

mod mutate;
mod plugins;
mod wires;

pub use mutate::{Corpus, Found, fuzz};

/// One reader under test.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Words that a mutation puts in whole.
    pub words: &'static [&'static str],
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "worker_frames", run: wires::worker_frames, words: &[] },
    Target { name: "call_frames", run: wires::call_frames, words: &[] },
    Target { name: "control", run: wires::control, words: &[] },
    Target { name: "job", run: wires::job, words: wires::JOB_WORDS },
    Target { name: "plugin_load", run: plugins::load, words: plugins::WORDS },
    Target { name: "permissions", run: plugins::permissions, words: plugins::WORDS },
];

/// The target of that name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().copied().find(|target| target.name == name)
}
