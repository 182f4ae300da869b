//! `toolfleet plugin run`, as an author types it: the result object on stdout, the exit code by its status.

use serde_json::Value;
use std::process::Output;
use std::time::{Duration, Instant};
use toolfleet_tests::{root, run};

fn run_tool(tool: &str, input: &str) -> (Output, Duration) {
    let folder = root().join("tests/fixtures/outcomes");
    let folder = folder.to_str().expect("the repository's path is text");
    let start = Instant::now();
    (run(&["plugin", "run", folder, tool, "--input", input, "--json"]), start.elapsed())
}

fn result(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn a_result_is_printed_as_documented() {
    let (output, _) = run_tool("returns", r#"{"value":{"a":[1,null,"ü"]}}"#);
    let value = result(&output);
    assert_eq!(output.status.code(), Some(0), "{value:#}");
    let keys: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["callId", "status", "usage", "value"], "{value:#}");
    assert_eq!(value["value"]["value"], serde_json::json!({ "a": [1, null, "ü"] }));
    let usage = value["usage"].as_object().expect("usage is an object");
    for key in ["wallMs", "queueMs", "cpuMs", "peakMemoryBytes", "hostCalls", "attempt"] {
        assert!(usage.get(key).is_some_and(Value::is_u64), "{key} in {value:#}");
    }
}

#[test]
fn a_failure_is_classified_within_its_limit_and_exits_1() {
    let limit = Duration::from_secs(30) + Duration::from_millis(500);
    // What starting, checking and evaluating the plugin may take besides, on a busy machine.
    let start = Duration::from_secs(5);
    for (tool, kinds) in [
        ("allocates", &["memory"][..]),
        ("allocates_buffers", &["memory"]),
        ("recurses", &["thrown"]),
        ("stalls", &["stalled"]),
        ("loops", &["timeout"]),
        ("joins", &["timeout", "memory"]),
    ] {
        let (output, took) = run_tool(tool, "{}");
        let value = result(&output);
        let kind = value["error"]["kind"].as_str().unwrap_or_default();
        assert!(kinds.contains(&kind), "{tool}: {value:#}");
        assert_eq!(output.status.code(), Some(1), "{tool}: {value:#}");
        assert!(took < limit + start, "{tool} took {took:?}");
        let wall = Duration::from_millis(value["usage"]["wallMs"].as_u64().expect("a number"));
        assert!(wall < limit, "{tool} ran for {wall:?}");
        // The next call works.
        let (output, _) = run_tool("returns_nothing", "{}");
        assert_eq!(output.status.code(), Some(0), "after {tool}: {:#}", result(&output));
    }
}

#[test]
fn what_is_typed_wrong_is_told_and_exits_2() {
    let folder = root().join("tests/fixtures/outcomes");
    let folder = folder.to_str().expect("the repository's path is text");
    for (args, told) in [
        (&["plugin", "run", folder, "returns", "--input", "{"][..], "--input"),
        (&["plugin", "run", folder, "no_such_tool"], "no_such_tool"),
        (&["plugin", "run", "/no/such/folder", "returns"], "/no/such/folder"),
        (&["plugin", "run", folder], "TOOL"),
        (&["no-such-command"], "no-such-command"),
    ] {
        let output = run(args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(told), "{args:?}: {error}");
        assert!(output.stdout.is_empty(), "{args:?} prints its error on stderr alone");
    }
}
