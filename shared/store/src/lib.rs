//! Session state and everything else that outlives a process: one narrow trait, two makes, and the records that
//! are kept through it.
//!
//! [`redis`] and [`embedded`] implement [`Store`]; what both promise is written as tests in `tests/contract.rs`.
//! The modules of [`records`] are written once, over the trait: calls, sessions, workspaces, plugins, agents,
//! settings, effects, usage. Nothing outside this crate builds a key.
#![forbid(unsafe_code)]

pub mod embedded;
mod key;
pub mod records;
pub mod redis;
mod transaction;

pub use key::Key;
pub use transaction::{Entry, Guard, Op, Position, Reply, Transacted, Transaction};

use async_trait::async_trait;
use std::time::Duration;

/// Where state is kept.
///
/// One call is one round trip and one atomic step. Since a lost connection leaves a step's fate unknown, every
/// caller must be able to repeat it: it guards on what the step itself changes.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Checks the guards, then carries out `then` if all hold, `otherwise` if not; in one atomic step.
    ///
    /// All keys must have one tag ([`Key`]).
    async fn transact(&self, transaction: Transaction) -> Result<Transacted, StoreError>;

    /// Entries of a stream after `after`, at most `limit`; waits up to `wait` for the first. Empty when none came.
    /// Waiting holds up no other use of the store.
    async fn tail(&self, stream: &Key, after: &Position, limit: u32, wait: Duration) -> Result<Vec<Entry>, StoreError>;

    /// Does it answer?
    async fn ping(&self) -> Result<(), StoreError>;
}

/// Why the store didn't do as asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot reach the store at {at}: {reason}")]
    Unreachable { at: String, reason: String },
    #[error("the store did not answer within {waited:?}")]
    Timeout { waited: Duration },
    #[error("key {key}: {reason}")]
    Key { key: String, reason: String },
    #[error("the store's file {path}: {reason}")]
    File { path: String, reason: String },
    #[error("{field}: {reason}")]
    Config { field: &'static str, reason: String },
    #[error("{record} is not in the form this version writes: {reason}")]
    Corrupt { record: String, reason: String },
}
