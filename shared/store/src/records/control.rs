//! Words to all workers.

use super::{Records, from_text};
use crate::{Key, Op, Position, StoreError};
use bytes::Bytes;
use std::time::Duration;
use toolfleet_protocol::CallId;

/// Cancels that are kept for workers which don't follow at the moment. One that missed more learns it when its
/// result comes late.
const CANCELS_MAX: u32 = 10_000;

/// Cancels taken at a time.
const CANCELS_PAGE: u32 = 1_000;

fn cancels_key() -> Key {
    Key::new("control", "cancels")
}

const NAME: &str = "the stream of cancels";

impl Records {
    /// Tells all workers to stop a call. Told twice, it is stopped once.
    pub async fn announce_cancel(&self, call: &CallId) -> Result<(), StoreError> {
        let value = Bytes::copy_from_slice(call.as_str().as_bytes());
        let append = Op::Append { key: cancels_key(), value, keep: CANCELS_MAX };
        self.ask(NAME, vec![append]).await?.appended().map(|_| ())
    }

    /// Cancels after `after`; waits up to `wait` for the first, and is empty when none came.
    pub async fn cancels(&self, after: &Position, wait: Duration) -> Result<Vec<(Position, CallId)>, StoreError> {
        let entries = self.store.tail(&cancels_key(), after, CANCELS_PAGE, wait).await?;
        entries.into_iter().map(|entry| Ok((entry.position, from_text(NAME, &entry.value)?))).collect()
    }

    /// After all cancels so far: where somebody who holds no calls yet starts to follow.
    pub async fn cancels_end(&self) -> Result<Position, StoreError> {
        let latest = Op::Latest { key: cancels_key(), before: None, limit: 1 };
        let entries = self.ask(NAME, vec![latest]).await?.entries()?;
        Ok(entries.last().map_or(Position::START, |entry| entry.position))
    }
}
