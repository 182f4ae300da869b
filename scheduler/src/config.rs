//! What an operator can set. Every key has a default that works on one machine.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use toolfleet_protocol::{Class, SchedulerId};

/// The section `[scheduler]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SchedulerConfig {
    /// Where the HTTP API listens. Anything but loopback needs `api.tokens`.
    pub listen: SocketAddr,
    /// Names this scheduler's reply queue. Stays the same over restarts, and differs between schedulers.
    pub id: SchedulerId,
    /// How many queues each class of jobs is spread over; the workers must be told the same number.
    pub lanes: u16,
    /// How long a finished call can be looked up.
    pub call_retention_s: u64,
    /// When a call of class `interactive` that hasn't started expires, unless it says so itself.
    pub deadline_interactive_s: u64,
    /// The same for class `background`.
    pub deadline_background_s: u64,
    /// The longest that a request may wait for results; `Prefer: wait` asks for less.
    pub wait_s_max: u64,
    /// Calls in one request.
    pub batch_calls_max: usize,
    /// Bytes of a request's body; a plugin's files are bounded by `plugin_bytes_max`.
    pub body_bytes_max: usize,
    /// Bytes of the request that publishes a plugin.
    pub plugin_bytes_max: usize,
    /// How often calls that should have ended are looked for.
    pub sweep_interval_ms: u64,
    /// How long requests under way may take to finish when the process is asked to end.
    pub shutdown_grace_s: u64,
    /// The section `[api]`, which stands on its own in the file.
    #[serde(skip)]
    pub api: ApiConfig,
}

/// No call may ask for a later deadline: a queue isn't a calendar.
pub const DEADLINE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7300)),
            id: SchedulerId::parse("main").expect("the default is a plain id"),
            lanes: 1,
            call_retention_s: 24 * 60 * 60,
            deadline_interactive_s: 5 * 60,
            deadline_background_s: 60 * 60,
            wait_s_max: 120,
            batch_calls_max: 1_000,
            body_bytes_max: 16 * 1024 * 1024,
            plugin_bytes_max: 32 * 1024 * 1024,
            sweep_interval_ms: 5_000,
            shutdown_grace_s: 10,
            api: ApiConfig::default(),
        }
    }
}

impl SchedulerConfig {
    /// The deadline of calls that don't say one, from their submission.
    pub(crate) fn deadline(&self, class: Class) -> Duration {
        Duration::from_secs(match class {
            Class::Interactive => self.deadline_interactive_s,
            Class::Background => self.deadline_background_s,
        })
    }

    pub(crate) fn call_retention(&self) -> Duration {
        Duration::from_secs(self.call_retention_s)
    }

    /// Checks what no type can say.
    ///
    /// # Errors
    /// Names the key and what would be right.
    pub(crate) fn check(&self) -> Result<(), InvalidConfig> {
        let wrong = |key, must: String| Err(InvalidConfig { key, must });
        let deadline_s_max = DEADLINE_MAX.as_secs();
        for (key, value, max) in [
            ("scheduler.lanes", u64::from(self.lanes), 1_024),
            ("scheduler.call_retention_s", self.call_retention_s, 365 * 24 * 60 * 60),
            ("scheduler.deadline_interactive_s", self.deadline_interactive_s, deadline_s_max),
            ("scheduler.deadline_background_s", self.deadline_background_s, deadline_s_max),
            ("scheduler.wait_s_max", self.wait_s_max, 600),
            ("scheduler.batch_calls_max", self.batch_calls_max as u64, 10_000),
            ("scheduler.body_bytes_max", self.body_bytes_max as u64, 1 << 30),
            ("scheduler.plugin_bytes_max", self.plugin_bytes_max as u64, 1 << 30),
            ("scheduler.sweep_interval_ms", self.sweep_interval_ms, 60 * 60 * 1_000),
        ] {
            if value == 0 || value > max {
                return wrong(key, format!("be 1 to {max}, but is {value}"));
            }
        }
        if self.api.tokens.is_empty() && !self.listen.ip().is_loopback() {
            return wrong(
                "api.tokens",
                format!(
                    "hold at least one token, since scheduler.listen = \"{}\" can be reached from other machines; \
                     listen on 127.0.0.1 to go without",
                    self.listen
                ),
            );
        }
        if let Some(token) = self.api.tokens.iter().find(|token| token.scopes.is_empty()) {
            return wrong(
                "api.tokens",
                format!("give token {:?} at least one of the scopes submit, manage, ops", token.name),
            );
        }
        Ok(())
    }
}

