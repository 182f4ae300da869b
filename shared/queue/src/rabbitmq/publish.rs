//! Publishing: confirmed by the broker, and known to have reached a queue.
//!
//! An unroutable message is returned and still confirmed. The client hands a return to whichever confirm it resolves
//! next, which need not be that message's; where the broker confirms several at once, in no order. So one task per
//! connection collects the returns, knows each by its message's nonce, and answers a publisher only once the return
//! of its message, if there is one, must have been seen.

use super::connection::{Backoff, Connector, RECONNECT_WITHIN};
use super::topology::{self, DeclareError};
use crate::{Outgoing, PublishError};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, PublisherConfirm};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use toolfleet_protocol::{MAX_MESSAGE_BYTES, QueueName};

/// Messages under way to the broker; more publishers wait in their turn.
const IN_FLIGHT_MAX: usize = 4096;
const PERSISTENT: u8 = 2;
/// Some 49 days. The broker takes no longer expiry: it closes the channel, with all that is under way on it.
const EXPIRY_MAX_MS: u128 = u32::MAX as u128;
/// How often a connection that tells nothing is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Publishes over whichever connection there is.
pub struct Publisher {
    link: watch::Receiver<Option<Arc<Link>>>,
    timeout: Duration,
}

/// One connection's publishing side.
struct Link {
    connection: Connection,
    channel: Channel,
    /// Held while a message is sent and its confirm handed on, so that both are in one order.
    confirms: Mutex<mpsc::Sender<Waiting>>,
    /// Queues known to be there. No more than the contract has.
    declared: Mutex<HashSet<QueueName>>,
}

/// A message that is not confirmed yet.
struct Waiting {
    /// Unlike the message's own id, given once only.
    nonce: String,
    confirm: PublisherConfirm,
    answer: oneshot::Sender<Answer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Accepted,
    Unroutable,
    Refused,
}

impl Publisher {
    /// Publishes over `first`, and over a new connection whenever one breaks.
    pub async fn start(
        connector: Arc<Connector>,
        first: Connection,
        timeout: Duration,
        closing: CancellationToken,
    ) -> Self {
        let (sender, link) = watch::channel(None);
        let first = Link::open(first).await.ok().map(Arc::new);
        let _ = sender.send(first);
        // Ends when the queue is closed.
        tokio::spawn(supervise(connector, sender, closing));
        Self { link, timeout }
    }

    pub fn is_ready(&self) -> bool {
        self.link.borrow().as_ref().is_some_and(|link| {
            let status = link.connection.status();
            status.connected() && !status.blocked()
        })
    }

    pub async fn publish(&self, message: Outgoing) -> Result<(), PublishError> {
        if message.body.len() > MAX_MESSAGE_BYTES {
            return Err(PublishError::TooLong { bytes: message.body.len(), max: MAX_MESSAGE_BYTES });
        }
        let to = message.to.clone();
        let uncertain = || PublishError::Uncertain { to: to.clone(), waited: self.timeout };
        let link = self.connected().await.ok_or(PublishError::NotConnected)?;
        if topology::is_anybodys(&to) {
            link.declare(&to).await?;
        }
        let sent = tokio::time::timeout(self.timeout, link.send(message)).await;
        let answered = match sent {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => {
                tracing::debug!(%error, queue = %to, "a message could not be sent");
                return Err(uncertain());
            }
            Err(_) => return Err(uncertain()),
        };
        match tokio::time::timeout(self.timeout, answered).await {
            Ok(Ok(Answer::Accepted)) => Ok(()),
            Ok(Ok(Answer::Unroutable)) => {
                // Somebody has deleted it: the next publisher makes it anew.
                link.declared.lock().await.remove(&to);
                Err(PublishError::Unroutable(to))
            }
            Ok(Ok(Answer::Refused)) => Err(PublishError::Refused(to)),
            Ok(Err(_)) | Err(_) => Err(uncertain()),
        }
    }

    /// The link there is, or the next one if it comes in time.
    async fn connected(&self) -> Option<Arc<Link>> {
        let mut link = self.link.clone();
        let found = tokio::time::timeout(self.timeout, link.wait_for(Option::is_some)).await;
        found.ok()?.ok()?.clone()
    }

    pub async fn close(&self) {
        let link = self.link.borrow().clone();
        if let Some(link) = link {
            // It may be gone already.
            let _ = link.connection.close(200, "closing".into()).await;
        }
    }
}

impl Link {
    async fn open(connection: Connection) -> Result<Self, lapin::Error> {
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let (confirms, waiting) = mpsc::channel(IN_FLIGHT_MAX);
        // Ends with the link, whose sender it reads from.
        tokio::spawn(answer_confirms(waiting, channel.clone()));
        Ok(Self { connection, channel, confirms: Mutex::new(confirms), declared: Mutex::default() })
    }

    async fn declare(&self, name: &QueueName) -> Result<(), PublishError> {
        let mut declared = self.declared.lock().await;
        if declared.contains(name) {
            return Ok(());
        }
        match topology::declare(&self.connection, name).await {
            Ok(()) => {
                declared.insert(name.clone());
                Ok(())
            }
            Err(DeclareError::Conflict(error)) => {
                tracing::error!(%error, "a queue is not as it must be");
                Err(PublishError::Refused(name.clone()))
            }
            Err(DeclareError::Connection(_)) => Err(PublishError::NotConnected),
        }
    }

