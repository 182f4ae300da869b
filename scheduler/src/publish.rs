//! From a plugin's files to a published release. The plugin's code runs only where calls do: on a worker, through
//! the jobs queue.

use crate::app::App;
use crate::clock::now_ms;
use crate::dispatch::{Submission, SubmitError, Submitted, submit};
use crate::results::TooManyWait;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use toolfleet_plugin::{Checked, Draft, Problems, Source};
use toolfleet_protocol::{
    AccountId, CallError, CallId, CallResult, Class, Inspection, Job, Outcome, WIRE_VERSION, Work,
};
use toolfleet_store::StoreError;
use toolfleet_store::records::{PublishConflict, PublishError, Published};

/// A worker must have begun to look at the plugin within this.
const INSPECTION_DEADLINE: Duration = Duration::from_secs(45);
/// And the publisher waits this long for what it saw: a load has a time limit of its own.
const INSPECTION_WAIT: Duration = Duration::from_secs(90);
/// The code is kept for the worker a while longer than anybody waits.
const DRAFT_KEPT: Duration = Duration::from_secs(10 * 60);
/// Whose the inspections are; they aren't billed.
const PLATFORM: &str = "platform";

/// Why a plugin wasn't published.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotPublished {
    #[error("the plugin has problems")]
    Problems(Problems),
    #[error(transparent)]
    Conflict(PublishConflict),
    #[error("the plugin could not be submitted to a worker: {0}")]
    Submit(#[from] SubmitError),
    #[error("no worker looked at the plugin: {}", .0.message)]
    NotInspected(CallError),
    #[error("no worker finished looking at the plugin within {INSPECTION_WAIT:?}: are workers running?")]
    NoAnswer,
    #[error("a worker's answer is no inspection: {0}")]
    NoInspection(serde_json::Error),
    #[error("too many requests wait for results already")]
    Busy,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What came of publishing.
#[derive(Debug)]
pub(crate) struct PublishedRelease {
    pub(crate) checked: Checked,
    pub(crate) published: Published,
}

/// Reads, evaluates, checks and publishes a plugin.
pub(crate) async fn publish(
    app: &App,
    files: std::collections::BTreeMap<String, Vec<u8>>,
) -> Result<PublishedRelease, NotPublished> {
    // Transpiling is work for the processor: it must not hold up other requests.
    let built = tokio::task::spawn_blocking(move || toolfleet_plugin::build(&Source::from_files(files)?)).await;
    let draft = match built {
        Ok(built) => built.map_err(NotPublished::Problems)?,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    let inspection = inspect(app, &draft).await?;
    let checked = toolfleet_plugin::finish(draft, inspection).map_err(NotPublished::Problems)?;
    let published = app.records.put_release(&checked.release, now_ms()).await.map_err(|error| match error {
        PublishError::Conflict(conflict) => NotPublished::Conflict(conflict),
        PublishError::Store(error) => NotPublished::Store(error),
    })?;
    Ok(PublishedRelease { checked, published })
}

async fn inspect(app: &App, draft: &Draft) -> Result<Inspection, NotPublished> {
    app.records.put_draft(&draft.digest, &draft.bundle, DRAFT_KEPT).await?;
    let now = now_ms();
    let job = Job {
        v: WIRE_VERSION,
        call_id: CallId::generate(),
        account: AccountId::parse(PLATFORM).expect("a plain id"),
        work: Work::Inspect { draft: draft.digest.clone() },
        class: Class::Interactive,
        submitted_at_ms: now,
        deadline_at_ms: now + INSPECTION_DEADLINE.as_millis() as u64,
        reply_to: app.config.id.clone(),
    };
    let waiter = app.waiters.register(&job.call_id).map_err(|TooManyWait| NotPublished::Busy)?;
    let submission = Submission { job, request_digest: [0; 32], verdict: None, named: false, traceparent: None };
    let result: Arc<CallResult> = match submit(app, submission).await? {
        Submitted::Ended(result) => result,
        Submitted::Accepted => {
            waiter.result(app, Instant::now() + INSPECTION_WAIT).await?.ok_or(NotPublished::NoAnswer)?
        }
    };
    match &result.outcome {
        Outcome::Ok { value } => serde_json::from_str(value.get()).map_err(NotPublished::NoInspection),
        Outcome::Failed { error } => Err(NotPublished::NotInspected(error.clone())),
    }
}
