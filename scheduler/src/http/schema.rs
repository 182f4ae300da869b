//! Forms of the API that are defined elsewhere, as the OpenAPI document describes them.
#![allow(dead_code)]

use super::calls::CallStatus;
use serde::Serialize;
use utoipa::ToSchema;

#[derive(Serialize, ToSchema)]
#[schema(as = Class)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ClassName {
    /// Somebody waits for it.
    Interactive,
    /// Nobody does.
    Background,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum OpenStatus {
    /// No worker has it yet.
    Queued,
    /// A worker runs it.
    Running,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Initiator)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InitiatorBody {
    kind: InitiatorKindName,
    /// True only while every input of the turn so far came from a signed-in user or a verified contact.
    is_verified_person: bool,
}

#[derive(Serialize, ToSchema)]
#[schema(as = InitiatorKind)]
#[serde(rename_all = "camelCase")]
pub(crate) enum InitiatorKindName {
    User,
    ChannelSender,
    Schedule,
    Event,
    Agent,
    Platform,
}

/// The one result of a call.
#[derive(Serialize, ToSchema)]
#[schema(as = CallResult)]
#[serde(tag = "status", rename_all = "camelCase")]
pub(crate) enum ResultBody {
    #[serde(rename_all = "camelCase")]
    Ok {
        call_id: String,
        /// What the tool gave: any JSON.
        #[schema(value_type = Object)]
        value: serde_json::Value,
        usage: UsageBody,
    },
    #[serde(rename_all = "camelCase")]
    Failed { call_id: String, error: ErrorBody, usage: UsageBody },
}

/// Why a call failed.
#[derive(Serialize, ToSchema)]
#[schema(as = CallError)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ErrorBody {
    kind: FailureKindName,
    /// The thrown error's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// What went wrong, and what to do.
    message: String,
    /// The thrown error's stack, in places of the author's source.
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = FailureKind)]
#[serde(rename_all = "camelCase")]
pub(crate) enum FailureKindName {
    /// The handler threw or rejected.
    Thrown,
    /// The wall-clock limit passed.
    Timeout,
    /// The memory cap was hit.
    Memory,
    /// The handler's promise can never settle.
    Stalled,
    /// The process died otherwise.
    Crashed,
    /// The handler's value isn't plain JSON.
    Unserializable,
    /// The input or the result is over its size limit.
    TooLarge,
    /// The plugin did not evaluate.
    LoadFailed,
    /// No such plugin, release or tool.
    ToolNotFound,
    /// The agent may not call this tool.
    AccessDenied,
    /// The deadline passed while the call waited.
    Expired,
    /// Somebody cancelled the call.
    Cancelled,
    /// The call's workers died as often as deliveries are allowed.
    Lost,
}

/// What a call used.
#[derive(Serialize, ToSchema)]
#[schema(as = Usage)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UsageBody {
    wall_ms: u64,
    queue_ms: u64,
    cpu_ms: u64,
    peak_memory_bytes: u64,
    host_calls: u64,
    /// Which delivery this was, from 1; 0 when no worker ever took it.
    attempt: u32,
}

/// What is known of a call.
#[derive(Serialize, ToSchema)]
#[schema(as = Call)]
#[serde(untagged)]
pub(crate) enum Known {
    Ended(ResultBody),
    Open(CallStatus),
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum ResultOrResults {
    One(ResultBody),
    Batch(Vec<ResultBody>),
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum KnownOrKnowns {
    One(Known),
    Batch(Vec<Known>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolfleet_protocol::FailureKind;

    #[test]
    fn the_described_failure_kinds_are_those_there_are() {
        use FailureKindName as N;
        let described = [
            N::Thrown,
            N::Timeout,
            N::Memory,
            N::Stalled,
            N::Crashed,
            N::Unserializable,
            N::TooLarge,
            N::LoadFailed,
            N::ToolNotFound,
            N::AccessDenied,
            N::Expired,
            N::Cancelled,
            N::Lost,
        ];
        let described: Vec<_> = described.iter().map(|kind| serde_json::to_string(kind).unwrap()).collect();
        let kinds: Vec<_> = FailureKind::ALL.iter().map(|kind| serde_json::to_string(kind).unwrap()).collect();
        assert_eq!(described, kinds);
    }
}
