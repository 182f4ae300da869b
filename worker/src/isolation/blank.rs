//! A template's process before it has a plugin: forked, isolated and in its cgroups, which is most of what a template
//! costs. One is kept ahead, so that the first call of a release doesn't wait for it. No plugin's code has run in it.

use super::cgroup::{Caps, Groups, Nest};
use super::root::{Root, register};
use super::template::Ended;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use toolfleet_sandbox::Join;

/// The process, waiting for its plugin. Dropped, it is killed.
pub struct Blank {
    pub control: AsyncFd<OwnedFd>,
    pub load: UnixStream,
    pub ended: oneshot::Receiver<Ended>,
    pub nest: Option<Nest>,
    pub guard: Guard,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum BlankError {
    #[error("its cgroup: {0}")]
    Group(io::Error),
    #[error("its socket: {0}")]
    Socket(io::Error),
    #[error("its process: {0}")]
    Process(io::Error),
}

/// The next one is started when the call that took the last is likely over its start: both want the machine's cores.
const KEEP_AFTER: Duration = Duration::from_millis(3);

static NEXT_ID: AtomicU32 = AtomicU32::new(1);

impl Blank {
    /// Starts one.
    pub async fn start(root: &Arc<Root>, groups: Option<&Arc<Groups>>, caps: &Caps) -> Result<Self, BlankError> {
        let nest = groups.map(|groups| groups.nest(caps)).transpose().map_err(BlankError::Group)?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let (control, their_control) = control_pair().map_err(BlankError::Socket)?;
        let (load, their_load) = StdUnixStream::pair().map_err(BlankError::Socket)?;
        load.set_nonblocking(true).map_err(BlankError::Socket)?;
        let load = UnixStream::from_std(load).map_err(BlankError::Socket)?;
        let (join, doors) = nest.as_ref().map_or((Join::None, Vec::new()), |nest| nest.own().door());
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![their_control.as_fd(), their_load.as_fd()];
        descriptors.extend(doors);
        let ended = root.start_template(id, join, &descriptors).await.map_err(BlankError::Process)?;
        let guard = Guard { root: Arc::clone(root), id };
        Ok(Self { control, load, ended, nest, guard })
    }

    /// Can it still be given a plugin?
    fn is_there(&mut self, root: &Arc<Root>) -> bool {
        Arc::ptr_eq(&self.guard.root, root) && matches!(self.ended.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    /// Sets other caps than it was started with.
    pub fn cap(&mut self, caps: &Caps) -> Result<(), BlankError> {
        self.nest.as_mut().map_or(Ok(()), |nest| nest.cap(caps)).map_err(BlankError::Group)
    }
}

fn control_pair() -> io::Result<(AsyncFd<OwnedFd>, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // The template's end blocks: it has nothing else to do.
    rustix::io::ioctl_fionbio(&theirs, false)?;
    Ok((register(ours)?, theirs))
}

/// Kills a template when dropped. Without a runtime the worker itself is ending, and the root with it.
pub struct Guard {
    pub root: Arc<Root>,
    pub id: u32,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (root, id) = (Arc::clone(&self.root), self.id);
            // Ends with the packet sent.
            runtime.spawn(async move { root.kill_template(id).await });
        }
    }
}

/// The one that is kept ahead.
#[derive(Default)]
pub struct Ahead(Arc<Mutex<Option<Blank>>>);

impl Ahead {
    /// Takes it, if it is one of this root's and well.
    pub fn take(&self, root: &Arc<Root>) -> Option<Blank> {
        let mut blank = self.lock().take()?;
        if blank.is_there(root) { Some(blank) } else { None }
    }

    /// Starts one, unless there is one.
    pub fn keep(&self, root: &Arc<Root>, groups: Option<&Arc<Groups>>, caps: Caps) {
        if self.lock().is_some() {
            return;
        }
        let (place, root, groups) = (Self(Arc::clone(&self.0)), Arc::clone(root), groups.cloned());
        // Ends soon, with the packet sent. One that can't be started is not missed: the next template tries, and tells why.
        tokio::spawn(async move {
            tokio::time::sleep(KEEP_AFTER).await;
            if let Ok(blank) = Blank::start(&root, groups.as_ref(), &caps).await {
                place.lock().replace(blank);
            }
        });
    }

    /// Lets it go.
    pub fn clear(&self) {
        self.lock().take();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Blank>> {
        self.0.lock().expect("nothing panics while it is held")
    }
}
