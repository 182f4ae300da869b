//! Plugins: published, listed, installed.

use super::answer::json;
use super::auth::Manage;
use super::problem::{Problem, ProblemBody, ProblemKind};
use super::request::{JsonBody, Params, PluginBody, Segments, escape};
use crate::app::App;
use crate::clock::now_ms;
use crate::dispatch::SubmitError;
use crate::publish::{NotPublished, publish};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use toolfleet_protocol::{AccountId, Limits, Permission, PluginSlug, Release, ReleaseDigest};
use toolfleet_queue::PublishError;
use toolfleet_store::records::{Installation, Published, SettingsError};
use utoipa::ToSchema;

/// A plugin's files.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PublishRequest {
    /// By path from the plugin's folder, for example `plugin.json`, `src/index.ts`.
    #[schema(value_type = BTreeMap<String, FileContent>)]
    files: BTreeMap<String, FileContent>,
}

/// A file's content: text, or `{"base64": …}`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "a file must be its text, or {\"base64\": \"…\"}")]
pub(crate) enum FileContent {
    Text(String),
    Encoded(Base64Content),
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Base64Content {
    base64: String,
}

/// A permission, as its installer reads it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PermissionBody {
    id: &'static str,
    words: &'static str,
}

impl From<&Permission> for PermissionBody {
    fn from(permission: &Permission) -> Self {
        Self { id: permission.id(), words: permission.words() }
    }
}

/// A tool of a release.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolBody {
    name: String,
    /// As an agent's model sees it.
    qualified_name: String,
    description: String,
    /// JSON Schema of the input.
    #[schema(value_type = Object)]
    parameters: Value,
    always_listed: bool,
    deferred: bool,
}

/// A release, without its code.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReleaseBody {
    plugin: String,
    version: String,
    release: String,
    name: String,
    description: String,
    tools: Vec<ToolBody>,
    /// What it may do, derived from its source.
    permissions: Vec<PermissionBody>,
    /// The hosts that it may call.
    egress: Vec<String>,
    /// JSON Schema of its settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    settings: Option<Value>,
    limits: LimitsBody,
}

/// What one call may use.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Limits)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LimitsBody {
    wall_ms: u64,
    memory_bytes: u64,
    input_bytes_max: u64,
    result_bytes_max: u64,
}

impl From<Limits> for LimitsBody {
    fn from(limits: Limits) -> Self {
        let Limits { wall_ms, memory_bytes, input_bytes_max, result_bytes_max, .. } = limits;
        Self { wall_ms, memory_bytes, input_bytes_max, result_bytes_max }
    }
}

impl From<&Release> for ReleaseBody {
    fn from(release: &Release) -> Self {
        let tools = release.tools.iter().map(|tool| ToolBody {
            name: tool.name.to_string(),
            qualified_name: tool.name.qualified(&release.slug),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
            always_listed: tool.always_listed,
            deferred: tool.deferred,
        });
        Self {
            plugin: release.slug.to_string(),
            version: release.version.to_string(),
            release: release.digest.to_string(),
            name: release.name.clone(),
            description: release.description.clone(),
            tools: tools.collect(),
            permissions: release.permissions.iter().map(PermissionBody::from).collect(),
            egress: release.egress.iter().map(ToString::to_string).collect(),
            settings: release.settings.clone(),
            limits: release.limits.into(),
        }
    }
}

/// What the publisher is shown.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PublishedBody {
    #[serde(flatten)]
    release: ReleaseBody,
    /// What the author should know.
    #[schema(value_type = Vec<Object>)]
    warnings: Vec<toolfleet_plugin::Problem>,
}

