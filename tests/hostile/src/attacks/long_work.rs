//! Rows A2, A9, A29, A30: long work inside the engine, most of which no interrupt reaches. The worker's own clock ends it.

use crate::Attack;
use crate::Expected::{Memory, Thrown, Timeout, Value};
use crate::Wall::{Long, Short};

pub const LONG_WORK: &[Attack] = &[
    Attack::new("A2 a join of a billion holes", "() => new Array(1e9) + ''", Short, &[Timeout, Memory]),
    Attack::new("A2 a fill of a billion places", "() => new Array(1e9).fill(0).length", Short, &[Timeout, Memory]),
    Attack::new(
        "A9 a power beyond all memory",
        "() => String(2n ** (2n ** 40n)).length",
        Short,
        &[Thrown(""), Memory, Timeout],
    ),
    Attack::new(
        "A9 a million decimal digits",
        "() => (10n ** 1000000n + '').length",
        Short,
        &[Thrown(""), Memory, Timeout, Value("1000001")],
    ),
    Attack::new(
        "A9 a shift beyond all memory",
        "() => (1n << 10000000000n) + ''",
        Short,
        &[Thrown(""), Memory, Timeout],
    ),
    Attack::new(
        "A9 multiplies what it has",
        "() => { let a = 3n; for (;;) a *= a }",
        Short,
        &[Thrown(""), Memory, Timeout],
    ),
    Attack::new(
        "A29 a million properties",
        "() => { const o = {}; for (let i = 0; i < 1e6; i++) o['k' + i] = i; return o.k999999 }",
        Long,
        &[Value("999999"), Memory],
    ),
    Attack::new(
        "A29 a prototype chain of a million",
        "() => { let o = { deep: 1 }; for (let i = 0; i < 1e6; i++) o = Object.create(o); return [o.deep, 'none' in o] }",
        Long,
        &[Value("[1,false]"), Memory],
    ),
    Attack::new(
        "A29 a million concatenations, flattened",
        "() => { let s = ''; for (let i = 0; i < 1e6; i++) s += 'ab'; return [s.length, s[0], s[1999999]] }",
        Long,
        &[Value("[2000000,\"a\",\"b\"]")],
    ),
    Attack::new(
        "A29 a million concatenations at both ends, flattened",
        "() => { let s = ''; for (let i = 0; i < 1e6; i++) s = i % 2 ? s + 'a' : 'b' + s; return [s.length, s[0], s[999999]] }",
        Short,
        &[Value("[1000000,\"b\",\"a\"]"), Timeout, Memory],
    ),
    Attack::new(
        "A29 a sparse array, sorted",
        "() => { const a = []; a[2 ** 32 - 2] = 1; a[5] = 0; return a.sort().length }",
        Short,
        &[Timeout, Memory, Value("4294967295")],
    ),
    Attack::new(
        "A29 a sparse array, turned, moved and searched",
        "() => { const a = []; a.length = 2 ** 32 - 1; a.reverse(); a.copyWithin(0, 5); return a.indexOf(1) }",
        Short,
        &[Timeout, Memory, Value("-1")],
    ),
    Attack::new(
        "A29 a comparator that changes what is sorted",
        "() => { const a = Array.from({ length: 1000 }, (_, i) => 1000 - i); \
            a.sort((x, y) => { a.length = 0; a.push({}); delete a[0]; return x - y }); return Array.isArray(a) }",
        Long,
        &[Value("true"), Thrown("")],
    ),
    Attack::new(
        "A29 a comparator that changes the typed array's buffer",
        "() => { const b = new ArrayBuffer(4096, { maxByteLength: 8192 }), t = new Uint8Array(b); \
            t.sort((x, y) => { b.resize(b.byteLength === 0 ? 8192 : 0); return 1 }); return t.length >= 0 }",
        Long,
        &[Value("true"), Thrown("")],
    ),
    Attack::new(
        "A29 a buffer that is transferred while it is filled",
        "() => { const b = new ArrayBuffer(64, { maxByteLength: 128 }), t = new Uint8Array(b); \
            t.fill({ valueOf() { b.transfer(8); return 1 } }); \
            t.set({ length: 8, get 0() { try { b.resize(4) } catch {} return 1 } }); return t.length }",
        Long,
        &[Value("0"), Thrown("")],
    ),
    Attack::new(
        "A29 getters that change an array that is read",
        "() => { const a = [1, 2, 3, 4]; Object.defineProperty(a, 1, { get() { a.length = 1; return 9 } }); \
            return [a.concat(a).length, JSON.stringify(a), a.flat().length, Array.from(a).length, a.includes(7)].length }",
        Long,
        &[Value("5"), Thrown("")],
    ),
    Attack::new(
        "A30 a hundred thousand groups",
        "() => new RegExp('(a)'.repeat(1e5)).test('a')",
        Short,
        &[Thrown(""), Memory, Timeout],
    ),
    Attack::new(
        "A30 a hundred thousand groups inside each other",
        "() => new RegExp('(?:'.repeat(1e5) + ')'.repeat(1e5)).test('a')",
        Short,
        &[Thrown(""), Memory, Timeout],
    ),
    Attack::new(
        "A30 repetitions of repetitions",
        "() => new RegExp('(?:a{1000}){1000}'.repeat(20)).test('a'.repeat(1e6))",
        Short,
        &[Thrown(""), Memory, Timeout, Value("false")],
    ),
    Attack::new(
        "A30 looks behind, again and again",
        "() => /(?<=(a+)+)b(?<!(a|aa)+)/.test('a'.repeat(5000) + 'c')",
        Short,
        &[Thrown(""), Memory, Timeout, Value("false")],
    ),
    Attack::new(
        "A30 a class of characters on 100 MB",
        "() => /\\p{L}+$/u.test('ä'.repeat(50e6))",
        Short,
        &[Thrown(""), Memory, Timeout, Value("true")],
    ),
    Attack::new(
        "A30 a class of characters, ignoring case",
        "() => /[^\\p{Lu}\\p{Script=Greek}]+[\\p{L}--[a-z]]x/vi.test('a'.repeat(20e6))",
        Short,
        &[Thrown(""), Memory, Timeout, Value("false")],
    ),
    Attack::new(
        "A30 normalises 100 MB",
        "() => 'Å\\u0301'.repeat(25e6).normalize('NFKD').length",
        Short,
        &[Thrown(""), Memory, Timeout],
    ),
    Attack::new(
        "A30 upper-cases and compares 50 MB",
        "() => { const s = 'ß'.repeat(10e6); return s.toUpperCase().localeCompare(s) }",
        Short,
        &[Thrown(""), Memory, Timeout, Value("-1"), Value("1")],
    ),
];
