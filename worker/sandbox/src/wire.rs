//! Frames on the stream sockets between the worker and a template or a call: `u32` length (little endian, of what
//! follows), `u8` kind, payload. Both sides bound the length before they allocate.

use serde::{Deserialize, Serialize};
use toolfleet_protocol::host::HostMethod;
use toolfleet_protocol::{Bundle, Limits};

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 5;
/// A bundle and its framing: what a plugin may have in files, twice, for escapes.
pub const LOAD_BYTES_MAX: usize = 24 * 1024 * 1024;
/// The largest payload besides a bundle: a host call's arguments or answer, and their framing.
pub const PAYLOAD_BYTES_MAX: usize = 9 * 1024 * 1024;

/// A frame's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Worker to template: [`Load`] as JSON.
    Load = 1,
    /// Template to worker: it is ready to fork calls. No payload.
    Loaded = 2,
    /// Template to worker: a [`toolfleet_protocol::CallError`] as JSON.
    LoadFailed = 3,
    /// Template to worker: a [`toolfleet_protocol::Inspection`] as JSON.
    Inspected = 4,

    /// Worker to call: `u64` milliseconds, `u32` length of the tool's name, `u32` length of the context, name, context, input.
    Start = 16,
    /// Worker to call: `u32` ordinal, `u8` 1 for an answer and 0 for a [`toolfleet_protocol::host::HostError`], JSON.
    HostReply = 17,

    /// Call to worker: `u32` ordinal, `u16` method, the arguments as a JSON array.
    HostCall = 32,
    /// Call to worker: `u8` level (0 debug to 3 error), `u32` length of the message, message, fields as JSON or nothing.
    Log = 33,
    /// Call to worker: the value as JSON. The last frame.
    Value = 34,
    /// Call to worker: a [`toolfleet_protocol::CallError`] as JSON. The last frame.
    Failure = 35,
    /// Call or template to worker: the `u32` number of a system call that it may not make. The last frame.
    Forbidden = 36,
}

impl Kind {
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Load,
            2 => Self::Loaded,
            3 => Self::LoadFailed,
            4 => Self::Inspected,
            16 => Self::Start,
            17 => Self::HostReply,
            32 => Self::HostCall,
            33 => Self::Log,
            34 => Self::Value,
            35 => Self::Failure,
            36 => Self::Forbidden,
            _ => return None,
        })
    }
}

/// What a template is to load.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Load {
    pub bundle: Bundle,
    pub limits: Limits,
    /// What the engine may allocate; the kernel's cap is the worker's to set.
    pub heap_bytes: u64,
    /// From now until the bundle must be evaluated.
    pub load_ms: u64,
    /// Report what was registered, and end.
    pub inspect: bool,
}

/// What a call is to do. No JSON: reading it must cost a call next to nothing, and its parts are handed on as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start<'a> {
    /// What is left of the call's time.
    pub wall_ms: u64,
    pub tool: &'a str,
    /// The handler's second argument, as JSON.
    pub context: &'a str,
    /// The handler's first argument, as JSON.
    pub input: &'a str,
}

/// Why a frame can't be taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {bytes} bytes, more than the {max} that are taken")]
    TooLong { bytes: usize, max: usize },
    #[error("a frame of unknown kind {0}")]
    UnknownKind(u8),
    #[error("a frame of kind {0:?}, which doesn't belong here")]
    Unexpected(Kind),
    #[error("a frame that ends before its fields do")]
    Short,
    #[error("a host call of unknown method {0}")]
    UnknownMethod(u16),
    #[error("text that isn't UTF-8")]
    NotUtf8,
    #[error("text that isn't JSON: {0}")]
    NotJson(String),
}

/// Length of the payload and kind, from a frame's first bytes.
pub fn decode_header(header: [u8; HEADER_BYTES], payload_max: usize) -> Result<(Kind, usize), FrameError> {
    let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let payload = length.checked_sub(1).ok_or(FrameError::Short)?;
    if payload > payload_max {
        return Err(FrameError::TooLong { bytes: payload, max: payload_max });
    }
    Ok((Kind::from_byte(header[4]).ok_or(FrameError::UnknownKind(header[4]))?, payload))
}

/// A frame of these parts, in one piece.
pub fn encode(kind: Kind, parts: &[&[u8]]) -> Vec<u8> {
    let payload: usize = parts.iter().map(|part| part.len()).sum();
    let length = u32::try_from(payload + 1).expect("no frame is longer than its limit");
    let mut frame = Vec::with_capacity(HEADER_BYTES + payload);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.push(kind as u8);
    for part in parts {
        frame.extend_from_slice(part);
    }
    frame
}

/// A [`Kind::Start`] frame.
pub fn encode_start(start: &Start<'_>) -> Vec<u8> {
    let length = |text: &str| u32::try_from(text.len()).expect("an input is bounded").to_le_bytes();
    encode(
        Kind::Start,
        &[
            &start.wall_ms.to_le_bytes(),
            &length(start.tool),
            &length(start.context),
            start.tool.as_bytes(),
            start.context.as_bytes(),
            start.input.as_bytes(),
        ],
    )
}

