//! Native code in a call's process and in a template: what it tries, and the wall that it finds.

mod calls;
mod ordinary;
mod resources;
mod templates;
mod walls;
mod wire;

use serde_json::json;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};
use toolfleet_hostile::processes_below;
use toolfleet_hostile::support::{TestHost, request, root_binary, start_from, tool, value};
use toolfleet_protocol::Limits;
use toolfleet_worker::isolation::{IsolationConfig, RunEnd, Sandbox};

/// A sandbox whose calls can be taken over, with these layers left out.
struct Broken {
    sandbox: Arc<Sandbox>,
    _name: TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// They look at all processes below this one.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

impl Broken {
    async fn without(layers: &[&str]) -> Self {
        let turn = ONE_AT_A_TIME.lock().await;
        // The sandbox before this one takes a moment to go.
        let end = Instant::now() + Duration::from_secs(5);
        while !processes_below("tf-call").is_empty() {
            assert!(Instant::now() < end, "an earlier call is still there");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let name = TempDir::new().expect("a folder");
        // The root reads from its own name what it is to leave out.
        let link = name.path().join(format!("without-{}", layers.join(",").replace(' ', "_")));
        symlink(root_binary("hostile-root"), &link).expect("a link");
        let config = IsolationConfig::default();
        Self { sandbox: Arc::new(start_from(&link.to_string_lossy(), config).await), _name: name, _turn: turn }
    }

    async fn attack(&self, name: &str, argument: &str) -> RunEnd {
        self.attack_within(name, argument, Limits { wall_ms: 1_000, ..Limits::BASE }).await
    }

    async fn attack_within(&self, name: &str, argument: &str, limits: Limits) -> RunEnd {
        let mut request = request(&tool("(x) => x.n + 1"), json!({ "attack": name, "argument": argument }));
        request.limits = limits;
        self.sandbox.run(request, Arc::new(TestHost::default())).await
    }

    /// What the attack found out, or how it was ended.
    async fn found(&self, name: &str, argument: &str) -> String {
        told(&self.attack(name, argument).await)
    }

    async fn end(self) {
        self.sandbox.shutdown().await;
    }

    /// The next call of the same template is right.
    async fn is_well(&self) {
        let next = request(&tool("(x) => x.n + 1"), json!({ "n": 41 }));
        let end = self.sandbox.run(next, Arc::new(TestHost::default())).await;
        assert_eq!(value(&end), json!(42));
    }
}

/// A result's text, or a failure's kind and message.
fn told(end: &RunEnd) -> String {
    use toolfleet_protocol::Outcome;
    match &end.outcome {
        Outcome::Ok { value } => serde_json::from_str(value.get()).unwrap_or_else(|_| value.get().to_owned()),
        Outcome::Failed { error } => format!("{:?}: {}", error.kind, error.message),
    }
}
