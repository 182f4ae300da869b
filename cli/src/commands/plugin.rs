//! `toolfleet plugin`

use crate::args::{ApiArg, ConfigArg, InputArg};
use crate::client::Client;
use crate::config::Config;
use crate::exit::{DONE, FAILED, unreachable, wrong};
use crate::output::{self, Paint};
use crate::parts;
use anyhow::{Context, Result, anyhow};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use toolfleet_plugin::{Checked, Problems, Source, build, finish, scaffold};
use toolfleet_protocol::{AccountId, AgentId, Initiator, InitiatorKind, Outcome, PluginSlug, SessionId, ToolName};
use toolfleet_worker::isolation::Sandbox;
use toolfleet_worker::{Fetcher, LocalCall, run_local};

pub fn init(folder: &Path) -> Result<u8> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let slug = PluginSlug::parse(name)
        .map_err(|error| wrong(anyhow!("the folder's name becomes the plugin's slug, and a {error}")))?;
    if folder.exists() && folder.read_dir().map_or(true, |mut entries| entries.next().is_some()) {
        return Err(wrong(anyhow!("{} is there already and not an empty folder", folder.display())));
    }
    for (path, text) in scaffold::files(slug.as_str()) {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("wrote {}", path.display());
    }
    eprintln!("\nNext:\n  toolfleet plugin check {0}\n  toolfleet dev {0}", folder.display());
    Ok(DONE)
}

/// Reads and checks a folder, its evaluation in the sandbox included.
async fn checked(folder: &Path, sandbox: &Sandbox) -> Result<Result<Checked, Problems>> {
    let draft = match source(folder)?.and_then(|source| build(&source)) {
        Ok(draft) => draft,
        Err(problems) => return Ok(Err(problems)),
    };
    let inspection = sandbox.inspect(&draft.bundle).await;
    Ok(finish(draft, inspection))
}

fn source(folder: &Path) -> Result<Result<Source, Problems>> {
    if !folder.is_dir() {
        return Err(wrong(anyhow!("{} is no folder", folder.display())));
    }
    Ok(Source::read_folder(folder))
}

pub async fn check(folder: &Path, as_json: bool) -> Result<u8> {
    let sandbox = Sandbox::start(Config::read(None)?.isolation).await.map_err(unreachable)?;
    let checked = checked(folder, &sandbox).await;
    sandbox.shutdown().await;
    match checked? {
        Ok(checked) => {
            if as_json {
                let mut release = serde_json::to_value(&checked.release)?;
                if let Some(release) = release.as_object_mut() {
                    release.remove("bundle");
                    release.insert("warnings".into(), serde_json::to_value(&checked.warnings)?);
                }
                output::json(&release);
            } else {
                output::problems(&checked.warnings);
                show_release(&checked);
            }
            Ok(DONE)
        }
        Err(problems) => {
            show_problems(&problems, as_json);
            Ok(FAILED)
        }
    }
}

fn show_problems(problems: &Problems, as_json: bool) {
    if as_json {
        output::json(&json!({ "problems": problems.as_slice() }));
    } else {
        output::problems(problems.as_slice());
    }
}

fn show_release(checked: &Checked) {
    let (paint, release) = (Paint::stdout(), &checked.release);
    output::line(&format!("{} {} {}", paint.green("ok"), paint.bold(release.slug.as_str()), release.version));
    for tool in &release.tools {
        output::line(&format!("  {}  {}", paint.bold(&tool.name.qualified(&release.slug)), tool.description));
    }
    for permission in &release.permissions {
        output::line(&format!("  {} ({permission})", permission.words()));
    }
    for host in &release.egress {
        output::line(&format!("  reaches {host}"));
    }
}

pub async fn run(folder: &Path, tool: &str, input: &InputArg, config: &ConfigArg, as_json: bool) -> Result<u8> {
    let config = Config::read(config.config.as_deref())?;
    let input = read_input(input)?;
    let tool = ToolName::parse(tool).map_err(wrong)?;
    let sandbox = Sandbox::start(config.isolation.clone()).await.map_err(unreachable)?;
    let result = run_in(&sandbox, folder, tool, input, &config).await;
    sandbox.shutdown().await;
    let result = match result? {
        Ok(result) => result,
        Err(problems) => {
            // On stderr: stdout is for results, and there is none.
            for problem in problems.iter() {
                eprintln!("{problem}");
            }
            return Ok(FAILED);
        }
    };
    if as_json {
        output::json(&result);
    } else {
        output::result(&result);
    }
    Ok(if matches!(result.outcome, Outcome::Ok { .. }) { DONE } else { FAILED })
}

