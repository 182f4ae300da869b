//! The scheduler: takes calls over HTTP, pushes them onto the jobs queue, and brings their results back.
//!
//! It keeps nothing that matters in memory: a scheduler that is killed and started again goes on where the store
//! and the queue are.
#![forbid(unsafe_code)]

mod app;
mod clock;
mod config;
mod dead;
mod deliveries;
mod dispatch;
mod ending;
mod http;
mod ledger;
mod metrics;
mod publish;
mod releases;
mod resolve;
mod results;
mod sweep;

pub use config::{ApiConfig, ApiToken, DEADLINE_MAX, InvalidConfig, SchedulerConfig, Scope, TokenDigest};
pub use http::{openapi, openapi_text};

use app::App;
use clock::now_ms;
use deliveries::ReadError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use toolfleet_queue::Queue;
use toolfleet_store::records::{Records, Sealer};

/// Why a scheduler can't start, or can't go on.
#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    #[error("the configuration can't be used")]
    Config(#[from] InvalidConfig),
    #[error("cannot listen on {listen} (scheduler.listen)")]
    Listen { listen: SocketAddr, source: std::io::Error },
    #[error("the HTTP server ended")]
    Serve(#[source] std::io::Error),
    #[error("the scheduler can no longer read its queues")]
    Queue(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("a part of the scheduler panicked")]
    Panic(#[source] JoinError),
}

impl From<ReadError> for SchedulerError {
    fn from(error: ReadError) -> Self {
        Self::Queue(Box::new(error))
    }
}

/// A scheduler that listens and doesn't serve yet.
pub struct Scheduler {
    listener: TcpListener,
    local_addr: SocketAddr,
    config: SchedulerConfig,
}

impl Scheduler {
    /// Checks the configuration and takes its address; port 0 takes any that is free.
    ///
    /// # Errors
    /// Where a setting can't be used, or the address is taken.
    pub async fn bind(config: SchedulerConfig) -> Result<Self, SchedulerError> {
        config.check()?;
        let listen = config.listen;
        let error = |source| SchedulerError::Listen { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(error)?;
        let local_addr = listener.local_addr().map_err(error)?;
        Ok(Self { listener, local_addr, config })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Serves until `shutdown`, then finishes what is under way within the grace period.
    ///
    /// # Errors
    /// Where a part of it ended by itself: then all of it ends, for whoever runs it to start it again.
    pub async fn serve(
        self,
        queue: Arc<dyn Queue>,
        records: Records,
        sealer: Sealer,
        shutdown: CancellationToken,
    ) -> Result<(), SchedulerError> {
        let grace = Duration::from_secs(self.config.shutdown_grace_s);
        let asked_to_end = shutdown.child_token();
        let app = Arc::new(App::new(self.config, queue, records, sealer, asked_to_end.clone()));
        app.health.progressed(now_ms());

        // The readers end after the server: what is under way there may still wait for them.
        let stop = CancellationToken::new();
        let mut parts: JoinSet<Result<(), SchedulerError>> = JoinSet::new();
        let part = |app: &Arc<App>| (Arc::clone(app), stop.clone());
        // Replies wake those who wait for results.
        let (shared, end) = part(&app);
        parts.spawn(async move { Ok(results::run(shared, end).await?) });
        // Metering events are counted.
        let (shared, end) = part(&app);
        parts.spawn(async move { Ok(ledger::run(shared, end).await?) });
        // Dead letters become results, or are kept for the operator.
        let (shared, end) = part(&app);
        parts.spawn(async move { Ok(dead::run(shared, end).await?) });
        // What all of these missed is found by its deadline.
        let (shared, end) = part(&app);
        parts.spawn(async move {
            sweep::run(shared, end).await;
            Ok(())
        });
        // The pulse that /livez looks at.
        let (shared, end) = part(&app);
        parts.spawn(async move {
            pulse(&shared, end).await;
            Ok(())
        });

        let server = axum::serve(self.listener, http::router(Arc::clone(&app)))
            .with_graceful_shutdown(asked_to_end.clone().cancelled_owned());
        let mut server = tokio::spawn(server.into_future());
        tracing::info!(listen = %self.local_addr, id = %app.config.id, "the scheduler takes calls");

        let ended = tokio::select! {
            ended = &mut server => joined(ended.map(|served| served.map_err(SchedulerError::Serve))),
            Some(ended) = parts.join_next() => joined(ended),
            () = shutdown.cancelled() => Ok(()),
        };
        asked_to_end.cancel();
        if !server.is_finished() && tokio::time::timeout(grace, &mut server).await.is_err() {
            tracing::warn!(grace_s = grace.as_secs(), "requests were still under way when the grace period ended");
            server.abort();
        }
        stop.cancel();
        let drained = tokio::time::timeout(grace, async {
            while let Some(ended) = parts.join_next().await {
                if let Err(error) = joined(ended) {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "a part of the scheduler did not end well"
                    );
                }
            }
        });
        if drained.await.is_err() {
            // Unsettled deliveries come again.
            parts.shutdown().await;
        }
        ended
    }
}

/// [`Scheduler::bind`] and [`Scheduler::serve`] in one.
///
/// # Errors
/// As those two.
pub async fn run(
    config: SchedulerConfig,
    queue: Arc<dyn Queue>,
    records: Records,
    sealer: Sealer,
    shutdown: CancellationToken,
) -> Result<(), SchedulerError> {
    Scheduler::bind(config).await?.serve(queue, records, sealer, shutdown).await
}

fn joined(ended: Result<Result<(), SchedulerError>, JoinError>) -> Result<(), SchedulerError> {
    match ended {
        Ok(ended) => ended,
        Err(error) => Err(SchedulerError::Panic(error)),
    }
}

const PULSE_EVERY: Duration = Duration::from_secs(1);

async fn pulse(app: &App, stop: CancellationToken) {
    loop {
        app.health.progressed(now_ms());
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PULSE_EVERY) => {}
        }
    }
}
