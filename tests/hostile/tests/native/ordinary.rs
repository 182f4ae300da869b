//! The same for a worker that isn't root: this very program once more, as a user without rights.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use toolfleet_hostile::support::root_binary;

const NOBODY: u32 = 65_534;

#[test]
fn the_walls_stand_for_an_ordinary_user_too() {
    if !rustix::process::geteuid().is_root() {
        // This is that run.
        return;
    }
    // Where such a user can reach it.
    let place = tempfile::TempDir::new().expect("a folder");
    let programs = place.path().join("release/deps");
    std::fs::create_dir_all(&programs).expect("a folder");
    for folder in [place.path(), &place.path().join("release"), &programs] {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    }
    let own = programs.join("native");
    std::fs::copy(std::env::current_exe().expect("this program"), &own).expect("a copy");
    std::fs::copy(root_binary("hostile-root"), place.path().join("release/hostile-root")).expect("a copy");
    let output = Command::new(&own)
        .args(["--test-threads=2", "walls::", "calls::", "wire::", "resources::memory", "templates::"])
        .uid(NOBODY)
        .gid(NOBODY)
        .env("TMPDIR", "/tmp")
        .output()
        .expect("this program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("the_root_is_empty") && !text.contains(" 0 passed"), "{text}");
}
