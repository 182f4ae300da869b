//! Row A24: from what a plugin has, nothing of the platform can be reached but `host` and the other globals.

use serde_json::{Value, json};
use std::sync::Arc;
use toolfleet_hostile::support::{TestHost, sandbox, value};
use toolfleet_hostile::{Watch, attack_request, long_wall_ms, next_call, turn};
use toolfleet_worker::isolation::Host;

async fn run(handler: &str) -> (Value, Vec<String>) {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    let host = Arc::new(TestHost::default());
    let end = sandbox.run(attack_request(handler, long_wall_ms()), Arc::clone(&host) as Arc<dyn Host>).await;
    let told = value(&end);
    next_call(&sandbox, handler, "A24").await;
    watch.settle_all(&sandbox, "A24").await;
    sandbox.shutdown().await;
    let lines = host.lines.lock().unwrap().clone();
    (told, lines)
}

/// What a plugin finds on the global object: a new engine that brings more is noticed here.
const GLOBALS: &str = "\
    AbortController AbortSignal AggregateError Array ArrayBuffer AsyncDisposableStack BigInt BigInt64Array \
    BigUint64Array Boolean DOMException DataView Date DisposableStack Error EvalError FinalizationRegistry \
    Float16Array Float32Array Float64Array Function Infinity Int16Array Int32Array Int8Array InternalError \
    Iterator JSON Map Math NaN Number Object Promise Proxy RangeError ReferenceError Reflect RegExp Set \
    String SuppressedError Symbol SyntaxError TextDecoder TextEncoder TypeError URIError URL URLSearchParams \
    Uint16Array Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakRef WeakSet atob btoa clearInterval \
    clearTimeout console crypto decodeURI decodeURIComponent encodeURI encodeURIComponent escape eval \
    globalThis host isFinite isNaN manifest parseFloat parseInt performance queueMicrotask setInterval \
    setTimeout structuredClone tools undefined unescape";

#[tokio::test]
async fn the_globals_are_those_that_are_meant_to_be() {
    let (told, _) = run(
        "() => Reflect.ownKeys(globalThis).map(String).filter(name => name !== 'Symbol(Symbol.toStringTag)').sort()",
    )
    .await;
    assert_eq!(told, json!(GLOBALS.split_whitespace().collect::<Vec<_>>()));
}

/// Walks all that can be reached by properties, prototypes, getters' and setters' own functions and the insides of maps,
/// from the globals and from what the platform hands out: errors, promises, timers, classes of each kind.
const WALK: &str = "async (input, context) => { \
    const seen = new Set(), queue = [], odd = []; const add = (value, path) => { if ((typeof value === 'object' && value !== null || typeof value === 'function') && !seen.has(value)) { seen.add(value); queue.push([value, path]) } }; \
    const fileOf = Object.getOwnPropertyDescriptor(Function.prototype, 'fileName').get; const drain = () => { while (queue.length) { const [value, path] = queue.shift(); \
        add(Object.getPrototypeOf(value), path + '.__proto__'); \
        for (const key of Reflect.ownKeys(value)) { const d = Object.getOwnPropertyDescriptor(value, key), at = path + '.' + String(key); \
            if ('value' in d) add(d.value, at); else { add(d.get, at + '.get'); add(d.set, at + '.set'); try { add(value[key], at) } catch {} } } \
        if (typeof value === 'function') { const text = Function.prototype.toString.call(value), file = String(fileOf.call(value)); \
            if (file.startsWith('<toolfleet')) { if (!text.includes('[native code]')) odd.push(['source of ' + path, text]); odd.push([path, value.name]) } else if (value.name === '' || /^(send|finish|timerSet|timerClear|reading|wasRefusedMemory|isProxy|utf8Encode)$/.test(value.name)) odd.push([path, 'native ' + value.name]) } } }; add(globalThis, 'globalThis'); drain(); \
    let refused; try { await host.session.messages() } catch (e) { refused = e } \
    let limit; try { host.settings.get(1n) .catch(() => {}); await host.settings.get(1n) } catch (e) { limit = e } \
    const c = new AbortController(); c.signal.addEventListener('abort', e => add(e, 'event')); c.abort(); \
    const u = new URL('https://a.test/?a=b'); \
    const roots = { globalThis, input, context, refused, limit, promise: host.settings.get('k'), u, params: u.searchParams, entries: u.searchParams.entries(), c, any: AbortSignal.any([c.signal]), te: new TextEncoder(), td: new TextDecoder(), \
        gen: (function* () {})(), asyncGen: (async function* () {})(), bytes: crypto.getRandomValues(new Uint8Array(1)), timer: setTimeout(() => {}, 1e6), bound: (() => 1).bind(), args: (function () { return arguments })(), it: [][Symbol.iterator](), wrap: Iterator.from({ next() {} }) }; \
    await new Promise(r => setTimeout(function (...all) { add(this, 'timer.this'); add(all, 'timer.arguments'); r() }, 0, {})); \
    for (const [name, value] of Object.entries(roots)) add(value, name); \
    const frame = (function f() { return f })(); add(frame, 'frame'); \
    drain(); \
    return { count: seen.size, odd: odd.filter(([path]) => !/^(globalThis.tools|input|frame|event|timer.arguments|args|bound|gen|asyncGen|wrap)/.test(path)) } }";

