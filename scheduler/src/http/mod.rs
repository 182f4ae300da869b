//! The HTTP API: every route, with its description in the OpenAPI document, from one registration.

mod agents;
mod answer;
mod auth;
mod calls;
mod health;
mod ops;
mod plugins;
mod problem;
mod request;
mod schema;
mod sessions;

use crate::app::App;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use problem::{Problem, ProblemKind};
use std::sync::Arc;
use std::sync::LazyLock;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "toolfleet",
        description = "Runs the tools of an agent platform's plugins. Errors are RFC 9457 problem documents, whose `type` leads to what to do."
    ),
    components(schemas(problem::ProblemBody, problem::Fault)),
    tags(
        (name = "calls", description = "Tool calls"),
        (name = "plugins", description = "Publishing plugins"),
        (name = "installations", description = "Which account has which plugin"),
        (name = "agents", description = "Agents and what they may call"),
        (name = "sessions", description = "Conversations"),
        (name = "usage", description = "What accounts used"),
        (name = "ops", description = "How the fleet does"),
        (name = "health", description = "How this process does"),
    )
)]
struct Described;

fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Described::openapi())
        .routes(routes!(calls::submit_calls))
        .routes(routes!(calls::get_call, calls::cancel_call))
        .routes(routes!(plugins::publish_plugin, plugins::list_plugins))
        .routes(routes!(plugins::get_plugin))
        .routes(routes!(plugins::install, plugins::list_installations))
        .routes(routes!(plugins::uninstall))
        .routes(routes!(agents::create_agent))
        .routes(routes!(agents::get_agent))
        .routes(routes!(agents::get_access, agents::put_access))
        .routes(routes!(agents::agent_tools))
        .routes(routes!(sessions::messages, sessions::post_message))
        .routes(routes!(ops::usage))
        .routes(routes!(ops::dead_letters))
        .routes(routes!(ops::autoscale))
        .routes(routes!(health::sdk_types))
        .routes(routes!(health::openapi_json))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(health::problem_page))
}

/// The API's OpenAPI document.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = routes().into_openapi();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
        "A token of `api.tokens`; the scopes are submit, manage and ops. Not needed where none is configured.",
    ));
    document.components.get_or_insert_default().add_security_scheme("token", SecurityScheme::Http(bearer.build()));
    document
}

static OPENAPI: LazyLock<String> =
    LazyLock::new(|| openapi().to_pretty_json().map(|text| text + "\n").expect("the document is plain data"));

/// The same as text, as it is served and as it stands in the repository.
pub fn openapi_text() -> &'static str {
    OPENAPI.as_str()
}

/// The routes with what stands around them.
pub(crate) fn router(app: Arc<App>) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .fallback(|| async { Problem::not_found("there is no such path; /openapi.json lists those there are") })
        .method_not_allowed_fallback(|request: Request| async move {
            Problem::new(
                ProblemKind::MethodNotAllowed,
                format!("{} has no method {}", request.uri().path(), request.method()),
            )
        })
        // Outermost, so that requests without a route are bounded and counted too.
        .layer(from_fn_with_state(Arc::clone(&app), bounded))
        .with_state(app)
}

/// So many requests are under way at once; one more is told to come again. Each may hold a body of some megabytes.
const REQUESTS_MAX: i64 = 20_000;

async fn bounded(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let under_way = UnderWay::new(&app);
    if under_way.count > REQUESTS_MAX {
        return Problem::new(ProblemKind::Busy, "too many requests are under way").retry_after(1).into_response();
    }
    next.run(request).await
}

/// A request under way, also one whose client goes away.
struct UnderWay<'a> {
    app: &'a App,
    count: i64,
}

impl<'a> UnderWay<'a> {
    fn new(app: &'a App) -> Self {
        Self { app, count: app.metrics.requests.inc() + 1 }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.app.metrics.requests.dec();
    }
}
