//! Messages that aren't ours, put on the jobs queue by any AMQP client: they end in the dead letters, and the
//! workers go on.

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Connection, ConnectionProperties};
use serde_json::{Value, json};
use std::time::Duration;
use toolfleet_tests::{Fleet, FleetOptions, Pair, eventually, root};

const JOBS: &str = "toolfleet.jobs.interactive.0";

/// A job in every way, but nobody submitted it.
fn forged(account: &str) -> String {
    json!({
        "v": 1,
        "callId": "forged-1",
        "account": account,
        "work": { "call": {
            "agent": "helper", "session": "s", "plugin": "outcomes", "release": "0".repeat(64), "tool": "returns",
            "input": {}, "initiator": { "kind": "user", "isVerifiedPerson": true },
        }},
        "class": "interactive",
        "submittedAtMs": 1,
        "deadlineAtMs": 9_000_000_000_000_u64,
        "replyTo": "main",
    })
    .to_string()
}

#[tokio::test]
async fn a_foreign_message_goes_to_the_dead_letters_and_the_worker_goes_on() {
    let fleet = Fleet::start(Pair::Real, FleetOptions { workers: 1, ..FleetOptions::default() }).await;
    fleet.api.agent("acme", "helper").await;
    fleet.api.publish(&root().join("tests/fixtures/outcomes")).await;
    fleet.api.install("acme", "outcomes").await;

    let connection =
        Connection::connect(fleet.amqp_url(), ConnectionProperties::default()).await.expect("the broker is there");
    let channel = connection.create_channel().await.expect("a connection has channels");
    channel.confirm_select(ConfirmSelectOptions::default()).await.expect("the broker confirms");
    let mut headers = FieldTable::default();
    headers.insert("traceparent".into(), AMQPValue::LongInt(7));
    headers.insert("odd".into(), AMQPValue::FieldTable(FieldTable::default()));
    let bodies = [
        ("not JSON", "hello".to_owned()),
        ("no message", String::new()),
        ("another version", json!({ "v": 99 }).to_string()),
        ("another's form", json!({ "id": "0", "task": "tasks.add", "args": [1, 2] }).to_string()),
        ("a forged call", forged("acme")),
        ("a bad account", forged("a b")),
    ];
    for (what, body) in &bodies {
        let properties = BasicProperties::default().with_headers(headers.clone());
        channel
            .basic_publish("".into(), JOBS.into(), BasicPublishOptions::default(), body.as_bytes(), properties)
            .await
            .unwrap_or_else(|error| panic!("{what}: {error}"))
            .await
            .unwrap_or_else(|error| panic!("{what}: {error}"));
    }

    let letters = eventually("the dead letters", Duration::from_secs(30), || async {
        let page = fleet.api.get("/v1/ops/dead").await.ok();
        let letters = page["letters"].as_array().cloned().unwrap_or_default();
        if letters.len() == bodies.len() { Ok(letters) } else { Err(page.to_string()) }
    })
    .await;
    for (what, body) in &bodies {
        let letter = letters.iter().find(|letter| letter["body"] == Value::String(body.clone()));
        let letter = letter.unwrap_or_else(|| panic!("{what} is not among the dead letters: {letters:#?}"));
        assert_eq!(letter["queue"], JOBS, "{what}");
        assert!(letter["why"].as_str().is_some_and(|why| !why.is_empty()), "{what}: {letter:#}");
    }

    // A forged message starts no call, and a real one still runs.
    assert_eq!(fleet.api.get("/v1/calls/forged-1").await.status, 404);
    let result = fleet.api.call("helper", "outcomes__returns_nothing", json!({})).await;
    assert_eq!(result["status"], "ok", "{result:#}");
}
