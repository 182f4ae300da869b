//! Messages that nobody could work on.

use super::{Records, from_json, sha256, to_hex, to_json};
use crate::{Guard, Key, Op, Position, StoreError, Transaction};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use toolfleet_protocol::CallId;

/// Dead letters that are kept: about the last 10,000. More than anybody reads, and 50 MB at the most.
pub const DEAD_LETTERS_MAX: u32 = 10_000;

/// What is kept of a body: enough to know it by.
const BODY_BYTES_MAX: usize = 4 * 1024;

/// How long a letter is known to be kept, so that one delivered again isn't kept twice. Letters come again at
/// once, after a lost answer or a lost consumer.
const KEPT_RETENTION: Duration = Duration::from_secs(600);

/// A message that ended in the dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// Unix time in milliseconds.
    pub at_ms: u64,
    /// Where it died.
    pub queue: String,
    /// Of what, in the queue's words: `expired`, `rejected`.
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The call that it was about, if it was a job of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// What is known of why, for a person.
    pub why: String,
    /// Its start, as text.
    pub body: String,
    pub headers: BTreeMap<String, String>,
}

impl DeadLetter {
    /// What is kept of a body.
    pub fn body_shown(body: &[u8]) -> String {
        let start = &body[..body.len().min(BODY_BYTES_MAX)];
        cut(String::from_utf8_lossy(start).into_owned())
    }
}

/// Bad bytes become longer as text, so text is cut too.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(BODY_BYTES_MAX));
    text
}

fn letters_key() -> Key {
    Key::new("dead", "letters")
}

const NAME: &str = "the stream of dead letters";

impl Records {
    /// Keeps a dead letter. The same message dead in the same way within ten minutes is kept once.
    pub async fn put_dead(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let letter = DeadLetter { body: cut(letter.body.clone()), ..letter.clone() };
        let value = to_json(&letter);
        let digest = sha256(&to_json(&DeadLetter { at_ms: 0, ..letter }));
        let mark = Key::new("dead", &format!("kept/{}", to_hex(&digest)));
        let transaction = Transaction {
            guards: vec![Guard::Absent(mark.clone())],
            then: vec![
                Op::Append { key: letters_key(), value, keep: DEAD_LETTERS_MAX },
                Op::Set { key: mark, value: Bytes::new(), expires_in: Some(KEPT_RETENTION) },
            ],
            otherwise: Vec::new(),
        };
        self.step(NAME, transaction).await.map(|_| ())
    }

    /// The last `limit` dead letters, or those before `before`; oldest first.
    pub async fn dead(&self, before: Option<Position>, limit: u32) -> Result<Vec<(Position, DeadLetter)>, StoreError> {
        let entries = self.ask(NAME, vec![Op::Latest { key: letters_key(), before, limit }]).await?.entries()?;
        entries
            .into_iter()
            .map(|entry| Ok((entry.position, from_json(&format!("dead letter {}", entry.position), &entry.value)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_cut_to_what_is_kept() {
        assert_eq!(DeadLetter::body_shown(b"abc"), "abc");
        assert_eq!(DeadLetter::body_shown(&[b'a'; 5000]).len(), BODY_BYTES_MAX);
        assert!(DeadLetter::body_shown(&[0xff; 5000]).len() <= BODY_BYTES_MAX);
        let umlauts = "ä".repeat(3000);
        assert!(umlauts.starts_with(&DeadLetter::body_shown(&umlauts.as_bytes()[..4096])));
        assert!(DeadLetter::body_shown(umlauts.as_bytes()).len() <= BODY_BYTES_MAX);
    }
}
