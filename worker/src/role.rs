//! The worker's main flow: a slot, a job for it, and the next.

use crate::call::{self, Worker};
use crate::health::{self, Health};
use crate::host::{FetchError, Fetcher};
use crate::isolation::{LayerState, Sandbox};
use crate::releases::Releases;
use crate::{FetchConfig, WorkerConfig};
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolfleet_protocol::{CallId, Class, Limits, QueueName, WorkerId};
use toolfleet_queue::{Consumer, Delivery, Queue, QueueError};
use toolfleet_store::StoreError;
use toolfleet_store::records::{Records, Sealer};

/// Why a worker can't start, or can't go on.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("worker.{field} {must}, but is {got}")]
    Config { field: &'static str, must: &'static str, got: String },
    #[error(
        "worker.slots × the memory of a call is {wanted_mib} MB ({slots} × {call_mib} MB), more than the {machine_mib} MB \
         of this machine: set worker.slots to at most {slots_max}"
    )]
    Memory { slots: u16, call_mib: u64, wanted_mib: u64, machine_mib: u64, slots_max: u64 },
    #[error(transparent)]
    Queue(#[from] QueueError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("cannot serve health checks on worker.listen: {0}")]
    Listen(std::io::Error),
    #[error("the jobs queue {0} can no longer be consumed")]
    Ended(QueueName),
}

/// Every so many picks the background goes first, so that it is never starved.
const BACKGROUND_TURN: u64 = 8;

/// Runs until told to stop; then finishes what it holds, as far as its grace period goes.
pub async fn run(
    config: WorkerConfig,
    fetch: FetchConfig,
    queue: Arc<dyn Queue>,
    records: Records,
    sealer: Sealer,
    sandbox: Sandbox,
    shutdown: CancellationToken,
) -> Result<(), WorkerError> {
    check(&config)?;
    warn_of_lost_layers(&sandbox).await;
    let id = WorkerId::generate();
    let sandbox = Arc::new(sandbox);
    let worker = Arc::new(Worker {
        id: id.clone(),
        deliveries_max: config.deliveries_max,
        queue: Arc::clone(&queue),
        releases: Releases::new(records.clone(), config.release_cache_bytes),
        records: records.clone(),
        sealer,
        fetcher: Arc::new(Fetcher::new(fetch)?),
        sandbox: Arc::clone(&sandbox),
        running: Mutex::new(HashMap::new()),
    });
    let mut jobs = Jobs::consume(&queue, &config).await?;
    let stopping = shutdown.child_token();
    let _stop_helpers = stopping.clone().drop_guard();
    // Ends with the worker.
    tokio::spawn(watch_cancels(Arc::clone(&worker), stopping.clone()));
    if let Some(listen) = config.listen {
        let health = Health { queue: Arc::clone(&queue), records: records.clone() };
        health::serve(listen, health, stopping.clone()).await.map_err(WorkerError::Listen)?;
    }
    tracing::info!(worker = %id, slots = config.slots, lanes = config.lanes, "the worker takes jobs");

    let slots = Arc::new(Semaphore::new(usize::from(config.slots)));
    let tasks = TaskTracker::new();
    loop {
        // A slot first, a job then: no job waits here that another worker could run.
        let slot = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            slot = Arc::clone(&slots).acquire_owned() => slot.expect("the slots are never closed"),
        };
        let delivery = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            delivery = jobs.next() => delivery?,
        };
        let worker = Arc::clone(&worker);
        // A task that panics drops its delivery, which then comes again: the worker and its other calls go on.
        tasks.spawn(async move {
            call::take(&worker, delivery).await;
            drop(slot);
        });
    }

    // What was prefetched and not begun goes back at once, for others to take.
    drop(jobs);
    tasks.close();
    let running = tasks.len();
    tracing::info!(worker = %id, running, "the worker takes no more jobs");
    if tokio::time::timeout(Duration::from_millis(config.grace_ms), tasks.wait()).await.is_err() {
        // Their deliveries come again elsewhere once the connection is closed.
        tracing::warn!(worker = %id, running = tasks.len(), "the grace period is over and calls are given up");
    }
    sandbox.shutdown().await;
    Ok(())
}

