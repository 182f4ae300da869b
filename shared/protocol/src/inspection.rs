//! What a freshly evaluated bundle registered, as plain facts. The engine only looks; the rules that say which
//! facts are problems are in the plugin crate, next to their codes and remedies.

use crate::CallError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What stands at one place of the registration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", content = "what", rename_all = "camelCase")]
pub enum Fact {
    /// Nothing, or `undefined`.
    Absent,
    /// Plain JSON: only own enumerable data properties, no functions, no cycles.
    Json(Value),
    Function,
    /// An accessor property: what it holds could change from one look to the next.
    Accessor,
    /// A Proxy: the same.
    Proxy,
    /// An object or array that isn't plain JSON; says where in it and what was found, for example
    /// `properties.when: a function`.
    NotJson(String),
    /// Any other value, by its JavaScript type: `symbol`, `bigint`, `number NaN`.
    Other(String),
}

/// One own key of `globalThis.tools`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolFacts {
    /// The key; a symbol key is given as `Symbol(description)`.
    pub name: String,
    /// `Json(true)` where the registration is an ordinary object whose fields follow; anything else is what
    /// stands there instead (a bare function, a Proxy, an accessor, a number).
    pub shape: Fact,
    pub description: Fact,
    pub parameters: Fact,
    pub handler: Fact,
    pub always_listed: Fact,
    pub deferred: Fact,
    /// Own keys of the registration that mean nothing.
    pub unknown: Vec<String>,
}

/// What came of evaluating a bundle without a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "camelCase")]
pub enum Inspection {
    #[serde(rename_all = "camelCase")]
    Loaded {
        /// `Json(true)` where `globalThis.tools` is still the ordinary object that the platform put there or
        /// another ordinary object; otherwise what stands there.
        tools_shape: Fact,
        /// In the order of registration.
        tools: Vec<ToolFacts>,
        /// `globalThis.manifest`.
        manifest: Fact,
    },
    /// The evaluation ended otherwise: it threw, ran out of time or memory, or died.
    Failed { error: CallError },
}
