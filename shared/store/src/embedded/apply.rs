//! What a transaction does to the tables.

use super::Replies;
use super::tables::{MetaRow, Tables, WriteTables};
use crate::{Entry, Guard, Key, Op, Position, Reply, StoreError, Transacted, Transaction};
use bytes::Bytes;
use std::path::Path;
use std::time::Duration;

/// The kinds of a key, as rows have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Value = 1,
    Hash = 2,
    Ranks = 3,
    Stream = 4,
}

impl Kind {
    fn name(number: u8) -> &'static str {
        match number {
            1 => "value",
            2 => "hash",
            3 => "ranked set",
            4 => "stream",
            _ => "thing of an unknown kind",
        }
    }
}

/// Why an operation could not be done.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("key {key}: {reason}")]
    Key { key: String, reason: String },
    #[error(transparent)]
    Storage(#[from] redb::StorageError),
}

impl ApplyError {
    pub fn at(self, path: &Path) -> StoreError {
        match self {
            Self::Key { key, reason } => StoreError::Key { key, reason },
            Self::Storage(error) => StoreError::File { path: path.display().to_string(), reason: error.to_string() },
        }
    }
}

/// Does one transaction.
pub fn apply(tables: &mut WriteTables<'_>, transaction: &Transaction, now_ms: u64) -> Result<Transacted, ApplyError> {
    let failed = first_failed(tables, transaction, now_ms)?;
    let ops = if failed.is_none() { &transaction.then } else { &transaction.otherwise };
    let mut replies = Vec::with_capacity(ops.len());
    for op in ops {
        let reply = match read(tables, op, now_ms)? {
            Some(reply) => reply,
            None => write(tables, op, now_ms)?,
        };
        replies.push(reply);
    }
    Ok(transacted(failed, replies))
}

/// Does one transaction that changes nothing.
pub fn apply_reads(tables: &mut impl Tables, transaction: &Transaction, now_ms: u64) -> Result<Transacted, ApplyError> {
    let failed = first_failed(tables, transaction, now_ms)?;
    let ops = if failed.is_none() { &transaction.then } else { &transaction.otherwise };
    let mut replies = Vec::with_capacity(ops.len());
    for op in ops {
        replies.push(read(tables, op, now_ms)?.unwrap_or(Reply::Done));
    }
    Ok(transacted(failed, replies))
}

fn transacted(failed: Option<usize>, replies: Replies) -> Transacted {
    match failed {
        None => Transacted::Then(replies),
        Some(guard) => Transacted::Otherwise { guard, replies },
    }
}

