//! Which permissions follow from which source, or why they can't be told.

use crate::{brief, plugin};
use toolfleet_plugin::build;

/// `expected`: permissions by their identifiers, or problems as `code file:line:column`, with spaces between.
fn check_files(list: &[(&str, &str)], expected: &[&str]) {
    let shown = list.iter().map(|(path, text)| format!("// {path}\n{text}")).collect::<Vec<_>>().join("\n");
    let found: Vec<String> = match build(&plugin(list)) {
        Ok(draft) => draft.permissions.iter().map(|permission| permission.id().to_owned()).collect(),
        Err(problems) => problems.iter().map(brief).collect(),
    };
    assert_eq!(found, expected, "\n{shown}");
}

fn check(text: &str, expected: &[&str]) {
    check_files(&[("src/index.ts", text)], expected);
}

const READ: &str = "host:workspace:read";
const WRITE: &str = "host:workspace:write";
const POST: &str = "host:session:post";
const MESSAGES: &str = "host:session:read";

#[test]
fn every_way_to_name_a_method_counts() {
    for (text, expected) in [
        // Members.
        ("host.workspace.write({})", &[WRITE][..]),
        ("host.workspace!.write({})", &[WRITE]),
        ("host.workspace?.write({})", &[WRITE]),
        ("host?.workspace?.write?.({})", &[WRITE]),
        ("(host as any).workspace.write({})", &[WRITE]),
        ("(<any>host).workspace.write({})", &[WRITE]),
        ("(host.workspace satisfies any).write({})", &[WRITE]),
        ("((host).workspace).write({})", &[WRITE]),
        ("(0, host.workspace).write({})", &[WRITE]),
        ("globalThis.host.workspace.write({})", &[WRITE]),
        ("globalThis['host'].workspace.write({})", &[WRITE]),
        ("globalThis.globalThis.host.workspace.write({})", &[WRITE]),
        ("(globalThis as any).host.session.post({})", &[POST]),
        // Computed.
        ("host['workspace']['write']({})", &[WRITE]),
        ("host[`workspace`].write({})", &[WRITE]),
        ("host['work' + 'space'].write({})", &[WRITE]),
        ("const N = 'space'; host[`work${N}`].write({})", &[WRITE]),
        ("const M = 'write' as const; host.workspace[M]({})", &[WRITE]),
        ("host.workspace[Math.random() > 0.5 ? 'read' : 'write']({})", &[READ, WRITE]),
        // Destructuring.
        ("const { workspace } = host; workspace.write({})", &[WRITE]),
        ("const { workspace: files } = host; files!.write({})", &[WRITE]),
        ("const { workspace: { write } } = host; write({})", &[WRITE]),
        ("const { workspace: { write: w = null } = {} } = host as any; w({})", &[WRITE]),
        ("const { ['workspace']: files } = host; files.write({})", &[WRITE]),
        ("const { fetch, ...rest } = host; rest.workspace.write({})", &[WRITE]),
        ("const { host: { session } } = globalThis as any; session.post({})", &[POST]),
        ("let write; ({ write } = host.workspace); write({})", &[WRITE]),
        ("let w; ({ workspace: { write: w } } = host); w({})", &[WRITE]),
        ("let { x = host.workspace } = {} as any; x.write({})", &[WRITE]),
        // Aliases.
        ("const h = host; h.workspace.write({})", &[WRITE]),
        ("const h = host; const { session } = h; const s = session; s.post({})", &[POST]),
        ("let w; w = host.workspace; w.write({})", &[WRITE]),
        ("let w; w ??= host.workspace; w.write({})", &[WRITE]),
        ("const g = globalThis; g.host.session.post({})", &[POST]),
        ("const ws = host.workspace ?? null; ws?.write({})", &[WRITE]),
        ("const ws = true ? host.workspace : undefined; ws!.write({})", &[WRITE]),
        ("const ws = host.session && host.workspace; ws!.write({})", &[WRITE]),
        ("const write = host.workspace.write; write({})", &[WRITE]),
        ("const api = { write: host.workspace.write }; api.write({})", &[WRITE]),
        ("[1].map(host.workspace.write)", &[WRITE]),
        ("host.workspace.write.call(null, {})", &[WRITE]),
        ("host.workspace.write.bind(host.workspace, {})", &["host-unseen src/index.ts:1:27"]),
        // Functions.
        ("function save(ws: any) { return ws.write({}) } save(host.workspace)", &[WRITE]),
        ("const save = (h) => h.workspace.write({}); save(host)", &[WRITE]),
        ("const save = ({ workspace }) => workspace.write({}); save(host)", &[WRITE]),
        ("function save(x, h = host) { return h.workspace.write({}) } save(1)", &[WRITE]),
        ("((h) => h.session.post({}))(host)", &[POST]),
        ("function files() { if (!host.workspace) throw 1; return host.workspace; } files().write({})", &[WRITE]),
        ("const files = () => host.workspace!; files().write({})", &[WRITE]),
        ("async function files() { return host.workspace; } (await files()).write({}); export {}", &[WRITE]),
        // Several.
        ("host.session.messages({}); host.session.post({}); host.workspace.list()", &[MESSAGES, POST, READ]),
        ("globalThis.tools.x = { description: 'x', handler: () => host.workspace!.stat({}) } as any", &[READ]),
        ("declare const host: any; host.workspace.write({})", &[WRITE]),
    ] {
        check(text, expected);
    }
}

