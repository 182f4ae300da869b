//! What a person types.

use clap::{Args as ClapArgs, Parser, Subcommand};
use clap_complete::Shell;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A worker fleet for the tool calls of AI agents.
#[derive(Debug, Parser)]
#[command(name = "toolfleet", version, max_term_width = 100)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the whole main job in one process, to its end, and show what came of it
    Demo {
        /// How many calls to run
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        calls: u32,
        /// Print one JSON document instead
        #[arg(long)]
        json: bool,
    },
    /// Run every role in one process, and publish these plugins again whenever they change
    Dev {
        /// Folders of plugins
        folders: Vec<PathBuf>,
        /// Where the API listens; 127.0.0.1:7300 unless said
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<SocketAddr>,
        /// Where queue and store are kept
        #[arg(long, value_name = "FOLDER", default_value = ".toolfleet")]
        data: PathBuf,
        #[command(flatten)]
        config: ConfigArg,
    },
    /// Run the scheduler: API, dispatch, results, ledger
    Scheduler {
        #[command(flatten)]
        config: ConfigArg,
    },
    /// Run a worker
    Worker {
        #[command(flatten)]
        config: ConfigArg,
    },
    /// Write, check, try and publish plugins
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Call a tool through a running fleet
    Call {
        /// The agent that calls
        agent: String,
        /// The tool's name as the agent sees it, for example weather__get_forecast
        tool: String,
        #[command(flatten)]
        input: InputArg,
        #[command(flatten)]
        api: ApiArg,
        /// Print the result object
        #[arg(long)]
        json: bool,
    },
    /// Tell which isolation layers are in force here, and whether the broker and the store answer
    Doctor {
        #[command(flatten)]
        config: ConfigArg,
        #[arg(long)]
        json: bool,
    },
    /// Measure on this machine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Print a completion script
    Completions { shell: Shell },
}

#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Start a plugin in a new folder
    Init { folder: PathBuf },
    /// Tell everything that keeps a plugin from being published
    Check {
        folder: PathBuf,
        /// Print the problems, or the release, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Run one tool, in the very sandbox and under the limits of production
    Run {
        folder: PathBuf,
        /// The tool's name in the plugin
        tool: String,
        #[command(flatten)]
        input: InputArg,
        #[command(flatten)]
        config: ConfigArg,
        /// Print the result object
        #[arg(long)]
        json: bool,
    },
    /// Publish a plugin to a running fleet
    Publish {
        folder: PathBuf,
        #[command(flatten)]
        api: ApiArg,
        /// Print what was published, or the problems, as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// A warm and a cold call in the sandbox against a bare fork
    Sandbox {
        /// Calls of each kind
        #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(20..=1_000_000))]
        runs: u32,
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, ClapArgs)]
pub struct ConfigArg {
    /// A TOML file; each key can also be set as TOOLFLEET_SECTION__KEY
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct InputArg {
    /// The tool's input as JSON; @FILE reads a file, - reads stdin
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub input: String,
}

#[derive(Debug, ClapArgs)]
pub struct ApiArg {
    /// The scheduler's address
    #[arg(long, env = "TOOLFLEET_URL", default_value = "http://127.0.0.1:7300")]
    pub url: String,
    /// A token of the scheduler's [api] section
    #[arg(long, env = "TOOLFLEET_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
}
