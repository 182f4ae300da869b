//! Drafts, releases, and which account has which installed.

use super::{Records, Step, corrupt, from_json, from_text, to_json};
use crate::{Guard, Key, Op, StoreError, Transaction};
use bytes::Bytes;
use semver::Version;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use toolfleet_protocol::{AccountId, Bundle, PluginSlug, Release, ReleaseDigest};

/// Plugins of a fleet that are listed. More than any platform's catalogue; a list of all of them is for browsing.
const PLUGINS_MAX: u32 = 100_000;

/// What came of publishing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    New,
    /// This very release was published before.
    Already,
}

/// A version of a plugin is one release for ever.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "version {version} of plugin {slug} is already published with other content (release {standing}): \
     raise the version in plugin.json"
)]
pub struct PublishConflict {
    pub slug: PluginSlug,
    pub version: Version,
    /// The release that has this version.
    pub standing: ReleaseDigest,
}

/// Why a release wasn't published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error(transparent)]
    Conflict(#[from] PublishConflict),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A plugin of an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Installation {
    pub plugin: PluginSlug,
    pub release: ReleaseDigest,
    pub version: Version,
    /// Unix time in milliseconds.
    pub installed_at_ms: u64,
}

/// A version in the index.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    release: ReleaseDigest,
    published_at_ms: u64,
}

fn draft_key(draft: &ReleaseDigest) -> Key {
    Key::new(&format!("draft:{draft}"), "bundle")
}

fn release_key(release: &ReleaseDigest) -> Key {
    Key::new(&format!("release:{release}"), "release")
}

fn slugs_key() -> Key {
    Key::new("plugins", "slugs")
}

fn versions_key(slug: &PluginSlug) -> Key {
    Key::new("plugins", &format!("versions/{slug}"))
}

pub(super) fn account_key(account: &AccountId, path: &str) -> Key {
    Key::new(&format!("account:{account}"), path)
}

fn installation_get(account: &AccountId, slug: &PluginSlug) -> Op {
    Op::FieldGet { key: account_key(account, "installations"), field: slug.to_string() }
}

impl Records {
    /// Keeps a draft's bundle for a worker to inspect.
    pub async fn put_draft(
        &self,
        draft: &ReleaseDigest,
        bundle: &Bundle,
        expires_in: Duration,
    ) -> Result<(), StoreError> {
        let set = Op::Set { key: draft_key(draft), value: to_json(bundle), expires_in: Some(expires_in) };
        self.ask(&format!("draft {draft}"), vec![set]).await?.done()
    }

    /// A draft's bundle, until it expires.
    pub async fn draft(&self, draft: &ReleaseDigest) -> Result<Option<Bundle>, StoreError> {
        let record = format!("draft {draft}");
        let bundle = self.ask(&record, vec![Op::Get(draft_key(draft))]).await?.value()?;
        bundle.map(|bundle| from_json(&record, &bundle)).transpose()
    }

    /// Publishes a release.
    ///
    /// The release is there before its version is listed, so that what is listed can be run.
    pub async fn put_release(&self, release: &Release, now_ms: u64) -> Result<Published, PublishError> {
        let (slug, version) = (&release.slug, release.version.to_string());
        let (key, record) = (versions_key(slug), format!("version {version} of plugin {slug}"));
        let get = Op::FieldGet { key: key.clone(), field: version.clone() };
        let judge = |standing: &Bytes| {
            let standing = from_json::<Listed>(&record, standing)?.release;
            if standing == release.digest {
                return Ok(Published::Already);
            }
            Err(PublishError::Conflict(PublishConflict {
                slug: slug.clone(),
                version: release.version.clone(),
                standing,
            }))
        };
        if let Some(standing) = self.ask(&record, vec![get.clone()]).await?.value()? {
            return judge(&standing);
        }
        let set = Op::Set { key: release_key(&release.digest), value: to_json(release), expires_in: None };
        self.ask(&format!("release {}", release.digest), vec![set]).await?.done()?;

        let listed = Listed { release: release.digest.clone(), published_at_ms: now_ms };
        let transaction = Transaction {
            guards: vec![Guard::FieldAbsent(key.clone(), version.clone())],
            then: vec![
                Op::FieldsSet { key, fields: vec![(version, to_json(&listed))] },
                Op::Rank { key: slugs_key(), member: slug.to_string(), score: 0 },
            ],
            otherwise: vec![get],
        };
        match self.step(&record, transaction).await? {
            Step::Then(_) => Ok(Published::New),
            Step::Otherwise { mut replies, .. } => match replies.value()? {
                Some(standing) => judge(&standing),
                None => Err(corrupt(&record, "it was there and is not").into()),
            },
        }
    }

