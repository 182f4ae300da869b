//! `toolfleet bench`

use crate::exit::DONE;
use crate::output::{self, Paint};
use anyhow::{Result, anyhow};
use std::sync::Arc;
use toolfleet_worker::isolation::bench::{BenchReport, Beside, bench};
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
    show(&report);
    Ok(DONE)
}

fn show(report: &BenchReport) {
    let paint = Paint::stdout();
    let floor = report.bare_fork.p50_us;
    output::line(&paint.bold(&format!("{:<40}{:>10}{:>10}{:>9}", "", "p50 µs", "p99 µs", "× floor")));
    for (name, timing) in [
        ("bare fork + exit + wait (the floor)", report.bare_fork),
        ("the same into a cgroup", report.group_fork),
        ("warm call", report.warm_call),
        ("warm calls, four at once", report.busy_call),
        ("first call of a release", report.first_call),
    ] {
        let ratio = timing.p50_us / floor;
        output::line(&format!("{name:<40}{:>10.0}{:>10.0}{ratio:>9.2}", timing.p50_us, timing.p99_us));
    }
    output::line(&format!("first call: {:.2} × a warm one", report.first_ratio));
    let Beside { waiting, alone, beside, p99_ratio } = report.beside;
    output::line(&paint.bold(&format!("Beside {waiting} calls that wait for their host")));
    output::line(&format!(
        "  other calls' p99: {:.0} µs, alone {:.0} µs: {p99_ratio:.2} ×",
        beside.p99_us, alone.p99_us
    ));
    output::line(&paint.bold("Private memory"));
    for (name, private) in [("an idle template", report.idle_template), ("a waiting call", report.waiting_call)] {
        output::line(&format!("  {name}: {} kB (mean of {})", private.mean_kib, private.processes));
    }
}
