//! A worker dies under load: no call is lost, none has two results, none is billed twice, no effect is doubled.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use toolfleet_tests::{Api, Fleet, FleetOptions, Pair, Upstream, eventually, root};

const CALLS: usize = 10_000;
/// A session's messages are read back whole, so each gets fewer than one page.
const SESSIONS: usize = 100;
const BATCH: usize = 500;
const BOUND: Duration = Duration::from_secs(240);

async fn submit(api: &Api, numbers: std::ops::Range<usize>, tool: &str) -> Vec<String> {
    let batch: Vec<Value> = numbers
        .map(|number| {
            json!({
                "agent": "helper",
                "tool": tool,
                "session": format!("s{}", number % SESSIONS),
                "class": "background",
                "input": { "number": number, "pauseMs": 2 },
            })
        })
        .collect();
    let answer = api.post("/v1/calls", &Value::Array(batch)).await.ok();
    let ids = answer.as_array().expect("a batch is answered by a batch").iter();
    ids.map(|call| call["callId"].as_str().expect("an accepted call has an id").to_owned()).collect()
}

/// Calls counted for the account, over all days and plugins.
async fn counted(api: &Api) -> u64 {
    let usage = api.get("/v1/usage?account=acme").await.ok();
    let days = usage["days"].as_array().expect("usage is by day");
    days.iter()
        .flat_map(|day| day["plugins"].as_object().expect("a day is by plugin").values())
        .map(|plugin| plugin["calls"].as_u64().expect("calls are a number"))
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_calls_survive_the_kill_of_a_worker() {
    let options = FleetOptions { workers: 2, slots: 8, ..FleetOptions::default() };
    let mut fleet = Fleet::start(Pair::Real, options).await;
    let api = fleet.api.clone();
    api.agent("acme", "helper").await;
    api.publish(&root().join("tests/fixtures/effects")).await;
    api.install("acme", "effects").await;
    let before = counted(&api).await;

    let mut ids = Vec::with_capacity(CALLS);
    for start in (0..CALLS).step_by(BATCH) {
        ids.extend(submit(&api, start..start + BATCH, "effects__note").await);
    }
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), CALLS, "each call has an id of its own");

    let half = CALLS as u64 / 2;
    eventually("half of the calls to be done", BOUND, || async {
        let done = counted(&api).await - before;
        if done >= half { Ok(()) } else { Err(format!("{done} calls counted")) }
    })
    .await;
    fleet.workers[0].kill();

    eventually("all calls to be counted", BOUND, || async {
        let done = counted(&api).await - before;
        if done >= CALLS as u64 { Ok(()) } else { Err(format!("{done} calls counted")) }
    })
    .await;

    // Every call has its one result.
    let mut again = 0;
    for (number, id) in ids.iter().enumerate() {
        let call = api.get(&format!("/v1/calls/{id}")).await.ok();
        assert_eq!(call["status"], "ok", "call {number}: {call:#}");
        assert_eq!(call["value"]["number"], number, "{call:#}");
        again += usize::from(call["usage"]["attempt"].as_u64() > Some(1));
    }
    assert!(again > 0, "the worker was killed while it held calls, so some were delivered again");

    // Every effect happened once.
    let mut posted: BTreeMap<String, usize> = BTreeMap::new();
    for session in 0..SESSIONS {
        let page = api.get(&format!("/v1/sessions/s{session}/messages?agent=helper&limit=200")).await.ok();
        for message in page["messages"].as_array().expect("a session has messages") {
            *posted.entry(message["text"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    let doubled: Vec<_> = posted.iter().filter(|(_, times)| **times > 1).collect();
    assert!(doubled.is_empty(), "posted more than once: {doubled:?}");
    assert_eq!(posted.len(), CALLS);

    // Every call was billed once, and stays so.
    assert_eq!(counted(&api).await - before, CALLS as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_sent_twice_by_a_killed_worker_carries_one_idempotency_key() {
    const ORDERS: usize = 600;
    let upstream = Upstream::start("taken").await;
    let options = FleetOptions {
        workers: 2,
        slots: 8,
        upstreams: vec![("counter.test".into(), upstream.url())],
        ..FleetOptions::default()
    };
    let mut fleet = Fleet::start(Pair::Real, options).await;
    let api = fleet.api.clone();
    api.agent("acme", "helper").await;
    api.publish(&root().join("tests/fixtures/effects")).await;
    api.install("acme", "effects").await;
    let before = counted(&api).await;
    submit(&api, 0..ORDERS / 2, "effects__order").await;
    submit(&api, ORDERS / 2..ORDERS, "effects__order").await;
    eventually("some orders to arrive", BOUND, || async {
        let arrived = upstream.arrived().len();
        if arrived >= ORDERS / 10 { Ok(()) } else { Err(format!("{arrived} arrived")) }
    })
    .await;
    fleet.workers[1].kill();
    eventually("all orders to be counted", BOUND, || async {
        let done = counted(&api).await - before;
        if done >= ORDERS as u64 { Ok(()) } else { Err(format!("{done} calls counted")) }
    })
    .await;
    let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for order in upstream.arrived() {
        keys.entry(order.body).or_default().insert(order.idempotency_key.expect("a POST carries a key"));
    }
    assert_eq!(keys.len(), ORDERS, "every order arrived");
    let split: Vec<_> = keys.iter().filter(|(_, keys)| keys.len() > 1).collect();
    assert!(split.is_empty(), "orders under more than one key: {split:?}");
}
