//! What every queue promises, held against each make: the one in the store, and a real RabbitMQ.

#[path = "contract/edges.rs"]
mod edges;
#[path = "contract/embedded_reopen.rs"]
mod embedded_reopen;
#[path = "contract/foreign.rs"]
mod foreign;

use bytes::Bytes;
use edges::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;
use toolfleet_protocol::{Class, MAX_MESSAGE_BYTES, QueueName, SchedulerId};
use toolfleet_queue::embedded::EmbeddedQueue;
use toolfleet_queue::rabbitmq::{RabbitMq, RabbitMqConfig};
use toolfleet_queue::{Consumer, DeadReason, Delivery, Depth, Outgoing, PublishError, Queue, QueueError, SettleError};
use toolfleet_store::embedded::EmbeddedStore;

/// Nothing here takes so long, on the busiest machine.
const BOUND: Duration = Duration::from_secs(30);

struct Place {
    queue: Arc<dyn Queue>,
    jobs: QueueName,
    _folder: Option<tempfile::TempDir>,
}

/// A lane of the test's own.
fn lane() -> QueueName {
    static LANES: AtomicU16 = AtomicU16::new(0);
    QueueName::Jobs { class: Class::Background, lane: LANES.fetch_add(1, Ordering::Relaxed) }
}

async fn embedded() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(&folder.path().join("store")).unwrap());
    Place { queue: Arc::new(EmbeddedQueue::open(store).await.unwrap()), jobs: lane(), _folder: Some(folder) }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run tests/run"))
}

