//! The sandbox root's process, and the socket to it.

use super::cgroup::Groups;
use super::template::Ended;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use toolfleet_sandbox::control::{FromRoot, Join, ToRoot};
use toolfleet_sandbox::{root::CONTROL_DESCRIPTOR, socket};

/// The root isolates itself in some milliseconds; a machine that takes longer is out of order.
const READY_WAIT: Duration = Duration::from_secs(10);

/// A running root.
pub struct Root {
    control: AsyncFd<OwnedFd>,
    /// Told when a template ends, by its id. Bounded by the templates there are.
    templates: Mutex<HashMap<u32, oneshot::Sender<Ended>>>,
    bare: Mutex<Option<oneshot::Sender<u64>>>,
    /// Cancelled when the root is gone.
    pub gone: CancellationToken,
    /// Layers that could not be had, as the root told.
    pub missing: String,
    /// None if it ended at once.
    pub pid: Option<u32>,
    child: tokio::sync::Mutex<Child>,
}

impl Root {
    /// Starts one, in a cgroup if it must begin in one, and waits until it has isolated itself.
    pub async fn start(binary: &Path, groups: Option<&Groups>) -> io::Result<Arc<Self>> {
        let group = groups.map(Groups::root_door).transpose()?.flatten();
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        let mut command = Command::new(binary);
        command.arg("sandbox-root").env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.kill_on_drop(true);
        let descriptor = theirs.as_raw_fd();
        // SAFETY: between fork and exec only system calls that are safe there are made, on a descriptor that
        // `theirs` keeps open until the child has started.
        unsafe {
            command.pre_exec(move || {
                // The root's end blocks: it has nothing else to do.
                let end = BorrowedFd::borrow_raw(descriptor);
                if let Some(group) = &group {
                    rustix::io::write(group, b"0")?;
                }
                rustix::io::ioctl_fionbio(end, false)?;
                if descriptor == CONTROL_DESCRIPTOR {
                    rustix::io::fcntl_setfd(end, rustix::io::FdFlags::empty())?;
                } else if libc::dup2(descriptor, CONTROL_DESCRIPTOR) == -1 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn()?;
        drop(theirs);
        let control = register(ours)?;
        let ready = tokio::time::timeout(READY_WAIT, receive(&control)).await.map_err(|_| {
            io::Error::new(io::ErrorKind::TimedOut, format!("the sandbox root was not ready within {READY_WAIT:?}"))
        })?;
        let Some(FromRoot::Ready { missing }) = ready.as_deref().and_then(FromRoot::decode) else {
            return Err(io::Error::other("the sandbox root ended before it was ready"));
        };
        let root = Arc::new(Self {
            control,
            templates: Mutex::default(),
            bare: Mutex::default(),
            gone: CancellationToken::new(),
            missing,
            pid: child.id(),
            child: tokio::sync::Mutex::new(child),
        });
        // Ends with the root, whose socket it reads.
        tokio::spawn(listen(Arc::clone(&root)));
        Ok(root)
    }

    /// Asks for a template. What is given back is told once it has ended.
    pub async fn start_template(
        &self,
        id: u32,
        join: Join,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<oneshot::Receiver<Ended>> {
        let (sender, ended) = oneshot::channel();
        self.templates.lock().expect("nothing panics while it is held").insert(id, sender);
        send(&self.control, &ToRoot::Start { id, join }.encode(), descriptors).await?;
        Ok(ended)
    }

    /// Has a template killed, by its parent.
    pub async fn kill_template(&self, id: u32) {
        // A root that is gone has taken its templates with it.
        let _ = send(&self.control, &ToRoot::Kill { id }.encode(), &[]).await;
    }

    /// Nanoseconds of a bare fork, its exit and the wait for it, in this cgroup. One at a time.
    pub async fn bare_fork(&self, join: Join, doors: &[BorrowedFd<'_>]) -> io::Result<u64> {
        let (sender, time) = oneshot::channel();
        *self.bare.lock().expect("nothing panics while it is held") = Some(sender);
        send(&self.control, &ToRoot::Bare { join }.encode(), doors).await?;
        time.await.map_err(|_| io::Error::other("the sandbox root ended"))
    }

    /// Ends it, and with it everything that it forked.
    pub async fn kill(&self) {
        let mut child = self.child.lock().await;
        // It may be gone already.
        let _ = child.kill().await;
        self.gone.cancel();
    }
}

async fn listen(root: Arc<Root>) {
    while let Some(packet) = receive(&root.control).await {
        match FromRoot::decode(&packet) {
            Some(FromRoot::Exited { id, status }) => root.template_ended(id, Ended::Status(status)),
            Some(FromRoot::StartFailed { id, errno }) => root.template_ended(id, Ended::NotStarted(errno)),
            Some(FromRoot::Bare { ns }) => {
                if let Some(sender) = root.bare.lock().expect("nothing panics while it is held").take() {
                    // Nobody waits any more: the figure is lost, and nothing else.
                    let _ = sender.send(ns);
                }
            }
            Some(FromRoot::Ready { .. }) | None => break,
        }
    }
    root.gone.cancel();
    // Whoever waits for a template's end learns that it ended with its root.
    root.templates.lock().expect("nothing panics while it is held").clear();
    root.bare.lock().expect("nothing panics while it is held").take();
}

impl Root {
    fn template_ended(&self, id: u32, how: Ended) {
        let waiting = self.templates.lock().expect("nothing panics while it is held").remove(&id);
        if let Some(waiting) = waiting {
            // Nobody may care.
            let _ = waiting.send(how);
        }
    }
}

/// Takes a socket into the runtime's poll.
pub fn register(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open and stays the same descriptor for as long as it is owned, which is as long as
    // the `AsyncFd` lives.
    unsafe { AsyncFd::register(socket) }.map_err(|error| io::Error::other(error.to_string()))
}

/// Sends a packet once the socket takes it.
pub async fn send(socket: &AsyncFd<OwnedFd>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    loop {
        let mut ready = socket.writable().await?;
        let sent = ready.try_io(|socket| Ok(socket::send_packet(socket.get_ref(), bytes, descriptors)?));
        if let Ok(result) = sent {
            return result;
        }
    }
}

/// The next packet's bytes; nothing once the other side is gone. Descriptors that come along are closed: nobody
/// in the sandbox has any to give.
pub async fn receive(socket: &AsyncFd<OwnedFd>) -> Option<Vec<u8>> {
    loop {
        let mut ready = socket.readable().await.ok()?;
        let received = ready.try_io(|socket| Ok(socket::receive_packet(socket.get_ref())?));
        if let Ok(result) = received {
            return result.ok()?.map(|packet| packet.bytes);
        }
    }
}
