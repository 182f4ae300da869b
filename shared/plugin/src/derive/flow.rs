//! Following values through syntax trees.

use super::exports::{Exports, name_of};
use super::value::Value;
use super::{Derived, Imports, constant, dynamic, frozen, is_namespace, not_callable, unknown, unseen};
use crate::problem::Place;
use crate::syntax::Tree;
use oxc::ast::AstKind;
use oxc::ast::ast::{
    Argument, AssignmentTarget, AssignmentTargetMaybeDefault, AssignmentTargetProperty, BindingPattern, CallExpression,
    Expression, ImportDeclarationSpecifier, LogicalOperator, ObjectExpression, ObjectPropertyKind, Statement,
};
use oxc::semantic::{NodeId, ReferenceId, SymbolFlags, SymbolId};
use oxc::span::{GetSpan, Span};
use std::collections::{HashMap, HashSet};
use toolfleet_protocol::host::HostMethod;

/// One thing to look at.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Task {
    /// The expression at a node has the value.
    Node(usize, NodeId, Value),
    /// A variable holds it.
    Symbol(usize, SymbolId, Value),
    /// A file exports it under a name.
    Export(usize, String, Value),
}

/// Who takes what a file exports.
#[derive(Clone)]
enum Watcher<'a> {
    Node(usize, NodeId),
    Symbol(usize, SymbolId),
    Export(usize, String),
    Pattern(usize, &'a BindingPattern<'a>),
}

pub(super) struct Flow<'t, 'a> {
    trees: &'t [Tree<'a>],
    exports: Exports<'t, 'a>,
    tasks: Vec<Task>,
    seen: HashSet<Task>,
    /// What was exported so far: values and watchers meet in either order.
    exported: HashMap<(usize, String), Vec<Value>>,
    watchers: HashMap<(usize, String), Vec<Watcher<'a>>>,
    /// Files that pass on all exports of a file.
    stars: HashMap<usize, Vec<usize>>,
    pub(super) derived: Derived,
}

