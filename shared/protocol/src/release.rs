//! A plugin made immutable: what a worker needs to run it and an installer to judge it.

use crate::{Limits, Permission, PluginSlug, ReleaseDigest, ToolName};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// One tool of a release.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolSpec {
    pub name: ToolName,
    pub description: String,
    /// JSON Schema of the input.
    pub parameters: Value,
    #[serde(default)]
    pub always_listed: bool,
    #[serde(default)]
    pub deferred: bool,
}

/// A published plugin. Its digest is made from all that decides how it behaves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    pub digest: ReleaseDigest,
    pub slug: PluginSlug,
    pub version: semver::Version,
    pub name: String,
    pub description: String,
    pub tools: Vec<ToolSpec>,
    pub permissions: BTreeSet<Permission>,
    pub egress: Vec<EgressRule>,
    /// JSON Schema of the installation's settings; `"secret": true` marks secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Value>,
    pub limits: Limits,
    /// Shared, since every call of the release is handed it.
    pub bundle: Arc<Bundle>,
}

/// A plugin's code as the engine takes it: JavaScript, one entry for each file that the entry reaches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bundle {
    /// The path of the file that is evaluated first.
    pub entry: String,
    /// The entry is a plain script: no `import`, no `export`, not in strict mode.
    pub entry_is_script: bool,
    /// By path from the plugin's folder, for example `src/weather.ts`.
    pub files: BTreeMap<String, BundledFile>,
}

/// One file of a [`Bundle`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundledFile {
    /// JavaScript, types stripped.
    pub code: String,
    /// Source map (version 3) from `code` to the author's file.
    pub source_map: String,
    /// What each import specifier in it names: `./weather` → `src/weather.ts`. No other can be imported.
    pub imports: BTreeMap<String, String>,
}

impl Release {
    /// The tool of that name.
    pub fn tool(&self, name: &ToolName) -> Option<&ToolSpec> {
        self.tools.iter().find(|tool| tool.name == *name)
    }
}

/// One entry of `manifest.egress`: a host name, or `*.` and a host name for all names below it.
///
/// Held in lower case, without a trailing dot, international names in their ASCII form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EgressRule {
    host: String,
    below: bool,
}

/// Why an egress entry can't be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEgress {
    #[error("an egress entry must be a host name such as \"api.example.com\" or \"*.example.com\", but it is empty")]
    Empty,
    #[error("{0:?} must be a bare host name: take away {1}")]
    NotBare(String, &'static str),
    #[error(
        "{0:?} is not a host name: labels of letters, digits and '-', at most 63 each and 253 in all, separated by dots"
    )]
    NotAName(String),
    #[error("{0:?} is an address: name a host instead, addresses can't be allowed")]
    Address(String),
    #[error("{0:?} would allow a whole top-level domain: name at least two labels after \"*.\"")]
    TooWide(String),
}

impl EgressRule {
    /// Checks one entry. A name must be ASCII here; publishing turns international names into ASCII first.
    pub fn parse(text: &str) -> Result<Self, InvalidEgress> {
        let shown = || text.chars().take(80).collect::<String>();
        if text.is_empty() {
            return Err(InvalidEgress::Empty);
        }
        for (mark, what) in
            [("://", "the scheme"), ("@", "the user"), ("/", "the path"), ("?", "the query"), ("#", "the fragment")]
        {
            if text.contains(mark) {
                return Err(InvalidEgress::NotBare(shown(), what));
            }
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        if name.parse::<std::net::IpAddr>().is_ok() || name.starts_with('[') {
            return Err(InvalidEgress::Address(shown()));
        }
        if name.contains(':') {
            return Err(InvalidEgress::NotBare(shown(), "the port"));
        }
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if name.len() > 253 || !name.split('.').all(label) {
            return Err(InvalidEgress::NotAName(shown()));
        }
        // The last label decides how a URL's host is read: with digits there (also hexadecimal), as an address.
        let last = name.rsplit('.').next().unwrap_or_default();
        if last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x") {
            return Err(InvalidEgress::Address(shown()));
        }
        if below && !name.contains('.') {
            return Err(InvalidEgress::TooWide(shown()));
        }
        Ok(Self { host: name, below })
    }

    /// Does it allow `host`, which must be in the form of a parsed URL (lower case, ASCII)?
    ///
    /// `*.example.com` allows every name below `example.com`, not `example.com` itself.
    pub fn allows(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        if self.below {
            host.strip_suffix(self.host.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        } else {
            host == self.host
        }
    }
}

impl fmt::Display for EgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.below { write!(f, "*.{}", self.host) } else { f.write_str(&self.host) }
    }
}

impl TryFrom<String> for EgressRule {
    type Error = InvalidEgress;
    fn try_from(text: String) -> Result<Self, InvalidEgress> {
        Self::parse(&text)
    }
}

impl From<EgressRule> for String {
    fn from(rule: EgressRule) -> String {
        rule.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_egress_rule_allows_what_it_names() {
        let check = |rule: &str, host: &str, expected: bool| {
            assert_eq!(EgressRule::parse(rule).unwrap().allows(host), expected, "{rule} against {host}");
        };
        check("api.example.com", "api.example.com", true);
        check("API.Example.COM.", "api.example.com", true);
        check("api.example.com", "api.example.com.", true);
        check("api.example.com", "api.example.com.evil.test", false);
        check("api.example.com", "xapi.example.com", false);
        check("*.example.com", "a.example.com", true);
        check("*.example.com", "a.b.example.com", true);
        check("*.example.com", "example.com", false);
        check("*.example.com", "xexample.com", false);
        check("*.example.com", ".example.com", false);
    }

    #[test]
    fn a_bad_egress_entry_is_refused() {
        for bad in [
            "",
            "*",
            "*.com",
            "https://a.test",
            "a.test/x",
            "a.test:443",
            "u@a.test",
            "127.0.0.1",
            "[::1]",
            "::1",
            "1.2",
            "0x7f.1",
            "a..b",
            "-a.test",
            "a b.test",
            "exämple.com",
            "a.*.test",
            "**.a.test",
            "127.0x1",
        ] {
            assert!(EgressRule::parse(bad).is_err(), "{bad}");
        }
    }
}