fn check(config: &WorkerConfig) -> Result<(), WorkerError> {
    let positive = |field: &'static str, value: u64| match value {
        0 => Err(WorkerError::Config { field, must: "must be at least 1", got: value.to_string() }),
        _ => Ok(()),
    };
    positive("slots", config.slots.into())?;
    positive("lanes", config.lanes.into())?;
    positive("deliveries_max", config.deliveries_max.into())?;
    let call = Limits::BASE.memory_bytes;
    let wanted = call * u64::from(config.slots);
    match machine_bytes() {
        Some(machine) if wanted > machine => Err(WorkerError::Memory {
            slots: config.slots,
            call_mib: call >> 20,
            wanted_mib: wanted >> 20,
            machine_mib: machine >> 20,
            slots_max: machine / call,
        }),
        _ => Ok(()),
    }
}

/// The machine's memory; nothing where it can't be told.
fn machine_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

async fn warn_of_lost_layers(sandbox: &Sandbox) {
    for layer in sandbox.layers().await {
        if let LayerState::Degraded { why, costs } | LayerState::Missing { why, costs } = layer.state {
            tracing::warn!(layer = layer.name, why, costs, "an isolation layer is not in force");
        }
    }
}

/// The jobs queues, by class.
struct Jobs {
    interactive: Vec<Consumer>,
    background: Vec<Consumer>,
    picks: u64,
}

impl Jobs {
    async fn consume(queue: &Arc<dyn Queue>, config: &WorkerConfig) -> Result<Self, QueueError> {
        let prefetch = config.slots.div_ceil(config.lanes).max(1);
        let mut jobs = Self { interactive: Vec::new(), background: Vec::new(), picks: 0 };
        for lane in 0..config.lanes {
            for class in Class::ALL {
                let consumer = queue.consume(QueueName::Jobs { class, lane }, prefetch).await?;
                match class {
                    Class::Interactive => jobs.interactive.push(consumer),
                    Class::Background => jobs.background.push(consumer),
                }
            }
        }
        Ok(jobs)
    }

    /// The next job: interactive before background but for every eighth, the lanes in turn.
    async fn next(&mut self) -> Result<Delivery, WorkerError> {
        self.picks += 1;
        let picks = self.picks;
        let (first, second) = if picks.is_multiple_of(BACKGROUND_TURN) {
            (&mut self.background, &mut self.interactive)
        } else {
            (&mut self.interactive, &mut self.background)
        };
        let ended = poll_fn(|context| {
            for class in [&mut *first, &mut *second] {
                let lanes = class.len();
                for turn in 0..lanes {
                    let lane = (turn + picks as usize) % lanes;
                    match class[lane].poll_next(context) {
                        Poll::Ready(Some(delivery)) => return Poll::Ready(Some(delivery)),
                        Poll::Ready(None) => return Poll::Ready(None),
                        Poll::Pending => {}
                    }
                }
            }
            Poll::Pending
        });
        ended.await.ok_or(WorkerError::Ended(QueueName::Jobs { class: Class::Interactive, lane: 0 }))
    }
}

/// A waiting read for cancels; it ends and begins again.
const CANCELS_WAIT: Duration = Duration::from_secs(20);
/// After a store that didn't answer.
const CANCELS_PAUSE: Duration = Duration::from_secs(1);

/// Ends running calls that somebody cancels.
async fn watch_cancels(worker: Arc<Worker>, stopping: CancellationToken) {
    let watch = async {
        let mut after = None;
        loop {
            let from = match after {
                Some(position) => Ok(position),
                None => worker.records.cancels_end().await,
            };
            let cancels = match from {
                Ok(from) => {
                    after = Some(from);
                    worker.records.cancels(&from, CANCELS_WAIT).await
                }
                Err(error) => Err(error),
            };
            match cancels {
                Ok(cancels) => {
                    for (position, call) in cancels {
                        after = Some(position);
                        worker.cancel(&call);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cancels can't be read; they reach running calls late");
                    tokio::time::sleep(CANCELS_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = stopping.cancelled() => {}
        () = watch => {}
    }
}

impl Worker {
    fn cancel(&self, call: &CallId) {
        let running = self.running.lock().expect("nothing panics while it is held");
        if let Some(token) = running.get(call) {
            token.cancel();
        }
    }
}
