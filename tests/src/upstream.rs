//! A service that plugins call: it stands where the internet would be.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// One request that arrived.
#[derive(Debug, Clone)]
pub struct Arrived {
    pub method: String,
    pub host: String,
    pub path: String,
    pub idempotency_key: Option<String>,
    pub body: String,
}

/// A local HTTP server that answers everything with one text and remembers what arrived.
pub struct Upstream {
    address: SocketAddr,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Clone)]
struct Shared {
    arrived: Arc<Mutex<Vec<Arrived>>>,
    answer: Arc<str>,
}

impl Upstream {
    pub async fn start(answer: &str) -> Self {
        let arrived = Arc::default();
        let shared = Shared { arrived: Arc::clone(&arrived), answer: answer.into() };
        let router = Router::new().fallback(take).with_state(shared);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("the listener stays");
        });
        Self { address, arrived, server }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().expect("no test panics holding it").clone()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn take(
    State(shared): State<Shared>,
    method: axum::http::Method,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> String {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    shared.arrived.lock().expect("no test panics holding it").push(Arrived {
        method: method.to_string(),
        host: header("host").unwrap_or_default(),
        path: uri.to_string(),
        idempotency_key: header("idempotency-key"),
        body,
    });
    shared.answer.to_string()
}
