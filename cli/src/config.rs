//! The configuration: a TOML file, and the environment over it.

use crate::exit::wrong;
use anyhow::{Context, Result, anyhow};
use figment::Figment;
use figment::providers::{Env, Format, Toml};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use toolfleet_queue::rabbitmq::RabbitMqConfig;
use toolfleet_scheduler::{ApiConfig, SchedulerConfig};
use toolfleet_store::records::Sealer;
use toolfleet_store::redis::RedisConfig;
use toolfleet_telemetry::LogConfig;
use toolfleet_worker::isolation::IsolationConfig;
use toolfleet_worker::{FetchConfig, WorkerConfig};

/// Every section.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub queue: Option<QueueConfig>,
    pub store: Option<StoreConfig>,
    pub scheduler: SchedulerConfig,
    pub api: ApiConfig,
    pub worker: WorkerConfig,
    pub isolation: IsolationConfig,
    pub fetch: FetchConfig,
    pub settings: SettingsConfig,
    pub log: LogConfig,
}

/// `[queue]`
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum QueueConfig {
    Rabbitmq(RabbitMqConfig),
}

/// `[store]`
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum StoreConfig {
    Redis(RedisConfig),
}

/// `[settings]`: the keys that seal plugins' secret settings.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SettingsConfig {
    /// By a name of the operator's choice, 32 bytes in base64.
    pub keys: BTreeMap<String, String>,
    /// The one that seals; the others only open.
    pub active: Option<String>,
}

impl std::fmt::Debug for SettingsConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The keys themselves are nothing to be printed.
        f.debug_struct("SettingsConfig").field("keys", &self.keys.keys()).field("active", &self.active).finish()
    }
}

impl Config {
    /// Reads the file, if one is named, and the environment.
    ///
    /// # Errors
    /// Names the key that isn't known or can't be read, and where it stands.
    pub fn read(file: Option<&Path>) -> Result<Self> {
        let mut figment = Figment::new();
        if let Some(file) = file {
            // Told here: a file that isn't there would count as an empty one.
            std::fs::metadata(file)
                .with_context(|| format!("cannot read --config {}", file.display()))
                .map_err(wrong)?;
            figment = figment.merge(Toml::file_exact(file));
        }
        // Only names with a section: TOOLFLEET_URL and the like are other things.
        let environment = Env::prefixed("TOOLFLEET_").filter(|key| key.as_str().contains("__")).split("__");
        let mut config: Self = figment
            .merge(environment)
            .extract()
            .map_err(|error| wrong(anyhow!("the configuration can't be used: {error}")))?;
        config.scheduler.api = config.api.clone();
        Ok(config)
    }

    pub fn sealer(&self) -> Result<Sealer> {
        if self.settings.keys.is_empty() {
            return Ok(Sealer::none());
        }
        Sealer::new(&self.settings.keys, self.settings.active.as_deref()).map_err(wrong)
    }
}
