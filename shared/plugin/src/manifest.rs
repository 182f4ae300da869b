//! `plugin.json`: who the plugin is, where it starts, what its installer can set.

use crate::json::Places;
use crate::nearest::nearest;
use crate::problem::{Place, Problem};
use crate::schema::{SchemaFault, check_object_schema};
use crate::syntax::{FileKind, decode};
use semver::Version;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use toolfleet_protocol::PluginSlug;

/// The file's name.
pub(crate) const FILE: &str = "plugin.json";
/// Every key that means something.
const KEYS: [&str; 6] = ["slug", "version", "name", "description", "entry", "settings"];
/// Characters of a name: it stands in lists.
const NAME_CHARS_MAX: usize = 80;
/// Characters of a description: a paragraph.
const DESCRIPTION_CHARS_MAX: usize = 1000;

/// What a good plugin.json says.
#[derive(Debug, Clone)]
pub(crate) struct Manifest {
    pub slug: PluginSlug,
    pub version: Version,
    pub name: String,
    pub description: String,
    pub settings: Option<Value>,
}

/// Reads plugin.json. Beside the problems comes the entry, if that is known, so that the sources are checked all the same.
pub(crate) fn read(
    files: &BTreeMap<String, Vec<u8>>,
    problems: &mut Vec<Problem>,
) -> (Option<Manifest>, Option<String>) {
    let Some(content) = files.get(FILE) else {
        let remedy = match files.keys().find(|path| path.ends_with("/plugin.json")) {
            Some(path) => format!("{path} is there: name the folder that holds it"),
            None => format!("add {FILE} with {}", KEYS[..5].join(", ")),
        };
        problems.push(Problem::error("manifest-missing", format!("there is no {FILE}"), remedy));
        return (None, None);
    };
    let text = match decode(FILE, content) {
        Ok(text) => text,
        Err(problem) => {
            problems.push(problem);
            return (None, None);
        }
    };
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => {
            let message = error.to_string();
            let message = message.split(" at line ").next().unwrap_or_default().to_owned();
            let place =
                Place { file: FILE.into(), line: error.line().max(1) as u32, column: error.column().max(1) as u32 };
            problems.push(
                Problem::error("manifest-syntax", format!("{FILE} is not JSON: {message}"), "correct the syntax here")
                    .at(&place),
            );
            return (None, None);
        }
    };
    let Value::Object(members) = value else {
        problems.push(
            Problem::error("manifest-syntax", format!("{FILE} must hold an object"), "write { \"slug\": …, … }")
                .at(&Place { file: FILE.into(), line: 1, column: 1 }),
        );
        return (None, None);
    };
    Reader { text, places: Places::of(text), members, files, problems }.read()
}

