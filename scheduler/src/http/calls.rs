//! Calls: submitted one by one or in batches, waited for, looked up, cancelled.

use super::answer::json;
use super::auth::Submit;
use super::problem::{Fault, Problem, ProblemBody, ProblemKind};
use super::request::{JsonBytes, Segments, depth, idempotency_key, parse_json, parse_object, preferred_wait};
use super::schema;
use crate::app::App;
use crate::clock::now_ms;
use crate::config::{DEADLINE_MAX, Scope};
use crate::dispatch::{Submission, SubmitError, Submitted, submit};
use crate::ending;
use crate::resolve::{Asked, Resolver};
use crate::results::{TooManyWait, Waiter};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use toolfleet_protocol::{
    AgentId, CallError, CallId, CallResult, Class, FailureKind, HEADER_TRACEPARENT, Initiator, SessionId, WorkerId,
};
use toolfleet_queue::PublishError;
use toolfleet_store::records::{CallRecord, CallState};
use utoipa::ToSchema;

/// One call, as it is asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CallRequest {
    /// The agent that calls.
    #[schema(value_type = String, example = "helper")]
    agent: AgentId,
    /// The tool's full name.
    #[schema(example = "weather__get_forecast")]
    tool: String,
    /// The model's arguments: any JSON, handed on byte for byte; `{}` unless given.
    #[serde(default = "empty_input")]
    #[schema(value_type = Object)]
    input: Box<RawValue>,
    /// The conversation that the call belongs to; the agent's default one unless given.
    #[schema(value_type = Option<String>)]
    session: Option<SessionId>,
    /// The call's id, if the caller wants to choose it; the same request under the same id is the same call.
    #[schema(value_type = Option<String>)]
    call_id: Option<CallId>,
    /// `interactive` unless given.
    #[schema(value_type = Option<schema::ClassName>)]
    class: Option<Class>,
    /// Not started so many milliseconds from now, the call ends as `expired`.
    #[schema(minimum = 1, maximum = 86_400_000)]
    deadline_ms: Option<u64>,
    /// Who stands behind the call; needs the scope `manage`.
    #[schema(value_type = Option<schema::InitiatorBody>)]
    initiator: Option<Initiator>,
}

fn empty_input() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("it is JSON")
}

/// One call or several.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code)]
pub(crate) enum CallsRequest {
    One(CallRequest),
    Batch(Vec<CallRequest>),
}

/// A call that hasn't ended.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallStatus {
    #[schema(value_type = String)]
    call_id: CallId,
    #[schema(value_type = schema::OpenStatus)]
    status: &'static str,
    /// Which delivery runs, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    worker: Option<WorkerId>,
}

/// What is known of a call: its result, or how far it is.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Known {
    Ended(Arc<CallResult>),
    Open(CallStatus),
}

impl Known {
    fn queued(call_id: CallId) -> Self {
        Self::Open(CallStatus { call_id, status: "queued", attempt: None, worker: None })
    }

    fn of(record: CallRecord) -> Self {
        let call_id = record.job.call_id;
        match (record.result, record.state) {
            (Some(result), _) => Self::Ended(Arc::new(result)),
            (None, CallState::Running { attempt, worker, .. }) => {
                Self::Open(CallStatus { call_id, status: "running", attempt: Some(attempt), worker: Some(worker) })
            }
            (None, _) => Self::queued(call_id),
        }
    }
}

/// Deeper JSON is refused: so deep is what JSON readers commonly take.
const INPUT_DEPTH_MAX: usize = 128;
/// A tool's full name is at most 98 characters; what a model makes up instead may be longer, but not endless.
const TOOL_NAME_BYTES_MAX: usize = 200;
/// Faults told of one request; more are of no use to anybody.
const FAULTS_MAX: usize = 50;
/// Calls of one batch that are recorded and published at once.
const SUBMITS_AT_ONCE: usize = 64;

