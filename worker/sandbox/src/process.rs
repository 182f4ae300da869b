//! The system calls that make and end processes. The only `unsafe` code of this crate besides `isolate`.
//!
//! All of them are sound only in a process of one thread, which every process of this crate is: the root is
//! executed afresh and starts no thread, and everything else is forked from it.

use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// From `linux/sched.h`; the libc crate has it in too narrow a type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What a fork is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forked {
    Child,
    Parent { pid: i32 },
}

/// How a child ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub pid: i32,
    pub status: i32,
    pub cpu_us: u64,
    pub peak_kib: u64,
}

/// Forks; `new_pid_namespace` makes the child the first process of its own, `cgroup` (a version 2 directory)
/// makes it inside that cgroup.
pub fn fork(new_pid_namespace: bool, cgroup: Option<BorrowedFd<'_>>) -> Result<Forked, Errno> {
    let mut flags = 0;
    if new_pid_namespace {
        flags |= libc::CLONE_NEWPID as u64;
    }
    // SAFETY: all-zero is a valid `clone_args`: no stack, no descriptors, no ids asked for.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    if let Some(directory) = cgroup {
        flags |= CLONE_INTO_CGROUP;
        args.cgroup = directory.as_raw_fd() as u64;
    }
    args.flags = flags;
    args.exit_signal = libc::SIGCHLD as u64;
    // The C library's `fork` can't set these flags, and takes locks that a process of one thread has no use for.
    // SAFETY: without CLONE_VM and without a stack this is a plain fork: the child goes on with a copy of the
    // memory. The process has one thread, so no lock can be held by a thread that the child doesn't have.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    match pid {
        0 => Ok(Forked::Child),
        pid if pid > 0 => Ok(Forked::Parent { pid: pid as i32 }),
        _ => Err(last_errno()),
    }
}

/// Takes one child that has ended, if there is one.
pub fn reap() -> Option<Ended> {
    let mut status = 0;
    // SAFETY: all-zero is a valid `rusage`, and the call only writes to the two places it is given.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above; WNOHANG keeps it from blocking.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage) };
    if pid <= 0 {
        return None;
    }
    let micros = |time: libc::timeval| time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_usec.unsigned_abs();
    Some(Ended {
        pid,
        status,
        cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime),
        peak_kib: usage.ru_maxrss.unsigned_abs(),
    })
}

/// Waits for this child to end.
pub fn wait_for(pid: i32) {
    let mut status = 0;
    // SAFETY: the call only writes to the place it is given.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } == -1 && last_errno() == Errno::INTR {}
}

/// SIGKILL to a child that hasn't been reaped; its pid can't be anybody else's.
pub fn kill_child(pid: i32) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// A descriptor that is readable while children wait to be reaped. SIGCHLD is blocked from then on.
pub fn child_events() -> Result<OwnedFd, Errno> {
    // SAFETY: `set` is made by sigemptyset before it is read; the calls write only to it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
            return Err(last_errno());
        }
        let descriptor = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if descriptor < 0 {
            return Err(last_errno());
        }
        // The descriptor is new and nobody else's.
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// Dies with its parent, from now on.
pub fn die_with_parent() {
    // SAFETY: no memory is involved.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Names the process, for whoever lists them.
pub fn set_name(name: &std::ffi::CStr) {
    // SAFETY: the name is a C string; the kernel copies at most 16 bytes of it.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Ends at once: no destructor runs and nothing is flushed, which in a fork would be the parent's to do.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: it doesn't return, so nothing that it skips can be relied on afterwards.
    unsafe { libc::_exit(code) }
}

/// Takes over a descriptor that this process was started with.
///
/// # Safety
/// It must be open and nobody else's.
pub unsafe fn inherited(number: i32) -> OwnedFd {
    // SAFETY: the caller's promise.
    unsafe { OwnedFd::from_raw_fd(number) }
}

pub fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Closes the child's copy of a descriptor that its parent goes on with.
pub fn close_in_child(descriptor: &OwnedFd) {
    // SAFETY: the child never returns to the code that owns the descriptor and never drops it: both end by `_exit`.
    unsafe { libc::close(descriptor.as_raw_fd()) };
}

/// Closes every descriptor from this number on.
pub fn close_from(first: u32) {
    // SAFETY: called first in the process, when no descriptor from there on is owned by anything in it.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
}
