//! How a worker is set up.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// `[worker]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerConfig {
    /// Calls at once; twice the cores unless said.
    pub slots: u16,
    /// Lanes of each class; the same as the scheduler's.
    pub lanes: u16,
    /// How often a call is begun before it counts as lost.
    pub deliveries_max: u32,
    /// How long running calls may go on after the worker was told to stop. A call's limit and some seconds.
    pub grace_ms: u64,
    /// Bytes of releases kept in memory.
    pub release_cache_bytes: u64,
    /// Where `/livez` and `/readyz` are served; nowhere unless said.
    pub listen: Option<SocketAddr>,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            slots: u16::try_from(cores * 2).unwrap_or(u16::MAX),
            lanes: 1,
            deliveries_max: 3,
            grace_ms: 35_000,
            release_cache_bytes: 256 * 1024 * 1024,
            listen: None,
        }
    }
}

/// `[fetch]`
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FetchConfig {
    /// Hosts that plugins may name in their egress and that are served from elsewhere: a host and the URL that
    /// stands for it. The only way to a private address; the operator vouches for what is there.
    pub upstreams: BTreeMap<String, String>,
    /// The body of an answer, decompressed.
    pub response_bytes_max: u64,
    pub redirects_max: u32,
    /// Where a plugin gives no `timeoutMs`.
    pub timeout_ms: u64,
    pub connect_timeout_ms: u64,
}

impl Default for FetchConfig {
    fn default() -> Self {
        Self {
            upstreams: BTreeMap::new(),
            response_bytes_max: 4 * 1024 * 1024,
            redirects_max: 5,
            timeout_ms: 15_000,
            connect_timeout_ms: 5_000,
        }
    }
}
