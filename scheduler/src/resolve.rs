//! From the names in a request to a job: which account, which release, may the agent call it?

use crate::app::App;
use crate::releases::ReleaseFacts;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::sync::Arc;
use toolfleet_protocol::{
    AccountId, AgentId, CallError, CallId, Class, FailureKind, Initiator, Job, Limits, PluginSlug, ReleaseDigest,
    SessionId, ToolName, WIRE_VERSION, Work,
};
use toolfleet_store::StoreError;
use toolfleet_store::records::{Agent, Installation};

/// A call whose form was checked.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) call_id: CallId,
    pub(crate) session: Option<SessionId>,
    pub(crate) tool: String,
    pub(crate) input: Box<RawValue>,
    pub(crate) initiator: Initiator,
    pub(crate) class: Class,
    pub(crate) submitted_at_ms: u64,
    pub(crate) deadline_at_ms: u64,
}

/// Looks names up; each name once in its life, which is one request.
pub(crate) struct Resolver<'a> {
    app: &'a App,
    agents: HashMap<AgentId, Option<Arc<Agent>>>,
    plugins: HashMap<(AccountId, PluginSlug), Option<Installed>>,
}

type Installed = (Arc<Installation>, Arc<ReleaseFacts>);

/// Which tool is meant, or the reason why there is none.
struct Target {
    plugin: PluginSlug,
    release: ReleaseDigest,
    tool: ToolName,
    verdict: Option<CallError>,
}

impl<'a> Resolver<'a> {
    pub(crate) fn new(app: &'a App) -> Self {
        Self { app, agents: HashMap::new(), plugins: HashMap::new() }
    }

    pub(crate) async fn agent(&mut self, id: &AgentId) -> Result<Option<Arc<Agent>>, StoreError> {
        if let Some(known) = self.agents.get(id) {
            return Ok(known.clone());
        }
        let agent = self.app.records.agent(id).await?.map(Arc::new);
        self.agents.insert(id.clone(), agent.clone());
        Ok(agent)
    }

    /// The job, and what it ends with at once if it can't be run.
    pub(crate) async fn job(&mut self, agent: &Agent, asked: Asked) -> Result<(Job, Option<CallError>), StoreError> {
        let target = self.target(agent, &asked.tool, asked.input.get().len() as u64).await?;
        let job = Job {
            v: WIRE_VERSION,
            call_id: asked.call_id,
            account: agent.account.clone(),
            work: Work::Call {
                agent: agent.id.clone(),
                session: asked.session.unwrap_or_else(|| default_session(&agent.id)),
                turn: None,
                plugin: target.plugin,
                release: target.release,
                tool: target.tool,
                // One that is refused for its size isn't kept either.
                input: if target.verdict.is_some() { RawValue::NULL.to_owned() } else { asked.input },
                initiator: asked.initiator,
            },
            class: asked.class,
            submitted_at_ms: asked.submitted_at_ms,
            deadline_at_ms: asked.deadline_at_ms,
            reply_to: self.app.config.id.clone(),
        };
        Ok((job, target.verdict))
    }

    async fn target(&mut self, agent: &Agent, name: &str, input_bytes: u64) -> Result<Target, StoreError> {
        let Some((plugin, tool)) = ToolName::split_qualified(name) else {
            let message = format!(
                "{name:?} is no tool's name: it must be a plugin's slug, \"__\" and the tool's name{}",
                self.instead(agent, name).await?
            );
            let (plugin, tool) = nameless();
            return Ok(Target { plugin, release: no_release(), tool, verdict: not_found(message) });
        };
        let Some((installation, release)) = self.installed(&agent.account, &plugin).await? else {
            let message =
                format!("plugin {plugin} is not installed for this account{}", self.instead(agent, name).await?);
            return Ok(Target { plugin, release: no_release(), tool, verdict: not_found(message) });
        };
        let verdict = if release.tool(&tool).is_none() {
            let message = format!(
                "plugin {plugin} {} has no tool {tool}{}",
                installation.version,
                self.instead(agent, name).await?
            );
            not_found(message)
        } else if !agent.access.allows(name) {
            let message = format!("agent {} may not call {name}: its account's owner can allow it", agent.id);
            Some(CallError::new(FailureKind::AccessDenied, message))
        } else {
            too_large(input_bytes, &release.limits)
        };
        Ok(Target { plugin, release: installation.release.clone(), tool, verdict })
    }

