//! Traffic with known flows: what a flow meter is tested, compared and loaded with.
//!
//! A [`FlowGenerator`] makes one frame after the other, in time order and from a seed. It
//! reports the truth about each flow when it has ended: what an exact meter without time-outs would
//! report. It holds the open flows and nothing else, and nothing is allocated for a packet.

mod address;
mod app;
mod config;
mod error;
mod flow;
mod fragment;
mod frame;
mod law;
mod recent;
#[cfg(test)]
mod tests;
mod text;
mod truth;

use fastrand::Rng;

use self::address::Tuples;
use self::flow::{Flow, Habits, Transport};
use self::fragment::Fragments;
use self::frame::Filler;
use self::recent::{CountedFrame, Recent};

pub use self::app::{TrafficApp, write_name};
pub use self::config::{
    Config, Encapsulation, Net, PacketOrder, ProtocolWeights, Reorder, Shares, TruthKeys,
};
pub use self::error::{MAX_FLOWS, TrafficError};
pub use self::flow::FlowSideTruth;
pub use self::law::{ArrivalProcess, Length, Sizes};
pub use self::truth::FlowTruth;

pub struct FlowGenerator {
    config: Config,
    rng: Rng,
    tuples: Tuples,
    filler: Filler,
    /// Those that are open.
    flows: Vec<Flow>,
    /// Flows begun so far; those of ICMP and in tunnels among them.
    begun: u64,
    icmp: u64,
    tunnels: u64,
    packets: u64,
    /// Since the start, ns: whole ones up to 104 days.
    offset: f64,
    /// Mean distance of packets, ns.
    mean_gap: f64,
    fragments: Fragments,
    /// Where frames may have to be taken back.
    recent: Option<Recent>,
    /// The frame that was written last.
    latest: CountedFrame,
}

impl FlowGenerator {
    /// Makes ready the first flows.
    pub fn new(config: Config) -> Result<Self, TrafficError> {
        config.check()?;
        let mut rng = Rng::with_seed(config.seed);
        let longest = config.longest_frame();
        let mut generator = FlowGenerator {
            tuples: Tuples::new(rng.u64(..)),
            filler: Filler::new(&mut rng, longest),
            flows: Vec::new(),
            begun: 0,
            icmp: 0,
            tunnels: 0,
            packets: 0,
            offset: 0.0,
            mean_gap: 1e9 / config.rate as f64,
            fragments: Fragments::new(longest),
            recent: None,
            latest: CountedFrame::default(),
            rng,
            config,
        };
        let first = u64::from(generator.config.flows).min(generator.may_begin());
        generator.flows.reserve_exact(first as usize);
        for _ in 0..first {
            let flow = generator.begin();
            generator.flows.push(flow);
        }
        Ok(generator)
    }

    /// Keeps the latest `most` frames, at least 1, for [`FlowGenerator::take_back`]. A flow is
    /// reported so many frames after its end.
    pub fn keep_recent(&mut self, most: usize) {
        self.recent = Some(Recent::new(most.max(1)));
    }

    /// The latest `frames` have not left: the truth is without them. How many were taken back, and
    /// their octets: no more than are kept. Nothing may be emitted after this.
    pub fn take_back(&mut self, frames: u64) -> (u64, u64) {
        let (mut taken, mut octets) = (0, 0);
        while taken < frames
            && let Some(len) = self.recent.as_mut().and_then(|r| r.take_back(&mut self.flows))
        {
            taken += 1;
            octets += u64::from(len);
        }
        self.packets -= taken;
        (taken, octets)
    }

    /// When the next frame is due, ns; `None`: the traffic is over.
    #[inline]
    pub fn next_at(&self) -> Option<i64> {
        let over = self.flows.is_empty()
            || self.config.packets.is_some_and(|most| self.packets >= most)
            || self.config.duration_ns.is_some_and(|most| self.offset >= most as f64);
        (!over).then(|| {
            let offset = self.offset as i64;
            self.config.start_ns + offset - offset % self.config.tick_ns
        })
    }

    /// Writes the frame that is due, as sent at `at_ns` (not before the one before), to the start
    /// of `buffer`. That has room for [`Config::longest_frame`]. Returns the frame's length, 0 if
    /// there is none. Flows that it ends are reported to `truth`.
    pub fn emit(
        &mut self,
        at_ns: i64,
        buffer: &mut [u8],
        truth: &mut impl FnMut(&FlowTruth),
    ) -> usize {
        if self.next_at().is_none() {
            return 0;
        }
        let len = if self.fragments.waiting() {
            self.fragment(at_ns, buffer)
        } else {
            self.packet(at_ns, buffer)
        };
        self.packets += 1;
        if let Some(recent) = &mut self.recent {
            let frame = CountedFrame { len: len as u32, ..self.latest };
            recent.add(frame, self.packets, &self.config, truth);
        }
        self.offset += self.config.arrival.gap(self.mean_gap, &mut self.rng);
        let slot = self.fragments.slot;
        if !self.fragments.waiting() && self.flows[slot].is_over() {
            self.end(slot, truth);
        }
        len
    }

    /// The flow at `slot` is over.
    fn end(&mut self, slot: usize, truth: &mut impl FnMut(&FlowTruth)) {
        let flow = if self.may_begin() > 0 {
            let next = self.begin();
            std::mem::replace(&mut self.flows[slot], next)
        } else {
            self.flows.swap_remove(slot)
        };
        match &mut self.recent {
            Some(recent) => recent.end(flow, self.packets),
            None => truth::report(&self.config, &flow, truth),
        }
    }

