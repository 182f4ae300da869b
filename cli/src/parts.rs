//! The queue and the store that a configuration asks for.

use crate::config::{Config, QueueConfig, StoreConfig};
use crate::exit::{unreachable, wrong};
use anyhow::{Context, Result, anyhow};
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use toolfleet_queue::Queue;
use toolfleet_queue::embedded::EmbeddedQueue;
use toolfleet_queue::rabbitmq::RabbitMq;
use toolfleet_store::Store;
use toolfleet_store::embedded::EmbeddedStore;
use toolfleet_store::records::Records;
use toolfleet_store::redis::RedisStore;

/// The file of the embedded store and queue, in the data folder.
const FILE: &str = "toolfleet.redb";

/// Queue and store in one file of this folder.
pub async fn embedded(folder: &Path) -> Result<(Arc<dyn Queue>, Records)> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the data folder {}", folder.display()))
        .map_err(wrong)?;
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&folder.join(FILE)).map_err(unreachable)?);
    let queue = EmbeddedQueue::open(Arc::clone(&store)).await.map_err(unreachable)?;
    Ok((Arc::new(queue), Records::new(store)))
}

/// The broker and the store of the configuration.
pub async fn connected(config: &Config) -> Result<(Arc<dyn Queue>, Records)> {
    let missing = |section: &str, example: &str| {
        wrong(anyhow!("this role needs [{section}]: give a --config file with\n\n[{section}]\n{example}\n"))
    };
    let Some(QueueConfig::Rabbitmq(queue)) = config.queue.clone() else {
        return Err(missing("queue", "kind = \"rabbitmq\"\nurl = \"amqp://user:password@host:5672/%2f\""));
    };
    let Some(StoreConfig::Redis(store)) = config.store.clone() else {
        return Err(missing("store", "kind = \"redis\"\nurl = \"redis://host:6379/\""));
    };
    let store: Arc<dyn Store> = Arc::new(RedisStore::connect(store).await.map_err(unreachable)?);
    let queue: Arc<dyn Queue> = Arc::new(RabbitMq::connect(queue).await.map_err(unreachable)?);
    Ok((queue, Records::new(store)))
}

/// Cancelled when the process is asked to end.
pub fn shutdown() -> Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let token = CancellationToken::new();
    let asked = token.clone();
    // Ends with the process; a second signal ends it at once.
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        asked.cancel();
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        std::process::exit(130);
    });
    Ok(token)
}
