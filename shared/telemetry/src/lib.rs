//! Being seen: logs, and a recorder of one call's steps for those who want to look at it at once.
#![forbid(unsafe_code)]

mod log;
mod recorder;

pub use log::{LogConfig, LogFormat, TelemetryError, init};
pub use recorder::{Recorder, Step};
