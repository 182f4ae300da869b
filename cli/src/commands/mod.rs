//! One file for each command.

mod bench;
mod call;
mod completions;
mod demo;
mod dev;
mod doctor;
mod plugin;
mod roles;

use crate::args::{Args, BenchCommand, Command, PluginCommand};
use anyhow::Result;

/// Runs what was typed, and gives the exit code.
pub async fn run(args: Args) -> Result<u8> {
    match args.command {
        Command::Demo { calls, json } => demo::run(calls, json).await,
        Command::Dev { folders, listen, data, config } => dev::run(&folders, listen, &data, &config).await,
        Command::Scheduler { config } => roles::scheduler(&config).await,
        Command::Worker { config } => roles::worker(&config).await,
        Command::Plugin(PluginCommand::Init { folder }) => plugin::init(&folder),
        Command::Plugin(PluginCommand::Check { folder, json }) => plugin::check(&folder, json).await,
        Command::Plugin(PluginCommand::Run { folder, tool, input, config, json }) => {
            plugin::run(&folder, &tool, &input, &config, json).await
        }
        Command::Plugin(PluginCommand::Publish { folder, api, json }) => plugin::publish(&folder, &api, json).await,
        Command::Call { agent, tool, input, api, json } => call::run(&agent, &tool, &input, &api, json).await,
        Command::Doctor { config, json } => doctor::run(&config, json).await,
        Command::Bench(BenchCommand::Sandbox { runs, json }) => bench::sandbox(runs, json).await,
        Command::Completions { shell } => Ok(completions::run(shell)),
    }
}
