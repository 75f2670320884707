//! Why the operating system refused something.

/// Each message says what was tried and names the next step.
#[derive(Debug, thiserror::Error)]
pub enum SysError {
    /// The process may not do this.
    #[error("{what}: not permitted; run as root or give the binary {capability}")]
    Privilege {
        /// What was tried, as a message begins: "open a packet socket".
        what: String,
        /// The capability that allows it.
        capability: &'static str,
    },
    #[error("no interface named '{0}'; 'ip link' lists those of this network namespace")]
    NoInterface(String),
    /// What cannot be a network namespace's name.
    #[error("'{0}' is no name of a network namespace; 'ip netns' lists them")]
    NamespaceName(String),
    /// Anything else the kernel refused.
    #[error("{what}: {cause}{hint}")]
    Io {
        /// What was tried, as a message begins: "open a packet socket".
        what: String,
        /// No `source`: it is in the message, and would be shown twice.
        cause: std::io::Error,
        /// What to do about it; empty or beginning with "; ".
        hint: String,
    },
}
