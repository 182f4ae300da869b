//! Messages on their way in and out.

use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use toolfleet_protocol::QueueName;

/// A message to be published.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub to: QueueName,
    /// Names the message for its readers, who may get it twice. A call's id, as a rule.
    pub message_id: String,
    pub body: Bytes,
    /// Text headers, trace context among them.
    pub headers: BTreeMap<String, String>,
    /// Waiting longer than this, it goes to the dead letters.
    pub expires_in: Option<Duration>,
}

/// A message that was delivered and waits to be settled. Dropped unsettled, it is given back to the queue.
pub struct Delivery {
    pub from: QueueName,
    /// `None` on foreign messages.
    pub message_id: Option<String>,
    pub body: Bytes,
    /// Those headers that are text.
    pub headers: BTreeMap<String, String>,
    /// It may have been delivered before.
    pub redelivered: bool,
    /// On dead letters: where it died, and of what.
    pub died: Option<Died>,
    settler: Option<Arc<dyn Settler>>,
    tag: u64,
}

/// Where and why a message was dead-lettered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Died {
    /// The name of the queue it was on.
    pub queue: String,
    pub reason: DeadReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadReason {
    Expired,
    Rejected,
    /// Any other reason that a broker may give: a length or delivery limit set by a policy.
    Other,
}

/// How many messages a queue holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depth {
    /// Waiting to be delivered.
    pub ready: u64,
    /// Subscriptions to it.
    pub consumers: u32,
}

impl Delivery {
    /// For makes of [`crate::Queue`]: `tag` is what `settler` knows the delivery by.
    pub fn new(from: QueueName, body: Bytes, settler: Arc<dyn Settler>, tag: u64) -> Self {
        Self {
            from,
            message_id: None,
            body,
            headers: BTreeMap::new(),
            redelivered: false,
            died: None,
            settler: Some(settler),
            tag,
        }
    }

    /// It is done with, and won't come again.
    ///
    /// # Errors
    /// When the connection that brought it is gone: it will come again, and its reader must know it.
    pub async fn ack(mut self) -> Result<(), SettleError> {
        match self.settler.take() {
            Some(settler) => settler.ack(self.tag).await,
            None => Ok(()),
        }
    }

    /// It can't be worked on: to the dead letters.
    pub async fn reject(mut self) -> Result<(), SettleError> {
        match self.settler.take() {
            Some(settler) => settler.reject(self.tag).await,
            None => Ok(()),
        }
    }

    /// Somebody else shall have it, at once.
    pub async fn requeue(mut self) -> Result<(), SettleError> {
        match self.settler.take() {
            Some(settler) => settler.requeue(self.tag).await,
            None => Ok(()),
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(settler) = self.settler.take() {
            settler.abandon(self.tag);
        }
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("from", &self.from)
            .field("message_id", &self.message_id)
            .field("bytes", &self.body.len())
            .field("redelivered", &self.redelivered)
            .field("died", &self.died)
            .finish_non_exhaustive()
    }
}

/// Settles the deliveries of one subscription.
#[async_trait]
pub trait Settler: Send + Sync + 'static {
    async fn ack(&self, tag: u64) -> Result<(), SettleError>;
    async fn reject(&self, tag: u64) -> Result<(), SettleError>;
    async fn requeue(&self, tag: u64) -> Result<(), SettleError>;
    /// As `requeue`, where nobody can wait for it.
    fn abandon(&self, tag: u64);
}

/// Why a message isn't known to be on its queue.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error("there is no queue {0}")]
    Unroutable(QueueName),
    #[error("queue {0} is full or refuses messages")]
    Refused(QueueName),
    #[error("the message has {bytes} bytes, more than {max}")]
    TooLong { bytes: usize, max: usize },
    #[error("the queue is not connected")]
    NotConnected,
    #[error("the connection broke, or nothing was heard for {waited:?}, before the message for {to} was confirmed")]
    Uncertain { to: QueueName, waited: Duration },
}

/// Why a delivery could not be settled.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    #[error("the connection that brought the delivery is gone; it will be delivered again")]
    Gone,
}

/// Why a queue can't be used.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    #[error("queue {queue} can't be declared: {reason}")]
    Declare { queue: QueueName, reason: String },
    #[error("cannot reach the queue at {at}: {reason}")]
    Unreachable { at: String, reason: String },
    #[error("the queue's file {path}: {reason}")]
    File { path: String, reason: String },
    #[error("{field}: {reason}")]
    Config { field: &'static str, reason: String },
}
