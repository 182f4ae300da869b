//! Row A27: what one call leaves or draws, another never sees.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use toolfleet_hostile::support::{TestHost, sandbox, value};
use toolfleet_hostile::{Watch, attack_request, long_wall_ms, turn};

const CALLS: usize = 1_000;
/// In flight at once: as many as a large worker has slots.
const AT_ONCE: usize = 64;

#[tokio::test]
async fn a27_a_thousand_calls_of_one_template_share_no_number_and_no_value() {
    let _turn = turn().await;
    let sandbox = Arc::new(sandbox().await);
    let watch = Watch::warm(&sandbox).await;
    // Everything that a call could leave for the next, and every source of chance.
    let handler = "async () => { const seen = [typeof globalThis.x, Object.prototype.left, Array.left, tools.t.left, Math.left, typeof tools.more, host.left, new Error().left]; \
        globalThis.x = Object.prototype.left = Array.left = tools.t.left = Math.left = 1; tools.more = {}; \
        const bytes = crypto.getRandomValues(new Uint32Array(2)); \
        return { seen, drawn: [Math.random(), crypto.randomUUID(), bytes.join(), Math.random()] } }";
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let (sandbox, slots) = (Arc::clone(&sandbox), Arc::clone(&slots));
        calls.spawn(async move {
            let _slot = slots.acquire().await.expect("nobody closes it");
            value(&sandbox.run(attack_request(handler, long_wall_ms()), Arc::new(TestHost::default())).await)
        });
    }
    let ends: Vec<Value> = calls.join_all().await;
    assert_eq!(ends.len(), CALLS);
    let mut drawn = BTreeSet::new();
    for end in &ends {
        assert_eq!(end["seen"], json!(["undefined", null, null, null, null, "undefined", null, null]));
        drawn.extend(end["drawn"].as_array().unwrap().iter().map(Value::to_string));
    }
    assert_eq!(drawn.len(), CALLS * 4, "some of what was drawn was drawn twice");
    drop(ends);
    watch.settle_all(&sandbox, "A27").await;
    sandbox.shutdown().await;
}
