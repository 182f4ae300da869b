//! `plugin init`: a first plugin that passes the check, for its author to change.

use std::collections::BTreeMap;

const INDEX: &str = include_str!("index.ts");
const README: &str = include_str!("README.md");
const TSCONFIG: &str = include_str!("tsconfig.json");

/// The files of a first plugin, by path. `slug` must be a plugin's slug.
pub fn files(slug: &str) -> BTreeMap<String, String> {
    let words: Vec<&str> = slug.split('-').filter(|word| !word.is_empty()).collect();
    let mut name = words.join(" ");
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let manifest = format!(
        "{{\n  \"slug\": \"{slug}\",\n  \"version\": \"0.1.0\",\n  \"name\": \"{name}\",\n  \
         \"description\": \"Greets people.\",\n  \"entry\": \"src/index.ts\"\n}}\n"
    );
    BTreeMap::from([
        ("plugin.json".to_owned(), manifest),
        ("src/index.ts".to_owned(), INDEX.to_owned()),
        ("README.md".to_owned(), README.replace("NAME", &name).replace("SLUG", slug)),
        ("tsconfig.json".to_owned(), TSCONFIG.to_owned()),
        ("types/toolfleet.d.ts".to_owned(), crate::sdk::types()),
    ])
}
