//! RabbitMQ as others use it, and as networks treat it.

use crate::{BOUND, config, id, lane, message, next, rabbitmq, variable, virtual_host};
use lapin::options::BasicPublishOptions;
use lapin::types::{AMQPValue, FieldArray, FieldTable};
use lapin::{BasicProperties, Connection, ConnectionProperties};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use toolfleet_queue::Queue;
use toolfleet_queue::rabbitmq::RabbitMq;

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_somebody_else_is_delivered_with_those_headers_that_are_text() {
    let place = rabbitmq().await;
    let mut consumer = place.consume(2).await;
    place.publish("ours").await;
    next(&mut consumer).await.ack().await.unwrap();
    let url = virtual_host().await;
    let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let mut inner = FieldTable::default();
    inner.insert("in".into(), AMQPValue::LongString("side".into()));
    let mut headers = FieldTable::default();
    for (name, value) in [
        ("boolean", AMQPValue::Boolean(true)),
        ("i8", AMQPValue::ShortShortInt(-8)),
        ("u8", AMQPValue::ShortShortUInt(8)),
        ("i16", AMQPValue::ShortInt(-16)),
        ("i32", AMQPValue::LongInt(-32)),
        ("u32", AMQPValue::LongUInt(32)),
        ("i64", AMQPValue::LongLongInt(i64::MIN)),
        ("float", AMQPValue::Float(1.5)),
        ("double", AMQPValue::Double(-2.5)),
        ("decimal", AMQPValue::DecimalValue(lapin::types::DecimalValue { scale: 2, value: 314 })),
        ("text", AMQPValue::LongString("told".into())),
        ("not text", AMQPValue::LongString(vec![0xff, 0xfe, b'!'].into())),
        ("bytes", AMQPValue::ByteArray(vec![0, 255].into())),
        ("time", AMQPValue::Timestamp(1_700_000_000)),
        ("table", AMQPValue::FieldTable(inner)),
        ("array", AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::Boolean(false), AMQPValue::Void]))),
        ("nothing", AMQPValue::Void),
    ] {
        headers.insert(name.into(), value);
    }
    let options = BasicPublishOptions::default();
    let key = place.jobs.to_string();
    let whole = BasicProperties::default().with_headers(headers).with_priority(9).with_timestamp(1);
    for properties in [whole, BasicProperties::default()] {
        channel.basic_publish("".into(), key.as_str().into(), options, b"{\xff", properties).await.unwrap();
    }
    let foreign = next(&mut consumer).await;
    assert_eq!((foreign.message_id.as_deref(), &foreign.body[..]), (None, &b"{\xff"[..]));
    assert_eq!(foreign.headers["text"], "told");
    let others = ["boolean", "i8", "i64", "double", "decimal", "bytes", "time", "table", "array", "nothing"];
    assert!(others.iter().all(|name| !foreign.headers.contains_key(*name)), "{:?}", foreign.headers);
    foreign.ack().await.unwrap();
    let bare = next(&mut consumer).await;
    assert!(bare.message_id.is_none() && bare.headers.is_empty() && bare.died.is_none(), "{bare:?}");
    bare.ack().await.unwrap();
}

/// The way to the broker, which can be cut and mended.
struct Way {
    at: SocketAddr,
    open: watch::Sender<bool>,
}

impl Way {
    async fn to(broker: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (open, opened) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let (mut opened, broker) = (opened.clone(), broker.clone());
                tokio::spawn(async move {
                    if !*opened.borrow_and_update() {
                        return;
                    }
                    let mut to = TcpStream::connect(broker).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                        _ = opened.wait_for(|open| !*open) => {}
                    }
                });
            }
        });
        Self { at, open }
    }
}

async fn until_ready(queue: &RabbitMq, wanted: bool) {
    let end = Instant::now() + BOUND;
    while queue.is_ready() != wanted {
        assert!(Instant::now() < end, "it becomes ready: {wanted}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_is_cut_is_told_and_outlived() {
    let url = virtual_host().await;
    let (head, rest) = url.split_once('@').expect("an AMQP URL with a user");
    let (broker, name) = rest.split_once('/').unwrap();
    let way = Way::to(broker.to_owned()).await;
    let mut config = config(format!("{head}@{}/{name}", way.at));
    // Shorter than the cut lasts.
    config.publish_timeout_ms = 300;
    let (queue, jobs) = (RabbitMq::connect(config).await.unwrap(), lane());
    let mut consumer = queue.consume(jobs.clone(), 3).await.unwrap();
    until_ready(&queue, true).await;
    for round in 0..3 {
        queue.publish(message(&jobs, &format!("{round}-before"))).await.unwrap();
        let held = next(&mut consumer).await;
        way.open.send(false).unwrap();
        until_ready(&queue, false).await;
        let cut = tokio::time::timeout(BOUND, queue.publish(message(&jobs, "cut"))).await.expect("it gives up");
        assert!(cut.is_err(), "there was no way to the broker");
        assert!(held.ack().await.is_err(), "nor for an ack");
        way.open.send(true).unwrap();
        until_ready(&queue, true).await;
        queue.publish(message(&jobs, &format!("{round}-after"))).await.unwrap();
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let delivery = next(&mut consumer).await;
            seen.push(id(&delivery).to_owned());
            delivery.ack().await.unwrap();
        }
        seen.sort();
        assert_eq!(seen, [format!("{round}-after"), format!("{round}-before")]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_told_without_it() {
    let broker = variable("TOOLFLEET_TEST_AMQP");
    let rest = broker.split_once('@').expect("an AMQP URL with a user").1;
    let error = RabbitMq::connect(config(format!("amqp://guest:hunter2@{rest}"))).await.err().expect("it is wrong");
    let told = format!("{error} {error:?}");
    assert!(told.contains("ACCESS") && !told.contains("hunter2"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_goes_takes_its_subscription_with_it() {
    let place = rabbitmq().await;
    place.publish("once").await;
    for _ in 0..40 {
        let mut consumer = place.consume(1).await;
        drop(next(&mut consumer).await);
    }
    let end = Instant::now() + BOUND;
    while place.queue.depth(&place.jobs).await.unwrap().consumers > 0 {
        assert!(Instant::now() < end, "subscriptions end with their consumers");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