/// Submit a call, or an array of calls.
///
/// With `Prefer: wait=SECONDS` the answer waits for the results. A call that fails is no failed request: its result
/// has the status `failed`, and says why.
#[utoipa::path(
    post, path = "/v1/calls", tag = "calls", security(("token" = ["submit"])),
    params(
        ("Prefer" = Option<String>, Header, description = "`wait=SECONDS`: wait so long for the results, at most 120"),
        ("Idempotency-Key" = Option<String>, Header, description = "a retry with the same key and body finds the same calls"),
        ("traceparent" = Option<String>, Header, description = "W3C trace context that the calls belong to"),
    ),
    request_body(content = CallsRequest),
    responses(
        (status = 200, description = "All have ended: the result, or an array of results in the order of the calls", body = schema::ResultOrResults),
        (status = 202, description = "Accepted: each will end in a result", body = schema::KnownOrKnowns),
        (status = "4XX", description = "Not accepted", body = ProblemBody, content_type = "application/problem+json"),
        (status = "5XX", description = "Not accepted now", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn submit_calls(
    Submit(caller): Submit,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Problem> {
    let wait = preferred_wait(&headers, Duration::from_secs(app.config.wait_s_max))?;
    let key = idempotency_key(&headers)?;
    let traceparent = traceparent(&headers);
    let is_batch = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let asked = read_calls(&app, &body, is_batch)?;
    if !caller.may(Scope::Manage) && asked.iter().any(|(request, _)| request.initiator.is_some()) {
        return Err(Problem::new(
            ProblemKind::Forbidden,
            "naming an initiator needs a token with the scope \"manage\"",
        ));
    }

    // Names are looked up for all calls before the first is recorded: a bad one refuses the whole request.
    let now = now_ms();
    let mut resolver = Resolver::new(&app);
    let mut submissions = Vec::with_capacity(asked.len());
    for (index, (request, raw)) in asked.into_iter().enumerate() {
        let pointer = |field: &str| if is_batch { format!("/{index}/{field}") } else { format!("/{field}") };
        let Some(agent) = resolver.agent(&request.agent).await? else {
            let problem = Problem::not_found(format!("there is no agent {}", request.agent));
            return Err(problem
                .with_fault(Fault::at(pointer("agent"), "must be an agent that exists: POST /v1/agents makes one")));
        };
        let (call_id, request_digest) = match (&request.call_id, &key) {
            (Some(id), _) => (id.clone(), Sha256::digest(raw.get().as_bytes()).into()),
            // The whole body, so that one call more or less is another request.
            (None, Some(key)) => (derived_id(agent.account.as_str(), key, index), Sha256::digest(&body).into()),
            (None, None) => (CallId::generate(), [0; 32]),
        };
        let named = request.call_id.is_some() || key.is_some();
        let class = request.class.unwrap_or(Class::Interactive);
        let deadline = request.deadline_ms.map_or_else(|| app.config.deadline(class), Duration::from_millis);
        let asked = Asked {
            call_id,
            session: request.session,
            tool: request.tool,
            input: request.input,
            initiator: request.initiator.unwrap_or(Initiator::PLATFORM),
            class,
            submitted_at_ms: now,
            deadline_at_ms: now + u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX / 2),
        };
        let (job, verdict) = resolver.job(&agent, asked).await?;
        submissions.push(Submission { job, request_digest, verdict, named, traceparent: traceparent.clone() });
    }

    let until = Instant::now() + wait.unwrap_or_default();
    let calls: Vec<CallId> = submissions.iter().map(|submission| submission.job.call_id.clone()).collect();
    // Before the first is published: no result is missed.
    let waiters = if wait.is_some() { Some(register(&app, &calls)?) } else { None };
    let outcomes: Vec<Result<Submitted, SubmitError>> = futures::stream::iter(submissions)
        .map(|submission| submit(&app, submission))
        .buffered(SUBMITS_AT_ONCE)
        .collect()
        .await;
    let mut known = Vec::with_capacity(calls.len());
    let mut failures = Vec::new();
    for (index, (call, outcome)) in calls.iter().zip(outcomes).enumerate() {
        known.push(match outcome {
            Ok(Submitted::Ended(result)) => Known::Ended(result),
            Ok(Submitted::Accepted) => Known::queued(call.clone()),
            Err(error) => {
                failures.push((index, error));
                Known::queued(call.clone())
            }
        });
    }
    if !failures.is_empty() {
        return Err(refused(known, failures, is_batch));
    }
    if let Some(waiters) = waiters {
        let waits = waiters.into_iter().zip(known).map(|(waiter, known)| async {
            match known {
                Known::Ended(_) => Ok(known),
                Known::Open(_) => Ok(waiter.result(&app, until).await?.map_or(known, Known::Ended)),
            }
        });
        known = futures::future::try_join_all(waits)
            .await
            .map_err(|error: toolfleet_store::StoreError| Problem::from(error))?;
    }
    let ended = known.iter().all(|known| matches!(known, Known::Ended(_)));
    let status = if ended { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = if is_batch { json(status, &known) } else { json(status, &known[0]) };
    if !is_batch
        && !ended
        && let Ok(location) = HeaderValue::from_str(&format!("/v1/calls/{}", calls[0]))
    {
        response.headers_mut().insert(header::LOCATION, location);
    }
    preference_applied(&mut response, wait);
    Ok(response)
}

type Read = (CallRequest, Box<RawValue>);

/// The body's calls; all that is wrong with them is told at once.
fn read_calls(app: &App, body: &[u8], is_batch: bool) -> Result<Vec<Read>, Problem> {
    let items: Vec<Box<RawValue>> = if is_batch {
        let items: Vec<_> = parse_json(body).map_err(|fault| Problem::faults(vec![fault]))?;
        let max = app.config.batch_calls_max;
        if items.is_empty() || items.len() > max {
            return Err(Problem::field("", format!("must hold 1 to {max} calls, but holds {}", items.len())));
        }
        items
    } else {
        vec![parse_json(body).map_err(|fault| Problem::faults(vec![fault]))?]
    };
    let mut calls = Vec::with_capacity(items.len());
    let mut faults = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let prefix = if is_batch { format!("/{index}") } else { String::new() };
        match read_call(&item) {
            Ok(request) => calls.push((request, item)),
            Err(fault) => faults.push(fault.below(&prefix)),
        }
        if faults.len() >= FAULTS_MAX {
            break;
        }
    }
    if faults.is_empty() { Ok(calls) } else { Err(Problem::faults(faults)) }
}

fn read_call(raw: &RawValue) -> Result<CallRequest, Fault> {
    let request: CallRequest = parse_object(raw.get().as_bytes())?;
    if request.tool.is_empty() || request.tool.len() > TOOL_NAME_BYTES_MAX {
        return Err(Fault::at(
            "/tool",
            format!(
                "must be a tool's full name, such as \"weather__get_forecast\", of at most {TOOL_NAME_BYTES_MAX} bytes"
            ),
        ));
    }
    let deepest = depth(request.input.get());
    if deepest > INPUT_DEPTH_MAX {
        return Err(Fault::at(
            "/input",
            format!("must be nested at most {INPUT_DEPTH_MAX} deep, but is {deepest} deep"),
        ));
    }
    let deadline_ms_max = u64::try_from(DEADLINE_MAX.as_millis()).unwrap_or(u64::MAX);
    if request.deadline_ms.is_some_and(|ms| ms == 0 || ms > deadline_ms_max) {
        return Err(Fault::at("/deadlineMs", format!("must be 1 to {deadline_ms_max}")));
    }
    Ok(request)
}

/// The same request under the same key has the same ids.
fn derived_id(account: &str, key: &str, index: usize) -> CallId {
    let mut hash = Sha256::new();
    for part in [account.as_bytes(), key.as_bytes(), index.to_string().as_bytes()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    let hex: String = digest[..20].iter().map(|byte| format!("{byte:02x}")).collect();
    CallId::parse(format!("key-{hex}")).expect("hex digits make a plain id")
}

fn register<'a>(app: &'a App, calls: &[CallId]) -> Result<Vec<Waiter<'a>>, Problem> {
    let waiters: Result<Vec<_>, TooManyWait> = calls.iter().map(|call| app.waiters.register(call)).collect();
    waiters.map_err(|TooManyWait| {
        Problem::new(ProblemKind::Busy, "too many requests wait for results already").retry_after(1)
    })
}

/// None, or not all, of a request's calls were accepted.
fn refused(known: Vec<Known>, failures: Vec<(usize, SubmitError)>, is_batch: bool) -> Problem {
    let (kind, seconds) = match &failures[0].1 {
        SubmitError::Taken { call } if call.as_str().starts_with("key-") => (ProblemKind::KeyReused, None),
        SubmitError::Taken { .. } => (ProblemKind::Conflict, None),
        SubmitError::Publish { source: PublishError::Refused(_), .. } => (ProblemKind::Busy, Some(2)),
        SubmitError::Publish { source: PublishError::TooLong { .. }, .. } => (ProblemKind::TooLong, None),
        SubmitError::Publish { .. } | SubmitError::Store { .. } => (ProblemKind::Unavailable, Some(2)),
    };
    let count = known.len();
    for (_, error) in &failures {
        if let SubmitError::Store { call, source } = error {
            tracing::warn!(call = %call, error = %source, "a call could not be recorded");
        }
    }
    let detail = match failures.as_slice() {
        [(_, only)] if count == 1 => only.to_string(),
        [(_, first), ..] => format!(
            "{} of {count} calls were not accepted; the others were, and run. The first: {first}",
            failures.len()
        ),
        [] => String::new(),
    };
    let mut problem = Problem::new(kind, detail);
    for (index, error) in failures.iter().take(FAULTS_MAX) {
        let pointer = if is_batch { format!("/{index}") } else { String::new() };
        problem = problem.with_fault(Fault::at(pointer, error));
    }
    let failed: std::collections::HashSet<usize> = failures.iter().map(|(index, _)| *index).collect();
    let calls: Vec<serde_json::Value> = known
        .iter()
        .enumerate()
        .map(|(index, known)| match known {
            Known::Ended(result) => serde_json::json!({ "callId": result.call_id, "status": "ended" }),
            Known::Open(open) => {
                let status = if failed.contains(&index) { "notAccepted" } else { open.status };
                serde_json::json!({ "callId": open.call_id, "status": status })
            }
        })
        .collect();
    problem = problem.with("calls", calls.into());
    match seconds {
        Some(seconds) => problem.retry_after(seconds),
        None => problem,
    }
}

/// A trace context that is well-formed; another is as good as none.
fn traceparent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(HEADER_TRACEPARENT)?.to_str().ok()?;
    let good = text.len() == 55
        && text.bytes().enumerate().all(|(at, byte)| match at {
            2 | 35 | 52 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        });
    good.then(|| text.to_owned())
}

