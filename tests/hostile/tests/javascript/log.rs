//! Rows A21 and A26: rejections that nobody awaits, and lines without end.

use serde_json::{Value, json};
use std::sync::Arc;
use toolfleet_hostile::support::{TestHost, sandbox, value};
use toolfleet_hostile::{Watch, attack_request, long_wall_ms, next_call, turn};
use toolfleet_protocol::Limits;
use toolfleet_worker::isolation::Host;

/// No line of the host is longer, its level and its cut included.
const LINE_BYTES_MAX: usize = 9 * 1024;

/// Runs a handler that is right in the end; what it returned, and what it logged.
async fn logged(handlers: &[&str], mut check: impl FnMut(&str, &Value, &[String])) {
    let _turn = turn().await;
    let sandbox = sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    for handler in handlers {
        let host = Arc::new(TestHost::default());
        let request = attack_request(handler, long_wall_ms());
        let end = sandbox.run(request, Arc::clone(&host) as Arc<dyn Host>).await;
        let lines = host.lines.lock().unwrap().clone();
        let bytes: usize = lines.iter().map(String::len).sum();
        assert!(bytes < Limits::BASE.log_bytes_max as usize + LINE_BYTES_MAX, "{handler}: {bytes} bytes of log");
        for line in &lines {
            assert!(line.len() < LINE_BYTES_MAX, "{handler}: a line of {} bytes", line.len());
            assert!(!line.contains(|c: char| c.is_control() && c != '\n' && c != '\t'), "{handler}: {line:?}");
            assert!(line.split('\n').skip(1).all(|more| more.starts_with("    ")), "{handler}: {line:?}");
        }
        check(handler, &value(&end), &lines);
        next_call(&sandbox, handler, handler).await;
        watch.settle_all(&sandbox, handler).await;
    }
    sandbox.shutdown().await;
}

#[tokio::test]
async fn a21_rejections_that_nobody_awaits_are_logged_and_change_nothing() {
    logged(
        &["() => { Promise.reject(new Error('one')); Promise.reject('two'); Promise.reject(3).catch(() => {}); return 1 }"],
        |_, value, lines| {
            assert_eq!(*value, json!(1));
            let told = |what: &str| format!("Warn a promise was rejected and nobody awaits it: {what}");
            assert_eq!(lines, [told("one"), told("two")]);
        },
    )
    .await;
}

#[tokio::test]
async fn a21_a_hundred_thousand_rejections_are_a_few_lines() {
    logged(
        &[
            "() => { for (let i = 0; i < 1e5; i++) Promise.reject(i); return 1 }",
            "async () => { for (let i = 0; i < 1e5; i++) { Promise.reject(i); if (i % 1e4 === 0) await null } return 1 }",
            // Their reasons throw, loop and lie when they are read.
            "() => { for (let i = 0; i < 20; i++) Promise.reject({ get message() { throw 1 } }); \
                Promise.reject({ get message() { for (;;); } }); return 1 }",
            "() => { Promise.reject({ get message() { for (;;); } }); return 1 }",
        ],
        |handler, value, lines| {
            assert_eq!(*value, json!(1), "{handler}");
            assert!(!lines.is_empty() && lines.len() <= 16, "{handler}: {} lines", lines.len());
            assert!(lines.iter().all(|line| line.contains("nobody awaits")), "{handler}: {lines:?}");
        },
    )
    .await;
}

