//! A plugin's files, before anything is understood of them.

use crate::problem::{Problem, Problems};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::Path;

/// Files of one plugin. Each becomes a module in the heap of every template, and is looked up at each link.
pub const FILES_MAX: usize = 300;
/// Bytes of one file. A hand-written file is far below; bundled libraries mostly are.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of all files: as JSON in one message to a worker they must stay well below a message's limit.
pub const TOTAL_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Characters of a file's path, and folders in it.
pub const PATH_BYTES_MAX: usize = 200;
/// Folders inside each other that are followed.
const DEPTH_MAX: usize = 16;
/// Entries looked at in a folder before giving up: a plugin's folder isn't a home directory.
const ENTRIES_MAX: usize = 20_000;

/// A plugin's files: relative path, with `/`, to content. Bounded, and safe to resolve imports in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    files: BTreeMap<String, Vec<u8>>,
}

impl Source {
    /// Reads a plugin's folder. Left out, since nothing imports them: files and folders whose name starts with a
    /// dot, `node_modules`, `tests`, `*.d.ts`, and all that isn't source, JSON or Markdown.
    pub fn read_folder(folder: &Path) -> Result<Self, Problems> {
        let mut reader = Reader { files: BTreeMap::new(), problems: Vec::new(), entries: 0, total_bytes: 0 };
        match fs::canonicalize(folder) {
            Ok(root) if root.is_dir() => reader.folder(&root, &root, "", 0),
            Ok(_) => reader.problems.push(Problem::error(
                "folder-unreadable",
                format!("{} is not a folder", folder.display()),
                "name the folder that holds plugin.json",
            )),
            Err(error) => reader.problems.push(Problem::error(
                "folder-unreadable",
                format!("cannot open {}: {error}", folder.display()),
                "name the folder that holds plugin.json",
            )),
        }
        let mut problems = reader.problems;
        match Self::from_files(reader.files) {
            Ok(source) => Problems::settle(problems).map(|_| source),
            Err(more) => {
                problems.extend(more);
                Err(Problems::settle(problems).expect_err("it holds an error"))
            }
        }
    }

    /// Takes files that came some other way, such as a request's body. The same files are left out as when a
    /// folder is read, so both ways make the same release.
    pub fn from_files(files: BTreeMap<String, Vec<u8>>) -> Result<Self, Problems> {
        let mut problems = Vec::new();
        let mut kept = BTreeMap::new();
        let mut folded: BTreeMap<String, String> = BTreeMap::new();
        for (path, content) in files {
            if let Err(problem) = check_path(&path) {
                problems.push(problem);
                continue;
            }
            if path.split('/').any(is_skipped_folder) || is_skipped_file(&path) {
                continue;
            }
            if content.len() > FILE_BYTES_MAX {
                problems.push(too_large(&path, content.len() as u64));
                continue;
            }
            if let Some(other) = folded.insert(path.to_lowercase(), path.clone()) {
                problems.push(
                    Problem::error(
                        "file-case",
                        format!("{path:?} and {other:?} differ only in upper and lower case"),
                        "rename one: on many machines they are one file",
                    )
                    .in_file(&path),
                );
            }
            kept.insert(path, content);
        }
        if kept.len() > FILES_MAX {
            problems.push(Problem::error(
                "files-many",
                format!("the plugin has {} files, and {FILES_MAX} are the most", kept.len()),
                "leave out what the entry doesn't import",
            ));
        }
        let total_bytes: usize = kept.values().map(Vec::len).sum();
        if total_bytes > TOTAL_BYTES_MAX {
            problems.push(Problem::error(
                "files-large",
                format!("the plugin's files have {total_bytes} bytes, and {TOTAL_BYTES_MAX} are the most"),
                "leave out what the entry doesn't import",
            ));
        }
        Problems::settle(problems).map(|_| Self { files: kept })
    }

    /// The files, by path.
    pub fn files(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.files
    }
}

fn too_large(path: &str, bytes: u64) -> Problem {
    Problem::error(
        "file-large",
        format!("the file has {bytes} bytes, and {FILE_BYTES_MAX} are the most"),
        "split it, or fetch large data when a tool is called",
    )
    .in_file(path)
}

/// A path as it may stand in a plugin: relative, plain, the same on every machine.
fn check_path(path: &str) -> Result<(), Problem> {
    let shown: String = path.chars().take(80).collect();
    let bad = |why: &str| {
        Err(Problem::error(
            "file-path",
            format!("{shown:?} can't be a file of a plugin: {why}"),
            "name files relative to the plugin's folder, such as src/index.ts",
        ))
    };
    if path.is_empty() {
        return bad("it is empty");
    }
    if path.len() > PATH_BYTES_MAX {
        return bad("it is longer than 200 bytes");
    }
    if path.starts_with('/') {
        return bad("it is absolute");
    }
    if path.contains('\\') || path.contains(':') {
        return bad("it holds '\\' or ':'");
    }
    if path.chars().any(char::is_control) {
        return bad("it holds control characters");
    }
    if path.split('/').count() > DEPTH_MAX {
        return bad("it lies in too many folders");
    }
    match path.split('/').find(|part| matches!(*part, "" | "." | "..")) {
        Some("..") => bad("it leads out of the plugin's folder"),
        Some(_) => bad("it has an empty or '.' part"),
        None => Ok(()),
    }
}

