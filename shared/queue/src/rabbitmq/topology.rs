//! The queues, as the contract has them. Declared by whoever uses them first, always in the same form.

use crate::{Depth, QueueError};
use lapin::options::QueueDeclareOptions;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Connection, ErrorKind};
use toolfleet_protocol::QueueName;

/// Jobs and metering events that a queue holds before it refuses more: backpressure instead of growth.
const LENGTH_MAX: i64 = 1_000_000;
/// Results wait for their scheduler; each is in the store too, so a scheduler that is gone for long loses nothing.
const REPLIES_LENGTH_MAX: i64 = 100_000;
/// A reply queue that nobody reads for so long goes: its scheduler doesn't come back.
const REPLIES_UNUSED_MS: i64 = 24 * 60 * 60 * 1000;
/// Deliveries are counted by the worker that claims a call, which tells a call that kills workers from a neighbour
/// that was only prefetched by one. The broker's own count, 20 by default from version 4 on, would not.
const DELIVERY_LIMIT: i64 = 1_000_000;

fn arguments(name: &QueueName) -> FieldTable {
    let mut table = FieldTable::default();
    let mut text = |key: &str, value: &str| {
        table.insert(key.into(), AMQPValue::LongString(value.into()));
    };
    match name {
        QueueName::Jobs { .. } | QueueName::Metering => {
            text("x-queue-type", "quorum");
            text("x-overflow", "reject-publish");
            text("x-dead-letter-exchange", "");
            text("x-dead-letter-routing-key", &QueueName::Dead.to_string());
            text("x-dead-letter-strategy", "at-least-once");
            table.insert("x-max-length".into(), AMQPValue::LongLongInt(LENGTH_MAX));
            table.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(DELIVERY_LIMIT));
        }
        QueueName::Dead => {
            text("x-queue-type", "quorum");
            text("x-overflow", "reject-publish");
            table.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(DELIVERY_LIMIT));
        }
        QueueName::Replies(_) => {
            text("x-queue-type", "classic");
            text("x-overflow", "reject-publish");
            table.insert("x-max-length".into(), AMQPValue::LongLongInt(REPLIES_LENGTH_MAX));
            table.insert("x-expires".into(), AMQPValue::LongLongInt(REPLIES_UNUSED_MS));
        }
    }
    table
}

/// May a publisher make this queue? Not a reply queue: it is its scheduler's, and if it isn't there nobody waits.
pub fn is_anybodys(name: &QueueName) -> bool {
    !matches!(name, QueueName::Replies(_))
}

/// Why a queue could not be declared.
pub enum DeclareError {
    /// One of that name exists in another form.
    Conflict(QueueError),
    Connection(lapin::Error),
}

/// Declares a queue, and the dead letters that it needs, on a channel of its own: a refusal closes it.
pub async fn declare(connection: &Connection, name: &QueueName) -> Result<(), DeclareError> {
    if matches!(name, QueueName::Jobs { .. } | QueueName::Metering) {
        declare_one(connection, &QueueName::Dead).await?;
    }
    declare_one(connection, name).await
}

async fn declare_one(connection: &Connection, name: &QueueName) -> Result<(), DeclareError> {
    let channel = connection.create_channel().await.map_err(DeclareError::Connection)?;
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let declared = channel.queue_declare(name.to_string().into(), options, arguments(name)).await;
    match declared {
        Ok(_) => {
            // Closed, not only dropped: a connection has a limited number of channels. It may be gone already.
            let _ = channel.close(200, "done".into()).await;
            Ok(())
        }
        Err(error) if is_soft(&error, AMQPSoftError::PRECONDITIONFAILED) => {
            Err(DeclareError::Conflict(QueueError::Declare {
                queue: name.clone(),
                reason: format!(
                    "one of that name exists in another form: drain and delete it, then start again ({error})"
                ),
            }))
        }
        Err(error) => Err(DeclareError::Connection(error)),
    }
}

/// How much is on a queue; nothing on one that isn't there.
pub async fn depth(connection: &Connection, name: &QueueName) -> Result<Depth, lapin::Error> {
    let channel = connection.create_channel().await?;
    let options = QueueDeclareOptions { passive: true, durable: true, ..QueueDeclareOptions::default() };
    match channel.queue_declare(name.to_string().into(), options, FieldTable::default()).await {
        Ok(queue) => {
            let depth = Depth { ready: queue.message_count().into(), consumers: queue.consumer_count() };
            // It may be gone already.
            let _ = channel.close(200, "done".into()).await;
            Ok(depth)
        }
        Err(error) if is_soft(&error, AMQPSoftError::NOTFOUND) => Ok(Depth::default()),
        Err(error) => Err(error),
    }
}

fn is_soft(error: &lapin::Error, kind: AMQPSoftError) -> bool {
    match error.kind() {
        ErrorKind::ProtocolError(error) => *error.kind() == AMQPErrorKind::Soft(kind),
        _ => false,
    }
}