impl<'t, 'a> Flow<'t, 'a> {
    pub(super) fn new(trees: &'t [Tree<'a>], imports: &'t Imports) -> Self {
        Self {
            trees,
            exports: Exports::new(trees, imports),
            tasks: Vec::new(),
            seen: HashSet::new(),
            exported: HashMap::new(),
            watchers: HashMap::new(),
            stars: HashMap::new(),
            derived: Derived::default(),
        }
    }

    pub(super) fn run(&mut self) {
        for file in 0..self.trees.len() {
            self.imports(file);
            self.globals(file);
        }
        // Ends: there are finitely many places and values, and each pair is looked at once.
        while let Some(task) = self.tasks.pop() {
            match task {
                Task::Node(file, node, value) => self.node(file, node, value),
                Task::Symbol(file, symbol, value) => self.symbol(file, symbol, value),
                Task::Export(file, name, value) => self.export(file, name, value),
            }
        }
    }

    fn add(&mut self, task: Task) {
        if self.seen.insert(task.clone()) {
            self.tasks.push(task);
        }
    }

    /// The global variables as a file names them. A local variable of such a name is not the global, unless it only
    /// declares its type (`declare const host: any`).
    fn globals(&mut self, file: usize) {
        let scoping = self.trees[file].semantic.scoping();
        let mut tasks = Vec::new();
        for (name, references) in scoping.root_unresolved_references() {
            let Some(value) = Value::global(name.as_str()) else { continue };
            for reference in references.iter() {
                if self.is_value(file, *reference) {
                    let node = scoping.get_reference(*reference).node_id();
                    tasks.push(Task::Node(file, node, value.clone()));
                }
            }
        }
        for symbol in scoping.symbol_ids() {
            if scoping.symbol_flags(symbol).contains(SymbolFlags::Ambient)
                && let Some(value) = Value::global(scoping.symbol_name(symbol))
            {
                tasks.push(Task::Symbol(file, symbol, value));
            }
        }
        // Last in, first looked at: keep the order of the text.
        tasks.reverse();
        for task in tasks {
            self.add(task);
        }
    }

    fn imports(&mut self, file: usize) {
        let tree = &self.trees[file];
        for statement in &tree.program.body {
            match statement {
                Statement::ImportDeclaration(import) => {
                    let Some(target) = self.exports.target(file, &import.source.value) else { continue };
                    for specifier in import.specifiers.iter().flatten() {
                        let (local, name) = match specifier {
                            ImportDeclarationSpecifier::ImportSpecifier(specifier) => {
                                (&specifier.local, Some(name_of(&specifier.imported)))
                            }
                            ImportDeclarationSpecifier::ImportDefaultSpecifier(specifier) => {
                                (&specifier.local, Some("default".to_owned()))
                            }
                            ImportDeclarationSpecifier::ImportNamespaceSpecifier(specifier) => (&specifier.local, None),
                        };
                        let Some(symbol) = local.symbol_id.get() else { continue };
                        match name {
                            Some(name) => self.watch(target, name, Watcher::Symbol(file, symbol)),
                            None => self.add(Task::Symbol(file, symbol, Value::Module(target))),
                        }
                    }
                }
                Statement::ExportFromDeclaration(export) => {
                    let Some(target) = self.exports.target(file, &export.source.value) else { continue };
                    for specifier in &export.specifiers {
                        let exported = name_of(&specifier.exported);
                        self.watch(target, name_of(&specifier.local), Watcher::Export(file, exported));
                    }
                }
                Statement::ExportAllDeclaration(export) => {
                    let Some(target) = self.exports.target(file, &export.source.value) else { continue };
                    match &export.exported {
                        Some(name) => self.add(Task::Export(file, name_of(name), Value::Module(target))),
                        None => self.stars.entry(target).or_default().push(file),
                    }
                }
                _ => {}
            }
        }
        for node in tree.semantic.nodes().iter() {
            if let AstKind::ImportExpression(import) = node.kind()
                && let Expression::StringLiteral(source) = &import.source
                && let Some(target) = self.exports.target(file, &source.value)
            {
                self.add(Task::Node(file, node.id(), Value::Module(target)));
            }
        }
    }

    fn watch(&mut self, file: usize, name: String, watcher: Watcher<'a>) {
        let key = (file, name);
        for value in self.exported.get(&key).cloned().unwrap_or_default() {
            self.notify(&watcher, value);
        }
        self.watchers.entry(key).or_default().push(watcher);
    }

    fn notify(&mut self, watcher: &Watcher<'a>, value: Value) {
        match watcher {
            Watcher::Node(file, node) => self.add(Task::Node(*file, *node, value)),
            Watcher::Symbol(file, symbol) => self.add(Task::Symbol(*file, *symbol, value)),
            Watcher::Export(file, name) => self.add(Task::Export(*file, name.clone(), value)),
            Watcher::Pattern(file, pattern) => self.bind(*file, pattern, value),
        }
    }

    fn export(&mut self, file: usize, name: String, value: Value) {
        if name != "default" {
            for passing in self.stars.get(&file).cloned().unwrap_or_default() {
                self.add(Task::Export(passing, name.clone(), value.clone()));
            }
        }
        let key = (file, name);
        for watcher in self.watchers.get(&key).cloned().unwrap_or_default() {
            self.notify(&watcher, value.clone());
        }
        self.exported.entry(key).or_default().push(value);
    }

    fn symbol(&mut self, file: usize, symbol: SymbolId, value: Value) {
        let scoping = self.trees[file].semantic.scoping();
        for reference in scoping.get_resolved_reference_ids(symbol) {
            if self.is_value(file, *reference) {
                let node = scoping.get_reference(*reference).node_id();
                self.add(Task::Node(file, node, value.clone()));
            }
        }
        for name in self.exports.names(file, symbol).to_vec() {
            self.add(Task::Export(file, name, value.clone()));
        }
    }

    /// Is the reference more than a type or a target of an assignment?
    fn is_value(&self, file: usize, reference: ReferenceId) -> bool {
        let reference = self.trees[file].semantic.scoping().get_reference(reference);
        reference.is_value() || reference.is_write()
    }

    fn place(&self, file: usize, span: Span) -> Place {
        self.trees[file].place(span.start)
    }

    /// What becomes of the value that the expression at `node` has.
    fn node(&mut self, file: usize, node: NodeId, value: Value) {
        let nodes = self.trees[file].semantic.nodes();
        let span = nodes.kind(node).span();
        let parent = nodes.parent_id(node);
        let is_child = |other: Span| other == span;
        match nodes.kind(parent) {
            AstKind::ParenthesizedExpression(_)
            | AstKind::TSAsExpression(_)
            | AstKind::TSSatisfiesExpression(_)
            | AstKind::TSNonNullExpression(_)
            | AstKind::TSTypeAssertion(_)
            | AstKind::TSInstantiationExpression(_)
            | AstKind::ChainExpression(_)
            | AstKind::AwaitExpression(_) => self.add(Task::Node(file, parent, value)),
            AstKind::SequenceExpression(sequence) => {
                if sequence.expressions.last().is_some_and(|last| is_child(last.span())) {
                    self.add(Task::Node(file, parent, value));
                }
            }
            AstKind::StaticMemberExpression(member) => {
                let keys = [member.property.name.to_string()];
                self.members(file, &value, &keys, span, Watcher::Node(file, parent));
            }
            AstKind::ComputedMemberExpression(member) => {
                if is_child(member.object.span()) {
                    match constant::texts(&self.trees[file], &member.expression) {
                        Some(keys) => self.members(file, &value, &keys, span, Watcher::Node(file, parent)),
                        None => self.cannot_tell(file, &value, member.expression.span()),
                    }
                }
            }
            AstKind::CallExpression(call) => {
                if is_child(call.callee.span()) {
                    match value {
                        Value::Host(path) => self.derived.problems.push(not_callable(&path, &self.place(file, span))),
                        Value::Returns(value) => self.add(Task::Node(file, parent, *value)),
                        _ => {}
                    }
                } else {
                    self.argument(file, call, span, value);
                }
            }
            AstKind::VariableDeclarator(declarator) => self.bind(file, &declarator.id, value),
            AstKind::AssignmentExpression(assignment) => {
                if is_child(assignment.left.span()) {
                    if value == Value::Manifest {
                        let place = self.place(file, span);
                        self.derived.manifest.get_or_insert(place);
                    }
                    let is_member = matches!(
                        nodes.kind(node),
                        AstKind::StaticMemberExpression(_) | AstKind::ComputedMemberExpression(_)
                    );
                    self.assigned(file, &value, is_member.then_some(span), &assignment.right);
                } else {
                    self.assign(file, &assignment.left, value.clone());
                    self.add(Task::Node(file, parent, value));
                }
            }
            AstKind::AssignmentPattern(pattern) => self.bind(file, &pattern.left, value),
            AstKind::AssignmentTargetWithDefault(target) => self.assign(file, &target.binding, value),
            AstKind::AssignmentTargetPropertyIdentifier(target) => {
                if target.init.as_ref().is_some_and(|init| is_child(init.span())) {
                    self.assign_reference(file, target.binding.reference_id.get(), value);
                }
            }
            AstKind::FormalParameter(parameter) => self.bind(file, &parameter.pattern, value),
            AstKind::LogicalExpression(logical) => {
                // The left of `&&` goes on only when there is nothing in it.
                if logical.operator != LogicalOperator::And || is_child(logical.right.span()) {
                    self.add(Task::Node(file, parent, value));
                }
            }
            AstKind::ConditionalExpression(conditional) => {
                if !is_child(conditional.test.span()) {
                    self.add(Task::Node(file, parent, value));
                }
            }
            AstKind::ReturnStatement(_) => self.returned(file, parent, value, span),
            AstKind::ArrowFunctionExpression(_) => self.result_of(file, parent, value, span),
            // Known by its variable already.
            AstKind::ExportSpecifier(_) => {}
            AstKind::ExportDefaultDeclaration(_) => self.add(Task::Export(file, "default".to_owned(), value)),
            // Looked at, and gone.
            AstKind::ExpressionStatement(_)
            | AstKind::IfStatement(_)
            | AstKind::WhileStatement(_)
            | AstKind::DoWhileStatement(_)
            | AstKind::ForStatement(_)
            | AstKind::ForInStatement(_)
            | AstKind::SwitchStatement(_)
            | AstKind::SwitchCase(_)
            | AstKind::UnaryExpression(_)
            | AstKind::BinaryExpression(_)
            | AstKind::TemplateLiteral(_)
            | AstKind::TSTypeQuery(_)
            | AstKind::TSQualifiedName(_) => {}
            _ => self.lost(file, &value, span),
        }
    }

    /// The value gets out of sight.
    fn lost(&mut self, file: usize, value: &Value, span: Span) {
        if let Some(path) = value.namespace() {
            self.derived.problems.push(unseen(path, &self.place(file, span)));
        }
    }

    fn cannot_tell(&mut self, file: usize, value: &Value, span: Span) {
        if let Value::Host(path) = value {
            self.derived.problems.push(dynamic(path, &self.place(file, span)));
        }
    }

    /// Passes members of `value` on; `span` is the value's expression.
    fn members(&mut self, file: usize, value: &Value, keys: &[String], span: Span, to: Watcher<'a>) {
        for key in keys {
            match value {
                Value::Module(target) => self.watch(*target, key.clone(), to.clone()),
                Value::Tools => {
                    let place = self.place(file, span);
                    self.derived.tools.entry(key.clone()).or_insert(place);
                }
                Value::Global => {
                    if let Some(value) = Value::global(key) {
                        self.notify(&to, value);
                    }
                }
                Value::Host(path) => {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    let place = self.place(file, span);
                    if let Some(method) = HostMethod::find(&path) {
                        self.found(method, place);
                        self.notify(&to, Value::Method(method));
                    } else if is_namespace(&path) {
                        self.notify(&to, Value::Host(path));
                    } else {
                        self.derived.problems.push(unknown(&path, &place));
                    }
                }
                Value::Method(_) | Value::Manifest | Value::Returns(_) => {}
            }
        }
    }

    fn found(&mut self, method: HostMethod, place: Place) {
        let first = self.derived.methods.entry(method).or_insert_with(|| place.clone());
        if place < *first {
            *first = place;
        }
    }

    /// A declaration takes the value, whole or apart.
    fn bind(&mut self, file: usize, pattern: &'a BindingPattern<'a>, value: Value) {
        match pattern {
            BindingPattern::BindingIdentifier(identifier) => {
                if let Some(symbol) = identifier.symbol_id.get() {
                    self.add(Task::Symbol(file, symbol, value));
                }
            }
            BindingPattern::ObjectPattern(object) => {
                for property in &object.properties {
                    match constant::keys(&self.trees[file], &property.key) {
                        Some(keys) => {
                            let to = Watcher::Pattern(file, &property.value);
                            self.members(file, &value, &keys, property.key.span(), to);
                        }
                        None => self.cannot_tell(file, &value, property.key.span()),
                    }
                }
                if let Some(rest) = &object.rest {
                    self.bind(file, &rest.argument, value);
                }
            }
            BindingPattern::ArrayPattern(array) => self.lost(file, &value, array.span),
            BindingPattern::AssignmentPattern(assignment) => self.bind(file, &assignment.left, value),
        }
    }

    /// An assignment takes the value, whole or apart.
    fn assign(&mut self, file: usize, target: &'a AssignmentTarget<'a>, value: Value) {
        match target {
            AssignmentTarget::AssignmentTargetIdentifier(identifier) => {
                self.assign_reference(file, identifier.reference_id.get(), value);
            }
            AssignmentTarget::ObjectAssignmentTarget(object) => {
                for property in &object.properties {
                    match property {
                        AssignmentTargetProperty::AssignmentTargetPropertyIdentifier(property) => {
                            let key = property.binding.name.to_string();
                            if let Some(value) = self.member_now(file, &value, &key, property.span) {
                                self.assign_reference(file, property.binding.reference_id.get(), value);
                            }
                        }
                        AssignmentTargetProperty::AssignmentTargetPropertyProperty(property) => {
                            let Some(keys) = constant::keys(&self.trees[file], &property.name) else {
                                self.cannot_tell(file, &value, property.name.span());
                                continue;
                            };
                            let target = match &property.binding {
                                AssignmentTargetMaybeDefault::AssignmentTargetWithDefault(target) => {
                                    Some(&target.binding)
                                }
                                other => other.as_assignment_target(),
                            };
                            for key in keys {
                                if let Some(value) = self.member_now(file, &value, &key, property.name.span())
                                    && let Some(target) = target
                                {
                                    self.assign(file, target, value);
                                }
                            }
                        }
                    }
                }
                if let Some(rest) = &object.rest {
                    self.assign(file, &rest.target, value);
                }
            }
            other => self.lost(file, &value, other.span()),
        }
    }

    /// A member, where nothing can wait for another file's export.
    fn member_now(&mut self, file: usize, value: &Value, key: &str, span: Span) -> Option<Value> {
        match value {
            Value::Global => Value::global(key),
            Value::Host(path) => {
                let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
                let place = self.place(file, span);
                if let Some(method) = HostMethod::find(&path) {
                    self.found(method, place);
                    Some(Value::Method(method))
                } else if is_namespace(&path) {
                    Some(Value::Host(path))
                } else {
                    self.derived.problems.push(unknown(&path, &place));
                    None
                }
            }
            _ => None,
        }
    }

    fn assign_reference(&mut self, file: usize, reference: Option<ReferenceId>, value: Value) {
        let symbol = reference.and_then(|id| self.trees[file].semantic.scoping().get_reference(id).symbol_id());
        if let Some(symbol) = symbol {
            self.add(Task::Symbol(file, symbol, value));
        }
    }

    /// Something is assigned to where the value was; `member` is that place, unless it is a variable, which may well
    /// hold something else from then on.
    fn assigned(&mut self, file: usize, value: &Value, member: Option<Span>, right: &'a Expression<'a>) {
        match (value, member) {
            (Value::Tools, _) => {
                if let Expression::ObjectExpression(object) = right.without_parentheses() {
                    self.registrations(file, object);
                }
            }
            (Value::Host(path), Some(span)) => self.derived.problems.push(frozen(path, &self.place(file, span))),
            (Value::Method(method), Some(span)) => {
                self.derived.problems.push(frozen(method.row().path, &self.place(file, span)));
            }
            _ => {}
        }
    }

    fn registrations(&mut self, file: usize, object: &ObjectExpression<'_>) {
        for property in &object.properties {
            if let ObjectPropertyKind::ObjectProperty(property) = property {
                for key in constant::keys(&self.trees[file], &property.key).unwrap_or_default() {
                    let place = self.place(file, property.span);
                    self.derived.tools.entry(key).or_insert(place);
                }
            }
        }
    }

    /// The value is an argument of a call.
    fn argument(&mut self, file: usize, call: &'a CallExpression<'a>, span: Span, value: Value) {
        if value == Value::Tools && is_object_assign(call) {
            for argument in &call.arguments {
                if let Argument::ObjectExpression(object) = argument {
                    self.registrations(file, object);
                }
            }
            return;
        }
        if only_looks(&call.callee) {
            return;
        }
        let spread = call.arguments.iter().any(Argument::is_spread);
        let index = call.arguments.iter().position(|argument| argument.span() == span);
        if !spread
            && let Some(index) = index
            && let Some((home, parameters)) = self.exports.function(file, &call.callee)
        {
            match parameters.items.get(index) {
                Some(parameter) => {
                    self.bind(home, &parameter.pattern, value);
                    return;
                }
                // An argument that nobody takes.
                None if parameters.rest.is_none() => return,
                None => {}
            }
        }
        self.lost(file, &value, span);
    }

    fn returned(&mut self, file: usize, statement: NodeId, value: Value, span: Span) {
        let nodes = self.trees[file].semantic.nodes();
        let function = nodes
            .ancestors(statement)
            .find(|node| matches!(node.kind(), AstKind::Function(_) | AstKind::ArrowFunctionExpression(_)));
        match function.map(|node| node.id()) {
            Some(function) => self.result_of(file, function, value, span),
            None => self.lost(file, &value, span),
        }
    }

    /// The value is what the function at `function` returns.
    fn result_of(&mut self, file: usize, function: NodeId, value: Value, span: Span) {
        let value = match value.returned() {
            Ok(value) => value,
            Err(value) => return self.lost(file, &value, span),
        };
        let nodes = self.trees[file].semantic.nodes();
        if let AstKind::Function(declared) = nodes.kind(function)
            && declared.is_declaration()
        {
            if let Some(symbol) = declared.id.as_ref().and_then(|id| id.symbol_id.get()) {
                self.add(Task::Symbol(file, symbol, value.clone()));
            }
            if matches!(nodes.parent_kind(function), AstKind::ExportDefaultDeclaration(_)) {
                self.add(Task::Export(file, "default".to_owned(), value));
            }
            return;
        }
        // Told where the value is, not where the whole function starts.
        let parent = nodes.parent_kind(function);
        if matches!(parent, AstKind::ObjectProperty(_) | AstKind::MethodDefinition(_) | AstKind::PropertyDefinition(_))
        {
            return self.lost(file, &value, span);
        }
        self.add(Task::Node(file, function, value));
    }
}

fn is_object_assign(call: &CallExpression<'_>) -> bool {
    matches!(&call.callee, Expression::StaticMemberExpression(member)
        if member.property.name == "assign"
            && matches!(&member.object, Expression::Identifier(name) if name.name == "Object"))
}

/// Functions of the language that keep nothing of what they are given: `Boolean(host.workspace)`.
fn only_looks(callee: &Expression<'_>) -> bool {
    match callee {
        Expression::Identifier(name) => matches!(name.name.as_str(), "Boolean" | "String"),
        Expression::StaticMemberExpression(member) => match &member.object {
            Expression::Identifier(object) => match object.name.as_str() {
                "console" => true,
                "Object" => matches!(member.property.name.as_str(), "keys" | "hasOwn" | "isFrozen"),
                _ => false,
            },
            _ => false,
        },
        _ => false,
    }
}
