//! Sources made to break a parser: each is taken or told, none ends the process.

use crate::{MANIFEST, brief, files, plugin};
use toolfleet_plugin::{FILE_BYTES_MAX, Source, build};

/// Builds a plugin of one file; the code of its first problem, or "fine".
fn outcome(name: &str, content: Vec<u8>) -> String {
    let mut all = files(&[("plugin.json", &MANIFEST.replace("src/index.ts", name))]);
    all.insert(name.to_owned(), content);
    match build(&Source::from_files(all).unwrap()) {
        Ok(_) => "fine".to_owned(),
        Err(problems) => problems.as_slice()[0].code.to_owned(),
    }
}

#[test]
fn nesting_never_overflows_the_stack() {
    let units = [
        "(",
        "[",
        "{",
        "!",
        "-",
        "- ",
        "a=>",
        "a?b:",
        "if(1)",
        "x=",
        "`${",
        "f(",
        "new ",
        "a:",
        "()=>{",
        "1+",
        "a.b(",
        "typeof ",
        "class extends ",
        "for(;;)",
        "function f(){",
        "a**",
        "async()=>{",
        "else ",
        "[...",
        "({a:",
        "while(1)",
        "a??",
        "a&&",
        "let x:A<",
        "let x:(",
        "type A=[",
        "x as ",
        "a,",
        "a.",
        "a()",
        "a[0]",
        "await ",
        "if(a)b;else ",
        "try{",
        "({...",
        "let{a:",
        "let x:{a:",
        "let x:keyof ",
        "let x:()=>",
        "<A>",
        "a!",
    ];
    for size in [4_000, 4096, 200_000, FILE_BYTES_MAX] {
        for unit in units {
            let text = unit.repeat(size / unit.len());
            let found = outcome("src/index.ts", text.into_bytes());
            assert!(["fine", "syntax", "nesting-deep"].contains(&found.as_str()), "{unit} {size}: {found}");
        }
    }
}

#[test]
fn nesting_behind_what_seems_to_end_it_is_parsed_or_told() {
    for unit in ["if(1)", "do ", "a:", "!", "x=>", "keyof ", "else "] {
        for behind in
            ["a,(function(){", "a;while(function(){", "a;else (function(){", "A<b,", "f({}", "`${", "{}class extends "]
        {
            let text = format!("{}{behind}", unit.repeat(400)).repeat(300);
            let found = outcome("src/index.ts", text.into_bytes());
            assert!(["fine", "syntax", "nesting-deep"].contains(&found.as_str()), "{unit} {behind}: {found}");
        }
    }
}

#[test]
fn well_formed_nesting_up_to_the_bound_is_parsed_or_told() {
    for (open, middle, close) in [
        ("(", "1", ")"),
        ("[", "", "]"),
        ("{", "", "}"),
        ("!", "1", ""),
        ("-(", "1", ")"),
        ("a=>", "1", ""),
        ("a?1:", "2", ""),
        ("if(1)", ";", ""),
        ("x=", "1", ""),
        ("1+", "1", ""),
        ("f(", "", ")"),
        ("f(()=>{", "", "})"),
        ("`${", "1", "}`"),
        ("({a:", "1", "})"),
        ("a=>{", "", "}"),
        ("typeof ", "1", ""),
        ("if(a)b;else ", ";", ""),
        ("x**", "1", ""),
        ("new ", "A", ""),
        ("a.", "b", ""),
        ("f(function(){", "", "})"),
        ("", "a", "()"),
        ("", "a", "[0]"),
        ("", "a", "!"),
        ("type A=", "1", ""),
        ("let x:[", "1", "]"),
        ("<A>", "1", ""),
        ("class extends ", "A", "{}"),
        ("try{", "", "}finally{}"),
        ("x=(async()=>{", "", "})"),
    ] {
        for size in [1_000, 4096, 8_000, 64 * 1024] {
            let count = size / (open.len() + close.len());
            let text = format!("{}{middle}{}", open.repeat(count), close.repeat(count));
            let found = outcome("src/index.ts", text.into_bytes());
            assert!(["fine", "syntax", "nesting-deep"].contains(&found.as_str()), "{open} {size}: {found}");
        }
    }
}

#[test]
fn bytes_that_are_no_source_are_told() {
    for (content, expected) in [
        (b"\xff\xfe".to_vec(), "file-encoding"),
        (b"const a = '\xe9';".to_vec(), "file-encoding"),
        (b"\0asm\x01\0\0\0".to_vec(), "file-binary"),
        (b"\x15\x02\x00abc".to_vec(), "file-binary"),
        (b"\xef\xbb\xbfvar a".to_vec(), "fine"),
        (b"\xef\xbb\xbf\xef\xbb\xbf".to_vec(), "fine"),
        // JavaScript only in plain scripts.
        (b"with ({}) { var x = 010 } <!-- x".to_vec(), "fine"),
        (b"#!/usr/bin/env node\nvar a".to_vec(), "fine"),
        ("\u{2028}var a\u{2029}".into(), "fine"),
        (format!("var a = '{}';", "x".repeat(1_000_000)).into_bytes(), "fine"),
        (format!("var a = [{}];", "1,".repeat(400_000)).into_bytes(), "fine"),
        ("var a = 1;".repeat(100_000).into_bytes(), "fine"),
    ] {
        assert_eq!(outcome("src/index.js", content.clone()), expected, "{:?}", &content[..content.len().min(20)]);
    }
    let all = files(&[("a.ts", ""), ("plugin.json", MANIFEST)]);
    let mut large = all.clone();
    large.insert("b.ts".into(), vec![b' '; 50 * 1024 * 1024]);
    assert_eq!(Source::from_files(large).unwrap_err().as_slice()[0].code, "file-large");
}

#[test]
fn an_encoding_fault_has_its_place() {
    let mut all = files(&[("plugin.json", MANIFEST)]);
    all.insert("src/index.ts".into(), b"var a;\nvar b = '\xff';".to_vec());
    let problems = build(&Source::from_files(all).unwrap()).unwrap_err();
    assert_eq!(problems.iter().map(brief).collect::<Vec<_>>(), ["file-encoding src/index.ts:2:10"]);
}

#[test]
fn long_chains_of_aliases_are_followed_without_recursion() {
    let mut text = String::from("const a0 = host;\n");
    for number in 1..5_000 {
        text.push_str(&format!("const a{number} = a{};\n", number - 1));
    }
    text.push_str("a4999.session.post({})");
    let draft = build(&plugin(&[("src/index.ts", &text)])).unwrap();
    assert_eq!(draft.permissions.len(), 1);
}

#[test]
fn cut_and_shuffled_sources_never_panic() {
    let text = include_str!("../../src/scaffold/index.ts");
    for cut in (0..text.len()).filter(|at| text.is_char_boundary(*at)).step_by(7) {
        for piece in [&text[..cut], &text[cut..]] {
            let found = outcome("src/index.ts", piece.as_bytes().to_vec());
            assert_ne!(found, "build-failed", "{piece}");
        }
    }
}
