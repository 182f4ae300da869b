//! `toolfleet`: every role of the fleet, and every command that a person types.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "results and errors of commands are printed here")]

mod args;
mod client;
mod commands;
mod config;
mod exit;
mod output;
mod parts;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else is in this process: what forks plugins must never have held a secret, nor a thread.
    if std::env::args_os().nth(1).is_some_and(|first| first == "sandbox-root") {
        toolfleet_sandbox::root::main(toolfleet_sandbox::Payload::default())
    }
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are answers; everything else is a command that was wrong.
            let code = if error.use_stderr() { exit::WRONG } else { exit::DONE };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("toolfleet: the runtime can't be started: {error}");
            return ExitCode::from(exit::UNREACHABLE);
        }
    };
    match runtime.block_on(commands::run(args)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => exit::tell(&error),
    }
}
