//! What a plugin may do, as its installer reads it.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! permissions {
    ($($variant:ident = $id:literal, $words:literal;)*) => {
        /// One thing a plugin may do. Which ones it has is derived from its source, never asked for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Permission {
            $(#[doc = $words] #[serde(rename = $id)] $variant,)*
        }

        impl Permission {
            /// Every permission there is.
            pub const ALL: &'static [Permission] = &[$(Permission::$variant,)*];

            /// Its identifier, as releases and errors carry it.
            pub fn id(self) -> &'static str {
                match self { $(Permission::$variant => $id,)* }
            }

            /// What it lets a plugin do, for the person who installs it.
            pub fn words(self) -> &'static str {
                match self { $(Permission::$variant => $words,)* }
            }
        }
    };
}

permissions! {
    SessionRead = "host:session:read", "can read the conversation it is called in";
    SessionPost = "host:session:post", "can post messages into the conversation it is called in";
    SessionTodos = "host:session:todos", "can read and change the conversation's to-do list";
    SessionTimers = "host:session:timers", "can schedule timers that start new turns";
    SessionSpawn = "host:session:spawn", "can start subagents";
    SessionPeers = "host:session:peers", "can send messages to the account's other agents";
    SessionLlm = "host:session:llm", "can call a model with the conversation as context";
    WorkspaceRead = "host:workspace:read", "can read the agent's files";
    WorkspaceWrite = "host:workspace:write", "can write the agent's files";
    AgentsRead = "agentApi:agents.read", "can see the agents it manages";
    AgentsWrite = "agentApi:agents.write", "can create and change the agents it manages";
    CronJobsRead = "agentApi:cronJobs.read", "can see its schedules";
    CronJobsWrite = "agentApi:cronJobs.write", "can create and change its schedules";
    ModelsRead = "agentApi:models.read", "can see which models are available";
    PluginsRead = "agentApi:plugins.read", "can see the account's own plugins";
    PluginsWrite = "agentApi:plugins.write", "can build and, after you approve, release the account's own plugins";
    OauthAccounts = "host:oauth:accounts", "can see and use the connected sign-ins";
    License = "host:license", "can read its licence";
    Llm = "host:llm", "can call a model";
    Decide = "host:decide", "can let a model choose between options";
    MediaUpload = "host:media:upload", "can upload media";
    MediaTranscode = "host:media:transcode", "can convert audio";
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}
