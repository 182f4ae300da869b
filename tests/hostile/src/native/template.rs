//! A template that is taken over while it loads its plugin: it knows its own account's release, and nothing else.

use std::os::fd::OwnedFd;
use toolfleet_sandbox::Join;
use toolfleet_sandbox::control::{FromTemplate, ToTemplate};
use toolfleet_sandbox::socket::{receive_packet, send_packet, write_all};
use toolfleet_sandbox::wire::{Kind, Load, encode};

/// The attack is named by a comment in the plugin's code.
pub fn attack(load: &Load, control: &OwnedFd, answer: &OwnedFd) {
    let code = load.bundle.files.values().map(|file| file.code.as_str()).collect::<String>();
    let Some(name) = code.split("// takeover: ").nth(1).and_then(|rest| rest.lines().next()) else { return };
    let loaded = || drop(write_all(answer, &encode(Kind::Loaded, &[])));
    match name {
        "never answers" => {
            loaded();
            ignore(control)
        }
        "lies about other calls" => {
            loaded();
            lie(control)
        }
        "keeps descriptors" => {
            loaded();
            keep(control)
        }
        "speaks nonsense" => {
            loaded();
            let _ = send_packet(control, &[0xff; 100], &[]);
            ignore(control)
        }
        "makes a forbidden call" => {
            // SAFETY: the call is not made.
            unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
        }
        "answers with 4 GB" => drop(write_all(answer, &[0xff, 0xff, 0xff, 0xff, Kind::Loaded as u8])),
        _ => {}
    }
}

/// Takes all that it is told, and does nothing of it.
fn ignore(control: &OwnedFd) -> ! {
    while let Ok(Some(packet)) = receive_packet(control) {
        drop(packet);
    }
    // SAFETY: it doesn't return.
    unsafe { libc::_exit(0) }
}

/// Says of every call near the one that it is told of that it has ended well.
fn lie(control: &OwnedFd) -> ! {
    while let Ok(Some(packet)) = receive_packet(control) {
        if let Some(ToTemplate::Fork { call, join: Join::None | Join::Tasks | Join::Directory }) =
            ToTemplate::decode(&packet.bytes)
        {
            for other in call.saturating_sub(100)..call + 100 {
                let message = FromTemplate::Exited { call: other, status: 0, cpu_us: u64::MAX, peak_kib: u64::MAX };
                let _ = send_packet(control, &message.encode(), &[]);
            }
        }
    }
    // SAFETY: it doesn't return.
    unsafe { libc::_exit(0) }
}

/// Keeps each call's socket open.
fn keep(control: &OwnedFd) -> ! {
    let mut kept = Vec::new();
    while let Ok(Some(packet)) = receive_packet(control) {
        kept.extend(packet.descriptors);
    }
    // SAFETY: it doesn't return.
    unsafe { libc::_exit(0) }
}
