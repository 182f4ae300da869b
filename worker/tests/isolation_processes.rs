//! The sandbox's processes, seen and killed from outside. One test at a time: they look at all processes below this one.

mod support;

use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{TestHost, failure, request, run, sandbox, slowness, tool, value};
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
    found.sort_unstable();
    found
}

fn is_below(mut pid: u32, above: u32) -> bool {
    while pid > 1 {
        if pid == above {
            return true;
        }
        pid = parent(pid);
    }
    false
}

/// 0 for a process that is gone.
fn parent(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok()).unwrap_or(0)
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
async fn accounts_share_no_process_that_ran_plugin_code_and_none_holds_a_secret() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let sandbox = sandbox().await;
    let code = tool("() => host.settings.get('600000')") + "// two accounts";
    let (mut first, mut second) = (request(&code, json!({})), request(&code, json!({})));
    (first.limits.wall_ms, second.limits.wall_ms) = (60_000, 60_000);
    second.account = AccountId::parse("other").unwrap();
    let cancels = [first.cancel.clone(), second.cancel.clone()];
    let host: Arc<dyn Host> = Arc::new(TestHost::default());
    let look = async {
        let end = Instant::now() + Duration::from_secs(5 * slowness());
        while processes("tf-call").len() < 2 {
            assert!(Instant::now() < end, "two calls never ran at once");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (calls, templates, roots) = (processes("tf-call"), processes("tf-template"), processes("tf-root"));
        assert_eq!((calls.len(), templates.len(), roots.len()), (2, 2, 1));
        // Above each call is a template of its own, and above that the root, in which no plugin's code ever is.
        let mut above: Vec<u32> = calls.iter().map(|call| parent(*call)).collect();
        above.sort_unstable();
        assert_eq!(above, templates);
        assert!(templates.iter().all(|template| parent(*template) == roots[0]));
        // What each was started with: nothing.
        for pid in calls.iter().chain(&templates).chain(&roots) {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            assert!(environment.is_empty(), "{}", String::from_utf8_lossy(&environment));
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
            assert!(uid.is_none_or(|uid| !uid.split_whitespace().any(|uid| uid == "0")), "{status}");
        }
        cancels.iter().for_each(tokio_util::sync::CancellationToken::cancel);
    };
    let (first, second, ()) =
        tokio::join!(sandbox.run(first, Arc::clone(&host)), sandbox.run(second, Arc::clone(&host)), look);
    for end in [&first, &second] {
        assert_eq!(failure(end).kind, FailureKind::Cancelled, "{end:?}");
    }
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
