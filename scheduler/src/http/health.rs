//! What machines ask to learn whether the scheduler works, and the documents that it serves about itself.

use super::answer::{json, typed};
use super::auth::{Manage, Ops};
use super::problem::{Problem, ProblemBody, ProblemKind};
use super::request::{Params, Segments};
use crate::app::App;
use crate::clock::now_ms;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use utoipa::ToSchema;

/// The clockwork runs every second; silent for so long, the process is stuck.
const PROGRESS_AGE_MS_MAX: u64 = 15_000;

/// Does the process still work? Says nothing of the services that it needs.
#[utoipa::path(
    get, path = "/livez", tag = "health",
    responses(
        (status = 200, description = "It works", body = String, content_type = "text/plain"),
        (status = 503, description = "It is stuck: restart it", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn livez(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let age_ms = now_ms().saturating_sub(app.health.progress_at_ms.load(Ordering::Relaxed));
    if age_ms > PROGRESS_AGE_MS_MAX {
        return Err(Problem::new(ProblemKind::Unavailable, format!("nothing has moved here for {age_ms} ms")));
    }
    Ok(typed(StatusCode::OK, "text/plain", "ok\n"))
}

/// What readiness depends on.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReadyBody {
    ready: bool,
    checks: Vec<Check>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Check {
    name: &'static str,
    ok: bool,
    /// What is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadyParams {
    verbose: Option<String>,
}

/// A store that answers later than this isn't there.
const PING_MAX: Duration = Duration::from_secs(2);

/// Can it take calls now?
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    params(("verbose" = Option<String>, Query, description = "list all checks")),
    responses(
        (status = 200, description = "It can", body = ReadyBody),
        (status = 503, description = "It can't; `checks` says why", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn readyz(
    State(app): State<Arc<App>>,
    Params(params): Params<ReadyParams>,
) -> Result<Response, Problem> {
    let store = match tokio::time::timeout(PING_MAX, app.records.store().ping()).await {
        Ok(Ok(())) => None,
        // What is wrong in detail may name hosts; the log says it.
        Ok(Err(error)) => {
            tracing::warn!(error = %error, "the store does not answer");
            Some("it does not answer; the scheduler's log says why".to_owned())
        }
        Err(_) => Some(format!("it did not answer within {PING_MAX:?}")),
    };
    let live = |flag: &std::sync::atomic::AtomicBool| flag.load(Ordering::Relaxed);
    let check = |name, ok: bool, detail: &str| Check { name, ok, detail: (!ok).then(|| detail.to_owned()) };
    let checks = vec![
        Check { name: "store", ok: store.is_none(), detail: store },
        check("queue", app.queue.is_ready(), "it is not connected, or a subscription is lost"),
        check("results", live(&app.health.results_live), "the reply queue is not read"),
        check("metering", live(&app.health.metering_live), "the metering queue is not read"),
        check("dead", live(&app.health.dead_live), "the dead letters are not read"),
        check("running", !app.shutdown.is_cancelled(), "it was asked to end"),
    ];
    let bad: Vec<&str> = checks.iter().filter(|check| !check.ok).map(|check| check.name).collect();
    if !bad.is_empty() {
        let problem = Problem::new(ProblemKind::Unavailable, format!("not ready: {}", bad.join(", "))).retry_after(1);
        return Err(problem.with("checks", serde_json::to_value(&checks).expect("checks are plain data")));
    }
    let checks = if params.verbose.is_some() { checks } else { Vec::new() };
    Ok(json(StatusCode::OK, &ReadyBody { ready: true, checks }))
}

/// Metrics for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "health", security(("token" = ["ops"])),
    responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text"))
)]
pub(crate) async fn metrics(_: Ops, State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let text = app.metrics.text().map_err(|error| Problem::new(ProblemKind::Internal, error))?;
    Ok(typed(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text))
}

/// The types file for plugin authors.
#[utoipa::path(
    get, path = "/v1/sdk/types", tag = "plugins", security(("token" = ["manage"])),
    responses((status = 200, description = "TypeScript declarations", body = String, content_type = "text/plain"))
)]
pub(crate) async fn sdk_types(_: Manage) -> Response {
    typed(StatusCode::OK, "text/plain; charset=utf-8", toolfleet_plugin::sdk::types())
}

/// What a kind of problem means, and what to do.
#[utoipa::path(
    get, path = "/problems/{code}", tag = "health",
    params(("code" = String, Path, description = "the last part of a problem's `type`")),
    responses(
        (status = 200, description = "The explanation", body = String, content_type = "text/plain"),
        (status = "4XX", description = "No such kind", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn problem_page(Segments(code): Segments<String>) -> Result<Response, Problem> {
    let kind = ProblemKind::ALL.iter().find(|kind| kind.code() == code);
    let kind = kind.ok_or_else(|| Problem::not_found("there is no such kind of problem"))?;
    let text = format!("{} ({})\n\n{}\n", kind.title(), kind.status(), kind.page());
    Ok(typed(StatusCode::OK, "text/plain; charset=utf-8", text))
}

/// This API, as OpenAPI 3.1.
#[utoipa::path(
    get, path = "/openapi.json", tag = "health",
    responses((status = 200, description = "The document", content_type = "application/json"))
)]
pub(crate) async fn openapi_json() -> Response {
    typed(StatusCode::OK, "application/json", super::openapi_text())
}
