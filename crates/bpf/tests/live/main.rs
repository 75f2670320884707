//! The programs on interfaces in network namespaces: what is attached, what passes, what stays
//! behind. All in one binary, so that only one is linked.

#[path = "../common/mod.rs"]
mod common;

mod flow;
mod reflect_live;
mod rtt_attach;
mod rtt_live;
mod rtt_refused;
mod rtt_tags;
mod xsk;
