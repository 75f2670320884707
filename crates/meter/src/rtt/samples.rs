//! What becomes of a sample and of a flow's end: statistics, histograms, events, records.

use std::collections::VecDeque;

use sonde_results::rtt::{
    EndReason, GroupKey, RttClass, RttEvents, RttFlow, RttGroupBy, RttKind, RttSample,
};
use sonde_wire::ipv4::PROTOCOL_TCP;

use super::clock::{Clock, EVENT_BITS, ns_to_coarse, ticks_to_ns};
use super::config::Config;
use super::counters::RttCounters;
use super::flow::{Flow, Stats, count};
use super::groups::{GroupId, Groups};
use super::key::{HIDDEN_V4, HIDDEN_V6, Seeds, shown};
use super::prefix::PrefixTable;
use super::requests::Requests;
use super::slots::Pool;

/// All that flows share.
pub(super) struct SharedState {
    pub(super) counters: RttCounters,
    pub(super) pool: Pool,
    pub(super) requests: Requests,
    pub(super) groups: Groups,
    pub(super) samples: VecDeque<RttSample>,
    pub(super) flows: VecDeque<RttFlow>,
    pub(super) hidden: bool,
    group_by: RttGroupBy,
    prefixes: PrefixTable,
    limit: Limit,
    /// By index in the table and side; empty where no limit and no weight was asked for.
    marks: Vec<[Mark; 2]>,
    weight_by_flow: bool,
}

/// A sample as its finder sees it.
pub(super) struct NewSample {
    /// The side that answered.
    pub(super) side: usize,
    pub(super) kind: RttKind,
    pub(super) class: RttClass,
    /// Ticks.
    pub(super) rtt: u32,
}

/// [`RttEvents`] in the units of [`Clock::event_units`].
enum Limit {
    None,
    All,
    Every(u32),
    /// Sixteenths.
    Multiple(u64),
}

/// When a direction last had an event, and last entered a histogram.
#[derive(Clone, Copy, Default)]
struct Mark {
    event: Option<u32>,
    weighed: Option<u16>,
}

impl SharedState {
    pub(super) fn new(config: &mut Config) -> Self {
        let limit = match config.events {
            RttEvents::None => Limit::None,
            RttEvents::All => Limit::All,
            RttEvents::Every(time) => {
                let units = time.as_nanos() >> EVENT_BITS;
                Limit::Every(u32::try_from(units).unwrap_or(u32::MAX))
            }
            RttEvents::RttMultiple(sixteenths) => Limit::Multiple(sixteenths.into()),
        };
        let limited = matches!(limit, Limit::Every(_) | Limit::Multiple(_));
        let marked = if limited || config.weight_by_flow { config.flows } else { 0 };
        SharedState {
            counters: RttCounters::default(),
            pool: Pool::new(config.slot_pages),
            requests: Requests::new(config.flows, Seeds(config.seed)),
            groups: Groups::new(config.groups),
            samples: VecDeque::with_capacity(if matches!(limit, Limit::None) {
                0
            } else {
                SAMPLES
            }),
            flows: VecDeque::with_capacity(FLOWS),
            hidden: config.hide_addresses,
            group_by: config.group_by,
            prefixes: std::mem::take(&mut config.prefixes),
            limit,
            marks: vec![Default::default(); marked],
            weight_by_flow: config.weight_by_flow,
        }
    }

    /// Takes a sample. Its statistics belong to the other side than the one that answered:
    /// that side's data was timed.
    pub(super) fn sample(
        &mut self,
        index: usize,
        flow: &mut Flow,
        stats: &mut Stats,
        found: NewSample,
        clock: &Clock,
    ) {
        let NewSample { side, kind, class, rtt } = found;
        let timed = 1 - side;
        let state = &mut flow.sides[timed];
        let sums = &mut stats.sides[timed];
        match class {
            RttClass::Clean => {
                self.counters.samples_clean += 1;
                // Both or none, so that the mean stays one.
                if sums.samples < u32::MAX {
                    sums.samples += 1;
                    sums.rtt_sum += u64::from(rtt);
                }
                // These hold the application's time too, on a flow that has better ones.
                let beside = kind == RttKind::QuicSpin
                    || (kind == RttKind::Dns && flow.key.protocol() == PROTOCOL_TCP);
                if !beside {
                    state.srtt = match state.srtt {
                        0 => rtt,
                        srtt => srtt.saturating_add_signed((rtt as i32 - srtt as i32) >> 3),
                    };
                    if state.rtt_min == 0 || rtt < state.rtt_min {
                        state.rtt_min = rtt;
                    }
                    sums.ack_history.note(rtt, clock);
                }
            }
            RttClass::Recovery => {
                self.counters.samples_recovery += 1;
                count(&mut sums.samples_recovery);
            }
            RttClass::DelayedAck => {
                self.counters.samples_delayed_ack += 1;
                count(&mut sums.samples_delayed_ack);
            }
        }
        let group = match sums.group {
            Some(group) => group,
            None => {
                let group = self.groups.attach(self.group_key(flow, stats.dscp, side));
                stats.sides[timed].group = Some(group);
                group
            }
        };
        if self.weighs(index, timed, class, clock) {
            self.counters.groups_full += u64::from(group == GroupId::OTHER);
            self.groups.add(group, class, ticks_to_ns(rtt));
        }
        self.event(index, flow, NewSample { side, kind, class, rtt }, clock);
    }

