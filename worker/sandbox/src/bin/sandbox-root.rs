//! The sandbox root alone, for the tests and benchmarks of the crates below the one binary, which don't have it.

fn main() {
    toolfleet_sandbox::root::main(toolfleet_sandbox::Payload::default())
}
