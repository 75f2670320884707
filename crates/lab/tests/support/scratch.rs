//! For tests: a network namespace that ends with the test's thread and sockets, and tests that
//! are skipped. A part of `sonde-lab` with its feature `test-support`, which only
//! dev-dependencies have: what is installed neither reads the environment nor prints.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::Command;

use crate::LabError;
use crate::lab::is_root;

/// For tests that need namespaces: whether to skip them, which they do only when not run by root,
/// and never where `SONDE_REQUIRE_ROOT` is 1.
///
/// # Panics
/// Not run by root where root is required.
#[expect(clippy::disallowed_methods, reason = "tests are told by the environment")]
pub fn skip(test: &str) -> bool {
    if is_root() {
        return false;
    }
    let required = std::env::var_os("SONDE_REQUIRE_ROOT").is_some_and(|value| value == "1");
    assert!(!required, "{test}: {} (SONDE_REQUIRE_ROOT=1)", LabError::Privilege);
    skipped(test, LabError::Privilege);
    true
}

/// Notes that a test, or a part of it, is skipped. It writes to standard error past the test
/// harness's capture, so that no skip stays unseen. It also writes to the file that `SONDE_SKIPPED`
/// names, for a count at the end.
#[expect(clippy::disallowed_methods, reason = "a skip is seen past the harness, and counted")]
pub fn skipped(test: &str, why: impl Display) {
    let line = format!("skipped: {test}: {why}\n");
    // A line that cannot be written is no reason to fail the test.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("SONDE_SKIPPED")
        && let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path)
    {
        let _ = file.write_all(line.as_bytes());
    }
}

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
