//! What an attacker does who has broken the engine: native code in the place of a plugin.
//!
//! A call's attack is named by its input, a template's by the code of its plugin. What an attack that is not ended
//! finds out is given as the call's result, as text.

mod kernel;
mod look;
mod resources;
mod template;
mod wire;

use std::os::fd::OwnedFd;
use toolfleet_sandbox::wire::{Kind, Start, encode};
use toolfleet_sandbox::{Payload, socket};

/// The layers that are left out are named by the name that this program was started under.
pub fn payload() -> Payload {
    let name = std::env::args().next().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default().to_owned();
    let without: Vec<String> = name
        .strip_prefix("without-")
        .map(|layers| layers.split(',').map(|layer| layer.replace('_', " ")).collect())
        .unwrap_or_default();
    Payload { template: Some(template::attack), call: Some(attack), without: without.leak() }
}

/// What an attack is given: the rest of its input, and the call's socket.
struct Given<'a> {
    argument: &'a str,
    socket: &'a OwnedFd,
}

type Attack = fn(&Given<'_>) -> String;

const ATTACKS: &[(&str, Attack)] = &[
    ("system call", kernel::system_call),
    ("i386 call", kernel::i386_call),
    ("x32 call", kernel::x32_call),
    ("executable memory", kernel::executable_memory),
    ("open", look::open),
    ("connect", look::connect),
    ("node name", look::node_name),
    ("shared memory", look::shared_memory),
    ("signal", look::signal),
    ("capabilities", look::capabilities),
    ("privileges", look::privileges),
    ("parent death", look::parent_death),
    ("limits", look::limits),
    ("descriptors", look::descriptors),
    ("environment", look::environment),
    ("search memory", look::search_memory),
    ("fork bomb", resources::fork_bomb),
    ("touch memory", resources::touch_memory),
    ("huge stack", resources::huge_stack),
    ("many descriptors", resources::many_descriptors),
    ("lock memory", resources::lock_memory),
    ("spin", resources::spin),
    ("stop itself", resources::stop_itself),
    ("stop parent", resources::stop_parent),
    ("outlive", resources::outlive),
    ("run on", resources::run_on),
    ("abort", resources::abort),
    ("segfault", resources::segfault),
    ("garbage", wire::garbage),
    ("long frame", wire::long_frame),
    ("half a frame", wire::half_a_frame),
    ("tiny frames", wire::tiny_frames),
    ("forged ordinal", wire::forged_ordinal),
    ("two results", wire::two_results),
    ("result after silence", wire::result_after_silence),
    ("pass descriptors", wire::pass_descriptors),
    ("answer itself", wire::answer_itself),
    ("host calls", wire::host_calls),
    ("never read", wire::never_read),
    ("claim", wire::claim),
];

/// `{"attack":"NAME","argument":"…"}` as the input; any other input is the plugin's own.
fn attack(start: &Start<'_>, socket: &OwnedFd) {
    let Ok(input) = serde_json::from_str::<serde_json::Value>(start.input) else { return };
    let Some(name) = input["attack"].as_str() else { return };
    let argument = input["argument"].as_str().unwrap_or_default();
    let Some((_, attack)) = ATTACKS.iter().find(|(known, _)| *known == name) else {
        return give_result(socket, "no such attack");
    };
    let found = attack(&Given { argument, socket });
    give_result(socket, &found);
}

fn give_result(socket: &OwnedFd, found: &str) {
    let json = serde_json::Value::from(found).to_string();
    let _ = socket::write_all(socket, &encode(Kind::Value, &[json.as_bytes()]));
    // SAFETY: it doesn't return.
    unsafe { libc::_exit(0) }
}

fn last_error() -> String {
    name_of(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

fn name_of(errno: i32) -> String {
    match errno {
        libc::EPERM => "EPERM".into(),
        libc::ENOENT => "ENOENT".into(),
        libc::ESRCH => "ESRCH".into(),
        libc::EACCES => "EACCES".into(),
        libc::EAGAIN => "EAGAIN".into(),
        libc::EMFILE => "EMFILE".into(),
        libc::ENOMEM => "ENOMEM".into(),
        libc::ENETUNREACH => "ENETUNREACH".into(),
        libc::ECONNREFUSED => "ECONNREFUSED".into(),
        other => format!("errno {other}"),
    }
}
