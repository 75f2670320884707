//! Signs of loss towards the hosts of a group, for the rows of the table. Of TCP segments they
//! are those sent again, of requests (echo, DNS, heartbeat) those not answered.

use std::collections::HashMap;

use sonde_results::rtt::{FlowKey, GroupKey, RttFlow};
use sonde_wire::ipv4::PROTOCOL_TCP;

use super::totals::GROUPS_MAX;

/// What went towards the hosts of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// TCP segments sent.
    pub packets: u64,
    /// Those of them sent again.
    pub retransmitted: u64,
    /// Echo, DNS and heartbeat requests sent.
    pub requests: u64,
    /// Those of them whose answer did not come in time.
    pub unanswered: u64,
}

/// Loss by group. At most [`GROUPS_MAX`] groups: what comes later counts only in [`Losses::all`].
#[derive(Clone, Debug, Default)]
pub struct Losses {
    groups: HashMap<GroupKey, Loss>,
    all: Loss,
}

impl Losses {
    /// Adds both directions of a flow. `group` gives the group of the host that is the
    /// source of the key it is called with, as in a sample.
    pub fn add(&mut self, flow: &RttFlow, group: impl Fn(&FlowKey) -> Option<GroupKey>) {
        let tcp = u64::from(flow.flow.protocol == PROTOCOL_TCP);
        // What the client sends is answered by the server, and the other way round.
        let towards = [(&flow.forward, flow.flow.reversed()), (&flow.backward, flow.flow)];
        for (side, answering) in towards {
            let more = Loss {
                packets: tcp * side.packets,
                retransmitted: side.retransmitted,
                requests: side.requests,
                unanswered: side.unanswered,
            };
            if more == Loss::default() {
                continue;
            }
            self.all.add(more);
            let Some(key) = group(&answering) else { continue };
            if self.groups.len() < GROUPS_MAX || self.groups.contains_key(&key) {
                self.groups.entry(key).or_default().add(more);
            }
        }
    }

    /// What was lost towards one group; `None`: nothing is known of it.
    pub fn of(&self, key: &GroupKey) -> Option<Loss> {
        self.groups.get(key).copied()
    }

    /// What was lost towards all groups together.
    pub fn all(&self) -> Loss {
        self.all
    }
}

impl Loss {
    fn add(&mut self, more: Loss) {
        self.packets += more.packets;
        self.retransmitted += more.retransmitted;
        self.requests += more.requests;
        self.unanswered += more.unanswered;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::rtt::RttFlowSide;
    use sonde_results::testing::rtt as sample;

    #[test]
    fn a_retransmission_counts_for_the_host_it_went_to() {
        let flow = &sample::flows()[0];
        let mut losses = Losses::default();
        losses.add(flow, |answering| Some(GroupKey::Flow(*answering)));
        let server = losses.of(&GroupKey::Flow(sample::from_server())).unwrap();
        let client = losses.of(&GroupKey::Flow(sample::from_server().reversed())).unwrap();
        let tcp = |packets, retransmitted| Loss { packets, retransmitted, ..Loss::default() };
        assert_eq!(server, tcp(1_000, 12));
        assert_eq!(client, tcp(4_000, 0));
        assert_eq!(losses.all(), tcp(5_000, 12));
    }

    #[test]
    fn a_group_that_is_not_known_counts_for_all_only() {
        let mut losses = Losses::default();
        losses.add(&sample::flows()[0], |_| None);
        assert_eq!(losses.all().packets, 5_000);
        let mut ping = sample::flows()[0].clone();
        ping.flow.protocol = 1;
        ping.forward = RttFlowSide { packets: 9, ..RttFlowSide::default() };
        losses.add(&ping, |_| Some(GroupKey::Other));
        assert_eq!(losses.of(&GroupKey::Other), None);
        (ping.forward.requests, ping.forward.unanswered) = (9, 2);
        losses.add(&ping, |_| Some(GroupKey::Other));
        let pings = Loss { requests: 9, unanswered: 2, ..Loss::default() };
        assert_eq!(losses.of(&GroupKey::Other), Some(pings));
    }
}