/// Publish a plugin.
///
/// A version is one release for ever: publishing the same content again changes nothing, other content is refused.
#[utoipa::path(
    post, path = "/v1/plugins", tag = "plugins", security(("token" = ["manage"])),
    request_body(content = PublishRequest),
    responses(
        (status = 200, description = "This very release was published before", body = PublishedBody),
        (status = 201, description = "Published", body = PublishedBody),
        (status = "4XX", description = "Not published; `problems` says why", body = ProblemBody, content_type = "application/problem+json"),
        (status = "5XX", description = "Not published now", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn publish_plugin(
    _: Manage,
    State(app): State<Arc<App>>,
    PluginBody(request): PluginBody<PublishRequest>,
) -> Result<Response, Problem> {
    let mut files = BTreeMap::new();
    for (path, content) in request.files {
        let bytes = match content {
            FileContent::Text(text) => text.into_bytes(),
            FileContent::Encoded(Base64Content { base64 }) => {
                base64::engine::general_purpose::STANDARD.decode(base64).map_err(|error| {
                    Problem::field(format!("/files/{}/base64", escape(&path)), format!("must be base64: {error}"))
                })?
            }
        };
        files.insert(path, bytes);
    }
    let done = publish(&app, files).await?;
    let status = match done.published {
        Published::New => StatusCode::CREATED,
        Published::Already => StatusCode::OK,
    };
    let body = PublishedBody { release: (&done.checked.release).into(), warnings: done.checked.warnings };
    Ok(json(status, &body))
}

impl From<NotPublished> for Problem {
    fn from(error: NotPublished) -> Self {
        match error {
            NotPublished::Problems(problems) => {
                let all = problems.as_slice();
                let detail = match all {
                    [one] => one.to_string(),
                    many => format!("{} problems were found", many.len()),
                };
                let all = serde_json::to_value(all).expect("problems are plain data");
                Problem::new(ProblemKind::PluginProblems, detail).with("problems", all)
            }
            NotPublished::Conflict(conflict) => Problem::new(ProblemKind::Conflict, conflict),
            NotPublished::Store(error) | NotPublished::Submit(SubmitError::Store { source: error, .. }) => error.into(),
            NotPublished::Submit(SubmitError::Publish { source: PublishError::Refused(_), .. })
            | NotPublished::Busy => Problem::new(ProblemKind::Busy, error).retry_after(2),
            NotPublished::Submit(_) | NotPublished::NotInspected(_) | NotPublished::NoAnswer => {
                Problem::new(ProblemKind::Unavailable, error).retry_after(5)
            }
            NotPublished::NoInspection(_) => {
                tracing::error!(error = %error, "a worker's answer to an inspection can't be read");
                Problem::new(ProblemKind::Internal, error)
            }
        }
    }
}

/// The published plugins.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PluginsBody {
    plugins: Vec<PluginLine>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PluginLine {
    plugin: String,
    /// The version that is installed unless another is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    latest: Option<VersionLine>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VersionLine {
    version: String,
    release: String,
}

impl From<(semver::Version, ReleaseDigest)> for VersionLine {
    fn from((version, release): (semver::Version, ReleaseDigest)) -> Self {
        Self { version: version.to_string(), release: release.to_string() }
    }
}

/// List the published plugins.
#[utoipa::path(
    get, path = "/v1/plugins", tag = "plugins", security(("token" = ["manage"])),
    responses((status = 200, description = "All plugins", body = PluginsBody))
)]
pub(crate) async fn list_plugins(_: Manage, State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let mut plugins = Vec::new();
    for slug in app.records.plugins().await? {
        let latest = app.records.latest_release(&slug).await?.map(VersionLine::from);
        plugins.push(PluginLine { plugin: slug.to_string(), latest });
    }
    Ok(json(StatusCode::OK, &PluginsBody { plugins }))
}

/// A plugin with its versions and its latest release.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PluginBodyOut {
    versions: Vec<VersionLine>,
    #[serde(flatten)]
    latest: ReleaseBody,
}

/// See a plugin: its versions, and what its latest release holds and may do.
#[utoipa::path(
    get, path = "/v1/plugins/{slug}", tag = "plugins", security(("token" = ["manage"])),
    params(("slug" = String, Path, description = "the plugin's slug")),
    responses(
        (status = 200, description = "The plugin", body = PluginBodyOut),
        (status = "4XX", description = "No such plugin", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get_plugin(
    _: Manage,
    State(app): State<Arc<App>>,
    Segments(slug): Segments<PluginSlug>,
) -> Result<Response, Problem> {
    let missing = || Problem::not_found(format!("there is no plugin {slug}"));
    let (_, digest) = app.records.latest_release(&slug).await?.ok_or_else(missing)?;
    let release = app.records.release(&digest).await?.ok_or_else(missing)?;
    let versions = app.records.versions(&slug).await?.into_iter().map(VersionLine::from).collect();
    Ok(json(StatusCode::OK, &PluginBodyOut { versions, latest: (&release).into() }))
}

/// What to install.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct InstallRequest {
    #[schema(value_type = String)]
    account: AccountId,
    #[schema(value_type = String)]
    plugin: PluginSlug,
    /// The latest unless given.
    #[schema(value_type = Option<String>)]
    version: Option<semver::Version>,
    /// Instead of a version.
    #[schema(value_type = Option<String>)]
    release: Option<ReleaseDigest>,
    /// The plugin's settings, as its schema has them; those before stay unless given.
    #[schema(value_type = Option<Object>)]
    settings: Option<Map<String, Value>>,
}

/// A plugin of an account.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InstallationBody {
    account: String,
    plugin: String,
    version: String,
    release: String,
    installed_at_ms: u64,
    /// Secrets are shown as dots.
    #[schema(value_type = Object)]
    settings: Map<String, Value>,
}

