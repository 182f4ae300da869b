//! Parameters and answers of host methods, as they cross a call's socket: JSON, the parameters as an array of
//! the positional arguments. `types.d.ts` says the same in TypeScript.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TextEncoding {
    #[default]
    Utf8,
    Base64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BinaryEncoding {
    Hex,
    Base64,
    Base64url,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FetchRequest {
    pub url: String,
    #[serde(default)]
    pub method: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    #[serde(default)]
    pub body: Option<String>,
    /// How `body` is encoded here, and how the answer's body shall be.
    #[serde(default)]
    pub body_encoding: TextEncoding,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchResponse {
    pub status: u16,
    /// Names in lower case; several of one name joined by `, `.
    pub headers: BTreeMap<String, String>,
    pub body: String,
    /// Where the answer came from, after redirects.
    pub url: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HashAlgorithm {
    Sha256,
    Sha384,
    Sha512,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HashOptions {
    pub algorithm: HashAlgorithm,
    pub data: String,
    #[serde(default)]
    pub data_encoding: TextEncoding,
    /// Hex unless said.
    #[serde(default)]
    pub encoding: Option<BinaryEncoding>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HmacOptions {
    pub algorithm: HashAlgorithm,
    pub key: String,
    #[serde(default)]
    pub key_encoding: TextEncoding,
    pub data: String,
    #[serde(default)]
    pub data_encoding: TextEncoding,
    /// Hex unless said.
    #[serde(default)]
    pub encoding: Option<BinaryEncoding>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MessagesOptions {
    /// 1 to 200; 50 unless said.
    #[serde(default)]
    pub limit: Option<u32>,
    #[serde(default)]
    pub before: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    User,
    Assistant,
    Tool,
    System,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionMessage {
    pub id: String,
    pub role: Role,
    pub text: String,
    /// Unix time in milliseconds.
    pub at_ms: u64,
    /// The plugin that posted it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PostMessage {
    pub text: String,
    /// Anything that the platform's user interface shall know; at most 16 kB of JSON.
    #[serde(default)]
    pub data: Map<String, Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkspacePath {
    pub path: String,
    /// The account's shared workspace instead of the agent's own.
    #[serde(default)]
    pub shared: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkspaceReadOptions {
    pub path: String,
    #[serde(default)]
    pub shared: bool,
    #[serde(default)]
    pub encoding: TextEncoding,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkspaceListOptions {
    /// Only paths that start with it.
    #[serde(default)]
    pub prefix: Option<String>,
    /// Only paths after it: the last page's `next`.
    #[serde(default)]
    pub after: Option<String>,
    /// 1 to 1,000; 1,000 unless said.
    #[serde(default)]
    pub limit: Option<u32>,
    #[serde(default)]
    pub shared: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkspaceWriteOptions {
    pub path: String,
    pub content: String,
    #[serde(default)]
    pub encoding: TextEncoding,
    #[serde(default)]
    pub shared: bool,
    /// Not given: whatever is there. `null`: only where there is no file. A text: only over the file of that etag.
    #[serde(default, deserialize_with = "given")]
    pub etag: Option<Option<String>>,
}

/// Tells a field that is `null` from one that isn't there.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(deserializer).map(Some)
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceFile {
    pub path: String,
    pub size: u64,
    pub etag: String,
    /// Unix time in milliseconds.
    pub modified_at_ms: u64,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceContent {
    pub path: String,
    pub content: String,
    pub size: u64,
    pub etag: String,
    /// Unix time in milliseconds.
    pub modified_at_ms: u64,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceListing {
    pub files: Vec<WorkspaceFile>,
    /// There are more: give it as `after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_null_etag_is_not_a_missing_one() {
        let parse = |text: &str| serde_json::from_str::<WorkspaceWriteOptions>(text).unwrap().etag;
        assert_eq!(parse(r#"{"path":"a","content":""}"#), None);
        assert_eq!(parse(r#"{"path":"a","content":"","etag":null}"#), Some(None));
        assert_eq!(parse(r#"{"path":"a","content":"","etag":"x"}"#), Some(Some("x".into())));
    }
}
