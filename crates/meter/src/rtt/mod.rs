//! Passive round-trip times: what passes a monitor towards a host is timed until the first
//! packet that proves it was answered.
//!
//! The rules are on one page, `docs/design/rtt-matching.md`; the eBPF program (`bpf/c/rtt*.h`)
//! obeys the same page and finds the same samples. What a packet costs is one lookup: everything
//! that its flow waits for lies in the flow's own entry.

mod ack_history;
mod away;
mod clock;
mod config;
mod config_error;
mod counters;
mod exchange;
mod far_segments;
mod filter;
mod flow;
mod groups;
mod handshake;
mod held;
mod key;
mod noted_syn;
mod other;
mod packet;
mod prefix;
mod quic;
mod requests;
mod samples;
mod seen;
mod slots;
mod spin;
mod table;
mod tcp;
mod variation;

#[cfg(test)]
mod tests;

pub use config::Config;
pub use config_error::ConfigError;
pub use counters::RttCounters;
pub use filter::RttFilter;
pub(crate) use filter::either_end;
pub use prefix::{PrefixFileError, PrefixTable};

use sonde_results::rtt::{Coverage, EndReason, RttFlow, RttGroup, RttSample};
use sonde_wire::flow::{Detail, FlowPacket, Quic, Tcp};
use sonde_wire::tcp::RST;
use sonde_wire::{Error, Time};

use clock::Clock;
use exchange::Exchange;
use flow::{Flow, Stats, TcpSide};
use handshake::Begins;
use key::{Key, Seeds};
use packet::Packet;
use samples::SharedState;
use seen::Duplicates;
use table::{Table, Vacancy};

/// Finds round-trip times in the packets that it is shown, in the order in which they
/// passed. Its memory is set by its [`Config`]; once it runs, only new groups allocate.
pub struct Matcher {
    table: Table,
    shared: SharedState,
    filter: RttFilter,
    seen: Duplicates,
    hide: Option<Seeds>,
    vlan_in_key: bool,
    /// The last time it was given.
    now: Time,
    /// After [`Matcher::finish`]: the next index whose flow is to be ended.
    finishing: Option<usize>,
}

impl Matcher {
    /// A matcher with an empty table. Call [`Config::check`] before: settings out of range
    /// are brought into it here.
    pub fn new(mut config: Config) -> Self {
        config.flows = config.flows.clamp(8, 1 << 24).next_power_of_two();
        let seeds = Seeds(config.seed);
        Matcher {
            table: Table::new(config.flows, seeds),
            shared: SharedState::new(&mut config),
            filter: config.filter,
            vlan_in_key: config.vlan_in_key,
            seen: Duplicates::new(),
            hide: config.hide_addresses.then_some(seeds),
            now: Time::ZERO,
            finishing: None,
        }
    }

    /// A packet that passed interface `point` at `now`. `segments`: how many packets of the
    /// wire it stands for (generic segmentation or receive offload), else 1.
    pub fn input(&mut self, point: u8, packet: &FlowPacket, segments: u16, now: Time) {
        self.now = now;
        let clock = &Clock::new(now);
        let segments = segments.max(1);
        self.shared.counters.packets += u64::from(segments);
        if !self.filter.matches(packet) {
            self.shared.counters.filtered += u64::from(segments);
            return;
        }
        if let Detail::Tcp(Tcp { bad_options: true, .. }) = packet.detail {
            self.shared.counters.malformed += 1;
        }
        let vlan = if self.vlan_in_key { packet.vlan } else { 0 };
        let (key, side) = Key::new(point, vlan, packet, self.hide);
        let Some((index, fresh)) = self.flow_of(key, side, packet, segments, clock) else { return };
        let again = self.seen.note(index, side, packet, clock);
        let (flow, stats) = self.table.get(index);
        if again && !fresh && !seen::may_differ(packet, flow.tcp[side].has(TcpSide::TOLD)) {
            self.shared.counters.duplicated += u64::from(segments);
            return;
        }
        let at = &Packet { index, side, segments, ip_len: packet.ip_len, clock };
        if !fresh && !flow.is_closed() && !clock.is_recent(flow.last) {
            flow.pause(&mut self.shared.pool, &mut self.shared.counters);
        }
        flow.sides[side].packets += u64::from(segments);
        // Each packet on the wire had the headers.
        let headers = u64::from(segments - 1) * u64::from(packet.header_len());
        flow.sides[side].bytes += u64::from(packet.ip_len) + headers;
        if packet.tos & ECN == CONGESTION_EXPERIENCED {
            flow::count(&mut stats.sides[side].ce_marks);
        }
        if flow.is_closed() {
            // Its time-out runs on, so that a forged RST silences a flow only for so long.
            return;
        }
        flow.last = clock.coarse;
        if !packet.is_matchable() {
            return;
        }
        match packet.detail {
            Detail::Tcp(ref tcp) => tcp::input(flow, stats, tcp, at, fresh, &mut self.shared),
            Detail::Quic(quic) => quic::input(flow, stats, quic, at, &mut self.shared),
            ref detail => {
                if let Some(exchange) = Exchange::of(detail) {
                    other::input(flow, stats, exchange, at, &mut self.shared);
                }
            }
        }
    }

