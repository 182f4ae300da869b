//! Taking all there is, and not going away.

use super::{Given, last_error};

/// As many processes as can be had, which stay. Tells how many.
pub fn fork_bomb(_: &Given<'_>) -> String {
    let mut children = 0;
    while children < 10_000 {
        // SAFETY: the child only waits for its end.
        match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: no memory is involved.
                unsafe { libc::pause() };
            },
            pid if pid > 0 => children += 1,
            _ => return format!("{children} and {}", last_error()),
        }
    }
    format!("{children}")
}

/// Writes to so many megabytes.
pub fn touch_memory(given: &Given<'_>) -> String {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for _ in 0..given.argument.parse().unwrap_or(0) {
        kept.push(vec![1; 1 << 20]);
    }
    format!("touched {}", kept.len())
}

/// Goes down the stack until it ends.
pub fn huge_stack(_: &Given<'_>) -> String {
    fn deeper(level: u64) -> u64 {
        let room = std::hint::black_box([level; 512]);
        if level == u64::MAX { 0 } else { deeper(level + 1) + room[(level % 512) as usize] }
    }
    deeper(0).to_string()
}

pub fn many_descriptors(given: &Given<'_>) -> String {
    use std::os::fd::AsRawFd;
    let mut count = 0;
    // SAFETY: the copies are nobody's, and the process ends with them.
    while count < 1_000_000 && unsafe { libc::fcntl(given.socket.as_raw_fd(), libc::F_DUPFD, 0) } >= 0 {
        count += 1;
    }
    format!("{count} and {}", last_error())
}

pub fn lock_memory(_: &Given<'_>) -> String {
    // SAFETY: locking changes no memory.
    let answer = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
    if answer < 0 { last_error() } else { "locked".into() }
}

/// Deaf to every signal that can be ignored, and busy.
pub fn spin(_: &Given<'_>) -> String {
    for signal in 1..32 {
        // SAFETY: ignoring a signal runs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    loop {
        std::hint::spin_loop();
    }
}

pub fn stop_itself(_: &Given<'_>) -> String {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
    "went on".into()
}

/// The template is the first process of the namespace.
pub fn stop_parent(_: &Given<'_>) -> String {
    // SAFETY: no memory is involved.
    let answer = unsafe { libc::kill(libc::getppid(), libc::SIGSTOP) };
    if answer < 0 { last_error() } else { "stopped it".into() }
}

/// A grandchild that is nobody's, and busy after the call's own end.
pub fn outlive(_: &Given<'_>) -> String {
    // SAFETY: the children only fork and spin.
    unsafe {
        if libc::fork() == 0 {
            if libc::fork() == 0 {
                loop {
                    std::hint::spin_loop();
                }
            }
            libc::_exit(0);
        }
    }
    "left a child".into()
}

/// Closes its socket and goes on.
pub fn run_on(given: &Given<'_>) -> String {
    use std::os::fd::AsRawFd;
    // SAFETY: the process never uses the socket again.
    unsafe { libc::close(given.socket.as_raw_fd()) };
    loop {
        std::hint::spin_loop();
    }
}

pub fn abort(_: &Given<'_>) -> String {
    std::process::abort()
}

pub fn segfault(_: &Given<'_>) -> String {
    // SAFETY: none: the process is meant to end here.
    unsafe { std::ptr::null_mut::<u8>().with_addr(8).write_volatile(1) };
    "went on".into()
}
