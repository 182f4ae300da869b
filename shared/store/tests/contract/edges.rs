//! Promises at the edges: keys of another kind, sums and scores near their limits, empty lists, far expiries.

use crate::{Place, fields, rank, ranked, set, value};
use bytes::Bytes;
use std::time::{Duration, Instant};
use toolfleet_store::{Guard, Key, Op, Position, Reply, StoreError, Transacted, Transaction};

/// Nothing here takes so long, on the busiest machine.
const BOUND: Duration = Duration::from_secs(20);

fn append(key: &Key, text: &'static str) -> Op {
    Op::Append { key: key.clone(), value: text.into(), keep: 100 }
}

/// The transaction fails because of `key`, says so, and has written nothing.
async fn fails_whole(place: &Place, key: &Key, guards: Vec<Guard>, then: Vec<Op>) {
    let before = place.key("before");
    let told = format!("{guards:?} {then:?}");
    let then = [vec![set(&before, "written")], then].concat();
    match place.store.transact(Transaction { guards, then, otherwise: vec![] }).await {
        Err(StoreError::Key { key: named, .. }) => assert_eq!(named, key.to_string(), "{told}"),
        other => panic!("{told}: {other:?}"),
    }
    assert!(place.holds(Guard::Absent(before)).await, "{told} left half of its transaction");
}

pub async fn guards_on_keys_of_another_kind_are_errors_that_name_the_key(place: Place) {
    let (text, hash, ranks, stream) = (place.key("v"), place.key("h"), place.key("r"), place.key("s"));
    place.all(vec![set(&text, "1"), fields(&hash, &[("f", b"1")]), rank(&ranks, "m", 1), append(&stream, "x")]).await;
    for key in [&text, &hash, &ranks, &stream] {
        assert!(place.holds(Guard::Present(key.clone())).await, "{key}");
        assert!(!place.holds(Guard::Absent(key.clone())).await, "{key}");
        if key != &text {
            fails_whole(&place, key, vec![Guard::Is(key.clone(), "1".into())], vec![]).await;
        }
        if key != &hash {
            fails_whole(&place, key, vec![Guard::FieldAbsent(key.clone(), "f".into())], vec![]).await;
            fails_whole(&place, key, vec![Guard::FieldPresent(key.clone(), "f".into())], vec![]).await;
            fails_whole(&place, key, vec![Guard::FieldIs(key.clone(), "f".into(), "1".into())], vec![]).await;
        }
    }
    // The guards before it hold or not, and only the first that doesn't counts.
    let guards = vec![Guard::Absent(text.clone()), Guard::Is(hash.clone(), "1".into())];
    assert_eq!(place.transact(guards, vec![], vec![]).await, Transacted::Otherwise { guard: 0, replies: vec![] });
}

pub async fn every_operation_on_a_key_of_another_kind_is_an_error_that_names_it(place: Place) {
    let (text, hash) = (place.key("v"), place.key("h"));
    place.all(vec![set(&text, "1"), fields(&hash, &[("f", b"1")])]).await;
    let field = || "f".to_owned();
    for wrong in [
        Op::FieldGet { key: text.clone(), field: field() },
        Op::FieldsGet(text.clone()),
        Op::FieldDelete { key: text.clone(), field: field() },
        Op::FieldAdd { key: text.clone(), field: field(), by: 1 },
        Op::Unrank { key: text.clone(), member: field() },
        Op::Ranked { key: text.clone(), min: 0, max: 1, limit: 1, descending: false },
        Op::Members { key: text.clone(), prefix: field(), after: None, limit: 1 },
        Op::RankCount(text.clone()),
        Op::Latest { key: text.clone(), before: None, limit: 1 },
        append(&hash, "x"),
        rank(&hash, "m", 1),
        Op::Get(hash.clone()),
    ] {
        fails_whole(&place, &wrong.key().clone(), vec![], vec![wrong]).await;
    }
    let tail = place.store.tail(&text, &Position::START, 1, Duration::from_millis(10)).await;
    assert!(matches!(&tail, Err(StoreError::Key { key, .. }) if *key == text.to_string()), "{tail:?}");
    // These take any kind, and a name may change its kind on the way.
    place.all(vec![set(&hash, "now a value"), Op::Delete(text.clone()), fields(&text, &[("f", b"2")])]).await;
    assert_eq!(place.one(Op::Get(hash)).await, value("now a value"));
    assert_eq!(place.one(Op::FieldsGet(text)).await, Reply::Fields(vec![("f".into(), "2".into())]));
}

