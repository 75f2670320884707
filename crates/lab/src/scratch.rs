//! A network namespace for one test, which ends with the test's thread and sockets.

use std::process::Command;

/// Runs `test` on a thread of its own in a new namespace, with loopback up. Who is not root skips
/// it, as [`crate::skip`] does.
///
/// # Panics
/// If the test does; if there can be no namespace.
pub fn in_namespace(test: fn()) {
    if crate::skip(std::thread::current().name().unwrap_or("a test in a namespace")) {
        return;
    }
    let run = move || {
        sonde_sys::netns::enter_new().expect("root");
        ip("link set lo up");
        test();
    };
    if let Err(panic) = std::thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` in this thread's namespace.
///
/// # Panics
/// If it fails.
pub fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("ip");
    assert!(output.status.success(), "ip {arguments}: {output:?}");
}
