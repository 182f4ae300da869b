//! What comes in: bodies, path segments, query parameters and preferences, each checked before a handler sees it.

use super::problem::{Fault, Problem, ProblemKind};
use crate::app::App;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use std::sync::Arc;
use std::time::Duration;

/// A body that arrives more slowly than this is given up, so that slow senders hold nothing for long.
const BODY_READ_MAX: Duration = Duration::from_secs(30);

/// A JSON body as bytes, of at most `scheduler.body_bytes_max`.
pub(crate) struct JsonBytes(pub(crate) Bytes);

impl FromRequest<Arc<App>> for JsonBytes {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        json_bytes(request, app.config.body_bytes_max).await.map(Self)
    }
}

/// A JSON body as `T`, of at most `scheduler.body_bytes_max`.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let bytes = json_bytes(request, app.config.body_bytes_max).await?;
        parse_object(&bytes).map(Self).map_err(|fault| Problem::faults(vec![fault]))
    }
}

/// A JSON body as `T`, of at most `scheduler.plugin_bytes_max`.
pub(crate) struct PluginBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for PluginBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let bytes = json_bytes(request, app.config.plugin_bytes_max).await?;
        parse_object(&bytes).map(Self).map_err(|fault| Problem::faults(vec![fault]))
    }
}

async fn json_bytes(request: Request, bytes_max: usize) -> Result<Bytes, Problem> {
    if !is_json(request.headers()) {
        return Err(Problem::new(ProblemKind::MediaType, "Content-Type must be application/json"));
    }
    let too_long = || Problem::new(ProblemKind::TooLong, format!("the body has more than {bytes_max} bytes"));
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|bytes: usize| bytes > bytes_max) {
        return Err(too_long());
    }
    match tokio::time::timeout(BODY_READ_MAX, collect(request.into_body(), bytes_max)).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => Err(too_long()),
        Ok(Err(error)) => Err(Problem::new(ProblemKind::InvalidRequest, format!("the body broke off: {error}"))),
        Err(_) => Err(Problem::new(ProblemKind::TooSlow, format!("the body must arrive within {BODY_READ_MAX:?}"))),
    }
}

/// All of a body; `None` if it is longer than `bytes_max`.
async fn collect(body: Body, bytes_max: usize) -> Result<Option<Bytes>, axum::Error> {
    let mut stream = body.into_data_stream();
    let mut whole = BytesMut::new();
    while let Some(part) = stream.try_next().await? {
        if whole.len() + part.len() > bytes_max {
            return Ok(None);
        }
        whole.extend_from_slice(&part);
    }
    Ok(Some(whole.freeze()))
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let media_type = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media_type == "application/json" || (media_type.starts_with("application/") && media_type.ends_with("+json"))
}

/// Reads a JSON object. Serde by itself would also take an array, for the fields in their order.
pub(crate) fn parse_object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => Err(Fault::at("", "must be an object, but is an array")),
        _ => parse_json(bytes),
    }
}

/// Reads JSON; a fault names the place by its pointer.
pub(crate) fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let mut pointer = pointer(error.path());
        let inner = error.inner();
        let text = inner.to_string();
        // A place in the text helps where it isn't JSON; where it is, the pointer says more.
        let detail = if inner.is_data() {
            text.rsplit_once(" at line ").map_or(text.as_str(), |(detail, _)| detail)
        } else {
            pointer.clear();
            text.as_str()
        };
        // Of these two kinds serde knows the object, and names the field in words.
        for (start, told) in [("missing field `", Some("must be given")), ("duplicate field `", None)] {
            if let Some(field) = detail.strip_prefix(start).and_then(|rest| rest.strip_suffix('`')) {
                return Fault::at(format!("{pointer}/{}", escape(field)), told.unwrap_or(detail));
            }
        }
        Fault::at(pointer, detail)
    })?;
    deserializer.end().map_err(|error| Fault::at("", error))?;
    Ok(value)
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => text.push_str(&format!("/{index}")),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                text.push('/');
                text.push_str(&escape(key));
            }
            Segment::Unknown => {}
        }
    }
    text
}

/// A pointer's segment (RFC 6901).
pub(crate) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Segments of the path.
pub(crate) struct Segments<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<App>> for Segments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        match Path::<T>::from_request_parts(parts, app).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(rejection) => Err(Problem::parameter("path", rejection.body_text())),
        }
    }
}

