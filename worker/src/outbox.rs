//! Publishing what a call leaves behind: its result and its metering event.

use bytes::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use toolfleet_protocol::{CallId, CallResult, Job, Metering, QueueName, Reply, WIRE_VERSION, WorkerId};
use toolfleet_queue::{Outgoing, PublishError, Queue};

/// Tries to publish one message, with longer and longer waits between; about half a minute in all. After that the
/// delivery is given back, and the call's next claim finds its result and publishes it.
const TRIES_MAX: u32 = 8;
const WAIT_FIRST: Duration = Duration::from_millis(100);
/// A reply that nobody takes for so long is of no use; the result is in the store.
const REPLY_EXPIRES_IN: Duration = Duration::from_secs(24 * 60 * 60);

/// Neither result nor event may be known to be on their queues.
#[derive(Debug, thiserror::Error)]
#[error("the {what} could not be published: {error}")]
pub struct NotPublished {
    what: &'static str,
    error: PublishError,
}

/// Publishes both, and waits until both are safe.
pub async fn publish_end(
    queue: &Arc<dyn Queue>,
    job: &Job,
    worker: &WorkerId,
    result: &CallResult,
    headers: &BTreeMap<String, String>,
    now_ms: u64,
) -> Result<(), NotPublished> {
    let reply = Reply { v: WIRE_VERSION, result: result.clone() };
    let reply = Outgoing {
        to: QueueName::Replies(job.reply_to.clone()),
        message_id: result.call_id.to_string(),
        body: body(&reply),
        headers: headers.clone(),
        expires_in: Some(REPLY_EXPIRES_IN),
    };
    let metering = Outgoing {
        to: QueueName::Metering,
        message_id: result.call_id.to_string(),
        body: body(&metering(job, worker, &result.call_id, result, now_ms)),
        headers: headers.clone(),
        expires_in: None,
    };
    let reply = async {
        match publish(queue, "result", reply).await {
            // Its scheduler is gone for good, or has never been: the result is in the store for whoever asks.
            Err(NotPublished { error: PublishError::Unroutable(_), .. }) => Ok(()),
            other => other,
        }
    };
    let (replied, metered) = tokio::join!(reply, publish(queue, "metering event", metering));
    replied.and(metered)
}

fn body(message: &impl Serialize) -> Bytes {
    serde_json::to_vec(message).expect("messages have only string keys and finite numbers").into()
}

fn metering(job: &Job, worker: &WorkerId, call: &CallId, result: &CallResult, now_ms: u64) -> Metering {
    let (agent, plugin, tool) = match &job.work {
        toolfleet_protocol::Work::Call { agent, plugin, tool, .. } => {
            (Some(agent.clone()), Some(plugin.clone()), Some(tool.clone()))
        }
        toolfleet_protocol::Work::Inspect { .. } => (None, None, None),
    };
    Metering {
        v: WIRE_VERSION,
        call_id: call.clone(),
        account: job.account.clone(),
        agent,
        plugin,
        tool,
        failure: result.failure(),
        usage: result.usage,
        worker: Some(worker.clone()),
        finished_at_ms: now_ms,
    }
}

async fn publish(queue: &Arc<dyn Queue>, what: &'static str, message: Outgoing) -> Result<(), NotPublished> {
    let mut wait = WAIT_FIRST;
    for attempt in 1.. {
        match queue.publish(message.clone()).await {
            Ok(()) => return Ok(()),
            Err(error @ (PublishError::Unroutable(_) | PublishError::TooLong { .. })) => {
                return Err(NotPublished { what, error });
            }
            Err(error) if attempt >= TRIES_MAX => return Err(NotPublished { what, error }),
            Err(error) => tracing::debug!(%error, what, attempt, "not published yet"),
        }
        tokio::time::sleep(wait.mul_f64(rand::random_range(0.5..1.0))).await;
        wait *= 2;
    }
    Ok(())
}
