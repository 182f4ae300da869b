//! Messages on the control sockets, one packet each: worker and root, worker and template.

/// How the descriptors that follow put a new process into its cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Join {
    /// There is no cgroup, and no descriptor.
    None = 0,
    /// Each descriptor is the `tasks` of a version 1 group; the process writes itself into it.
    Tasks = 1,
    /// One descriptor, of a version 2 directory; the process is made inside it (`CLONE_INTO_CGROUP`).
    Directory = 2,
}

impl Join {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::None,
            1 => Self::Tasks,
            2 => Self::Directory,
            _ => return None,
        })
    }
}

/// No packet carries more descriptors: two sockets and a few cgroup hierarchies.
pub const DESCRIPTORS_MAX: usize = 8;
/// No packet is longer.
pub const PACKET_BYTES_MAX: usize = 1024;

/// From the worker to the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToRoot {
    /// Descriptors: the template's control socket, its load socket, then those of `join`.
    Start {
        id: u32,
        join: Join,
    },
    Kill {
        id: u32,
    },
    /// Fork a process that ends at once, in this cgroup: the floor that a call's cost is measured against. Descriptors:
    /// those of `join`.
    Bare {
        join: Join,
    },
}

/// From the root to the worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromRoot {
    /// It is isolated as far as it could be; what it couldn't, by layer: `layer=reason` lines.
    Ready {
        missing: String,
    },
    StartFailed {
        id: u32,
        errno: i32,
    },
    /// The template ended, with this wait status.
    Exited {
        id: u32,
        status: i32,
    },
    /// Nanoseconds of one bare fork, exit and wait.
    Bare {
        ns: u64,
    },
}

/// From the worker to a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToTemplate {
    /// Descriptors: the call's socket, then those of `join`.
    Fork {
        call: u32,
        join: Join,
    },
    Kill {
        call: u32,
    },
}

/// From a template to the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromTemplate {
    ForkFailed {
        call: u32,
        errno: i32,
    },
    /// The call ended, with this wait status.
    Exited {
        call: u32,
        status: i32,
        cpu_us: u64,
        peak_kib: u64,
    },
}

fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let mut all = [0; N];
    if bytes.len() != N * 8 {
        return None;
    }
    for (number, chunk) in all.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = u64::from_le_bytes(chunk.try_into().ok()?);
    }
    Some(all)
}

fn packet(tag: u8, fields: &[u64]) -> Vec<u8> {
    let mut packet = vec![tag];
    for field in fields {
        packet.extend_from_slice(&field.to_le_bytes());
    }
    packet
}

fn id(number: u64) -> Option<u32> {
    u32::try_from(number).ok()
}

/// Signed numbers cross as their bits.
fn signed(number: u64) -> i32 {
    number as u32 as i32
}

impl ToRoot {
    pub fn encode(self) -> Vec<u8> {
        match self {
            Self::Start { id, join } => packet(1, &[id.into(), join as u64]),
            Self::Kill { id } => packet(2, &[id.into()]),
            Self::Bare { join } => packet(3, &[join as u64]),
        }
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        match tag {
            1 => {
                let [number, join] = numbers(rest)?;
                Some(Self::Start { id: id(number)?, join: Join::from_byte(u8::try_from(join).ok()?)? })
            }
            2 => numbers(rest).and_then(|[number]| Some(Self::Kill { id: id(number)? })),
            3 => {
                let [join] = numbers(rest)?;
                Some(Self::Bare { join: Join::from_byte(u8::try_from(join).ok()?)? })
            }
            _ => None,
        }
    }
}

impl FromRoot {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ready { missing } => {
                let mut packet = vec![1];
                let cut = missing.len().min(PACKET_BYTES_MAX - 1);
                packet.extend_from_slice(&missing.as_bytes()[..cut]);
                packet
            }
            Self::StartFailed { id, errno } => packet(2, &[(*id).into(), *errno as u32 as u64]),
            Self::Exited { id, status } => packet(3, &[(*id).into(), *status as u32 as u64]),
            Self::Bare { ns } => packet(4, &[*ns]),
        }
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        match tag {
            1 => Some(Self::Ready { missing: String::from_utf8_lossy(rest).into_owned() }),
            2 => numbers(rest).and_then(|[a, b]| Some(Self::StartFailed { id: id(a)?, errno: signed(b) })),
            3 => numbers(rest).and_then(|[a, b]| Some(Self::Exited { id: id(a)?, status: signed(b) })),
            4 => numbers(rest).map(|[ns]| Self::Bare { ns }),
            _ => None,
        }
    }
}

impl ToTemplate {
    pub fn encode(self) -> Vec<u8> {
        match self {
            Self::Fork { call, join } => packet(1, &[call.into(), join as u64]),
            Self::Kill { call } => packet(2, &[call.into()]),
        }
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        match tag {
            1 => {
                let [call, join] = numbers(rest)?;
                Some(Self::Fork { call: id(call)?, join: Join::from_byte(u8::try_from(join).ok()?)? })
            }
            2 => numbers(rest).and_then(|[call]| Some(Self::Kill { call: id(call)? })),
            _ => None,
        }
    }
}

impl FromTemplate {
    pub fn encode(self) -> Vec<u8> {
        match self {
            Self::ForkFailed { call, errno } => packet(1, &[call.into(), errno as u32 as u64]),
            Self::Exited { call, status, cpu_us, peak_kib } => {
                packet(2, &[call.into(), status as u32 as u64, cpu_us, peak_kib])
            }
        }
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        match tag {
            1 => numbers(rest).and_then(|[a, b]| Some(Self::ForkFailed { call: id(a)?, errno: signed(b) })),
            2 => numbers(rest).and_then(|[a, b, cpu_us, peak_kib]| {
                Some(Self::Exited { call: id(a)?, status: signed(b), cpu_us, peak_kib })
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_read_back_as_they_were_written() {
        for message in [
            ToRoot::Start { id: 7, join: Join::Tasks },
            ToRoot::Kill { id: u32::MAX },
            ToRoot::Bare { join: Join::None },
        ] {
            assert_eq!(ToRoot::decode(&message.encode()), Some(message));
        }
        for message in [FromRoot::Ready { missing: "a=b".into() }, FromRoot::Exited { id: 1, status: -1 }] {
            assert_eq!(FromRoot::decode(&message.encode()), Some(message));
        }
        for message in [ToTemplate::Fork { call: 1, join: Join::Directory }, ToTemplate::Kill { call: 2 }] {
            assert_eq!(ToTemplate::decode(&message.encode()), Some(message));
        }
        let ended = FromTemplate::Exited { call: 3, status: 9, cpu_us: 1, peak_kib: u64::MAX };
        assert_eq!(FromTemplate::decode(&ended.encode()), Some(ended));
    }

    #[test]
    fn what_is_no_packet_is_no_message() {
        // Nothing, no such tag, too short, too long.
        for bytes in [&[][..], &[0], &[9, 1], &[2, 1, 2, 3], &[1; 100]] {
            assert_eq!(FromTemplate::decode(bytes), None);
            assert_eq!(ToTemplate::decode(bytes), None);
            assert_eq!(ToRoot::decode(bytes), None);
        }
        // No such way to join, and a number that is none.
        assert_eq!(ToRoot::decode(&packet(1, &[0, 9])), None);
        assert_eq!(ToTemplate::decode(&packet(2, &[u64::MAX])), None);
    }
}
