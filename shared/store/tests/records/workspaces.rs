//! Files of a workspace.

use crate::effects::effect;
use crate::{Fixture, account, agent, on_each_store, with_lost_answers};
use bytes::Bytes;
use toolfleet_protocol::host::WorkspaceFile;
use toolfleet_store::records::{FILE_BYTES_MAX, QUOTA_BYTES, WorkspaceError, WorkspaceOwner, WorkspacePathBuf};
use toolfleet_store::{Key, Op, Reply, StoreError, Transacted, Transaction};

on_each_store! {
    a_file_reads_back_as_it_was_written,
    each_owner_has_files_of_its_own,
    files_are_listed_in_the_order_of_their_paths,
    an_etag_guards_a_file,
    of_writers_over_one_etag_exactly_one_wins,
    the_counter_stays_right_under_many_writers,
    the_quota_holds_against_writers_at_once,
    a_file_has_a_largest_size,
    a_write_of_one_effect_happens_once,
    writing_survives_a_lost_answer,
    a_damaged_file_is_named,
}

fn owner() -> WorkspaceOwner {
    WorkspaceOwner::Agent(account(), agent())
}

fn path(text: &str) -> WorkspacePathBuf {
    WorkspacePathBuf::parse(text).unwrap()
}

fn key(owner: &WorkspaceOwner, path: &str) -> Key {
    match owner {
        WorkspaceOwner::Agent(account, agent) => Key::new(&format!("workspace:{account}:{agent}"), path),
        WorkspaceOwner::Shared(account) => Key::new(&format!("workspace:{account}"), path),
    }
}

async fn write(fixture: &Fixture, owner: &WorkspaceOwner, to: &str, content: &str) -> WorkspaceFile {
    let content = Bytes::copy_from_slice(content.as_bytes());
    fixture.records.workspace_write(owner, &path(to), content, None, None, 1).await.unwrap()
}

