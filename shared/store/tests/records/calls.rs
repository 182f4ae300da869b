//! Calls: created once, claimed so often, ended once.

use crate::{Fixture, job, ok, on_each_store, text, unique, with_lost_answers, worker};
use std::time::Duration;
use toolfleet_protocol::{CallError, CallId, CallResult, FailureKind, Job, Usage};
use toolfleet_store::records::{CallState, Claim, Created, DEFAULT_RETENTION, NewCall, Recorded, Recorder};
use toolfleet_store::{Key, Op, StoreError, Transaction};

on_each_store! {
    a_call_goes_from_queued_to_finished,
    a_call_is_created_once_and_a_repeat_is_told_from_another_request,
    creating_a_call_survives_a_lost_answer,
    a_hundred_claims_run_as_often_as_deliveries_allow,
    a_claim_with_another_body_is_foreign,
    a_finished_call_is_known_to_who_claims_it,
    of_two_results_one_is_first,
    an_attempt_is_fenced_out_by_a_newer_one,
    a_scheduler_ends_a_call_whatever_its_attempt,
    a_result_repeated_by_its_recorder_is_first_again,
    recording_a_result_survives_a_lost_answer,
    a_finished_call_expires_after_its_retention_and_an_unfinished_one_does_not,
    overdue_calls_come_up_until_postponed_or_closed,
    usual_steps_take_as_few_round_trips_as_they_can,
    a_damaged_record_is_named_and_breaks_nothing,
}

fn new<'a>(job: &'a Job, body: &'a [u8]) -> NewCall<'a> {
    NewCall { job, body, request_digest: [1; 32], overdue_at_ms: u64::from(u32::MAX), retention: DEFAULT_RETENTION }
}

/// A call that was created.
async fn created(fixture: &Fixture) -> (CallId, Vec<u8>) {
    let job = job();
    let body = job.encode();
    assert_eq!(fixture.records.create_call(new(&job, &body)).await.unwrap(), Created::New);
    fixture.records.close_call(&job.call_id).await.unwrap();
    (job.call_id, body)
}

/// A call that was created and claimed.
async fn running(fixture: &Fixture) -> CallId {
    let (call, body) = created(fixture).await;
    let claim = fixture.records.claim(&call, &body, &worker(), 3, 1).await.unwrap();
    assert!(matches!(claim, Claim::Run { attempt: 1 }), "{claim:?}");
    call
}

fn cancelled(call: &CallId) -> CallResult {
    CallResult::failed(call.clone(), CallError::new(FailureKind::Cancelled, "it was cancelled"), Usage::default())
}

fn is_first(recorded: &Recorded) -> bool {
    matches!(recorded, Recorded::First)
}

