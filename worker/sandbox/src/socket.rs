//! Blocking sockets: packets with descriptors, and frames on streams.

use crate::control::{DESCRIPTORS_MAX, PACKET_BYTES_MAX};
use crate::wire::{self, FrameError, HEADER_BYTES, Kind};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A packet and the descriptors that came with it.
#[derive(Debug)]
pub struct Packet {
    pub bytes: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

/// Sends one packet. Never blocks if the socket doesn't.
pub fn send_packet(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    retry_on_intr(|| rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL))
        .map(drop)
}

/// Takes one packet; `None` once the other side is gone. Descriptors are closed on exec.
pub fn receive_packet(socket: impl AsFd) -> Result<Option<Packet>, Errno> {
    let mut buffer = [0; PACKET_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(&mut buffer)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    Ok(Some(Packet { bytes: buffer[..received.bytes].to_vec(), descriptors }))
}

/// Why a stream gives no frame.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("the other side is gone")]
    Closed,
    #[error("socket: {0}")]
    Socket(Errno),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl From<Errno> for StreamError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            other => Self::Socket(other),
        }
    }
}

/// Writes all of it.
pub fn write_all(socket: impl AsFd, mut bytes: &[u8]) -> Result<(), StreamError> {
    while !bytes.is_empty() {
        let written = retry_on_intr(|| rustix::net::send(&socket, bytes, SendFlags::NOSIGNAL))?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Reads one whole frame.
pub fn read_frame(socket: impl AsFd, payload_max: usize) -> Result<(Kind, Vec<u8>), StreamError> {
    let mut header = [0; HEADER_BYTES];
    read_exact(&socket, &mut header)?;
    let (kind, length) = wire::decode_header(header, payload_max)?;
    let mut payload = vec![0; length];
    read_exact(&socket, &mut payload)?;
    Ok((kind, payload))
}

fn read_exact(socket: impl AsFd, mut buffer: &mut [u8]) -> Result<(), StreamError> {
    while !buffer.is_empty() {
        let read = retry_on_intr(|| rustix::io::read(&socket, &mut *buffer))?;
        if read == 0 {
            return Err(StreamError::Closed);
        }
        buffer = &mut buffer[read..];
    }
    Ok(())
}
