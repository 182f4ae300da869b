//! Settings of an installation, secrets sealed.

use super::plugins::account_key;
use super::sealer::{OpenError, Sealed};
use super::{Records, Sealer, from_json, to_json};
use crate::{Key, Op, StoreError};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolfleet_protocol::{AccountId, PluginSlug};

/// All settings of one installation as JSON. They are read with every call that asks for them.
pub const SETTINGS_BYTES_MAX: usize = 64 * 1024;

/// What is shown in place of a secret.
pub const SECRET_SHOWN: &str = "••••";

/// Why settings could not be saved or read. Never holds a value.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// `pointer` is a JSON pointer into the settings.
    #[error("setting {pointer}: {reason}")]
    Invalid { pointer: String, reason: String },
    #[error("setting {name:?} is a secret, and no key is configured to seal it: put one under settings.keys")]
    NoKey { name: String },
    #[error("setting {name:?} was sealed with key {key:?}, which is not under settings.keys")]
    UnknownKey { name: String, key: String },
    #[error(
        "setting {name:?} can't be opened: it was changed where it is stored, or settings.keys has another key \
         of that name now; save it again"
    )]
    Sealed { name: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Stored {
    Plain(Value),
    Sealed(Sealed),
}

pub(super) fn settings_key(account: &AccountId, slug: &PluginSlug) -> Key {
    account_key(account, &format!("settings/{slug}"))
}

fn name_of(account: &AccountId, slug: &PluginSlug) -> String {
    format!("settings of {slug} for account {account}")
}

/// What a secret is sealed for: put elsewhere, it doesn't open.
fn place(account: &AccountId, slug: &PluginSlug, setting: &str) -> Vec<u8> {
    format!("settings\0{account}\0{slug}\0{setting}").into_bytes()
}

impl Records {
    /// Saves all settings of an installation in place of those before, those that the schema marks as secret
    /// sealed.
    pub async fn put_settings(
        &self,
        account: &AccountId,
        slug: &PluginSlug,
        schema: Option<&Value>,
        values: &Map<String, Value>,
        sealer: &Sealer,
    ) -> Result<(), SettingsError> {
        check(schema, values)?;
        let mut fields = Vec::with_capacity(values.len());
        for (name, value) in values {
            let stored = if is_secret(schema, name) {
                let sealed = sealer.seal(&place(account, slug, name), &to_json(value));
                Stored::Sealed(sealed.ok_or_else(|| SettingsError::NoKey { name: name.clone() })?)
            } else {
                Stored::Plain(value.clone())
            };
            fields.push((name.clone(), to_json(&stored)));
        }
        let key = settings_key(account, slug);
        let mut ops = vec![Op::Delete(key.clone())];
        if !fields.is_empty() {
            ops.push(Op::FieldsSet { key, fields });
        }
        self.ask(&name_of(account, slug), ops).await?.done()?;
        Ok(())
    }

    /// The settings, secrets opened.
    pub async fn settings(
        &self,
        account: &AccountId,
        slug: &PluginSlug,
        sealer: &Sealer,
    ) -> Result<Map<String, Value>, SettingsError> {
        let mut values = Map::new();
        for (name, stored) in self.stored_settings(account, slug).await? {
            let value = match stored {
                Stored::Plain(value) => value,
                Stored::Sealed(sealed) => match sealer.open(&place(account, slug, &name), &sealed) {
                    Ok(text) => from_json(&format!("setting {name:?} of {slug} for account {account}"), &text)?,
                    Err(OpenError::UnknownKey) => return Err(SettingsError::UnknownKey { name, key: sealed.key }),
                    Err(OpenError::Refused) => return Err(SettingsError::Sealed { name }),
                },
            };
            values.insert(name, value);
        }
        Ok(values)
    }

    /// The settings with [`SECRET_SHOWN`] in place of each secret. Needs no key.
    pub async fn settings_shown(
        &self,
        account: &AccountId,
        slug: &PluginSlug,
    ) -> Result<Map<String, Value>, StoreError> {
        let stored = self.stored_settings(account, slug).await?;
        Ok(stored
            .into_iter()
            .map(|(name, stored)| match stored {
                Stored::Plain(value) => (name, value),
                Stored::Sealed(_) => (name, SECRET_SHOWN.into()),
            })
            .collect())
    }

    async fn stored_settings(
        &self,
        account: &AccountId,
        slug: &PluginSlug,
    ) -> Result<Vec<(String, Stored)>, StoreError> {
        let record = name_of(account, slug);
        let mut fields = self.ask(&record, vec![Op::FieldsGet(settings_key(account, slug))]).await?.fields()?;
        fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        let read = |(name, bytes): (String, Bytes)| {
            let stored = from_json(&record, &bytes)?;
            Ok((name, stored))
        };
        fields.into_iter().map(read).collect()
    }
}

/// Does the schema say so of this setting, or of anything in it?
fn is_secret(schema: Option<&Value>, name: &str) -> bool {
    schema.and_then(|schema| schema.get("properties")?.get(name)).is_some_and(holds_secret)
}

/// A setting is sealed whole, so one secret in it makes it one. The recursion ends with the schema, whose depth
/// the JSON reader has bounded.
fn holds_secret(schema: &Value) -> bool {
    let Value::Object(schema) = schema else { return false };
    let of_schemas = |value: &Value| match value {
        Value::Object(schemas) => schemas.values().any(holds_secret),
        Value::Array(schemas) => schemas.iter().any(holds_secret),
        _ => false,
    };
    schema.iter().any(|(keyword, value)| match keyword.as_str() {
        "secret" => *value == Value::Bool(true),
        "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions" | "allOf" | "anyOf"
        | "oneOf" | "prefixItems" => of_schemas(value),
        "items" | "additionalProperties" | "contains" | "if" | "then" | "else" | "not" => {
            holds_secret(value) || (value.is_array() && of_schemas(value))
        }
        _ => false,
    })
}

/// The plain mistakes: a setting that isn't there, one too many, one of another type. What else a schema can say
/// is checked by who has a validator.
fn check(schema: Option<&Value>, values: &Map<String, Value>) -> Result<(), SettingsError> {
    let invalid = |name: &str, reason: String| Err(SettingsError::Invalid { pointer: pointer(name), reason });
    let bytes = to_json(values).len();
    if bytes > SETTINGS_BYTES_MAX {
        let reason = format!("all together have {bytes} bytes; at most {SETTINGS_BYTES_MAX} are kept");
        return Err(SettingsError::Invalid { pointer: String::new(), reason });
    }
    let empty = Map::new();
    let property = |schema: &'_ Value| schema.get("properties").and_then(Value::as_object).cloned();
    let properties = schema.and_then(property).unwrap_or_else(|| empty.clone());
    let closed = schema.is_none_or(|schema| schema.get("additionalProperties") == Some(&Value::Bool(false)));
    for (name, value) in values {
        let Some(schema) = properties.get(name) else {
            if closed {
                let known: Vec<&str> = properties.keys().map(String::as_str).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return invalid(name, format!("the plugin has no such setting; it has: {known}"));
            }
            continue;
        };
        if holds_secret(schema) && value.as_str() == Some(SECRET_SHOWN) {
            return invalid(name, format!("{SECRET_SHOWN} only stands for the secret: give the secret itself"));
        }
        if let Some(expected) = schema.get("type")
            && !has_type(expected, value)
        {
            let expected = expected.as_str().map_or_else(|| expected.to_string(), str::to_owned);
            return invalid(name, format!("must be of type {expected}, but is {}", type_of(value)));
        }
    }
    let required = schema.and_then(|schema| schema.get("required")?.as_array());
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if !values.contains_key(name) {
            return invalid(name, "is required, and missing".into());
        }
    }
    Ok(())
}

