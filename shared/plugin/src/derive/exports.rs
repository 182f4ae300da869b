//! What each file exports, and the functions behind names that are called.

use super::Imports;
use crate::syntax::Tree;
use oxc::ast::AstKind;
use oxc::ast::ast::{
    Declaration, ExportDefaultDeclarationKind, Expression, FormalParameters, ModuleExportName, Statement,
};
use oxc::semantic::SymbolId;
use std::collections::HashMap;

/// Names that stand for names of other files are followed so far.
const DEPTH_MAX: usize = 32;

/// A function's parameters, and the file in which they stand.
pub(super) type Parameters<'a> = (usize, &'a FormalParameters<'a>);

/// One export of a file.
pub(super) enum Export<'a> {
    Local(SymbolId),
    /// `export default function …`, `export default () => …`
    Function(&'a FormalParameters<'a>),
    /// `export { name } from`
    From(usize, String),
}

/// All exports of all files.
pub(super) struct Exports<'t, 'a> {
    trees: &'t [Tree<'a>],
    imports: &'t Imports,
    by_path: HashMap<&'t str, usize>,
    by_name: Vec<HashMap<String, Export<'a>>>,
    /// `export * from`, by file.
    stars: Vec<Vec<usize>>,
    /// The names under which a file exports a variable.
    names: Vec<HashMap<SymbolId, Vec<String>>>,
}

/// The text of a name in an import or export.
pub(super) fn name_of(name: &ModuleExportName<'_>) -> String {
    name.name().to_string()
}

