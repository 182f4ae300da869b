//! Calls: what was asked, who runs it, how it ended.

use super::{Records, Step, corrupt, from_decimal, from_json, from_text, sha256, to_decimal, to_hex, to_json};
use crate::{Guard, Key, Op, StoreError, Transaction};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use toolfleet_protocol::{CallId, CallResult, Job, WorkerId};

/// How long a finished call can be asked for, unless configured.
pub const DEFAULT_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// Longer is taken as this: ten years, which is for ever here, and still a number that every store takes.
const RETENTION_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// A call about to be submitted.
#[derive(Debug, Clone, Copy)]
pub struct NewCall<'a> {
    pub job: &'a Job,
    /// The job as it will be published: a worker takes no other for this call.
    pub body: &'a [u8],
    /// Digest of what the client asked, to tell a repeated request from another under the same id.
    pub request_digest: [u8; 32],
    /// Unix time in milliseconds. Unfinished by then, the call comes up in [`Records::overdue_calls`].
    pub overdue_at_ms: u64,
    /// How long the record outlives the call's end.
    pub retention: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    New,
    /// The id is taken, by the same request or by another.
    Exists {
        same_request: bool,
    },
}

/// What a worker shall do with a job that was delivered to it.
#[derive(Debug, Clone)]
pub enum Claim {
    /// Run it. Later claims get higher attempts, and fence this one out.
    Run { attempt: u32 },
    /// It ended before: publish this again and settle the delivery.
    Known(CallResult),
    /// As many attempts as are allowed were begun before. This one's number can record how it ends.
    Exhausted { attempt: u32 },
    /// Nobody recorded a call of that id, or it was recorded with another body.
    Foreign,
}

/// Who says how a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorder {
    /// The attempt of that number; only while it is the latest.
    Attempt(u32),
    /// A cancel, an expiry, a loss: whatever attempt is under way.
    Scheduler,
}

#[derive(Debug, Clone)]
pub enum Recorded {
    /// This result stands. A repeat by the recorder that wrote it, with the same result, says so again.
    First,
    /// Ours is dropped: another result stands, or (`None`) a newer attempt is under way.
    Late(Option<CallResult>),
    /// There is no such call, or no longer.
    Unknown,
}

/// A call as recorded.
#[derive(Debug, Clone)]
pub struct CallRecord {
    pub job: Job,
    pub state: CallState,
    pub result: Option<CallResult>,
    /// Unix time in milliseconds.
    pub finished_at_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallState {
    Queued,
    /// The latest attempt; whether its worker still lives isn't known here.
    Running {
        attempt: u32,
        worker: WorkerId,
        claimed_at_ms: u64,
    },
    Finished,
}

/// Fields of the record.
mod field {
    pub const BODY: &str = "body";
    pub const BODY_SHA256: &str = "body_sha256";
    pub const REQUEST_SHA256: &str = "request_sha256";
    pub const RETENTION_MS: &str = "retention_ms";
    pub const ATTEMPT: &str = "attempt";
    pub const WORKER: &str = "worker";
    pub const CLAIMED_AT_MS: &str = "claimed_at_ms";
    pub const RESULT: &str = "result";
    pub const RESULT_BY: &str = "result_by";
    pub const FINISHED_AT_MS: &str = "finished_at_ms";
}

/// The retention that the last record had which was looked at: a fleet has one, so that recording a result need
/// not read it first.
#[derive(Debug)]
pub(super) struct RetentionSeen(AtomicU64);

impl Default for RetentionSeen {
    fn default() -> Self {
        Self(AtomicU64::new(to_ms(DEFAULT_RETENTION)))
    }
}

pub(super) fn call_tag(call: &CallId) -> String {
    format!("call:{call}")
}

fn record_key(call: &CallId) -> Key {
    Key::new(&call_tag(call), "record")
}

/// All unfinished calls of the fleet under one key: 100,000 of them are some 15 MB in Redis, and one operation on
/// it costs a few microseconds. It bounds a fleet at some ten million unfinished calls.
fn open_key() -> Key {
    Key::new("calls", "open")
}

fn name(call: &CallId) -> String {
    format!("call {call}")
}

impl Records {
    /// Records a call before its job is published.
    ///
    /// The call is on the open index first: should this process die in between, a sweep finds an entry without a
    /// record and takes it off.
    pub async fn create_call(&self, new: NewCall<'_>) -> Result<Created, StoreError> {
        let call = &new.job.call_id;
        let rank = Op::Rank { key: open_key(), member: call.to_string(), score: new.overdue_at_ms };
        self.ask("the index of open calls", vec![rank]).await?.done()?;

        let key = record_key(call);
        let request = Bytes::from(to_hex(&new.request_digest));
        let fields = vec![
            (field::BODY.into(), Bytes::copy_from_slice(new.body)),
            (field::BODY_SHA256.into(), to_hex(&sha256(new.body)).into()),
            (field::REQUEST_SHA256.into(), request.clone()),
            (field::RETENTION_MS.into(), to_decimal(to_ms(new.retention.min(RETENTION_MAX)))),
        ];
        let transaction = Transaction {
            guards: vec![Guard::Absent(key.clone())],
            then: vec![Op::FieldsSet { key: key.clone(), fields }],
            otherwise: vec![Op::FieldGet { key, field: field::REQUEST_SHA256.into() }],
        };
        match self.step(&name(call), transaction).await? {
            Step::Then(_) => Ok(Created::New),
            Step::Otherwise { mut replies, .. } => {
                Ok(Created::Exists { same_request: replies.value()?.is_some_and(|standing| standing == request) })
            }
        }
    }

