//! Why a program cannot be loaded, attached or used. Each message names the next step.

use std::fs;
use std::io;

/// An eBPF program could not be loaded, attached or used.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// The process may not do this.
    #[error("{what}: not permitted; {advice}")]
    Privilege {
        /// What was tried, as a message begins: "load the reflector program".
        what: &'static str,
        /// What this process lacks, as far as it is known, and what to do.
        advice: String,
    },
    /// No interface has this index.
    #[error("no interface with index {0}; 'ip link' lists those of this network namespace")]
    NoInterface(u32),
    /// Another XDP program holds the interface.
    #[error(
        "interface {ifindex} already runs XDP program {program}; see it with 'ip link show' and \
         'bpftool net', stop its owner or remove it with 'ip link set dev NAME xdp off'"
    )]
    Busy {
        ifindex: u32,
        /// Name and id of the other program as far as the kernel reports them.
        program: String,
    },
    /// The kernel's verifier refused the program, or the kernel lacks something it needs.
    #[error("the kernel refused the eBPF program: {reason}; {advice}")]
    Verifier {
        /// What libbpf said, at most its last lines.
        reason: String,
        /// What the kernel lacks, as far as it is known, and what to do.
        advice: String,
    },
    /// There is no memory for the program's tables.
    #[error(
        "{what}: no memory for the tables, which count against this process's control group \
         ('memory.max'); allow more, or take smaller tables"
    )]
    Memory {
        /// What was tried, as a message begins: "load the reflector program".
        what: &'static str,
    },
    /// The driver cannot run XDP in this mode.
    #[error("interface {ifindex} cannot run XDP in {mode} mode: {cause}; {hint}")]
    Mode {
        ifindex: u32,
        /// "native" or "generic": in the driver, or behind it.
        mode: &'static str,
        /// No `source`: it is in the message, and would be shown twice.
        cause: io::Error,
        /// What to try instead.
        hint: &'static str,
    },
    /// The settings cannot work.
    #[error("{0}")]
    Config(String),
    /// Anything else that the kernel refused.
    #[error("{what}: {cause}")]
    Io {
        /// What was tried, as a message begins: "load the reflector program".
        what: &'static str,
        /// No `source`: it is in the message, and would be shown twice.
        cause: io::Error,
    },
}

impl BpfError {
    /// A refusal for want of privilege.
    pub(crate) fn privilege(what: &'static str) -> Self {
        BpfError::Privilege { what, advice: privilege_advice(&Privileges::read()) }
    }

    /// What libbpf could not do, by its error code if there is one, and its last message.
    pub(crate) fn loading(what: &'static str, errno: Option<i32>, reason: String) -> Self {
        let lacking = || !Privileges::read().lacking().is_empty();
        match errno {
            Some(libc::EPERM) => BpfError::privilege(what),
            // The verifier says it of programs too; without CAP_PERFMON of many more.
            Some(libc::EACCES) if lacking() => BpfError::privilege(what),
            Some(libc::ENOMEM) => BpfError::Memory { what },
            _ => {
                let release = fs::read_to_string(OSRELEASE).unwrap_or_default();
                let btf = fs::exists(BTF).unwrap_or(false);
                BpfError::Verifier { reason, advice: kernel_advice(errno, release.trim(), btf) }
            }
        }
    }

    /// A failed operation on a program or map that is loaded already.
    pub(crate) fn io(what: &'static str, cause: io::Error) -> Self {
        match cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => BpfError::privilege(what),
            _ => BpfError::Io { what, cause },
        }
    }
}

/// What decides whether the kernel lets this process use eBPF.
struct Privileges {
    /// The effective capabilities, as bits.
    capabilities: u64,
    /// This is not the host's own user namespace: the kernel asks for capabilities there.
    user_namespace: bool,
}

impl Privileges {
    fn read() -> Self {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        Privileges {
            capabilities: mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0),
            user_namespace: !users.split_whitespace().eq(["0", "0", "4294967295"]),
        }
    }

    /// The capabilities that are missing, by name.
    fn lacking(&self) -> Vec<&'static str> {
        let has = |bit: u32| self.capabilities >> bit & 1 == 1;
        NEEDED
            .into_iter()
            .filter(|&(_, bit, by_admin)| !(has(bit) || (by_admin && has(CAP_SYS_ADMIN))))
            .map(|(name, ..)| name)
            .collect()
    }
}

