//! Processes of the fleet.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The binary under test, next to the tests' own.
///
/// # Panics
/// If it hasn't been built.
pub fn binary() -> PathBuf {
    let here = std::env::current_exe().expect("the test knows its own path");
    let path = here.ancestors().nth(2).expect("tests run from target/PROFILE/deps").join("toolfleet");
    assert!(path.exists(), "{} is not there: build it first, or run tests/run", path.display());
    path
}

/// Runs the binary to its end.
pub fn run(args: &[&str]) -> Output {
    Command::new(binary()).args(args).stdin(Stdio::null()).output().expect("the binary starts")
}

/// A process that is killed when the test lets go of it.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, its output going to `log`.
    pub fn start(mut command: Command, log: &Path) -> Self {
        let file = File::create(log).expect("the log can be written");
        let copy = file.try_clone().expect("a file can be opened twice");
        let child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(copy)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        Self { child, log: log.to_path_buf() }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// All that it has printed.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM; the exit code, or `None` if it has not ended by `bound`.
    pub fn terminate(&mut self, bound: Duration) -> Option<i32> {
        let asked = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status();
        assert!(asked.is_ok_and(|status| status.success()), "the process is there to be asked to end");
        let end = Instant::now() + bound;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return Some(status.code().unwrap_or(-1));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            eprintln!("--- the end of {}:\n{}", self.log.display(), tail.join("\n"));
        }
    }
}
