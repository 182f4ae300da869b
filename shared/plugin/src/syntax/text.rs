//! Bytes to text.

use crate::problem::{Place, Problem};

/// What a file's name says that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    TypeScript,
    JavaScript,
}

impl FileKind {
    /// By the end of its name; `None` for what can't be a module.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        match name.rsplit_once('.')?.1 {
            "ts" | "mts" => Some(Self::TypeScript),
            "js" | "mjs" => Some(Self::JavaScript),
            _ => None,
        }
    }
}

/// The text of a file, without a byte order mark.
pub(crate) fn decode<'a>(path: &str, content: &'a [u8]) -> Result<&'a str, Problem> {
    // WebAssembly says so; compiled QuickJS code starts with a small version number; both hold NUL soon.
    if let Some(nul) = content.iter().position(|byte| *byte == 0) {
        let readable = std::str::from_utf8(&content[..nul]).unwrap_or("");
        return Err(Problem::error(
            "file-binary",
            "the file holds a NUL byte: it is not source text",
            "publish sources; compiled code is never taken",
        )
        .at(&Place::of_byte(path, readable, readable.len())));
    }
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    std::str::from_utf8(content).map_err(|error| {
        let readable = std::str::from_utf8(&content[..error.valid_up_to()]).unwrap_or("");
        Problem::error("file-encoding", "the file is not UTF-8 from here on", "save it as UTF-8").at(&Place::of_byte(
            path,
            readable,
            readable.len(),
        ))
    })
}