#[tokio::test]
async fn a24_nothing_but_the_facade_can_be_reached_by_walking() {
    let (told, _) = run(WALK).await;
    assert!(told["count"].as_u64().unwrap() > 700, "the walk reached next to nothing: {told}");
    // What isn't the engine's own is a method of a global that the platform gives, by its name.
    let given = [
        "globalThis.host.",
        "globalThis.console.",
        "globalThis.crypto.",
        "globalThis.performance.",
        "globalThis.Math.random",
        "globalThis.setTimeout",
        "globalThis.setInterval",
        "globalThis.clearTimeout",
        "globalThis.queueMicrotask",
        "globalThis.structuredClone",
        "globalThis.atob",
        "globalThis.btoa",
        "globalThis.URL",
        "globalThis.URLSearchParams",
        "globalThis.TextEncoder",
        "globalThis.TextDecoder",
        "globalThis.AbortController",
        "globalThis.AbortSignal",
    ];
    let found_all = told["odd"].as_array().unwrap();
    assert!(found_all.len() > 40, "the platform's own functions were not recognised: {told}");
    for found in found_all {
        let path = found[0].as_str().unwrap();
        // The engine's functions without a name: `Function.prototype` itself, `%ThrowTypeError%`, and the
        // accessors of `Iterator.prototype`.
        let is_engines = found[1] == json!("native ");
        let is_given = given.iter().any(|given| path.starts_with(given));
        assert!(is_given || (is_engines && is_known_nameless(path)), "{found}");
    }
}

fn is_known_nameless(path: &str) -> bool {
    let ends = [".__proto__", "callee.get", "callee.set", "caller.get", "caller.set"];
    ends.iter().any(|end| path.ends_with(end)) || path.starts_with("globalThis.Iterator.prototype.")
}

#[tokio::test]
async fn a24_stacks_hand_out_no_function_and_no_place_of_the_machine() {
    let (told, _) = run("async () => { const sites = []; \
        Error.prepareStackTrace = (e, all) => { sites.push(...all); return 'prepared' }; \
        Object.defineProperty(Error, 'prepareStackTrace', { value: (e, all) => { sites.push(...all) }, configurable: true }); \
        const stacks = [new Error('a').stack]; \
        try { null.x } catch (e) { stacks.push(e.stack) } \
        try { await host.settings.get(1n) } catch (e) { stacks.push(e.stack) } \
        try { new URL('x') } catch (e) { stacks.push(e.stack) } \
        try { eval('(') } catch (e) { stacks.push(e.stack) } \
        const o = {}; Error.captureStackTrace(o); stacks.push(o.stack); \
        await new Promise(r => setTimeout(() => { stacks.push(new Error('t').stack); r() })); \
        return { sites: sites.length, stacks: stacks.map(String) } }")
    .await;
    assert_eq!(told["sites"], 0, "{told}");
    for stack in told["stacks"].as_array().unwrap() {
        let stack = stack.as_str().unwrap();
        assert!(!stack.contains("prepared") && !stack.is_empty(), "{stack}");
        for place in [".rs", "/work", "/root", "/home", "target/", "src/"] {
            assert!(!stack.contains(place), "{stack}");
        }
    }
}

