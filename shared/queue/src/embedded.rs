//! A queue for one process, kept in the store.
//!
//! What is on the queues is in memory, in the order of delivery; each message is in the store too before its publish
//! returns, and until it is settled. A process that starts again finds what the last one left unsettled.

use crate::{
    Consumer, DeadReason, Delivery, Depth, Died, Outgoing, PublishError, Queue, QueueError, SettleError, Settler,
};
use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use toolfleet_protocol::{MAX_MESSAGE_BYTES, QueueName};
use toolfleet_store::{Key, Op, Reply, Store, StoreError, Transacted, Transaction};

/// Messages on one queue before it refuses more: backpressure instead of growth.
const LENGTH_MAX: usize = 200_000;
/// Bytes of all messages in memory before every queue refuses more.
const BYTES_MAX: usize = 512 * 1024 * 1024;
/// How long an expired message may lie before it is noticed.
const EXPIRY_LOOK_EVERY: Duration = Duration::from_millis(100);

/// Queues in the store.
pub struct EmbeddedQueue {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    queues: Mutex<Queues>,
    closing: CancellationToken,
}

#[derive(Default)]
struct Queues {
    by_name: HashMap<String, OneQueue>,
    next_sequence: u64,
    bytes: usize,
}

#[derive(Default)]
struct OneQueue {
    /// By the number of their publishing, which is the order of delivery; what comes back takes its old place.
    ready: BTreeMap<u64, Arc<Message>>,
    /// Those of `ready` that expire, by when.
    expiring: BTreeSet<(u64, u64)>,
    unsettled: HashMap<u64, Unsettled>,
    consumers: u32,
    /// Its name is in the store. Until then whoever publishes to it sees to that.
    remembered: bool,
    arrived: Arc<Notify>,
}

struct Unsettled {
    message: Arc<Message>,
    /// Frees a place of the consumer's prefetch when dropped.
    _place: OwnedSemaphorePermit,
}

struct Message {
    head: Head,
    body: Bytes,
    delivered_before: std::sync::atomic::AtomicBool,
}

/// What is kept of a message besides its body.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    message_id: Option<String>,
    headers: BTreeMap<String, String>,
    #[serde(default)]
    expires_at_ms: Option<u64>,
    #[serde(default)]
    died: Option<Death>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Death {
    queue: String,
    expired: bool,
}

impl EmbeddedQueue {
    /// Takes up what is in the store.
    pub async fn open(store: Arc<dyn Store>) -> Result<Self, QueueError> {
        let failed = |error: StoreError| QueueError::File { path: "the store".into(), reason: error.to_string() };
        let mut queues = Queues::default();
        let names = ask(&*store, Op::FieldsGet(names_key())).await.map_err(failed)?;
        let Reply::Fields(names) = names else { return Err(corrupt("the list of queues")) };
        for (name, _) in names {
            let messages = ask(&*store, Op::FieldsGet(messages_key(&name))).await.map_err(failed)?;
            let Reply::Fields(messages) = messages else { return Err(corrupt(&name)) };
            let queue = queues.by_name.entry(name.clone()).or_default();
            queue.remembered = true;
            for (sequence, stored) in messages {
                let sequence: u64 = sequence.parse().map_err(|_| corrupt(&name))?;
                let message = Message::decode(&stored).ok_or_else(|| corrupt(&name))?;
                message.delivered_before.store(true, std::sync::atomic::Ordering::Relaxed);
                queues.next_sequence = queues.next_sequence.max(sequence + 1);
                queues.bytes += message.body.len();
                queue.put(sequence, Arc::new(message));
            }
        }
        let inner = Arc::new(Inner { store, queues: Mutex::new(queues), closing: CancellationToken::new() });
        // Ends when the queue is closed or dropped.
        tokio::spawn(bury_expired(Arc::downgrade(&inner), inner.closing.clone()));
        Ok(Self { inner })
    }
}

fn corrupt(name: &str) -> QueueError {
    QueueError::File {
        path: "the store".into(),
        reason: format!("what is kept of {name} is not in the form that this version writes"),
    }
}

