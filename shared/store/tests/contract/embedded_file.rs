//! What the embedded store's file outlives.

use crate::{fields, rank, ranked, set, value};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use toolfleet_store::embedded::EmbeddedStore;
use toolfleet_store::{Key, Op, Reply, Store, StoreError, Transacted, Transaction};

const BOUND: Duration = Duration::from_secs(20);
/// Holds the path of the file that a child of this test writes.
const CHILD_FILE: &str = "TOOLFLEET_TEST_CRASH_FILE";
/// Numbers acknowledged before the child is killed.
const ACKNOWLEDGED: u64 = 300;

/// The writer's thread lets go of the file some moments after the store.
async fn reopen(path: &Path) -> EmbeddedStore {
    let end = Instant::now() + BOUND;
    loop {
        match EmbeddedStore::open(path) {
            Ok(store) => return store,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn all(store: &EmbeddedStore, then: Vec<Op>) -> Vec<Reply> {
    match store.transact(Transaction { then, ..Transaction::default() }).await.unwrap() {
        Transacted::Then(replies) => replies,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_file_opened_again_has_every_kind_and_its_expiry() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let key = |path: &str| Key::new("t", path);
    let stream = || Op::Latest { key: key("s"), before: None, limit: 9 };
    let append = || Op::Append { key: key("s"), value: "x".into(), keep: 9 };
    let (entries, soon) = {
        let store = EmbeddedStore::open(&path).unwrap();
        all(&store, vec![set(&key("v"), "1"), fields(&key("h"), &[("f", b"2")]), rank(&key("r"), "m", 3)]).await;
        let soon = Op::Set { key: key("soon"), value: "x".into(), expires_in: Some(Duration::from_millis(50)) };
        all(&store, vec![append(), append(), soon]).await;
        (all(&store, vec![stream()]).await, Instant::now())
    };
    let store = reopen(&path).await;
    let range = Op::Ranked { key: key("r"), min: 0, max: 9, limit: 9, descending: false };
    let kept = all(&store, vec![Op::Get(key("v")), Op::FieldsGet(key("h")), range]).await;
    assert_eq!(kept, [value("1"), Reply::Fields(vec![("f".into(), "2".into())]), ranked(&[("m", 3)])]);
    assert_eq!(all(&store, vec![stream()]).await, entries);
    let Reply::Entries(before) = &entries[0] else { panic!("{entries:?}") };
    let Reply::Appended(next) = all(&store, vec![append()]).await.remove(0) else { panic!("no position") };
    assert!(next > before[1].position, "{next} comes after {before:?}");
    tokio::time::sleep_until((soon + Duration::from_millis(60)).into()).await;
    assert_eq!(all(&store, vec![Op::Get(key("soon"))]).await, [Reply::Value(None)]);
}

#[tokio::test]
async fn a_file_of_something_else_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let text = "somebody's letter\n".repeat(1000);
    std::fs::write(&path, &text).unwrap();
    let error = EmbeddedStore::open(&path).err().expect("it is no store");
    assert!(matches!(&error, StoreError::File { path: named, .. } if *named == path.display().to_string()), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    let error = EmbeddedStore::open(&folder.path().join("no/such/folder")).err().expect("there is no such folder");
    assert!(matches!(error, StoreError::File { .. }), "{error}");
}

fn number_key(number: u64) -> Key {
    Key::new("crash", &format!("number/{number}"))
}

/// The child: writes numbers and tells each that was acknowledged, until it is killed. Does nothing by itself.
#[expect(clippy::print_stdout, reason = "its parent reads what was acknowledged")]
#[tokio::test(flavor = "multi_thread")]
async fn child_that_writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD_FILE).map(PathBuf::from) else { return };
    let store = EmbeddedStore::open(&path).unwrap();
    // Several at once, so that it is killed in the middle of groups.
    let writers = (0..8).map(|lane| {
        let store = &store;
        async move {
            for number in (lane..u64::MAX).step_by(8) {
                let append = Op::Append { key: Key::new("crash", "all"), value: "x".into(), keep: 1_000_000 };
                all(store, vec![set(&number_key(number), number.to_string()), append]).await;
                println!("acknowledged {number}");
            }
        }
    });
    futures::future::join_all(writers).await;
}

#[tokio::test]
async fn what_was_acknowledged_outlives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "embedded_file::child_that_writes_until_it_is_killed", "--nocapture"])
        .env(CHILD_FILE, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut acknowledged = Vec::new();
    // It ends when the child's output does; that is killed half-way and what it had still told is read too.
    for line in lines {
        let Some((_, number)) = line.split_once("acknowledged ") else { continue };
        // A line that the kill cut short may tell another number: the last ones count only if whole.
        acknowledged.extend(number.parse::<u64>());
        if acknowledged.len() as u64 == ACKNOWLEDGED {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(acknowledged.len() as u64 >= ACKNOWLEDGED, "the child ended after {}", acknowledged.len());
    acknowledged.truncate(acknowledged.len() - 1);
    let store = reopen(&path).await;
    for number in &acknowledged {
        let kept = all(&store, vec![Op::Get(number_key(*number))]).await;
        assert_eq!(kept, [Reply::Value(Some(number.to_string().into()))], "{number} was acknowledged");
    }
    let latest = Op::Latest { key: Key::new("crash", "all"), before: None, limit: 1_000_000 };
    let Reply::Entries(entries) = all(&store, vec![latest]).await.remove(0) else { panic!("no entries") };
    assert!(entries.len() >= acknowledged.len(), "{} of {}", entries.len(), acknowledged.len());
}
