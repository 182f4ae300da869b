//! What belongs to the whole fleet: dead letters, and words to all workers.

use crate::{Fixture, on_each_store, unique};
use std::collections::BTreeMap;
use std::time::Duration;
use toolfleet_protocol::CallId;
use toolfleet_store::Position;
use toolfleet_store::records::DeadLetter;

on_each_store! {
    a_dead_letter_is_kept_once,
    dead_letters_page_backwards,
    a_long_body_is_cut,
    a_cancel_reaches_who_follows,
    cancels_can_be_followed_from_the_end,
    nothing_to_cancel_is_an_empty_answer,
}

fn letter() -> DeadLetter {
    DeadLetter {
        at_ms: 1,
        queue: "toolfleet.jobs.interactive.0".into(),
        reason: "rejected".into(),
        message_id: Some(unique()),
        call_id: Some(CallId::generate()),
        why: "the message isn't a job".into(),
        body: "{".into(),
        headers: BTreeMap::from([("traceparent".to_owned(), "00-x".to_owned())]),
    }
}

/// More than other tests put while one runs.
const PAGE: u32 = 500;

async fn a_dead_letter_is_kept_once(fixture: Fixture) {
    let first = letter();
    let other_death = DeadLetter { reason: "expired".into(), ..first.clone() };
    fixture.records.put_dead(&first).await.unwrap();
    fixture.records.put_dead(&DeadLetter { at_ms: 2, ..first.clone() }).await.unwrap();
    fixture.records.put_dead(&other_death).await.unwrap();
    let kept = fixture.records.dead(None, PAGE).await.unwrap();
    let kept: Vec<_> =
        kept.into_iter().map(|(_, kept)| kept).filter(|kept| kept.message_id == first.message_id).collect();
    assert_eq!(kept, [first, other_death]);
}

async fn dead_letters_page_backwards(fixture: Fixture) {
    let letters = [letter(), letter(), letter()];
    for letter in &letters {
        fixture.records.put_dead(letter).await.unwrap();
    }
    let all = fixture.records.dead(None, PAGE).await.unwrap();
    assert!(all.is_sorted_by_key(|(position, _)| *position));
    let (last, _) =
        *all.iter().find(|(_, kept)| *kept == letters[2]).map(|(position, _)| (position, ())).as_ref().unwrap();
    let before = fixture.records.dead(Some(*last), PAGE).await.unwrap();
    let ours: Vec<_> = before.into_iter().map(|(_, kept)| kept).filter(|kept| letters.contains(kept)).collect();
    assert_eq!(ours, letters[..2]);
    assert_eq!(fixture.records.dead(Some(*last), 1).await.unwrap().len(), 1);
}

async fn a_long_body_is_cut(fixture: Fixture) {
    let long = DeadLetter { body: "ä".repeat(10_000), ..letter() };
    fixture.records.put_dead(&long).await.unwrap();
    let all = fixture.records.dead(None, PAGE).await.unwrap();
    let (_, kept) = all.into_iter().find(|(_, kept)| kept.message_id == long.message_id).unwrap();
    assert_eq!(kept.body, "ä".repeat(2048));
}

const LONG: Duration = Duration::from_secs(10);

/// Follows from `after` until `call` comes.
async fn follow(fixture: &Fixture, mut after: Position, call: &CallId) -> Position {
    loop {
        let cancels = fixture.records.cancels(&after, LONG).await.unwrap();
        assert!(!cancels.is_empty(), "call {call} never came");
        for (position, cancelled) in cancels {
            assert!(position > after);
            after = position;
            if cancelled == *call {
                return position;
            }
        }
    }
}

async fn a_cancel_reaches_who_follows(fixture: Fixture) {
    let (one, other) = (CallId::generate(), CallId::generate());
    let end = fixture.records.cancels_end().await.unwrap();
    let follower = follow(&fixture, end, &other);
    let announcer = async {
        fixture.records.announce_cancel(&one).await.unwrap();
        fixture.records.announce_cancel(&other).await.unwrap();
    };
    let (position, ()) = tokio::join!(follower, announcer);
    assert!(follow(&fixture, end, &one).await < position);
    assert!(follow(&fixture, Position::START, &one).await < position, "and who comes later");
}

async fn cancels_can_be_followed_from_the_end(fixture: Fixture) {
    let (before, after) = (CallId::generate(), CallId::generate());
    fixture.records.announce_cancel(&before).await.unwrap();
    let end = fixture.records.cancels_end().await.unwrap();
    fixture.records.announce_cancel(&after).await.unwrap();
    let cancels = fixture.records.cancels(&end, LONG).await.unwrap();
    assert!(cancels.iter().all(|(_, call)| *call != before));
    follow(&fixture, end, &after).await;
}

async fn nothing_to_cancel_is_an_empty_answer(fixture: Fixture) {
    let far = Position { at_ms: u64::from(u32::MAX) * 1000, sequence: 0 };
    assert_eq!(fixture.records.cancels(&far, Duration::from_millis(1)).await.unwrap(), []);
}
