//! Thousands of attacks in random order on one sandbox, eight at once: nothing adds up.
//!
//! `TOOLFLEET_HOSTILE_CALLS` says how many, `TOOLFLEET_HOSTILE_SEED` in which order.
#![allow(clippy::print_stderr, reason = "the seed and the figures are what a person runs this for")]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use toolfleet_hostile::support::{TestHost, sandbox};
use toolfleet_hostile::{Attack, Wall, Watch, attack_request, attacks, long_wall_ms, next_call, overrun_ms_max};
use toolfleet_protocol::Outcome;
use toolfleet_worker::isolation::Sandbox;

/// As many as an ordinary test run has time for.
const CALLS: usize = 400;
const AT_ONCE: usize = 8;
/// The limit of those that run into it.
const WALL_MS: u64 = 100;
/// Those that end by themselves may take so many times longer than alone.
const LONG_TIMES: u64 = 3;
/// Eight attacks share the machine's cores with the worker, so it comes to end one some while later.
const OVERRUN_TIMES: u64 = 4;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_attacks_leave_a_worker_as_it_was() {
    let calls = number("TOOLFLEET_HOSTILE_CALLS").map_or(CALLS, |calls| usize::try_from(calls).expect("it is small"));
    let seed = number("TOOLFLEET_HOSTILE_SEED").unwrap_or_else(|| rand::rng().random());
    eprintln!("{calls} calls in the order of TOOLFLEET_HOSTILE_SEED={seed}");
    let all = attacks::all();
    let mut random = StdRng::seed_from_u64(seed);
    let order: Vec<Attack> = (0..calls).map(|_| all[random.random_range(0..all.len())]).collect();

    let sandbox = Arc::new(sandbox().await);
    // Each once: an order that leaves one out would leave its cgroups and its allocations for later.
    let started = Instant::now();
    run(&sandbox, &all).await;
    let (first, rest) = order.split_at(calls / 10);
    let mut outcomes = run(&sandbox, first).await;
    let watch = Watch::at_rest(&sandbox).await;
    eprintln!("after {} calls: {watch}", all.len() + first.len());
    for (outcome, count) in run(&sandbox, rest).await {
        *outcomes.entry(outcome).or_default() += count;
    }
    let took = started.elapsed();
    let end = Watch::at_rest(&sandbox).await;
    eprintln!("after {} calls: {end}", all.len() + calls);
    eprintln!("{:.1} s, outcomes {outcomes:?}", took.as_secs_f64());
    watch.settle_all(&sandbox, "all attacks").await;
    for attack in &all[..AT_ONCE] {
        next_call(&sandbox, attack.handler, attack.name).await;
    }
    sandbox.shutdown().await;
    Watch::nothing().await;
}

/// Runs them, so many at once; how many ended how.
async fn run(sandbox: &Arc<Sandbox>, order: &[Attack]) -> BTreeMap<&'static str, usize> {
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut calls = JoinSet::new();
    let mut outcomes = BTreeMap::new();
    let mut faults = Vec::new();
    for attack in order.iter().copied() {
        // No more tasks than slots.
        let slot = Arc::clone(&slots).acquire_owned().await.expect("nobody closes it");
        let sandbox = Arc::clone(sandbox);
        calls.spawn(async move {
            let _slot = slot;
            let wall_ms = if attack.wall == Wall::Short { WALL_MS } else { LONG_TIMES * long_wall_ms() };
            let end = sandbox.run(attack_request(attack.handler, wall_ms), Arc::new(TestHost::default())).await;
            let outcome = match &end.outcome {
                Outcome::Ok { .. } => "ok",
                Outcome::Failed { error } => error.kind.id(),
            };
            (outcome, attack.fault(&end, wall_ms + OVERRUN_TIMES * overrun_ms_max()))
        });
        while let Some(ended) = calls.try_join_next() {
            note(ended.expect("no task panics"), &mut outcomes, &mut faults);
        }
    }
    while let Some(ended) = calls.join_next().await {
        note(ended.expect("no task panics"), &mut outcomes, &mut faults);
    }
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), order.len(), faults.join("\n"));
    outcomes
}

fn note(
    (outcome, fault): (&'static str, Option<String>),
    outcomes: &mut BTreeMap<&'static str, usize>,
    faults: &mut Vec<String>,
) {
    *outcomes.entry(outcome).or_default() += 1;
    faults.extend(fault);
}
