//! Calls in the real sandbox, on the real kernel.

use async_trait::async_trait;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use toolfleet_protocol::host::{HostError, HostErrorName, HostMethod};
use toolfleet_protocol::*;
use toolfleet_worker::isolation::{Host, IsolationConfig, LogLevel, RunEnd, RunRequest, Sandbox};

/// The root, built next to the test.
fn root_binary() -> PathBuf {
    let here = std::env::current_exe().expect("the test knows its own path");
    let path = here.ancestors().nth(2).expect("tests run from target/PROFILE/deps").join("sandbox-root");
    assert!(path.exists(), "{} is not there: cargo build --release -p toolfleet-sandbox, or run tests/run", path.display());
    path
}

async fn sandbox() -> Sandbox {
    start(IsolationConfig::default()).await
}

async fn start(config: IsolationConfig) -> Sandbox {
    let config = IsolationConfig { sandbox_binary: Some(root_binary()), ..config };
    Sandbox::start(config).await.expect("the sandbox starts")
}

/// Answers `settings.get` with its key after as many milliseconds as the key says, and keeps what is logged.
#[derive(Default)]
struct TestHost {
    lines: Mutex<Vec<String>>,
}

#[async_trait]
impl Host for TestHost {
    async fn call(&self, _: u32, method: HostMethod, arguments: Box<RawValue>) -> Result<Box<RawValue>, HostError> {
        match method {
            HostMethod::SettingsGet => {
                let [key]: [String; 1] = serde_json::from_str(arguments.get()).expect("one key");
                if let Ok(ms) = key.parse() {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                }
                Ok(serde_json::value::to_raw_value(&key).expect("a text is JSON"))
            }
            _ => Err(HostError::new(HostErrorName::PermissionError, "no such permission")),
        }
    }

    fn log(&self, level: LogLevel, message: &str, _: Option<Box<RawValue>>) {
        self.lines.lock().unwrap().push(format!("{level:?} {message}"));
    }
}

fn bundle(code: &str) -> Arc<Bundle> {
    let file = BundledFile { code: code.to_owned(), source_map: String::new(), imports: BTreeMap::new() };
    Arc::new(Bundle { entry: "a.js".into(), entry_is_script: true, files: BTreeMap::from([("a.js".into(), file)]) })
}

fn request(code: &str, input: Value) -> RunRequest {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    code.hash(&mut hasher);
    RunRequest {
        account: AccountId::parse("acme").unwrap(),
        release: ReleaseDigest::parse(format!("{:064x}", hasher.finish())).unwrap(),
        bundle: bundle(code),
        limits: Limits { wall_ms: 1_000, ..Limits::BASE },
        call_id: CallId::generate(),
        tool: ToolName::parse("t").unwrap(),
        input: serde_json::value::to_raw_value(&input).unwrap(),
        initiator: Initiator::PLATFORM,
        cancel: Default::default(),
    }
}

/// A plugin whose one tool has this handler.
fn tool(handler: &str) -> String {
    format!("globalThis.tools.t = {{ description: 'd', handler: {handler} }};")
}

async fn run(sandbox: &Sandbox, handler: &str, input: Value) -> RunEnd {
    sandbox.run(request(&tool(handler), input), Arc::new(TestHost::default())).await
}

#[track_caller]
fn value(end: &RunEnd) -> Value {
    match &end.outcome {
        Outcome::Ok { value } => serde_json::from_str(value.get()).unwrap(),
        Outcome::Failed { error } => panic!("{error:?}"),
    }
}

#[track_caller]
fn failure(end: &RunEnd) -> &CallError {
    match &end.outcome {
        Outcome::Ok { value } => panic!("{value}"),
        Outcome::Failed { error } => error,
    }
}

#[tokio::test]
async fn values_come_back_as_json() {
    let sandbox = sandbox().await;
    for (handler, expected) in [
        ("(i) => i", json!({"a": [1, "ü", null]})),
        ("async (i) => { await null; return i.a }", json!([1, "ü", null])),
        ("() => undefined", Value::Null),
        ("() => () => 1", Value::Null),
        ("() => Symbol()", Value::Null),
        ("() => NaN", Value::Null),
        ("() => new Map([[1, 2]])", json!({})),
        ("() => new Date(0)", json!("1970-01-01T00:00:00.000Z")),
        ("() => '\\ud800x'", json!("\u{fffd}x")),
        ("() => new Promise(r => setTimeout(() => r(7), 20))", json!(7)),
        ("(i, c) => [Object.isFrozen(c), Object.isFrozen(c.initiator), c.initiator.kind]", json!([true, true, "platform"])),
        ("() => new URL('/b?c=d', 'https://a.test/x').href", json!("https://a.test/b?c=d")),
        ("() => [...new TextEncoder().encode('é')]", json!([195, 169])),
        ("() => structuredClone({a: [new Date(5)]}).a[0].getTime()", json!(5)),
        ("() => btoa('hi') + atob('aGk=')", json!("aGk=hi")),
    ] {
        let end = run(&sandbox, handler, json!({"a": [1, "ü", null]})).await;
        assert_eq!(value(&end), expected, "{handler}");
    }
    sandbox.shutdown().await;
}

