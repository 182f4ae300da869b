//! One call, from its fork to its end.

use super::incoming::{Frame, Incoming};
use super::template::{CallEnd, Template, Waiting};
use super::{Host, RunEnd, RunRequest};
use bytes::{Buf, BytesMut};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use toolfleet_protocol::host::HostError;
use toolfleet_protocol::{CallError, FailureKind, Limits, Outcome};
use toolfleet_sandbox::wire::{self, Start};

/// After its limit a call may still say itself that it took too long; then it is killed.
const SPEAK_GRACE: Duration = Duration::from_millis(60);
/// A process that was told to die, or said that it is done, is gone within this, though a thousand others of its
/// template end with it; else its template is killed.
const END_WAIT: Duration = Duration::from_millis(1_500);
/// Answers that a call has not read yet. While there are more, nothing more is answered.
const UNREAD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How the exchange with a call ended.
enum Exchange {
    Value(Vec<u8>),
    Failure(Vec<u8>),
    Forbidden(u32),
    /// It closed its socket without a result.
    Silent,
    TooLong,
    Cancelled,
    Violation(String),
}

/// Forks a call from its template and sees it through.
pub async fn run(template: &Arc<Template>, request: &RunRequest, host: &Arc<dyn Host>) -> RunEnd {
    let started = Instant::now();
    let mut usage = Used::default();
    let outcome = match begin(template, request).await {
        Err(error) => Outcome::Failed { error },
        Ok(running) => finish(template, request, host, running, &mut usage).await,
    };
    RunEnd {
        outcome,
        wall_ms: millis(started.elapsed()),
        cpu_ms: usage.cpu_us.div_ceil(1000),
        peak_memory_bytes: usage.peak_bytes,
        host_calls: usage.host_calls,
    }
}

#[derive(Default)]
struct Used {
    cpu_us: u64,
    peak_bytes: u64,
    host_calls: u64,
}

/// A call's process that has been given its input.
struct Running {
    waiting: Waiting,
    /// What it has not taken yet of what was said to it.
    unread: BytesMut,
}

async fn begin(template: &Arc<Template>, request: &RunRequest) -> Result<Running, CallError> {
    let waiting = template.waiting(request.limits.memory_bytes).await.map_err(|error| {
        CallError::new(FailureKind::Crashed, format!("the call's process could not be started: {error}"))
    })?;
    let mut unread = start_frame(request);
    // It may be gone already; then its end tells how.
    if let Ok(written) = waiting.stream.try_write(&unread) {
        unread.advance(written);
    }
    template.keep_spare(request.limits.memory_bytes);
    Ok(Running { waiting, unread })
}

async fn finish(
    template: &Arc<Template>,
    request: &RunRequest,
    host: &Arc<dyn Host>,
    running: Running,
    usage: &mut Used,
) -> Outcome {
    let Running { waiting: Waiting { call, stream, mut ended, group, .. }, unread } = running;
    let exchange = exchange(request, host, stream, unread, usage).await;
    // It ends by itself after its result; everything else is ended here.
    if !matches!(exchange, Exchange::Value(_) | Exchange::Failure(_)) {
        template.kill_call(call).await;
    }
    let mut how = tokio::time::timeout(END_WAIT, &mut ended).await;
    if how.is_err() && matches!(exchange, Exchange::Value(_) | Exchange::Failure(_)) {
        // It goes on after its result.
        template.kill_call(call).await;
        how = tokio::time::timeout(END_WAIT, &mut ended).await;
    }
    if how.is_err() {
        tracing::warn!(call = %request.call_id, "a template did not end its call, and is ended with it");
        template.kill().await;
        // The kernel ends what is in its pid namespace before the template is gone.
        let _ = tokio::time::timeout(END_WAIT, template.gone.cancelled()).await;
    }
    let how = how.ok().and_then(Result::ok);
    let left_by_itself = matches!(how, Some(Ok(how)) if libc::WIFEXITED(how.status));
    let out_of_memory = !left_by_itself && group.as_ref().is_some_and(|group| group.was_out_of_memory());
    if let Some(Ok(how)) = how {
        usage.cpu_us = how.cpu_us;
        usage.peak_bytes = how.peak_kib * 1024;
    }
    if let Some(peak) = group.as_ref().and_then(|group| group.peak_bytes()) {
        usage.peak_bytes = peak;
    }
    // The next call may have it: nothing is in it any more.
    drop(group);
    classify(exchange, how, out_of_memory, &request.limits)
}