    /// Begins an attempt at a call. A claim whose answer was lost has used up its attempt: the next one gets the
    /// next number.
    pub async fn claim(
        &self,
        call: &CallId,
        body: &[u8],
        worker: &WorkerId,
        deliveries_max: u32,
        now_ms: u64,
    ) -> Result<Claim, StoreError> {
        let key = record_key(call);
        let fields = vec![
            (field::WORKER.into(), Bytes::copy_from_slice(worker.as_str().as_bytes())),
            (field::CLAIMED_AT_MS.into(), to_decimal(now_ms)),
        ];
        let transaction = Transaction {
            guards: vec![
                Guard::FieldIs(key.clone(), field::BODY_SHA256.into(), to_hex(&sha256(body)).into()),
                Guard::FieldAbsent(key.clone(), field::RESULT.into()),
            ],
            then: vec![
                Op::FieldAdd { key: key.clone(), field: field::ATTEMPT.into(), by: 1 },
                Op::FieldsSet { key: key.clone(), fields },
                Op::FieldGet { key: key.clone(), field: field::RETENTION_MS.into() },
            ],
            otherwise: vec![Op::FieldGet { key, field: field::RESULT.into() }],
        };
        let record = name(call);
        match self.step(&record, transaction).await? {
            Step::Then(mut replies) => {
                let attempt = replies.integer()?;
                let attempt = u32::try_from(attempt).map_err(|_| corrupt(&record, format!("attempt {attempt}")))?;
                replies.done()?;
                if let Some(retention) = replies.value()? {
                    self.seen.retention.0.store(from_decimal(&record, &retention)?, Ordering::Relaxed);
                }
                Ok(if attempt <= deliveries_max { Claim::Run { attempt } } else { Claim::Exhausted { attempt } })
            }
            Step::Otherwise { guard: 0, .. } => Ok(Claim::Foreign),
            Step::Otherwise { mut replies, .. } => match replies.value()? {
                Some(result) => Ok(Claim::Known(from_json(&record, &result)?)),
                None => Err(corrupt(&record, "its result was there and is not")),
            },
        }
    }

    /// Records how a call ended, unless that is known or the recorder was fenced out. The record expires its
    /// retention after.
    pub async fn record_result(
        &self,
        call: &CallId,
        by: Recorder,
        result: &CallResult,
        now_ms: u64,
    ) -> Result<Recorded, StoreError> {
        let record = name(call);
        let key = record_key(call);
        let written = to_json(result);
        let recorder = Bytes::from(match by {
            Recorder::Attempt(attempt) => format!("attempt:{attempt}"),
            Recorder::Scheduler => "scheduler".to_owned(),
        });
        // A record's retention never changes, so a second round knows it.
        let mut retention_ms = self.seen.retention.0.load(Ordering::Relaxed);
        for _ in 0..2 {
            let mut guards = vec![
                Guard::FieldPresent(key.clone(), field::BODY_SHA256.into()),
                Guard::FieldAbsent(key.clone(), field::RESULT.into()),
                Guard::FieldIs(key.clone(), field::RETENTION_MS.into(), to_decimal(retention_ms)),
            ];
            if let Recorder::Attempt(attempt) = by {
                guards.push(Guard::FieldIs(key.clone(), field::ATTEMPT.into(), to_decimal(attempt.into())));
            }
            let transaction = Transaction {
                guards,
                then: vec![
                    Op::FieldsSet {
                        key: key.clone(),
                        fields: vec![
                            (field::RESULT.into(), written.clone()),
                            (field::RESULT_BY.into(), recorder.clone()),
                            (field::FINISHED_AT_MS.into(), to_decimal(now_ms)),
                        ],
                    },
                    Op::Expire { key: key.clone(), expires_in: Duration::from_millis(retention_ms) },
                ],
                otherwise: [field::RESULT, field::RESULT_BY, field::RETENTION_MS]
                    .map(|field| Op::FieldGet { key: key.clone(), field: field.into() })
                    .into(),
            };
            let (guard, mut replies) = match self.step(&record, transaction).await? {
                Step::Then(_) => return Ok(Recorded::First),
                Step::Otherwise { guard, replies } => (guard, replies),
            };
            let (standing, standing_by, retention) = (replies.value()?, replies.value()?, replies.value()?);
            match (guard, standing) {
                (0, _) => return Ok(Recorded::Unknown),
                (_, Some(standing)) if standing == written && standing_by.as_ref() == Some(&recorder) => {
                    return Ok(Recorded::First);
                }
                (_, Some(standing)) => return Ok(Recorded::Late(Some(from_json(&record, &standing)?))),
                (2, None) => {
                    let retention = retention.ok_or_else(|| corrupt(&record, "it has no retention"))?;
                    retention_ms = from_decimal(&record, &retention)?;
                    self.seen.retention.0.store(retention_ms, Ordering::Relaxed);
                }
                (_, None) => return Ok(Recorded::Late(None)),
            }
        }
        Err(corrupt(&record, "its retention changed"))
    }

