//! Files of an agent, and of an account's agents together.

use super::replies::Replies;
use super::{
    EFFECT_RETENTION, EffectKey, Records, Step, WorkspacePathBuf, from_decimal, from_json, sha256, to_hex, to_json,
};
use crate::{Guard, Key, Op, StoreError, Transaction};
use bytes::Bytes;
use rand::Rng;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use toolfleet_protocol::host::{WorkspaceFile, WorkspaceListing};
use toolfleet_protocol::{AccountId, AgentId};

const MIB: u64 = 1024 * 1024;

/// A file's size. As base64 it still fits the answer of one host call.
pub const FILE_BYTES_MAX: u64 = 4 * MIB;

/// All files of one workspace: enough for notes, tables and drafts, not a place for media. It is also what one
/// careless plugin can make the store hold.
pub const QUOTA_BYTES: u64 = 256 * MIB;

/// Files of one workspace, so that empty ones are bounded too. Writers at the same moment may pass it by a few.
pub const FILES_MAX: u64 = 100_000;

/// Files of one page of a listing.
pub const LISTING_MAX: u32 = 1_000;

/// Rounds of one write against others in the same workspace. Each round that fails means that another write
/// succeeded, so as many can be under way as one call may have host calls pending, with room.
const WRITE_ROUNDS_MAX: u32 = 64;

/// The longest pause between two rounds, in milliseconds: by then some thirty others have been through.
const WRITE_PAUSE_MS_MAX: u64 = 32;

/// Whose workspace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WorkspaceOwner {
    /// One agent's own.
    Agent(AccountId, AgentId),
    /// The one that all agents of the account share.
    Shared(AccountId),
}

/// Why a file could not be written, or a path not be taken.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("path {path:?} can't be used: {reason}")]
    Path { path: String, reason: String },
    #[error("{path} is not the file that the etag is of: it must be {}, and is {}", etag(expected), etag(found))]
    Conflict { path: WorkspacePathBuf, expected: Option<String>, found: Option<String> },
    #[error("{path} was not written: too many others write in this workspace; write again in a moment")]
    Busy { path: WorkspacePathBuf },
    #[error("{path} would have {bytes} bytes; a file can have {bytes_max}: split it")]
    TooLarge { path: WorkspacePathBuf, bytes: u64, bytes_max: u64 },
    #[error(
        "the workspace holds {used_bytes} bytes and {wanted_bytes} more would pass its {quota_bytes}: \
         write less, or shorten files that are no longer needed"
    )]
    Quota { used_bytes: u64, wanted_bytes: u64, quota_bytes: u64 },
    #[error("the workspace holds {files_max} files, and can hold no more: write into those that are there")]
    TooManyFiles { files_max: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn etag(etag: &Option<String>) -> String {
    etag.as_ref().map_or("absent".to_owned(), |etag| format!("{etag:?}"))
}

/// A file without its content, under its path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    size: u64,
    etag: String,
    modified_at_ms: u64,
}

impl Meta {
    fn file(self, path: impl Into<String>) -> WorkspaceFile {
        let Self { size, etag, modified_at_ms } = self;
        WorkspaceFile { path: path.into(), size, etag, modified_at_ms }
    }
}

impl WorkspaceOwner {
    fn key(&self, path: &str) -> Key {
        match self {
            Self::Agent(account, agent) => Key::new(&format!("workspace:{account}:{agent}"), path),
            Self::Shared(account) => Key::new(&format!("workspace:{account}"), path),
        }
    }

    fn files(&self) -> Key {
        self.key("files")
    }

    fn bytes(&self) -> Key {
        self.key("bytes")
    }

    fn content(&self, path: &WorkspacePathBuf) -> Key {
        self.key(&format!("content/{path}"))
    }

    fn meta_get(&self, path: &str) -> Op {
        Op::FieldGet { key: self.key("meta"), field: path.into() }
    }

    fn name(&self) -> String {
        match self {
            Self::Agent(account, agent) => format!("workspace of agent {agent} of account {account}"),
            Self::Shared(account) => format!("shared workspace of account {account}"),
        }
    }

    fn name_of(&self, path: &str) -> String {
        format!("file {path:?} in the {}", self.name())
    }
}