    async fn send(&self, message: Outgoing) -> Result<oneshot::Receiver<Answer>, lapin::Error> {
        let nonce = uuid::Uuid::new_v4().to_string();
        let (answer, answered) = oneshot::channel();
        let mut headers = FieldTable::default();
        for (name, value) in &message.headers {
            headers.insert(name.as_str().into(), AMQPValue::LongString(value.as_str().into()));
        }
        headers.insert(NONCE.into(), AMQPValue::LongString(nonce.as_str().into()));
        let mut properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_content_type("application/json".into())
            .with_message_id(message.message_id.as_str().into())
            .with_headers(headers);
        if let Some(expiry) = message.expires_in {
            let expiry_ms = expiry.as_millis().min(EXPIRY_MAX_MS);
            properties = properties.with_expiration(expiry_ms.to_string().into());
        }
        let options = BasicPublishOptions { mandatory: true, immediate: false };
        let key = message.to.to_string().into();
        let confirms = self.confirms.lock().await;
        let confirm = self.channel.basic_publish("".into(), key, options, &message.body, properties).await?;
        // Whoever reads them has ended only if the connection has; then nobody answers, and the publisher learns that.
        let _ = confirms.send(Waiting { nonce, confirm, answer }).await;
        Ok(answered)
    }
}

/// Tells returned messages apart, also those of one id that is published twice.
pub const NONCE: &str = "x-toolfleet-nonce";

/// A message whose confirm is there.
struct Confirmed {
    nonce: String,
    answer: oneshot::Sender<Answer>,
    confirmation: lapin::Result<Confirmation>,
}

async fn answer_confirms(mut waiting: mpsc::Receiver<Waiting>, channel: Channel) {
    let mut confirms = FuturesUnordered::new();
    // Returns that came with another message's confirm. Each is taken by its own.
    let mut returned: HashSet<String> = HashSet::new();
    let mut open = true;
    while open || !confirms.is_empty() {
        let first = tokio::select! {
            biased;
            next = waiting.recv(), if open => {
                match next {
                    Some(Waiting { nonce, confirm, answer }) => confirms.push(async move {
                        let confirmation = confirm.await;
                        Confirmed { nonce, answer, confirmation }
                    }),
                    None => open = false,
                }
                continue;
            },
            Some(first) = confirms.next(), if !confirms.is_empty() => first,
        };
        let mut undecided = vec![first];
        note_returns(&undecided, &mut returned);
        while !undecided.is_empty() {
            wait_for_hand_out(&channel);
            let mut later = Vec::new();
            while let Some(Some(next)) = confirms.next().now_or_never() {
                later.push(next);
            }
            note_returns(&later, &mut returned);
            for confirmed in undecided {
                decide(confirmed, &mut returned);
            }
            // What was handed out since then may have its return still to come.
            undecided = later;
        }
    }
}

/// Returns once the client has handed out everything of the broker's ack that it is working on.
///
/// The client holds a lock while it resolves the confirms that one ack covers, and looking for the last of those that
/// are pending takes that lock too. Nothing is waited for beyond it.
fn wait_for_hand_out(channel: &Channel) {
    let _ = channel.wait_for_confirms().now_or_never();
}

fn note_returns(confirmed: &[Confirmed], returned: &mut HashSet<String>) {
    for one in confirmed {
        if let Ok(Confirmation::Ack(Some(back)) | Confirmation::Nack(Some(back))) = &one.confirmation {
            returned.extend(nonce_of(&back.delivery.properties));
        }
    }
}

/// Answers the publisher, who may have stopped waiting.
fn decide(confirmed: Confirmed, returned: &mut HashSet<String>) {
    let told = match confirmed.confirmation {
        Ok(Confirmation::Ack(_)) if returned.remove(&confirmed.nonce) => Answer::Unroutable,
        Ok(Confirmation::Ack(_)) => Answer::Accepted,
        Ok(Confirmation::Nack(_)) => Answer::Refused,
        // The connection broke: nobody knows. Dropping the sender says so.
        Ok(Confirmation::NotRequested) | Err(_) => return,
    };
    let _ = confirmed.answer.send(told);
}

fn nonce_of(properties: &BasicProperties) -> Option<String> {
    match properties.headers().as_ref()?.inner().get(NONCE)? {
        AMQPValue::LongString(text) => Some(text.to_string()),
        _ => None,
    }
}

/// Keeps a link up until the queue is closed.
async fn supervise(connector: Arc<Connector>, sender: watch::Sender<Option<Arc<Link>>>, closing: CancellationToken) {
    let mut backoff = Backoff::default();
    loop {
        let link = sender.borrow().clone();
        if let Some(link) = link {
            tokio::select! {
                () = closing.cancelled() => return,
                () = broken(&link) => {}
            }
            tracing::warn!("the connection for publishing is gone and is made anew");
            let _ = sender.send(None);
        }
        tokio::select! {
            () = closing.cancelled() => return,
            () = tokio::time::sleep(backoff.next_wait()) => {}
        }
        let opened = match connector.connect("publish", RECONNECT_WITHIN).await {
            Ok(connection) => Link::open(connection).await.map_err(|error| connector.unreachable(&error)),
            Err(error) => Err(error),
        };
        match opened {
            Ok(link) => {
                backoff.reset();
                let _ = sender.send(Some(Arc::new(link)));
            }
            Err(error) => tracing::warn!(%error, "no connection for publishing yet"),
        }
    }
}

async fn broken(link: &Link) {
    let mut events = std::pin::pin!(link.connection.events_listener());
    while link.connection.status().connected() && link.channel.status().connected() {
        tokio::select! {
            event = events.next() => match event {
                Some(lapin::Event::Error(_)) | None => return,
                Some(_) => {}
            },
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}
