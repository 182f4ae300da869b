#![allow(dead_code, reason = "each test binary uses a part of it")]
//! What the tests of the sandbox share.

use async_trait::async_trait;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use toolfleet_protocol::host::{HostError, HostErrorName, HostMethod};
use toolfleet_protocol::*;
use toolfleet_worker::isolation::{Host, IsolationConfig, LogLevel, RunEnd, RunRequest, Sandbox};

/// A root, built next to the test.
pub fn root_binary(name: &str) -> PathBuf {
    let here = std::env::current_exe().expect("the test knows its own path");
    if name.starts_with('/') {
        return name.into();
    }
    let path = here.ancestors().nth(2).expect("tests run from target/PROFILE/deps").join(name);
    assert!(
        path.exists(),
        "{} is not there: cargo build --release --workspace --bins, or run tests/run",
        path.display()
    );
    path
}

/// How many times slower than a usual machine this one is; emulated ones set it.
pub fn slowness() -> u64 {
    let given = std::env::var("TOOLFLEET_TEST_SLOWNESS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(1).max(1)
}

pub async fn sandbox() -> Sandbox {
    start(IsolationConfig::default()).await
}

pub async fn start(config: IsolationConfig) -> Sandbox {
    start_from("sandbox-root", config).await
}

/// With a root of another make: one that has a payload.
pub async fn start_from(root: &str, config: IsolationConfig) -> Sandbox {
    let config = IsolationConfig { sandbox_binary: Some(root_binary(root)), ..config };
    Sandbox::start(config).await.expect("the sandbox starts")
}

/// Answers `settings.get` with its key after as many milliseconds as the key says, and keeps what is logged.
#[derive(Default)]
pub struct TestHost {
    pub lines: Mutex<Vec<String>>,
}

#[async_trait]
impl Host for TestHost {
    async fn call(&self, _: u32, method: HostMethod, arguments: Box<RawValue>) -> Result<Box<RawValue>, HostError> {
        match method {
            HostMethod::SettingsGet => {
                let [key]: [String; 1] = serde_json::from_str(arguments.get()).expect("one key");
                if let Ok(ms) = key.parse() {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                }
                Ok(serde_json::value::to_raw_value(&key).expect("a text is JSON"))
            }
            _ => Err(HostError::new(HostErrorName::PermissionError, "no such permission")),
        }
    }

    fn log(&self, level: LogLevel, message: &str, _: Option<Box<RawValue>>) {
        self.lines.lock().unwrap().push(format!("{level:?} {message}"));
    }
}

pub fn bundle(code: &str) -> Arc<Bundle> {
    let file = BundledFile { code: code.to_owned(), source_map: String::new(), imports: BTreeMap::new() };
    Arc::new(Bundle { entry: "a.js".into(), entry_is_script: true, files: BTreeMap::from([("a.js".into(), file)]) })
}

pub fn request(code: &str, input: Value) -> RunRequest {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    code.hash(&mut hasher);
    RunRequest {
        account: AccountId::parse("acme").unwrap(),
        release: ReleaseDigest::parse(format!("{:064x}", hasher.finish())).unwrap(),
        bundle: bundle(code),
        limits: Limits { wall_ms: 1_000 * slowness(), ..Limits::BASE },
        call_id: CallId::generate(),
        tool: ToolName::parse("t").unwrap(),
        input: serde_json::value::to_raw_value(&input).unwrap(),
        initiator: Initiator::PLATFORM,
        cancel: Default::default(),
    }
}

/// A plugin whose one tool has this handler.
pub fn tool(handler: &str) -> String {
    format!("globalThis.tools.t = {{ description: 'd', handler: {handler} }};")
}

pub async fn run(sandbox: &Sandbox, handler: &str, input: Value) -> RunEnd {
    sandbox.run(request(&tool(handler), input), Arc::new(TestHost::default())).await
}

#[track_caller]
pub fn value(end: &RunEnd) -> Value {
    match &end.outcome {
        Outcome::Ok { value } => serde_json::from_str(value.get()).unwrap(),
        Outcome::Failed { error } => panic!("{error:?}"),
    }
}

#[track_caller]
pub fn failure(end: &RunEnd) -> &CallError {
    match &end.outcome {
        Outcome::Ok { value } => panic!("{value}"),
        Outcome::Failed { error } => error,
    }
}