/// What the workspace's counter says.
async fn counted(fixture: &Fixture, owner: &WorkspaceOwner) -> u64 {
    let then = vec![Op::Get(key(owner, "bytes"))];
    match fixture.records.store().transact(Transaction { then, ..Transaction::default() }).await.unwrap() {
        Transacted::Then(replies) => match &replies[..] {
            [Reply::Value(Some(value))] => std::str::from_utf8(value).unwrap().parse().unwrap(),
            [Reply::Value(None)] => 0,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

async fn a_file_reads_back_as_it_was_written(fixture: Fixture) {
    let records = &fixture.records;
    let owner = owner();
    let at = path("notes/{a} ü.md");
    assert!(records.workspace_read(&owner, &at).await.unwrap().is_none());
    assert!(records.workspace_stat(&owner, &at).await.unwrap().is_none());
    let content = Bytes::from_static(b"\x00\xffbytes\r\n");
    let written = records.workspace_write(&owner, &at, content.clone(), None, None, 42).await.unwrap();
    assert_eq!((written.path.as_str(), written.size, written.modified_at_ms), ("notes/{a} ü.md", 9, 42));
    assert_eq!(records.workspace_read(&owner, &at).await.unwrap(), Some((written.clone(), content)));
    assert_eq!(records.workspace_stat(&owner, &at).await.unwrap(), Some(written.clone()));

    let emptied = records.workspace_write(&owner, &at, Bytes::new(), None, None, 43).await.unwrap();
    assert_eq!(emptied.etag, "e3b0c44298fc1c149afbf4c8996fb924", "half of SHA-256 of nothing");
    assert_eq!(records.workspace_read(&owner, &at).await.unwrap(), Some((emptied, Bytes::new())));
    assert_eq!(counted(&fixture, &owner).await, 0);
}

async fn each_owner_has_files_of_its_own(fixture: Fixture) {
    let records = &fixture.records;
    let (one, other, agent_id) = (account(), account(), agent());
    let owners = [
        WorkspaceOwner::Agent(one.clone(), agent_id.clone()),
        WorkspaceOwner::Agent(one.clone(), agent()),
        WorkspaceOwner::Agent(other.clone(), agent_id),
        WorkspaceOwner::Shared(one),
        WorkspaceOwner::Shared(other),
    ];
    for (number, owner) in owners.iter().enumerate() {
        assert!(records.workspace_list(owner, None, None, 10).await.unwrap().files.is_empty());
        write(&fixture, owner, "a", &number.to_string()).await;
    }
    for (number, owner) in owners.iter().enumerate() {
        let (_, content) = records.workspace_read(owner, &path("a")).await.unwrap().unwrap();
        assert_eq!(content, number.to_string());
    }
}

async fn files_are_listed_in_the_order_of_their_paths(fixture: Fixture) {
    let records = &fixture.records;
    let owner = owner();
    for name in ["b", "a/2", "a/1", "a", "c/d/e", "ä"] {
        write(&fixture, &owner, name, name).await;
    }
    let list = async |prefix: Option<&str>, after: Option<&str>, limit: u32| {
        let listing = records.workspace_list(&owner, prefix, after, limit).await.unwrap();
        let paths: Vec<String> = listing.files.into_iter().map(|file| file.path).collect();
        (paths.join(" "), listing.next)
    };
    assert_eq!(list(None, None, 1000).await, ("a a/1 a/2 b c/d/e ä".into(), None));
    assert_eq!(list(None, None, 2).await, ("a a/1".into(), Some("a/1".into())));
    assert_eq!(list(None, Some("a/1"), 4).await, ("a/2 b c/d/e ä".into(), None));
    assert_eq!(list(Some("a/"), None, 1000).await, ("a/1 a/2".into(), None));
    assert_eq!(list(Some("./a/"), None, 1).await, ("a/1".into(), Some("a/1".into())));
    assert_eq!(list(Some("a/"), Some("a/1"), 1).await, ("a/2".into(), None));
    assert_eq!(list(Some("../"), None, 1000).await, (String::new(), None));
    let file = records.workspace_list(&owner, Some("c"), None, 1).await.unwrap().files.remove(0);
    assert_eq!(Some(file), records.workspace_stat(&owner, &path("c/d/e")).await.unwrap());
}

async fn an_etag_guards_a_file(fixture: Fixture) {
    let records = &fixture.records;
    let (owner, at) = (owner(), path("a"));
    let write = |content: &'static str, etag: Option<&str>| {
        let (content, etag) = (Bytes::from_static(content.as_bytes()), Some(etag.map(str::to_owned)));
        records.workspace_write(&owner, &at, content, etag, None, 1)
    };
    let error = write("1", Some("other")).await.unwrap_err();
    assert!(matches!(&error, WorkspaceError::Conflict { found: None, .. }), "{error}");
    assert!(error.to_string().contains("must be \"other\", and is absent"), "{error}");
    let first = write("1", None).await.unwrap();
    let error = write("2", None).await.unwrap_err();
    assert!(
        matches!(&error, WorkspaceError::Conflict { expected: None, found: Some(e), .. } if *e == first.etag),
        "{error}"
    );
    let second = write("2", Some(&first.etag)).await.unwrap();
    assert_ne!(second.etag, first.etag);
    assert!(matches!(write("3", Some(&first.etag)).await, Err(WorkspaceError::Conflict { .. })));
    assert_eq!(records.workspace_read(&owner, &at).await.unwrap().unwrap().1, "2");
}

async fn of_writers_over_one_etag_exactly_one_wins(fixture: Fixture) {
    let (owner, at) = (owner(), path("a"));
    let mut etag = None;
    for _ in 0..5 {
        let writes = (0..20).map(|number| {
            let (records, owner, at, etag) = (fixture.records.clone(), owner.clone(), at.clone(), etag.clone());
            let content = Bytes::from(crate::unique().repeat(number + 1));
            tokio::spawn(async move { records.workspace_write(&owner, &at, content, Some(etag), None, 1).await })
        });
        let written = futures::future::join_all(writes).await;
        let mut won = Vec::new();
        for outcome in written {
            match outcome.unwrap() {
                Ok(file) => won.push(file),
                Err(WorkspaceError::Conflict { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        let [file] = &won[..] else { panic!("{won:?}") };
        assert_eq!(fixture.records.workspace_stat(&owner, &at).await.unwrap().as_ref(), Some(file));
        assert_eq!(counted(&fixture, &owner).await, file.size);
        etag = Some(file.etag.clone());
    }
}

async fn the_counter_stays_right_under_many_writers(fixture: Fixture) {
    let owner = owner();
    let writes = (0..60_usize).map(|number| {
        let (records, owner) = (fixture.records.clone(), owner.clone());
        let (at, content) = (path(&format!("f{}", number % 7)), Bytes::from(vec![b'x'; 1 + number * 13 % 50]));
        tokio::spawn(async move { records.workspace_write(&owner, &at, content, None, None, 1).await })
    });
    for outcome in futures::future::join_all(writes).await {
        outcome.unwrap().unwrap();
    }
    let files = fixture.records.workspace_list(&owner, None, None, 100).await.unwrap().files;
    assert_eq!(files.len(), 7);
    assert_eq!(counted(&fixture, &owner).await, files.iter().map(|file| file.size).sum::<u64>());
}

async fn the_quota_holds_against_writers_at_once(fixture: Fixture) {
    let records = &fixture.records;
    let owner = owner();
    // As if all but ten bytes were used.
    let value = Bytes::from((QUOTA_BYTES - 10).to_string());
    let then = vec![Op::Set { key: key(&owner, "bytes"), value, expires_in: None }];
    records.store().transact(Transaction { then, ..Transaction::default() }).await.unwrap();

    let writes = (0..20).map(|number| {
        let (records, owner) = (records.clone(), owner.clone());
        let at = path(&format!("f{number}"));
        tokio::spawn(async move { records.workspace_write(&owner, &at, "three".into(), None, None, 1).await })
    });
    let mut written = 0;
    for outcome in futures::future::join_all(writes).await {
        match outcome.unwrap() {
            Ok(_) => written += 1,
            Err(WorkspaceError::Quota { quota_bytes: QUOTA_BYTES, wanted_bytes: 5, .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(written, 2);
    assert_eq!(counted(&fixture, &owner).await, QUOTA_BYTES);
    let listed = records.workspace_list(&owner, None, None, 100).await.unwrap().files;
    // Where nothing more goes in, a file can still be made smaller, and then another larger.
    write(&fixture, &owner, &listed[0].path, "thre").await;
    let at = path(&listed[1].path);
    assert!(records.workspace_write(&owner, &at, "threeee".into(), None, None, 1).await.is_err());
    write(&fixture, &owner, &listed[1].path, "threee").await;
}

async fn a_file_has_a_largest_size(fixture: Fixture) {
    let (owner, at) = (owner(), path("a"));
    let largest = Bytes::from(vec![0; FILE_BYTES_MAX as usize]);
    let over = Bytes::from(vec![0; FILE_BYTES_MAX as usize + 1]);
    let error = fixture.records.workspace_write(&owner, &at, over, None, None, 1).await.unwrap_err();
    assert!(matches!(error, WorkspaceError::TooLarge { bytes_max: FILE_BYTES_MAX, .. }), "{error}");
    assert!(fixture.records.workspace_stat(&owner, &at).await.unwrap().is_none());
    fixture.records.workspace_write(&owner, &at, largest.clone(), None, None, 1).await.unwrap();
    assert_eq!(fixture.records.workspace_read(&owner, &at).await.unwrap().unwrap().1, largest);
}

async fn a_write_of_one_effect_happens_once(fixture: Fixture) {
    let records = &fixture.records;
    let (owner, at, effect) = (owner(), path("a"), effect());
    let write = |now_ms| records.workspace_write(&owner, &at, "x".into(), Some(None), Some(&effect), now_ms);
    let first = write(1).await.unwrap();
    let over = records.workspace_write(&owner, &at, "other".into(), None, None, 2).await.unwrap();
    // Its etag no longer holds, and it would undo what came after: it is only answered.
    assert_eq!(write(3).await.unwrap(), first);
    assert_eq!(records.workspace_stat(&owner, &at).await.unwrap(), Some(over));
}

async fn writing_survives_a_lost_answer(fixture: Fixture) {
    let at = path("a");
    let repeated = with_lost_answers!(fixture, it = (owner(), effect()), {
        fixture.records.workspace_write(&it.0, &at, "abc".into(), Some(None), Some(&it.1), 1)
    });
    for (file, (owner, _)) in repeated {
        assert_eq!(fixture.records.workspace_stat(&owner, &at).await.unwrap(), Some(file));
        assert_eq!(counted(&fixture, &owner).await, 3);
    }
}

async fn a_damaged_file_is_named(fixture: Fixture) {
    let (owner, at) = (owner(), path("dir/a"));
    write(&fixture, &owner, "dir/a", "x").await;
    let then = vec![Op::FieldsSet { key: key(&owner, "meta"), fields: vec![("dir/a".into(), "{}".into())] }];
    fixture.records.store().transact(Transaction { then, ..Transaction::default() }).await.unwrap();
    let check = |error: StoreError| match error {
        StoreError::Corrupt { record, .. } => assert!(record.contains("dir/a"), "{record}"),
        other => panic!("{other}"),
    };
    check(fixture.records.workspace_stat(&owner, &at).await.unwrap_err());
    check(fixture.records.workspace_read(&owner, &at).await.unwrap_err());
    check(fixture.records.workspace_list(&owner, None, None, 10).await.unwrap_err());
    match fixture.records.workspace_write(&owner, &at, "y".into(), None, None, 1).await.unwrap_err() {
        WorkspaceError::Store(error) => check(error),
        other => panic!("{other}"),
    }
}
