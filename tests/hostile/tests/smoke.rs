//! The suite's own footing: a sandbox, one call, nothing left.

use serde_json::json;
use toolfleet_hostile::Watch;
use toolfleet_hostile::support::{run, sandbox, value};

#[tokio::test]
async fn a_call_leaves_nothing() {
    let sandbox = sandbox().await;
    assert_eq!(value(&run(&sandbox, "() => 1", json!({})).await), json!(1));
    let watch = Watch::start();
    assert_eq!(value(&run(&sandbox, "() => 2", json!({})).await), json!(2));
    watch.settle();
    sandbox.shutdown().await;
}
