//! `/livez` and `/readyz` of a worker.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use toolfleet_queue::Queue;
use toolfleet_store::records::Records;

/// What readiness depends on.
#[derive(Clone)]
pub struct Health {
    pub queue: Arc<dyn Queue>,
    pub records: Records,
}

/// A store that takes longer is not one to work with.
const STORE_WAIT: Duration = Duration::from_secs(2);

/// Serves until told to stop.
pub async fn serve(listen: SocketAddr, health: Health, stopping: CancellationToken) -> std::io::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    let router = Router::new().route("/livez", get(|| async { "alive\n" })).route("/readyz", get(ready));
    let router = router.with_state(health);
    // Ends with the worker.
    tokio::spawn(async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(stopping.cancelled_owned()).await;
        if let Err(error) = served {
            tracing::error!(%error, "health checks are no longer served");
        }
    });
    Ok(())
}

async fn ready(State(health): State<Health>) -> (StatusCode, &'static str) {
    if !health.queue.is_ready() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the queue is not connected\n");
    }
    match tokio::time::timeout(STORE_WAIT, health.records.store().ping()).await {
        Ok(Ok(())) => (StatusCode::OK, "ready\n"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n"),
    }
}
