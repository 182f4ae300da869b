//! What a plugin's author sends.

use std::collections::BTreeMap;
use toolfleet_plugin::{PROBLEMS_MAX, Problems, Source, build};
use toolfleet_protocol::Permission;

pub const WORDS: &[&str] = &[
    "host",
    "host.workspace.write({})",
    ".workspace",
    "['session']",
    ".post",
    "?.",
    "!.",
    "globalThis",
    "const {",
    "} = ",
    "=> ",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "`${",
    "import ",
    "export ",
    "from './b'",
    "export * from ",
    "await ",
    "async ",
    "function ",
    "class ",
    "...",
    "as any",
    "<any>",
    "tools.x = ",
    "handler: ",
    "manifest = ",
    "egress: ",
    "/*",
    "*/",
    "//",
    "\n",
    "\r\n",
    "\u{2028}",
    "\u{feff}",
    "ü😀",
    "\\u{68}ost",
    "'",
    "\"",
    "\0",
    "/(a+)+$/",
    "\"slug\":",
    "\"version\":",
    "\"entry\":",
    "\"settings\":",
    "\"secret\": true",
    "\"__proto__\":",
    "// src/b.ts\n",
    "// plugin.json\n",
];

const MANIFEST: &str = r#"{"slug":"p","version":"1.0.0","name":"P","description":"d","entry":"src/index.ts"}"#;

/// A folder: files follow each other, each after a line `// PATH`; the first is plugin.json.
pub fn load(data: &[u8]) {
    let mut files = BTreeMap::new();
    for part in data.split(|byte| *byte == 0x1e).take(16) {
        let (path, content) = match part.iter().position(|byte| *byte == b'\n') {
            Some(end) => (String::from_utf8_lossy(&part[..end]).into_owned(), part[end + 1..].to_vec()),
            None => ("plugin.json".to_owned(), part.to_vec()),
        };
        files.insert(path, content);
    }
    match Source::from_files(files) {
        Ok(source) => check(build(&source).map(drop)),
        Err(problems) => check(Err(problems)),
    }
}

/// A file of source beside another: whatever the first says, the plain use of a method in the second is derived, or
/// something is said about the plugin.
pub fn permissions(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let files = BTreeMap::from([
        ("plugin.json".to_owned(), MANIFEST.as_bytes().to_vec()),
        ("src/index.ts".to_owned(), format!("import './plain';\n{text}").into_bytes()),
        ("src/plain.ts".to_owned(), b"host.workspace.write({});".to_vec()),
    ]);
    let Ok(source) = Source::from_files(files) else { return };
    match build(&source) {
        Ok(draft) => {
            let write =
                draft.permissions.iter().any(|permission: &Permission| permission.id() == "host:workspace:write");
            assert!(write, "a plain use of host.workspace.write was not seen");
        }
        Err(problems) => check(Err(problems)),
    }
}

fn check(built: Result<(), Problems>) {
    let Err(problems) = built else { return };
    let problems = problems.as_slice();
    assert!(!problems.is_empty() && problems.len() <= PROBLEMS_MAX + 1, "{} problems", problems.len());
    for problem in problems {
        assert_ne!(problem.code, "build-failed", "the compiler broke");
        assert!(!problem.message.is_empty() && !problem.remedy.is_empty(), "{problem:?} says nothing");
    }
}