#[tokio::test]
async fn a24_callers_and_arguments_of_the_platforms_functions_are_out_of_reach() {
    let (told, _) = run("() => { const got = []; const look = f => { try { const v = f(); if (v !== null && v !== undefined) got.push(typeof v) } catch {} }; \
        function sloppy() { look(() => sloppy.caller); look(() => sloppy.arguments && sloppy.arguments.callee.caller); look(() => arguments.callee.caller); look(() => this.native); look(() => this.kit) } \
        const o = { toJSON() { sloppy(); return 'k' }, toString() { sloppy(); return 'k' }, get message() { sloppy(); return 'm' } }; \
        console.log(o); host.log.info(o, o); host.settings.get(o).catch(() => {}); setTimeout(sloppy, 0); queueMicrotask(sloppy); new URLSearchParams(o); new URL('https://a.test/' + o); `${o}`; \
        for (const f of [host.fetch, host.settings.get, host.log.info, console.log, setTimeout, structuredClone, Math.random]) { \
            look(() => f.caller); look(() => f.arguments); look(() => f.prototype); look(() => new f()); look(() => f.native); \
            look(() => f.constructor('return typeof native + typeof kit + typeof state + typeof waiting')() !== 'undefinedundefinedundefinedundefined' || undefined) } \
        return new Promise(r => setTimeout(() => r(got), 5)) }")
    .await;
    assert_eq!(told, json!([]));
}

/// Every function of the language that can be replaced is, by one that tells of its being called while the platform
/// is at work; and everything that could be inherited tells of its being read.
const TRAPS: &str = "const traps = []; const at = []; let inside = false, busy = false; \
    const { apply, ownKeys, getOwnPropertyDescriptor, defineProperty, getPrototypeOf } = Reflect; \
    const note = (name) => { if (inside && !busy) { busy = true; at[at.length] = name; busy = false } }; \
    const seen = new Set(), queue = [[globalThis, '']]; const own = new Set([tools, host, console, globalThis.manifest, crypto, performance, ...[TextEncoder, TextDecoder, URL, URLSearchParams, AbortController, AbortSignal].flatMap(c => [c, c.prototype])]); const random = Math.random; \
    const roots = [globalThis, (function* () {})(), (async function* () {})(), [][Symbol.iterator](), new Map()[Symbol.iterator](), new Set()[Symbol.iterator](), ''[Symbol.iterator](), (async () => {}), /a/g[Symbol.matchAll]('')]; \
    const visit = (object, path) => { if (seen.has(object) || own.has(object)) return; seen.add(object); \
        const prototype = getPrototypeOf(object); if (prototype !== null) visit(prototype, path + '.__proto__'); \
        for (const key of ownKeys(object)) { const d = getOwnPropertyDescriptor(object, key), name = path + '.' + String(key); \
            if (d.value !== null && (typeof d.value === 'object' || typeof d.value === 'function')) visit(d.value, name); \
            if (key === 'toJSON' || key === 'then' || key === 'constructor' || key === 'prototype' || key === 'globalThis' || !d.configurable || path === '' ) continue; \
            if (typeof d.value === 'function') { const f = d.value; defineProperty(object, key, { __proto__: null, value: function (...all) { note(name); return new.target ? Reflect.construct(f, all, new.target === this ? f : new.target) : apply(f, this, all) } }) } \
            else if (d.get) { const get = d.get; defineProperty(object, key, { __proto__: null, get() { note('get ' + name); return apply(get, this, []) } }) } } }; \
    for (const root of roots) visit(root, ''); \
    for (const name of ['value', 'get', 'set', 'name', 'message', 'kind', 'resolve', 'reject', 'callback', 'values', 'every', 'limits', 'writable', 'cause', 'errors', 'level', 'path', 'number', 'loading', 'state', 'code', 'stack']) \
        if (!Object.hasOwn(Object.prototype, name)) defineProperty(Object.prototype, name, { __proto__: null, get() { note('inherited ' + name) }, set(v) { note('inherited ' + name); defineProperty(this, name, { __proto__: null, value: v, writable: true, configurable: true, enumerable: true }) }, configurable: true }); \
    for (let i = 0; i < 8; i++) defineProperty(Array.prototype, i, { __proto__: null, get() { note('hole ' + i) }, set(v) { note('index ' + i); defineProperty(this, i, { __proto__: null, value: v, writable: true, configurable: true, enumerable: true }) }, configurable: true }); \
    const platform = (what, f) => { at[at.length] = what; inside = true; try { return f() } finally { inside = false } };";

