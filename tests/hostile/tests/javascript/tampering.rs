//! Rows A22 and A23: a plugin that replaces the language under the platform's feet hurts itself alone.

use serde_json::json;
use std::sync::Arc;
use toolfleet_hostile::support::{TestHost, failure, sandbox, value};
use toolfleet_hostile::{Watch, attack_request, long_wall_ms, next_call, turn};
use toolfleet_protocol::{FailureKind, Outcome};
use toolfleet_worker::isolation::Host;

/// Done before the platform is used. None of these touches what the language itself lets decide a promise's or a
/// value's meaning (`then`, `toJSON`): those follow by themselves.
const TAMPERINGS: &[&str] = &[
    "globalThis.JSON = null",
    "JSON.stringify = JSON.parse = () => { throw 'json' }",
    "globalThis.Promise = globalThis.Map = globalThis.Error = globalThis.TypeError = globalThis.Reflect = globalThis.Object = null",
    "delete globalThis.Promise; delete globalThis.Map; delete globalThis.Error; delete globalThis.Uint8Array",
    "Promise.prototype.then = Promise.prototype.catch = Promise.prototype.finally = () => { throw 'then' }",
    "Promise.resolve = Promise.reject = Promise.all = () => { throw 'promise' }",
    "Promise.prototype.constructor = function () { throw 'constructor' }; Object.defineProperty(Promise, Symbol.species, { get() { throw 'species' } })",
    "for (const name of Object.getOwnPropertyNames(Array.prototype)) if (name !== 'length') Array.prototype[name] = () => { throw name }",
    "Array.prototype[Symbol.iterator] = () => { throw 'iterator' }; Object.getPrototypeOf([][Symbol.iterator]).next = () => { throw 'next' }",
    "Object.setPrototypeOf(Array.prototype, new Proxy({}, { get() { throw 'get' }, set() { throw 'set' }, has() { throw 'has' } }))",
    "for (const o of [Map.prototype, Set.prototype, String.prototype, Symbol.prototype, Number.prototype, RegExp.prototype, Date.prototype]) \
        for (const name of Object.getOwnPropertyNames(o)) { try { Object.defineProperty(o, name, { value() { throw name } }) } catch {} }",
    "for (const name of ['call', 'apply', 'bind', 'toString']) Function.prototype[name] = () => { throw name }",
    "const names = Object.getOwnPropertyNames; for (const o of [Reflect, Object, Math, Number, String, Symbol]) for (const name of names(o)) { try { if (typeof o[name] === 'function') o[name] = () => { throw name } } catch {} }",
    "for (const name of ['value', 'get', 'set', 'name', 'message', 'stack', 'kind', 'resolve', 'reject', 'callback', 'values', 'every', 'limits', 'writable', 'enumerable', 'cause', 'errors', 'configurable', 'path', 'number', 'loading', 'hostCallsMax', 'code', 'handler']) \
        Object.defineProperty(Object.prototype, name, { __proto__: null, get() { throw 'read ' + name }, set() { throw 'write ' + name } })",
    "for (const name of ['value', 'get', 'set', 'cause', 'errors', 'stack', 'message']) Object.prototype[name] = 'inherited'",
    "Error.prototype.name = 5; Error.prototype.message = {}; Error.prototype.toString = () => { throw 1 }; Error.captureStackTrace = null",
    "Error.stackTraceLimit = { valueOf() { for (;;); } }; Error.prepareStackTrace = () => { throw 'prepare' }",
    "Error.stackTraceLimit = 0; Object.defineProperty(Error, 'stackTraceLimit', { get() { for (;;); } })",
    "Object.defineProperty(Error, Symbol.hasInstance, { value: () => { throw 'instance' } })",
    "Object.setPrototypeOf(Function.prototype, null)",
    "Object.setPrototypeOf(globalThis, null)",
    "Object.setPrototypeOf(Promise.prototype, new Proxy({}, { get() { throw 'get' } }))",
    "Object.freeze(globalThis); Object.freeze(Object.prototype); Object.freeze(Promise); Object.freeze(Error.prototype)",
    "globalThis.tools = null; globalThis.console = null; globalThis.setTimeout = null; globalThis.queueMicrotask = null",
    "try { globalThis.host = {} } catch {} try { delete globalThis.host } catch {} try { Object.defineProperty(globalThis, 'host', { value: 1 }) } catch {}",
    "tools.t = null; delete tools.t; Object.defineProperty(globalThis, 'tools', { get() { throw 'tools' } })",
];

/// Takes what it works with first, tampers, and then uses all that a plugin has of the platform.
fn handler(tampering: &str, end: &str) -> String {
    format!(
        "async (input, context) => {{ const {{ parse, stringify }} = JSON, log = console.log; const told = []; \
            {tampering}; \
            const early = host.settings.get('30'); \
            const a = await host.settings.get('k'); \
            host.log.info('told', {{ fields: [1] }}); log('seen', {{ b: 1 }}, 7); \
            let name, message; try {{ await host.session.messages() }} catch (e) {{ name = e.name; message = e.message }} \
            const late = await early; \
            const result = {{ __proto__: null, a, name, message, late, callId: typeof context.callId, initiator: context.initiator.kind, input: input.n }}; \
            {end} }}"
    )
}

