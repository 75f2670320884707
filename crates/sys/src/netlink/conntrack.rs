//! The connections that netfilter tracks.

use std::io;

use super::message::Request;
use super::socket::Socket;

/// Forgets all of them, in the network namespace of this thread: CT_DELETE without a filter
/// (linux/netfilter/nfnetlink_conntrack.h).
///
/// # Errors
/// Not permitted (CAP_NET_ADMIN); a kernel without connection tracking.
pub fn flush_connections() -> io::Result<()> {
    // struct nfgenmsg: any family, version 0.
    let request = Request::new(NFNL_CTNETLINK_DELETE, libc::NLM_F_ACK, &[0; 4]);
    Socket::open(libc::NETLINK_NETFILTER, 0)?.ask(request, |_| ())
}

const NFNL_CTNETLINK_DELETE: u16 = 1 << 8 | 2;