async fn ask(store: &dyn Store, op: Op) -> Result<Reply, StoreError> {
    let transaction = Transaction { then: vec![op], ..Transaction::default() };
    match store.transact(transaction).await? {
        Transacted::Then(mut replies) if replies.len() == 1 => Ok(replies.remove(0)),
        _ => Err(StoreError::Corrupt { record: "the store's answer".into(), reason: "not one reply".into() }),
    }
}

fn names_key() -> Key {
    Key::new("queues", "names")
}

fn messages_key(name: &str) -> Key {
    Key::new(&format!("queue:{name}"), "messages")
}

/// Fields sort as their numbers do.
fn field(sequence: u64) -> String {
    format!("{sequence:020}")
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Message {
    fn new(head: Head, body: Bytes) -> Self {
        Self { head, body, delivered_before: false.into() }
    }

    /// Length of the head, head, body.
    fn encode(&self) -> Bytes {
        let head = serde_json::to_vec(&self.head).expect("a head has only string keys");
        let length = u32::try_from(head.len()).expect("a head is short");
        [&length.to_le_bytes()[..], &head, &self.body].concat().into()
    }

    fn decode(stored: &Bytes) -> Option<Self> {
        let length = u32::from_le_bytes(*stored.first_chunk::<4>()?) as usize;
        let head = serde_json::from_slice(stored.get(4..4 + length)?).ok()?;
        Some(Self::new(head, stored.slice(4 + length..)))
    }
}

impl OneQueue {
    fn put(&mut self, sequence: u64, message: Arc<Message>) {
        if let Some(expires) = message.head.expires_at_ms {
            self.expiring.insert((expires, sequence));
        }
        self.ready.insert(sequence, message);
        self.arrived.notify_one();
    }

    fn take_first(&mut self, now_ms: u64) -> Option<(u64, Arc<Message>)> {
        let first = self.ready.iter().find(|(_, message)| message.head.expires_at_ms.is_none_or(|at| at > now_ms))?;
        let sequence = *first.0;
        self.take(sequence).map(|message| (sequence, message))
    }

    fn take(&mut self, sequence: u64) -> Option<Arc<Message>> {
        let message = self.ready.remove(&sequence)?;
        if let Some(expires) = message.head.expires_at_ms {
            self.expiring.remove(&(expires, sequence));
        }
        Some(message)
    }
}

impl Inner {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().expect("nothing panics while it is held")
    }

    /// Keeps a message and puts it on its queue.
    async fn put(&self, name: &QueueName, message: Message) -> Result<(), PublishError> {
        let text = name.to_string();
        let remembered = {
            let mut queues = self.queues();
            let known = queues.by_name.contains_key(&text);
            if !known && matches!(name, QueueName::Replies(_)) {
                return Err(PublishError::Unroutable(name.clone()));
            }
            let full = queues.bytes + message.body.len() > BYTES_MAX;
            let queue = queues.by_name.entry(text.clone()).or_default();
            if full || queue.ready.len() + queue.unsettled.len() >= LENGTH_MAX {
                return Err(PublishError::Refused(name.clone()));
            }
            queue.remembered
        };
        if !remembered {
            self.remember(&text).await.map_err(|_| PublishError::NotConnected)?;
        }
        let sequence = {
            let mut queues = self.queues();
            queues.next_sequence += 1;
            queues.next_sequence
        };
        let fields = vec![(field(sequence), message.encode())];
        let kept = ask(&*self.store, Op::FieldsSet { key: messages_key(&text), fields }).await;
        if let Err(error) = kept {
            tracing::error!(%error, queue = text, "a message could not be kept");
            return Err(PublishError::Uncertain { to: name.clone(), waited: Duration::ZERO });
        }
        let mut queues = self.queues();
        queues.bytes += message.body.len();
        queues.by_name.entry(text).or_default().put(sequence, Arc::new(message));
        Ok(())
    }

    /// A queue's name is kept, so that the next process looks for its messages.
    async fn remember(&self, name: &str) -> Result<(), StoreError> {
        let fields = vec![(name.to_owned(), Bytes::new())];
        ask(&*self.store, Op::FieldsSet { key: names_key(), fields }).await?;
        self.queues().by_name.entry(name.to_owned()).or_default().remembered = true;
        Ok(())
    }

    async fn forget(&self, name: &str, sequence: u64) -> Result<(), StoreError> {
        ask(&*self.store, Op::FieldDelete { key: messages_key(name), field: field(sequence) }).await.map(drop)
    }

    /// Moves a message to the dead letters: there first, so that a crash between leaves it twice rather than lost.
    async fn bury(&self, name: &str, sequence: u64, message: &Message, expired: bool) -> Result<(), SettleError> {
        let died = Some(Death { queue: name.to_owned(), expired });
        let head = Head { expires_at_ms: None, died, ..message.head.clone() };
        self.put(&QueueName::Dead, Message::new(head, message.body.clone())).await.map_err(|error| {
            tracing::error!(%error, queue = name, "a message could not be moved to the dead letters");
            SettleError::Gone
        })?;
        self.drop_message(name, sequence, message).await
    }

    async fn drop_message(&self, name: &str, sequence: u64, message: &Message) -> Result<(), SettleError> {
        {
            let mut queues = self.queues();
            queues.bytes = queues.bytes.saturating_sub(message.body.len());
        }
        self.forget(name, sequence).await.map_err(|error| {
            // It comes again when the process starts anew; its readers know it by its id.
            tracing::error!(%error, queue = name, "a settled message could not be taken off the store");
            SettleError::Gone
        })
    }
}

