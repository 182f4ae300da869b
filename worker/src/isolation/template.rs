//! One template, as the worker holds it.

use super::blank::{Blank, Guard};
use super::cgroup::{CallGroup, Group, Nest};
use super::root::{Root, receive, send};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use toolfleet_protocol::{Bundle, CallError, FailureKind, Limits};
use toolfleet_sandbox::control::{FromTemplate, Join, ToTemplate};
use toolfleet_sandbox::wire::{self, HEADER_BYTES, Kind, Load};

/// How a template ended.
#[derive(Debug, Clone, Copy)]
pub enum Ended {
    Status(i32),
    NotStarted(i32),
}

/// How a call's process ended, or the number of the error for which it was never there.
pub type CallEnd = Result<CallEnded, i32>;

#[derive(Debug, Clone, Copy)]
pub struct CallEnded {
    pub status: i32,
    pub cpu_us: u64,
    pub peak_kib: u64,
}

/// What a template is to hold, and under which limits.
pub struct Order<'a> {
    pub bundle: &'a Bundle,
    pub limits: Limits,
    pub heap_bytes: u64,
    pub load_ms: u64,
    pub inspect: bool,
}

/// The engine's own message comes first, if it can still speak.
const LOAD_GRACE: Duration = Duration::from_millis(250);
/// An inspection of many tools with large schemas; a load's answer is far smaller.
const LOAD_ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A loaded template. Dropped, it is killed.
pub struct Template {
    next_call: AtomicU32,
    line: Arc<Line>,
    /// Its cgroups and its calls'.
    nest: Option<Arc<Nest>>,
    /// Cancelled when the template is gone.
    pub gone: CancellationToken,
    guard: Guard,
}

/// A process that was forked for a call and waits for its start. It has its template's memory and nothing of any call.
pub struct Waiting {
    pub call: u32,
    pub stream: UnixStream,
    pub ended: oneshot::Receiver<CallEnd>,
    pub group: Option<CallGroup>,
    memory_bytes: u64,
}

/// The first call of a template forks for itself and may stay the only one.
const SPARE_FROM_CALL: u32 = 2;
const DISCARD_WAIT: Duration = Duration::from_millis(250);

/// The socket to a template, which its listener shares.
struct Line {
    control: AsyncFd<OwnedFd>,
    /// Told when a call ends, by its number. Bounded by the worker's slots.
    calls: Mutex<HashMap<u32, oneshot::Sender<CallEnd>>>,
    /// One process ahead of its call.
    spare: Mutex<Option<Waiting>>,
}

/// What loading gave.
pub enum Loaded {
    Template(Arc<Template>),
    Inspected(Vec<u8>),
}

