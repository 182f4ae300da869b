//! Row B1: what a plugin does when it is loaded, in a template and when it is published.

use crate::{LOAD_MS, brief, publish_entry, sandbox, still_works};
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;
use toolfleet_hostile::support::{TestHost, failure, request};
use toolfleet_hostile::{Watch, overrun_ms_max, turn};
use toolfleet_protocol::FailureKind;

const TOOL: &str = "globalThis.tools.t = { description: 'd', handler: () => 1 };\n";

/// What stands at the top level, what it is told, and where. Loops that never end are not told where: no place is right.
const CASES: &[(&str, &str, &str)] = &[
    ("for (;;);", "takes too long to load", "1:1"),
    ("for (;;) { try { for (;;); } catch {} }", "takes too long to load", "1:1"),
    ("(function g() { queueMicrotask(g) })()", "takes too long to load", "1:1"),
    ("/(a+)+$/.test('a'.repeat(40) + '!')", "takes too long to load", "1:1"),
    ("new Array(1e9) + ''", "", "1:1"),
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

#[tokio::test]
async fn b1_a_top_level_that_means_no_good_is_told_with_its_place_when_published() {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    let mut faults = Vec::new();
    for (code, words, place) in CASES {
        let started = Instant::now();
        let problems = publish_entry(&sandbox, &format!("{TOOL}{code}")).await.unwrap_err();
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap();
        assert!(ms < LOAD_MS + overrun_ms_max(), "{code} took {ms} ms");
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
        let mut request = request(&format!("{TOOL}{code}"), json!({}));
        let is_module = code.contains("export");
        let bundle = Arc::make_mut(&mut request.bundle);
        bundle.entry_is_script = !is_module;
        let started = Instant::now();
        let end = sandbox.run(request, Arc::new(TestHost::default())).await;
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap();
        assert!(ms < LOAD_MS + overrun_ms_max(), "{code} took {ms} ms");
        let error = failure(&end);
        assert_eq!(error.kind, FailureKind::LoadFailed, "{code}: {error:?}");
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
