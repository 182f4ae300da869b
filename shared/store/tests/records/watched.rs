//! A store that counts its steps, and loses answers when told to: the step is done and nobody hears of it.

use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use toolfleet_store::{Entry, Key, Position, Store, StoreError, Transacted, Transaction};

pub struct Watched {
    inner: Arc<dyn Store>,
    steps: AtomicU64,
    /// The number of the step whose answer is lost; 0 is none.
    lost: AtomicU64,
}

impl Watched {
    pub fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { inner, steps: AtomicU64::new(0), lost: AtomicU64::new(0) })
    }

    /// Steps since this was last asked.
    pub fn steps(&self) -> u64 {
        self.steps.swap(0, Ordering::SeqCst)
    }

    /// Loses the answer of the step after `skipped` more.
    pub fn lose_after(&self, skipped: u64) {
        self.steps.store(0, Ordering::SeqCst);
        self.lost.store(skipped + 1, Ordering::SeqCst);
    }

    /// Was it lost? Loses nothing more.
    pub fn lost(&self) -> bool {
        self.lost.swap(0, Ordering::SeqCst) == 0
    }
}

#[async_trait]
impl Store for Watched {
    async fn transact(&self, transaction: Transaction) -> Result<Transacted, StoreError> {
        let done = self.inner.transact(transaction).await;
        let step = self.steps.fetch_add(1, Ordering::SeqCst) + 1;
        if self.lost.compare_exchange(step, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            return Err(StoreError::Timeout { waited: Duration::ZERO });
        }
        done
    }

    async fn tail(&self, stream: &Key, after: &Position, limit: u32, wait: Duration) -> Result<Vec<Entry>, StoreError> {
        self.inner.tail(stream, after, limit, wait).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.inner.ping().await
    }
}

/// No operation of a record takes more steps.
const STEPS_MAX: u64 = 8;

/// Does `$operation` afresh with the answer of its first step lost, then of its second, and so on, and each time
/// repeats it; gives the outcomes of the repeats. `$setup` comes before each.
#[macro_export]
macro_rules! with_lost_answers {
    ($fixture:expr, $it:ident = $setup:expr, $operation:expr) => {{
        let mut repeated = Vec::new();
        for step in 0.. {
            assert!(step < $crate::watched::steps_max(), "an operation without end");
            let $it = $setup;
            $fixture.watched.lose_after(step);
            let first = $operation.await;
            if !$fixture.watched.lost() {
                break;
            }
            assert!(first.is_err(), "the answer of step {step} was lost, and nobody minded");
            repeated.push(($operation.await.unwrap(), $it));
        }
        assert!(!repeated.is_empty());
        repeated
    }};
}

pub fn steps_max() -> u64 {
    STEPS_MAX
}
