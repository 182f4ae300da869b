//! Conversations.

use super::{EFFECT_RETENTION, EffectKey, Records, Step, corrupt, from_json, to_json};
use crate::{Entry, Guard, Key, Op, Position, StoreError, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolfleet_protocol::host::{Role, SessionMessage};
use toolfleet_protocol::{AccountId, PluginSlug, SessionId};

/// A conversation keeps about its last 10,000 messages: far more than any model reads, and at a few kilobytes
/// each still tens of megabytes.
pub const MESSAGES_MAX: u32 = 10_000;

/// Messages read at a time in looking for one of which only the effect is known.
const SEARCH_PAGE: u32 = 500;

/// Pages of such a search: the whole conversation, with some room since a stream is cut about where it should be.
const SEARCH_PAGES_MAX: u32 = 2 * MESSAGES_MAX / SEARCH_PAGE;

/// A message to be posted.
#[derive(Debug, Clone)]
pub struct NewMessage {
    pub role: Role,
    pub text: String,
    /// The plugin that posts it, if one does.
    pub plugin: Option<PluginSlug>,
    pub data: Map<String, Value>,
}

/// Why messages could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MessagesError {
    #[error("before must be the id of a message, such as \"1767225600000-0\", but is {got:?}")]
    Before { got: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A message in its stream: the position is its id.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    role: Role,
    text: String,
    at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plugin: Option<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    data: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    effect: Option<String>,
}

impl Stored {
    fn at(self, position: Position) -> SessionMessage {
        let Self { role, text, at_ms, plugin, data, effect: _ } = self;
        SessionMessage { id: position.to_string(), role, text, at_ms, plugin, data }
    }
}

struct Session {
    tag: String,
    name: String,
}

impl Session {
    fn new(account: &AccountId, session: &SessionId) -> Self {
        Self { tag: format!("session:{account}:{session}"), name: format!("session {session} of account {account}") }
    }

    fn messages(&self) -> Key {
        Key::new(&self.tag, "messages")
    }

    fn read(&self, entry: &Entry) -> Result<Stored, StoreError> {
        from_json(&format!("message {} of {}", entry.position, self.name), &entry.value)
    }
}

impl Records {
    /// Posts a message; one with the same effect is posted once, and answered alike each time.
    pub async fn post_message(
        &self,
        account: &AccountId,
        session: &SessionId,
        message: NewMessage,
        effect: Option<&EffectKey>,
        now_ms: u64,
    ) -> Result<SessionMessage, StoreError> {
        let session = Session::new(account, session);
        let NewMessage { role, text, plugin, data } = message;
        let effect_id = effect.map(EffectKey::id);
        let plugin = plugin.map(String::from);
        let stored = Stored { role, text, at_ms: now_ms, plugin, data, effect: effect_id.clone() };
        let value = to_json(&stored);
        let mut transaction = Transaction {
            then: vec![Op::Append { key: session.messages(), value: value.clone(), keep: MESSAGES_MAX }],
            ..Transaction::default()
        };
        if let Some(id) = &effect_id {
            let mark = Key::new(&session.tag, &format!("effect/{id}"));
            transaction.guards.push(Guard::Absent(mark.clone()));
            // The position isn't known yet when the mark is set: a repeat finds it in the stream.
            let latest = Op::Latest { key: session.messages(), before: None, limit: SEARCH_PAGE };
            transaction.otherwise.extend([Op::Get(mark.clone()), latest]);
            transaction.then.push(Op::Set { key: mark, value, expires_in: Some(EFFECT_RETENTION) });
        }
        match self.step(&session.name, transaction).await? {
            Step::Then(mut replies) => Ok(stored.at(replies.appended()?)),
            Step::Otherwise { mut replies, .. } => {
                let mark = replies.value()?;
                let mark = mark.ok_or_else(|| corrupt(&session.name, "the mark of an effect was there and is not"))?;
                let first = from_json(&session.name, &mark)?;
                self.find_posted(&session, first, replies.entries()?).await
            }
        }
    }

    /// The message that an effect posted, looked for from the end of the conversation.
    async fn find_posted(
        &self,
        session: &Session,
        first: Stored,
        mut page: Vec<Entry>,
    ) -> Result<SessionMessage, StoreError> {
        for _ in 0..SEARCH_PAGES_MAX {
            for entry in page.iter().rev() {
                let stored = session.read(entry)?;
                if stored.effect == first.effect {
                    return Ok(stored.at(entry.position));
                }
            }
            let Some(oldest) = page.first() else { break };
            let before = Some(oldest.position);
            let latest = Op::Latest { key: session.messages(), before, limit: SEARCH_PAGE };
            page = self.ask(&session.name, vec![latest]).await?.entries()?;
        }
        // The conversation has moved on past it. Its time is as near to its position as can be said.
        let about = Position { at_ms: first.at_ms, sequence: 0 };
        Ok(first.at(about))
    }

    /// The last `limit` messages, or those before the message of id `before`; oldest first.
    pub async fn messages(
        &self,
        account: &AccountId,
        session: &SessionId,
        before: Option<&str>,
        limit: u32,
    ) -> Result<Vec<SessionMessage>, MessagesError> {
        let before = before
            .map(|text| {
                let got = || text.chars().take(80).collect();
                Position::parse(text).ok_or_else(|| MessagesError::Before { got: got() })
            })
            .transpose()?;
        let session = Session::new(account, session);
        let latest = Op::Latest { key: session.messages(), before, limit };
        let entries = self.ask(&session.name, vec![latest]).await?.entries()?;
        let messages: Result<_, StoreError> =
            entries.iter().map(|entry| Ok(session.read(entry)?.at(entry.position))).collect();
        Ok(messages?)
    }
}
