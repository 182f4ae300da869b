//! Native code in a plugin's place, and walls taken out: what the tests of the walls need.

use crate::wire::{Load, Start};
use std::os::fd::OwnedFd;

/// What runs before the engine does: what an attacker could do who has broken it. The product runs nothing; the tests
/// of the walls are roots of their own whose payloads try each wall from inside.
#[derive(Debug, Clone, Copy, Default)]
pub struct Payload {
    /// In a template, where the plugin is to be loaded: what, the control socket, and the one that the answer goes to.
    pub template: Option<fn(&Load, &OwnedFd, &OwnedFd)>,
    /// In a call: its start, and its socket.
    pub call: Option<fn(&Start<'_>, &OwnedFd)>,
    /// Layers that are left out, so that those behind them can be tried, and so that their own test is seen to fail.
    pub without: &'static [String],
}

impl Payload {
    /// Is this layer to be left out?
    pub fn lacks(self, layer: &str) -> bool {
        self.without.iter().any(|name| name == layer)
    }
}
