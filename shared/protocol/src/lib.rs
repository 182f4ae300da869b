//! What the parts of toolfleet say to each other: jobs, results, metering, host calls, releases.
//!
//! Plain data with its rules of validity. Nothing here does I/O, keeps time or knows who calls it, so the
//! scheduler, the workers and the sandbox can all depend on it without depending on each other.
#![forbid(unsafe_code)]

pub mod host;
mod ids;
mod initiator;
mod inspection;
mod job;
mod limits;
mod outcome;
mod permission;
mod release;
mod toolname;

pub use ids::{
    AccountId, AgentId, CallId, InvalidId, PluginSlug, ReleaseDigest, SchedulerId, SessionId, TurnId, WorkerId,
};
pub use initiator::{Initiator, InitiatorKind};
pub use inspection::{Fact, Inspection, ToolFacts};
pub use job::{
    Class, HEADER_TRACEPARENT, InvalidJob, Job, MAX_MESSAGE_BYTES, Metering, QueueName, Reply, WIRE_VERSION, Work,
};
pub use limits::Limits;
pub use outcome::{CallError, CallResult, FailureKind, Outcome, Usage};
pub use permission::Permission;
pub use release::{Bundle, BundledFile, EgressRule, InvalidEgress, Release, ToolSpec};
pub use toolname::{InvalidToolName, ToolName};
