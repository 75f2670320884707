//! The flow cache: bursts of packets in, records of ended flows out.
//!
//! A burst passes in three strides, so that memory is asked for before it is needed. First keys and
//! hashes, fetching the buckets; then tags, fetching the records; then each packet in turn. The
//! ordinary packet of a known flow ends in [`Hot::count_ordinary`], all others in `unusual`. How
//! flows leave is in `ends`.

mod ends;
mod scan;
mod upper;

use sonde_results::flow::{FlowEnd, FlowRecord};
use sonde_wire::feature::{Feature, Layers, SHAPE_LATER_FRAGMENT};
use sonde_wire::ipv4::PROTOCOL_TCP;

use super::app::AppCounters;
use super::clock::{Clock, ClockChange, clamp};
use super::config::Config;
use super::counters::{Counters, Occupancy};
use super::features::Features;
use super::fragments::Fragments;
use super::hash::Hasher;
use super::key::{self, Addresses, Key, Upper};
use super::prefetch::prefetch;
use super::record::{ACK, CLOSED, FIN, Hot, RST, SYN, WANTS, Warm};
use super::scope::Scope;
use super::table::{HashParts, Index};
use super::wheel::{Closed, Closing, Wheel};
use ends::{EXPIRED_PER_BURST, stride};
pub use scan::Glimpse;

/// Most packets that pass together.
pub const BURST: usize = 32;

/// The flows of one worker.
pub struct FlowCache {
    index: Index,
    /// By slot, like all that follows: of the slots that have been used, in memory for all.
    hot: Vec<Hot>,
    warm: Vec<Warm>,
    /// Of all slots. Only touched for IPv6: without it, there is no memory behind it.
    ipv6: Vec<Addresses>,
    /// How many slots there may be.
    room: usize,
    wheel: Wheel,
    closing: Closing,
    fragments: Fragments,
    features: Features,
    wants_features: bool,
    hasher: Hasher,
    biflow: bool,
    idle_ns: i64,
    active_ns: i64,
    /// First of the free slots that have been used, a list through [`Key::ends`].
    free: u32,
    flows: u32,
    /// Where the search for a flow to evict goes on, and how far apart the slots are that
    /// it meets one after the other.
    hand: u32,
    stride: u32,
    clock: Clock,
    counters: Counters,
    /// Of the burst that passes; kept, for clearing it costs as much as filling it.
    passing: Vec<Passing>,
}

/// A packet on its way through a burst.
#[derive(Clone, Copy)]
struct Passing {
    key: Key,
    parts: HashParts,
    side: u8,
    /// To an ICMP request, whose key this is.
    is_reply: bool,
    /// Where the flow very likely is; [`NOWHERE`]: unknown.
    slot: u32,
    at: i64,
}

impl Passing {
    const EMPTY: Passing = Passing {
        key: Key { ends: 0, rest: 0 },
        parts: HashParts { home: 0, tag: 0 },
        side: 0,
        is_reply: false,
        slot: 0,
        at: 0,
    };
}

/// A frame and where its layers lie; without bytes where only headers were passed.
type Frame<'a> = (&'a [u8], Layers);

impl FlowCache {
    /// An empty cache. Room for all flows is taken now; memory is behind it when there are
    /// flows.
    ///
    /// # Panics
    ///
    /// If [`Config::check`] would refuse the settings.
    pub fn new(config: Config) -> Self {
        if let Err(error) = config.check() {
            panic!("{error}");
        }
        FlowCache {
            index: Index::new(config.flows),
            hot: Vec::with_capacity(config.flows),
            warm: Vec::with_capacity(config.flows),
            ipv6: vec![[0; 4]; config.flows],
            room: config.flows,
            wheel: Wheel::new(config.flows),
            closing: Closing::new(config.flows),
            fragments: Fragments::new(config.flows),
            features: Features::new(&config.features, config.flows),
            wants_features: !config.features.is_empty(),
            hasher: Hasher::new(config.secret)
                .within(Scope::new(config.vlan_in_key, &config.observation_points)),
            biflow: config.biflow,
            idle_ns: config.idle_ns,
            active_ns: config.active_ns,
            free: NOWHERE,
            flows: 0,
            hand: 0,
            stride: stride(config.flows as u32),
            clock: Clock::new(),
            counters: Counters::default(),
            passing: vec![Passing::EMPTY; BURST],
        }
    }

