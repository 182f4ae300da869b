//! One group, whichever the version: a directory, or one in each hierarchy.

use super::{version_one, version_two};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use toolfleet_sandbox::Join;

/// A count or a number of bytes, as the kernel writes it.
const NUMBER_BYTES_MAX: usize = 32;
/// Looks at a dying process's group; each look is some microseconds.
const EMPTY_TRIES: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// One group, for one call or one template at a time.
#[derive(Debug)]
pub struct Group {
    pub(super) version: Version,
    /// The memory controller's first.
    pub(super) directories: Vec<PathBuf>,
    /// What a process joins by: `tasks` of each hierarchy, or the directory itself.
    pub(super) doors: Vec<File>,
    /// None where the kernel doesn't count it.
    pub(super) peak: Option<File>,
    /// Its peak can't be reset, and would tell the next call of this one's.
    pub(super) serves_once: bool,
    /// How many processes are in it, as a number or as a list.
    pub(super) members: File,
    pub(super) memory_bytes: u64,
    /// The kernel's count of kills for want of memory, when it was last looked at.
    pub(super) kills_seen: AtomicU64,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.memory().display().fmt(f)
    }
}

impl Group {
    /// How a process gets in, and by which descriptors.
    pub fn door(&self) -> (Join, Vec<BorrowedFd<'_>>) {
        let join = match self.version {
            Version::One => Join::Tasks,
            Version::Two => Join::Directory,
        };
        (join, self.doors.iter().map(AsFd::as_fd).collect())
    }

    /// Makes it ready for what comes next in it.
    pub(super) fn prepare(&mut self, memory_bytes: u64) -> io::Result<()> {
        if self.memory_bytes != memory_bytes {
            match self.version {
                Version::One => version_one::cap_memory(self.memory(), memory_bytes)?,
                Version::Two => version_two::cap_memory(self.memory(), memory_bytes)?,
            }
            self.memory_bytes = memory_bytes;
        }
        if let Some(peak) = self.peak.as_ref().filter(|_| !self.serves_once) {
            peak.write_at(b"0", 0)?;
        }
        Ok(())
    }

    /// The most memory that was in use at once; nothing where the kernel doesn't tell.
    pub fn peak_bytes(&self) -> Option<u64> {
        read_number(self.peak.as_ref()?)
    }

    /// Did the kernel kill something here for want of memory, since this was last asked? To be asked after each end
    /// that wasn't a process's own.
    pub fn was_out_of_memory(&self) -> bool {
        let file = self.memory().join(match self.version {
            Version::One => version_one::KILLS_FILE,
            Version::Two => version_two::KILLS_FILE,
        });
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        let kills = line.and_then(|count| count.trim().parse().ok()).unwrap_or(0);
        kills > self.kills_seen.swap(kills, Ordering::Relaxed)
    }

    /// Ends whatever the kernel counts in it. True when nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        // An empty list, where the kernel gives that in place of a number.
        if read_number(&self.members).unwrap_or(0) == 0 { true } else { self.is_empty_of_all() }
    }

    /// The same in every hierarchy, where whoever took a template over could have put something into one of them.
    pub(super) fn is_empty_of_all(&self) -> bool {
        for _ in 0..EMPTY_TRIES {
            let mut is_empty = true;
            for directory in &self.directories {
                match fs::read_to_string(directory.join("cgroup.procs")) {
                    Ok(text) if text.is_empty() => {}
                    Ok(text) => {
                        is_empty = false;
                        match self.version {
                            Version::One => version_one::kill_all(directory, &text),
                            Version::Two => version_two::kill_all(directory),
                        }
                    }
                    Err(_) => return false,
                }
            }
            if is_empty {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    /// Takes it away. Nothing may be in it.
    pub(super) fn remove(self) {
        for directory in &self.directories {
            // What can't be removed now is swept when the worker ends.
            let _ = fs::remove_dir(directory);
        }
    }

    fn memory(&self) -> &Path {
        &self.directories[0]
    }
}

/// The number in a file of the kernel's, which is the same file for ever.
fn read_number(file: &File) -> Option<u64> {
    let mut buffer = [0; NUMBER_BYTES_MAX];
    let count = file.read_at(&mut buffer, 0).ok()?;
    std::str::from_utf8(&buffer[..count]).ok()?.lines().next()?.trim().parse().ok()
}
