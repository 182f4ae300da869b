//! The rules over what an evaluation registered.

use crate::{brief, loaded, plugin, tool};
use serde_json::{Value, json};
use toolfleet_plugin::{Draft, Severity, build, finish};
use toolfleet_protocol::{CallError, Fact, FailureKind, Inspection, ToolFacts};

/// Two tools in different lines; fetch is used in line 3, the manifest set in line 4.
const SOURCE: &str = "globalThis.tools.one = {};
tools['two'] = {};
globalThis.tools.three = { handler: () => host.fetch({}) };
globalThis.manifest = {};
";

/// Puts a fault into a tool.
type Change = Box<dyn FnOnce(&mut ToolFacts)>;

fn draft() -> Draft {
    build(&plugin(&[("src/index.ts", SOURCE)])).unwrap()
}

fn check_inspection(inspection: Inspection, expected: &[&str]) {
    let shown = format!("{inspection:?}");
    let found: Vec<String> = match finish(draft(), inspection) {
        Ok(checked) => checked.warnings.iter().map(brief).collect(),
        Err(problems) => problems.iter().map(brief).collect(),
    };
    assert_eq!(found, expected, "{shown}");
}

/// One tool, `one`, with a fault; the manifest in order.
fn check(change: impl FnOnce(&mut ToolFacts), expected: &[&str]) {
    let mut facts = tool("one");
    change(&mut facts);
    check_inspection(loaded(vec![facts], egress(json!(["a.example"]))), expected);
}

fn egress(entries: Value) -> Fact {
    Fact::Json(json!({ "egress": entries }))
}

#[test]
fn a_tool_without_fault_is_released() {
    let mut facts = tool("one");
    facts.parameters = Fact::Json(json!({ "type": "object", "properties": { "a": { "type": "string" } } }));
    facts.always_listed = Fact::Json(true.into());
    let checked =
        finish(draft(), loaded(vec![tool("two"), facts], egress(json!(["b.example", "A.example."])))).unwrap();
    assert_eq!(checked.warnings, []);
    let release = checked.release;
    let names: Vec<_> = release.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["one", "two"]);
    assert!(release.tools[0].always_listed && !release.tools[0].deferred);
    assert_eq!(release.tools[1].parameters, json!({ "type": "object", "properties": {} }));
    assert_eq!(serde_json::to_value(&release.egress).unwrap(), json!(["a.example", "b.example"]));
    assert_eq!(release.limits.wall_ms, 30_000);
}

