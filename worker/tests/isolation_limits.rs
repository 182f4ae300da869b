//! Layers that an operator asks for, and what many calls at once share.

mod support;

use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use support::{TestHost, failure, request, root_binary, run, slowness, start, tool, value};
use toolfleet_protocol::FailureKind;
use toolfleet_worker::isolation::{IsolationConfig, LayerName, Sandbox, SandboxError};

fn config(text: &str) -> Result<IsolationConfig, String> {
    let value: serde_json::Value = serde_json::from_str(text).expect("it is JSON");
    IsolationConfig::deserialize(value).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_required_layer_that_is_there_changes_nothing() {
    let sandbox =
        start(config(r#"{"require": ["empty root", "no new privileges", "resource limits"]}"#).unwrap()).await;
    assert_eq!(value(&run(&sandbox, "() => 1", json!({})).await), json!(1));
    sandbox.shutdown().await;
}

#[tokio::test]
async fn without_a_required_layer_no_sandbox_starts_and_the_reason_is_told() {
    for (text, layer, why) in [
        (
            r#"{"require": ["memory cgroup"], "without_cgroup": true}"#,
            "memory cgroup",
            "isolation.without_cgroup is set",
        ),
        (r#"{"require": ["landlock", "cpu cgroup"]}"#, "cpu cgroup", "isolation.cpu_percent is not set"),
    ] {
        let config = IsolationConfig { sandbox_binary: Some(root_binary("sandbox-root")), ..config(text).unwrap() };
        let Err(error) = Sandbox::start(config).await else { panic!("it starts without {layer}") };
        let expected = format!("isolation.require names the layer {layer}, which can't be had here: {why}");
        assert_eq!(error.to_string(), expected);
        assert!(matches!(error, SandboxError::Layer { .. }));
    }
}

#[test]
fn a_layer_that_does_not_exist_is_told_with_those_that_do() {
    let error = config(r#"{"require": ["selinux"]}"#).unwrap_err();
    assert!(error.starts_with(r#"there is no isolation layer "selinux"; there are: uid, user namespace,"#), "{error}");
    assert!(LayerName::try_from("landlock".to_owned()).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_a_plugin_share_what_cpu_it_may_use() {
    const PERCENT: u32 = 20;
    const AT_ONCE: u64 = 4;
    let sandbox = Arc::new(start(IsolationConfig { cpu_percent: Some(PERCENT), ..IsolationConfig::default() }).await);
    if !sandbox.layers().await.iter().any(|layer| layer.meets(LayerName::try_from("cpu cgroup".to_owned()).unwrap())) {
        // Said by `doctor`; there is nothing to look at.
        return;
    }
    let code = tool("() => { for (;;); }");
    let all = (0..AT_ONCE).map(|_| {
        let (sandbox, request) = (Arc::clone(&sandbox), request(&code, json!({})));
        async move { sandbox.run(request, Arc::new(TestHost::default())).await }
    });
    let ends = futures::future::join_all(all).await;
    for end in &ends {
        assert_eq!(failure(end).kind, FailureKind::Timeout);
    }
    let (used, wall) = (ends.iter().map(|end| end.cpu_ms).sum::<u64>(), ends.iter().map(|end| end.wall_ms).max());
    // Four that spin for a second on two cores would use two seconds; the kernel counts in periods of a tenth.
    let allowed = wall.unwrap() * u64::from(PERCENT) / 100 + 250;
    assert!(used <= allowed, "{used} ms of cpu, and {allowed} are allowed");
    sandbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_of_one_plugin_wait_at_once_and_all_end() {
    const CALLS: usize = 1_000;
    let sandbox = Arc::new(start(IsolationConfig::default()).await);
    let code = tool("async (i) => await host.settings.get('700') + i.n");
    let all = (0..CALLS).map(|n| {
        let mut request = request(&code, json!({"n": n}));
        request.limits.wall_ms = 30_000 * slowness();
        let sandbox = Arc::clone(&sandbox);
        tokio::spawn(async move { sandbox.run(request, Arc::new(TestHost::default())).await })
    });
    let all: Vec<_> = all.collect();
    for (n, call) in all.into_iter().enumerate() {
        let end = tokio::time::timeout(Duration::from_secs(60 * slowness()), call)
            .await
            .expect("it ends")
            .expect("nothing panics");
        assert_eq!(value(&end), json!(format!("700{n}")));
    }
    assert_eq!(value(&run(&sandbox, "() => 1", json!({})).await), json!(1));
    sandbox.shutdown().await;
}