impl Template {
    /// Has a process evaluate a bundle.
    pub async fn load(blank: Blank, order: Order<'_>) -> Result<Loaded, CallError> {
        let Blank { control, load, mut ended, nest, guard } = blank;
        let nest = nest.map(Arc::new);
        let line = Arc::new(Line { control, calls: Mutex::default(), spare: Mutex::default() });
        // Dropped, which it is unless all goes well, it is killed.
        let template = Arc::new(Self {
            next_call: AtomicU32::new(0),
            line: Arc::clone(&line),
            nest: nest.clone(),
            gone: CancellationToken::new(),
            guard,
        });
        // The first call's process is asked for along with the load, and forked as soon as that is done.
        if !order.inspect
            && let Ok(first) = template.fork(order.limits.memory_bytes).await
        {
            line.put_spare(first);
        }
        let answer = ask(load, &order).await;
        let mut how = None;
        let failed = match answer {
            Ok((Kind::Loaded, _)) => {
                let (root, id, gone) = (Arc::clone(&template.guard.root), template.guard.id, template.gone.clone());
                // Both end with the template, whose socket and process they wait for.
                tokio::spawn(listen(Arc::clone(&line), root, id));
                tokio::spawn(async move {
                    // However it ended, or its root with it.
                    let _ = ended.await;
                    gone.cancel();
                    // The spare is gone with it. The groups are free once its last call has let go of them.
                    drop((line.take_spare(), nest));
                });
                return Ok(Loaded::Template(template));
            }
            Ok((Kind::Inspected, inspection)) => Ok(Loaded::Inspected(inspection)),
            Ok((Kind::LoadFailed, error)) => Err(load_failure(&error)),
            Ok((Kind::Forbidden, number)) => {
                let number = number.first_chunk().map_or(u32::MAX, |number| u32::from_le_bytes(*number));
                let message = format!("the plugin's process {}", super::call::say_forbidden(number));
                Err(CallError::new(FailureKind::LoadFailed, message))
            }
            Ok((kind, _)) => {
                let message = format!("a plugin's process answered what none does when it was loaded: {kind:?}");
                Err(CallError::new(FailureKind::LoadFailed, message))
            }
            Err(AskError::TooSlow) => Err(CallError::new(
                FailureKind::LoadFailed,
                format!(
                    "the plugin takes longer than {} s to load: its top level must only register tools; do the work in \
                     a handler",
                    order.load_ms as f64 / 1000.0
                ),
            )),
            Err(AskError::Ended) => {
                how = tokio::time::timeout(LOAD_GRACE, &mut ended).await.ok();
                let out_of_memory = nest.as_ref().is_some_and(|nest| nest.own().was_out_of_memory());
                Err(ended_while_loading(how.clone().and_then(Result::ok), out_of_memory, order.limits.memory_bytes))
            }
        };
        drop(template);
        // Ends with the process, which is killed.
        tokio::spawn(async move {
            if how.is_none() {
                let _ = ended.await;
            }
            drop((line.take_spare(), nest));
        });
        failed
    }

    /// A process for a call: the spare one, or else one that is forked now.
    pub async fn waiting(&self, memory_bytes: u64) -> io::Result<Waiting> {
        if let Some(mut spare) = self.line.take_spare() {
            let is_there = matches!(spare.ended.try_recv(), Err(oneshot::error::TryRecvError::Empty));
            if is_there && spare.memory_bytes == memory_bytes {
                return Ok(spare);
            }
            self.discard(spare).await;
        }
        self.fork(memory_bytes).await
    }

    /// Forks the next call's process ahead of it, once a template has shown that calls follow each other.
    pub fn keep_spare(self: &Arc<Self>, memory_bytes: u64) {
        if self.next_call.load(Ordering::Relaxed) < SPARE_FROM_CALL || self.line.has_spare() {
            return;
        }
        let template = Arc::clone(self);
        // Ends with the packet sent. A spare that can't be made is not missed: the next call forks for itself.
        tokio::spawn(async move {
            let Ok(waiting) = template.fork(memory_bytes).await else { return };
            let mut surplus = template.line.put_spare(waiting);
            if template.gone.is_cancelled() {
                surplus = surplus.or(template.line.take_spare());
            }
            if let Some(surplus) = surplus {
                template.discard(surplus).await;
            }
        });
    }

    /// Ends a process that no call was given to.
    async fn discard(&self, waiting: Waiting) {
        self.kill_call(waiting.call).await;
        // However that went: a group with something in it is not used again.
        let _ = tokio::time::timeout(DISCARD_WAIT, waiting.ended).await;
        drop(waiting.group);
    }

    /// Forks a process for a call.
    async fn fork(&self, memory_bytes: u64) -> io::Result<Waiting> {
        let group = self.nest.as_ref().map(|nest| nest.call(memory_bytes)).transpose()?;
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let stream = UnixStream::from_std(ours)?;
        let call = self.next_call.fetch_add(1, Ordering::Relaxed);
        let (sender, ended) = oneshot::channel();
        self.line.calls.lock().expect("nothing panics while it is held").insert(call, sender);
        let (join, doors) = group.as_deref().map_or((Join::None, Vec::new()), Group::door);
        let mut descriptors = vec![theirs.as_fd()];
        descriptors.extend(doors);
        let sent = send(&self.line.control, &ToTemplate::Fork { call, join }.encode(), &descriptors).await;
        if sent.is_err() {
            self.line.calls.lock().expect("nothing panics while it is held").remove(&call);
        }
        sent.map(|()| Waiting { call, stream, ended, group, memory_bytes })
    }