#[test]
fn each_fault_of_a_tool_is_told() {
    let at = |code: &str| vec![format!("{code} src/index.ts:1:1")];
    let cases: Vec<(Change, &str)> = vec![
        (Box::new(|t| t.shape = Fact::Function), "tool-bare-function"),
        (Box::new(|t| t.shape = Fact::Accessor), "tool-accessor"),
        (Box::new(|t| t.shape = Fact::Proxy), "tool-proxy"),
        (Box::new(|t| t.shape = Fact::Json(json!(5))), "tool-not-an-object"),
        (Box::new(|t| t.shape = Fact::Json(json!(false))), "tool-not-an-object"),
        (Box::new(|t| t.shape = Fact::Absent), "tool-not-an-object"),
        (Box::new(|t| t.description = Fact::Absent), "tool-description-missing"),
        (Box::new(|t| t.description = Fact::Json(json!(""))), "tool-description-empty"),
        (Box::new(|t| t.description = Fact::Json(json!(" \n "))), "tool-description-empty"),
        (Box::new(|t| t.description = Fact::Json(json!(5))), "tool-description-type"),
        (Box::new(|t| t.description = Fact::Function), "tool-description-type"),
        (Box::new(|t| t.description = Fact::Accessor), "tool-accessor"),
        (Box::new(|t| t.description = Fact::Json("x".repeat(8001).into())), "tool-description-long"),
        (Box::new(|t| t.parameters = Fact::NotJson("properties.when: a function".into())), "tool-parameters-not-json"),
        (Box::new(|t| t.parameters = Fact::Function), "tool-parameters-not-json"),
        (Box::new(|t| t.parameters = Fact::Other("symbol".into())), "tool-parameters-not-json"),
        (Box::new(|t| t.parameters = Fact::Accessor), "tool-accessor"),
        (Box::new(|t| t.parameters = Fact::Proxy), "tool-proxy"),
        (Box::new(|t| t.parameters = Fact::Json(json!({ "type": "objekt" }))), "tool-parameters-schema"),
        (
            Box::new(|t| t.parameters = Fact::Json(json!({ "type": "object", "required": "a" }))),
            "tool-parameters-schema",
        ),
        (Box::new(|t| t.parameters = Fact::Json(json!({ "type": "string" }))), "tool-parameters-type"),
        (Box::new(|t| t.parameters = Fact::Json(json!({}))), "tool-parameters-type"),
        (Box::new(|t| t.parameters = Fact::Json(json!(null))), "tool-parameters-type"),
        (Box::new(|t| t.parameters = Fact::Json(json!([]))), "tool-parameters-type"),
        (
            Box::new(|t| t.parameters = Fact::Json(json!({ "type": "object", "$ref": "https://x.test/s" }))),
            "tool-parameters-ref",
        ),
        (
            Box::new(|t| t.parameters = Fact::Json(json!({ "type": "object", "title": "x".repeat(1_000_000) }))),
            "tool-parameters-large",
        ),
        (Box::new(|t| t.handler = Fact::Absent), "tool-handler-missing"),
        (Box::new(|t| t.handler = Fact::Json(json!("f"))), "tool-handler-type"),
        (Box::new(|t| t.handler = Fact::Accessor), "tool-accessor"),
        (Box::new(|t| t.handler = Fact::Proxy), "tool-proxy"),
        (Box::new(|t| t.always_listed = Fact::Json(json!("yes"))), "tool-flag-type"),
        (Box::new(|t| t.deferred = Fact::Json(json!(1))), "tool-flag-type"),
        (
            Box::new(|t| {
                t.deferred = Fact::Json(json!(true));
                t.always_listed = Fact::Json(json!(true));
            }),
            "tool-both-flags",
        ),
        (Box::new(|t| t.unknown = vec!["descripton".into()]), "tool-key-unknown"),
    ];
    for (change, code) in cases {
        let expected = at(code);
        check(change, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn a_default_of_the_wrong_type_is_plain_data() {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string", "default": 5 } } });
    check(|t| t.parameters = Fact::Json(schema), &[]);
}

#[test]
fn five_faults_are_told_at_once() {
    let mut one = tool("one");
    one.description = Fact::Absent;
    one.handler = Fact::Absent;
    let mut two = tool("two");
    two.parameters = Fact::Json(json!({ "type": 1 }));
    let inspection = loaded(vec![one, two, tool("Three")], egress(json!(["https://a.example"])));
    check_inspection(
        inspection,
        &[
            "tool-description-missing src/index.ts:1:1",
            "tool-handler-missing src/index.ts:1:1",
            "tool-name src/index.ts:1:1",
            "tool-parameters-schema src/index.ts:2:1",
            "egress-entry src/index.ts:4:1",
        ],
    );
}

#[test]
fn names_follow_the_pattern() {
    for name in ["", "A", "_a", "1a", "a-b", "a b", "é", "__proto__", "Symbol(x)", &"a".repeat(65)] {
        check_inspection(loaded(vec![tool(name)], egress(json!(["a.example"]))), &["tool-name src/index.ts:1:1"]);
    }
    check_inspection(loaded(vec![tool("constructor")], egress(json!(["a.example"]))), &[]);
    // sample__ and 64 letters: too long for some models, which is no reason to refuse it.
    let long = "a".repeat(64);
    check_inspection(loaded(vec![tool(&long)], egress(json!(["a.example"]))), &["tool-name-long src/index.ts:1:1"]);
}

#[test]
fn the_registry_must_stay_an_ordinary_object_with_tools_in_it() {
    for shape in [Fact::Proxy, Fact::Function, Fact::Accessor, Fact::Absent, Fact::Json(json!([]))] {
        let inspection =
            Inspection::Loaded { tools_shape: shape, tools: vec![], manifest: egress(json!(["a.example"])) };
        check_inspection(inspection, &["tools-replaced src/index.ts:1:1"]);
    }
    check_inspection(loaded(vec![], egress(json!(["a.example"]))), &["tools-none src/index.ts:1:1"]);
    let many: Vec<_> = (0..257).map(|number| tool(&format!("t{number}"))).collect();
    check_inspection(loaded(many, egress(json!(["a.example"]))), &["tools-many src/index.ts:1:1"]);
}

#[test]
fn at_most_three_tools_are_always_listed() {
    let listed = |count: usize| {
        let mut tools: Vec<_> = ["a", "b", "one", "two"].into_iter().take(count).map(tool).collect();
        for tool in &mut tools {
            tool.always_listed = Fact::Json(true.into());
        }
        loaded(tools, egress(json!(["a.example"])))
    };
    check_inspection(listed(3), &[]);
    check_inspection(listed(4), &["tools-always-listed src/index.ts:2:1"]);
}

#[test]
fn the_manifest_lists_hosts() {
    let place = "src/index.ts:4:1";
    for (manifest, code) in [
        (Fact::Json(json!("x")), "manifest-object"),
        (Fact::Proxy, "manifest-object"),
        (Fact::Function, "manifest-object"),
        (Fact::NotJson("egress[0]: a function".into()), "manifest-object"),
        (egress(json!("a.example")), "egress-type"),
        (egress(json!([5])), "egress-type"),
        (egress(json!(["a.example:443"])), "egress-entry"),
        (egress(json!(["10.0.0.1"])), "egress-entry"),
        (egress(json!(["localhost"])), "egress-private"),
        (egress(json!(["a.example", "A.example"])), "egress-twice"),
        (egress(json!(vec!["a.example"; 65])), "egress-many"),
        (Fact::Json(json!({ "egress": ["a.example"], "permissions": [] })), "manifest-object-key"),
    ] {
        check_inspection(loaded(vec![tool("one")], manifest), &[&format!("{code} {place}")]);
    }
    for manifest in [Fact::Absent, Fact::Json(json!({})), egress(json!([]))] {
        check_inspection(loaded(vec![tool("one")], manifest), &["fetch-without-egress src/index.ts:3:43"]);
    }
    let without_fetch = build(&plugin(&[("src/index.ts", "manifest = { egress: ['a.example'] }")])).unwrap();
    let checked = finish(without_fetch, loaded(vec![tool("one")], egress(json!(["a.example"])))).unwrap();
    assert_eq!(checked.warnings.iter().map(brief).collect::<Vec<_>>(), ["egress-unused src/index.ts:1:1"]);
}

#[test]
fn a_plugin_that_does_not_load_is_told_with_its_place() {
    let mut error = CallError::new(FailureKind::LoadFailed, "nope is not defined");
    error.name = Some("ReferenceError".into());
    error.stack = Some("    at <anonymous> (src/index.ts:3:18)\n".into());
    let problems = finish(draft(), Inspection::Failed { error }).unwrap_err();
    let problem = &problems.as_slice()[0];
    assert_eq!((problem.code, problem.severity), ("load-failed", Severity::Error));
    assert_eq!((problem.file.as_deref(), problem.line), (Some("src/index.ts"), Some(3)), "{problem}");
    assert!(problem.message.ends_with("ReferenceError: nope is not defined"), "{problem}");
    for kind in [FailureKind::Timeout, FailureKind::Memory, FailureKind::Crashed] {
        check_inspection(Inspection::Failed { error: CallError::new(kind, "x") }, &["load-failed src/index.ts:1:1"]);
    }
}

#[test]
fn tools_are_found_where_they_are_registered() {
    let source = "export {};
globalThis.tools.one = {};
const t = globalThis.tools;
t.two = {};
globalThis.tools = { three: {}, 'four': {} };
Object.assign(tools, { five: {} });
const N = 'six'; tools[N] = {};";
    let draft = build(&plugin(&[("src/index.ts", source)])).unwrap();
    let tools = ["one", "two", "three", "four", "five", "six", "seven"].map(|name| {
        let mut facts = tool(name);
        facts.description = Fact::Absent;
        facts
    });
    let problems = finish(draft, loaded(tools.to_vec(), Fact::Absent)).unwrap_err();
    let mut places: Vec<_> = problems
        .iter()
        .map(|problem| {
            let name = problem.message.split(' ').nth(1).unwrap();
            format!("{name} {}:{}", problem.line.unwrap(), problem.column.unwrap())
        })
        .collect();
    places.sort();
    assert_eq!(places, ["five 6:24", "four 5:33", "one 2:1", "seven 1:1", "six 7:18", "three 5:22", "two 4:1"]);
}
