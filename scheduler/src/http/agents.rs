//! Agents, what they may call, and what they see.

use super::answer::json;
use super::auth::{Manage, Submit};
use super::problem::{Problem, ProblemBody, ProblemKind};
use super::request::{JsonBody, Segments};
use crate::app::App;
use crate::clock::now_ms;
use crate::resolve::installed_tools;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use toolfleet_protocol::{AccountId, AgentId, CallId, ToolName};
use toolfleet_store::records::{Access, AccessMode, Agent, Put, PutAgentError};
use utoipa::ToSchema;

/// An agent to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AgentRequest {
    /// Made up unless given.
    #[schema(value_type = Option<String>)]
    id: Option<AgentId>,
    #[schema(value_type = String)]
    account: AccountId,
    /// For people; the id unless given.
    #[schema(max_length = 200)]
    name: Option<String>,
}

const NAME_CHARS_MAX: usize = 200;

/// An agent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Agent)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentBody {
    id: String,
    account: String,
    name: String,
    access: AccessBody,
    created_at_ms: u64,
}

impl From<Agent> for AgentBody {
    fn from(agent: Agent) -> Self {
        Self {
            id: agent.id.to_string(),
            account: agent.account.to_string(),
            name: agent.name,
            access: agent.access.into(),
            created_at_ms: agent.created_at_ms,
        }
    }
}

/// Which tools an agent may call, by their full names.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Access)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AccessBody {
    mode: AccessModeBody,
    /// With the mode `list`: these.
    #[serde(default)]
    tools: BTreeSet<String>,
    /// Never these.
    #[serde(default)]
    deny: BTreeSet<String>,
    /// These are always listed to the agent's model.
    #[serde(default)]
    pin: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[schema(as = AccessMode)]
#[serde(rename_all = "camelCase")]
pub(crate) enum AccessModeBody {
    /// Every tool that is installed for the account.
    All,
    /// Only those that `tools` lists.
    List,
}

impl From<Access> for AccessBody {
    fn from(access: Access) -> Self {
        let Access { mode, tools, deny, pin } = access;
        let mode = match mode {
            AccessMode::All => AccessModeBody::All,
            AccessMode::List => AccessModeBody::List,
        };
        Self { mode, tools, deny, pin }
    }
}

impl AccessBody {
    fn check(self) -> Result<Access, Problem> {
        let mut faults = Vec::new();
        for (field, names) in [("tools", &self.tools), ("deny", &self.deny), ("pin", &self.pin)] {
            if names.len() > ACCESS_NAMES_MAX {
                faults.push(super::problem::Fault::at(
                    format!("/{field}"),
                    format!("must hold at most {ACCESS_NAMES_MAX} names"),
                ));
            }
            if let Some(bad) = names.iter().find(|name| ToolName::split_qualified(name).is_none()) {
                let shown: String = bad.chars().take(80).collect();
                let detail =
                    format!("must hold full tool names such as \"weather__get_forecast\", but holds {shown:?}");
                faults.push(super::problem::Fault::at(format!("/{field}"), detail));
            }
        }
        if !faults.is_empty() {
            return Err(Problem::faults(faults));
        }
        let mode = match self.mode {
            AccessModeBody::All => AccessMode::All,
            AccessModeBody::List => AccessMode::List,
        };
        Ok(Access { mode, tools: self.tools, deny: self.deny, pin: self.pin })
    }
}

/// Names in each part of an agent's access; a record is read with every call.
const ACCESS_NAMES_MAX: usize = 1_000;

