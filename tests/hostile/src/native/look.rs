//! What can be seen and reached from inside.

use super::{Given, last_error};
use std::ffi::CString;

pub fn open(given: &Given<'_>) -> String {
    let Ok(path) = CString::new(given.argument) else { return "no path".into() };
    // SAFETY: the path is a C string.
    let descriptor = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY) };
    if descriptor < 0 { last_error() } else { "opened".into() }
}

/// To this port of the machine's own loopback address.
pub fn connect(given: &Given<'_>) -> String {
    let Ok(port) = given.argument.parse::<u16>() else { return "no port".into() };
    match std::net::TcpStream::connect(("127.0.0.1", port)) {
        Ok(_) => "connected".into(),
        Err(error) => super::name_of(error.raw_os_error().unwrap_or(0)),
    }
}

pub fn node_name(_: &Given<'_>) -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The segment of this id, which the test has made.
pub fn shared_memory(given: &Given<'_>) -> String {
    let Ok(key) = given.argument.parse::<libc::key_t>() else { return "no key".into() };
    // SAFETY: no memory is involved.
    let id = unsafe { libc::shmget(key, 0, 0) };
    if id < 0 { last_error() } else { "found".into() }
}

/// Nothing to this process, which only asks whether it could be signalled.
pub fn signal(given: &Given<'_>) -> String {
    let Ok(pid) = given.argument.parse::<i32>() else { return "no pid".into() };
    // SAFETY: no memory is involved.
    let answer = unsafe { libc::kill(pid, 0) };
    if answer < 0 { last_error() } else { "could".into() }
}

/// Tries what a capability allows within the namespaces that the process is in.
pub fn capabilities(_: &Given<'_>) -> String {
    // SAFETY: the name is static.
    let answer = unsafe { libc::sethostname(c"mine".as_ptr(), 4) };
    if answer < 0 { last_error() } else { "renamed the machine".into() }
}

pub fn privileges(_: &Given<'_>) -> String {
    // SAFETY: no memory is involved.
    unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) }.to_string()
}

pub fn parent_death(_: &Given<'_>) -> String {
    let mut signal: libc::c_int = 0;
    // SAFETY: the kernel writes the signal's number.
    unsafe { libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut signal) };
    signal.to_string()
}

pub fn limits(_: &Given<'_>) -> String {
    let of = |resource| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel writes the structure.
        unsafe { libc::getrlimit(resource, &raw mut limit) };
        if limit.rlim_max == libc::RLIM_INFINITY { "none".to_owned() } else { limit.rlim_max.to_string() }
    };
    format!(
        "core {} file {} queue {} lock {} stack {} descriptors {}",
        of(libc::RLIMIT_CORE),
        of(libc::RLIMIT_FSIZE),
        of(libc::RLIMIT_MSGQUEUE),
        of(libc::RLIMIT_MEMLOCK),
        of(libc::RLIMIT_STACK),
        of(libc::RLIMIT_NOFILE)
    )
}

/// How many there are, the call's own socket among them.
pub fn descriptors(_: &Given<'_>) -> String {
    // SAFETY: asking for a descriptor's flags changes nothing.
    let open = (0..4096).filter(|number| unsafe { libc::fcntl(*number, libc::F_GETFD) } >= 0).count();
    open.to_string()
}

pub fn environment(_: &Given<'_>) -> String {
    std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Looks through all of the process's memory for this text, which is given in two halves so as not to be found in
/// the question. Needs `/proc`.
pub fn search_memory(given: &Given<'_>) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let Some((first, second)) = given.argument.split_once('|') else { return "no text".into() };
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return "no /proc".into() };
    let Ok(mut memory) = std::fs::File::open("/proc/self/mem") else { return "no memory".into() };
    let (mut found, mut searched) = (0, 0);
    for line in maps.lines().filter(|line| line.contains(" r")) {
        let Some((range, _)) = line.split_once(' ') else { continue };
        let Some((start, end)) = range.split_once('-') else { continue };
        let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)) else { continue };
        // In pieces that overlap: the engine's address space is large, and mostly nothing.
        const PIECE: u64 = 1 << 20;
        let mut at = start;
        let mut buffer = vec![0_u8; PIECE as usize];
        while at < end {
            let length = (end - at).min(PIECE) as usize;
            if memory.seek(SeekFrom::Start(at)).is_ok() && memory.read_exact(&mut buffer[..length]).is_ok() {
                searched += length;
                found += count(&buffer[..length], first.as_bytes(), second.as_bytes());
            }
            at += PIECE;
        }
    }
    if searched == 0 { "saw nothing".into() } else { format!("found {found}") }
}

fn count(memory: &[u8], first: &[u8], second: &[u8]) -> usize {
    let (mut found, mut rest) = (0, memory);
    loop {
        // SAFETY: both are slices, given with their lengths.
        let at = unsafe { libc::memmem(rest.as_ptr().cast(), rest.len(), first.as_ptr().cast(), first.len()) };
        if at.is_null() {
            return found;
        }
        let after = &rest[at as usize - rest.as_ptr() as usize + first.len()..];
        found += usize::from(after.starts_with(second));
        rest = after;
    }
}