fn preference_applied(response: &mut Response, wait: Option<Duration>) {
    if let Some(wait) = wait
        && let Ok(value) = HeaderValue::from_str(&format!("wait={}", wait.as_secs()))
    {
        response.headers_mut().insert(HeaderName::from_static("preference-applied"), value);
    }
}

/// Look up a call.
#[utoipa::path(
    get, path = "/v1/calls/{id}", tag = "calls", security(("token" = ["submit"])),
    params(
        ("id" = String, Path, description = "the call's id"),
        ("Prefer" = Option<String>, Header, description = "`wait=SECONDS`: wait so long for the result, at most 120"),
    ),
    responses(
        (status = 200, description = "Its result, or how far it is", body = schema::Known),
        (status = "4XX", description = "No such call", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get_call(
    _: Submit,
    State(app): State<Arc<App>>,
    Segments(id): Segments<CallId>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let wait = preferred_wait(&headers, Duration::from_secs(app.config.wait_s_max))?;
    let waiter = match wait {
        Some(_) => register(&app, std::slice::from_ref(&id))?.pop(),
        None => None,
    };
    let mut known = Known::of(app.records.call(&id).await?.ok_or_else(|| unknown(&id))?);
    if let (Some(waiter), Some(wait), Known::Open(_)) = (waiter, wait, &known) {
        known = match waiter.result(&app, Instant::now() + wait).await? {
            Some(result) => Known::Ended(result),
            None => Known::of(app.records.call(&id).await?.ok_or_else(|| unknown(&id))?),
        };
    }
    let mut response = json(StatusCode::OK, &known);
    preference_applied(&mut response, wait);
    Ok(response)
}

fn unknown(id: &CallId) -> Problem {
    Problem::not_found(format!("there is no call {id}"))
}

/// Cancel a call.
///
/// The answer is the result that stands: `cancelled`, or the one that it ended with before.
#[utoipa::path(
    delete, path = "/v1/calls/{id}", tag = "calls", security(("token" = ["submit"])),
    params(("id" = String, Path, description = "the call's id")),
    responses(
        (status = 200, description = "The result that stands", body = schema::ResultBody),
        (status = "4XX", description = "No such call", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn cancel_call(
    _: Submit,
    State(app): State<Arc<App>>,
    Segments(id): Segments<CallId>,
) -> Result<Response, Problem> {
    let record = app.records.call(&id).await?.ok_or_else(|| unknown(&id))?;
    let attempt = match record.state {
        CallState::Running { attempt, .. } => attempt,
        _ => 0,
    };
    let error = CallError::new(FailureKind::Cancelled, "the call was cancelled before it ended");
    let result = ending::end(&app, &record.job, attempt, error).await?.result().ok_or_else(|| unknown(&id))?;
    if result.failure() == Some(FailureKind::Cancelled) {
        // Said again on a repeated request: the first may have broken off before it was said.
        app.records.announce_cancel(&id).await?;
    }
    Ok(json(StatusCode::OK, &*result).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gives_each_call_of_a_request_an_id_of_its_own() {
        let ids = [
            derived_id("acme", "k", 0),
            derived_id("acme", "k", 1),
            derived_id("acme", "k1", 0),
            derived_id("acmek", "", 0),
            derived_id("other", "k", 0),
        ];
        assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), ids.len());
        assert_eq!(ids[0], derived_id("acme", "k", 0));
    }

    #[test]
    fn only_a_well_formed_trace_context_is_handed_on() {
        let check = |text: &'static str, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(HEADER_TRACEPARENT, HeaderValue::from_static(text));
            assert_eq!(traceparent(&headers).is_some(), expected, "{text}");
        };
        check("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true);
        check("00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false);
        check("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", false);
    }
}
