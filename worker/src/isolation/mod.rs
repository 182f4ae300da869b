//! The worker's side of the sandbox: starts the sandbox root, keeps templates, runs calls in forks of them, and
//! ends what doesn't end by itself.
//!
//! Everything that comes out of a template or a call is presumed hostile. Nothing here runs plugin code.

pub mod bench;
mod blank;
mod call;
mod cgroup;
mod config;
pub mod incoming;
mod layers;
mod root;
mod sandbox;
mod template;

pub use config::IsolationConfig;
pub use layers::{Layer, LayerName, LayerState};
pub use sandbox::{Sandbox, SandboxError};

use async_trait::async_trait;
use serde_json::value::RawValue;
use std::sync::Arc;
use toolfleet_protocol::host::{HostError, HostMethod};
use toolfleet_protocol::{AccountId, Bundle, CallId, Initiator, Limits, Outcome, ReleaseDigest, ToolName};

/// One call to be run.
pub struct RunRequest {
    /// With `release`, names the template.
    pub account: AccountId,
    pub release: ReleaseDigest,
    pub bundle: Arc<Bundle>,
    pub limits: Limits,
    pub call_id: CallId,
    pub tool: ToolName,
    pub input: Box<RawValue>,
    pub initiator: Initiator,
    /// Ends the call early, as `cancelled`.
    pub cancel: tokio_util::sync::CancellationToken,
}

/// How a call ended.
#[derive(Debug)]
pub struct RunEnd {
    /// Stacks are in places of the bundle's code; whoever reports them maps them to the author's files.
    pub outcome: Outcome,
    pub wall_ms: u64,
    pub cpu_ms: u64,
    pub peak_memory_bytes: u64,
    pub host_calls: u64,
}

/// Severity of a line that a call logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

/// Answers what one call asks of its host. Permissions, egress and the journal are behind it.
#[async_trait]
pub trait Host: Send + Sync + 'static {
    /// `ordinal` counts this call's host calls from 0, in the order in which the process made them. `arguments`
    /// is a JSON array of the positional arguments.
    async fn call(
        &self,
        ordinal: u32,
        method: HostMethod,
        arguments: Box<RawValue>,
    ) -> Result<Box<RawValue>, HostError>;

    /// A line of `console` or `host.log`, already cut to the call's budget. `fields` is a JSON object, or nothing.
    fn log(&self, level: LogLevel, message: &str, fields: Option<Box<RawValue>>);
}
