//! `host.session`: the conversation that the call is part of, and no other.

use super::arguments::Arguments;
use super::{CallHost, store_failed};
use crate::clock::now_ms;
use toolfleet_protocol::host::{HostError, HostErrorName, MessagesOptions, PostMessage, Role, SessionMessage};
use toolfleet_store::records::{EffectKey, MessagesError, NewMessage};

const MESSAGES_DEFAULT: u32 = 50;
const MESSAGES_MAX: u32 = 200;
/// A message is read by people and models.
const TEXT_BYTES_MAX: usize = 64 * 1024;
const DATA_BYTES_MAX: usize = 16 * 1024;

pub async fn messages(host: &CallHost, mut arguments: Arguments) -> Result<Vec<SessionMessage>, HostError> {
    let options: MessagesOptions = arguments.optional("options")?.unwrap_or_default();
    let limit = options.limit.unwrap_or(MESSAGES_DEFAULT);
    if !(1..=MESSAGES_MAX).contains(&limit) {
        return Err(arguments.wrong(format!("options.limit must be 1 to {MESSAGES_MAX}, but is {limit}")));
    }
    let read = host.records.messages(&host.account, &host.session, options.before.as_deref(), limit).await;
    let read = read.map_err(|error| match error {
        MessagesError::Before { .. } => arguments.wrong(format!("options.{error}")),
        MessagesError::Store(error) => store_failed(&error),
    })?;
    arguments.end()?;
    Ok(read)
}

pub async fn post(host: &CallHost, mut arguments: Arguments, effect: &EffectKey) -> Result<SessionMessage, HostError> {
    let message: PostMessage = arguments.required("message")?;
    if message.text.is_empty() {
        return Err(arguments.wrong("message.text must not be empty".into()));
    }
    if message.text.len() > TEXT_BYTES_MAX {
        let bytes = message.text.len();
        return Err(HostError::new(
            HostErrorName::LimitError,
            format!("host.session.post: message.text has {bytes} bytes, more than {TEXT_BYTES_MAX}"),
        ));
    }
    let data_bytes = serde_json::to_vec(&message.data).map_or(0, |json| json.len());
    if data_bytes > DATA_BYTES_MAX {
        return Err(HostError::new(
            HostErrorName::LimitError,
            format!("host.session.post: message.data has {data_bytes} bytes of JSON, more than {DATA_BYTES_MAX}"),
        ));
    }
    arguments.end()?;
    let new = NewMessage {
        role: Role::Assistant,
        text: message.text,
        plugin: Some(host.release.slug.clone()),
        data: message.data,
    };
    let posted = host.records.post_message(&host.account, &host.session, new, Some(effect), now_ms()).await;
    posted.map_err(|error| store_failed(&error))
}