    /// Meters packets in the order in which they came, [`BURST`] at a time. `frames` are
    /// theirs, or empty where only headers were passed. Flows that are over go to `sink`.
    pub fn burst(
        &mut self,
        packets: &[Feature],
        frames: &[(&[u8], Layers)],
        sink: &mut impl FnMut(FlowRecord),
    ) {
        let mut done = 0;
        while done < packets.len() {
            let rest = &packets[done..packets.len().min(done + BURST)];
            let frames = frames.get(done..).unwrap_or_default();
            let (passed, change) = self.pass(rest, frames, sink);
            done += passed;
            self.expire(EXPIRED_PER_BURST, sink);
            if change != ClockChange::Forward {
                self.step(change, clamp(packets[done].at_ns), sink);
            }
        }
    }

    /// Lets time pass: call it every 100 ms or so while no packets come. `now_ns` is TAI, of
    /// the clock that stamps the packets.
    pub fn handle_timeout(&mut self, now_ns: i64, sink: &mut impl FnMut(FlowRecord)) {
        let now = clamp(now_ns);
        let change = self.clock.caller(now);
        if change != ClockChange::Forward {
            self.step(change, now, sink);
        }
        self.expire(usize::MAX, sink);
    }

    /// Ends all flows, whatever is left of their time-outs: metering is over.
    pub fn finish(&mut self, now_ns: i64, sink: &mut impl FnMut(FlowRecord)) {
        self.handle_timeout(now_ns, sink);
        self.end_all(None, sink);
    }

    /// Counts a packet that could not be parsed. `len`: bytes as captured.
    pub fn refused(&mut self, error: sonde_wire::Error, len: usize) {
        self.counters.refuse(error, len);
    }

    /// What has been counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What became of the flows' applications, if they are asked for.
    pub fn app_counters(&self) -> Option<&AppCounters> {
        self.features.app_counters()
    }

    /// How full it is.
    pub fn occupancy(&self) -> Occupancy {
        let counters = &self.counters;
        Occupancy {
            flows: self.flows.into(),
            capacity: self.room as u64,
            packets: counters.packets - counters.exported_packets,
            bytes: counters.bytes - counters.exported_bytes,
        }
    }

    /// Bytes of memory for basic flows: all but the features and the addresses of IPv6. Those take
    /// 32 bytes for each slot, and cost nothing until there is such a flow.
    pub fn memory(&self) -> usize {
        self.room * (size_of::<Hot>() + size_of::<Warm>())
            + self.index.memory()
            + self.wheel.memory()
            + self.closing.memory()
            + self.fragments.memory()
    }

    /// The three strides, up to a packet whose time is a step of the clock: how many passed.
    fn pass(
        &mut self,
        packets: &[Feature],
        frames: &[Frame],
        sink: &mut impl FnMut(FlowRecord),
    ) -> (usize, ClockChange) {
        let mut passing = std::mem::take(&mut self.passing);
        let (len, change) = if self.clock.ordinary(packets) {
            self.hash::<true>(packets, &mut passing)
        } else {
            self.hash::<false>(packets, &mut passing)
        };
        let (passed, packets) = (&mut passing[..len], &packets[..len]);
        self.look(passed);
        if self.wants_features {
            self.fetch_features(passed, frames);
        }
        let (idle, active) = ((self.idle_ns as u64) << 16, self.active_ns as u64);
        let mut rest = passed.iter().zip(packets).enumerate();
        loop {
            let hot = &mut self.hot[..];
            let unusual = rest.find(|(_, (pass, packet))| {
                let Some(hot) = hot.get_mut(pass.slot as usize) else { return true };
                let is_it = hot.key == pass.key && !pass.key.is_ipv6();
                let side = usize::from(pass.side & 1);
                !(is_it && hot.count_ordinary(packet, side, pass.at, idle, active))
            });
            let Some((i, (pass, packet))) = unusual else { break };
            self.unusual(pass, packet, frames.get(i), sink);
        }
        self.passing = passing;
        (len, change)
    }