    /// Reports the truth about the flows that are still open.
    pub fn finish(mut self, truth: &mut impl FnMut(&FlowTruth)) {
        if let Some(recent) = &mut self.recent {
            recent.finish(&self.config, truth);
        }
        for flow in self.flows.drain(..) {
            truth::report(&self.config, &flow, truth);
        }
    }

    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Flows begun so far; the open ones that have not sent yet among them.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// How many more flows may begin.
    fn may_begin(&self) -> u64 {
        self.config.total_flows.map_or(u64::MAX, |most| most.saturating_sub(self.begun))
    }

    #[inline]
    fn packet(&mut self, at_ns: i64, buffer: &mut [u8]) -> usize {
        let config = &self.config;
        let slot = match config.order {
            PacketOrder::Random => self.rng.usize(..self.flows.len()),
            PacketOrder::RoundRobin => {
                let flows = self.flows.len() as u64;
                ((self.packets % flows) * 0x9E37_79B1 % flows) as usize
            }
        };
        let flow = &mut self.flows[slot];
        let habits =
            Habits { variety: config.variety, sizes: &config.sizes, reorder: config.reorder };
        let (plan, moves) = flow.next(&mut self.rng, &habits, frame::payload_of);
        let written = frame::write(config.net, &self.filler, flow, &plan, buffer);
        if moves && flow.transport == Transport::Tcp {
            flow.sent(plan.side, written.payload);
        }
        self.fragments.slot = slot;
        let cut = config.fragments > 0.0
            && written.payload >= 64
            && !flow.encapsulation.is_tunnel()
            && self.rng.f64() < config.fragments;
        if cut {
            self.fragments.side = plan.side;
            self.fragments.tcp_flags = plan.tcp_flags;
            let pieces = self.rng.usize(2..4);
            self.fragments.take(buffer, written, pieces);
            return self.fragment(at_ns, buffer);
        }
        let outer = flow.encapsulation.is_tunnel() && config.keys == TruthKeys::Outer;
        let bytes = if outer { written.outer_len } else { written.ip_len };
        self.count(slot, plan.side, at_ns, bytes as u32, plan.tcp_flags);
        written.len
    }

    /// Counts a packet of the flow at `slot`.
    #[inline]
    fn count(&mut self, slot: usize, side: u8, at_ns: i64, bytes: u32, tcp_flags: u8) {
        let flow = &mut self.flows[slot];
        let counted = &mut flow.sides[usize::from(side)];
        self.latest = CountedFrame { flow: flow.index, slot, side, len: 0, before: *counted };
        counted.count(at_ns, bytes, tcp_flags);
    }

    /// The next fragment of the packet that is being cut.
    fn fragment(&mut self, at_ns: i64, buffer: &mut [u8]) -> usize {
        let Some(fragment) = self.fragments.next(buffer) else { return 0 };
        let flags = if fragment.first { self.fragments.tcp_flags } else { 0 };
        let (len, ip_len) = (fragment.len, fragment.ip_len as u32);
        self.count(self.fragments.slot, self.fragments.side, at_ns, ip_len, flags);
        len
    }

    /// Draws the next flow.
    fn begin(&mut self) -> Flow {
        let (config, rng) = (&self.config, &mut self.rng);
        let index = self.begun;
        self.begun += 1;
        let mut flow = Flow::new(index, config.sizes.draw(rng), [rng.u32(..), rng.u32(..)]);
        if config.order == PacketOrder::RoundRobin {
            flow.tuple = address::in_turn(config.net, index as u32);
            flow.server_port = SERVER_PORTS;
            flow.ttl = [64; 2];
            flow.length = u32::MAX;
            return flow;
        }
        flow.length = config.length.draw(rng);
        let ProtocolWeights { tcp, udp, icmp } = config.protocols;
        let point = rng.f64() * (tcp + udp + icmp);
        flow.transport = match point {
            p if p < tcp => Transport::Tcp,
            p if p < tcp + udp => Transport::Udp,
            _ => Transport::Icmp,
        };
        flow.is_v6 = rng.f64() < config.ipv6;
        let mut point = rng.f64();
        for (encapsulation, share) in config.encapsulation.all() {
            if (0.0..share).contains(&point) {
                flow.encapsulation = encapsulation;
            }
            point -= share;
        }
        let speaks = rng.f64() < config.apps;
        flow.app = match flow.transport {
            Transport::Udp if speaks => TrafficApp::Dns,
            Transport::Tcp if speaks && rng.bool() => TrafficApp::Http,
            Transport::Tcp if speaks => TrafficApp::Tls,
            _ => TrafficApp::None,
        };
        flow.tuple = self.tuples.tuple(index);
        if flow.transport == Transport::Icmp {
            // Without ports the hosts alone must distinguish flows.
            flow.tuple.hosts = self.tuples.pair(self.icmp);
            self.icmp += 1;
        }
        if flow.encapsulation.is_tunnel() {
            flow.outer = self.tuples.pair(self.tunnels);
            self.tunnels += 1;
        }
        let other = SERVER_PORTS + (index % 1000) as u16;
        flow.server_port = flow.app.port().unwrap_or(other);
        flow.tos = [0, 0, 0, 0x28, 0x48, 0x88, 0xB8, 0x20][rng.usize(..8)];
        flow.ttl = [64 - rng.u8(..16), 128 - rng.u8(..16)];
        flow
    }
}

/// First port of servers that speak nothing known.
const SERVER_PORTS: u16 = 20_000;
