//! A call that speaks to the worker as no call does.

use crate::{Broken, TestHost, request, told, tool, value};
use async_trait::async_trait;
use serde_json::json;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toolfleet_hostile::Watch;
use toolfleet_protocol::host::{HostError, HostMethod};
use toolfleet_worker::isolation::{Host, LogLevel};

#[tokio::test]
async fn only_its_own_call_ends() {
    let broken = Broken::without(&[]).await;
    broken.is_well().await;
    let watch = Watch::start();
    for (attack, argument, expected) in [
        ("garbage", "", "Crashed: the call's process sent "),
        ("long frame", "", "Crashed: the call's process sent a frame of 4294967294 bytes"),
        ("half a frame", "", "Timeout: "),
        ("tiny frames", "", "Crashed: the call's process sent more log lines"),
        ("forged ordinal", "", "Crashed: the call's process sent host call 7 where 0 comes next"),
        // The first one stands.
        ("two results", "", "1"),
        ("result after silence", "1300", "Timeout: "),
        // What comes along is closed on its way, and what follows it may not be waited for.
        ("pass descriptors", "", ""),
        ("answer itself", "", "Crashed: the call's process sent a frame of kind HostReply"),
        ("host calls", "", "Crashed: the call's process sent more host calls"),
        ("claim", "lost", "Crashed: "),
        ("claim", "expired", "Crashed: "),
        ("claim", "thrown", "Thrown: so it says"),
    ] {
        // A call of the same template beside it takes no harm.
        let beside =
            broken.sandbox.run(request(&tool("(x) => x.n + 1"), json!({ "n": 1 })), Arc::new(TestHost::default()));
        let (attacked, beside) = tokio::join!(broken.attack(attack, argument), beside);
        let told = told(&attacked);
        assert!(told.starts_with(expected), "{attack} {argument}: {told}");
        assert_eq!(value(&beside), json!(2), "beside {attack}");
        broken.is_well().await;
    }
    watch.settle();
    broken.end().await;
}

/// Answers everything with a megabyte.
struct LargeAnswers;

#[async_trait]
impl Host for LargeAnswers {
    async fn call(&self, _: u32, _: HostMethod, _: Box<RawValue>) -> Result<Box<RawValue>, HostError> {
        Ok(serde_json::value::to_raw_value(&"x".repeat(1 << 20)).expect("a text is JSON"))
    }

    fn log(&self, _: LogLevel, _: &str, _: Option<Box<RawValue>>) {}
}

#[tokio::test]
async fn a_call_that_never_reads_blocks_nobody() {
    let broken = Broken::without(&[]).await;
    broken.is_well().await;
    let watch = Watch::start();
    let method = (HostMethod::SettingsGet as u16).to_string();
    let input = json!({ "attack": "never read", "argument": method });
    let deaf = broken.sandbox.run(request(&tool("(x) => x.n + 1"), input), Arc::new(LargeAnswers));
    let started = Instant::now();
    let others = async {
        for _ in 0..20 {
            broken.is_well().await;
        }
        started.elapsed()
    };
    let (deaf, others) = tokio::join!(deaf, others);
    let told = told(&deaf);
    assert!(told.starts_with("Timeout: "), "{told}");
    assert!(others < Duration::from_secs(5), "20 calls beside it took {others:?}");
    watch.settle();
    broken.end().await;
}
