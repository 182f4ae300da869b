//! State in Redis (6.2 or later) or Valkey. One script does every transaction, so that each is one round trip and
//! one atomic step.

mod encode;

use crate::{Entry, Key, Position, Store, StoreError, Transacted, Transaction};
use async_trait::async_trait;
use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, Script, Value};
use serde::Deserialize;
use std::sync::Mutex;
use std::time::Duration;

/// `[store]` with `kind = "redis"`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// `redis://[user:password@]host:port/[database]`, or `rediss:` for TLS.
    pub url: String,
    #[serde(default = "default_connect_timeout_ms")]
    pub connect_timeout_ms: u64,
    #[serde(default = "default_response_timeout_ms")]
    pub response_timeout_ms: u64,
}

fn default_connect_timeout_ms() -> u64 {
    5_000
}

fn default_response_timeout_ms() -> u64 {
    5_000
}

/// Connections kept for readers that wait; one each, since a waiting read holds up its connection.
const TAIL_CONNECTIONS_IDLE_MAX: usize = 8;
/// What a waiting read may take longer than it was told to wait.
const TAIL_GRACE: Duration = Duration::from_secs(5);

/// A connection to Redis. Connects again by itself; what was under way when it broke is reported as failed, never
/// repeated, since its fate is unknown.
pub struct RedisStore {
    client: Client,
    /// Where it is, without user and password.
    at: String,
    manager: ConnectionManager,
    script: Script,
    tails: Mutex<Vec<MultiplexedConnection>>,
    config: RedisConfig,
}

impl RedisStore {
    /// Connects, once.
    ///
    /// # Errors
    /// Where the URL isn't one or nobody answers there. No error holds the password.
    pub async fn connect(config: RedisConfig) -> Result<Self, StoreError> {
        let client = Client::open(config.url.as_str()).map_err(|error| StoreError::Config {
            field: "store.url",
            reason: format!("must be redis://host:port/ or rediss://host:port/ ({})", error.category()),
        })?;
        let at = client.get_connection_info().addr().to_string();
        let options = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(Duration::from_millis(config.connect_timeout_ms)))
            .set_response_timeout(Some(Duration::from_millis(config.response_timeout_ms)))
            // Whoever needs the store asks again; a command must not wait through minutes of reconnecting.
            .set_number_of_retries(1);
        let unreachable = |error: &RedisError| StoreError::Unreachable { at: at.clone(), reason: describe(error) };
        let mut manager =
            ConnectionManager::new_with_config(client.clone(), options).await.map_err(|error| unreachable(&error))?;
        // A connection without the password that is wanted comes about; only what it is asked then is refused.
        redis::cmd("PING").query_async::<()>(&mut manager).await.map_err(|error| unreachable(&error))?;
        Ok(Self {
            script: Script::new(include_str!("script.lua")),
            client,
            at,
            manager,
            tails: Mutex::default(),
            config,
        })
    }

    /// `keys` are those that the command was about; the script's errors name one of them by its number.
    fn failed(&self, error: &RedisError, keys: &[String]) -> StoreError {
        if error.is_timeout() {
            return StoreError::Timeout { waited: Duration::from_millis(self.config.response_timeout_ms) };
        }
        let about_a_key = matches!(error.code(), Some("WRONGTYPE" | "NOTINTEGER"));
        let detail = error.detail().unwrap_or(error.category());
        let numbered =
            detail.split_once(' ').and_then(|(number, reason)| Some((number.parse::<usize>().ok()?, reason)));
        let (key, reason) = match numbered {
            Some((number, reason)) => (keys.get(number.wrapping_sub(1)), reason),
            None => (keys.first(), detail),
        };
        match key {
            Some(key) if about_a_key => StoreError::Key { key: key.clone(), reason: reason.to_owned() },
            // Also one that is full, still loading, or only a replica: whoever asks again may be lucky.
            _ => StoreError::Unreachable { at: self.at.clone(), reason: describe(error) },
        }
    }

    async fn new_tail_connection(&self) -> Result<MultiplexedConnection, StoreError> {
        // A read that waits answers when it likes; the caller's own bound is kept outside.
        let options = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_millis(self.config.connect_timeout_ms)))
            .set_response_timeout(None);
        self.client
            .get_multiplexed_async_connection_with_config(&options)
            .await
            .map_err(|error| StoreError::Unreachable { at: self.at.clone(), reason: describe(&error) })
    }

    /// Reads on this connection, and keeps it for the next who waits.
    async fn tail_on(
        &self,
        mut connection: MultiplexedConnection,
        command: &redis::Cmd,
        wait: Duration,
    ) -> Result<Result<Value, RedisError>, StoreError> {
        // Where this is dropped or fails, the connection goes with it: an answer may still be on its way.
        let answer = tokio::time::timeout(wait + TAIL_GRACE, command.query_async::<Value>(&mut connection))
            .await
            .map_err(|_| StoreError::Timeout { waited: wait + TAIL_GRACE })?;
        if answer.is_ok() {
            let mut tails = self.tails.lock().expect("nothing panics while it is held");
            if tails.len() < TAIL_CONNECTIONS_IDLE_MAX {
                tails.push(connection);
            }
        }
        Ok(answer)
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn transact(&self, transaction: Transaction) -> Result<Transacted, StoreError> {
        transaction.check_tags()?;
        let mut invocation = self.script.prepare_invoke();
        let keys = encode::transaction(&transaction, &mut invocation);
        let mut connection = self.manager.clone();
        let answer: Value =
            invocation.invoke_async(&mut connection).await.map_err(|error| self.failed(&error, &keys))?;
        encode::answer(&transaction, answer)
    }

    async fn tail(&self, stream: &Key, after: &Position, limit: u32, wait: Duration) -> Result<Vec<Entry>, StoreError> {
        // To wait for 0 ms is to wait for ever.
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(limit).arg("BLOCK").arg(wait_ms);
        command.arg("STREAMS").arg(stream.as_str()).arg(after.to_string());
        let idle = self.tails.lock().expect("nothing panics while it is held").pop();
        let reused = match idle {
            Some(connection) => Some(self.tail_on(connection, &command, wait).await?),
            None => None,
        };
        let answer = match reused {
            Some(answer) if !answer.as_ref().is_err_and(RedisError::is_unrecoverable_error) => answer,
            // Idle connections break unnoticed, and then all of them as a rule. A read may be repeated.
            broken => {
                if broken.is_some() {
                    self.tails.lock().expect("nothing panics while it is held").clear();
                }
                self.tail_on(self.new_tail_connection().await?, &command, wait).await?
            }
        };
        let entries = answer.map_err(|error| self.failed(&error, &[stream.as_str().to_owned()]))?;
        encode::tail(stream, entries)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let mut connection = self.manager.clone();
        redis::cmd("PING").query_async(&mut connection).await.map_err(|error| self.failed(&error, &[]))
    }
}

/// What failed, without what might hold a secret.
fn describe(error: &RedisError) -> String {
    match error.kind() {
        ErrorKind::AuthenticationFailed => "the user or the password is wrong".into(),
        _ if error.code() == Some("NOAUTH") => "it wants a password".into(),
        _ if error.is_connection_refusal() => "connection refused".into(),
        _ => error.to_string(),
    }
}
