//! `host.settings`

use super::arguments::Arguments;
use super::{CallHost, store_failed};
use serde_json::Value;
use toolfleet_protocol::host::{HostError, HostErrorName};
use toolfleet_store::records::SettingsError;

/// One setting of the installation, `null` where it isn't set; or all of them.
pub async fn get(host: &CallHost, mut arguments: Arguments) -> Result<Value, HostError> {
    let key: Option<String> = arguments.optional("key")?;
    arguments.end()?;
    let settings = host.records.settings(&host.account, &host.release.slug, &host.sealer).await;
    let mut settings = settings.map_err(|error| match error {
        SettingsError::Store(error) => store_failed(&error),
        other => {
            tracing::error!(error = %other, plugin = %host.release.slug, "settings can't be opened");
            HostError::new(HostErrorName::HostError, "this installation's settings can't be opened: tell the operator")
        }
    })?;
    Ok(match key {
        Some(key) => settings.remove(&key).unwrap_or(Value::Null),
        None => Value::Object(settings),
    })
}
