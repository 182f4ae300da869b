//! How a call ends: exactly one result, whatever happens to it.

use crate::CallId;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

macro_rules! failure_kinds {
    ($($variant:ident = $id:literal, $doc:literal;)*) => {
        /// Why a call failed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub enum FailureKind {
            $(#[doc = $doc] $variant,)*
        }

        impl FailureKind {
            /// Every kind there is.
            pub const ALL: &'static [FailureKind] = &[$(FailureKind::$variant,)*];

            /// Its name on the wire.
            pub fn id(self) -> &'static str {
                match self { $(FailureKind::$variant => $id,)* }
            }
        }
    };
}

failure_kinds! {
    Thrown = "thrown", "The handler threw or rejected.";
    Timeout = "timeout", "The wall-clock limit passed.";
    Memory = "memory", "The memory cap was hit: the engine's own out-of-memory or the kernel's.";
    Stalled = "stalled", "The handler's promise can never settle: nothing is pending.";
    Crashed = "crashed", "The process died otherwise.";
    Unserializable = "unserializable", "The handler's value isn't plain JSON.";
    TooLarge = "tooLarge", "The input or the result is over its size limit.";
    LoadFailed = "loadFailed", "The bundle did not evaluate in its template.";
    ToolNotFound = "toolNotFound", "No such plugin, release or tool.";
    AccessDenied = "accessDenied", "The agent may not call this tool.";
    Expired = "expired", "The call's deadline passed while it waited.";
    Cancelled = "cancelled", "Somebody cancelled the call.";
    Lost = "lost", "The call's workers died as often as deliveries are allowed.";
}

impl std::fmt::Display for FailureKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id())
    }
}

/// What went wrong, in words that say what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallError {
    pub kind: FailureKind,
    /// The thrown error's `name`, for `thrown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub message: String,
    /// The thrown error's stack, in places of the author's source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
}

impl CallError {
    /// An error that is only a kind and a message.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, name: None, message: message.into(), stack: None }
    }
}

/// What a call used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// From the worker taking up the call to its end.
    pub wall_ms: u64,
    /// From submission to the worker taking it up.
    pub queue_ms: u64,
    /// Processor time of the call's process.
    pub cpu_ms: u64,
    pub peak_memory_bytes: u64,
    /// Host calls made, `host.log` not counted.
    pub host_calls: u64,
    /// Which delivery this was, from 1; 0 when no worker ever took it.
    pub attempt: u32,
}

/// The value or the failure.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "camelCase")]
pub enum Outcome {
    Ok { value: Box<RawValue> },
    Failed { error: CallError },
}

/// The one result of a call. On the wire
/// `{"callId","status":"ok","value":…,"usage":{…}}` or `{"callId","status":"failed","error":{…},"usage":{…}}`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallResult {
    pub call_id: CallId,
    #[serde(flatten)]
    pub outcome: Outcome,
    pub usage: Usage,
}

impl CallResult {
    pub fn failed(call_id: CallId, error: CallError, usage: Usage) -> Self {
        Self { call_id, outcome: Outcome::Failed { error }, usage }
    }

    /// The failure's kind, if it failed.
    pub fn failure(&self) -> Option<FailureKind> {
        match &self.outcome {
            Outcome::Ok { .. } => None,
            Outcome::Failed { error } => Some(error.kind),
        }
    }
}

// By hand: serde's `flatten` and `tag` buffer through a value type that `RawValue` can't pass through.
impl<'de> Deserialize<'de> for CallResult {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            call_id: CallId,
            status: String,
            // Not an `Option`: the value `null` must stay a value.
            #[serde(default = "absent")]
            value: Box<RawValue>,
            #[serde(default)]
            error: Option<CallError>,
            usage: Usage,
        }
        fn absent() -> Box<RawValue> {
            RawValue::NULL.to_owned()
        }
        let wire = Wire::deserialize(deserializer)?;
        let outcome = match (wire.status.as_str(), wire.error) {
            ("ok", None) => Outcome::Ok { value: wire.value },
            ("failed", Some(error)) => Outcome::Failed { error },
            ("ok", Some(_)) => return Err(D::Error::custom("status is \"ok\" but there is an error")),
            ("failed", None) => return Err(D::Error::missing_field("error")),
            (other, _) => return Err(D::Error::unknown_variant(other, &["ok", "failed"])),
        };
        Ok(Self { call_id: wire.call_id, outcome, usage: wire.usage })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_reads_back_as_it_was_written() {
        for text in [
            r#"{"callId":"c","status":"ok","value":{"a":[1,2.50]},"usage":{"wallMs":1,"queueMs":0,"cpuMs":0,"peakMemoryBytes":0,"hostCalls":0,"attempt":1}}"#,
            r#"{"callId":"c","status":"ok","value":null,"usage":{"wallMs":1,"queueMs":0,"cpuMs":0,"peakMemoryBytes":0,"hostCalls":0,"attempt":1}}"#,
            r#"{"callId":"c","status":"failed","error":{"kind":"thrown","name":"Error","message":"no"},"usage":{"wallMs":1,"queueMs":0,"cpuMs":0,"peakMemoryBytes":0,"hostCalls":0,"attempt":1}}"#,
        ] {
            let result: CallResult = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&result).unwrap(), text);
        }
    }

    #[test]
    fn kinds_are_named_on_the_wire_as_in_code() {
        for kind in FailureKind::ALL {
            assert_eq!(serde_json::to_string(kind).unwrap(), format!("{:?}", kind.id()));
        }
    }
}
