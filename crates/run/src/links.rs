//! What a link's frames begin with.

use sonde_sys::netlink::Link;

/// Whether its frames begin with an Ethernet header. Links without a link-layer address
/// (tun, PPP, WireGuard) have neither; the loopback has both, all zeros.
pub fn has_ethernet(link: &Link) -> bool {
    link.mac != [0; 6] || link.name == "lo"
}