#[tokio::test]
async fn a22_result_errors_host_calls_and_context_stay_right() {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    let expected = json!({
        "a": "k", "name": "PermissionError", "message": "no such permission", "late": "30",
        "callId": "string", "initiator": "platform", "input": 1,
    });
    for tampering in TAMPERINGS {
        let code = handler(tampering, "return result");
        let host = Arc::new(TestHost::default());
        let end = sandbox.run(attack_request(&code, long_wall_ms()), Arc::clone(&host) as Arc<dyn Host>).await;
        assert!(matches!(end.outcome, Outcome::Ok { .. }), "{tampering}: {end:?}");
        assert_eq!(value(&end), expected, "{tampering}");
        assert_eq!(*host.lines.lock().unwrap(), ["Info told", "Info seen {\"b\":1} 7"], "{tampering}");

        let code = handler(tampering, "throw { __proto__: null, name: 'Mine', message: result.late + ' mine' }");
        let end = sandbox.run(attack_request(&code, long_wall_ms()), Arc::new(TestHost::default())).await;
        let error = failure(&end);
        assert_eq!((error.kind, error.name.as_deref()), (FailureKind::Thrown, Some("Mine")), "{tampering}: {error:?}");
        assert_eq!(error.message, "30 mine", "{tampering}");

        next_call(&sandbox, &code, tampering).await;
        watch.settle_all(&sandbox, tampering).await;
    }
    sandbox.shutdown().await;
}

#[tokio::test]
async fn a22_what_the_language_lets_decide_decides_for_the_plugins_own_values_alone() {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    for (code, expected) in [
        // Its own objects are written down as it says; what the platform writes isn't asked.
        (
            "async () => { Object.prototype.toJSON = () => 'mine'; return [await host.settings.get('k'), {}] }",
            json!("mine"),
        ),
        (
            "async () => { Array.prototype.toJSON = () => 'mine'; return { a: await host.settings.get('k'), b: [] } }",
            json!({ "a": "k", "b": "mine" }),
        ),
        ("async () => { String.prototype.toJSON = () => 'mine'; return await host.settings.get('k') }", json!("k")),
        // A `then` that every object inherits is the language's own trap: its promises are settled by it.
        ("async () => { Object.prototype.then = function (resolve) { resolve('mine') }; return {} }", json!("mine")),
        // Pending host calls are answered whatever `then` has become.
        (
            "async () => { const a = host.settings.get('20'), b = host.settings.get('10'); \
                const then = Promise.prototype.then; let times = 0; Promise.prototype.then = function (...all) { times++; return Reflect.apply(then, this, all) }; \
                const both = [await b, await a]; return [both, times] }",
            json!([["10", "20"], 0]),
        ),
        // The engine's own writer of JSON meets setters of arrays; what the platform writes doesn't.
        (
            "async () => { for (let i = 0; i < 20; i++) Object.defineProperty(Array.prototype, i, { set() { throw 'index' } }); \
                return await host.settings.get('k') }",
            json!("k"),
        ),
        (
            "async () => { Object.defineProperty(Object.prototype, 'then', { get() { throw new Error('mine') } }); try { return await ({}) } catch (e) { return e.message } }",
            json!("mine"),
        ),
    ] {
        let end = sandbox.run(attack_request(code, long_wall_ms()), Arc::new(TestHost::default())).await;
        assert_eq!(value(&end), expected, "{code}");
        next_call(&sandbox, code, code).await;
        watch.settle_all(&sandbox, code).await;
    }
    sandbox.shutdown().await;
}

#[tokio::test]
async fn a23_the_context_and_the_host_cannot_be_changed() {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    let tried = "async (input, context) => { const before = JSON.stringify(context); let thrown = 0, tried = 0; \
        const walk = (value, seen = []) => { if ((typeof value !== 'object' && typeof value !== 'function') || value === null || seen.includes(value)) return; seen.push(value); \
            for (const key of [...Reflect.ownKeys(value), 'added']) { \
                for (const change of [() => { 'use strict'; value[key] = 'changed' }, () => { 'use strict'; delete value[key] }, \
                    () => Object.defineProperty(value, key, { value: 'changed' }), () => Object.defineProperty(value, key, { get: () => 'changed' }), \
                    () => Object.assign(value, { [key]: 'changed' })]) { \
                    tried++; try { change() } catch { thrown++ } } \
                if (key !== 'added') walk(value[key], seen) } \
            for (const change of [() => Object.setPrototypeOf(value, { changed: 1 }), () => { 'use strict'; value.__proto__ = { changed: 1 } }]) { tried++; try { change() } catch { thrown++ } } \
            if (!Object.isFrozen(value)) thrown = -1e9 }; \
        walk(context); walk(host); \
        const unchanged = JSON.stringify(context) === before && context.changed === undefined && host.changed === undefined && host.session.post.changed === undefined; \
        return [unchanged, thrown > 0, tried - thrown, await host.settings.get('k'), context.initiator.isVerifiedPerson] }";
    // Of what was tried, what didn't throw did nothing: deleting a property that isn't there.
    let end = sandbox.run(attack_request(tried, long_wall_ms()), Arc::new(TestHost::default())).await;
    let told = value(&end);
    assert_eq!(
        (&told[0], &told[1], &told[3], &told[4]),
        (&json!(true), &json!(true), &json!("k"), &json!(false)),
        "{told}"
    );
    next_call(&sandbox, tried, "A23").await;
    watch.settle_all(&sandbox, "A23").await;
    sandbox.shutdown().await;
}
