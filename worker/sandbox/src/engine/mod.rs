//! QuickJS with one plugin in it. Made and loaded once in a template; each call goes on with a forked copy.

mod bridge;
mod facade;
mod heap;
mod memory;
mod modules;
mod prelude;
mod random;
mod url;

pub use bridge::Finished;
pub use heap::SPACE_BYTES;

use crate::wire::{Load, Start};
use bridge::{Bridge, Shared};
use heap::{Bound, Heap};
use modules::Files;
use prelude::{Begun, Functions};
use random::Random;
use rquickjs::context::EvalOptions;
use rquickjs::promise::PromiseState;
use rquickjs::{CatchResultExt, CaughtError, Context, Ctx, Function, Module, Persistent, Promise, Runtime};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};
use toolfleet_protocol::{CallError, FailureKind, Limits};

/// How deep the engine may go on the machine's stack, far below what the process has: the guard must fire before
/// the kernel does, in native recursion too.
const STACK_BYTES: usize = 1024 * 1024;
/// The platform's own code is evaluated in some milliseconds.
const START_WAIT: Duration = Duration::from_secs(5);
/// What may lie in the heap uncollected, after loading and then in a call.
const UNCOLLECTED_BYTES_MAX: usize = 1024 * 1024;
/// Rejections that nobody awaits, kept to be logged.
const REJECTIONS_MAX: usize = 16;

/// An engine with a loaded plugin.
pub struct Engine {
    runtime: Runtime,
    context: Context,
    bridge: Shared,
    random: Random,
    bound: Bound,
    /// What the heap holds with no plugin in it.
    empty_bytes: usize,
    files: Files,
    functions: Functions,
    rejections: Rejections,
}

type Rejections = Rc<RefCell<Vec<(Persistent<rquickjs::Value<'static>>, Persistent<rquickjs::Value<'static>>)>>>;

