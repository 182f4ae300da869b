//! Takes away from this process what it doesn't need. Each layer is tried by itself: where the machine refuses
//! one, the others still hold, and the worker is told which is missing and why.

use crate::payload::Payload;
use crate::process::last_errno;
use rustix::io::Errno;
use std::ffi::CString;
use std::fmt::Write as _;

/// Layers that could not be had, as `layer=reason` lines.
#[derive(Debug, Default)]
pub struct Missing(pub String);

impl Missing {
    fn note(&mut self, layer: &str, why: &dyn std::fmt::Display) {
        // Writing to a `String` can't fail.
        let _ = writeln!(self.0, "{layer}={why}");
    }

    /// Puts up a layer, or notes why it can't be had.
    pub fn try_layer<T>(
        &mut self,
        layer: &str,
        payload: Payload,
        put_up: impl FnOnce() -> Result<T, Errno>,
    ) -> Option<T> {
        if payload.lacks(layer) {
            self.note(layer, &"left out");
            return None;
        }
        put_up().map_err(|errno| self.note(layer, &errno)).ok()
    }
}

fn check(result: libc::c_int) -> Result<(), Errno> {
    if result == -1 { Err(last_errno()) } else { Ok(()) }
}

/// The root's isolation: another user, namespaces, an empty read-only root, no way to gain rights.
pub fn isolate_root(uid: u32, payload: Payload) -> Missing {
    let mut missing = Missing::default();
    // SAFETY: no memory is involved.
    let started_as_root = unsafe { libc::geteuid() } == 0;
    if started_as_root {
        missing.try_layer("uid", payload, || drop_user(uid));
    } else {
        missing.note("uid", &"only root can give its children another user");
    }
    // SAFETY: no memory is involved.
    let outside = unsafe { (libc::geteuid(), libc::getegid()) };
    // Within a user namespace of its own the process may make the others, whoever it was outside.
    let user = missing.try_layer("user namespace", payload, || {
        unshare(libc::CLONE_NEWUSER)?;
        map_user(outside)
    });
    let mount = missing.try_layer("mount namespace", payload, || unshare(libc::CLONE_NEWNS));
    missing.try_layer("net namespace", payload, || unshare(libc::CLONE_NEWNET));
    missing.try_layer("ipc namespace", payload, || unshare(libc::CLONE_NEWIPC));
    missing.try_layer("uts namespace", payload, || {
        unshare(libc::CLONE_NEWUTS)?;
        // It begins as a copy, with the machine's name in it.
        rustix::system::sethostname(b"sandbox")
    });
    missing.try_layer("cgroup namespace", payload, || unshare(libc::CLONE_NEWCGROUP));
    // Without a mount namespace of its own this would change everybody's.
    missing.try_layer("empty root", payload, || if mount.is_some() { empty_root() } else { Err(Errno::PERM) });
    if user.is_none() && !started_as_root {
        missing.note("pid namespace", &Errno::PERM);
    }
    missing.try_layer("no new privileges", payload, || {
        // SAFETY: no memory is involved.
        check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
    });
    if payload.lacks("landlock") {
        missing.note("landlock", &"left out");
    } else if let Err(why) = forbid_files() {
        missing.note("landlock", &why);
    }
    missing
}

/// No file can be opened, no port bound or connected to, no process outside be signalled, whatever the root shows.
fn forbid_files() -> Result<(), String> {
    use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope};
    let newest = ABI::V6;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(newest))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(newest)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(newest)))
        .and_then(Ruleset::create)
        .and_then(|ruleset| ruleset.no_new_privs(false).restrict_self())
        .map_err(|error| error.to_string())?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err("this kernel doesn't have it".into()),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

