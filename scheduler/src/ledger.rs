//! The ledger: every metering event is counted once, however often it is delivered.

use crate::app::App;
use crate::deliveries::{ReadError, Verdict, work_through};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use toolfleet_protocol::{Metering, QueueName, WIRE_VERSION};
use toolfleet_queue::Delivery;

/// Events under way at once. Each is one short transaction of the store.
const EVENTS_AT_ONCE: u16 = 64;

/// Reads the metering queue until `stop`.
pub(crate) async fn run(app: Arc<App>, stop: CancellationToken) -> Result<(), ReadError> {
    let queue = Arc::clone(&app.queue);
    let live = &app.health.metering_live;
    work_through(queue, QueueName::Metering, EVENTS_AT_ONCE, live, stop, |delivery| take(Arc::clone(&app), delivery))
        .await
}

async fn take(app: Arc<App>, delivery: Delivery) -> (Delivery, Verdict) {
    let verdict = match serde_json::from_slice::<Metering>(&delivery.body) {
        Ok(event) if event.v == WIRE_VERSION => match app.records.count(&event).await {
            Ok(_) => Verdict::Done,
            Err(error) => {
                tracing::warn!(call = %event.call_id, error = %error, "a call could not be counted yet");
                Verdict::Again
            }
        },
        Ok(event) => {
            tracing::warn!(version = event.v, "a metering event has a form that is not read here");
            Verdict::Refuse
        }
        Err(error) => {
            tracing::warn!(message_id = delivery.message_id.as_deref(), error = %error, "a message on the metering queue is no metering event");
            Verdict::Refuse
        }
    };
    (delivery, verdict)
}