    /// Ends a flow: its record, its pages, its groups.
    pub(super) fn end(
        &mut self,
        flow: &mut Flow,
        stats: &mut Stats,
        reason: EndReason,
        clock: &Clock,
    ) {
        self.counters.flows_ended += 1;
        if self.flows.len() < FLOWS {
            self.flows.push_back(flow.record(stats, reason, clock, self.hidden));
        } else {
            self.counters.flows_lost += 1;
        }
        for side in 0..2 {
            flow.sides[side].ring.release(&mut self.pool);
            if let Some(group) = stats.sides[side].group.take() {
                self.groups.detach(group);
            }
        }
    }

    /// A flow begins at this index.
    pub(super) fn begin(&mut self, index: usize) {
        self.counters.flows += 1;
        if let Some(marks) = self.marks.get_mut(index) {
            *marks = Default::default();
        }
    }

    /// Whether a sample enters its histogram, by the flow's equal weight.
    fn weighs(&mut self, index: usize, timed: usize, class: RttClass, clock: &Clock) -> bool {
        if !self.weight_by_flow || class != RttClass::Clean {
            return true;
        }
        let mark = &mut self.marks[index][timed].weighed;
        let now = clock.coarse as u16;
        let weighs = mark.is_none_or(|last| now.wrapping_sub(last) >= WEIGHT_INTERVAL);
        if weighs {
            *mark = Some(now);
        } else {
            self.counters.unweighted += 1;
        }
        weighs
    }

    fn event(&mut self, index: usize, flow: &Flow, found: NewSample, clock: &Clock) {
        let timed = 1 - found.side;
        let gap = match self.limit {
            Limit::None => return,
            Limit::All => 0,
            Limit::Every(units) => u64::from(units),
            Limit::Multiple(sixteenths) => (u64::from(flow.sides[timed].srtt) * sixteenths) >> 8,
        };
        if gap > 0 {
            let mark = &mut self.marks[index][timed].event;
            let now = clock.event_units();
            // A clock that stepped back lets the event pass.
            let due = mark.is_none_or(|last| {
                u64::try_from(now.wrapping_sub(last) as i32).map_or(true, |since| since >= gap)
            });
            if !due {
                self.counters.events_limited += 1;
                return;
            }
            *mark = Some(now);
        }
        if self.samples.len() == SAMPLES {
            self.counters.events_lost += 1;
            return;
        }
        self.samples.push_back(RttSample {
            at_ns: clock.now.as_nanos(),
            flow: flow.key.flow(found.side, self.hidden),
            kind: found.kind,
            class: found.class,
            rtt_ns: ticks_to_ns(found.rtt),
            min_rtt_ns: ticks_to_ns(flow.sides[timed].rtt_min),
            bytes: flow.sides[found.side].bytes,
            packets: flow.sides[found.side].packets,
            peer_bytes: flow.sides[timed].bytes,
            peer_packets: flow.sides[timed].packets,
        });
    }

    /// The group of what `side` answers.
    fn group_key(&self, flow: &Flow, dscp: u8, side: usize) -> GroupKey {
        let address = shown(flow.key.address(side), self.hidden);
        // Of a hidden address there is nothing to match beyond its prefix.
        let longest = match (self.hidden, address.is_ipv4()) {
            (false, _) => u8::MAX,
            (true, true) => HIDDEN_V4,
            (true, false) => HIDDEN_V6,
        };
        match self.group_by {
            RttGroupBy::Flow => GroupKey::Flow(flow.key.flow(side, self.hidden)),
            RttGroupBy::Prefix => {
                let (address, length) = self.prefixes.prefix_within(address, longest);
                GroupKey::Prefix { address, length }
            }
            // AS 0 is nobody's (RFC 7607).
            RttGroupBy::As => GroupKey::As(self.prefixes.as_within(address, longest).unwrap_or(0)),
            RttGroupBy::Interface => GroupKey::Interface(flow.key.point()),
            RttGroupBy::Vlan => GroupKey::Vlan(flow.key.vlan()),
            RttGroupBy::Dscp => GroupKey::Dscp(dscp),
        }
    }
}

/// Samples that wait to be fetched.
pub(super) const SAMPLES: usize = 16_384;
/// Records that wait to be fetched.
pub(super) const FLOWS: usize = 1_024;
/// 1 s.
const WEIGHT_INTERVAL: u16 = ns_to_coarse(1_000_000_000) as u16 + 1;
