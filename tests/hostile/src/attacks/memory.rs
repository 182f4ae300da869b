//! Rows A4, A5, A15, A18: more than the call's memory, or than its result may have.

use crate::Attack;
use crate::Expected::{Memory, Thrown, Timeout, TooLarge};
use crate::Wall::{Long, Short};

pub const MEMORY: &[Attack] = &[
    Attack::new(
        "A4 half a gigabyte of text",
        "() => { const kept = []; for (;;) kept.push('x'.repeat(2 ** 29)) }",
        Long,
        &[Memory],
    ),
    Attack::new(
        "A4 texts, kept",
        "() => { const kept = []; for (;;) kept.push('x'.repeat(1e6) + kept.length) }",
        Long,
        &[Memory],
    ),
    Attack::new(
        "A4 objects, kept",
        "() => { const kept = []; for (;;) kept.push({ kept: [kept.length] }) }",
        Long,
        &[Memory],
    ),
    Attack::new(
        "A4 closures, kept",
        "() => { let f = () => 0; for (;;) { const g = f; f = () => g } }",
        Long,
        &[Memory],
    ),
    // Not even the error can be told in what is left.
    Attack::new(
        "A4 keeps it where the error doesn't let go of it",
        "() => { globalThis.kept = []; for (let size = 1e6; size > 8; size /= 2) { try { for (;;) kept.push(new Uint8Array(size)) } catch {} } \
            for (;;) kept.push({}) }",
        Long,
        &[Memory],
    ),
    Attack::new(
        "A4 in symbols, maps, weak references and big integers",
        "() => { const m = new Map(), w = new WeakMap(); for (let i = 0;; i++) { const o = {}; m.set(Symbol(i), new WeakRef(o)); w.set(o, o); m.set(o, 1n << BigInt(i + 40000)) } }",
        Long,
        &[Memory],
    ),
    Attack::new("A5 a buffer of 2 GB", "() => new ArrayBuffer(2 ** 31).byteLength", Long, &[Memory, Thrown("invalid")]),
    Attack::new("A5 a buffer just below 2 GB", "() => new ArrayBuffer(2 ** 31 - 1).byteLength", Long, &[Memory]),
    Attack::new(
        "A5 two arrays of 120 MB",
        "() => { const a = new Uint8Array(120e6).fill(1); const b = new Uint8Array(120e6).fill(1); return a.length + b.length }",
        Long,
        &[Memory],
    ),
    Attack::new(
        "A5 a buffer that grows",
        "() => { const b = new ArrayBuffer(1, { maxByteLength: 2 ** 30 }); for (let n = 1e6;; n += 1e6) { b.resize(n); new Uint8Array(b).fill(1) } }",
        Long,
        &[Memory, Thrown("")],
    ),
    Attack::new(
        "A15 catches that there is no memory, and goes on",
        "() => { const kept = []; for (;;) { try { for (;;) kept.push(new Uint8Array(1e6).fill(1)) } catch {} } }",
        Short,
        &[Memory, Timeout],
    ),
    Attack::new(
        "A15 catches it in promises, and goes on",
        "async () => { const kept = []; for (;;) await (async () => { for (;;) kept.push([kept.length]) })().catch(() => {}) }",
        Short,
        &[Memory, Timeout],
    ),
    Attack::new("A18 returns 50 MB of text", "() => 'x'.repeat(50e6)", Long, &[TooLarge]),
    Attack::new("A18 returns 50 MB in parts", "() => Array(1e6).fill('x'.repeat(48))", Long, &[TooLarge]),
    Attack::new("A18 returns text whose escapes are too many", "() => '\\u0001'.repeat(200e3)", Long, &[TooLarge]),
    Attack::new("A18 returns text of few characters and many bytes", "() => 'ü'.repeat(600e3)", Long, &[TooLarge]),
    // Its JSON alone would use up the memory.
    Attack::new(
        "A18 returns what is written down without end",
        "() => { const s = 'x'.repeat(1e6); return Array(1e6).fill(s) }",
        Long,
        &[TooLarge],
    ),
    Attack::new(
        "A18 returns what a toJSON makes large",
        "() => ({ toJSON: () => 'x'.repeat(2e6) })",
        Long,
        &[TooLarge],
    ),
];
