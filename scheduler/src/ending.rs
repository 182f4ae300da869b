//! Results that the scheduler itself gives: for calls that never reached a worker, or that none will finish.

use crate::app::App;
use crate::clock::now_ms;
use crate::resolve::no_release;
use crate::results;
use std::sync::Arc;
use toolfleet_protocol::{CallError, CallResult, Job, Metering, Usage, WIRE_VERSION, Work};
use toolfleet_store::StoreError;
use toolfleet_store::records::{Recorded, Recorder};

/// What came of trying to end a call.
#[derive(Debug)]
pub(crate) enum Ended {
    /// With the result asked for.
    Now(Arc<CallResult>),
    /// It had ended before, with this result.
    Before(Arc<CallResult>),
    /// There is no such call (any more).
    Unknown,
}

impl Ended {
    pub(crate) fn result(self) -> Option<Arc<CallResult>> {
        match self {
            Ended::Now(result) | Ended::Before(result) => Some(result),
            Ended::Unknown => None,
        }
    }
}

/// Ends a call with a failure, unless it has ended already. Safe to do again after it broke off half way.
pub(crate) async fn end(app: &App, job: &Job, attempt: u32, error: CallError) -> Result<Ended, StoreError> {
    let now = now_ms();
    let usage = Usage { queue_ms: now.saturating_sub(job.submitted_at_ms), attempt, ..Usage::default() };
    let result = CallResult::failed(job.call_id.clone(), error, usage);
    match app.records.record_result(&job.call_id, Recorder::Scheduler, &result, now).await? {
        Recorded::First => {
            let result = Arc::new(result);
            results::reply(app, &job.reply_to, &result).await;
            settle(app, job, &result, now).await?;
            Ok(Ended::Now(result))
        }
        Recorded::Late(Some(stands)) => {
            settle(app, job, &stands, now).await?;
            Ok(Ended::Before(Arc::new(stands)))
        }
        Recorded::Late(None) | Recorded::Unknown => Ok(Ended::Unknown),
    }
}

/// Counts a finished call (once, whoever else counts it too) and takes it off the list of open ones.
pub(crate) async fn settle(app: &App, job: &Job, result: &CallResult, finished_at_ms: u64) -> Result<(), StoreError> {
    if let Work::Call { agent, plugin, release, tool, .. } = &job.work {
        let there_is = *release != no_release();
        let metering = Metering {
            v: WIRE_VERSION,
            call_id: job.call_id.clone(),
            account: job.account.clone(),
            agent: Some(agent.clone()),
            plugin: there_is.then(|| plugin.clone()),
            tool: there_is.then(|| tool.clone()),
            failure: result.failure(),
            usage: result.usage,
            worker: None,
            finished_at_ms,
        };
        app.records.count(&metering).await?;
    }
    app.records.close_call(&job.call_id).await
}
