//! The HTTP API, over a real socket, on the embedded queue and store.

mod support;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use support::{BOUND, FakeWorker, Stage, eventually, main_replies, message};
use toolfleet_protocol::{CallId, Class, Metering, QueueName};
use toolfleet_queue::Queue;
use toolfleet_scheduler::{ApiConfig, ApiToken, SchedulerConfig, Scope, TokenDigest, openapi, openapi_text};
use toolfleet_store::Store;

async fn embedded(folder: &Path) -> (Arc<dyn Queue>, Arc<dyn Store>) {
    let store: Arc<dyn Store> =
        Arc::new(toolfleet_store::embedded::EmbeddedStore::open(&folder.join("store")).unwrap());
    let queue = toolfleet_queue::embedded::EmbeddedQueue::open(Arc::clone(&store)).await.unwrap();
    (Arc::new(queue), store)
}

fn call(tool: &str) -> Value {
    json!({ "agent": "helper", "tool": format!("demo__{tool}"), "input": { "n": 1 } })
}

const WAIT: (&str, &str) = ("prefer", "wait=30");

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_waited_for_is_answered_with_its_result_byte_for_byte() {
    let stage = Stage::start().await.with_plugin().await;
    let _worker = FakeWorker::start(&stage, Class::Interactive, None);
    let input = r#"{"big":12345678901234567890123,"twice":1,"twice":2,"text":"\u00e4"}"#;
    let body = format!(r#"{{"agent":"helper","tool":"demo__echo","input": {input}}}"#);
    let answer = stage.post_with("/v1/calls", &[WAIT], body).await;
    answer.is(200);
    assert!(answer.text.contains(&format!("\"value\":{input}")), "{}", answer.text);
    assert_eq!(answer.header("preference-applied"), "wait=30");

    let id = answer.body["callId"].as_str().unwrap();
    let again = stage.get(&format!("/v1/calls/{id}")).await;
    assert_eq!((again.status, &again.text), (200, &answer.text));

    let failed = stage.post_with("/v1/calls", &[WAIT], call("fail").to_string()).await;
    assert_eq!(failed.is(200)["error"]["kind"], "thrown");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_not_waited_for_is_accepted_and_can_be_waited_for_later() {
    let stage = Stage::start().await.with_plugin().await;
    let accepted = stage.post("/v1/calls", &call("echo")).await;
    assert_eq!(accepted.is(202)["status"], "queued");
    let path = accepted.header("location").to_owned();
    assert_eq!(path, format!("/v1/calls/{}", accepted.body["callId"].as_str().unwrap()));
    assert_eq!(stage.get("/v1/autoscale").await.is(200)["work"], 1);
    let wait = async { stage.request("GET", &path, &[WAIT], Vec::new()).await };
    let work = async { FakeWorker::start(&stage, Class::Interactive, None) };
    let (answer, _worker) = tokio::join!(wait, work);
    assert_eq!(answer.is(200)["status"], "ok");
    eventually("no work to be left", || async {
        let left = stage.get("/v1/autoscale").await;
        left.is(200)["work"] == 0 && left.body["oldestAgeMs"] == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_answered_in_its_order() {
    let stage = Stage::start().await.with_plugin().await;
    let _worker = FakeWorker::start(&stage, Class::Interactive, None);
    let batch: Vec<Value> = (0..1_000)
        .map(|n| match n % 100 {
            7 => json!({ "agent": "helper", "tool": "demo__nothing" }),
            _ => json!({ "agent": "helper", "tool": "demo__echo", "input": n }),
        })
        .collect();
    let answer = stage.post_with("/v1/calls", &[("prefer", "wait=60")], Value::from(batch).to_string()).await;
    let results = answer.is(200).as_array().unwrap();
    assert_eq!(results.len(), 1_000);
    for (n, result) in results.iter().enumerate() {
        match n % 100 {
            7 => assert_eq!(result["error"]["kind"], "toolNotFound", "{result}"),
            _ => assert_eq!(result["value"], n, "{result}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_cannot_be_called_ends_the_call_at_once_with_the_reason() {
    let stage = Stage::start().await.with_plugin().await;
    let check = async |tool: &str, kind: &str, told: &str| {
        let answer = stage.post("/v1/calls", &json!({ "agent": "helper", "tool": tool })).await;
        let message = answer.is(200)["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(answer.body["error"]["kind"], kind, "{}", answer.text);
        assert!(message.contains(told), "{message}");
        let id = answer.body["callId"].as_str().unwrap();
        assert_eq!(stage.get(&format!("/v1/calls/{id}")).await.body, answer.body);
    };
    check("demo__ecko", "toolNotFound", "demo__echo").await;
    check("other__echo", "toolNotFound", "plugin other is not installed").await;
    check("getWeather", "toolNotFound", "\"getWeather\" is no tool's name").await;
    let access = json!({ "mode": "list", "tools": ["demo__fail"] });
    let body = access.to_string().into_bytes();
    stage.request("PUT", "/v1/agents/helper/access", &[("content-type", "application/json")], body).await.is(200);
    check("demo__echo", "accessDenied", "agent helper may not call demo__echo").await;
    check("demo__ecko", "toolNotFound", "demo__fail").await;
    let tools = stage.get("/v1/agents/helper/tools").await;
    let names: Vec<_> = tools.is(200)["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["demo__fail"]);

    let large = format!(r#"{{"agent":"helper","tool":"demo__fail","input":"{}"}}"#, "x".repeat(1024 * 1024));
    let answer = stage.post_with("/v1/calls", &[], large).await;
    assert_eq!(answer.is(200)["error"]["kind"], "tooLarge");
    assert_eq!(stage.queue.depth(&QueueName::Jobs { class: Class::Interactive, lane: 0 }).await.unwrap().ready, 0);
    assert_eq!(stage.get("/v1/autoscale").await.is(200)["work"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_finds_the_same_calls_again() {
    let stage = Stage::start().await.with_plugin().await;
    let body = json!([call("echo"), call("echo")]).to_string();
    let key = ("idempotency-key", "order-1");
    let first = stage.post_with("/v1/calls", &[key], body.clone()).await;
    let second = stage.post_with("/v1/calls", &[key], body.clone()).await;
    assert_eq!(first.is(202), second.is(202));
    assert_ne!(first.body[0]["callId"], first.body[1]["callId"]);
    let jobs = QueueName::Jobs { class: Class::Interactive, lane: 0 };
    assert_eq!(stage.queue.depth(&jobs).await.unwrap().ready, 2);

    let _worker = FakeWorker::start(&stage, Class::Interactive, None);
    let third = stage.post_with("/v1/calls", &[key, WAIT], body).await;
    assert_eq!(third.is(200)[0]["callId"], first.body[0]["callId"]);

    let other = stage.post_with("/v1/calls", &[key], json!([call("echo"), call("fail")]).to_string()).await;
    assert_eq!(other.is(422)["type"], "/problems/key-reused");
    let named = |tool: &str| {
        let mut call = call(tool);
        call["callId"] = "mine".into();
        call
    };
    assert_eq!(stage.post_with("/v1/calls", &[WAIT], named("echo").to_string()).await.is(200)["callId"], "mine");
    assert_eq!(stage.post("/v1/calls", &named("echo")).await.is(200)["callId"], "mine");
    assert_eq!(stage.post("/v1/calls", &named("fail")).await.is(409)["type"], "/problems/conflict");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_could_not_be_queued_is_refused_and_runs_only_if_asked_for_again() {
    let stage = Stage::start().await.with_plugin().await;
    let jobs = QueueName::Jobs { class: Class::Interactive, lane: 0 };
    let key = ("idempotency-key", "k");

    // Not named: withdrawn.
    stage.queue.failures.store(1, Ordering::SeqCst);
    let refused = stage.post("/v1/calls", &call("echo")).await;
    assert_eq!(refused.is(503)["type"], "/problems/unavailable");
    assert_ne!(refused.header("retry-after"), "");
    let id = refused.body["calls"][0]["callId"].as_str().unwrap().to_owned();
    assert_eq!(refused.body["calls"][0]["status"], "notAccepted");
    assert_eq!(stage.get(&format!("/v1/calls/{id}")).await.is(200)["error"]["kind"], "cancelled");

    // Named: found again.
    stage.queue.failures.store(1, Ordering::SeqCst);
    stage.post_with("/v1/calls", &[key], call("echo").to_string()).await.is(503);
    assert_eq!(stage.queue.depth(&jobs).await.unwrap().ready, 0);
    let accepted = stage.post_with("/v1/calls", &[key], call("echo").to_string()).await;
    accepted.is(202);
    assert_eq!(stage.queue.depth(&jobs).await.unwrap().ready, 1);

    // An unknown fate is tried again, and then is none.
    stage.queue.uncertain.store(1, Ordering::SeqCst);
    stage.post("/v1/calls", &call("echo")).await.is(202);

    // Of unknown fate for good and not named: withdrawn, so that it doesn't run though the queue has it.
    stage.queue.uncertain.store(3, Ordering::SeqCst);
    let refused = stage.post("/v1/calls", &call("echo")).await;
    let id = refused.is(503)["calls"][0]["callId"].as_str().unwrap().to_owned();
    let _worker = FakeWorker::start(&stage, Class::Interactive, None);
    stage.post_with("/v1/calls", &[WAIT], call("echo").to_string()).await.is(200);
    assert_eq!(stage.get(&format!("/v1/calls/{id}")).await.is(200)["error"]["kind"], "cancelled");

    // Of unknown fate and named: said so, and found.
    stage.queue.uncertain.store(3, Ordering::SeqCst);
    let key = ("idempotency-key", "k2");
    let refused = stage.post_with("/v1/calls", &[key], call("echo").to_string()).await;
    assert!(refused.is(503)["detail"].as_str().unwrap().contains("may still run"), "{}", refused.text);
    assert_eq!(stage.post_with("/v1/calls", &[key, WAIT], call("echo").to_string()).await.is(200)["status"], "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_ends_as_cancelled_and_a_finished_one_stays_as_it_is() {
    let stage = Stage::start().await.with_plugin().await;
    let queued = stage.post("/v1/calls", &call("echo")).await;
    let path = queued.header("location").to_owned();
    let cancelled = stage.request("DELETE", &path, &[], Vec::new()).await;
    assert_eq!(cancelled.is(200)["error"]["kind"], "cancelled");
    assert_eq!(stage.request("DELETE", &path, &[], Vec::new()).await.is(200), &cancelled.body);

    let _worker = FakeWorker::start(&stage, Class::Interactive, None);
    let done = stage.post_with("/v1/calls", &[WAIT], call("echo").to_string()).await;
    let path_done = format!("/v1/calls/{}", done.is(200)["callId"].as_str().unwrap());
    assert_eq!(stage.request("DELETE", &path_done, &[], Vec::new()).await.is(200), &done.body);
    assert_eq!(stage.get(&path).await.is(200), &cancelled.body);

    // Running: whoever waits for it is told at once, and the workers too.
    let held = stage.post("/v1/calls", &call("hold")).await;
    let path = held.header("location").to_owned();
    eventually("the call to run", || async { stage.get(&path).await.body["status"] == "running" }).await;
    let wait = stage.request("GET", &path, &[WAIT], Vec::new());
    let cancel = stage.request("DELETE", &path, &[], Vec::new());
    let (waited, cancelled) = tokio::join!(wait, cancel);
    assert_eq!(waited.is(200), cancelled.is(200));
    let id = CallId::parse(held.body["callId"].as_str().unwrap()).unwrap();
    let told = stage.records.cancels(&toolfleet_store::Position::START, std::time::Duration::ZERO).await.unwrap();
    assert!(told.iter().any(|(_, call)| *call == id));
    assert_eq!(stage.request("DELETE", "/v1/calls/none", &[], Vec::new()).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_no_worker_takes_expires_through_the_dead_letters() {
    let stage = Stage::start().await.with_plugin().await;
    let mut request = call("echo");
    request["deadlineMs"] = 200.into();
    let answer = stage.post_with("/v1/calls", &[WAIT], request.to_string()).await;
    assert_eq!(answer.is(200)["error"]["kind"], "expired");
    assert_eq!(answer.body["usage"]["attempt"], 0);
    eventually("the call to be counted", || async { counted(&stage).await == (1, 1) }).await;
    assert_eq!(stage.get("/v1/ops/dead").await.is(200)["letters"], json!([]));
}

/// Calls and failed calls of the account.
async fn counted(stage: &Stage) -> (u64, u64) {
    let usage = stage.get("/v1/usage?account=acme").await;
    let mut sums = (0, 0);
    for day in usage.is(200)["days"].as_array().unwrap() {
        for plugin in day["plugins"].as_object().unwrap().values() {
            sums.0 += plugin["calls"].as_u64().unwrap();
            sums.1 += plugin["failed"].as_u64().unwrap();
        }
    }
    sums
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_counted_once_however_often_its_event_is_delivered() {
    let stage = Stage::start().await.with_plugin().await;
    let event = |call: &str| {
        let event = json!({
            "v": 1, "callId": call, "account": "acme", "agent": "helper", "plugin": "demo", "tool": "echo",
            "usage": { "wallMs": 5 }, "finishedAtMs": support::now_ms(),
        });
        serde_json::from_value::<Metering>(event.clone()).unwrap();
        message(QueueName::Metering, call, event.to_string().into_bytes())
    };
    for _ in 0..3 {
        stage.queue.publish(event("one")).await.unwrap();
    }
    stage.queue.publish(message(QueueName::Metering, "bad", b"{\"v\":1}".to_vec())).await.unwrap();
    stage.queue.publish(event("two")).await.unwrap();
    eventually("both calls to be counted", || async { counted(&stage).await == (2, 0) }).await;
    eventually("the bad event to be kept", || async {
        let letters = stage.get("/v1/ops/dead").await;
        letters.is(200)["letters"].as_array().is_some_and(|letters| letters.len() == 1)
    })
    .await;
    // All is read, and nothing was added.
    eventually("the queue to be empty", || async { stage.queue.depth(&QueueName::Metering).await.unwrap().ready == 0 })
        .await;
    assert_eq!(counted(&stage).await, (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_ours_is_kept_as_a_dead_letter_and_ends_no_call() {
    let stage = Stage::start().await.with_plugin().await;
    let accepted = stage.post("/v1/calls", &call("echo")).await;
    let id = accepted.is(202)["callId"].as_str().unwrap().to_owned();
    let record = stage.records.call(&CallId::parse(id.as_str()).unwrap()).await.unwrap().unwrap();
    let forged = String::from_utf8(record.job.encode()).unwrap().replace("\"n\":1", "\"n\":2");
    for (what, body) in [("forged", forged.as_str()), ("foreign", "hello"), ("empty", "")] {
        stage.queue.publish(message(QueueName::Dead, what, body.as_bytes().to_vec())).await.unwrap();
    }
    stage.queue.publish(message(main_replies(), "bad", b"hi".to_vec())).await.unwrap();
    eventually("the letters", || {
        let stage = &stage;
        async move { stage.get("/v1/ops/dead").await.body["letters"].as_array().is_some_and(|letters| letters.len() == 4) }
    })
    .await;
    let letters = stage.get("/v1/ops/dead").await.body["letters"].clone();
    for letter in letters.as_array().unwrap() {
        assert!(!letter["why"].as_str().unwrap().is_empty(), "{letter}");
    }
    let page = stage.get("/v1/ops/dead?limit=3").await;
    assert_eq!(page.is(200)["letters"].as_array().unwrap().len(), 3);
    let rest = stage.get(&format!("/v1/ops/dead?limit=3&before={}", page.body["next"].as_str().unwrap())).await;
    assert_eq!(rest.is(200)["letters"].as_array().unwrap().len(), 1);
    assert_eq!(stage.get(&format!("/v1/calls/{id}")).await.is(200)["status"], "queued");

    // One of ours that a broker gave up ends as lost.
    let ours = message(QueueName::Dead, &id, record.job.encode());
    stage.queue.publish(ours).await.unwrap();
    let ended = stage.request("GET", &format!("/v1/calls/{id}"), &[WAIT], Vec::new()).await;
    assert_eq!(ended.is(200)["error"]["kind"], "lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_not_as_it_must_be_is_refused_with_the_place() {
    let config = SchedulerConfig { body_bytes_max: 100_000, batch_calls_max: 3, ..SchedulerConfig::default() };
    let stage = Stage::with(config).await.with_plugin().await;
    let deep = format!(r#"{{"agent":"helper","tool":"demo__echo","input":{}{}}}"#, "[".repeat(129), "]".repeat(129));
    let very_deep = "[".repeat(90_000);
    let deep_data = format!(r#"{{"text":"a","data":{}1{}}}"#, r#"{"a":"#.repeat(5_000), "}".repeat(5_000));
    let table: &[(&str, &str, &str, u16, &[&str])] = &[
        // Bodies that aren't JSON, or aren't an object or array.
        ("POST", "/v1/calls", "", 400, &[""]),
        ("POST", "/v1/calls", "{", 400, &[""]),
        ("POST", "/v1/calls", "{} x", 400, &[""]),
        ("POST", "/v1/calls", "7", 400, &[""]),
        ("POST", "/v1/calls", "null", 400, &[""]),
        ("POST", "/v1/calls", "\"\u{0}\"", 400, &[""]),
        // Fields.
        ("POST", "/v1/calls", "{}", 400, &["/agent"]),
        ("POST", "/v1/calls", r#"{"agent":"helper"}"#, 400, &["/tool"]),
        ("POST", "/v1/calls", r#"{"agent":"a b","tool":"demo__echo"}"#, 400, &["/agent"]),
        ("POST", "/v1/calls", r#"{"agent":7,"tool":"demo__echo"}"#, 400, &["/agent"]),
        ("POST", "/v1/calls", r#"{"agent":"helper","tool":""}"#, 400, &["/tool"]),
        ("POST", "/v1/calls", r#"{"agent":"helper","tool":"demo__echo","arguments":{}}"#, 400, &["/arguments"]),
        ("POST", "/v1/calls", r#"{"agent":"helper","agent":"helper","tool":"demo__echo"}"#, 400, &["/agent"]),
        ("POST", "/v1/calls", r#"{"agent":"helper","tool":"demo__echo","class":"urgent"}"#, 400, &["/class"]),
        ("POST", "/v1/calls", r#"{"agent":"helper","tool":"demo__echo","deadlineMs":0}"#, 400, &["/deadlineMs"]),
        ("POST", "/v1/calls", r#"{"agent":"helper","tool":"demo__echo","deadlineMs":-1}"#, 400, &["/deadlineMs"]),
        ("POST", "/v1/calls", r#"{"agent":"helper","tool":"demo__echo","deadlineMs":86400001}"#, 400, &["/deadlineMs"]),
        ("POST", "/v1/calls", r#"{"agent":"helper","tool":"demo__echo","session":"a/b"}"#, 400, &["/session"]),
        ("POST", "/v1/calls", r#"{"agent":"helper","tool":"demo__echo","callId":""}"#, 400, &["/callId"]),
        (
            "POST",
            "/v1/calls",
            r#"{"agent":"helper","tool":"demo__echo","initiator":{"kind":"user"}}"#,
            400,
            &["/initiator/isVerifiedPerson"],
        ),
        ("POST", "/v1/calls", r#"{"agent":"nobody","tool":"demo__echo"}"#, 404, &["/agent"]),
        ("POST", "/v1/calls", &deep, 400, &["/input"]),
        // Batches: all that is wrong at once.
        ("POST", "/v1/calls", "[]", 400, &[""]),
        ("POST", "/v1/calls", &very_deep, 400, &[""]),
        ("POST", "/v1/calls", r#"[{},{},{},{}]"#, 400, &[""]),
        (
            "POST",
            "/v1/calls",
            r#"[{"agent":"helper","tool":"demo__echo"},{"agent":"helper"},[1]]"#,
            400,
            &["/1/tool", "/2"],
        ),
        (
            "POST",
            "/v1/calls",
            r#"[{"agent":"helper","tool":"demo__echo"},{"agent":"nobody","tool":"x"}]"#,
            404,
            &["/1/agent"],
        ),
        // The other doors.
        ("POST", "/v1/plugins", r#"{"files":{"plugin.json":7}}"#, 400, &["/files/plugin.json"]),
        ("POST", "/v1/plugins", r#"{"files":{"a/b.js":{"base64":"*"}}}"#, 400, &["/files/a~1b.js/base64"]),
        ("POST", "/v1/plugins", r#"{"file":{}}"#, 400, &["/file"]),
        ("POST", "/v1/installations", r#"{"account":"acme","plugin":"Demo"}"#, 400, &["/plugin"]),
        ("POST", "/v1/installations", r#"{"account":"acme","plugin":"none"}"#, 404, &["/plugin"]),
        ("POST", "/v1/installations", r#"{"account":"acme","plugin":"demo","version":"9.9.9"}"#, 404, &["/version"]),
        ("POST", "/v1/installations", r#"{"account":"acme","plugin":"demo","version":"nine"}"#, 400, &["/version"]),
        ("POST", "/v1/agents", r#"{"account":"acme","id":"a b"}"#, 400, &["/id"]),
        ("POST", "/v1/agents", r#"{"account":"acme","name":""}"#, 400, &["/name"]),
        ("POST", "/v1/agents", r#"{"account":"other","id":"helper"}"#, 409, &[]),
        ("POST", "/v1/agents", r#"["a","acme","A"]"#, 400, &[""]),
        ("PUT", "/v1/agents/helper/access", r#"{"mode":"some"}"#, 400, &["/mode"]),
        ("PUT", "/v1/agents/helper/access", r#"{"mode":"all","deny":["x"],"pin":["y"]}"#, 400, &["/deny", "/pin"]),
        ("PUT", "/v1/agents/nobody/access", r#"{"mode":"all"}"#, 404, &[]),
        ("POST", "/v1/sessions/s/messages?agent=helper", r#"{"txt":"a"}"#, 400, &["/txt"]),
        ("POST", "/v1/sessions/s/messages?agent=helper", &deep_data, 400, &[""]),
        ("POST", "/v1/sessions/s/messages?agent=nobody", r#"{"text":"a"}"#, 404, &[]),
        ("POST", "/v1/sessions/s/messages", r#"{"text":"a"}"#, 400, &["query"]),
        ("GET", "/v1/sessions/s/messages?agent=helper&limit=0", "", 400, &["limit"]),
        ("GET", "/v1/sessions/s/messages?agent=helper&before=x", "", 400, &["before"]),
        ("GET", "/v1/sessions/s/messages?agent=helper&colour=red", "", 400, &["query"]),
        ("GET", "/v1/usage?account=acme&from=yesterday", "", 400, &["from"]),
        ("GET", "/v1/usage?account=acme&to=2026-02-30", "", 400, &["to"]),
        ("GET", "/v1/ops/dead?before=x", "", 400, &["before"]),
        ("GET", "/v1/ops/dead?limit=1000", "", 400, &["limit"]),
        ("GET", "/v1/calls/a%20b", "", 400, &["path"]),
        ("GET", "/v1/calls/none", "", 404, &[]),
        ("GET", "/v1/calls/%2e%2e%2f%2e%2e", "", 400, &["path"]),
        ("GET", "/v1/agents/none", "", 404, &[]),
        ("GET", "/v1/plugins/none", "", 404, &[]),
        ("DELETE", "/v1/installations/acme/none", "", 404, &[]),
        ("GET", "/v1/nothing", "", 404, &[]),
        ("GET", "/", "", 404, &[]),
        ("PATCH", "/v1/calls", "", 405, &[]),
        ("PUT", "/v1/calls/x", "", 405, &[]),
        ("DELETE", "/livez", "", 405, &[]),
    ];
    for (method, path, body, status, places) in table {
        let headers = [("content-type", "application/json")];
        let answer = stage.request(method, path, &headers, body.as_bytes().to_vec()).await;
        let shown: String = body.chars().take(80).collect();
        let what = format!("{method} {path} {shown}: {}", answer.text);
        assert_eq!(answer.status, *status, "{what}");
        assert_eq!(answer.header("content-type"), "application/problem+json", "{what}");
        assert_eq!(answer.places(), *places, "{what}");
        assert_eq!(answer.body["status"], *status, "{what}");
        let page = stage.get(answer.body["type"].as_str().unwrap()).await;
        assert_eq!(page.status, 200, "{what}");
    }

    for content_type in ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"] {
        let headers: &[(&str, &str)] = if content_type.is_empty() { &[] } else { &[("content-type", content_type)] };
        let answer = stage.request("POST", "/v1/calls", headers, call("echo").to_string().into_bytes()).await;
        assert_eq!(answer.is(415)["type"], "/problems/media-type", "{content_type}");
    }
    let long = format!(r#"{{"agent":"helper","tool":"demo__echo","input":"{}"}}"#, "x".repeat(100_000));
    assert_eq!(stage.post_with("/v1/calls", &[], long).await.is(413)["type"], "/problems/too-long");
    for (header, place) in [(("prefer", "wait=soon"), "Prefer"), (("idempotency-key", ""), "Idempotency-Key")] {
        let answer = stage.post_with("/v1/calls", &[header], call("echo").to_string()).await;
        answer.is(400);
        assert_eq!(answer.places(), [place]);
    }
    // None of it left anything behind.
    assert_eq!(stage.get("/v1/autoscale").await.is(200)["work"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_with_problems_is_refused_with_all_of_them() {
    let stage = Stage::start().await;
    let answer = stage.post("/v1/plugins", &json!({ "files": { "index.js": "let a = ;" } })).await;
    assert_eq!(answer.is(422)["type"], "/problems/plugin-problems");
    let problems = answer.body["problems"].as_array().unwrap();
    assert!(!problems.is_empty());
    for problem in problems {
        assert!(
            problem["code"].is_string() && problem["message"].is_string() && problem["remedy"].is_string(),
            "{problem}"
        );
    }
    assert_eq!(stage.get("/v1/plugins").await.is(200)["plugins"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_is_evaluated_by_a_worker_and_then_published() {
    let stage = Stage::start().await;
    let inspection = json!({
        "outcome": "loaded",
        "toolsShape": { "is": "json", "what": true },
        "tools": [{
            "name": "ping", "shape": { "is": "json", "what": true }, "description": { "is": "json", "what": "Answers." },
            "parameters": { "is": "absent" }, "handler": { "is": "function" },
            "alwaysListed": { "is": "absent" }, "deferred": { "is": "absent" }, "unknown": [],
        }],
        "manifest": { "is": "absent" },
    });
    let _worker = FakeWorker::start(&stage, Class::Interactive, Some(inspection));
    let source = "globalThis.tools.ping = { description: 'Answers.', handler: () => 'pong' };\n";
    let manifest = |description: &str| {
        json!({ "slug": "pinger", "version": "1.0.0", "name": "Pinger", "description": description, "entry": "index.js" })
            .to_string()
    };
    let files = |description: &str| json!({ "files": { "plugin.json": manifest(description), "index.js": source } });
    let published = stage.post("/v1/plugins", &files("Pings.")).await;
    assert_eq!(published.is(201)["plugin"], "pinger");
    assert_eq!(published.body["tools"][0]["qualifiedName"], "pinger__ping");
    assert_eq!((&published.body["permissions"], &published.body["egress"]), (&json!([]), &json!([])));
    assert_eq!(published.body["limits"]["wallMs"], 30_000);
    assert_eq!(stage.post("/v1/plugins", &files("Pings.")).await.is(200)["release"], published.body["release"]);
    let other = stage.post("/v1/plugins", &files("Pings more.")).await;
    assert_eq!(other.is(409)["type"], "/problems/conflict");

    let plugins = stage.get("/v1/plugins").await;
    assert_eq!(plugins.is(200)["plugins"][0]["latest"]["version"], "1.0.0");
    let plugin = stage.get("/v1/plugins/pinger").await;
    assert_eq!(plugin.is(200)["versions"].as_array().unwrap().len(), 1);
    assert!(plugin.text.find("globalThis").is_none(), "the code isn't shown");
    let installation = json!({ "account": "acme", "plugin": "pinger", "version": "1.0.0" });
    stage.post("/v1/installations", &installation).await.is(201);
    assert_eq!(stage.get("/v1/installations?account=acme").await.is(200)["installations"][0]["plugin"], "pinger");
    assert_eq!(stage.request("DELETE", "/v1/installations/acme/pinger", &[], Vec::new()).await.status, 204);
    assert_eq!(stage.get("/v1/installations?account=acme").await.is(200)["installations"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_read_as_it_was_written() {
    let stage = Stage::start().await.with_plugin().await;
    for text in ["one", "two", "three"] {
        let posted = stage.post("/v1/sessions/s/messages?agent=helper", &json!({ "text": text })).await;
        assert_eq!(posted.is(201)["role"], "user");
    }
    let page = stage.get("/v1/sessions/s/messages?agent=helper&limit=2").await;
    let texts = |page: &Value| -> Vec<String> {
        let messages = page["messages"].as_array().unwrap();
        messages.iter().map(|message| message["text"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(texts(page.is(200)), ["two", "three"]);
    let before = page.body["messages"][0]["id"].as_str().unwrap();
    let earlier = stage.get(&format!("/v1/sessions/s/messages?agent=helper&before={before}")).await;
    assert_eq!(texts(earlier.is(200)), ["one"]);
    // Another account's agent sees nothing of it.
    stage.post("/v1/agents", &json!({ "id": "stranger", "account": "other" })).await.is(201);
    assert_eq!(stage.get("/v1/sessions/s/messages?agent=stranger").await.is(200)["messages"], json!([]));
}

fn token(name: &str, scopes: &[Scope]) -> ApiToken {
    let sha256 = TokenDigest(Sha256::digest(format!("{name}-secret").as_bytes()).into());
    ApiToken { name: name.to_owned(), sha256, scopes: scopes.iter().copied().collect() }
}

/// Routes that anybody may use.
const OPEN: [&str; 4] = ["/livez", "/readyz", "/openapi.json", "/problems/{code}"];

#[tokio::test(flavor = "multi_thread")]
async fn every_route_asks_for_the_scope_that_its_description_names() {
    let scopes = [("submit", Scope::Submit), ("manage", Scope::Manage), ("ops", Scope::Ops)];
    let tokens = scopes.iter().map(|(name, scope)| token(name, &[*scope])).collect();
    let config = SchedulerConfig { api: ApiConfig { tokens }, ..SchedulerConfig::default() };
    let stage = Stage::with(config).await;
    let document = serde_json::to_value(openapi()).unwrap();
    let mut seen = 0;
    for (template, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            seen += 1;
            let path = template.split('/').map(|part| if part.starts_with('{') { "x" } else { part });
            let path = path.collect::<Vec<_>>().join("/");
            let method = method.to_uppercase();
            let what = format!("{method} {path}");
            let ask = async |authorization: Option<String>| {
                let headers: Vec<(&str, &str)> =
                    authorization.iter().map(|value| ("authorization", value.as_str())).collect();
                stage.request(&method, &path, &headers, Vec::new()).await.status
            };
            if OPEN.contains(&template.as_str()) {
                assert!(operation["security"].is_null(), "{what}");
                assert_ne!(ask(None).await, 401, "{what}");
                continue;
            }
            let needed =
                operation["security"][0]["token"][0].as_str().unwrap_or_else(|| panic!("{what} names no scope"));
            assert_eq!(ask(None).await, 401, "{what}");
            for bad in ["Bearer wrong", "Bearer ", "Basic c3VibWl0", "submit-secret", "Bearer submit-secret x"] {
                assert_eq!(ask(Some(bad.into())).await, 401, "{what} with {bad}");
            }
            for (name, _) in scopes {
                let status = ask(Some(format!("Bearer {name}-secret"))).await;
                if name == needed {
                    assert!(!matches!(status, 401 | 403), "{what} with {name}: {status}");
                } else {
                    assert_eq!(status, 403, "{what} with {name}");
                }
            }
        }
    }
    assert!(seen > 20, "{seen} routes are described");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_manages_says_who_stands_behind_a_call() {
    let tokens = vec![token("submit", &[Scope::Submit]), token("both", &[Scope::Submit, Scope::Manage])];
    let config = SchedulerConfig { api: ApiConfig { tokens }, ..SchedulerConfig::default() };
    let stage = Stage::with(config).await.token("both-secret").with_plugin().await;
    let mut request = call("echo");
    request["initiator"] = json!({ "kind": "user", "isVerifiedPerson": true });
    let accepted = stage.post("/v1/calls", &request).await;
    let id = CallId::parse(accepted.is(202)["callId"].as_str().unwrap()).unwrap();
    let job = String::from_utf8(stage.records.call(&id).await.unwrap().unwrap().job.encode()).unwrap();
    assert!(job.contains(r#""initiator":{"kind":"user","isVerifiedPerson":true}"#), "{job}");
    let stage = stage.token("submit-secret");
    stage.post("/v1/calls", &request).await.is(403);
    let accepted = stage.post("/v1/calls", &call("echo")).await;
    let id = CallId::parse(accepted.is(202)["callId"].as_str().unwrap()).unwrap();
    let job = String::from_utf8(stage.records.call(&id).await.unwrap().unwrap().job.encode()).unwrap();
    assert!(job.contains(r#""initiator":{"kind":"platform","isVerifiedPerson":false}"#), "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_that_is_asked_to_end_lets_go_of_who_waits() {
    let stage = Stage::start().await.with_plugin().await;
    let (http, url) = (stage.http.clone(), format!("{}/v1/calls", stage.base));
    let body = call("echo").to_string();
    let waiting = tokio::spawn(async move {
        let request = http.post(url).header("content-type", "application/json").header("prefer", "wait=60");
        request.body(body).send().await.unwrap().status().as_u16()
    });
    eventually("the call to be queued", || async {
        stage.queue.depth(&QueueName::Jobs { class: Class::Interactive, lane: 0 }).await.unwrap().ready == 1
    })
    .await;
    stage.end().await.unwrap();
    let status = tokio::time::timeout(BOUND, waiting).await.expect("it is let go").unwrap();
    assert_eq!(status, 202);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_metrics_tell_how_it_does() {
    let stage = Stage::start().await.with_plugin().await;
    assert_eq!(stage.get("/livez").await.is(200), &json!("ok\n"));
    let ready = stage.get("/readyz?verbose").await;
    let checks: BTreeSet<_> =
        ready.is(200)["checks"].as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect();
    assert_eq!(checks, ["dead", "metering", "queue", "results", "running", "store"].into());
    let _worker = FakeWorker::start(&stage, Class::Interactive, None);
    stage.post_with("/v1/calls", &[WAIT], call("echo").to_string()).await.is(200);
    let metrics = stage.get("/metrics").await;
    assert!(metrics.text.contains("toolfleet_calls_total{outcome=\"ok\"} 1"), "{}", metrics.text);
    assert!(stage.get("/v1/sdk/types").await.text.contains("interface"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_in_the_repository_is_the_one_that_is_served() {
    let stage = Stage::start().await;
    let served = stage.get("/openapi.json").await;
    assert_eq!(served.text, openapi_text());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, openapi_text()).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == openapi_text(), "docs/openapi.json is not what is served: run this test with UPDATE=1");
    // Every reference in it leads somewhere.
    let document: Value = serde_json::from_str(&kept).unwrap();
    let mut references = BTreeSet::new();
    collect_references(&document, &mut references);
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

fn collect_references(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "$ref" => {
                        into.insert(text.clone());
                    }
                    other => collect_references(other, into),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, into)),
        _ => {}
    }
}