/// Parameters of the query.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, app).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(Problem::parameter("query", rejection.body_text())),
        }
    }
}

/// `Prefer: wait=SECONDS`; not longer than `max`. `None` where nobody waits.
pub(crate) fn preferred_wait(headers: &HeaderMap, max: Duration) -> Result<Option<Duration>, Problem> {
    let mut wait = None;
    for value in headers.get_all("prefer") {
        let text = value.to_str().map_err(|_| Problem::header("Prefer", "must be ASCII"))?;
        for preference in text.split(',') {
            let preference = preference.split(';').next().unwrap_or_default();
            // Preferences that aren't known are ignored, as RFC 7240 has it.
            let Some((name, seconds)) = preference.split_once('=') else { continue };
            if !name.trim().eq_ignore_ascii_case("wait") {
                continue;
            }
            let seconds: u32 = seconds.trim().trim_matches('"').parse().map_err(|_| {
                Problem::header(
                    "Prefer",
                    format!("wait must be whole seconds, for example \"wait=10\", but is {:?}", seconds.trim()),
                )
            })?;
            // The first one counts.
            wait = wait.or(Some(Duration::from_secs(u64::from(seconds)).min(max)));
        }
    }
    Ok(wait.filter(|wait| !wait.is_zero()))
}

/// `Idempotency-Key`, quoted or not.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    const NAME: &str = "Idempotency-Key";
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong = || Problem::header(NAME, "must be one key of 1 to 255 visible ASCII characters");
    if values.next().is_some() {
        return Err(wrong());
    }
    let text = value.to_str().map_err(|_| wrong())?;
    let key = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    if key.is_empty() || key.len() > 255 || !key.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
        return Err(wrong());
    }
    Ok(Some(key.to_owned()))
}

/// How deep JSON is nested: 1 for `[]`, 0 for `1`. `text` is JSON.
pub(crate) fn depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    #[allow(dead_code)]
    struct Outer {
        first: u8,
        #[serde(default)]
        inner: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Inner {
        id: u8,
    }

    #[test]
    fn a_fault_names_its_place() {
        let check = |text: &str, pointer: &str, detail: &str| {
            let fault = parse_json::<Outer>(text.as_bytes()).unwrap_err();
            let shown = format!("{fault:?}");
            assert_eq!(fault, Fault::at(pointer, detail), "{text}: {shown}");
        };
        check(r#"{}"#, "/first", "must be given");
        check(r#"{"first":300}"#, "/first", "invalid value: integer `300`, expected u8");
        check(r#"{"first":1,"a/b~":2}"#, "/a~1b~0", "unknown field `a/b~`, expected `first` or `inner`");
        check(r#"{"first":1,"inner":[{"id":1},{}]}"#, "/inner/1/id", "must be given");
        check(r#"{"first":1,"inner":[{"id":1,"x":1}]}"#, "/inner/0/x", "unknown field `x`, expected `id`");
        check(r#"{"first":1} x"#, "", "trailing characters at line 1 column 13");
        check(r#"{"first":"#, "", "EOF while parsing a value at line 1 column 9");
        check("", "", "EOF while parsing a value at line 1 column 0");
        check(r#"{"first":1,"first":1}"#, "/first", "duplicate field `first`");
    }

    #[test]
    fn depth_counts_brackets_outside_of_strings() {
        for (text, expected) in
            [("1", 0), ("[]", 1), (r#"{"a":[{}],"b":[]}"#, 3), (r#""[[[\"[[""#, 0), (r#"["\\",[]]"#, 2)]
        {
            assert_eq!(depth(text), expected, "{text}");
        }
    }

    #[test]
    fn waiting_is_asked_for_in_whole_seconds() {
        let wait = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("prefer", axum::http::HeaderValue::from_static(text));
            preferred_wait(&headers, Duration::from_secs(120)).map(|wait| wait.map(|wait| wait.as_secs()))
        };
        assert_eq!(wait("wait=10").unwrap(), Some(10));
        assert_eq!(wait("respond-async, Wait = 7; x=1").unwrap(), Some(7));
        assert_eq!(wait("wait=500").unwrap(), Some(120));
        assert_eq!(wait("wait=0").unwrap(), None);
        assert_eq!(wait("respond-async").unwrap(), None);
        assert!(wait("wait=soon").is_err());
        assert!(wait("wait=-1").is_err());
    }
}
