//! The promises of the publish check, kept against whole plugins.

mod derivation;
mod examples;
mod hostile;
mod releases;
mod rules;
mod sources;
mod stacks;

use std::collections::BTreeMap;
use toolfleet_plugin::{Problem, Source};
use toolfleet_protocol::{Fact, Inspection, ToolFacts};

/// A plugin.json without fault.
const MANIFEST: &str = r#"{
  "slug": "sample",
  "version": "1.0.0",
  "name": "Sample",
  "description": "A sample.",
  "entry": "src/index.ts"
}"#;

fn files(list: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    list.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect()
}

/// These files, and a good plugin.json if there is none among them.
fn plugin(list: &[(&str, &str)]) -> Source {
    let mut files = files(list);
    files.entry("plugin.json".to_owned()).or_insert_with(|| MANIFEST.as_bytes().to_vec());
    Source::from_files(files).unwrap_or_else(|problems| panic!("{problems}"))
}

/// A problem as `code file:line:column`, as far as it has a place.
fn brief(problem: &Problem) -> String {
    let mut text = problem.code.to_owned();
    if let Some(file) = &problem.file {
        text.push_str(&format!(" {file}"));
    }
    for number in [problem.line, problem.column].into_iter().flatten() {
        text.push_str(&format!(":{number}"));
    }
    text
}

/// A tool without fault.
fn tool(name: &str) -> ToolFacts {
    ToolFacts {
        name: name.to_owned(),
        shape: Fact::Json(true.into()),
        description: Fact::Json("Does it. Use when it must be done.".into()),
        parameters: Fact::Absent,
        handler: Fact::Function,
        always_listed: Fact::Absent,
        deferred: Fact::Absent,
        unknown: Vec::new(),
    }
}

fn loaded(tools: Vec<ToolFacts>, manifest: Fact) -> Inspection {
    Inspection::Loaded { tools_shape: Fact::Json(true.into()), tools, manifest }
}