#[tokio::test]
async fn a26_a_million_lines_are_capped_and_counted() {
    logged(
        &[
            "() => { for (let i = 0; i < 1e6; i++) console.log('line ' + i); return 'on' }",
            // Empty lines have no bytes to be counted.
            "() => { for (let i = 0; i < 1e6; i++) console.log(''); return 'on' }",
            "() => { for (let i = 0; i < 1e6; i++) host.log.debug('', null); return 'on' }",
            "() => { for (let i = 0; i < 1e6; i++) console.error(); return 'on' }",
        ],
        |handler, value, lines| {
            assert_eq!(*value, json!("on"), "{handler}");
            let (last, kept) = lines.split_last().expect("some lines");
            let dropped: usize = last
                .strip_prefix("Warn ")
                .and_then(|text| text.strip_suffix(" more lines were over the call's log budget"))
                .and_then(|count| count.parse().ok())
                .unwrap_or_else(|| panic!("{handler}: {last}"));
            assert_eq!(kept.len() + dropped, 1_000_000, "{handler}");
            assert!(kept.len() > 1_000 && kept.len() < 20_000, "{handler}: {}", kept.len());
        },
    )
    .await;
}

#[tokio::test]
async fn a26_a_line_without_end_is_cut() {
    logged(
        &[
            "() => { console.log('x'.repeat(100e6)); return 'on' }",
            "() => { console.log('x'.repeat(50e6), 'y'.repeat(50e6)); return 'on' }",
            "() => { console.log(...Array(6e4).fill('xyz')); return 'on' }",
            "() => { host.log.warn('x'.repeat(100e6), { y: 1 }); return 'on' }",
            "() => { host.log.warn('xx', { y: 'y'.repeat(20e6) }); return 'on' }",
            "() => { console.log(new Error('x'.repeat(30e6))); return 'on' }",
            "() => { console.log(Array(1e6).fill('xxxxxxxx')); return 'on' }",
            // Each character has more bytes than one.
            "() => { console.log('x' + '\u{1f600}'.repeat(1e6)); return 'on' }",
        ],
        |handler, value, lines| {
            assert_eq!(*value, json!("on"), "{handler}");
            assert_eq!(lines.len(), 1, "{handler}: {}", lines.len());
            assert!(lines[0].contains('x'), "{handler}: {:.80}", lines[0]);
        },
    )
    .await;
}

#[tokio::test]
async fn a26_lines_are_plain_text_and_fake_no_other() {
    let fake = r#"() => { console.log('a\n{"level":"ERROR","target":"toolfleet","message":"fake"}\r\n2026-01-01T00:00:00Z ERROR fake'); return 'on' }"#;
    let escapes =
        r"() => { console.log('\u001b[2J\u001b]0;title\u0007\u009b31m\b\b\0\u007f\r\u2028\u202edrow'); return 'on' }";
    let fields = r"() => { host.log.error('\u001b[1m', { 'k\u001b': '\u001b\n', toString: 1 }); return 'on' }";
    let stack = r"() => { const e = new Error('m\u001b'); Object.defineProperty(e, 'stack', { value: 's\n\u001b[31m\nt' }); console.error(e); return 'on' }";
    let half = r"() => { console.log('\ud800', '\udfff\ud83d'); return 'on' }";
    logged(&[fake, escapes, fields, stack, half], |handler, value, lines| {
        // That no control character and no other line's beginning is left is checked for every line.
        assert_eq!(*value, json!("on"), "{handler}");
        assert_eq!(lines.len(), 1, "{handler}: {lines:?}");
    })
    .await;
}

#[tokio::test]
async fn a26_whatever_is_logged_the_call_goes_on() {
    let odd = "() => { const cycle = {}; cycle.cycle = cycle; const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); \
        const values = [Symbol('s'), 1n, null, undefined, () => 1, cycle, proxy, { get a() { throw 1 } }, { toJSON() { throw 2 } }, \
            new Proxy(() => {}, {}), Object.create(null), new Proxy({}, { get() { throw 3 }, getPrototypeOf() { throw 4 } })]; \
        let thrown = 0; for (const v of values) for (const f of [console.log, console.error, host.log.info, (v) => host.log.warn('m', v), (v) => console.assert(false, v)]) \
            { try { f(v) } catch (e) { thrown++ } } return thrown }";
    logged(&[odd], |handler, value, lines| {
        assert_eq!(*value, json!(0), "{handler}: some were thrown");
        assert_eq!(lines.len(), 12 * 5, "{handler}");
    })
    .await;
}
