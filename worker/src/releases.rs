//! Releases that calls ran lately, kept in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use toolfleet_protocol::{Release, ReleaseDigest};
use toolfleet_store::StoreError;
use toolfleet_store::records::Records;

/// A cache of immutable releases, bounded by their bytes. The least recently used make room.
pub struct Releases {
    records: Records,
    bytes_max: u64,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_digest: HashMap<ReleaseDigest, (Arc<Release>, u64)>,
    bytes: u64,
    /// Counts uses; an entry's number is that of its last one.
    uses: u64,
}

impl Releases {
    pub fn new(records: Records, bytes_max: u64) -> Self {
        Self { records, bytes_max, kept: Mutex::default() }
    }

    /// The release, from memory or from the store.
    pub async fn get(&self, digest: &ReleaseDigest) -> Result<Option<Arc<Release>>, StoreError> {
        if let Some(release) = self.look(digest) {
            return Ok(Some(release));
        }
        let Some(release) = self.records.release(digest).await? else { return Ok(None) };
        let release = Arc::new(release);
        self.keep(&release);
        Ok(Some(release))
    }

    fn look(&self, digest: &ReleaseDigest) -> Option<Arc<Release>> {
        let mut kept = self.kept.lock().expect("nothing panics while it is held");
        kept.uses += 1;
        let now = kept.uses;
        let (release, used) = kept.by_digest.get_mut(digest)?;
        *used = now;
        Some(Arc::clone(release))
    }

    fn keep(&self, release: &Arc<Release>) {
        let bytes = size(release);
        let mut kept = self.kept.lock().expect("nothing panics while it is held");
        while kept.bytes + bytes > self.bytes_max {
            let oldest = kept.by_digest.iter().min_by_key(|(_, (_, used))| *used).map(|(digest, _)| digest.clone());
            let Some(oldest) = oldest else { break };
            if let Some((gone, _)) = kept.by_digest.remove(&oldest) {
                kept.bytes -= size(&gone);
            }
        }
        let now = kept.uses;
        if kept.by_digest.insert(release.digest.clone(), (Arc::clone(release), now)).is_none() {
            kept.bytes += bytes;
        }
    }
}

fn size(release: &Release) -> u64 {
    let files = release.bundle.files.values();
    files.map(|file| (file.code.len() + file.source_map.len()) as u64).sum::<u64>() + 1024
}
