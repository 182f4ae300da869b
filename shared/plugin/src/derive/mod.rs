//! Which host methods a plugin can reach, and so which permissions it needs, from its syntax trees alone.
//!
//! A value that leads to the host API (`host`, a namespace of it, a method, `globalThis`) is followed from where it
//! appears through everything that can be seen to keep it: members, destructuring, aliases, defaults, optional
//! chains, casts, imports and exports, parameters of functions that are called by name, and their results. A method
//! counts as soon as it is named, called or not. A namespace that goes where it can't be followed (into an object, an
//! array, a call of something unknown) is a problem that names the place: guessing would either hide a
//! permission from the installer or ask for too many.
//!
//! This is for honest code. What leaves no trace in the syntax (`eval`, `globalThis[name]`) derives nothing, and the
//! worker refuses it when it runs.

mod constant;
mod exports;
mod flow;
mod value;

use crate::nearest::nearest;
use crate::problem::{Place, Problem};
use crate::syntax::Tree;
use std::collections::BTreeMap;
use toolfleet_protocol::host::{HostMethod, TABLE};

/// For each file, what its specifiers name.
pub(crate) type Imports = BTreeMap<String, BTreeMap<String, String>>;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Derived {
    /// Every host method named, and where first.
    pub methods: BTreeMap<HostMethod, Place>,
    /// Where each tool is registered.
    pub tools: BTreeMap<String, Place>,
    /// Where the manifest is set.
    pub manifest: Option<Place>,
    pub problems: Vec<Problem>,
}

/// Follows the host API through a plugin's files.
pub(crate) fn derive(trees: &[Tree<'_>], imports: &Imports) -> Derived {
    let mut flow = flow::Flow::new(trees, imports);
    flow.run();
    flow.derived
}

/// Is it the path of a namespace, such as `session`? The empty path is `host` itself.
fn is_namespace(path: &str) -> bool {
    path.is_empty() || TABLE.iter().any(|row| row.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

/// `host` and the path below it, as authors write it.
fn shown(path: &str) -> String {
    if path.is_empty() { "host".to_owned() } else { format!("host.{path}") }
}

/// What one can write below a namespace, as examples.
fn examples(path: &str) -> String {
    let below: Vec<String> = TABLE
        .iter()
        .filter(|row| path.is_empty() || row.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
        .take(3)
        .map(|row| format!("host.{}(…)", row.path))
        .collect();
    below.join(" or ")
}

fn unknown(path: &str, place: &Place) -> Problem {
    let path: String = path.chars().take(80).collect();
    let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
    // Everything that there is beside it: methods and namespaces.
    let depth = path.split('.').count();
    let siblings = TABLE.iter().filter_map(|row| {
        let end = row.path.match_indices('.').map(|(at, _)| at).chain([row.path.len()]).nth(depth - 1)?;
        let sibling = &row.path[..end];
        (sibling.rsplit_once('.').map_or("", |(parent, _)| parent) == parent).then_some(sibling)
    });
    let remedy = match nearest(&path, siblings).or_else(|| nearest(&path, TABLE.iter().map(|row| row.path))) {
        Some(near) => format!("did you mean host.{near}?"),
        None => format!("the SDK's types list the host API; there is for example {}", examples(parent)),
    };
    Problem::error("host-unknown", format!("there is no host.{path}"), remedy).at(place)
}

fn unseen(path: &str, place: &Place) -> Problem {
    Problem::error(
        "host-unseen",
        format!("{} goes where its use can't be seen, so its permissions can't be told", shown(path)),
        format!("name the method where it is used, or pass only that on: {}", examples(path)),
    )
    .at(place)
}

fn dynamic(path: &str, place: &Place) -> Problem {
    Problem::error(
        "host-dynamic",
        format!("which method of {} is meant can't be seen before it runs", shown(path)),
        format!("write the name out: {}", examples(path)),
    )
    .at(place)
}

fn not_callable(path: &str, place: &Place) -> Problem {
    Problem::error(
        "host-not-a-method",
        format!("{} is not a method", shown(path)),
        format!("call one of its methods: {}", examples(path)),
    )
    .at(place)
}

fn frozen(path: &str, place: &Place) -> Problem {
    Problem::warning(
        "host-frozen",
        format!("{} can't be changed: it is frozen", shown(path)),
        "keep what you add in a variable of your own",
    )
    .at(place)
}
