//! What plugins, callers and machines do to a fleet that means it no good, and what must come of it.
//!
//! After each attack the worker is alive, nothing is left of it, and the next call is right: [`assault`] and [`Watch`]
//! see to that.

mod assault;
pub mod attacks;
pub mod native;
#[path = "../../../worker/tests/support/mod.rs"]
pub mod support;
mod watch;

pub use assault::{Attack, Expected, Wall, assault, attack_request, next_call, turn};
use support::slowness;
pub use watch::{Watch, processes_below};

/// The limit of an attack that is to run into it.
pub const SHORT_WALL_MS: u64 = 500;

/// The limit of an attack that ends by itself, far before.
pub fn long_wall_ms() -> u64 {
    20_000 * slowness()
}

/// A call is ended so long after its limit at the latest.
pub fn overrun_ms_max() -> u64 {
    500 * slowness()
}

/// The next call after an attack takes no longer; a few milliseconds are usual.
pub fn next_call_ms_max() -> u64 {
    1_000 * slowness()
}

/// What ends at once ends by then.
pub fn at_once_ms_max() -> u64 {
    2_000 * slowness()
}
