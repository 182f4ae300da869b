//! Results on their way back: from this scheduler's reply queue to whoever waits for the call.

use crate::app::App;

use crate::deliveries::{ReadError, Verdict, work_through};
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolfleet_protocol::{CallId, CallResult, QueueName, Reply, WIRE_VERSION};
use toolfleet_queue::Delivery;
use toolfleet_store::StoreError;

/// Replies under way at once: enough that closing calls in the store never holds up waking those who wait.
const REPLIES_AT_ONCE: u16 = 512;

/// Reads the reply queue until `stop`.
pub(crate) async fn run(app: Arc<App>, stop: CancellationToken) -> Result<(), ReadError> {
    let from = QueueName::Replies(app.config.id.clone());
    let queue = Arc::clone(&app.queue);
    work_through(queue, from, REPLIES_AT_ONCE, &app.health.results_live, stop, |delivery| {
        take(Arc::clone(&app), delivery)
    })
    .await
}

async fn take(app: Arc<App>, delivery: Delivery) -> (Delivery, Verdict) {
    let verdict = match decode(&delivery.body) {
        Ok(result) => arrived(&app, result).await,
        Err(why) => {
            tracing::warn!(
                message_id = delivery.message_id.as_deref(),
                why,
                "a message on the reply queue is no reply"
            );
            Verdict::Refuse
        }
    };
    (delivery, verdict)
}

fn decode(body: &[u8]) -> Result<CallResult, String> {
    #[derive(Deserialize)]
    struct Version {
        v: Option<u16>,
    }
    let version: Version = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if version.v != Some(WIRE_VERSION) {
        return Err(format!("it has form version {:?}, and only {WIRE_VERSION} is read here", version.v));
    }
    serde_json::from_slice::<Reply>(body).map(|reply| reply.result).map_err(|error| error.to_string())
}

async fn arrived(app: &App, result: CallResult) -> Verdict {
    app.metrics.ended(result.failure());
    let call = result.call_id.clone();
    app.waiters.wake(&Arc::new(result));
    // Nobody's reply alone closes a call: only what is recorded does.
    let closed = match app.records.result(&call).await {
        Ok(Some(_)) => app.records.close_call(&call).await,
        Ok(None) => {
            tracing::warn!(call = %call, "a reply arrived for a call that has no result");
            Ok(())
        }
        Err(error) => Err(error),
    };
    match closed {
        Ok(()) => Verdict::Done,
        Err(error) => {
            tracing::warn!(call = %call, error = %error, "a finished call could not be closed yet");
            Verdict::Again
        }
    }
}

/// Who waits for which call, in this process.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<Waiting>);

/// One wait, by its number.
type Wait = (u64, oneshot::Sender<Arc<CallResult>>);

#[derive(Debug, Default)]
struct Waiting {
    calls: HashMap<CallId, Vec<Wait>>,
    count: usize,
    next: u64,
}

/// At most so many waits at once; each costs a few hundred bytes and a request that is kept open.
const WAITS_MAX: usize = 100_000;

/// Too many wait already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyWait;

impl Waiters {
    /// Waits for `call` from now on: a result that arrives before it is asked for isn't missed.
    pub(crate) fn register(self: &Waiters, call: &CallId) -> Result<Waiter<'_>, TooManyWait> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.lock();
        if waiting.count >= WAITS_MAX {
            return Err(TooManyWait);
        }
        waiting.count += 1;
        waiting.next += 1;
        let number = waiting.next;
        waiting.calls.entry(call.clone()).or_default().push((number, sender));
        Ok(Waiter { waiters: self, call: call.clone(), number, receiver })
    }

    /// Gives a result to all who wait for it.
    pub(crate) fn wake(&self, result: &Arc<CallResult>) {
        let waking = {
            let mut waiting = self.lock();
            let waking = waiting.calls.remove(&result.call_id).unwrap_or_default();
            waiting.count -= waking.len();
            waking
        };
        for (_, sender) in waking {
            // One who went away in this moment misses nothing.
            let _ = sender.send(Arc::clone(result));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who waits for one call.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    waiters: &'a Waiters,
    call: CallId,
    number: u64,
    receiver: oneshot::Receiver<Arc<CallResult>>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiters.lock();
        let Some(of_call) = waiting.calls.get_mut(&self.call) else { return };
        let before = of_call.len();
        of_call.retain(|(number, _)| *number != self.number);
        let (after, empty) = (of_call.len(), of_call.is_empty());
        if empty {
            waiting.calls.remove(&self.call);
        }
        waiting.count -= before - after;
    }
}

