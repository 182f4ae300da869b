//! How a command ends, and how an error is told: the one place where causes are printed.

use std::process::ExitCode;

/// Done as asked.
pub const DONE: u8 = 0;
/// The work failed: a call, a check.
pub const FAILED: u8 = 1;
/// The command was wrong: a flag, an input, a folder, a configuration.
pub const WRONG: u8 = 2;
/// Something needed is not there: a broker, a store, a scheduler.
pub const UNREACHABLE: u8 = 3;

/// An error of which the exit code is known.
#[derive(Debug)]
pub struct Coded {
    pub code: u8,
    pub error: anyhow::Error,
}

impl std::fmt::Display for Coded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

impl std::error::Error for Coded {}

/// The command was wrong.
pub fn wrong(error: impl Into<anyhow::Error>) -> anyhow::Error {
    Coded { code: WRONG, error: error.into() }.into()
}

/// Something needed can't be reached.
pub fn unreachable(error: impl Into<anyhow::Error>) -> anyhow::Error {
    Coded { code: UNREACHABLE, error: error.into() }.into()
}

/// Prints an error with its causes.
pub fn tell(error: &anyhow::Error) -> ExitCode {
    let code = error.downcast_ref::<Coded>().map_or(FAILED, |coded| coded.code);
    eprintln!("toolfleet: {error:#}");
    ExitCode::from(code)
}
