//! Version 1: a hierarchy for each controller. A process writes itself into its group, through a descriptor.

use super::group::{Group, Version};
use super::place::{Caps, MOUNT, make_folder};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

pub const KILLS_FILE: &str = "memory.oom_control";
/// Processes that a group of calls may hold: a call is one process of one thread.
const CALL_PROCESSES_MAX: &str = "1";
/// What a share of the cpu is a share of.
const CPU_PERIOD_US: u32 = 100_000;

/// This worker's place in each hierarchy.
#[derive(Debug)]
pub struct VersionOne {
    memory: PathBuf,
    /// Without it the sandbox's other layers still forbid new processes.
    pids: Option<PathBuf>,
    /// Only templates join: their calls are forked in it, and no call pays for one more move.
    cpu: Option<PathBuf>,
    pub without_cpu: Option<String>,
}

impl VersionOne {
    pub fn open(own: &str, name: &str, limit_cpu: bool) -> Result<Self, String> {
        let memory = make_place(own, "memory", name)?;
        let optional = |controller: &str| {
            make_place(own, controller, name).inspect_err(|reason| {
                tracing::warn!(controller, reason, "a cgroup controller can't be used");
            })
        };
        let (pids, cpu) = (optional("pids").ok(), limit_cpu.then(|| optional("cpu")));
        let without_cpu = cpu.as_ref().and_then(|cpu| cpu.clone().err());
        Ok(Self { memory, pids, cpu: cpu.and_then(Result::ok), without_cpu })
    }

    pub fn folders(&self) -> Vec<PathBuf> {
        [Some(&self.memory), self.pids.as_ref(), self.cpu.as_ref()].into_iter().flatten().cloned().collect()
    }

    pub fn make_template(&self, name: &str) -> io::Result<Group> {
        make_group(self.folders(), name)
    }

    pub fn make_call(&self, name: &str) -> io::Result<Group> {
        let group =
            make_group([Some(&self.memory), self.pids.as_ref()].into_iter().flatten().cloned().collect(), name)?;
        if let Some(pids) = &self.pids {
            fs::write(pids.join(name).join("pids.max"), CALL_PROCESSES_MAX)?;
        }
        Ok(group)
    }

    pub fn cap_template(&self, own: &Group, caps: &Caps) -> io::Result<()> {
        let part = |place: &Path| own.directories.iter().find(|directory| directory.starts_with(place)).cloned();
        if let Some(directory) = self.pids.as_deref().and_then(part) {
            fs::write(directory.join("pids.max"), caps.processes.to_string())?;
        }
        if let Some(directory) = self.cpu.as_deref().and_then(part) {
            let quota = caps.cpu_percent.map_or(-1, |percent| i64::from(percent) * i64::from(CPU_PERIOD_US) / 100);
            fs::write(directory.join("cpu.cfs_period_us"), CPU_PERIOD_US.to_string())?;
            fs::write(directory.join("cpu.cfs_quota_us"), quota.to_string())?;
        }
        Ok(())
    }
}

/// A group in each of these folders, the memory controller's first.
fn make_group(folders: Vec<PathBuf>, name: &str) -> io::Result<Group> {
    let directories: Vec<PathBuf> = folders.iter().map(|folder| folder.join(name)).collect();
    for directory in &directories {
        make_folder(directory)?;
    }
    // Through `tasks` a thread moves itself alone, which for a process of one thread is the same as all of it, and
    // which the kernel does without stopping all forks of the machine meanwhile.
    let doors = directories.iter().map(|directory| OpenOptions::new().write(true).open(directory.join("tasks")));
    let doors = doors.collect::<io::Result<_>>()?;
    let peak = OpenOptions::new().read(true).write(true).open(directories[0].join("memory.max_usage_in_bytes"));
    let members = match directories.get(1).map(|pids| File::open(pids.join("pids.current"))) {
        Some(Ok(file)) => file,
        _ => File::open(directories[0].join("cgroup.procs"))?,
    };
    Ok(Group {
        version: Version::One,
        directories,
        doors,
        peak: peak.ok(),
        serves_once: false,
        members,
        memory_bytes: 0,
        kills_seen: AtomicU64::new(0),
    })
}

pub fn cap_memory(directory: &Path, bytes: u64) -> io::Result<()> {
    let (memory, both) = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes");
    let swap_is_counted = directory.join(both).exists();
    // The limit of both can't be below that of memory at any moment: lift it first, then set both.
    if swap_is_counted {
        fs::write(directory.join(both), "-1")?;
    }
    fs::write(directory.join(memory), bytes.to_string())?;
    if swap_is_counted {
        fs::write(directory.join(both), bytes.to_string())?;
    }
    Ok(())
}

/// Kills processes that are still in this group, however their pids may have been used before.
pub fn kill_all(directory: &Path, procs: &str) {
    for pid in procs.lines().filter_map(|line| line.parse::<i32>().ok()) {
        let Some(raw) = rustix::process::Pid::from_raw(pid) else { continue };
        let Ok(process) = rustix::process::pidfd_open(raw, rustix::process::PidfdFlags::empty()) else { continue };
        let still = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        if still.lines().any(|line| line == pid.to_string()) {
            // Gone meanwhile is as good.
            let _ = rustix::process::pidfd_send_signal(process, rustix::process::Signal::KILL);
        }
    }
}

fn make_place(own: &str, controller: &str, name: &str) -> Result<PathBuf, String> {
    let path = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        controllers.split(',').any(|one| one == controller).then(|| fields.next())?
    });
    let path = path.ok_or_else(|| format!("the {controller} controller is in no hierarchy"))?;
    // Inside a container the path is the host's, and what is mounted is the group itself.
    let inside = PathBuf::from(format!("{MOUNT}/{controller}{path}"));
    let parent = if inside.is_dir() { inside } else { PathBuf::from(format!("{MOUNT}/{controller}")) };
    let place = parent.join(name);
    make_folder(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    Ok(place)
}
