//! `toolfleet scheduler` and `toolfleet worker`: the roles in production.

use crate::args::ConfigArg;
use crate::config::Config;
use crate::exit::{DONE, unreachable, wrong};
use crate::{output, parts};
use anyhow::Result;
use toolfleet_scheduler::{Scheduler, SchedulerError};
use toolfleet_worker::WorkerError;
use toolfleet_worker::isolation::Sandbox;

pub async fn scheduler(config: &ConfigArg) -> Result<u8> {
    let config = Config::read(config.config.as_deref())?;
    toolfleet_telemetry::init(&config.log, None, None).map_err(wrong)?;
    let sealer = config.sealer()?;
    let shutdown = parts::shutdown()?;
    let scheduler = Scheduler::bind(config.scheduler.clone()).await.map_err(|error| match error {
        error @ (SchedulerError::Config(_) | SchedulerError::Listen { .. }) => wrong(error),
        error => error.into(),
    })?;
    let (queue, records) = parts::connected(&config).await?;
    output::line(&format!("listening on http://{}", scheduler.local_addr()));
    scheduler.serve(queue.clone(), records, sealer, shutdown).await?;
    queue.close().await;
    Ok(DONE)
}

pub async fn worker(config: &ConfigArg) -> Result<u8> {
    let config = Config::read(config.config.as_deref())?;
    toolfleet_telemetry::init(&config.log, None, None).map_err(wrong)?;
    let sealer = config.sealer()?;
    let shutdown = parts::shutdown()?;
    // Before anything that is secret is connected to.
    let sandbox = Sandbox::start(config.isolation.clone()).await.map_err(unreachable)?;
    let (queue, records) = parts::connected(&config).await?;
    let ran =
        toolfleet_worker::run(config.worker, config.fetch, queue.clone(), records, sealer, sandbox, shutdown).await;
    queue.close().await;
    match ran {
        Ok(()) => Ok(DONE),
        Err(error @ (WorkerError::Config { .. } | WorkerError::Memory { .. } | WorkerError::Fetch(_))) => {
            Err(wrong(error))
        }
        Err(error) => Err(error.into()),
    }
}
