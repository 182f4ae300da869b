//! Calls beside many that wait for their host, and the memory that those hold.

use super::memory::{self, Private};
use super::{Timing, run, timed, timing};
use crate::isolation::Sandbox;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use toolfleet_protocol::{FailureKind, Outcome};

/// What calls take alone, and beside those that wait.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Beside {
    pub waiting: usize,
    pub alone: Timing,
    pub beside: Timing,
    /// Of the two, at the 99th percentile.
    pub p99_ratio: f64,
}

pub struct Waited {
    pub idle_template: Private,
    pub waiting_call: Private,
    pub beside: Beside,
}

const WAITING: usize = 1_000;
/// Processes for that many are forked in about a second.
const START_WAIT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const CALL: &str = "tf-call";

pub async fn measure(sandbox: &Arc<Sandbox>, runs: u32) -> Result<Waited, String> {
    sandbox.clear();
    timed(sandbox, 0).await?;
    let idle_template = memory::private_of("tf-template");
    let alone = several(sandbox, runs).await?;
    let (cancel, mut waiting) = (CancellationToken::new(), JoinSet::new());
    for _ in 0..WAITING {
        let (sandbox, cancel) = (Arc::clone(sandbox), cancel.clone());
        // Ended below; a call that doesn't wait is an error there.
        waiting.spawn(async move { run(&sandbox, 0, "wait", cancel).await });
    }
    let end = Instant::now() + START_WAIT;
    while memory::private_of(CALL).processes < WAITING {
        if Instant::now() > end {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let waiting_call = memory::private_of(CALL);
    let beside = several(sandbox, runs).await?;
    cancel.cancel();
    while let Some(ended) = waiting.join_next().await {
        let (end, _) = ended.map_err(|error| error.to_string())??;
        if !matches!(&end.outcome, Outcome::Failed { error } if error.kind == FailureKind::Cancelled) {
            return Err(format!("a call that must wait ended with {:?}", end.outcome));
        }
    }
    let (alone, beside) = (timing(alone), timing(beside));
    let p99_ratio = beside.p99_us / alone.p99_us;
    Ok(Waited { idle_template, waiting_call, beside: Beside { waiting: WAITING, alone, beside, p99_ratio } })
}

/// The release is another than that of the calls that wait: another plugin's calls.
async fn several(sandbox: &Arc<Sandbox>, runs: u32) -> Result<Vec<u64>, String> {
    const RELEASE: u32 = u32::MAX;
    timed(sandbox, RELEASE).await?;
    let mut all = Vec::new();
    for _ in 0..runs {
        all.push(timed(sandbox, RELEASE).await?);
    }
    Ok(all)
}
