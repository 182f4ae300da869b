//! Source to draft: everything that can be told without running the plugin.

use crate::derive::{Derived, Imports, derive};
use crate::digest;
use crate::imports::resolve;
use crate::manifest;
use crate::problem::{Place, Problem, Problems};
use crate::source::Source;
use crate::syntax::{self, FileKind, Goal, STACK_BYTES, Tree};
use oxc::allocator::Allocator;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use toolfleet_protocol::{Bundle, BundledFile, Permission, PluginSlug, ReleaseDigest};

/// A plugin that was read and understood, but not yet evaluated.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Made from all that decides how the plugin behaves: it names the draft, and then the release.
    pub digest: ReleaseDigest,
    pub slug: PluginSlug,
    pub version: semver::Version,
    pub name: String,
    pub description: String,
    /// JSON Schema of the installation's settings.
    pub settings: Option<Value>,
    pub permissions: BTreeSet<Permission>,
    pub bundle: Bundle,
    pub(crate) derived: Derivation,
    pub(crate) warnings: Vec<Problem>,
}

/// Where things stand that the evaluation only knows by name.
#[derive(Debug, Clone)]
pub(crate) struct Derivation {
    pub entry: Place,
    pub tools: BTreeMap<String, Place>,
    pub manifest: Option<Place>,
    /// The first use of `host.fetch`.
    pub fetch: Option<Place>,
}

/// Reads plugin.json, transpiles what the entry reaches, resolves imports and derives permissions. All that is wrong is
/// reported at once.
pub fn build(source: &Source) -> Result<Draft, Problems> {
    // Parsing recurses with the nesting of the text; see `syntax::nesting`.
    let built = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("plugin-build".into()).stack_size(STACK_BYTES);
        thread.spawn_scoped(scope, || build_here(source)).map(|thread| thread.join())
    });
    match built {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(Problems::one(Problem::error(
            "build-failed",
            "the plugin's source broke the compiler",
            "please report it with the source; meanwhile write unusual syntax more plainly",
        ))),
        Err(error) => Err(Problems::one(Problem::error(
            "build-failed",
            format!("no thread could be started to read the plugin: {error}"),
            "try again when the machine has memory to spare",
        ))),
    }
}

fn build_here(source: &Source) -> Result<Draft, Problems> {
    let files = source.files();
    let mut problems = Vec::new();
    let (manifest, entry) = manifest::read(files, &mut problems);
    let Some(entry) = entry else {
        return Err(Problems::settle(problems).expect_err("without an entry something is wrong"));
    };
    let mut bundle = Bundle { entry: entry.clone(), entry_is_script: false, files: BTreeMap::new() };
    let mut imports = Imports::new();
    let goals = collect(files, &mut bundle, &mut imports, &mut problems);

    let allocator = Allocator::default();
    let trees = parse_again(files, &bundle, &goals, &allocator);
    let derived = derive(&trees, &imports);
    let Derived { methods, tools, manifest: manifest_place, problems: more } = derived;
    problems.extend(more);
    let warnings = Problems::settle(problems)?;
    let Some(manifest) = manifest else {
        // Each part that is missing from the manifest was a problem.
        return Err(Problems::one(Problem::error("manifest-missing", "plugin.json is incomplete", "complete it")));
    };

    let permissions: BTreeSet<Permission> = methods.keys().filter_map(|method| method.row().permission).collect();
    let fetch = methods.get(&toolfleet_protocol::host::HostMethod::Fetch).cloned();
    let digest = digest::of(&manifest, &permissions, &bundle);
    Ok(Draft {
        digest,
        slug: manifest.slug,
        version: manifest.version,
        name: manifest.name,
        description: manifest.description,
        settings: manifest.settings,
        permissions,
        derived: Derivation {
            entry: Place { file: entry, line: 1, column: 1 },
            tools,
            manifest: manifest_place,
            fetch,
        },
        bundle,
        warnings,
    })
}

/// Transpiles every file that the entry reaches. Cycles are fine: each file is taken once, and the engine links them as
/// the language says.
fn collect(
    files: &BTreeMap<String, Vec<u8>>,
    bundle: &mut Bundle,
    imports: &mut Imports,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, Goal> {
    let mut goals = BTreeMap::new();
    let mut reached = BTreeSet::from([bundle.entry.clone()]);
    let mut queue = VecDeque::from([bundle.entry.clone()]);
    while let Some(path) = queue.pop_front() {
        let (Some(content), Some(kind)) = (files.get(&path), FileKind::of(&path)) else { continue };
        let text = match syntax::decode(&path, content) {
            Ok(text) => text,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        let is_entry = path == bundle.entry;
        let goal = if is_entry { syntax::goal_of_entry(&path, text, kind) } else { Goal::Module };
        let transpiled = match syntax::transpile(&path, text, kind, goal) {
            Ok(transpiled) => transpiled,
            Err(more) => {
                problems.extend(more);
                continue;
            }
        };
        let mut resolved = BTreeMap::new();
        for import in transpiled.imports {
            match resolve(files, &path, &import.specifier, &import.place) {
                Ok(target) => {
                    if reached.insert(target.clone()) {
                        queue.push_back(target.clone());
                    }
                    resolved.insert(import.specifier, target);
                }
                Err(problem) => problems.push(problem),
            }
        }
        if is_entry {
            bundle.entry_is_script = transpiled.is_script;
        }
        imports.insert(path.clone(), resolved.clone());
        goals.insert(path.clone(), goal);
        let file = BundledFile { code: transpiled.code, source_map: transpiled.source_map, imports: resolved };
        bundle.files.insert(path, file);
    }
    goals
}

/// The trees of all files at once, as their authors wrote them: aliases are followed from file to file.
fn parse_again<'a>(
    files: &BTreeMap<String, Vec<u8>>,
    bundle: &Bundle,
    goals: &BTreeMap<String, Goal>,
    allocator: &'a Allocator,
) -> Vec<Tree<'a>> {
    let mut trees = Vec::new();
    for path in bundle.files.keys() {
        let (Some(content), Some(kind), Some(goal)) = (files.get(path), FileKind::of(path), goals.get(path)) else {
            continue;
        };
        if let Ok(text) = syntax::decode(path, content)
            && let Ok(tree) = syntax::parse(allocator, path, text, kind, *goal)
        {
            trees.push(tree);
        }
    }
    trees
}
