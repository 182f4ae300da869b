//! The sandbox as a whole: one root, templates by account and release, calls in them.

use super::blank::{Ahead, Blank, BlankError};
use super::cgroup::{Caps, Group, Groups, Nest};
use super::config::IsolationConfig;
use super::layers::{Layer, LayerName, LayerState, layers};
use super::root::Root;
use super::template::{Loaded, Order, Template};
use super::{Host, RunEnd, RunRequest, call};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;
use toolfleet_protocol::{AccountId, Bundle, CallError, FailureKind, Inspection, Limits, Outcome, ReleaseDigest};
use toolfleet_sandbox::Join;

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("the sandbox root could not be started from {binary}: {reason}")]
    Root { binary: PathBuf, reason: std::io::Error },
    #[error("the path of this program is not known, and isolation.sandbox_binary names none: {0}")]
    Binary(std::io::Error),
    #[error("isolation.require names the layer {layer}, which can't be had here: {why}")]
    Layer { layer: LayerName, why: String },
}

/// Runs calls.
pub struct Sandbox {
    config: IsolationConfig,
    binary: PathBuf,
    stand: tokio::sync::Mutex<Stand>,
    templates: Mutex<HashMap<Key, Entry>>,
    ahead: Ahead,
}

/// What all templates stand on. The groups go with their root.
#[derive(Clone)]
struct Stand {
    root: Arc<Root>,
    groups: Result<Arc<Groups>, String>,
}

impl Stand {
    async fn start(config: &IsolationConfig, binary: &Path) -> std::io::Result<Self> {
        let groups = if config.without_cgroup {
            Err("isolation.without_cgroup is set".to_owned())
        } else {
            Groups::open(config.cpu_percent.is_some()).map(Arc::new)
        };
        let root = Root::start(binary, groups.as_deref().ok()).await?;
        let groups = groups.and_then(|groups| groups.adopt(root.pid.unwrap_or_default()).map(|()| groups));
        Ok(Self { root, groups })
    }

    fn groups(&self) -> Option<&Arc<Groups>> {
        self.groups.as_ref().ok()
    }
}

/// Different accounts never share a template, even of the same release.
type Key = (AccountId, ReleaseDigest);

struct Entry {
    cell: Arc<OnceCell<Arc<Template>>>,
    used: Instant,
}

impl Sandbox {
    /// Starts the root and finds a place for cgroups.
    pub async fn start(config: IsolationConfig) -> Result<Self, SandboxError> {
        let binary = match &config.sandbox_binary {
            Some(binary) => binary.clone(),
            None => std::env::current_exe().map_err(SandboxError::Binary)?,
        };
        allow_descriptors();
        let stand = Stand::start(&config, &binary).await;
        let stand = stand.map_err(|reason| SandboxError::Root { binary: binary.clone(), reason })?;
        let stand = tokio::sync::Mutex::new(stand);
        let sandbox = Self { config, binary, stand, templates: Mutex::default(), ahead: Ahead::default() };
        if let Some(error) = sandbox.lost_layer().await {
            sandbox.shutdown().await;
            return Err(error);
        }
        Ok(sandbox)
    }

    /// Which layers are in force.
    pub async fn layers(&self) -> Vec<Layer> {
        let stand = self.stand.lock().await.clone();
        layers(&stand.root.missing, &stand.groups, self.config.cpu_percent.is_some())
    }

    /// A layer that is required and not in force.
    async fn lost_layer(&self) -> Option<SandboxError> {
        let layers = self.layers().await;
        let layer = *self.config.require.iter().find(|name| !layers.iter().any(|layer| layer.meets(**name)))?;
        let found = layers.into_iter().find(|known| known.name == layer.to_string());
        let why = found.and_then(|layer| match layer.state {
            LayerState::Degraded { why, .. } | LayerState::Missing { why, .. } => Some(why),
            LayerState::InForce => None,
        });
        Some(SandboxError::Layer { layer, why: why.unwrap_or_else(|| "isolation.cpu_percent is not set".into()) })
    }

