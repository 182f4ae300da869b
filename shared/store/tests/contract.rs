//! What every store promises, held against each make: the embedded file, and a real Redis.

#[path = "contract/edges.rs"]
mod edges;
#[path = "contract/embedded_file.rs"]
mod embedded_file;

use bytes::Bytes;
use edges::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use toolfleet_store::embedded::EmbeddedStore;
use toolfleet_store::redis::{RedisConfig, RedisStore};
use toolfleet_store::{Guard, Key, Op, Position, Reply, Store, StoreError, Transacted, Transaction};

/// A store, and a tag that no other test uses.
struct Place {
    store: Arc<dyn Store>,
    tag: String,
    _folder: Option<tempfile::TempDir>,
}

fn redis_config(url: String) -> RedisConfig {
    RedisConfig { url, connect_timeout_ms: 5_000, response_timeout_ms: 5_000 }
}

async fn embedded() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(&folder.path().join("store")).unwrap());
    Place { store, tag: "contract".into(), _folder: Some(folder) }
}

async fn redis() -> Place {
    static TAGS: AtomicU32 = AtomicU32::new(0);
    let url = std::env::var("TOOLFLEET_TEST_REDIS").expect("TOOLFLEET_TEST_REDIS is not set: run tests/run");
    let store = Arc::new(RedisStore::connect(redis_config(url)).await.unwrap());
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let tag = format!("contract-{started}-{}", TAGS.fetch_add(1, Ordering::Relaxed));
    Place { store, tag, _folder: None }
}

impl Place {
    fn key(&self, path: &str) -> Key {
        Key::new(&self.tag, path)
    }

    async fn transact(&self, guards: Vec<Guard>, then: Vec<Op>, otherwise: Vec<Op>) -> Transacted {
        self.store.transact(Transaction { guards, then, otherwise }).await.unwrap()
    }

    /// Replies of operations without guards.
    async fn all(&self, then: Vec<Op>) -> Vec<Reply> {
        match self.transact(vec![], then, vec![]).await {
            Transacted::Then(replies) => replies,
            other => panic!("{other:?}"),
        }
    }

    async fn one(&self, op: Op) -> Reply {
        self.all(vec![op]).await.remove(0)
    }

    async fn holds(&self, guard: Guard) -> bool {
        matches!(self.transact(vec![guard], vec![], vec![]).await, Transacted::Then(_))
    }
}

fn set(key: &Key, value: impl Into<Bytes>) -> Op {
    Op::Set { key: key.clone(), value: value.into(), expires_in: None }
}

fn value(text: &'static str) -> Reply {
    Reply::Value(Some(Bytes::from_static(text.as_bytes())))
}

