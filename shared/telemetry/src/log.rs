//! Logs, on stderr: lines for people on a terminal, JSON for machines otherwise.

use crate::Recorder;
use serde::Deserialize;
use std::io::IsTerminal;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

/// `[log]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// Lines or JSON; by whether stderr is a terminal, unless said.
    pub format: Option<LogFormat>,
    /// What is logged, for example `info` or `warn,toolfleet_worker=debug`; `RUST_LOG` goes before it.
    pub filter: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("log.filter {filter:?} can't be read: {reason}")]
    Filter { filter: String, reason: String },
    #[error("logging was set up before in this process")]
    Twice,
}

/// Libraries say little of use below a warning.
const DEFAULT_FILTER: &str = "info,lapin=warn,redis=warn,hyper=warn,reqwest=warn";

/// Sets up logging for the process. `default` is the filter where neither the configuration nor the environment
/// gives one.
///
/// # Errors
/// Where the filter can't be read, or logging was set up before.
pub fn init(config: &LogConfig, default: Option<&str>, recorder: Option<Recorder>) -> Result<(), TelemetryError> {
    let filter = match std::env::var("RUST_LOG").ok().or_else(|| config.filter.clone()) {
        Some(filter) => filter,
        None => default.unwrap_or(DEFAULT_FILTER).to_owned(),
    };
    let parsed = EnvFilter::try_new(&filter)
        .map_err(|error| TelemetryError::Filter { filter: filter.clone(), reason: error.to_string() })?;
    let is_terminal = std::io::stderr().is_terminal();
    let format = config.format.unwrap_or(if is_terminal { LogFormat::Text } else { LogFormat::Json });
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(is_terminal);
    let lines = match format {
        LogFormat::Text => lines.with_target(false).compact().boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(parsed))
        .with(recorder)
        .try_init()
        .map_err(|_| TelemetryError::Twice)
}
