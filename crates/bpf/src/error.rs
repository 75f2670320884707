//! Why a program cannot be loaded, attached or used. Each message names the next step.

use std::io;

/// An eBPF program could not be loaded, attached or used.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// The process may not do this.
    #[error(
        "{what}: not permitted; run as root or give the binary CAP_BPF, CAP_NET_ADMIN and \
         CAP_PERFMON"
    )]
    Privilege {
        /// What was tried.
        what: &'static str,
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
        /// The interface.
        ifindex: u32,
        /// Name and id of the other program as far as the kernel tells.
        program: String,
    },
    /// The kernel's verifier refused the program, or the kernel lacks something it needs.
    #[error(
        "the kernel refused the eBPF program: {reason}; Linux 6.1 or later with \
         CONFIG_DEBUG_INFO_BTF and CONFIG_XDP_SOCKETS is needed ('sonde doctor' checks)"
    )]
    Verifier {
        /// What libbpf said, at most its last lines.
        reason: String,
    },
    /// The driver cannot run XDP in this mode.
    #[error("interface {ifindex} cannot run XDP in {mode} mode: {source}; {hint}")]
    Mode {
        /// The interface.
        ifindex: u32,
        /// "native" or "generic".
        mode: &'static str,
        /// The kernel's answer.
        source: io::Error,
        /// What to try instead.
        hint: &'static str,
    },
    /// The settings cannot work.
    #[error("{0}")]
    Config(String),
    /// Anything else that the kernel refused.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl BpfError {
    /// A failed operation on a program or map that is loaded already.
    pub(crate) fn io(what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => BpfError::Privilege { what },
            _ => BpfError::Io { what, source },
        }
    }
}
