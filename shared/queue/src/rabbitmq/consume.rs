//! Consuming: one supervised subscription for each consumer, all on one connection.

use super::connection::{Backoff, Connector, RECONNECT_WITHIN};
use super::publish::NONCE;
use super::topology::{self, DeclareError};
use crate::{Consumer, DeadReason, Delivery, Died, QueueError, SettleError, Settler};
use async_trait::async_trait;
use futures::StreamExt;
use lapin::options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use toolfleet_protocol::QueueName;

/// How often an idle subscription is looked after. A broker may delete a queue without telling its consumers, who
/// would wait for ever; so long they do.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// All subscriptions, and the connection that they share.
pub struct Subscriptions {
    shared: Arc<Shared>,
    /// Whether each subscription is live; those of dropped consumers are gone.
    states: std::sync::Mutex<Vec<Weak<AtomicBool>>>,
    closing: CancellationToken,
}

struct Shared {
    connector: Arc<Connector>,
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
}

impl Subscriptions {
    pub fn new(connector: Arc<Connector>, closing: CancellationToken) -> Self {
        let shared = Arc::new(Shared { connector, connection: tokio::sync::Mutex::default() });
        Self { shared, states: std::sync::Mutex::default(), closing }
    }

    pub async fn connection(&self) -> Result<Arc<Connection>, QueueError> {
        self.shared.connection().await
    }

    pub fn are_live(&self) -> bool {
        let mut states = self.states.lock().expect("nothing panics while it is held");
        states.retain(|state| state.strong_count() > 0);
        states.iter().all(|state| state.upgrade().is_none_or(|state| state.load(Ordering::Relaxed)))
    }

    pub async fn consume(&self, from: QueueName, prefetch: u16) -> Result<Consumer, QueueError> {
        // A queue of another form is told at once; a connection that isn't there is waited for.
        if let Ok(connection) = self.connection().await
            && let Err(DeclareError::Conflict(error)) = topology::declare(&connection, &from).await
        {
            return Err(error);
        }
        let (sender, deliveries) = mpsc::channel(usize::from(prefetch.max(1)));
        let live = Arc::new(AtomicBool::new(false));
        self.states.lock().expect("nothing panics while it is held").push(Arc::downgrade(&live));
        let subscription = Subscription {
            shared: Arc::clone(&self.shared),
            from,
            prefetch,
            sender,
            live,
            closing: self.closing.clone(),
        };
        // Ends when its consumer is dropped or stopped, or the queue is closed.
        tokio::spawn(subscription.supervise());
        Ok(Consumer::new(deliveries))
    }

    pub async fn close(&self) {
        let connection = self.shared.connection.lock().await.take();
        if let Some(connection) = connection {
            // It may be gone already. Unsettled deliveries go back to their queues.
            let _ = connection.close(200, "closing".into()).await;
        }
    }
}

impl Shared {
    /// The connection, made anew if it is gone.
    async fn connection(&self) -> Result<Arc<Connection>, QueueError> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = connection.as_ref().filter(|connection| connection.status().connected()) {
            return Ok(Arc::clone(connection));
        }
        let made = Arc::new(self.connector.connect("consume", RECONNECT_WITHIN).await?);
        *connection = Some(Arc::clone(&made));
        Ok(made)
    }
}

struct Subscription {
    shared: Arc<Shared>,
    from: QueueName,
    prefetch: u16,
    sender: mpsc::Sender<Delivery>,
    live: Arc<AtomicBool>,
    closing: CancellationToken,
}

impl Subscription {
    async fn supervise(self) {
        let mut backoff = Backoff::default();
        loop {
            let ended = self.subscribe(&mut backoff).await;
            self.live.store(false, Ordering::Relaxed);
            if self.sender.is_closed() || self.closing.is_cancelled() {
                return;
            }
            match ended {
                // The broker ended it: the queue was deleted, or its leader moved.
                Ok(()) => tracing::warn!(queue = %self.from, "the subscription ended and is made anew"),
                Err(error) => tracing::warn!(queue = %self.from, %error, "no subscription yet"),
            }
            tokio::select! {
                () = self.closing.cancelled() => return,
                () = self.sender.closed() => return,
                () = tokio::time::sleep(backoff.next_wait()) => {}
            }
        }
    }