    /// The first stride: keys and hashes. `TIMED`: the clock has taken the times.
    #[inline(always)]
    fn hash<const TIMED: bool>(
        &mut self,
        packets: &[Feature],
        passing: &mut [Passing],
    ) -> (usize, ClockChange) {
        let (hasher, biflow) = (self.hasher, self.biflow);
        let (mut change, mut len, mut bytes) = (ClockChange::Forward, packets.len(), 0);
        for (i, (packet, pass)) in packets.iter().zip(passing).enumerate() {
            let at = if TIMED { packet.at_ns } else { clamp(packet.at_ns) };
            if !TIMED {
                change = self.clock.packet(at);
                if change != ClockChange::Forward {
                    len = i;
                    break;
                }
            }
            let (upper, is_reply) = if upper::is_plain(packet) {
                (Upper::of(packet), false)
            } else {
                self.upper(packet, at)
            };
            let (key, side) = Key::new(packet, upper, biflow, &hasher);
            let parts = self.index.parts(hasher.key(key.ends, key.rest));
            self.index.prefetch_home(parts);
            *pass = Passing { key, parts, side: side as u8, is_reply, slot: NOWHERE, at };
            bytes += u64::from(packet.ip_len);
        }
        self.counters.packets += len as u64;
        self.counters.bytes += bytes;
        (len, change)
    }

    /// The second stride: tags, which show where flows very likely are.
    #[inline(always)]
    fn look(&self, passing: &mut [Passing]) {
        let mut away = 0u32;
        for (i, pass) in passing.iter_mut().enumerate() {
            if let Some(slot) = self.index.likely_home(pass.parts) {
                pass.slot = slot;
                self.prefetch_slot(slot, &pass.key);
            } else if self.index.is_other_possible(pass.parts) {
                self.index.prefetch_other(pass.parts);
                away |= 1 << i;
            }
        }
        while away != 0 {
            let pass = &mut passing[away.trailing_zeros() as usize];
            if let Some(slot) = self.index.likely_other(pass.parts) {
                pass.slot = slot;
                self.prefetch_slot(slot, &pass.key);
            }
            away &= away - 1;
        }
    }

    /// A stride more where there are features: what the flows keep that want the packets.
    fn fetch_features(&self, passing: &[Passing], frames: &[Frame]) {
        for (i, pass) in passing.iter().enumerate() {
            if self.hot.get(pass.slot as usize).is_some_and(|hot| hot.is(WANTS)) {
                prefetch(&self.warm, pass.slot as usize);
                self.features.prefetch(pass.slot);
                if let Some((bytes, layers)) = frames.get(i) {
                    prefetch(bytes, layers.payload.into());
                }
            }
        }
    }

    #[inline]
    fn prefetch_slot(&self, slot: u32, key: &Key) {
        prefetch(&self.hot, slot as usize);
        if key.is_ipv6() {
            prefetch(&self.ipv6, slot as usize);
        }
    }

