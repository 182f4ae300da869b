//! How calls are isolated.

use serde::Deserialize;
use std::path::PathBuf;

/// `[isolation]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IsolationConfig {
    /// The `toolfleet` binary to start the sandbox root from; this very one unless said.
    pub sandbox_binary: Option<PathBuf>,
    /// Evaluated plugins kept, one per account and release.
    pub templates_max: usize,
    /// A template that no call used for so long is let go.
    pub template_idle_ms: u64,
    /// A plugin must have evaluated by then.
    pub load_ms: u64,
    /// The engine may use this share of a call's memory cap; the rest is for the process itself. Past 100 the engine
    /// sets no limit that could be met before the kernel's.
    pub heap_percent: u32,
    /// Run with no cgroup, as where none can be written.
    pub without_cgroup: bool,
}

impl Default for IsolationConfig {
    fn default() -> Self {
        Self {
            sandbox_binary: None,
            templates_max: 64,
            template_idle_ms: 10 * 60 * 1000,
            load_ms: 5_000,
            heap_percent: 92,
            without_cgroup: false,
        }
    }
}
