//! Taking all there is, and not going away.

use crate::{Broken, told};
use std::time::{Duration, Instant};
use toolfleet_hostile::{Watch, processes_below};
use toolfleet_protocol::Limits;
use toolfleet_worker::isolation::LayerState;

const FILTER: &str = "system call filter";

#[tokio::test]
async fn processes_and_threads_end_at_their_limit() {
    let broken = Broken::without(&[]).await;
    let told = broken.found("fork bomb", "").await;
    assert!(told.contains("no plugin may make, clone,"), "{told}");
    broken.end().await;
    // Behind the filter the cgroup counts.
    let broken = Broken::without(&[FILTER]).await;
    if has_cgroup(&broken).await {
        assert_eq!(broken.found("fork bomb", "").await, "0 and EAGAIN");
    }
    broken.is_well().await;
    broken.end().await;
}

#[tokio::test]
async fn memory_ends_at_the_cap() {
    let broken = Broken::without(&[]).await;
    broken.is_well().await;
    let watch = Watch::start();
    let end = broken.attack_within("touch memory", "400", Limits { wall_ms: 10_000, ..Limits::BASE }).await;
    let told = told(&end);
    // Where there is no cgroup the address space ends, and the process gives up.
    let expected = if has_cgroup(&broken).await { "Memory: " } else { "Crashed: " };
    assert!(told.starts_with(expected), "{told}");
    assert_eq!(broken.found("touch memory", "20").await, "touched 20");
    broken.is_well().await;
    watch.settle();
    broken.end().await;
}

#[tokio::test]
async fn a_stack_without_end_ends_the_call() {
    let broken = Broken::without(&[]).await;
    let told = broken.found("huge stack", "").await;
    assert!(told.starts_with("Crashed: ") && told.contains("SIGSEGV"), "{told}");
    broken.is_well().await;
    broken.end().await;
}

#[tokio::test]
async fn what_crashes_is_told() {
    let broken = Broken::without(&[]).await;
    let abort = broken.found("abort", "").await;
    assert!(abort.starts_with("Crashed: ") && abort.contains("gave up"), "{abort}");
    let fault = broken.found("segfault", "").await;
    assert!(fault.starts_with("Crashed: ") && fault.contains("SIGSEGV"), "{fault}");
    broken.is_well().await;
    broken.end().await;
}

#[tokio::test]
async fn nothing_outlives_its_limit() {
    let broken = Broken::without(&[FILTER]).await;
    broken.is_well().await;
    let watch = Watch::start();
    for (attack, expected) in
        [("spin", "Timeout: "), ("stop itself", "Timeout: "), ("run on", "Crashed: "), ("stop parent", "stopped it")]
    {
        let started = Instant::now();
        let told = broken.found(attack, "").await;
        assert!(told.starts_with(expected), "{attack}: {told}");
        assert!(started.elapsed() < Duration::from_secs(5), "{attack} took {:?}", started.elapsed());
        broken.is_well().await;
    }
    watch.settle();
    broken.end().await;
}

#[tokio::test]
async fn a_child_left_behind_is_ended() {
    // Without the cgroup's count of processes there is one to leave.
    let broken = Broken::without(&[FILTER, "resource limits"]).await;
    broken.is_well().await;
    let told = broken.found("outlive", "").await;
    assert_eq!(told, "left a child");
    broken.is_well().await;
    let end = Instant::now() + Duration::from_secs(5);
    // The spare that waits for the next call is no child of the last.
    while processes_below("tf-call").len() > 1 {
        assert!(Instant::now() < end, "{:?} are left", processes_below("tf-call"));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    broken.end().await;
}

async fn has_cgroup(broken: &Broken) -> bool {
    let layers = broken.sandbox.layers().await;
    layers.iter().any(|layer| layer.name == "memory cgroup" && layer.state == LayerState::InForce)
}
