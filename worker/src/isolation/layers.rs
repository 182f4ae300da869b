//! Which walls stand between a plugin and the machine, and which could not be put up here.

use serde::Serialize;

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
    #[serde(flatten)]
    pub state: LayerState,
}

/// What a plugin could do if the engine were broken and this layer were not there.
fn costs(name: &str) -> &'static str {
    match name {
        "uid" => "plugins run as the worker's own user",
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

const ROOT_LAYERS: [&str; 12] = [
    "uid",
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

/// All layers, from what the root said is missing and whether there are cgroups.
pub fn layers(missing: &str, cgroup: &Result<&'static str, String>) -> Vec<Layer> {
    let reason = |name: &str| missing.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let mut layers: Vec<Layer> = ROOT_LAYERS
        .iter()
        .map(|name| Layer {
            name,
            state: match reason(name) {
                None => LayerState::InForce,
                Some(why) => LayerState::Missing { why: why.to_owned(), costs: costs(name).to_owned() },
            },
        })
        .collect();
    for name in ["no capabilities", "resource limits", "parent-death signal"] {
        // A template that can't have one of these doesn't start.
        layers.push(Layer { name, state: LayerState::InForce });
    }
    layers.push(Layer {
        name: "memory cgroup",
        state: match cgroup {
            Ok(_) => LayerState::InForce,
            Err(why) => LayerState::Degraded {
                why: why.clone(),
                costs:
                    "a call's memory is capped by its address space and the engine's own limit, not by the kernel's \
                        count, and its peak is not known"
                        .into(),
            },
        },
    });
    layers
}
