//! A scheduler on the embedded queue and store, an HTTP client, and a server that speaks the workers' side of the
//! protocol.
#![allow(dead_code)]

use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolfleet_protocol::{
    CallError, CallResult, Class, FailureKind, Job, Limits, Metering, Outcome, PluginSlug, QueueName, Release,
    ReleaseDigest, Reply, SchedulerId, ToolName, ToolSpec, Usage, WIRE_VERSION, Work, WorkerId,
};
use toolfleet_queue::{Consumer, Delivery, Depth, Outgoing, PublishError, Queue, QueueError};
use toolfleet_scheduler::{Scheduler, SchedulerConfig, SchedulerError};
use toolfleet_store::records::{Claim, Recorder, Records, Sealer};

/// Nothing that a test waits for takes longer, even on a busy machine.
pub const BOUND: Duration = Duration::from_secs(30);

/// A scheduler under test.
pub struct Stage {
    pub queue: Arc<Faulty>,
    pub records: Records,
    pub base: String,
    pub http: reqwest::Client,
    token: Option<String>,
    shutdown: CancellationToken,
    server: Option<JoinHandle<Result<(), SchedulerError>>>,
    _folder: tempfile::TempDir,
}

impl Stage {
    pub async fn start() -> Self {
        Self::with(SchedulerConfig::default()).await
    }

    pub async fn with(mut config: SchedulerConfig) -> Self {
        config.listen = "127.0.0.1:0".parse().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (queue, store) = super::embedded(folder.path()).await;
        let queue = Arc::new(Faulty { inner: queue, failures: AtomicU32::new(0), uncertain: AtomicU32::new(0) });
        let records = Records::new(store);
        let scheduler = Scheduler::bind(config).await.unwrap();
        let base = format!("http://{}", scheduler.local_addr());
        let shutdown = CancellationToken::new();
        let server = tokio::spawn(scheduler.serve(
            Arc::clone(&queue) as Arc<dyn Queue>,
            records.clone(),
            Sealer::none(),
            shutdown.clone(),
        ));
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().timeout(BOUND * 2).build().unwrap();
        let stage = Self { queue, records, base, http, token: None, shutdown, server: Some(server), _folder: folder };
        eventually("readiness", || async { stage.get("/readyz").await.status == 200 }).await;
        stage
    }

    pub fn token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// One account with one agent and one plugin, the tools of which the fake worker knows.
    pub async fn with_plugin(self) -> Self {
        self.records.put_release(&release(), 1).await.unwrap();
        let installation = json!({ "account": "acme", "plugin": "demo" });
        assert_eq!(self.post("/v1/installations", &installation).await.status, 201);
        assert_eq!(self.post("/v1/agents", &json!({ "id": "helper", "account": "acme" })).await.status, 201);
        self
    }

    pub async fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.body(body).send().await.unwrap();
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text.clone()));
        Answer { status, headers, text, body }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], Vec::new()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_with(path, &[], body.to_string()).await
    }

    pub async fn post_with(&self, path: &str, headers: &[(&str, &str)], body: String) -> Answer {
        let mut all = vec![("content-type", "application/json")];
        all.extend_from_slice(headers);
        self.request("POST", path, &all, body.into_bytes()).await
    }

    /// Ends the scheduler as its process would.
    pub async fn end(mut self) -> Result<(), SchedulerError> {
        self.shutdown.cancel();
        let server = self.server.take().unwrap();
        tokio::time::timeout(BOUND, server).await.expect("it ends").unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
    pub body: Value,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    #[track_caller]
    pub fn is(&self, status: u16) -> &Value {
        assert_eq!(self.status, status, "{}", self.text);
        &self.body
    }

    /// The places that a problem names.
    pub fn places(&self) -> Vec<String> {
        let errors = self.body["errors"].as_array().cloned().unwrap_or_default();
        let place = |error: &Value| {
            ["pointer", "parameter", "header"].iter().find_map(|kind| error[kind].as_str().map(str::to_owned))
        };
        errors.iter().filter_map(place).collect()
    }
}

pub async fn eventually<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    let looked = async {
        let mut pause = tokio::time::interval(Duration::from_millis(10));
        while !check().await {
            pause.tick().await;
        }
    };
    tokio::time::timeout(BOUND, looked).await.unwrap_or_else(|_| panic!("waited in vain for {what}"));
}

pub fn release() -> Release {
    let tool = |name: &str| ToolSpec {
        name: ToolName::parse(name).unwrap(),
        description: format!("Does {name}."),
        parameters: json!({ "type": "object" }),
        always_listed: false,
        deferred: false,
    };
    Release {
        digest: ReleaseDigest::parse("d".repeat(64)).unwrap(),
        slug: PluginSlug::parse("demo").unwrap(),
        version: semver::Version::new(1, 2, 3),
        name: "Demo".into(),
        description: "For tests.".into(),
        tools: ["echo", "fail", "hold"].map(tool).into(),
        permissions: [toolfleet_protocol::Permission::SessionRead].into(),
        egress: vec![toolfleet_protocol::EgressRule::parse("api.example.com").unwrap()],
        settings: None,
        limits: Limits::BASE,
        bundle: std::sync::Arc::new(toolfleet_protocol::Bundle {
            entry: "a.js".into(),
            entry_is_script: true,
            files: BTreeMap::new(),
        }),
    }
}