fn privilege_advice(privileges: &Privileges) -> String {
    let lacking = privileges.lacking();
    if !lacking.is_empty() {
        return format!(
            "this process lacks {}: run as root, or 'setcap cap_bpf,cap_net_admin,cap_perfmon+ep' \
             the binary; in a container, add these capabilities to it",
            lacking.join(", ")
        );
    }
    if privileges.user_namespace {
        return "this is the root of a user namespace (a container without root), and the kernel \
                asks for the host's: run it outside"
            .into();
    }
    "the capabilities are there, so it is a seccomp filter that refuses (a container's: allow \
     bpf(2)), a security module (see 'dmesg'), or lockdown ('cat \
     /sys/kernel/security/lockdown')"
        .into()
}

/// `release` is the running kernel's; `btf`: it describes its own types.
fn kernel_advice(errno: Option<i32>, release: &str, btf: bool) -> String {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let version: (u32, u32) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if errno == Some(libc::ENOSYS) {
        return format!("Linux {release} here has no bpf(2): it needs CONFIG_BPF_SYSCALL");
    }
    if version < OLDEST {
        return format!("this is Linux {release}; {}.{} or later is needed", OLDEST.0, OLDEST.1);
    }
    let types = if btf {
        ""
    } else {
        "; it does not describe its types (CONFIG_DEBUG_INFO_BTF), which AF_XDP's hardware stamps \
         need"
    };
    format!("this is Linux {release}, which is new enough{types}; 'sonde doctor' may say more")
}

/// Name, bit (`include/uapi/linux/capability.h`), and whether CAP_SYS_ADMIN stands for it.
const NEEDED: [(&str, u32, bool); 3] =
    [("CAP_BPF", 39, true), ("CAP_NET_ADMIN", 12, false), ("CAP_PERFMON", 38, true)];
const CAP_SYS_ADMIN: u32 = 21;
/// The first kernel with all that the programs call (`bpf_ktime_get_tai_ns`).
const OLDEST: (u32, u32) = (6, 1);
const OSRELEASE: &str = "/proc/sys/kernel/osrelease";
pub(crate) const BTF: &str = "/sys/kernel/btf/vmlinux";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capabilities_that_are_missing_are_named() {
        let lacking =
            |capabilities| Privileges { capabilities, user_namespace: false }.lacking().join(" ");
        assert_eq!(lacking(0), "CAP_BPF CAP_NET_ADMIN CAP_PERFMON");
        assert_eq!(lacking(1 << 39 | 1 << 12), "CAP_PERFMON");
        assert_eq!(lacking(1 << 21), "CAP_NET_ADMIN");
        assert_eq!(lacking(1 << 21 | 1 << 12), "");
        assert_eq!(lacking(u64::MAX), "");
    }

    #[test]
    fn the_advice_fits_what_is_missing() {
        let advice = |capabilities, user_namespace| {
            privilege_advice(&Privileges { capabilities, user_namespace })
        };
        assert!(advice(1 << 39, false).contains("lacks CAP_NET_ADMIN, CAP_PERFMON: run as root"));
        assert!(advice(u64::MAX, true).contains("user namespace"));
        assert!(advice(u64::MAX, false).contains("seccomp"));
    }

    #[test]
    fn an_old_kernel_is_distinguished_from_one_that_lacks_something() {
        let old = kernel_advice(Some(libc::EINVAL), "5.10.0-28-amd64", true);
        assert!(old.contains("this is Linux 5.10.0-28-amd64; 6.1 or later"), "{old}");
        for release in ["6.1.0-13-amd64", "6.18.44", "10.0"] {
            assert!(kernel_advice(Some(libc::EINVAL), release, true).contains("new enough"));
        }
        assert!(kernel_advice(None, "6.18.44", false).contains("CONFIG_DEBUG_INFO_BTF"));
        assert!(!kernel_advice(None, "6.18.44", true).contains("CONFIG_DEBUG_INFO_BTF"));
        let none = kernel_advice(Some(libc::ENOSYS), "4.9.0", true);
        assert!(none.contains("CONFIG_BPF_SYSCALL"), "{none}");
    }
}
