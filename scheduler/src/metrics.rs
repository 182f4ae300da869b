//! The scheduler's metrics, all of them.

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Mutex;
use std::sync::PoisonError;
use toolfleet_protocol::FailureKind;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// Counters and gauges, and their text form.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    calls: Family<Outcome, Counter>,
    pub(crate) dead_letters: Counter,
    /// Requests under way.
    pub(crate) requests: Gauge,
    pub(crate) calls_open: Gauge,
    pub(crate) jobs_ready: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let made = Self {
            registry: Mutex::default(),
            calls: Family::default(),
            dead_letters: Counter::default(),
            requests: Gauge::default(),
            calls_open: Gauge::default(),
            jobs_ready: Gauge::default(),
        };
        {
            let mut registry = made.registry.lock().unwrap_or_else(PoisonError::into_inner);
            registry.register(
                "toolfleet_calls",
                "Calls that ended, by outcome, as this scheduler saw them",
                made.calls.clone(),
            );
            registry.register("toolfleet_dead_letters", "Messages kept as dead letters", made.dead_letters.clone());
            registry.register("toolfleet_http_requests_in_flight", "Requests under way", made.requests.clone());
            registry.register("toolfleet_calls_open", "Calls accepted and not ended", made.calls_open.clone());
            registry.register("toolfleet_queue_messages", "Jobs that wait to be delivered", made.jobs_ready.clone());
        }
        made
    }
}

impl Metrics {
    /// A call ended.
    pub(crate) fn ended(&self, failure: Option<FailureKind>) {
        let outcome = failure.map_or("ok", FailureKind::id);
        self.calls.get_or_create(&Outcome { outcome }).inc();
    }

    /// In the OpenMetrics text form.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(out)
    }
}
