//! What plugins, callers and machines do to a fleet that means it no good, and what must come of it.
//!
//! After each attack the worker is alive, nothing is left of it, and the next call is right: [`Watch`] sees to that.

pub mod native;
#[path = "../../../worker/tests/support/mod.rs"]
pub mod support;
mod watch;

pub use watch::{Watch, processes_below};
