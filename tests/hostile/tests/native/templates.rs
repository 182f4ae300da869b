//! A template that was taken over while it loaded its plugin: it harms its own account's calls of that release.

use crate::{Broken, TestHost, request, told, tool, value};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toolfleet_hostile::processes_below;
use toolfleet_hostile::support::slowness;

#[tokio::test]
async fn only_its_own_calls_end_and_it_is_noticed() {
    let broken = Broken::without(&[]).await;
    for (takeover, expected) in [
        ("never answers", "Crashed: "),
        ("keeps descriptors", "Timeout: "),
        ("lies about other calls", "Crashed: "),
        ("speaks nonsense", "Crashed: "),
        (
            "makes a forbidden call",
            "LoadFailed: the plugin's process tried a system call that no plugin may make, socket,",
        ),
        ("answers with 4 GB", "LoadFailed: "),
    ] {
        let code = format!("{}\n// takeover: {takeover}\n", tool("() => 1"));
        let taken = broken.sandbox.run(request(&code, json!({})), Arc::new(TestHost::default()));
        let beside =
            broken.sandbox.run(request(&tool("(x) => x.n + 1"), json!({ "n": 1 })), Arc::new(TestHost::default()));
        let started = Instant::now();
        let (taken, beside) = tokio::join!(taken, beside);
        let told = told(&taken);
        assert!(told.starts_with(expected), "{takeover}: {told}");
        assert!(started.elapsed() < Duration::from_secs(8 * slowness()), "{takeover} took {:?}", started.elapsed());
        assert_eq!(value(&beside), json!(2), "beside {takeover}");
        broken.is_well().await;
    }
    // Each of them was ended: what is left is the one that is well.
    let end = Instant::now() + Duration::from_secs(5);
    while processes_below("tf-template").len() > 1 {
        assert!(Instant::now() < end, "{:?} are left", processes_below("tf-template"));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    broken.end().await;
}
