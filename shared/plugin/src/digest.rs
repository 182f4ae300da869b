//! The name of a release: a digest of all that decides how it behaves.

use crate::manifest::Manifest;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt::Write;
use toolfleet_protocol::{Bundle, Permission, ReleaseDigest};

/// Goes up whenever the same source would make a release that behaves otherwise: other rules, other defaults.
const PIPELINE: u32 = 1;

/// The digest of a draft, and of the release that comes of it. A release's tools and egress are what evaluating the
/// bundle registers, by rules that [`PIPELINE`] numbers; so they are a function of what is digested here, and
/// a draft has its release's name before it is evaluated.
pub(crate) fn of(manifest: &Manifest, permissions: &BTreeSet<Permission>, bundle: &Bundle) -> ReleaseDigest {
    #[derive(Serialize)]
    struct Content<'a> {
        pipeline: u32,
        slug: &'a str,
        version: String,
        name: &'a str,
        description: &'a str,
        settings: Option<String>,
        permissions: &'a BTreeSet<Permission>,
        bundle: &'a Bundle,
    }
    let content = Content {
        pipeline: PIPELINE,
        slug: manifest.slug.as_str(),
        version: manifest.version.to_string(),
        name: &manifest.name,
        description: &manifest.description,
        settings: manifest.settings.as_ref().map(canonical),
        permissions,
        bundle,
    };
    // Fields in the order of their declaration, maps in the order of their keys: one content, one text.
    let text = serde_json::to_vec(&content).expect("plain data with text keys is always JSON");
    let hex = Sha256::digest(&text).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    ReleaseDigest::parse(hex).expect("32 bytes are 64 hex digits")
}

/// JSON with its keys in order, whatever order the map type keeps.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(key, _)| *key);
            let parts: Vec<String> = sorted
                .iter()
                .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", parts.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}
