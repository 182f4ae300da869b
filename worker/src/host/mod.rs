//! The host API's answers. One file for each namespace; the `match` below knows every row of the table, so a new
//! row doesn't compile without its arm.

mod address;
mod arguments;
mod crypto;
mod egress;
mod fetch;
mod session;
mod settings;
mod workspace;

pub use fetch::{FetchError, Fetcher};

use crate::isolation::{Host, LogLevel};
use arguments::Arguments;
use async_trait::async_trait;
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use tokio::time::Instant;
use toolfleet_protocol::host::{HostError, HostErrorName, HostMethod};
use toolfleet_protocol::{AccountId, AgentId, CallId, Release, SessionId};
use toolfleet_store::StoreError;
use toolfleet_store::records::{EffectKey, Records, Sealer};
use tracing::Instrument;

/// What one call's host calls are answered from, and for whom.
pub struct CallHost {
    pub records: Records,
    pub sealer: Sealer,
    pub fetcher: Arc<Fetcher>,
    pub release: Arc<Release>,
    pub account: AccountId,
    pub agent: AgentId,
    pub session: SessionId,
    pub call: CallId,
    /// The tool's qualified name.
    pub tool: String,
    /// When the call's own time is over.
    pub deadline: Instant,
}

/// The answer to one host call.
type Answered = Result<Box<RawValue>, HostError>;

#[async_trait]
impl Host for CallHost {
    async fn call(&self, ordinal: u32, method: HostMethod, arguments: Box<RawValue>) -> Answered {
        self.permit(method)?;
        let effect = self.effect(ordinal, method, &arguments);
        let arguments = Arguments::parse(method, &arguments)?;
        let span = tracing::info_span!("host_call", what = method.row().path);
        self.route(method, arguments, &effect).instrument(span).await
    }

    fn log(&self, level: LogLevel, message: &str, fields: Option<Box<RawValue>>) {
        let fields = fields.as_ref().map_or("", |fields| fields.get());
        let (plugin, tool, account, call) = (self.release.slug.as_str(), &self.tool, self.account.as_str(), &self.call);
        match level {
            LogLevel::Debug => tracing::debug!(target: "plugin", %call, account, plugin, tool, fields, "{message}"),
            LogLevel::Info => tracing::info!(target: "plugin", %call, account, plugin, tool, fields, "{message}"),
            LogLevel::Warn => tracing::warn!(target: "plugin", %call, account, plugin, tool, fields, "{message}"),
            LogLevel::Error => tracing::error!(target: "plugin", %call, account, plugin, tool, fields, "{message}"),
        }
    }
}

impl CallHost {
    async fn route(&self, method: HostMethod, arguments: Arguments, effect: &EffectKey) -> Answered {
        match method {
            HostMethod::Fetch => answer(fetch::fetch(self, arguments, effect).await?),
            HostMethod::SettingsGet => answer(settings::get(self, arguments).await?),
            HostMethod::CryptoHash => answer(crypto::hash(arguments)?),
            HostMethod::CryptoHmac => answer(crypto::hmac(arguments)?),
            HostMethod::CryptoRandomBytes => answer(crypto::random_bytes(arguments)?),
            HostMethod::CryptoRandomUuid => answer(crypto::random_uuid(arguments)?),
            HostMethod::CryptoTimingSafeEqual => answer(crypto::timing_safe_equal(arguments)?),
            HostMethod::SessionMessages => answer(session::messages(self, arguments).await?),
            HostMethod::SessionPost => answer(session::post(self, arguments, effect).await?),
            HostMethod::WorkspaceRead => answer(workspace::read(self, arguments).await?),
            HostMethod::WorkspaceList => answer(workspace::list(self, arguments).await?),
            HostMethod::WorkspaceStat => answer(workspace::stat(self, arguments).await?),
            HostMethod::WorkspaceWrite => answer(workspace::write(self, arguments, effect).await?),
            HostMethod::LogDebug | HostMethod::LogInfo | HostMethod::LogWarn | HostMethod::LogError => {
                Err(HostError::new(HostErrorName::HostError, "a log line is sent, not called"))
            }
        }
    }

    /// What the release's source was not seen to use, it may not use, whatever its code does now.
    fn permit(&self, method: HostMethod) -> Result<(), HostError> {
        let row = method.row();
        match row.permission {
            Some(permission) if !self.release.permissions.contains(&permission) => Err(HostError::new(
                HostErrorName::PermissionError,
                format!(
                    "host.{} needs {permission}, which {} {} does not have: it is derived from the source, so write \
                     host.{} out where you call it, and publish again",
                    row.path, self.release.slug, self.release.version, row.path
                ),
            )),
            _ => Ok(()),
        }
    }

    fn effect(&self, ordinal: u32, method: HostMethod, arguments: &RawValue) -> EffectKey {
        let arguments_digest = Sha256::digest(arguments.get().as_bytes()).into();
        EffectKey { call: self.call.clone(), ordinal, method, arguments_digest }
    }
}

fn answer(value: impl Serialize) -> Answered {
    serde_json::value::to_raw_value(&value)
        .map_err(|error| HostError::new(HostErrorName::HostError, format!("the answer is no JSON: {error}")))
}

/// A store that fails is the platform's trouble; where it is, is nothing for a plugin.
fn store_failed(error: &StoreError) -> HostError {
    tracing::warn!(%error, "a host call could not be answered from the store");
    HostError::new(HostErrorName::HostError, "the platform's store does not answer now: try again later")
}