    /// A published release.
    pub async fn release(&self, release: &ReleaseDigest) -> Result<Option<Release>, StoreError> {
        let record = format!("release {release}");
        let found = self.ask(&record, vec![Op::Get(release_key(release))]).await?.value()?;
        found.map(|bytes| from_json(&record, &bytes)).transpose()
    }

    /// A plugin's versions, the lowest first.
    pub async fn versions(&self, slug: &PluginSlug) -> Result<Vec<(Version, ReleaseDigest)>, StoreError> {
        let record = format!("versions of plugin {slug}");
        let fields = self.ask(&record, vec![Op::FieldsGet(versions_key(slug))]).await?.fields()?;
        let read = |(version, listed): (String, Bytes)| {
            Ok((from_text(&record, version.as_bytes())?, from_json::<Listed>(&record, &listed)?.release))
        };
        let mut versions = fields.into_iter().map(read).collect::<Result<Vec<(Version, _)>, StoreError>>()?;
        versions.sort();
        Ok(versions)
    }

    /// A plugin's highest version; a pre-release only where there is no other.
    pub async fn latest_release(&self, slug: &PluginSlug) -> Result<Option<(Version, ReleaseDigest)>, StoreError> {
        let versions = self.versions(slug).await?;
        Ok(versions.into_iter().max_by_key(|(version, _)| (version.pre.is_empty(), version.clone())))
    }

    /// All plugins that have a release, by name.
    pub async fn plugins(&self) -> Result<Vec<PluginSlug>, StoreError> {
        let record = "the index of plugins";
        let members = Op::Members { key: slugs_key(), prefix: String::new(), after: None, limit: PLUGINS_MAX };
        let members = self.ask(record, vec![members]).await?.ranked()?;
        members.into_iter().map(|(slug, _)| from_text(record, slug.as_bytes())).collect()
    }

    /// Installs a plugin, or another release of it, for an account. Its settings stay.
    pub async fn install(&self, account: &AccountId, installation: &Installation) -> Result<(), StoreError> {
        let fields = vec![(installation.plugin.to_string(), to_json(installation))];
        let set = Op::FieldsSet { key: account_key(account, "installations"), fields };
        self.ask(&format!("installations of account {account}"), vec![set]).await?.done()
    }

    /// What an account has installed of a plugin.
    pub async fn installation(
        &self,
        account: &AccountId,
        slug: &PluginSlug,
    ) -> Result<Option<Installation>, StoreError> {
        let record = format!("installation of {slug} for account {account}");
        let found = self.ask(&record, vec![installation_get(account, slug)]).await?.value()?;
        found.map(|bytes| from_json(&record, &bytes)).transpose()
    }

    /// All that an account has installed, by name.
    pub async fn installations(&self, account: &AccountId) -> Result<Vec<Installation>, StoreError> {
        let record = format!("installations of account {account}");
        let fields = self.ask(&record, vec![Op::FieldsGet(account_key(account, "installations"))]).await?.fields()?;
        let read = |(_, bytes): (String, Bytes)| from_json(&record, &bytes);
        let mut installations = fields.into_iter().map(read).collect::<Result<Vec<Installation>, StoreError>>()?;
        installations.sort_by(|a, b| a.plugin.cmp(&b.plugin));
        Ok(installations)
    }

    /// Takes a plugin off an account, its settings with it. False: it wasn't installed.
    pub async fn uninstall(&self, account: &AccountId, slug: &PluginSlug) -> Result<bool, StoreError> {
        let ops = vec![
            installation_get(account, slug),
            Op::FieldDelete { key: account_key(account, "installations"), field: slug.to_string() },
            Op::Delete(super::settings::settings_key(account, slug)),
        ];
        let mut replies = self.ask(&format!("installation of {slug} for account {account}"), ops).await?;
        Ok(replies.value()?.is_some())
    }
}
