//! Plugins with faults in their files: each is told by its code and place.

use crate::{MANIFEST, brief, files, plugin};
use toolfleet_plugin::{Source, build};

fn problems_of(list: &[(&str, &str)]) -> Vec<String> {
    match build(&plugin(list)) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(brief).collect(),
    }
}

/// One fault in plugin.json: `find` replaced by `put`.
fn check_manifest(find: &str, put: &str, expected: &[&str]) {
    assert!(MANIFEST.contains(find), "{find}");
    let text = MANIFEST.replacen(find, put, 1);
    assert_eq!(problems_of(&[("plugin.json", &text), ("src/index.ts", "export {}")]), expected, "{text}");
}

#[test]
fn faults_of_plugin_json_are_told_with_their_place() {
    for (find, put, expected) in [
        ("\"sample\"", "\"Sample\"", &["manifest-slug plugin.json:2:11"][..]),
        ("\"sample\"", "\"\"", &["manifest-slug plugin.json:2:11"]),
        ("\"sample\"", "5", &["manifest-type plugin.json:2:11"]),
        ("\"1.0.0\"", "\"1.0\"", &["manifest-version plugin.json:3:14"]),
        ("\"1.0.0\"", "\"v1.0.0\"", &["manifest-version plugin.json:3:14"]),
        ("\"Sample\"", "\" \"", &["manifest-name plugin.json:4:11"]),
        ("\"A sample.\"", "null", &["manifest-type plugin.json:5:18"]),
        ("src/index.ts", "src/idnex.ts", &["manifest-entry plugin.json:6:12"]),
        ("src/index.ts", "../index.ts", &["manifest-entry plugin.json:6:12"]),
        ("src/index.ts", "/etc/passwd", &["manifest-entry plugin.json:6:12"]),
        ("src/index.ts", "plugin.json", &["manifest-entry plugin.json:6:12"]),
        ("  \"slug\": \"sample\",\n", "", &["manifest-key-missing plugin.json:1:1"]),
        ("\"name\"", "\"nmae\"", &["manifest-key-missing plugin.json:1:1", "manifest-key-unknown plugin.json:4:3"]),
        ("{", "{ \"permissions\": [],", &["manifest-key-unknown plugin.json:1:3"]),
        ("{", "{ \"slug\": \"twice\",", &["manifest-key-twice plugin.json:2:3"]),
        ("\"1.0.0\",", "\"1.0.0\"", &["manifest-syntax plugin.json:4:3"]),
        ("{", "{ \"settings\": 5,", &["manifest-settings plugin.json:1:15"]),
        ("{", "{ \"settings\": { \"type\": \"string\" },", &["manifest-settings plugin.json:1:15"]),
        ("{", "{ \"settings\": { \"type\": \"objekt\" },", &["manifest-settings plugin.json:1:15"]),
        (
            "{",
            "{ \"settings\": { \"type\": \"object\", \"properties\": { \"key\": { \"secret\": \"yes\" } } },",
            &["manifest-secret plugin.json:1:70"],
        ),
        (
            "\"slug\": \"sample\",\n  \"version\": \"1.0.0\"",
            "\"slug\": \"S\",\n  \"version\": \"1\", \"extra\": 1",
            &[
                "manifest-slug plugin.json:2:11",
                "manifest-version plugin.json:3:14",
                "manifest-key-unknown plugin.json:3:19",
            ],
        ),
    ] {
        check_manifest(find, put, expected);
    }
    assert_eq!(problems_of(&[("plugin.json", "[]")]), ["manifest-syntax plugin.json:1:1"]);
    assert_eq!(problems_of(&[("plugin.json", "")]), ["manifest-syntax plugin.json:1:1"]);
    let none = Source::from_files(files(&[("src/index.ts", "")])).unwrap();
    assert_eq!(build(&none).unwrap_err().as_slice()[0].code, "manifest-missing");
}

#[test]
fn good_settings_are_taken() {
    let put = r#"{ "settings": { "type": "object", "properties": { "key": { "type": "string", "secret": true } } },"#;
    let text = MANIFEST.replacen('{', put, 1);
    let draft = build(&plugin(&[("plugin.json", &text), ("src/index.ts", "export {}")])).unwrap();
    assert_eq!(draft.settings.unwrap()["properties"]["key"]["secret"], true);
}

