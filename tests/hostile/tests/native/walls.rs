//! Each layer behind the filter by itself: the filter and whatever else stands before it are left out. Then the layer
//! too, and the same attempt gets through, so that each of these tests is seen to fail without its layer.

use crate::Broken;
use std::net::TcpListener;
use toolfleet_protocol::Limits;

const FILTER: &str = "system call filter";

/// `attack` finds `wall` with the layer, and `open` without it.
async fn check(layer: &str, others: &[&str], attack: &str, argument: &str, wall: &str, open: &[&str]) {
    let mut without: Vec<&str> = std::iter::once(FILTER).chain(others.iter().copied()).collect();
    let broken = Broken::without(&without).await;
    assert_eq!(broken.found(attack, argument).await, wall, "{attack} {argument} with the layer {layer}");
    broken.is_well().await;
    broken.end().await;
    without.push(layer);
    let broken = Broken::without(&without).await;
    let found = broken.found(attack, argument).await;
    assert!(open.contains(&found.as_str()), "{attack} {argument} without the layer {layer}: {found}");
    broken.end().await;
}

#[tokio::test]
async fn the_root_is_empty() {
    for path in ["/etc/passwd", "/proc/self/environ", "/sys/kernel", "/dev/null", "/tmp/."] {
        check("empty root", &["landlock"], "open", path, "ENOENT", &["opened", "EACCES", "EPERM"]).await;
    }
}

#[tokio::test]
async fn no_file_is_opened_even_where_there_are_some() {
    check("landlock", &["empty root"], "open", "/etc/passwd", "EACCES", &["opened"]).await;
}

#[tokio::test]
async fn there_is_no_network() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a listener that doesn't wait");
    let port = listener.local_addr().expect("an address").port().to_string();
    check("net namespace", &["landlock"], "connect", &port, "ENETUNREACH", &["connected"]).await;
    // The one that got through.
    listener.accept().expect("a connection");
    // Landlock knows of ports since Linux 6.7.
    if landlock_version() >= 4 {
        check("landlock", &["net namespace"], "connect", &port, "EACCES", &["connected"]).await;
        listener.accept().expect("a connection");
    }
    assert!(listener.accept().is_err(), "no other was ever made");
}

fn landlock_version() -> libc::c_long {
    const VERSION: libc::c_long = 1;
    // SAFETY: asked for its version, the call takes no attributes.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0, VERSION) }
}

#[tokio::test]
async fn the_machine_has_no_name() {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_ne!(name, "sandbox");
    check("uts namespace", &[], "node name", "", "sandbox", &[&name]).await;
}

#[tokio::test]
async fn shared_memory_of_others_is_not_there() {
    const KEY: libc::key_t = 0x7f17;
    // SAFETY: no memory is involved; the segment is taken away below.
    let id = unsafe { libc::shmget(KEY + std::process::id() as i32, 4096, libc::IPC_CREAT | 0o666) };
    assert!(id >= 0);
    let key = (KEY + std::process::id() as i32).to_string();
    check("ipc namespace", &[], "shared memory", &key, "ENOENT", &["found"]).await;
    // SAFETY: no memory is involved.
    unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
}

#[tokio::test]
async fn processes_outside_can_not_be_named() {
    let own = std::process::id().to_string();
    // Without the layer it can be named; whether it could be signalled is up to its user.
    check("pid namespace", &["landlock"], "signal", &own, "ESRCH", &["EPERM", "could"]).await;
}

#[tokio::test]
async fn there_are_no_capabilities() {
    check("no capabilities", &[], "capabilities", "", "EPERM", &["renamed the machine"]).await;
}

#[tokio::test]
async fn rights_can_not_be_gained() {
    check("no new privileges", &["landlock"], "privileges", "", "1", &["0"]).await;
}

#[tokio::test]
async fn resources_are_limited() {
    let expected = "core 0 file 0 queue 0 lock 0 stack 8388608 descriptors 24";
    let broken = Broken::without(&[FILTER]).await;
    assert_eq!(broken.found("limits", "").await, expected);
    assert!(broken.found("many descriptors", "").await.ends_with("and EMFILE"));
    assert!(["EPERM", "ENOMEM"].contains(&broken.found("lock memory", "").await.as_str()));
    broken.end().await;
    let broken = Broken::without(&[FILTER, "resource limits"]).await;
    assert_ne!(broken.found("limits", "").await, expected);
    broken.end().await;
}

