//! Names of things. Each is its own type, so that an account can't be passed where an agent is meant, and each
//! is checked when it is made, so that code behind the door never sees a bad one.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a text isn't the id it was given as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be {rule}, but is {got:?}")]
pub struct InvalidId {
    /// What the text should have been, for example `account id`.
    pub what: &'static str,
    /// The rule it breaks, in words.
    pub rule: &'static str,
    /// The text, cut to 80 characters.
    pub got: String,
}

impl InvalidId {
    pub(crate) fn new(what: &'static str, rule: &'static str, got: &str) -> Self {
        Self { what, rule, got: got.chars().take(80).collect() }
    }
}

/// `^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`: safe in a store's key, a queue's name, a path and a URL without escaping.
fn is_plain_id(text: &str) -> bool {
    text.len() <= 96
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// `^[a-z][a-z0-9-]{0,31}$`
fn is_slug(text: &str) -> bool {
    text.len() <= 32
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// 64 lower-case hex digits.
fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks `text` and makes it an id.
            pub fn parse(text: impl Into<String>) -> Result<Self, InvalidId> {
                let text = text.into();
                if $check(&text) { Ok(Self(text)) } else { Err(InvalidId::new($what, $rule, &text)) }
            }
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::parse(text)
            }
        }
        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::parse(text)
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

macro_rules! plain_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        id!($(#[$doc])* $name, $what,
            "1 to 96 letters, digits, '.', '_' or '-', starting with a letter or digit", is_plain_id);
    };
}

plain_id!(/// The customer whose agents call tools; what one account owns, no other sees.
    AccountId, "account id");
plain_id!(/// One agent of an account.
    AgentId, "agent id");
plain_id!(/// One conversation of an agent.
    SessionId, "session id");
plain_id!(/// One run of an agent: input, model, tool calls, answer.
    TurnId, "turn id");
plain_id!(/// One tool call. Made by whoever submits it, or by the scheduler.
    CallId, "call id");
plain_id!(/// One worker process, new at each start.
    WorkerId, "worker id");
plain_id!(/// One scheduler; the same after a restart, since its reply queue carries this name.
    SchedulerId, "scheduler id");
id!(/// A plugin's name within the platform, the first half of its tools' names.
    PluginSlug, "plugin slug", "a lower-case letter followed by at most 31 lower-case letters, digits or '-'", is_slug);
id!(/// SHA-256 of a release's content, in hex: two releases with one digest are the same release.
    ReleaseDigest, "release digest", "64 lower-case hex digits", is_digest);

impl CallId {
    /// A new id that no other call has; later ones sort after earlier ones.
    pub fn generate() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }
}

impl TurnId {
    /// A new id that no other turn has.
    pub fn generate() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }
}

impl WorkerId {
    /// A new id that no other worker has.
    pub fn generate() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_keep_their_alphabets() {
        for good in ["a", "A9", "dev", "018f-x.y_z", &"a".repeat(96)] {
            assert!(AccountId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", ".a", "a b", "a/b", "a{b}", "ä", "a\0", &"a".repeat(97)] {
            assert!(AccountId::parse(bad).is_err(), "{bad}");
        }
        for good in ["a", "morning-briefing", &"a".repeat(32)] {
            assert!(PluginSlug::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "1a", "a_b", "-a", &"a".repeat(33)] {
            assert!(PluginSlug::parse(bad).is_err(), "{bad}");
        }
        assert!(ReleaseDigest::parse("0".repeat(64)).is_ok());
        assert!(ReleaseDigest::parse("0".repeat(63)).is_err());
        assert!(ReleaseDigest::parse("A".repeat(64)).is_err());
    }

    #[test]
    fn a_bad_id_says_what_it_must_be() {
        let error = serde_json::from_str::<AgentId>("\"a b\"").unwrap_err().to_string();
        assert!(error.starts_with("agent id must be 1 to 96 letters"), "{error}");
    }
}
