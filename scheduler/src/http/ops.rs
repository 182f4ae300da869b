//! What operators and their machines ask: usage, dead letters, how much work there is.

use super::answer::json;
use super::auth::{Manage, Ops};
use super::problem::{Problem, ProblemBody};
use super::request::Params;
use crate::app::App;
use crate::clock::now_ms;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use toolfleet_protocol::{AccountId, Class, QueueName};
use toolfleet_queue::QueueError;
use toolfleet_store::Position;
use toolfleet_store::records::{CallState, Day, DeadLetter, UsageDay};
use utoipa::ToSchema;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsageParams {
    account: AccountId,
    from: Option<String>,
    to: Option<String>,
}

/// What an account used, day by day; days without use are left out.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsageBody {
    account: String,
    #[schema(value_type = Vec<UsageDayBody>)]
    days: Vec<UsageDay>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = UsageDay)]
#[allow(dead_code)]
pub(crate) struct UsageDayBody {
    #[schema(example = "2026-12-01")]
    day: String,
    /// By plugin; `-` for calls whose plugin there isn't.
    plugins: BTreeMap<String, UsageSumBody>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = UsageSum)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code)]
pub(crate) struct UsageSumBody {
    calls: u64,
    /// Of the calls, those that failed.
    failed: u64,
    wall_ms: u64,
    cpu_ms: u64,
    host_calls: u64,
}

/// Days looked back over unless said.
const USAGE_DAYS: u64 = 30;
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// See what an account used.
#[utoipa::path(
    get, path = "/v1/usage", tag = "usage", security(("token" = ["manage"])),
    params(
        ("account" = String, Query, description = "whose"),
        ("from" = Option<String>, Query, description = "the first day (UTC), as 2026-12-01; 30 days ago unless given"),
        ("to" = Option<String>, Query, description = "the last day; today unless given"),
    ),
    responses(
        (status = 200, description = "Usage by day and plugin", body = UsageBody),
        (status = "4XX", description = "A parameter is wrong", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn usage(
    _: Manage,
    State(app): State<Arc<App>>,
    Params(params): Params<UsageParams>,
) -> Result<Response, Problem> {
    let day = |name: &str, text: Option<String>, default_ms: u64| match text {
        Some(text) => Day::parse(&text).ok_or_else(|| {
            Problem::parameter(
                name,
                format!("must be a day such as 2026-12-01, but is {:?}", text.chars().take(40).collect::<String>()),
            )
        }),
        None => Ok(Day::of_ms(default_ms)),
    };
    let now = now_ms();
    let from = day("from", params.from, now.saturating_sub(USAGE_DAYS * DAY_MS))?;
    let to = day("to", params.to, now)?;
    let days = app.records.usage(&params.account, from, to).await?;
    Ok(json(StatusCode::OK, &UsageBody { account: params.account.to_string(), days }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadParams {
    before: Option<String>,
    limit: Option<u32>,
}

/// Dead letters, the latest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadBody {
    letters: Vec<LetterBody>,
    /// There may be more: give it as `before`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A message that nobody could work on.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeadLetter)]
pub(crate) struct LetterBody {
    id: String,
    #[serde(flatten)]
    #[schema(value_type = LetterFields)]
    letter: DeadLetter,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code)]
pub(crate) struct LetterFields {
    at_ms: u64,
    /// Where it died.
    queue: String,
    /// Of what: `expired`, `rejected`, `other`.
    reason: String,
    message_id: Option<String>,
    call_id: Option<String>,
    why: String,
    /// Its start, as text.
    body: String,
    headers: BTreeMap<String, String>,
}

const LETTERS_LIMIT_MAX: u32 = 200;
const LETTERS_LIMIT: u32 = 50;

/// See the dead letters.
#[utoipa::path(
    get, path = "/v1/ops/dead", tag = "ops", security(("token" = ["ops"])),
    params(
        ("before" = Option<String>, Query, description = "a letter's id: only those before it"),
        ("limit" = Option<u32>, Query, description = "1 to 200; 50 unless given"),
    ),
    responses(
        (status = 200, description = "Dead letters, the latest first", body = DeadBody),
        (status = "4XX", description = "A parameter is wrong", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn dead_letters(
    _: Ops,
    State(app): State<Arc<App>>,
    Params(params): Params<DeadParams>,
) -> Result<Response, Problem> {
    let limit = params.limit.unwrap_or(LETTERS_LIMIT);
    if !(1..=LETTERS_LIMIT_MAX).contains(&limit) {
        return Err(Problem::parameter("limit", format!("must be 1 to {LETTERS_LIMIT_MAX}, but is {limit}")));
    }
    let before = match &params.before {
        Some(text) => Some(Position::parse(text).ok_or_else(|| Problem::parameter("before", "must be a letter's id"))?),
        None => None,
    };
    let mut letters: Vec<LetterBody> = app
        .records
        .dead(before, limit)
        .await?
        .into_iter()
        .map(|(position, letter)| LetterBody { id: position.to_string(), letter })
        .collect();
    letters.reverse();
    let full = letters.len() >= limit as usize;
    let next = letters.last().filter(|_| full).map(|letter| letter.id.clone());
    Ok(json(StatusCode::OK, &DeadBody { letters, next }))
}

/// How much there is to do.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AutoscaleBody {
    /// The number to scale on: calls that wait or run. 0 when idle, never absent.
    work: u64,
    /// Jobs that wait in the queues.
    ready: u64,
    /// Calls that were accepted and haven't ended, waiting or running.
    open: u64,
    /// How long the oldest of them has been there, looking at those that are due first.
    oldest_age_ms: u64,
}

/// Calls looked at for the oldest one: those with the earliest deadlines.
const OLDEST_CALLS: u32 = 16;

/// See how much work there is, to scale workers by it.
#[utoipa::path(
    get, path = "/v1/autoscale", tag = "ops", security(("token" = ["ops"])),
    responses(
        (status = 200, description = "How much there is to do", body = AutoscaleBody),
        (status = "5XX", description = "The queue or the store does not answer", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn autoscale(_: Ops, State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let mut ready = 0;
    for class in Class::ALL {
        for lane in 0..app.config.lanes {
            ready += app.queue.depth(&QueueName::Jobs { class, lane }).await?.ready;
        }
    }
    let open = app.records.open_calls().await?;
    let now = now_ms();
    let mut oldest_age_ms = 0;
    if open > 0 {
        for call in app.records.overdue_calls(FAR_FUTURE_MS, OLDEST_CALLS).await? {
            if let Some(record) = app.records.call(&call).await?
                && record.state != CallState::Finished
            {
                oldest_age_ms = oldest_age_ms.max(now.saturating_sub(record.job.submitted_at_ms));
            }
        }
    }
    app.metrics.calls_open.set(i64::try_from(open).unwrap_or(i64::MAX));
    app.metrics.jobs_ready.set(i64::try_from(ready).unwrap_or(i64::MAX));
    Ok(json(StatusCode::OK, &AutoscaleBody { work: ready.max(open), ready, open, oldest_age_ms }))
}

/// Later than any deadline, and still exact in a store that ranks by floating-point numbers.
const FAR_FUTURE_MS: u64 = 1 << 52;

impl From<QueueError> for Problem {
    fn from(error: QueueError) -> Self {
        tracing::warn!(error = %error, "a request failed because the queue does not answer");
        Self::new(super::problem::ProblemKind::Unavailable, "the queue does not answer").retry_after(1)
    }
}