impl Engine {
    /// Makes an engine with the platform's code in it and no plugin. It is never torn down: its process ends, which
    /// costs less and can't go wrong.
    pub fn new() -> rquickjs::Result<&'static Self> {
        let bound = Bound::default();
        let runtime = Runtime::new_with_alloc(Heap::new(bound.clone()))?;
        runtime.set_max_stack_size(STACK_BYTES);
        let files = Files::default();
        runtime.set_loader(files.clone(), files.clone());
        let bridge = Bridge::new(Limits::BASE, Instant::now() + START_WAIT, bound.clone());
        let bridge: Shared = Rc::new(RefCell::new(bridge));
        interrupt_at_the_deadline(&runtime, &bridge);
        let rejections = note_rejections(&runtime);
        let context = Context::full(&runtime)?;
        let random = Random::default();
        let functions = context.with(|ctx| prelude::evaluate(&ctx, &bridge, &random))?;
        runtime.run_gc();
        let empty_bytes = bound.used_bytes();
        let engine = Self { runtime, context, bridge, random, bound, empty_bytes, files, functions, rejections };
        Ok(Box::leak(Box::new(engine)))
    }

    /// Evaluates the bundle, once in the life of the engine.
    pub fn load(&self, load: &mut Load) -> Result<(), CallError> {
        let deadline = Instant::now() + Duration::from_millis(load.load_ms);
        self.bound.set(load.heap_bytes);
        *self.bridge.borrow_mut() = Bridge::new(load.limits, deadline, self.bound.clone());
        *self.files.0.borrow_mut() = std::mem::take(&mut load.bundle);
        let prepared = self.context.with(|ctx| {
            let prepare = self.functions.prepare.clone().restore(&ctx)?;
            let limits = load.limits;
            prepare.call::<_, ()>((
                limits.result_bytes_max as f64,
                limits.host_calls_max,
                limits.host_calls_pending_max,
                limits.host_call_bytes_max as f64,
                limits.timers_max,
            ))
        });
        prepared.map_err(|error| {
            CallError::new(FailureKind::LoadFailed, format!("the engine could not be made ready: {error}"))
        })?;
        self.evaluate()?;
        self.collect();
        Ok(())
    }

    /// Collecting writes to every object there is, and so copies the whole heap for the process that does it. It is done
    /// here where loading may have left much over, and by no call that doesn't need much itself.
    fn collect(&self) {
        if self.bound.used_bytes() > self.empty_bytes + UNCOLLECTED_BYTES_MAX {
            self.runtime.run_gc();
        }
        self.runtime.set_gc_threshold(self.bound.used_bytes() + UNCOLLECTED_BYTES_MAX);
    }

    fn evaluate(&self) -> Result<(), CallError> {
        let bundle = self.files.0.borrow();
        let Some(entry) = bundle.files.get(&bundle.entry) else {
            return Err(CallError::new(FailureKind::LoadFailed, format!("the bundle has no file {}", bundle.entry)));
        };
        let promise = self.context.with(|ctx| {
            let evaluated = if bundle.entry_is_script {
                let mut options = EvalOptions::default();
                options.global = true;
                options.strict = false;
                options.filename = Some(bundle.entry.clone());
                ctx.eval_with_options::<(), _>(entry.code.as_str(), options).map(|()| None)
            } else {
                Module::evaluate(ctx.clone(), bundle.entry.as_str(), entry.code.as_str())
                    .map(|promise| Some(Persistent::save(&ctx, promise)))
            };
            evaluated.catch(&ctx).map_err(|error| self.load_error(&ctx, &error))
        })?;
        self.run_jobs();
        if self.bridge.borrow().interrupted {
            return Err(too_slow_to_load());
        }
        let Some(promise) = promise else {
            self.rejections.borrow_mut().clear();
            return Ok(());
        };
        self.context.with(|ctx| {
            let promise: Promise<'_> =
                promise.restore(&ctx).map_err(|error| CallError::new(FailureKind::LoadFailed, error.to_string()))?;
            match promise.state() {
                PromiseState::Resolved => Ok(()),
                PromiseState::Pending => Err(CallError::new(
                    FailureKind::LoadFailed,
                    "the plugin awaits something at its top level that can't happen there: move it into a handler",
                )),
                PromiseState::Rejected => match promise.result::<()>() {
                    Some(result) => result.catch(&ctx).map_err(|error| self.load_error(&ctx, &error)),
                    None => Ok(()),
                },
            }
        })?;
        self.rejections.borrow_mut().clear();
        Ok(())
    }

    fn load_error<'js>(&self, ctx: &Ctx<'js>, error: &CaughtError<'js>) -> CallError {
        if self.bridge.borrow().interrupted {
            return too_slow_to_load();
        }
        let mut described = self.described(ctx, error);
        if self.bound.was_met() && is_out_of_memory(&described.message) {
            described.message =
                "the plugin uses up its memory while it is loaded: build large data in a handler".into();
        }
        described.kind = FailureKind::LoadFailed;
        described
    }

    /// What was thrown, by the prelude's own means.
    fn described<'js>(&self, ctx: &Ctx<'js>, error: &CaughtError<'js>) -> CallError {
        let thrown = match error {
            CaughtError::Exception(exception) => Some(exception.as_object().clone().into_value()),
            CaughtError::Value(value) => Some(value.clone()),
            CaughtError::Error(_) => None,
        };
        #[derive(serde::Deserialize)]
        struct Described {
            name: Option<String>,
            message: String,
            stack: Option<String>,
        }
        let described = thrown
            .and_then(|thrown| self.read(ctx, thrown))
            .and_then(|json| serde_json::from_str::<Described>(&json).ok());
        match described {
            Some(Described { name, message, stack }) => CallError { kind: FailureKind::Thrown, name, message, stack },
            // What can't even be described was thrown with no memory left to do so, or doesn't want to be read.
            None if self.bound.was_met() => CallError::new(FailureKind::Thrown, "out of memory"),
            None => CallError::new(FailureKind::Thrown, UNREADABLE),
        }
    }

    /// What was thrown, as JSON; nothing where its getters take too long, or no memory is left.
    fn read<'js>(&self, ctx: &Ctx<'js>, thrown: rquickjs::Value<'js>) -> Option<String> {
        self.bridge.borrow_mut().reading(true);
        let describe = self.functions.describe.clone().restore(ctx);
        let told = describe.and_then(|describe| describe.call::<_, String>((thrown,)));
        self.bridge.borrow_mut().reading(false);
        if told.is_err() {
            drop(ctx.catch());
        }
        told.ok().map(bridge::well_formed)
    }

    /// What the bundle registered, as JSON of an inspection.
    pub fn inspect(&self) -> Result<String, CallError> {
        self.context.with(|ctx| {
            let inspect = self.functions.inspect.clone().restore(&ctx);
            let looked = inspect.and_then(|inspect| inspect.call(()));
            looked.map(bridge::well_formed).catch(&ctx).map_err(|error| self.load_error(&ctx, &error))
        })
    }

    /// Does in a fresh fork what a call does, with nothing of a plugin's. Most pages that a call writes to are copied
    /// for its process by this, which is most of what a call costs: a fork that waits for its call has done it by then.
    pub fn rehearse(&self) {
        // What it gives is nobody's, and whether it went well shows when the call does the same.
        let _ = self.call::<_, ()>(&self.functions.rehearse, (r#"{"callId":"","initiator":{"kind":""}}"#,));
        // All jobs are the rehearsal's: loading left none.
        while let Ok(true) = self.runtime.execute_pending_job() {}
        self.bridge.borrow_mut().finished = None;
    }

    /// Runs one tool to its end. Takes the process with it: there is no second call.
    pub fn run(&self, socket: &'static OwnedFd, start: &Start<'_>) -> Finished {
        let deadline = Instant::now() + Duration::from_millis(start.wall_ms);
        self.bridge.borrow_mut().begin(socket, deadline);
        self.random.forget();
        let begun = self.context.with(|ctx| {
            let begin = self.functions.begin.clone().restore(&ctx)?;
            let promise: Promise<'_> = begin.call((start.tool, start.input, start.context))?;
            Ok::<_, rquickjs::Error>(Persistent::save(&ctx, promise))
        });
        if begun.is_err() && !self.bridge.borrow().interrupted {
            return self.out_of_memory();
        }
        loop {
            self.run_jobs();
            let (finished, interrupted, is_reading) = {
                let mut bridge = self.bridge.borrow_mut();
                (bridge.finished.take(), bridge.interrupted, bridge.reading_until.is_some())
            };
            if let Some(finished) = finished {
                self.log_rejections();
                return self.within_limits(finished);
            }
            if interrupted && is_reading && Instant::now() < deadline {
                return failure(FailureKind::Thrown, UNREADABLE);
            }
            if interrupted || Instant::now() >= deadline {
                return failure(FailureKind::Timeout, over_time(start));
            }
            if begun.as_ref().is_ok_and(|begun| self.is_rejected(begun)) {
                return self.out_of_memory();
            }
            match self.wait(socket) {
                Ok(true) => {}
                Ok(false) => {
                    self.log_rejections();
                    return failure(
                        FailureKind::Stalled,
                        "the handler awaits a promise that nothing can settle: no timer and no host call is pending",
                    );
                }
                Err(()) => crate::process::exit_now(crate::call::EXIT_ABANDONED),
            }
        }
    }

    /// The tool's run catches all that there is to catch: what it could not tell was for want of memory.
    fn is_rejected(&self, begun: &Begun) -> bool {
        self.context
            .with(|ctx| begun.clone().restore(&ctx).is_ok_and(|promise| promise.state() == PromiseState::Rejected))
    }

    /// The call's last frame.
    pub fn send_result(&self, finished: &Finished) {
        self.bridge.borrow_mut().send_result(finished);
    }

    /// Waits for the next answer or timer and hands it on; `Ok(false)` if there is nothing to wait for.
    fn wait(&self, reader: &OwnedFd) -> Result<bool, ()> {
        let pending = self.call(&self.functions.pending, ()).unwrap_or(0_u32);
        let next_timer = self.bridge.borrow().next_timer();
        if pending == 0 && next_timer.is_none() {
            return Ok(false);
        }
        let deadline = self.bridge.borrow().deadline;
        let until = next_timer.map_or(deadline, |at| at.min(deadline));
        let wait = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(wait).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let mut events = [PollFd::new(reader, PollFlags::IN)];
        match poll(&mut events, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => {
                let (kind, payload) =
                    crate::socket::read_frame(reader, crate::wire::PAYLOAD_BYTES_MAX).map_err(drop)?;
                if kind != crate::wire::Kind::HostReply {
                    return Err(());
                }
                let (ordinal, ok, json) = crate::wire::decode_host_reply(&payload).map_err(drop)?;
                // A failure here is the plugin's memory running out; the next look at the promise tells.
                let _ = self.call::<_, ()>(&self.functions.settle, (ordinal, ok, json));
            }
            Err(_) => return Err(()),
        }
        // One timer at a time: what it queues runs before the next.
        let due = self.bridge.borrow_mut().due_timer(Instant::now());
        if let Some(id) = due {
            let _ = self.call::<_, ()>(&self.functions.fire, (id,));
        }
        Ok(true)
    }

    fn call<A, R>(&self, function: &Persistent<Function<'static>>, args: A) -> rquickjs::Result<R>
    where
        A: for<'js> rquickjs::function::IntoArgs<'js>,
        R: for<'js> rquickjs::FromJs<'js> + 'static,
    {
        self.context.with(|ctx| function.clone().restore(&ctx)?.call(args))
    }

    /// Runs what is queued until nothing is, or time is over.
    fn run_jobs(&self) {
        loop {
            if self.bridge.borrow().interrupted || Instant::now() >= self.bridge.borrow().deadline {
                self.bridge.borrow_mut().interrupted = true;
                return;
            }
            match self.runtime.execute_pending_job() {
                Ok(true) => {}
                Ok(false) => return,
                // A job that failed has rejected its promise, where that was possible at all.
                Err(_) => {
                    self.context.with(|ctx| drop(ctx.catch()));
                }
            }
        }
    }

    fn within_limits(&self, finished: Finished) -> Finished {
        let result_bytes_max = self.bridge.borrow().limits.result_bytes_max;
        match finished {
            Finished::Value(json) if json.len() as u64 > result_bytes_max => failure(
                FailureKind::TooLarge,
                format!(
                    "the result has {} bytes of JSON, more than the {} that a call may return: return less, or write it \
                     to a file of the workspace",
                    json.len(),
                    result_bytes_max
                ),
            ),
            Finished::Failure(json) if self.bound.was_met() => match serde_json::from_str::<CallError>(&json) {
                Ok(error) if error.kind == FailureKind::Thrown && is_out_of_memory(&error.message) => {
                    self.out_of_memory()
                }
                _ => Finished::Failure(json),
            },
            other => other,
        }
    }

    fn out_of_memory(&self) -> Finished {
        failure(FailureKind::Memory, over_memory(self.bridge.borrow().limits.memory_bytes))
    }

    fn log_rejections(&self) {
        let all = std::mem::take(&mut *self.rejections.borrow_mut());
        for (_, reason) in all {
            let told = self.context.with(|ctx| self.read(&ctx, reason.restore(&ctx).ok()?));
            let is_readable = told.is_some();
            let message = told
                .and_then(|json| serde_json::from_str::<serde_json::Value>(&json).ok())
                .and_then(|described| described["message"].as_str().map(str::to_owned))
                .unwrap_or_else(|| UNREADABLE.into());
            self.bridge.borrow_mut().log(2, &format!("a promise was rejected and nobody awaits it: {message}"), "");
            if !is_readable {
                break;
            }
        }
    }
}

const UNREADABLE: &str =
    "something was thrown whose message, name or stack takes too long to read: make them plain texts";

/// What is thrown for want of memory, as the prelude describes it: with some left, or with none.
fn is_out_of_memory(message: &str) -> bool {
    matches!(message, "out of memory" | "null was thrown")
}

/// What a call that used up its memory is told.
fn over_memory(memory_bytes: u64) -> String {
    format!(
        "the call used more than its {} MB of memory: work on less at once, or keep less of it",
        memory_bytes / (1024 * 1024)
    )
}

fn over_time(start: &Start<'_>) -> String {
    format!("the call took longer than its {} s: do less in one call, or wait for less", start.wall_ms as f64 / 1000.0)
}

fn too_slow_to_load() -> CallError {
    CallError::new(
        FailureKind::LoadFailed,
        "the plugin takes too long to load: its top level must only register tools; do the work in a handler",
    )
}

fn failure(kind: FailureKind, message: impl Into<String>) -> Finished {
    let error = CallError::new(kind, message);
    Finished::Failure(serde_json::to_string(&error).unwrap_or_default())
}

fn interrupt_at_the_deadline(runtime: &Runtime, bridge: &Shared) {
    let state = Rc::clone(bridge);
    runtime.set_interrupt_handler(Some(Box::new(move || {
        // The bridge may be in use by the very function that is interrupted; the next poll comes soon.
        let Ok(mut bridge) = state.try_borrow_mut() else { return false };
        bridge.interrupted |= bridge.is_due(Instant::now());
        bridge.interrupted
    })));
}

fn note_rejections(runtime: &Runtime) -> Rejections {
    let rejections: Rejections = Rc::default();
    let noted = Rc::clone(&rejections);
    runtime.set_host_promise_rejection_tracker(Some(Box::new(move |ctx, promise, reason, is_handled| {
        let promise = Persistent::save(&ctx, promise);
        let mut noted = noted.borrow_mut();
        if is_handled {
            noted.retain(|(known, _)| *known != promise);
        } else if noted.len() < REJECTIONS_MAX {
            noted.push((promise, Persistent::save(&ctx, reason)));
        }
    })));
    rejections
}