async fn run_in(
    sandbox: &Sandbox,
    folder: &Path,
    tool: ToolName,
    input: Box<RawValue>,
    config: &Config,
) -> Result<Result<toolfleet_protocol::CallResult, Problems>> {
    let release = match checked(folder, sandbox).await? {
        Ok(checked) => Arc::new(checked.release),
        Err(problems) => return Ok(Err(problems)),
    };
    if release.tool(&tool).is_none() {
        let known: Vec<&str> = release.tools.iter().map(|tool| tool.name.as_str()).collect();
        return Err(wrong(anyhow!("{} has no tool {tool}; it has {}", release.slug, known.join(", "))));
    }
    // What the call writes lives as long as the command.
    let data = tempfile::tempdir()?;
    let (queue, records) = parts::embedded(data.path()).await?;
    let fetcher = Arc::new(Fetcher::new(config.fetch.clone()).map_err(wrong)?);
    let call = LocalCall {
        account: AccountId::parse("local")?,
        agent: AgentId::parse("local")?,
        session: SessionId::parse("local")?,
        tool,
        input,
        initiator: Initiator { kind: InitiatorKind::User, is_verified_person: true },
    };
    let result = run_local(sandbox, &records, &config.sealer()?, &fetcher, &release, call).await;
    queue.close().await;
    Ok(Ok(result))
}

/// `--input`: the JSON itself, `@FILE`, or `-` for stdin.
pub fn read_input(input: &InputArg) -> Result<Box<RawValue>> {
    let text = match input.input.as_str() {
        "-" => std::io::read_to_string(std::io::stdin()).context("cannot read --input from stdin").map_err(wrong)?,
        text => match text.strip_prefix('@') {
            Some(file) => {
                std::fs::read_to_string(file).with_context(|| format!("cannot read --input @{file}")).map_err(wrong)?
            }
            None => text.to_owned(),
        },
    };
    RawValue::from_string(text).map_err(|error| wrong(anyhow!("--input is no JSON: {error}")))
}

pub async fn publish(folder: &Path, api: &ApiArg, as_json: bool) -> Result<u8> {
    // Checked here first: what the folder alone tells is told without a scheduler.
    let source = match source(folder)?.and_then(|source| build(&source).map(|_| source)) {
        Ok(source) => source,
        Err(problems) => {
            show_problems(&problems, as_json);
            return Ok(FAILED);
        }
    };
    let client = Client::new(api)?;
    let answer = client.post("/v1/plugins", files_body(source.files()), None).await?;
    if let Some(problems) = answer.body["problems"].as_array() {
        if as_json {
            output::json(&json!({ "problems": problems }));
        } else {
            for problem in problems {
                show_told_problem(problem);
            }
        }
        return Ok(FAILED);
    }
    let published = answer.success()?;
    if as_json {
        output::json(&published);
    } else {
        let paint = Paint::stdout();
        let text = |key: &str| published[key].as_str().unwrap_or_default().to_owned();
        output::line(&format!("{} {} {}", paint.green("published"), paint.bold(&text("plugin")), text("version")));
        for permission in published["permissions"].as_array().into_iter().flatten() {
            output::line(&format!("  {}", permission["words"].as_str().unwrap_or_default()));
        }
    }
    Ok(DONE)
}

fn show_told_problem(problem: &Value) {
    let text = |key: &str| problem[key].as_str().unwrap_or_default();
    let place = match (problem["file"].as_str(), problem["line"].as_u64(), problem["column"].as_u64()) {
        (Some(file), Some(line), Some(column)) => format!("{file}:{line}:{column}: "),
        (Some(file), ..) => format!("{file}: "),
        _ => String::new(),
    };
    output::line(&format!("{place}{} [{}] {}", text("severity"), text("code"), text("message")));
    output::line(&format!("  → {}", text("remedy")));
}

/// The body of a request that publishes these files.
pub fn files_body(files: &BTreeMap<String, Vec<u8>>) -> String {
    use base64::Engine as _;
    let files: serde_json::Map<String, Value> = files
        .iter()
        .map(|(path, bytes)| {
            let content = match std::str::from_utf8(bytes) {
                Ok(text) => Value::String(text.to_owned()),
                Err(_) => json!({ "base64": base64::engine::general_purpose::STANDARD.encode(bytes) }),
            };
            (path.clone(), content)
        })
        .collect();
    json!({ "files": files }).to_string()
}
