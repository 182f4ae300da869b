//! Conversations: what was said in them, and what a user says.

use super::answer::json;
use super::auth::Submit;
use super::problem::{Problem, ProblemBody};
use super::request::{JsonBody, Params, Segments};
use crate::app::App;
use crate::clock::now_ms;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use toolfleet_protocol::host::{Role, SessionMessage};
use toolfleet_protocol::{AccountId, AgentId, SessionId};
use toolfleet_store::records::{MessagesError, NewMessage};
use utoipa::ToSchema;

/// Messages in one answer.
const MESSAGES_LIMIT_MAX: u32 = 200;
const MESSAGES_LIMIT: u32 = 50;
/// A message's text; longer ones belong into the workspace.
const TEXT_BYTES_MAX: usize = 256 * 1024;
/// A message's data, as JSON.
const DATA_BYTES_MAX: usize = 16 * 1024;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessagesParams {
    agent: AgentId,
    limit: Option<u32>,
    before: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfAgent {
    agent: AgentId,
}

/// What a user says.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MessageRequest {
    text: String,
    /// Anything that the platform's user interface shall know.
    #[serde(default)]
    #[schema(value_type = Object)]
    data: Map<String, Value>,
}

/// A message of a conversation.
#[derive(Serialize, ToSchema)]
#[schema(as = Message)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code)]
pub(crate) struct MessageBody {
    id: String,
    role: RoleName,
    text: String,
    at_ms: u64,
    /// The plugin that posted it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin: Option<String>,
    #[schema(value_type = Object)]
    data: Map<String, Value>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Role)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code)]
pub(crate) enum RoleName {
    User,
    Assistant,
    Tool,
    System,
}

/// Messages, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessagesBody {
    #[schema(value_type = Vec<MessageBody>)]
    messages: Vec<SessionMessage>,
}

async fn account_of(app: &App, agent: &AgentId) -> Result<AccountId, Problem> {
    let agent_record = app.records.agent(agent).await?;
    Ok(agent_record.ok_or_else(|| Problem::not_found(format!("there is no agent {agent}")))?.account)
}

/// Read a conversation.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/messages", tag = "sessions", security(("token" = ["submit"])),
    params(
        ("id" = String, Path, description = "the session's id"),
        ("agent" = String, Query, description = "an agent of the account that the session belongs to"),
        ("limit" = Option<u32>, Query, description = "1 to 200; 50 unless given"),
        ("before" = Option<String>, Query, description = "a message's id: only those before it"),
    ),
    responses(
        (status = 200, description = "The latest messages, oldest first", body = MessagesBody),
        (status = "4XX", description = "No such agent", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn messages(
    _: Submit,
    State(app): State<Arc<App>>,
    Segments(session): Segments<SessionId>,
    Params(params): Params<MessagesParams>,
) -> Result<Response, Problem> {
    let limit = params.limit.unwrap_or(MESSAGES_LIMIT);
    if !(1..=MESSAGES_LIMIT_MAX).contains(&limit) {
        return Err(Problem::parameter("limit", format!("must be 1 to {MESSAGES_LIMIT_MAX}, but is {limit}")));
    }
    let account = account_of(&app, &params.agent).await?;
    let messages = app.records.messages(&account, &session, params.before.as_deref(), limit).await;
    match messages {
        Ok(messages) => Ok(json(StatusCode::OK, &MessagesBody { messages })),
        Err(MessagesError::Store(error)) => Err(error.into()),
        Err(error @ MessagesError::Before { .. }) => Err(Problem::parameter("before", error)),
    }
}

/// Post a message as the user.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/messages", tag = "sessions", security(("token" = ["submit"])),
    params(
        ("id" = String, Path, description = "the session's id"),
        ("agent" = String, Query, description = "an agent of the account that the session belongs to"),
    ),
    request_body(content = MessageRequest),
    responses(
        (status = 201, description = "Posted", body = MessageBody),
        (status = "4XX", description = "Not posted", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn post_message(
    _: Submit,
    State(app): State<Arc<App>>,
    Segments(session): Segments<SessionId>,
    Params(OfAgent { agent }): Params<OfAgent>,
    JsonBody(request): JsonBody<MessageRequest>,
) -> Result<Response, Problem> {
    if request.text.len() > TEXT_BYTES_MAX {
        return Err(Problem::field("/text", format!("must have at most {TEXT_BYTES_MAX} bytes")));
    }
    let data_bytes = serde_json::to_vec(&request.data).map_or(usize::MAX, |bytes| bytes.len());
    if data_bytes > DATA_BYTES_MAX {
        return Err(Problem::field("/data", format!("must have at most {DATA_BYTES_MAX} bytes of JSON")));
    }
    let account = account_of(&app, &agent).await?;
    let message = NewMessage { role: Role::User, text: request.text, plugin: None, data: request.data };
    let posted = app.records.post_message(&account, &session, message, None, now_ms()).await?;
    Ok(json(StatusCode::CREATED, &posted))
}
