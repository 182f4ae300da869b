//! The sandbox root: executed afresh by the worker, before anything else is in its memory; takes everything away
//! from itself that it doesn't need; forks templates.

use crate::control::{DESCRIPTORS_MAX, FromRoot, Join, ToRoot};
use crate::engine::Engine;
use crate::filter::Filter;
use crate::payload::Payload;
use crate::process::{self, Forked};
use crate::template::{self, Given};
use crate::{isolate, socket};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// The descriptor that the worker's end of the control socket is started with.
pub const CONTROL_DESCRIPTOR: i32 = 3;
/// The user that plugins run as, outside their namespaces. No file is this user's, and nobody logs in as it.
pub const SANDBOX_UID: u32 = 64_925;

const EXIT_DONE: i32 = 0;
const EXIT_PROTOCOL: i32 = 30;
const EXIT_NOT_ISOLATED: i32 = 31;
const EXIT_NO_ENGINE: i32 = 32;

struct Root {
    control: OwnedFd,
    events: OwnedFd,
    /// With the platform's code in it and nobody's else: each template goes on with a copy.
    engine: &'static Engine,
    /// None where the kernel can't have it.
    filter: Option<Filter>,
    payload: Payload,
    /// By pid. Bounded by the worker's limit on templates.
    templates: HashMap<i32, u32>,
}

/// Runs to the end of the process. Must be called first in it: before a thread is started or a secret is read.
pub fn main(payload: Payload) -> ! {
    // Not by the parent-death signal: that comes when the thread that started this process ends, which in a worker
    // of many threads says nothing. The control socket's end tells that the worker is gone.
    process::set_name(c"tf-root");
    process::plain_faults();
    process::close_from(CONTROL_DESCRIPTOR as u32 + 1);
    // SAFETY: the worker starts this process with the control socket there, and nothing here has taken it.
    let control = unsafe { process::inherited(CONTROL_DESCRIPTOR) };
    let mut missing = isolate::isolate_root(SANDBOX_UID, payload);
    process::settle_time_zone();
    let filter = missing.try_layer("system call filter", payload, Filter::compile);
    let Ok(engine) = Engine::new() else { process::exit_now(EXIT_NO_ENGINE) };
    let Ok(events) = process::child_events() else { process::exit_now(EXIT_NOT_ISOLATED) };
    let mut root = Root { control, events, engine, filter, payload, templates: HashMap::new() };
    root.tell(&FromRoot::Ready { missing: missing.0 });
    loop {
        let mut ready = [PollFd::new(&root.control, PollFlags::IN), PollFd::new(&root.events, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => process::exit_now(EXIT_PROTOCOL),
        }
        let [asked, ended] = ready.map(|event| !event.revents().is_empty());
        if ended {
            root.reap();
        }
        if asked {
            root.take();
        }
    }
}

impl Root {
    fn reap(&mut self) {
        let mut buffer = [0; 128];
        // What it says is only that something happened; reaping tells what.
        let _ = rustix::io::read(&self.events, &mut buffer);
        while let Some(ended) = process::reap() {
            if let Some(id) = self.templates.remove(&ended.pid) {
                self.tell(&FromRoot::Exited { id, status: ended.status });
            }
        }
    }

    fn take(&mut self) {
        let packet = match socket::receive_packet(&self.control) {
            Ok(Some(packet)) => packet,
            _ => process::exit_now(EXIT_DONE),
        };
        match ToRoot::decode(&packet.bytes) {
            Some(ToRoot::Start { id, join }) => self.start(id, join, packet.descriptors),
            Some(ToRoot::Kill { id }) => {
                if let Some((pid, _)) = self.templates.iter().find(|(_, known)| **known == id) {
                    process::kill_child(*pid);
                }
            }
            Some(ToRoot::Bare { join }) => self.fork_bare(join, &packet.descriptors),
            None => process::exit_now(EXIT_PROTOCOL),
        }
    }

    fn start(&mut self, id: u32, join: Join, descriptors: Vec<OwnedFd>) {
        debug_assert!(descriptors.len() <= DESCRIPTORS_MAX);
        let mut descriptors = descriptors.into_iter();
        let (Some(own_control), Some(load)) = (descriptors.next(), descriptors.next()) else {
            process::exit_now(EXIT_PROTOCOL)
        };
        let groups: Vec<OwnedFd> = descriptors.collect();
        let directory = if join == Join::Directory { groups.first().map(AsFd::as_fd) } else { None };
        // Where no pid namespace can be had the template is an ordinary child; doctor and the start-up warning say so.
        let own_pids = !self.payload.lacks("pid namespace");
        let forked = process::fork(own_pids, directory).or_else(|_| process::fork(false, directory));
        match forked {
            Ok(Forked::Child) => {
                process::die_with_parent();
                if join == Join::Tasks && groups.iter().any(|group| template::enter(group).is_err()) {
                    process::exit_now(EXIT_NOT_ISOLATED);
                }
                drop(groups);
                process::close_in_child(&self.control);
                process::close_in_child(&self.events);
                let given = Given { control: own_control, load, without_cgroup: join == Join::None };
                template::main(self.engine, given, self.filter.as_mut(), self.payload)
            }
            Ok(Forked::Parent { pid }) => {
                self.templates.insert(pid, id);
            }
            Err(errno) => self.tell(&FromRoot::StartFailed { id, errno: errno.raw_os_error() }),
        }
    }

    fn fork_bare(&self, join: Join, groups: &[OwnedFd]) {
        let directory = if join == Join::Directory { groups.first().map(AsFd::as_fd) } else { None };
        let started = Instant::now();
        match process::fork(false, directory) {
            Ok(Forked::Child) => {
                if join == Join::Tasks && groups.iter().any(|group| template::enter(group).is_err()) {
                    process::exit_now(EXIT_NOT_ISOLATED);
                }
                process::exit_now(EXIT_DONE)
            }
            Ok(Forked::Parent { pid }) => process::wait_for(pid),
            Err(_) => process::exit_now(EXIT_PROTOCOL),
        }
        let ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.tell(&FromRoot::Bare { ns });
    }

    fn tell(&self, message: &FromRoot) {
        if socket::send_packet(&self.control, &message.encode(), &[]).is_err() {
            process::exit_now(EXIT_DONE);
        }
    }
}
