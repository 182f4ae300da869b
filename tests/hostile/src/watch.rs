//! What this process and those below it hold: processes, descriptors, cgroups, memory.

use crate::support;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use toolfleet_worker::isolation::Sandbox;

/// What was held at a moment. A test that attacks calls [`Watch::settle`] at its end.
#[derive(Debug)]
pub struct Watch {
    before: Held,
}

/// Dying processes and the worker's own clean-up need a moment.
const SETTLE_WAIT: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// An allocator keeps some of what it was given back.
const MEMORY_SLACK_BYTES: u64 = 32 * 1024 * 1024;
/// The sockets of templates that were made since: some each, and there are few templates.
const DESCRIPTORS_SLACK: usize = 16;
/// A worker keeps no more cgroups for later, the folders that they lie in among them.
const GROUPS_KEPT_MAX: usize = 256;
/// No test has more at once, but those that say so.
const TEMPLATES_WARMED: usize = 3;
const ROOT: &str = "tf-root";
const TEMPLATE: &str = "tf-template";
const CALL: &str = "tf-call";
/// What a template is before it has a plugin: one may be kept ahead.
const BLANK: &str = "tf-blank";

#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    /// Of every process below this one, by name.
    processes: BTreeMap<String, usize>,
    /// Ended and never waited for.
    zombies: usize,
    /// But for those of cgroups, which are kept with them.
    descriptors: usize,
    memory_bytes: u64,
    /// Made by this process, and not taken away.
    groups: usize,
    /// Those of them that have a process in them.
    groups_in_use: usize,
}

impl Watch {
    /// Notes what is held now: once the sandbox has run a call, so that what it keeps is there.
    pub fn start() -> Self {
        Self { before: Held::now() }
    }

    /// Runs calls of a few templates, lets these go, and notes what is held then.
    pub async fn warm(sandbox: &Sandbox) -> Self {
        for n in 0..TEMPLATES_WARMED {
            let end = support::run(sandbox, &format!("() => {n}"), json!({})).await;
            assert_eq!(support::value(&end), json!(n));
        }
        Self::at_rest(sandbox).await
    }

