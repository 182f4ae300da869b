//! System calls that no plugin may make.

use super::{Given, last_error};

/// Makes the call of this number, with six arguments of nothing.
pub fn system_call(given: &Given<'_>) -> String {
    let Ok(number) = given.argument.parse::<libc::c_long>() else { return "no number".into() };
    // SAFETY: with null pointers and zeros no memory of this process is read or written; what the call does
    // otherwise is the test.
    let answer = unsafe { libc::syscall(number, 0, 0, 0, 0, 0, 0) };
    if answer < 0 { last_error() } else { format!("answered {answer}") }
}

/// Through the gate of 32-bit programs, where numbers mean other calls: 20 is getpid there.
pub fn i386_call(_: &Given<'_>) -> String {
    let answer: i64;
    // SAFETY: getpid takes no arguments; the gate changes only the named registers.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("rax") 20_i64 => answer,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    format!("answered {answer}")
}

/// The 32-bit numbers on 64-bit registers: the bit that marks them must not get a call past the filter.
pub fn x32_call(_: &Given<'_>) -> String {
    const X32: libc::c_long = 0x4000_0000;
    // SAFETY: getpid takes no arguments.
    let answer = unsafe { libc::syscall(X32 | libc::SYS_getpid) };
    if answer < 0 { last_error() } else { format!("answered {answer}") }
}

/// Memory that can be written and run: what injected code needs.
pub fn executable_memory(given: &Given<'_>) -> String {
    let (read_write, all) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let first = if given.argument == "later" { read_write } else { all };
    // SAFETY: new memory at a place of the kernel's choice.
    let place = unsafe { libc::mmap(std::ptr::null_mut(), 4096, first, flags, -1, 0) };
    if place == libc::MAP_FAILED {
        return last_error();
    }
    // SAFETY: the memory was mapped just now and nothing else refers to it.
    let answer = unsafe { libc::mprotect(place, 4096, all) };
    if answer < 0 { last_error() } else { "got it".into() }
}
