//! Rows B2, B3 and B6: files that are no source, too much of it, and imports of what is not the plugin's.

use crate::{MANIFEST, brief, files, publish, publish_folder, publish_source, sandbox, still_works, told};
use toolfleet_hostile::{Watch, turn};
use toolfleet_plugin::Source;

const GOOD: &[u8] = b"globalThis.tools.t = { description: 'd', handler: () => 1 };";

/// One entry's bytes, and exactly what is told.
async fn check(cases: &[(&str, Vec<u8>, &[&str])]) {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    // Once before, so that what the allocator keeps of the compiler's work is there already.
    for (_, content, _) in cases {
        drop(publish(&sandbox, &[("src/index.js", content)]).await);
    }
    let watch = Watch::warm(&sandbox).await;
    for (what, content, expected) in cases {
        let result = publish(&sandbox, &[("src/index.js", content)]).await;
        assert_eq!(told(&result), *expected, "{what}");
        if let Err(problems) = &result {
            assert!(problems.iter().all(|problem| !problem.message.is_empty() && !problem.remedy.is_empty()), "{what}");
        }
        still_works(&sandbox, &watch, what).await;
    }
    sandbox.shutdown().await;
}

fn text(text: impl Into<String>) -> Vec<u8> {
    text.into().into_bytes()
}

fn good_and(more: &str) -> Vec<u8> {
    [GOOD, more.as_bytes()].concat()
}

#[tokio::test]
async fn b2_too_much_source_is_refused_unread() {
    check(&[
        ("50 MB", vec![b' '; 50 * 1024 * 1024], &["file-large src/index.js"]),
        ("one line of 10 MB", text(format!("var a = '{}'", "x".repeat(10_000_000))), &["file-large src/index.js"]),
        ("one line as long as may be", good_and(&format!("var a = '{}'", "x".repeat(1_000_000))), &[]),
        ("a hundred thousand statements", good_and(&"a=1;".repeat(100_000)), &[]),
    ])
    .await;
}

#[tokio::test]
async fn b2_nesting_never_overflows_the_parsers_stack() {
    let deep = 100_000;
    check(&[
        ("round brackets", text("(".repeat(deep)), &["nesting-deep src/index.js:1:4098"]),
        (
            "brackets that close",
            text(format!("{}1{}", "(".repeat(deep), ")".repeat(deep))),
            &["nesting-deep src/index.js:1:4098"],
        ),
        (
            "square brackets in line 3",
            text(format!("a;\n\n{}", "[".repeat(deep))),
            &["nesting-deep src/index.js:3:4098"],
        ),
        ("braces", text("{".repeat(deep)), &["nesting-deep src/index.js:1:4098"]),
        ("functions", text("x=>".repeat(deep)), &["nesting-deep src/index.js:1:6146"]),
        ("operators", text("!".repeat(deep)), &["nesting-deep src/index.js:1:4097"]),
        ("templates", text("`${".repeat(deep)), &["nesting-deep src/index.js:1:6145"]),
    ])
    .await;
}

#[tokio::test]
async fn b2_bytes_that_are_no_text_are_told_where() {
    check(&[
        ("not UTF-8", b"var a;\nvar b = '\xff';".to_vec(), &["file-encoding src/index.js:2:10"]),
        ("half a character", b"var a = '\xf0\x9f\x98".to_vec(), &["file-encoding src/index.js:1:10"]),
        ("UTF-16", b"\xff\xfev\0a\0r\0".to_vec(), &["file-binary src/index.js:1:1"]),
        ("a NUL", text("a;\r\n é\0"), &["file-binary src/index.js:2:3"]),
        ("a mark", [b"\xef\xbb\xbf", GOOD].concat(), &[]),
        ("a mark, and a fault behind it", b"\xef\xbb\xbflet = = 1".to_vec(), &["syntax src/index.js:1:7"]),
        ("lines that end in two", good_and("\r\nvar a\r\n = \r\n = 1"), &["syntax src/index.js:4:2"]),
        ("lines that end in Unicode", good_and("\u{2028}var a = = 1"), &["syntax src/index.js:1:70"]),
    ])
    .await;
}

