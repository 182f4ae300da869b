//! Plugins that mean no good when they are loaded or published: rows B1 to B6 of what a worker must survive.
//!
//! Published as `toolfleet plugin check` does it: source, build, inspection in the sandbox, rules.

mod parameters;
mod registry;
mod sources;
mod top_level;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;
use toolfleet_hostile::support::start;
use toolfleet_hostile::{Watch, at_once_ms_max, long_wall_ms};
use toolfleet_plugin::{Checked, Problem, Problems, Source, build, finish};
use toolfleet_worker::isolation::{IsolationConfig, Sandbox};

const MANIFEST: &str = r#"{ "slug": "sample", "version": "1.0.0", "name": "Sample", "description": "A sample.", "entry": "src/index.js" }"#;
/// A sandbox in which a bundle has plenty of time to load.
async fn sandbox() -> Sandbox {
    sandbox_with(long_wall_ms()).await
}

async fn sandbox_with(load_ms: u64) -> Sandbox {
    start(IsolationConfig { load_ms, ..IsolationConfig::default() }).await
}

/// A good plugin.json, unless there is one, and these files.
fn files(list: &[(&str, &[u8])]) -> BTreeMap<String, Vec<u8>> {
    let mut files: BTreeMap<String, Vec<u8>> =
        list.iter().map(|(path, content)| ((*path).to_owned(), content.to_vec())).collect();
    files.entry("plugin.json".to_owned()).or_insert_with(|| MANIFEST.as_bytes().to_vec());
    files
}

async fn publish_source(sandbox: &Sandbox, source: Result<Source, Problems>) -> Result<Checked, Problems> {
    let draft = build(&source?)?;
    let inspection = sandbox.inspect(&draft.bundle).await;
    finish(draft, inspection)
}

async fn publish(sandbox: &Sandbox, list: &[(&str, &[u8])]) -> Result<Checked, Problems> {
    publish_source(sandbox, Source::from_files(files(list))).await
}

/// The entry alone.
async fn publish_entry(sandbox: &Sandbox, code: &str) -> Result<Checked, Problems> {
    publish(sandbox, &[("src/index.js", code.as_bytes())]).await
}

async fn publish_folder(sandbox: &Sandbox, folder: &Path) -> Result<Checked, Problems> {
    publish_source(sandbox, Source::read_folder(folder)).await
}

/// A problem as `code file:line:column`, as far as it has a place.
fn brief(problem: &Problem) -> String {
    let place: Vec<String> = problem
        .file
        .iter()
        .cloned()
        .chain([problem.line, problem.column].into_iter().flatten().map(|number| number.to_string()))
        .collect();
    format!("{} {}", problem.code, place.join(":")).trim_end().to_owned()
}

/// All errors, or the warnings of what is published all the same.
fn told(result: &Result<Checked, Problems>) -> Vec<String> {
    match result {
        Ok(checked) => checked.warnings.iter().map(brief).collect(),
        Err(problems) => problems.iter().map(brief).collect(),
    }
}

/// A plugin without fault is published as ever, on time, and nothing is left of those before it.
async fn still_works(sandbox: &Sandbox, watch: &Watch, after: &str) {
    let code = "globalThis.tools.good = { description: 'Does good.', handler: () => 1 };";
    let started = Instant::now();
    let checked = publish_entry(sandbox, code).await.unwrap_or_else(|problems| panic!("after {after}: {problems}"));
    assert_eq!(checked.release.tools.len(), 1, "after {after}");
    let ms = u64::try_from(started.elapsed().as_millis()).unwrap();
    assert!(ms < at_once_ms_max(), "after {after} it took {ms} ms");
    watch.settle_all(sandbox, after).await;
}

/// Each entry is refused, or taken with warnings, with exactly this told.
async fn check_entries(cases: &[(&str, &[&str])]) {
    let _turn = toolfleet_hostile::turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    for (code, expected) in cases {
        let result = publish_entry(&sandbox, code).await;
        let short: String = code.chars().take(200).collect();
        assert_eq!(told(&result), *expected, "{short}: {result:?}");
        still_works(&sandbox, &watch, &short).await;
    }
    sandbox.shutdown().await;
}
