//! JSON Schemas that a plugin brings: checked against their own rules, with nothing fetched for it.

use boon::{CompileError, Compiler, Draft, Schemas, UrlLoader};
use serde_json::Value;

/// Bytes of a schema as JSON. It goes into a model's context with every request of its agent.
pub(crate) const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// What is wrong with a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SchemaFault {
    TooLarge(usize),
    /// It refers to something outside itself.
    Outside(String),
    /// It breaks the rules of JSON Schema.
    Invalid(String),
    /// Its top level does not say `"type": "object"`.
    NotAnObject,
}

struct NothingOutside;

impl UrlLoader for NothingOutside {
    fn load(&self, url: &str) -> Result<Value, Box<dyn std::error::Error>> {
        Err(format!("{url} is outside the schema").into())
    }
}

/// Checks a schema for an object, in the 2020-12 dialect unless it names another.
pub(crate) fn check_object_schema(schema: &Value) -> Result<(), SchemaFault> {
    let bytes = schema.to_string().len();
    if bytes > SCHEMA_BYTES_MAX {
        return Err(SchemaFault::TooLarge(bytes));
    }
    if !schema.is_object() {
        return Err(SchemaFault::NotAnObject);
    }
    let mut compiler = Compiler::new();
    compiler.set_default_draft(Draft::V2020_12);
    compiler.use_loader(Box::new(NothingOutside));
    // A name of its own, so that relative references resolve to nothing that exists.
    let name = "schema://plugin/parameters";
    let fault = |error: &CompileError| match error {
        CompileError::LoadUrlError { url, .. } | CompileError::UnsupportedUrlScheme { url } => {
            SchemaFault::Outside(url.trim_start_matches("schema://plugin/").to_owned())
        }
        CompileError::ValidationError { src, .. } => {
            let place = src.causes.first().map(|cause| cause.instance_location.to_string()).unwrap_or_default();
            let reason = deepest(src);
            SchemaFault::Invalid(if place.is_empty() { reason } else { format!("at {place}: {reason}") })
        }
        CompileError::Bug(source) if source.to_string().contains("size limit") => {
            SchemaFault::Invalid("a pattern is too large once its repetitions are written out".to_owned())
        }
        other => SchemaFault::Invalid(shorten(&other.to_string().replace(name, ""))),
    };
    let mut checked = schema.clone();
    forget_look_around(&mut checked);
    if let Err(error) = compiler.add_resource(name, checked) {
        return Err(fault(&error));
    }
    match compiler.compile(name, &mut Schemas::new()) {
        Ok(_) => {}
        Err(error) => return Err(fault(&error)),
    }
    match schema.get("type") {
        Some(Value::String(kind)) if kind == "object" => Ok(()),
        _ => Err(SchemaFault::NotAnObject),
    }
}

/// Replaces patterns that are right in JavaScript, and so in JSON Schema, but that the check's regular expressions don't
/// know: those that look around or back. A pattern is only told to models here, never matched.
fn forget_look_around(schema: &mut Value) {
    let is_foreign = |pattern: &str| {
        ["(?=", "(?!", "(?<=", "(?<!", "\\k<"].iter().any(|mark| pattern.contains(mark))
            || pattern.as_bytes().windows(2).any(|pair| pair[0] == b'\\' && matches!(pair[1], b'1'..=b'9'))
    };
    match schema {
        Value::Object(members) => {
            for (key, value) in members.iter_mut() {
                match (key.as_str(), &mut *value) {
                    ("pattern", Value::String(pattern)) if is_foreign(pattern) => pattern.clear(),
                    ("patternProperties", Value::Object(patterns)) => {
                        *patterns = std::mem::take(patterns)
                            .into_iter()
                            .enumerate()
                            .map(|(index, (pattern, value))| {
                                (if is_foreign(&pattern) { format!("^{index}$") } else { pattern }, value)
                            })
                            .collect();
                        forget_look_around(value);
                    }
                    _ => forget_look_around(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(forget_look_around),
        _ => {}
    }
}

/// The innermost reason, which names the key that is wrong.
fn deepest(error: &boon::ValidationError<'_, '_>) -> String {
    let mut at = error;
    let mut steps = 0;
    while let Some(cause) = at.causes.first() {
        at = cause;
        steps += 1;
        if steps > 100 {
            break;
        }
    }
    let place = at.instance_location.to_string();
    shorten(&if place.is_empty() { at.kind.to_string() } else { format!("{place}: {}", at.kind) })
}

fn shorten(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn good_schemas_pass() {
        for schema in [
            json!({ "type": "object", "properties": {} }),
            json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/x" } }, "$defs": { "x": { "type": "string" } } }),
            json!({ "type": "object", "properties": { "a": { "type": "string", "pattern": "^(?=a)b" } } }),
            json!({ "type": "object", "$schema": "http://json-schema.org/draft-07/schema#" }),
            json!({ "type": "object", "properties": { "a": { "$ref": "#" } } }),
        ] {
            assert_eq!(check_object_schema(&schema), Ok(()), "{schema}");
        }
    }

    #[test]
    fn bad_schemas_are_told() {
        let check = |schema: Value| check_object_schema(&schema).unwrap_err();
        assert!(matches!(check(json!({ "type": "objekt" })), SchemaFault::Invalid(_)));
        assert!(matches!(check(json!({ "type": "object", "required": "a" })), SchemaFault::Invalid(_)));
        assert!(matches!(
            check(json!({ "type": "object", "properties": { "a": { "minimum": "1" } } })),
            SchemaFault::Invalid(_)
        ));
        let large =
            json!({ "type": "object", "properties": { "a": { "type": "string", "pattern": "(\\w{100}){100}{100}" } } });
        assert!(matches!(check(large), SchemaFault::Invalid(why) if why.contains("too large")));
        assert!(matches!(check(json!({ "type": "string" })), SchemaFault::NotAnObject));
        assert!(matches!(check(json!([])), SchemaFault::NotAnObject));
        assert!(matches!(check(json!(true)), SchemaFault::NotAnObject));
        assert!(matches!(check(json!({ "type": "object", "x": "y".repeat(70_000) })), SchemaFault::TooLarge(_)));
        for outside in ["https://x.test/s.json", "file:///etc/passwd", "other.json", "/etc/passwd"] {
            let fault = check(json!({ "type": "object", "properties": { "a": { "$ref": outside } } }));
            assert!(matches!(fault, SchemaFault::Outside(_)), "{outside}: {fault:?}");
        }
    }
}
