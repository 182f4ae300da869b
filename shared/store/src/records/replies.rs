//! Takes a step's replies one by one, each as the kind that its operation gives.

use super::corrupt;
use crate::{Entry, Position, Reply, StoreError};
use bytes::Bytes;

/// Replies in the order of their operations, of the record that they are about.
pub(super) struct Replies {
    record: String,
    replies: std::vec::IntoIter<Reply>,
}

impl Replies {
    pub(super) fn new(record: &str, replies: Vec<Reply>) -> Self {
        Self { record: record.to_owned(), replies: replies.into_iter() }
    }

    /// Leaves out the reply of an operation that only does something.
    pub(super) fn done(&mut self) -> Result<(), StoreError> {
        match self.next()? {
            Reply::Done => Ok(()),
            other => Err(self.unlike("no value", &other)),
        }
    }

    pub(super) fn value(&mut self) -> Result<Option<Bytes>, StoreError> {
        match self.next()? {
            Reply::Value(value) => Ok(value),
            other => Err(self.unlike("a value", &other)),
        }
    }

    pub(super) fn fields(&mut self) -> Result<Vec<(String, Bytes)>, StoreError> {
        match self.next()? {
            Reply::Fields(fields) => Ok(fields),
            other => Err(self.unlike("fields", &other)),
        }
    }

    pub(super) fn integer(&mut self) -> Result<i64, StoreError> {
        match self.next()? {
            Reply::Integer(integer) => Ok(integer),
            other => Err(self.unlike("an integer", &other)),
        }
    }

    /// An integer that can't be negative: a count, or a sum of such.
    pub(super) fn count(&mut self) -> Result<u64, StoreError> {
        let integer = self.integer()?;
        u64::try_from(integer).map_err(|_| corrupt(&self.record, format_args!("the count is {integer}")))
    }

    pub(super) fn ranked(&mut self) -> Result<Vec<(String, u64)>, StoreError> {
        match self.next()? {
            Reply::Ranked(ranked) => Ok(ranked),
            other => Err(self.unlike("ranked members", &other)),
        }
    }

    pub(super) fn appended(&mut self) -> Result<Position, StoreError> {
        match self.next()? {
            Reply::Appended(position) => Ok(position),
            other => Err(self.unlike("a position", &other)),
        }
    }

    pub(super) fn entries(&mut self) -> Result<Vec<Entry>, StoreError> {
        match self.next()? {
            Reply::Entries(entries) => Ok(entries),
            other => Err(self.unlike("entries", &other)),
        }
    }

    fn next(&mut self) -> Result<Reply, StoreError> {
        self.replies.next().ok_or_else(|| corrupt(&self.record, "the store gave fewer replies than it was asked for"))
    }

    /// The kind only: a reply may hold what must not be in an error.
    fn unlike(&self, wanted: &str, got: &Reply) -> StoreError {
        let got = match got {
            Reply::Done => "no value",
            Reply::Value(_) => "a value",
            Reply::Fields(_) => "fields",
            Reply::Integer(_) => "an integer",
            Reply::Ranked(_) => "ranked members",
            Reply::Appended(_) => "a position",
            Reply::Entries(_) => "entries",
        };
        corrupt(&self.record, format_args!("the store was asked for {wanted} and gave {got}"))
    }
}
