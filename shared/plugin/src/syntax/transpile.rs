//! TypeScript to JavaScript: types are stripped, nothing is lowered, and a source map is kept.

use super::{FileKind, Goal, parse, syntax_problem};
use crate::problem::{Place, Problem};
use oxc::allocator::Allocator;
use oxc::ast::AstKind;
use oxc::ast::ast::{Expression, ImportPhase, Program, Statement, TSModuleReference, WithClause};
use oxc::codegen::{Codegen, CodegenOptions};
use oxc::semantic::SemanticBuilder;
use oxc::transformer::{TransformOptions, Transformer};
use std::path::{Path, PathBuf};

/// One file as the engine takes it.
pub(crate) struct Transpiled {
    pub code: String,
    pub source_map: String,
    /// What it imports at run time.
    pub imports: Vec<Import>,
    pub is_script: bool,
}

/// One import that is left once types are gone.
pub(crate) struct Import {
    pub specifier: String,
    pub place: Place,
}

/// Parses and transpiles one file; all that is wrong with it otherwise.
pub(crate) fn transpile(path: &str, text: &str, kind: FileKind, goal: Goal) -> Result<Transpiled, Vec<Problem>> {
    let allocator = Allocator::default();
    let tree = parse(&allocator, path, text, kind, goal)?;
    let mut problems = Vec::new();
    let mut imports = Vec::new();
    for node in tree.semantic.nodes().iter() {
        match node.kind() {
            AstKind::ImportExpression(import) => match &import.source {
                Expression::StringLiteral(literal) => {
                    imports.push(Import { specifier: literal.value.to_string(), place: tree.place(literal.span.start) })
                }
                _ => problems.push(
                    Problem::error(
                        "import-dynamic",
                        "what import() loads can't be seen before it runs",
                        "give it a literal, such as import(\"./other\")",
                    )
                    .at(&tree.place(import.span.start)),
                ),
            },
            AstKind::TSImportEqualsDeclaration(import) => {
                if matches!(import.module_reference, TSModuleReference::ExternalModuleReference(_)) {
                    problems.push(
                        Problem::error(
                            "import-require",
                            "there is no require() where plugins run",
                            "write import … from \"./other\"",
                        )
                        .at(&tree.place(import.span.start)),
                    );
                }
            }
            AstKind::TSExportAssignment(export) => problems.push(
                Problem::error("export-assignment", "`export =` is not a module's export", "write export default")
                    .at(&tree.place(export.span.start)),
            ),
            AstKind::Decorator(decorator) => problems.push(
                Problem::error("decorator", "the engine has no decorators", "call the function yourself")
                    .at(&tree.place(decorator.span.start)),
            ),
            _ => {}
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    drop(tree);

    // Once more: the transformer changes the tree, and wants one that nobody else looks at.
    let text = allocator.alloc_str(text);
    let parsed = oxc::parser::Parser::new(&allocator, text, super::source_type(kind, goal)).parse();
    let mut program = parsed.program;
    let scoping = SemanticBuilder::new_compiler().with_enum_eval(true).build(&program).semantic.into_scoping();
    let options = TransformOptions { cwd: PathBuf::from("/"), ..TransformOptions::default() };
    let transformed = Transformer::new(&allocator, Path::new(path), &options).build_with_scoping(scoping, &mut program);
    problems.extend(transformed.diagnostics.errors().map(|diagnostic| syntax_problem(path, text, diagnostic)));
    collect_imports(path, text, &program, &mut imports, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let is_script = program.source_type.is_script();
    let options = CodegenOptions { source_map_path: Some(PathBuf::from(path)), ..CodegenOptions::default() };
    let printed = Codegen::new().with_options(options).with_source_text(text).build(&program);
    let source_map = match printed.map {
        Some(mut map) => {
            // Places are all that stacks need; the author keeps the text.
            map.set_source_contents(Vec::new());
            map.to_json_string()
        }
        None => String::new(),
    };
    Ok(Transpiled { code: printed.code, source_map, imports, is_script })
}

/// The imports that stand in the transformed tree: those of types alone are gone.
fn collect_imports(
    path: &str,
    text: &str,
    program: &Program<'_>,
    imports: &mut Vec<Import>,
    problems: &mut Vec<Problem>,
) {
    let place = |byte: u32| Place::of_byte(path, text, byte as usize);
    let mut check_attributes = |with: Option<&WithClause<'_>>, phase: Option<ImportPhase>, at: u32| {
        let attributes = with.is_some_and(|with| !with.with_entries.is_empty());
        if attributes || phase.is_some() {
            problems.push(
                Problem::error(
                    "import-attributes",
                    "imports with attributes or phases are not supported",
                    "import a .ts or .js file; keep data in a module that exports it",
                )
                .at(&place(at)),
            );
        }
    };
    for statement in &program.body {
        let source = match statement {
            Statement::ImportDeclaration(import) => {
                check_attributes(import.with_clause.as_deref(), import.phase, import.span.start);
                &import.source
            }
            Statement::ExportFromDeclaration(export) => {
                check_attributes(export.with_clause.as_deref(), None, export.span.start);
                &export.source
            }
            Statement::ExportAllDeclaration(export) => {
                check_attributes(export.with_clause.as_deref(), None, export.span.start);
                &export.source
            }
            _ => continue,
        };
        imports.push(Import { specifier: source.value.to_string(), place: place(source.span.start) });
    }
}
