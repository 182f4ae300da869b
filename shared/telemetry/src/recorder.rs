//! Records the steps of calls, so that one can be shown as a waterfall without any service to send it to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Steps kept; the oldest make room.
const STEPS_MAX: usize = 4096;

/// One finished step.
#[derive(Debug, Clone)]
pub struct Step {
    pub name: &'static str,
    /// The call that it belongs to: its own `call` field, or that of the step around it.
    pub call: Option<String>,
    /// What the step is about, from its `what` field.
    pub what: Option<String>,
    pub depth: usize,
    pub started: Instant,
    pub ended: Instant,
}

/// Collects finished steps of this project's own spans. A clone shares them.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    steps: Arc<Mutex<VecDeque<Step>>>,
}

impl Recorder {
    /// The steps of one call, in the order in which they began.
    pub fn of_call(&self, call: &str) -> Vec<Step> {
        let steps = self.steps.lock().expect("nothing panics while it is held");
        let mut found: Vec<Step> = steps.iter().filter(|step| step.call.as_deref() == Some(call)).cloned().collect();
        found.sort_by_key(|step| (step.started, step.depth));
        found
    }
}

struct Open {
    started: Instant,
    call: Option<String>,
    what: Option<String>,
}

impl Visit for Open {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "call" => self.call = Some(value.to_owned()),
            "what" => self.what = Some(value.to_owned()),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if !span.metadata().target().starts_with("toolfleet") {
            return;
        }
        let mut open = Open { started: Instant::now(), call: None, what: None };
        attributes.record(&mut open);
        if open.call.is_none()
            && let Some(parent) = span.parent()
        {
            open.call = parent.extensions().get::<Open>().and_then(|parent| parent.call.clone());
        }
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            values.record(open);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let depth = span.scope().count() - 1;
        let Some(open) = span.extensions_mut().remove::<Open>() else { return };
        let step = Step {
            name: span.name(),
            call: open.call,
            what: open.what,
            depth,
            started: open.started,
            ended: Instant::now(),
        };
        let mut steps = self.steps.lock().expect("nothing panics while it is held");
        if steps.len() == STEPS_MAX {
            steps.pop_front();
        }
        steps.push_back(step);
    }
}
