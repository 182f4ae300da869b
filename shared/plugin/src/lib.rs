//! From a plugin's source to a checked, immutable release.
//!
//! ```text
//! Source ── build ──▶ Draft ── a worker evaluates its bundle ──▶ Inspection ── finish ──▶ Release
//! ```
//!
//! Both steps report all that is wrong at once, each with its place and what to do. Nothing here runs a plugin's code:
//! [`build`] reads it, and what its evaluation registered comes back as plain facts.
#![forbid(unsafe_code)]

mod build;
mod derive;
mod digest;
mod finish;
mod imports;
mod json;
mod manifest;
mod nearest;
mod problem;
pub mod scaffold;
mod schema;
pub mod sdk;
mod source;
mod stack;
mod syntax;

pub use build::{Draft, build};
pub use finish::{Checked, finish};
pub use problem::{PROBLEMS_MAX, Place, Problem, Problems, Severity};
pub use source::{FILE_BYTES_MAX, FILES_MAX, Source, TOTAL_BYTES_MAX};
pub use stack::map_stack;