async fn a_call_goes_from_queued_to_finished(fixture: Fixture) {
    let records = &fixture.records;
    assert!(records.call(&CallId::generate()).await.unwrap().is_none());
    let (call, body) = created(&fixture).await;
    let record = records.call(&call).await.unwrap().unwrap();
    assert_eq!((record.state, record.finished_at_ms), (CallState::Queued, None));
    assert_eq!(record.job.encode(), body);

    let worker = worker();
    records.claim(&call, &body, &worker, 3, 77).await.unwrap();
    let record = records.call(&call).await.unwrap().unwrap();
    assert_eq!(record.state, CallState::Running { attempt: 1, worker, claimed_at_ms: 77 });
    assert!(records.result(&call).await.unwrap().is_none());

    let result = ok(&call, r#"{"a":[1.50,null]}"#);
    assert!(is_first(&records.record_result(&call, Recorder::Attempt(1), &result, 99).await.unwrap()));
    let record = records.call(&call).await.unwrap().unwrap();
    assert_eq!((record.state, record.finished_at_ms), (CallState::Finished, Some(99)));
    assert_eq!(text(&record.result.unwrap()), text(&result));
    assert_eq!(text(&records.result(&call).await.unwrap().unwrap()), text(&result));
}

async fn a_call_is_created_once_and_a_repeat_is_told_from_another_request(fixture: Fixture) {
    let records = &fixture.records;
    let job = job();
    let body = job.encode();
    assert_eq!(records.create_call(new(&job, &body)).await.unwrap(), Created::New);
    assert_eq!(records.create_call(new(&job, &body)).await.unwrap(), Created::Exists { same_request: true });
    let other = NewCall { request_digest: [2; 32], ..new(&job, &body) };
    assert_eq!(records.create_call(other).await.unwrap(), Created::Exists { same_request: false });
    records.close_call(&job.call_id).await.unwrap();
}

async fn creating_a_call_survives_a_lost_answer(fixture: Fixture) {
    let outcomes = with_lost_answers!(fixture, job = job(), {
        async { fixture.records.create_call(new(&job, &job.encode())).await }
    });
    let outcomes: Vec<_> = outcomes.into_iter().map(|(outcome, _)| outcome).collect();
    // Lost after the index: the record was not yet there. Lost after the record: it was.
    assert_eq!(outcomes, [Created::New, Created::Exists { same_request: true }]);
}

async fn a_hundred_claims_run_as_often_as_deliveries_allow(fixture: Fixture) {
    let (call, body) = created(&fixture).await;
    let claims = (0..100).map(|_| {
        let (records, call, body) = (fixture.records.clone(), call.clone(), body.clone());
        tokio::spawn(async move { records.claim(&call, &body, &worker(), 3, 1).await.unwrap() })
    });
    let (mut run, mut exhausted) = (Vec::new(), Vec::new());
    for claim in futures::future::join_all(claims).await {
        match claim.unwrap() {
            Claim::Run { attempt } => run.push(attempt),
            Claim::Exhausted { attempt } => exhausted.push(attempt),
            other => panic!("{other:?}"),
        }
    }
    run.sort_unstable();
    exhausted.sort_unstable();
    assert_eq!(run, [1, 2, 3]);
    assert_eq!(exhausted, (4..=100).collect::<Vec<_>>());
}

async fn a_claim_with_another_body_is_foreign(fixture: Fixture) {
    let records = &fixture.records;
    let (call, body) = created(&fixture).await;
    let changed = [&body[..], b" "].concat();
    let claim = |body: Vec<u8>| async move {
        let (call, worker) = (call.clone(), worker());
        (records.claim(&call, &body, &worker, 3, 1).await.unwrap(), call)
    };
    let (claimed, call) = claim(changed.clone()).await;
    assert!(matches!(claimed, Claim::Foreign), "{claimed:?}");
    assert!(matches!(records.claim(&CallId::generate(), &body, &worker(), 3, 1).await.unwrap(), Claim::Foreign));
    // It used up no attempt, and a result isn't shown to it either.
    assert!(matches!(records.claim(&call, &body, &worker(), 3, 1).await.unwrap(), Claim::Run { attempt: 1 }));
    records.record_result(&call, Recorder::Attempt(1), &ok(&call, "1"), 1).await.unwrap();
    assert!(matches!(records.claim(&call, &changed, &worker(), 3, 1).await.unwrap(), Claim::Foreign));
}

async fn a_finished_call_is_known_to_who_claims_it(fixture: Fixture) {
    let (call, body) = created(&fixture).await;
    let result = cancelled(&call);
    fixture.records.record_result(&call, Recorder::Scheduler, &result, 1).await.unwrap();
    match fixture.records.claim(&call, &body, &worker(), 3, 1).await.unwrap() {
        Claim::Known(known) => assert_eq!(text(&known), text(&result)),
        other => panic!("{other:?}"),
    }
}

async fn of_two_results_one_is_first(fixture: Fixture) {
    for _ in 0..20 {
        let call = running(&fixture).await;
        let results: Vec<CallResult> = (0..8).map(|number| ok(&call, &number.to_string())).collect();
        let recorders = results.iter().enumerate().map(|(number, result)| {
            let by = if number % 2 == 0 { Recorder::Attempt(1) } else { Recorder::Scheduler };
            fixture.records.record_result(&call, by, result, 1)
        });
        let recorded: Vec<Recorded> = futures::future::try_join_all(recorders).await.unwrap();
        let first: Vec<usize> = (0..8).filter(|number| is_first(&recorded[*number])).collect();
        let [first] = first[..] else { panic!("{recorded:?}") };
        let stands = text(&results[first]);
        assert_eq!(text(&fixture.records.result(&call).await.unwrap().unwrap()), stands);
        for recorded in recorded {
            match recorded {
                Recorded::First => {}
                Recorded::Late(Some(other)) => assert_eq!(text(&other), stands),
                other => panic!("{other:?}"),
            }
        }
    }
}

async fn an_attempt_is_fenced_out_by_a_newer_one(fixture: Fixture) {
    let records = &fixture.records;
    let (call, body) = created(&fixture).await;
    for _ in 0..2 {
        records.claim(&call, &body, &worker(), 3, 1).await.unwrap();
    }
    let old = records.record_result(&call, Recorder::Attempt(1), &ok(&call, "1"), 1).await.unwrap();
    assert!(matches!(old, Recorded::Late(None)), "{old:?}");
    assert!(records.result(&call).await.unwrap().is_none());

    let newer = ok(&call, "2");
    assert!(is_first(&records.record_result(&call, Recorder::Attempt(2), &newer, 1).await.unwrap()));
    let old = records.record_result(&call, Recorder::Attempt(1), &ok(&call, "1"), 1).await.unwrap();
    assert!(matches!(&old, Recorded::Late(Some(stands)) if text(stands) == text(&newer)), "{old:?}");
}

async fn a_scheduler_ends_a_call_whatever_its_attempt(fixture: Fixture) {
    let records = &fixture.records;
    for call in [created(&fixture).await.0, running(&fixture).await] {
        let result = cancelled(&call);
        assert!(is_first(&records.record_result(&call, Recorder::Scheduler, &result, 1).await.unwrap()));
        let late = records.record_result(&call, Recorder::Attempt(1), &ok(&call, "1"), 1).await.unwrap();
        assert!(matches!(&late, Recorded::Late(Some(stands)) if text(stands) == text(&result)), "{late:?}");
    }
    let call = running(&fixture).await;
    records.record_result(&call, Recorder::Attempt(1), &ok(&call, "1"), 1).await.unwrap();
    let late = records.record_result(&call, Recorder::Scheduler, &cancelled(&call), 1).await.unwrap();
    assert!(matches!(late, Recorded::Late(Some(_))), "{late:?}");
    let nobody = CallId::generate();
    let unknown = records.record_result(&nobody, Recorder::Scheduler, &cancelled(&nobody), 1).await.unwrap();
    assert!(matches!(unknown, Recorded::Unknown), "{unknown:?}");
}

async fn a_result_repeated_by_its_recorder_is_first_again(fixture: Fixture) {
    let records = &fixture.records;
    let call = running(&fixture).await;
    let result = ok(&call, "1");
    for _ in 0..3 {
        assert!(is_first(&records.record_result(&call, Recorder::Attempt(1), &result, 1).await.unwrap()));
    }
    let other = records.record_result(&call, Recorder::Scheduler, &result, 1).await.unwrap();
    assert!(matches!(other, Recorded::Late(Some(_))), "{other:?}");
}

async fn recording_a_result_survives_a_lost_answer(fixture: Fixture) {
    let repeated = with_lost_answers!(fixture, call = running(&fixture).await, {
        async { fixture.records.record_result(&call, Recorder::Attempt(1), &ok(&call, "1"), 1).await }
    });
    assert!(repeated.iter().all(|(recorded, _)| is_first(recorded)));
}

async fn a_finished_call_expires_after_its_retention_and_an_unfinished_one_does_not(fixture: Fixture) {
    let records = &fixture.records;
    let retention = Duration::from_millis(50);
    let mut calls = Vec::new();
    for _ in 0..2 {
        let job = job();
        let body = job.encode();
        records.create_call(NewCall { retention, ..new(&job, &body) }).await.unwrap();
        records.close_call(&job.call_id).await.unwrap();
        calls.push(job.call_id);
    }
    let [finished, unfinished] = &calls[..] else { unreachable!() };
    records.record_result(finished, Recorder::Scheduler, &cancelled(finished), 1).await.unwrap();
    let gone = async {
        while records.call(finished).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("the finished call never expired");
    assert!(records.call(unfinished).await.unwrap().is_some());
    // The next call has the usual retention, which this process must learn anew.
    let call = running(&fixture).await;
    assert!(is_first(&records.record_result(&call, Recorder::Attempt(1), &ok(&call, "1"), 1).await.unwrap()));
    assert!(records.call(&call).await.unwrap().is_some());
}

async fn overdue_calls_come_up_until_postponed_or_closed(fixture: Fixture) {
    let records = &fixture.records;
    // Long ago, so that no other test's call comes before.
    let [first, second] = [job(), job()];
    for (job, overdue_at_ms) in [(&second, 20), (&first, 10)] {
        let body = job.encode();
        records.create_call(NewCall { overdue_at_ms, ..new(job, &body) }).await.unwrap();
    }
    let (first, second) = (&first.call_id, &second.call_id);
    let overdue = |now_ms| async move {
        let all = records.overdue_calls(now_ms, 1000).await.unwrap();
        all.into_iter().filter(|call| call == first || call == second).collect::<Vec<_>>()
    };
    assert_eq!(overdue(9).await, []);
    assert_eq!(overdue(10).await, std::slice::from_ref(first));
    assert_eq!(overdue(20).await, [first.clone(), second.clone()]);
    assert!(records.overdue_calls(20, 1).await.unwrap().len() == 1);
    assert!(records.open_calls().await.unwrap() >= 2);
    records.postpone_call(first, 30).await.unwrap();
    assert_eq!(overdue(20).await, std::slice::from_ref(second));
    assert_eq!(overdue(30).await, [second.clone(), first.clone()]);
    for call in [first, second] {
        records.close_call(call).await.unwrap();
    }
    assert_eq!(overdue(u64::from(u32::MAX)).await, []);
}

async fn usual_steps_take_as_few_round_trips_as_they_can(fixture: Fixture) {
    let (records, watched) = (&fixture.records, &fixture.watched);
    let job = job();
    let (call, body) = (&job.call_id, job.encode());
    watched.steps();
    records.create_call(new(&job, &body)).await.unwrap();
    assert_eq!(watched.steps(), 2);
    records.claim(call, &body, &worker(), 3, 1).await.unwrap();
    assert_eq!(watched.steps(), 1);
    records.record_result(call, Recorder::Attempt(1), &ok(call, "1"), 1).await.unwrap();
    assert_eq!(watched.steps(), 1);
    records.close_call(call).await.unwrap();
}

async fn a_damaged_record_is_named_and_breaks_nothing(fixture: Fixture) {
    let records = &fixture.records;
    for (field, value) in
        [("body", "{"), ("result", "nonsense"), ("attempt", "many"), ("worker", "a b"), ("claimed_at_ms", "-1")]
    {
        let call = running(&fixture).await;
        let key = Key::new(&format!("call:{call}"), "record");
        let then = vec![Op::FieldsSet { key, fields: vec![(field.into(), value.into())] }];
        records.store().transact(Transaction { then, ..Transaction::default() }).await.unwrap();
        match records.call(&call).await {
            Err(StoreError::Corrupt { record, .. }) => assert_eq!(record, format!("call {call}")),
            other => panic!("{field}: {other:?}"),
        }
    }
    let unlike = CallId::parse(unique()).unwrap();
    let then = vec![Op::FieldsSet {
        key: Key::new(&format!("call:{unlike}"), "record"),
        fields: vec![("x".into(), "".into())],
    }];
    records.store().transact(Transaction { then, ..Transaction::default() }).await.unwrap();
    assert!(matches!(records.call(&unlike).await, Err(StoreError::Corrupt { .. })));
    let recorded = records.record_result(&unlike, Recorder::Scheduler, &ok(&unlike, "1"), 1).await.unwrap();
    assert!(matches!(recorded, Recorded::Unknown));
}
