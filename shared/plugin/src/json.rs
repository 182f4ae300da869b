//! Where things stand in a JSON text, which serde_json doesn't tell once the text is valid.

use std::collections::BTreeMap;

/// The bytes at which a member's key and value start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub key: usize,
    pub value: usize,
}

/// Every member and element of a valid JSON text, by its path of keys and indexes.
#[derive(Debug, Default)]
pub(crate) struct Places {
    spans: BTreeMap<Vec<String>, Span>,
    /// Keys that stand twice in one object: the path, and where the second stands.
    pub twice: Vec<(Vec<String>, usize)>,
}

impl Places {
    /// Reads a text that serde_json took, so its nesting is bounded and its syntax right.
    pub(crate) fn of(text: &str) -> Self {
        let mut reader = Reader { bytes: text.as_bytes(), at: 0, places: Self::default() };
        reader.value(&mut Vec::new());
        reader.places
    }

    /// Where a path's value starts; if it isn't there, its parent's, and so on.
    pub(crate) fn value(&self, path: &[&str]) -> usize {
        self.nearest(path).map_or(0, |span| span.value)
    }

    /// Where a path's key starts; the same where it isn't there.
    pub(crate) fn key(&self, path: &[&str]) -> usize {
        self.nearest(path).map_or(0, |span| span.key)
    }

    fn nearest(&self, path: &[&str]) -> Option<Span> {
        let owned: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
        (1..=owned.len()).rev().find_map(|length| self.spans.get(&owned[..length]).copied())
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    places: Places,
}

impl Reader<'_> {
    fn space(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn is(&mut self, byte: u8) -> bool {
        self.space();
        self.bytes.get(self.at) == Some(&byte)
    }

    fn string(&mut self) -> String {
        let start = self.at;
        self.at += 1;
        while self.at < self.bytes.len() && self.bytes[self.at] != b'"' {
            self.at += if self.bytes[self.at] == b'\\' { 2 } else { 1 };
        }
        self.at += 1;
        let end = self.at.min(self.bytes.len());
        serde_json::from_slice(&self.bytes[start..end]).unwrap_or_default()
    }

    fn value(&mut self, path: &mut Vec<String>) {
        self.space();
        match self.bytes.get(self.at) {
            Some(b'{') => {
                self.at += 1;
                while self.is(b'"') {
                    let key_at = self.at;
                    let key = self.string();
                    self.is(b':');
                    self.at += 1;
                    self.space();
                    path.push(key);
                    let span = Span { key: key_at, value: self.at };
                    if self.places.spans.insert(path.clone(), span).is_some() {
                        self.places.twice.push((path.clone(), key_at));
                    }
                    self.value(path);
                    path.pop();
                    if self.is(b',') {
                        self.at += 1;
                    }
                }
                self.at += 1;
            }
            Some(b'[') => {
                self.at += 1;
                let mut index = 0;
                while self.at < self.bytes.len() && !self.is(b']') {
                    path.push(index.to_string());
                    self.places.spans.insert(path.clone(), Span { key: self.at, value: self.at });
                    self.value(path);
                    path.pop();
                    index += 1;
                    if self.is(b',') {
                        self.at += 1;
                    }
                }
                self.at += 1;
            }
            Some(b'"') => {
                self.string();
            }
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace();
                while self.bytes.get(self.at).is_some_and(|byte| !ends(byte)) {
                    self.at += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_found() {
        let text = r#"{ "a": [1, {"b\"": "x"}], "c": null, "a": 2 }"#;
        let places = Places::of(text);
        let at = |byte: usize| &text[byte..byte + 3];
        assert_eq!(at(places.key(&["c"])), "\"c\"");
        assert_eq!(at(places.value(&["c"])), "nul");
        assert_eq!(at(places.value(&["a", "1", "b\""])), "\"x\"");
        assert_eq!(at(places.value(&["c", "nothing"])), "nul");
        assert_eq!(places.twice.len(), 1);
    }
}