impl<'t, 'a> Exports<'t, 'a> {
    pub(super) fn new(trees: &'t [Tree<'a>], imports: &'t Imports) -> Self {
        let by_path = trees.iter().enumerate().map(|(index, tree)| (tree.path.as_str(), index)).collect();
        let mut exports = Self {
            trees,
            imports,
            by_path,
            by_name: trees.iter().map(|_| HashMap::new()).collect(),
            stars: vec![Vec::new(); trees.len()],
            names: vec![HashMap::new(); trees.len()],
        };
        for file in 0..trees.len() {
            exports.read(file);
        }
        exports
    }

    /// The file that a specifier in a file names, if that file could be parsed.
    pub(super) fn target(&self, file: usize, specifier: &str) -> Option<usize> {
        let path = self.imports.get(&self.trees[file].path)?.get(specifier)?;
        self.by_path.get(path.as_str()).copied()
    }

    /// The names under which a file exports a variable.
    pub(super) fn names(&self, file: usize, symbol: SymbolId) -> &[String] {
        self.names[file].get(&symbol).map_or(&[], Vec::as_slice)
    }

    fn read(&mut self, file: usize) {
        let tree = &self.trees[file];
        for statement in &tree.program.body {
            match statement {
                Statement::ExportDeclaration(export) => {
                    let mut add = |symbol: Option<SymbolId>, name: &str| {
                        if let Some(symbol) = symbol {
                            self.add_local(file, symbol, name.to_owned());
                        }
                    };
                    match &export.declaration {
                        Declaration::VariableDeclaration(variables) => {
                            for declarator in &variables.declarations {
                                for identifier in declarator.id.get_binding_identifiers() {
                                    add(identifier.symbol_id.get(), &identifier.name);
                                }
                            }
                        }
                        Declaration::FunctionDeclaration(function) => {
                            if let Some(id) = &function.id {
                                add(id.symbol_id.get(), &id.name);
                            }
                        }
                        _ => {}
                    }
                }
                Statement::ExportNamedDeclaration(export) => {
                    for specifier in &export.specifiers {
                        if let ModuleExportName::IdentifierReference(local) = &specifier.local {
                            let reference = local.reference_id.get();
                            let symbol = reference.and_then(|id| tree.semantic.scoping().get_reference(id).symbol_id());
                            if let Some(symbol) = symbol {
                                self.add_local(file, symbol, name_of(&specifier.exported));
                            }
                        }
                    }
                }
                Statement::ExportFromDeclaration(export) => {
                    if let Some(target) = self.target(file, &export.source.value) {
                        for specifier in &export.specifiers {
                            let from = Export::From(target, name_of(&specifier.local));
                            self.by_name[file].insert(name_of(&specifier.exported), from);
                        }
                    }
                }
                Statement::ExportAllDeclaration(export) if export.exported.is_none() => {
                    if let Some(target) = self.target(file, &export.source.value) {
                        self.stars[file].push(target);
                    }
                }
                Statement::ExportDefaultDeclaration(export) => {
                    let default = match &export.declaration {
                        ExportDefaultDeclarationKind::FunctionDeclaration(function) => {
                            Some(Export::Function(&function.params))
                        }
                        other => other.as_expression().and_then(parameters_of).map(Export::Function),
                    };
                    if let Some(default) = default {
                        self.by_name[file].insert("default".to_owned(), default);
                    }
                }
                _ => {}
            }
        }
    }

    fn add_local(&mut self, file: usize, symbol: SymbolId, name: String) {
        self.names[file].entry(symbol).or_default().push(name.clone());
        self.by_name[file].insert(name, Export::Local(symbol));
    }

    /// The parameters of the function that `callee` names, and the file in which they stand, if that can be told.
    pub(super) fn function(&self, file: usize, callee: &'a Expression<'a>) -> Option<Parameters<'a>> {
        let callee = bare(callee);
        if let Some(parameters) = parameters_of(callee) {
            return Some((file, parameters));
        }
        let Expression::Identifier(name) = callee else { return None };
        let symbol = self.trees[file].semantic.scoping().get_reference(name.reference_id.get()?).symbol_id()?;
        self.function_of_symbol(file, symbol, DEPTH_MAX)
    }

    fn function_of_symbol(&self, file: usize, symbol: SymbolId, depth: usize) -> Option<Parameters<'a>> {
        let depth = depth.checked_sub(1)?;
        let semantic = &self.trees[file].semantic;
        if semantic.scoping().symbol_is_mutated(symbol) {
            return None;
        }
        let declaration = semantic.scoping().symbol_declaration(symbol);
        let specifier = || match semantic.nodes().parent_kind(declaration) {
            AstKind::ImportDeclaration(import) => self.target(file, &import.source.value),
            _ => None,
        };
        match semantic.nodes().kind(declaration) {
            AstKind::Function(function) => Some((file, &function.params)),
            AstKind::VariableDeclarator(declarator) => {
                declarator.id.get_binding_identifier()?;
                match bare(declarator.init.as_ref()?) {
                    Expression::Identifier(other) => {
                        let other = semantic.scoping().get_reference(other.reference_id.get()?).symbol_id()?;
                        self.function_of_symbol(file, other, depth)
                    }
                    init => parameters_of(init).map(|parameters| (file, parameters)),
                }
            }
            AstKind::ImportSpecifier(import) => {
                self.function_of_export(specifier()?, &name_of(&import.imported), depth)
            }
            AstKind::ImportDefaultSpecifier(_) => self.function_of_export(specifier()?, "default", depth),
            _ => None,
        }
    }

    fn function_of_export(&self, file: usize, name: &str, depth: usize) -> Option<Parameters<'a>> {
        let depth = depth.checked_sub(1)?;
        match self.by_name[file].get(name) {
            Some(Export::Local(symbol)) => self.function_of_symbol(file, *symbol, depth),
            Some(Export::Function(parameters)) => Some((file, parameters)),
            Some(Export::From(target, name)) => self.function_of_export(*target, name, depth),
            // Each file once: cycles of `export *` end with the depth, but not soon when they branch.
            None => match self.stars[file].as_slice() {
                [target] => self.function_of_export(*target, name, depth),
                targets => targets.iter().find_map(|target| self.function_of_export(*target, name, depth.min(2))),
            },
        }
    }
}

/// An expression without what doesn't change its value: parentheses and types.
fn bare<'b, 'a>(mut expression: &'b Expression<'a>) -> &'b Expression<'a> {
    loop {
        expression = match expression {
            Expression::ParenthesizedExpression(inner) => &inner.expression,
            Expression::TSAsExpression(inner) => &inner.expression,
            Expression::TSSatisfiesExpression(inner) => &inner.expression,
            Expression::TSNonNullExpression(inner) => &inner.expression,
            Expression::TSTypeAssertion(inner) => &inner.expression,
            other => return other,
        };
    }
}

fn parameters_of<'a>(expression: &'a Expression<'a>) -> Option<&'a FormalParameters<'a>> {
    match bare(expression) {
        Expression::ArrowFunctionExpression(arrow) => Some(&arrow.params),
        Expression::FunctionExpression(function) => Some(&function.params),
        _ => None,
    }
}