struct Reader<'a> {
    text: &'a str,
    places: Places,
    members: Map<String, Value>,
    files: &'a BTreeMap<String, Vec<u8>>,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn read(mut self) -> (Option<Manifest>, Option<String>) {
        self.unknown_keys();
        let slug = self.text_of("slug").and_then(|slug| match PluginSlug::parse(slug) {
            Ok(slug) => Some(slug),
            Err(error) => {
                self.fault(
                    "manifest-slug",
                    "slug",
                    error.to_string(),
                    "for example \"weather\" or \"morning-briefing\"",
                );
                None
            }
        });
        let version = self.text_of("version").and_then(|version| match Version::parse(&version) {
            Ok(version) => Some(version),
            Err(error) => {
                let message = format!("version must be a semantic version, but {version:?} is none: {error}");
                self.fault("manifest-version", "version", message, "for example \"1.0.0\"");
                None
            }
        });
        let name = self.words("name", "manifest-name", NAME_CHARS_MAX);
        let description = self.words("description", "manifest-description", DESCRIPTION_CHARS_MAX);
        let entry = self.entry();
        let settings = self.settings();
        let manifest = match (slug, version, name, description, settings) {
            (Some(slug), Some(version), Some(name), Some(description), Ok(settings)) => {
                Some(Manifest { slug, version, name, description, settings })
            }
            _ => None,
        };
        (manifest, entry)
    }

    fn fault(&mut self, code: &'static str, key: &str, message: impl Into<String>, remedy: impl Into<String>) {
        let place = Place::of_byte(FILE, self.text, self.places.value(&[key]));
        self.problems.push(Problem::error(code, message, remedy).at(&place));
    }

    fn unknown_keys(&mut self) {
        for (path, at) in std::mem::take(&mut self.places.twice) {
            let place = Place::of_byte(FILE, self.text, at);
            let key = path.last().cloned().unwrap_or_default();
            self.problems.push(
                Problem::error("manifest-key-twice", format!("{key:?} stands twice in one object"), "keep one of them")
                    .at(&place),
            );
        }
        let unknown: Vec<String> = self.members.keys().filter(|key| !KEYS.contains(&key.as_str())).cloned().collect();
        for key in unknown {
            let place = Place::of_byte(FILE, self.text, self.places.key(&[&key]));
            let shown: String = key.chars().take(80).collect();
            let remedy = match nearest(&key, KEYS.into_iter()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("take it away; known are {}", KEYS.join(", ")),
            };
            self.problems.push(
                Problem::error("manifest-key-unknown", format!("{shown:?} means nothing here"), remedy).at(&place),
            );
        }
    }

    /// A member that must be there and be a text.
    fn text_of(&mut self, key: &str) -> Option<String> {
        match self.members.get(key) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => {
                let message = format!("{key} must be a text, but is {}", kind_of(other));
                self.fault("manifest-type", key, message, format!("write \"{key}\": \"…\""));
                None
            }
            None => {
                let place = Place::of_byte(FILE, self.text, self.text.find('{').unwrap_or(0));
                self.problems.push(
                    Problem::error(
                        "manifest-key-missing",
                        format!("{key} is missing"),
                        format!("add \"{key}\": \"…\""),
                    )
                    .at(&place),
                );
                None
            }
        }
    }

    fn words(&mut self, key: &str, code: &'static str, chars_max: usize) -> Option<String> {
        let text = self.text_of(key)?;
        let chars = text.chars().count();
        if text.trim().is_empty() || chars > chars_max || text.chars().any(|c| c.is_control() && c != '\n') {
            let message =
                format!("{key} must be 1 to {chars_max} characters without control characters, but has {chars}");
            self.fault(code, key, message, "the person who installs the plugin reads it");
            return None;
        }
        Some(text)
    }

    fn entry(&mut self) -> Option<String> {
        let entry = self.text_of("entry")?;
        let entry = entry.strip_prefix("./").unwrap_or(&entry).to_owned();
        if self.files.contains_key(&entry) && FileKind::of(&entry).is_some() {
            return Some(entry);
        }
        let shown: String = entry.chars().take(80).collect();
        let candidates = self.files.keys().filter(|path| FileKind::of(path).is_some()).map(String::as_str);
        let remedy = match nearest(&entry, candidates.clone()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => match candidates.take(3).collect::<Vec<_>>() {
                found if found.is_empty() => "add src/index.ts and name it here".to_owned(),
                found => format!("name a file of the plugin, such as {}", found.join(", ")),
            },
        };
        let message = if self.files.contains_key(&entry) {
            format!("entry {shown:?} is not a .ts, .js, .mts or .mjs file")
        } else {
            format!("entry {shown:?} is not a file of the plugin")
        };
        self.fault("manifest-entry", "entry", message, remedy);
        None
    }

    fn settings(&mut self) -> Result<Option<Value>, ()> {
        let Some(settings) = self.members.get("settings").cloned() else { return Ok(None) };
        let before = self.problems.len();
        let example = "write { \"type\": \"object\", \"properties\": { \"apiKey\": { \"type\": \"string\", \"secret\": true } } }";
        match check_object_schema(&settings) {
            Ok(()) => {}
            Err(SchemaFault::NotAnObject) => self.fault(
                "manifest-settings",
                "settings",
                "settings must be a JSON Schema with \"type\": \"object\" at its top",
                example,
            ),
            Err(SchemaFault::TooLarge(bytes)) => {
                self.fault(
                    "manifest-settings",
                    "settings",
                    format!("settings has {bytes} bytes"),
                    "keep it below 64 kB",
                );
            }
            Err(SchemaFault::Outside(url)) => self.fault(
                "manifest-settings",
                "settings",
                format!("settings refers to {url}, and nothing outside it is fetched"),
                "put the definition under \"$defs\" and refer to \"#/$defs/…\"",
            ),
            Err(SchemaFault::Invalid(why)) => {
                self.fault("manifest-settings", "settings", format!("settings is not a JSON Schema: {why}"), example);
            }
        }
        self.secrets(&settings);
        if self.problems.len() == before { Ok(Some(settings)) } else { Err(()) }
    }

    /// A misplaced or misspelt mark would let a secret be shown.
    fn secrets(&mut self, settings: &Value) {
        let Some(Value::Object(properties)) = settings.get("properties") else { return };
        for (name, property) in properties {
            if let Some(mark) = property.get("secret")
                && !mark.is_boolean()
            {
                let at = self.places.value(&["settings", "properties", name, "secret"]);
                self.problems.push(
                    Problem::error(
                        "manifest-secret",
                        format!("\"secret\" of setting {name:?} must be true or false, but is {}", kind_of(mark)),
                        "write \"secret\": true",
                    )
                    .at(&Place::of_byte(FILE, self.text, at)),
                );
            }
        }
    }
}

/// What a value is, in words.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