pub async fn a_transaction_sees_what_it_did_before(place: Place) {
    let key = place.key("k");
    let replies = place
        .all(vec![
            set(&key, "1"),
            Op::Add { key: key.clone(), by: 1 },
            Op::Get(key.clone()),
            Op::Delete(key.clone()),
            Op::Get(key.clone()),
            rank(&key, "m", 3),
            Op::RankCount(key.clone()),
        ])
        .await;
    let expected =
        [Reply::Done, Reply::Integer(2), value("2"), Reply::Done, Reply::Value(None), Reply::Done, Reply::Integer(1)];
    assert_eq!(replies, expected);
}

pub async fn sums_are_exact_to_the_last_digit(place: Place) {
    let (key, hash) = (place.key("count"), place.key("counts"));
    // Beyond what a floating-point number can tell apart.
    for wanted in [(1 << 53) + 1, -(1 << 53) - 1, i64::MAX, i64::MIN, i64::MAX - 1] {
        let replies = place
            .all(vec![
                Op::Delete(key.clone()),
                Op::Delete(hash.clone()),
                Op::Add { key: key.clone(), by: wanted },
                Op::FieldAdd { key: hash.clone(), field: "f".into(), by: wanted },
                Op::Get(key.clone()),
            ])
            .await;
        let text = Reply::Value(Some(wanted.to_string().into()));
        assert_eq!(replies[2..], [Reply::Integer(wanted), Reply::Integer(wanted), text]);
    }
}

pub async fn a_sum_that_is_none_changes_nothing(place: Place) {
    let (text, hash, top) = (place.key("v"), place.key("h"), place.key("top"));
    place.all(vec![set(&text, "abc"), fields(&hash, &[("f", b"abc")]), set(&top, i64::MAX.to_string())]).await;
    let add = |key: &Key, by| Op::Add { key: key.clone(), by };
    let add_field = |by| Op::FieldAdd { key: hash.clone(), field: "g".into(), by };
    fails_whole(&place, &text, vec![], vec![add(&text, 1)]).await;
    fails_whole(&place, &hash, vec![], vec![Op::FieldAdd { key: hash.clone(), field: "f".into(), by: 1 }]).await;
    fails_whole(&place, &top, vec![], vec![add(&top, 1)]).await;
    // What the transaction itself made counts.
    let fresh = place.key("fresh");
    fails_whole(&place, &fresh, vec![], vec![add(&fresh, i64::MAX), add(&fresh, 1)]).await;
    fails_whole(&place, &fresh, vec![], vec![set(&fresh, "abc"), add(&fresh, 1)]).await;
    fails_whole(&place, &hash, vec![], vec![add_field(i64::MIN), add_field(-1)]).await;
    fails_whole(&place, &hash, vec![], vec![fields(&hash, &[("g", b"1.5")]), add_field(1)]).await;
    let good = place.all(vec![set(&text, "7"), add(&text, 1), Op::Delete(text.clone()), add(&text, 1)]).await;
    assert_eq!(good, [Reply::Done, Reply::Integer(8), Reply::Done, Reply::Integer(1)]);
}

