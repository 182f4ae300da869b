//! What one call may use.

use crate::Permission;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The limits of one call, fixed by its release's permissions and never by the message that asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Wall clock from the start of the handler, waits for the host included.
    pub wall_ms: u64,
    /// Memory of the call's process, kernel-enforced.
    pub memory_bytes: u64,
    /// The input's JSON.
    pub input_bytes_max: u64,
    /// The result's JSON.
    pub result_bytes_max: u64,
    /// All that the call logs; lines past it are dropped and counted.
    pub log_bytes_max: u64,
    /// Host calls in total, `host.log` not counted.
    pub host_calls_max: u32,
    /// Host calls under way at once.
    pub host_calls_pending_max: u32,
    /// Arguments of one host call, and its answer.
    pub host_call_bytes_max: u64,
    /// Timers pending at once.
    pub timers_max: u32,
}

const MIB: u64 = 1024 * 1024;

impl Limits {
    /// A tool call: 30 s and 128 MB.
    pub const BASE: Self = Self {
        wall_ms: 30_000,
        memory_bytes: 128 * MIB,
        input_bytes_max: MIB,
        result_bytes_max: MIB,
        log_bytes_max: 256 * 1024,
        host_calls_max: 10_000,
        host_calls_pending_max: 256,
        host_call_bytes_max: 8 * MIB,
        timers_max: 10_000,
    };

    /// The limits of a release with these permissions: transcoding gets at least 60 s and 512 MB, building
    /// plugins at least 120 s.
    pub fn for_permissions(permissions: &BTreeSet<Permission>) -> Self {
        let mut limits = Self::BASE;
        if permissions.contains(&Permission::MediaTranscode) {
            limits.wall_ms = limits.wall_ms.max(60_000);
            limits.memory_bytes = limits.memory_bytes.max(512 * MIB);
        }
        if permissions.contains(&Permission::PluginsWrite) {
            limits.wall_ms = limits.wall_ms.max(120_000);
        }
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_raise_limits_as_documented() {
        let of = |list: &[Permission]| {
            let limits = Limits::for_permissions(&list.iter().copied().collect());
            (limits.wall_ms / 1000, limits.memory_bytes / MIB)
        };
        assert_eq!(of(&[]), (30, 128));
        assert_eq!(of(&[Permission::MediaTranscode]), (60, 512));
        assert_eq!(of(&[Permission::PluginsWrite]), (120, 128));
        assert_eq!(of(&[Permission::MediaTranscode, Permission::PluginsWrite]), (120, 512));
    }
}
