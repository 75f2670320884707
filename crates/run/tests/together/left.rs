//! What a process has at work and open.

use std::collections::BTreeSet;

/// Names of this process's threads, those of the test harness left out.
pub fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    let mut all: Vec<String> =
        tasks.filter_map(name).filter(|name| name.starts_with("sonde-")).collect();
    all.sort();
    all
}

/// What is open: sockets and maps by their identifiers, which are the kernel's.
pub fn descriptors() -> BTreeSet<String> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let target = |fd: std::io::Result<std::fs::DirEntry>| {
        let link = std::fs::read_link(fd.ok()?.path()).ok()?;
        let text = link.to_string_lossy().into_owned();
        (!text.starts_with("/proc/")).then_some(text)
    };
    open.filter_map(target).collect()
}
