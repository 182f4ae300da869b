//! Promises that show only in a crowd, or at the ends of what a message may be.

use crate::{BOUND, Place, id, message, next, nothing_comes, until_depth};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use toolfleet_protocol::{QueueName, SchedulerId};
use toolfleet_queue::{Outgoing, PublishError};

/// Often enough that the order in which a broker confirms is a different one now and then.
const ROUNDS: u32 = 600;
const AT_ONCE: u32 = 192;

pub async fn every_unroutable_message_is_known_however_many_are_confirmed_together(place: Place) {
    let scheduler = |name: &str| QueueName::Replies(SchedulerId::parse(format!("{name}-{}", place.jobs)).unwrap());
    let (nobody, somebody) = (scheduler("none"), scheduler("some"));
    let mut replies = place.queue.consume(somebody.clone(), 1000).await.unwrap();
    for round in 0..ROUNDS {
        let all: Vec<_> = (0..AT_ONCE)
            .map(|number| {
                // Now one by one, now in runs.
                let reaches = (number >> (round % 4)) % 2 == 0;
                let outgoing = message(if reaches { &somebody } else { &nobody }, &format!("{round}-{number}"));
                let queue = Arc::clone(&place.queue);
                tokio::spawn(async move { (reaches, outgoing.message_id.clone(), queue.publish(outgoing).await) })
            })
            .collect();
        for one in all {
            match one.await.unwrap() {
                (true, _, Ok(())) | (false, _, Err(PublishError::Unroutable(_))) => {}
                (reaches, id, told) => panic!("{id}: reaches somebody: {reaches}, told: {told:?}"),
            }
        }
        let mut seen = BTreeSet::new();
        while seen.len() < (AT_ONCE / 2) as usize {
            let reply = next(&mut replies).await;
            assert!(seen.insert(id(&reply).to_owned()), "{reply:?} came twice");
            reply.ack().await.unwrap();
        }
    }
    nothing_comes(&mut replies).await;
}

pub async fn each_of_many_messages_goes_to_one_of_several_consumers(place: Place) {
    let mut consumers = Vec::new();
    for _ in 0..4 {
        consumers.push(place.consume(5).await);
    }
    let readers: Vec<_> = consumers
        .into_iter()
        .map(|mut consumer| {
            tokio::spawn(async move {
                let mut seen = Vec::new();
                while let Some(delivery) = consumer.next().await {
                    seen.push(id(&delivery).to_owned());
                    delivery.ack().await.unwrap();
                }
                seen
            })
        })
        .collect();
    futures::future::join_all((0..400).map(|number| {
        let place = &place;
        async move { place.publish(&number.to_string()).await }
    }))
    .await;
    until_depth(&place, 0).await;
    // Acks are under way; closing waits for what was asked.
    tokio::time::timeout(BOUND, place.queue.close()).await.expect("it closes");
    let mut seen = Vec::new();
    for reader in readers {
        seen.extend(reader.await.unwrap());
    }
    let once: BTreeSet<_> = seen.iter().collect();
    assert_eq!((seen.len(), once.len()), (400, 400));
}

pub async fn messages_may_be_empty_and_say_anything_in_their_headers(place: Place) {
    let mut outgoing = message(&place.jobs, "é \u{10ffff} \"'");
    outgoing.body = Bytes::new();
    outgoing.headers = [("", ""), ("Ünï", "\0\r\n工具"), ("long", "x")]
        .map(|(name, value)| (name.to_owned(), value.repeat(if name == "long" { 20_000 } else { 1 })))
        .into();
    place.queue.publish(outgoing.clone()).await.unwrap();
    let delivery = next(&mut place.consume(1).await).await;
    assert_eq!((id(&delivery), &delivery.body), (outgoing.message_id.as_str(), &outgoing.body));
    assert_eq!(delivery.headers, outgoing.headers, "no more and no less than was published");
    delivery.ack().await.unwrap();
}

pub async fn an_expiry_of_years_is_none_for_now(place: Place) {
    for (name, expires_in) in [("60 days", Duration::from_secs(60 * 86_400)), ("for ever", Duration::MAX)] {
        let outgoing = Outgoing { expires_in: Some(expires_in), ..message(&place.jobs, name) };
        place.queue.publish(outgoing).await.unwrap();
    }
    let mut consumer = place.consume(2).await;
    for name in ["60 days", "for ever"] {
        let delivery = next(&mut consumer).await;
        assert_eq!(id(&delivery), name);
        delivery.ack().await.unwrap();
    }
}

pub async fn a_requeued_message_keeps_what_it_is(place: Place) {
    place.publish("again").await;
    let mut consumer = place.consume(1).await;
    for round in 0..30 {
        let delivery = next(&mut consumer).await;
        assert_eq!((id(&delivery), delivery.redelivered), ("again", round > 0));
        assert!(delivery.died.is_none() && delivery.body == "body of again", "{delivery:?}");
        assert_eq!(delivery.headers["traceparent"], "00-1-2-01");
        delivery.requeue().await.unwrap();
    }
    drop(consumer);
    until_depth(&place, 1).await;
}
