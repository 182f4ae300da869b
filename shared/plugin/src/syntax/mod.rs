//! One file at a time: bytes to text, text to syntax tree, TypeScript to JavaScript.

mod nesting;
mod text;
mod transpile;

pub(crate) use text::{FileKind, decode};
pub(crate) use transpile::transpile;

use crate::problem::{Place, Problem};
use oxc::allocator::Allocator;
use oxc::ast::ast::Program;
use oxc::diagnostics::OxcDiagnostic;
use oxc::parser::Parser;
use oxc::semantic::{Semantic, SemanticBuilder};
use oxc::span::SourceType;

/// The stack on which files are parsed: [`nesting::NESTING_MAX`] levels of what takes most for each.
/// Only what is used becomes memory.
pub(crate) const STACK_BYTES: usize = 256 * 1024 * 1024;

/// How a file is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The entry: a module if it has module syntax, otherwise a plain script.
    Either,
    /// What is imported.
    Module,
}

/// A parsed file whose names are resolved.
pub(crate) struct Tree<'a> {
    pub path: String,
    pub text: &'a str,
    pub program: &'a Program<'a>,
    pub semantic: Semantic<'a>,
}

impl Tree<'_> {
    pub(crate) fn place(&self, byte: u32) -> Place {
        Place::of_byte(&self.path, self.text, byte as usize)
    }
}

fn source_type(kind: FileKind, goal: Goal) -> SourceType {
    let language = match kind {
        FileKind::TypeScript => SourceType::ts(),
        FileKind::JavaScript => SourceType::unambiguous(),
    };
    match goal {
        Goal::Either => language,
        Goal::Module => language.with_module(true),
    }
}

/// Does the text await at its top level, or otherwise need to be a module, without saying so by `import` or `export`?
pub(crate) fn goal_of_entry(path: &str, text: &str, kind: FileKind) -> Goal {
    // Told when it is parsed for good.
    if !nesting::is_shallow(text) {
        return Goal::Either;
    }
    let parses = |goal| {
        let allocator = Allocator::default();
        let parsed = Parser::new(&allocator, text, source_type(kind, goal)).parse();
        !parsed.panicked && !parsed.diagnostics.has_errors()
    };
    let module_by_name = path.ends_with(".mts") || path.ends_with(".mjs");
    if module_by_name || (!parses(Goal::Either) && parses(Goal::Module)) { Goal::Module } else { Goal::Either }
}

/// Parses a file and resolves its names; all that is wrong with its syntax otherwise.
pub(crate) fn parse<'a>(
    allocator: &'a Allocator,
    path: &str,
    text: &str,
    kind: FileKind,
    goal: Goal,
) -> Result<Tree<'a>, Vec<Problem>> {
    if let Some(byte) = nesting::too_deep_at(text) {
        return Err(vec![
            Problem::error(
                "nesting-deep",
                format!(
                    "brackets, operators or statements may be nested more than {} levels deep",
                    nesting::NESTING_MAX
                ),
                "split the file, or end statements with ';'",
            )
            .at(&Place::of_byte(path, text, byte)),
        ]);
    }
    let text: &'a str = allocator.alloc_str(text);
    let parsed = Parser::new(allocator, text, source_type(kind, goal)).parse();
    let mut problems: Vec<Problem> =
        parsed.diagnostics.errors().map(|diagnostic| syntax_problem(path, text, diagnostic)).collect();
    if !problems.is_empty() || parsed.panicked {
        if problems.is_empty() {
            problems.push(
                Problem::error("syntax", "the file can't be parsed", "check that it is JavaScript or TypeScript")
                    .in_file(path),
            );
        }
        return Err(problems);
    }
    let program: &'a Program<'a> = allocator.alloc(parsed.program);
    let built = SemanticBuilder::new().with_build_nodes(true).with_check_syntax_error(true).build(program);
    problems.extend(built.diagnostics.errors().map(|diagnostic| syntax_problem(path, text, diagnostic)));
    if problems.is_empty() {
        Ok(Tree { path: path.to_owned(), text, program, semantic: built.semantic })
    } else {
        Err(problems)
    }
}

/// A syntax error in the parser's words, at its place.
fn syntax_problem(path: &str, text: &str, diagnostic: &OxcDiagnostic) -> Problem {
    let remedy = match &diagnostic.help {
        Some(help) => help.to_string(),
        None => "correct the syntax here".to_owned(),
    };
    let problem = Problem::error("syntax", diagnostic.message.to_string(), remedy);
    let label = diagnostic.labels.iter().find(|label| label.primary()).or(diagnostic.labels.first());
    match label {
        Some(label) => problem.at(&Place::of_byte(path, text, label.offset() as usize)),
        None => problem.in_file(path),
    }
}
