//! Releases that calls were made of lately. A release never changes, so what was read once stays right.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use toolfleet_protocol::{Limits, Release, ReleaseDigest, ToolName, ToolSpec};
use toolfleet_store::StoreError;
use toolfleet_store::records::Records;

/// So many are kept; a release without its code has few kilobytes.
const RELEASES_MAX: usize = 4_096;

/// What a call's submission asks of a release.
#[derive(Debug)]
pub(crate) struct ReleaseFacts {
    pub(crate) tools: Vec<ToolSpec>,
    pub(crate) limits: Limits,
}

impl ReleaseFacts {
    pub(crate) fn tool(&self, name: &ToolName) -> Option<&ToolSpec> {
        self.tools.iter().find(|tool| tool.name == *name)
    }
}

impl From<Release> for ReleaseFacts {
    fn from(release: Release) -> Self {
        Self { tools: release.tools, limits: release.limits }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Releases(Mutex<HashMap<ReleaseDigest, Arc<ReleaseFacts>>>);

impl Releases {
    /// The release of that digest; `None` where there is none.
    pub(crate) async fn get(
        &self,
        records: &Records,
        digest: &ReleaseDigest,
    ) -> Result<Option<Arc<ReleaseFacts>>, StoreError> {
        if let Some(known) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(digest) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(release) = records.release(digest).await? else { return Ok(None) };
        let facts = Arc::new(ReleaseFacts::from(release));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= RELEASES_MAX {
            // Rare, and reading them again is cheap: no need for an order of use.
            known.clear();
        }
        known.insert(digest.clone(), Arc::clone(&facts));
        Ok(Some(facts))
    }
}