impl Records {
    /// A file and its content.
    pub async fn workspace_read(
        &self,
        owner: &WorkspaceOwner,
        path: &WorkspacePathBuf,
    ) -> Result<Option<(WorkspaceFile, Bytes)>, StoreError> {
        let record = owner.name_of(path.as_str());
        let ops = vec![owner.meta_get(path.as_str()), Op::Get(owner.content(path))];
        let mut replies = self.ask(&record, ops).await?;
        match (replies.value()?, replies.value()?) {
            (Some(meta), Some(content)) => Ok(Some((from_json::<Meta>(&record, &meta)?.file(path.as_str()), content))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(super::corrupt(&record, "it has no content")),
            (None, Some(_)) => Err(super::corrupt(&record, "it has content but no size, etag and time")),
        }
    }

    /// A file without its content.
    pub async fn workspace_stat(
        &self,
        owner: &WorkspaceOwner,
        path: &WorkspacePathBuf,
    ) -> Result<Option<WorkspaceFile>, StoreError> {
        let record = owner.name_of(path.as_str());
        let meta = self.ask(&record, vec![owner.meta_get(path.as_str())]).await?.value()?;
        meta.map(|meta| Ok(from_json::<Meta>(&record, &meta)?.file(path.as_str()))).transpose()
    }

    /// Files in the order of their paths: those whose paths start with `prefix` and come after `after`, at most
    /// `limit` of them ([`LISTING_MAX`] at the most).
    pub async fn workspace_list(
        &self,
        owner: &WorkspaceOwner,
        prefix: Option<&str>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<WorkspaceListing, StoreError> {
        let record = owner.name();
        let limit = limit.clamp(1, LISTING_MAX);
        let prefix = prefix.unwrap_or_default();
        let members = Op::Members {
            key: owner.files(),
            prefix: prefix.strip_prefix("./").unwrap_or(prefix).into(),
            after: after.map(str::to_owned),
            limit: limit + 1,
        };
        let mut paths: Vec<String> =
            self.ask(&record, vec![members]).await?.ranked()?.into_iter().map(|(path, _)| path).collect();
        let more = paths.len() > limit as usize;
        paths.truncate(limit as usize);
        if paths.is_empty() {
            return Ok(WorkspaceListing { files: Vec::new(), next: None });
        }
        let mut replies = self.ask(&record, paths.iter().map(|path| owner.meta_get(path)).collect()).await?;
        let next = paths.last().filter(|_| more).cloned();
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let record = owner.name_of(&path);
            let meta = replies.value()?.ok_or_else(|| super::corrupt(&record, "it has no size, etag and time"))?;
            files.push(from_json::<Meta>(&record, &meta)?.file(path));
        }
        Ok(WorkspaceListing { files, next })
    }

    /// Writes a file whole. `etag`: `None` over whatever is there, `Some(None)` only where nothing is,
    /// `Some(Some(_))` only over the file of that etag. The same effect writes once, and is answered alike each time.
    pub async fn workspace_write(
        &self,
        owner: &WorkspaceOwner,
        path: &WorkspacePathBuf,
        content: Bytes,
        etag: Option<Option<String>>,
        effect: Option<&EffectKey>,
        now_ms: u64,
    ) -> Result<WorkspaceFile, WorkspaceError> {
        let size = content.len() as u64;
        if size > FILE_BYTES_MAX {
            return Err(WorkspaceError::TooLarge { path: path.clone(), bytes: size, bytes_max: FILE_BYTES_MAX });
        }
        let new = Meta { size, etag: to_hex(&sha256(&content))[..32].to_owned(), modified_at_ms: now_ms };
        let write =
            Write { owner, path, content, etag, mark: effect.map(|e| owner.key(&format!("effect/{}", e.id()))) };

        let record = owner.name_of(path.as_str());
        for round in 0..WRITE_ROUNDS_MAX {
            let state = State::read(&record, &write, self.ask(&record, write.look()).await?)?;
            if let Some(file) = state.written {
                return Ok(file);
            }
            let transaction = write.transaction(&record, &state, &new)?;
            if let Step::Then(_) = self.step(&record, transaction).await? {
                return Ok(new.file(path.as_str()));
            }
            let pause_ms_max = WRITE_PAUSE_MS_MAX.min(1 << round.min(16));
            let pause_ms = rand::rng().random_range(0..=pause_ms_max);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
        Err(WorkspaceError::Busy { path: path.clone() })
    }
}

/// One write, round by round.
struct Write<'a> {
    owner: &'a WorkspaceOwner,
    path: &'a WorkspacePathBuf,
    content: Bytes,
    etag: Option<Option<String>>,
    mark: Option<Key>,
}

/// What a write must know of the workspace.
struct State {
    /// As stored, to guard on.
    standing: Option<Bytes>,
    /// As stored, to guard on.
    used: Option<Bytes>,
    files: u64,
    /// The same effect wrote before.
    written: Option<WorkspaceFile>,
}

impl State {
    /// Reads the replies to [`Write::look`].
    fn read(record: &str, write: &Write<'_>, mut replies: Replies) -> Result<Self, StoreError> {
        Ok(Self {
            standing: replies.value()?,
            used: replies.value()?,
            files: replies.count()?,
            written: match &write.mark {
                Some(_) => replies.value()?.map(|mark| from_json(record, &mark)).transpose()?,
                None => None,
            },
        })
    }
}

impl Write<'_> {
    fn look(&self) -> Vec<Op> {
        let owner = self.owner;
        let mut ops = vec![owner.meta_get(self.path.as_str()), Op::Get(owner.bytes()), Op::RankCount(owner.files())];
        ops.extend(self.mark.clone().map(Op::Get));
        ops
    }