    /// Lets all templates go, and notes what is held then.
    pub async fn at_rest(sandbox: &Sandbox) -> Self {
        let end = Instant::now() + SETTLE_WAIT;
        loop {
            sandbox.clear();
            let now = Held::now();
            let templates = now.processes.contains_key(TEMPLATE) || now.processes.contains_key(BLANK);
            if !templates && now.zombies == 0 && now.groups_in_use == 0 {
                return Self { before: now };
            }
            assert!(Instant::now() < end, "a sandbox that was just used does not come to rest: {now:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until a sandbox that was shut down has left nothing at all.
    pub async fn nothing() {
        let end = Instant::now() + SETTLE_WAIT;
        loop {
            let now = Held::now();
            if now.processes.is_empty() && now.groups == 0 {
                return;
            }
            assert!(Instant::now() < end, "a sandbox that was shut down leaves {now:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until no more is held than before, and panics if that doesn't come about. Templates may have been made
    /// since.
    #[track_caller]
    pub fn settle(&self) {
        let end = Instant::now() + SETTLE_WAIT;
        loop {
            let now = Held::now();
            match self.before.exceeded_by(&now) {
                None => return,
                Some(what) if Instant::now() > end => panic!("{what} is left: {now:?} after {:?}", self.before),
                Some(_) => std::thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// Lets all templates go, waits until exactly no more is held than before, and panics if that doesn't come about.
    pub async fn settle_all(&self, sandbox: &Sandbox, after: &str) {
        let end = Instant::now() + SETTLE_WAIT;
        loop {
            sandbox.clear();
            let now = Held::now();
            match self.before.exceeded_at_all_by(&now) {
                None => return,
                Some(what) => {
                    assert!(Instant::now() < end, "after {after}: {what} is left: {now:?} after {:?}", self.before)
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl std::fmt::Display for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Held { processes, zombies, descriptors, memory_bytes, groups, groups_in_use } = &self.before;
        let mib = *memory_bytes as f64 / (1024.0 * 1024.0);
        write!(
            f,
            "{mib:.1} MB, {descriptors} descriptors, {groups} cgroups ({groups_in_use} in use), {zombies} zombies, processes {processes:?}"
        )
    }
}

impl Held {
    fn now() -> Self {
        let (processes, zombies) = count_below();
        let (groups, groups_in_use) = groups();
        let descriptors = descriptors();
        Self { processes, zombies, descriptors, memory_bytes: resident_bytes(), groups, groups_in_use }
    }

    fn exceeded_by(&self, now: &Self) -> Option<String> {
        let count = |held: &Self, name: &str| held.processes.get(name).copied().unwrap_or(0);
        // Each template may keep one process ahead of its calls.
        let spares = count(now, TEMPLATE);
        for (name, many) in &now.processes {
            let allowed = match name.as_str() {
                CALL => count(self, name).max(spares),
                BLANK => 1,
                _ => count(self, name),
            };
            if name != TEMPLATE && *many > allowed {
                return Some(format!("a process {name}"));
            }
        }
        let made = spares.saturating_sub(count(self, TEMPLATE));
        if now.zombies > self.zombies {
            Some("a zombie".into())
        } else if now.groups_in_use > self.groups_in_use + made + spares + count(now, BLANK) {
            Some("a process in a cgroup".into())
        } else if now.memory_bytes > self.memory_bytes + MEMORY_SLACK_BYTES {
            Some("memory".into())
        } else if now.descriptors > self.descriptors + DESCRIPTORS_SLACK {
            Some("descriptors".into())
        } else {
            None
        }
    }

    fn exceeded_at_all_by(&self, now: &Self) -> Option<String> {
        let what = if now.processes.get(TEMPLATE) > self.processes.get(TEMPLATE) {
            "a template"
        } else if now.descriptors > self.descriptors {
            "a descriptor"
        } else if now.groups > GROUPS_KEPT_MAX {
            "a cgroup"
        } else {
            return self.exceeded_by(now);
        };
        Some(what.to_owned())
    }
}

/// Processes below this one, by name; and how many of them nobody has waited for.
fn count_below() -> (BTreeMap<String, usize>, usize) {
    let (mut count, mut zombies) = (BTreeMap::new(), 0);
    let all: BTreeMap<u32, Process> = all_processes();
    for pid in all.keys() {
        if is_below(&all, *pid, std::process::id()) {
            let process = &all[pid];
            zombies += usize::from(process.is_zombie);
            *count.entry(process.name.clone()).or_default() += 1;
        }
    }
    (count, zombies)
}

/// The ids of processes of this name below this one.
pub fn processes_below(name: &str) -> Vec<u32> {
    let (all, own) = (all_processes(), std::process::id());
    let found = all.iter().filter(|(pid, process)| process.name == name && is_below(&all, **pid, own));
    found.map(|(pid, _)| *pid).collect()
}

struct Process {
    name: String,
    parent: u32,
    is_zombie: bool,
}

fn all_processes() -> BTreeMap<u32, Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeMap::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name stands in parentheses, and may hold anything.
            let (start, rest) = stat.rsplit_once(") ")?;
            let mut fields = rest.split(' ');
            let (state, parent) = (fields.next()?, fields.next()?);
            let name = start.split_once('(')?.1.to_owned();
            Some((pid, Process { name, parent: parent.parse().ok()?, is_zombie: state == "Z" }))
        })
        .collect()
}

fn is_below(all: &BTreeMap<u32, Process>, mut pid: u32, above: u32) -> bool {
    // No chain of parents is longer than there are processes.
    for _ in 0..=all.len() {
        let Some(process) = all.get(&pid) else { return false };
        pid = process.parent;
        if pid == above {
            // All that a sandbox starts is below its root. A test that runs this program once more isn't.
            return process.name == ROOT;
        }
    }
    false
}

fn descriptors() -> usize {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return 0 };
    let targets = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.filter(|target| !target.starts_with("/sys/fs/cgroup")).count()
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// The cgroups that this process made for calls and templates, of its memory hierarchy: all, and those in use.
fn groups() -> (usize, usize) {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut above = vec![PathBuf::from("/sys/fs/cgroup"), PathBuf::from("/sys/fs/cgroup/memory")];
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        if controllers.is_empty() {
            above.push(PathBuf::from(format!("/sys/fs/cgroup{path}")));
        } else if controllers.split(',').any(|one| one == "memory") {
            above.push(PathBuf::from(format!("/sys/fs/cgroup/memory{path}")));
        }
    }
    above = above.iter().filter_map(|path| path.canonicalize().ok()).collect();
    above.sort();
    above.dedup();
    let prefix = format!("toolfleet-{}-", std::process::id());
    let (mut all, mut in_use) = (0, 0);
    for place in above.iter().flat_map(|path| folders(path, &prefix)) {
        for group in all_folders(&place) {
            all += 1;
            let procs = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            in_use += usize::from(!procs.is_empty());
        }
    }
    (all, in_use)
}

fn all_folders(path: &Path) -> Vec<PathBuf> {
    let below = folders(path, "");
    below.iter().flat_map(|folder| all_folders(folder)).chain(below.iter().cloned()).collect()
}

fn folders(path: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let named =
        entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)));
    named.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}
