//! One delivery, from its claim to its ack.

use crate::clock::now_ms;
use crate::host::{CallHost, Fetcher};
use crate::isolation::{RunEnd, RunRequest, Sandbox};
use crate::outbox::publish_end;
use crate::releases::Releases;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use toolfleet_plugin::map_stack;
use toolfleet_protocol::{
    CallError, CallId, CallResult, FailureKind, HEADER_TRACEPARENT, Job, Outcome, Release, Usage, Work, WorkerId,
};
use toolfleet_queue::{Delivery, Queue};
use toolfleet_store::StoreError;
use toolfleet_store::records::{Claim, Recorded, Recorder, Records, Sealer};
use tracing::Instrument;

/// What all calls of a worker share.
pub struct Worker {
    pub id: WorkerId,
    pub deliveries_max: u32,
    pub queue: Arc<dyn Queue>,
    pub records: Records,
    pub releases: Releases,
    pub sealer: Sealer,
    pub fetcher: Arc<Fetcher>,
    pub sandbox: Arc<Sandbox>,
    /// Running calls, to be cancelled. No more than there are slots.
    pub running: Mutex<HashMap<CallId, CancellationToken>>,
}

/// A call that was begun before waits a little: what ended its worker may still be going on.
const RETRY_WAIT_FIRST: Duration = Duration::from_millis(250);
const RETRY_WAIT_MAX: Duration = Duration::from_secs(5);

/// Takes one delivery to its end. What can't be ended here is given back, and comes again.
pub async fn take(worker: &Arc<Worker>, delivery: Delivery) {
    let job = match Job::decode(&delivery.body) {
        Ok(job) => job,
        Err(error) => {
            tracing::warn!(queue = %delivery.from, %error, "a message that is no job goes to the dead letters");
            return refuse(delivery).await;
        }
    };
    let span =
        tracing::info_span!("execute_tool", call = %job.call_id, account = %job.account, what = tracing::field::Empty);
    if let Work::Call { plugin, tool, .. } = &job.work {
        span.record("what", tool.qualified(plugin));
    }
    work(worker, delivery, job).instrument(span).await;
}

async fn work(worker: &Arc<Worker>, delivery: Delivery, job: Job) {
    let claim = worker
        .records
        .claim(&job.call_id, &delivery.body, &worker.id, worker.deliveries_max, now_ms())
        .instrument(tracing::info_span!("claim"))
        .await;
    let (attempt, outcome) = match claim {
        Ok(Claim::Run { attempt }) => (attempt, None),
        Ok(Claim::Known(result)) => return end(worker, delivery, &job, result).await,
        Ok(Claim::Exhausted { attempt }) => (attempt, Some(lost(worker.deliveries_max))),
        Ok(Claim::Foreign) => {
            tracing::warn!("a job that nobody submitted, or not so, goes to the dead letters");
            return refuse(delivery).await;
        }
        Err(error) => {
            tracing::warn!(%error, "a call can't be claimed, and is given back");
            return give_back(delivery).await;
        }
    };
    let begun_at_ms = now_ms();
    let run = match outcome {
        Some(error) => Ok(ended_early(error)),
        None if begun_at_ms > job.deadline_at_ms => Ok(ended_early(expired(&job, begun_at_ms))),
        None => {
            if attempt > 1 {
                tracing::info!(attempt, "a call is begun again");
                tokio::time::sleep(retry_wait(attempt)).await;
            }
            run(worker, &job).instrument(tracing::info_span!("run")).await
        }
    };
    let run = match run {
        Ok(run) => run,
        Err(error) => {
            tracing::warn!(%error, "a call can't be run now, and is given back");
            return give_back(delivery).await;
        }
    };
    let usage = Usage {
        wall_ms: run.wall_ms,
        queue_ms: begun_at_ms.saturating_sub(job.submitted_at_ms),
        cpu_ms: run.cpu_ms,
        peak_memory_bytes: run.peak_memory_bytes,
        host_calls: run.host_calls,
        attempt: attempt.min(worker.deliveries_max),
    };
    let result = CallResult { call_id: job.call_id.clone(), outcome: run.outcome, usage };
    // The result is recorded before anybody hears of it: whoever comes later finds it.
    let recorded = worker
        .records
        .record_result(&job.call_id, Recorder::Attempt(attempt), &result, now_ms())
        .instrument(tracing::info_span!("record"))
        .await;
    match recorded {
        Ok(Recorded::First) => end(worker, delivery, &job, result).await,
        Ok(Recorded::Late(Some(standing))) => end(worker, delivery, &job, standing).await,
        // A newer attempt is under way, or the call is long over: this delivery is done with.
        Ok(Recorded::Late(None) | Recorded::Unknown) => acknowledge(delivery).await,
        Err(error) => {
            tracing::warn!(%error, "a result can't be recorded; the call comes again");
            give_back(delivery).await;
        }
    }
}

