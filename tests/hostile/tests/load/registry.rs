//! Row B4: a registry that isn't what it seems, and an evaluation that tampers with its own inspection.

use crate::{check_entries, publish_entry, sandbox, still_works, told};
use toolfleet_hostile::{Watch, turn};

const AT_ENTRY: &str = "src/index.js:1:1";

#[tokio::test]
async fn b4_a_registry_must_be_what_it_seems() {
    let tool = "{ description: 'd', handler: () => 1 }";
    check_entries(&[
        (&format!("globalThis.tools = new Proxy({{ a: {tool} }}, {{}})"), &["tools-replaced src/index.js:1:1"]),
        (&format!("Object.defineProperty(globalThis, 'tools', {{ get: () => ({{ a: {tool} }}) }})"), &["tools-replaced src/index.js:1:1"]),
        ("globalThis.tools = null", &["tools-replaced src/index.js:1:1"]),
        ("globalThis.tools = () => 1", &["tools-replaced src/index.js:1:1"]),
        ("globalThis.tools = []", &["tools-replaced src/index.js:1:1"]),
        ("delete globalThis.tools", &["tools-replaced src/index.js:1:1"]),
        // Frozen, made otherwise, or without a prototype, it is an ordinary object still.
        (&format!("globalThis.tools = Object.freeze({{ a: Object.freeze({tool}) }})"), &[]),
        (&format!("globalThis.tools = Object.assign(Object.create(null), {{ a: {tool} }})"), &[]),
        // Replaced once it was loaded: what stands there in the end counts.
        (&format!("globalThis.tools.a = {tool}; Promise.resolve().then(() => {{ globalThis.tools = {{}} }})"), &["tools-none src/index.js:1:1"]),
        (&format!("globalThis.tools.a = {tool}; Promise.resolve().then(() => {{ globalThis.tools = new Proxy(tools, {{}}) }})"), &["tools-replaced src/index.js:1:1"]),
        // What is inherited isn't registered.
        (&format!("Object.prototype.b = {tool}; globalThis.tools = Object.create({{ a: {tool} }})"), &["tools-none src/index.js:1:1"]),
    ])
    .await;
}

#[tokio::test]
async fn b4_a_tool_must_be_what_it_seems() {
    check_entries(&[
        (
            "Object.defineProperty(tools, 'a', { get: () => ({ description: 'd', handler() {} }), enumerable: true })",
            &["tool-accessor src/index.js:1:1"],
        ),
        ("tools.a = new Proxy({ description: 'd', handler() {} }, {})", &["tool-proxy src/index.js:1:1"]),
        ("tools.a = async () => 1", &["tool-bare-function src/index.js:1:1"]),
        ("tools.a = { get description() { return 'd' }, handler() {} }", &["tool-accessor src/index.js:1:1"]),
        ("tools.a = { description: 'd', get handler() { return () => 1 } }", &["tool-accessor src/index.js:1:1"]),
        ("tools.a = { description: 'd', handler: new Proxy(() => 1, {}) }", &["tool-proxy src/index.js:1:1"]),
        (
            "tools.a = Object.create({ description: 'd', handler() {} })",
            &["tool-description-missing src/index.js:1:1", "tool-handler-missing src/index.js:1:1"],
        ),
        (
            "tools.a = { description: 'd', handler: () => 1, alwaysListed: true, deferred: true }",
            &["tool-both-flags src/index.js:1:1"],
        ),
        ("tools.a = { description: new String('d'), handler: () => 1 }", &["tool-description-type src/index.js:1:1"]),
        (
            "const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); tools.a = proxy",
            &["tool-proxy src/index.js:1:62"],
        ),
    ])
    .await;
}

