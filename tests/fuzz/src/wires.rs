//! What crosses sockets and queues.

use bytes::BytesMut;
use toolfleet_protocol::{Job, Limits};
use toolfleet_sandbox::control::{FromRoot, FromTemplate, PACKET_BYTES_MAX, ToRoot, ToTemplate};
use toolfleet_sandbox::wire::{self, HEADER_BYTES, PAYLOAD_BYTES_MAX};
use toolfleet_worker::isolation::incoming::{Frame, Incoming};

/// A call's process to the worker: the frames are the same however the bytes are cut on their way.
pub fn worker_frames(data: &[u8]) {
    let Some((cut, bytes)) = data.split_first() else { return };
    let whole = frames(bytes, bytes.len().max(1));
    let cut_up = frames(bytes, usize::from(*cut % 16) + 1);
    assert_eq!(whole, cut_up, "the frames depend on how they arrive");
}

/// As text, up to the first violation.
fn frames(bytes: &[u8], step: usize) -> Vec<String> {
    let limits = Limits::BASE;
    let (mut incoming, mut input, mut told) = (Incoming::default(), BytesMut::new(), Vec::new());
    for chunk in bytes.chunks(step) {
        input.extend_from_slice(chunk);
        loop {
            match incoming.take(&mut input, &limits, 0) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    if let Frame::Log { message, .. } = &frame {
                        let is_plain = message.chars().all(|c| c == '\n' || c == '\t' || !c.is_control());
                        assert!(is_plain, "a line with control characters: {message:?}");
                    }
                    told.push(format!("{frame:?}"));
                }
                Err(violation) => {
                    told.push(violation);
                    return told;
                }
            }
        }
    }
    told
}

/// The worker to a template or a call: what is read is written back as it was.
pub fn call_frames(data: &[u8]) {
    if let Some(header) = data.first_chunk::<HEADER_BYTES>()
        && let Ok((_, length)) = wire::decode_header(*header, PAYLOAD_BYTES_MAX)
    {
        assert!(length <= PAYLOAD_BYTES_MAX);
    }
    if let Ok(start) = wire::decode_start(data) {
        assert_eq!(&wire::encode_start(&start)[HEADER_BYTES..], data);
    }
    if let Ok((ordinal, ok, json)) = wire::decode_host_reply(data) {
        let again = wire::encode_host_reply(ordinal, ok, json);
        assert_eq!(wire::decode_host_reply(&again[HEADER_BYTES..]), Ok((ordinal, ok, json)));
    }
}

/// Worker, root and template: a packet that is read is the one that would be written.
pub fn control(data: &[u8]) {
    if data.len() > PACKET_BYTES_MAX {
        return;
    }
    if let Some(message) = ToRoot::decode(data) {
        assert_eq!(message.encode(), data);
    }
    if let Some(message) = ToTemplate::decode(data) {
        assert_eq!(message.encode(), data);
    }
    if let Some(message) = FromTemplate::decode(data) {
        // Signed numbers cross as their bits, of which the upper half is nobody's.
        assert_eq!(FromTemplate::decode(&message.encode()), Some(message));
    }
    // What isn't text in its account of layers is replaced, and what is too long cut.
    if let Some(message) = FromRoot::decode(data).filter(|message| !matches!(message, FromRoot::Ready { .. })) {
        assert_eq!(FromRoot::decode(&message.encode()), Some(message));
    }
}

pub const JOB_WORDS: &[&str] = &[
    "\"v\":1",
    "\"callId\":",
    "\"account\":",
    "\"work\":",
    "\"call\"",
    "\"inspect\"",
    "\"class\":",
    "\"interactive\"",
    "\"replyTo\":",
    "\"deadlineAtMs\":",
    "18446744073709551616",
    "-0",
    "1e400",
    "\\u0000",
    "\\ud800",
    "null",
    "{",
    "}",
    "[",
    "]",
];

/// A message on a jobs queue.
pub fn job(data: &[u8]) {
    if let Ok(job) = Job::decode(data) {
        let written = job.encode();
        let again = Job::decode(&written).expect("what is written can be read");
        assert_eq!(again.encode(), written);
    }
}
