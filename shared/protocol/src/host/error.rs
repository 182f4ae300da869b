//! A refused or failed host call, as the handler catches it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The `name` of the `Error` in the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HostErrorName {
    /// The release has no permission for it, or it isn't this plugin's.
    PermissionError,
    /// A host that the manifest doesn't list, or an address that nobody may reach.
    EgressError,
    /// A size, count or rate over its limit.
    LimitError,
    /// No such thing.
    NotFoundError,
    /// A parameter that isn't what it must be. Names the parameter.
    TypeError,
    /// The thing changed since it was read.
    ConflictError,
    /// The host could not do it: a service that doesn't answer, a store that is gone.
    HostError,
}

/// What the handler's promise is rejected with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostError {
    pub name: HostErrorName,
    pub message: String,
}

impl HostError {
    pub fn new(name: HostErrorName, message: impl Into<String>) -> Self {
        Self { name, message: message.into() }
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.name, self.message)
    }
}

impl std::error::Error for HostError {}