#[tokio::test]
async fn a24_nothing_that_a_plugin_can_replace_is_called_or_read_by_the_platform() {
    let handler = format!(
        "async () => {{ {TRAPS} const error = new Error('e'), fields = {{ a: [1, {{ b: 2 }}] }}, view = new Uint8Array(4); \
            const uuid = crypto.randomUUID, fill = crypto.getRandomValues, later = setTimeout, soon = queueMicrotask, log = console.log, clear = clearTimeout, clone = structuredClone; \
            const pending = platform('get', () => host.settings.get('10')); \
            platform('refused', () => host.session.messages(fields, 1)).catch(() => {{}}); \
            platform('unsendable', () => host.settings.get(1n)).catch(() => {{}}); \
            platform('log', () => host.log.info('m', fields)); \
            platform('console', () => log('m', 1, fields, null, Symbol.iterator, log)); \
            platform('assert', () => console.assert(false, 'a', 1)); \
            platform('random', () => random()); platform('uuid', () => uuid()); platform('fill', () => fill(view)); \
            platform('now', () => performance.now()); \
            platform('clone', () => clone(fields)); platform('clone bytes', () => clone(view)); \
            platform('base64', () => atob(btoa('abc'))); \
            const timer = platform('timer', () => later(() => {{}}, 1e6)); platform('clear', () => clear(timer)); \
            platform('microtask', () => soon(() => {{}})); \
            platform('encode', () => new TextEncoder().encode('é')); platform('decode', () => new TextDecoder().decode(view)); \
            platform('url', () => new URL('/a?b=c', 'https://a.test').searchParams.get('b')); \
            platform('params', () => {{ const p = new URLSearchParams('a=1&b=2&a=3'); p.append('c', 4); p.set('a', 5); p.sort(); p.delete('b'); return p.getAll('a').length + p.toString() }}); \
            platform('abort', () => {{ const c = new AbortController(); c.signal.addEventListener('abort', () => {{}}); c.abort(); return c.signal.aborted }}); \
            inside = true; const answer = await pending; const waited = await new Promise(r => later(r, 1, 'w')); inside = false; \
            return [answer, waited, at.length, at] }}"
    );
    let (told, lines) = run(&handler).await;
    assert_eq!((&told[0], &told[1]), (&json!("10"), &json!("w")), "{told}");
    let names: Vec<&str> = told[3].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    // While the engine writes a plugin's own objects as JSON it keeps these in an array that a setter can look into:
    // there is nothing else in it.
    let is_trap = |name: &str| (name.contains('.') || name.contains(' ')) && !name.starts_with("index ");
    let called: Vec<&&str> = names.iter().filter(|name| is_trap(name)).collect();
    // 'clone bytes' is the one step whose name has a space.
    assert_eq!(called, [&"clone bytes"], "the platform used what a plugin replaced");
    assert_eq!(lines.len(), 3, "{lines:?}");
}
