//! Handlers that mean no good, by the subject of their attack. Each runs alone in the tests of its row, and all of
//! them in random order in the endurance run.

mod depth;
mod long_work;
mod memory;
mod thrown;
mod time;
mod values;

pub use depth::DEPTH;
pub use long_work::LONG_WORK;
pub use memory::MEMORY;
pub use thrown::THROWN;
pub use time::TIME;
pub use values::VALUES;

use crate::Attack;

/// Every attack.
pub fn all() -> Vec<Attack> {
    [TIME, LONG_WORK, MEMORY, DEPTH, VALUES, THROWN].concat()
}
