//! RabbitMQ, 3.10 or later.
//!
//! The client's own recovery is not used: it can hang, and it can hand out a delivery anew under its old tag while
//! the job of the first is still running. Instead each connection is supervised here: when it breaks, everything of
//! it is thrown away and made anew, after a jittered wait. Publishing and consuming have a connection each, since a
//! broker that runs short of memory blocks connections that publish, and acks must go on.

mod connection;
mod consume;
mod publish;
mod topology;

use crate::{Consumer, Depth, Outgoing, PublishError, Queue, QueueError};
use async_trait::async_trait;
use connection::Connector;
use consume::Subscriptions;
use publish::Publisher;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use toolfleet_protocol::QueueName;

/// `[queue]` with `kind = "rabbitmq"`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RabbitMqConfig {
    /// `amqp://user:password@host:port/virtual-host`, or `amqps:` for TLS.
    pub url: String,
    /// A message that isn't confirmed by then may be there or not.
    #[serde(default = "default_publish_timeout_ms")]
    pub publish_timeout_ms: u64,
    /// The first connection must be there by then.
    #[serde(default = "default_connect_timeout_ms")]
    pub connect_timeout_ms: u64,
    /// Silence of twice this long means that the other side is gone.
    #[serde(default = "default_heartbeat_s")]
    pub heartbeat_s: u16,
}

fn default_publish_timeout_ms() -> u64 {
    10_000
}

fn default_connect_timeout_ms() -> u64 {
    10_000
}

fn default_heartbeat_s() -> u16 {
    10
}

/// A broker, connected to for as long as this lives.
pub struct RabbitMq {
    connector: Arc<Connector>,
    publisher: Publisher,
    subscriptions: Subscriptions,
    closing: CancellationToken,
}

impl RabbitMq {
    /// Connects; from then on connections are made anew by themselves.
    ///
    /// # Errors
    /// Where the URL isn't one or nobody answers there in time. No error holds the password.
    pub async fn connect(config: RabbitMqConfig) -> Result<Self, QueueError> {
        let closing = CancellationToken::new();
        let connector = Arc::new(Connector::new(&config)?);
        let first = connector.connect("publish", Duration::from_millis(config.connect_timeout_ms)).await?;
        let timeout = Duration::from_millis(config.publish_timeout_ms);
        let publisher = Publisher::start(Arc::clone(&connector), first, timeout, closing.clone()).await;
        let subscriptions = Subscriptions::new(Arc::clone(&connector), closing.clone());
        Ok(Self { connector, publisher, subscriptions, closing })
    }
}

#[async_trait]
impl Queue for RabbitMq {
    async fn publish(&self, message: Outgoing) -> Result<(), PublishError> {
        self.publisher.publish(message).await
    }

    async fn consume(&self, from: QueueName, prefetch: u16) -> Result<Consumer, QueueError> {
        self.subscriptions.consume(from, prefetch).await
    }

    async fn depth(&self, of: &QueueName) -> Result<Depth, QueueError> {
        let connection = self.subscriptions.connection().await?;
        topology::depth(&connection, of).await.map_err(|error| self.connector.unreachable(&error))
    }

    fn is_ready(&self) -> bool {
        !self.closing.is_cancelled() && self.publisher.is_ready() && self.subscriptions.are_live()
    }

    async fn close(&self) {
        self.closing.cancel();
        self.publisher.close().await;
        self.subscriptions.close().await;
    }
}
