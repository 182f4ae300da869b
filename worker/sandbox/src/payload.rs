//! Native code in a plugin's place.

use crate::wire::{Load, Start};
use std::os::fd::OwnedFd;

/// What runs before the engine does: what an attacker could do who has broken it. The product runs nothing; the tests
/// of the walls are roots of their own whose payloads try each wall from inside.
#[derive(Debug, Clone, Copy, Default)]
pub struct Payload {
    /// In a template, once the plugin is loaded: what was loaded, and the control socket.
    pub template: Option<fn(&Load, &OwnedFd)>,
    /// In a call: its start, and its socket.
    pub call: Option<fn(&Start<'_>, &OwnedFd)>,
}