/// Publishes what stands and settles the delivery; the ack comes last.
async fn end(worker: &Worker, delivery: Delivery, job: &Job, result: CallResult) {
    match &result.outcome {
        Outcome::Ok { .. } => tracing::debug!(wall_ms = result.usage.wall_ms, "a call ended well"),
        Outcome::Failed { error } => tracing::info!(kind = error.kind.id(), message = error.message, "a call failed"),
    }
    let mut headers = BTreeMap::new();
    if let Some(traceparent) = delivery.headers.get(HEADER_TRACEPARENT) {
        headers.insert(HEADER_TRACEPARENT.to_owned(), traceparent.clone());
    }
    let published = publish_end(&worker.queue, job, &worker.id, &result, &headers, now_ms())
        .instrument(tracing::info_span!("publish"))
        .await;
    match published {
        Ok(()) => acknowledge(delivery).await,
        Err(error) => {
            tracing::warn!(%error, "a call's end can't be told; its delivery is given back");
            give_back(delivery).await;
        }
    }
}

/// Runs the job's work.
///
/// # Errors
/// Where the store doesn't answer. What goes wrong in the call itself is its outcome.
async fn run(worker: &Arc<Worker>, job: &Job) -> Result<RunEnd, StoreError> {
    match &job.work {
        Work::Inspect { draft } => {
            let Some(bundle) = worker.records.draft(draft).await? else {
                return Ok(ended_early(CallError::new(FailureKind::Expired, "the draft is gone: publish again")));
            };
            let inspection = worker.sandbox.inspect(&bundle).await;
            let value = serde_json::value::to_raw_value(&inspection).unwrap_or_else(|_| RawValue::NULL.to_owned());
            Ok(RunEnd { outcome: Outcome::Ok { value }, ..nothing_used() })
        }
        Work::Call { .. } => run_call(worker, job).await,
    }
}

async fn run_call(worker: &Arc<Worker>, job: &Job) -> Result<RunEnd, StoreError> {
    let Work::Call { agent, session, plugin, release: digest, tool, input, initiator, .. } = &job.work else {
        return Ok(nothing_used());
    };
    let release = match permitted(worker, job).await? {
        Ok(release) => release,
        Err(error) => return Ok(ended_early(error)),
    };
    let limits = release.limits;
    if input.get().len() as u64 > limits.input_bytes_max {
        let message =
            format!("the input has {} bytes of JSON, more than {}", input.get().len(), limits.input_bytes_max);
        return Ok(ended_early(CallError::new(FailureKind::TooLarge, message)));
    }
    let cancel = CancellationToken::new();
    let host = CallHost {
        records: worker.records.clone(),
        sealer: worker.sealer.clone(),
        fetcher: Arc::clone(&worker.fetcher),
        release: Arc::clone(&release),
        account: job.account.clone(),
        agent: agent.clone(),
        session: session.clone(),
        call: job.call_id.clone(),
        tool: tool.qualified(plugin),
        deadline: tokio::time::Instant::now() + Duration::from_millis(limits.wall_ms),
    };
    let request = RunRequest {
        account: job.account.clone(),
        release: digest.clone(),
        bundle: Arc::clone(&release.bundle),
        limits,
        call_id: job.call_id.clone(),
        tool: tool.clone(),
        input: input.clone(),
        initiator: *initiator,
        cancel: cancel.clone(),
    };
    let _listed = Listed::new(worker, &job.call_id, cancel);
    let mut end = worker.sandbox.run(request, Arc::new(host)).await;
    with_authors_places(&mut end.outcome, &release);
    Ok(end)
}