#[tokio::test]
async fn failures_are_classified() {
    let sandbox = sandbox().await;
    let kept = "const kept = []; for (;;) kept.push";
    for (handler, kind, told) in [
        ("() => { throw new TypeError('no') }".to_owned(), FailureKind::Thrown, "no"),
        ("async () => { throw 'text' }".into(), FailureKind::Thrown, "text"),
        ("() => { throw null }".into(), FailureKind::Thrown, "null"),
        ("() => { throw { get message() { throw 1 } } }".into(), FailureKind::Thrown, ""),
        ("() => { for (;;); }".into(), FailureKind::Timeout, "1 s"),
        ("() => { for (;;) { try { for (;;); } catch {} } }".into(), FailureKind::Timeout, "1 s"),
        ("() => Promise.resolve().then(function g() { return Promise.resolve().then(g) })".into(), FailureKind::Timeout, "1 s"),
        ("() => new Promise(r => setTimeout(r, 1e9))".into(), FailureKind::Timeout, "1 s"),
        ("() => new Promise(() => {})".into(), FailureKind::Stalled, "nothing can settle"),
        (format!("() => {{ {kept}(new Array(1000).fill(1)) }}"), FailureKind::Memory, "128 MB"),
        (format!("() => {{ {kept}(new Uint8Array(8e6).fill(1)) }}"), FailureKind::Memory, "128 MB"),
        (format!("() => {{ {kept}('x'.repeat(2 ** 26) + kept.length) }}"), FailureKind::Memory, "128 MB"),
        ("() => { const f = () => f() + 1; return f() }".into(), FailureKind::Thrown, "stack"),
        ("() => JSON.parse('['.repeat(1e6))".into(), FailureKind::Thrown, ""),
        ("() => { const a = {}; a.a = a; return a }".into(), FailureKind::Unserializable, "JSON"),
        ("() => 1n".into(), FailureKind::Unserializable, "JSON"),
        ("() => ({ toJSON() { throw new Error('mine') } })".into(), FailureKind::Unserializable, "mine"),
        ("() => 'x'.repeat(2e6)".into(), FailureKind::TooLarge, "bytes"),
    ] {
        let start = Instant::now();
        let end = run(&sandbox, &handler, json!({})).await;
        let error = failure(&end);
        assert_eq!(error.kind, kind, "{handler}: {error:?}");
        assert!(error.message.contains(told), "{handler}: {error:?}");
        assert!(start.elapsed() < Duration::from_millis(1_500), "{handler} took {:?}", start.elapsed());
        assert_eq!(value(&run(&sandbox, "() => 1", json!({})).await), json!(1), "after {handler}");
    }
    let start = Instant::now();
    let end = run(&sandbox, "() => new Array(1e9) + ''", json!({})).await;
    assert!(matches!(failure(&end).kind, FailureKind::Timeout | FailureKind::Memory), "{end:?}");
    assert!(start.elapsed() < Duration::from_millis(1_500), "took {:?}", start.elapsed());
    sandbox.shutdown().await;
}

#[tokio::test]
async fn a_plugin_that_does_not_load_fails_its_calls() {
    let sandbox = sandbox().await;
    for (code, told) in [
        ("throw new Error('at load')", "at load"),
        ("for (;;);", "too long"),
        ("host.log.info('x'); host.fetch({url: 'https://a.test'})", "while the plugin is being loaded"),
        ("setTimeout(() => 1, 1)", "while the plugin is being loaded"),
        ("const k = []; for (;;) k.push(new Array(1000).fill(1))", "memory"),
        ("let x = ;", "unexpected"),
    ] {
        let end = sandbox.run(request(code, json!({})), Arc::new(TestHost::default())).await;
        let error = failure(&end);
        assert_eq!(error.kind, FailureKind::LoadFailed, "{code}: {error:?}");
        assert!(error.message.contains(told), "{code}: {error:?}");
    }
    sandbox.shutdown().await;
}

#[tokio::test]
async fn host_calls_are_answered_in_any_order() {
    let sandbox = sandbox().await;
    let handler = "async () => { const order = []; \
        await Promise.all(['60', '5', '30'].map(async k => order.push(await host.settings.get(k)))); return order }";
    let end = run(&sandbox, handler, json!({})).await;
    assert_eq!(value(&end), json!(["5", "30", "60"]));
    assert_eq!(end.host_calls, 3);
    let handler = "async () => { try { await host.session.messages() } catch (e) { return [e instanceof Error, e.name, e.message] } }";
    assert_eq!(value(&run(&sandbox, handler, json!({})).await), json!([true, "PermissionError", "no such permission"]));
    sandbox.shutdown().await;
}

#[tokio::test]
async fn calls_of_one_template_share_nothing() {
    let sandbox = Arc::new(sandbox().await);
    let handler = "() => { const seen = globalThis.seen ?? 0; globalThis.seen = seen + 1; return [seen, Math.random(), crypto.randomUUID()] }";
    let ends = futures::future::join_all((0..200).map(|_| run(&sandbox, handler, json!({})))).await;
    let values: Vec<Value> = ends.iter().map(value).collect();
    assert!(values.iter().all(|value| value[0] == 0));
    for at in [1, 2] {
        let mut seen: Vec<String> = values.iter().map(|value| value[at].to_string()).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 200);
    }
    sandbox.shutdown().await;
}
