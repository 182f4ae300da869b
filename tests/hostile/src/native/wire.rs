//! Speaking to the worker as no call does.

use super::Given;
use std::os::fd::AsFd;
use toolfleet_sandbox::socket::{send_packet, write_all};
use toolfleet_sandbox::wire::{Kind, encode, encode_host_call, encode_host_reply, encode_log};

fn say(given: &Given<'_>, bytes: &[u8]) {
    let _ = write_all(given.socket, bytes);
}

fn wait_for_the_end() -> String {
    loop {
        // SAFETY: the set is empty, no descriptor is read.
        unsafe { libc::poll(std::ptr::null_mut(), 0, -1) };
    }
}

pub fn garbage(given: &Given<'_>) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let noise: Vec<u8> = (0..1 << 16)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect();
    say(given, &noise);
    wait_for_the_end()
}

/// Four gigabytes are said to follow.
pub fn long_frame(given: &Given<'_>) -> String {
    say(given, &[0xff, 0xff, 0xff, 0xff, Kind::Value as u8]);
    wait_for_the_end()
}

pub fn half_a_frame(given: &Given<'_>) -> String {
    let frame = encode(Kind::Value, &[b"12345"]);
    say(given, &frame[..frame.len() - 3]);
    wait_for_the_end()
}

pub fn tiny_frames(given: &Given<'_>) -> String {
    let frames = encode_log(1, "", "").repeat(1000);
    for _ in 0..1000 {
        say(given, &frames);
    }
    wait_for_the_end()
}

pub fn forged_ordinal(given: &Given<'_>) -> String {
    say(given, &encode_host_call(7, 1, "[]"));
    wait_for_the_end()
}

pub fn two_results(given: &Given<'_>) -> String {
    say(given, &[encode(Kind::Value, &[b"1"]), encode(Kind::Value, &[b"2"])].concat());
    wait_for_the_end()
}

/// Nothing for as long as it may, and a result then.
pub fn result_after_silence(given: &Given<'_>) -> String {
    let wait_ms = given.argument.parse().unwrap_or(0);
    // SAFETY: the set is empty, no descriptor is read.
    unsafe { libc::poll(std::ptr::null_mut(), 0, wait_ms) };
    say(given, &encode(Kind::Value, &[b"\"late\""]));
    wait_for_the_end()
}

/// Sends copies of its own socket along, until no more are taken.
pub fn pass_descriptors(given: &Given<'_>) -> String {
    let frame = encode_log(1, "with a descriptor", "");
    for _ in 0..100 {
        let _ = send_packet(given.socket, &frame, &[given.socket.as_fd()]);
    }
    "sent them".into()
}

/// What only the worker says.
pub fn answer_itself(given: &Given<'_>) -> String {
    say(given, &encode_host_reply(0, true, "1"));
    wait_for_the_end()
}

/// A million, as fast as they can be written.
pub fn host_calls(given: &Given<'_>) -> String {
    let mut frames = Vec::new();
    for ordinal in 0..1_000_000 {
        frames.extend_from_slice(&encode_host_call(ordinal, 1, "[]"));
        if frames.len() > 1 << 16 {
            say(given, &frames);
            frames.clear();
        }
    }
    wait_for_the_end()
}

/// Asks and asks, and takes no answer.
pub fn never_read(given: &Given<'_>) -> String {
    // The number of `settings.get`, whose answers the test makes large.
    let method = given.argument.parse().unwrap_or(0);
    for ordinal in 0..200 {
        say(given, &encode_host_call(ordinal, method, r#"["large"]"#));
    }
    wait_for_the_end()
}

/// A failure of a kind that only the fleet decides.
pub fn claim(given: &Given<'_>) -> String {
    let json = format!(r#"{{"kind":"{}","message":"so it says"}}"#, given.argument);
    say(given, &encode(Kind::Failure, &[json.as_bytes()]));
    wait_for_the_end()
}