#[tokio::test]
async fn b4_names_follow_the_rule() {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    let (longest, too_long) = ("a".repeat(64), "a".repeat(65));
    for (key, expected) in [
        ("'__proto__'", vec!["tool-name"]),
        ("''", vec!["tool-name"]),
        ("'constructor'", vec![]),
        ("'to_string'", vec![]),
        (&*format!("'{longest}'"), vec!["tool-name-long"]),
        (&*format!("'{too_long}'"), vec!["tool-name"]),
        ("'A'", vec!["tool-name"]),
        ("'1a'", vec!["tool-name"]),
        ("'a-b'", vec!["tool-name"]),
        ("'a.b'", vec!["tool-name"]),
        ("'ä'", vec!["tool-name"]),
        ("'\u{430}'", vec!["tool-name"]),
        ("'a\\u200b'", vec!["tool-name"]),
        ("'a\\0'", vec!["tool-name"]),
        ("'a\\ud800'", vec!["tool-name"]),
        ("0", vec!["tool-name"]),
        ("Symbol('a')", vec!["tool-name"]),
        ("Symbol.iterator", vec!["tool-name"]),
    ] {
        // Defined, so that `__proto__` is a key as well.
        let code = format!(
            "Object.defineProperty(tools, {key}, {{ value: {{ description: 'd', handler: () => 1 }}, enumerable: true, configurable: true }})"
        );
        let result = publish_entry(&sandbox, &code).await;
        let expected: Vec<String> = expected.iter().map(|code| format!("{code} {AT_ENTRY}")).collect();
        assert_eq!(told(&result), expected, "{key}: {result:?}");
    }
    still_works(&sandbox, &watch, "names").await;
    sandbox.shutdown().await;
}

/// Each would forge what is seen of the one tool, which is a bare function, were its code run while it is looked at.
const FORGERIES: &[&str] = &[
    "JSON.stringify = () => FORGED",
    "globalThis.JSON = { stringify: () => FORGED, parse: () => FORGED }",
    "Object.prototype.toJSON = Array.prototype.toJSON = () => ({ outcome: 'loaded' }); String.prototype.toJSON = () => 'forged'",
    "Reflect.getOwnPropertyDescriptor = Object.getOwnPropertyDescriptor = () => ({ value: { description: 'd', handler: () => 1 } })",
    "Reflect.ownKeys = Object.keys = () => ['forged']; Array.isArray = () => true; Reflect.getPrototypeOf = Object.getPrototypeOf = () => null",
    "Object.assign = Object.create = Object.hasOwn = () => ({})",
    "Object.prototype.value = { description: 'd', handler: () => 1 }; Object.prototype.get = undefined",
    "Object.defineProperty(Object.prototype, 'shape', { get: () => ({ is: 'json', what: true }), set() {} })",
    "for (let i = 0; i < 50; i++) Object.defineProperty(Array.prototype, i, { get: () => 'forged', set(v) { if (v && v.shape) v.shape = { is: 'json', what: true } } })",
    "String.prototype.concat = () => 'forged'; Function.prototype.call = Function.prototype.apply = () => ({ is: 'json', what: true })",
    "Object.defineProperty(Symbol.prototype, 'description', { get: () => 'forged' }); Array.prototype[Symbol.iterator] = () => { throw 1 }",
    "Object.setPrototypeOf(Array.prototype, new Proxy({}, { get: () => 'forged', set: () => true, has: () => true }))",
    "Object.freeze(Object.prototype); Object.freeze(globalThis)",
];

#[tokio::test]
async fn b4_no_evaluation_forges_what_is_seen_of_it() {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    let forged =
        r#"'{"outcome":"loaded","toolsShape":{"is":"json","what":true},"tools":[],"manifest":{"is":"absent"}}'"#;
    for forgery in FORGERIES {
        let code = format!("tools.a = () => 1;\n{}", forgery.replace("FORGED", forged));
        assert_eq!(told(&publish_entry(&sandbox, &code).await), ["tool-bare-function src/index.js:1:1"], "{forgery}");
        still_works(&sandbox, &watch, forgery).await;
    }
    sandbox.shutdown().await;
}
