//! What a call's process sends, frame by frame. All of it is presumed hostile.

use super::LogLevel;
use bytes::{Buf, BytesMut};
use serde_json::value::RawValue;
use toolfleet_protocol::Limits;
use toolfleet_sandbox::wire::{self, FrameError, HEADER_BYTES, Kind, PAYLOAD_BYTES_MAX};

/// Log lines are small and their bytes are budgeted; this bounds how often a hostile call can wake the worker.
const LOG_LINES_MAX: u32 = 100_000;

/// A whole frame, in its parts.
#[derive(Debug)]
pub enum Frame {
    HostCall {
        ordinal: u32,
        method: toolfleet_protocol::host::HostMethod,
        arguments: Box<RawValue>,
    },
    Log {
        level: LogLevel,
        message: String,
        fields: Option<Box<RawValue>>,
    },
    Value(Vec<u8>),
    Failure(Vec<u8>),
    /// The number of a system call that it may not make.
    Forbidden(u32),
}

/// What a call has sent so far, by which the next frame is judged.
#[derive(Debug, Default)]
pub struct Incoming {
    next_ordinal: u32,
    log_lines: u32,
}

impl Incoming {
    /// The next whole frame of `input`, or what is wrong with it.
    pub fn take(&mut self, input: &mut BytesMut, limits: &Limits, pending: usize) -> Result<Option<Frame>, String> {
        let Some(header) = input.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let (kind, length) = wire::decode_header(*header, PAYLOAD_BYTES_MAX).map_err(|error| error.to_string())?;
        if input.len() < HEADER_BYTES + length {
            return Ok(None);
        }
        input.advance(HEADER_BYTES);
        let payload = input.split_to(length);
        self.judge(kind, &payload, limits, pending).map(Some)
    }

    fn judge(&mut self, kind: Kind, payload: &[u8], limits: &Limits, pending: usize) -> Result<Frame, String> {
        match kind {
            Kind::HostCall => {
                let (ordinal, method, arguments) =
                    wire::decode_host_call(payload).map_err(|error| error.to_string())?;
                if ordinal != self.next_ordinal {
                    return Err(format!("host call {ordinal} where {} comes next", self.next_ordinal));
                }
                if ordinal >= limits.host_calls_max || pending >= limits.host_calls_pending_max as usize {
                    return Err("more host calls than a call may make".into());
                }
                self.next_ordinal += 1;
                let arguments = RawValue::from_string(arguments.to_owned())
                    .map_err(|error| FrameError::NotJson(error.to_string()).to_string())?;
                Ok(Frame::HostCall { ordinal, method, arguments })
            }
            Kind::Log => {
                self.log_lines += 1;
                if self.log_lines > LOG_LINES_MAX {
                    return Err("more log lines than a call may write".into());
                }
                let (level, message, fields) = wire::decode_log(payload).map_err(|error| error.to_string())?;
                let level = match level {
                    0 => LogLevel::Debug,
                    1 => LogLevel::Info,
                    2 => LogLevel::Warn,
                    _ => LogLevel::Error,
                };
                // Fields that aren't JSON are dropped with no more ado than a line too many.
                let fields = RawValue::from_string(fields.to_owned()).ok();
                Ok(Frame::Log { level, message: plain(message), fields })
            }
            Kind::Value => Ok(Frame::Value(payload.to_vec())),
            Kind::Failure => Ok(Frame::Failure(payload.to_vec())),
            Kind::Forbidden => match payload.first_chunk() {
                Some(number) => Ok(Frame::Forbidden(u32::from_le_bytes(*number))),
                None => Err(FrameError::Short.to_string()),
            },
            other => Err(FrameError::Unexpected(other).to_string()),
        }
    }
}

/// Plain text, without what would move a terminal's cursor, turn its writing round or fake another line: what follows
/// a line's end is set in, as no line of a log is.
fn plain(message: &str) -> String {
    let mut plain = String::with_capacity(message.len());
    for c in message.chars() {
        match c {
            '\n' => plain.push_str("\n    "),
            '\t' => plain.push(c),
            '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => plain.push('\u{fffd}'),
            c if c.is_control() => plain.push('\u{fffd}'),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(bytes: &[u8]) -> Result<Option<Frame>, String> {
        let mut incoming = Incoming::default();
        incoming.take(&mut BytesMut::from(bytes), &Limits::BASE, 0)
    }

    #[test]
    fn half_a_frame_is_waited_for() {
        let frame = wire::encode_host_call(0, 1, "[]");
        for length in 0..frame.len() {
            assert!(matches!(take(&frame[..length]), Ok(None)), "{length}");
        }
        assert!(matches!(take(&frame), Ok(Some(Frame::HostCall { ordinal: 0, .. }))));
    }

    #[test]
    fn a_line_is_plain_text() {
        for (message, expected) in [
            ("a\tb é 😀", "a\tb é 😀"),
            ("\u{1b}[31m\u{9b}31m\r\0\u{7f}", "\u{fffd}[31m\u{fffd}31m\u{fffd}\u{fffd}\u{fffd}"),
            ("a\n{\"level\":\"ERROR\"}", "a\n    {\"level\":\"ERROR\"}"),
            ("\u{202e}a\u{2028}b\u{2069}", "\u{fffd}a\u{fffd}b\u{fffd}"),
        ] {
            assert_eq!(plain(message), expected);
        }
    }

    #[test]
    fn a_call_that_speaks_garbage_violates() {
        for bytes in [
            &[0xff; 16][..],
            &wire::encode(Kind::Start, &[]),
            &wire::encode(Kind::Loaded, &[]),
            &wire::encode_host_call(1, 1, "[]"),
            &wire::encode_host_call(0, 9999, "[]"),
            &wire::encode_host_call(0, 1, "[1"),
        ] {
            assert!(take(bytes).is_err(), "{bytes:?}");
        }
    }
}
