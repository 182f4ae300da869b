//! What a call costs, measured in one run against the floor: a bare fork, exit and wait of the same root.

use super::{Host, LogLevel, RunRequest, Sandbox};
use async_trait::async_trait;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use toolfleet_protocol::host::{HostError, HostErrorName, HostMethod};
use toolfleet_protocol::{AccountId, Bundle, BundledFile, CallId, Initiator, Limits, Outcome, ReleaseDigest, ToolName};

/// Microseconds of one kind of run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Timing {
    pub p50_us: f64,
    pub p99_us: f64,
}

/// All kinds, measured in alternation.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct BenchReport {
    pub runs: u32,
    pub bare_fork: Timing,
    /// A call on a template that is there.
    pub warm_call: Timing,
    /// A call whose template is made for it: the first call of a release on a worker.
    pub cold_call: Timing,
    /// `warm_call` over `bare_fork`, at the median.
    pub warm_ratio: f64,
    /// `cold_call` over `warm_call`, at the median.
    pub cold_ratio: f64,
}

/// Runs so many of each kind.
///
/// # Errors
/// In words, where a call doesn't end as it must.
pub async fn bench(sandbox: &Arc<Sandbox>, runs: u32) -> Result<BenchReport, String> {
    let host: Arc<dyn Host> = Arc::new(NoHost);
    let (mut bare, mut warm, mut cold) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..runs {
        bare.extend(sandbox.bare_forks(1).await.map_err(|error| format!("a bare fork: {error}"))?);
        warm.push(timed(sandbox, &host, 0).await?);
        // A cold call is some ten times a warm one: a tenth of the runs keeps the alternation fair.
        if run % 10 == 0 {
            cold.push(timed(sandbox, &host, run + 1).await?);
        }
    }
    // The very first one had its template made for it.
    warm.remove(0);
    let (bare_fork, warm_call, cold_call) = (timing(bare), timing(warm), timing(cold));
    Ok(BenchReport {
        runs,
        bare_fork,
        warm_call,
        cold_call,
        warm_ratio: warm_call.p50_us / bare_fork.p50_us,
        cold_ratio: cold_call.p50_us / warm_call.p50_us,
    })
}

const CODE: &str = "globalThis.tools.add = { description: 'Adds.', handler: (i) => i.a + i.b };";

async fn timed(sandbox: &Arc<Sandbox>, host: &Arc<dyn Host>, release: u32) -> Result<u64, String> {
    let file = BundledFile { code: CODE.into(), source_map: String::new(), imports: BTreeMap::new() };
    let files = BTreeMap::from([("index.js".to_owned(), file)]);
    let request = RunRequest {
        account: AccountId::parse("bench").map_err(|error| error.to_string())?,
        release: ReleaseDigest::parse(format!("{release:064x}")).map_err(|error| error.to_string())?,
        bundle: Arc::new(Bundle { entry: "index.js".into(), entry_is_script: true, files }),
        limits: Limits::BASE,
        call_id: CallId::generate(),
        tool: ToolName::parse("add").map_err(|error| error.to_string())?,
        input: RawValue::from_string(r#"{"a":1,"b":2}"#.into()).map_err(|error| error.to_string())?,
        initiator: Initiator::PLATFORM,
        cancel: tokio_util::sync::CancellationToken::new(),
    };
    let (sandbox, host) = (Arc::clone(sandbox), Arc::clone(host));
    // On a thread of the runtime, as a worker's calls are.
    let run = tokio::spawn(async move {
        let started = Instant::now();
        let end = sandbox.run(request, host).await;
        (end, u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    });
    let (end, ns) = run.await.map_err(|error| error.to_string())?;
    match end.outcome {
        Outcome::Ok { value } if value.get() == "3" => Ok(ns),
        other => Err(format!("a call that must give 3 gave {other:?}")),
    }
}

fn timing(mut ns: Vec<u64>) -> Timing {
    ns.sort_unstable();
    let at = |percent: usize| ns.get(ns.len() * percent / 100).or(ns.last()).map_or(0.0, |ns| *ns as f64 / 1000.0);
    Timing { p50_us: at(50), p99_us: at(99) }
}

struct NoHost;

#[async_trait]
impl Host for NoHost {
    async fn call(&self, _: u32, _: HostMethod, _: Box<RawValue>) -> Result<Box<RawValue>, HostError> {
        Err(HostError::new(HostErrorName::HostError, "there is no host in a benchmark"))
    }

    fn log(&self, _: LogLevel, _: &str, _: Option<Box<RawValue>>) {}
}
