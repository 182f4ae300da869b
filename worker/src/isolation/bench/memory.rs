//! Memory that a sandboxed process has to itself, as the kernel counts it.

use serde::Serialize;
use std::fs;
use std::path::Path;

/// Of the processes of one name.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Private {
    /// How many were looked at; none where the kernel doesn't show them to this user.
    pub processes: usize,
    pub mean_kib: u64,
}

/// Of every process of that name in this process's cgroups or below it.
pub fn private_of(name: &str) -> Private {
    let own = std::process::id();
    let mut kib = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let place = entry.path();
        if is_below(&place, name, own)
            && let Some(private) = private_kib(&place)
        {
            kib.push(private);
        }
    }
    let mean_kib = kib.iter().sum::<u64>().checked_div(kib.len() as u64).unwrap_or(0);
    Private { processes: kib.len(), mean_kib }
}

/// What goes if the process goes.
fn private_kib(place: &Path) -> Option<u64> {
    let text = fs::read_to_string(place.join("smaps_rollup")).ok()?;
    let of = |field: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(field))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    Some(of("Private_Clean:")? + of("Private_Dirty:")?)
}

fn is_below(place: &Path, name: &str, above: u32) -> bool {
    let is_named = fs::read_to_string(place.join("comm")).is_ok_and(|text| text.trim_end() == name);
    let mut next = is_named.then(|| parent(place)).flatten();
    // Root, template, call: no chain is longer.
    for _ in 0..3 {
        match next {
            Some(pid) if pid == above => return true,
            Some(pid) => next = parent(Path::new(&format!("/proc/{pid}"))),
            None => return false,
        }
    }
    false
}

fn parent(place: &Path) -> Option<u32> {
    let stat = fs::read_to_string(place.join("stat")).ok()?;
    // The name stands in parentheses, and may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}
