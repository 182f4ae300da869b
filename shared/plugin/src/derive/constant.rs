//! Texts that can be told without running anything: `host["session"]`, ``host[`${"a"}b`]``, `host[NAME]`.

use crate::syntax::Tree;
use oxc::ast::AstKind;
use oxc::ast::ast::{BinaryOperator, Expression, PropertyKey, VariableDeclarationKind};

/// Constants that name constants are followed so far.
const DEPTH_MAX: usize = 32;
/// Texts that one expression may stand for (`a ? "x" : "y"`).
const TEXTS_MAX: usize = 16;

/// All texts that `expression` can be, if they can be told.
pub(super) fn texts(tree: &Tree<'_>, expression: &Expression<'_>) -> Option<Vec<String>> {
    let mut found = Vec::new();
    collect(tree, expression, DEPTH_MAX, &mut found)?;
    Some(found)
}

/// All names that a property's key can be.
pub(super) fn keys(tree: &Tree<'_>, key: &PropertyKey<'_>) -> Option<Vec<String>> {
    match key {
        PropertyKey::StaticIdentifier(name) => Some(vec![name.name.to_string()]),
        PropertyKey::PrivateIdentifier(_) => Some(Vec::new()),
        other => texts(tree, other.as_expression()?),
    }
}

fn collect(tree: &Tree<'_>, expression: &Expression<'_>, depth: usize, found: &mut Vec<String>) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    match expression {
        Expression::StringLiteral(literal) => found.push(literal.value.to_string()),
        Expression::TemplateLiteral(template) => {
            let mut text = String::new();
            for (index, quasi) in template.quasis.iter().enumerate() {
                text.push_str(quasi.value.cooked.as_ref()?.as_str());
                if let Some(expression) = template.expressions.get(index) {
                    text.push_str(&one(tree, expression, depth)?);
                }
            }
            found.push(text);
        }
        Expression::BinaryExpression(binary) if binary.operator == BinaryOperator::Addition => {
            let left = one(tree, &binary.left, depth)?;
            found.push(left + &one(tree, &binary.right, depth)?);
        }
        Expression::ConditionalExpression(conditional) => {
            collect(tree, &conditional.consequent, depth, found)?;
            collect(tree, &conditional.alternate, depth, found)?;
        }
        Expression::ParenthesizedExpression(inner) => collect(tree, &inner.expression, depth, found)?,
        Expression::TSAsExpression(inner) => collect(tree, &inner.expression, depth, found)?,
        Expression::TSSatisfiesExpression(inner) => collect(tree, &inner.expression, depth, found)?,
        Expression::TSNonNullExpression(inner) => collect(tree, &inner.expression, depth, found)?,
        Expression::TSTypeAssertion(inner) => collect(tree, &inner.expression, depth, found)?,
        Expression::Identifier(name) => {
            let scoping = tree.semantic.scoping();
            let symbol = scoping.get_reference(name.reference_id.get()?).symbol_id()?;
            let declaration = scoping.symbol_declaration(symbol);
            let AstKind::VariableDeclarator(declarator) = tree.semantic.nodes().kind(declaration) else { return None };
            let AstKind::VariableDeclaration(variables) = tree.semantic.nodes().parent_kind(declaration) else {
                return None;
            };
            // A pattern takes the value apart; a `let` may hold another one by then.
            declarator.id.get_binding_identifier()?;
            if variables.kind != VariableDeclarationKind::Const {
                return None;
            }
            collect(tree, declarator.init.as_ref()?, depth, found)?;
        }
        _ => return None,
    }
    (found.len() <= TEXTS_MAX).then_some(())
}

fn one(tree: &Tree<'_>, expression: &Expression<'_>, depth: usize) -> Option<String> {
    let mut found = Vec::new();
    collect(tree, expression, depth, &mut found)?;
    if found.len() == 1 { found.pop() } else { None }
}
