//! What an account has: plugins, agents, usage.

use crate::{Fixture, account, agent, digest, on_each_store, slug, with_lost_answers};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use toolfleet_protocol::*;
use toolfleet_store::records::*;
use toolfleet_store::{Key, Op, StoreError, Transaction};

on_each_store! {
    a_draft_reads_back_until_it_expires,
    a_version_is_one_release_for_ever,
    of_two_releases_of_one_version_one_is_published,
    publishing_survives_a_lost_answer,
    the_latest_release_is_the_highest_that_is_no_prerelease,
    an_installation_comes_and_goes_with_its_settings,
    an_agent_belongs_to_one_account,
    access_stays_as_it_was_set,
    making_an_agent_survives_a_lost_answer,
    a_call_is_counted_once_of_a_thousand_times,
    counting_survives_a_lost_answer,
    usage_is_summed_by_day_and_plugin,
    absurd_usage_does_not_break_the_sums,
    counting_takes_one_round_trip,
    damaged_records_are_named,
}

fn bundle() -> Bundle {
    let file = BundledFile { code: "1".into(), source_map: "{}".into(), imports: BTreeMap::new() };
    Bundle { entry: "a.ts".into(), entry_is_script: true, files: [("a.ts".to_owned(), file)].into() }
}

fn release(slug: &PluginSlug, version: &str) -> Release {
    Release {
        digest: digest(),
        slug: slug.clone(),
        version: version.parse().unwrap(),
        name: "Name".into(),
        description: "What it does".into(),
        tools: Vec::new(),
        permissions: BTreeSet::new(),
        egress: Vec::new(),
        settings: Some(json!({"type": "object"})),
        limits: Limits::BASE,
        bundle: std::sync::Arc::new(bundle()),
    }
}

