//! What started a turn.

use serde::{Deserialize, Serialize};

/// What kind of thing started the turn that a call belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InitiatorKind {
    /// A signed-in user wrote.
    User,
    /// Somebody wrote through a channel, such as mail.
    ChannelSender,
    /// A cron job or a timer came due.
    Schedule,
    /// An event arrived.
    Event,
    /// Another agent asked.
    Agent,
    /// The platform itself.
    Platform,
}

/// Who stands behind a call, from the platform's record of the turn, never from the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Initiator {
    pub kind: InitiatorKind,
    /// True only while every input of the turn so far came from a signed-in user or a verified contact.
    pub is_verified_person: bool,
}

impl Initiator {
    /// The platform acting by itself: no person is behind it.
    pub const PLATFORM: Self = Self { kind: InitiatorKind::Platform, is_verified_person: false };
}
