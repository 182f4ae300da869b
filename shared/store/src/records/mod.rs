//! What is kept, subject by subject, written once over [`Store`].
//!
//! Every step can be repeated when its outcome isn't known: it is guarded on what it itself changes, and a repeat
//! gives the answer of the first.
//!
//! Where things are (keys are `tf:{tag}:path`; one tag is one node of a Redis cluster, and one transaction):
//!
//! | tag | path | holds |
//! |---|---|---|
//! | `call:<call>` | `record` | hash: the job, its digests, the attempt, the result ([`Records::call`]) |
//! | | `effect/<id>` | the answer to one host call ([`Records::journal_lookup`]) |
//! | `calls` | `open` | ordered set of unfinished calls, by the time at which they are overdue |
//! | `session:<account>:<session>` | `messages` | stream of messages |
//! | | `effect/<id>` | the message that this effect posted |
//! | `workspace:<account>[:<agent>]` | `files` | set of paths |
//! | | `meta` | hash: path → size, etag, time |
//! | | `content/<path>` | a file's content |
//! | | `bytes` | sum of the files' sizes |
//! | | `effect/<id>` | the file as this effect wrote it |
//! | `draft:<digest>` | `bundle` | a bundle that waits to be inspected |
//! | `release:<digest>` | `release` | a release |
//! | `plugins` | `slugs` | set of plugins |
//! | | `versions/<slug>` | hash: version → release digest |
//! | `account:<account>` | `installations` | hash: plugin → installation |
//! | | `settings/<slug>` | hash: setting → value, plain or sealed |
//! | | `agents` | set of the account's agents |
//! | `agent:<agent>` | `agent` | hash: account, name, access, time |
//! | `usage:<account>` | `day/<day>` | hash: `<plugin>/<what>` → sum |
//! | | `counted/<call>` | mark of a call that is in the sums |
//! | `usage` | `accounts/<day>` | set of the accounts that used anything on that day |
//! | `dead` | `letters` | stream of dead letters |
//! | | `kept/<digest>` | mark of a letter that is in the stream |
//! | `control` | `cancels` | stream of calls to cancel |

mod agents;
mod calls;
mod control;
mod dead;
mod journal;
mod ledger;
mod plugins;
mod replies;
mod sealer;
mod sessions;
mod settings;
mod workspace;
mod workspace_path;

pub use agents::{Access, AccessMode, Agent, AgentConflict, Put, PutAgentError};
pub use calls::{CallRecord, CallState, Claim, Created, DEFAULT_RETENTION, NewCall, Recorded, Recorder};
pub use dead::{DEAD_LETTERS_MAX, DeadLetter};
pub use journal::{Answer, EFFECT_RETENTION, EffectKey};
pub use ledger::{Counted, Day, UsageDay, UsageSum};
pub use plugins::{Installation, PublishConflict, PublishError, Published};
pub use sealer::Sealer;
pub use sessions::{MESSAGES_MAX, MessagesError, NewMessage};
pub use settings::{SECRET_SHOWN, SETTINGS_BYTES_MAX, SettingsError};
pub use workspace::{FILE_BYTES_MAX, FILES_MAX, LISTING_MAX, QUOTA_BYTES, WorkspaceError, WorkspaceOwner};
pub use workspace_path::WorkspacePathBuf;

use crate::{Store, StoreError, Transacted, Transaction};
use replies::Replies;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// The records of the fleet. Clones share one store.
#[derive(Clone)]
pub struct Records {
    store: Arc<dyn Store>,
    seen: Arc<Seen>,
}

/// What this process has seen of the store, to save round trips. Nothing depends on its being right.
#[derive(Default)]
struct Seen {
    retention: calls::RetentionSeen,
    accounts: ledger::AccountsSeen,
}

impl Records {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, seen: Arc::default() }
    }

    /// What they are kept in.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// One step. `record` names what is worked on, for the error should the replies make no sense.
    async fn step(&self, record: &str, transaction: Transaction) -> Result<Step, StoreError> {
        Ok(match self.store.transact(transaction).await? {
            Transacted::Then(replies) => Step::Then(Replies::new(record, replies)),
            Transacted::Otherwise { guard, replies } => {
                Step::Otherwise { guard, replies: Replies::new(record, replies) }
            }
        })
    }

    /// One step without guards.
    async fn ask(&self, record: &str, then: Vec<crate::Op>) -> Result<Replies, StoreError> {
        match self.step(record, Transaction { then, ..Transaction::default() }).await? {
            Step::Then(replies) => Ok(replies),
            Step::Otherwise { guard, .. } => Err(corrupt(record, format!("guard {guard} failed where none was set"))),
        }
    }
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").finish_non_exhaustive()
    }
}

/// [`Transacted`], its replies ready to be taken one by one.
enum Step {
    Then(Replies),
    Otherwise { guard: usize, replies: Replies },
}

/// What is stored isn't what this version writes.
fn corrupt(record: &str, reason: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt { record: record.to_owned(), reason: reason.to_string() }
}

/// What is stored, as JSON. For types whose maps have string keys and whose numbers are finite.
fn to_json<T: Serialize>(value: &T) -> bytes::Bytes {
    serde_json::to_vec(value).expect("records have only string keys and finite numbers").into()
}

fn from_json<T: DeserializeOwned>(record: &str, bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(|error| corrupt(record, error))
}

/// A number as the stores keep it: decimal text.
fn to_decimal(number: u64) -> bytes::Bytes {
    number.to_string().into_bytes().into()
}

/// What `to_decimal`, or a counter of the store, wrote.
fn from_decimal(record: &str, bytes: &[u8]) -> Result<u64, StoreError> {
    let text = std::str::from_utf8(bytes).map_err(|error| corrupt(record, error))?;
    text.parse().map_err(|_| corrupt(record, format_args!("{text:?} is not a number from 0")))
}

/// An id, a name or another text that parses.
fn from_text<T>(record: &str, bytes: &[u8]) -> Result<T, StoreError>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    let text = std::str::from_utf8(bytes).map_err(|error| corrupt(record, error))?;
    text.parse().map_err(|error| corrupt(record, error))
}

fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    use sha2::{Digest, Sha256};
    Sha256::digest(bytes).into()
}