#[test]
fn what_asks_for_nothing_derives_nothing() {
    for text in [
        "host.fetch({ url: 'https://a.test' }); host.log.info('x'); host.settings.get(); host.crypto.randomUUID()",
        "typeof host",
        "if (host.workspace) { console.log('there') }",
        "const can = Boolean(host.workspace) && !!host.session",
        "'workspace' in host",
        "host.workspace === undefined",
        "for (const name in host.workspace) console.log(name)",
        "console.log(host.workspace); Object.keys(host)",
        "type Files = typeof host.workspace",
        "let ws: typeof host.workspace",
        // Not the API: names that only look like it.
        "const host = { workspace: { write() {} } }; host.workspace.write(); export {}",
        "function f(host) { return host.workspace.write({}) } f({})",
        "const x = { host: { workspace: { write() {} } } }; x.host.workspace.write()",
        "const s = 'host.workspace.write()'; // host.workspace.write()",
        "class host { static workspace = 1 } export {}",
    ] {
        check(text, &[]);
    }
}

#[test]
fn what_cannot_be_told_is_named_with_its_place() {
    for (text, expected) in [
        ("const n = input(); host[n]();", &["host-dynamic src/index.ts:1:25"][..]),
        ("for (const m of ['read', 'list'])\n  host.workspace[m]({});", &["host-dynamic src/index.ts:2:18"]),
        ("let m = 'write'; host.workspace[m]({})", &["host-dynamic src/index.ts:1:33"]),
        ("const { [key()]: x } = host", &["host-dynamic src/index.ts:1:10"]),
        ("const api = { host };", &["host-unseen src/index.ts:1:15"]),
        ("const api = { ...host.session };", &["host-unseen src/index.ts:1:18"]),
        ("const list = [host.workspace];", &["host-unseen src/index.ts:1:15"]),
        ("unknown(host.workspace)", &["host-unseen src/index.ts:1:9"]),
        ("new Thing(host)", &["host-unseen src/index.ts:1:11"]),
        ("class A { h = host }", &["host-unseen src/index.ts:1:15"]),
        ("const [a] = host as any", &["host-unseen src/index.ts:1:7"]),
        ("globalThis.h = host.session", &["host-unseen src/index.ts:1:1"]),
        ("const o = { get ws() { return host.workspace } }", &["host-unseen src/index.ts:1:31"]),
        ("list.map(() => host.workspace)", &["host-unseen src/index.ts:1:10"]),
        ("save(...[host])", &["host-unseen src/index.ts:1:10"]),
        ("for (const x of host.session) x", &["host-unseen src/index.ts:1:17"]),
        ("host.sesion.post({})", &["host-unknown src/index.ts:1:1"]),
        ("host.session.pots({})", &["host-unknown src/index.ts:1:1"]),
        ("host.workspace.constructor", &["host-unknown src/index.ts:1:1"]),
        ("const { wrokspace } = host", &["host-unknown src/index.ts:1:9"]),
        ("host()", &["host-not-a-method src/index.ts:1:1"]),
        ("host.session({})", &["host-not-a-method src/index.ts:1:1"]),
        (
            "host.sesion.post(); host[x]; f(host)",
            &["host-unknown src/index.ts:1:1", "host-dynamic src/index.ts:1:26", "host-unseen src/index.ts:1:32"],
        ),
    ] {
        check(text, expected);
    }
}

