//! Encryption of what must not be readable where it is stored.

use crate::StoreError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The configuration's name for what a [`Sealer`] is made from.
const KEYS: &str = "settings.keys";
const ACTIVE: &str = "settings.active";

const KEY_BYTES: usize = 32;

/// Seals with one key and opens with any that it knows (ChaCha20-Poly1305). To change keys: add a new one, make it
/// the active one, and take the old one away once everything was saved again.
#[derive(Clone, Default)]
pub struct Sealer {
    keys: Arc<BTreeMap<String, LessSafeKey>>,
    active: Option<String>,
}

/// A sealed text as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sealed {
    /// Which key opens it.
    pub(super) key: String,
    /// Nonce, ciphertext and tag, in base64.
    pub(super) text: String,
}

/// Why a sealed text can't be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OpenError {
    UnknownKey,
    /// Changed, moved to where it doesn't belong, or sealed with another key of the same name.
    Refused,
}

impl Sealer {
    /// `keys`: 32 bytes in base64 under each key's id. `active` names the one to seal with; it may be left out
    /// where there is but one.
    ///
    /// # Errors
    /// [`StoreError::Config`], which names the key and never holds it.
    pub fn new(keys: &BTreeMap<String, String>, active: Option<&str>) -> Result<Self, StoreError> {
        let mut read = BTreeMap::new();
        for (id, text) in keys {
            let bad = |reason: String| StoreError::Config { field: KEYS, reason: format!("key {id:?} {reason}") };
            let bytes = BASE64.decode(text.trim()).map_err(|_| bad("must be base64 (RFC 4648, padded)".into()))?;
            let key = UnboundKey::new(&CHACHA20_POLY1305, &bytes).map_err(|_| {
                bad(format!(
                    "must be {KEY_BYTES} bytes in base64, but is {}; `openssl rand -base64 32` makes one",
                    bytes.len()
                ))
            })?;
            read.insert(id.clone(), LessSafeKey::new(key));
        }
        let ids = || read.keys().cloned().collect::<Vec<_>>().join(", ");
        let active = match active {
            Some(id) if read.contains_key(id) => Some(id.to_owned()),
            Some(id) => {
                let reason = format!("must be the id of a key under {KEYS} (there: {}), but is {id:?}", ids());
                return Err(StoreError::Config { field: ACTIVE, reason });
            }
            None if read.len() > 1 => {
                let reason = format!("must say which of the keys under {KEYS} seals: one of {}", ids());
                return Err(StoreError::Config { field: ACTIVE, reason });
            }
            None => read.keys().next().cloned(),
        };
        Ok(Self { keys: Arc::new(read), active })
    }

    /// Without a key: it seals and opens nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// Seals `text` for the one place that `place` names. `None` without a key.
    pub(super) fn seal(&self, place: &[u8], text: &[u8]) -> Option<Sealed> {
        let id = self.active.as_ref()?;
        let key = self.keys.get(id)?;
        // 96 random bits: far from a repeat for as many secrets as a fleet ever stores under one key.
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut sealed = text.to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(place), &mut sealed).ok()?;
        let all = [&nonce[..], &sealed].concat();
        Some(Sealed { key: id.clone(), text: BASE64.encode(all) })
    }

    /// Opens what was sealed for `place`.
    pub(super) fn open(&self, place: &[u8], sealed: &Sealed) -> Result<Vec<u8>, OpenError> {
        let key = self.keys.get(&sealed.key).ok_or(OpenError::UnknownKey)?;
        let all = BASE64.decode(&sealed.text).map_err(|_| OpenError::Refused)?;
        let (nonce, text) = all.split_at_checked(NONCE_LEN).ok_or(OpenError::Refused)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| OpenError::Refused)?;
        let mut text = text.to_vec();
        let length = key.open_in_place(nonce, Aad::from(place), &mut text).map_err(|_| OpenError::Refused)?.len();
        text.truncate(length);
        Ok(text)
    }
}

/// Ids only.
impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("keys", &self.keys.keys()).field("active", &self.active).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(list: &[(&str, u8)]) -> BTreeMap<String, String> {
        list.iter().map(|(id, byte)| ((*id).to_owned(), BASE64.encode([*byte; 32]))).collect()
    }

    #[test]
    fn what_was_sealed_opens_in_its_place_only() {
        let sealer = Sealer::new(&keys(&[("k1", 1)]), None).unwrap();
        let sealed = sealer.seal(b"here", b"secret").unwrap();
        assert_eq!(sealer.open(b"here", &sealed), Ok(b"secret".to_vec()));
        assert_eq!(sealer.open(b"there", &sealed), Err(OpenError::Refused));
        assert_ne!(sealer.seal(b"here", b"secret").unwrap(), sealed, "no nonce twice");

        let mut bytes = BASE64.decode(&sealed.text).unwrap();
        for place in 0..bytes.len() {
            bytes[place] ^= 1;
            let changed = Sealed { key: "k1".into(), text: BASE64.encode(&bytes) };
            assert_eq!(sealer.open(b"here", &changed), Err(OpenError::Refused), "byte {place}");
            bytes[place] ^= 1;
        }
        for text in ["", "AAAA", "not base64!", &BASE64.encode([0; 12])] {
            let short = Sealed { key: "k1".into(), text: text.into() };
            assert_eq!(sealer.open(b"here", &short), Err(OpenError::Refused), "{text}");
        }
    }

    #[test]
    fn keys_can_be_changed() {
        let old = Sealer::new(&keys(&[("k1", 1)]), Some("k1")).unwrap();
        let both = Sealer::new(&keys(&[("k1", 1), ("k2", 2)]), Some("k2")).unwrap();
        let new = Sealer::new(&keys(&[("k2", 2)]), None).unwrap();
        let (sealed_old, sealed_new) = (old.seal(b"p", b"x").unwrap(), both.seal(b"p", b"x").unwrap());
        assert_eq!((sealed_old.key.as_str(), sealed_new.key.as_str()), ("k1", "k2"));
        assert!(both.open(b"p", &sealed_old).is_ok() && both.open(b"p", &sealed_new).is_ok());
        assert!(new.open(b"p", &sealed_new).is_ok());
        assert_eq!(new.open(b"p", &sealed_old), Err(OpenError::UnknownKey));
        let reused = Sealer::new(&keys(&[("k1", 9)]), None).unwrap();
        assert_eq!(reused.open(b"p", &sealed_old), Err(OpenError::Refused));
    }

    #[test]
    fn bad_keys_are_refused_by_name_and_not_shown() {
        let check = |list: &[(&str, &str)], active: Option<&str>, expected: &str| {
            let keys = list.iter().map(|(id, text)| ((*id).to_owned(), (*text).to_owned())).collect();
            let error = Sealer::new(&keys, active).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            for (_, text) in list {
                assert!(!error.contains(text), "{error}");
            }
        };
        let good = BASE64.encode([1; 32]);
        check(&[("k1", "c2hvcnQ=")], None, "settings.keys: key \"k1\" must be 32 bytes in base64, but is 5");
        check(&[("k1", "%%%")], None, "settings.keys: key \"k1\" must be base64");
        check(&[("k1", &good)], Some("k2"), "settings.active: must be the id of a key");
        check(&[("k1", &good), ("k2", &good)], None, "settings.active: must say which");
    }

    #[test]
    fn a_sealer_shows_no_key() {
        let sealer = Sealer::new(&keys(&[("k1", 1)]), None).unwrap();
        assert_eq!(format!("{sealer:?}"), r#"Sealer { keys: ["k1"], active: Some("k1") }"#);
        assert_eq!(Sealer::none().seal(b"p", b"x"), None);
    }
}