    /// Runs one call to its end. Never fails: what goes wrong here is the call's outcome.
    pub async fn run(&self, request: RunRequest, host: Arc<dyn Host>) -> RunEnd {
        let started = Instant::now();
        // A template can end between being found and being forked from: by its age, or by another call's doing.
        let mut tries = 0;
        let template = loop {
            tries += 1;
            match self.template(&request).await {
                Ok(template) if template.gone.is_cancelled() && tries < TEMPLATE_TRIES => self.forget(&request),
                Ok(template) => break template,
                Err(error) => {
                    return RunEnd {
                        outcome: Outcome::Failed { error },
                        wall_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
                        cpu_ms: 0,
                        peak_memory_bytes: 0,
                        host_calls: 0,
                    };
                }
            }
        };
        let end = call::run(&template, &request, &host).await;
        if template.gone.is_cancelled() {
            self.forget(&request);
        }
        end
    }

    /// Evaluates a bundle without a host, and tells what it registered.
    pub async fn inspect(&self, bundle: &Bundle) -> Inspection {
        let inspection = match self.load(self.order(bundle, Limits::BASE, true)).await {
            Ok(Loaded::Inspected(json)) => serde_json::from_slice(&json)
                .map_err(|_| CallError::new(FailureKind::LoadFailed, "the plugin's registration could not be read")),
            Ok(Loaded::Template(_)) => {
                Err(CallError::new(FailureKind::Crashed, "the sandbox answered another question"))
            }
            Err(error) => Err(error),
        };
        inspection.unwrap_or_else(|error| Inspection::Failed { error })
    }

    /// Nanoseconds of a bare fork of the root, the floor for a call: in no cgroup, or in one of this nest.
    pub(super) async fn bare_fork(&self, nest: Option<&Arc<Nest>>) -> std::io::Result<u64> {
        let root = Arc::clone(&self.stand.lock().await.root);
        let group = nest.map(|nest| nest.call(Limits::BASE.memory_bytes)).transpose()?;
        let (join, doors) = group.as_deref().map_or((Join::None, Vec::new()), Group::door);
        root.bare_fork(join, &doors).await
    }

    /// Cgroups as a template has them; none where there are none.
    pub(super) async fn nest(&self) -> std::io::Result<Option<Arc<Nest>>> {
        let stand = self.stand.lock().await.clone();
        let nest = stand.groups().map(|groups| groups.nest(&self.caps(Limits::BASE.memory_bytes)));
        Ok(nest.transpose()?.map(Arc::new))
    }

    /// Lets every template go that no call uses, and the process that waits for the next.
    pub fn clear(&self) {
        self.templates().retain(|_, entry| !entry.is_idle());
        self.ahead.clear();
    }

    /// Ends the root and all that it forked, and takes the cgroups away.
    pub async fn shutdown(&self) {
        self.templates().clear();
        self.ahead.clear();
        let stand = self.stand.lock().await.clone();
        stand.root.kill().await;
        if let Ok(groups) = stand.groups {
            remove(groups).await;
        }
    }

    async fn stand(&self) -> Result<Stand, CallError> {
        let mut stand = self.stand.lock().await;
        if stand.root.gone.is_cancelled() {
            tracing::error!("the sandbox root is gone and is started anew");
            self.templates().clear();
            let new = Stand::start(&self.config, &self.binary).await.map_err(|error| {
                CallError::new(FailureKind::Crashed, format!("the sandbox root could not be started: {error}"))
            })?;
            if let Ok(groups) = std::mem::replace(&mut *stand, new).groups {
                // Ends soon, by itself.
                tokio::spawn(remove(groups));
            }
        }
        Ok(stand.clone())
    }

    async fn template(&self, request: &RunRequest) -> Result<Arc<Template>, CallError> {
        let cell = self.cell(request);
        let loaded = cell
            .get_or_try_init(|| async {
                match self.load(self.order(&request.bundle, request.limits, false)).await? {
                    Loaded::Template(template) => Ok(template),
                    Loaded::Inspected(_) => {
                        Err(CallError::new(FailureKind::Crashed, "the sandbox answered another question"))
                    }
                }
            })
            .await;
        loaded.cloned()
    }

