//! What all parts of the scheduler share.

use crate::SchedulerConfig;
use crate::metrics::Metrics;
use crate::releases::Releases;
use crate::results::Waiters;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;
use toolfleet_protocol::CallId;
use toolfleet_queue::Queue;
use toolfleet_store::records::{Records, Sealer};

/// Configuration, the two services, and the little that is kept in memory. All of it can be lost without losing a call.
pub(crate) struct App {
    pub(crate) config: SchedulerConfig,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) records: Records,
    pub(crate) sealer: Sealer,
    pub(crate) waiters: Waiters,
    pub(crate) releases: Releases,
    /// Calls that were confirmed by the queue a moment ago, so that a retried request doesn't publish them again.
    pub(crate) confirmed: Recent,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    /// Cancelled when the process is asked to end.
    pub(crate) shutdown: CancellationToken,
}

impl App {
    pub(crate) fn new(
        config: SchedulerConfig,
        queue: Arc<dyn Queue>,
        records: Records,
        sealer: Sealer,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            config,
            queue,
            records,
            sealer,
            waiters: Waiters::default(),
            releases: Releases::default(),
            confirmed: Recent::default(),
            metrics: Metrics::default(),
            health: Health::default(),
            shutdown,
        }
    }
}

/// Whether the scheduler works, as its own parts tell.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// When the clockwork last ran, Unix ms.
    pub(crate) progress_at_ms: AtomicU64,
    pub(crate) results_live: AtomicBool,
    pub(crate) metering_live: AtomicBool,
    pub(crate) dead_live: AtomicBool,
}

impl Health {
    pub(crate) fn progressed(&self, now_ms: u64) {
        self.progress_at_ms.store(now_ms, Ordering::Relaxed);
    }
}

/// So many confirmed calls are remembered: more than are confirmed while a client waits and tries again.
const RECENT_CALLS_MAX: usize = 65_536;

/// A set that forgets its oldest members.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<(HashSet<CallId>, VecDeque<CallId>)>);

impl Recent {
    pub(crate) fn add(&self, call: &CallId) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (set, order) = &mut *guard;
        if set.insert(call.clone()) {
            order.push_back(call.clone());
            if order.len() > RECENT_CALLS_MAX
                && let Some(oldest) = order.pop_front()
            {
                set.remove(&oldest);
            }
        }
    }

    pub(crate) fn has(&self, call: &CallId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.contains(call)
    }
}
