//! Rows A17, A19, A28, A31: odd values, and what is left open.

use crate::Attack;
use crate::Expected::{Thrown, Timeout, Unserializable, Value};
use crate::Wall::{Long, Short};

pub const VALUES: &[Attack] = &[
    Attack::new("A17 a cycle", "() => { const a = {}; a.a = [a]; return a }", Long, &[Unserializable("JSON")]),
    Attack::new("A17 a big integer", "() => [1n]", Long, &[Unserializable("JSON")]),
    Attack::new(
        "A17 a toJSON that throws",
        "() => ({ toJSON() { throw new Error('mine') } })",
        Long,
        &[Unserializable("mine")],
    ),
    Attack::new(
        "A17 a Proxy that throws",
        "() => new Proxy({}, { ownKeys() { throw new Error('mine') } })",
        Long,
        &[Unserializable("mine")],
    ),
    Attack::new(
        "A17 a Proxy that is revoked",
        "() => { const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return { proxy } }",
        Long,
        &[Unserializable("JSON")],
    ),
    Attack::new(
        "A17 a revoked Proxy itself",
        "() => { const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return proxy }",
        Long,
        &[Thrown(""), Unserializable("JSON")],
    ),
    Attack::new(
        "A17 a getter that throws what has no message",
        "() => ({ get a() { throw null } })",
        Long,
        &[Unserializable("JSON")],
    ),
    Attack::new("A17 a getter that loops", "() => ({ get a() { for (;;); } })", Short, &[Timeout]),
    Attack::new(
        "A17 a Proxy with keys without end",
        "() => new Proxy({}, { ownKeys: () => { for (;;); } })",
        Short,
        &[Timeout],
    ),
    Attack::new(
        "A17 a thenable whose then throws",
        "() => ({ get then() { throw new Error('mine') } })",
        Long,
        &[Thrown("mine")],
    ),
    Attack::new(
        "A17 a thenable that answers twice and throws",
        "() => ({ then(a, b) { a(1); b(2); a(3); throw 4 } })",
        Long,
        &[Value("1")],
    ),
    Attack::new("A19 undefined", "() => undefined", Long, &[Value("null")]),
    Attack::new("A19 a function", "() => () => 1", Long, &[Value("null")]),
    Attack::new("A19 a symbol", "() => Symbol('s')", Long, &[Value("null")]),
    Attack::new("A19 no number", "() => NaN", Long, &[Value("null")]),
    Attack::new(
        "A19 numbers that JSON has not",
        "() => [NaN, Infinity, -Infinity, , undefined, () => 1]",
        Long,
        &[Value("[null,null,null,null,null,null]")],
    ),
    Attack::new("A19 minus nothing", "() => -0", Long, &[Value("0")]),
    Attack::new("A19 a date", "() => new Date(0)", Long, &[Value("\"1970-01-01T00:00:00.000Z\"")]),
    Attack::new("A19 a date that is none", "() => new Date(NaN)", Long, &[Value("null")]),
    Attack::new(
        "A19 a map, a set, a pattern",
        "() => [new Map([[1, 2]]), new Set([1]), /a/g, new Error('e')]",
        Long,
        &[Value("[{},{},{},{}]")],
    ),
    Attack::new("A19 boxed values", "() => [Object('a'), Object(1), Object(false)]", Long, &[Value("[\"a\",1,false]")]),
    Attack::new(
        "A19 half a character",
        "() => ['\\ud800x', { '\\udfff': '\\udc00\\ud800' }]",
        Long,
        &[Value("[\"\u{fffd}x\",{\"\u{fffd}\":\"\u{fffd}\u{fffd}\"}]")],
    ),
    Attack::new(
        "A19 what ends a line in JavaScript",
        "() => '\\u2028\\0\\u007f'",
        Long,
        &[Value("\"\u{2028}\\u0000\u{7f}\"")],
    ),
    Attack::new(
        "A19 keys of an odd kind",
        "() => JSON.parse('{\"__proto__\": 1, \"\": 2, \"constructor\": 3}')",
        Long,
        &[Value("{\"__proto__\":1,\"\":2,\"constructor\":3}")],
    ),
    Attack::new(
        "A28 generators, iterators and registries left open",
        "async () => { function* g() { try { yield 1 } finally { globalThis.never = 1 } } const it = g(); it.next(); \
            async function* a() { try { yield 1; await new Promise(() => {}) } finally { globalThis.never = 2 } } const at = a(); await at.next(); at.next(); \
            const registry = new FinalizationRegistry(() => { globalThis.never = 3 }); registry.register({}, 1); \
            const ref = new WeakRef({}); const w = new WeakSet([{}]); setInterval(() => {}, 1); host.settings.get('900'); \
            globalThis.kept = [it, at, registry, ref, w]; return 'open' }",
        Long,
        &[Value("\"open\"")],
    ),
    Attack::new(
        "A28 a registry that is called back",
        "async () => { const seen = []; const r = new FinalizationRegistry(v => seen.push(v)); (() => r.register({}, 7))(); \
            for (let i = 0; i < 5; i++) await new Promise(r => setTimeout(r, 1)); return seen.length <= 1 }",
        Long,
        &[Value("true")],
    ),
    Attack::new(
        "A28 a registry whose callback never ends",
        "async () => { const r = new FinalizationRegistry(() => { for (;;); }); (() => r.register({}, 7))(); await new Promise(r => setTimeout(r, 1)); return 1 }",
        Short,
        &[Timeout],
    ),
    Attack::new(
        "A31 the first and the last date",
        "() => [8.64e15, -8.64e15, 8.64e15 + 1].map(t => { try { return new Date(t).toISOString() } catch (e) { return e.name } })",
        Long,
        &[Value("[\"+275760-09-13T00:00:00.000Z\",\"-271821-04-20T00:00:00.000Z\",\"RangeError\"]")],
    ),
    Attack::new(
        "A31 dates out of odd texts",
        "() => ['9'.repeat(1e5), '2020-02-30', '-000000-01-01', 'x'.repeat(1e5)].every(t => typeof Date.parse(t) === 'number')",
        Long,
        &[Value("true")],
    ),
    Attack::new(
        "A31 parts of a date far out",
        "() => [new Date(275760, 8, 13, 0, 0, 0, 1).getTime(), Date.UTC(1e9), new Date(2020, 1e9).getTime()]",
        Long,
        &[Value("[null,null,null]")],
    ),
    Attack::new(
        "A31 words of a date",
        "() => typeof new Date(0).toLocaleString('de', { timeZone: 'Europe/Berlin' }) + typeof (1e21).toLocaleString() + typeof 'a'.localeCompare('b', 'xx')",
        Long,
        &[Value("\"stringstringnumber\"")],
    ),
    // The engine has no Intl: here a plain ReferenceError, which a plugin can look out for.
    Attack::new(
        "A31 words of other languages",
        "() => new Intl.DateTimeFormat('de').format(new Date(0))",
        Long,
        &[Thrown("Intl")],
    ),
    Attack::new("A31 a digit too many", "() => (1).toFixed(101)", Long, &[Thrown("")]),
];