    /// Subscribes and hands deliveries on, until the subscription or the consumer ends.
    async fn subscribe(&self, backoff: &mut Backoff) -> Result<(), QueueError> {
        let unreachable = |error: lapin::Error| self.shared.connector.unreachable(&error);
        let connection = self.shared.connection().await?;
        topology::declare(&connection, &self.from).await.map_err(|error| match error {
            DeclareError::Conflict(error) => error,
            DeclareError::Connection(error) => unreachable(error),
        })?;
        let channel = connection.create_channel().await.map_err(unreachable)?;
        channel.basic_qos(self.prefetch.max(1), BasicQosOptions::default()).await.map_err(unreachable)?;
        let options = BasicConsumeOptions::default();
        let tag = uuid::Uuid::new_v4().to_string();
        let mut consumer = channel
            .basic_consume(self.from.to_string().into(), tag.as_str().into(), options, FieldTable::default())
            .await
            .map_err(unreachable)?;
        self.live.store(true, Ordering::Relaxed);
        backoff.reset();
        // The settler keeps both open for as long as a delivery of theirs waits to be settled.
        let settler: Arc<dyn Settler> =
            Arc::new(ChannelSettler { channel: channel.clone(), _connection: Arc::clone(&connection) });
        let mut ending = false;
        let mut looks = tokio::time::interval_at(tokio::time::Instant::now() + LOOK_EVERY, LOOK_EVERY);
        let (mut idle, mut passed_over) = (true, false);
        loop {
            let delivery = tokio::select! {
                delivery = consumer.next() => delivery,
                () = self.sender.closed(), if !ending => {
                    ending = true;
                    // What is on its way still comes, and is given back.
                    if channel.basic_cancel(tag.as_str().into(), BasicCancelOptions::default()).await.is_err() {
                        return Ok(());
                    }
                    continue;
                }
                _ = looks.tick(), if !ending => {
                    // Each delivery in hand holds the settler too.
                    if std::mem::replace(&mut idle, true) && Arc::strong_count(&settler) == 1 {
                        let depth = topology::depth(&connection, &self.from).await.map_err(unreachable)?;
                        // Messages lie there, and one that could take them all gets none: twice, to be sure.
                        let passed_before = std::mem::replace(&mut passed_over, depth.ready > 0);
                        if depth.consumers == 0 || (passed_over && passed_before) {
                            // It may be gone already.
                            let _ = channel.close(200, "the subscription is lost".into()).await;
                            return Ok(());
                        }
                    }
                    continue;
                }
                () = self.closing.cancelled() => return Ok(()),
            };
            match delivery {
                Some(Ok(delivery)) => {
                    (idle, passed_over) = (false, false);
                    let delivery = convert(&self.from, delivery, &settler);
                    // Never full: its bound is the prefetch. Closed: the delivery is dropped, and so given back.
                    let _ = self.sender.send(delivery).await;
                }
                Some(Err(error)) => return Err(unreachable(error)),
                None => return Ok(()),
            }
        }
    }
}

fn convert(from: &QueueName, delivery: lapin::message::Delivery, settler: &Arc<dyn Settler>) -> Delivery {
    let mut headers = BTreeMap::new();
    if let Some(table) = delivery.properties.headers() {
        // The nonce is the publisher's own, and nothing to its reader.
        for (name, value) in table.inner().iter().filter(|(name, _)| name.as_str() != NONCE) {
            let text = match value {
                AMQPValue::LongString(text) => text.to_string(),
                AMQPValue::ShortString(text) => text.to_string(),
                _ => continue,
            };
            headers.insert(name.to_string(), text);
        }
    }
    let died = headers.get("x-first-death-queue").map(|queue| Died {
        queue: queue.clone(),
        reason: match headers.get("x-first-death-reason").map(String::as_str) {
            Some("expired") => DeadReason::Expired,
            Some("rejected") => DeadReason::Rejected,
            _ => DeadReason::Other,
        },
    });
    let mut converted = Delivery::new(from.clone(), delivery.data.into(), Arc::clone(settler), delivery.delivery_tag);
    converted.message_id = delivery.properties.message_id().as_ref().map(ToString::to_string);
    converted.headers = headers;
    converted.redelivered = delivery.redelivered;
    converted.died = died;
    converted
}

/// Settles deliveries of one subscription's channel; tags mean nothing on any other.
struct ChannelSettler {
    channel: Channel,
    _connection: Arc<Connection>,
}

#[async_trait]
impl Settler for ChannelSettler {
    async fn ack(&self, tag: u64) -> Result<(), SettleError> {
        self.channel.basic_ack(tag, BasicAckOptions::default()).await.map_err(|_| SettleError::Gone)
    }

    async fn reject(&self, tag: u64) -> Result<(), SettleError> {
        let options = BasicNackOptions { multiple: false, requeue: false };
        self.channel.basic_nack(tag, options).await.map_err(|_| SettleError::Gone)
    }

    async fn requeue(&self, tag: u64) -> Result<(), SettleError> {
        let options = BasicNackOptions { multiple: false, requeue: true };
        self.channel.basic_nack(tag, options).await.map_err(|_| SettleError::Gone)
    }

    fn abandon(&self, tag: u64) {
        let channel = self.channel.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // Ends with the frame sent. Where the channel is gone, the broker has the delivery back already.
            runtime.spawn(async move {
                let options = BasicNackOptions { multiple: false, requeue: true };
                let _ = channel.basic_nack(tag, options).await;
            });
        }
    }
}
