//! A template: one plugin, evaluated once, for one account. Forks a process for each call.

use crate::control::{FromTemplate, Join, ToTemplate};
use crate::engine::Engine;
use crate::filter::{self, Filter};
use crate::payload::Payload;
use crate::process::{self, Forked};
use crate::wire::{self, Kind, Load};
use crate::{call, isolate, socket};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

/// Ended as asked, or because the worker is gone.
const EXIT_DONE: i32 = 0;
/// The worker spoke in a way that it doesn't.
const EXIT_PROTOCOL: i32 = 20;
/// A layer that must be there could not be put in place.
const EXIT_NOT_ISOLATED: i32 = 21;

/// What a template is given.
pub struct Given {
    pub control: OwnedFd,
    pub load: OwnedFd,
    /// There is no cgroup, so the address space is limited instead.
    pub without_cgroup: bool,
}

/// Runs in the forked process, to its end.
pub fn main(engine: &Engine, given: Given, filter: Option<&mut Filter>, payload: Payload) -> ! {
    process::set_name(c"tf-blank");
    let Ok(events) = process::child_events() else { process::exit_now(EXIT_NOT_ISOLATED) };
    if isolate::isolate_template(payload).is_err() {
        process::exit_now(EXIT_NOT_ISOLATED);
    }
    // Most of it is done before the plugin is known. A limit that depends on it can't be set any more once the filter
    // is in force.
    let mut filter = filter;
    if !given.without_cgroup {
        put_up(filter.take());
    }
    filter::report_to(Some(&given.load));
    engine.rehearse();
    let Ok((Kind::Load, frame)) = socket::read_frame(&given.load, wire::LOAD_BYTES_MAX) else {
        process::exit_now(EXIT_PROTOCOL)
    };
    let Ok(mut load) = serde_json::from_slice::<Load>(&frame) else { process::exit_now(EXIT_PROTOCOL) };
    drop(frame);
    if given.without_cgroup && isolate::limit_address_space(load.limits.memory_bytes).is_err() {
        process::exit_now(EXIT_NOT_ISOLATED);
    }
    put_up(filter.take());
    process::set_name(c"tf-template");
    // From here on the plugin's code may have taken over.
    if let Some(attack) = payload.template {
        attack(&load, &given.control, &given.load);
    }
    let loaded = engine.load(&mut load);
    let (kind, text) = match loaded.and_then(|()| if load.inspect { engine.inspect().map(Some) } else { Ok(None) }) {
        Ok(None) => (Kind::Loaded, String::new()),
        Ok(Some(inspection)) => (Kind::Inspected, inspection),
        Err(error) => (Kind::LoadFailed, serde_json::to_string(&error).unwrap_or_default()),
    };
    if socket::write_all(&given.load, &wire::encode(kind, &[text.as_bytes()])).is_err() {
        process::exit_now(EXIT_DONE);
    }
    if kind != Kind::Loaded {
        process::exit_now(EXIT_DONE);
    }
    // The bundle's text is in the engine now; every call would carry the rest along.
    drop((load, text, given.load));
    filter::report_to(None);
    serve(engine, &given.control, &events, payload)
}

fn put_up(filter: Option<&mut Filter>) {
    if filter.is_some_and(|filter| filter.apply().is_err()) {
        process::exit_now(EXIT_NOT_ISOLATED);
    }
}

/// Forks calls and tells how they ended, until the worker is gone.
fn serve(engine: &Engine, control: &OwnedFd, events: &OwnedFd, payload: Payload) -> ! {
    // By pid. Bounded by the worker's slots: it asks for no more.
    let mut calls: HashMap<i32, u32> = HashMap::new();
    loop {
        let mut ready = [PollFd::new(control, PollFlags::IN), PollFd::new(events, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => process::exit_now(EXIT_PROTOCOL),
        }
        let [asked, ended] = ready.map(|event| !event.revents().is_empty());
        if ended {
            let mut buffer = [0; 128];
            // What it says is only that something happened; reaping tells what.
            let _ = rustix::io::read(events, &mut buffer);
            while let Some(ended) = process::reap() {
                if let Some(call) = calls.remove(&ended.pid) {
                    let message = FromTemplate::Exited {
                        call,
                        status: ended.status,
                        cpu_us: ended.cpu_us,
                        peak_kib: ended.peak_kib,
                    };
                    tell(control, message);
                }
            }
        }
        if asked {
            take(engine, control, &mut calls, payload);
        }
    }
}

fn take(engine: &Engine, control: &OwnedFd, calls: &mut HashMap<i32, u32>, payload: Payload) {
    let packet = match socket::receive_packet(control) {
        Ok(Some(packet)) => packet,
        // The worker is gone; the calls go with this process, which is the first of their pid namespace.
        _ => process::exit_now(EXIT_DONE),
    };
    match ToTemplate::decode(&packet.bytes) {
        Some(ToTemplate::Fork { call, join }) => {
            let mut descriptors = packet.descriptors.into_iter();
            let Some(socket) = descriptors.next() else { process::exit_now(EXIT_PROTOCOL) };
            let groups: Vec<OwnedFd> = descriptors.collect();
            let directory = if join == Join::Directory { groups.first().map(AsFd::as_fd) } else { None };
            match process::fork(false, directory) {
                Ok(Forked::Child) => {
                    if !payload.lacks("parent-death signal") {
                        process::die_with_parent();
                    }
                    if join == Join::Tasks && groups.iter().any(|tasks| enter(tasks).is_err()) {
                        process::exit_now(EXIT_NOT_ISOLATED);
                    }
                    // A call has its own socket and nothing of its template's.
                    if !payload.lacks("closed descriptors") {
                        process::close_all_but(&socket);
                    }
                    filter::report_to(Some(&socket));
                    process::set_name(c"tf-call");
                    call::main(engine, socket, payload)
                }
                Ok(Forked::Parent { pid }) => {
                    calls.insert(pid, call);
                }
                Err(errno) => tell(control, FromTemplate::ForkFailed { call, errno: errno.raw_os_error() }),
            }
        }
        Some(ToTemplate::Kill { call }) => {
            if let Some((pid, _)) = calls.iter().find(|(_, known)| **known == call) {
                process::kill_child(*pid);
            }
        }
        None => process::exit_now(EXIT_PROTOCOL),
    }
}

/// Writes itself into a version 1 cgroup.
pub fn enter(tasks: &OwnedFd) -> Result<(), Errno> {
    rustix::io::write(tasks, b"0").map(drop)
}

fn tell(control: &OwnedFd, message: FromTemplate) {
    if socket::send_packet(control, &message.encode(), &[]).is_err() {
        process::exit_now(EXIT_DONE);
    }
}
