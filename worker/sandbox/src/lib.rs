//! What runs inside the forked processes: the root that forks templates, the templates that hold one evaluated
//! plugin each, and the calls that are forked from them.
//!
//! Deliberately absent: an async runtime, threads, files, network, environment, any secret. A process of this
//! crate talks to the worker over the sockets it was given, in the frames of [`wire`] and [`control`], and to
//! nobody else. Nobody in the worker trusts what it says.

mod call;
pub mod control;
mod engine;
mod filter;
mod isolate;
mod payload;
mod process;
pub mod root;
pub mod socket;
mod template;
pub mod wire;

/// How a call or a template is put into its cgroup.
pub use control::Join;
pub use payload::Payload;
