//! What a call costs, measured in one run against the floor: a bare fork, exit and wait of the same root.

mod memory;
mod waiting;

pub use memory::Private;
pub use waiting::Beside;

use super::{Host, LogLevel, RunEnd, RunRequest, Sandbox};
use async_trait::async_trait;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;
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
    /// The same, of a process that goes into a cgroup of its own; the same as `bare_fork` where there are none.
    pub group_fork: Timing,
    /// A call on a template that is there, after the one before it: its process waits for it.
    pub warm_call: Timing,
    /// A call among others that run at once: its process is forked for it.
    pub busy_call: Timing,
    /// The first call of a release on a worker: its template is made for it.
    pub first_call: Timing,
    /// `warm_call` over `bare_fork`, at the median.
    pub warm_ratio: f64,
    /// `first_call` over `warm_call`, at the median.
    pub first_ratio: f64,
    /// Memory that a template without calls, and a call that waits, have to themselves.
    pub idle_template: Private,
    pub waiting_call: Private,
    /// Calls beside many that wait for their host.
    pub beside: Beside,
}

/// Calls at once, where several are.
const AT_ONCE: u32 = 4;
/// A first call and several at once take some times as long as one: so many fewer keep the alternation fair.
const OF_LONG_ONES: u32 = 10;

/// Runs so many of each kind.
///
/// # Errors
/// In words, where a call doesn't end as it must.
pub async fn bench(sandbox: &Arc<Sandbox>, runs: u32) -> Result<BenchReport, String> {
    let told = |what: &str, error: std::io::Error| format!("{what}: {error}");
    let (mut bare, mut grouped, mut warm, mut busy, mut first) = (vec![], vec![], vec![], vec![], vec![]);
    let nest = sandbox.nest().await.map_err(|error| told("a cgroup", error))?;
    for run in 0..runs {
        bare.push(sandbox.bare_fork(None).await.map_err(|error| told("a bare fork", error))?);
        grouped.push(sandbox.bare_fork(nest.as_ref()).await.map_err(|error| told("a fork into a cgroup", error))?);
        warm.push(timed(sandbox, 0).await?);
        if run % OF_LONG_ONES == 0 {
            first.push(timed(sandbox, run + 1).await?);
            let several = (0..AT_ONCE).map(|_| timed(sandbox, 0));
            busy.extend(futures::future::try_join_all(several).await?);
        }
    }
    drop(nest);
    // The very first one had its template made for it.
    warm.remove(0);
    let (bare_fork, warm_call, first_call) = (timing(bare), timing(warm), timing(first));
    let waited = waiting::measure(sandbox, runs).await?;
    Ok(BenchReport {
        runs,
        bare_fork,
        group_fork: timing(grouped),
        warm_call,
        busy_call: timing(busy),
        first_call,
        warm_ratio: warm_call.p50_us / bare_fork.p50_us,
        first_ratio: first_call.p50_us / warm_call.p50_us,
        idle_template: waited.idle_template,
        waiting_call: waited.waiting_call,
        beside: waited.beside,
    })
}

const CODE: &str = "globalThis.tools.add = { description: 'Adds.', handler: (i) => i.a + i.b };\n\
                    globalThis.tools.wait = { description: 'Waits.', handler: () => host.settings.get('x') };";

/// One call of a release, on a thread of the runtime, as a worker's calls are.
async fn run(
    sandbox: &Arc<Sandbox>,
    release: u32,
    tool: &str,
    cancel: CancellationToken,
) -> Result<(RunEnd, u64), String> {
    let file = BundledFile { code: CODE.into(), source_map: String::new(), imports: BTreeMap::new() };
    let files = BTreeMap::from([("index.js".to_owned(), file)]);
    let request = RunRequest {
        account: AccountId::parse("bench").map_err(|error| error.to_string())?,
        release: ReleaseDigest::parse(format!("{release:064x}")).map_err(|error| error.to_string())?,
        bundle: Arc::new(Bundle { entry: "index.js".into(), entry_is_script: true, files }),
        limits: Limits::BASE,
        call_id: CallId::generate(),
        tool: ToolName::parse(tool).map_err(|error| error.to_string())?,
        input: RawValue::from_string(r#"{"a":1,"b":2}"#.into()).map_err(|error| error.to_string())?,
        initiator: Initiator::PLATFORM,
        cancel,
    };
    let sandbox = Arc::clone(sandbox);
    let run = tokio::spawn(async move {
        let started = Instant::now();
        let end = sandbox.run(request, Arc::new(SilentHost)).await;
        (end, u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    });
    run.await.map_err(|error| error.to_string())
}

/// Nanoseconds of a call that adds.
async fn timed(sandbox: &Arc<Sandbox>, release: u32) -> Result<u64, String> {
    let (end, ns) = run(sandbox, release, "add", CancellationToken::new()).await?;
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

/// Never answers.
struct SilentHost;

#[async_trait]
impl Host for SilentHost {
    async fn call(&self, _: u32, _: HostMethod, _: Box<RawValue>) -> Result<Box<RawValue>, HostError> {
        std::future::pending::<()>().await;
        Err(HostError::new(HostErrorName::HostError, "there is no host in a benchmark"))
    }

    fn log(&self, _: LogLevel, _: &str, _: Option<Box<RawValue>>) {}
}
