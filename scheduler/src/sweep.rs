//! The sweep: every accepted call ends, whatever was lost on the way.
//!
//! It takes no input but the records: calls whose deadline is past and that nobody closed. It can run at any time,
//! as often as one likes, in any number of schedulers.

use crate::app::App;
use crate::clock::now_ms;
use crate::dead::expired_in_queue;
use crate::ending;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use toolfleet_protocol::{CallError, CallId, FailureKind, Job};
use toolfleet_store::StoreError;
use toolfleet_store::records::CallState;

/// After its deadline a call is left alone for so long: the queue's own expiry and the reply are usually there first.
pub(crate) const OVERDUE_AFTER_MS: u64 = 10_000;

/// No release may run longer than this (building plugins: 120 s), with time to start and to record.
const RUN_MS_MAX: u64 = 150_000;

/// A worker that can't be reached is noticed by the broker, and its job given to another, within this.
const TAKEN_OVER_WITHIN_MS: u64 = 300_000;

/// Calls looked at in one go; more wait for the next, which then comes at once.
const SWEEP_CALLS_MAX: u32 = 500;

/// Goes on until `stop`.
pub(crate) async fn run(app: Arc<App>, stop: CancellationToken) {
    let pause = Duration::from_millis(app.config.sweep_interval_ms);
    loop {
        let more = match sweep(&app).await {
            Ok(seen) => seen >= SWEEP_CALLS_MAX,
            Err(error) => {
                tracing::warn!(error = %error, "overdue calls could not be swept; it is tried again");
                false
            }
        };
        if more && !stop.is_cancelled() {
            continue;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Brings what is overdue to an end. How many calls were looked after, at most [`SWEEP_CALLS_MAX`].
async fn sweep(app: &App) -> Result<u32, StoreError> {
    let mut done = 0;
    for call in app.records.overdue_calls(now_ms(), SWEEP_CALLS_MAX).await? {
        match look_after(app, &call).await {
            Ok(()) => done += 1,
            // One record that can't be read keeps no other from its end.
            Err(error) => tracing::warn!(call = %call, error = %error, "an overdue call could not be looked after yet"),
        }
    }
    Ok(done)
}

async fn look_after(app: &App, call: &CallId) -> Result<(), StoreError> {
    let Some(record) = app.records.call(call).await? else {
        // Its maker went away before the record was there, or the record has served its time.
        return app.records.close_call(call).await;
    };
    let job = &record.job;
    let now = now_ms();
    match (&record.result, record.state) {
        (Some(result), _) => ending::settle(app, job, result, record.finished_at_ms.unwrap_or(now)).await,
        (None, CallState::Running { attempt, claimed_at_ms, .. }) => {
            let last = last_sign_of_life(job, claimed_at_ms);
            if now < last {
                return app.records.postpone_call(call, last).await;
            }
            ending::end(app, job, attempt, vanished(attempt)).await.map(drop)
        }
        (None, _) => ending::end(app, job, 0, expired_in_queue(job)).await.map(drop),
    }
}

/// Until then a result may still come: from the worker that claimed the call, or from another that the broker gave
/// it to, which can begin only before the deadline.
fn last_sign_of_life(job: &Job, claimed_at_ms: u64) -> u64 {
    claimed_at_ms.max(job.deadline_at_ms) + RUN_MS_MAX + TAKEN_OVER_WITHIN_MS
}

fn vanished(attempt: u32) -> CallError {
    let message = format!(
        "the worker of its attempt {attempt} never gave a result, and no other took the call over before its deadline: \
         see whether workers die or lose their connection"
    );
    CallError::new(FailureKind::Lost, message)
}