/// The number of a host call, and its answer.
type Answered = (u32, Result<Box<RawValue>, HostError>);

fn start_frame(request: &RunRequest) -> BytesMut {
    let context = serde_json::json!({ "callId": request.call_id, "initiator": request.initiator }).to_string();
    let start = Start {
        wall_ms: request.limits.wall_ms,
        tool: request.tool.as_str(),
        context: &context,
        input: request.input.get(),
    };
    BytesMut::from(&wire::encode_start(&start)[..])
}

/// Sends the rest of the input, answers host calls and takes the result.
async fn exchange(
    request: &RunRequest,
    host: &Arc<dyn Host>,
    mut stream: UnixStream,
    mut unread: BytesMut,
    usage: &mut Used,
) -> Exchange {
    let limits = &request.limits;
    let deadline = tokio::time::Instant::now() + Duration::from_millis(limits.wall_ms) + SPEAK_GRACE;
    let (mut reader, mut writer) = stream.split();
    let mut input = BytesMut::new();
    let mut asked: FuturesUnordered<BoxFuture<'_, Answered>> = FuturesUnordered::new();
    let mut incoming = Incoming::default();
    loop {
        tokio::select! {
            biased;
            () = request.cancel.cancelled() => return Exchange::Cancelled,
            () = tokio::time::sleep_until(deadline) => return Exchange::TooLong,
            Some((ordinal, answer)) = asked.next(), if !asked.is_empty() && unread.len() < UNREAD_BYTES_MAX => {
                unread.extend_from_slice(&encode_answer(ordinal, answer, limits));
            }
            written = writer.write(&unread), if !unread.is_empty() => match written {
                Ok(count) => unread.advance(count),
                // It closed its end; what it sent before is still there to be read.
                Err(_) => unread.clear(),
            },
            read = reader.read_buf(&mut input) => {
                if !matches!(read, Ok(count) if count > 0) {
                    return Exchange::Silent;
                }
                loop {
                    match incoming.take(&mut input, limits, asked.len()) {
                        Ok(None) => break,
                        Ok(Some(Frame::HostCall { ordinal, method, arguments })) => {
                            usage.host_calls += 1;
                            let host = Arc::clone(host);
                            asked.push(Box::pin(async move { (ordinal, host.call(ordinal, method, arguments).await) }));
                        }
                        Ok(Some(Frame::Log { level, message, fields })) => host.log(level, &message, fields),
                        Ok(Some(Frame::Value(json))) => return Exchange::Value(json),
                        Ok(Some(Frame::Failure(json))) => return Exchange::Failure(json),
                        Ok(Some(Frame::Forbidden(number))) => return Exchange::Forbidden(number),
                        Err(violation) => return Exchange::Violation(violation),
                    }
                }
            }
        }
    }
}

fn encode_answer(ordinal: u32, answer: Result<Box<RawValue>, HostError>, limits: &Limits) -> Vec<u8> {
    use toolfleet_protocol::host::HostErrorName::LimitError;
    let answer = match answer {
        Ok(value) if value.get().len() as u64 > limits.host_call_bytes_max => Err(HostError::new(
            LimitError,
            format!("the answer has {} bytes, more than {}", value.get().len(), limits.host_call_bytes_max),
        )),
        other => other,
    };
    match answer {
        Ok(value) => wire::encode_host_reply(ordinal, true, value.get()),
        Err(error) => {
            let json = serde_json::to_string(&error).unwrap_or_else(|_| "{}".into());
            wire::encode_host_reply(ordinal, false, &json)
        }
    }
}

fn classify(exchange: Exchange, how: Option<CallEnd>, out_of_memory: bool, limits: &Limits) -> Outcome {
    let failed = |kind, message: String| Outcome::Failed { error: CallError::new(kind, message) };
    match exchange {
        Exchange::Value(json) => value(json, limits),
        Exchange::Failure(json) => Outcome::Failed { error: failure(&json) },
        Exchange::Cancelled => failed(FailureKind::Cancelled, "the call was cancelled while it ran".into()),
        _ if out_of_memory => failed(FailureKind::Memory, over_memory(limits)),
        Exchange::TooLong => failed(FailureKind::Timeout, over_time(limits)),
        Exchange::Violation(what) => {
            failed(FailureKind::Crashed, format!("the call's process sent {what}; it was ended"))
        }
        Exchange::Forbidden(number) => {
            failed(FailureKind::Crashed, format!("the call's process {}", say_forbidden(number)))
        }
        Exchange::Silent => {
            let message = match how {
                Some(Ok(how)) => format!("the call's process ended without a result: {}", say(how.status)),
                Some(Err(errno)) => {
                    format!("the call's process could not be forked: {}", std::io::Error::from_raw_os_error(errno))
                }
                None => "the call's process ended without a result: its template ended".into(),
            };
            failed(FailureKind::Crashed, message)
        }
    }
}