/// A template's isolation, inherited by its calls: no rights, limits.
pub fn isolate_template(payload: Payload) -> Result<(), Errno> {
    if !payload.lacks("no capabilities") {
        // SAFETY: no memory is involved.
        unsafe {
            // Being user 0 of the namespace must not bring capabilities back.
            let _ = libc::prctl(libc::PR_SET_SECUREBITS, 0b10_1111);
            for capability in 0..64 {
                if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) == -1 {
                    break;
                }
            }
        }
        drop_capabilities()?;
    }
    if payload.lacks("resource limits") {
        return Ok(());
    }
    for (resource, limit) in [
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_FSIZE, 0),
        (libc::RLIMIT_MSGQUEUE, 0),
        (libc::RLIMIT_MEMLOCK, 0),
        (libc::RLIMIT_STACK, 8 * 1024 * 1024),
        // The sockets, the cgroup's descriptors of a call that is about to be forked, and some room.
        (libc::RLIMIT_NOFILE, 24),
    ] {
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        // SAFETY: the structure is on this stack.
        check(unsafe { libc::setrlimit(resource, &raw const limit) })?;
    }
    Ok(())
}

/// What stands in for the kernel's cap where there is no cgroup: address space beyond what the process has now.
pub fn limit_address_space(bytes: u64) -> Result<(), Errno> {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or(0);
    // Without /proc (an empty root has none) the process's own size is unknown; this is what it is about.
    const UNKNOWN_SIZE_BYTES: u64 = 256 * 1024 * 1024;
    let own = if pages > 0 { pages * 4096 } else { UNKNOWN_SIZE_BYTES + crate::engine::SPACE_BYTES as u64 };
    let limit = libc::rlimit { rlim_cur: own + bytes, rlim_max: own + bytes };
    // SAFETY: the structure is on this stack.
    check(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) })
}

fn drop_user(uid: u32) -> Result<(), Errno> {
    // SAFETY: the calls involve no memory.
    unsafe {
        check(libc::setgroups(0, std::ptr::null()))?;
        check(libc::setresgid(uid, uid, uid))?;
        check(libc::setresuid(uid, uid, uid))?;
        // Having changed its user it may not look at its own /proc, where its user map is written.
        check(libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0))
    }
}

fn unshare(flag: libc::c_int) -> Result<(), Errno> {
    // SAFETY: none of the flags used shares or moves memory.
    check(unsafe { libc::unshare(flag) })
}

/// User 0 of the namespace is whoever the process is outside; nobody else exists.
fn map_user((uid, gid): (u32, u32)) -> Result<(), Errno> {
    let write = |path: &str, text: String| {
        std::fs::write(path, text).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    };
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// An empty file system that nothing can be written to, in place of the machine's.
fn empty_root() -> Result<(), Errno> {
    let text = |text: &str| CString::new(text).expect("no NUL in a constant");
    let (none, place, tmpfs, options) =
        (text("none"), text("/tmp"), text("tmpfs"), text("size=4k,nr_inodes=2,mode=555"));
    let (slash, here) = (text("/"), text("."));
    // SAFETY: all pointers are to C strings that outlive the calls, or null where that is allowed.
    unsafe {
        let null = std::ptr::null();
        check(libc::mount(none.as_ptr(), slash.as_ptr(), null, libc::MS_REC | libc::MS_PRIVATE, null.cast()))?;
        let quiet = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        check(libc::mount(none.as_ptr(), place.as_ptr(), tmpfs.as_ptr(), quiet, options.as_ptr().cast()))?;
        check(libc::chdir(place.as_ptr()))?;
        // With both places the same the old root lies over the new one, and is taken away from there.
        check(libc::syscall(libc::SYS_pivot_root, here.as_ptr(), here.as_ptr()) as libc::c_int)?;
        check(libc::umount2(here.as_ptr(), libc::MNT_DETACH))?;
        check(libc::chdir(slash.as_ptr()))?;
        let remount = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | quiet;
        check(libc::mount(none.as_ptr(), slash.as_ptr(), null, remount, null.cast()))
    }
}

/// `struct __user_cap_header_struct` and `__user_cap_data_struct` of `linux/capability.h`, which the libc crate lacks.
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn drop_capabilities() -> Result<(), Errno> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = CapabilityHeader { version: VERSION_3, pid: 0 };
    let none = [CapabilityData { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: version 3 reads one header and two data structures, which these are.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) } as libc::c_int)
}
