//! From a checked request to a job that is safe on its queue.
//!
//! The record comes first, then the publish, and only a confirmed publish is answered as accepted. When a publish
//! fails, the record decides what happens:
//! - a call that its submitter can name again (by idempotency key or call id) stays recorded. Asked again, the same
//!   job is published again; not asked again, it ends as `expired`.
//! - one that nobody can name is withdrawn: it is recorded as `cancelled`, so that it can't run even if the queue
//!   has taken it after all.

use crate::app::App;
use crate::clock::now_ms;
use crate::ending;
use crate::sweep::OVERDUE_AFTER_MS;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use toolfleet_protocol::{
    AccountId, CallError, CallId, CallResult, FailureKind, HEADER_TRACEPARENT, Job, QueueName, Usage,
};
use toolfleet_queue::{Outgoing, PublishError};
use toolfleet_store::StoreError;
use toolfleet_store::records::{CallState, Created, NewCall, Recorded, Recorder};

/// A call to be submitted.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) job: Job,
    /// Of what the client asked, to tell a retry from another request under the same name.
    pub(crate) request_digest: [u8; 32],
    /// It ends at once, with this: nothing is published.
    pub(crate) verdict: Option<CallError>,
    /// Its submitter can ask for it again under the same name.
    pub(crate) named: bool,
    pub(crate) traceparent: Option<String>,
}

/// What became of a submission.
#[derive(Debug)]
pub(crate) enum Submitted {
    /// It will end in a result.
    Accepted,
    /// It has.
    Ended(Arc<CallResult>),
}

/// Why a submission wasn't accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SubmitError {
    #[error("the name {call} belongs to another request")]
    Taken { call: CallId },
    #[error("call {call} was not accepted ({source}); {fate}")]
    Publish { call: CallId, fate: Fate, source: PublishError },
    #[error("call {call}: the record could not be written")]
    Store { call: CallId, source: StoreError },
}

/// What may still happen to a call that wasn't accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing, unless it is asked for again.
    NotRun,
    /// It may be in the queue, and run.
    MayRun,
}

impl std::fmt::Display for Fate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Fate::NotRun => "it will not run unless it is submitted again",
            Fate::MayRun => {
                "it may still run: submit it again under the same name, or look it up, to learn what became of it"
            }
        })
    }
}

/// Records and publishes one call.
pub(crate) async fn submit(app: &App, submission: Submission) -> Result<Submitted, SubmitError> {
    let call = submission.job.call_id.clone();
    let store = |source| SubmitError::Store { call: call.clone(), source };
    let body = submission.job.encode();
    let new = NewCall {
        job: &submission.job,
        body: &body,
        request_digest: submission.request_digest,
        overdue_at_ms: submission.job.deadline_at_ms + OVERDUE_AFTER_MS,
        retention: app.config.call_retention(),
    };
    let created = app.records.create_call(new).await.map_err(store)?;
    let (job, body) = match created {
        Created::New => (submission.job, body),
        Created::Exists { same_request: false } => return Err(SubmitError::Taken { call }),
        Created::Exists { same_request: true } => match app.records.call(&call).await.map_err(store)? {
            // It ended so long ago that its record went in this moment.
            None => return Ok(Submitted::Accepted),
            Some(record) => match (record.result, record.state) {
                (Some(result), _) => return Ok(Submitted::Ended(Arc::new(result))),
                (None, CallState::Queued) if !app.confirmed.has(&call) => {
                    let body = record.job.encode();
                    (record.job, body)
                }
                (None, _) => return Ok(Submitted::Accepted),
            },
        },
    };
    if let Some(error) = submission.verdict {
        return match ending::end(app, &job, 0, error).await.map_err(store)?.result() {
            Some(result) => Ok(Submitted::Ended(result)),
            None => Ok(Submitted::Accepted),
        };
    }
    match publish(app, &job, body.into(), submission.traceparent).await {
        Ok(()) => {
            app.confirmed.add(&call);
            Ok(Submitted::Accepted)
        }
        Err(source) => given_up(app, &job, submission.named, source).await,
    }
}

