//! Effects of host calls: what was answered once is answered again.

use super::calls::call_tag;
use super::{Records, from_json, sha256, to_hex, to_json};
use crate::{Guard, Key, Op, StoreError, Transaction};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;
use toolfleet_protocol::CallId;
use toolfleet_protocol::host::{HostError, HostMethod};

/// How long an effect on a session or a workspace is known to have happened. A call is delivered again within
/// minutes of its worker's loss; a week leaves room for one that waited out an outage.
pub const EFFECT_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

/// What the host answered.
pub type Answer = Result<Box<RawValue>, HostError>;

/// One effect of one call: the same question of the same call is the same effect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EffectKey {
    pub call: CallId,
    /// Which host call of the call it is, from 0, logs not counted.
    pub ordinal: u32,
    pub method: HostMethod,
    pub arguments_digest: [u8; 32],
}

impl EffectKey {
    /// A text that stands for it, the same in every attempt and unlike any other's; also good as an idempotency
    /// key towards others.
    pub fn id(&self) -> String {
        let mut asked = (self.method as u16).to_be_bytes().to_vec();
        asked.extend(self.arguments_digest);
        format!("{}.{}.{}", self.call, self.ordinal, &to_hex(&sha256(&asked))[..32])
    }

    fn key(&self) -> Key {
        Key::new(&call_tag(&self.call), &format!("effect/{}", self.id()))
    }

    fn name(&self) -> String {
        format!("effect {}", self.id())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Stored {
    Ok(Box<RawValue>),
    Failed(HostError),
}

impl Records {
    /// What was answered to this host call before, if it was asked before.
    pub async fn journal_lookup(&self, effect: &EffectKey) -> Result<Option<Answer>, StoreError> {
        let stored = self.ask(&effect.name(), vec![Op::Get(effect.key())]).await?.value()?;
        let Some(stored) = stored else { return Ok(None) };
        Ok(Some(match from_json(&effect.name(), &stored)? {
            Stored::Ok(value) => Ok(value),
            Stored::Failed(error) => Err(error),
        }))
    }

    /// Keeps an answer for the call's next attempts. One that is kept already stays as it is.
    pub async fn journal_record(
        &self,
        effect: &EffectKey,
        answer: &Answer,
        retention: Duration,
    ) -> Result<(), StoreError> {
        let value: Bytes = to_json(&match answer {
            Ok(value) => Stored::Ok(value.clone()),
            Err(error) => Stored::Failed(error.clone()),
        });
        let key = effect.key();
        let transaction = Transaction {
            guards: vec![Guard::Absent(key.clone())],
            then: vec![Op::Set { key, value, expires_in: Some(retention) }],
            otherwise: Vec::new(),
        };
        self.step(&effect.name(), transaction).await.map(|_| ())
    }
}
