//! JSON Schemas that a plugin brings: checked against their own rules, with nothing fetched for it.

use boon::{CompileError, Compiler, Draft, Schemas, UrlLoader};
use oxc::allocator::Allocator;
use oxc_regular_expression::{LiteralParser, Options};
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
        other => SchemaFault::Invalid(shorten(&other.to_string().replace(name, ""))),
    };
    let mut checked = schema.clone();
    take_patterns_out(&mut checked)?;
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

/// Groups inside each other in a pattern: reading it recurses.
const PATTERN_DEPTH_MAX: usize = 100;

/// Checks that patterns are JavaScript's, and takes them out: the schema's own check would make machines of them, of up
/// to megabytes each, in another dialect. A pattern is only told to models here, never matched.
fn take_patterns_out(schema: &mut Value) -> Result<(), SchemaFault> {
    match schema {
        Value::Object(members) => {
            for (key, value) in members.iter_mut() {
                match (key.as_str(), &mut *value) {
                    ("pattern", Value::String(pattern)) => {
                        check_pattern(pattern)?;
                        pattern.clear();
                    }
                    ("patternProperties", Value::Object(patterns)) => {
                        let mut plain = serde_json::Map::new();
                        for (index, (pattern, value)) in std::mem::take(patterns).into_iter().enumerate() {
                            check_pattern(&pattern)?;
                            plain.insert(format!("^{index}$"), value);
                        }
                        *patterns = plain;
                        take_patterns_out(value)?;
                    }
                    // Data, whatever its keys are.
                    ("default" | "const" | "enum" | "examples", _) => {}
                    _ => take_patterns_out(value)?,
                }
            }
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(take_patterns_out),
        _ => Ok(()),
    }
}

fn check_pattern(pattern: &str) -> Result<(), SchemaFault> {
    let shown: String = pattern.chars().take(60).collect();
    let fault = |why: &str| {
        Err(SchemaFault::Invalid(shorten(&format!("the pattern {shown:?} is no regular expression: {why}"))))
    };
    if depth_of(pattern) > PATTERN_DEPTH_MAX {
        return fault("its groups are nested more than 100 levels deep");
    }
    let allocator = Allocator::default();
    let parse = |flags| LiteralParser::new(&allocator, pattern, Some(flags), Options::default()).parse();
    // JSON Schema wants Unicode's rules; people write patterns that need the old ones.
    match parse("u") {
        Err(error) if parse("").is_err() => fault(&error.message),
        _ => Ok(()),
    }
}

/// At most how deep a pattern's groups are nested.
fn depth_of(pattern: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = pattern.bytes();
    let mut in_class = false;
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'[' => in_class = true,
            b']' => in_class = false,
            b'(' if !in_class => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b')' if !in_class => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
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
            json!({ "type": "object", "properties": { "pattern": { "type": "string" } }, "default": { "pattern": "(" } }),
            json!({ "type": "object", "patternProperties": { "^a\\-(?<!b)\\p{L}": {}, "^x": {} } }),
        ] {
            assert_eq!(check_object_schema(&schema), Ok(()), "{schema}");
        }
    }

    #[test]
    fn patterns_that_explode_are_plain_data() {
        let explodes = "((\\w{100}){100}){100}(a+)+$";
        let properties: serde_json::Map<String, Value> =
            (0..800).map(|number| (format!("p{number}"), json!({ "type": "string", "pattern": explodes }))).collect();
        let schema = json!({ "type": "object", "properties": properties });
        assert!(schema.to_string().len() > SCHEMA_BYTES_MAX / 2);
        assert_eq!(check_object_schema(&schema), Ok(()));
    }

    #[test]
    fn patterns_that_are_none_are_told() {
        for pattern in [
            "(",
            "a{2,1}",
            "[b-a]",
            "*",
            "(?<n>a)(?<n>b)",
            "\\k<none>(?<n>a)",
            &"(".repeat(30_000),
            &format!("{}a{}", "(".repeat(500), ")".repeat(500)),
        ] {
            for schema in [
                json!({ "type": "object", "properties": { "a": { "pattern": pattern } } }),
                json!({ "type": "object", "patternProperties": { pattern: true } }),
            ] {
                let fault = check_object_schema(&schema).unwrap_err();
                assert!(
                    matches!(&fault, SchemaFault::Invalid(why) if why.contains("no regular expression")),
                    "{fault:?}"
                );
            }
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
