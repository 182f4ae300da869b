//! What is printed: results on stdout, everything else on stderr.

use std::io::{IsTerminal, Write};
use toolfleet_plugin::{Problem, Severity};
use toolfleet_protocol::{CallResult, Outcome};

/// Prints one JSON document on stdout.
pub fn json(value: &impl serde::Serialize) {
    let text = serde_json::to_string_pretty(value).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"));
    line(&text);
}

/// Prints a line on stdout. Whoever closed it reads no more.
pub fn line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Colours for a terminal, and none elsewhere.
pub struct Paint {
    on: bool,
}

impl Paint {
    pub fn stdout() -> Self {
        Self { on: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() }
    }

    fn with(&self, code: &str, text: &str) -> String {
        if self.on { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    pub fn bold(&self, text: &str) -> String {
        self.with("1", text)
    }

    pub fn dim(&self, text: &str) -> String {
        self.with("2", text)
    }

    pub fn green(&self, text: &str) -> String {
        self.with("32", text)
    }

    pub fn yellow(&self, text: &str) -> String {
        self.with("33", text)
    }

    pub fn red(&self, text: &str) -> String {
        self.with("31", text)
    }
}

/// Prints problems, each with its place, its code and its remedy.
pub fn problems(problems: &[Problem]) {
    let paint = Paint::stdout();
    for problem in problems {
        let place = match (&problem.file, problem.line, problem.column) {
            (Some(file), Some(line), Some(column)) => format!("{file}:{line}:{column}: "),
            (Some(file), Some(line), None) => format!("{file}:{line}: "),
            (Some(file), ..) => format!("{file}: "),
            (None, ..) => String::new(),
        };
        let word = match problem.severity {
            Severity::Error => paint.red("error"),
            Severity::Warning => paint.yellow("warning"),
        };
        line(&format!("{}{word} [{}] {}", paint.bold(&place), problem.code, problem.message));
        line(&format!("  {} {}", paint.dim("→"), problem.remedy));
    }
}

/// Prints a call's result for a person.
pub fn result(result: &CallResult) {
    let paint = Paint::stdout();
    match &result.outcome {
        Outcome::Ok { value } => line(value.get()),
        Outcome::Failed { error } => {
            let name = error.name.as_deref().map(|name| format!("{name}: ")).unwrap_or_default();
            line(&format!("{} {name}{}", paint.red(error.kind.id()), error.message));
            if let Some(stack) = &error.stack {
                line(&paint.dim(stack.trim_end()));
            }
        }
    }
    let usage = &result.usage;
    eprintln!(
        "{} ms, {} ms of processor time, {} kB at most, {} host calls",
        usage.wall_ms,
        usage.cpu_ms,
        usage.peak_memory_bytes / 1024,
        usage.host_calls
    );
}
