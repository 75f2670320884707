//! What `sonde doctor` asks about eBPF on this host.

use std::fs;

use crate::error::BTF;
use crate::{BpfError, KernelReflector, KernelReflectorConfig, XskProgram};

/// What this kernel offers to our programs.
#[derive(Debug)]
pub struct BpfSupport {
    /// The kernel describes its own types (CONFIG_DEBUG_INFO_BTF); hardware receive stamps
    /// need it.
    pub btf: bool,
    /// Programs are compiled to machine code; interpreted ones are several times slower.
    /// `None`: the kernel does not show it to this process.
    pub jit: Option<bool>,
    /// Whether the AF_XDP tap loads.
    pub xsk: Result<(), BpfError>,
    /// Whether the kernel reflector loads.
    pub reflector: Result<(), BpfError>,
}

/// Loads each program, attached to nothing, and unloads it again. Takes some 0.1 s.
pub fn bpf_support() -> BpfSupport {
    let config = KernelReflectorConfig { max_sessions: 1, ..KernelReflectorConfig::new(862, &[]) };
    BpfSupport {
        btf: fs::exists(BTF).unwrap_or(false),
        jit: fs::read_to_string(JIT).ok().map(|state| state.trim() != "0"),
        xsk: XskProgram::check(),
        reflector: KernelReflector::load(&config).map(drop),
    }
}

const JIT: &str = "/proc/sys/net/core/bpf_jit_enable";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_is_so_on_this_host() {
        let support = bpf_support();
        // SAFETY: no preconditions.
        if unsafe { libc::geteuid() } == 0 {
            assert!(support.xsk.is_ok() && support.reflector.is_ok(), "{support:?}");
        } else {
            assert!(matches!(support.xsk, Err(BpfError::Privilege { .. })), "{support:?}");
        }
    }
}
