//! `host.fetch`: HTTP out, to the hosts of the plugin's manifest and to public addresses alone.

use super::address::is_public;
use super::arguments::Arguments;
use super::{CallHost, egress, store_failed};
use crate::FetchConfig;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Method, Response, StatusCode, redirect};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use toolfleet_protocol::EgressRule;
use toolfleet_protocol::host::{FetchRequest, FetchResponse, HostError, HostErrorName, TextEncoding};
use toolfleet_store::records::{EFFECT_RETENTION, EffectKey};
use url::Url;

/// Names and values of a request together.
const HEADER_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 100;
/// What a call's answer from us may take to get back to it.
const MARGIN: Duration = Duration::from_millis(100);

/// Headers that are the connection's business, or that the platform sets.
const FORBIDDEN: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Why a worker can't fetch.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("fetch.upstreams.{host:?} must be an http:// or https:// URL without path, but is {url:?}")]
    Upstream { host: String, url: String },
    #[error("the HTTP client could not be made: {0}")]
    Client(reqwest::Error),
}

/// HTTP clients for all calls of a worker: connections are reused, and nothing else is shared.
pub struct Fetcher {
    config: FetchConfig,
    /// Reaches public addresses only.
    public: Client,
    /// Reaches what the operator named.
    upstream: Client,
    upstreams: HashMap<String, Url>,
}

impl Fetcher {
    pub fn new(config: FetchConfig) -> Result<Self, FetchError> {
        let mut upstreams = HashMap::new();
        for (host, text) in &config.upstreams {
            let url = Url::parse(text).ok().filter(|url| {
                matches!(url.scheme(), "http" | "https") && url.path() == "/" && url.query().is_none() && url.has_host()
            });
            let Some(url) = url else {
                return Err(FetchError::Upstream { host: host.clone(), url: text.clone() });
            };
            upstreams.insert(host.to_ascii_lowercase(), url);
        }
        // The process's choice of a TLS library; whoever made it first has made the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = |resolver: Option<PublicResolver>| {
            let mut builder = Client::builder()
                .redirect(redirect::Policy::none())
                .no_proxy()
                .connect_timeout(Duration::from_millis(config.connect_timeout_ms))
                .user_agent(concat!("toolfleet/", env!("CARGO_PKG_VERSION")));
            if let Some(resolver) = resolver {
                builder = builder.dns_resolver(Arc::new(resolver));
            }
            builder.build().map_err(FetchError::Client)
        };
        Ok(Self { public: client(Some(PublicResolver))?, upstream: client(None)?, upstreams, config })
    }

    /// Which client goes where for this URL: to its host, or to what stands for it.
    fn route(&self, url: &Url) -> (&Client, Url, Option<HeaderValue>) {
        let host = url.host_str().unwrap_or_default().trim_end_matches('.');
        let Some(base) = self.upstreams.get(host) else { return (&self.public, url.clone(), None) };
        let mut there = base.clone();
        there.set_path(url.path());
        there.set_query(url.query());
        (&self.upstream, there, HeaderValue::from_str(host).ok())
    }
}

