//! Agents and what they may call.

use super::plugins::account_key;
use super::{Records, Step, corrupt, from_decimal, from_json, from_text, to_decimal, to_json};
use crate::{Guard, Key, Op, StoreError, Transaction};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use toolfleet_protocol::{AccountId, AgentId};

/// Agents of one account that are listed at the most.
const AGENTS_MAX: u32 = 1_000;

/// Agents read at once in a listing: each is a record of its own, maybe on another node.
const READS_AT_ONCE: usize = 16;

/// An agent of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    pub id: AgentId,
    pub account: AccountId,
    /// For people.
    pub name: String,
    pub access: Access,
    /// Unix time in milliseconds.
    pub created_at_ms: u64,
}

/// Which tools an agent may call, by qualified names such as `weather__get_forecast`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Access {
    #[serde(default)]
    pub mode: AccessMode,
    /// With [`AccessMode::List`]: these only.
    #[serde(default)]
    pub tools: BTreeSet<String>,
    /// Never these.
    #[serde(default)]
    pub deny: BTreeSet<String>,
    /// Always in the agent's list. It doesn't allow what the rest doesn't.
    #[serde(default)]
    pub pin: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AccessMode {
    #[default]
    All,
    List,
}

impl Access {
    /// May the tool of this qualified name be called?
    pub fn allows(&self, qualified: &str) -> bool {
        let listed = match self.mode {
            AccessMode::All => true,
            AccessMode::List => self.tools.contains(qualified),
        };
        listed && !self.deny.contains(qualified)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    New,
    /// It was there; at most its name changed.
    Same,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("agent {id} belongs to another account: choose another id")]
pub struct AgentConflict {
    pub id: AgentId,
}

/// Why an agent wasn't put.
#[derive(Debug, thiserror::Error)]
pub enum PutAgentError {
    #[error(transparent)]
    Conflict(#[from] AgentConflict),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Fields of the record.
mod field {
    pub const ACCOUNT: &str = "account";
    pub const NAME: &str = "name";
    pub const ACCESS: &str = "access";
    pub const CREATED_AT_MS: &str = "created_at_ms";
}

fn agent_key(agent: &AgentId) -> Key {
    Key::new(&format!("agent:{agent}"), "agent")
}

fn name_of(agent: &AgentId) -> String {
    format!("agent {agent}")
}

impl Records {
    /// Makes an agent, or gives one that is there another name. Its access stays as its owner set it
    /// ([`Records::set_access`]).
    pub async fn put_agent(&self, agent: &Agent) -> Result<Put, PutAgentError> {
        let (key, record) = (agent_key(&agent.id), name_of(&agent.id));
        let account = Bytes::copy_from_slice(agent.account.as_str().as_bytes());
        let name = (field::NAME.to_owned(), Bytes::copy_from_slice(agent.name.as_bytes()));
        let fields = vec![
            (field::ACCOUNT.into(), account.clone()),
            name.clone(),
            (field::ACCESS.into(), to_json(&agent.access)),
            (field::CREATED_AT_MS.into(), to_decimal(agent.created_at_ms)),
        ];
        let create = Transaction {
            guards: vec![Guard::Absent(key.clone())],
            then: vec![Op::FieldsSet { key: key.clone(), fields }],
            otherwise: vec![Op::FieldGet { key: key.clone(), field: field::NAME.into() }],
        };
        let put = match self.step(&record, create).await? {
            Step::Then(_) => Put::New,
            Step::Otherwise { mut replies, .. } => {
                let renamed = replies.value()?.as_ref() != Some(&name.1);
                let rename = Transaction {
                    guards: vec![Guard::FieldIs(key.clone(), field::ACCOUNT.into(), account)],
                    then: if renamed { vec![Op::FieldsSet { key, fields: vec![name] }] } else { Vec::new() },
                    otherwise: Vec::new(),
                };
                match self.step(&record, rename).await? {
                    Step::Then(_) => Put::Same,
                    Step::Otherwise { .. } => return Err(AgentConflict { id: agent.id.clone() }.into()),
                }
            }
        };
        // Also for one that was there: the step before may have been the last of a process.
        let index = account_key(&agent.account, "agents");
        let rank = Op::Rank { key: index, member: agent.id.to_string(), score: 0 };
        self.ask(&format!("agents of account {}", agent.account), vec![rank]).await?.done()?;
        Ok(put)
    }

    /// An agent.
    pub async fn agent(&self, agent: &AgentId) -> Result<Option<Agent>, StoreError> {
        let record = name_of(agent);
        let fields = self.ask(&record, vec![Op::FieldsGet(agent_key(agent))]).await?.fields()?;
        if fields.is_empty() {
            return Ok(None);
        }
        let fields: HashMap<String, Bytes> = fields.into_iter().collect();
        let needed = |field: &str| fields.get(field).ok_or_else(|| corrupt(&record, format!("it has no {field}")));
        Ok(Some(Agent {
            id: agent.clone(),
            account: from_text(&record, needed(field::ACCOUNT)?)?,
            name: from_text(&record, needed(field::NAME)?)?,
            access: from_json(&record, needed(field::ACCESS)?)?,
            created_at_ms: from_decimal(&record, needed(field::CREATED_AT_MS)?)?,
        }))
    }

    /// Says what an agent may call. False: there is no such agent.
    pub async fn set_access(&self, agent: &AgentId, access: &Access) -> Result<bool, StoreError> {
        let key = agent_key(agent);
        let transaction = Transaction {
            guards: vec![Guard::Present(key.clone())],
            then: vec![Op::FieldsSet { key, fields: vec![(field::ACCESS.into(), to_json(access))] }],
            otherwise: Vec::new(),
        };
        Ok(matches!(self.step(&name_of(agent), transaction).await?, Step::Then(_)))
    }

    /// An account's agents, by id; at most 1,000.
    pub async fn agents(&self, account: &AccountId, limit: u32) -> Result<Vec<Agent>, StoreError> {
        let record = format!("agents of account {account}");
        let key = account_key(account, "agents");
        let members = Op::Members { key, prefix: String::new(), after: None, limit: limit.min(AGENTS_MAX) };
        let members = self.ask(&record, vec![members]).await?.ranked()?;
        let ids = members
            .into_iter()
            .map(|(id, _)| from_text(&record, id.as_bytes()))
            .collect::<Result<Vec<AgentId>, StoreError>>()?;
        let reads = ids.iter().map(|id| self.agent(id));
        let agents: Vec<Option<Agent>> = futures::stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await?;
        Ok(agents.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_allows_what_is_listed_and_not_denied() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let all = Access { deny: set(&["p__b"]), pin: set(&["p__b"]), ..Access::default() };
        assert!(all.allows("p__a"));
        assert!(!all.allows("p__b"), "a pin allows nothing");
        let list =
            Access { mode: AccessMode::List, tools: set(&["p__a", "p__b"]), deny: set(&["p__b"]), ..Access::default() };
        assert!(list.allows("p__a"));
        assert!(!list.allows("p__b"));
        assert!(!list.allows("p__c"));
        assert!(!Access { mode: AccessMode::List, ..Access::default() }.allows("p__a"));
    }
}
