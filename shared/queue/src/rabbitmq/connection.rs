//! Connections, and how long to wait for the next one.

use super::RabbitMqConfig;
use crate::QueueError;
use lapin::uri::AMQPUri;
use lapin::{Connection, ConnectionProperties};
use rand::Rng;
use std::time::Duration;

/// Makes connections to one broker.
pub struct Connector {
    uri: AMQPUri,
    /// Where it is, without user and password.
    at: String,
}

impl Connector {
    pub fn new(config: &RabbitMqConfig) -> Result<Self, QueueError> {
        let mut uri: AMQPUri = config.url.parse().map_err(|_| QueueError::Config {
            field: "queue.url",
            reason: "must be amqp://user:password@host:port/virtual-host or amqps://…".into(),
        })?;
        uri.query.heartbeat = Some(config.heartbeat_s);
        let at = format!("{}:{}/{}", uri.authority.host, uri.authority.port, uri.vhost);
        Ok(Self { uri, at })
    }

    /// One connection, named after what it is for.
    pub async fn connect(&self, purpose: &str, within: Duration) -> Result<Connection, QueueError> {
        let name = format!("toolfleet {purpose}");
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        match tokio::time::timeout(within, Connection::connect_uri(self.uri.clone(), properties)).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(self.unreachable(&error)),
            Err(_) => {
                Err(QueueError::Unreachable { at: self.at.clone(), reason: format!("no answer within {within:?}") })
            }
        }
    }

    pub fn unreachable(&self, error: &lapin::Error) -> QueueError {
        QueueError::Unreachable { at: self.at.clone(), reason: error.to_string() }
    }
}

/// A reconnecting connection must be there by then; else it is tried again.
pub const RECONNECT_WITHIN: Duration = Duration::from_secs(10);

const WAIT_FIRST: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Longer and longer waits, each somewhere between half of itself and all, so that many clients of one broker
/// don't come back at once.
#[derive(Default)]
pub struct Backoff {
    tries: u32,
}

impl Backoff {
    pub fn reset(&mut self) {
        self.tries = 0;
    }

    pub fn next_wait(&mut self) -> Duration {
        let wait = WAIT_FIRST.saturating_mul(1 << self.tries.min(10)).min(WAIT_MAX);
        self.tries = self.tries.saturating_add(1);
        wait.mul_f64(rand::rng().random_range(0.5..=1.0))
    }
}
