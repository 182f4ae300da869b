//! Calls in the real sandbox, on the real kernel.

mod support;

use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{TestHost, failure, request, run, sandbox, slowness, start, tool, value};
use toolfleet_protocol::*;
use toolfleet_worker::isolation::{Host, IsolationConfig};

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
        (
            "(i, c) => [Object.isFrozen(c), Object.isFrozen(c.initiator), c.initiator.kind]",
            json!([true, true, "platform"]),
        ),
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
    let limit = format!("{} s", slowness());
    let limit = limit.as_str();
    let kept = "const kept = []; for (;;) kept.push";
    for (handler, kind, told) in [
        ("() => { throw new TypeError('no') }".to_owned(), FailureKind::Thrown, "no"),
        ("async () => { throw 'text' }".into(), FailureKind::Thrown, "text"),
        ("() => { throw null }".into(), FailureKind::Thrown, "null"),
        ("() => { throw { get message() { throw 1 } } }".into(), FailureKind::Thrown, ""),
        ("() => { for (;;); }".into(), FailureKind::Timeout, limit),
        ("() => { for (;;) { try { for (;;); } catch {} } }".into(), FailureKind::Timeout, limit),
        (
            "() => new Promise(() => queueMicrotask(function g() { queueMicrotask(g) }))".into(),
            FailureKind::Timeout,
            limit,
        ),
        ("() => new Promise(r => setTimeout(r, 1e9))".into(), FailureKind::Timeout, limit),
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
        assert!(start.elapsed() < Duration::from_millis(1_500 * slowness()), "{handler} took {:?}", start.elapsed());
        assert_eq!(value(&run(&sandbox, "() => 1", json!({})).await), json!(1), "after {handler}");
    }
    let start = Instant::now();
    let end = run(&sandbox, "() => new Array(1e9) + ''", json!({})).await;
    assert!(matches!(failure(&end).kind, FailureKind::Timeout | FailureKind::Memory), "{end:?}");
    assert!(start.elapsed() < Duration::from_millis(1_500 * slowness()), "took {:?}", start.elapsed());
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

#[tokio::test]
async fn the_memory_cap_is_the_kernels() {
    // The engine may use four times the cap, so only the kernel can hold it.
    let sandbox = start(IsolationConfig { heap_percent: 400, ..IsolationConfig::default() }).await;
    let handler =
        "() => { const kept = []; for (let i = 0; i < 300; i++) kept.push(new Uint8Array(1e6).fill(1)); return 1 }";
    let end = run(&sandbox, handler, json!({})).await;
    assert_eq!(failure(&end).kind, FailureKind::Memory, "{end:?}");
    let cap = Limits::BASE.memory_bytes;
    assert!(end.peak_memory_bytes > cap * 9 / 10 && end.peak_memory_bytes <= cap, "{end:?}");
    assert_eq!(value(&run(&sandbox, "() => 1", json!({})).await), json!(1));
    sandbox.shutdown().await;
}

#[tokio::test]
async fn without_a_cgroup_memory_is_still_bounded_and_the_loss_is_told() {
    let sandbox =
        start(IsolationConfig { without_cgroup: true, heap_percent: 400, ..IsolationConfig::default() }).await;
    let layers = serde_json::to_value(sandbox.layers().await).unwrap();
    let memory = layers.as_array().unwrap().iter().find(|layer| layer["name"] == "memory cgroup").unwrap();
    assert_eq!(memory["state"], "degraded", "{memory}");
    assert!(!memory["costs"].as_str().unwrap().is_empty(), "{memory}");
    let handler = "() => { const kept = []; for (;;) kept.push(new Uint8Array(1e6).fill(1)) }";
    assert_eq!(failure(&run(&sandbox, handler, json!({})).await).kind, FailureKind::Memory);
    assert_eq!(value(&run(&sandbox, "() => 1", json!({})).await), json!(1));
    sandbox.shutdown().await;
}

#[tokio::test]
async fn a_cancelled_call_ends_at_once() {
    let sandbox = sandbox().await;
    let request = request(&tool(&format!("() => new Promise(r => setTimeout(r, {}))", 900 * slowness())), json!({}));
    let cancel = request.cancel.clone();
    let start = Instant::now();
    let (end, ()) = tokio::join!(sandbox.run(request, Arc::new(TestHost::default())), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        cancel.cancel();
    });
    assert_eq!(failure(&end).kind, FailureKind::Cancelled);
    assert!(start.elapsed() < Duration::from_millis(700 * slowness()), "{:?}", start.elapsed());
    sandbox.shutdown().await;
}

#[tokio::test]
async fn log_lines_are_bounded_and_plain() {
    let sandbox = sandbox().await;
    let host = Arc::new(TestHost::default());
    let code = tool(
        "() => { console.log('a\\u001b[31mb', {c: 1}); host.log.warn('w', {d: 2}); for (let i = 0; i < 1e5; i++) console.log('x'.repeat(1000)); return 1 }",
    );
    let end = sandbox.run(request(&code, json!({})), Arc::clone(&host) as Arc<dyn Host>).await;
    assert_eq!(value(&end), json!(1));
    let lines = host.lines.lock().unwrap().clone();
    assert_eq!(lines[0], "Info a\u{fffd}[31mb {\"c\":1}");
    assert_eq!(lines[1], "Warn w");
    let bytes: usize = lines.iter().map(String::len).sum();
    assert!(bytes < Limits::BASE.log_bytes_max as usize + 4096, "{bytes}");
    assert!(lines.last().unwrap().contains("over the call's log budget"), "{:?}", lines.last());
    sandbox.shutdown().await;
}
