//! One atomic step: what must hold, and what is done then.

use crate::{Key, StoreError};
use bytes::Bytes;
use std::fmt;
use std::time::Duration;

/// Guards and the operations that depend on them.
#[derive(Debug, Clone, Default)]
pub struct Transaction {
    pub guards: Vec<Guard>,
    pub then: Vec<Op>,
    /// Done instead of `then` where a guard doesn't hold. As a rule it reads what stood in the way.
    pub otherwise: Vec<Op>,
}

impl Transaction {
    /// All keys of a transaction must live together.
    ///
    /// # Errors
    /// Names the first key of another tag.
    pub(crate) fn check_tags(&self) -> Result<(), StoreError> {
        let guards = self.guards.iter().map(Guard::key);
        let mut keys = guards.chain(self.then.iter().chain(&self.otherwise).map(Op::key));
        let Some(first) = keys.next() else { return Ok(()) };
        match keys.find(|key| key.tag() != first.tag()) {
            None => Ok(()),
            Some(other) => Err(StoreError::Key {
                key: other.to_string(),
                reason: format!("a transaction on {first} can't touch a key of another tag"),
            }),
        }
    }

    /// Nothing in it changes anything.
    pub(crate) fn only_reads(&self) -> bool {
        self.then.iter().chain(&self.otherwise).all(Op::only_reads)
    }
}

/// Something that must hold.
#[derive(Debug, Clone)]
pub enum Guard {
    /// Nothing is kept under this key, of any kind.
    Absent(Key),
    /// Something is.
    Present(Key),
    /// This very value is kept under the key.
    Is(Key, Bytes),
    /// The hash has no such field (or there is no hash).
    FieldAbsent(Key, String),
    FieldPresent(Key, String),
    /// The hash's field has this very value.
    FieldIs(Key, String, Bytes),
}

impl Guard {
    /// The key it looks at.
    pub fn key(&self) -> &Key {
        match self {
            Guard::Absent(key)
            | Guard::Present(key)
            | Guard::Is(key, _)
            | Guard::FieldAbsent(key, _)
            | Guard::FieldPresent(key, _)
            | Guard::FieldIs(key, _, _) => key,
        }
    }
}

/// One operation. Comments name the [`Reply`].
#[derive(Debug, Clone)]
pub enum Op {
    /// [`Reply::Value`]
    Get(Key),
    /// [`Reply::Done`]. Replaces what is there; without an expiry it stays.
    Set { key: Key, value: Bytes, expires_in: Option<Duration> },
    /// [`Reply::Done`]
    Delete(Key),
    /// [`Reply::Done`]. No effect on a key that isn't there.
    Expire { key: Key, expires_in: Duration },
    /// [`Reply::Integer`], the value after. A missing value counts as 0. Keeps the expiry.
    Add { key: Key, by: i64 },

    /// [`Reply::Value`]
    FieldGet { key: Key, field: String },
    /// [`Reply::Fields`], all of them, in no order.
    FieldsGet(Key),
    /// [`Reply::Done`]
    FieldsSet { key: Key, fields: Vec<(String, Bytes)> },
    /// [`Reply::Done`]
    FieldDelete { key: Key, field: String },
    /// [`Reply::Integer`], the value after. A missing field counts as 0.
    FieldAdd { key: Key, field: String, by: i64 },

    /// [`Reply::Done`]. Adds the member, or moves it to this score.
    Rank { key: Key, member: String, score: u64 },
    /// [`Reply::Done`]
    Unrank { key: Key, member: String },
    /// [`Reply::Ranked`]: members with `min <= score <= max`, by score then member, at most `limit`;
    /// from the highest down if `descending`.
    Ranked { key: Key, min: u64, max: u64, limit: u32, descending: bool },
    /// [`Reply::Ranked`] with scores 0: members of a set whose scores are all 0, in byte order, from those greater
    /// than `after` (all, if `None`) and starting with `prefix`, at most `limit`.
    Members { key: Key, prefix: String, after: Option<String>, limit: u32 },
    /// [`Reply::Integer`]
    RankCount(Key),

    /// [`Reply::Appended`]. Keeps about the last `keep` entries.
    Append { key: Key, value: Bytes, keep: u32 },
    /// [`Reply::Entries`], oldest first: the last `limit` entries before `before` (or the last of all).
    Latest { key: Key, before: Option<Position>, limit: u32 },
}

impl Op {
    /// The key it works on.
    pub fn key(&self) -> &Key {
        match self {
            Op::Get(key) | Op::Delete(key) | Op::FieldsGet(key) | Op::RankCount(key) => key,
            Op::Set { key, .. }
            | Op::Expire { key, .. }
            | Op::Add { key, .. }
            | Op::FieldGet { key, .. }
            | Op::FieldsSet { key, .. }
            | Op::FieldDelete { key, .. }
            | Op::FieldAdd { key, .. }
            | Op::Rank { key, .. }
            | Op::Unrank { key, .. }
            | Op::Ranked { key, .. }
            | Op::Members { key, .. }
            | Op::Append { key, .. }
            | Op::Latest { key, .. } => key,
        }
    }

    fn only_reads(&self) -> bool {
        matches!(
            self,
            Op::Get(_)
                | Op::FieldGet { .. }
                | Op::FieldsGet(_)
                | Op::Ranked { .. }
                | Op::Members { .. }
                | Op::RankCount(_)
                | Op::Latest { .. }
        )
    }
}

/// The answer to an [`Op`], in its place.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Done,
    Value(Option<Bytes>),
    Fields(Vec<(String, Bytes)>),
    Integer(i64),
    Ranked(Vec<(String, u64)>),
    Appended(Position),
    Entries(Vec<Entry>),
}

/// What came of a [`Transaction`].
#[derive(Debug, Clone, PartialEq)]
pub enum Transacted {
    /// All guards held. A reply to each operation of `then`.
    Then(Vec<Reply>),
    /// The guard of this index was the first that didn't. A reply to each operation of `otherwise`.
    Otherwise { guard: usize, replies: Vec<Reply> },
}

/// A place in a stream. Texts of it sort as the stream does only through [`Ord`] here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Unix time in milliseconds, or later than the entry before.
    pub at_ms: u64,
    pub sequence: u64,
}

impl Position {
    /// Before every entry.
    pub const START: Self = Self { at_ms: 0, sequence: 0 };

    /// Reads `<ms>-<sequence>`.
    pub fn parse(text: &str) -> Option<Self> {
        let (at_ms, sequence) = text.split_once('-')?;
        Some(Self { at_ms: at_ms.parse().ok()?, sequence: sequence.parse().ok()? })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.at_ms, self.sequence)
    }
}

/// One entry of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub position: Position,
    pub value: Bytes,
}
