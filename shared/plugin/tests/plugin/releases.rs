//! The digest that names a release.

use crate::{MANIFEST, loaded, plugin, tool};
use std::collections::BTreeSet;
use toolfleet_plugin::{build, finish};
use toolfleet_protocol::Fact;

fn digest(list: &[(&str, &str)]) -> String {
    build(&plugin(list)).unwrap().digest.to_string()
}

#[test]
fn one_source_makes_one_digest() {
    let list = [
        ("src/index.ts", "import { a } from './a'; a()"),
        ("src/a.ts", "export const a = () => host.session.post({})"),
    ];
    let first = digest(&list);
    for _ in 0..5 {
        assert_eq!(digest(&list), first);
    }
    let unused = [list[0], list[1], ("src/unused.ts", "1"), ("README.md", "words")];
    assert_eq!(digest(&unused), first, "what isn't released decides nothing");
    let spaced = MANIFEST.replace(": ", " :   ");
    assert_eq!(digest(&[list[0], list[1], ("plugin.json", &spaced)]), first, "nor do spaces in plugin.json");
}

#[test]
fn whatever_decides_behaviour_changes_the_digest() {
    let source = ("src/index.ts", "globalThis.x = 1");
    let mut digests = BTreeSet::from([digest(&[source])]);
    for changed in [
        MANIFEST.replace("sample\"", "sample-2\""),
        MANIFEST.replace("1.0.0", "1.0.1"),
        MANIFEST.replace("\"Sample\"", "\"Other\""),
        MANIFEST.replace("A sample.", "Another."),
        MANIFEST.replacen('{', "{ \"settings\": { \"type\": \"object\" },", 1),
    ] {
        assert!(digests.insert(digest(&[source, ("plugin.json", &changed)])), "{changed}");
    }
    for text in ["globalThis.x = 2", "globalThis.x = 1; export {}", "globalThis.x = host.session.post"] {
        assert!(digests.insert(digest(&[("src/index.ts", text)])), "{text}");
    }
}

#[test]
fn a_release_keeps_its_drafts_digest() {
    let draft = build(&plugin(&[("src/index.ts", "export {}")])).unwrap();
    let name = draft.digest.clone();
    let checked = finish(draft, loaded(vec![tool("one")], Fact::Absent)).unwrap();
    assert_eq!(checked.release.digest, name);
}
