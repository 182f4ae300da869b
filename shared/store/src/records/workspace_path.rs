//! Paths of files in a workspace.

use super::WorkspaceError;
use std::fmt;

/// Longer than any path a person reads, short enough for a key.
const PATH_BYTES_MAX: usize = 512;

/// Deeper than any tree a person keeps.
const PATH_SEGMENTS_MAX: usize = 32;

/// A path in a workspace: relative, of plain segments joined by `/`, one text for one file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkspacePathBuf(String);

impl WorkspacePathBuf {
    /// Checks a path and brings it into its one form: `./notes//a.md` is `notes/a.md`.
    ///
    /// # Errors
    /// [`WorkspaceError::Path`], which says what to write instead.
    pub fn parse(text: &str) -> Result<Self, WorkspaceError> {
        let bad = |reason: String| Err(WorkspaceError::Path { path: text.chars().take(80).collect(), reason });
        if text.is_empty() {
            return bad("it is empty; give the path of a file, such as notes/today.md".into());
        }
        if let Some(control) = text.chars().find(|c| c.is_control()) {
            return bad(format!("it holds the control character U+{:04X}; leave it out", u32::from(control)));
        }
        if text.contains('\\') {
            return bad(format!("it holds a backslash; separate folders by '/': {}", shown(&text.replace('\\', "/"))));
        }
        if text.starts_with('/') {
            let relative = text.trim_start_matches('/');
            return bad(format!("it starts with '/'; paths start in the workspace: {}", shown(relative)));
        }
        let segments: Vec<&str> = text.split('/').filter(|segment| !matches!(*segment, "" | ".")).collect();
        if segments.contains(&"..") {
            return bad("it holds '..'; write the whole path from the workspace down, without '..'".into());
        }
        if segments.is_empty() {
            return bad("it names the workspace itself; give the path of a file in it, such as notes/today.md".into());
        }
        if text.ends_with('/') || text.ends_with("/.") {
            return bad(format!("it names a folder; add the file's name: {}/today.md", shown(&segments.join("/"))));
        }
        if segments.len() > PATH_SEGMENTS_MAX {
            return bad(format!(
                "it is {} folders deep; at most {PATH_SEGMENTS_MAX} segments are allowed",
                segments.len()
            ));
        }
        let path = segments.join("/");
        if path.len() > PATH_BYTES_MAX {
            return bad(format!("it has {} bytes; at most {PATH_BYTES_MAX} are allowed", path.len()));
        }
        Ok(Self(path))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkspacePathBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_has_one_path() {
        let check = |text: &str, expected: &str| assert_eq!(WorkspacePathBuf::parse(text).unwrap().as_str(), expected);
        check("a", "a");
        check("notes/a.md", "notes/a.md");
        check("./notes//./a.md", "notes/a.md");
        check("...", "...");
        check(".hidden", ".hidden");
        check("a..b/..c", "a..b/..c");
        check("ümläut/日本 語.md", "ümläut/日本 語.md");
        check("%2e%2e/a", "%2e%2e/a");
        check("{x}:*?", "{x}:*?");
        check(&"a".repeat(512), &"a".repeat(512));
        check(&["a"; 32].join("/"), &["a"; 32].join("/"));
    }

    #[test]
    fn a_path_that_could_lead_elsewhere_is_refused_with_what_to_write() {
        let check = |text: &str, expected: &str| {
            let error = WorkspacePathBuf::parse(text).unwrap_err();
            assert!(matches!(error, WorkspaceError::Path { .. }));
            let error = error.to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        };
        check("", "is empty");
        check("/", "starts with '/'");
        check("/etc/passwd", "start in the workspace: etc/passwd");
        check("//a", "start in the workspace: a");
        check("..", "without '..'");
        check("../a", "without '..'");
        check("a/../../b", "without '..'");
        check("a/..", "without '..'");
        check("./..", "without '..'");
        check(".", "names the workspace itself");
        check("././/", "names the workspace itself");
        check("notes/", "names a folder");
        check("notes/.", "names a folder");
        check("a\\b", "separate folders by '/': a/b");
        check("..\\a", "backslash");
        check("a\0b", "U+0000");
        check("a\nb", "U+000A");
        check("a\u{7f}", "U+007F");
        check("a\u{85}", "U+0085");
        check(&"a".repeat(513), "513 bytes");
        check(&["a"; 33].join("/"), "33 folders deep");
    }
}