/// So often a publish of unknown fate is tried. Readers know a message by its id, so that doing it again is harmless.
const PUBLISH_ATTEMPTS_MAX: u32 = 3;
const PUBLISH_AGAIN_AFTER: Duration = Duration::from_millis(200);

async fn publish(app: &App, job: &Job, body: Bytes, traceparent: Option<String>) -> Result<(), PublishError> {
    let expires_in = Duration::from_millis(job.deadline_at_ms.saturating_sub(now_ms()).max(1));
    let message = Outgoing {
        to: QueueName::Jobs { class: job.class, lane: lane(&job.account, app.config.lanes) },
        message_id: job.call_id.to_string(),
        body,
        headers: traceparent
            .map(|value| (HEADER_TRACEPARENT.to_owned(), value))
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
        expires_in: Some(expires_in),
    };
    // Once its fate is unknown it stays so, whatever later attempts say, until one of them is confirmed.
    let mut uncertain = None;
    for attempt in 1..=PUBLISH_ATTEMPTS_MAX {
        match app.queue.publish(message.clone()).await {
            Ok(()) => return Ok(()),
            Err(error @ PublishError::Uncertain { .. }) => uncertain = Some(error),
            Err(error) if uncertain.is_none() => return Err(error),
            Err(_) => {}
        }
        if attempt < PUBLISH_ATTEMPTS_MAX {
            tokio::time::sleep(PUBLISH_AGAIN_AFTER * attempt).await;
        }
    }
    Err(uncertain.expect("the loop ends without a return only where an attempt was uncertain"))
}

async fn given_up(app: &App, job: &Job, named: bool, source: PublishError) -> Result<Submitted, SubmitError> {
    let call = job.call_id.clone();
    let uncertain = matches!(source, PublishError::Uncertain { .. });
    if named {
        let fate = if uncertain { Fate::MayRun } else { Fate::NotRun };
        return Err(SubmitError::Publish { call, fate, source });
    }
    let fate = match withdraw(app, job, &source).await {
        Ok(Recorded::Late(Some(result))) => return Ok(Submitted::Ended(Arc::new(result))), // The queue had it after all.
        Ok(_) => Fate::NotRun,
        Err(error) => {
            tracing::warn!(call = %call, error = %error, "a call that could not be queued could not be withdrawn either");
            if uncertain { Fate::MayRun } else { Fate::NotRun }
        }
    };
    Err(SubmitError::Publish { call, fate, source })
}

/// Sees to it that a job that may be on its queue doesn't run. It was never accepted, so it isn't counted either.
async fn withdraw(app: &App, job: &Job, source: &PublishError) -> Result<Recorded, StoreError> {
    let error = CallError::new(
        FailureKind::Cancelled,
        format!("the call was withdrawn, since it could not be queued: {source}"),
    );
    let result = CallResult::failed(job.call_id.clone(), error, Usage::default());
    let recorded = app.records.record_result(&job.call_id, Recorder::Scheduler, &result, now_ms()).await?;
    app.records.close_call(&job.call_id).await?;
    Ok(recorded)
}

/// The lane of an account's jobs: always the same one for the same number of lanes.
pub(crate) fn lane(account: &AccountId, lanes: u16) -> u16 {
    let digest = Sha256::digest(account.as_str().as_bytes());
    let number = u64::from_be_bytes(digest[..8].try_into().expect("a SHA-256 has 32 bytes"));
    u16::try_from(number % u64::from(lanes.max(1))).expect("it is less than `lanes`, which is a u16")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_keeps_its_lane_and_accounts_are_spread() {
        let account = |number: u32| AccountId::parse(format!("account-{number}")).unwrap();
        let mut used = [0_u32; 8];
        for number in 0..800 {
            assert_eq!(lane(&account(number), 1), 0);
            used[usize::from(lane(&account(number), 8))] += 1;
        }
        assert!(used.iter().all(|count| (60..140).contains(count)), "{used:?}");
        // Written down, since another hash would move every account after an upgrade.
        assert_eq!(lane(&AccountId::parse("acme").unwrap(), 1_000), LANE_OF_ACME);
    }

    const LANE_OF_ACME: u16 = 872;
}