    /// A packet that was not counted in passing: IPv6, of a flow that was not found where it
    /// was likely, or out of the ordinary.
    #[inline(never)]
    fn unusual(
        &mut self,
        pass: &Passing,
        packet: &Feature,
        frame: Option<&Frame>,
        sink: &mut impl FnMut(FlowRecord),
    ) {
        let of_first;
        let packet = if packet.shape & SHAPE_LATER_FRAGMENT == 0 {
            packet
        } else {
            of_first = Feature { protocol: pass.key.protocol(), ..*packet };
            &of_first
        };
        let side = usize::from(pass.side & 1);
        let addresses =
            if pass.key.is_ipv6() { key::addresses(packet, side) } else { Addresses::default() };
        let is_it = |slot: u32| {
            self.hot[slot as usize].key == pass.key
                && (!pass.key.is_ipv6() || self.ipv6[slot as usize] == addresses)
        };
        let likely = (pass.slot != NOWHERE && is_it(pass.slot)).then_some(pass.slot);
        let Some(slot) = likely.or_else(|| self.index.find(pass.parts, is_it)) else {
            if pass.is_reply {
                return self.lone_reply(pass, packet, frame, sink);
            }
            return self.create(pass, &addresses, packet, frame, sink);
        };
        if pass.key.is_ipv6() {
            let (idle, active) = ((self.idle_ns as u64) << 16, self.active_ns as u64);
            let hot = &mut self.hot[slot as usize];
            if hot.count_ordinary(packet, side, pass.at, idle, active) {
                return;
            }
        }
        loop {
            match self.is_over(slot, packet, pass.at) {
                None => break,
                // Idle, perhaps, since then: looked at again.
                Some(FlowEnd::Active) => self.renew(slot, sink),
                Some(end) if pass.is_reply => {
                    self.end(slot, end, sink);
                    return self.lone_reply(pass, packet, frame, sink);
                }
                Some(end) => {
                    self.export(slot, end, false, sink);
                    self.begin(slot, pass, packet, frame);
                    self.count(slot, pass, packet, frame, sink);
                    return;
                }
            }
        }
        if self.hot[slot as usize].is_waiting() {
            self.resume(slot, side, pass.at, sink);
        }
        if !self.count(slot, pass, packet, frame, sink) {
            self.renew(slot, sink);
            self.resume(slot, side, pass.at, sink);
            self.count(slot, pass, packet, frame, sink);
        }
    }

    /// An ICMP reply whose request's flow is not there. It is of a flow of its own, so that every
    /// record begins with the packet whose type it reports.
    fn lone_reply(
        &mut self,
        pass: &Passing,
        packet: &Feature,
        frame: Option<&Frame>,
        sink: &mut impl FnMut(FlowRecord),
    ) {
        let protocol = pass.key.protocol();
        // The reply came from the end that has the request's type.
        let request = pass.key.port(usize::from(pass.side & 1));
        let destination_port = upper::reply(protocol, request);
        let upper = Upper { source_port: 0, destination_port, protocol };
        let (key, side) = Key::new(packet, upper, self.biflow, &self.hasher);
        let parts = self.index.parts(self.hasher.key(key.ends, key.rest));
        let own = Passing { key, parts, side: side as u8, is_reply: false, slot: NOWHERE, ..*pass };
        self.unusual(&own, packet, frame, sink);
    }

    /// Whether the flow in `slot` ended before this packet, which then begins another.
    fn is_over(&self, slot: u32, packet: &Feature, at: i64) -> Option<FlowEnd> {
        let hot = &self.hot[slot as usize];
        // A SYN after FIN or RST opens a new connection from the same ports: whoever sends
        // it has left TIME-WAIT (RFC 9293, section 3.6.1).
        if packet.protocol == PROTOCOL_TCP
            && packet.tcp_flags & (SYN | ACK) == SYN
            && (hot.is(CLOSED) || hot.has_finished(0) || hot.has_finished(1))
        {
            return Some(FlowEnd::EndDetected);
        }
        let (deadline, end) = self.deadline(slot);
        (at >= deadline).then_some(end)
    }

    /// Counts a packet to the flow in `slot`; false: a counter of it is full.
    fn count(
        &mut self,
        slot: u32,
        pass: &Passing,
        packet: &Feature,
        frame: Option<&Frame>,
        sink: &mut impl FnMut(FlowRecord),
    ) -> bool {
        let side = usize::from(pass.side & 1);
        let hot = &mut self.hot[slot as usize];
        let last = hot.last(side);
        let pull_back = self.clock.is_future(last);
        let is_late = hot.packets[side] != 0 && pass.at < last;
        if !hot.count(&mut self.warm[slot as usize], packet, side, pass.at, pull_back) {
            return false;
        }
        self.counters.out_of_order += u64::from(is_late);
        if hot.is(WANTS) {
            let reverse = side != hot.initiator();
            let (bytes, layers) = frame.copied().unwrap_or_default();
            let wants = self.features.packet(slot, reverse, packet, bytes, &layers);
            self.hot[slot as usize].set(WANTS, wants);
            self.counters.copies = self.features.copied();
        }
        if packet.protocol == PROTOCOL_TCP && packet.tcp_flags & (FIN | RST) != 0 {
            self.close(slot, sink);
        }
        true
    }