    async fn installed(&mut self, account: &AccountId, plugin: &PluginSlug) -> Result<Option<Installed>, StoreError> {
        let key = (account.clone(), plugin.clone());
        if let Some(known) = self.plugins.get(&key) {
            return Ok(known.clone());
        }
        let found = match self.app.records.installation(account, plugin).await? {
            Some(installation) => self
                .app
                .releases
                .get(&self.app.records, &installation.release)
                .await?
                .map(|release| (Arc::new(installation), release)),
            None => None,
        };
        self.plugins.insert(key, found.clone());
        Ok(found)
    }

    /// What the caller may have meant, of what the agent may call.
    async fn instead(&mut self, agent: &Agent, name: &str) -> Result<String, StoreError> {
        let mut names = Vec::new();
        for (installation, release) in installed_tools(self.app, &agent.account).await? {
            for tool in &release.tools {
                names.push(tool.name.qualified(&installation.plugin));
            }
        }
        names.retain(|name| agent.access.allows(name));
        if names.is_empty() {
            return Ok("; the agent has no tools: install a plugin for its account".to_owned());
        }
        names.sort_by_key(|candidate| distance(candidate, name));
        let nearest = names.iter().take(NAMES_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = names.len().saturating_sub(NAMES_SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Ok(format!("; the nearest of the agent's tools: {nearest}{more}"))
    }
}

/// Names shown in a message.
const NAMES_SHOWN: usize = 5;

/// All that is installed for an account, with its tools.
pub(crate) async fn installed_tools(
    app: &App,
    account: &AccountId,
) -> Result<Vec<(Installation, Arc<ReleaseFacts>)>, StoreError> {
    let mut all = Vec::new();
    for installation in app.records.installations(account).await? {
        if let Some(release) = app.releases.get(&app.records, &installation.release).await? {
            all.push((installation, release));
        }
    }
    Ok(all)
}

fn not_found(message: String) -> Option<CallError> {
    Some(CallError::new(FailureKind::ToolNotFound, message))
}

fn too_large(input_bytes: u64, limits: &Limits) -> Option<CallError> {
    let max = limits.input_bytes_max;
    (input_bytes > max).then(|| {
        let message = format!("the input has {input_bytes} bytes, more than the {max} that a tool takes: put large data into the workspace");
        CallError::new(FailureKind::TooLarge, message)
    })
}

/// The record of a call without a release carries this one, which no content has.
pub(crate) fn no_release() -> ReleaseDigest {
    ReleaseDigest::parse("0".repeat(64)).expect("64 hex digits")
}

/// The record of a call whose tool's name isn't one carries these names. It never becomes a message.
fn nameless() -> (PluginSlug, ToolName) {
    (PluginSlug::parse("none").expect("a slug"), ToolName::parse("none").expect("a tool's name"))
}

/// The conversation of calls that don't name one.
pub(crate) fn default_session(agent: &AgentId) -> SessionId {
    let full = format!("agent.{agent}.default");
    // An agent's id can be as long as a session's may be; cut, it may be shared by two agents of one account only
    // if they differ after 80 characters.
    let text = if full.len() <= 96 { full } else { format!("agent.{}", &agent.as_str()[..80]) };
    SessionId::parse(text).expect("made of an id's characters")
}

/// Levenshtein's distance, of names that are at most a few hundred bytes long.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_levenshteins() {
        for (a, b, expected) in [("", "abc", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2), ("same", "same", 0)] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn every_agent_has_a_default_session() {
        assert_eq!(default_session(&AgentId::parse("helper").unwrap()).as_str(), "agent.helper.default");
        let long = AgentId::parse("a".repeat(96)).unwrap();
        assert!(default_session(&long).as_str().len() <= 96);
    }
}
