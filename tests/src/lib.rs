//! What the black-box tests share: a real fleet in processes of its own, and a client that speaks its HTTP API.
//!
//! Nothing here links the scheduler or the worker; the tests see what a user sees.
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "what a failed test shows")]

mod api;
mod fleet;
mod process;
mod upstream;

pub use api::{Answer, Api};
pub use fleet::{Fleet, FleetOptions, Pair};
pub use process::{Process, binary, run};
pub use upstream::Upstream;

use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The repository's root.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the repository").to_path_buf()
}

/// How often a state that is waited for is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until `look` gives something.
///
/// # Panics
/// If it doesn't within `bound`; says what was waited for and what was seen last.
pub async fn eventually<T, F, Fut>(what: &str, bound: Duration, mut look: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, String>>,
{
    let end = Instant::now() + bound;
    loop {
        match look().await {
            Ok(seen) => return seen,
            Err(seen) if Instant::now() > end => panic!("waited {bound:?} for {what}, and last saw: {seen}"),
            Err(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}
