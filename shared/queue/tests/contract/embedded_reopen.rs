//! What the embedded queue's next process finds, also after mishaps.

use crate::{id, lane, message, next, nothing_comes};
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toolfleet_queue::embedded::EmbeddedQueue;
use toolfleet_queue::{PublishError, Queue};
use toolfleet_store::embedded::EmbeddedStore;
use toolfleet_store::{Entry, Key, Op, Position, Store, StoreError, Transacted, Transaction};

fn store(folder: &tempfile::TempDir) -> Arc<EmbeddedStore> {
    Arc::new(EmbeddedStore::open(&folder.path().join("store")).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_dropped_without_closing_keeps_what_is_not_settled() {
    let folder = tempfile::tempdir().unwrap();
    let (store, jobs) = (store(&folder), lane());
    {
        let queue = EmbeddedQueue::open(store.clone()).await.unwrap();
        for number in 0..20 {
            queue.publish(message(&jobs, &format!("{number:02}"))).await.unwrap();
        }
        let mut consumer = queue.consume(jobs.clone(), 5).await.unwrap();
        for _ in 0..3 {
            next(&mut consumer).await.ack().await.unwrap();
        }
        // Not given back: its process is gone.
        std::mem::forget(next(&mut consumer).await);
    }
    let queue = EmbeddedQueue::open(store).await.unwrap();
    assert_eq!(queue.depth(&jobs).await.unwrap().ready, 17);
    let mut consumer = queue.consume(jobs.clone(), 1).await.unwrap();
    for number in 3..20 {
        let delivery = next(&mut consumer).await;
        assert_eq!(
            (id(&delivery), &delivery.body[..]),
            (&*format!("{number:02}"), format!("body of {number:02}").as_bytes())
        );
        delivery.ack().await.unwrap();
    }
    nothing_comes(&mut consumer).await;
    // New ones come after the old ones, not in their place.
    queue.publish(message(&jobs, "new")).await.unwrap();
    assert_eq!(id(&next(&mut consumer).await), "new");
}

/// A store that fails to keep the first name of a queue.
struct Forgetful {
    store: Arc<EmbeddedStore>,
    failed: AtomicBool,
}

#[async_trait]
impl Store for Forgetful {
    async fn transact(&self, transaction: Transaction) -> Result<Transacted, StoreError> {
        let names = |op: &Op| matches!(op, Op::FieldsSet { key, .. } if *key == Key::new("queues", "names"));
        if transaction.then.iter().any(names) && !self.failed.swap(true, Ordering::Relaxed) {
            return Err(StoreError::Timeout { waited: Duration::ZERO });
        }
        self.store.transact(transaction).await
    }

    async fn tail(&self, stream: &Key, after: &Position, limit: u32, wait: Duration) -> Result<Vec<Entry>, StoreError> {
        self.store.tail(stream, after, limit, wait).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.store.ping().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_whose_name_could_not_be_kept_at_first_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let (store, jobs) = (store(&folder), lane());
    let forgetful = Arc::new(Forgetful { store: store.clone(), failed: AtomicBool::new(false) });
    let queue = EmbeddedQueue::open(forgetful).await.unwrap();
    let first = queue.publish(message(&jobs, "first")).await;
    assert!(matches!(first, Err(PublishError::NotConnected)), "{first:?}");
    queue.publish(message(&jobs, "second")).await.unwrap();
    queue.close().await;
    drop(queue);
    let queue = EmbeddedQueue::open(store).await.unwrap();
    let mut consumer = queue.consume(jobs, 1).await.unwrap();
    assert_eq!(id(&next(&mut consumer).await), "second");
}
