//! Row A14: too many timers, host calls and arguments.

use serde_json::json;
use std::sync::Arc;
use toolfleet_hostile::support::{TestHost, failure, sandbox, value};
use toolfleet_hostile::{Watch, attack_request, long_wall_ms, next_call, turn};
use toolfleet_protocol::FailureKind;

/// Each handler's value, with the number of host calls that reached the worker.
async fn check(cases: &[(&str, serde_json::Value, u64)]) {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    for (handler, expected, host_calls) in cases {
        let mut request = attack_request(handler, long_wall_ms());
        request.limits.host_calls_max = 2_000;
        let end = sandbox.run(request, Arc::new(TestHost::default())).await;
        assert_eq!(value(&end), *expected, "{handler}");
        assert_eq!(end.host_calls, *host_calls, "{handler}");
        next_call(&sandbox, handler, handler).await;
        watch.settle_all(&sandbox, handler).await;
    }
    sandbox.shutdown().await;
}

#[tokio::test]
async fn a14_more_timers_than_may_be_are_refused_and_the_call_goes_on() {
    check(&[
        (
            "() => { let n = 0; try { for (; n < 1e6; n++) setTimeout(() => {}, 1e6) } catch (e) { return [n, e.name, e instanceof Error] } }",
            json!([10_000, "LimitError", true]),
            0,
        ),
        (
            "() => { let refused = 0; for (let n = 0; n < 1e6; n++) { try { setInterval(() => {}, 1e6) } catch { refused++ } } return refused }",
            json!(990_000),
            0,
        ),
        // Those that are cleared or have fired make room.
        (
            "async () => { let fired = 0; for (let n = 0; n < 3; n++) { const ids = []; for (let i = 0; i < 10000; i++) ids.push(setTimeout(() => fired++, 0)); \
                for (let i = 0; i < 5000; i++) { clearTimeout(ids[i]); clearTimeout(ids[i]) } \
                while (fired < 5000 * (n + 1)) await new Promise(r => { try { setTimeout(r, 1) } catch { r() } }) } return fired }",
            json!(15_000),
            0,
        ),
        ("() => { clearTimeout(); clearInterval({}); clearTimeout(-1); clearTimeout(2 ** 40); clearTimeout(Symbol()); return 1 }", json!(1), 0),
        (
            "() => ['x', null, {}, 5].map(f => { try { setTimeout(f, 0) } catch (e) { return e.name } })",
            json!(["TypeError", "TypeError", "TypeError", "TypeError"]),
            0,
        ),
    ])
    .await;
}

#[tokio::test]
async fn a14_more_host_calls_than_may_be_are_refused_and_the_call_goes_on() {
    check(&[
        (
            "() => { let refused = 0; for (let i = 0; i < 1e5; i++) host.settings.get('k').catch(e => { refused += e.name === 'LimitError' }); \
                return new Promise(r => setTimeout(() => r(refused), 1)) }",
            json!(99_744),
            256,
        ),
        ("() => { for (let i = 0; i < 1e5; i++) host.settings.get('k'); return 'on' }", json!("on"), 256),
        (
            "async () => { const all = await Promise.allSettled(Array.from({ length: 1000 }, (_, i) => host.settings.get('k' + i))); \
                const good = all.filter((one, i) => one.value === 'k' + i).length; return [good, all.length - good, await host.settings.get('next')] }",
            json!([256, 744, "next"]),
            257,
        ),
        (
            "async () => { let n = 0; try { for (; n < 1e6; n++) await host.settings.get('k') } catch (e) { return [n, e.name, e.message] } }",
            json!([2_000, "LimitError", "a call may make at most 2000 host calls"]),
            2_000,
        ),
    ])
    .await;
}

#[tokio::test]
async fn a14_arguments_that_cannot_be_sent_are_refused_and_the_call_goes_on() {
    let tried = "async (...all) => { const told = []; for (const make of MAKE) { try { await host.settings.get(make()); told.push('sent') } \
        catch (e) { told.push(e.name) } } return [told, await host.settings.get('next')] }";
    let make = "[() => 'x'.repeat(9e6), () => 'ü'.repeat(6e6), () => Array(1e6).fill('x'.repeat(60)), () => 'x'.repeat(90e6), () => 1n, \
        () => { const a = {}; a.a = a; return a }, () => ({ toJSON() { throw new Error('mine') } }), () => new Proxy({}, { ownKeys() { throw 1 } }), \
        () => { let o = []; for (let i = 0; i < 1e5; i++) o = [o]; return o }]";
    let handler = tried.replace("MAKE", make);
    check(&[(
        &handler,
        json!([
            [
                "LimitError",
                "LimitError",
                "LimitError",
                // There is no memory to write it down.
                "InternalError",
                "TypeError",
                "TypeError",
                "TypeError",
                "TypeError",
                "TypeError"
            ],
            "next"
        ]),
        1,
    )])
    .await;
}

#[tokio::test]
async fn a14_a_limit_that_nobody_catches_ends_the_call_as_thrown() {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    for handler in [
        "() => { for (;;) setTimeout(() => {}, 1e6) }",
        "() => Promise.all(Array.from({ length: 1000 }, () => host.settings.get('k')))",
    ] {
        let end = sandbox.run(attack_request(handler, long_wall_ms()), Arc::new(TestHost::default())).await;
        let error = failure(&end);
        assert_eq!(
            (error.kind, error.name.as_deref()),
            (FailureKind::Thrown, Some("LimitError")),
            "{handler}: {error:?}"
        );
        next_call(&sandbox, handler, handler).await;
        watch.settle_all(&sandbox, handler).await;
    }
    sandbox.shutdown().await;
}