    /// A frame that parsing refused.
    pub fn refused(&mut self, error: Error) {
        let counters = &mut self.shared.counters;
        *match error {
            Error::Fragment => &mut counters.fragments,
            Error::EtherType => &mut counters.not_ip,
            Error::Protocol | Error::Type => &mut counters.other_protocol,
            _ => &mut counters.malformed,
        } += 1;
    }

    /// Ends flows whose time-out has passed, in a sixteenth of the table: call it every
    /// 100 ms or so of the packets' time. Samples do not depend on when it is called.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        let clock = &Clock::new(now);
        for _ in 0..(self.table.len() / 16).max(1) {
            if self.shared.flows.len() >= samples::FLOWS {
                return;
            }
            let index = self.table.next();
            if !self.table.is_used(index) {
                continue;
            }
            let (flow, stats) = self.table.get(index);
            if flow.is_idle(clock) {
                self.shared.end(flow, stats, EndReason::Idle, clock);
                self.table.remove(index);
            } else {
                for side in &mut flow.sides {
                    side.ring.release_if_empty(&mut self.shared.pool);
                }
            }
        }
    }

    /// The next sample of those that the limit lets through, oldest first. At most 16,384
    /// wait; more are counted as `events_lost`.
    pub fn poll_sample(&mut self) -> Option<RttSample> {
        self.shared.samples.pop_front()
    }

    /// The next flow that has ended, oldest end first. At most 1,024 wait, then those
    /// that packets end are counted as `flows_lost`; the sweep and [`Matcher::finish`] wait.
    pub fn poll_flow(&mut self) -> Option<RttFlow> {
        while self.shared.flows.is_empty() {
            let index = self.finishing.filter(|&index| index < self.table.len())?;
            self.finishing = Some(index + 1);
            if self.table.is_used(index) {
                self.end(index, EndReason::Stopped, &Clock::new(self.now));
            }
        }
        self.shared.flows.pop_front()
    }

    /// The flows that have not ended, as they stand.
    pub fn open_flows(&self) -> impl Iterator<Item = RttFlow> {
        let (clock, hidden) = (Clock::new(self.now), self.shared.hidden);
        self.table
            .iter()
            .map(move |(flow, stats)| flow.record(stats, EndReason::Open, &clock, hidden))
    }

    /// The groups with samples since the last call, which was at `start_ns`; now is `end_ns`.
    pub fn take_groups(&mut self, start_ns: i64, end_ns: i64) -> Vec<RttGroup> {
        self.shared.groups.take(start_ns, end_ns)
    }

    /// What was seen and what was left out so far.
    pub fn coverage(&self) -> Coverage {
        let counters = self.shared.counters.iter();
        Coverage { counters: counters.map(|(name, n)| (name.to_owned(), n)).collect() }
    }

    /// The same as integers, to take differences of.
    pub fn counters(&self) -> RttCounters {
        self.shared.counters
    }

    /// The measurement ends: from now on [`Matcher::poll_flow`] ends the flows that are left,
    /// one at a time, and packets must not come any more.
    pub fn finish(&mut self, now: Time) {
        self.now = now;
        self.finishing = Some(0);
    }

    /// The index of a packet's flow, and whether it begins with this packet.
    fn flow_of(
        &mut self,
        key: Key,
        side: usize,
        packet: &FlowPacket,
        segments: u16,
        clock: &Clock,
    ) -> Option<(usize, bool)> {
        let bucket = self.table.locate(&key);
        let found = self.table.find(&key, bucket);
        let mut syn = None;
        if let Some(index) = found {
            let (flow, stats) = self.table.get(index);
            let begins = match packet.detail {
                _ if flow.is_idle(clock) => None,
                Detail::Tcp(ref tcp) if packet.is_matchable() => {
                    Some(handshake::begins(flow, stats, tcp, side))
                }
                _ => Some(Begins::No),
            };
            match begins {
                None => self.end(index, EndReason::Idle, clock),
                Some(Begins::No) => return Some((index, false)),
                Some(Begins::Anew) => self.end(index, EndReason::Reuse, clock),
                Some(Begins::With(noted)) => {
                    let (from, ip_len) = noted.packet();
                    flow.sides[from].packets -= 1;
                    flow.sides[from].bytes -= u64::from(ip_len);
                    self.end(index, EndReason::Reuse, clock);
                    syn = Some(noted);
                }
            }
        }
        if !begins_flow(packet) {
            self.shared.counters.untracked_kind += u64::from(segments);
            return None;
        }
        let index = match found.map(Vacancy::Free).or_else(|| self.table.vacancy(bucket.0, clock)) {
            Some(Vacancy::Free(index)) => index,
            Some(Vacancy::Victim(index)) => {
                let idle = self.table.get(index).0.is_idle(clock);
                self.end(index, if idle { EndReason::Idle } else { EndReason::Evicted }, clock);
                index
            }
            None => {
                self.shared.counters.untracked_full += u64::from(segments);
                return None;
            }
        };
        let client = if from_client(packet) { side } else { 1 - side };
        let stats = Stats {
            first: clock.coarse,
            first_ns: clock.beyond_coarse(),
            dscp: packet.tos >> 2,
            ..Stats::default()
        };
        let mut flow = Flow::new(key, client, clock);
        if let Some(syn) = syn {
            let (from, ip_len) = syn.packet();
            flow.sides[from].packets = 1;
            flow.sides[from].bytes = ip_len.into();
            handshake::begin(&mut flow, &syn);
        }
        self.table.insert(index, bucket.1, flow, stats);
        self.shared.begin(index);
        Some((index, syn.is_none()))
    }

    /// Ends the flow at an index and frees it. A closed one keeps its own reason.
    fn end(&mut self, index: usize, reason: EndReason, clock: &Clock) {
        let (flow, stats) = self.table.get(index);
        self.shared.end(flow, stats, reason, clock);
        self.table.remove(index);
    }
}

/// Whether a packet of no flow begins one: only what can be timed.
fn begins_flow(packet: &FlowPacket) -> bool {
    packet.is_matchable()
        && match packet.detail {
            Detail::Tcp(tcp) => tcp.flags & RST == 0,
            Detail::Quic(Quic::Short { .. } | Quic::Restart) | Detail::Other => false,
            Detail::Quic(_)
            | Detail::Echo { .. }
            | Detail::Dns { .. }
            | Detail::Heartbeat { .. } => true,
        }
}

/// Whether the first packet of a flow came from its client. TCP's SYN knows better.
fn from_client(packet: &FlowPacket) -> bool {
    match packet.detail {
        Detail::Tcp(_) => packet.destination_port < packet.source_port,
        ref detail => Exchange::of(detail).is_none_or(|exchange| !exchange.answer),
    }
}

const ECN: u8 = 3;
const CONGESTION_EXPERIENCED: u8 = 3;