#[tokio::test]
async fn b2_a_fault_in_file_7_of_9_is_told_there() {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    let mut list = vec![("src/index.js".to_owned(), "import './m1'".to_owned())];
    for number in 1..=8 {
        let code =
            if number == 7 { "import './m8';\nconst a = ;".to_owned() } else { format!("import './m{}'", number + 1) };
        list.push((format!("src/m{number}.js"), code));
    }
    list.push(("src/m9.js".to_owned(), String::new()));
    let list: Vec<(&str, &[u8])> = list.iter().map(|(path, code)| (path.as_str(), code.as_bytes())).collect();
    assert_eq!(told(&publish(&sandbox, &list).await), ["syntax src/m7.js:2:11"]);
    still_works(&sandbox, &watch, "a fault in file 7 of 9").await;
    sandbox.shutdown().await;
}

#[tokio::test]
async fn b3_imports_of_what_is_not_the_plugins_are_refused_by_name() {
    let other: &[(&str, &[u8])] = &[("src/other.js", b"export default 1"), ("src/data.json", b"{}")];
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    for (specifier, code) in [
        ("../../../etc/passwd", "import-outside"),
        ("./../../../../../../etc/passwd.js", "import-outside"),
        ("/etc/passwd", "import-absolute"),
        ("file:///etc/passwd", "import-url"),
        ("https://evil.test/x.js", "import-url"),
        ("HTTPS://evil.test/x.js", "import-url"),
        ("data:text/javascript,1", "import-url"),
        ("node:fs", "import-node"),
        ("fs", "import-bare"),
        ("std", "import-bare"),
        ("..\\\\other", "import-bare"),
        ("%2e%2e/other", "import-bare"),
        ("./%6fther", "import-not-found"),
        ("./Other", "import-case"),
        ("./OTHER.JS", "import-case"),
        ("./data.json", "import-json"),
        ("./other.js?x", "import-not-found"),
        ("./other\\0.js", "import-not-found"),
        ("", "import-bare"),
    ] {
        for (entry, column) in [(format!("import '{specifier}'"), 8), (format!("import('{specifier}')"), 8)] {
            let list = [other, &[("src/index.js", entry.as_bytes())]].concat();
            let result = publish(&sandbox, &list).await;
            assert_eq!(told(&result), [format!("{code} src/index.js:1:{column}")], "{entry}");
        }
    }
    still_works(&sandbox, &watch, "imports").await;
    sandbox.shutdown().await;
}

#[tokio::test]
async fn b3_files_that_cannot_be_a_plugins_are_refused_by_name() {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    let import_all = |count: usize| (0..count).map(|n| format!("import './f{n}';")).collect::<String>();
    // What an archive's names could say.
    for path in [
        "../a.js",
        "/etc/a.js",
        "src/../../a.js",
        "src//a.js",
        "./a.js",
        "src\\a.js",
        "C:/a.js",
        "a\0.js",
        "src/..",
        "",
    ] {
        let result = publish(&sandbox, &[("src/index.js", GOOD), (path, b"")]).await;
        assert_eq!(told(&result), ["file-path"], "{path:?}");
    }
    let both = publish(&sandbox, &[("src/index.js", GOOD), ("src/INDEX.js", b"")]).await;
    assert_eq!(told(&both), ["file-case src/index.js"]);
    let mut many = files(&[("src/index.js", import_all(10_000).as_bytes())]);
    many.extend((0..10_000).map(|n| (format!("src/f{n}.js"), Vec::new())));
    assert_eq!(told(&publish_source(&sandbox, Source::from_files(many)).await), ["files-many"]);
    // As many as may be, in a chain and in a circle.
    let mut chain = files(&[("src/index.js", &[GOOD, b"import './f0'"].concat())]);
    chain.extend((0..298).map(|n| (format!("src/f{n}.js"), format!("import './f{}'", (n + 1) % 298).into_bytes())));
    assert_eq!(told(&publish_source(&sandbox, Source::from_files(chain)).await), [""; 0]);
    still_works(&sandbox, &watch, "files").await;
    sandbox.shutdown().await;
}