#[test]
fn an_unknown_method_is_answered_with_the_nearest() {
    for (text, expected) in [
        ("host.sesion.post({})", "did you mean host.session?"),
        ("host.session.pots({})", "did you mean host.session.post?"),
        ("host.workspace.raed({})", "did you mean host.workspace.read?"),
        ("host.fetsh({})", "did you mean host.fetch?"),
    ] {
        let problems = build(&plugin(&[("src/index.ts", text)])).unwrap_err();
        assert_eq!(problems.as_slice()[0].remedy, expected, "{text}");
    }
}

#[test]
fn changing_the_api_is_warned_of() {
    for (text, expected) in [
        ("host.fetch = fake", &["host-frozen src/index.ts:1:1"][..]),
        ("host.session['post'] = fake", &["host-frozen src/index.ts:1:1"]),
        ("let h = host; h = fake", &[]),
    ] {
        let draft = build(&plugin(&[("src/index.ts", text)])).unwrap();
        let checked =
            toolfleet_plugin::finish(draft, crate::loaded(vec![crate::tool("one")], toolfleet_protocol::Fact::Absent));
        let warnings: Vec<_> =
            checked.unwrap().warnings.iter().map(brief).filter(|text| text.starts_with("host")).collect();
        assert_eq!(warnings, expected, "{text}");
    }
}

#[test]
fn aliases_are_followed_from_file_to_file() {
    for (index, other, expected) in [
        ("import { h } from './other'; h.session.post({})", "export const h = host", &[POST][..]),
        ("import { s as x } from './other'; x.post({})", "const s = host.session; export { s }", &[POST]),
        ("import h from './other'; h.session.post({})", "export default host", &[POST]),
        ("import * as o from './other'; o.ws.write({})", "export const ws = host.workspace", &[WRITE]),
        ("import { ws } from './middle'; ws.write({})", "export const ws = host.workspace", &[WRITE]),
        ("import { files } from './named'; files.write({})", "export const ws = host.workspace", &[WRITE]),
        ("import { save } from './other'; save(host.workspace)", "export function save(ws) { ws.write({}) }", &[WRITE]),
        ("import save from './other'; save(host)", "export default function (h) { h.session.post({}) }", &[POST]),
        ("import save from './other'; save(host)", "export default (h) => h.session.post({})", &[POST]),
        ("import { files } from './other'; files().write({})", "export const files = () => host.workspace", &[WRITE]),
        ("const o = await import('./other'); o.ws.write({})", "export const ws = host.workspace", &[WRITE]),
        ("const { ws } = await import('./other'); ws.write({})", "export const ws = host.workspace", &[WRITE]),
        ("import './other'", "host.session.post({})", &[POST]),
        ("import { h } from './other'; h.nope()", "export const h = host", &["host-unknown src/index.ts:1:30"]),
        (
            "import { lose } from './other'; lose(host)",
            "export const lose = (h) => [h]",
            &["host-unseen src/other.ts:1:29"],
        ),
    ] {
        check_files(
            &[
                ("src/index.ts", index),
                ("src/other.ts", other),
                ("src/middle.ts", "export * from './other'"),
                ("src/named.ts", "export { ws as files } from './other'"),
            ],
            expected,
        );
    }
}

#[test]
fn files_that_the_entry_does_not_reach_ask_for_nothing() {
    check_files(&[("src/index.ts", "export {}"), ("src/unused.ts", "host.session.post({})")], &[]);
}

#[test]
fn cycles_of_aliases_and_imports_end() {
    check("let a = host, b; a = b; b = a; b.session.post({})", &[POST]);
    check("const f = () => f; const g = () => [g, () => g]; f()", &[]);
    check_files(
        &[
            ("src/index.ts", "import { a } from './a'; a.session.post({}); export const i = host;"),
            ("src/a.ts", "export * from './b'; import { i } from './index'; export const x = i;"),
            ("src/b.ts", "export * from './a'; import { x } from './a'; export const a = x;"),
        ],
        &[POST],
    );
}
