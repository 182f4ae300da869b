//! Effects of host calls: the journal, and messages in a conversation.

use crate::{Fixture, account, json, on_each_store, unique, with_lost_answers};
use serde_json::{Map, Value};
use std::time::Duration;
use toolfleet_protocol::host::{HostError, HostErrorName, HostMethod, Role};
use toolfleet_protocol::{CallId, SessionId};
use toolfleet_store::records::{EffectKey, MESSAGES_MAX, MessagesError, NewMessage};
use toolfleet_store::{Key, Op, Position, StoreError, Transaction};

on_each_store! {
    the_same_question_gets_the_recorded_answer,
    an_effect_is_known_by_call_ordinal_method_and_arguments,
    a_recorded_answer_stays,
    messages_come_oldest_first_and_page_backwards,
    a_message_of_one_effect_is_posted_once,
    a_message_of_one_effect_is_found_far_back,
    posting_survives_a_lost_answer,
    a_bad_before_is_refused,
    a_conversation_is_cut_to_its_last_messages,
    a_damaged_message_is_named,
}

const HOUR: Duration = Duration::from_secs(3600);

pub fn effect() -> EffectKey {
    EffectKey { call: CallId::generate(), ordinal: 0, method: HostMethod::SessionPost, arguments_digest: [7; 32] }
}

fn session() -> SessionId {
    SessionId::parse(unique()).unwrap()
}

fn message(text: &str) -> NewMessage {
    NewMessage { role: Role::Tool, text: text.into(), plugin: None, data: Map::new() }
}

