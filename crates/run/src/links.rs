//! What the kernel says of links, and what a link's frames begin with.

use sonde_sys::netlink::Link;

/// Whether its frames begin with an Ethernet header. Links without a link-layer address
/// (tun, PPP, WireGuard) have neither; the loopback has both, all zeros.
pub fn has_ethernet(link: &Link) -> bool {
    link.mac != [0; 6] || link.name == "lo"
}

/// The message where the kernel does not let `what` be done.
pub fn netlink(what: &str) -> String {
    format!(
        "cannot {what} by netlink; a sandbox may forbid it, and 'ulimit -n' bounds what is open"
    )
}
