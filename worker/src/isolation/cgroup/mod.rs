//! Control groups: the kernel's cap on memory, processes and cpu, and its count of what was used.
//!
//! A template and its calls live in one **nest** of groups, which no other template has any part in while a process of
//! theirs lives: whoever took a template over can keep the descriptors it was given, and move what it forks into any
//! group that it ever had a descriptor of. When all of them have ended, the next template may have the nest.
//!
//! Written on the file system itself: what is needed here (descriptors that a process of another pid namespace
//! joins by, the peak reset between calls, the kernel's own count of kills, a directory to clone into) is what the
//! cgroups-rs crate doesn't offer; it moves processes by pid, and a sandboxed process has no pid here that could be
//! known without a race.

mod group;
mod place;
mod version_one;
mod version_two;

pub use group::Group;
pub use place::Caps;

use place::Place;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Groups that are kept without a process in them, of all nests together. Each saves a later call or template that the
/// kernel makes one, and holds some descriptors; more than this many calls rarely end at the same time.
const IDLE_MAX: usize = 128;

/// All groups of this worker.
#[derive(Debug)]
pub struct Groups {
    place: Place,
    /// Nests between templates.
    idle: Mutex<Vec<Nested>>,
    /// Groups in `idle`, and those between calls in nests that are in use.
    idle_groups: AtomicUsize,
}

/// A template's groups. Dropped once all of its processes have ended, the next template may have them.
#[derive(Debug)]
pub struct Nest {
    groups: Arc<Groups>,
    /// None only while it is dropped.
    nested: Option<Nested>,
    /// Between calls.
    idle: Mutex<Vec<Group>>,
}

#[derive(Debug)]
struct Nested {
    nest: place::Nest,
    /// The template's own.
    own: Group,
    /// For its calls.
    calls: Vec<Group>,
    /// What it was last held to.
    caps: Option<Caps>,
}

/// A call's group. Dropped once its process has ended, the next call of its template may have it.
#[derive(Debug)]
pub struct CallGroup {
    nest: Arc<Nest>,
    /// None only while it is dropped.
    group: Option<Group>,
}

impl Groups {
    /// Finds out which version is here and makes a place for this worker's groups, in which the cpu is counted if
    /// nests are to be held to a share of it.
    ///
    /// # Errors
    /// In words: why none can be had.
    pub fn open(limit_cpu: bool) -> Result<Self, String> {
        let place = Place::open(limit_cpu)?;
        Ok(Self { place, idle: Mutex::default(), idle_groups: AtomicUsize::new(0) })
    }

    /// Which version is in use, for people.
    pub fn version(&self) -> &'static str {
        self.place.version()
    }

    /// Why nests can't be held to a share of the cpu, if that was asked for.
    pub fn without_cpu(&self) -> Option<&str> {
        self.place.without_cpu()
    }

    /// What the sandbox root must write itself into before it is executed, if anything.
    pub fn root_door(&self) -> io::Result<Option<File>> {
        self.place.root_door()
    }

    /// Makes the place ready for nests, once the root has isolated itself.
    ///
    /// # Errors
    /// In words: why there can be none.
    pub fn adopt(&self, root: u32) -> Result<(), String> {
        self.place.adopt(root)
    }

    /// Groups for a template and its calls, with nothing in them.
    pub fn nest(self: &Arc<Self>, caps: &Caps) -> io::Result<Nest> {
        let idle = self.idle.lock().expect("nothing panics while it is held").pop();
        let mut nested = match idle {
            Some(nested) => {
                self.idle_groups.fetch_sub(1 + nested.calls.len(), Ordering::Relaxed);
                nested
            }
            None => {
                let (nest, own) = self.place.make_nest()?;
                // The first call doesn't wait for its group, which it likely wants with this cap.
                let mut first = self.place.make_call(&nest)?;
                first.prepare(caps.call_memory_bytes)?;
                Nested { nest, own, calls: vec![first], caps: None }
            }
        };
        let idle = std::mem::take(&mut nested.calls);
        self.idle_groups.fetch_add(idle.len(), Ordering::Relaxed);
        let mut nest = Nest { groups: Arc::clone(self), nested: Some(nested), idle: Mutex::new(idle) };
        nest.cap(caps)?;
        Ok(nest)
    }

    /// Takes all groups away that nothing is in.
    pub fn remove(&self) {
        self.idle.lock().expect("nothing panics while it is held").clear();
        self.place.remove();
    }

    /// May so many more be kept? Then they are counted.
    fn keep(&self, more: usize) -> bool {
        let kept = self.idle_groups.fetch_add(more, Ordering::Relaxed) + more <= IDLE_MAX;
        if !kept {
            self.idle_groups.fetch_sub(more, Ordering::Relaxed);
        }
        kept
    }
}

impl Nest {
    /// Holds the template to these.
    pub fn cap(&mut self, caps: &Caps) -> io::Result<()> {
        let nested = self.nested.as_mut().expect("it is there until it is dropped");
        if nested.caps != Some(*caps) {
            // Half done it is neither.
            nested.caps = None;
            self.groups.place.cap_nest(&nested.nest, &mut nested.own, caps)?;
            nested.caps = Some(*caps);
        }
        Ok(())
    }

    /// The template's own group.
    pub fn own(&self) -> &Group {
        &self.nested().own
    }

    /// A group for a call of this template, with this cap and nothing in it.
    pub fn call(self: &Arc<Self>, memory_bytes: u64) -> io::Result<CallGroup> {
        let idle = self.idle.lock().expect("nothing panics while it is held").pop();
        let group = match idle {
            Some(group) => {
                self.groups.idle_groups.fetch_sub(1, Ordering::Relaxed);
                group
            }
            None => self.groups.place.make_call(&self.nested().nest)?,
        };
        // From here on it is given back whatever happens.
        let mut taken = CallGroup { nest: Arc::clone(self), group: Some(group) };
        if let Some(group) = &mut taken.group {
            group.prepare(memory_bytes)?;
        }
        Ok(taken)
    }

    fn nested(&self) -> &Nested {
        self.nested.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Nest {
    fn drop(&mut self) {
        let Some(mut nested) = self.nested.take() else { return };
        nested.calls = std::mem::take(self.idle.get_mut().expect("nothing panics while it is held"));
        self.groups.idle_groups.fetch_sub(nested.calls.len(), Ordering::Relaxed);
        // All, not up to the first: what is left in any is ended here.
        let left = nested.calls.iter().chain([&nested.own]).filter(|group| !group.is_empty_of_all()).count();
        if left > 0 {
            // Something in it dies slowly; it is not used again, and swept when the worker ends.
            tracing::warn!(groups = left, "cgroups are not empty after their template");
        } else if self.groups.keep(1 + nested.calls.len()) {
            self.groups.idle.lock().expect("nothing panics while it is held").push(nested);
        } else {
            self.groups.place.remove_nest(nested.nest, nested.own, nested.calls);
        }
    }
}

impl Deref for CallGroup {
    type Target = Group;

    fn deref(&self) -> &Group {
        self.group.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for CallGroup {
    fn drop(&mut self) {
        let Some(group) = self.group.take() else { return };
        if !group.is_empty() {
            tracing::warn!(%group, "a cgroup is not empty after its call");
        } else if !group.serves_once && self.nest.groups.keep(1) {
            self.nest.idle.lock().expect("nothing panics while it is held").push(group);
        } else {
            group.remove();
        }
    }
}
