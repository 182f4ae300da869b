//! The host API in one table: method, permission, parameters, result, effect.
//!
//! All else follows from it: the JavaScript facade is generated from [`HostMethod::ALL`], the types file from
//! the same rows, a release's permissions from [`HostMethod::find`], and the worker's routing is an exhaustive
//! `match`, so that a row without a handler doesn't compile.
//!
//! To add a method: one row here, its parameter types in `params.rs` and `types.d.ts`, one arm in the worker's
//! `host` module.

mod error;
mod params;

pub use error::{HostError, HostErrorName};
pub use params::*;

use crate::Permission;

/// Whether a host call changes something, and so must happen once however often its call is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It only looks, or it answers from chance; a redelivered call asks afresh.
    None,
    /// It is journalled: the same question of the same call gets the recorded answer.
    Once,
    /// As `Once`, unless its arguments say that it only looks (`host.fetch` with GET or HEAD).
    ByArguments,
}

/// How the facade offers a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Returns a promise for the answer.
    Async,
    /// Returns at once, and has no answer.
    Notify,
}

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    pub method: HostMethod,
    /// The path below `host`, for example `session.messages`.
    pub path: &'static str,
    /// `None`: always allowed.
    pub permission: Option<Permission>,
    pub style: Style,
    pub effect: Effect,
    /// TypeScript parameters, for example `request: FetchRequest`.
    pub parameters: &'static str,
    /// TypeScript type of the answer.
    pub result: &'static str,
    /// What it does, in one sentence for the plugin's author.
    pub doc: &'static str,
}

macro_rules! host_methods {
    ($($variant:ident = $number:literal, $path:literal, $permission:expr, $style:ident, $effect:expr,
       ($parameters:literal) -> $result:literal, $doc:literal;)*) => {
        /// A method of the host API. The number is its name on a call's socket and never changes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum HostMethod {
            $(#[doc = $doc] $variant = $number,)*
        }

        /// The table, in the order of its numbers.
        pub static TABLE: &[Row] = &[$(Row {
            method: HostMethod::$variant,
            path: $path,
            permission: $permission,
            style: Style::$style,
            effect: $effect,
            parameters: $parameters,
            result: $result,
            doc: $doc,
        },)*];

        impl HostMethod {
            /// Every method.
            pub const ALL: &'static [HostMethod] = &[$(HostMethod::$variant,)*];

            /// The method of that number.
            pub fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(HostMethod::$variant),)* _ => None }
            }

            /// Its row.
            pub fn row(self) -> &'static Row {
                let place = Self::ALL.binary_search_by_key(&(self as u16), |method| *method as u16);
                &TABLE[place.expect("ALL and TABLE are made from the same rows, in the order of their numbers")]
            }
        }
    };
}

use Permission::*;

host_methods! {
    Fetch = 1, "fetch", None, Async, Effect::ByArguments,
        ("request: FetchRequest") -> "FetchResponse",
        "Make an HTTP request to a host listed in manifest.egress.";
    SettingsGet = 10, "settings.get", None, Async, Effect::None,
        ("key?: string") -> "any",
        "Read one setting of this installation, or all of them as an object.";
    CryptoHash = 20, "crypto.hash", None, Async, Effect::None,
        ("options: HashOptions") -> "string",
        "Hash data with SHA-256, SHA-384 or SHA-512.";
    CryptoHmac = 21, "crypto.hmac", None, Async, Effect::None,
        ("options: HmacOptions") -> "string",
        "Authenticate data with HMAC over SHA-256, SHA-384 or SHA-512.";
    CryptoRandomBytes = 22, "crypto.randomBytes", None, Async, Effect::None,
        ("size: number, encoding?: BinaryEncoding") -> "string",
        "Random bytes from the kernel, 1 to 65,536 of them, as base64 unless said.";
    CryptoRandomUuid = 23, "crypto.randomUUID", None, Async, Effect::None,
        ("") -> "string",
        "A random UUID (version 4).";
    CryptoTimingSafeEqual = 24, "crypto.timingSafeEqual", None, Async, Effect::None,
        ("a: string, b: string") -> "boolean",
        "Compare two texts in a time that does not tell where they differ.";
    LogDebug = 30, "log.debug", None, Notify, Effect::None,
        ("message: string, fields?: Record<string, unknown>") -> "void",
        "Log for debugging.";
    LogInfo = 31, "log.info", None, Notify, Effect::None,
        ("message: string, fields?: Record<string, unknown>") -> "void",
        "Log what happened.";
    LogWarn = 32, "log.warn", None, Notify, Effect::None,
        ("message: string, fields?: Record<string, unknown>") -> "void",
        "Log what may need a look.";
    LogError = 33, "log.error", None, Notify, Effect::None,
        ("message: string, fields?: Record<string, unknown>") -> "void",
        "Log what went wrong.";
    SessionMessages = 40, "session.messages", Some(SessionRead), Async, Effect::None,
        ("options?: MessagesOptions") -> "SessionMessage[]",
        "The latest messages of the conversation, oldest first; `before` a message's id gives the ones before it.";
    SessionPost = 41, "session.post", Some(Permission::SessionPost), Async, Effect::Once,
        ("message: PostMessage") -> "SessionMessage",
        "Post a message into the conversation.";
    WorkspaceRead = 60, "workspace.read", Some(Permission::WorkspaceRead), Async, Effect::None,
        ("options: WorkspaceReadOptions") -> "WorkspaceContent",
        "Read a file of the agent's workspace, or of the shared one.";
    WorkspaceList = 61, "workspace.list", Some(Permission::WorkspaceRead), Async, Effect::None,
        ("options?: WorkspaceListOptions") -> "WorkspaceListing",
        "List files in the order of their paths, at most 1,000 a page.";
    WorkspaceStat = 62, "workspace.stat", Some(Permission::WorkspaceRead), Async, Effect::None,
        ("options: WorkspacePath") -> "WorkspaceFile",
        "Look at a file without reading it.";
    WorkspaceWrite = 63, "workspace.write", Some(Permission::WorkspaceWrite), Async, Effect::Once,
        ("options: WorkspaceWriteOptions") -> "WorkspaceFile",
        "Write a file whole; with `etag`, only if the file is still the one that you read (null: only if there is none).";
}

impl HostMethod {
    /// The method at a path below `host`, for example `session.messages`.
    pub fn find(path: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.path == path).map(|row| row.method)
    }
}

/// The types that the table's rows name, in TypeScript.
pub const TYPES: &str = include_str!("types.d.ts");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_number_and_by_path() {
        for row in TABLE {
            assert_eq!(HostMethod::from_number(row.method as u16), Some(row.method));
            assert_eq!(HostMethod::find(row.path), Some(row.method));
            assert_eq!(row.method.row().path, row.path);
        }
        assert!(TABLE.is_sorted_by_key(|row| row.method as u16));
        assert_eq!(HostMethod::from_number(9999), None);
        assert_eq!(HostMethod::find("session"), None);
    }

    #[test]
    fn every_type_that_a_row_names_is_declared() {
        for row in TABLE {
            let words = [row.parameters, row.result].join(" ");
            for word in words.split(|c: char| !c.is_ascii_alphanumeric()) {
                let named = word.starts_with(|c: char| c.is_ascii_uppercase()) && word != "Record";
                if named {
                    let declared = ["interface", "type"].iter().any(|kind| TYPES.contains(&format!("{kind} {word} ")));
                    assert!(declared, "{} names {word}, which types.d.ts does not declare", row.path);
                }
            }
        }
    }
}
