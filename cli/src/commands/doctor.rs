//! `toolfleet doctor`

use crate::args::ConfigArg;
use crate::config::{Config, QueueConfig, StoreConfig};
use crate::exit::{DONE, UNREACHABLE};
use crate::output::{self, Paint};
use anyhow::Result;
use serde::Serialize;
use toolfleet_queue::Queue;
use toolfleet_queue::rabbitmq::RabbitMq;
use toolfleet_store::Store;
use toolfleet_store::redis::RedisStore;
use toolfleet_worker::isolation::{Layer, LayerState, Sandbox};

#[derive(Serialize)]
struct Report {
    isolation: Vec<Layer>,
    queue: Service,
    store: Service,
}

#[derive(Serialize)]
#[serde(tag = "state", rename_all = "camelCase")]
enum Service {
    /// None is configured.
    Embedded,
    Reachable,
    Unreachable {
        why: String,
    },
}

pub async fn run(config: &ConfigArg, json: bool) -> Result<u8> {
    let config = Config::read(config.config.as_deref())?;
    let queue = match config.queue.clone() {
        None => Service::Embedded,
        Some(QueueConfig::Rabbitmq(queue)) => match RabbitMq::connect(queue).await {
            Ok(queue) => {
                queue.close().await;
                Service::Reachable
            }
            Err(error) => Service::Unreachable { why: error.to_string() },
        },
    };
    let store = match config.store.clone() {
        None => Service::Embedded,
        Some(StoreConfig::Redis(store)) => match RedisStore::connect(store).await {
            Ok(store) => match store.ping().await {
                Ok(()) => Service::Reachable,
                Err(error) => Service::Unreachable { why: error.to_string() },
            },
            Err(error) => Service::Unreachable { why: error.to_string() },
        },
    };
    let sandbox = Sandbox::start(config.isolation).await.map_err(crate::exit::unreachable)?;
    let isolation = sandbox.layers().await;
    sandbox.shutdown().await;
    let report = Report { isolation, queue, store };
    if json {
        output::json(&report);
    } else {
        show(&report);
    }
    let lost = [&report.queue, &report.store].into_iter().any(|one| matches!(one, Service::Unreachable { .. }));
    Ok(if lost { UNREACHABLE } else { DONE })
}

fn show(report: &Report) {
    let paint = Paint::stdout();
    output::line(&paint.bold("Isolation"));
    for layer in &report.isolation {
        let (state, told) = match &layer.state {
            LayerState::InForce => (paint.green("in force"), None),
            LayerState::Degraded { why, costs } => (paint.yellow("degraded"), Some((why, costs))),
            LayerState::Missing { why, costs } => (paint.red("missing"), Some((why, costs))),
        };
        let kind = layer.kind.map_or_else(String::new, |kind| format!(" ({kind})"));
        output::line(&format!("  {:<22}{state}{kind}", layer.name));
        if let Some((why, costs)) = told {
            output::line(&format!("    why:   {why}"));
            output::line(&format!("    costs: {costs}"));
        }
    }
    output::line(&paint.bold("Services"));
    for (name, service) in [("queue", &report.queue), ("store", &report.store)] {
        let state = match service {
            Service::Embedded => "embedded (none is configured)".to_owned(),
            Service::Reachable => paint.green("reachable"),
            Service::Unreachable { why } => format!("{}: {why}", paint.red("not reachable")),
        };
        output::line(&format!("  {name:<22}{state}"));
    }
}
