//! What is wrong with a plugin, where, and what to do about it.

use serde::{Serialize, Serializer};
use std::fmt;

/// Whether a problem stops the release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    Error,
    Warning,
}

/// Where in a plugin's folder something is. Lines and columns count from 1; a column counts UTF-16 units, as
/// editors do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub file: String,
    pub line: u32,
    pub column: u32,
}

impl Place {
    /// The place of a byte of `text`.
    pub(crate) fn of_byte(file: &str, text: &str, byte: usize) -> Self {
        let mut byte = byte.min(text.len());
        while !text.is_char_boundary(byte) {
            byte -= 1;
        }
        let before = &text[..byte];
        let line = before.bytes().filter(|b| *b == b'\n').count() as u32 + 1;
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = before[line_start..].encode_utf16().count() as u32 + 1;
        Self { file: file.to_owned(), line, column }
    }
}

/// One thing that is wrong with a plugin, or that its author should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    pub severity: Severity,
    /// Names the rule, for example `tool-description-missing`; never changes once given out.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
}

impl Problem {
    /// A problem that stops the release.
    pub(crate) fn error(code: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            message: message.into(),
            remedy: remedy.into(),
            file: None,
            line: None,
            column: None,
        }
    }

    /// Something that the author should know but that stops nothing.
    pub(crate) fn warning(code: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, message, remedy) }
    }

    /// The same, in a file.
    pub(crate) fn in_file(mut self, file: &str) -> Self {
        self.file = Some(file.to_owned());
        self
    }

    /// The same, at a place.
    pub(crate) fn at(mut self, place: &Place) -> Self {
        self.file = Some(place.file.clone());
        self.line = Some(place.line);
        self.column = Some(place.column);
        self
    }
}

/// `src/index.ts:3:1: error[tool-name]: … (what to do)`, the place as editors and terminals make links of it.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            f.write_str(file)?;
            for number in [self.line, self.column].into_iter().flatten() {
                write!(f, ":{number}")?;
            }
            f.write_str(": ")?;
        }
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}[{}]: {} ({})", self.code, self.message, self.remedy)
    }
}

/// Everything that is wrong with a plugin: at least one problem, in the order of their places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

/// How many problems are told: past it they are one fault many times over, and nobody reads them.
pub const PROBLEMS_MAX: usize = 500;

impl Problems {
    /// One problem.
    pub(crate) fn one(problem: Problem) -> Self {
        Self(vec![problem])
    }

    /// `Err` with all of them if one is an error, or `Ok` with the warnings.
    pub(crate) fn settle(mut problems: Vec<Problem>) -> Result<Vec<Problem>, Self> {
        sort(&mut problems);
        if problems.iter().any(|problem| problem.severity == Severity::Error) {
            Err(Self(problems))
        } else {
            Ok(problems)
        }
    }

    /// The problems, in the order of their places.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    /// The problems, in the order of their places.
    pub fn as_slice(&self) -> &[Problem] {
        &self.0
    }

    /// The problems, in the order of their places.
    pub fn into_vec(self) -> Vec<Problem> {
        self.0
    }
}

/// Orders by place, drops what is said twice, and keeps [`PROBLEMS_MAX`], errors before warnings.
fn sort(problems: &mut Vec<Problem>) {
    let key = |p: &Problem| (p.file.clone(), p.line, p.column, p.severity, p.code, p.message.clone());
    problems.sort_by_key(key);
    problems.dedup();
    if problems.len() > PROBLEMS_MAX {
        problems.sort_by_key(|problem| problem.severity);
        problems.truncate(PROBLEMS_MAX);
        problems.sort_by_key(key);
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

impl Serialize for Problems {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_lines_and_utf16_columns_from_1() {
        let place = |byte| {
            let place = Place::of_byte("a.ts", "ab\r\n😀é!", byte);
            (place.line, place.column)
        };
        assert_eq!(place(0), (1, 1));
        assert_eq!(place(4), (2, 1));
        assert_eq!(place(8), (2, 3));
        assert_eq!(place(10), (2, 4));
        assert_eq!(place(999), (2, 5));
    }

    #[test]
    fn problems_come_in_the_order_of_their_places_and_once() {
        let at = |line| {
            let place = Place { file: "a.ts".into(), line, column: 1 };
            Problem::error("code", "message", "remedy").at(&place)
        };
        let problems = Problems::settle(vec![at(10), at(2), at(10)]).unwrap_err();
        let lines: Vec<_> = problems.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [Some(2), Some(10)]);
        assert_eq!(problems.as_slice()[0].to_string(), "a.ts:2:1: error[code]: message (remedy)");
        assert_eq!(Problems::settle(vec![Problem::warning("code", "m", "r")]).unwrap().len(), 1);
    }
}
