//! The promises of the records, on every make of the store.
//!
//! The stores outlive a test and are shared with others, so everything here has names of its own, and where a
//! key is the fleet's, a test looks for what it put there itself.

mod accounts;
mod calls;
mod effects;
mod fleet;
mod settings;
mod watched;
mod workspaces;

use serde_json::value::RawValue;
use std::sync::Arc;
use toolfleet_protocol::*;
use toolfleet_store::Store;
use toolfleet_store::embedded::EmbeddedStore;
use toolfleet_store::records::Records;
use toolfleet_store::redis::RedisStore;
use watched::Watched;

/// One store, watched.
pub struct Fixture {
    pub records: Records,
    pub watched: Arc<Watched>,
    /// Holds the store's files, where it has some.
    _folder: Option<tempfile::TempDir>,
}

/// A store in a file of its own.
pub async fn embedded() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(&folder.path().join("store")).unwrap();
    Fixture::new(Arc::new(store), Some(folder))
}

/// The Redis that the tests' surroundings name.
pub async fn redis() -> Fixture {
    let url = std::env::var("TOOLFLEET_TEST_REDIS").expect("TOOLFLEET_TEST_REDIS is not set: run tests/run");
    let config = serde_json::from_value(serde_json::json!({"url": url})).unwrap();
    Fixture::new(Arc::new(RedisStore::connect(config).await.unwrap()), None)
}

impl Fixture {
    fn new(store: Arc<dyn Store>, folder: Option<tempfile::TempDir>) -> Self {
        let watched = Watched::new(store);
        Self { records: Records::new(watched.clone()), watched, _folder: folder }
    }
}

/// Makes a test of each named function for each store.
#[macro_export]
macro_rules! on_each_store {
    ($($name:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::embedded().await).await;
            })*
        }
        mod redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::redis().await).await;
            })*
        }
    };
}

/// A text that no other test, and no other run, has.
pub fn unique() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

pub fn account() -> AccountId {
    AccountId::parse(unique()).unwrap()
}

pub fn agent() -> AgentId {
    AgentId::parse(unique()).unwrap()
}

pub fn slug() -> PluginSlug {
    PluginSlug::parse(format!("p{}", &unique()[..20])).unwrap()
}

pub fn digest() -> ReleaseDigest {
    ReleaseDigest::parse(format!("{}{}", unique(), unique())).unwrap()
}

pub fn worker() -> WorkerId {
    WorkerId::generate()
}

pub fn json(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

/// A call of its own.
pub fn job() -> Job {
    Job {
        v: WIRE_VERSION,
        call_id: CallId::generate(),
        account: account(),
        work: Work::Call {
            agent: agent(),
            session: SessionId::parse("s").unwrap(),
            turn: None,
            plugin: slug(),
            release: digest(),
            tool: ToolName::parse("t").unwrap(),
            input: json("{}"),
            initiator: Initiator::PLATFORM,
        },
        class: Class::Interactive,
        submitted_at_ms: 1,
        deadline_at_ms: 2,
        reply_to: SchedulerId::parse("s").unwrap(),
    }
}

pub fn ok(call: &CallId, value: &str) -> CallResult {
    CallResult {
        call_id: call.clone(),
        outcome: Outcome::Ok { value: json(value) },
        usage: Usage { attempt: 1, ..Usage::default() },
    }
}

pub fn text(result: &CallResult) -> String {
    serde_json::to_string(result).unwrap()
}
