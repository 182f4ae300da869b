//! `toolfleet demo`: the whole main job in one process, to its end, and what came of it.

use super::plugin::files_body;
use crate::args::ApiArg;
use crate::client::Client;
use crate::config::Config;
use crate::exit::{DONE, FAILED};
use crate::output::{self, Paint};
use crate::parts;
use anyhow::{Context, Result, anyhow};
use axum::Router;
use axum::routing::get;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use toolfleet_scheduler::Scheduler;
use toolfleet_telemetry::{Recorder, Step};
use toolfleet_worker::isolation::Sandbox;

const ACCOUNT: &str = "acme";
const AGENT: &str = "helper";
/// Calls submitted together.
const BATCH: u32 = 100;
/// Batches under way at once; enough to keep every slot busy.
const BATCHES_MAX: usize = 4;
const WAIT_S: u32 = 100;
/// The last events are some milliseconds behind their results.
const METERING_WAIT: Duration = Duration::from_secs(10);
const METERING_LOOK_EVERY: Duration = Duration::from_millis(20);

macro_rules! plugin {
    ($folder:literal: $($file:literal),+) => {
        ($folder, &[$(($file, include_str!(concat!("../../../", $folder, "/", $file)))),+])
    };
}

/// The examples of this repository, carried along so that the demo runs anywhere.
type Embedded = (&'static str, &'static [(&'static str, &'static str)]);
const PLUGINS: [Embedded; 4] = [
    plugin!("examples/weather": "plugin.json", "src/index.ts"),
    plugin!("examples/notes": "plugin.json", "src/index.ts", "src/save_note.ts", "src/save_note_safely.ts", "src/file_name.ts"),
    plugin!("examples/recap": "plugin.json", "src/index.ts", "src/actions.ts", "src/message.ts"),
    plugin!("cli/demo": "plugin.json", "index.ts"),
];

const FORECAST: &str = r#"{"daily":{"temperature_2m_max":[11.5,13.0],"temperature_2m_min":[2.5,4.0]}}"#;

pub async fn run(calls: u32, as_json: bool) -> Result<u8> {
    let recorder = Recorder::default();
    // Plugins fail here on purpose; their failures are shown below, not as log lines between.
    let mut config = Config::default();
    toolfleet_telemetry::init(&config.log, Some("error"), Some(recorder.clone()))?;
    let started = Instant::now();
    let sandbox = Sandbox::start(config.isolation.clone()).await.map_err(crate::exit::unreachable)?;
    let data = tempfile::tempdir()?;
    let (queue, records) = parts::embedded(data.path()).await?;
    config.scheduler.listen = ([127, 0, 0, 1], 0).into();
    config.fetch.upstreams.insert("api.open-meteo.com".into(), forecast_server().await?);
    let shutdown = parts::shutdown()?;
    let scheduler = Scheduler::bind(config.scheduler.clone()).await?;
    let api = ApiArg { url: format!("http://{}", scheduler.local_addr()), token: None };
    let worker = tokio::spawn(toolfleet_worker::run(
        config.worker.clone(),
        config.fetch.clone(),
        queue.clone(),
        records.clone(),
        config.sealer()?,
        sandbox,
        shutdown.clone(),
    ));
    let scheduler = tokio::spawn(scheduler.serve(queue.clone(), records, config.sealer()?, shutdown.clone()));
    let demo = Demo { client: Client::new(&api)?, recorder, as_json };
    let ready_ms = started.elapsed().as_millis();
    let shown = tokio::select! {
        shown = demo.show(calls, u64::try_from(ready_ms).unwrap_or(u64::MAX)) => shown,
        () = shutdown.cancelled() => Err(anyhow!("stopped before its end")),
    };
    shutdown.cancel();
    scheduler.await??;
    worker.await??;
    queue.close().await;
    shown
}

/// Stands where the weather service would be.
async fn forecast_server() -> Result<String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = Router::new().route("/v1/forecast", get(|| async { FORECAST }));
    // Ends with the process.
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(format!("http://{address}"))
}

struct Demo {
    client: Client,
    recorder: Recorder,
    as_json: bool,
}