#[test]
fn faults_of_sources_are_told_with_their_place() {
    for (text, expected) in [
        ("const x = ;", &["syntax src/index.ts:1:11"][..]),
        ("const a = 1;\r\nconst a = 2;", &["syntax src/index.ts:1:7"]),
        ("export const x: = 1;", &["syntax src/index.ts:1:17"]),
        ("import x from 'lodash'; x()", &["import-bare src/index.ts:1:15"]),
        ("export * from 'lodash'", &["import-bare src/index.ts:1:15"]),
        ("import('lodash')", &["import-bare src/index.ts:1:8"]),
        ("import fs from 'node:fs'; fs()", &["import-node src/index.ts:1:16"]),
        ("import x from 'https://x.test/a.js'; x()", &["import-url src/index.ts:1:15"]),
        ("import x from '/etc/passwd'; x()", &["import-absolute src/index.ts:1:15"]),
        ("\nimport x from '../../etc/passwd'; x()", &["import-outside src/index.ts:2:15"]),
        ("import x from './gone'; x()", &["import-not-found src/index.ts:1:15"]),
        ("import x from './data.json'; x()", &["import-json src/index.ts:1:15"]),
        ("import x from './Other'; x()", &["import-case src/index.ts:1:15"]),
        ("import x from './other' with { type: 'json' }; x()", &["import-attributes src/index.ts:1:1"]),
        ("const n = './other'; import(n)", &["import-dynamic src/index.ts:1:22"]),
        ("import x = require('fs'); x()", &["import-require src/index.ts:1:1"]),
        ("const x = 1; export = x;", &["export-assignment src/index.ts:1:14"]),
        ("@log class A {}", &["decorator src/index.ts:1:1"]),
        ("é\u{0}", &["file-binary src/index.ts:1:2"]),
        (
            "import a from 'a'; import b from './gone'; a(b); host.nope();\nhost[a];",
            &[
                "import-bare src/index.ts:1:15",
                "import-not-found src/index.ts:1:34",
                "host-unknown src/index.ts:1:50",
                "host-dynamic src/index.ts:2:6",
            ],
        ),
    ] {
        let list = [("src/index.ts", text), ("src/other.ts", "export default 1"), ("src/data.json", "{}")];
        assert_eq!(problems_of(&list), expected, "{text}");
    }
}

#[test]
fn a_fault_in_file_7_of_9_is_found_there() {
    let mut list = vec![("src/index.ts".to_owned(), "import './m1'".to_owned())];
    for number in 1..=8 {
        let text = if number == 7 {
            "import './m8';\nlet = = 1;".to_owned()
        } else {
            format!("import './m{}'", number % 8 + 1)
        };
        list.push((format!("src/m{number}.ts"), text));
    }
    let list: Vec<_> = list.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let problems = problems_of(&list);
    assert!(problems.len() == 1 && problems[0].starts_with("syntax src/m7.ts:2:"), "{problems:?}");
}

#[test]
fn what_is_only_unusual_is_fine() {
    for text in [
        "\u{feff}export const a = 1;",
        "export const a = 1;\r\nexport const b = 2;\r\n",
        "enum Color { Red, Green } export const c = Color.Green;",
        "namespace N { export const x = 1 } export const y = N.x;",
        "import type { T } from 'some-package'; export let t: T;",
        "import { type T } from './other'; export let t: T;",
        "import d from './other'; import self from './index'; export default [d, self];",
        "",
        "// nothing",
        "export * as all from './other'; export { default as d } from './other.js';",
        "const x = await Promise.resolve(1); globalThis.x = x;",
        "class A { private x = 1; constructor(public y: number) {} } new A(1)",
        "for (const c of 'a') { switch (c) { case 'a': break } }",
    ] {
        let list = [("src/index.ts", text), ("src/other.ts", "import './index'; export default 1; export type T = 1")];
        assert_eq!(problems_of(&list), [""; 0], "{text}");
    }
}

