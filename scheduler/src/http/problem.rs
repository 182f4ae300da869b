//! Errors as their reader gets them: RFC 9457 problem documents, each kind with a page that says what to do.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt;
use toolfleet_store::StoreError;
use utoipa::ToSchema;

macro_rules! problems {
    ($($variant:ident = $code:literal, $status:ident, $title:literal, $page:literal;)*) => {
        /// A kind of problem.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum ProblemKind {
            $(#[doc = $title] $variant,)*
        }

        impl ProblemKind {
            pub(crate) const ALL: &'static [ProblemKind] = &[$(ProblemKind::$variant,)*];

            /// The last part of its `type`.
            pub(crate) fn code(self) -> &'static str {
                match self { $(ProblemKind::$variant => $code,)* }
            }

            pub(crate) fn status(self) -> StatusCode {
                match self { $(ProblemKind::$variant => StatusCode::$status,)* }
            }

            pub(crate) fn title(self) -> &'static str {
                match self { $(ProblemKind::$variant => $title,)* }
            }

            /// What it means and what to do, served where its `type` points to.
            pub(crate) fn page(self) -> &'static str {
                match self { $(ProblemKind::$variant => $page,)* }
            }
        }
    };
}

problems! {
    InvalidRequest = "invalid-request", BAD_REQUEST, "The request is not as it must be",
        "Each entry of `errors` names the place (a JSON pointer into the body, a parameter or a header) and what must stand there. Nothing was changed. Correct it and send it again.";
    Unauthorized = "unauthorized", UNAUTHORIZED, "A token is needed",
        "Send `Authorization: Bearer TOKEN` with a token whose SHA-256 stands in the configuration under `api.tokens`.";
    Forbidden = "forbidden", FORBIDDEN, "The token may not do this",
        "The token is known but lacks the scope that `detail` names. Use another, or add the scope to it under `api.tokens`.";
    NotFound = "not-found", NOT_FOUND, "There is no such thing",
        "The path, or the thing that it names, doesn't exist. Calls can be looked up only until `scheduler.call_retention_s` after their end.";
    MethodNotAllowed = "method-not-allowed", METHOD_NOT_ALLOWED, "The path has no such method",
        "The header `Allow` lists the methods of this path; /openapi.json describes them.";
    TooSlow = "too-slow", REQUEST_TIMEOUT, "The request's body took too long to arrive",
        "Send it again over a faster link, or in smaller parts.";
    Conflict = "conflict", CONFLICT, "Something else stands in the way",
        "`detail` says what exists already. A published version never changes: publish the next one. An id that is taken stays taken.";
    TooLong = "too-long", PAYLOAD_TOO_LARGE, "The body is too long",
        "Split a batch, or keep large data in the agent's workspace and send its path. The limits are `scheduler.body_bytes_max` and `scheduler.plugin_bytes_max`.";
    MediaType = "media-type", UNSUPPORTED_MEDIA_TYPE, "The body must be JSON",
        "Send `Content-Type: application/json`.";
    KeyReused = "key-reused", UNPROCESSABLE_ENTITY, "The idempotency key belongs to another request",
        "A retry must send the same bytes as the first request with this key. Use a new key for a new request.";
    PluginProblems = "plugin-problems", UNPROCESSABLE_ENTITY, "The plugin can't be published as it is",
        "`problems` lists all that was found, each with its place, a code and what to do. `toolfleet plugin check` finds the same before publishing.";
    Busy = "busy", TOO_MANY_REQUESTS, "Too much is under way",
        "Send it again after the seconds in `Retry-After`. Nothing was begun, unless `calls` says otherwise.";
    Internal = "internal", INTERNAL_SERVER_ERROR, "Something went wrong here",
        "The scheduler's log has the reason at the time of the request.";
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, "A service that this needs does not answer",
        "Send it again after the seconds in `Retry-After`, with the same `Idempotency-Key` if there was one: what was accepted is found, not run again. /readyz?verbose tells which service it is.";
}

/// One place of the request and what must stand there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Fault {
    /// A JSON pointer into the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pointer: Option<String>,
    /// A parameter of the path or the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<String>,
    /// A header.
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<String>,
    detail: String,
}

