//! A sandbox root whose templates and calls are taken over by native code. Started under the name
//! `without-A,B`, it leaves the layers A and B out (a `_` stands for a space).

fn main() {
    toolfleet_sandbox::root::main(toolfleet_hostile::native::payload())
}
