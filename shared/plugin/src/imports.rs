//! What an import names: always a file of the plugin.

use crate::nearest::nearest;
use crate::problem::{Place, Problem};
use crate::syntax::FileKind;
use std::collections::BTreeMap;

/// The file that `specifier` in the file `from` names.
///
/// As TypeScript resolves: the file of exactly that name, then with `.ts`, `.js`, `.mts`, `.mjs`, then `index.ts`,
/// `index.js` in a folder of that name; `./x.js` may also name `x.ts`, `./x.mjs` `x.mts`.
pub(crate) fn resolve(
    files: &BTreeMap<String, Vec<u8>>,
    from: &str,
    specifier: &str,
    place: &Place,
) -> Result<String, Problem> {
    let shown: String = specifier.chars().take(80).collect();
    let refuse = |code, message: String, remedy: String| Err(Problem::error(code, message, remedy).at(place));
    let relative = matches!(specifier, "." | "..") || specifier.starts_with("./") || specifier.starts_with("../");
    if !relative {
        return if specifier.starts_with("node:") {
            refuse(
                "import-node",
                format!("{shown:?} is part of Node.js, which is not where plugins run"),
                "use the globals and host API that the SDK's types list".into(),
            )
        } else if specifier.contains("://") || specifier.starts_with("data:") {
            refuse(
                "import-url",
                format!("{shown:?} is a URL: nothing is loaded from outside the plugin"),
                "copy the file into the plugin's folder and import it by its relative path".into(),
            )
        } else if specifier.starts_with('/') {
            refuse(
                "import-absolute",
                format!("{shown:?} is an absolute path"),
                "write a path relative to this file, such as \"./other\"".into(),
            )
        } else {
            let beside = format!("./{shown}");
            let is_file = join(from, &beside).is_some_and(|path| find(files, &path).is_some());
            let remedy = if is_file {
                format!("write {beside:?}")
            } else {
                "copy or bundle the package's code into a file of the plugin and import that, such as \"./vendor/lib.js\""
                    .to_owned()
            };
            refuse("import-bare", format!("{shown:?} names a package, and packages are not installed"), remedy)
        };
    }
    let Some(path) = join(from, specifier) else {
        return refuse(
            "import-outside",
            format!("{shown:?} leads out of the plugin's folder"),
            "copy the file into the plugin's folder".into(),
        );
    };
    if let Some(found) = find(files, &path) {
        return Ok(found);
    }
    if files.contains_key(&path) || files.contains_key(&format!("{path}.json")) {
        return if path.ends_with(".json") || !files.contains_key(&path) {
            refuse(
                "import-json",
                format!("{shown:?} is JSON, which can't be imported"),
                "make it a .ts file: export default { … }".into(),
            )
        } else {
            refuse(
                "import-kind",
                format!("{shown:?} is not a .ts, .js, .mts or .mjs file"),
                "rename it, and turn JSX or CommonJS into plain modules".into(),
            )
        };
    }
    if let Some(other) = files.keys().find(|other| find_folded(other, &path)) {
        return refuse(
            "import-case",
            format!("{shown:?} is not there, but {other} is: upper and lower case count"),
            format!("write the name as the file has it: {other}"),
        );
    }
    let candidates = files.keys().filter(|file| FileKind::of(file).is_some()).map(String::as_str);
    let remedy = match nearest(&path, candidates) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("add {path}.ts, or correct the path"),
    };
    refuse("import-not-found", format!("{shown:?} is not there: no file {path}, also not with .ts or .js"), remedy)
}

/// `specifier` seen from the file `from`, normalised; `None` where it leaves the folder.
fn join(from: &str, specifier: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in specifier.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn find(files: &BTreeMap<String, Vec<u8>>, path: &str) -> Option<String> {
    let swapped = [(".js", ".ts"), (".mjs", ".mts")]
        .iter()
        .find_map(|(from, to)| path.strip_suffix(from).map(|stem| format!("{stem}{to}")));
    let mut candidates = vec![path.to_owned()];
    candidates.extend([".ts", ".js", ".mts", ".mjs"].map(|end| format!("{path}{end}")));
    candidates.extend(swapped);
    let folder = if path.is_empty() { String::new() } else { format!("{path}/") };
    candidates.extend(["index.ts", "index.js"].map(|name| format!("{folder}{name}")));
    candidates.into_iter().find(|candidate| FileKind::of(candidate).is_some() && files.contains_key(candidate))
}

fn find_folded(file: &str, path: &str) -> bool {
    let (file, path) = (file.to_lowercase(), path.to_lowercase());
    file == path || file.strip_prefix(&path).is_some_and(|rest| matches!(rest, ".ts" | ".js" | ".mts" | ".mjs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(specifier: &str) -> Result<String, &'static str> {
        let names = [
            "src/index.ts",
            "src/a.ts",
            "src/a.js",
            "src/b.js",
            "src/dir/index.ts",
            "src/m.mts",
            "src/data.json",
            "src/Big.ts",
            "root.ts",
            "src/page.tsx",
        ];
        let files = names.into_iter().map(|name| (name.to_owned(), Vec::new())).collect();
        let place = Place { file: "src/index.ts".into(), line: 1, column: 1 };
        resolve(&files, "src/index.ts", specifier, &place).map_err(|problem| problem.code)
    }

    #[test]
    fn imports_resolve_as_in_typescript() {
        for (specifier, expected) in [
            ("./a", Ok("src/a.ts")),
            ("./a.js", Ok("src/a.js")),
            ("./a.ts", Ok("src/a.ts")),
            ("./b", Ok("src/b.js")),
            ("./m.mjs", Ok("src/m.mts")),
            ("./dir", Ok("src/dir/index.ts")),
            ("./dir/", Ok("src/dir/index.ts")),
            ("./dir/index.js", Ok("src/dir/index.ts")),
            (".", Ok("src/index.ts")),
            ("../root", Ok("root.ts")),
            ("./dir/../a", Ok("src/a.ts")),
            ("../../etc/passwd", Err("import-outside")),
            ("./../../../etc/passwd", Err("import-outside")),
            ("/etc/passwd", Err("import-absolute")),
            ("https://x.test/a.js", Err("import-url")),
            ("data:text/javascript,1", Err("import-url")),
            ("node:fs", Err("import-node")),
            ("lodash", Err("import-bare")),
            ("a", Err("import-bare")),
            ("", Err("import-bare")),
            ("./data.json", Err("import-json")),
            ("./data", Err("import-json")),
            ("./page.tsx", Err("import-kind")),
            ("./big", Err("import-case")),
            ("./A.ts", Err("import-case")),
            ("./nowhere", Err("import-not-found")),
            ("./a?x=1", Err("import-not-found")),
        ] {
            assert_eq!(check(specifier), expected.map(str::to_owned), "{specifier}");
        }
    }
}