/// A setting that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} must {must}")]
pub struct InvalidConfig {
    pub key: &'static str,
    pub must: String,
}

/// The section `[api]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApiConfig {
    /// Who may use the API. Without any, everybody who reaches it may, and it must listen on loopback.
    pub tokens: Vec<ApiToken>,
}

/// One bearer token, known only by its hash.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiToken {
    /// For the operator, in logs.
    pub name: String,
    /// SHA-256 of the token's text, in hex.
    pub sha256: TokenDigest,
    /// What it may do.
    pub scopes: BTreeSet<Scope>,
}

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Submit calls, see and cancel them, use sessions.
    Submit,
    /// Publish and install plugins, manage agents and their access, see usage.
    Manage,
    /// See how the fleet does.
    Ops,
}

impl Scope {
    pub(crate) const ALL: [Scope; 3] = [Scope::Submit, Scope::Manage, Scope::Ops];

    pub(crate) fn id(self) -> &'static str {
        match self {
            Scope::Submit => "submit",
            Scope::Manage => "manage",
            Scope::Ops => "ops",
        }
    }
}

/// SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest(pub [u8; 32]);

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest(…)")
    }
}

impl<'de> Deserialize<'de> for TokenDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || {
            serde::de::Error::custom("must be the 64 hex digits of the token's SHA-256 (printf %s TOKEN | sha256sum)")
        };
        if text.len() != 64 || !text.is_ascii() {
            return Err(wrong());
        }
        let mut digest = [0; 32];
        for (at, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_listener_without_tokens_is_refused() {
        let mut config =
            SchedulerConfig { listen: SocketAddr::from(([0, 0, 0, 0], 7300)), ..SchedulerConfig::default() };
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains("api.tokens") && error.contains("0.0.0.0:7300"), "{error}");
        config.api.tokens.push(ApiToken {
            name: "ci".into(),
            sha256: TokenDigest([0; 32]),
            scopes: [Scope::Submit].into(),
        });
        assert_eq!(config.check(), Ok(()));
        assert_eq!(SchedulerConfig::default().check(), Ok(()));
    }

    #[test]
    fn a_key_that_does_not_exist_or_is_out_of_range_is_named() {
        let error = serde_json::from_str::<SchedulerConfig>(r#"{"lane": 2}"#).unwrap_err().to_string();
        assert!(error.contains("unknown field `lane`"), "{error}");
        let config = SchedulerConfig { lanes: 0, ..SchedulerConfig::default() };
        assert!(config.check().unwrap_err().to_string().starts_with("scheduler.lanes must be 1 to"));
    }

    #[test]
    fn a_token_is_given_by_its_hash() {
        let good = format!(r#"{{"name":"a","sha256":"{}","scopes":["submit","ops"]}}"#, "0a".repeat(32));
        let token: ApiToken = serde_json::from_str(&good).unwrap();
        assert_eq!(token.sha256, TokenDigest([10; 32]));
        for bad in ["secret", &"ü".repeat(32), &"0g".repeat(32), &"0a".repeat(31)] {
            let text = format!(r#"{{"name":"a","sha256":"{bad}","scopes":[]}}"#);
            let error = serde_json::from_str::<ApiToken>(&text).unwrap_err().to_string();
            assert!(error.contains("SHA-256") && !error.contains("secret"), "{error}");
        }
    }
}