#[async_trait]
impl Queue for EmbeddedQueue {
    async fn publish(&self, message: Outgoing) -> Result<(), PublishError> {
        if message.body.len() > MAX_MESSAGE_BYTES {
            return Err(PublishError::TooLong { bytes: message.body.len(), max: MAX_MESSAGE_BYTES });
        }
        if self.inner.closing.is_cancelled() {
            return Err(PublishError::NotConnected);
        }
        let expires_at_ms = message
            .expires_in
            .map(|expiry| now_ms().saturating_add(u64::try_from(expiry.as_millis()).unwrap_or(u64::MAX)));
        let head = Head { message_id: Some(message.message_id), headers: message.headers, expires_at_ms, died: None };
        self.inner.put(&message.to, Message::new(head, message.body)).await
    }

    async fn consume(&self, from: QueueName, prefetch: u16) -> Result<Consumer, QueueError> {
        let name = from.to_string();
        self.inner
            .remember(&name)
            .await
            .map_err(|error| QueueError::File { path: "the store".into(), reason: error.to_string() })?;
        {
            let mut queues = self.inner.queues();
            queues.by_name.entry(name.clone()).or_default().consumers += 1;
        }
        let prefetch = usize::from(prefetch.max(1));
        let (sender, deliveries) = mpsc::channel(prefetch);
        let places = Arc::new(Semaphore::new(prefetch));
        // Ends when its consumer is dropped or stopped, or the queue is closed.
        tokio::spawn(feed(Arc::clone(&self.inner), from, name, places, sender));
        Ok(Consumer::new(deliveries))
    }

    async fn depth(&self, of: &QueueName) -> Result<Depth, QueueError> {
        let queues = self.inner.queues();
        let queue = queues.by_name.get(&of.to_string());
        Ok(queue
            .map_or_else(Depth::default, |queue| Depth { ready: queue.ready.len() as u64, consumers: queue.consumers }))
    }

    fn is_ready(&self) -> bool {
        !self.inner.closing.is_cancelled()
    }

    async fn close(&self) {
        self.inner.closing.cancel();
    }
}

