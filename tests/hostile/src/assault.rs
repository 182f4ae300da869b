//! Attacks one after the other, each with all that must hold after it.

use crate::support::{TestHost, request, value};
use crate::{SHORT_WALL_MS, Watch, long_wall_ms, next_call_ms_max, overrun_ms_max, support};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::{Mutex, MutexGuard};
use toolfleet_protocol::{FailureKind, Limits, Outcome, ToolName};
use toolfleet_worker::isolation::{RunEnd, RunRequest, Sandbox};

/// One handler that means no good.
#[derive(Debug, Clone, Copy)]
pub struct Attack {
    /// Its row in the list of what must be survived, and what it does.
    pub name: &'static str,
    pub handler: &'static str,
    pub wall: Wall,
    /// Each is right.
    pub right: &'static [Expected],
}

/// How long a call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wall {
    /// It may run into its limit, which is short.
    Short,
    /// It ends by itself.
    Long,
}

/// How a call may end.
#[derive(Debug, Clone, Copy)]
pub enum Expected {
    /// With this JSON.
    Value(&'static str),
    /// With a thrown error whose message has this text in it, and is never empty.
    Thrown(&'static str),
    Unserializable(&'static str),
    Timeout,
    Memory,
    Stalled,
    TooLarge,
}

impl Attack {
    pub const fn new(name: &'static str, handler: &'static str, wall: Wall, right: &'static [Expected]) -> Self {
        Self { name, handler, wall, right }
    }

    /// What is wrong with this end, if anything is; `end_ms` is when it must have come.
    pub fn fault(&self, end: &RunEnd, end_ms: u64) -> Option<String> {
        if !self.right.iter().any(|right| right.is(&end.outcome)) {
            return Some(format!("{}: {end:?} where {:?} is right", self.name, self.right));
        }
        (end.wall_ms > end_ms).then(|| format!("{}: took {} ms, and {end_ms} are the most", self.name, end.wall_ms))
    }

    pub fn wall_ms(&self) -> u64 {
        match self.wall {
            Wall::Short => SHORT_WALL_MS,
            Wall::Long => long_wall_ms(),
        }
    }
}

impl Expected {
    fn is(self, outcome: &Outcome) -> bool {
        let failed = |kind, text: &str| match outcome {
            Outcome::Failed { error } => {
                error.kind == kind && !error.message.is_empty() && error.message.contains(text)
            }
            Outcome::Ok { .. } => false,
        };
        match self {
            Self::Value(json) => {
                let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
                matches!(outcome, Outcome::Ok { value } if parsed(value.get()) == parsed(json))
            }
            Self::Thrown(text) => failed(FailureKind::Thrown, text),
            Self::Unserializable(text) => failed(FailureKind::Unserializable, text),
            Self::Timeout => failed(FailureKind::Timeout, ""),
            Self::Memory => failed(FailureKind::Memory, ""),
            Self::Stalled => failed(FailureKind::Stalled, ""),
            Self::TooLarge => failed(FailureKind::TooLarge, "bytes"),
        }
    }
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// One test at a time: each looks at all processes below this one.
pub async fn turn() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().await
}

/// A call of a plugin that has this handler for one tool and does no harm in another.
pub fn attack_request(handler: &str, wall_ms: u64) -> RunRequest {
    let harmless = "globalThis.tools.harmless = { description: 'd', handler: (i) => ({ right: i }) };";
    let code = format!("{}\n{harmless}", support::tool(handler));
    RunRequest { limits: Limits { wall_ms, ..Limits::BASE }, ..request(&code, json!({ "n": 1 })) }
}

/// The harmless tool of an attack's own template: right, and on time.
pub async fn next_call(sandbox: &Sandbox, handler: &str, after: &str) {
    let mut request = attack_request(handler, long_wall_ms());
    request.tool = ToolName::parse("harmless").expect("a good name");
    let end = sandbox.run(request, Arc::new(TestHost::default())).await;
    assert!(matches!(end.outcome, Outcome::Ok { .. }), "after {after}: {end:?}");
    assert_eq!(value(&end), json!({ "right": { "n": 1 } }), "after {after}");
    assert!(end.wall_ms <= next_call_ms_max(), "after {after} the next call took {} ms", end.wall_ms);
}

/// Runs the attacks, and sees after each that it ended as it must and left nothing.
pub async fn assault(attacks: &[Attack]) {
    let _turn = turn().await;
    let sandbox = support::sandbox().await;
    let watch = Watch::warm(&sandbox).await;
    let mut faults = Vec::new();
    for attack in attacks {
        let request = attack_request(attack.handler, attack.wall_ms());
        let end = sandbox.run(request, Arc::new(TestHost::default())).await;
        faults.extend(attack.fault(&end, attack.wall_ms() + overrun_ms_max()));
        next_call(&sandbox, attack.handler, attack.name).await;
        watch.settle_all(&sandbox, attack.name).await;
    }
    sandbox.shutdown().await;
    Watch::nothing().await;
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), attacks.len(), faults.join("\n"));
}