    /// All that is recorded of a call.
    pub async fn call(&self, call: &CallId) -> Result<Option<CallRecord>, StoreError> {
        let record = name(call);
        let fields = self.ask(&record, vec![Op::FieldsGet(record_key(call))]).await?.fields()?;
        if fields.is_empty() {
            return Ok(None);
        }
        let fields: HashMap<String, Bytes> = fields.into_iter().collect();
        let needed = |field: &str| fields.get(field).ok_or_else(|| corrupt(&record, format!("it has no {field}")));

        let job = Job::decode(needed(field::BODY)?).map_err(|error| corrupt(&record, error))?;
        let result = fields.get(field::RESULT).map(|bytes| from_json(&record, bytes)).transpose()?;
        let finished_at_ms = match &result {
            Some(_) => Some(from_decimal(&record, needed(field::FINISHED_AT_MS)?)?),
            None => None,
        };
        let state = if result.is_some() {
            CallState::Finished
        } else if let Some(attempt) = fields.get(field::ATTEMPT) {
            CallState::Running {
                attempt: from_text(&record, attempt)?,
                worker: from_text(&record, needed(field::WORKER)?)?,
                claimed_at_ms: from_decimal(&record, needed(field::CLAIMED_AT_MS)?)?,
            }
        } else {
            CallState::Queued
        };
        Ok(Some(CallRecord { job, state, result, finished_at_ms }))
    }

    /// How a call ended, once it did.
    pub async fn result(&self, call: &CallId) -> Result<Option<CallResult>, StoreError> {
        let record = name(call);
        let get = Op::FieldGet { key: record_key(call), field: field::RESULT.into() };
        let result = self.ask(&record, vec![get]).await?.value()?;
        result.map(|bytes| from_json(&record, &bytes)).transpose()
    }

    /// Calls on the open index that should have ended by now, the longest overdue first. Some of them did: the
    /// index is tidied by who sweeps it.
    pub async fn overdue_calls(&self, now_ms: u64, limit: u32) -> Result<Vec<CallId>, StoreError> {
        let record = "the index of open calls";
        let ranked = Op::Ranked { key: open_key(), min: 0, max: now_ms, limit, descending: false };
        let ranked = self.ask(record, vec![ranked]).await?.ranked()?;
        ranked.into_iter().map(|(member, _)| from_text(record, member.as_bytes())).collect()
    }

    /// Takes a call off the open index.
    pub async fn close_call(&self, call: &CallId) -> Result<(), StoreError> {
        let unrank = Op::Unrank { key: open_key(), member: call.to_string() };
        self.ask("the index of open calls", vec![unrank]).await?.done()
    }

    /// Lets a call be overdue only at `until_ms`.
    pub async fn postpone_call(&self, call: &CallId, until_ms: u64) -> Result<(), StoreError> {
        let rank = Op::Rank { key: open_key(), member: call.to_string(), score: until_ms };
        self.ask("the index of open calls", vec![rank]).await?.done()
    }

    /// How many calls are on the open index: those that haven't ended, and those that a sweep has yet to take off.
    pub async fn open_calls(&self) -> Result<u64, StoreError> {
        self.ask("the index of open calls", vec![Op::RankCount(open_key())]).await?.count()
    }
}

fn to_ms(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}
