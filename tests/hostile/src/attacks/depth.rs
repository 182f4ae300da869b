//! Rows A6 to A8: deeper than the stack. The engine's guard must fire before the kernel's does.

use crate::Attack;
use crate::Expected::{Memory, Thrown, Unserializable, Value};
use crate::Wall::Long;

const DEEP: &[crate::Expected] = &[Thrown("stack")];
/// The engine may also be able to do it, or refuse it as such.
const DEEP_OR_DONE: &[crate::Expected] = &[Thrown(""), Value("1"), Memory];

pub const DEPTH: &[Attack] = &[
    Attack::new("A6 reads a million brackets", "() => JSON.parse('['.repeat(1e6))", Long, &[Thrown("")]),
    Attack::new("A6 reads a million braces", "() => JSON.parse('{\"a\":'.repeat(1e6))", Long, &[Thrown("")]),
    Attack::new(
        "A6 reads deeply with a reviver",
        "() => JSON.parse('['.repeat(5e3) + ']'.repeat(5e3), function f(k, v) { return Array.isArray(v) ? JSON.parse('[['.repeat(9e4)) : v })",
        Long,
        &[Thrown("")],
    ),
    Attack::new(
        "A7 writes what is nested",
        "() => { let o = {}; for (let i = 0; i < 1e5; i++) o = { o }; JSON.stringify(o); return 1 }",
        Long,
        DEEP_OR_DONE,
    ),
    Attack::new(
        "A7 returns what is nested",
        "() => { let o = {}; for (let i = 0; i < 1e5; i++) o = { o }; return o }",
        Long,
        &[Unserializable("JSON")],
    ),
    Attack::new(
        "A7 returns nested lists",
        "() => { let o = []; for (let i = 0; i < 1e5; i++) o = [o]; return o }",
        Long,
        &[Unserializable("JSON")],
    ),
    Attack::new(
        "A7 returns a toJSON that returns itself",
        "() => { const o = { toJSON() { return { o } } }; return { o } }",
        Long,
        &[Unserializable("JSON")],
    ),
    Attack::new("A8 calls itself", "() => { function f() { f() } f() }", Long, DEEP),
    Attack::new(
        "A8 calls itself as an async function",
        "async () => { async function f() { await f() } await f() }",
        Long,
        DEEP,
    ),
    Attack::new("A8 calls itself as a generator", "() => { function* f() { yield* f() } [...f()] }", Long, DEEP),
    Attack::new(
        "A8 calls itself as a constructor",
        "() => { class A { constructor() { new A() } } new A() }",
        Long,
        DEEP,
    ),
    Attack::new("A8 calls itself by a field", "() => { class A { a = new A() } new A() }", Long, DEEP),
    Attack::new("A8 by a getter", "() => { const o = { get a() { return this.a } }; o.a }", Long, DEEP),
    Attack::new("A8 by a setter", "() => { const o = { set a(v) { this.a = v } }; o.a = 1 }", Long, DEEP),
    Attack::new(
        "A8 by a Proxy's trap",
        "() => { const p = new Proxy({}, { get(t, k, r) { return r[k] } }); p.a }",
        Long,
        DEEP,
    ),
    Attack::new(
        "A8 by every trap",
        "() => { const p = new Proxy(function () {}, { has: (t, k) => k in p, ownKeys: () => Reflect.ownKeys(p), apply: () => p(), construct: () => new p(), getPrototypeOf: () => Object.getPrototypeOf(p) }); \
            let caught = 0; for (const f of [() => 1 in p, () => Object.keys(p), () => p(), () => new p(), () => p instanceof p]) { try { f() } catch (e) { caught += /stack/.test(e.message) } } return caught }",
        Long,
        &[Value("5")],
    ),
    Attack::new("A8 by toString", "() => { const o = { toString() { return `${this}` } }; `${o}` }", Long, DEEP),
    Attack::new("A8 by valueOf", "() => { const o = { valueOf() { return +this } }; +o }", Long, DEEP),
    Attack::new(
        "A8 by Symbol.toPrimitive",
        "() => { const o = { [Symbol.toPrimitive]() { return o + '' } }; o + '' }",
        Long,
        DEEP,
    ),
    Attack::new(
        "A8 by a comparator",
        "() => { function f(a, b) { return [1, 2, 3].sort(f)[0] } [1, 2, 3].sort(f) }",
        Long,
        DEEP,
    ),
    Attack::new("A8 by a replacer", "() => { function f() { return 'a'.replace(/a/, f) } f() }", Long, DEEP),
    Attack::new("A8 by a reviver", "() => { function f() { return JSON.parse('[1]', f) } f() }", Long, DEEP),
    Attack::new(
        "A8 by toJSON",
        "() => { const o = { toJSON() { return JSON.stringify(o) } }; JSON.stringify(o) }",
        Long,
        DEEP,
    ),
    Attack::new(
        "A8 by a callback of each kind",
        "() => { function f() { Reflect.apply([].map, [1], [f]) } f() }",
        Long,
        DEEP,
    ),
    Attack::new(
        "A8 by an iterator",
        "() => { const o = { [Symbol.iterator]() { return [...o] } }; [...o] }",
        Long,
        DEEP,
    ),
    Attack::new(
        "A8 by Symbol.species and hasInstance",
        "() => { class A extends Array { static get [Symbol.species]() { return new A(1).map(x => x) } } new A(1).map(x => x) }",
        Long,
        DEEP,
    ),
    Attack::new(
        "A8 a join of lists in lists",
        "() => { let a = []; for (let i = 0; i < 1e5; i++) a = [a]; a + ''; return 1 }",
        Long,
        DEEP_OR_DONE,
    ),
    Attack::new(
        "A8 a flattening of lists in lists",
        "() => { let a = [1]; for (let i = 0; i < 1e5; i++) a = [a]; return a.flat(Infinity)[0] }",
        Long,
        DEEP_OR_DONE,
    ),
    Attack::new(
        "A8 a copy of what is nested",
        "() => { let o = {}; for (let i = 0; i < 1e5; i++) o = { o }; structuredClone(o); return 1 }",
        Long,
        DEEP_OR_DONE,
    ),
    Attack::new(
        "A8 Proxies around Proxies",
        "() => { let p = { x: 1 }; for (let i = 0; i < 1e5; i++) p = new Proxy(p, {}); return p.x }",
        Long,
        DEEP_OR_DONE,
    ),
    Attack::new(
        "A8 functions bound and bound again",
        "() => { let f = () => 1; for (let i = 0; i < 1e5; i++) f = f.bind(null); return f() }",
        Long,
        DEEP_OR_DONE,
    ),
    Attack::new(
        "A8 classes of classes",
        "() => { let A = class { x = 1 }; for (let i = 0; i < 2e4; i++) A = class extends A {}; return new A().x }",
        Long,
        DEEP_OR_DONE,
    ),
    Attack::new(
        "A8 source nested in brackets",
        "() => eval('('.repeat(1e5) + '1' + ')'.repeat(1e5))",
        Long,
        DEEP_OR_DONE,
    ),
    Attack::new(
        "A8 source nested in functions",
        "() => new Function('x=>'.repeat(1e5) + '1')() && 1",
        Long,
        DEEP_OR_DONE,
    ),
    Attack::new(
        "A8 source nested in operators",
        "() => (0, eval)('-'.repeat(2e5).replace(/--/g, '- -') + '1') && 1",
        Long,
        DEEP_OR_DONE,
    ),
    Attack::new(
        "A8 source nested in templates",
        "() => (0, eval)('`${'.repeat(1e5) + '1' + '}`'.repeat(1e5)) && 1",
        Long,
        DEEP_OR_DONE,
    ),
    Attack::new(
        "A8 source nested in blocks",
        "() => { new Function('{'.repeat(1e5) + '}'.repeat(1e5))(); return 1 }",
        Long,
        DEEP_OR_DONE,
    ),
];
