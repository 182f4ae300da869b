//! A sandbox root whose calls and templates are taken over by native code.

fn main() {
    toolfleet_sandbox::root::main(toolfleet_sandbox::Payload::default())
}
