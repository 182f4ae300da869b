//! Stacks in the places of the author's files.

use crate::plugin;
use toolfleet_plugin::{build, map_stack};
use toolfleet_protocol::Bundle;

const SOURCE: &str = "interface Input {
  city: string;
}

type Unused = Input;

export function fail(input: Input): never {
  const city: string = input.city; throw new Error(`no ${city}`);
}
";

fn bundle() -> Bundle {
    build(&plugin(&[("src/index.ts", "import { fail } from './lib'; fail({ city: 'x' })"), ("src/lib.ts", SOURCE)]))
        .unwrap()
        .bundle
}

/// Where `text` stands in the code that the engine runs, as the engine counts.
fn engine_place(bundle: &Bundle, file: &str, text: &str) -> (usize, usize) {
    let code = &bundle.files[file].code;
    let at = code.find(text).unwrap_or_else(|| panic!("{text} is not in\n{code}"));
    let line = code[..at].matches('\n').count();
    let column = at - code[..at].rfind('\n').map_or(0, |newline| newline + 1);
    (line + 1, if line == 0 { column } else { column + 1 })
}

#[test]
fn places_become_the_authors() {
    let bundle = bundle();
    let (line, column) = engine_place(&bundle, "src/lib.ts", "Error(");
    assert_ne!(line, 8, "the types are gone, so the lines differ");
    let stack = format!("    at fail (src/lib.ts:{line}:{column})\n    at <anonymous> (src/index.ts:2:1)\n");
    let mapped = map_stack(&bundle, &stack);
    let first = mapped.lines().next().unwrap();
    assert_eq!(first, "    at fail (src/lib.ts:8:46)", "{}", bundle.files["src/lib.ts"].code);
    assert!(mapped.ends_with(")\n"), "{mapped}");
}

#[test]
fn what_is_no_place_of_the_bundle_stays() {
    let bundle = bundle();
    for stack in [
        "",
        "    at native\n",
        "    at f (native)\n    at g (other.ts:1:1)",
        "    at f (evil-src/lib.ts:1:1)",
        "    at f (src/lib.ts:x:1)",
        "    at f (src/lib.ts)",
        "Error: src/lib.ts:1:1 and more",
        "😀:::9",
        ":1:1",
    ] {
        assert_eq!(map_stack(&bundle, stack), stack);
    }
    for stack in [
        "at f (src/lib.ts:999999:1)",
        "at f (src/lib.ts:0:0)",
        "at f (src/lib.ts:4294967295:4294967295)",
        "at src/lib.ts:2",
    ] {
        assert!(map_stack(&bundle, stack).contains("src/lib.ts:"), "{stack}");
    }
    let long = "at f (src/lib.ts:1:1)\n".repeat(100_000);
    assert!(map_stack(&bundle, &long).len() <= long.len(), "a stack is bounded");
}