/// A wait looks into the store after this, then after twice that, and so on: the reply may have gone to another
/// scheduler.
const LOOK_FIRST_AFTER: Duration = Duration::from_secs(1);
const LOOK_AFTER_MAX: Duration = Duration::from_secs(16);

impl Waiter<'_> {
    /// The result, if it is there by `until` or before the scheduler is asked to end.
    pub(crate) async fn result(mut self, app: &App, until: Instant) -> Result<Option<Arc<CallResult>>, StoreError> {
        let mut look_after = LOOK_FIRST_AFTER;
        loop {
            let look_at = (Instant::now() + look_after).min(until);
            let last = tokio::select! {
                biased;
                Ok(result) = &mut self.receiver => return Ok(Some(result)),
                () = app.shutdown.cancelled() => true,
                () = tokio::time::sleep_until(look_at) => look_at >= until,
            };
            if let Some(result) = app.records.result(&self.call).await? {
                return Ok(Some(Arc::new(result)));
            }
            if last {
                return Ok(None);
            }
            look_after = (look_after * 2).min(LOOK_AFTER_MAX);
        }
    }
}

/// Sends a result that the scheduler itself recorded to where the call's submitter waits.
pub(crate) async fn reply(app: &App, to: &toolfleet_protocol::SchedulerId, result: &Arc<CallResult>) {
    app.waiters.wake(result);
    if *to == app.config.id {
        app.metrics.ended(result.failure());
        return;
    }
    let body = serde_json::to_vec(&Reply { v: WIRE_VERSION, result: CallResult::clone(result) })
        .expect("a result has only string keys and finite numbers");
    let message = toolfleet_queue::Outgoing {
        to: QueueName::Replies(to.clone()),
        message_id: result.call_id.to_string(),
        body: body.into(),
        headers: Default::default(),
        expires_in: None,
    };
    if let Err(error) = app.queue.publish(message).await {
        // The result is recorded; whoever waits there finds it by looking.
        tracing::warn!(call = %result.call_id, scheduler = %to, error = %error, "a result was not sent");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolfleet_protocol::{CallError, FailureKind, Usage};

    fn result(call: &str) -> Arc<CallResult> {
        let error = CallError::new(FailureKind::Cancelled, "cancelled");
        Arc::new(CallResult::failed(CallId::parse(call).unwrap(), error, Usage::default()))
    }

    #[test]
    fn a_result_wakes_all_who_wait_for_its_call_and_nobody_else() {
        let waiters = Waiters::default();
        let mut first = waiters.register(&CallId::parse("a").unwrap()).unwrap();
        let mut second = waiters.register(&CallId::parse("a").unwrap()).unwrap();
        let mut other = waiters.register(&CallId::parse("b").unwrap()).unwrap();
        waiters.wake(&result("a"));
        assert!(first.receiver.try_recv().is_ok());
        assert!(second.receiver.try_recv().is_ok());
        assert!(other.receiver.try_recv().is_err());
        assert_eq!(waiters.lock().count, 1);
    }

    fn held(waiters: &Waiters) -> (usize, usize) {
        let waiting = waiters.lock();
        (waiting.count, waiting.calls.len())
    }

    #[test]
    fn a_wait_that_ends_leaves_nothing_behind() {
        let waiters = Waiters::default();
        let call = CallId::parse("a").unwrap();
        let (first, second) = (waiters.register(&call).unwrap(), waiters.register(&call).unwrap());
        drop(first);
        assert_eq!(waiters.lock().count, 1);
        drop(second);
        assert_eq!(held(&waiters), (0, 0));
        let woken = waiters.register(&call).unwrap();
        waiters.wake(&result("a"));
        drop(woken);
        assert_eq!(held(&waiters), (0, 0));
    }

    #[test]
    fn what_is_no_reply_is_told_apart() {
        for (body, expected) in [
            ("x", "expected value"),
            ("{}", "version None"),
            (r#"{"v":9}"#, "version Some(9)"),
            (r#"{"v":1}"#, "missing field"),
        ] {
            let why = decode(body.as_bytes()).unwrap_err();
            assert!(why.contains(expected), "{body}: {why}");
        }
    }
}
