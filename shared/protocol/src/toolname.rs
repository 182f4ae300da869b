//! A tool's name inside its plugin, and the name under which an agent's model sees it.

use crate::{InvalidId, PluginSlug};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A tool's key in `globalThis.tools`: `^[a-z][a-z0-9_]{0,63}$`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ToolName(String);

/// Why a text isn't a tool's name.
pub type InvalidToolName = InvalidId;

impl ToolName {
    /// What a tool's name must match.
    pub const PATTERN: &'static str = "^[a-z][a-z0-9_]{0,63}$";

    /// Checks `text` and makes it a tool's name.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidToolName> {
        let text = text.into();
        let good = text.len() <= 64
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if good {
            Ok(Self(text))
        } else {
            Err(InvalidId::new(
                "tool name",
                "a lower-case letter followed by at most 63 lower-case letters, digits or '_'",
                &text,
            ))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name an agent's model sees: `<plugin-slug>__<tool-name>`, for example `weather__get_forecast`.
    pub fn qualified(&self, plugin: &PluginSlug) -> String {
        format!("{plugin}__{}", self.0)
    }

    /// Splits a qualified name at its first `__`; a slug holds no `_`, so that place is the only one.
    pub fn split_qualified(text: &str) -> Option<(PluginSlug, ToolName)> {
        let (slug, tool) = text.split_once("__")?;
        Some((PluginSlug::parse(slug).ok()?, ToolName::parse(tool).ok()?))
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ToolName {
    type Error = InvalidToolName;
    fn try_from(text: String) -> Result<Self, InvalidToolName> {
        Self::parse(text)
    }
}

impl From<ToolName> for String {
    fn from(name: ToolName) -> String {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qualified_name_comes_apart_as_it_was_put_together() {
        for (slug, tool) in [("weather", "get_forecast"), ("a-b", "x__y"), ("a", "b_")] {
            let (plugin, name) = (PluginSlug::parse(slug).unwrap(), ToolName::parse(tool).unwrap());
            assert_eq!(ToolName::split_qualified(&name.qualified(&plugin)), Some((plugin, name)));
        }
        assert_eq!(ToolName::split_qualified("weather_get"), None);
        assert_eq!(ToolName::split_qualified("Weather__get"), None);
    }

    #[test]
    fn names_at_the_edge_of_the_pattern() {
        for good in ["a", "a0_", &"a".repeat(64)] {
            assert!(ToolName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "_a", "0a", "A", "a-b", "é", "__proto__", &"a".repeat(65)] {
            assert!(ToolName::parse(bad).is_err(), "{bad}");
        }
    }
}