async fn the_same_question_gets_the_recorded_answer(fixture: Fixture) {
    let records = &fixture.records;
    let (asked, refused) = (effect(), effect());
    assert!(records.journal_lookup(&asked).await.unwrap().is_none());
    records.journal_record(&asked, &Ok(json(r#"{"n": 1.0}"#)), HOUR).await.unwrap();
    let error = HostError::new(HostErrorName::LimitError, "too many");
    records.journal_record(&refused, &Err(error.clone()), HOUR).await.unwrap();
    let answer = records.journal_lookup(&asked).await.unwrap().unwrap();
    assert_eq!(answer.unwrap().get(), r#"{"n": 1.0}"#);
    assert_eq!(records.journal_lookup(&refused).await.unwrap().unwrap().unwrap_err(), error);
    records.journal_record(&effect(), &Ok(json("null")), HOUR).await.unwrap();
}

async fn an_effect_is_known_by_call_ordinal_method_and_arguments(fixture: Fixture) {
    let records = &fixture.records;
    let asked = effect();
    records.journal_record(&asked, &Ok(json("null")), HOUR).await.unwrap();
    let others = [
        EffectKey { call: CallId::generate(), ..asked.clone() },
        EffectKey { ordinal: 1, ..asked.clone() },
        EffectKey { method: HostMethod::WorkspaceWrite, ..asked.clone() },
        EffectKey { arguments_digest: [8; 32], ..asked.clone() },
    ];
    for other in &others {
        assert_ne!(other.id(), asked.id());
        assert!(records.journal_lookup(other).await.unwrap().is_none(), "{other:?}");
    }
    assert!(matches!(records.journal_lookup(&asked).await.unwrap(), Some(Ok(value)) if value.get() == "null"));
    assert!(asked.id().bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b)), "{}", asked.id());
}

async fn a_recorded_answer_stays(fixture: Fixture) {
    let asked = effect();
    for answer in ["1", "2"] {
        fixture.records.journal_record(&asked, &Ok(json(answer)), HOUR).await.unwrap();
    }
    assert_eq!(fixture.records.journal_lookup(&asked).await.unwrap().unwrap().unwrap().get(), "1");
}

async fn messages_come_oldest_first_and_page_backwards(fixture: Fixture) {
    let records = &fixture.records;
    let (account, session) = (account(), session());
    let data: Map<String, Value> = [("k".to_owned(), Value::from(1))].into_iter().collect();
    let mut posted = Vec::new();
    for number in 0..5 {
        let message = NewMessage {
            plugin: Some(crate::slug()),
            data: data.clone(),
            role: if number == 0 { Role::User } else { Role::Tool },
            text: format!("message {number}"),
        };
        posted.push(records.post_message(&account, &session, message, None, 1000 + number).await.unwrap());
    }
    assert_eq!(posted[0].role, Role::User);
    assert_eq!((posted[4].at_ms, &posted[4].data), (1004, &data));
    assert_eq!(records.messages(&account, &session, None, 2).await.unwrap(), posted[3..]);
    assert_eq!(records.messages(&account, &session, Some(&posted[3].id), 2).await.unwrap(), posted[1..3]);
    assert_eq!(records.messages(&account, &session, Some(&posted[0].id), 2).await.unwrap(), []);
    assert_eq!(records.messages(&account, &session, None, 200).await.unwrap(), posted);
    // Another account's session of the same name is another session.
    assert_eq!(records.messages(&crate::account(), &session, None, 200).await.unwrap(), []);
}

async fn a_message_of_one_effect_is_posted_once(fixture: Fixture) {
    let records = &fixture.records;
    let (account, session, effect) = (account(), session(), effect());
    let posts = (0..20).map(|_| records.post_message(&account, &session, message("once"), Some(&effect), 5));
    let posted = futures::future::try_join_all(posts).await.unwrap();
    assert!(posted.iter().all(|message| *message == posted[0]), "{posted:?}");
    assert_eq!(records.messages(&account, &session, None, 200).await.unwrap(), posted[..1]);
}

async fn a_message_of_one_effect_is_found_far_back(fixture: Fixture) {
    let records = &fixture.records;
    let (account, session, effect) = (account(), session(), effect());
    records.post_message(&account, &session, message("before"), None, 5).await.unwrap();
    let first = records.post_message(&account, &session, message("once"), Some(&effect), 5).await.unwrap();
    let later = (0..1200).map(|_| Op::Append {
        key: Key::new(&format!("session:{account}:{session}"), "messages"),
        value: r#"{"role":"user","text":"later","atMs":6}"#.into(),
        keep: MESSAGES_MAX,
    });
    records.store().transact(Transaction { then: later.collect(), ..Transaction::default() }).await.unwrap();
    let again = records.post_message(&account, &session, message("once"), Some(&effect), 9).await.unwrap();
    assert_eq!(again, first);
}

async fn posting_survives_a_lost_answer(fixture: Fixture) {
    let account = account();
    let repeated = with_lost_answers!(fixture, it = (session(), effect()), {
        fixture.records.post_message(&account, &it.0, message("once"), Some(&it.1), 5)
    });
    for (posted, (session, _)) in repeated {
        assert_eq!(fixture.records.messages(&account, &session, None, 200).await.unwrap(), [posted]);
    }
}

async fn a_bad_before_is_refused(fixture: Fixture) {
    for bad in ["", "x", "1", "1-", "-1", "1-x", "1-2-3", "99999999999999999999999-0"] {
        let error = fixture.records.messages(&account(), &session(), Some(bad), 10).await.unwrap_err();
        assert!(matches!(&error, MessagesError::Before { got } if got == bad), "{bad}: {error}");
        assert!(error.to_string().contains("before must be the id of a message"), "{error}");
    }
}

async fn a_conversation_is_cut_to_its_last_messages(fixture: Fixture) {
    let records = &fixture.records;
    let (account, session, effect) = (account(), session(), effect());
    let key = Key::new(&format!("session:{account}:{session}"), "messages");
    let first = records.post_message(&account, &session, message("first"), Some(&effect), 5).await.unwrap();
    for _ in 0..12 {
        let append = || Op::Append {
            key: key.clone(),
            value: r#"{"role":"user","text":"","atMs":6}"#.into(),
            keep: MESSAGES_MAX,
        };
        let then = (0..1000).map(|_| append()).collect();
        records.store().transact(Transaction { then, ..Transaction::default() }).await.unwrap();
    }
    let kept = records.messages(&account, &session, None, 20_000).await.unwrap();
    assert!((10_000..12_000).contains(&kept.len()), "{}", kept.len());
    assert!(!kept.contains(&first));
    // Its effect is still known, and it isn't posted again.
    let again = records.post_message(&account, &session, message("first"), Some(&effect), 9).await.unwrap();
    assert_eq!((again.text.as_str(), again.at_ms), ("first", 5));
    assert!(Position::parse(&again.id).is_some());
    assert_eq!(records.messages(&account, &session, None, 20_000).await.unwrap().len(), kept.len());
}

async fn a_damaged_message_is_named(fixture: Fixture) {
    let (account, session) = (account(), session());
    let key = Key::new(&format!("session:{account}:{session}"), "messages");
    let then = vec![Op::Append { key, value: "{".into(), keep: 10 }];
    fixture.records.store().transact(Transaction { then, ..Transaction::default() }).await.unwrap();
    match fixture.records.messages(&account, &session, None, 10).await {
        Err(MessagesError::Store(StoreError::Corrupt { record, .. })) => {
            assert!(record.contains(session.as_str()), "{record}");
        }
        other => panic!("{other:?}"),
    }
}
