//! The rules of `globalThis.tools`.

use crate::build::Draft;
use crate::manifest::kind_of;
use crate::nearest::nearest;
use crate::problem::{Place, Problem};
use crate::schema::{SCHEMA_BYTES_MAX, SchemaFault, check_object_schema};
use serde_json::{Value, json};
use toolfleet_protocol::{Fact, ToolFacts, ToolName, ToolSpec};

/// Tools of one plugin: far more than a model can choose between, few enough to list.
const TOOLS_MAX: usize = 256;
/// Tools that stay listed when the agent has more than its model takes.
const ALWAYS_LISTED_MAX: usize = 3;
/// Characters of a description. It goes into a model's context with every request.
const DESCRIPTION_CHARS_MAX: usize = 8_000;
/// Characters of a tool's name as models see it, beyond which some providers get a shortened one.
const QUALIFIED_CHARS_MAX: usize = 64;
/// Every key that means something in a registration.
const KEYS: [&str; 5] = ["description", "parameters", "handler", "alwaysListed", "deferred"];

const SHAPE: &str =
    "write globalThis.tools.NAME = { description: \"…\", parameters: { … }, handler: async (input) => … }";

/// All tools that are right; what is wrong with the others goes to `problems`.
pub(super) fn check(draft: &Draft, shape: &Fact, tools: Vec<ToolFacts>, problems: &mut Vec<Problem>) -> Vec<ToolSpec> {
    let entry = &draft.derived.entry;
    if *shape != Fact::Json(Value::Bool(true)) {
        problems.push(
            Problem::error(
                "tools-replaced",
                format!("globalThis.tools is {}, and must stay an ordinary object", what(shape)),
                "set its members: globalThis.tools.NAME = { … }",
            )
            .at(entry),
        );
        return Vec::new();
    }
    if tools.is_empty() {
        problems.push(Problem::error("tools-none", "the plugin registers no tool", SHAPE).at(entry));
    }
    if tools.len() > TOOLS_MAX {
        problems.push(
            Problem::error(
                "tools-many",
                format!("the plugin registers {} tools, and {TOOLS_MAX} are the most", tools.len()),
                "split it into several plugins, or let one tool take a parameter",
            )
            .at(entry),
        );
        return Vec::new();
    }
    let mut specs = Vec::new();
    let mut always_listed = 0;
    for facts in tools {
        let place = draft.tool_place(&facts.name);
        let mut tool = Tool { name: shown(&facts.name), place: &place, problems };
        let Some(spec) = tool.check(&facts) else { continue };
        if spec.always_listed {
            always_listed += 1;
            if always_listed > ALWAYS_LISTED_MAX {
                tool.error(
                    "tools-always-listed",
                    format!("is tool number {always_listed} with alwaysListed, and {ALWAYS_LISTED_MAX} are the most"),
                    "keep it for the tools that an agent must always see",
                );
            }
        }
        let qualified = spec.name.qualified(&draft.slug);
        if qualified.len() > QUALIFIED_CHARS_MAX {
            let message = format!("is {qualified} to a model, which is {} characters long", qualified.len());
            tool.warning(
                "tool-name-long",
                message,
                "models that take 64 see it shortened; choose a shorter name or slug if that matters",
            );
        }
        specs.push(spec);
    }
    // One source makes one release, whatever order it registers in.
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    specs
}

struct Tool<'a> {
    name: String,
    place: &'a Place,
    problems: &'a mut Vec<Problem>,
}