/// Resolves names and gives no address that isn't public; the connection is made to one of those given, so nothing
/// can change between the look and the connection.
struct PublicResolver;

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // One private address among public ones is no accident.
            if found.iter().any(|address| !is_public(address.ip())) {
                return Err(PrivateAddress.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the host's name leads to an address that is not public")]
struct PrivateAddress;

/// One request, and the redirects that it leads to.
pub async fn fetch(host: &CallHost, mut arguments: Arguments, effect: &EffectKey) -> Result<FetchResponse, HostError> {
    let request: FetchRequest = arguments.required("request")?;
    let method = method(&arguments, request.method.as_deref())?;
    let mut headers = headers(&arguments, &request.headers)?;
    let body = match (&request.body, request.body_encoding) {
        (None, _) => None,
        (Some(text), TextEncoding::Utf8) => Some(text.clone().into_bytes()),
        (Some(text), TextEncoding::Base64) => Some(
            STANDARD.decode(text).map_err(|error| arguments.wrong(format!("request.body is no base64: {error}")))?,
        ),
    };
    arguments.end()?;
    let url = egress::check(&request.url, &host.release.egress)?;
    let only_looks = matches!(method, Method::GET | Method::HEAD);
    if !only_looks {
        if let Some(answer) = host.records.journal_lookup(effect).await.map_err(|error| store_failed(&error))? {
            return recorded(answer);
        }
        if !headers.contains_key("idempotency-key")
            && let Ok(key) = HeaderValue::from_str(&effect.id())
        {
            headers.insert("idempotency-key", key);
        }
    }
    let left = host.deadline.saturating_duration_since(tokio::time::Instant::now()).saturating_sub(MARGIN);
    let wanted = Duration::from_millis(request.timeout_ms.unwrap_or(host.fetcher.config.timeout_ms));
    let timeout = wanted.min(left);
    let exchange = exchange(&host.fetcher, &host.release.egress, method, url, headers, body, request.body_encoding);
    let answer = match tokio::time::timeout(timeout, exchange).await {
        Ok(answer) => answer,
        Err(_) => Err(HostError::new(
            HostErrorName::HostError,
            format!("host.fetch: no answer within {} ms", timeout.as_millis()),
        )),
    };
    // An answer is the effect's record. A failure is not: nobody knows what came of it, and whoever asks again asks
    // with the same key.
    if let (false, Ok(response)) = (only_looks, &answer) {
        let value = serde_json::value::to_raw_value(response)
            .map_err(|error| HostError::new(HostErrorName::HostError, error.to_string()))?;
        let recorded = host.records.journal_record(effect, &Ok(value), EFFECT_RETENTION).await;
        recorded.map_err(|error| store_failed(&error))?;
    }
    answer
}

fn recorded(answer: Result<Box<serde_json::value::RawValue>, HostError>) -> Result<FetchResponse, HostError> {
    let value = answer?;
    serde_json::from_str(value.get()).map_err(|error| {
        HostError::new(HostErrorName::HostError, format!("the recorded answer can't be read: {error}"))
    })
}

fn method(arguments: &Arguments, text: Option<&str>) -> Result<Method, HostError> {
    let text = text.unwrap_or("GET").to_ascii_uppercase();
    match text.as_str() {
        "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" => {
            Method::from_bytes(text.as_bytes()).map_err(|error| arguments.wrong(format!("request.method: {error}")))
        }
        _ => Err(arguments.wrong(format!(
            "request.method must be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS, but is {:?}",
            text.chars().take(20).collect::<String>()
        ))),
    }
}

fn headers(arguments: &Arguments, given: &BTreeMap<String, String>) -> Result<HeaderMap, HostError> {
    let bytes: usize = given.iter().map(|(name, value)| name.len() + value.len()).sum();
    if given.len() > HEADERS_MAX || bytes > HEADER_BYTES_MAX {
        return Err(HostError::new(
            HostErrorName::LimitError,
            format!("host.fetch: at most {HEADERS_MAX} headers of {HEADER_BYTES_MAX} bytes together are sent"),
        ));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let shown: String = name.chars().take(60).collect();
        let parsed = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| arguments.wrong(format!("request.headers: {shown:?} is no header's name")))?;
        if FORBIDDEN.contains(&parsed.as_str()) || parsed.as_str().starts_with("sec-") {
            return Err(arguments.wrong(format!("request.headers: {shown:?} is set by the platform, leave it out")));
        }
        let value = HeaderValue::from_str(value).map_err(|_| {
            arguments.wrong(format!("request.headers: the value of {shown:?} has a character that none may have"))
        })?;
        headers.append(parsed, value);
    }
    Ok(headers)
}

async fn exchange(
    fetcher: &Fetcher,
    rules: &[EgressRule],
    mut method: Method,
    mut url: Url,
    mut headers: HeaderMap,
    mut body: Option<Vec<u8>>,
    encoding: TextEncoding,
) -> Result<FetchResponse, HostError> {
    for _ in 0..=fetcher.config.redirects_max {
        let (client, there, host) = fetcher.route(&url);
        let mut request = client.request(method.clone(), there).headers(headers.clone());
        if let Some(host) = host {
            request = request.header("host", host);
        }
        if let Some(body) = &body {
            request = request.body(body.clone());
        }
        let response = request.send().await.map_err(|error| failed(&url, &error))?;
        let Some(next) = redirected(&url, &response)? else {
            return read(fetcher, url, response, encoding).await;
        };
        egress::check_url(&next, rules)?;
        match response.status() {
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND if method == Method::POST => method = Method::GET,
            StatusCode::SEE_OTHER if method != Method::HEAD => method = Method::GET,
            _ => {}
        }
        if matches!(method, Method::GET | Method::HEAD) {
            body = None;
            headers.remove("content-type");
        }
        if next.origin() != url.origin() {
            // What was meant for one service is not told to another.
            for name in ["authorization", "cookie"] {
                headers.remove(name);
            }
        }
        url = next;
    }
    Err(HostError::new(
        HostErrorName::LimitError,
        format!("host.fetch: more than {} redirects", fetcher.config.redirects_max),
    ))
}

/// Where a redirect leads.
fn redirected(url: &Url, response: &Response) -> Result<Option<Url>, HostError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = response.headers().get(LOCATION) else { return Ok(None) };
    let next = location.to_str().ok().and_then(|location| url.join(location).ok());
    next.map(Some).ok_or_else(|| {
        HostError::new(HostErrorName::HostError, format!("host.fetch: {url} redirects to something that is no URL"))
    })
}

async fn read(
    fetcher: &Fetcher,
    url: Url,
    response: Response,
    encoding: TextEncoding,
) -> Result<FetchResponse, HostError> {
    let max = fetcher.config.response_bytes_max;
    let status = response.status().as_u16();
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in response.headers() {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers
            .entry(name.as_str().to_owned())
            .and_modify(|all| {
                all.push_str(", ");
                all.push_str(&value);
            })
            .or_insert(value);
    }
    let mut bytes = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| failed(&url, &error))?;
        // Counted after decompression, so that a small answer can't become a large one.
        if bytes.len() as u64 + chunk.len() as u64 > max {
            return Err(HostError::new(
                HostErrorName::LimitError,
                format!("host.fetch: the answer of {url} has more than {max} bytes"),
            ));
        }
        bytes.extend_from_slice(&chunk);
    }
    let body = match encoding {
        TextEncoding::Utf8 => String::from_utf8_lossy(&bytes).into_owned(),
        TextEncoding::Base64 => STANDARD.encode(&bytes),
    };
    Ok(FetchResponse { status, headers, body, url: url.to_string() })
}

fn failed(url: &Url, error: &reqwest::Error) -> HostError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(one) = cause {
        if one.is::<PrivateAddress>() {
            return HostError::new(HostErrorName::EgressError, format!("host.fetch: {url}: {one}"));
        }
        cause = one.source();
    }
    let what = if error.is_connect() {
        "could not be connected to"
    } else if error.is_timeout() {
        "did not answer in time"
    } else if error.is_body() || error.is_decode() {
        "broke off in its answer, or sent one that can't be read"
    } else {
        "could not be fetched"
    };
    HostError::new(HostErrorName::HostError, format!("host.fetch: {url} {what}"))
}