fn fields(key: &Key, all: &[(&str, &'static [u8])]) -> Op {
    let fields = all.iter().map(|(field, value)| ((*field).to_owned(), Bytes::from_static(value))).collect();
    Op::FieldsSet { key: key.clone(), fields }
}

fn rank(key: &Key, member: &str, score: u64) -> Op {
    Op::Rank { key: key.clone(), member: member.to_owned(), score }
}

fn ranked(all: &[(&str, u64)]) -> Reply {
    Reply::Ranked(all.iter().map(|(member, score)| ((*member).to_owned(), *score)).collect())
}

async fn guards_say_what_is_there(place: Place) {
    let (key, hash) = (place.key("value"), place.key("hash"));
    assert!(place.holds(Guard::Absent(key.clone())).await);
    assert!(!place.holds(Guard::Present(key.clone())).await);
    assert!(!place.holds(Guard::Is(key.clone(), Bytes::new())).await);
    place.all(vec![set(&key, "a\0\r\nb"), fields(&hash, &[("f", b"1"), ("odd field \0é", b"\xff\x00")])]).await;
    assert!(!place.holds(Guard::Absent(key.clone())).await);
    assert!(place.holds(Guard::Present(hash.clone())).await);
    assert!(place.holds(Guard::Is(key.clone(), "a\0\r\nb".into())).await);
    assert!(!place.holds(Guard::Is(key.clone(), "a".into())).await);
    assert!(place.holds(Guard::FieldIs(hash.clone(), "f".into(), "1".into())).await);
    assert!(!place.holds(Guard::FieldIs(hash.clone(), "f".into(), "2".into())).await);
    assert!(place.holds(Guard::FieldIs(hash.clone(), "odd field \0é".into(), Bytes::from_static(b"\xff\x00"))).await);
    assert!(place.holds(Guard::FieldAbsent(hash.clone(), "g".into())).await);
    assert!(!place.holds(Guard::FieldAbsent(hash.clone(), "f".into())).await);
    assert!(place.holds(Guard::FieldPresent(hash.clone(), "f".into())).await);
    assert!(place.holds(Guard::FieldAbsent(place.key("none"), "f".into())).await);
}

async fn a_failed_guard_does_the_other_list_and_names_itself(place: Place) {
    let (key, other) = (place.key("a"), place.key("b"));
    place.one(set(&key, "1")).await;
    let guards = vec![Guard::Present(key.clone()), Guard::Absent(key.clone()), Guard::Present(other.clone())];
    let done =
        place.transact(guards, vec![set(&other, "no")], vec![Op::Get(key.clone()), Op::Get(other.clone())]).await;
    assert_eq!(done, Transacted::Otherwise { guard: 1, replies: vec![value("1"), Reply::Value(None)] });
}

async fn values_are_kept_as_they_are(place: Place) {
    let key = place.key("value");
    let large = Bytes::from(vec![0xa5; 4 * 1024 * 1024]);
    for kept in [Bytes::new(), Bytes::from_static(b"\xff\xfe\0"), large] {
        assert_eq!(
            place.all(vec![set(&key, kept.clone()), Op::Get(key.clone())]).await,
            [Reply::Done, Reply::Value(Some(kept))]
        );
    }
    assert_eq!(
        place.all(vec![Op::Delete(key.clone()), Op::Get(key.clone()), Op::Delete(key)]).await,
        [Reply::Done, Reply::Value(None), Reply::Done]
    );
}

async fn sums_start_at_nothing(place: Place) {
    let (key, hash) = (place.key("count"), place.key("counts"));
    let add = |by| Op::Add { key: key.clone(), by };
    let field = |by| Op::FieldAdd { key: hash.clone(), field: "f".into(), by };
    let replies = place.all(vec![add(5), add(-7), field(2), field(3), Op::Get(key.clone())]).await;
    let sums = [5, -2, 2, 5].map(Reply::Integer);
    assert_eq!(replies[..4], sums);
    assert_eq!(replies[4], value("-2"));
}

async fn keys_expire_and_set_clears_that(place: Place) {
    let soon = Duration::from_millis(60);
    let (value_key, kept, hash, ranks, count) =
        (place.key("v"), place.key("kept"), place.key("h"), place.key("r"), place.key("c"));
    let expire = |key: &Key| Op::Expire { key: key.clone(), expires_in: soon };
    place
        .all(vec![
            Op::Set { key: value_key.clone(), value: "1".into(), expires_in: Some(soon) },
            Op::Set { key: kept.clone(), value: "1".into(), expires_in: Some(soon) },
            set(&kept, "2"),
            fields(&hash, &[("f", b"1")]),
            expire(&hash),
            rank(&ranks, "m", 1),
            expire(&ranks),
            Op::Set { key: count.clone(), value: "1".into(), expires_in: Some(soon) },
            Op::Add { key: count.clone(), by: 1 },
            expire(&place.key("none")),
        ])
        .await;
    assert!(place.holds(Guard::Present(value_key.clone())).await);
    let end = std::time::Instant::now() + Duration::from_secs(5);
    for key in [&value_key, &hash, &ranks, &count] {
        while !place.holds(Guard::Absent(key.clone())).await {
            assert!(std::time::Instant::now() < end, "{key} does not expire");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert_eq!(place.one(Op::Get(kept)).await, value("2"));
    // What comes back under a name has nothing of what expired.
    place.one(fields(&hash, &[("g", b"2")])).await;
    assert_eq!(place.one(Op::FieldsGet(hash)).await, Reply::Fields(vec![("g".into(), "2".into())]));
}

async fn hashes_have_fields(place: Place) {
    let key = place.key("hash");
    let get = |field: &str| Op::FieldGet { key: key.clone(), field: field.into() };
    let delete = |field: &str| Op::FieldDelete { key: key.clone(), field: field.into() };
    assert_eq!(
        place.all(vec![get("a"), Op::FieldsGet(key.clone())]).await,
        [Reply::Value(None), Reply::Fields(vec![])]
    );
    place.one(fields(&key, &[("a", b"1"), ("b", b""), ("", b"3")])).await;
    place.one(fields(&key, &[("a", b"4")])).await;
    let Reply::Fields(mut all) = place.one(Op::FieldsGet(key.clone())).await else { panic!("no fields") };
    all.sort();
    assert_eq!(all, [("".to_owned(), "3".into()), ("a".into(), "4".into()), ("b".into(), Bytes::new())]);
    place.all(vec![delete("a"), delete("b"), delete(""), delete("never")]).await;
    assert!(place.holds(Guard::Absent(key)).await, "a hash without fields is not there");
}

async fn ranked_members_come_by_score_then_name(place: Place) {
    let key = place.key("ranks");
    let far = 1 << 50;
    let range = |min, max, limit, descending| Op::Ranked { key: key.clone(), min, max, limit, descending };
    assert_eq!(
        place.all(vec![range(0, far, 9, false), Op::RankCount(key.clone())]).await,
        [ranked(&[]), Reply::Integer(0)]
    );
    place.all(vec![rank(&key, "b", 2), rank(&key, "a", 2), rank(&key, "é", 1), rank(&key, "far", far)]).await;
    assert_eq!(place.one(range(0, far, 9, false)).await, ranked(&[("é", 1), ("a", 2), ("b", 2), ("far", far)]));
    assert_eq!(place.one(range(0, far, 2, true)).await, ranked(&[("far", far), ("b", 2)]));
    assert_eq!(place.one(range(2, 2, 1, false)).await, ranked(&[("a", 2)]));
    assert_eq!(place.one(range(3, far - 1, 9, false)).await, ranked(&[]));
    place.all(vec![rank(&key, "a", 7), Op::Unrank { key: key.clone(), member: "é".into() }]).await;
    assert_eq!(
        place.all(vec![range(0, 10, 9, false), Op::RankCount(key.clone())]).await,
        [ranked(&[("b", 2), ("a", 7)]), Reply::Integer(3)]
    );
    for member in ["a", "b", "far", "never"] {
        place.one(Op::Unrank { key: key.clone(), member: member.into() }).await;
    }
    assert!(place.holds(Guard::Absent(key)).await, "a set without members is not there");
}

async fn members_come_by_name_within_a_prefix(place: Place) {
    let key = place.key("names");
    let page = |prefix: &str, after: Option<&str>, limit| Op::Members {
        key: key.clone(),
        prefix: prefix.into(),
        after: after.map(str::to_owned),
        limit,
    };
    let names = |all: &[&str]| ranked(&all.iter().map(|name| (*name, 0)).collect::<Vec<_>>());
    for name in ["a", "a/1", "a/2", "a/é", "b", "ab"] {
        place.one(rank(&key, name, 0)).await;
    }
    assert_eq!(place.one(page("", None, 9)).await, names(&["a", "a/1", "a/2", "a/é", "ab", "b"]));
    assert_eq!(place.one(page("a/", None, 2)).await, names(&["a/1", "a/2"]));
    assert_eq!(place.one(page("a/", Some("a/2"), 9)).await, names(&["a/é"]));
    assert_eq!(place.one(page("a/", Some("a"), 9)).await, names(&["a/1", "a/2", "a/é"]));
    assert_eq!(place.one(page("a/", Some("b"), 9)).await, names(&[]));
    assert_eq!(place.one(page("c", None, 9)).await, names(&[]));
}

async fn streams_go_one_way_and_are_bounded(place: Place) {
    let key = place.key("stream");
    let append = |text: String, keep| Op::Append { key: key.clone(), value: text.into(), keep };
    let mut positions = Vec::new();
    for number in 0..20 {
        let Reply::Appended(position) = place.one(append(number.to_string(), 1000)).await else {
            panic!("no position")
        };
        positions.push(position);
    }
    assert!(positions.is_sorted() && positions.windows(2).all(|pair| pair[0] < pair[1]), "{positions:?}");
    let latest = |before, limit| Op::Latest { key: key.clone(), before, limit };
    let texts = |reply: Reply| match reply {
        Reply::Entries(all) => all.iter().map(|entry| String::from_utf8_lossy(&entry.value).into_owned()).collect(),
        other => vec![format!("{other:?}")],
    };
    assert_eq!(texts(place.one(latest(None, 3)).await), ["17", "18", "19"]);
    assert_eq!(texts(place.one(latest(Some(positions[2]), 9)).await), ["0", "1"]);
    assert_eq!(texts(place.one(latest(Some(Position::START), 9)).await), [""; 0]);
    let tail = place.store.tail(&key, &positions[17], 9, Duration::from_secs(1)).await.unwrap();
    assert_eq!(tail.iter().map(|entry| entry.position).collect::<Vec<_>>(), positions[18..]);
    let from_start = place.store.tail(&key, &Position::START, 2, Duration::from_secs(1)).await.unwrap();
    assert_eq!(from_start.len(), 2);
    for number in 0..500 {
        place.one(append(number.to_string(), 100)).await;
    }
    let Reply::Entries(all) = place.one(latest(None, 1000)).await else { panic!("no entries") };
    assert!((100..=300).contains(&all.len()), "about 100 of 500 are kept, not {}", all.len());
}

async fn a_tail_waits_and_is_woken(place: Place) {
    let key = place.key("tail");
    let start = std::time::Instant::now();
    let nothing = place.store.tail(&key, &Position::START, 9, Duration::from_millis(80)).await.unwrap();
    assert!(nothing.is_empty() && start.elapsed() >= Duration::from_millis(70), "{:?}", start.elapsed());
    // One that is given up in the middle harms no other.
    let given_up = place.store.tail(&key, &Position::START, 9, Duration::from_secs(30));
    assert!(tokio::time::timeout(Duration::from_millis(30), given_up).await.is_err());
    let waiting = {
        let (store, key) = (Arc::clone(&place.store), key.clone());
        tokio::spawn(async move { store.tail(&key, &Position::START, 9, Duration::from_secs(30)).await })
    };
    let append = Op::Append { key: key.clone(), value: "x".into(), keep: 10 };
    // A waiting read holds up nothing else.
    assert!(matches!(place.one(append).await, Reply::Appended(_)));
    let woken = tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it is woken").unwrap().unwrap();
    assert_eq!(woken.len(), 1);
}

async fn of_many_that_race_one_wins(place: Place) {
    let key = place.key("race");
    place.one(set(&key, "0")).await;
    for round in 0..5 {
        let (before, after) = (round.to_string(), (round + 1).to_string());
        let tries = (0..100).map(|_| {
            let transaction = Transaction {
                guards: vec![Guard::Is(key.clone(), before.clone().into())],
                then: vec![set(&key, after.clone())],
                otherwise: vec![],
            };
            place.store.transact(transaction)
        });
        let done = futures::future::join_all(tries).await;
        let won = done.iter().filter(|one| matches!(one, Ok(Transacted::Then(_)))).count();
        assert_eq!(won, 1, "round {round}");
    }
}

async fn a_key_of_another_kind_is_an_error_and_changes_nothing(place: Place) {
    let (value_key, hash) = (place.key("v"), place.key("h"));
    place.all(vec![set(&value_key, "1"), fields(&hash, &[("f", b"1")])]).await;
    for wrong in [
        fields(&value_key, &[("f", b"1")]),
        rank(&value_key, "m", 1),
        Op::Append { key: value_key.clone(), value: "x".into(), keep: 1 },
        Op::Add { key: hash.clone(), by: 1 },
        Op::Get(hash.clone()),
    ] {
        let then = vec![set(&place.key("before"), "written"), wrong.clone()];
        let done = place.store.transact(Transaction { then, ..Transaction::default() }).await;
        assert!(matches!(done, Err(StoreError::Key { .. })), "{wrong:?}: {done:?}");
        assert!(place.holds(Guard::Absent(place.key("before"))).await, "{wrong:?} left half of its transaction");
    }
    assert_eq!(place.one(Op::Get(value_key)).await, value("1"));
}

async fn keys_of_two_tags_are_refused(place: Place) {
    let then = vec![set(&place.key("a"), "1"), set(&Key::new("another", "a"), "1")];
    let done = place.store.transact(Transaction { then, ..Transaction::default() }).await;
    assert!(matches!(done, Err(StoreError::Key { .. })), "{done:?}");
    assert!(place.holds(Guard::Absent(place.key("a"))).await);
}

macro_rules! contract {
    ($($promise:ident),* $(,)?) => {
        mod on_the_embedded_store {
            $(#[tokio::test(flavor = "multi_thread")] async fn $promise() { super::$promise(super::embedded().await).await; })*
        }
        mod on_redis {
            $(#[tokio::test(flavor = "multi_thread")] async fn $promise() { super::$promise(super::redis().await).await; })*
        }
    };
}

contract!(
    guards_say_what_is_there,
    a_failed_guard_does_the_other_list_and_names_itself,
    values_are_kept_as_they_are,
    sums_start_at_nothing,
    keys_expire_and_set_clears_that,
    hashes_have_fields,
    ranked_members_come_by_score_then_name,
    members_come_by_name_within_a_prefix,
    streams_go_one_way_and_are_bounded,
    a_tail_waits_and_is_woken,
    of_many_that_race_one_wins,
    a_key_of_another_kind_is_an_error_and_changes_nothing,
    keys_of_two_tags_are_refused,
    guards_on_keys_of_another_kind_are_errors_that_name_the_key,
    every_operation_on_a_key_of_another_kind_is_an_error_that_names_it,
    a_transaction_sees_what_it_did_before,
    sums_are_exact_to_the_last_digit,
    a_sum_that_is_none_changes_nothing,
    every_kind_expires_and_writing_into_it_does_not_prevent_that,
    an_expiry_beyond_all_clocks_is_one_far_away,
    no_fields_make_no_hash,
    ranges_end_where_their_set_ends,
    names_sort_by_their_bytes_whatever_the_script,
    all_that_wait_on_a_stream_are_woken_whichever_list_grew_it,
);

#[tokio::test]
async fn the_file_keeps_everything_and_is_one_process_s() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let key = Key::new("t", "k");
    {
        let store = EmbeddedStore::open(&path).unwrap();
        store.transact(Transaction { then: vec![set(&key, "kept")], ..Transaction::default() }).await.unwrap();
        let again = EmbeddedStore::open(&path).err().expect("it is open already").to_string();
        assert!(again.contains("another process has it open"), "{again}");
    }
    // The writer's thread lets go of the file some moments after the store.
    let end = std::time::Instant::now() + Duration::from_secs(10);
    let store = loop {
        match EmbeddedStore::open(&path) {
            Ok(store) => break store,
            Err(error) => assert!(std::time::Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let read = store.transact(Transaction { then: vec![Op::Get(key)], ..Transaction::default() }).await.unwrap();
    assert_eq!(read, Transacted::Then(vec![value("kept")]));
}

#[tokio::test]
async fn redis_that_is_not_there_is_told_without_the_password() {
    for url in ["redis://user:hunter2@127.0.0.1:1/", "redis://user:hunter2@/", "nonsense hunter2"] {
        let error = RedisStore::connect(redis_config(url.into())).await.err().expect("nobody is there");
        let told = format!("{error} {error:?}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}

/// A Redis of the test's own, since it harms everybody who uses it.
struct OwnRedis {
    process: std::process::Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl OwnRedis {
    fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = std::process::Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string(), "--dir"])
            .arg(folder.path())
            .args(more)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("redis-server is there: run tests/run");
        let end = std::time::Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(std::time::Instant::now() < end, "Redis does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { process, url: format!("redis://127.0.0.1:{port}/"), _folder: folder }
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn redis_connections_and_scripts_may_be_lost() {
    let own = OwnRedis::start(&[]);
    let store = Arc::new(RedisStore::connect(redis_config(own.url.clone())).await.unwrap());
    let place = Place { store, tag: "lost".into(), _folder: None };
    let key = place.key("k");
    place.one(set(&key, "1")).await;
    // Leaves a connection that waiting reads use.
    place.one(Op::Append { key: place.key("stream"), value: "x".into(), keep: 9 }).await;
    place.store.tail(&place.key("stream"), &Position::START, 9, Duration::from_secs(1)).await.unwrap();
    let mut admin = ::redis::Client::open(own.url.as_str()).unwrap().get_multiplexed_async_connection().await.unwrap();
    ::redis::cmd("SCRIPT").arg("FLUSH").query_async::<()>(&mut admin).await.unwrap();
    assert_eq!(place.one(Op::Get(key.clone())).await, value("1"));
    ::redis::cmd("CLIENT")
        .arg("KILL")
        .arg("TYPE")
        .arg("normal")
        .arg("SKIPME")
        .arg("yes")
        .query_async::<i64>(&mut admin)
        .await
        .unwrap();
    let end = std::time::Instant::now() + Duration::from_secs(20);
    let tail = place.store.tail(&place.key("stream"), &Position::START, 9, Duration::from_secs(1)).await;
    assert_eq!(tail.expect("a read may be repeated, and so is not lost").len(), 1);
    loop {
        match place.store.transact(Transaction { then: vec![Op::Get(key.clone())], ..Transaction::default() }).await {
            Ok(done) => {
                assert_eq!(done, Transacted::Then(vec![value("1")]));
                break;
            }
            Err(StoreError::Unreachable { .. } | StoreError::Timeout { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        assert!(std::time::Instant::now() < end, "the store comes back");
    }
}

#[tokio::test]
async fn a_wrong_password_is_told_without_it() {
    let own = OwnRedis::start(&["--requirepass", "right-horse"]);
    let at = own.url.strip_prefix("redis://").unwrap();
    for user in ["", ":hunter2@", "somebody:hunter2@"] {
        let error = RedisStore::connect(redis_config(format!("redis://{user}{at}"))).await.err().expect("it is wrong");
        let told = format!("{error} {error:?}");
        assert!(matches!(error, StoreError::Unreachable { .. }) && told.contains("password"), "{user}: {told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
    let right = RedisStore::connect(redis_config(format!("redis://:right-horse@{at}"))).await.unwrap();
    right.ping().await.unwrap();
}

#[tokio::test]
async fn a_full_redis_is_not_taken_for_a_wrong_key() {
    let own = OwnRedis::start(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]);
    let store = RedisStore::connect(redis_config(own.url.clone())).await.unwrap();
    let then = vec![set(&Key::new("full", "k"), "1")];
    let done = store.transact(Transaction { then, ..Transaction::default() }).await;
    assert!(matches!(done, Err(StoreError::Unreachable { .. })), "{done:?}");
}