impl InstallationBody {
    fn new(account: &AccountId, installation: Installation, settings: Map<String, Value>) -> Self {
        Self {
            account: account.to_string(),
            plugin: installation.plugin.to_string(),
            version: installation.version.to_string(),
            release: installation.release.to_string(),
            installed_at_ms: installation.installed_at_ms,
            settings,
        }
    }
}

/// Install a plugin for an account, or change its version or settings.
#[utoipa::path(
    post, path = "/v1/installations", tag = "installations", security(("token" = ["manage"])),
    request_body(content = InstallRequest),
    responses(
        (status = 201, description = "Installed", body = InstallationBody),
        (status = "4XX", description = "Not installed", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn install(
    _: Manage,
    State(app): State<Arc<App>>,
    JsonBody(request): JsonBody<InstallRequest>,
) -> Result<Response, Problem> {
    let InstallRequest { account, plugin, version, release, settings } = request;
    if version.is_some() && release.is_some() {
        return Err(Problem::field("/release", "must not be given together with version"));
    }
    let versions = app.records.versions(&plugin).await?;
    let latest = app.records.latest_release(&plugin).await?;
    let found = match (&version, &release) {
        (Some(version), _) => versions.into_iter().find(|(known, _)| known == version),
        (None, Some(release)) => versions.into_iter().find(|(_, known)| known == release),
        (None, None) => latest,
    };
    let Some((version, digest)) = found else {
        let (pointer, what) = match (version, release) {
            (Some(version), _) => ("/version", format!("there is no version {version} of plugin {plugin}")),
            (None, Some(release)) => ("/release", format!("there is no release {release} of plugin {plugin}")),
            (None, None) => ("/plugin", format!("there is no plugin {plugin}: publish it first")),
        };
        let fault = super::problem::Fault::at(pointer, &what);
        return Err(Problem::not_found(what).with_fault(fault));
    };
    if let Some(values) = settings {
        let release = app
            .records
            .release(&digest)
            .await?
            .ok_or_else(|| Problem::not_found(format!("release {digest} of plugin {plugin} is gone")))?;
        app.records.put_settings(&account, &plugin, release.settings.as_ref(), &values, &app.sealer).await?;
    }
    let installation = Installation { plugin: plugin.clone(), release: digest, version, installed_at_ms: now_ms() };
    app.records.install(&account, &installation).await?;
    let settings = app.records.settings_shown(&account, &plugin).await?;
    Ok(json(StatusCode::CREATED, &InstallationBody::new(&account, installation, settings)))
}

impl From<SettingsError> for Problem {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::Store(error) => error.into(),
            SettingsError::Invalid { pointer, reason } => Problem::field(format!("/settings{pointer}"), reason),
            other => Problem::field("/settings", other),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfAccount {
    account: AccountId,
}

/// An account's plugins.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InstallationsBody {
    installations: Vec<InstallationBody>,
}

/// List an account's plugins.
#[utoipa::path(
    get, path = "/v1/installations", tag = "installations", security(("token" = ["manage"])),
    params(("account" = String, Query, description = "whose")),
    responses((status = 200, description = "The account's plugins", body = InstallationsBody))
)]
pub(crate) async fn list_installations(
    _: Manage,
    State(app): State<Arc<App>>,
    Params(OfAccount { account }): Params<OfAccount>,
) -> Result<Response, Problem> {
    let mut installations = Vec::new();
    for installation in app.records.installations(&account).await? {
        let settings = app.records.settings_shown(&account, &installation.plugin).await?;
        installations.push(InstallationBody::new(&account, installation, settings));
    }
    Ok(json(StatusCode::OK, &InstallationsBody { installations }))
}

/// Uninstall a plugin.
#[utoipa::path(
    delete, path = "/v1/installations/{account}/{plugin}", tag = "installations", security(("token" = ["manage"])),
    params(("account" = String, Path, description = "whose"), ("plugin" = String, Path, description = "the plugin's slug")),
    responses(
        (status = 204, description = "It is no longer installed"),
        (status = "4XX", description = "It wasn't", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn uninstall(
    _: Manage,
    State(app): State<Arc<App>>,
    Segments((account, plugin)): Segments<(AccountId, PluginSlug)>,
) -> Result<StatusCode, Problem> {
    if app.records.uninstall(&account, &plugin).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found(format!("plugin {plugin} is not installed for account {account}")))
    }
}
