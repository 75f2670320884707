//! What a reader has to know of the host to repeat a run.

use std::collections::BTreeMap;
use std::fs;

/// By names for people.
pub fn host_facts() -> BTreeMap<String, String> {
    let file = |path: &str| fs::read_to_string(path).map(|t| t.trim().to_owned()).ok();
    let mut facts = BTreeMap::new();
    for (name, path) in [
        ("kernel command line", "/proc/cmdline"),
        ("kernel version", "/proc/version"),
        ("smt", "/sys/devices/system/cpu/smt/control"),
        ("isolated processors", "/sys/devices/system/cpu/isolated"),
        ("transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
        (
            "real-time throttling (kernel.sched_rt_runtime_us)",
            "/proc/sys/kernel/sched_rt_runtime_us",
        ),
        ("net.core.netdev_budget", "/proc/sys/net/core/netdev_budget"),
        ("net.core.netdev_max_backlog", "/proc/sys/net/core/netdev_max_backlog"),
        ("net.core.bpf_jit_enable", "/proc/sys/net/core/bpf_jit_enable"),
    ] {
        if let Some(value) = file(path).filter(|v| !v.is_empty()) {
            facts.insert(name.to_owned(), value);
        }
    }
    let cpuinfo = file("/proc/cpuinfo").unwrap_or_default();
    if let Some(line) = cpuinfo.lines().find(|l| l.starts_with("microcode")) {
        let value = line.split_once(':').map_or("", |(_, v)| v.trim());
        facts.insert("microcode".into(), value.into());
    }
    let vulnerabilities = fs::read_dir("/sys/devices/system/cpu/vulnerabilities");
    for entry in vulnerabilities.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(value) = file(&entry.path().to_string_lossy()) {
            facts.insert(format!("mitigation {name}"), value);
        }
    }
    facts
}
