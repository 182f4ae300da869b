//! A short run of each target: all that was ever found, and some thousand changes of it, the same each time.

use std::time::Duration;
use toolfleet_fuzz::{Corpus, TARGETS, fuzz};

const SEED: u64 = 1;
const TIME: Duration = Duration::from_secs(2);

#[test]
fn nothing_is_found_in_a_short_run() {
    for target in TARGETS {
        let corpus = Corpus::of(target).unwrap_or_else(|error| panic!("the corpus of {}: {error}", target.name));
        assert!(!corpus.inputs().is_empty(), "{} has no corpus", target.name);
        match fuzz(target, &corpus, SEED, TIME) {
            Ok(runs) => assert!(runs > 0, "{} never ran", target.name),
            Err(found) => {
                panic!("{}: {:.300}: {:.2000}", target.name, found.what, found.input.escape_ascii().to_string())
            }
        }
    }
}

/// Else a fuzzer of the form would only ever see what is refused at the door.
#[test]
fn the_jobs_of_the_corpus_are_jobs() {
    let target = toolfleet_fuzz::target("job").expect("there is one");
    let corpus = Corpus::of(&target).expect("it can be read");
    let jobs = corpus.inputs().iter().filter(|input| toolfleet_protocol::Job::decode(input).is_ok()).count();
    assert!(jobs >= 2, "{jobs} of {} inputs are jobs", corpus.inputs().len());
}
