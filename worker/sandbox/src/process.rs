//! The system calls that make and end processes. The only `unsafe` code of this crate besides `isolate`.
//!
//! All of them are sound only in a process of one thread, which every process of this crate is: the root is
//! executed afresh and starts no thread, and everything else is forked from it.

use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, Ordering};

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
    let pid = unsafe { with_token(libc::SYS_clone3, [&raw const args as usize, size_of::<libc::clone_args>(), 0, 0]) };
    match pid {
        0 => Ok(Forked::Child),
        pid if pid > 0 => Ok(Forked::Parent { pid: pid as i32 }),
        errno => Err(Errno::from_raw_os_error(-errno as i32)),
    }
}

/// The page of the token that the filter wants for some calls; null while there is no filter.
static TOKEN: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());

/// Makes a token for this process. Its forks find nothing where it was.
pub fn new_token() -> Result<u64, Errno> {
    use rustix::mm::{Advice, MapFlags, ProtFlags};
    const BYTES: usize = 4096;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: new memory at a place of the kernel's choice, which is never given back.
    let page = unsafe {
        let page = rustix::mm::mmap_anonymous(std::ptr::null_mut(), BYTES, protection, MapFlags::PRIVATE)?;
        rustix::mm::madvise(page, BYTES, Advice::LinuxWipeOnFork)?;
        page.cast::<u64>()
    };
    // SAFETY: the page holds at least these eight bytes, zeroed, and nothing else refers to them.
    let bytes = unsafe { std::slice::from_raw_parts_mut(page.cast::<u8>(), size_of::<u64>()) };
    if rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())? != bytes.len() {
        return Err(Errno::IO);
    }
    TOKEN.store(page, Ordering::Relaxed);
    // SAFETY: as above.
    Ok(unsafe { page.read() })
}

/// A system call with the token as its sixth argument. The token goes from its page into the register and out of it
/// again, and is never on the stack, which a fork would have a copy of. Gives what the kernel gives: a negative number
/// is an error's.
///
/// # Safety
/// As the call itself.
#[cfg(target_arch = "x86_64")]
unsafe fn with_token(number: libc::c_long, arguments: [usize; 4]) -> isize {
    let page = TOKEN.load(Ordering::Relaxed);
    let answer: isize;
    // SAFETY: the caller's promise; the page is read only if there is one; all registers that the kernel and these
    // lines change are named.
    unsafe {
        std::arch::asm!(
            "xor r9d, r9d",
            "test {page}, {page}",
            "jz 2f",
            "mov r9, qword ptr [{page}]",
            "2:",
            "syscall",
            "xor r9d, r9d",
            page = in(reg) page,
            inlateout("rax") number as isize => answer,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") 0,
            out("r9") _,
            out("rcx") _,
            out("r11") _,
        );
    }
    answer
}

/// As on the other architecture.
///
/// # Safety
/// As the call itself.
#[cfg(target_arch = "aarch64")]
unsafe fn with_token(number: libc::c_long, arguments: [usize; 4]) -> isize {
    let page = TOKEN.load(Ordering::Relaxed);
    let answer: isize;
    // SAFETY: the caller's promise; the page is read only if there is one; all registers that these lines change are
    // named, and the kernel changes no others.
    unsafe {
        std::arch::asm!(
            "mov x5, xzr",
            "cbz {page}, 2f",
            "ldr x5, [{page}]",
            "2:",
            "svc 0",
            "mov x5, xzr",
            page = in(reg) page,
            in("x8") number,
            inlateout("x0") arguments[0] as isize => answer,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") 0,
            out("x5") _,
        );
    }
    answer
}

/// -1, as a register has it.
const ANY_CHILD: usize = usize::MAX;

/// Takes one child that has ended, if there is one.
pub fn reap() -> Option<Ended> {
    let mut status = 0;
    // SAFETY: all-zero is a valid `rusage`, and the call only writes to the two places it is given.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above; WNOHANG keeps it from blocking.
    let pid = unsafe {
        let places = [&raw mut status as usize, libc::WNOHANG as usize, &raw mut usage as usize];
        with_token(libc::SYS_wait4, [ANY_CHILD, places[0], places[1], places[2]])
    };
    if pid <= 0 {
        return None;
    }
    let micros = |time: libc::timeval| time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_usec.unsigned_abs();
    Some(Ended {
        pid: pid as i32,
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
    unsafe { with_token(libc::SYS_kill, [pid as usize, libc::SIGKILL as usize, 0, 0]) };
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

/// Bad memory accesses end the process at once. The standard library would look first whether the stack has ended,
/// by system calls that no sandboxed process may make.
pub fn plain_faults() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the default action runs no code of this process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Makes the C library look for the machine's time zone now, where there are no files any more: it is UTC for every
/// plugin, and no call looks again.
pub fn settle_time_zone() {
    // The libc crate doesn't name it.
    unsafe extern "C" {
        fn tzset();
    }
    // SAFETY: it reads the environment, which nobody changes, and a file that isn't there.
    unsafe { tzset() };
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

/// Closes every descriptor but this one.
pub fn close_all_but(kept: &OwnedFd) {
    let kept = kept.as_raw_fd().unsigned_abs();
    // SAFETY: called in a fork that never returns to the code that owns the others, and ends by `_exit`.
    unsafe {
        if kept > 0 {
            libc::syscall(libc::SYS_close_range, 0, kept - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, kept + 1, u32::MAX, 0);
    }
}

/// Closes every descriptor from this number on.
pub fn close_from(first: u32) {
    // SAFETY: called first in the process, when no descriptor from there on is owned by anything in it.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
}
