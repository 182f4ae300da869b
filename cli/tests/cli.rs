//! What a person types, and what they are told when it is wrong: where, and what would be right.

use std::path::Path;
use std::process::{Command, Output};

fn run(args: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_toolfleet"))
        .args(args)
        .envs(environment.iter().copied())
        .env_remove("TOOLFLEET_URL")
        .stdin(std::process::Stdio::null())
        .output()
        .expect("the binary starts")
}

#[track_caller]
fn check(args: &[&str], environment: &[(&str, &str)], code: i32, told: &[&str]) {
    let output = run(args, environment);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
    for told in told {
        assert!(error.contains(told), "{args:?} does not say {told:?}: {error}");
    }
    assert!(output.stdout.is_empty(), "{args:?} prints its error on stderr alone");
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_configuration_that_is_wrong_is_told_by_key_and_file() {
    let folder = tempfile::tempdir().unwrap();
    let check_file = |text: &str, told: &[&str]| {
        let file = write(folder.path(), "toolfleet.toml", text);
        check(&["doctor", "--config", &file], &[], 2, told);
    };
    check_file("[worker]\nslotz = 4\n", &["slotz", "slots", "toolfleet.toml"]);
    check_file("[worker]\nslots = \"many\"\n", &["worker.slots", "many"]);
    check_file("[wroker]\n", &["wroker", "worker"]);
    check_file("[queue]\nkind = \"kafka\"\n", &["kafka", "rabbitmq"]);
    check_file("[queue]\nkind = \"rabbitmq\"\n", &["url"]);
    check_file("[worker\n", &["toolfleet.toml"]);
    check(&["doctor", "--config", "/no/such/file.toml"], &[], 2, &["/no/such/file.toml"]);
    check(&["doctor"], &[("TOOLFLEET_WORKER__SLOTZ", "4")], 2, &["slotz"]);
    check(&["doctor"], &[("TOOLFLEET_WORKER__SLOTS", "few")], 2, &["few"]);
}

#[test]
fn a_role_without_what_it_needs_says_so() {
    check(&["worker"], &[], 2, &["[queue]", "rabbitmq"]);
    check(&["scheduler"], &[("TOOLFLEET_SCHEDULER__LISTEN", "127.0.0.1:0")], 2, &["[queue]", "rabbitmq"]);
    let folder = tempfile::tempdir().unwrap();
    let open = write(folder.path(), "open.toml", "[scheduler]\nlisten = \"0.0.0.0:0\"\n");
    check(&["scheduler", "--config", &open], &[], 2, &["api.tokens", "0.0.0.0"]);
    let text = "[queue]\nkind = \"rabbitmq\"\nurl = \"amqp://u:hunter2@127.0.0.1:1/%2f\"\n\
                [store]\nkind = \"redis\"\nurl = \"redis://:hunter2@127.0.0.1:1/\"\n";
    let file = write(folder.path(), "gone.toml", text);
    for role in ["worker", "scheduler"] {
        let args = [role, "--config", &file];
        let output = run(&args, &[("TOOLFLEET_SCHEDULER__LISTEN", "127.0.0.1:0")]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{role}: {error}");
        assert!(error.contains("127.0.0.1:1") && !error.contains("hunter2"), "{role}: {error}");
    }
    let many = write(folder.path(), "many.toml", &format!("{text}[worker]\nslots = 60000\n").replace(":1/", ":1/"));
    let output = run(&["doctor", "--config", &many], &[]);
    assert_eq!(output.status.code(), Some(3), "a broker that is not reachable");
}

#[test]
fn a_command_that_is_wrong_is_told() {
    check(&["no-such"], &[], 2, &["no-such"]);
    check(&["demo", "--calls", "0"], &[], 2, &["--calls"]);
    check(&["demo", "--calls", "x"], &[], 2, &["--calls"]);
    check(&["dev", "/no/such/folder"], &[], 2, &["/no/such/folder"]);
    check(&["dev", "--listen", "here"], &[], 2, &["--listen"]);
    check(&["plugin", "check", "/no/such/folder"], &[], 2, &["/no/such/folder"]);
    check(&["plugin", "init", "/tmp/Bad Name"], &[], 2, &["plugin slug must be"]);
    check(&["call", "a", "b__c", "--input", "{"], &[], 2, &["--input"]);
    check(&["call", "a", "b__c", "--url", "ftp://x"], &[], 2, &["--url"]);
    check(&["call", "a", "b__c", "--url", "http://127.0.0.1:1"], &[], 3, &["http://127.0.0.1:1"]);
    check(&["plugin", "run", "/tmp", "Bad-Name"], &[], 2, &["tool name must be"]);
}

#[test]
fn from_an_empty_folder_to_a_tool_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("my-plugin");
    let plugin = plugin.to_str().unwrap();
    assert_eq!(run(&["plugin", "init", plugin], &[]).status.code(), Some(0));
    check(&["plugin", "init", plugin], &[], 2, &["not an empty folder"]);
    let checked = run(&["plugin", "check", plugin, "--json"], &[]);
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stdout));
    let release: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    let tool = release["tools"][0]["name"].as_str().expect("the scaffold has a tool").to_owned();
    let ran = run(&["plugin", "run", plugin, &tool, "--json"], &[]);
    let result: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(result["callId"].as_str().map(str::len), Some(36), "{result:#}");
}

#[test]
fn problems_name_file_line_and_column_and_exit_1() {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        "plugin.json",
        r#"{"slug": "bad", "version": "1.0.0", "name": "Bad", "description": "Is.", "entry": "a.ts"}"#,
    );
    write(
        folder.path(),
        "a.ts",
        "globalThis.tools.Bad = { description: 'x', handler: () => 1 };\nglobalThis.tools.ok = async () => 1;\n",
    );
    let output = run(&["plugin", "check", folder.path().to_str().unwrap()], &[]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("a.ts:1:") && told.contains("a.ts:2:"), "{told}");
    let output = run(&["plugin", "check", folder.path().to_str().unwrap(), "--json"], &[]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let problems = told["problems"].as_array().expect("problems are a list");
    assert!(
        problems.len() >= 2 && problems.iter().all(|one| one["code"].is_string() && one["remedy"].is_string()),
        "{told:#}"
    );
}

#[test]
fn doctor_lists_every_layer() {
    let output = run(&["doctor", "--json"], &[]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let layers = report["isolation"].as_array().expect("layers are a list");
    assert!(layers.len() > 10, "{report:#}");
    for layer in layers {
        let state = layer["state"].as_str().unwrap_or_default();
        assert!(matches!(state, "inForce" | "degraded" | "missing"), "{layer:#}");
        assert!(state == "inForce" || layer["costs"].as_str().is_some_and(|costs| !costs.is_empty()), "{layer:#}");
    }
}