fn first_failed(tables: &impl Tables, transaction: &Transaction, now_ms: u64) -> Result<Option<usize>, ApplyError> {
    for (at, guard) in transaction.guards.iter().enumerate() {
        if !holds(tables, guard, now_ms)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn holds(tables: &impl Tables, guard: &Guard, now_ms: u64) -> Result<bool, ApplyError> {
    let key = guard.key();
    Ok(match guard {
        Guard::Absent(_) => live(tables, key, now_ms)?.is_none(),
        Guard::Present(_) => live(tables, key, now_ms)?.is_some(),
        Guard::Is(_, wanted) => {
            of_kind(tables, key, Kind::Value, now_ms)?.is_some()
                && tables.value(key.as_str())?.is_some_and(|value| value == wanted[..])
        }
        Guard::FieldAbsent(_, field) => field_value(tables, key, field, now_ms)?.is_none(),
        Guard::FieldPresent(_, field) => field_value(tables, key, field, now_ms)?.is_some(),
        Guard::FieldIs(_, field, wanted) => {
            field_value(tables, key, field, now_ms)?.is_some_and(|value| value == wanted[..])
        }
    })
}

/// The key's row, unless it has expired.
fn live(tables: &impl Tables, key: &Key, now_ms: u64) -> Result<Option<MetaRow>, ApplyError> {
    Ok(tables.meta(key.as_str())?.filter(|(_, expires, _, _)| *expires == 0 || *expires > now_ms))
}

/// As [`live`]; a key of another kind is an error.
fn of_kind(tables: &impl Tables, key: &Key, kind: Kind, now_ms: u64) -> Result<Option<MetaRow>, ApplyError> {
    match live(tables, key, now_ms)? {
        Some((number, ..)) if number != kind as u8 => Err(ApplyError::Key {
            key: key.to_string(),
            reason: format!("it holds a {}, not a {}", Kind::name(number), Kind::name(kind as u8)),
        }),
        row => Ok(row),
    }
}

fn field_value(tables: &impl Tables, key: &Key, field: &str, now_ms: u64) -> Result<Option<Vec<u8>>, ApplyError> {
    match of_kind(tables, key, Kind::Hash, now_ms)? {
        Some(_) => Ok(tables.field(key.as_str(), field)?),
        None => Ok(None),
    }
}

fn read(tables: &impl Tables, op: &Op, now_ms: u64) -> Result<Option<Reply>, ApplyError> {
    let key = op.key();
    Ok(Some(match op {
        Op::Get(_) => match of_kind(tables, key, Kind::Value, now_ms)? {
            Some(_) => Reply::Value(tables.value(key.as_str())?.map(Bytes::from)),
            None => Reply::Value(None),
        },
        Op::FieldGet { field, .. } => Reply::Value(field_value(tables, key, field, now_ms)?.map(Bytes::from)),
        Op::FieldsGet(_) => match of_kind(tables, key, Kind::Hash, now_ms)? {
            Some(_) => {
                let fields = tables.all_fields(key.as_str())?;
                Reply::Fields(fields.into_iter().map(|(field, value)| (field, value.into())).collect())
            }
            None => Reply::Fields(Vec::new()),
        },
        Op::Ranked { min, max, limit, descending, .. } => match of_kind(tables, key, Kind::Ranks, now_ms)? {
            Some(_) => Reply::Ranked(tables.ranked(key.as_str(), *min, *max, *limit as usize, *descending)?),
            None => Reply::Ranked(Vec::new()),
        },
        Op::Members { prefix, after, limit, .. } => match of_kind(tables, key, Kind::Ranks, now_ms)? {
            Some(_) => {
                let (from, beyond) = match after {
                    Some(after) if after.as_str() >= prefix.as_str() => (after.as_str(), true),
                    _ => (prefix.as_str(), false),
                };
                let members = tables.members(key.as_str(), from, beyond, prefix, *limit as usize)?;
                Reply::Ranked(members.into_iter().map(|member| (member, 0)).collect())
            }
            None => Reply::Ranked(Vec::new()),
        },
        Op::RankCount(_) => match of_kind(tables, key, Kind::Ranks, now_ms)? {
            Some(_) => Reply::Integer(integer(tables.member_count(key.as_str())?)),
            None => Reply::Integer(0),
        },
        Op::Latest { before, limit, .. } => match of_kind(tables, key, Kind::Stream, now_ms)? {
            Some(_) => {
                let before = before.map(|before| (before.at_ms, before.sequence));
                Reply::Entries(to_entries(tables.entries_before(key.as_str(), before, *limit as usize)?))
            }
            None => Reply::Entries(Vec::new()),
        },
        _ => return Ok(None),
    }))
}

/// Entries of a stream after a position.
pub fn entries_after(
    tables: &mut impl Tables,
    key: &Key,
    after: Position,
    limit: u32,
    now_ms: u64,
) -> Result<Vec<Entry>, ApplyError> {
    match of_kind(tables, key, Kind::Stream, now_ms)? {
        Some(_) => {
            let after = (after.at_ms, after.sequence);
            Ok(to_entries(tables.entries_after(key.as_str(), after, limit as usize)?))
        }
        None => Ok(Vec::new()),
    }
}

fn to_entries(rows: Vec<(u64, u64, Vec<u8>)>) -> Vec<Entry> {
    rows.into_iter()
        .map(|(at_ms, sequence, value)| Entry { position: Position { at_ms, sequence }, value: value.into() })
        .collect()
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn write(tables: &mut WriteTables<'_>, op: &Op, now_ms: u64) -> Result<Reply, ApplyError> {
    tables.changed = true;
    let key = op.key();
    let name = key.as_str();
    match op {
        Op::Set { value, expires_in, .. } => {
            remove(tables, key)?;
            make(tables, key, Kind::Value, expires_in.map(|expiry| due(now_ms, expiry)))?;
            tables.values.insert(name, &value[..])?;
        }
        Op::Delete(_) => remove(tables, key)?,
        Op::Expire { expires_in, .. } => {
            if let Some((kind, before, a, b)) = live(tables, key, now_ms)? {
                let expires = due(now_ms, *expires_in);
                tables.expiries.remove((before, name))?;
                tables.expiries.insert((expires, name), ())?;
                tables.meta.insert(name, (kind, expires, a, b))?;
            }
        }
        Op::Add { by, .. } => {
            ready(tables, key, Kind::Value, now_ms)?;
            let before = tables.value(name)?;
            let after = sum(key, before.as_deref(), *by)?;
            tables.values.insert(name, after.to_string().as_bytes())?;
            return Ok(Reply::Integer(after));
        }
        // As in Redis, no fields make no hash.
        Op::FieldsSet { fields, .. } if fields.is_empty() => drop(of_kind(tables, key, Kind::Hash, now_ms)?),
        Op::FieldsSet { fields, .. } => {
            ready(tables, key, Kind::Hash, now_ms)?;
            for (field, value) in fields {
                tables.fields.insert((name, field.as_str()), &value[..])?;
            }
        }
        Op::FieldDelete { field, .. } if of_kind(tables, key, Kind::Hash, now_ms)?.is_some() => {
            tables.fields.remove((name, field.as_str()))?;
            // As in Redis, a hash without fields is not there.
            if !tables.has_fields(name)? {
                remove(tables, key)?;
            }
        }
        Op::FieldAdd { field, by, .. } => {
            ready(tables, key, Kind::Hash, now_ms)?;
            let before = tables.field(name, field)?;
            let after = sum(key, before.as_deref(), *by)?;
            tables.fields.insert((name, field.as_str()), after.to_string().as_bytes())?;
            return Ok(Reply::Integer(after));
        }
        Op::Rank { member, score, .. } => {
            ready(tables, key, Kind::Ranks, now_ms)?;
            let before = tables.scores.insert((name, member.as_str()), *score)?.map(|score| score.value());
            if let Some(before) = before {
                tables.ranks.remove((name, before, member.as_str()))?;
            }
            tables.ranks.insert((name, *score, member.as_str()), ())?;
        }
        Op::Unrank { member, .. } if of_kind(tables, key, Kind::Ranks, now_ms)?.is_some() => {
            let before = tables.scores.remove((name, member.as_str()))?.map(|score| score.value());
            if let Some(before) = before {
                tables.ranks.remove((name, before, member.as_str()))?;
            }
            if tables.members(name, "", false, "", 1)?.is_empty() {
                remove(tables, key)?;
            }
        }
        Op::Append { value, keep, .. } => return append(tables, key, value, *keep, now_ms),
        _ => {}
    }
    Ok(Reply::Done)
}

fn append(tables: &mut WriteTables<'_>, key: &Key, value: &Bytes, keep: u32, now_ms: u64) -> Result<Reply, ApplyError> {
    let (kind, expires, last_ms, last_sequence) = ready(tables, key, Kind::Stream, now_ms)?;
    // A clock that went back must not make the stream go back.
    let (at_ms, sequence) = if now_ms > last_ms { (now_ms, 0) } else { (last_ms, last_sequence + 1) };
    tables.meta.insert(key.as_str(), (kind, expires, at_ms, sequence))?;
    tables.entries.insert((key.as_str(), at_ms, sequence), &value[..])?;
    // Only now and then, since it counts; so "about" the last so many, as in Redis.
    if sequence % TRIM_EVERY == 0 {
        let all = tables.entries_after(key.as_str(), (0, 0), usize::MAX)?;
        for (ms, sequence, _) in all.iter().rev().skip(keep as usize) {
            tables.entries.remove((key.as_str(), *ms, *sequence))?;
        }
    }
    Ok(Reply::Appended(Position { at_ms, sequence }))
}

const TRIM_EVERY: u64 = 64;

fn due(now_ms: u64, expires_in: Duration) -> u64 {
    now_ms.saturating_add(u64::try_from(expires_in.as_millis()).unwrap_or(u64::MAX).max(1))
}

/// The key's row, made if there is none; one of another kind is an error.
fn ready(tables: &mut WriteTables<'_>, key: &Key, kind: Kind, now_ms: u64) -> Result<MetaRow, ApplyError> {
    if let Some(row) = of_kind(tables, key, kind, now_ms)? {
        return Ok(row);
    }
    // What has expired under this name must not come back.
    remove(tables, key)?;
    make(tables, key, kind, None)
}

fn make(tables: &mut WriteTables<'_>, key: &Key, kind: Kind, expires: Option<u64>) -> Result<MetaRow, ApplyError> {
    let row = (kind as u8, expires.unwrap_or(0), 0, 0);
    tables.meta.insert(key.as_str(), row)?;
    if let Some(expires) = expires {
        tables.expiries.insert((expires, key.as_str()), ())?;
    }
    Ok(row)
}

fn remove(tables: &mut WriteTables<'_>, key: &Key) -> Result<(), ApplyError> {
    let name = key.as_str();
    let Some((kind, expires, ..)) = tables.meta.remove(name)?.map(|row| row.value()) else { return Ok(()) };
    if expires > 0 {
        tables.expiries.remove((expires, name))?;
    }
    match kind {
        1 => drop(tables.values.remove(name)?),
        2 => {
            for (field, _) in tables.all_fields(name)? {
                tables.fields.remove((name, field.as_str()))?;
            }
        }
        3 => {
            for (member, score) in tables.ranked(name, 0, u64::MAX, usize::MAX, false)? {
                tables.ranks.remove((name, score, member.as_str()))?;
                tables.scores.remove((name, member.as_str()))?;
            }
        }
        _ => {
            for (ms, sequence, _) in tables.entries_after(name, (0, 0), usize::MAX)? {
                tables.entries.remove((name, ms, sequence))?;
            }
        }
    }
    Ok(())
}

fn sum(key: &Key, before: Option<&[u8]>, by: i64) -> Result<i64, ApplyError> {
    let number = match before {
        None => Some(0),
        Some(bytes) => std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<i64>().ok()),
    };
    number.and_then(|number| number.checked_add(by)).ok_or_else(|| ApplyError::Key {
        key: key.to_string(),
        reason: "what it holds is no whole number, or the sum is out of range".into(),
    })
}

/// Removes what has expired; how many keys that was.
pub fn sweep(tables: &mut WriteTables<'_>, now_ms: u64, max: usize) -> Result<usize, redb::StorageError> {
    use redb::ReadableTable;
    let mut expired = Vec::new();
    for row in tables.expiries.range(..=(now_ms, "\u{10ffff}"))?.take(max) {
        let (place, ()) = (row?.0, ());
        let (_, name) = place.value();
        expired.extend(Key::parse(name));
    }
    for key in &expired {
        match remove(tables, key) {
            Ok(()) => {}
            Err(ApplyError::Storage(error)) => return Err(error),
            Err(ApplyError::Key { .. }) => {}
        }
    }
    Ok(expired.len())
}
