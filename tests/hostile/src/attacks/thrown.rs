//! Row A20: what is thrown, however odd it is, is told in useful words. A25: code of its own making.

use crate::Attack;
use crate::Expected::{Thrown, Value};
use crate::Wall::Long;

/// Read with a time limit of its own, far shorter than any call's.
const UNREADABLE: &[crate::Expected] = &[Thrown("takes too long to read")];

pub const THROWN: &[Attack] = &[
    Attack::new("A20 a text", "() => { throw 'only text' }", Long, &[Thrown("only text")]),
    Attack::new("A20 null", "() => { throw null }", Long, &[Thrown("null was thrown")]),
    Attack::new("A20 undefined", "async () => { throw undefined }", Long, &[Thrown("undefined was thrown")]),
    Attack::new("A20 a number, a big one, a symbol", "() => Promise.reject(12n ** 3n)", Long, &[Thrown("1728")]),
    Attack::new("A20 a symbol", "() => { throw Symbol('s') }", Long, &[Thrown("a symbol was thrown")]),
    Attack::new("A20 a function", "() => { throw function named() {} }", Long, &[Thrown("named")]),
    Attack::new("A20 an object without a message", "() => { throw { code: 7 } }", Long, &[Thrown("{\"code\":7}")]),
    Attack::new(
        "A20 an object with nothing at all",
        "() => { const a = Object.create(null); a.a = a; throw a }",
        Long,
        &[Thrown("an object without a message")],
    ),
    Attack::new("A20 an empty message", "() => { throw new RangeError('') }", Long, &[Thrown("RangeError")]),
    Attack::new(
        "A20 messages that are no texts",
        "() => { throw Object.defineProperties(new Error('x'), { message: { value: { a: 1 } }, stack: { value: 5 }, name: { value: [] } }) }",
        Long,
        &[Thrown("an object without a message")],
    ),
    Attack::new(
        "A20 a message that throws",
        "() => { throw { get message() { throw 1 }, name: 'Mine' } }",
        Long,
        &[Thrown("Mine")],
    ),
    Attack::new(
        "A20 a stack that throws",
        "() => { throw Object.defineProperty(new Error('told'), 'stack', { get() { throw 1 } }) }",
        Long,
        &[Thrown("told")],
    ),
    Attack::new(
        "A20 a name that throws",
        "() => { throw Object.defineProperty(new Error('told'), 'name', { get() { throw 1 } }) }",
        Long,
        &[Thrown("told")],
    ),
    Attack::new(
        "A20 everything throws",
        "() => { throw new Proxy({}, { get() { throw 1 }, getOwnPropertyDescriptor() { throw 2 }, getPrototypeOf() { throw 3 }, ownKeys() { throw 4 } }) }",
        Long,
        &[Thrown("an object without a message")],
    ),
    Attack::new("A20 a message that loops", "() => { throw { get message() { for (;;); } } }", Long, UNREADABLE),
    Attack::new(
        "A20 a stack that loops",
        "() => { throw Object.defineProperty(new Error('told'), 'stack', { get() { for (;;); } }) }",
        Long,
        UNREADABLE,
    ),
    Attack::new(
        "A20 a name that loops",
        "() => { throw Object.defineProperty(new Error('told'), 'name', { get() { for (;;) { try { for (;;); } catch {} } } }) }",
        Long,
        UNREADABLE,
    ),
    Attack::new("A20 a toJSON that loops", "() => { throw { toJSON() { for (;;); } } }", Long, UNREADABLE),
    Attack::new(
        "A20 many at once",
        "() => Promise.any([Promise.reject(new Error('one')), Promise.reject('two')])",
        Long,
        &[Thrown("one")],
    ),
    Attack::new(
        "A20 many at once, all of them",
        "() => { throw new AggregateError([new Error('one'), { get message() { throw 1 } }, null], 'all') }",
        Long,
        &[Thrown("all [1] one [2]")],
    ),
    Attack::new(
        "A20 a hundred thousand at once",
        "() => { throw new AggregateError(Array.from({ length: 1e5 }, (_, i) => new Error('e' + i)), 'all') }",
        Long,
        &[Thrown("all [1] e0")],
    ),
    Attack::new(
        "A20 a cause with a cause",
        "() => { throw new Error('top', { cause: new Error('middle', { cause: 'bottom' }) }) }",
        Long,
        &[Thrown("top (cause: middle (cause: bottom))")],
    ),
    Attack::new(
        "A20 a cause that is itself",
        "() => { const e = new Error('round'); e.cause = e; throw e }",
        Long,
        &[Thrown("round (cause: round")],
    ),
    Attack::new(
        "A20 a chain of a hundred thousand causes",
        "() => { let e = new Error('last'); for (let i = 0; i < 1e5; i++) e = new Error('c' + i, { cause: e }); throw e }",
        Long,
        &[Thrown("c99999 (cause: c99998")],
    ),
    Attack::new("A20 a message of 20 MB", "() => { throw new Error('long'.repeat(5e6)) }", Long, &[Thrown("longlong")]),
    Attack::new(
        "A20 a message of odd characters",
        "() => { throw new Error('\\ud800\\0\\u001b[31m') }",
        Long,
        &[Thrown("[31m")],
    ),
    // Own code runs with no more rights.
    Attack::new(
        "A25 eval",
        "() => eval('typeof host.fetch + typeof require + typeof process + typeof std + typeof os')",
        Long,
        &[Value("\"functionundefinedundefinedundefinedundefined\"")],
    ),
    Attack::new(
        "A25 a function out of text",
        "() => new Function('return typeof native + typeof kit + typeof run + this.tools.t.description')()",
        Long,
        &[Value("\"undefinedundefinedundefinedd\"")],
    ),
    Attack::new(
        "A25 functions of every kind out of text",
        "async () => { const f = [async () => {}, function* () {}, async function* () {}].map(f => f.constructor); \
            return [await f[0]('return typeof native')(), f[1]('yield typeof native')().next().value, (await f[2]('yield typeof native')().next()).value] }",
        Long,
        &[Value("[\"undefined\",\"undefined\",\"undefined\"]")],
    ),
    Attack::new("A25 a file that isn't there", "() => import('./x.js')", Long, &[Thrown("./x.js")]),
    Attack::new("A25 a file of the machine", "() => import('/etc/passwd')", Long, &[Thrown("/etc/passwd")]),
    Attack::new("A25 a URL", "() => import('https://example.com/x.js')", Long, &[Thrown("https://example.com/x.js")]),
    Attack::new("A25 data as code", "() => import('data:text/javascript,export default 1')", Long, &[Thrown("data:")]),
    Attack::new(
        "A25 modules of the engine's own program",
        "async () => { let got = 0; for (const m of ['std', 'os', 'qjs:std', 'qjs:os', 'bjson', 'node:fs', '../../../../etc/passwd', 'file:///etc/passwd', '']) await import(m).then(() => got++, () => 0); return got }",
        Long,
        &[Value("0")],
    ),
    Attack::new("A25 an import out of eval", "() => (0, eval)(\"import('./a.js')\")", Long, &[Thrown("./a.js")]),
    Attack::new(
        "A25 an import with attributes",
        "() => import('./a.js', { with: { type: 'json' } })",
        Long,
        &[Thrown("")],
    ),
];