/// The release, if this account's agent may call this tool of it.
async fn permitted(worker: &Worker, job: &Job) -> Result<Result<Arc<Release>, CallError>, StoreError> {
    let Work::Call { agent, plugin, release, tool, .. } = &job.work else {
        return Ok(Err(CallError::new(FailureKind::ToolNotFound, "there is no tool in this job")));
    };
    let qualified = tool.qualified(plugin);
    let (found, installed, known) = tokio::try_join!(
        worker.releases.get(release),
        worker.records.installation(&job.account, plugin),
        worker.records.agent(agent),
    )?;
    let refused = |kind, message: String| Ok(Err(CallError::new(kind, message)));
    let Some(found) = found.filter(|found| found.slug == *plugin) else {
        return refused(FailureKind::ToolNotFound, format!("there is no such release of {plugin}"));
    };
    // Any release of an installed plugin: a call in flight finishes on the one that it was submitted with.
    if installed.is_none() {
        return refused(FailureKind::ToolNotFound, format!("{plugin} is not installed for this account: install it"));
    }
    if found.tool(tool).is_none() {
        return refused(FailureKind::ToolNotFound, format!("{plugin} {} has no tool {tool}", found.version));
    }
    match known {
        Some(known) if known.account == job.account && known.access.allows(&qualified) => Ok(Ok(found)),
        Some(known) if known.account == job.account => refused(
            FailureKind::AccessDenied,
            format!("this agent may not call {qualified}: its owner decides that in its access"),
        ),
        _ => refused(FailureKind::AccessDenied, "this account has no such agent".into()),
    }
}

/// Stacks name the author's own files and lines.
pub fn with_authors_places(outcome: &mut Outcome, release: &Release) {
    if let Outcome::Failed { error } = outcome
        && let Some(stack) = &error.stack
    {
        error.stack = Some(map_stack(&release.bundle, stack));
    }
}

/// A running call's place in the worker's list, for as long as it runs.
struct Listed<'a> {
    worker: &'a Worker,
    call: &'a CallId,
}

impl<'a> Listed<'a> {
    fn new(worker: &'a Worker, call: &'a CallId, cancel: CancellationToken) -> Self {
        worker.running.lock().expect("nothing panics while it is held").insert(call.clone(), cancel);
        Self { worker, call }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.worker.running.lock().expect("nothing panics while it is held").remove(self.call);
    }
}

fn lost(deliveries_max: u32) -> CallError {
    CallError::new(
        FailureKind::Lost,
        format!(
            "the call was begun {deliveries_max} times and its worker died each time; see the workers' logs for what \
             ended them"
        ),
    )
}

fn expired(job: &Job, now_ms: u64) -> CallError {
    let waited_s = now_ms.saturating_sub(job.submitted_at_ms) as f64 / 1000.0;
    CallError::new(
        FailureKind::Expired,
        format!("the call waited {waited_s} s and its deadline passed: add workers, or give calls more time"),
    )
}

fn ended_early(error: CallError) -> RunEnd {
    RunEnd { outcome: Outcome::Failed { error }, ..nothing_used() }
}

fn nothing_used() -> RunEnd {
    let error = CallError::new(FailureKind::Crashed, "nothing was run");
    RunEnd { outcome: Outcome::Failed { error }, wall_ms: 0, cpu_ms: 0, peak_memory_bytes: 0, host_calls: 0 }
}

fn retry_wait(attempt: u32) -> Duration {
    let wait = RETRY_WAIT_FIRST.saturating_mul(1 << attempt.saturating_sub(2).min(8)).min(RETRY_WAIT_MAX);
    wait.mul_f64(rand::random_range(0.5..1.0))
}

/// A settlement that fails means that the connection is gone, and the delivery comes again by itself.
async fn acknowledge(delivery: Delivery) {
    if let Err(error) = delivery.ack().await {
        tracing::debug!(%error, "not acknowledged");
    }
}

async fn refuse(delivery: Delivery) {
    if let Err(error) = delivery.reject().await {
        tracing::debug!(%error, "not rejected");
    }
}

/// Before it is given back: what stands in the way should not be asked again at once.
const GIVE_BACK_WAIT: Duration = Duration::from_millis(500);

async fn give_back(delivery: Delivery) {
    tokio::time::sleep(GIVE_BACK_WAIT).await;
    if let Err(error) = delivery.requeue().await {
        tracing::debug!(%error, "not given back");
    }
}