fn is_skipped_folder(name: &str) -> bool {
    name.starts_with('.') || name == "node_modules"
}

/// What no release needs: tests, declarations, and everything that is neither code nor words about it.
fn is_skipped_file(path: &str) -> bool {
    let kept = [".ts", ".js", ".mts", ".mjs", ".json", ".tsx", ".jsx", ".cts", ".cjs"];
    path.starts_with("tests/")
        || [".d.ts", ".d.mts", ".d.cts"].iter().any(|end| path.ends_with(end))
        || !kept.iter().any(|end| path.ends_with(end))
}

struct Reader {
    files: BTreeMap<String, Vec<u8>>,
    problems: Vec<Problem>,
    entries: usize,
    total_bytes: usize,
}

impl Reader {
    fn folder(&mut self, root: &Path, folder: &Path, prefix: &str, depth: usize) {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => return self.unreadable(prefix, &error),
        };
        let mut names = BTreeSet::new();
        for entry in entries {
            self.entries += 1;
            if self.entries > ENTRIES_MAX {
                break;
            }
            match entry {
                Ok(entry) => names.insert(entry.file_name()),
                Err(error) => return self.unreadable(prefix, &error),
            };
        }
        for name in names {
            let Some(name) = name.to_str() else {
                self.problems.push(Problem::error(
                    "file-path",
                    format!("{:?} is not UTF-8", Path::new(prefix).join(&name).display().to_string()),
                    "rename it",
                ));
                continue;
            };
            if is_skipped_folder(name) {
                continue;
            }
            let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
            self.entry(root, &folder.join(name), path, depth);
        }
        if depth == 0 && (self.entries > ENTRIES_MAX || self.total_bytes > 2 * TOTAL_BYTES_MAX) {
            self.problems.push(Problem::error(
                "files-many",
                "the folder holds far more than a plugin",
                "name the folder that holds plugin.json, and keep build output out of it",
            ));
        }
    }

    fn entry(&mut self, root: &Path, at: &Path, path: String, depth: usize) {
        // Links are followed only to what lies inside the folder: what is published is what one can see in it.
        let real = match fs::canonicalize(at) {
            Ok(real) => real,
            Err(error) => return self.unreadable(&path, &error),
        };
        if !real.starts_with(root) {
            self.problems.push(
                Problem::error(
                    "file-outside",
                    format!("{path} is a link to {}, outside the plugin's folder", real.display()),
                    "copy the file into the folder",
                )
                .in_file(&path),
            );
            return;
        }
        let kind = match fs::metadata(&real) {
            Ok(kind) => kind,
            Err(error) => return self.unreadable(&path, &error),
        };
        if kind.is_dir() {
            if at.is_symlink() {
                self.problems.push(
                    Problem::error(
                        "file-link",
                        format!("{path} is a link to a folder: its files would be there twice, or without end"),
                        "import the files where they are",
                    )
                    .in_file(&path),
                );
                return;
            }
            let leaves_tests_out = path == "tests";
            if depth + 1 < DEPTH_MAX && self.entries <= ENTRIES_MAX && !leaves_tests_out {
                self.folder(root, &real, &path, depth + 1);
            }
            return;
        }
        if !kind.is_file() || is_skipped_file(&path) {
            return;
        }
        if kind.len() > FILE_BYTES_MAX as u64 {
            self.problems.push(too_large(&path, kind.len()));
            return;
        }
        if self.files.len() > FILES_MAX || self.total_bytes > 2 * TOTAL_BYTES_MAX {
            return;
        }
        let mut content = Vec::new();
        // Bounded again: the file may grow between the look and the read.
        let read =
            fs::File::open(&real).and_then(|file| file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut content));
        match read {
            Ok(_) => {
                self.total_bytes += content.len();
                self.files.insert(path, content);
            }
            Err(error) => self.unreadable(&path, &error),
        }
    }

    fn unreadable(&mut self, path: &str, error: &std::io::Error) {
        let shown = if path.is_empty() { "." } else { path };
        self.problems.push(
            Problem::error(
                "file-unreadable",
                format!("cannot read {shown}: {error}"),
                "check the file and its permissions",
            )
            .in_file(shown),
        );
    }
}