    fn order<'a>(&self, bundle: &'a Bundle, limits: Limits, inspect: bool) -> Order<'a> {
        Order {
            bundle,
            limits,
            heap_bytes: limits.memory_bytes / 100 * u64::from(self.config.heap_percent),
            load_ms: self.config.load_ms,
            inspect,
        }
    }

    /// What a template may use whose calls have this cap.
    fn caps(&self, memory_bytes: u64) -> Caps {
        Caps {
            memory_bytes: memory_bytes + TEMPLATE_CALLS_MAX * FORK_BYTES,
            call_memory_bytes: memory_bytes,
            // Calls count as the template's between their fork and their joining a group of their own.
            processes: 1 + TEMPLATE_CALLS_MAX,
            cpu_percent: self.config.cpu_percent,
        }
    }

    /// Has a process evaluate a bundle: the one that is kept ahead, or else one that is started now.
    async fn load(&self, order: Order<'_>) -> Result<Loaded, CallError> {
        let broken = |error: BlankError| {
            CallError::new(FailureKind::Crashed, format!("the sandbox could not be made ready: {error}"))
        };
        let stand = self.stand().await?;
        let (root, groups) = (&stand.root, stand.groups());
        let caps = self.caps(order.limits.memory_bytes);
        let blank = match self.ahead.take(root) {
            Some(mut blank) => blank.cap(&caps).map(|()| blank),
            None => Blank::start(root, groups, &caps).await,
        };
        let loaded = Template::load(blank.map_err(broken)?, order).await;
        // After it: whoever waits for this one doesn't wait for the next too.
        self.ahead.keep(root, groups, self.caps(Limits::BASE.memory_bytes));
        loaded
    }

    /// The place of a template, made if need be; the least recently used ones make room.
    fn cell(&self, request: &RunRequest) -> Arc<OnceCell<Arc<Template>>> {
        let key = (request.account.clone(), request.release.clone());
        let now = Instant::now();
        let idle = Duration::from_millis(self.config.template_idle_ms);
        let mut templates = self.templates();
        templates.retain(|known, entry| *known == key || !entry.is_idle() || now - entry.used < idle);
        if !templates.contains_key(&key) {
            while templates.len() >= self.config.templates_max {
                let oldest = templates.iter().filter(|(_, entry)| entry.is_idle()).min_by_key(|(_, entry)| entry.used);
                // All in use: then there are more for a while, no more than calls at once.
                let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { break };
                templates.remove(&oldest);
            }
        }
        let entry = templates.entry(key).or_insert_with(|| Entry { cell: Arc::default(), used: now });
        entry.used = now;
        Arc::clone(&entry.cell)
    }

    fn forget(&self, request: &RunRequest) {
        let key = (request.account.clone(), request.release.clone());
        let mut templates = self.templates();
        let is_gone = |entry: &Entry| entry.cell.get().is_some_and(|template| template.gone.is_cancelled());
        if templates.get(&key).is_some_and(is_gone) {
            templates.remove(&key);
        }
    }

    fn templates(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Entry>> {
        self.templates.lock().expect("nothing panics while it is held")
    }
}

/// A call takes some descriptors: its socket, and those of its cgroups. Services are started with room for a thousand
/// in all, and may have as many as this raises it to.
fn allow_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, "no more descriptors can be had than the process was started with");
    }
}

/// Takes groups away whose processes are dying: these leave some microseconds after their parents.
async fn remove(groups: Arc<Groups>) {
    for _ in 0..REMOVE_TRIES {
        groups.remove();
        tokio::time::sleep(REMOVE_WAIT).await;
    }
}

impl Entry {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.cell) == 1 && self.cell.get().is_none_or(|template| Arc::strong_count(template) == 1)
    }
}

const TEMPLATE_TRIES: u32 = 3;
/// Calls of one template at once: as many as a worker ever has, and no more than a machine can bear of a template that
/// was taken over.
const TEMPLATE_CALLS_MAX: u64 = 1_024;
/// What the kernel keeps for a fork (its page tables, its stack) is counted where it was forked from.
const FORK_BYTES: u64 = 192 * 1024;
const REMOVE_TRIES: u32 = 5;
const REMOVE_WAIT: Duration = Duration::from_millis(10);