impl Demo {
    async fn show(&self, calls: u32, ready_ms: u64) -> Result<u8> {
        let paint = Paint::stdout();
        self.say(&format!(
            "{} scheduler, worker, queue and store in one process, ready in {ready_ms} ms\n",
            paint.bold("Fleet")
        ));
        self.say(&paint.bold("Plugins, published and installed"));
        self.post("/v1/agents", &json!({ "id": AGENT, "account": ACCOUNT })).await?;
        for (_, files) in PLUGINS {
            self.publish(files, &paint).await?;
        }
        self.say(&format!("\n{}", paint.bold("One call of each")));
        let mut single = Vec::new();
        self.post(
            &format!("/v1/sessions/demo/messages?agent={AGENT}"),
            &json!({ "text": "I'll send the offer.\nTODO: book a room" }),
        )
        .await?;
        for (tool, input) in [
            ("weather__get_forecast", json!({ "latitude": 52.52, "longitude": 13.41 })),
            ("notes__save_note", json!({ "title": "Buy milk & eggs", "text": "Two litres." })),
            ("notes__save_note_safely", json!({ "title": "Buy milk & eggs", "text": "And a dozen." })),
            ("recap__post_recap", json!({})),
        ] {
            single.push(self.call(tool, input, &paint).await?);
        }
        self.say(&format!("\n{}", paint.bold("Calls that fail, each in its own way; the fleet goes on")));
        let mut failing = Vec::new();
        for tool in ["throw_an_error", "recurse_for_ever", "use_all_memory", "wait_for_nothing"] {
            failing.push(self.call(&format!("demo__{tool}"), json!({}), &paint).await?);
        }
        // Now: the recorder keeps the latest steps only, and the load has many.
        let steps = self.recorder.of_call(single[0]["callId"].as_str().unwrap_or_default());
        let load = self.load(calls).await?;
        let per_second = f64::from(calls) / load.took.as_secs_f64();
        self.say(&format!(
            "\n{} {calls} calls in {:.2} s, {per_second:.0} a second; {} ok{}",
            paint.bold("Load"),
            load.took.as_secs_f64(),
            load.ok,
            load.failed.iter().map(|(kind, count)| format!(", {count} {kind}")).collect::<String>()
        ));
        let expected = u64::from(calls) + (single.len() + failing.len()) as u64;
        let usage = self.settled_usage(expected).await?;
        let metered = self.show_usage(&usage, &paint);
        self.show_trace(&steps, &paint);
        let all_well = load.ok == u64::from(calls) && metered == expected;
        if self.as_json {
            output::json(&json!({
                "readyMs": ready_ms,
                "calls": calls,
                "seconds": load.took.as_secs_f64(),
                "callsPerSecond": per_second,
                "ok": load.ok,
                "failed": load.failed,
                "metered": metered,
                "single": single,
                "failing": failing,
                "usage": usage,
                "trace": steps.iter().map(|step| trace_json(step, &steps)).collect::<Vec<_>>(),
            }));
        } else {
            let verdict = if all_well {
                paint.green("every call has its result, and was counted once")
            } else {
                paint.red("not every call was counted as it must be")
            };
            self.say(&format!("\n{verdict}: {metered} of {expected}"));
        }
        Ok(if all_well { DONE } else { FAILED })
    }

    fn say(&self, text: &str) {
        if !self.as_json {
            output::line(text);
        }
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.client.post(path, body.to_string(), None).await?.success()
    }

