//! A single setting: how it is read, written, and named.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::device::run_dir::file_error;
use crate::host::run;
use crate::{Host, LabError};

/// Something that has one value, as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Setting {
    /// A file of an interface below /sys/class/net.
    Interface {
        /// The network namespace, as `ip netns` knows it.
        netns: String,
        /// The interface's name in that namespace.
        interface: String,
        /// Below the interface's folder: "threaded".
        file: String,
    },
    /// A feature of an interface: "on" or "off".
    Feature {
        /// The network namespace, as `ip netns` knows it.
        netns: String,
        /// The interface's name in that namespace.
        interface: String,
        /// As `ethtool -K` names it.
        feature: String,
    },
    /// A kernel parameter of the host, by `sysctl`'s name.
    Kernel {
        /// As `sysctl` writes it: "net.core.busy_poll".
        name: String,
    },
    /// The processors that a thread may use: "0,2-3".
    Affinity {
        /// The thread's kernel id (gettid(2)).
        pid: u32,
        /// When it began, in ticks since the host did: ids are used again.
        start: u64,
    },
    /// A thread's scheduling class and priority: "fifo 2", "rr 1", "other 0".
    Class {
        /// The thread's kernel id (gettid(2)).
        pid: u32,
        /// When the thread began, in ticks since the host did.
        start: u64,
    },
    /// A namespace's nftables rules, as `nft` lists them.
    Ruleset {
        /// The network namespace, as `ip netns` knows it.
        netns: String,
    },
}

/// A setting that a layer has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    /// The setting in question.
    pub setting: Setting,
    /// Its value before, which a revert restores.
    pub former: String,
    /// The value that the layer gave it.
    pub value: String,
}

impl Setting {
    /// Whether what has the setting is still there.
    pub(super) fn exists(&self) -> bool {
        match self {
            Setting::Interface { netns, .. }
            | Setting::Feature { netns, .. }
            | Setting::Ruleset { netns } => {
                Path::new(sonde_sys::netns::DIRECTORY).join(netns).exists()
            }
            Setting::Kernel { name } => Path::new(&kernel_path(name)).exists(),
            Setting::Affinity { pid, start } | Setting::Class { pid, start } => {
                started(*pid) == Some(*start)
            }
        }
    }

    /// Its present value, as [`Setting::write`] takes it.
    pub(super) fn read(&self) -> Result<String, LabError> {
        let text = match self {
            Setting::Interface { netns, interface, file } => {
                Host::of(netns).run(&["cat", &format!("/sys/class/net/{interface}/{file}")])?
            }
            Setting::Feature { netns, interface, feature } => {
                let all = Host::of(netns).run(&["ethtool", "-k", interface])?;
                let prefix = format!("{}: ", shown(feature));
                let found = all.lines().find_map(|l| l.trim().strip_prefix(&prefix));
                let value = found.and_then(|v| v.split_whitespace().next());
                value.map(str::to_owned).ok_or_else(|| {
                    LabError::Bed(format!("{interface} has no feature '{feature}'"))
                })?
            }
            Setting::Kernel { name } => {
                let path = kernel_path(name);
                std::fs::read_to_string(&path).map_err(|e| file_error(Path::new(&path), e))?
            }
            Setting::Affinity { pid, .. } => status(*pid, "Cpus_allowed_list:")?,
            Setting::Class { pid, .. } => {
                // Two lines: "... policy: SCHED_FIFO", "... priority: 1"; flags come after '|'.
                let text = run(&["chrt", "-p", &pid.to_string()])?;
                let last = |l: &str| l.rsplit(' ').next().unwrap_or_default().to_owned();
                let mut lines = text.lines().map(last);
                let class = lines.next().unwrap_or_default();
                let class = class.split('|').next().unwrap_or_default();
                let class = class.trim_start_matches("SCHED_").to_lowercase();
                format!("{class} {}", lines.next().unwrap_or_default())
            }
            Setting::Ruleset { netns } => Host::of(netns).run(&["nft", "-s", "list", "ruleset"])?,
        };
        Ok(text.trim().to_owned())
    }

    /// Gives it a value that [`Setting::read`] may have returned.
    pub(super) fn write(&self, value: &str) -> Result<(), LabError> {
        match self {
            Setting::Interface { netns, interface, file } => {
                let script = "echo \"$2\" > \"$1\"";
                let path = format!("/sys/class/net/{interface}/{file}");
                Host::of(netns).run(&["sh", "-c", script, "sh", &path, value])
            }
            Setting::Feature { netns, interface, feature } => {
                Host::of(netns).run(&["ethtool", "-K", interface, feature, value])
            }
            Setting::Kernel { name } => {
                let path = kernel_path(name);
                return std::fs::write(&path, value).map_err(|e| file_error(Path::new(&path), e));
            }
            Setting::Affinity { pid, .. } => run(&["taskset", "-c", "-p", value, &pid.to_string()]),
            Setting::Class { pid, .. } => {
                let (class, priority) = value.split_once(' ').unwrap_or((value, "0"));
                run(&["chrt", &format!("--{class}"), "-p", priority, &pid.to_string()])
            }
            Setting::Ruleset { netns } => {
                let script = "printf 'flush ruleset\\n%s\\n' \"$1\" | nft -f -";
                Host::of(netns).run(&["sh", "-c", script, "sh", value])
            }
        }
        .map(drop)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Interface { interface, file, .. } => write!(f, "{interface} {file}"),
            Setting::Feature { interface, feature, .. } => write!(f, "{interface} {feature}"),
            Setting::Kernel { name } => f.write_str(name),
            Setting::Affinity { pid, .. } => write!(f, "processors of thread {pid}"),
            Setting::Class { pid, .. } => write!(f, "class of thread {pid}"),
            Setting::Ruleset { netns } => write!(f, "nftables rules of {netns}"),
        }
    }
}

/// When a thread began (proc(5), /proc/PID/stat, field 22); `None`: it is gone.
pub(super) fn started(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    sonde_sys::cpu_time::stat_field(&text, 22)
}

fn status(pid: u32, name: &str) -> Result<String, LabError> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).map_err(|e| file_error(Path::new(&path), e))?;
    Ok(text.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default().trim().to_owned())
}

fn kernel_path(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

/// The name in `ethtool -k` of a feature that `ethtool -K` calls otherwise.
fn shown(feature: &str) -> &str {
    match feature {
        "gro" => "generic-receive-offload",
        other => other,
    }
}