impl Tool<'_> {
    fn error(&mut self, code: &'static str, message: impl Into<String>, remedy: impl Into<String>) {
        let message = format!("tool {} {}", self.name, message.into());
        self.problems.push(Problem::error(code, message, remedy).at(self.place));
    }

    fn warning(&mut self, code: &'static str, message: impl Into<String>, remedy: impl Into<String>) {
        let message = format!("tool {} {}", self.name, message.into());
        self.problems.push(Problem::warning(code, message, remedy).at(self.place));
    }

    /// The tool, if nothing is wrong with it. Every field is looked at whatever is wrong with the others.
    fn check(&mut self, facts: &ToolFacts) -> Option<ToolSpec> {
        let name = match ToolName::parse(facts.name.as_str()) {
            Ok(name) => Some(name),
            Err(_) => {
                let remedy = "a name is a lower-case letter and at most 63 lower-case letters, digits and '_'";
                self.error("tool-name", format!("has a name that does not match {}", ToolName::PATTERN), remedy);
                None
            }
        };
        match &facts.shape {
            Fact::Json(Value::Bool(true)) => {}
            Fact::Function => {
                self.error("tool-bare-function", "is a bare function", SHAPE);
                return None;
            }
            Fact::Accessor => {
                self.error("tool-accessor", "is behind a getter, which could answer differently next time", SHAPE);
                return None;
            }
            Fact::Proxy => {
                self.error("tool-proxy", "is a Proxy, which could answer differently next time", SHAPE);
                return None;
            }
            other => {
                self.error("tool-not-an-object", format!("is {}", what(other)), SHAPE);
                return None;
            }
        }
        let description = self.description(&facts.description);
        let parameters = self.parameters(&facts.parameters);
        let handler = self.handler(&facts.handler);
        let always_listed = self.flag("alwaysListed", &facts.always_listed);
        let deferred = self.flag("deferred", &facts.deferred);
        for key in &facts.unknown {
            let remedy = match nearest(key, KEYS.into_iter()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("take it away; known are {}", KEYS.join(", ")),
            };
            self.warning("tool-key-unknown", format!("has {:?}, which means nothing", shown(key)), remedy);
        }
        if always_listed == Some(true) && deferred == Some(true) {
            self.error(
                "tool-both-flags",
                "sets both alwaysListed and deferred",
                "one keeps it in the list, the other out of it: set at most one",
            );
            return None;
        }
        handler?;
        Some(ToolSpec {
            name: name?,
            description: description?,
            parameters: parameters?,
            always_listed: always_listed?,
            deferred: deferred?,
        })
    }

    /// A getter or Proxy where plain data must be.
    fn is_plain(&mut self, field: &str, fact: &Fact) -> bool {
        match fact {
            Fact::Accessor => {
                self.error("tool-accessor", format!("has a getter as {field}"), "write the value itself");
                false
            }
            Fact::Proxy => {
                self.error("tool-proxy", format!("has a Proxy as {field}"), "write the value itself");
                false
            }
            _ => true,
        }
    }

    fn description(&mut self, fact: &Fact) -> Option<String> {
        let remedy = "say what the tool does and when to use it: the model reads it to decide";
        if !self.is_plain("description", fact) {
            return None;
        }
        match fact {
            Fact::Absent => self.error("tool-description-missing", "has no description", remedy),
            Fact::Json(Value::String(text)) if text.trim().is_empty() => {
                self.error("tool-description-empty", "has an empty description", remedy);
            }
            Fact::Json(Value::String(text)) if text.chars().count() > DESCRIPTION_CHARS_MAX => {
                let message = format!("has a description of more than {DESCRIPTION_CHARS_MAX} characters");
                self.error(
                    "tool-description-long",
                    message,
                    "shorten it: it is sent with every request of every agent",
                );
            }
            Fact::Json(Value::String(text)) => return Some(text.clone()),
            other => {
                let message = format!("has a description that is {}, not a text", what(other));
                self.error("tool-description-type", message, remedy);
            }
        }
        None
    }

    fn parameters(&mut self, fact: &Fact) -> Option<Value> {
        let example =
            "write for example { type: \"object\", properties: { city: { type: \"string\" } }, required: [\"city\"] }";
        if !self.is_plain("parameters", fact) {
            return None;
        }
        let schema = match fact {
            Fact::Absent => return Some(json!({ "type": "object", "properties": {} })),
            Fact::Json(schema) => schema,
            Fact::NotJson(why) => {
                let message = format!("has parameters that are not plain JSON: {}", shown(why));
                self.error(
                    "tool-parameters-not-json",
                    message,
                    "use only objects, arrays, texts, numbers, booleans and null",
                );
                return None;
            }
            other => {
                let message = format!("has parameters that are {}, not a JSON Schema", what(other));
                self.error("tool-parameters-not-json", message, example);
                return None;
            }
        };
        match check_object_schema(schema) {
            Ok(()) => return Some(schema.clone()),
            Err(SchemaFault::TooLarge(bytes)) => self.error(
                "tool-parameters-large",
                format!("has parameters of {bytes} bytes, and {SCHEMA_BYTES_MAX} are the most"),
                "shorten them: they are sent with every request of every agent",
            ),
            Err(SchemaFault::Outside(url)) => self.error(
                "tool-parameters-ref",
                format!("has parameters that refer to {}, and nothing outside them is fetched", shown(&url)),
                "put the definition under \"$defs\" and refer to \"#/$defs/NAME\"",
            ),
            Err(SchemaFault::Invalid(why)) => {
                self.error("tool-parameters-schema", format!("has parameters that are no JSON Schema: {why}"), example);
            }
            Err(SchemaFault::NotAnObject) => self.error(
                "tool-parameters-type",
                "has parameters whose top level is not \"type\": \"object\"",
                "a model gives arguments by name: wrap the value in an object's property",
            ),
        }
        None
    }

    fn handler(&mut self, fact: &Fact) -> Option<()> {
        let remedy = "write handler: async (input, context) => { … return result; }";
        if !self.is_plain("handler", fact) {
            return None;
        }
        match fact {
            Fact::Function => return Some(()),
            Fact::Absent => self.error("tool-handler-missing", "has no handler", remedy),
            other => self.error(
                "tool-handler-type",
                format!("has a handler that is {}, not a function", what(other)),
                remedy,
            ),
        }
        None
    }

    fn flag(&mut self, field: &str, fact: &Fact) -> Option<bool> {
        if !self.is_plain(field, fact) {
            return None;
        }
        match fact {
            Fact::Absent => Some(false),
            Fact::Json(Value::Bool(flag)) => Some(*flag),
            other => {
                let message = format!("has {field} that is {}, not true or false", what(other));
                self.error("tool-flag-type", message, format!("write {field}: true, or leave it out"));
                None
            }
        }
    }
}

/// What a fact is, in words.
pub(super) fn what(fact: &Fact) -> String {
    match fact {
        Fact::Absent => "undefined".into(),
        Fact::Json(value) => kind_of(value).into(),
        Fact::Function => "a function".into(),
        Fact::Accessor => "behind a getter".into(),
        Fact::Proxy => "a Proxy".into(),
        Fact::NotJson(why) => format!("no plain data ({})", shown(why)),
        Fact::Other(kind) => format!("a {}", shown(kind)),
    }
}

/// A text of the plugin's, fit for a message.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(100).collect()
}
