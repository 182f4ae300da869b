//! The messages on the queue. They are a public contract: any AMQP client may read them.

use crate::{
    AccountId, AgentId, CallId, CallResult, FailureKind, Initiator, PluginSlug, ReleaseDigest, SchedulerId, SessionId,
    ToolName, TurnId, Usage, WorkerId,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fmt;

/// The version of every message's form. A reader refuses versions that it doesn't know.
pub const WIRE_VERSION: u16 = 1;

/// No message is longer; a longer one is refused by the sender and dead-lettered by the reader.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// The header that carries W3C trace context, as text.
pub const HEADER_TRACEPARENT: &str = "traceparent";

/// How urgent a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Class {
    /// Somebody waits for it.
    Interactive,
    /// Nobody does.
    Background,
}

impl Class {
    pub const ALL: [Class; 2] = [Class::Interactive, Class::Background];

    pub fn id(self) -> &'static str {
        match self {
            Class::Interactive => "interactive",
            Class::Background => "background",
        }
    }
}

/// A queue's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QueueName {
    /// `toolfleet.jobs.<class>.<lane>`: accounts are spread over lanes, so that one's backlog holds up few others.
    Jobs { class: Class, lane: u16 },
    /// `toolfleet.metering`: one event per finished call.
    Metering,
    /// `toolfleet.replies.<scheduler>`: results of the calls that this scheduler submitted.
    Replies(SchedulerId),
    /// `toolfleet.dead`: messages that expired, were refused, or weren't ours.
    Dead,
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueName::Jobs { class, lane } => write!(f, "toolfleet.jobs.{}.{lane}", class.id()),
            QueueName::Metering => f.write_str("toolfleet.metering"),
            QueueName::Replies(scheduler) => write!(f, "toolfleet.replies.{scheduler}"),
            QueueName::Dead => f.write_str("toolfleet.dead"),
        }
    }
}

/// What a job asks a worker to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Work {
    /// Run a tool.
    #[serde(rename_all = "camelCase")]
    Call {
        agent: AgentId,
        session: SessionId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<TurnId>,
        plugin: PluginSlug,
        release: ReleaseDigest,
        tool: ToolName,
        /// The model's arguments, as it gave them.
        input: Box<RawValue>,
        initiator: Initiator,
    },
    /// Evaluate a draft's bundle without a host and report what it registers (an [`crate::Inspection`]).
    #[serde(rename_all = "camelCase")]
    Inspect { draft: ReleaseDigest },
}

/// A message on a jobs queue. The worker takes nothing from it on trust: it must match, byte for byte, what the
/// scheduler recorded for the call before it was published.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// [`WIRE_VERSION`].
    pub v: u16,
    pub call_id: CallId,
    pub account: AccountId,
    pub work: Work,
    pub class: Class,
    /// Unix time in milliseconds.
    pub submitted_at_ms: u64,
    /// Unix time in milliseconds; not started by then, the call ends as `expired`.
    pub deadline_at_ms: u64,
    /// Whose reply queue the result goes to.
    pub reply_to: SchedulerId,
}

impl Job {
    /// Reads a message's body.
    ///
    /// # Errors
    /// Says what isn't as it should be: not JSON, another version, a field that is missing or malformed.
    pub fn decode(body: &[u8]) -> Result<Self, InvalidJob> {
        if body.len() > MAX_MESSAGE_BYTES {
            return Err(InvalidJob::TooLong { bytes: body.len() });
        }
        // The version first: a newer form may differ in everything else.
        #[derive(Deserialize)]
        struct Version {
            v: Option<u16>,
        }
        let version: Version = serde_json::from_slice(body).map_err(InvalidJob::Malformed)?;
        match version.v {
            Some(WIRE_VERSION) => {}
            other => return Err(InvalidJob::Version { got: other }),
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct Wire {
            v: u16,
            call_id: CallId,
            account: AccountId,
            work: Work,
            class: Class,
            submitted_at_ms: u64,
            deadline_at_ms: u64,
            reply_to: SchedulerId,
        }
        let Wire { v, call_id, account, work, class, submitted_at_ms, deadline_at_ms, reply_to } =
            serde_json::from_slice(body).map_err(InvalidJob::Malformed)?;
        Ok(Self { v, call_id, account, work, class, submitted_at_ms, deadline_at_ms, reply_to })
    }

    /// The message's body.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a job has only string keys and finite numbers")
    }
}

/// Why a message isn't a job.
#[derive(Debug, thiserror::Error)]
pub enum InvalidJob {
    #[error("the message has {bytes} bytes, more than the {MAX_MESSAGE_BYTES} that are read")]
    TooLong { bytes: usize },
    #[error("the message has form version {got:?}, and only {WIRE_VERSION} is read here")]
    Version { got: Option<u16> },
    #[error("the message isn't a job: {0}")]
    Malformed(serde_json::Error),
}

/// A message on a reply queue: the result of a call, as recorded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reply {
    /// [`WIRE_VERSION`].
    pub v: u16,
    pub result: CallResult,
}

/// A message on the metering queue: one call, to be counted once however often it arrives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metering {
    /// [`WIRE_VERSION`].
    pub v: u16,
    pub call_id: CallId,
    pub account: AccountId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginSlug>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolName>,
    /// `None` for a call that ended well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureKind>,
    pub usage: Usage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerId>,
    /// Unix time in milliseconds.
    pub finished_at_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job {
            v: WIRE_VERSION,
            call_id: CallId::parse("c1").unwrap(),
            account: AccountId::parse("acme").unwrap(),
            work: Work::Call {
                agent: AgentId::parse("a1").unwrap(),
                session: SessionId::parse("s1").unwrap(),
                turn: None,
                plugin: PluginSlug::parse("weather").unwrap(),
                release: ReleaseDigest::parse("0".repeat(64)).unwrap(),
                tool: ToolName::parse("get_forecast").unwrap(),
                input: RawValue::from_string("{\"n\":1.0}".into()).unwrap(),
                initiator: Initiator::PLATFORM,
            },
            class: Class::Interactive,
            submitted_at_ms: 1,
            deadline_at_ms: 2,
            reply_to: SchedulerId::parse("s").unwrap(),
        }
    }

    #[test]
    fn a_job_reads_back_as_it_was_written() {
        let body = job().encode();
        assert_eq!(Job::decode(&body).unwrap().encode(), body);
    }

    #[test]
    fn what_is_not_a_job_is_refused_with_its_reason() {
        let good = String::from_utf8(job().encode()).unwrap();
        let check = |body: &str, expected: &str| {
            let error = Job::decode(body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{body}: {error}");
        };
        check("", "isn't a job");
        check("{", "isn't a job");
        check("{}", "version None");
        check(&good.replace("\"v\":1", "\"v\":2"), "version Some(2)");
        check(&good.replace("acme", "a b"), "account id must be");
        check(&good.replace("\"class\"", "\"colour\""), "unknown field `colour`");
        check(&good.replace("interactive", "urgent"), "unknown variant `urgent`");
        check(&" ".repeat(MAX_MESSAGE_BYTES + 1), "more than");
    }
}
