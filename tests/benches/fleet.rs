//! Calls a second, end to end: submitted over HTTP, durably queued, run in the sandbox, result and metering back. On
//! the embedded pair and on RabbitMQ and Redis, in alternation. `tests/bench` sets up what it needs.

#![allow(clippy::print_stdout, reason = "it prints what it measures")]

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use toolfleet_tests::{Api, Fleet, FleetOptions, Pair, root};

const ROUNDS: usize = 3;
const CALLS: usize = 3_000;
const BATCH: usize = 100;
/// Batches under way at once.
const CLIENTS: usize = 4;
const SINGLE: usize = 300;

#[tokio::main]
async fn main() {
    let mut fleets = Vec::new();
    for pair in Pair::BOTH {
        let fleet = Fleet::start(pair, FleetOptions { workers: 1, ..FleetOptions::default() }).await;
        fleet.api.agent("acme", "helper").await;
        fleet.api.publish(&root().join("cli/demo")).await;
        fleet.api.install("acme", "demo").await;
        // The first call of a release makes its template.
        fleet.api.call("helper", "demo__add", json!({ "a": 1, "b": 2 })).await;
        fleets.push((pair, fleet, Vec::new(), Vec::new()));
    }
    for _ in 0..ROUNDS {
        for (_, fleet, throughput, latency) in &mut fleets {
            throughput.push(calls_per_second(&fleet.api).await);
            latency.extend(single_latencies(&fleet.api).await);
        }
    }
    println!("{:<24}{:>14}{:>14}{:>14}{:>14}", "", "calls/s", "(min–max)", "one: p50 ms", "p99 ms");
    for (pair, _, throughput, latency) in &mut fleets {
        throughput.sort_by(f64::total_cmp);
        latency.sort();
        let name = match pair {
            Pair::Embedded => "embedded, one process",
            Pair::Real => "RabbitMQ and Redis",
        };
        let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
        println!(
            "{name:<24}{:>14.0}{:>14}{:>14.2}{:>14.2}",
            throughput[throughput.len() / 2],
            format!("{:.0}–{:.0}", throughput[0], throughput[throughput.len() - 1]),
            ms(latency[latency.len() / 2]),
            ms(latency[latency.len() * 99 / 100]),
        );
    }
}

async fn calls_per_second(api: &Api) -> f64 {
    let started = Instant::now();
    let clients = (0..CLIENTS).map(|client| async move {
        for _ in (client * BATCH..CALLS).step_by(CLIENTS * BATCH) {
            let batch: Vec<Value> = (0..BATCH)
                .map(|number| json!({ "agent": "helper", "tool": "demo__add", "input": { "a": number, "b": 1 } }))
                .collect();
            let answer =
                api.post_with("/v1/calls", &[("prefer", "wait=100")], Value::Array(batch).to_string()).await.ok();
            let results = answer.as_array().expect("a batch is answered by a batch");
            assert!(results.iter().all(|result| result["status"] == "ok"), "{answer:#}");
        }
    });
    futures::future::join_all(clients).await;
    CALLS as f64 / started.elapsed().as_secs_f64()
}

async fn single_latencies(api: &Api) -> Vec<Duration> {
    let mut all = Vec::with_capacity(SINGLE);
    for number in 0..SINGLE {
        let started = Instant::now();
        let result = api.call("helper", "demo__add", json!({ "a": number, "b": 1 })).await;
        all.push(started.elapsed());
        assert_eq!(result["value"], number + 1);
    }
    all
}
