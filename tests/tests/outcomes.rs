//! Every way in which a call can end, each by a real plugin, on both queues and stores.

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use toolfleet_tests::{Fleet, FleetOptions, Pair, eventually, root};

/// What a call's limit may be passed by, until its result is there.
const OVERRUN: Duration = Duration::from_millis(500);

async fn fleet(pair: Pair, workers: usize) -> Fleet {
    let options = FleetOptions { workers, slots: 4, deliveries_max: 1, ..FleetOptions::default() };
    let fleet = Fleet::start(pair, options).await;
    fleet.api.agent("acme", "helper").await;
    fleet
}

async fn with_outcomes(pair: Pair) -> Fleet {
    let fleet = fleet(pair, 1).await;
    fleet.api.publish(&root().join("tests/fixtures/outcomes")).await;
    fleet.api.install("acme", "outcomes").await;
    fleet
}

#[track_caller]
fn assert_failed(result: &Value, kind: &str, message: &str) {
    assert_eq!(result["status"], "failed", "{result:#}");
    assert_eq!(result["error"]["kind"], kind, "{result:#}");
    let told = result["error"]["message"].as_str().unwrap_or_default();
    assert!(told.contains(message), "{told:?} does not say {message:?}");
}

async fn check_handlers(pair: Pair) {
    let fleet = with_outcomes(pair).await;
    let call = |tool: &str| {
        let (api, tool) = (fleet.api.clone(), format!("outcomes__{tool}"));
        async move { api.call("helper", &tool, json!({})).await }
    };

    let result = fleet.api.call("helper", "outcomes__returns", json!({ "value": [1, "zwei", null] })).await;
    assert_eq!(result["value"]["value"], json!([1, "zwei", null]), "{result:#}");
    let context = &result["value"]["context"];
    assert_eq!(context["callId"], result["callId"], "{result:#}");
    assert_eq!(context["initiator"], json!({ "kind": "platform", "isVerifiedPerson": false }), "{result:#}");

    let result = call("returns_nothing").await;
    assert_eq!((&result["status"], &result["value"]), (&json!("ok"), &Value::Null), "{result:#}");

    let result = call("throws").await;
    assert_failed(&result, "thrown", "the quota of 3 is used up");
    assert_eq!(result["error"]["name"], "QuotaError", "{result:#}");
    let stack = result["error"]["stack"].as_str().unwrap_or_default();
    assert!(stack.contains("src/index.ts:22"), "the stack names the author's line: {stack}");

    assert_failed(&call("stalls").await, "stalled", "");
    assert_failed(&call("allocates").await, "memory", "128 MB");
    assert_failed(&call("allocates_buffers").await, "memory", "128 MB");
    assert_failed(&call("recurses").await, "thrown", "stack");
    assert_failed(&call("returns_cycle").await, "unserializable", "");
    assert_failed(&call("returns_much").await, "tooLarge", "");
    assert_failed(&call("no_such_tool").await, "toolNotFound", "no_such_tool");

    let (first, second) = (call("remembers").await, call("remembers").await);
    assert_eq!((&first["value"]["seen"], &second["value"]["seen"]), (&json!(0), &json!(0)));
    assert_ne!(first["value"]["random"], second["value"]["random"]);
    assert_ne!(first["value"]["uuid"], second["value"]["uuid"]);

    // The agent's owner says no.
    let access = json!({ "mode": "all", "deny": ["outcomes__returns"] });
    fleet.api.put("/v1/agents/helper/access", &access).await.ok();
    assert_failed(&call("returns").await, "accessDenied", "outcomes__returns");
    assert_eq!(call("returns_nothing").await["status"], "ok");
}

#[tokio::test]
async fn handlers_end_as_documented_on_the_embedded_queue_and_store() {
    check_handlers(Pair::Embedded).await;
}

#[tokio::test]
async fn handlers_end_as_documented_on_rabbitmq_and_redis() {
    check_handlers(Pair::Real).await;
}

#[tokio::test]
async fn a_handler_that_never_ends_is_ended_at_its_limit() {
    let fleet = with_outcomes(Pair::Embedded).await;
    let limit = Duration::from_secs(30);
    let ends = ["loops", "joins"].map(|tool| {
        let api = fleet.api.clone();
        async move {
            let start = Instant::now();
            (api.call("helper", &format!("outcomes__{tool}"), json!({})).await, start.elapsed())
        }
    });
    let [(loops, loops_took), (joins, joins_took)] =
        futures::future::join_all(ends).await.try_into().expect("two calls");
    assert_failed(&loops, "timeout", "30 s");
    let kind = joins["error"]["kind"].as_str().unwrap_or_default();
    assert!(matches!(kind, "timeout" | "memory"), "{joins:#}");
    for took in [loops_took, joins_took] {
        assert!(took < limit + OVERRUN, "took {took:?}");
    }
    assert_eq!(fleet.api.call("helper", "outcomes__returns_nothing", json!({})).await["status"], "ok");
}

