//! A client of the HTTP API.

use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// One scheduler's API.
#[derive(Clone)]
pub struct Api {
    base: String,
    http: reqwest::Client,
}

/// A status and a body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub content_type: String,
    pub body: Value,
}

impl Answer {
    /// The body of an answer that must be a success.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{} {:#}", self.status, self.body);
        self.body
    }
}

impl Api {
    pub fn new(base: String) -> Self {
        // The workspace takes TLS from `ring` alone, and reqwest wants the choice made once for the process; another
        // test of this process may have made it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(130))
            .build()
            .expect("a client without options can be made");
        Self { base, http }
    }

    pub fn base(&self) -> &str {
        &self.base
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Answer, String> {
        let response = request.send().await.map_err(|error| format!("{error:?}"))?;
        let status = response.status().as_u16();
        let content_type =
            response.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let text = response.text().await.map_err(|error| format!("{error:?}"))?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Answer { status, content_type, body })
    }

    pub async fn try_get(&self, path: &str) -> Result<Answer, String> {
        self.send(self.http.get(format!("{}{path}", self.base))).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.try_get(path).await.unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    pub async fn delete(&self, path: &str) -> Answer {
        let request = self.http.delete(format!("{}{path}", self.base));
        self.send(request).await.unwrap_or_else(|error| panic!("DELETE {path}: {error}"))
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        let request = self
            .http
            .put(format!("{}{path}", self.base))
            .header("content-type", "application/json")
            .body(body.to_string());
        self.send(request).await.unwrap_or_else(|error| panic!("PUT {path}: {error}"))
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_with(path, &[], body.to_string()).await
    }

    /// POST of any text, with headers that may replace the usual ones.
    pub async fn post_with(&self, path: &str, headers: &[(&str, &str)], body: String) -> Answer {
        let mut request = self.http.post(format!("{}{path}", self.base));
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(body)).await.unwrap_or_else(|error| panic!("POST {path}: {error}"))
    }

    /// Publishes a plugin's folder; what the publisher is shown.
    pub async fn publish(&self, folder: &Path) -> Value {
        let mut files = serde_json::Map::new();
        collect(folder, folder, &mut files);
        self.post("/v1/plugins", &json!({ "files": files })).await.ok()
    }

    /// Makes an agent with this plugin installed for its account.
    pub async fn install(&self, account: &str, plugin: &str) {
        self.post("/v1/installations", &json!({ "account": account, "plugin": plugin })).await.ok();
    }

    pub async fn agent(&self, account: &str, agent: &str) {
        self.post("/v1/agents", &json!({ "id": agent, "account": account })).await.ok();
    }

    /// One call, waited for: its result.
    pub async fn call(&self, agent: &str, tool: &str, input: Value) -> Value {
        let body = json!({ "agent": agent, "tool": tool, "input": input });
        let answer = self.post_with("/v1/calls", &[("prefer", "wait=100")], body.to_string()).await;
        assert_eq!(answer.status, 200, "{:#}", answer.body);
        answer.body
    }
}

fn collect(root: &Path, folder: &Path, files: &mut serde_json::Map<String, Value>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("a folder's entry can be read").path();
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            let name = path.strip_prefix(root).expect("it is below the root").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            files.insert(name, Value::String(text));
        }
    }
}
