//! Transactions as the script's arguments, and its answer as replies.

use crate::{Entry, Guard, Key, Op, Position, Reply, StoreError, Transacted, Transaction};
use bytes::Bytes;
use redis::{ScriptInvocation, Value};
use std::time::Duration;

/// Writes the transaction into an invocation. Returns its keys; the script's errors name one by its number, from 1.
pub fn transaction(transaction: &Transaction, to: &mut ScriptInvocation<'_>) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    let mut number = |key: &Key| {
        let found = keys.iter().position(|known| known == key.as_str());
        found.unwrap_or_else(|| {
            keys.push(key.as_str().to_owned());
            keys.len() - 1
        }) + 1
    };
    to.arg(transaction.guards.len());
    for one in &transaction.guards {
        let key = number(one.key());
        match one {
            Guard::Absent(_) => to.arg("A").arg(key),
            Guard::Present(_) => to.arg("P").arg(key),
            Guard::Is(_, value) => to.arg("I").arg(key).arg(&value[..]),
            Guard::FieldAbsent(_, field) => to.arg("FA").arg(key).arg(field),
            Guard::FieldPresent(_, field) => to.arg("FP").arg(key).arg(field),
            Guard::FieldIs(_, field, value) => to.arg("FI").arg(key).arg(field).arg(&value[..]),
        };
    }
    for ops in [&transaction.then, &transaction.otherwise] {
        to.arg(ops.len());
        for one in ops {
            let key = number(one.key());
            op(one, key, to);
        }
    }
    for key in &keys {
        to.key(key);
    }
    keys
}

fn op(op: &Op, key: usize, to: &mut ScriptInvocation<'_>) {
    match op {
        Op::Get(_) => to.arg("GET").arg(key),
        Op::Set { value, expires_in, .. } => to.arg("SET").arg(key).arg(&value[..]).arg(expires_in.map_or(0, millis)),
        Op::Delete(_) => to.arg("DEL").arg(key),
        Op::Expire { expires_in, .. } => to.arg("EXP").arg(key).arg(millis(*expires_in)),
        Op::Add { by, .. } => to.arg("ADD").arg(key).arg(*by),
        Op::FieldGet { field, .. } => to.arg("HGET").arg(key).arg(field),
        Op::FieldsGet(_) => to.arg("HALL").arg(key),
        Op::FieldsSet { fields, .. } => {
            to.arg("HSET").arg(key).arg(fields.len() * 2);
            for (field, value) in fields {
                to.arg(field).arg(&value[..]);
            }
            to
        }
        Op::FieldDelete { field, .. } => to.arg("HDEL").arg(key).arg(field),
        Op::FieldAdd { field, by, .. } => to.arg("HADD").arg(key).arg(field).arg(*by),
        Op::Rank { member, score, .. } => to.arg("ZADD").arg(key).arg(*score).arg(member),
        Op::Unrank { member, .. } => to.arg("ZREM").arg(key).arg(member),
        Op::Ranked { min, max, limit, descending, .. } => {
            to.arg("ZR").arg(key).arg(*min).arg(*max).arg(*limit).arg(u8::from(*descending))
        }
        Op::Members { prefix, after, limit, .. } => {
            let from = match after {
                // Whichever is later: the first of the prefix, or what comes after the last one seen.
                Some(after) if after.as_str() >= prefix.as_str() => [b"(", after.as_bytes()].concat(),
                _ if prefix.is_empty() => b"-".to_vec(),
                _ => [b"[", prefix.as_bytes()].concat(),
            };
            // No UTF-8 text holds the byte 255, so all of the prefix sort below it.
            let to_end = if prefix.is_empty() { b"+".to_vec() } else { [b"(", prefix.as_bytes(), &[255]].concat() };
            to.arg("ZM").arg(key).arg(from).arg(to_end).arg(*limit)
        }
        Op::RankCount(_) => to.arg("ZN").arg(key),
        Op::Append { value, keep, .. } => to.arg("XADD").arg(key).arg(*keep).arg(&value[..]),
        Op::Latest { before, limit, .. } => {
            let from = match before {
                None => "+".to_owned(),
                // Nothing is before the start, and Redis takes no open interval that ends there.
                Some(before) if *before == Position::START => "0-0".to_owned(),
                Some(before) => format!("({before}"),
            };
            to.arg("XREV").arg(key).arg(from).arg(*limit)
        }
    };
}

/// A thousand years. Redis refuses an expiry that its clock can't hold.
const EXPIRY_MAX_MS: u64 = 1_000 * 365 * 24 * 60 * 60 * 1_000;