#[tokio::test]
async fn a_queued_call_can_be_cancelled_and_expires() {
    // No worker yet: what is submitted stays queued.
    let mut fleet = fleet(Pair::Real, 1).await;
    fleet.api.publish(&root().join("tests/fixtures/outcomes")).await;
    fleet.api.install("acme", "outcomes").await;
    assert_eq!(fleet.workers[0].terminate(Duration::from_secs(10)), Some(0), "{}", fleet.workers[0].log());

    let call = json!({ "agent": "helper", "tool": "outcomes__returns_nothing" });
    let queued = fleet.api.post("/v1/calls", &call).await;
    assert_eq!(queued.status, 202, "{queued:?}");
    let id = queued.body["callId"].as_str().expect("it has an id").to_owned();
    assert_failed(&fleet.api.delete(&format!("/v1/calls/{id}")).await.ok(), "cancelled", "");
    assert_failed(&fleet.api.get(&format!("/v1/calls/{id}")).await.ok(), "cancelled", "");

    let call = json!({ "agent": "helper", "tool": "outcomes__returns_nothing", "deadlineMs": 300 });
    let answer = fleet.api.post_with("/v1/calls", &[("prefer", "wait=60")], call.to_string()).await.ok();
    assert_failed(&answer, "expired", "");

    // A worker that comes later finds nothing to do for either, and works.
    fleet.add_worker();
    let result = fleet.api.call("helper", "outcomes__returns_nothing", json!({})).await;
    assert_eq!(result["status"], "ok", "{result:#}");
    assert_failed(&fleet.api.get(&format!("/v1/calls/{id}")).await.ok(), "cancelled", "");
}

#[tokio::test]
async fn a_running_call_can_be_cancelled() {
    for pair in Pair::BOTH {
        let fleet = with_outcomes(pair).await;
        let call = json!({ "agent": "helper", "tool": "outcomes__waits", "input": { "ms": 25_000 } });
        let accepted = fleet.api.post("/v1/calls", &call).await.ok();
        let id = accepted["callId"].as_str().expect("it has an id").to_owned();
        eventually("the call to run", Duration::from_secs(20), || async {
            let seen = fleet.api.get(&format!("/v1/calls/{id}")).await.body;
            if seen["status"] == "running" { Ok(()) } else { Err(seen.to_string()) }
        })
        .await;
        assert_failed(&fleet.api.delete(&format!("/v1/calls/{id}")).await.ok(), "cancelled", "");
    }
}

#[tokio::test]
async fn a_call_whose_workers_all_die_is_lost() {
    let mut fleet = fleet(Pair::Real, 1).await;
    fleet.api.publish(&root().join("tests/fixtures/outcomes")).await;
    fleet.api.install("acme", "outcomes").await;
    let call = json!({ "agent": "helper", "tool": "outcomes__waits", "input": { "ms": 25_000 } });
    let accepted = fleet.api.post("/v1/calls", &call).await.ok();
    let id = accepted["callId"].as_str().expect("it has an id").to_owned();
    let path = format!("/v1/calls/{id}");
    eventually("the call to run", Duration::from_secs(20), || async {
        let seen = fleet.api.get(&path).await.body;
        if seen["status"] == "running" { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
    fleet.workers[0].kill();
    fleet.add_worker();
    let result = eventually("the call to end", Duration::from_secs(30), || async {
        let seen = fleet.api.get(&path).await.body;
        if seen["status"] == "failed" { Ok(seen) } else { Err(seen.to_string()) }
    })
    .await;
    assert_failed(&result, "lost", "1");
}

#[tokio::test]
async fn a_plugin_that_no_longer_loads_fails_its_calls_and_nothing_else() {
    let fleet = with_outcomes(Pair::Embedded).await;
    // It loads while it is published, and no more when it is called.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("the clock is past 1970");
    let last = now.as_millis() as u64 + 3_000;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let manifest = json!({
        "slug": "brittle", "version": "1.0.0", "name": "Brittle",
        "description": "Loads for three seconds.", "entry": "index.js",
    });
    std::fs::write(folder.path().join("plugin.json"), manifest.to_string()).expect("the folder is writable");
    let source = format!(
        "if (Date.now() > {last}) throw new Error('too late to load');\n\
         globalThis.tools.ping = {{ description: 'Answers.', handler: () => 'pong' }};\n"
    );
    std::fs::write(folder.path().join("index.js"), source).expect("the folder is writable");
    fleet.api.publish(folder.path()).await;
    fleet.api.install("acme", "brittle").await;
    eventually("the plugin to be too old", Duration::from_secs(10), || async {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("the clock is past 1970");
        if now.as_millis() as u64 > last { Ok(()) } else { Err("still young".into()) }
    })
    .await;
    let result = fleet.api.call("helper", "brittle__ping", json!({})).await;
    assert_failed(&result, "loadFailed", "too late to load");
    assert_eq!(fleet.api.call("helper", "outcomes__returns_nothing", json!({})).await["status"], "ok");
}
