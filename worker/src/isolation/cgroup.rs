//! Control groups: the kernel's memory cap, the count of processes, and what was used.
//!
//! Written on the file system itself: what is needed here (descriptors that a process of another pid namespace
//! joins by, the peak reset between calls, the kernel's own count of kills, a directory to clone into) is what the
//! cgroups-rs crate doesn't offer; it moves processes by pid, and a sandboxed process has no pid here that could be
//! known without a race.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use toolfleet_sandbox::Join;

const MOUNT: &str = "/sys/fs/cgroup";
/// Processes that a group of calls may hold: a call is one process of one thread.
const CALL_PROCESSES_MAX: u64 = 1;

/// Where groups are made.
#[derive(Debug)]
pub struct Groups {
    version: Version,
    /// One per hierarchy: the memory controller's first, then the process counter's. One alone on version 2.
    parents: Vec<PathBuf>,
    /// Groups between calls. No more than were once in use together: slots and templates.
    idle: Mutex<Vec<Group>>,
    made: AtomicU32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// One group, for one call or one template at a time.
#[derive(Debug)]
pub struct Group {
    version: Version,
    directories: Vec<PathBuf>,
    /// What a process joins by: `cgroup.procs` of each hierarchy, or the directory itself.
    doors: Vec<File>,
    peak: Option<File>,
    kills: File,
    memory_bytes: u64,
    processes: u64,
    kills_before: u64,
}

impl Groups {
    /// Finds out which version is here and makes a place for this worker's groups.
    ///
    /// # Errors
    /// In words: why none can be had.
    pub fn open() -> Result<Self, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| format!("/proc/self/cgroup: {error}"))?;
        // A process may have more than one sandbox.
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let name = format!("toolfleet-{}-{}", std::process::id(), OPENED.fetch_add(1, Ordering::Relaxed));
        let unified = fs::read_to_string(format!("{MOUNT}/cgroup.controllers"));
        let (version, parents) = match unified {
            Ok(controllers) if controllers.split_whitespace().any(|one| one == "memory") => {
                (Version::Two, vec![open_version_two(&own, &name)?])
            }
            _ => (Version::One, open_version_one(&own, &name)?),
        };
        for parent in &parents {
            if let Some(above) = parent.parent() {
                sweep_dead(above);
            }
        }
        Ok(Self { version, parents, idle: Mutex::default(), made: AtomicU32::new(0) })
    }

    /// Which version is in use, for people.
    pub fn version(&self) -> &'static str {
        match self.version {
            Version::One => "version 1",
            Version::Two => "version 2",
        }
    }

    /// A group with this cap and nothing in it.
    pub fn take(&self, memory_bytes: u64, processes: Option<u64>) -> io::Result<Group> {
        let idle = self.idle.lock().expect("nothing panics while it is held").pop();
        let mut group = match idle {
            Some(group) => group,
            None => self.make()?,
        };
        group.prepare(memory_bytes, processes.unwrap_or(CALL_PROCESSES_MAX))?;
        Ok(group)
    }

    fn make(&self) -> io::Result<Group> {
        let name = format!("g{}", self.made.fetch_add(1, Ordering::Relaxed));
        let directories: Vec<PathBuf> = self.parents.iter().map(|parent| parent.join(&name)).collect();
        for directory in &directories {
            match fs::create_dir(directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let memory = &directories[0];
        let (doors, peak, kills) = match self.version {
            Version::One => {
                let doors = directories.iter().map(|directory| open_for_writing(&directory.join("cgroup.procs")));
                let peak = OpenOptions::new().read(true).write(true).open(memory.join("memory.max_usage_in_bytes"));
                (doors.collect::<io::Result<_>>()?, peak, File::open(memory.join("memory.oom_control"))?)
            }
            Version::Two => {
                let door = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_PATH).open(memory)?;
                // Readable since 5.19, written to (which resets it for that descriptor) since 6.12.
                let peak = OpenOptions::new().read(true).write(true).open(memory.join("memory.peak"));
                (vec![door], peak, File::open(memory.join("memory.events"))?)
            }
        };
        Ok(Group {
            version: self.version,
            directories,
            doors,
            peak: peak.ok(),
            kills,
            memory_bytes: 0,
            processes: 0,
            kills_before: 0,
        })
    }

    /// Gives a group back, once whatever is left in it has been ended.
    pub fn give_back(&self, group: Group) {
        if group.empty() {
            self.idle.lock().expect("nothing panics while it is held").push(group);
        } else {
            // Something in it is dying slowly; it is not used again, and swept when the worker ends.
            tracing::warn!(group = %group.directories[0].display(), "a cgroup is not empty after its call");
        }
    }

    /// Takes all groups away.
    pub fn remove(&self) {
        self.idle.lock().expect("nothing panics while it is held").clear();
        for parent in &self.parents {
            remove_tree(parent);
        }
    }
}

impl Group {
    /// How a process gets in, and by which descriptors.
    pub fn door(&self) -> (Join, Vec<BorrowedFd<'_>>) {
        let join = match self.version {
            Version::One => Join::Procs,
            Version::Two => Join::Directory,
        };
        (join, self.doors.iter().map(AsFd::as_fd).collect())
    }

    fn prepare(&mut self, memory_bytes: u64, processes: u64) -> io::Result<()> {
        if self.memory_bytes != memory_bytes {
            self.cap_memory(memory_bytes)?;
            self.memory_bytes = memory_bytes;
        }
        if self.processes != processes {
            // Version 1 without the pids controller: the sandbox's other layers forbid new processes.
            if let Some(directory) = self.directories.last() {
                let _ = fs::write(directory.join("pids.max"), processes.to_string());
            }
            self.processes = processes;
        }
        if let Some(peak) = &mut self.peak {
            // Where it can't be reset the figure is the group's highest so far.
            let _ = peak.seek(SeekFrom::Start(0)).and_then(|_| peak.write_all(b"0"));
        }
        self.kills_before = self.count_kills();
        Ok(())
    }