/// Make an agent.
#[utoipa::path(
    post, path = "/v1/agents", tag = "agents", security(("token" = ["manage"])),
    request_body(content = AgentRequest),
    responses(
        (status = 200, description = "It exists already", body = AgentBody),
        (status = 201, description = "Made", body = AgentBody),
        (status = "4XX", description = "Not made", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create_agent(
    _: Manage,
    State(app): State<Arc<App>>,
    JsonBody(request): JsonBody<AgentRequest>,
) -> Result<Response, Problem> {
    let id = match request.id {
        Some(id) => id,
        None => AgentId::parse(CallId::generate().as_str()).expect("both are plain ids"),
    };
    let name = request.name.unwrap_or_else(|| id.to_string());
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) {
        return Err(Problem::field(
            "/name",
            format!("must be 1 to {NAME_CHARS_MAX} characters, none of them a control character"),
        ));
    }
    let access = Access { mode: AccessMode::All, tools: BTreeSet::new(), deny: BTreeSet::new(), pin: BTreeSet::new() };
    let agent = Agent { id: id.clone(), account: request.account, name, access, created_at_ms: now_ms() };
    let status = match app.records.put_agent(&agent).await {
        Ok(Put::New) => StatusCode::CREATED,
        Ok(Put::Same) => StatusCode::OK,
        Err(PutAgentError::Conflict(conflict)) => return Err(Problem::new(ProblemKind::Conflict, conflict)),
        Err(PutAgentError::Store(error)) => return Err(error.into()),
    };
    let agent = agent_of(&app, &id).await?;
    Ok(json(status, &AgentBody::from(agent)))
}

async fn agent_of(app: &App, id: &AgentId) -> Result<Agent, Problem> {
    app.records.agent(id).await?.ok_or_else(|| Problem::not_found(format!("there is no agent {id}")))
}

/// See an agent.
#[utoipa::path(
    get, path = "/v1/agents/{id}", tag = "agents", security(("token" = ["manage"])),
    params(("id" = String, Path, description = "the agent's id")),
    responses(
        (status = 200, description = "The agent", body = AgentBody),
        (status = "4XX", description = "No such agent", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get_agent(
    _: Manage,
    State(app): State<Arc<App>>,
    Segments(id): Segments<AgentId>,
) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, &AgentBody::from(agent_of(&app, &id).await?)))
}

/// See what an agent may call.
#[utoipa::path(
    get, path = "/v1/agents/{id}/access", tag = "agents", security(("token" = ["manage"])),
    params(("id" = String, Path, description = "the agent's id")),
    responses(
        (status = 200, description = "Its access", body = AccessBody),
        (status = "4XX", description = "No such agent", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get_access(
    _: Manage,
    State(app): State<Arc<App>>,
    Segments(id): Segments<AgentId>,
) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, &AccessBody::from(agent_of(&app, &id).await?.access)))
}

/// Decide what an agent may call. Holds from the next call on.
#[utoipa::path(
    put, path = "/v1/agents/{id}/access", tag = "agents", security(("token" = ["manage"])),
    params(("id" = String, Path, description = "the agent's id")),
    request_body(content = AccessBody),
    responses(
        (status = 200, description = "Its access now", body = AccessBody),
        (status = "4XX", description = "Not changed", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn put_access(
    _: Manage,
    State(app): State<Arc<App>>,
    Segments(id): Segments<AgentId>,
    JsonBody(request): JsonBody<AccessBody>,
) -> Result<Response, Problem> {
    let access = request.check()?;
    agent_of(&app, &id).await?;
    app.records.set_access(&id, &access).await?;
    Ok(json(StatusCode::OK, &AccessBody::from(access)))
}

/// The tools that an agent may call.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AgentToolsBody {
    tools: Vec<AgentToolBody>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentToolBody {
    /// The full name, by which it is called.
    name: String,
    description: String,
    /// JSON Schema of the input.
    #[schema(value_type = Object)]
    parameters: Value,
    plugin: String,
    version: String,
}

/// List the tools that an agent may call.
#[utoipa::path(
    get, path = "/v1/agents/{id}/tools", tag = "agents", security(("token" = ["submit"])),
    params(("id" = String, Path, description = "the agent's id")),
    responses(
        (status = 200, description = "Its tools, by name", body = AgentToolsBody),
        (status = "4XX", description = "No such agent", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn agent_tools(
    _: Submit,
    State(app): State<Arc<App>>,
    Segments(id): Segments<AgentId>,
) -> Result<Response, Problem> {
    let agent = agent_of(&app, &id).await?;
    let mut tools = Vec::new();
    for (installation, release) in installed_tools(&app, &agent.account).await? {
        for tool in &release.tools {
            let name = tool.name.qualified(&installation.plugin);
            if agent.access.allows(&name) {
                tools.push(AgentToolBody {
                    name,
                    description: tool.description.clone(),
                    parameters: tool.parameters.clone(),
                    plugin: installation.plugin.to_string(),
                    version: installation.version.to_string(),
                });
            }
        }
    }
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(json(StatusCode::OK, &AgentToolsBody { tools }))
}
