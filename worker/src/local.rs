//! One call without a queue, for a plugin's author: the very sandbox, limits and host of a worker.

use crate::call::with_authors_places;
use crate::host::{CallHost, Fetcher};
use crate::isolation::{RunRequest, Sandbox};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use toolfleet_protocol::{
    AccountId, AgentId, CallError, CallId, CallResult, FailureKind, Initiator, Release, SessionId, ToolName, Usage,
};
use toolfleet_store::records::{Records, Sealer};

/// What to call, and as whom.
pub struct LocalCall {
    pub account: AccountId,
    pub agent: AgentId,
    pub session: SessionId,
    pub tool: ToolName,
    pub input: Box<RawValue>,
    pub initiator: Initiator,
}

/// Runs it, and gives its result.
pub async fn run_local(
    sandbox: &Sandbox,
    records: &Records,
    sealer: &Sealer,
    fetcher: &Arc<Fetcher>,
    release: &Arc<Release>,
    call: LocalCall,
) -> CallResult {
    let call_id = CallId::generate();
    if release.tool(&call.tool).is_none() {
        let message = format!("{} {} has no tool {}", release.slug, release.version, call.tool);
        return CallResult::failed(call_id, CallError::new(FailureKind::ToolNotFound, message), Usage::default());
    }
    let host = CallHost {
        records: records.clone(),
        sealer: sealer.clone(),
        fetcher: Arc::clone(fetcher),
        release: Arc::clone(release),
        account: call.account.clone(),
        agent: call.agent,
        session: call.session,
        call: call_id.clone(),
        tool: call.tool.qualified(&release.slug),
        deadline: tokio::time::Instant::now() + Duration::from_millis(release.limits.wall_ms),
    };
    let request = RunRequest {
        account: call.account,
        release: release.digest.clone(),
        bundle: Arc::clone(&release.bundle),
        limits: release.limits,
        call_id: call_id.clone(),
        tool: call.tool,
        input: call.input,
        initiator: call.initiator,
        cancel: CancellationToken::new(),
    };
    let mut end = sandbox.run(request, Arc::new(host)).await;
    with_authors_places(&mut end.outcome, release);
    let usage = Usage {
        wall_ms: end.wall_ms,
        queue_ms: 0,
        cpu_ms: end.cpu_ms,
        peak_memory_bytes: end.peak_memory_bytes,
        host_calls: end.host_calls,
        attempt: 1,
    };
    CallResult { call_id, outcome: end.outcome, usage }
}
