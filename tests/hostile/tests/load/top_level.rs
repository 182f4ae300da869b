//! Row B1: what a plugin does when it is loaded, in a template and when it is published.

use crate::{brief, publish_entry, sandbox, sandbox_with, still_works};
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;
use toolfleet_hostile::support::{TestHost, failure, request};
use toolfleet_hostile::{Watch, overrun_ms_max, turn};
use toolfleet_protocol::{CallError, FailureKind};
use toolfleet_worker::isolation::Sandbox;

const TOOL: &str = "globalThis.tools.t = { description: 'd', handler: () => 1 };\n";

/// What never ends by itself. Where it is then isn't told.
const LOOPS: &[&str] = &[
    "for (;;);",
    "for (;;) { try { for (;;); } catch {} }",
    "(function g() { queueMicrotask(g) })()",
    "/(a+)+$/.test('a'.repeat(40) + '!')",
    "for await (const x of { [Symbol.asyncIterator]: () => ({ next: () => ({ value: 1 }) }) }); export {}",
    "throw new Error('x', { get cause() { for (;;); } })",
    // The engine looks at no clock in it; it may run out of memory before.
    "new Array(1e9) + ''",
];
/// They may take so long.
const LOOP_MS: u64 = 500;

/// What ends in a failure, what it is told, and where.
const CASES: &[(&str, &str, &str)] = &[
    ("globalThis.kept = 'x'.repeat(5e8)", "memory", "2:23"),
    ("globalThis.kept = []; for (;;) kept.push(new Uint8Array(1e6).fill(1))", "memory", "2:46"),
    ("globalThis.kept = []; for (;;) kept.push({})", "memory", "1:1"),
    ("\n  throw new TypeError('at load')", "TypeError: at load", "3:13"),
    ("throw 'only text'", "only text", "1:1"),
    ("throw null", "null was thrown", "1:1"),
    ("throw { get message() { for (;;); } }", "takes too long to read", "1:1"),
    ("throw Object.defineProperty(new Error('x'), 'stack', { get() { throw 1 } })", "Error: x", "1:1"),
    ("(function f() { f() })()", "stack", "2:17"),
    ("null.x", "TypeError: cannot read property 'x' of null", "2:1"),
    ("await new Promise(() => {}); export {}", "awaits something at its top level", "1:1"),
    ("await Promise.reject(new Error('late')); export {}", "late", "2:26"),
    (
        "host.log.info('x'); host.fetch({ url: 'https://a.test' })",
        "host.fetch can't be called while the plugin is being loaded",
        "2:26",
    ),
    (
        "await host.settings.get('x'); export {}",
        "host.settings.get can't be called while the plugin is being loaded",
        "2:21",
    ),
    ("setTimeout(() => 1, 1)", "a timer can't be set while the plugin is being loaded", "2:1"),
    ("setInterval(() => 1)", "a timer can't be set while the plugin is being loaded", "2:1"),
    ("AbortSignal.timeout(5)", "a timer can't be set while the plugin is being loaded", "2:13"),
];

/// A call of a plugin that doesn't load.
async fn load_in_template(sandbox: &Sandbox, code: &str) -> CallError {
    let mut request = request(&format!("{TOOL}{code}"), json!({}));
    Arc::make_mut(&mut request.bundle).entry_is_script = !code.contains("export {}");
    let end = sandbox.run(request, Arc::new(TestHost::default())).await;
    let error = failure(&end);
    assert_eq!(error.kind, FailureKind::LoadFailed, "{code}: {error:?}");
    error.clone()
}

#[tokio::test]
async fn b1_a_top_level_that_never_ends_is_ended_at_its_limit_published_or_called() {
    let _turn = turn().await;
    let sandbox = sandbox_with(LOOP_MS).await;
    let watch = Watch::warm(&sandbox).await;
    for code in LOOPS {
        for publishes in [true, false] {
            let started = Instant::now();
            let message = if publishes {
                let problems = publish_entry(&sandbox, &format!("{TOOL}{code}")).await.unwrap_err();
                assert_eq!(
                    problems.iter().map(brief).collect::<Vec<_>>(),
                    ["load-failed src/index.js:1:1"],
                    "{problems}"
                );
                problems.to_string()
            } else {
                load_in_template(&sandbox, code).await.message
            };
            let ms = u64::try_from(started.elapsed().as_millis()).unwrap();
            assert!(ms < LOOP_MS + overrun_ms_max(), "{code} took {ms} ms");
            // The engine's words, or the worker's where the engine said nothing.
            assert!(
                message.contains("takes too long to load") || message.contains("takes longer than"),
                "{code}: {message}"
            );
        }
        still_works(&sandbox, &watch, code).await;
    }
    sandbox.shutdown().await;
}

#[tokio::test]
async fn b1_a_top_level_that_means_no_good_is_told_with_its_place_when_published() {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    let mut faults = Vec::new();
    for (code, words, place) in CASES {
        let problems = publish_entry(&sandbox, &format!("{TOOL}{code}")).await.unwrap_err();
        let of_load: Vec<_> = problems.iter().filter(|problem| problem.code == "load-failed").collect();
        let is_told = matches!(of_load[..], [problem] if problem.message.contains(words)
            && !problem.remedy.is_empty()
            && brief(problem) == format!("load-failed src/index.js:{place}"));
        if !is_told {
            faults.push(format!("{code} ({words}, {place}): {problems}"));
        }
        still_works(&sandbox, &watch, code).await;
    }
    sandbox.shutdown().await;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn b1_a_template_that_does_not_load_fails_its_calls_and_no_other() {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    for (code, words, _) in CASES {
        let error = load_in_template(&sandbox, code).await;
        let words = words.split(": ").last().unwrap();
        assert!(error.message.contains(words) && !error.message.is_empty(), "{code}: {error:?}");
        still_works(&sandbox, &watch, code).await;
    }
    sandbox.shutdown().await;
}

#[tokio::test]
async fn b1_what_is_left_pending_when_a_plugin_is_loaded_runs_in_no_call() {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    // Microtasks run to their end at load; what was rejected then is nothing of a call's.
    let code = "let n = 0; Promise.reject(new Error('at load')); Promise.resolve().then(() => n++).then(() => n++); \
        globalThis.tools.t = { description: 'd', handler: () => n };";
    let host = Arc::new(TestHost::default());
    for _ in 0..2 {
        let end = sandbox.run(request(code, json!({})), Arc::clone(&host) as _).await;
        assert_eq!(toolfleet_hostile::support::value(&end), json!(2));
    }
    assert_eq!(*host.lines.lock().unwrap(), [""; 0]);
    still_works(&sandbox, &watch, code).await;
    sandbox.shutdown().await;
}