pub async fn every_kind_expires_and_writing_into_it_does_not_prevent_that(place: Place) {
    let (hash, ranks, stream) = (place.key("h"), place.key("r"), place.key("s"));
    let expire = |key: &Key| Op::Expire { key: key.clone(), expires_in: Duration::from_millis(60) };
    let write = || vec![fields(&hash, &[("f", b"1")]), rank(&ranks, "m", 1), append(&stream, "x")];
    place.all(write()).await;
    place.all([vec![expire(&hash), expire(&ranks), expire(&stream)], write()].concat()).await;
    let end = Instant::now() + BOUND;
    for key in [&hash, &ranks, &stream] {
        while !place.holds(Guard::Absent(key.clone())).await {
            assert!(Instant::now() < end, "{key} does not expire");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let gone = place
        .all(vec![
            Op::FieldsGet(hash.clone()),
            Op::RankCount(ranks.clone()),
            Op::Latest { key: stream.clone(), before: None, limit: 9 },
        ])
        .await;
    assert_eq!(gone, [Reply::Fields(vec![]), Reply::Integer(0), Reply::Entries(vec![])]);
}

pub async fn an_expiry_beyond_all_clocks_is_one_far_away(place: Place) {
    let (key, hash) = (place.key("v"), place.key("h"));
    place
        .all(vec![
            Op::Set { key: key.clone(), value: "1".into(), expires_in: Some(Duration::MAX) },
            fields(&hash, &[("f", b"1")]),
            Op::Expire { key: hash.clone(), expires_in: Duration::MAX },
        ])
        .await;
    assert!(place.holds(Guard::Present(key)).await && place.holds(Guard::Present(hash)).await);
}

pub async fn no_fields_make_no_hash(place: Place) {
    let (key, text) = (place.key("h"), place.key("v"));
    place.all(vec![fields(&key, &[]), set(&text, "1")]).await;
    assert!(place.holds(Guard::Absent(key)).await);
    fails_whole(&place, &text, vec![], vec![fields(&text, &[])]).await;
}

pub async fn ranges_end_where_their_set_ends(place: Place) {
    // Neighbours in every order that a make may keep its keys in.
    let key = place.key("ranks");
    for path in ["rank", "ranks2", "ranks\0", "zzz"] {
        place.all((0..5).map(|score| rank(&place.key(path), &format!("other-{score}"), score)).collect()).await;
    }
    place.all(vec![rank(&key, "a", 1), rank(&key, "b", 2), rank(&key, "", 3)]).await;
    let range = |min, max, limit, descending| Op::Ranked { key: key.clone(), min, max, limit, descending };
    let all = [("a", 1), ("b", 2), ("", 3)];
    assert_eq!(place.one(range(0, u64::MAX, 9, false)).await, ranked(&all));
    assert_eq!(place.one(range(0, u64::MAX, 2, true)).await, ranked(&[("", 3), ("b", 2)]));
    assert_eq!(place.one(range(0, 9, 2, true)).await, ranked(&[("", 3), ("b", 2)]));
    for (min, max, limit) in [(3, 1, 9), (4, 3, 9), (0, 9, 0), (u64::MAX, 0, 9)] {
        for descending in [false, true] {
            assert_eq!(place.one(range(min, max, limit, descending)).await, ranked(&[]), "{min} {max} {limit}");
        }
    }
    let page = |limit| Op::Members { key: place.key("zzz"), prefix: "other".into(), after: None, limit };
    assert_eq!(place.one(page(0)).await, ranked(&[]));
    let stream = place.key("stream");
    place.all(vec![append(&stream, "x"), append(&place.key("stream2"), "y")]).await;
    let latest = |limit| Op::Latest { key: stream.clone(), before: None, limit };
    assert_eq!(place.one(latest(0)).await, Reply::Entries(vec![]));
    let Reply::Entries(entries) = place.one(latest(9)).await else { panic!("no entries") };
    assert_eq!(entries.iter().map(|entry| entry.value.clone()).collect::<Vec<_>>(), [Bytes::from_static(b"x")]);
}

pub async fn names_sort_by_their_bytes_whatever_the_script(place: Place) {
    let key = place.key("names");
    let page = |prefix: &str, after: Option<&str>| Op::Members {
        key: key.clone(),
        prefix: prefix.into(),
        after: after.map(str::to_owned),
        limit: 9,
    };
    let names = |all: &[&str]| ranked(&all.iter().map(|name| (*name, 0)).collect::<Vec<_>>());
    let all = ["", "-", "[", "z", "é", "é/1", "é/\u{10ffff}", "ê", "工具", "\u{10ffff}"];
    for name in all.iter().rev() {
        place.one(rank(&key, name, 0)).await;
    }
    assert_eq!(place.one(page("", None)).await, names(&all[..9]));
    assert_eq!(place.one(page("", Some("工具"))).await, names(&["\u{10ffff}"]));
    assert_eq!(place.one(page("é", None)).await, names(&["é", "é/1", "é/\u{10ffff}"]));
    assert_eq!(place.one(page("é/", Some("é/1"))).await, names(&["é/\u{10ffff}"]));
    assert_eq!(place.one(page("é", Some("ê"))).await, names(&[]));
    assert_eq!(place.one(page("\u{10ffff}", None)).await, names(&["\u{10ffff}"]));
}

pub async fn all_that_wait_on_a_stream_are_woken_whichever_list_grew_it(place: Place) {
    let (key, other) = (place.key("tail"), place.key("other"));
    place.one(append(&key, "before")).await;
    let Reply::Entries(before) = place.one(Op::Latest { key: key.clone(), before: None, limit: 1 }).await else {
        panic!("no entries")
    };
    let after = before[0].position;
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let (store, key) = (place.store.clone(), key.clone());
            tokio::spawn(async move { store.tail(&key, &after, 9, Duration::from_secs(60)).await })
        })
        .collect();
    // Another stream's growth wakes nobody here for good.
    place.one(append(&other, "x")).await;
    let present = Guard::Present(place.key("none"));
    place.transact(vec![present], vec![], vec![append(&key, "woken")]).await;
    for one in waiting {
        let woken = tokio::time::timeout(BOUND, one).await.expect("it is woken").unwrap().unwrap();
        assert_eq!(woken.iter().map(|entry| entry.value.clone()).collect::<Vec<_>>(), [Bytes::from_static(b"woken")]);
    }
}
