//! Every system call that there is.

use crate::Broken;
use futures::StreamExt;
use std::collections::BTreeSet;
use syscalls::Sysno;

/// What a call may ask of the kernel, all of it. A name more or less here is a decision.
const ALLOWED: &[&str] = &[
    "brk",
    "clock_gettime",
    "close",
    "close_range",
    "exit",
    "exit_group",
    "futex",
    "getpid",
    "getrandom",
    "gettid",
    "gettimeofday",
    "madvise",
    "mremap",
    "munmap",
    "poll",
    "ppoll",
    "read",
    "recvfrom",
    "recvmsg",
    "restart_syscall",
    "rt_sigprocmask",
    "sendmsg",
    "sendto",
    "write",
];
/// Allowed, but not with arguments of nothing.
const WITH_CONDITIONS: &[&str] = &["mmap", "mprotect", "prctl"];

#[tokio::test]
async fn a_call_may_make_these_system_calls_and_no_others() {
    let broken = Broken::without(&[]).await;
    let all: Vec<Sysno> = Sysno::iter().collect();
    assert!(all.len() > 300, "the kernel has more than {} calls", all.len());
    let tried = futures::stream::iter(all).map(|call| {
        let broken = &broken;
        async move { (call.name(), broken.found("system call", &call.id().to_string()).await) }
    });
    let mut passed = BTreeSet::new();
    for (name, told) in tried.buffer_unordered(8).collect::<Vec<_>>().await {
        if name == "tgkill" {
            assert!(told.contains("gave up"), "{told}");
        } else if !told
            .starts_with(&format!("Crashed: the call's process tried a system call that no plugin may make, {name},"))
        {
            passed.insert(name);
        }
    }
    // Protection of nothing is none that is refused; the probes' own calls the kernel shows to no filter, and ends
    // whoever makes them elsewhere.
    for name in ["mprotect", "uprobe", "uretprobe"] {
        passed.remove(name);
    }
    assert_eq!(passed.into_iter().collect::<Vec<_>>(), ALLOWED);
    assert!(WITH_CONDITIONS.iter().all(|name| !ALLOWED.contains(name)));
    broken.is_well().await;
    broken.end().await;
}

#[tokio::test]
async fn without_the_filter_the_calls_are_made() {
    let broken = Broken::without(&["system call filter"]).await;
    // Not allowed above, and harmless.
    for name in ["getppid", "getuid", "sched_yield", "times"] {
        let number = name.parse::<Sysno>().expect("a call's name").id().to_string();
        let told = broken.found("system call", &number).await;
        assert!(told.starts_with("answered"), "{name}: {told}");
    }
    broken.end().await;
}

#[tokio::test]
async fn the_other_gates_into_the_kernel_are_shut() {
    let broken = Broken::without(&[]).await;
    let told = broken.found("i386 call", "").await;
    // A kernel without 32-bit programs has no such gate at all.
    assert!(told.contains("SIGSYS") || told.contains("SIGSEGV"), "{told}");
    let told = broken.found("x32 call", "").await;
    assert!(told.contains("a system call of another kind"), "{told}");
    broken.is_well().await;
    broken.end().await;
}

#[tokio::test]
async fn no_memory_is_ever_executable_and_writable() {
    let broken = Broken::without(&[]).await;
    let told = broken.found("executable memory", "at once").await;
    assert!(told.contains("no plugin may make, mmap,"), "{told}");
    let told = broken.found("executable memory", "later").await;
    assert!(told.contains("no plugin may make, mprotect,"), "{told}");
    broken.is_well().await;
    broken.end().await;
    let open = Broken::without(&["system call filter"]).await;
    assert_eq!(open.found("executable memory", "later").await, "got it");
    open.end().await;
}
