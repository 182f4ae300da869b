//! Settings of an installation.

use crate::{Fixture, account, on_each_store, slug, with_lost_answers};
use base64::Engine;
use serde_json::{Map, Value, json};
use toolfleet_protocol::{AccountId, PluginSlug};
use toolfleet_store::records::{SECRET_SHOWN, Sealer, SettingsError};
use toolfleet_store::{Key, Op, Reply, Transacted, Transaction};

on_each_store! {
    settings_read_back_as_they_were_saved,
    a_secret_is_not_in_what_is_stored_nor_in_what_is_shown,
    a_secret_needs_a_key,
    secrets_stay_readable_while_keys_change,
    a_secret_moved_elsewhere_does_not_open,
    bad_settings_change_nothing,
    saving_survives_a_lost_answer,
}

const SECRET: &str = "correct-horse-battery-staple";

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"token": {"type": "string", "secret": true}, "city": {"type": "string"}, "n": {"type": "integer"}},
        "additionalProperties": false,
    })
}

fn values(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// A sealer with keys of these names; the first is active.
fn sealer(names: &[&str]) -> Sealer {
    let key = |name: &str| base64::engine::general_purpose::STANDARD.encode(name.as_bytes().repeat(32).split_at(32).0);
    let keys = names.iter().map(|name| ((*name).to_owned(), key(name))).collect();
    Sealer::new(&keys, names.first().copied()).unwrap()
}

fn stored_key(account: &AccountId, slug: &PluginSlug) -> Key {
    Key::new(&format!("account:{account}"), &format!("settings/{slug}"))
}

async fn stored(fixture: &Fixture, account: &AccountId, slug: &PluginSlug) -> Vec<(String, bytes::Bytes)> {
    let then = vec![Op::FieldsGet(stored_key(account, slug))];
    match fixture.records.store().transact(Transaction { then, ..Transaction::default() }).await.unwrap() {
        Transacted::Then(mut replies) => match replies.pop() {
            Some(Reply::Fields(fields)) => fields,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

async fn settings_read_back_as_they_were_saved(fixture: Fixture) {
    let records = &fixture.records;
    let (account, slug, sealer) = (account(), slug(), sealer(&["k1"]));
    assert!(records.settings(&account, &slug, &sealer).await.unwrap().is_empty());
    let all = values(json!({"token": SECRET, "city": "Ulm", "n": 3}));
    records.put_settings(&account, &slug, Some(&schema()), &all, &sealer).await.unwrap();
    assert_eq!(records.settings(&account, &slug, &sealer).await.unwrap(), all);
    // They are replaced as a whole.
    let fewer = values(json!({"city": "Linz"}));
    records.put_settings(&account, &slug, Some(&schema()), &fewer, &sealer).await.unwrap();
    assert_eq!(records.settings(&account, &slug, &sealer).await.unwrap(), fewer);
    records.put_settings(&account, &slug, Some(&schema()), &Map::new(), &sealer).await.unwrap();
    assert!(records.settings(&account, &slug, &sealer).await.unwrap().is_empty());
}

async fn a_secret_is_not_in_what_is_stored_nor_in_what_is_shown(fixture: Fixture) {
    let records = &fixture.records;
    let (account, slug, sealer) = (account(), slug(), sealer(&["k1"]));
    let all = values(json!({"token": SECRET, "city": "Ulm"}));
    records.put_settings(&account, &slug, Some(&schema()), &all, &sealer).await.unwrap();
    let stored = stored(&fixture, &account, &slug).await;
    assert_eq!(stored.len(), 2);
    for (name, bytes) in stored {
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(SECRET), "{name}: {text}");
        assert!(!text.contains(&base64::engine::general_purpose::STANDARD.encode(SECRET)), "{name}: {text}");
        assert_eq!(text.contains("Ulm"), name == "city", "{name}: {text}");
    }
    let shown = records.settings_shown(&account, &slug).await.unwrap();
    assert_eq!(shown, values(json!({"token": SECRET_SHOWN, "city": "Ulm"})));
    // What is shown can't be saved by mistake.
    let error = records.put_settings(&account, &slug, Some(&schema()), &shown, &sealer).await.unwrap_err();
    assert!(error.to_string().contains("give the secret itself"), "{error}");
    assert_eq!(records.settings(&account, &slug, &sealer).await.unwrap(), all);
}

async fn a_secret_needs_a_key(fixture: Fixture) {
    let records = &fixture.records;
    let (account, slug) = (account(), slug());
    let secret = values(json!({"token": SECRET}));
    let error = records.put_settings(&account, &slug, Some(&schema()), &secret, &Sealer::none()).await.unwrap_err();
    assert!(matches!(&error, SettingsError::NoKey { name } if name == "token"), "{error}");
    assert!(error.to_string().contains("settings.keys"), "{error}");
    assert!(!format!("{error} {error:?}").contains(SECRET));
    assert!(stored(&fixture, &account, &slug).await.is_empty());
    let plain = values(json!({"city": "Ulm"}));
    records.put_settings(&account, &slug, Some(&schema()), &plain, &Sealer::none()).await.unwrap();
    assert_eq!(records.settings(&account, &slug, &Sealer::none()).await.unwrap(), plain);
}

async fn secrets_stay_readable_while_keys_change(fixture: Fixture) {
    let records = &fixture.records;
    let (account, slug) = (account(), slug());
    let all = values(json!({"token": SECRET}));
    let (old, both, new) = (sealer(&["k1"]), sealer(&["k2", "k1"]), sealer(&["k2"]));
    records.put_settings(&account, &slug, Some(&schema()), &all, &old).await.unwrap();
    assert_eq!(records.settings(&account, &slug, &both).await.unwrap(), all);
    let error = records.settings(&account, &slug, &new).await.unwrap_err();
    assert!(matches!(&error, SettingsError::UnknownKey { name, key } if name == "token" && key == "k1"), "{error}");
    // Saved again, the old key isn't needed any more.
    records.put_settings(&account, &slug, Some(&schema()), &all, &both).await.unwrap();
    assert_eq!(records.settings(&account, &slug, &new).await.unwrap(), all);
}

async fn a_secret_moved_elsewhere_does_not_open(fixture: Fixture) {
    let records = &fixture.records;
    let (account, slug, sealer) = (account(), slug(), sealer(&["k1"]));
    records.put_settings(&account, &slug, Some(&schema()), &values(json!({"token": SECRET})), &sealer).await.unwrap();
    let [(name, bytes)] = &stored(&fixture, &account, &slug).await[..] else { panic!() };
    let (thief, other) = (crate::account(), crate::slug());
    for (account, slug, name) in [(&thief, &slug, name.as_str()), (&account, &other, name), (&account, &slug, "city")] {
        let fields = vec![(name.to_owned(), bytes.clone())];
        let then = vec![Op::FieldsSet { key: stored_key(account, slug), fields }];
        records.store().transact(Transaction { then, ..Transaction::default() }).await.unwrap();
        let error = records.settings(account, slug, &sealer).await.unwrap_err();
        assert!(matches!(&error, SettingsError::Sealed { name: refused } if refused == name), "{error}");
    }
}

async fn bad_settings_change_nothing(fixture: Fixture) {
    let records = &fixture.records;
    let (account, slug, sealer) = (account(), slug(), sealer(&["k1"]));
    let good = values(json!({"city": "Ulm"}));
    records.put_settings(&account, &slug, Some(&schema()), &good, &sealer).await.unwrap();
    let before = stored(&fixture, &account, &slug).await;
    for (bad, at) in [(json!({"city": 1}), "/city"), (json!({"n": "1"}), "/n"), (json!({"town": "Ulm"}), "/town")] {
        let error = records.put_settings(&account, &slug, Some(&schema()), &values(bad), &sealer).await.unwrap_err();
        assert!(matches!(&error, SettingsError::Invalid { pointer, .. } if pointer == at), "{error}");
    }
    assert!(records.put_settings(&account, &slug, None, &good, &sealer).await.is_err());
    assert_eq!(stored(&fixture, &account, &slug).await, before);
}

async fn saving_survives_a_lost_answer(fixture: Fixture) {
    let (sealer, schema, all) = (sealer(&["k1"]), schema(), values(json!({"token": SECRET, "n": 1})));
    let repeated = with_lost_answers!(fixture, it = (account(), slug()), {
        fixture.records.put_settings(&it.0, &it.1, Some(&schema), &all, &sealer)
    });
    for ((), (account, slug)) in repeated {
        assert_eq!(fixture.records.settings(&account, &slug, &sealer).await.unwrap(), all);
    }
}