    async fn publish(&self, files: &[(&str, &str)], paint: &Paint) -> Result<()> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect();
        let release = self.client.post("/v1/plugins", files_body(&files), None).await?.success()?;
        self.post("/v1/installations", &json!({ "account": ACCOUNT, "plugin": release["plugin"] })).await?;
        let words = |key: &str, field: Option<&str>| -> Vec<String> {
            let all = release[key].as_array().into_iter().flatten();
            all.filter_map(|one| field.map_or(one, |field| &one[field]).as_str().map(str::to_owned)).collect()
        };
        let mut may = words("permissions", Some("words"));
        may.extend(words("egress", None).iter().map(|host| format!("reaches {host}")));
        self.say(&format!(
            "  {} {}  {}",
            paint.green(&format!("{:<8}", release["plugin"].as_str().unwrap_or_default())),
            release["version"].as_str().unwrap_or_default(),
            paint.dim(&may.join(", "))
        ));
        Ok(())
    }

    async fn call(&self, tool: &str, input: Value, paint: &Paint) -> Result<Value> {
        let request = json!({ "agent": AGENT, "tool": tool, "input": input, "session": "demo" });
        let result = self.client.post("/v1/calls", request.to_string(), Some(WAIT_S)).await?.success()?;
        let told = match result["status"].as_str() {
            Some("ok") => paint.green(&result["value"].to_string()),
            _ => {
                let error = &result["error"];
                let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
                format!("{} {}", paint.red(&text("kind")), text("message"))
            }
        };
        self.say(&format!("  {tool:<26} {told} {}", paint.dim(&format!("({} ms)", result["usage"]["wallMs"]))));
        Ok(result)
    }

    /// Runs so many calls, some batches at a time.
    async fn load(&self, calls: u32) -> Result<Load> {
        let bar = ProgressBar::new(calls.into());
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} calls, {per_sec}, {eta} left")?;
        bar.set_style(style);
        let started = Instant::now();
        let mut load = Load { ok: 0, failed: BTreeMap::new(), took: Duration::ZERO };
        let mut next = 0;
        let mut under_way = tokio::task::JoinSet::new();
        while next < calls || !under_way.is_empty() {
            while next < calls && under_way.len() < BATCHES_MAX {
                let end = calls.min(next + BATCH);
                let batch: Vec<Value> = (next..end).map(one_of_many).collect();
                next = end;
                let request = self.client.batch(Value::Array(batch).to_string(), WAIT_S);
                under_way.spawn(request);
            }
            let Some(answer) = under_way.join_next().await else { break };
            let answer = answer??.success()?;
            for result in answer.as_array().context("a batch is answered by a list")? {
                bar.inc(1);
                match (result["status"].as_str(), result["error"]["kind"].as_str()) {
                    (Some("ok"), _) => load.ok += 1,
                    (_, kind) => *load.failed.entry(kind.unwrap_or("unfinished").to_owned()).or_default() += 1,
                }
            }
        }
        load.took = started.elapsed();
        bar.finish_and_clear();
        Ok(load)
    }

    /// The account's usage, once its last events have come through their queue; or what there is when that takes long.
    async fn settled_usage(&self, expected: u64) -> Result<Value> {
        let end = Instant::now() + METERING_WAIT;
        loop {
            let usage = self.client.get(&format!("/v1/usage?account={ACCOUNT}")).await?.success()?;
            if counted(&usage) >= expected || Instant::now() > end {
                return Ok(usage);
            }
            tokio::time::sleep(METERING_LOOK_EVERY).await;
        }
    }

    /// What was metered, by plugin; the number of calls in all.
    fn show_usage(&self, usage: &Value, paint: &Paint) -> u64 {
        self.say(&format!("\n{}", paint.bold("Metering, as the ledger counted it")));

        for (plugin, sum) in
            usage["days"].as_array().into_iter().flatten().flat_map(|day| day["plugins"].as_object()).flatten()
        {
            self.say(&format!(
                "  {plugin:<8} {:>6} calls {:>4} failed {:>7} ms of processor time {:>6} host calls",
                sum["calls"], sum["failed"], sum["cpuMs"], sum["hostCalls"]
            ));
        }
        counted(usage)
    }

    fn show_trace(&self, steps: &[Step], paint: &Paint) {
        const WIDTH: f64 = 40.0;
        let (Some(first), Some(last)) =
            (steps.iter().map(|step| step.started).min(), steps.iter().map(|step| step.ended).max())
        else {
            return;
        };
        self.say(&format!("\n{}", paint.bold("One call in its steps")));
        let whole = (last - first).as_secs_f64().max(1e-9);
        for step in steps {
            let from = ((step.started - first).as_secs_f64() / whole * WIDTH) as usize;
            let wide = (((step.ended - step.started).as_secs_f64() / whole * WIDTH) as usize).max(1);
            let name = format!("{}{}", "  ".repeat(step.depth), step.name);
            let bar = format!("{}{}", " ".repeat(from), "█".repeat(wide));
            self.say(&format!(
                "  {name:<18} {bar:<41} {:>8.2} ms  {}",
                (step.ended - step.started).as_secs_f64() * 1000.0,
                paint.dim(step.what.as_deref().unwrap_or_default())
            ));
        }
    }
}

/// Calls that were counted, over all days and plugins.
fn counted(usage: &Value) -> u64 {
    let days = usage["days"].as_array().into_iter().flatten();
    let plugins = days.filter_map(|day| day["plugins"].as_object()).flat_map(|plugins| plugins.values());
    plugins.filter_map(|sum| sum["calls"].as_u64()).sum()
}

struct Load {
    ok: u64,
    failed: BTreeMap<String, u64>,
    took: Duration,
}

/// One of the calls of the load: tools that compute, fetch and write, in turn.
fn one_of_many(number: u32) -> Value {
    let (tool, input) = match number % 4 {
        0 => ("weather__get_forecast", json!({ "latitude": 52.52, "longitude": 13.41 })),
        1 => ("notes__save_note", json!({ "title": format!("Note {}", number % 50), "text": "From the demo." })),
        _ => ("demo__add", json!({ "a": number, "b": 1 })),
    };
    json!({ "agent": AGENT, "tool": tool, "input": input, "class": "background" })
}

fn trace_json(step: &Step, all: &[Step]) -> Value {
    let first = all.iter().map(|step| step.started).min().unwrap_or(step.started);
    json!({
        "name": step.name,
        "what": step.what,
        "depth": step.depth,
        "startUs": (step.started - first).as_micros() as u64,
        "durationUs": (step.ended - step.started).as_micros() as u64,
    })
}
