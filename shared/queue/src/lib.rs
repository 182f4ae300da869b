//! The job queue: one trait, two makes.
//!
//! [`rabbitmq`] speaks AMQP 0-9-1 to a RabbitMQ of 3.10 or later; [`embedded`] keeps the same promises for one
//! process, in a file. What both promise is written as tests in `tests/contract.rs`, which run against each.
//!
//! The promises:
//! - A publish that returned `Ok` is on disk (with RabbitMQ: confirmed, and routed to a queue).
//! - A delivery that wasn't settled comes again, after its consumer or its process is gone.
//! - A rejected or expired message ends in [`QueueName::Dead`], with where it came from and why.
//! - At most `prefetch` deliveries of one consumer are unsettled at any time.
//! - A consumer survives the loss of its connection; while it has none, [`Queue::is_ready`] is false.
#![forbid(unsafe_code)]

pub mod embedded;
mod message;
pub mod rabbitmq;

pub use message::{DeadReason, Delivery, Depth, Died, Outgoing, PublishError, QueueError, SettleError, Settler};

use async_trait::async_trait;
use tokio::sync::mpsc;
use toolfleet_protocol::QueueName;

/// A queue that jobs, replies and metering events go through.
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// Puts one message on its queue and waits until it is safe there.
    ///
    /// # Errors
    /// On [`PublishError::Uncertain`] the message may be there or not: publish it again, its readers know it by
    /// its `message_id`. On every other error it isn't there.
    async fn publish(&self, message: Outgoing) -> Result<(), PublishError>;

    /// Starts to take messages off one queue, declaring it if need be.
    ///
    /// # Errors
    /// Where the queue can't be declared as the contract has it (one of that name exists with other arguments).
    /// A connection that is lost or not there yet is no error: the consumer goes on once it is.
    async fn consume(&self, from: QueueName, prefetch: u16) -> Result<Consumer, QueueError>;

    /// How much is on a queue. All zero for a queue that doesn't exist.
    async fn depth(&self, of: &QueueName) -> Result<Depth, QueueError>;

    /// True while publishing works and each consumer that was started has a live subscription.
    fn is_ready(&self) -> bool;

    /// Ends all consumers and connections, once what was asked before is done. Unsettled deliveries come again elsewhere.
    async fn close(&self);
}

/// Deliveries of one queue. Dropping it ends the subscription; deliveries already taken can still be settled.
#[derive(Debug)]
pub struct Consumer {
    deliveries: mpsc::Receiver<Delivery>,
}

impl Consumer {
    /// For makes of [`Queue`]: deliveries sent to the other end are given out here. The channel's bound must be
    /// the prefetch. The sender notices by `closed()` that the consumer was dropped or stopped.
    pub fn new(deliveries: mpsc::Receiver<Delivery>) -> Self {
        Self { deliveries }
    }

    /// The next delivery; `None` after [`Queue::close`] or [`Consumer::stop`].
    pub async fn next(&mut self) -> Option<Delivery> {
        self.deliveries.recv().await
    }

    /// As [`Consumer::next`], for those who wait for several consumers at once.
    pub fn poll_next(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Option<Delivery>> {
        self.deliveries.poll_recv(context)
    }

    /// Takes no more from the broker. What was already delivered still comes from [`Consumer::next`].
    pub fn stop(&mut self) {
        self.deliveries.close();
    }
}
