//! The sandbox's processes, seen and killed from outside. One test at a time: they look at all processes below this one.

mod support;

use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{TestHost, failure, request, run, sandbox, tool, value};
use tokio::sync::Mutex;
use toolfleet_protocol::*;
use toolfleet_worker::isolation::Host;

static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Processes of the sandbox below this test, by name.
fn processes(name: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        if stat.contains(&format!("({name})")) && is_below(pid, std::process::id()) {
            found.push(pid);
        }
    }
    found
}

fn is_below(mut pid: u32, above: u32) -> bool {
    while pid > 1 {
        if pid == above {
            return true;
        }
        let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
        pid = parent.unwrap_or(0);
    }
    false
}

#[tokio::test]
async fn a_process_killed_from_outside_crashed_and_leaves_nothing() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let sandbox = Arc::new(sandbox().await);
    let code = tool("() => new Promise(r => setTimeout(r, 900))");
    let running = {
        let sandbox = Arc::clone(&sandbox);
        tokio::spawn(async move { sandbox.run(request(&code, json!({})), Arc::new(TestHost::default())).await })
    };
    let end = Instant::now() + Duration::from_secs(5);
    let pid = loop {
        let now = processes("tf-call");
        if let [pid] = now[..] {
            break pid;
        }
        assert!(Instant::now() < end, "one call runs, and {now:?} are seen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    let end = running.await.unwrap();
    let error = failure(&end);
    assert_eq!(error.kind, FailureKind::Crashed, "{error:?}");
    assert!(error.message.contains("SIGKILL"), "{error:?}");
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "it is reaped");
    assert_eq!(value(&run(&sandbox, "() => 1", json!({})).await), json!(1));
    sandbox.shutdown().await;
}

#[tokio::test]
async fn accounts_never_share_a_template_and_a_process_holds_no_secret() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let sandbox = sandbox().await;
    let code = tool("() => new Promise(r => setTimeout(() => r(1), 300))") + "// two accounts";
    let mut other = request(&code, json!({}));
    other.account = AccountId::parse("other").unwrap();
    let host: Arc<dyn Host> = Arc::new(TestHost::default());
    let look = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        // Each template with a call in it, and what it was started with: nothing.
        let calls = processes("tf-call");
        assert_eq!((calls.len(), processes("tf-template").len(), processes("tf-root").len()), (2, 2, 1));
        for pid in calls.iter().chain(&processes("tf-template")).chain(&processes("tf-root")) {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            assert!(environment.is_empty(), "{}", String::from_utf8_lossy(&environment));
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
            assert!(uid.is_none_or(|uid| !uid.split_whitespace().any(|uid| uid == "0")), "{status}");
        }
    };
    let (first, second, ()) = tokio::join!(
        sandbox.run(request(&code, json!({})), Arc::clone(&host)),
        sandbox.run(other, Arc::clone(&host)),
        look
    );
    assert_eq!((value(&first), value(&second)), (json!(1), json!(1)));
    sandbox.shutdown().await;
}

#[tokio::test]
async fn the_end_of_the_root_is_survived() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let sandbox = Arc::new(sandbox().await);
    assert_eq!(value(&run(&sandbox, "() => 1", json!({})).await), json!(1));
    let root = processes("tf-root");
    assert_eq!(root.len(), 1);
    let own = root[0];
    std::process::Command::new("kill").args(["-9", &own.to_string()]).status().unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        // What runs at that moment crashes; what comes after runs in a new root.
        let after = run(&sandbox, "() => 2", json!({})).await;
        if matches!(after.outcome, Outcome::Ok { .. }) {
            break;
        }
        assert!(Instant::now() < end, "{after:?}");
    }
    sandbox.shutdown().await;
}
