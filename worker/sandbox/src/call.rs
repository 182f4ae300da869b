//! One call: waits for its input, runs its tool, sends its result, and is gone.

use crate::engine::Engine;
use crate::payload::Payload;
use crate::wire::{self, Kind};
use crate::{process, socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;

/// The call said how it ended.
pub const EXIT_DONE: i32 = 0;
/// The worker closed the socket: nobody waits for the result.
pub const EXIT_ABANDONED: i32 = 10;
/// The worker's first frame was no start.
pub const EXIT_BAD_START: i32 = 11;
/// The kernel gave no random numbers.
pub const EXIT_NO_RANDOM: i32 = 12;

/// Has its call been given to it already?
fn is_asked(socket: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&now)) != Ok(0)
}

/// Runs in the forked process, to its end.
pub fn main(engine: &Engine, socket: OwnedFd, payload: Payload) -> ! {
    // The process ends with its call, so nothing here is ever given back.
    let socket: &'static OwnedFd = Box::leak(Box::new(socket));
    if !is_asked(socket) {
        engine.rehearse();
    }
    let Ok((Kind::Start, frame)) = socket::read_frame(socket, wire::PAYLOAD_BYTES_MAX) else {
        process::exit_now(EXIT_ABANDONED)
    };
    let Ok(start) = wire::decode_start(&frame) else { process::exit_now(EXIT_BAD_START) };
    if let Some(attack) = payload.call {
        attack(&start, socket);
    }
    let finished = engine.run(socket, &start);
    engine.send_result(&finished);
    // Not by returning: a fork must not run what its template would run at its own end, and the engine's teardown
    // costs more than the kernel's.
    process::exit_now(EXIT_DONE)
}