/// A server that takes jobs and answers them as the contract has it: claim, record, reply and metering, ack.
/// `echo` gives its input back, `fail` throws, `hold` is claimed and then held for ever.
pub struct FakeWorker {
    task: JoinHandle<()>,
}

impl FakeWorker {
    pub fn start(stage: &Stage, class: Class, inspection: Option<Value>) -> Self {
        let (queue, records) = (Arc::clone(&stage.queue), stage.records.clone());
        let task = tokio::spawn(async move {
            let mut jobs = queue.consume(QueueName::Jobs { class, lane: 0 }, 16).await.unwrap();
            let id = WorkerId::generate();
            let mut held = Vec::new();
            while let Some(delivery) = jobs.next().await {
                let job = Job::decode(&delivery.body).unwrap();
                match records.claim(&job.call_id, &delivery.body, &id, 3, now_ms()).await.unwrap() {
                    Claim::Run { attempt } => {
                        let Some(outcome) = outcome(&job, inspection.as_ref()) else {
                            held.push(delivery);
                            continue;
                        };
                        let usage = Usage { wall_ms: 5, attempt, ..Usage::default() };
                        let result = CallResult { call_id: job.call_id.clone(), outcome, usage };
                        records
                            .record_result(&job.call_id, Recorder::Attempt(attempt), &result, now_ms())
                            .await
                            .unwrap();
                        answer(&queue, &job, result, delivery).await;
                    }
                    Claim::Known(result) => answer(&queue, &job, result, delivery).await,
                    Claim::Exhausted { .. } | Claim::Foreign => delivery.reject().await.unwrap(),
                }
            }
        });
        Self { task }
    }
}

impl Drop for FakeWorker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn outcome(job: &Job, inspection: Option<&Value>) -> Option<Outcome> {
    match &job.work {
        Work::Call { tool, input, .. } => match tool.as_str() {
            "hold" => None,
            "fail" => Some(Outcome::Failed { error: CallError::new(FailureKind::Thrown, "no") }),
            _ => Some(Outcome::Ok { value: input.clone() }),
        },
        Work::Inspect { .. } => {
            let value = serde_json::value::to_raw_value(inspection.expect("this worker inspects")).unwrap();
            Some(Outcome::Ok { value })
        }
    }
}

async fn answer(queue: &Faulty, job: &Job, result: CallResult, delivery: Delivery) {
    let metering = metering(job, &result);
    let reply = serde_json::to_vec(&Reply { v: WIRE_VERSION, result }).unwrap();
    for (to, body) in [
        (QueueName::Replies(job.reply_to.clone()), reply),
        (QueueName::Metering, serde_json::to_vec(&metering).unwrap()),
    ] {
        queue.inner.publish(message(to, job.call_id.as_str(), body)).await.unwrap();
    }
    delivery.ack().await.unwrap();
}

pub fn metering(job: &Job, result: &CallResult) -> Metering {
    let Work::Call { agent, plugin, tool, .. } = &job.work else {
        return Metering {
            v: WIRE_VERSION,
            call_id: job.call_id.clone(),
            account: job.account.clone(),
            agent: None,
            plugin: None,
            tool: None,
            failure: result.failure(),
            usage: result.usage,
            worker: None,
            finished_at_ms: now_ms(),
        };
    };
    Metering {
        v: WIRE_VERSION,
        call_id: job.call_id.clone(),
        account: job.account.clone(),
        agent: Some(agent.clone()),
        plugin: Some(plugin.clone()),
        tool: Some(tool.clone()),
        failure: result.failure(),
        usage: result.usage,
        worker: None,
        finished_at_ms: now_ms(),
    }
}

pub fn message(to: QueueName, id: &str, body: Vec<u8>) -> Outgoing {
    Outgoing { to, message_id: id.to_owned(), body: body.into(), headers: BTreeMap::new(), expires_in: None }
}

pub fn main_replies() -> QueueName {
    QueueName::Replies(SchedulerId::parse("main").unwrap())
}

pub fn now_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64
}

/// A queue that fails to publish jobs as often as it is told to.
pub struct Faulty {
    pub inner: Arc<dyn Queue>,
    /// So many publishes more find no connection.
    pub failures: AtomicU32,
    /// So many more put the message there and don't know it.
    pub uncertain: AtomicU32,
}

fn take_one(from: &AtomicU32) -> bool {
    from.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

#[async_trait]
impl Queue for Faulty {
    async fn publish(&self, message: Outgoing) -> Result<(), PublishError> {
        if matches!(message.to, QueueName::Jobs { .. }) {
            if take_one(&self.failures) {
                return Err(PublishError::NotConnected);
            }
            if take_one(&self.uncertain) {
                let to = message.to.clone();
                self.inner.publish(message).await?;
                return Err(PublishError::Uncertain { to, waited: Duration::from_secs(1) });
            }
        }
        self.inner.publish(message).await
    }

    async fn consume(&self, from: QueueName, prefetch: u16) -> Result<Consumer, QueueError> {
        self.inner.consume(from, prefetch).await
    }

    async fn depth(&self, of: &QueueName) -> Result<Depth, QueueError> {
        self.inner.depth(of).await
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
