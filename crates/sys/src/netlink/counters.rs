//! What interfaces have counted (IFLA_STATS64), and what their queueing disciplines dropped.

use std::collections::BTreeMap;
use std::io;

use super::link::IFINFOMSG;
use super::message::{Message, Request, attributes, text, u32_at};
use super::socket::Socket;

/// What an interface has counted since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Its name.
    pub name: String,
    /// Its index: another one of the same name has another.
    pub ifindex: u32,
    /// It is no hardware: "veth", "vlan", "bond" and so on.
    pub is_virtual: bool,
    /// What came in.
    pub receive: DirectionCounters,
    /// What went out.
    pub transmit: DirectionCounters,
    /// Packets that its root queueing disciplines dropped; each counts up to 2^32 - 1 and goes on
    /// from 0.
    pub queue_dropped: u32,
}

/// What an interface has counted in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounters {
    /// Octets of frames.
    pub octets: u64,
    /// Packets.
    pub packets: u64,
    /// Packets that were dropped, also for want of room.
    pub dropped: u64,
    /// Packets that were damaged or could not be sent.
    pub errors: u64,
}

/// All interfaces of this thread's network namespace. One without queueing discipline, as most
/// veth are, drops nothing there.
///
/// # Errors
/// The kernel could not be asked.
pub fn link_counters() -> io::Result<Vec<LinkCounters>> {
    let mut socket = Socket::open(libc::NETLINK_ROUTE, 0)?;
    let links = || Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; IFINFOMSG]);
    let mut all = socket.dump(links, counters)?;
    let queues = || Request::new(libc::RTM_GETQDISC, libc::NLM_F_DUMP, &[0; TCMSG]);
    let mut dropped: BTreeMap<u32, u32> = BTreeMap::new();
    // A kernel without queueing disciplines refuses the question: then nothing is dropped there.
    for (ifindex, drops) in socket.dump(queues, root_drops).unwrap_or_default() {
        let sum = dropped.entry(ifindex).or_default();
        *sum = sum.wrapping_add(drops);
    }
    for link in &mut all {
        link.queue_dropped = dropped.get(&link.ifindex).copied().unwrap_or(0);
    }
    Ok(all)
}

fn counters(message: Message<'_>) -> Option<LinkCounters> {
    if message.kind != libc::RTM_NEWLINK {
        return None;
    }
    let mut link = LinkCounters { ifindex: u32_at(message.body, 4)?, ..LinkCounters::default() };
    let mut counted = false;
    for (kind, value) in attributes(message.body, IFINFOMSG) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_LINKINFO => link.is_virtual = true,
            libc::IFLA_STATS64 => {
                // struct rtnl_link_stats64 (linux/if_link.h).
                let at = |n: usize| u64_at(value, 8 * n);
                let missed = at(15).unwrap_or(0);
                link.receive = DirectionCounters {
                    octets: at(2)?,
                    packets: at(0)?,
                    dropped: at(6)?.wrapping_add(missed),
                    errors: at(4)?,
                };
                link.transmit = DirectionCounters {
                    octets: at(3)?,
                    packets: at(1)?,
                    dropped: at(7)?,
                    errors: at(5)?,
                };
                counted = true;
            }
            _ => {}
        }
    }
    counted.then_some(link)
}

/// The interface of a queueing discipline at the root, and what it dropped: its children's drops
/// are among them.
fn root_drops(message: Message<'_>) -> Option<(u32, u32)> {
    // struct tcmsg: family, index, handle, parent, info.
    if message.kind != libc::RTM_NEWQDISC || u32_at(message.body, 12)? != TC_H_ROOT {
        return None;
    }
    let stats = attributes(message.body, TCMSG).find(|&(kind, _)| kind == libc::TCA_STATS2)?.1;
    let queue = attributes(stats, 0).find(|&(kind, _)| kind == TCA_STATS_QUEUE)?.1;
    // struct gnet_stats_queue: length, backlog, drops.
    Some((u32_at(message.body, 4)?, u32_at(queue, 8)?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Length of `struct tcmsg`.
const TCMSG: usize = 20;
/// linux/pkt_sched.h.
const TC_H_ROOT: u32 = u32::MAX;
/// linux/gen_stats.h.
const TCA_STATS_QUEUE: u16 = 3;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::process::Command;

    use sonde_lab::scratch::{in_namespace, ip};

    use super::*;

    fn of(name: &str) -> LinkCounters {
        link_counters().unwrap().into_iter().find(|link| link.name == name).unwrap()
    }

    #[test]
    fn what_is_sent_is_counted_at_both_ends_and_drops_of_a_queue_apart() {
        in_namespace(|| {
            ip("link add a0 type veth peer name b0");
            ip("link set a0 address 02:00:00:00:00:01 arp off up");
            ip("link set b0 arp off up");
            ip("address add 10.0.0.1/24 dev a0");
            let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
            let (a, b) = (of("a0"), of("b0"));
            for _ in 0..10 {
                socket.send_to(&[0; 100], "10.0.0.2:9").unwrap();
            }
            let (sent, received) = (of("a0"), of("b0"));
            assert_eq!(sent.ifindex, a.ifindex);
            // Neighbour discovery of IPv6 may send besides.
            let packets = sent.transmit.packets - a.transmit.packets;
            let octets = sent.transmit.octets - a.transmit.octets;
            assert!(packets >= 10 && octets >= 10 * (100 + 42), "{packets} {octets}");
            assert!(received.receive.packets - b.receive.packets >= 10);
            assert_eq!((sent.queue_dropped, sent.transmit.errors), (0, 0));
            let tc = "qdisc add dev a0 root netem loss 100%";
            let done = Command::new("tc").args(tc.split(' ')).status().unwrap();
            if !done.success() {
                println!("skipped: this kernel has no netem");
                return;
            }
            for _ in 0..5 {
                // The queue may say that it dropped it.
                let _ = socket.send_to(&[0; 100], "10.0.0.2:9");
            }
            assert!(of("a0").queue_dropped >= 5, "{:?}", of("a0"));
        });
    }
}
