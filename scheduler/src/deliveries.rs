//! How the scheduler reads its queues: several deliveries at once, a bounded number of them.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use toolfleet_protocol::QueueName;
use toolfleet_queue::{Delivery, Queue, QueueError};

/// What becomes of a delivery.
pub(crate) enum Verdict {
    /// It is done with.
    Done,
    /// It makes no sense: to the dead letters.
    Refuse,
    /// Something that it needs doesn't answer: it comes again.
    Again,
}

/// A delivery that couldn't be worked on is given back after this, so that a store that is away isn't asked
/// thousands of times a second.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Why a queue is no longer read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("cannot read queue {queue}")]
    Queue { queue: QueueName, source: QueueError },
    #[error("the queue ended its deliveries of {queue}")]
    Ended { queue: QueueName },
}

/// Gives every delivery of `from` to `work`, at most `at_once` at a time, until `stop`. What was begun is finished.
pub(crate) async fn work_through<W, F>(
    queue: Arc<dyn Queue>,
    from: QueueName,
    at_once: u16,
    live: &AtomicBool,
    stop: CancellationToken,
    work: W,
) -> Result<(), ReadError>
where
    W: Fn(Delivery) -> F,
    F: Future<Output = (Delivery, Verdict)> + Send + 'static,
{
    let mut consumer = queue
        .consume(from.clone(), at_once)
        .await
        .map_err(|source| ReadError::Queue { queue: from.clone(), source })?;
    live.store(true, Ordering::Relaxed);
    let _live = NotLive(live);
    let mut under_way = JoinSet::new();
    let ended = loop {
        let full = under_way.len() >= usize::from(at_once);
        tokio::select! {
            biased;
            Some(done) = under_way.join_next() => report(&from, done),
            () = stop.cancelled() => break Ok(()),
            delivery = consumer.next(), if !full => match delivery {
                Some(delivery) => {
                    under_way.spawn(settle(work(delivery)));
                }
                None => break Err(ReadError::Ended { queue: from.clone() }),
            },
        }
    };
    consumer.stop();
    while let Some(done) = under_way.join_next().await {
        report(&from, done);
    }
    ended
}

/// The queue isn't read any more, however it came to that.
struct NotLive<'a>(&'a AtomicBool);

impl Drop for NotLive<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

async fn settle(work: impl Future<Output = (Delivery, Verdict)>) {
    let (delivery, verdict) = work.await;
    let settled = match verdict {
        Verdict::Done => delivery.ack().await,
        Verdict::Refuse => delivery.reject().await,
        Verdict::Again => {
            tokio::time::sleep(AGAIN_AFTER).await;
            delivery.requeue().await
        }
    };
    if let Err(error) = settled {
        // It comes again, and everything done with it can be done twice.
        tracing::debug!(error = &error as &dyn std::error::Error, "a delivery was not settled");
    }
}

fn report(from: &impl fmt::Display, done: Result<(), tokio::task::JoinError>) {
    if let Err(error) = done {
        // Its delivery was dropped by the panic, and so given back.
        tracing::error!(queue = %from, error = %error, "working on a delivery panicked");
    }
}
