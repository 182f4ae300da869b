//! The dead letters: messages that expired, were refused, or weren't ours.
//!
//! - A job of ours that expired in the queue ends as `expired`. If a worker had claimed it (another copy runs, or
//!   the worker died and no other took the job in time), the sweep decides, which knows how long a run may take.
//! - A job of ours that died otherwise (a broker's delivery limit, a worker that refused it) won't be delivered
//!   again, so it ends as `lost`, and the letter is kept for the operator.
//! - Everything else is kept as a letter and changes nothing: a message is ours only if it is, byte for byte,
//!   what was recorded for its call.

use crate::app::App;
use crate::clock::now_ms;
use crate::deliveries::{ReadError, Verdict, work_through};
use crate::ending;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use toolfleet_protocol::{CallError, CallId, FailureKind, Job, QueueName};
use toolfleet_queue::{DeadReason, Delivery};
use toolfleet_store::StoreError;
use toolfleet_store::records::{CallRecord, CallState, DeadLetter};

/// Letters under way at once.
const LETTERS_AT_ONCE: u16 = 32;

/// Reads the dead letters until `stop`.
pub(crate) async fn run(app: Arc<App>, stop: CancellationToken) -> Result<(), ReadError> {
    let queue = Arc::clone(&app.queue);
    let live = &app.health.dead_live;
    work_through(queue, QueueName::Dead, LETTERS_AT_ONCE, live, stop, |delivery| take(Arc::clone(&app), delivery)).await
}

async fn take(app: Arc<App>, delivery: Delivery) -> (Delivery, Verdict) {
    let verdict = match bury(&app, &delivery).await {
        Ok(()) => Verdict::Done,
        Err(error) => {
            tracing::warn!(message_id = delivery.message_id.as_deref(), error = %error, "a dead letter could not be handled yet");
            Verdict::Again
        }
    };
    (delivery, verdict)
}

async fn bury(app: &App, delivery: &Delivery) -> Result<(), StoreError> {
    let from_jobs = delivery.died.as_ref().is_none_or(|died| died.queue.starts_with("toolfleet.jobs."));
    if !from_jobs {
        return keep(app, delivery, None, "no reader of its queue could make sense of it").await;
    }
    let job = match Job::decode(&delivery.body) {
        Ok(job) => job,
        Err(error) => return keep(app, delivery, None, &error.to_string()).await,
    };
    let call = job.call_id.clone();
    let Some(record) = app.records.call(&call).await? else {
        return keep(app, delivery, Some(call), "no call of this id was submitted here, or its record has ended").await;
    };
    if record.job.encode() != delivery.body {
        return keep(app, delivery, Some(call), "a call of this id was submitted with other content").await;
    }
    let expired = delivery.died.as_ref().is_some_and(|died| died.reason == DeadReason::Expired);
    if !expired {
        keep(app, delivery, Some(call), "a job that was submitted here was not accepted by a worker").await?;
    }
    finish(app, &record, expired).await
}

async fn finish(app: &App, record: &CallRecord, expired: bool) -> Result<(), StoreError> {
    let job = &record.job;
    let (attempt, error) = match (&record.state, expired) {
        (CallState::Finished, _) => return Ok(()),
        (CallState::Queued, true) => (0, expired_in_queue(job)),
        (CallState::Running { .. }, true) => return Ok(()),
        (CallState::Queued, false) => (0, refused()),
        (CallState::Running { attempt, .. }, false) => (*attempt, refused()),
    };
    ending::end(app, job, attempt, error).await.map(drop)
}

/// No worker took the call up in time.
pub(crate) fn expired_in_queue(job: &Job) -> CallError {
    let waited_ms = job.deadline_at_ms.saturating_sub(job.submitted_at_ms);
    let message = format!(
        "no worker took the call up within its {waited_ms} ms: start more workers, or give it a later deadline (deadlineMs)"
    );
    CallError::new(FailureKind::Expired, message)
}

fn refused() -> CallError {
    let message = "the job was taken off its queue without being run, by the broker's delivery limit or by a worker \
                   that refused it: the dead letters (/v1/ops/dead) have it";
    CallError::new(FailureKind::Lost, message)
}

async fn keep(app: &App, delivery: &Delivery, call: Option<CallId>, why: &str) -> Result<(), StoreError> {
    let (queue, reason) = match &delivery.died {
        Some(died) => {
            let reason = match died.reason {
                DeadReason::Expired => "expired",
                DeadReason::Rejected => "rejected",
                DeadReason::Other => "other",
            };
            (died.queue.clone(), reason)
        }
        None => (delivery.from.to_string(), "direct"),
    };
    let letter = DeadLetter {
        at_ms: now_ms(),
        queue,
        reason: reason.to_owned(),
        message_id: delivery.message_id.clone(),
        call_id: call,
        why: why.to_owned(),
        body: DeadLetter::body_shown(&delivery.body),
        headers: delivery.headers.clone(),
    };
    tracing::warn!(
        queue = letter.queue,
        reason,
        why,
        message_id = delivery.message_id.as_deref(),
        "a message is among the dead letters"
    );
    app.metrics.dead_letters.inc();
    app.records.put_dead(&letter).await
}