async fn a_draft_reads_back_until_it_expires(fixture: Fixture) {
    let records = &fixture.records;
    let draft = digest();
    assert_eq!(records.draft(&draft).await.unwrap(), None);
    records.put_draft(&draft, &bundle(), Duration::from_secs(600)).await.unwrap();
    assert_eq!(records.draft(&draft).await.unwrap(), Some(bundle()));
    records.put_draft(&draft, &bundle(), Duration::from_millis(20)).await.unwrap();
    let gone = async {
        while records.draft(&draft).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("the draft never expired");
}

async fn a_version_is_one_release_for_ever(fixture: Fixture) {
    let records = &fixture.records;
    let slug = slug();
    let first = release(&slug, "1.0.0");
    assert_eq!(records.release(&first.digest).await.unwrap(), None);
    assert_eq!(records.put_release(&first, 1).await.unwrap(), Published::New);
    assert_eq!(records.put_release(&first, 2).await.unwrap(), Published::Already);
    let other = release(&slug, "1.0.0");
    match records.put_release(&other, 3).await {
        Err(PublishError::Conflict(conflict)) => {
            assert_eq!(conflict.standing, first.digest);
            assert!(conflict.to_string().contains("raise the version in plugin.json"), "{conflict}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(records.release(&first.digest).await.unwrap(), Some(first.clone()));
    assert_eq!(records.release(&other.digest).await.unwrap(), None);
    assert_eq!(records.versions(&slug).await.unwrap(), [(first.version, first.digest)]);
    assert!(records.plugins().await.unwrap().contains(&slug));
}

async fn of_two_releases_of_one_version_one_is_published(fixture: Fixture) {
    let slug = slug();
    let publishing = (0..10).map(|_| {
        let (records, release) = (fixture.records.clone(), release(&slug, "1.0.0"));
        tokio::spawn(async move { (records.put_release(&release, 1).await, release.digest) })
    });
    let outcomes: Vec<_> = futures::future::join_all(publishing).await.into_iter().map(Result::unwrap).collect();
    let [(_, standing)] = &fixture.records.versions(&slug).await.unwrap()[..] else { panic!() };
    for (outcome, digest) in &outcomes {
        match outcome {
            Ok(Published::New) => assert_eq!(digest, standing),
            Err(PublishError::Conflict(conflict)) => assert_eq!(conflict.standing, *standing),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(outcomes.iter().filter(|(outcome, _)| outcome.is_ok()).count(), 1);
}

async fn publishing_survives_a_lost_answer(fixture: Fixture) {
    let repeated = with_lost_answers!(fixture, it = release(&slug(), "1.0.0"), fixture.records.put_release(&it, 1));
    for (_, release) in repeated {
        assert_eq!(fixture.records.latest_release(&release.slug).await.unwrap().unwrap().1, release.digest);
        assert_eq!(fixture.records.release(&release.digest).await.unwrap(), Some(release));
    }
}

async fn the_latest_release_is_the_highest_that_is_no_prerelease(fixture: Fixture) {
    let slug = slug();
    assert_eq!(fixture.records.latest_release(&slug).await.unwrap(), None);
    for (version, latest) in [
        ("1.0.0-rc.1", "1.0.0-rc.1"),
        ("0.9.0", "0.9.0"),
        ("0.10.0", "0.10.0"),
        ("0.2.0", "0.10.0"),
        ("2.0.0-a", "0.10.0"),
    ] {
        fixture.records.put_release(&release(&slug, version), 1).await.unwrap();
        let (found, _) = fixture.records.latest_release(&slug).await.unwrap().unwrap();
        assert_eq!(found.to_string(), latest, "after {version}");
    }
    let versions = fixture.records.versions(&slug).await.unwrap();
    let versions: Vec<String> = versions.into_iter().map(|(version, _)| version.to_string()).collect();
    assert_eq!(versions, ["0.2.0", "0.9.0", "0.10.0", "1.0.0-rc.1", "2.0.0-a"]);
}

async fn an_installation_comes_and_goes_with_its_settings(fixture: Fixture) {
    let records = &fixture.records;
    let (account, plugin) = (account(), slug());
    let installation = |plugin: &PluginSlug, version: &str| Installation {
        plugin: plugin.clone(),
        release: digest(),
        version: version.parse().unwrap(),
        installed_at_ms: 5,
    };
    assert_eq!(records.installation(&account, &plugin).await.unwrap(), None);
    let (old, new) = (installation(&plugin, "1.0.0"), installation(&plugin, "1.1.0"));
    let other = installation(&slug(), "1.0.0");
    for installed in [&old, &new, &other] {
        records.install(&account, installed).await.unwrap();
    }
    let all = [("city".to_owned(), "Ulm".into())].into_iter().collect();
    records.put_settings(&account, &plugin, Some(&json!({})), &all, &Sealer::none()).await.unwrap();
    assert_eq!(records.installation(&account, &plugin).await.unwrap().as_ref(), Some(&new));
    let mut expected = vec![new, other.clone()];
    expected.sort_by(|a, b| a.plugin.cmp(&b.plugin));
    assert_eq!(records.installations(&account).await.unwrap(), expected);
    assert!(records.installations(&crate::account()).await.unwrap().is_empty());

    assert!(records.uninstall(&account, &plugin).await.unwrap());
    assert!(!records.uninstall(&account, &plugin).await.unwrap());
    assert_eq!(records.installations(&account).await.unwrap(), [other]);
    assert!(records.settings_shown(&account, &plugin).await.unwrap().is_empty());
}

fn named(account: &AccountId, id: &AgentId, name: &str) -> Agent {
    Agent { id: id.clone(), account: account.clone(), name: name.into(), access: Access::default(), created_at_ms: 7 }
}

async fn an_agent_belongs_to_one_account(fixture: Fixture) {
    let records = &fixture.records;
    let (one, other, id) = (account(), account(), agent());
    assert_eq!(records.agent(&id).await.unwrap(), None);
    assert_eq!(records.put_agent(&named(&one, &id, "Ann")).await.unwrap(), Put::New);
    assert_eq!(records.put_agent(&named(&one, &id, "Ann")).await.unwrap(), Put::Same);
    assert_eq!(records.put_agent(&named(&one, &id, "Änne")).await.unwrap(), Put::Same);
    let error = records.put_agent(&named(&other, &id, "Bob")).await.unwrap_err();
    assert!(matches!(&error, PutAgentError::Conflict(AgentConflict { id: taken }) if *taken == id), "{error}");
    assert_eq!(records.agent(&id).await.unwrap(), Some(named(&one, &id, "Änne")));
    assert_eq!(records.agents(&other, 10).await.unwrap(), []);

    let mut ids = vec![id.clone(), agent(), agent()];
    for id in &ids[1..] {
        records.put_agent(&named(&one, id, "Ann")).await.unwrap();
    }
    ids.sort();
    let listed = |limit| async move { records.agents(&one, limit).await.unwrap() };
    let (all, one) = (listed.clone()(10).await, listed(1).await);
    assert_eq!(all.into_iter().map(|agent| agent.id).collect::<Vec<_>>(), ids);
    assert_eq!(one[0].id, ids[0]);
    assert_eq!(one.len(), 1);
}

async fn access_stays_as_it_was_set(fixture: Fixture) {
    let records = &fixture.records;
    let (account, id) = (account(), agent());
    assert!(!records.set_access(&id, &Access::default()).await.unwrap());
    assert_eq!(records.agent(&id).await.unwrap(), None);
    records.put_agent(&named(&account, &id, "Ann")).await.unwrap();
    let tools: BTreeSet<String> = ["p__a".to_owned()].into();
    let access = Access { mode: AccessMode::List, tools: tools.clone(), deny: BTreeSet::new(), pin: tools };
    assert!(records.set_access(&id, &access).await.unwrap());
    records.put_agent(&named(&account, &id, "Anna")).await.unwrap();
    assert_eq!(records.agent(&id).await.unwrap(), Some(Agent { access, ..named(&account, &id, "Anna") }));
}

async fn making_an_agent_survives_a_lost_answer(fixture: Fixture) {
    let repeated = with_lost_answers!(fixture, it = named(&account(), &agent(), "Ann"), fixture.records.put_agent(&it));
    for (_, agent) in repeated {
        assert_eq!(fixture.records.agents(&agent.account, 10).await.unwrap(), [agent]);
    }
}

const DAY_MS: u64 = 24 * 3600 * 1000;
/// 2026-12-01, noon.
const NOON_MS: u64 = 1_796_126_400_000;

fn metering(account: &AccountId, plugin: Option<&PluginSlug>) -> Metering {
    Metering {
        v: WIRE_VERSION,
        call_id: CallId::generate(),
        account: account.clone(),
        agent: None,
        plugin: plugin.cloned(),
        tool: None,
        failure: None,
        usage: Usage { wall_ms: 10, cpu_ms: 5, host_calls: 2, ..Usage::default() },
        worker: None,
        finished_at_ms: NOON_MS,
    }
}

fn day(text: &str) -> Day {
    Day::parse(text).unwrap()
}

const ONE: UsageSum = UsageSum { calls: 1, failed: 0, wall_ms: 10, cpu_ms: 5, host_calls: 2 };

async fn a_call_is_counted_once_of_a_thousand_times(fixture: Fixture) {
    let (account, plugin) = (account(), slug());
    let event = metering(&account, Some(&plugin));
    let counts = (0..1000).map(|_| {
        let (records, event) = (fixture.records.clone(), event.clone());
        tokio::spawn(async move { records.count(&event).await.unwrap() })
    });
    let counts: Vec<Counted> = futures::future::join_all(counts).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(counts.iter().filter(|counted| **counted == Counted::First).count(), 1);
    let usage = fixture.records.usage(&account, day("2026-12-01"), day("2026-12-01")).await.unwrap();
    let expected = UsageDay { day: day("2026-12-01"), plugins: [(plugin.to_string(), ONE)].into() };
    assert_eq!(usage, [expected]);
}

async fn counting_survives_a_lost_answer(fixture: Fixture) {
    let plugin = slug();
    let repeated = with_lost_answers!(fixture, it = metering(&account(), Some(&plugin)), fixture.records.count(&it));
    for (_, event) in repeated {
        let usage = fixture.records.usage(&event.account, day("2026-12-01"), day("2026-12-01")).await.unwrap();
        assert_eq!(usage[0].plugins[plugin.as_str()], ONE);
        let accounts =
            fixture.records.accounts_with_usage(day("2026-12-01"), day("2026-12-01"), 100_000).await.unwrap();
        assert!(accounts.contains(&event.account));
    }
}

async fn usage_is_summed_by_day_and_plugin(fixture: Fixture) {
    let records = &fixture.records;
    let (account, plugin, other) = (account(), slug(), slug());
    let failed = Metering { failure: Some(FailureKind::Thrown), ..metering(&account, Some(&plugin)) };
    let next_day = Metering { finished_at_ms: NOON_MS + DAY_MS, ..metering(&account, Some(&plugin)) };
    let events = [
        metering(&account, Some(&plugin)),
        failed,
        next_day,
        metering(&account, Some(&other)),
        metering(&account, None),
    ];
    for event in &events {
        assert_eq!(records.count(event).await.unwrap(), Counted::First);
        assert_eq!(records.count(event).await.unwrap(), Counted::Again);
    }
    let usage = async |from: &str, to: &str| records.usage(&account, day(from), day(to)).await.unwrap();
    let [first, second] = &usage("2026-11-01", "2027-01-01").await[..] else { panic!() };
    let sum = UsageSum { calls: 2, failed: 1, wall_ms: 20, cpu_ms: 10, host_calls: 4 };
    let plugins = [(plugin.to_string(), sum), (other.to_string(), ONE), ("-".to_owned(), ONE)];
    assert_eq!((first.day, &first.plugins), (day("2026-12-01"), &plugins.into()));
    assert_eq!((second.day, &second.plugins), (day("2026-12-02"), &[(plugin.to_string(), ONE)].into()));
    assert_eq!(usage("2026-12-02", "2026-12-02").await, std::slice::from_ref(second));
    assert_eq!(usage("2026-12-03", "2026-12-31").await, []);
    assert_eq!(usage("2026-12-02", "2026-12-01").await, []);
    assert_eq!(usage("1970-01-01", "2026-12-02").await.len(), 2);
    assert_eq!(usage("1970-01-01", "9999-12-31").await, [], "400 days are read, the last");
    assert_eq!(serde_json::to_value(second).unwrap()["day"], "2026-12-02");

    let with_usage = async |from: &str, to: &str| {
        records.accounts_with_usage(day(from), day(to), 100_000).await.unwrap().contains(&account)
    };
    assert!(with_usage("2026-12-02", "2026-12-31").await);
    assert!(with_usage("2026-11-01", "2026-12-01").await);
    assert!(!with_usage("2026-12-03", "2026-12-31").await);
}

async fn absurd_usage_does_not_break_the_sums(fixture: Fixture) {
    let (account, plugin) = (account(), slug());
    let usage = Usage { wall_ms: u64::MAX, cpu_ms: u64::MAX, host_calls: u64::MAX, ..Usage::default() };
    for _ in 0..3 {
        let event = Metering { usage, ..metering(&account, Some(&plugin)) };
        assert_eq!(fixture.records.count(&event).await.unwrap(), Counted::First);
    }
    let usage = fixture.records.usage(&account, day("2026-12-01"), day("2026-12-01")).await.unwrap();
    assert_eq!(usage[0].plugins[plugin.as_str()].calls, 3);
}

async fn counting_takes_one_round_trip(fixture: Fixture) {
    let (account, plugin) = (account(), slug());
    fixture.records.count(&metering(&account, Some(&plugin))).await.unwrap();
    fixture.watched.steps();
    fixture.records.count(&metering(&account, Some(&plugin))).await.unwrap();
    assert_eq!(fixture.watched.steps(), 1);
}

async fn damaged_records_are_named(fixture: Fixture) {
    let records = &fixture.records;
    let (account, plugin, id, release) = (account(), slug(), agent(), digest());
    let fields = |name: &str, value: &'static str| vec![(name.to_owned(), value.into())];
    let damage = [
        Op::FieldsSet { key: Key::new(&format!("agent:{id}"), "agent"), fields: fields("account", "a b") },
        Op::Set { key: Key::new(&format!("release:{release}"), "release"), value: "{}".into(), expires_in: None },
        Op::FieldsSet {
            key: Key::new(&format!("account:{account}"), "installations"),
            fields: fields(plugin.as_str(), "1"),
        },
        Op::FieldsSet { key: Key::new("plugins", &format!("versions/{plugin}")), fields: fields("one", "{}") },
        Op::FieldsSet { key: Key::new(&format!("usage:{account}"), "day/2026-12-01"), fields: fields("what", "1") },
    ];
    for op in damage {
        records.store().transact(Transaction { then: vec![op], ..Transaction::default() }).await.unwrap();
    }
    let check = |error: StoreError, name: &str| match error {
        StoreError::Corrupt { record, .. } => assert!(record.contains(name), "{record}"),
        other => panic!("{other}"),
    };
    check(records.agent(&id).await.unwrap_err(), id.as_str());
    check(records.release(&release).await.unwrap_err(), release.as_str());
    check(records.installation(&account, &plugin).await.unwrap_err(), plugin.as_str());
    check(records.installations(&account).await.unwrap_err(), account.as_str());
    check(records.versions(&plugin).await.unwrap_err(), plugin.as_str());
    check(records.usage(&account, day("2026-12-01"), day("2026-12-01")).await.unwrap_err(), "2026-12-01");
}
