//! How calls are isolated.

use super::layers::LayerName;
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
    /// What a plugin's calls for one account may use of the cpu together, in hundredths of one core. A call by itself
    /// never uses more than one core; unless this is set, many at once use what there is.
    pub cpu_percent: Option<u32>,
    /// Layers without which no plugin is run, as `toolfleet doctor` names them: the worker doesn't start where one of
    /// them can't be had.
    pub require: Vec<LayerName>,
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
            cpu_percent: None,
            require: Vec::new(),
            without_cgroup: false,
        }
    }
}