impl Fault {
    pub(crate) fn at(pointer: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self { pointer: Some(pointer.into()), parameter: None, header: None, detail: detail.to_string() }
    }

    /// The same, seen from further out.
    pub(crate) fn below(mut self, prefix: &str) -> Self {
        self.pointer = self.pointer.map(|pointer| format!("{prefix}{pointer}"));
        self
    }
}

/// An error's body, `application/problem+json`.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    /// Where this kind of problem is explained.
    #[serde(rename = "type")]
    kind_path: String,
    title: &'static str,
    status: u16,
    /// What happened this time.
    detail: String,
    /// The places of the request that are wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    errors: Vec<Fault>,
    /// More that this kind of problem says.
    #[serde(flatten)]
    #[schema(additional_properties, value_type = Object)]
    more: Map<String, Value>,
}

/// A request that isn't answered as it was meant to be.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    kind: ProblemKind,
    detail: String,
    errors: Vec<Fault>,
    more: Map<String, Value>,
    retry_after_s: Option<u32>,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, detail: impl fmt::Display) -> Self {
        Self { kind, detail: detail.to_string(), errors: Vec::new(), more: Map::new(), retry_after_s: None }
    }

    pub(crate) fn not_found(what: impl fmt::Display) -> Self {
        Self::new(ProblemKind::NotFound, what)
    }

    /// One field of the body is wrong.
    pub(crate) fn field(pointer: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::faults(vec![Fault::at(pointer, detail)])
    }

    /// Several are.
    pub(crate) fn faults(errors: Vec<Fault>) -> Self {
        let detail = match errors.as_slice() {
            [one] => format!("{}: {}", one.pointer.as_deref().unwrap_or_default(), one.detail),
            many => format!("{} places of the body are not as they must be", many.len()),
        };
        let mut problem = Self::new(ProblemKind::InvalidRequest, detail.trim_start_matches(": "));
        problem.errors = errors;
        problem
    }

    pub(crate) fn parameter(name: &str, detail: impl fmt::Display) -> Self {
        let mut problem = Self::new(ProblemKind::InvalidRequest, format!("{name}: {detail}"));
        problem.errors.push(Fault {
            pointer: None,
            parameter: Some(name.to_owned()),
            header: None,
            detail: detail.to_string(),
        });
        problem
    }

    pub(crate) fn header(name: &str, detail: impl fmt::Display) -> Self {
        let mut problem = Self::new(ProblemKind::InvalidRequest, format!("{name}: {detail}"));
        problem.errors.push(Fault {
            pointer: None,
            parameter: None,
            header: Some(name.to_owned()),
            detail: detail.to_string(),
        });
        problem
    }

    /// Adds a place of the body that is wrong.
    pub(crate) fn with_fault(mut self, fault: Fault) -> Self {
        self.errors.push(fault);
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// Adds a member of its own.
    pub(crate) fn with(mut self, name: &str, value: Value) -> Self {
        self.more.insert(name.to_owned(), value);
        self
    }
}

/// What a client is told of a store that fails; the log says more, where only the operator reads it.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Unreachable { .. } | StoreError::Timeout { .. } => {
                tracing::warn!(error = %error, "a request failed because the store does not answer");
                Self::new(ProblemKind::Unavailable, "the store does not answer").retry_after(1)
            }
            _ => {
                tracing::error!(error = %error, "a request failed on the store");
                Self::new(ProblemKind::Internal, "the store could not do it; the scheduler's log says why")
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.kind.status();
        let body = ProblemBody {
            kind_path: format!("/problems/{}", self.kind.code()),
            title: self.kind.title(),
            status: status.as_u16(),
            detail: self.detail,
            errors: self.errors,
            more: self.more,
        };
        let body = serde_json::to_vec(&body).expect("a problem has only string keys");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_code_of_its_own_and_an_error_status() {
        let codes: std::collections::BTreeSet<_> = ProblemKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes.len(), ProblemKind::ALL.len());
        assert!(ProblemKind::ALL.iter().all(|kind| kind.status().as_u16() >= 400));
    }
}