/// The parts of a [`Kind::Start`] payload.
pub fn decode_start(payload: &[u8]) -> Result<Start<'_>, FrameError> {
    let (wall_ms, rest) = payload.split_first_chunk::<8>().ok_or(FrameError::Short)?;
    let (tool_bytes, rest) = split_u32(rest)?;
    let (context_bytes, rest) = split_u32(rest)?;
    let (tool, rest) = rest.split_at_checked(tool_bytes as usize).ok_or(FrameError::Short)?;
    let (context, input) = rest.split_at_checked(context_bytes as usize).ok_or(FrameError::Short)?;
    Ok(Start { wall_ms: u64::from_le_bytes(*wall_ms), tool: text(tool)?, context: text(context)?, input: text(input)? })
}

/// A [`Kind::HostReply`] frame.
pub fn encode_host_reply(ordinal: u32, ok: bool, json: &str) -> Vec<u8> {
    encode(Kind::HostReply, &[&ordinal.to_le_bytes(), &[u8::from(ok)], json.as_bytes()])
}

/// The parts of a [`Kind::HostReply`] payload.
pub fn decode_host_reply(payload: &[u8]) -> Result<(u32, bool, &str), FrameError> {
    let (ordinal, rest) = split_u32(payload)?;
    let (ok, json) = rest.split_first().ok_or(FrameError::Short)?;
    Ok((ordinal, *ok == 1, text(json)?))
}

/// A [`Kind::HostCall`] frame.
pub fn encode_host_call(ordinal: u32, method: u16, arguments: &str) -> Vec<u8> {
    encode(Kind::HostCall, &[&ordinal.to_le_bytes(), &method.to_le_bytes(), arguments.as_bytes()])
}

/// The parts of a [`Kind::HostCall`] payload.
pub fn decode_host_call(payload: &[u8]) -> Result<(u32, HostMethod, &str), FrameError> {
    let (ordinal, rest) = split_u32(payload)?;
    let (method, json) = rest.split_first_chunk::<2>().ok_or(FrameError::Short)?;
    let number = u16::from_le_bytes(*method);
    let method = HostMethod::from_number(number).ok_or(FrameError::UnknownMethod(number))?;
    Ok((ordinal, method, text(json)?))
}

/// A [`Kind::Log`] frame.
pub fn encode_log(level: u8, message: &str, fields: &str) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a line is cut to its limit before");
    encode(Kind::Log, &[&[level], &length.to_le_bytes(), message.as_bytes(), fields.as_bytes()])
}

/// The parts of a [`Kind::Log`] payload: level, message, fields.
pub fn decode_log(payload: &[u8]) -> Result<(u8, &str, &str), FrameError> {
    let (level, rest) = payload.split_first().ok_or(FrameError::Short)?;
    let (length, rest) = split_u32(rest)?;
    let (message, fields) = rest.split_at_checked(length as usize).ok_or(FrameError::Short)?;
    Ok((*level, text(message)?, text(fields)?))
}

fn split_u32(bytes: &[u8]) -> Result<(u32, &[u8]), FrameError> {
    let (number, rest) = bytes.split_first_chunk::<4>().ok_or(FrameError::Short)?;
    Ok((u32::from_le_bytes(*number), rest))
}

fn text(bytes: &[u8]) -> Result<&str, FrameError> {
    std::str::from_utf8(bytes).map_err(|_| FrameError::NotUtf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(frame: &[u8]) -> &[u8] {
        let header = frame[..HEADER_BYTES].try_into().unwrap();
        let (_, length) = decode_header(header, PAYLOAD_BYTES_MAX).unwrap();
        assert_eq!(frame.len(), HEADER_BYTES + length);
        &frame[HEADER_BYTES..]
    }

    #[test]
    fn frames_read_back_as_they_were_written() {
        let frame = encode_host_call(7, HostMethod::Fetch as u16, "[1]");
        assert_eq!(decode_host_call(payload(&frame)), Ok((7, HostMethod::Fetch, "[1]")));
        let frame = encode_host_reply(7, true, "null");
        assert_eq!(decode_host_reply(payload(&frame)), Ok((7, true, "null")));
        let start = Start { wall_ms: 7, tool: "t", context: "{}", input: "[\"é\"]" };
        let frame = encode_start(&start);
        assert_eq!(decode_start(payload(&frame)), Ok(start));
        let frame = encode_log(2, "hé", "{}");
        assert_eq!(decode_log(payload(&frame)), Ok((2, "hé", "{}")));
    }

    #[test]
    fn bad_frames_are_refused() {
        assert_eq!(decode_header([0, 0, 0, 0, 32], 10), Err(FrameError::Short));
        assert_eq!(decode_header([12, 0, 0, 0, 32], 10), Err(FrameError::TooLong { bytes: 11, max: 10 }));
        assert_eq!(
            decode_header([255, 255, 255, 255, 32], 10).unwrap_err(),
            FrameError::TooLong { bytes: u32::MAX as usize - 1, max: 10 }
        );
        assert_eq!(decode_header([1, 0, 0, 0, 99], 10), Err(FrameError::UnknownKind(99)));
        assert_eq!(decode_host_call(&[1, 2, 3]), Err(FrameError::Short));
        assert_eq!(decode_host_call(&[0, 0, 0, 0, 0xff, 0xff]), Err(FrameError::UnknownMethod(0xffff)));
        assert_eq!(decode_start(&[0; 15]), Err(FrameError::Short));
        assert_eq!(decode_start(&[0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, b't']), Err(FrameError::Short));
        assert_eq!(decode_log(&[0, 9, 0, 0, 0, b'a']), Err(FrameError::Short));
        assert_eq!(decode_log(&[0, 1, 0, 0, 0, 0xff]), Err(FrameError::NotUtf8));
    }
}