#[tokio::test]
async fn b3_a_folder_that_leads_out_of_itself_is_refused_by_name() {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    let folder = Folder::new("links");
    folder.write("plugin.json", MANIFEST.as_bytes());
    folder.write("src/index.js", GOOD);
    assert_eq!(told(&publish_folder(&sandbox, &folder.0).await), [""; 0]);
    std::os::unix::fs::symlink("/etc/passwd", folder.0.join("src/passwd.js")).unwrap();
    std::os::unix::fs::symlink("/etc", folder.0.join("src/etc")).unwrap();
    std::os::unix::fs::symlink("..", folder.0.join("src/again")).unwrap();
    std::os::unix::fs::symlink("nowhere.js", folder.0.join("src/broken.js")).unwrap();
    let problems = publish_folder(&sandbox, &folder.0).await.unwrap_err();
    let mut told: Vec<String> = problems.iter().map(brief).collect();
    told.sort();
    assert_eq!(
        told,
        ["file-link src/again", "file-outside src/etc", "file-outside src/passwd.js", "file-unreadable src/broken.js"]
    );
    for problem in problems.iter() {
        assert!(!problem.message.contains("root:"), "{problem}");
    }
    still_works(&sandbox, &watch, "links").await;

    let many = Folder::new("many");
    many.write("plugin.json", MANIFEST.as_bytes());
    many.write("src/index.js", GOOD);
    for number in 0..10_000 {
        std::fs::write(many.0.join(format!("src/f{number}.js")), "").unwrap();
    }
    assert_eq!(crate::told(&publish_folder(&sandbox, &many.0).await), ["files-many"]);
    still_works(&sandbox, &watch, "10,000 files").await;
    sandbox.shutdown().await;
}

#[tokio::test]
async fn b6_compiled_code_in_place_of_source_is_refused() {
    // Bytecode of the engine's own, WebAssembly, a program, a compressed file.
    check(&[
        ("bytecode", b"\x15\x02\x0c<evalScript>\0\x10a.js".to_vec(), &["file-binary src/index.js:1:16"]),
        ("webassembly", b"\0asm\x01\0\0\0".to_vec(), &["file-binary src/index.js:1:1"]),
        ("a program", b"\x7fELF\x02\x01\x01\0".to_vec(), &["file-binary src/index.js:1:8"]),
        ("a compressed file", b"\x1f\x8b\x08\x08\xff\xff\xff".to_vec(), &["file-encoding src/index.js:1:2"]),
    ])
    .await;
    let _turn = turn().await;
    let sandbox = sandbox().await;
    for entry in ["src/index.wasm", "src/index.qbc", "src/index.so", "src/index.json", "src/index"] {
        let manifest = MANIFEST.replace("src/index.js", entry);
        let result = publish(&sandbox, &[("plugin.json", manifest.as_bytes()), (entry, GOOD)]).await;
        let told = told(&result);
        assert!(
            told.iter().all(|told| told.starts_with("manifest-entry plugin.json:1:")) && told.len() == 1,
            "{entry}: {told:?}"
        );
    }
    sandbox.shutdown().await;
}

/// A folder of its own, taken away in the end.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("toolfleet-hostile-{}-{name}", std::process::id()));
        std::fs::create_dir_all(folder.join("src")).expect("a folder can be made");
        Self(folder)
    }

    fn write(&self, path: &str, content: &[u8]) {
        std::fs::write(self.0.join(path), content).expect("a file can be written");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