/// An expiry of less than a millisecond is one of a millisecond; 0 would mean none.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).clamp(1, EXPIRY_MAX_MS)
}

/// Reads the script's answer.
pub fn answer(transaction: &Transaction, answer: Value) -> Result<Transacted, StoreError> {
    let strange = |what: &str| StoreError::Corrupt { record: "the script's answer".into(), reason: what.to_owned() };
    let Value::Array(values) = answer else { return Err(strange("it is no array")) };
    let mut values = values.into_iter();
    let Some(Value::Int(guard)) = values.next() else { return Err(strange("it names no guard")) };
    let ops = if guard == 0 { &transaction.then } else { &transaction.otherwise };
    let replies: Vec<Reply> = ops
        .iter()
        .zip(values)
        .map(|(op, value)| reply(op, value).ok_or_else(|| strange("a reply of another kind")))
        .collect::<Result<_, _>>()?;
    if replies.len() != ops.len() {
        return Err(strange("too few replies"));
    }
    Ok(match usize::try_from(guard) {
        Ok(0) | Err(_) => Transacted::Then(replies),
        Ok(guard) => Transacted::Otherwise { guard: guard - 1, replies },
    })
}

fn reply(op: &Op, value: Value) -> Option<Reply> {
    Some(match op {
        Op::Get(_) | Op::FieldGet { .. } => Reply::Value(match value {
            Value::Nil => None,
            other => Some(bytes(other)?),
        }),
        Op::FieldsGet(_) => Reply::Fields(pairs(value, Some)?),
        Op::Add { .. } | Op::FieldAdd { .. } | Op::RankCount(_) => match value {
            Value::Int(number) => Reply::Integer(number),
            other => Reply::Integer(text(bytes(other)?)?.parse().ok()?),
        },
        Op::Ranked { .. } => {
            // Scores come as the shortest text of a double, which for large ones has an exponent.
            let score = |value: Bytes| Some(text(value)?.parse::<f64>().ok()? as u64);
            Reply::Ranked(pairs(value, score)?)
        }
        Op::Members { .. } => {
            let Value::Array(members) = value else { return None };
            let members: Option<Vec<_>> = members.into_iter().map(|member| Some((text(bytes(member)?)?, 0))).collect();
            Reply::Ranked(members?)
        }
        Op::Append { .. } => Reply::Appended(Position::parse(&text(bytes(value)?)?)?),
        Op::Latest { .. } => {
            let Value::Array(entries) = value else { return None };
            // They come newest first.
            let entries: Option<Vec<Entry>> = entries.into_iter().rev().map(entry).collect();
            Reply::Entries(entries?)
        }
        Op::Set { .. }
        | Op::Delete(_)
        | Op::Expire { .. }
        | Op::FieldsSet { .. }
        | Op::FieldDelete { .. }
        | Op::Rank { .. }
        | Op::Unrank { .. } => Reply::Done,
    })
}

/// Reads the answer of a waiting read: nothing, or one stream with its entries.
pub fn tail(stream: &Key, answer: Value) -> Result<Vec<Entry>, StoreError> {
    let entries = match answer {
        Value::Nil => return Ok(Vec::new()),
        Value::Array(mut streams) if streams.len() == 1 => match streams.remove(0) {
            Value::Array(mut one) if one.len() == 2 => one.remove(1),
            other => other,
        },
        other => other,
    };
    let parsed = match entries {
        Value::Array(entries) => entries.into_iter().map(entry).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    parsed.ok_or_else(|| StoreError::Corrupt {
        record: stream.to_string(),
        reason: "it is no stream of single values".into(),
    })
}

fn entry(value: Value) -> Option<Entry> {
    let Value::Array(parts) = value else { return None };
    let [id, fields] = <[Value; 2]>::try_from(parts).ok()?;
    let Value::Array(fields) = fields else { return None };
    let [_, value] = <[Value; 2]>::try_from(fields).ok()?;
    Some(Entry { position: Position::parse(&text(bytes(id)?)?)?, value: bytes(value)? })
}

fn pairs<T>(value: Value, second: impl Fn(Bytes) -> Option<T>) -> Option<Vec<(String, T)>> {
    let Value::Array(flat) = value else { return None };
    let mut flat = flat.into_iter();
    let mut pairs = Vec::with_capacity(flat.len() / 2);
    while let (Some(name), Some(value)) = (flat.next(), flat.next()) {
        pairs.push((text(bytes(name)?)?, second(bytes(value)?)?));
    }
    Some(pairs)
}

fn bytes(value: Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(bytes.into()),
        Value::SimpleString(text) => Some(text.into_bytes().into()),
        _ => None,
    }
}

fn text(bytes: Bytes) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}
