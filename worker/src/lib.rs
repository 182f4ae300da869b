//! The worker: takes jobs off the queue, runs each in the sandbox, answers what it asks of its host, and puts the
//! result and a metering event back.
//!
//! `unsafe` code is in [`isolation`] alone.
#![deny(unsafe_code)]

mod call;
mod clock;
mod config;
mod health;
mod host;
#[allow(unsafe_code, reason = "starting the sandbox root and registering its sockets")]
pub mod isolation;
mod local;
mod outbox;
mod releases;
mod role;

pub use config::{FetchConfig, WorkerConfig};
pub use host::Fetcher;
pub use local::{LocalCall, run_local};
pub use role::{WorkerError, run};
