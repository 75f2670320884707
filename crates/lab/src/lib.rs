//! Network namespaces, veth pairs and ready-made topologies.
//!
//! All of it is set up by the `ip` command, so that a reader can repeat each step by hand. A
//! program runs inside a namespace as a child process ([`Host::command`]). Nothing here changes the
//! machine's own network: all interfaces are created inside the namespaces, and a [`Lab`] removes
//! them.
//!
//! A child gets a fresh `/sys` from `ip netns exec`: file systems mounted below the
//! machine's own, such as `/sys/fs/bpf`, are not seen from inside.

#![forbid(unsafe_code)]

pub mod device;
mod host;
mod lab;
mod relay;
#[cfg(feature = "test-support")]
#[path = "../tests/support/scratch.rs"]
pub mod scratch;
mod topology;
pub mod tune;

pub use host::Host;
pub use lab::{Lab, LinkOptions};
pub use relay::{Impairment, QUEUE, Relay, RelayCounts, RelayReport};
#[cfg(feature = "test-support")]
pub use scratch::{skip, skipped};
pub use sonde_sys::netlink::Mac;
pub use topology::{
    AddressFamily, ROUTER_PROBE_SIDE, ROUTER_REFLECTOR_SIDE, RelayPath, Topology, Uplinks,
};

use sonde_sys::SysError;

/// Why a namespace, link or setting could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A name that cannot become part of a namespace's.
    #[error("'{0}' is no name for a lab or host: use 1 to 32 of a-z, 0-9 and '-'")]
    Name(String),
    /// To make network namespaces needs root.
    #[error("network namespaces need root; run this with sudo")]
    Privilege,
    /// A command cannot be started. The text says the cause, here and below: it is no `source` too,
    /// which would say it twice.
    #[error("cannot run '{command}': {cause}; 'make setup' installs what is needed")]
    Start {
        /// The command line, program first.
        command: String,
        /// Why, as the kernel says it.
        cause: std::io::Error,
    },
    /// A command that ran and reported failure.
    #[error("'{command}' failed ({status}): {message}")]
    Failed {
        /// The command line, which can be repeated by hand.
        command: String,
        /// Its exit status, or the signal that ended it.
        status: std::process::ExitStatus,
        /// What it wrote to standard error.
        message: String,
    },
    /// A namespace that cannot be entered, a socket that cannot be opened in it.
    #[error(transparent)]
    Sys(#[from] SysError),
    /// A bed that cannot be, and why.
    #[error("{0}")]
    Bed(String),
    /// A program of another package.
    #[error("there is no '{program}' here: install it ('apt-get install {package}')")]
    Missing {
        /// The program that is not there.
        program: String,
        /// The package of Debian that has it.
        package: String,
    },
    /// A file or kernel setting.
    #[error("{path}: {cause}{step}", path = path.display(), step = step(cause))]
    File {
        /// The file, or that of the setting below /proc or /sys.
        path: std::path::PathBuf,
        /// Why, as the kernel says it.
        cause: std::io::Error,
    },
    /// The kernel was asked by netlink.
    #[error("cannot {what}: {cause}")]
    Netlink {
        /// What was asked for.
        what: &'static str,
        /// Why, as the kernel says it.
        cause: std::io::Error,
    },
    /// A relay cannot go on.
    #[error("relay: {0}")]
    Relay(std::io::Error),
}

/// What to do about a file that cannot be had.
fn step(cause: &std::io::Error) -> &'static str {
    match cause.kind() {
        std::io::ErrorKind::PermissionDenied => "; this needs root, outside of a container",
        _ => "",
    }
}

impl LabError {
    /// Names the package of a program that cannot be started; any other error stays as it is.
    pub(crate) fn or_missing(self, program: &str, package: &str) -> LabError {
        let absent = match &self {
            LabError::Failed { message, .. } => message.contains("No such file"),
            LabError::Start { .. } => true,
            _ => false,
        };
        match absent {
            true => LabError::Missing { program: program.into(), package: package.into() },
            false => self,
        }
    }
}
