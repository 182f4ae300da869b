//! `host.workspace`: the calling agent's files, and the account's shared ones.

use super::arguments::Arguments;
use super::{CallHost, store_failed};
use crate::clock::now_ms;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use toolfleet_protocol::host::{
    HostError, HostErrorName, TextEncoding, WorkspaceContent, WorkspaceFile, WorkspaceListOptions, WorkspaceListing,
    WorkspacePath, WorkspaceReadOptions, WorkspaceWriteOptions,
};
use toolfleet_store::records::{EffectKey, WorkspaceError, WorkspaceOwner, WorkspacePathBuf};

const LIST_MAX: u32 = 1_000;

fn owner(host: &CallHost, shared: bool) -> WorkspaceOwner {
    if shared {
        WorkspaceOwner::Shared(host.account.clone())
    } else {
        WorkspaceOwner::Agent(host.account.clone(), host.agent.clone())
    }
}

fn failed(error: WorkspaceError) -> HostError {
    let name = match &error {
        WorkspaceError::Store(error) => return store_failed(error),
        WorkspaceError::Path { .. } => HostErrorName::TypeError,
        WorkspaceError::Conflict { .. } | WorkspaceError::Busy { .. } => HostErrorName::ConflictError,
        WorkspaceError::TooLarge { .. } | WorkspaceError::Quota { .. } | WorkspaceError::TooManyFiles { .. } => {
            HostErrorName::LimitError
        }
    };
    HostError::new(name, error.to_string())
}

fn not_found(path: &WorkspacePathBuf) -> HostError {
    HostError::new(HostErrorName::NotFoundError, format!("there is no file {:?} in this workspace", path.as_str()))
}

pub async fn read(host: &CallHost, mut arguments: Arguments) -> Result<WorkspaceContent, HostError> {
    let options: WorkspaceReadOptions = arguments.required("options")?;
    let path = WorkspacePathBuf::parse(&options.path).map_err(failed)?;
    let found = host.records.workspace_read(&owner(host, options.shared), &path).await;
    let (file, bytes) = found.map_err(|error| store_failed(&error))?.ok_or_else(|| not_found(&path))?;
    let content = match options.encoding {
        TextEncoding::Base64 => STANDARD.encode(&bytes),
        TextEncoding::Utf8 => String::from_utf8(bytes.to_vec())
            .map_err(|_| arguments.wrong(format!("{:?} is no UTF-8 text: give encoding \"base64\"", path.as_str())))?,
    };
    arguments.end()?;
    let WorkspaceFile { path, size, etag, modified_at_ms } = file;
    Ok(WorkspaceContent { path, content, size, etag, modified_at_ms })
}

pub async fn stat(host: &CallHost, mut arguments: Arguments) -> Result<WorkspaceFile, HostError> {
    let options: WorkspacePath = arguments.required("options")?;
    arguments.end()?;
    let path = WorkspacePathBuf::parse(&options.path).map_err(failed)?;
    let found = host.records.workspace_stat(&owner(host, options.shared), &path).await;
    found.map_err(|error| store_failed(&error))?.ok_or_else(|| not_found(&path))
}

pub async fn list(host: &CallHost, mut arguments: Arguments) -> Result<WorkspaceListing, HostError> {
    let options: WorkspaceListOptions = arguments.optional("options")?.unwrap_or_default();
    let limit = options.limit.unwrap_or(LIST_MAX);
    if !(1..=LIST_MAX).contains(&limit) {
        return Err(arguments.wrong(format!("options.limit must be 1 to {LIST_MAX}, but is {limit}")));
    }
    arguments.end()?;
    let owner = owner(host, options.shared);
    let listed = host.records.workspace_list(&owner, options.prefix.as_deref(), options.after.as_deref(), limit).await;
    listed.map_err(|error| store_failed(&error))
}

pub async fn write(host: &CallHost, mut arguments: Arguments, effect: &EffectKey) -> Result<WorkspaceFile, HostError> {
    let options: WorkspaceWriteOptions = arguments.required("options")?;
    let path = WorkspacePathBuf::parse(&options.path).map_err(failed)?;
    let content = match options.encoding {
        TextEncoding::Utf8 => options.content.into_bytes(),
        TextEncoding::Base64 => STANDARD
            .decode(&options.content)
            .map_err(|error| arguments.wrong(format!("options.content is no base64: {error}")))?,
    };
    arguments.end()?;
    let owner = owner(host, options.shared);
    let written =
        host.records.workspace_write(&owner, &path, content.into(), options.etag, Some(effect), now_ms()).await;
    written.map_err(failed)
}
