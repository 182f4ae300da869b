//! Row B5: parameters that are no plain schema, or a schema that would cost whoever reads it.

use crate::{check_entries, publish_entry, sandbox, still_works, told};
use std::time::Instant;
use toolfleet_hostile::{Watch, at_once_ms_max, turn};

fn with(parameters: &str) -> String {
    format!("tools.a = {{ description: 'd', handler: () => 1, parameters: {parameters} }}")
}

#[tokio::test]
async fn b5_parameters_are_plain_data_or_refused() {
    let cases = [
        (with("{ type: 'object', get properties() { return {} } }"), "tool-parameters-not-json"),
        ("const p = { type: 'object' }; p.properties = { p }; tools.a = { description: 'd', handler: () => 1, parameters: p }".to_owned(), "tool-parameters-not-json"),
        (with("new Proxy({ type: 'object' }, {})"), "tool-proxy"),
        (with("{ type: 'object', properties: new Proxy({}, {}) }"), "tool-parameters-not-json"),
        (with("{ type: 'object', default: () => 1 }"), "tool-parameters-not-json"),
        (with("{ type: 'object', maxProperties: NaN }"), "tool-parameters-not-json"),
        (with("{ type: 'object', required: [, 'a'] }"), "tool-parameters-not-json"),
        (with("{ type: 'object', default: 1n }"), "tool-parameters-not-json"),
        (with("{ type: 'object', [Symbol('s')]: 1 }"), "tool-parameters-not-json"),
        (with("{ type: 'object', default: new Date() }"), "tool-parameters-not-json"),
        (with("{ type: 'object', toJSON() { return { type: 'object' } } }"), "tool-parameters-not-json"),
        (with("'x'.repeat(100).split('').reduce(p => ({ type: 'object', properties: { p } }), {})"), "tool-parameters-not-json"),
        (with("{ type: 'object', enum: Array(200000).fill(0) }"), "tool-parameters-not-json"),
        (with("{ type: 'object', title: 'x'.repeat(1e6) }"), "tool-parameters-large"),
        (with("{ type: 'object', properties: { a: { $ref: 'https://evil.test/s.json' } } }"), "tool-parameters-ref"),
        (with("{ type: 'object', properties: { a: { $ref: 'file:///etc/passwd' } } }"), "tool-parameters-ref"),
        (with("{ type: 'object', properties: { a: { $ref: '../../etc/passwd' } } }"), "tool-parameters-ref"),
        (with("{ type: 'object', $schema: 'https://evil.test/dialect' }"), "tool-parameters-ref"),
        (with("{ type: 'object', properties: { a: { $dynamicRef: 'http://169.254.169.254/' } } }"), "tool-parameters-ref"),
        (with("{ $id: 'file:///etc/', type: 'object', properties: { a: { $ref: 'passwd' } } }"), "tool-parameters-ref"),
        (with("{ type: 'object', properties: { a: { pattern: '(' } } }"), "tool-parameters-schema"),
        (with("{ type: 'object', properties: { a: { pattern: '('.repeat(20000) } } }"), "tool-parameters-schema"),
        (with("{ type: 'object', patternProperties: { '[': {} } }"), "tool-parameters-schema"),
        (with("{ type: 'object', properties: { a: { $ref: '#/nowhere' } } }"), "tool-parameters-schema"),
        (with("{ type: 'object', properties: 7 }"), "tool-parameters-schema"),
        (with("{ __proto__: { type: 'object' } }"), "tool-parameters-not-json"),
    ];
    let cases = cases.map(|(code, expected)| {
        let place = if code.starts_with("const") { "1:53" } else { "1:1" };
        (code, [format!("{expected} src/index.js:{place}")])
    });
    let cases: Vec<(&str, [&str; 1])> =
        cases.iter().map(|(code, [expected])| (code.as_str(), [expected.as_str()])).collect();
    let cases: Vec<(&str, &[&str])> = cases.iter().map(|(code, expected)| (*code, &expected[..])).collect();
    check_entries(&cases).await;
}

#[tokio::test]
async fn b5_what_is_odd_and_harmless_is_taken_as_plain_data() {
    let cases = [
        with("{ type: 'object', properties: { a: { type: 'string', default: 5 } } }"),
        with("{ type: 'object', properties: { __proto__x: {}, constructor: { type: 'string' }, '': true } }"),
        with("JSON.parse('{\"type\":\"object\",\"properties\":{\"__proto__\":{\"type\":\"string\"}}}')"),
        with("{ type: 'object', properties: { a: { $ref: '#' } } }"),
        with("{ type: 'object', properties: { a: { pattern: '^(?<!x)(?=a)\\\\p{Lu}' } } }"),
        with("{ type: 'object', default: { $ref: 'https://evil.test/' , pattern: '(' } }"),
        with("Object.freeze({ type: 'object' })"),
    ];
    let cases: Vec<(&str, &[&str])> = cases.iter().map(|code| (code.as_str(), &[][..])).collect();
    check_entries(&cases).await;
}

#[tokio::test]
async fn b5_patterns_that_explode_cost_next_to_nothing() {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    for pattern in
        ["((\\\\w{100}){100}){100}", "(a+)+$", "(a|aa)*(b|bb)*\\\\p{L}{1000}", "[\\\\s\\\\S]{0,65535}x{65535}"]
    {
        let code = with(&format!(
            "{{ type: 'object', properties: Object.fromEntries(Array.from({{ length: 500 }}, (_, i) => ['p' + i, {{ type: 'string', pattern: '{pattern}' }}])) }}"
        ));
        let started = Instant::now();
        let result = publish_entry(&sandbox, &code).await;
        assert_eq!(told(&result), [""; 0], "{pattern}");
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap();
        assert!(ms < at_once_ms_max(), "{pattern} took {ms} ms");
        still_works(&sandbox, &watch, pattern).await;
    }
    sandbox.shutdown().await;
}