    /// Marks a connection that is closed on both sides, or reset.
    fn close(&mut self, slot: u32, sink: &mut impl FnMut(FlowRecord)) {
        let hot = &mut self.hot[slot as usize];
        let finished = hot.has_finished(0) && (!self.biflow || hot.has_finished(1));
        if hot.is(CLOSED) || (!finished && (hot.flags(0) | hot.flags(1)) & RST == 0) {
            return;
        }
        hot.set(CLOSED, true);
        self.linger(slot, sink);
    }

    /// A closed connection stays for a while.
    pub(super) fn linger(&mut self, slot: u32, sink: &mut impl FnMut(FlowRecord)) {
        let born = self.hot[slot as usize].first as u32;
        let closed = Closed { at: self.clock.monotonic(), slot, born };
        // One of this slot is from before this one, which stands for it.
        if let Some(first) = self.closing.push(closed).filter(|first| first.slot != slot) {
            self.end_closed(first, sink);
        }
    }

    /// A flow that is not there begins with this packet.
    fn create(
        &mut self,
        pass: &Passing,
        addresses: &Addresses,
        packet: &Feature,
        frame: Option<&Frame>,
        sink: &mut impl FnMut(FlowRecord),
    ) {
        let slot = self.take_slot(sink);
        while !self.enter(pass.parts, slot) {
            // Both buckets are full, and nobody in them can move.
            let victim = self.index.neighbours(pass.parts).min_by_key(|&s| self.worth(s));
            let Some(victim) = victim else {
                break;
            };
            self.counters.evicted_crowded += u64::from(!self.hot[victim as usize].is_waiting());
            self.end(victim, FlowEnd::LackOfResources, sink);
        }
        if pass.key.is_ipv6() {
            self.ipv6[slot as usize] = *addresses;
        }
        self.flows += 1;
        self.begin(slot, pass, packet, frame);
        if !self.wheel.is_on(slot) {
            self.enter_wheel(slot);
        }
        self.count(slot, pass, packet, frame, sink);
    }

    fn enter(&mut self, parts: HashParts, slot: u32) -> bool {
        let (hot, hasher) = (&self.hot, &self.hasher);
        let index = &mut self.index;
        let count = index.len();
        index.insert(parts, slot, |s| {
            let key = hot[s as usize].key;
            Index::home(hasher.key(key.ends, key.rest), count)
        })
    }

    /// A flow begins in `slot`, which is in the index under the key.
    fn begin(&mut self, slot: u32, pass: &Passing, packet: &Feature, frame: Option<&Frame>) {
        let hot = &mut self.hot[slot as usize];
        *hot = Hot::new(pass.key, usize::from(pass.side & 1), pass.at);
        self.warm[slot as usize] = Warm::default();
        self.counters.flows += 1;
        if self.wants_features {
            hot.set(WANTS, true);
            let (bytes, layers) = frame.copied().unwrap_or_default();
            self.features.created(slot, packet, bytes, &layers);
        }
    }
}

#[cfg(test)]
impl FlowCache {
    /// Packets and bytes inside, counted one by one.
    pub(super) fn scan_held(&self) -> (u64, u64) {
        let used = self.hot.iter().filter(|hot| hot.key.is_used());
        used.fold((0, 0), |(packets, bytes), hot| {
            (packets + hot.total(), bytes + hot.bytes(0) + hot.bytes(1))
        })
    }

    /// The addresses of the flow in `slot`.
    pub(super) fn addresses_mut(&mut self, slot: u32) -> &mut Addresses {
        &mut self.ipv6[slot as usize]
    }

    /// The two buckets in which a packet's flow would lie.
    pub(super) fn buckets_of(&self, packet: &Feature) -> [u32; 2] {
        let (key, _) = Key::new(packet, Upper::of(packet), self.biflow, &self.hasher);
        self.index.both(self.index.parts(self.hasher.key(key.ends, key.rest)))
    }
}

/// Stands for the slot of a flow that is not known.
const NOWHERE: u32 = u32::MAX;