/// `expected` is the `type` of a JSON Schema: a name, or several of which one must fit.
fn has_type(expected: &Value, value: &Value) -> bool {
    match expected {
        Value::String(name) => match name.as_str() {
            "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
            "number" => value.is_number(),
            name => name == type_of(value),
        },
        Value::Array(names) => names.iter().any(|name| has_type(name, value)),
        _ => true,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn pointer(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_that_do_not_fit_are_refused_by_name() {
        let schema = json!({
            "properties": {
                "token": {"type": "string", "secret": true}, "n": {"type": "integer"}, "x": {"type": ["number", "null"]},
                "o": {"type": "object"}, "any": {},
            },
            "required": ["token"], "additionalProperties": false,
        });
        let check = |schema: Option<&Value>, values: Value, expected: Option<&str>| {
            let got = super::check(schema, values.as_object().unwrap()).err().map(|error| error.to_string());
            match expected {
                None => assert_eq!(got, None, "{values}"),
                Some(expected) => assert!(got.as_ref().is_some_and(|got| got.contains(expected)), "{values}: {got:?}"),
            }
        };
        check(Some(&schema), json!({"token": "a", "n": 1, "x": null, "o": {}, "any": [1]}), None);
        check(Some(&schema), json!({"token": "a", "n": 2.0, "x": 1.5}), None);
        check(Some(&schema), json!({}), Some("/token: is required, and missing"));
        check(Some(&schema), json!({"token": 1}), Some("/token: must be of type string, but is number"));
        check(Some(&schema), json!({"token": "a", "n": 1.5}), Some("/n: must be of type integer"));
        check(Some(&schema), json!({"token": "a", "x": "1"}), Some(r#"/x: must be of type ["number","null"]"#));
        check(Some(&schema), json!({"token": "a", "a/b~": 1}), Some("/a~1b~0: the plugin has no such setting"));
        check(Some(&schema), json!({"token": SECRET_SHOWN}), Some("give the secret itself"));
        check(Some(&json!({})), json!({"whatever": 1}), None);
        check(None, json!({}), None);
        check(None, json!({"a": 1}), Some("it has: none"));
        check(Some(&json!({})), json!({"a": "x".repeat(SETTINGS_BYTES_MAX)}), Some("at most 65536"));
    }

    #[test]
    fn a_secret_anywhere_in_a_setting_makes_it_one() {
        let check = |schema: Value, expected: bool| {
            assert_eq!(is_secret(Some(&json!({"properties": {"s": schema}})), "s"), expected, "{schema}");
        };
        check(json!({"secret": true}), true);
        check(json!({"type": "object", "properties": {"password": {"secret": true}}}), true);
        check(json!({"type": "array", "items": {"secret": true}}), true);
        check(json!({"anyOf": [{"type": "null"}, {"secret": true}]}), true);
        check(json!({"secret": false}), false);
        check(json!({"properties": {"secret": true}}), false);
        check(json!({"default": {"secret": true}}), false);
        check(json!(true), false);
    }
}