#[test]
fn scripts_and_modules_are_told_apart() {
    for (text, is_script) in [
        ("var x = 1", true),
        ("globalThis.tools.x = {}", true),
        ("import('./other')", true),
        ("export {}", false),
        ("import './other'", false),
        ("import type { T } from './other'", false),
        ("await 1", false),
        ("const x = await f()", false),
    ] {
        let draft = build(&plugin(&[("src/index.ts", text), ("src/other.ts", "")])).unwrap();
        assert_eq!(draft.bundle.entry_is_script, is_script, "{text}");
    }
}

#[test]
fn only_what_the_entry_reaches_is_bundled() {
    let list = [
        ("src/index.ts", "import { a } from './a.js'; a()"),
        ("src/a.ts", "import type { B } from './b'; export const a = (b?: B) => b"),
        ("src/b.ts", "export type B = 1"),
        ("src/unused.ts", "this is no code"),
        ("tests/a.ts", "neither is this"),
        ("types/x.d.ts", "nor this"),
        ("node_modules/x/index.js", "nor this"),
        ("README.md", "# words"),
    ];
    let draft = build(&plugin(&list)).unwrap();
    assert_eq!(draft.bundle.files.keys().collect::<Vec<_>>(), ["src/a.ts", "src/index.ts"]);
    assert_eq!(draft.bundle.files["src/index.ts"].imports["./a.js"], "src/a.ts");
    assert!(!draft.bundle.files["src/a.ts"].code.contains("import"), "{}", draft.bundle.files["src/a.ts"].code);
}

#[test]
fn a_folder_and_its_files_make_one_source() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for (path, text) in [
        ("plugin.json", MANIFEST),
        ("src/index.ts", "export {}"),
        ("README.md", "# words"),
        (".git/config.js", "x"),
        ("node_modules/a/index.js", "x"),
        ("tests/a.ts", "x"),
    ] {
        std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        std::fs::write(root.join(path), text).unwrap();
    }
    let source = Source::read_folder(root).unwrap();
    assert_eq!(source.files().keys().collect::<Vec<_>>(), ["plugin.json", "src/index.ts"]);
    assert_eq!(source, plugin(&[("src/index.ts", "export {}")]));

    std::os::unix::fs::symlink("/etc/passwd", root.join("src/leak.ts")).unwrap();
    std::os::unix::fs::symlink("/etc", root.join("etc")).unwrap();
    std::fs::write(root.join("src/large.ts"), vec![b' '; 1024 * 1024 + 1]).unwrap();
    std::fs::write(root.join("src/INDEX.ts"), "").unwrap();
    let problems = Source::read_folder(root).unwrap_err();
    let codes: Vec<_> = problems.iter().map(brief).collect();
    assert_eq!(
        codes,
        ["file-outside etc", "file-case src/index.ts", "file-large src/large.ts", "file-outside src/leak.ts"]
    );

    let missing = Source::read_folder(&root.join("missing")).unwrap_err();
    assert_eq!(missing.as_slice()[0].code, "folder-unreadable");
}

#[test]
fn a_link_in_a_circle_ends() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("plugin.json"), MANIFEST).unwrap();
    std::os::unix::fs::symlink(".", folder.path().join("again")).unwrap();
    let problems = Source::read_folder(folder.path()).unwrap_err();
    assert!(problems.iter().all(|problem| problem.code == "file-link"), "{problems}");
}

#[test]
fn bad_paths_and_too_much_are_refused() {
    for path in
        ["../a.ts", "/a.ts", "a/../../b.ts", "./a.ts", "a//b.ts", "a\\b.ts", "c:/a.ts", "a\n.ts", "", &"a/".repeat(40)]
    {
        let problems = Source::from_files(files(&[(path, "")])).unwrap_err();
        assert_eq!(problems.as_slice()[0].code, "file-path", "{path:?}");
    }
    let many = (0..10_000).map(|number| (format!("src/{number}.ts"), Vec::new())).collect();
    assert_eq!(Source::from_files(many).unwrap_err().as_slice()[0].code, "files-many");
    let large = (0..5).map(|number| (format!("{number}.ts"), vec![b' '; 1024 * 1024])).collect();
    assert_eq!(Source::from_files(large).unwrap_err().as_slice()[0].code, "files-large");
    let cased = files(&[("src/a.ts", ""), ("src/A.ts", "")]);
    assert_eq!(Source::from_files(cased).unwrap_err().as_slice()[0].code, "file-case");
}
