//! `toolfleet completions`

use crate::args::Args;
use crate::exit::DONE;
use clap::CommandFactory;
use clap_complete::{Shell, generate};

pub fn run(shell: Shell) -> u8 {
    generate(shell, &mut Args::command(), "toolfleet", &mut std::io::stdout());
    DONE
}
