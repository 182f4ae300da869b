//! The two plugins that the plugin author's document prints, as they stand: they publish, list the right
//! permissions, run, and return the right value, on both queues and stores.

use serde_json::json;
use toolfleet_tests::{Fleet, FleetOptions, Pair, Upstream, root};

const FORECAST: &str = r#"{"daily":{"temperature_2m_max":[11.5,13.0],"temperature_2m_min":[2.5,4.0]}}"#;

async fn check(pair: Pair) {
    let upstream = Upstream::start(FORECAST).await;
    let options = FleetOptions {
        workers: 1,
        upstreams: vec![("api.open-meteo.com".into(), upstream.url())],
        ..FleetOptions::default()
    };
    let fleet = Fleet::start(pair, options).await;
    fleet.api.agent("acme", "helper").await;

    let weather = fleet.api.publish(&root().join("examples/weather")).await;
    assert_eq!(weather["permissions"], json!([]), "{weather:#}");
    assert_eq!(weather["egress"], json!(["api.open-meteo.com"]), "{weather:#}");
    fleet.api.install("acme", "weather").await;
    let input = json!({ "latitude": 52.5, "longitude": 13.4 });
    let result = fleet.api.call("helper", "weather__get_forecast", input).await;
    assert_eq!(result["status"], "ok", "{result:#}");
    assert_eq!(result["value"], json!({ "minC": 4, "maxC": 13 }), "{result:#}");
    let asked = upstream.arrived();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!((asked[0].method.as_str(), asked[0].host.as_str()), ("GET", "api.open-meteo.com"));
    assert!(asked[0].path.starts_with("/v1/forecast?latitude=52.5&longitude=13.4&daily="), "{}", asked[0].path);

    let notes = fleet.api.publish(&root().join("examples/notes")).await;
    let permission =
        notes["permissions"].as_array().and_then(|all| all.iter().find(|one| one["id"] == "host:workspace:write"));
    assert_eq!(permission.expect("saving a note needs it")["words"], "can write the agent's files", "{notes:#}");
    fleet.api.install("acme", "notes").await;
    let input = json!({ "title": "Buy milk & eggs", "text": "Two litres." });
    let result = fleet.api.call("helper", "notes__save_note", input).await;
    assert_eq!(result["value"], json!({ "saved": "notes/buy-milk-eggs.md" }), "{result:#}");
}

#[tokio::test]
async fn the_documents_samples_run_on_the_embedded_queue_and_store() {
    check(Pair::Embedded).await;
}

#[tokio::test]
async fn the_documents_samples_run_on_rabbitmq_and_redis() {
    check(Pair::Real).await;
}