    /// Has a call killed, by its parent.
    pub async fn kill_call(&self, call: u32) {
        // A template that is gone has taken its calls with it.
        let _ = send(&self.line.control, &ToTemplate::Kill { call }.encode(), &[]).await;
    }

    /// Ends the template, and every call of it.
    pub async fn kill(&self) {
        self.guard.root.kill_template(self.guard.id).await;
    }
}

async fn listen(line: Arc<Line>, root: Arc<Root>, id: u32) {
    while let Some(packet) = receive(&line.control).await {
        let known = match FromTemplate::decode(&packet) {
            Some(FromTemplate::Exited { call, status, cpu_us, peak_kib }) => {
                line.call_ended(call, Ok(CallEnded { status, cpu_us, peak_kib }))
            }
            Some(FromTemplate::ForkFailed { call, errno }) => line.call_ended(call, Err(errno)),
            None => false,
        };
        if !known {
            // It speaks in a way that it doesn't, or of calls that it doesn't have: somebody else is in there.
            tracing::warn!("a template speaks as none does, and is ended");
            break;
        }
    }
    root.kill_template(id).await;
    // Whoever waits for a call's end learns that it ended with its template.
    line.calls.lock().expect("nothing panics while it is held").clear();
}

impl Line {
    fn spare(&self) -> std::sync::MutexGuard<'_, Option<Waiting>> {
        self.spare.lock().expect("nothing panics while it is held")
    }

    fn has_spare(&self) -> bool {
        self.spare().is_some()
    }

    fn take_spare(&self) -> Option<Waiting> {
        self.spare().take()
    }

    /// Gives back the one that was there.
    fn put_spare(&self, waiting: Waiting) -> Option<Waiting> {
        self.spare().replace(waiting)
    }

    /// False if there is no such call.
    fn call_ended(&self, call: u32, how: CallEnd) -> bool {
        let waiting = self.calls.lock().expect("nothing panics while it is held").remove(&call);
        let known = waiting.is_some();
        if let Some(waiting) = waiting {
            // Nobody may care.
            let _ = waiting.send(how);
        }
        known
    }
}

enum AskError {
    TooSlow,
    Ended,
}

/// Sends the bundle and takes the answer.
async fn ask(mut stream: UnixStream, order: &Order<'_>) -> Result<(Kind, Vec<u8>), AskError> {
    let request = Load {
        bundle: order.bundle.clone(),
        limits: order.limits,
        heap_bytes: order.heap_bytes,
        load_ms: order.load_ms,
        inspect: order.inspect,
    };
    let json = serde_json::to_vec(&request).expect("a bundle has only string keys");
    let exchange = async {
        stream.write_all(&wire::encode(Kind::Load, &[&json])).await?;
        let mut header = [0; HEADER_BYTES];
        stream.read_exact(&mut header).await?;
        let (kind, length) = wire::decode_header(header, LOAD_ANSWER_BYTES_MAX).map_err(io::Error::other)?;
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await?;
        Ok::<_, io::Error>((kind, payload))
    };
    match tokio::time::timeout(Duration::from_millis(order.load_ms) + LOAD_GRACE, exchange).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(AskError::Ended),
        Err(_) => Err(AskError::TooSlow),
    }
}

fn load_failure(json: &[u8]) -> CallError {
    match serde_json::from_slice::<CallError>(json) {
        Ok(error) => CallError { kind: FailureKind::LoadFailed, ..error },
        Err(_) => CallError::new(FailureKind::LoadFailed, "the plugin did not load, and said so in no known way"),
    }
}

fn ended_while_loading(how: Option<Ended>, out_of_memory: bool, memory_bytes: u64) -> CallError {
    let message = match how {
        _ if out_of_memory => format!(
            "the plugin uses more than its {} MB of memory while it is loaded: build large data in a handler",
            memory_bytes / (1024 * 1024)
        ),
        Some(Ended::NotStarted(errno)) => {
            format!("its process could not be started: {}", io::Error::from_raw_os_error(errno))
        }
        Some(Ended::Status(status)) => {
            format!("its process ended while it loaded the plugin: {}", super::call::say(status))
        }
        None => "its process ended while it loaded the plugin".into(),
    };
    CallError::new(FailureKind::LoadFailed, message)
}
