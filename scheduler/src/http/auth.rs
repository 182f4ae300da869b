//! Who asks, and whether they may. Every route takes one of [`Submit`], [`Manage`], [`Ops`] as its first argument,
//! so that nothing else of the request is looked at before.

use super::problem::{Problem, ProblemKind};
use crate::app::App;
use crate::config::Scope;
use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Somebody who may do some things.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    scopes: BTreeSet<Scope>,
}

impl Caller {
    pub(crate) fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope)
    }
}

fn caller(parts: &Parts, app: &App) -> Result<Caller, Problem> {
    let tokens = &app.config.api.tokens;
    if tokens.is_empty() {
        // Checked at the start: without tokens nobody but this machine reaches the API.
        return Ok(Caller { scopes: Scope::ALL.into() });
    }
    let unauthorized = |detail: &str| Problem::new(ProblemKind::Unauthorized, detail);
    let value =
        parts.headers.get(header::AUTHORIZATION).ok_or_else(|| unauthorized("send Authorization: Bearer TOKEN"))?;
    let token = value
        .to_str()
        .ok()
        .and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .ok_or_else(|| unauthorized("Authorization must be Bearer and a token"))?;
    let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    // All are compared, each in constant time: how long it takes tells nothing about any of them.
    let mut known = None;
    for candidate in tokens {
        if bool::from(candidate.sha256.0.ct_eq(&digest)) {
            known = Some(candidate);
        }
    }
    match known {
        Some(token) => Ok(Caller { scopes: token.scopes.clone() }),
        None => Err(unauthorized("the token is not known here")),
    }
}

fn caller_with(parts: &Parts, app: &App, scope: Scope) -> Result<Caller, Problem> {
    let caller = caller(parts, app)?;
    if caller.may(scope) {
        Ok(caller)
    } else {
        Err(Problem::new(ProblemKind::Forbidden, format!("this needs a token with the scope {:?}", scope.id())))
    }
}

macro_rules! scopes {
    ($($name:ident)*) => {$(
        /// A caller whose token has this scope.
        pub(crate) struct $name(#[allow(dead_code)] pub(crate) Caller);

        impl FromRequestParts<Arc<App>> for $name {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
                caller_with(parts, app, Scope::$name).map(Self)
            }
        }
    )*};
}

scopes!(Submit Manage Ops);
