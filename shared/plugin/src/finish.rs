//! Draft and inspection to release: the rules over what the evaluation registered.

mod egress;
mod tools;

use crate::build::Draft;
use crate::problem::{Place, Problem, Problems};
use crate::stack::{map_stack, places};
use toolfleet_protocol::{CallError, FailureKind, Inspection, Limits, Release};

/// A plugin that may be published.
#[derive(Debug, Clone)]
pub struct Checked {
    pub release: Release,
    /// What the author should know, in the order of their places.
    pub warnings: Vec<Problem>,
}

/// Applies the rules to what the evaluation registered. All that is wrong is reported at once.
pub fn finish(draft: Draft, inspection: Inspection) -> Result<Checked, Problems> {
    let mut problems = draft.warnings.clone();
    let (tools_shape, tools, manifest) = match inspection {
        Inspection::Loaded { tools_shape, tools, manifest } => (tools_shape, tools, manifest),
        Inspection::Failed { error } => {
            problems.push(load_failed(&draft, &error));
            return Err(Problems::settle(problems).expect_err("it failed to load"));
        }
    };
    let tools = tools::check(&draft, &tools_shape, tools, &mut problems);
    let egress = egress::check(&draft, &manifest, &mut problems);
    let warnings = Problems::settle(problems)?;
    let release = Release {
        digest: draft.digest,
        slug: draft.slug,
        version: draft.version,
        name: draft.name,
        description: draft.description,
        tools,
        limits: Limits::for_permissions(&draft.permissions),
        permissions: draft.permissions,
        egress,
        settings: draft.settings,
        bundle: std::sync::Arc::new(draft.bundle),
    };
    Ok(Checked { release, warnings })
}

/// The evaluation threw, ran out of time or memory, or died.
fn load_failed(draft: &Draft, error: &CallError) -> Problem {
    let stack = error.stack.as_deref().unwrap_or_default();
    let mapped = map_stack(&draft.bundle, stack);
    let place = places(&draft.bundle, &mapped).into_iter().next().unwrap_or_else(|| draft.derived.entry.clone());
    let what = match &error.name {
        Some(name) => format!("{name}: {}", error.message),
        None => error.message.clone(),
    };
    let what: String = what.chars().filter(|c| !c.is_control() || *c == '\n').take(500).collect();
    let remedy = match error.kind {
        FailureKind::Timeout | FailureKind::Stalled => {
            "do no work and await nothing that takes long at the top level; do it in a handler"
        }
        FailureKind::Memory => "keep large data out of the top level; fetch or build it in a handler",
        FailureKind::Thrown if what.contains("host") => {
            "the host API answers only while a tool is called: use it inside a handler"
        }
        _ => "see that the plugin loads: what stands at the top level runs once, without host API, before any call",
    };
    Problem::error("load-failed", format!("the plugin did not load: {what}"), remedy).at(&place)
}

impl Draft {
    /// Where a tool is registered; where that can't be told, the entry.
    fn tool_place(&self, name: &str) -> Place {
        self.derived.tools.get(name).cloned().unwrap_or_else(|| self.derived.entry.clone())
    }
}
