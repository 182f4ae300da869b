//! The HTTP API, as commands use it.

use crate::args::ApiArg;
use crate::exit::{unreachable, wrong};
use anyhow::{Context, Result, anyhow};
use serde_json::Value;
use std::time::Duration;

/// Longer than any call is waited for.
const TIMEOUT: Duration = Duration::from_secs(180);

/// A scheduler's API.
pub struct Client {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
}

/// Status and body.
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

impl Answer {
    /// The body of a success; a problem told as the API tells it otherwise.
    pub fn success(self) -> Result<Value> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        let told = [&self.body["detail"], &self.body["title"]].into_iter().find_map(Value::as_str);
        let mut text = told.unwrap_or("the scheduler refused").to_owned();
        for one in self.body["errors"].as_array().into_iter().flatten() {
            let part = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
            text += &format!("\n  {}: {}", part("pointer"), part("detail"));
        }
        let error = anyhow!("{text} ({})", self.status);
        Err(if (400..500).contains(&self.status) { wrong(error) } else { error })
    }
}

impl Client {
    pub fn new(api: &ApiArg) -> Result<Self> {
        // The process's choice of a TLS library; whoever made it first has made the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().timeout(TIMEOUT).build()?;
        let base = api.url.trim_end_matches('/').to_owned();
        if !base.starts_with("http://") && !base.starts_with("https://") {
            return Err(wrong(anyhow!("--url must be http://host:port or https://host:port, but is {base:?}")));
        }
        Ok(Self { http, base, token: api.token.clone() })
    }

    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.send(self.http.get(format!("{}{path}", self.base))).await
    }

    pub async fn post(&self, path: &str, body: String, wait_s: Option<u32>) -> Result<Answer> {
        let mut request = self.http.post(format!("{}{path}", self.base)).header("content-type", "application/json");
        if let Some(seconds) = wait_s {
            request = request.header("prefer", format!("wait={seconds}"));
        }
        self.send(request.body(body)).await
    }

    /// Calls, submitted together and waited for; can be moved to a task of its own.
    pub fn batch(&self, body: String, wait_s: u32) -> impl Future<Output = Result<Answer>> + Send + 'static {
        let client = Self { http: self.http.clone(), base: self.base.clone(), token: self.token.clone() };
        async move { client.post("/v1/calls", body, Some(wait_s)).await }
    }

    async fn send(&self, mut request: reqwest::RequestBuilder) -> Result<Answer> {
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let response = request
            .send()
            .await
            .with_context(|| format!("no scheduler answers at {} (--url, TOOLFLEET_URL)", self.base))
            .map_err(unreachable)?;
        let status = response.status().as_u16();
        let text = response.text().await.context("the scheduler's answer broke off").map_err(unreachable)?;
        Ok(Answer { status, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) })
    }
}