fn value(json: Vec<u8>, limits: &Limits) -> Outcome {
    let failed = |kind, message: String| Outcome::Failed { error: CallError::new(kind, message) };
    if json.len() as u64 > limits.result_bytes_max {
        let bytes = json.len();
        let max = limits.result_bytes_max;
        return failed(FailureKind::TooLarge, format!("the result has {bytes} bytes of JSON, more than {max}"));
    }
    match String::from_utf8(json).ok().and_then(|text| RawValue::from_string(text).ok()) {
        Some(value) => Outcome::Ok { value },
        None => failed(FailureKind::Crashed, "the call's process sent a result that isn't JSON".into()),
    }
}

const NAME_CHARS_MAX: usize = 200;
const MESSAGE_CHARS_MAX: usize = 4_000;
const STACK_CHARS_MAX: usize = 8_000;

/// What the process says of its own failure; it can't claim one that only the fleet decides.
fn failure(json: &[u8]) -> CallError {
    use FailureKind::{Crashed, Memory, Stalled, Thrown, Timeout, TooLarge, ToolNotFound, Unserializable};
    let cut = |text: String, max: usize| text.chars().take(max).collect::<String>();
    match serde_json::from_slice::<CallError>(json) {
        Ok(error)
            if matches!(
                error.kind,
                Thrown | Timeout | Memory | Stalled | Unserializable | TooLarge | ToolNotFound | Crashed
            ) =>
        {
            CallError {
                kind: error.kind,
                name: error.name.map(|name| cut(name, NAME_CHARS_MAX)),
                message: cut(error.message, MESSAGE_CHARS_MAX),
                stack: error.stack.map(|stack| cut(stack, STACK_CHARS_MAX)),
            }
        }
        _ => CallError::new(Crashed, "the call's process sent a failure in no known form"),
    }
}

pub fn over_memory(limits: &Limits) -> String {
    format!(
        "the call used more than its {} MB of memory: work on less at once, or keep less of it",
        limits.memory_bytes / (1024 * 1024)
    )
}

fn over_time(limits: &Limits) -> String {
    format!("the call took longer than its {} s: do less in one call, or wait for less", limits.wall_ms as f64 / 1000.0)
}

/// A system call that was not made, in words.
pub fn say_forbidden(number: u32) -> String {
    // Giving up, the C library signals its own process; a sandboxed process can signal nobody.
    const TGKILL: u32 = libc::SYS_tgkill as u32;
    match syscalls::Sysno::new(number as usize) {
        Some(_) if number == TGKILL => "gave up, or tried to signal a process (tgkill), and was ended".into(),
        Some(name) => format!("tried a system call that no plugin may make, {name}, and was ended"),
        None => format!("tried a system call of another kind, number {number}, and was ended"),
    }
}

/// A wait status in words.
pub fn say(status: i32) -> String {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        let name = match signal {
            libc::SIGABRT => " (SIGABRT: the engine gave up)",
            libc::SIGSEGV => " (SIGSEGV: a bad memory access, or the stack's end)",
            libc::SIGBUS => " (SIGBUS)",
            libc::SIGILL => " (SIGILL)",
            libc::SIGKILL => " (SIGKILL: somebody killed it)",
            libc::SIGSYS => " (SIGSYS: a forbidden system call)",
            _ => "",
        };
        format!("signal {signal}{name}")
    } else {
        format!("exit code {}", libc::WEXITSTATUS(status))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_cannot_claim_what_the_fleet_decides() {
        for kind in ["cancelled", "expired", "lost", "accessDenied", "loadFailed", "nonsense"] {
            let json = format!(r#"{{"kind":"{kind}","message":"m"}}"#);
            assert_eq!(failure(json.as_bytes()).kind, FailureKind::Crashed, "{kind}");
        }
    }
}
