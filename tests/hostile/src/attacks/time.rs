//! Rows A1, A3, A10 to A13, A16: what never ends.

use crate::Attack;
use crate::Expected::{Memory, Stalled, Thrown, Timeout};
use crate::Wall::{Long, Short};

pub const TIME: &[Attack] = &[
    Attack::new("A1 a loop without end", "() => { while (true) {} }", Short, &[Timeout]),
    Attack::new("A1 a loop without end that awaits", "async () => { for (;;) await null }", Short, &[Timeout]),
    Attack::new(
        "A1 a generator without end",
        "() => { function* g() { for (;;) yield 1 } for (const x of g()); }",
        Short,
        &[Timeout],
    ),
    Attack::new(
        "A3 a regular expression that goes back and back",
        "() => /(a+)+$/.test('a'.repeat(40) + '!')",
        Short,
        &[Timeout],
    ),
    Attack::new(
        "A3 the same by replace, split, match and a sticky flag",
        "() => { const s = 'a'.repeat(40) + '!'; s.replace(/(a|aa)+$/g, ''); s.split(/(a|a)+$/); s.match(/(a*)*$/y) }",
        Short,
        &[Timeout],
    ),
    Attack::new(
        "A10 a wait for shared memory: there is none",
        "() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)",
        Long,
        &[Thrown("is not defined")],
    ),
    // Here: memory, since each promise of the chain waits for the next; where there is more memory, time.
    Attack::new(
        "A11 a chain of promises without end",
        "() => Promise.resolve().then(function g() { return Promise.resolve().then(g) })",
        Short,
        &[Timeout, Memory],
    ),
    Attack::new(
        "A11 a microtask that queues itself",
        "() => new Promise(() => queueMicrotask(function g() { queueMicrotask(g) }))",
        Short,
        &[Timeout],
    ),
    Attack::new(
        "A11 a microtask of a promise that queues itself",
        "() => new Promise(() => { const g = () => { Promise.resolve().then(g) }; g() })",
        Short,
        &[Timeout],
    ),
    Attack::new("A12 a promise that nothing settles", "async () => { await new Promise(() => {}) }", Long, &[Stalled]),
    Attack::new("A12 a thenable that never answers", "() => ({ then() {} })", Long, &[Stalled]),
    Attack::new(
        "A12 an async iterator that never gives",
        "async () => { for await (const x of [new Promise(() => {})]); }",
        Long,
        &[Stalled],
    ),
    Attack::new("A13 a timer of 25 days", "() => new Promise(r => setTimeout(r, 25 * 86400e3))", Short, &[Timeout]),
    Attack::new(
        "A13 timers of odd lengths",
        "() => new Promise(r => { for (const ms of [Infinity, 2 ** 53, 1e300]) setTimeout(r, ms) })",
        Short,
        &[Timeout],
    ),
    Attack::new("A13 an interval without end", "() => new Promise(() => setInterval(() => {}, 0))", Short, &[Timeout]),
    Attack::new(
        "A16 catches the end of its time",
        "() => { for (;;) { try { for (;;); } catch {} } }",
        Short,
        &[Timeout],
    ),
    Attack::new("A16 has the last word", "() => { try { for (;;); } finally { for (;;); } }", Short, &[Timeout]),
    Attack::new(
        "A16 catches it as a rejection",
        "async () => { for (;;) await (async () => { for (;;); })().catch(() => {}).finally(() => { for (;;); }) }",
        Short,
        &[Timeout],
    ),
    Attack::new(
        "A16 closes a generator that doesn't close",
        "() => { function* g() { try { yield 1 } finally { for (;;); } } for (;;) { try { for (const x of g()) break } catch {} } }",
        Short,
        &[Timeout],
    ),
    Attack::new(
        "A16 goes on in a timer's callback",
        "() => new Promise(() => setTimeout(() => { for (;;) { try { for (;;); } catch {} } }, 1))",
        Short,
        &[Timeout],
    ),
];