#[tokio::test]
async fn a_call_dies_with_its_template() {
    check("parent-death signal", &[], "parent death", "", "9", &["0"]).await;
}

#[tokio::test]
async fn a_call_has_its_socket_and_no_other_descriptor() {
    let broken = Broken::without(&[FILTER]).await;
    assert_eq!(broken.found("descriptors", "").await, "1");
    broken.end().await;
    let broken = Broken::without(&[FILTER, "closed descriptors"]).await;
    assert_ne!(broken.found("descriptors", "").await, "1");
    broken.end().await;
}

#[tokio::test]
async fn the_environment_is_empty() {
    assert!(std::env::vars_os().count() > 0, "this test's own is not");
    let broken = Broken::without(&[FILTER]).await;
    assert_eq!(broken.found("environment", "").await, "");
    broken.end().await;
}

#[tokio::test]
async fn nothing_of_another_call_is_in_memory() {
    use crate::{TestHost, request, tool};
    use serde_json::json;
    use std::sync::Arc;
    let broken = Broken::without(&[FILTER, "landlock", "empty root", "mount namespace"]).await;
    // In this process's memory, in an earlier call of the same template, and in another account's.
    let secret = format!("{}{}", "sesame-", "open-4711");
    let code = tool("(x) => x.n + 1");
    for account in ["acme", "other"] {
        let mut earlier = request(&code, json!({ "n": 1, "secret": secret }));
        earlier.account = toolfleet_protocol::AccountId::parse(account).expect("an account");
        broken.sandbox.run(earlier, Arc::new(TestHost::default())).await;
    }
    let limits = Limits { wall_ms: 20_000, ..Limits::BASE };
    let search = async |text| crate::told(&broken.attack_within("search memory", text, limits).await);
    assert_eq!(search("sesame-|open-4711").await, "found 0");
    assert!(!secret.is_empty());
    // The search itself finds what is there: the plugin's own code.
    let found = search("globalThis.|tools.t").await;
    assert!(found.starts_with("found ") && found != "found 0", "{found}");
    broken.end().await;
}

/// Seen from outside, where only root may look.
#[tokio::test]
async fn every_namespace_is_its_own_and_the_user_nobody() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let layers = ["user namespace", "mount namespace", "net namespace", "ipc namespace", "uts namespace"];
    let links = ["user", "mnt", "net", "ipc", "uts"];
    let (own, uid) = seen_from_outside(&[]).await;
    assert!(own.iter().all(|(_, own)| *own), "{own:?}");
    assert_ne!(uid, "0");
    let pairs = layers.iter().zip(links).chain([(&"cgroup namespace", "cgroup"), (&"pid namespace", "pid")]);
    for (layer, link) in pairs {
        let (own, _) = seen_from_outside(&[FILTER, "landlock", "empty root", layer]).await;
        let is_own = own.iter().find(|(name, _)| *name == link).expect("a namespace").1;
        assert!(!is_own, "{layer} was left out: {own:?}");
    }
    assert_eq!(seen_from_outside(&[FILTER, "uid"]).await.1, "0");
}

/// Which namespaces of a running call differ from this process's, and who it is.
async fn seen_from_outside(without: &[&str]) -> (Vec<(&'static str, bool)>, String) {
    use toolfleet_hostile::processes_below;
    let broken = Broken::without(without).await;
    let waits = crate::tool("() => new Promise(done => setTimeout(done, 900))");
    let call = broken
        .sandbox
        .run(crate::request(&waits, serde_json::json!({})), std::sync::Arc::new(crate::TestHost::default()));
    let look = async {
        loop {
            if let Some(pid) = processes_below("tf-call").first() {
                let names = ["user", "mnt", "net", "ipc", "uts", "cgroup", "pid"];
                let link = |process: &str, name: &str| std::fs::read_link(format!("/proc/{process}/ns/{name}")).ok();
                let own = names.map(|name| (name, link(&pid.to_string(), name) != link("self", name)));
                let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
                let uid = uid.and_then(|uid| uid.split_whitespace().next()).map(str::to_owned);
                // One that is gone already tells nothing.
                let is_there = names.iter().all(|name| link(&pid.to_string(), name).is_some());
                if let (Some(uid), true) = (uid, is_there) {
                    return (own.to_vec(), uid);
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    // The call ends by its own limit, or is seen before.
    let seen = tokio::select! {
        _ = call => panic!("the call was not seen"),
        seen = look => seen,
    };
    broken.end().await;
    seen
}
