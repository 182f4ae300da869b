//! The system call filter: what a template and a call may ask of the kernel. All else ends the process, which says
//! which call it was.
//!
//! A template may do a few things that its calls may not: fork, reap, kill. A second, narrower filter for each call
//! would cost it as much as all other layers together (the kernel compiles a filter anew for every process that
//! installs one). So there is one filter, and for these few it wants a **token** besides: a random number, which a
//! template puts where the system call takes no argument. It is kept on a page that the kernel wipes in every fork,
//! is loaded from there straight into its register, and is in no other place; a call has none.

use crate::process::{self, last_errno};
use crate::wire::{self, Kind};
use rustix::io::Errno;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, Ordering};

/// What the process does with its memory, its sockets, its clock and its end. Each is there because something
/// doesn't work without it; a test shows for each call that goes through here.
const FREE: &[i64] = &[
    // The engine's and the C library's heap. Mapping is below, with conditions.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // The sockets that it was given. It can make none, and open nothing.
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_close,
    libc::SYS_close_range,
    // Into its cgroup, by the descriptor of that.
    libc::SYS_write,
    // Random numbers; the clock, where the kernel's shared page doesn't serve it.
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    // The standard library's locks, which nobody contends for.
    libc::SYS_futex,
    // The end, by itself or by giving up.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigprocmask,
    libc::SYS_getpid,
    libc::SYS_gettid,
    // After a stop and a continuation.
    libc::SYS_restart_syscall,
];

/// What only a template does, with its token. All take fewer than six arguments.
const WITH_TOKEN: &[i64] = &[libc::SYS_clone3, libc::SYS_wait4, libc::SYS_kill];
/// Where the token goes: the sixth argument.
const TOKEN_ARGUMENT: u8 = 5;
/// Stands for the token in the compiled filter; each template puts its own there.
const PLACEHOLDER: u64 = 0x7f1e_55aa_3c4d_9b02;

/// The filter, compiled once, without a token.
pub struct Filter(BpfProgram);

impl Filter {
    /// Nothing, with the reason, where the kernel has no filters or can't tell the process what it was ended for.
    pub fn compile() -> Result<Self, Errno> {
        const GET_ACTION_AVAILABLE: libc::c_uint = 2;
        let trap: u32 = 0x0003_0000;
        // SAFETY: the kernel only reads the action.
        let answer = unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAILABLE, 0, &raw const trap) };
        if answer != 0 {
            return Err(last_errno());
        }
        compiled().map(Self).map_err(|_| Errno::INVAL)
    }

    /// Puts the filter in force for this process and all that it forks, for good.
    pub fn apply(&mut self) -> Result<(), Errno> {
        report_forbidden_calls()?;
        let token = process::new_token()?;
        let halves = |token: u64| [(token >> 32) as u32, token as u32];
        let [high, low] = halves(PLACEHOLDER);
        let placeholders: Vec<usize> =
            (0..self.0.len()).filter(|at| self.0[*at].k == high || self.0[*at].k == low).collect();
        let mut put = |token: u64| {
            for at in &placeholders {
                let half = if self.0[*at].k == high { 0 } else { 1 };
                // SAFETY: a plain write; volatile, so that the token is overwritten though nobody reads it again.
                unsafe { (&raw mut self.0[*at].k).write_volatile(halves(token)[half]) };
            }
        };
        put(token);
        let applied = seccompiler::apply_filter(&self.0).map_err(|_| last_errno());
        // The copy goes, at once and in each place: a fork must not find it.
        for (index, at) in placeholders.iter().enumerate() {
            // SAFETY: as above.
            unsafe { (&raw mut self.0[*at].k).write_volatile(index as u32) };
        }
        applied
    }
}

fn compiled() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = FREE.iter().map(|call| (*call, Vec::new())).collect();
    let is = |argument, wanted| SeccompCondition::new(argument, SeccompCmpArgLen::Qword, Eq, wanted);
    for call in WITH_TOKEN {
        rules.insert(*call, vec![SeccompRule::new(vec![is(TOKEN_ARGUMENT, PLACEHOLDER)?])?]);
    }
    let has = |argument, mask: libc::c_int, wanted: libc::c_int| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, MaskedEq(mask as u64), wanted as u64)
    };
    // Memory that is no file's and no code.
    let mapped = vec![has(2, libc::PROT_EXEC, 0)?, has(3, libc::MAP_ANONYMOUS, libc::MAP_ANONYMOUS)?];
    rules.insert(libc::SYS_mmap, vec![SeccompRule::new(mapped)?]);
    rules.insert(libc::SYS_mprotect, vec![SeccompRule::new(vec![has(2, libc::PROT_EXEC, 0)?])?]);
    // A fork names itself and ties itself to its parent.
    let options = [libc::PR_SET_NAME, libc::PR_SET_PDEATHSIG];
    let one_of = options.map(|option| SeccompRule::new(vec![is(0, option as u64)?]));
    rules.insert(libc::SYS_prctl, one_of.into_iter().collect::<Result<_, _>>()?);
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::Trap, SeccompAction::Allow, architecture)?.try_into()
}

/// Where a forbidden call is reported; none while that is a socket of packets.
static REPORT_TO: AtomicI32 = AtomicI32::new(-1);

/// From here on a forbidden call is reported on this socket.
pub fn report_to(socket: Option<&std::os::fd::OwnedFd>) {
    use std::os::fd::AsRawFd;
    REPORT_TO.store(socket.map_or(-1, AsRawFd::as_raw_fd), Ordering::Relaxed);
}

fn report_forbidden_calls() -> Result<(), Errno> {
    // SAFETY: all-zero is a valid `sigaction`, of which the handler and the flags are set; the handler makes only
    // system calls, which is allowed in one.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = forbidden as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// The kernel delivers this in place of the call, which was not made. The filter keeps anybody from taking the handler
/// away; where it can't run, the kernel kills.
extern "C" fn forbidden(_signal: libc::c_int, info: *const libc::siginfo_t, _context: *const libc::c_void) {
    /// `si_syscall` of `siginfo_t` for SIGSYS, which the libc crate doesn't name.
    const NUMBER_AT: usize = 24;
    // SAFETY: the kernel gives a whole `siginfo_t`, of 128 bytes.
    let number = unsafe { info.cast::<u8>().add(NUMBER_AT).cast::<u32>().read_unaligned() };
    let socket = REPORT_TO.load(Ordering::Relaxed);
    if socket >= 0 {
        let mut frame = [0; wire::HEADER_BYTES + 4];
        frame[..4].copy_from_slice(&5_u32.to_le_bytes());
        frame[4] = Kind::Forbidden as u8;
        frame[wire::HEADER_BYTES..].copy_from_slice(&number.to_le_bytes());
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the frame is on this stack.
        unsafe { libc::send(socket, frame.as_ptr().cast(), frame.len(), flags) };
    }
    process::exit_now(EXIT_FORBIDDEN)
}

/// The process tried what it may not.
pub const EXIT_FORBIDDEN: i32 = 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_has_its_places_in_the_filter() {
        let program = compiled().expect("the policy is one that can be compiled");
        let halves = [(PLACEHOLDER >> 32) as u32, PLACEHOLDER as u32];
        for half in halves {
            assert_eq!(program.iter().filter(|one| one.k == half).count(), WITH_TOKEN.len());
        }
    }
}
