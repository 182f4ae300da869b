//! The plugins that newcomers read first, and the one that `plugin init` writes.

use std::path::{Path, PathBuf};
use toolfleet_plugin::{Source, build, scaffold, sdk};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

#[test]
fn the_examples_build_with_the_permissions_they_say() {
    for (name, expected) in [
        ("weather", &[][..]),
        ("notes", &["host:workspace:write"]),
        ("recap", &["host:session:read", "host:session:post"]),
    ] {
        let source = Source::read_folder(&examples().join(name)).unwrap_or_else(|problems| panic!("{problems}"));
        let draft = build(&source).unwrap_or_else(|problems| panic!("{problems}"));
        let permissions: Vec<_> = draft.permissions.iter().map(|permission| permission.id()).collect();
        assert_eq!(permissions, expected, "{name}");
        assert_eq!(draft.slug.as_str(), name);
    }
}

#[test]
fn the_types_beside_the_examples_are_the_sdks() {
    let path = examples().join("types/toolfleet.d.ts");
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    if std::env::var_os("TOOLFLEET_WRITE_GENERATED").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, sdk::types()).unwrap();
        return;
    }
    assert!(
        committed == sdk::types(),
        "{} is out of date: run this test once with TOOLFLEET_WRITE_GENERATED=1",
        path.display()
    );
}

#[test]
fn the_scaffold_builds_whatever_its_slug() {
    for slug in ["a", "morning-briefing", "a-", "x--y9", &"z".repeat(32)] {
        let files = scaffold::files(slug).into_iter().map(|(path, text)| (path, text.into_bytes())).collect();
        let draft = build(&Source::from_files(files).unwrap()).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(draft.slug.as_str(), slug);
    }
}
