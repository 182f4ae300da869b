//! Version 2: one hierarchy. A process is made inside its group (`CLONE_INTO_CGROUP`), and a whole group is killed at
//! once.
//!
//! The kernel lets a process clone into a group only if it may write to `cgroup.procs` there and in the nearest group
//! above both, and if both are below the root of its cgroup namespace. So the sandbox root begins in this worker's place,
//! which becomes the root of its namespace, and is moved to a leaf of it then, since a group with controllers for its
//! children may hold no process itself. And what is cloned into is given to the sandbox's user: that file alone, so that
//! no limit is.
//!
//! ```text
//! toolfleet-PID-N/           the place
//!   root/                    the sandbox root
//!   g0/                      a nest
//!     template/  g1/  g2/    the template, its calls
//! ```

use super::group::{Group, Version};
use super::place::{Caps, MOUNT, make_folder};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use toolfleet_sandbox::root::SANDBOX_UID;

pub const KILLS_FILE: &str = "memory.events";
/// Processes that a group of calls may hold: a call is one process of one thread.
const CALL_PROCESSES_MAX: &str = "1";
/// What a share of the cpu is a share of.
const CPU_PERIOD_US: u32 = 100_000;

/// This worker's place.
#[derive(Debug)]
pub struct VersionTwo {
    place: PathBuf,
    /// Templates run as another user, to whom their groups must be given.
    gives_away: bool,
    counts_cpu: bool,
    pub without_cpu: Option<String>,
}

impl VersionTwo {
    pub fn open(own: &str, name: &str, limit_cpu: bool) -> Result<Self, String> {
        let path = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
        let group = PathBuf::from(format!("{MOUNT}{path}"));
        let place = group.join(name);
        let make = |folder: &Path| make_folder(folder).map_err(|error| format!("{}: {error}", folder.display()));
        make(&place)?;
        // A group with controllers for its children may hold no process itself: the worker moves to a leaf first.
        if enable(&group, NEEDED).is_err() {
            let leaf = group.join(format!("{name}-worker"));
            make(&leaf)?;
            fs::write(leaf.join("cgroup.procs"), std::process::id().to_string())
                .map_err(|error| format!("the worker can't move to {}: {error}", leaf.display()))?;
            enable(&group, NEEDED).map_err(|error| {
                format!(
                    "controllers can't be enabled in {}: {error}; delegate a cgroup to the worker alone",
                    group.display()
                )
            })?;
        }
        let cpu = limit_cpu.then(|| enable(&group, "+cpu"));
        let counts_cpu = matches!(cpu, Some(Ok(())));
        let without_cpu =
            cpu.and_then(Result::err).map(|error| format!("the cpu controller can't be enabled: {error}"));
        // SAFETY: no memory is involved.
        let gives_away = unsafe { libc::geteuid() } == 0;
        let two = Self { place, gives_away, counts_cpu, without_cpu };
        two.give_away(&two.place).map_err(|error| format!("{}: {error}", two.place.display()))?;
        Ok(two)
    }

    pub fn root_door(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.place.join("cgroup.procs"))
    }

    pub fn adopt(&self, root: u32) -> Result<(), String> {
        let leaf = self.place.join("root");
        let moved = make_folder(&leaf).and_then(|()| fs::write(leaf.join("cgroup.procs"), root.to_string()));
        moved.map_err(|error| format!("the sandbox root can't be moved to {}: {error}", leaf.display()))?;
        let controllers = if self.counts_cpu { "+memory +pids +cpu" } else { NEEDED };
        enable(&self.place, controllers)
            .map_err(|error| format!("controllers can't be enabled in {}: {error}", self.place.display()))
    }

    pub fn folder(&self) -> &Path {
        &self.place
    }

    pub fn make_nest(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.place.join(name);
        make_folder(&folder)?;
        enable(&folder, NEEDED)?;
        self.give_away(&folder)?;
        Ok(folder)
    }

    pub fn make_template(&self, nest: &Path) -> io::Result<Group> {
        self.make_leaf(nest.join("template"))
    }

    pub fn make_call(&self, nest: &Path, name: &str) -> io::Result<Group> {
        let group = self.make_leaf(nest.join(name))?;
        fs::write(nest.join(name).join("pids.max"), CALL_PROCESSES_MAX)?;
        Ok(group)
    }

    pub fn cap_template(&self, nest: &Path, own: &Group, caps: &Caps) -> io::Result<()> {
        fs::write(own.directories[0].join("pids.max"), caps.processes.to_string())?;
        if self.counts_cpu {
            let quota = caps.cpu_percent.map(|percent| u64::from(percent) * u64::from(CPU_PERIOD_US) / 100);
            let quota = quota.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
            fs::write(nest.join("cpu.max"), format!("{quota} {CPU_PERIOD_US}"))?;
        }
        Ok(())
    }

    fn make_leaf(&self, directory: PathBuf) -> io::Result<Group> {
        make_folder(&directory)?;
        self.give_away(&directory)?;
        // The whole group goes when one in it must.
        fs::write(directory.join("memory.oom.group"), "1")?;
        let door = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_PATH).open(&directory)?;
        let peak = OpenOptions::new().read(true).write(true).open(directory.join("memory.peak")).ok();
        // There since Linux 5.19, it can be reset since 6.12. A group without that serves once: its peak is its call's.
        let serves_once = peak.as_ref().is_some_and(|peak| peak.write_at(b"0", 0).is_err());
        Ok(Group {
            version: Version::Two,
            doors: vec![door],
            peak,
            serves_once,
            members: File::open(directory.join("pids.current"))?,
            directories: vec![directory],
            memory_bytes: 0,
            kills_seen: AtomicU64::new(0),
        })
    }

    fn give_away(&self, directory: &Path) -> io::Result<()> {
        if self.gives_away {
            std::os::unix::fs::chown(directory.join("cgroup.procs"), Some(SANDBOX_UID), None)?;
        }
        Ok(())
    }
}

const NEEDED: &str = "+memory +pids";

fn enable(directory: &Path, controllers: &str) -> io::Result<()> {
    fs::write(directory.join("cgroup.subtree_control"), controllers)
}

pub fn cap_memory(directory: &Path, bytes: u64) -> io::Result<()> {
    fs::write(directory.join("memory.max"), bytes.to_string())?;
    // Without swap on the machine there is no such file, and nothing to forbid.
    let _ = fs::write(directory.join("memory.swap.max"), "0");
    Ok(())
}

pub fn kill_all(directory: &Path) {
    // Since Linux 5.14. What can't be killed stays in it, and is found there.
    let _ = fs::write(directory.join("cgroup.kill"), "1");
}
