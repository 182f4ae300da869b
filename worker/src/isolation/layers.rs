//! Which walls stand between a plugin and the machine, and which could not be put up here.

use super::cgroup::Groups;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::sync::Arc;

/// Is a layer there?
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum LayerState {
    InForce,
    /// Something weaker stands in for it.
    Degraded {
        why: String,
        costs: String,
    },
    Missing {
        why: String,
        costs: String,
    },
}

/// One layer.
#[derive(Debug, Clone, Serialize)]
pub struct Layer {
    pub name: &'static str,
    /// Which kind of it is here, where there is more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    #[serde(flatten)]
    pub state: LayerState,
}

/// The name of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerName(&'static str);

impl TryFrom<String> for LayerName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let all = || ROOT_LAYERS.into_iter().chain(TEMPLATE_LAYERS).chain(CGROUP_LAYERS);
        let known = all().find(|name| *name == text);
        known.map(Self).ok_or_else(|| {
            let all: Vec<&str> = all().collect();
            format!("there is no isolation layer {text:?}; there are: {}", all.join(", "))
        })
    }
}

impl<'de> Deserialize<'de> for LayerName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl fmt::Display for LayerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Layer {
    /// Is it this one, and in force?
    pub fn meets(&self, name: LayerName) -> bool {
        self.name == name.0 && self.state == LayerState::InForce
    }
}

/// What a plugin could do if the engine were broken and this layer were not there.
fn costs(name: &str) -> &'static str {
    match name {
        UID => "plugins run as the worker's own user: start it as root, or as a user that can do nothing else",
        "user namespace" => "the other namespaces may need root",
        "mount namespace" | "empty root" => "a broken engine could see the machine's files",
        "net namespace" => "a broken engine could reach the network past the worker's egress rules",
        "ipc namespace" => "a broken engine could reach shared memory of the same user",
        "uts namespace" => "a broken engine could read the machine's name",
        "cgroup namespace" => "a broken engine could read its place among the machine's cgroups",
        "no new privileges" => "a broken engine could run a program with more rights than its own, if it found one",
        "landlock" => "a broken engine that found its way to a file or a port would not be stopped there",
        "system call filter" => "a broken engine has the kernel's whole surface to attack, without rights",
        "pid namespace" => {
            "a broken engine could name processes of the same user, and a template's end does not end its calls"
        }
        _ => "",
    }
}

const UID: &str = "uid";

/// What the root takes away from itself, and all that it forks inherits.
const ROOT_LAYERS: [&str; 12] = [
    UID,
    "user namespace",
    "mount namespace",
    "pid namespace",
    "net namespace",
    "ipc namespace",
    "uts namespace",
    "cgroup namespace",
    "empty root",
    "no new privileges",
    "landlock",
    "system call filter",
];
/// A template that can't have one of these doesn't start.
const TEMPLATE_LAYERS: [&str; 3] = ["no capabilities", "resource limits", "parent-death signal"];
const MEMORY: &str = "memory cgroup";
const CPU: &str = "cpu cgroup";
const CGROUP_LAYERS: [&str; 2] = [MEMORY, CPU];

/// All layers, from what the root said is missing and what cgroups there are. That of the cpu only where its use is to
/// be limited.
pub fn layers(missing: &str, groups: &Result<Arc<Groups>, String>, limit_cpu: bool) -> Vec<Layer> {
    let reason = |name: &str| missing.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let root = ROOT_LAYERS.into_iter().map(|name| Layer {
        name,
        kind: None,
        state: match reason(name) {
            None => LayerState::InForce,
            Some(why) => LayerState::Missing { why: why.to_owned(), costs: costs(name).to_owned() },
        },
    });
    let templates = TEMPLATE_LAYERS.into_iter().map(|name| Layer { name, kind: None, state: LayerState::InForce });
    let memory = match groups {
        Ok(_) => LayerState::InForce,
        Err(why) => LayerState::Degraded {
            why: why.clone(),
            costs: "a call's memory is capped by its address space and the engine's own limit, not by the kernel's \
                    count, and its peak is not known"
                .into(),
        },
    };
    let kind = groups.as_ref().ok().map(|groups| groups.version());
    let mut layers: Vec<Layer> = root.chain(templates).chain([Layer { name: MEMORY, kind, state: memory }]).collect();
    if limit_cpu {
        let without = groups.as_ref().map_or_else(|why| Some(why.as_str()), |groups| groups.without_cpu());
        let state = without.map_or(LayerState::InForce, |why| LayerState::Missing {
            why: why.to_owned(),
            costs: "isolation.cpu_percent has no effect: a plugin's calls use what cpu there is".into(),
        });
        layers.push(Layer { name: CPU, kind, state });
    }
    layers
}
