//! The host API as a handler meets it: real sandbox, real store, real HTTP.

mod support;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect};
use axum::routing::{any, get};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::sandbox;
use toolfleet_protocol::*;
use toolfleet_store::embedded::EmbeddedStore;
use toolfleet_store::records::{Records, Sealer};
use toolfleet_worker::isolation::Sandbox;
use toolfleet_worker::{FetchConfig, Fetcher, LocalCall, run_local};

/// A worker's parts, for one account.
struct World {
    sandbox: Sandbox,
    records: Records,
    fetcher: Arc<Fetcher>,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(EmbeddedStore::open(&folder.path().join("store")).unwrap());
        let config = FetchConfig {
            upstreams: BTreeMap::from([("api.test".into(), serve().await)]),
            response_bytes_max: 100_000,
            redirects_max: 3,
            ..FetchConfig::default()
        };
        let fetcher = Arc::new(Fetcher::new(config).unwrap());
        Self { sandbox: sandbox().await, records: Records::new(store), fetcher, _folder: folder }
    }

    /// What a handler with these permissions returns. What it throws comes as its name and message.
    async fn run(&self, permissions: &[Permission], body: &str) -> Value {
        let code = format!(
            "globalThis.tools.t = {{ description: 'd', handler: async () => {{ \
               try {{ {body} }} catch (error) {{ return {{ name: error.name, message: error.message }} }} }} }};"
        );
        let release = Arc::new(release(&code, permissions));
        let call = LocalCall {
            account: AccountId::parse("acme").unwrap(),
            agent: AgentId::parse("helper").unwrap(),
            session: SessionId::parse("s").unwrap(),
            tool: ToolName::parse("t").unwrap(),
            input: serde_json::value::to_raw_value(&json!({})).unwrap(),
            initiator: Initiator::PLATFORM,
        };
        let result = run_local(&self.sandbox, &self.records, &Sealer::none(), &self.fetcher, &release, call).await;
        match result.outcome {
            Outcome::Ok { value } => serde_json::from_str(value.get()).unwrap(),
            Outcome::Failed { error } => panic!("{body}: {error:?}"),
        }
    }

    async fn fetch(&self, request: &str) -> Value {
        self.run(&[], &format!("return await host.fetch({request})")).await
    }

    /// The name of the error, which must tell this.
    async fn refused(&self, permissions: &[Permission], body: &str, told: &str) -> String {
        let thrown = self.run(permissions, body).await;
        let message = thrown["message"].as_str().unwrap_or_default();
        assert!(message.contains(told), "{body}: {thrown} does not tell {told:?}");
        thrown["name"].as_str().unwrap_or_default().to_owned()
    }
}

fn release(code: &str, permissions: &[Permission]) -> Release {
    let mut digest = [0_u8; 32];
    for (at, byte) in code.bytes().enumerate() {
        digest[at % 32] = digest[at % 32].wrapping_mul(31).wrapping_add(byte);
    }
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let file = BundledFile { code: code.to_owned(), source_map: String::new(), imports: BTreeMap::new() };
    let files = BTreeMap::from([("a.js".to_owned(), file)]);
    let spec = ToolSpec {
        name: ToolName::parse("t").unwrap(),
        description: "d".into(),
        parameters: json!({ "type": "object" }),
        always_listed: false,
        deferred: false,
    };
    Release {
        digest: ReleaseDigest::parse(digest).unwrap(),
        slug: PluginSlug::parse("p").unwrap(),
        version: "1.0.0".parse().unwrap(),
        name: "P".into(),
        description: "d".into(),
        tools: vec![spec],
        permissions: permissions.iter().copied().collect(),
        egress: ["api.test", "localhost.localdomain", "*.localhost.localdomain"]
            .map(|rule| EgressRule::parse(rule).unwrap())
            .into(),
        settings: None,
        limits: Limits { wall_ms: 5_000, ..Limits::BASE },
        bundle: Arc::new(Bundle { entry: "a.js".into(), entry_is_script: true, files }),
    }
}

