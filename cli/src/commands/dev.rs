//! `toolfleet dev`: every role in one process, for whoever writes a plugin.

use super::plugin::files_body;
use crate::args::{ApiArg, ConfigArg};
use crate::client::Client;
use crate::config::Config;
use crate::exit::{DONE, wrong};
use crate::{output, parts};
use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio_util::sync::CancellationToken;
use toolfleet_plugin::Source;
use toolfleet_scheduler::Scheduler;
use toolfleet_worker::isolation::Sandbox;

/// Whose plugins and calls these are.
const ACCOUNT: &str = "dev";
const AGENT: &str = "dev";
/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub async fn run(folders: &[PathBuf], listen: Option<SocketAddr>, data: &Path, config: &ConfigArg) -> Result<u8> {
    let mut config = Config::read(config.config.as_deref())?;
    toolfleet_telemetry::init(&config.log, None, None).map_err(wrong)?;
    if let Some(folder) = folders.iter().find(|folder| !folder.is_dir()) {
        return Err(wrong(anyhow!("{} is no folder", folder.display())));
    }
    if let Some(listen) = listen {
        config.scheduler.listen = listen;
    }
    let sealer = config.sealer()?;
    let shutdown = parts::shutdown()?;
    let sandbox = Sandbox::start(config.isolation.clone()).await.map_err(crate::exit::unreachable)?;
    let (queue, records) = parts::embedded(data).await?;
    let scheduler = Scheduler::bind(config.scheduler.clone()).await.map_err(wrong)?;
    let url = format!("http://{}", scheduler.local_addr());
    let worker = tokio::spawn(toolfleet_worker::run(
        config.worker.clone(),
        config.fetch.clone(),
        queue.clone(),
        records.clone(),
        sealer.clone(),
        sandbox,
        shutdown.clone(),
    ));
    let scheduler = tokio::spawn(scheduler.serve(queue.clone(), records, sealer, shutdown.clone()));
    output::line(&format!("listening on {url}"));
    let client = Client::new(&ApiArg { url: url.clone(), token: None })?;
    let published = publish_on_change(&client, folders, &url, &shutdown).await;
    shutdown.cancel();
    scheduler.await??;
    worker.await??;
    queue.close().await;
    published.map(|()| DONE)
}

/// Publishes the folders, and each again when a file of it changes, until told to stop.
async fn publish_on_change(
    client: &Client,
    folders: &[PathBuf],
    url: &str,
    shutdown: &CancellationToken,
) -> Result<()> {
    let mut seen: BTreeMap<&Path, u64> = BTreeMap::new();
    if !folders.is_empty() {
        client.post("/v1/agents", json!({ "id": AGENT, "account": ACCOUNT }).to_string(), None).await?.success()?;
    }
    loop {
        for folder in folders {
            let now = fingerprint(folder);
            if seen.insert(folder, now) != Some(now) {
                match publish(client, folder, now).await {
                    Ok(tools) => show(folder, &tools, url),
                    Err(error) => eprintln!("{}: {error:#}", folder.display()),
                }
            }
        }
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// Changes when a file does: from names, sizes and times.
fn fingerprint(folder: &Path) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    let mut waiting = vec![folder.to_path_buf()];
    while let Some(folder) = waiting.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(&folder).into_iter().flatten().flatten().collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let Ok(metadata) = entry.metadata() else { continue };
            let name = entry.file_name();
            if metadata.is_dir() {
                // What is not published need not be looked at, and may be large.
                if name != "node_modules" && !name.to_string_lossy().starts_with('.') {
                    waiting.push(entry.path());
                }
            } else {
                let changed = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                (entry.path(), metadata.len(), changed).hash(&mut hasher);
            }
        }
    }
    hasher.finish()
}

/// Publishes and installs a folder, under a version of its own: a version is one release for ever, and here it
/// changes with each save.
async fn publish(client: &Client, folder: &Path, fingerprint: u64) -> Result<Vec<Value>> {
    let source = Source::read_folder(folder).map_err(|problems| anyhow!("{problems}"))?;
    let mut files = source.files().clone();
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if let Some(manifest) = files.get_mut("plugin.json") {
        mark_version(manifest, &format!("dev.{time}.{fingerprint:x}"));
    }
    let answer = client.post("/v1/plugins", files_body(&files), None).await?;
    if let Some(problems) = answer.body["problems"].as_array() {
        let told: Vec<String> = problems
            .iter()
            .map(|problem| {
                let text = |key: &str| problem[key].as_str().unwrap_or_default().to_owned();
                let place = format!("{}:{}:{}", text("file"), problem["line"], problem["column"]);
                format!("\n  {place} [{}] {}\n    → {}", text("code"), text("message"), text("remedy"))
            })
            .collect();
        return Err(anyhow!("not published:{}", told.concat()));
    }
    let release = answer.success()?;
    let installation = json!({ "account": ACCOUNT, "plugin": release["plugin"], "version": release["version"] });
    client.post("/v1/installations", installation.to_string(), None).await?.success()?;
    let tools = client.get(&format!("/v1/agents/{AGENT}/tools")).await?.success()?;
    let list = tools["tools"].as_array().cloned().context("the scheduler lists the agent's tools")?;
    let prefix = format!("{}__", release["plugin"].as_str().unwrap_or_default());
    Ok(list.into_iter().filter(|tool| tool["name"].as_str().is_some_and(|name| name.starts_with(&prefix))).collect())
}

/// Adds a pre-release mark to the version, where it is one; a manifest that isn't right is told by the check.
fn mark_version(manifest: &mut Vec<u8>, mark: &str) {
    if let Ok(mut parsed) = serde_json::from_slice::<Value>(manifest)
        && let Some(version) = parsed["version"].as_str().map(str::to_owned)
    {
        let joint = if version.contains('-') { '.' } else { '-' };
        let marked = format!("{version}{joint}{mark}");
        let text = String::from_utf8_lossy(manifest).replacen(&format!("\"{version}\""), &format!("\"{marked}\""), 1);
        // Replaced in the text, so that problems still name the author's own lines.
        if serde_json::from_str::<Value>(&text).is_ok_and(|again| again["version"] == marked.as_str()) {
            *manifest = text.into_bytes();
        } else {
            parsed["version"] = marked.into();
            *manifest = parsed.to_string().into_bytes();
        }
    }
}

fn show(folder: &Path, tools: &[Value], url: &str) {
    output::line(&format!("published {}", folder.display()));
    for tool in tools {
        let name = tool["name"].as_str().unwrap_or_default();
        output::line(&format!("  toolfleet call {AGENT} {name} --url {url} --input '{{…}}'"));
    }
}
