//! JavaScript in a handler that means no good: rows A1 to A31 of what a worker must survive.

mod calls;
mod host;
mod log;
mod reach;
mod tampering;

use toolfleet_hostile::{assault, attacks};

#[tokio::test]
async fn what_never_ends_is_ended_at_its_limit() {
    assault(attacks::TIME).await;
}

#[tokio::test]
async fn long_work_inside_the_engine_is_ended_at_its_limit() {
    assault(attacks::LONG_WORK).await;
}

#[tokio::test]
async fn more_than_the_memory_is_told_as_such() {
    assault(attacks::MEMORY).await;
}

#[tokio::test]
async fn what_is_too_deep_is_thrown_and_never_crashes() {
    assault(attacks::DEPTH).await;
}

#[tokio::test]
async fn odd_values_come_back_as_json_or_are_told() {
    assault(attacks::VALUES).await;
}

#[tokio::test]
async fn whatever_is_thrown_is_told_in_words() {
    assault(attacks::THROWN).await;
}
