//! `toolfleet bench`

use crate::exit::DONE;
use crate::output::{self, Paint};
use anyhow::{Result, anyhow};
use std::sync::Arc;
use toolfleet_worker::isolation::bench::{Timing, bench};
use toolfleet_worker::isolation::{IsolationConfig, Sandbox};

pub async fn sandbox(runs: u32, json: bool) -> Result<u8> {
    let sandbox = Arc::new(Sandbox::start(IsolationConfig::default()).await?);
    let report = bench(&sandbox, runs).await;
    sandbox.shutdown().await;
    let report = report.map_err(|error| anyhow!(error))?;
    if json {
        output::json(&report);
        return Ok(DONE);
    }
    let paint = Paint::stdout();
    output::line(&paint.bold(&format!("{:<34}{:>10}{:>10}{:>9}", "", "p50 µs", "p99 µs", "ratio")));
    let row = |name: &str, timing: Timing, ratio: String| {
        output::line(&format!("{name:<34}{:>10.0}{:>10.0}{ratio:>9}", timing.p50_us, timing.p99_us));
    };
    row("bare fork + exit + wait", report.bare_fork, "1.00".into());
    row("warm call", report.warm_call, format!("{:.2}", report.warm_ratio));
    row(
        "cold call (template made for it)",
        report.cold_call,
        format!("{:.2}", report.cold_call.p50_us / report.bare_fork.p50_us),
    );
    Ok(DONE)
}