/// A service with good and bad days.
async fn serve() -> String {
    async fn echo(headers: HeaderMap, request: Request) -> impl IntoResponse {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let told = json!({
            "method": request.method().as_str(),
            "host": text("host"),
            "key": text("idempotency-key"),
            "authorization": text("authorization"),
            "uri": request.uri().to_string(),
        });
        (StatusCode::IM_A_TEAPOT, [("x-twice", "1"), ("x-other", "2")], told.to_string())
    }
    let router = Router::new()
        .route("/echo", any(echo))
        .route("/loop", any(|| async { Redirect::temporary("/loop") }))
        .route("/out", any(|| async { Redirect::temporary("http://elsewhere.test/") }))
        .route("/private", any(|| async { Redirect::temporary("http://169.254.169.254/latest") }))
        .route("/file", any(|| async { Redirect::temporary("file:///etc/passwd") }))
        .route("/see-other", any(|| async { Redirect::to("/echo") }))
        .route("/large", get(|| async { "x".repeat(200_000) }))
        .route("/odd", get(|| async { [0xff_u8, b'a'].to_vec() }))
        .route("/slow", get(std::future::pending::<&'static str>));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn fetch_gives_what_the_service_answered() {
    let world = World::new().await;
    let answer = world.fetch("{ url: 'https://api.test/echo?a=1', headers: { Authorization: 'Bearer x' } }").await;
    assert_eq!((&answer["status"], &answer["url"]), (&json!(418), &json!("https://api.test/echo?a=1")), "{answer}");
    assert_eq!(answer["headers"]["x-twice"], "1", "{answer}");
    let told: Value = serde_json::from_str(answer["body"].as_str().unwrap()).unwrap();
    assert_eq!(told["host"], "api.test");
    assert_eq!(
        (&told["method"], &told["key"], &told["authorization"]),
        (&json!("GET"), &json!(""), &json!("Bearer x"))
    );
    let answer = world.fetch("{ url: 'https://api.test/echo', method: 'post', body: 'x' }").await;
    let told: Value = serde_json::from_str(answer["body"].as_str().unwrap()).unwrap();
    assert_eq!(told["method"], "POST");
    assert!(told["key"].as_str().is_some_and(|key| key.len() > 20), "{told}");
    let answer = world.fetch("{ url: 'https://api.test/see-other', method: 'POST', body: 'x' }").await;
    let told: Value = serde_json::from_str(answer["body"].as_str().unwrap()).unwrap();
    assert_eq!(told["method"], "GET", "303 makes a GET of a POST");
    assert_eq!(world.fetch("{ url: 'https://api.test/odd' }").await["body"], "\u{fffd}a");
    assert_eq!(world.fetch("{ url: 'https://api.test/odd', bodyEncoding: 'base64' }").await["body"], "/2E=");
    world.sandbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fetch_refuses_what_the_plugin_may_not_reach() {
    let world = World::new().await;
    for (request, name, told) in [
        ("{ url: 'https://elsewhere.test/' }", "EgressError", "elsewhere.test is not in manifest.egress"),
        ("{ url: 'http://127.0.0.1/' }", "EgressError", "is an address"),
        ("{ url: 'https://api.test/out' }", "EgressError", "elsewhere.test"),
        ("{ url: 'https://api.test/private' }", "EgressError", "169.254.169.254"),
        ("{ url: 'https://api.test/file' }", "EgressError", "file:"),
        ("{ url: 'https://api.test/loop' }", "LimitError", "more than 3 redirects"),
        ("{ url: 'https://api.test/large' }", "LimitError", "more than 100000 bytes"),
        ("{ url: 'https://api.test/slow', timeoutMs: 100 }", "HostError", "within 100 ms"),
        ("{ url: 'https://api.test/', headers: { Host: 'x' } }", "TypeError", "Host"),
        ("{ url: 'https://api.test/', headers: { a: 'x\\r\\ny: z' } }", "TypeError", "\"a\""),
        ("{ url: 'https://api.test/', method: 'TRACE' }", "TypeError", "request.method"),
        ("{ link: 'https://api.test/' }", "TypeError", "unknown field `link`"),
        ("{}", "TypeError", "missing field `url`"),
        ("", "TypeError", "request is missing"),
    ] {
        let body = format!("return await host.fetch({request})");
        assert_eq!(world.refused(&[], &body, told).await, name, "{request}");
    }
    let start = Instant::now();
    // A name of the manifest that leads to this machine: the address is refused, nothing is connected to.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let body = format!("return await host.fetch({{ url: 'http://localhost.localdomain:{port}/' }})");
    let thrown = world.run(&[], &body).await;
    assert!(matches!(thrown["name"].as_str(), Some("EgressError" | "HostError")), "{thrown}");
    assert!(listener.accept().is_err(), "nothing private is ever connected to");
    assert!(start.elapsed() < Duration::from_secs(5));
    world.sandbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_derived_is_not_granted() {
    let world = World::new().await;
    for (body, permission) in [
        ("return await host.session.messages()", "host:session:read"),
        ("return await host.session.post({ text: 'x' })", "host:session:post"),
        ("return await host.workspace.read({ path: 'a' })", "host:workspace:read"),
        ("return await host.workspace.write({ path: 'a', content: '' })", "host:workspace:write"),
    ] {
        assert_eq!(world.refused(&[], body, permission).await, "PermissionError", "{body}");
    }
    world.sandbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_and_workspaces_keep_what_is_written() {
    use Permission::{SessionPost, SessionRead, WorkspaceRead, WorkspaceWrite};
    let world = World::new().await;
    let all = [SessionPost, SessionRead, WorkspaceRead, WorkspaceWrite];
    let posted = world.run(&all, "return await host.session.post({ text: 'hé', data: { a: 1 } })").await;
    let read = world.run(&all, "return await host.session.messages({ limit: 5 })").await;
    assert_eq!(read, json!([posted]));
    assert_eq!((&posted["role"], &posted["plugin"]), (&json!("assistant"), &json!("p")));

    let written = world.run(&all, "return await host.workspace.write({ path: './notes//a.md', content: 'one' })").await;
    assert_eq!((&written["path"], &written["size"]), (&json!("notes/a.md"), &json!(3)));
    let read = world.run(&all, "return await host.workspace.read({ path: 'notes/a.md' })").await;
    assert_eq!((&read["content"], &read["etag"]), (&json!("one"), &written["etag"]));
    let listed =
        world.run(&all, "return (await host.workspace.list({ prefix: 'notes/' })).files.map(f => f.path)").await;
    assert_eq!(listed, json!(["notes/a.md"]));
    assert_eq!(world.run(&all, "return (await host.workspace.list({ shared: true })).files").await, json!([]));
    for (body, name, told) in [
        (
            "return await host.workspace.write({ path: 'notes/a.md', content: 'x', etag: null })",
            "ConflictError",
            "notes/a.md",
        ),
        (
            "return await host.workspace.write({ path: 'notes/a.md', content: 'x', etag: 'old' })",
            "ConflictError",
            "notes/a.md",
        ),
        ("return await host.workspace.read({ path: 'none' })", "NotFoundError", "none"),
        ("return await host.workspace.read({ path: '../a' })", "TypeError", ".."),
        ("return await host.workspace.read({ path: '/etc/passwd' })", "TypeError", "/etc/passwd"),
        ("return await host.workspace.list({ limit: 0 })", "TypeError", "options.limit"),
        ("return await host.session.post({ text: '' })", "TypeError", "message.text"),
        ("return await host.session.messages({ before: 'x' })", "TypeError", "before"),
        ("return await host.session.post({ text: 'x'.repeat(70000) })", "LimitError", "70000"),
    ] {
        assert_eq!(world.refused(&all, body, told).await, name, "{body}");
    }
    world.sandbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_and_crypto_answer() {
    let world = World::new().await;
    assert_eq!(
        world.run(&[], "return [await host.settings.get('x'), await host.settings.get()]").await,
        json!([null, {}])
    );
    let body = "return [await host.crypto.hash({ algorithm: 'sha256', data: 'abc' }), await host.crypto.timingSafeEqual('a', 'b'), \
                (await host.crypto.randomBytes(8, 'hex')).length, (await host.crypto.randomUUID()).length]";
    let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(world.run(&[], body).await, json!([expected, false, 16, 36]));
    world.sandbox.shutdown().await;
}