async fn feed(
    inner: Arc<Inner>,
    from: QueueName,
    name: String,
    places: Arc<Semaphore>,
    sender: mpsc::Sender<Delivery>,
) {
    let arrived = Arc::clone(&inner.queues().by_name.entry(name.clone()).or_default().arrived);
    let settler: Arc<dyn Settler> = Arc::new(QueueSettler { inner: Arc::clone(&inner), name: name.clone() });
    loop {
        let ended = async {
            tokio::select! {
                () = sender.closed() => {}
                () = inner.closing.cancelled() => {}
            }
        };
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await.ok()?;
            loop {
                let taken = {
                    let mut queues = inner.queues();
                    let queue = queues.by_name.entry(name.clone()).or_default();
                    let taken = queue.take_first(now_ms());
                    // More may be there than this notice told of.
                    if taken.is_some() && !queue.ready.is_empty() {
                        queue.arrived.notify_one();
                    }
                    taken
                };
                match taken {
                    Some((sequence, message)) => return Some((place, sequence, message)),
                    None => arrived.notified().await,
                }
            }
        };
        let (place, sequence, message) = tokio::select! {
            () = ended => break,
            next = next => match next {
                Some(next) => next,
                None => break,
            },
        };
        let mut delivery = Delivery::new(from.clone(), message.body.clone(), Arc::clone(&settler), sequence);
        delivery.message_id = message.head.message_id.clone();
        delivery.headers = message.head.headers.clone();
        delivery.redelivered = message.delivered_before.swap(true, std::sync::atomic::Ordering::Relaxed);
        delivery.died = message.head.died.as_ref().map(|death| Died {
            queue: death.queue.clone(),
            reason: if death.expired { DeadReason::Expired } else { DeadReason::Rejected },
        });
        if let Some(queue) = inner.queues().by_name.get_mut(&name) {
            queue.unsettled.insert(sequence, Unsettled { message, _place: place });
        }
        // Never full: its bound is the prefetch. Closed: the delivery is dropped, and so given back.
        let _ = sender.send(delivery).await;
    }
    if let Some(queue) = inner.queues().by_name.get_mut(&name) {
        queue.consumers -= 1;
        // Somebody else shall look.
        queue.arrived.notify_one();
    }
}

/// Settles the deliveries of one queue.
struct QueueSettler {
    inner: Arc<Inner>,
    name: String,
}

impl QueueSettler {
    fn take(&self, tag: u64) -> Option<Unsettled> {
        self.inner.queues().by_name.get_mut(&self.name)?.unsettled.remove(&tag)
    }
}

#[async_trait]
impl Settler for QueueSettler {
    async fn ack(&self, tag: u64) -> Result<(), SettleError> {
        let taken = self.take(tag).ok_or(SettleError::Gone)?;
        self.inner.drop_message(&self.name, tag, &taken.message).await
    }

    async fn reject(&self, tag: u64) -> Result<(), SettleError> {
        let taken = self.take(tag).ok_or(SettleError::Gone)?;
        self.inner.bury(&self.name, tag, &taken.message, false).await
    }

    async fn requeue(&self, tag: u64) -> Result<(), SettleError> {
        self.abandon(tag);
        Ok(())
    }

    fn abandon(&self, tag: u64) {
        let taken = self.take(tag);
        if let Some(taken) = taken
            && let Some(queue) = self.inner.queues().by_name.get_mut(&self.name)
        {
            queue.put(tag, taken.message);
        }
    }
}

/// Moves what has expired to the dead letters, also where nobody consumes.
async fn bury_expired(inner: std::sync::Weak<Inner>, closing: CancellationToken) {
    loop {
        tokio::select! {
            () = closing.cancelled() => return,
            () = tokio::time::sleep(EXPIRY_LOOK_EVERY) => {}
        }
        let Some(inner) = inner.upgrade() else { return };
        let now = now_ms();
        let mut expired = Vec::new();
        for (name, queue) in &mut inner.queues().by_name {
            while let Some((at, sequence)) = queue.expiring.first().copied()
                && at <= now
            {
                match queue.take(sequence) {
                    Some(message) => expired.push((name.clone(), sequence, message)),
                    None => drop(queue.expiring.remove(&(at, sequence))),
                }
            }
        }
        for (name, sequence, message) in expired {
            if inner.bury(&name, sequence, &message, true).await.is_err()
                && let Some(queue) = inner.queues().by_name.get_mut(&name)
            {
                // Tried again at the next look.
                queue.put(sequence, message);
            }
        }
    }
}
