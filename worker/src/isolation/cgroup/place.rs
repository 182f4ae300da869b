//! Where this worker's groups are, and how they lie: all in one folder of each hierarchy on version 1, a folder for
//! each nest on version 2.

use super::group::Group;
use super::version_one::VersionOne;
use super::version_two::VersionTwo;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub(super) const MOUNT: &str = "/sys/fs/cgroup";

/// What a template may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// The template's own memory.
    pub memory_bytes: u64,
    /// Of each of its calls, unless one says otherwise.
    pub call_memory_bytes: u64,
    /// Processes in the template's own group.
    pub processes: u64,
    /// Of one core, for the template and all of its calls together; none is no cap.
    pub cpu_percent: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Place {
    hierarchy: Hierarchy,
    made: AtomicU32,
}

#[derive(Debug)]
enum Hierarchy {
    One(VersionOne),
    Two(VersionTwo),
}

/// A nest's own place.
#[derive(Debug)]
pub(super) enum Nest {
    /// Its groups lie among all others.
    Flat,
    Folder(PathBuf),
}

impl Place {
    pub fn open(limit_cpu: bool) -> Result<Self, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| format!("/proc/self/cgroup: {error}"))?;
        // A process may have more than one sandbox.
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let name = format!("toolfleet-{}-{}", std::process::id(), OPENED.fetch_add(1, Ordering::Relaxed));
        let unified = fs::read_to_string(format!("{MOUNT}/cgroup.controllers"));
        let hierarchy = match unified {
            Ok(controllers) if controllers.split_whitespace().any(|one| one == "memory") => {
                Hierarchy::Two(VersionTwo::open(&own, &name, limit_cpu)?)
            }
            _ => Hierarchy::One(VersionOne::open(&own, &name, limit_cpu)?),
        };
        let place = Self { hierarchy, made: AtomicU32::new(0) };
        for folder in place.folders() {
            if let Some(above) = folder.parent() {
                sweep_dead(above);
            }
        }
        Ok(place)
    }

    pub fn version(&self) -> &'static str {
        match self.hierarchy {
            Hierarchy::One(_) => "version 1",
            Hierarchy::Two(_) => "version 2",
        }
    }

    pub fn without_cpu(&self) -> Option<&str> {
        match &self.hierarchy {
            Hierarchy::One(one) => one.without_cpu.as_deref(),
            Hierarchy::Two(two) => two.without_cpu.as_deref(),
        }
    }

    pub fn root_door(&self) -> io::Result<Option<File>> {
        match &self.hierarchy {
            Hierarchy::One(_) => Ok(None),
            Hierarchy::Two(two) => two.root_door().map(Some),
        }
    }

    pub fn adopt(&self, root: u32) -> Result<(), String> {
        match &self.hierarchy {
            Hierarchy::One(_) => Ok(()),
            Hierarchy::Two(two) => two.adopt(root),
        }
    }

    pub fn make_nest(&self) -> io::Result<(Nest, Group)> {
        match &self.hierarchy {
            Hierarchy::One(one) => Ok((Nest::Flat, one.make_template(&self.name())?)),
            Hierarchy::Two(two) => {
                let folder = two.make_nest(&self.name())?;
                let own = two.make_template(&folder)?;
                Ok((Nest::Folder(folder), own))
            }
        }
    }

    pub fn make_call(&self, nest: &Nest) -> io::Result<Group> {
        match (&self.hierarchy, nest) {
            (Hierarchy::Two(two), Nest::Folder(folder)) => two.make_call(folder, &self.name()),
            (Hierarchy::One(one), _) => one.make_call(&self.name()),
            (Hierarchy::Two(_), Nest::Flat) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    pub fn cap_nest(&self, nest: &Nest, own: &mut Group, caps: &Caps) -> io::Result<()> {
        own.prepare(caps.memory_bytes)?;
        match (&self.hierarchy, nest) {
            (Hierarchy::Two(two), Nest::Folder(folder)) => two.cap_template(folder, own, caps),
            (Hierarchy::One(one), _) => one.cap_template(own, caps),
            (Hierarchy::Two(_), Nest::Flat) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    pub fn remove_nest(&self, nest: Nest, own: Group, calls: Vec<Group>) {
        for group in calls {
            group.remove();
        }
        own.remove();
        if let Nest::Folder(folder) = nest {
            // As with a group: swept later if not now.
            let _ = fs::remove_dir(folder);
        }
    }

    pub fn remove(&self) {
        for folder in self.folders() {
            remove_tree(&folder);
        }
    }

    fn name(&self) -> String {
        format!("g{}", self.made.fetch_add(1, Ordering::Relaxed))
    }

    fn folders(&self) -> Vec<PathBuf> {
        match &self.hierarchy {
            Hierarchy::One(one) => one.folders(),
            Hierarchy::Two(two) => vec![two.folder().to_owned()],
        }
    }
}

/// Makes a folder that may be there already.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
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
            remove_tree(&entry.path());
        }
    }
    // What still holds a process stays, and is swept by the next worker.
    let _ = fs::remove_dir(place);
}