fn control(args: &[&str]) {
    let done = std::process::Command::new(variable("TOOLFLEET_TEST_RABBITMQCTL")).args(args).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// The URL of a virtual host that only this run of these tests uses.
async fn virtual_host() -> String {
    static URL: OnceCell<String> = OnceCell::const_new();
    let url = URL.get_or_init(|| async {
        let name = format!("queue-{}", std::process::id());
        control(&["add_vhost", &name]);
        control(&["set_permissions", "-p", &name, "guest", ".*", ".*", ".*"]);
        let broker = variable("TOOLFLEET_TEST_AMQP");
        format!("{}/{name}", broker.rsplit_once('/').expect("an AMQP URL ends in its virtual host").0)
    });
    url.await.clone()
}

fn config(url: String) -> RabbitMqConfig {
    RabbitMqConfig { url, publish_timeout_ms: 10_000, connect_timeout_ms: 10_000, heartbeat_s: 10 }
}

async fn rabbitmq() -> Place {
    let queue = RabbitMq::connect(config(virtual_host().await)).await.unwrap();
    Place { queue: Arc::new(queue), jobs: lane(), _folder: None }
}

fn message(to: &QueueName, id: &str) -> Outgoing {
    Outgoing {
        to: to.clone(),
        message_id: id.into(),
        body: Bytes::from(format!("body of {id}")),
        headers: BTreeMap::from([("traceparent".into(), "00-1-2-01".into())]),
        expires_in: None,
    }
}

impl Place {
    async fn publish(&self, id: &str) {
        self.queue.publish(message(&self.jobs, id)).await.unwrap();
    }

    async fn consume(&self, prefetch: u16) -> Consumer {
        self.queue.consume(self.jobs.clone(), prefetch).await.unwrap()
    }
}

async fn next(consumer: &mut Consumer) -> Delivery {
    tokio::time::timeout(BOUND, consumer.next()).await.expect("a delivery comes").expect("the consumer lives")
}

async fn nothing_comes(consumer: &mut Consumer) {
    let came = tokio::time::timeout(Duration::from_millis(150), consumer.next()).await;
    assert!(came.is_err(), "{came:?}");
}

fn id(delivery: &Delivery) -> &str {
    delivery.message_id.as_deref().unwrap_or_default()
}

async fn until_depth(place: &Place, ready: u64) {
    let end = Instant::now() + BOUND;
    loop {
        let depth = place.queue.depth(&place.jobs).await.unwrap();
        if depth.ready == ready {
            return;
        }
        assert!(Instant::now() < end, "{depth:?}, not {ready}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn messages_come_whole_and_in_order(place: Place) {
    for number in 0..20 {
        place.publish(&number.to_string()).await;
    }
    let mut consumer = place.consume(4).await;
    for number in 0..20 {
        let delivery = next(&mut consumer).await;
        assert_eq!(id(&delivery), number.to_string());
        assert_eq!(delivery.body, format!("body of {number}"));
        assert_eq!(delivery.headers["traceparent"], "00-1-2-01");
        assert!(!delivery.redelivered && delivery.died.is_none(), "{delivery:?}");
        delivery.ack().await.unwrap();
    }
    nothing_comes(&mut consumer).await;
    until_depth(&place, 0).await;
}

async fn what_is_not_settled_comes_again(place: Place) {
    for number in 0..3 {
        place.publish(&number.to_string()).await;
    }
    let mut consumer = place.consume(1).await;
    drop(next(&mut consumer).await);
    let again = next(&mut consumer).await;
    assert!(again.redelivered, "{again:?}");
    let given_back = id(&again).to_owned();
    again.requeue().await.unwrap();
    // A consumer that goes gives back what it held, and what it had not yet handed out.
    let held = next(&mut consumer).await;
    drop(consumer);
    drop(held);
    let mut consumer = place.consume(8).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let delivery = next(&mut consumer).await;
        seen.push(id(&delivery).to_owned());
        delivery.ack().await.unwrap();
    }
    seen.sort();
    assert_eq!(seen, ["0", "1", "2"]);
    assert_eq!(given_back, "0");
    nothing_comes(&mut consumer).await;
}

async fn no_more_than_the_prefetch_is_unsettled(place: Place) {
    for number in 0..10 {
        place.publish(&number.to_string()).await;
    }
    let mut consumer = place.consume(3).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(next(&mut consumer).await);
    }
    nothing_comes(&mut consumer).await;
    held.remove(0).ack().await.unwrap();
    held.push(next(&mut consumer).await);
    nothing_comes(&mut consumer).await;
}

async fn a_stopped_consumer_takes_no_more_and_settles_what_it_has(place: Place) {
    for number in 0..5 {
        place.publish(&number.to_string()).await;
    }
    let mut consumer = place.consume(1).await;
    let held = next(&mut consumer).await;
    consumer.stop();
    while let Some(left) = tokio::time::timeout(BOUND, consumer.next()).await.expect("it ends") {
        drop(left);
    }
    held.ack().await.unwrap();
    drop(consumer);
    until_depth(&place, 4).await;
}

async fn two_consumers_share_a_queue(place: Place) {
    let (mut one, mut other) = (place.consume(1).await, place.consume(1).await);
    for number in 0..2 {
        place.publish(&number.to_string()).await;
    }
    let (first, second) = (next(&mut one).await, next(&mut other).await);
    assert_ne!(id(&first), id(&second));
    assert_eq!(place.queue.depth(&place.jobs).await.unwrap(), Depth { ready: 0, consumers: 2 });
}

async fn what_is_rejected_or_expires_goes_to_the_dead_letters(place: Place) {
    let mut dead = place.queue.consume(QueueName::Dead, 10).await.unwrap();
    // Nobody consumes, and it expires all the same.
    let expiring = Outgoing { expires_in: Some(Duration::from_millis(50)), ..message(&place.jobs, "expires") };
    place.queue.publish(expiring).await.unwrap();
    let letter = next(&mut dead).await;
    assert_eq!((id(&letter), letter.body.as_ref()), ("expires", &b"body of expires"[..]));
    let died = letter.died.clone().expect("a dead letter says where it died");
    assert_eq!((died.queue, died.reason), (place.jobs.to_string(), DeadReason::Expired));
    letter.ack().await.unwrap();

    place.publish("bad").await;
    let mut consumer = place.consume(1).await;
    next(&mut consumer).await.reject().await.unwrap();
    let letter = next(&mut dead).await;
    assert_eq!(id(&letter), "bad");
    let died = letter.died.clone().expect("a dead letter says where it died");
    assert_eq!((died.queue, died.reason), (place.jobs.to_string(), DeadReason::Rejected));
    letter.ack().await.unwrap();
    nothing_comes(&mut consumer).await;

    // What waits behind one that is worked on expires; the one that is worked on doesn't.
    place.publish("held").await;
    let held = next(&mut consumer).await;
    let behind = Outgoing { expires_in: Some(Duration::from_millis(50)), ..message(&place.jobs, "behind") };
    place.queue.publish(behind).await.unwrap();
    let letter = next(&mut dead).await;
    assert_eq!((id(&letter), letter.died.clone().map(|died| died.reason)), ("behind", Some(DeadReason::Expired)));
    letter.ack().await.unwrap();
    held.ack().await.unwrap();
    nothing_comes(&mut dead).await;
}

async fn only_messages_that_reach_no_queue_are_unroutable(place: Place) {
    let nobody = QueueName::Replies(SchedulerId::parse(format!("nobody-{}", place.jobs)).unwrap());
    let all = (0..300).map(|number| {
        let to = if number % 7 == 0 { &nobody } else { &place.jobs };
        let outgoing = message(to, &number.to_string());
        let queue = Arc::clone(&place.queue);
        async move { (number, queue.publish(outgoing).await) }
    });
    for (number, published) in futures::future::join_all(all).await {
        match published {
            Ok(()) => assert_ne!(number % 7, 0, "{number} reached nobody"),
            Err(PublishError::Unroutable(_)) => assert_eq!(number % 7, 0, "{number} reached its queue"),
            Err(other) => panic!("{number}: {other}"),
        }
    }
    assert_eq!(place.queue.depth(&nobody).await.unwrap(), Depth::default());
    // Once somebody listens there it is one like any other.
    let mut replies = place.queue.consume(nobody.clone(), 5).await.unwrap();
    place.queue.publish(message(&nobody, "reply")).await.unwrap();
    next(&mut replies).await.ack().await.unwrap();
}

async fn a_message_over_the_limit_is_refused(place: Place) {
    let long = Outgoing { body: vec![0; MAX_MESSAGE_BYTES + 1].into(), ..message(&place.jobs, "long") };
    assert!(matches!(place.queue.publish(long).await, Err(PublishError::TooLong { .. })));
    let full = Outgoing { body: vec![7; MAX_MESSAGE_BYTES].into(), ..message(&place.jobs, "full") };
    place.queue.publish(full).await.unwrap();
    let mut consumer = place.consume(1).await;
    assert_eq!(next(&mut consumer).await.body.len(), MAX_MESSAGE_BYTES);
}

async fn a_closed_queue_is_not_ready(place: Place) {
    let mut consumer = place.consume(1).await;
    let end = Instant::now() + BOUND;
    while !place.queue.is_ready() {
        assert!(Instant::now() < end, "it becomes ready");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    place.queue.close().await;
    assert!(!place.queue.is_ready());
    assert!(tokio::time::timeout(BOUND, consumer.next()).await.expect("it ends").is_none());
    assert!(place.queue.publish(message(&place.jobs, "late")).await.is_err());
}

macro_rules! contract {
    ($($promise:ident),* $(,)?) => {
        mod on_the_embedded_queue {
            $(#[tokio::test(flavor = "multi_thread")] async fn $promise() { super::$promise(super::embedded().await).await; })*
        }
        mod on_rabbitmq {
            $(#[tokio::test(flavor = "multi_thread")] async fn $promise() { super::$promise(super::rabbitmq().await).await; })*
        }
    };
}

contract!(
    messages_come_whole_and_in_order,
    what_is_not_settled_comes_again,
    no_more_than_the_prefetch_is_unsettled,
    a_stopped_consumer_takes_no_more_and_settles_what_it_has,
    two_consumers_share_a_queue,
    what_is_rejected_or_expires_goes_to_the_dead_letters,
    only_messages_that_reach_no_queue_are_unroutable,
    a_message_over_the_limit_is_refused,
    a_closed_queue_is_not_ready,
    every_unroutable_message_is_known_however_many_are_confirmed_together,
    each_of_many_messages_goes_to_one_of_several_consumers,
    messages_may_be_empty_and_say_anything_in_their_headers,
    an_expiry_of_years_is_none_for_now,
    a_requeued_message_keeps_what_it_is,
);

#[tokio::test(flavor = "multi_thread")]
async fn what_one_process_left_unsettled_the_next_one_finds() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(&folder.path().join("store")).unwrap());
    let jobs = lane();
    {
        let queue = EmbeddedQueue::open(store.clone()).await.unwrap();
        for number in 0..3 {
            queue.publish(message(&jobs, &number.to_string())).await.unwrap();
        }
        let mut consumer = queue.consume(jobs.clone(), 3).await.unwrap();
        next(&mut consumer).await.ack().await.unwrap();
        let held = next(&mut consumer).await;
        // Not given back: its process is gone.
        std::mem::forget(held);
        queue.close().await;
    }
    let queue = EmbeddedQueue::open(store).await.unwrap();
    let mut consumer = queue.consume(jobs, 3).await.unwrap();
    for number in 1..3 {
        let delivery = next(&mut consumer).await;
        assert_eq!(id(&delivery), number.to_string());
        assert!(delivery.redelivered);
        delivery.ack().await.unwrap();
    }
    nothing_comes(&mut consumer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_is_made_anew() {
    let place = rabbitmq().await;
    let mut consumer = place.consume(2).await;
    place.publish("before").await;
    let held = next(&mut consumer).await;
    let url = virtual_host().await;
    let name = url.rsplit_once('/').unwrap().1;
    control(&["close_all_connections", "-p", name, "a test"]);
    let end = Instant::now() + BOUND;
    while place.queue.publish(message(&place.jobs, "after")).await.is_err() {
        assert!(Instant::now() < end, "publishing recovers");
    }
    // The old delivery can't be settled any more; it comes again, and is known by its id.
    let settled = held.ack().await;
    assert!(matches!(settled, Err(SettleError::Gone)), "{settled:?}");
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 2 {
        let delivery = next(&mut consumer).await;
        seen.insert(id(&delivery).to_owned());
        delivery.ack().await.unwrap();
    }
    assert!(seen.contains("before") && seen.contains("after"), "{seen:?}");
    while !place.queue.is_ready() {
        assert!(Instant::now() < end, "it becomes ready again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_deleted_under_its_consumer_is_made_anew() {
    let place = rabbitmq().await;
    let mut consumer = place.consume(2).await;
    place.publish("first").await;
    next(&mut consumer).await.ack().await.unwrap();
    let url = virtual_host().await;
    control(&["delete_queue", "-p", url.rsplit_once('/').unwrap().1, &place.jobs.to_string()]);
    let end = Instant::now() + BOUND;
    while let Err(error) = place.queue.publish(message(&place.jobs, "second")).await {
        assert!(Instant::now() < end, "{error}");
    }
    assert_eq!(id(&next(&mut consumer).await), "second");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_of_another_form_is_refused() {
    use lapin::options::QueueDeclareOptions;
    use lapin::types::FieldTable;
    let place = rabbitmq().await;
    let url = virtual_host().await;
    let connection = lapin::Connection::connect(&url, lapin::ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(place.jobs.to_string().into(), options, FieldTable::default()).await.unwrap();
    let error = place.queue.consume(place.jobs.clone(), 1).await.expect_err("it is a classic queue");
    assert!(matches!(&error, QueueError::Declare { .. }), "{error}");
    assert!(error.to_string().contains("drain and delete it"), "{error}");
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_told_without_the_password() {
    for url in ["amqp://user:hunter2@127.0.0.1:1/%2f", "http://user:hunter2@127.0.0.1/", "nonsense hunter2"] {
        let error = RabbitMq::connect(config(url.into())).await.err().expect("nobody is there");
        let told = format!("{error} {error:?}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}
