//! Keys.

use std::fmt;

/// A key of the store: `tf:{tag}:path`. Keys of one tag live together (in a Redis cluster: on one node), and
/// only those can take part in one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    text: String,
    tag_end: usize,
}

const START: &str = "tf:{";

impl Key {
    /// `tag` names what owns the key, for example `call:018f…`; `path` what it holds.
    ///
    /// # Panics
    /// If the tag is empty or holds a brace: tags are made from checked ids.
    pub fn new(tag: &str, path: &str) -> Self {
        assert!(!tag.is_empty() && !tag.contains(['{', '}']), "tag {tag:?}");
        let text = format!("{START}{tag}}}:{path}");
        Self { tag_end: START.len() + tag.len(), text }
    }

    /// Reads a key's text back.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let tag_end = START.len() + text.strip_prefix(START)?.find("}:")?;
        Some(Self { text: text.to_owned(), tag_end })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn tag(&self) -> &str {
        &self.text[START.len()..self.tag_end]
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_knows_its_tag() {
        let key = Key::new("call:1", "record");
        assert_eq!((key.as_str(), key.tag()), ("tf:{call:1}:record", "call:1"));
    }
}
