//! What this process and those below it hold: processes, descriptors, cgroups, memory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What was held at a moment. A test that attacks calls [`Watch::settle`] at its end.
#[derive(Debug)]
pub struct Watch {
    before: Held,
}

/// Dying processes and the worker's own clean-up need a moment.
const SETTLE_WAIT: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// An allocator keeps some of what it was given back.
const MEMORY_SLACK_BYTES: u64 = 32 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    processes: BTreeMap<String, usize>,
    descriptors: usize,
    memory_bytes: u64,
}

impl Watch {
    /// Notes what is held now: once the sandbox has run a call, so that what it keeps is there.
    pub fn start() -> Self {
        Self { before: Held::now() }
    }

    /// Waits until no more is held than before, and panics if that doesn't come about.
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
}

impl Held {
    fn now() -> Self {
        let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        Self { processes: calls_below(), descriptors, memory_bytes: resident_bytes() }
    }

    fn exceeded_by(&self, now: &Self) -> Option<&'static str> {
        let calls = |held: &Self| held.processes.get("tf-call").copied().unwrap_or(0);
        let roots = |held: &Self| held.processes.get("tf-root").copied().unwrap_or(0);
        // Each template may keep one process ahead of its calls.
        let spares = now.processes.get("tf-template").copied().unwrap_or(0);
        if calls(now) > calls(self).max(spares) {
            Some("a call's process")
        } else if roots(now) > roots(self) {
            Some("a sandbox root")
        } else if now.memory_bytes > self.memory_bytes + MEMORY_SLACK_BYTES {
            Some("memory")
        } else if now.descriptors > self.descriptors + DESCRIPTORS_SLACK {
            Some("descriptors")
        } else {
            None
        }
    }
}

/// Pooled cgroups and the sockets of templates that were made since: some each, and there are few templates.
const DESCRIPTORS_SLACK: usize = 64;

/// Processes below this one, by name.
pub fn calls_below() -> BTreeMap<String, usize> {
    let mut count = BTreeMap::new();
    for (pid, name) in all_processes() {
        if name.starts_with("tf-") && is_below(pid, std::process::id()) {
            *count.entry(name).or_default() += 1;
        }
    }
    count
}

/// The ids of processes of this name below this one.
pub fn processes_below(name: &str) -> Vec<u32> {
    let own = std::process::id();
    let found = all_processes().into_iter().filter(|(pid, known)| known == name && is_below(*pid, own));
    found.map(|(pid, _)| pid).collect()
}

fn all_processes() -> Vec<(u32, String)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let name = std::fs::read_to_string(PathBuf::from("/proc").join(entry.file_name()).join("comm")).ok()?;
            Some((pid, name.trim_end().to_owned()))
        })
        .collect()
}

fn is_below(mut pid: u32, above: u32) -> bool {
    while pid > 1 {
        if pid == above {
            return true;
        }
        let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
        pid = parent.unwrap_or(0);
    }
    false
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}