    /// Checks the write against what was seen, and makes it hold only while that is so.
    fn transaction(&self, record: &str, state: &State, new: &Meta) -> Result<Transaction, WorkspaceError> {
        let (owner, path) = (self.owner, self.path);
        let standing = state.standing.as_ref().map(|meta| from_json::<Meta>(record, meta)).transpose()?;
        if let Some(expected) = &self.etag {
            let found = standing.as_ref().map(|meta| meta.etag.clone());
            if *expected != found {
                return Err(WorkspaceError::Conflict { path: path.clone(), expected: expected.clone(), found });
            }
        }
        if standing.is_none() && state.files >= FILES_MAX {
            return Err(WorkspaceError::TooManyFiles { files_max: FILES_MAX });
        }
        let size_before = standing.as_ref().map_or(0, |meta| meta.size);
        let growth = new.size.saturating_sub(size_before);
        let used_bytes = state.used.as_ref().map_or(Ok(0), |used| from_decimal(&owner.name(), used))?;
        if growth > 0 && used_bytes.saturating_add(growth) > QUOTA_BYTES {
            return Err(WorkspaceError::Quota { used_bytes, wanted_bytes: growth, quota_bytes: QUOTA_BYTES });
        }

        let (meta, field) = (owner.key("meta"), path.to_string());
        let mut guards = vec![match state.standing.clone() {
            Some(standing) => Guard::FieldIs(meta.clone(), field.clone(), standing),
            None => Guard::FieldAbsent(meta.clone(), field.clone()),
        }];
        // Only growth can pass the quota, and only others' growth at the same moment: then this holds for what was seen.
        if growth > 0 {
            guards.push(match state.used.clone() {
                Some(used) => Guard::Is(owner.bytes(), used),
                None => Guard::Absent(owner.bytes()),
            });
        }
        let by = i64::try_from(new.size).unwrap_or(i64::MAX) - i64::try_from(size_before).unwrap_or(i64::MAX);
        let mut then = vec![
            Op::FieldsSet { key: meta, fields: vec![(field.clone(), to_json(new))] },
            Op::Set { key: owner.content(path), value: self.content.clone(), expires_in: None },
            Op::Rank { key: owner.files(), member: field, score: 0 },
            Op::Add { key: owner.bytes(), by },
        ];
        if let Some(mark) = &self.mark {
            guards.push(Guard::Absent(mark.clone()));
            let value = to_json(&new.clone().file(path.as_str()));
            then.push(Op::Set { key: mark.clone(), value, expires_in: Some(EFFECT_RETENTION) });
        }
        Ok(Transaction { guards, then, otherwise: Vec::new() })
    }
}