    fn cap_memory(&self, bytes: u64) -> io::Result<()> {
        let directory = &self.directories[0];
        match self.version {
            Version::One => {
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
            Version::Two => {
                fs::write(directory.join("memory.max"), bytes.to_string())?;
                // Without swap on the machine there is no such file, and nothing to forbid.
                let _ = fs::write(directory.join("memory.swap.max"), "0");
                Ok(())
            }
        }
    }

    /// Did the kernel kill something here for want of memory, since the group was taken?
    pub fn was_out_of_memory(&mut self) -> bool {
        self.count_kills() > self.kills_before
    }

    fn count_kills(&mut self) -> u64 {
        let text = read_again(&mut self.kills);
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    /// The most memory that was in use at once; nothing where the kernel doesn't tell.
    pub fn peak_bytes(&mut self) -> Option<u64> {
        read_again(self.peak.as_mut()?).trim().parse().ok()
    }

    /// Ends whatever is left in it. True when nothing is.
    fn empty(&self) -> bool {
        let procs = self.directories[0].join("cgroup.procs");
        for _ in 0..EMPTY_TRIES {
            match fs::read_to_string(&procs) {
                Ok(text) if text.is_empty() => return true,
                Ok(text) => self.kill_all(&text),
                Err(_) => return false,
            }
            std::thread::yield_now();
        }
        false
    }

    fn kill_all(&self, procs: &str) {
        if self.version == Version::Two && fs::write(self.directories[0].join("cgroup.kill"), "1").is_ok() {
            return;
        }
        for pid in procs.lines().filter_map(|line| line.parse::<i32>().ok()) {
            kill_member(pid, &self.directories[0]);
        }
    }
}

/// Looks at a dying process's group; each look is some microseconds.
const EMPTY_TRIES: usize = 200;

/// Kills a process that is still in this group, however its pid may have been used before.
fn kill_member(pid: i32, directory: &Path) {
    let Some(raw) = rustix::process::Pid::from_raw(pid) else { return };
    let Ok(process) = rustix::process::pidfd_open(raw, rustix::process::PidfdFlags::empty()) else { return };
    let still = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    if still.lines().any(|line| line == pid.to_string()) {
        // Gone meanwhile is as good.
        let _ = rustix::process::pidfd_send_signal(process, rustix::process::Signal::KILL);
    }
}

fn read_again(file: &mut File) -> String {
    let mut text = String::new();
    if file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text)).is_err() {
        text.clear();
    }
    text
}

fn open_for_writing(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

fn open_version_one(own: &str, name: &str) -> Result<Vec<PathBuf>, String> {
    let mut parents = Vec::new();
    for (controller, needed) in [("memory", true), ("pids", false)] {
        let path = own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let controllers = fields.next()?;
            controllers.split(',').any(|one| one == controller).then(|| fields.next())?
        });
        let made = match path {
            None => Err(format!("the {controller} controller is in no hierarchy")),
            Some(path) => {
                // Inside a container the path is the host's, and what is mounted is the group itself.
                let inside = PathBuf::from(format!("{MOUNT}/{controller}{path}"));
                let parent = if inside.is_dir() { inside } else { PathBuf::from(format!("{MOUNT}/{controller}")) };
                let place = parent.join(name);
                make_place(&place).map(|()| place)
            }
        };
        match made {
            Ok(place) => parents.push(place),
            Err(reason) if needed => return Err(reason),
            Err(reason) => tracing::warn!(controller, reason, "a cgroup controller can't be used"),
        }
    }
    Ok(parents)
}

fn open_version_two(own: &str, name: &str) -> Result<PathBuf, String> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let group = PathBuf::from(format!("{MOUNT}{path}"));
    let place = group.join(name);
    make_place(&place)?;
    let enable = |directory: &Path| fs::write(directory.join("cgroup.subtree_control"), "+memory +pids");
    // A group with controllers for its children may hold no process itself: the worker moves to a leaf first.
    if enable(&group).is_err() {
        let leaf = group.join(format!("{name}-worker"));
        make_place(&leaf)?;
        fs::write(leaf.join("cgroup.procs"), std::process::id().to_string())
            .map_err(|error| format!("the worker can't move to {}: {error}", leaf.display()))?;
        enable(&group).map_err(|error| {
            format!(
                "controllers can't be enabled in {}: {error}; delegate a cgroup to the worker alone",
                group.display()
            )
        })?;
    }
    enable(&place).map_err(|error| format!("controllers can't be enabled in {}: {error}", place.display()))?;
    Ok(place)
}

fn make_place(place: &Path) -> Result<(), String> {
    match fs::create_dir(place) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(format!("{}: {error}", place.display())),
        _ => Ok(()),
    }
}

/// Removes what workers left that are no more: their places are named by their process.
fn sweep_dead(above: &Path) {
    let Ok(entries) = fs::read_dir(above) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid =
            name.to_str().and_then(|name| name.strip_prefix("toolfleet-")?.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove_tree(&entry.path());
        }
    }
}

fn remove_tree(place: &Path) {
    if let Ok(entries) = fs::read_dir(place) {
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
    // What still holds a process stays, and is swept by the next worker.
    let _ = fs::remove_dir(place);
}
