//! What applications say in a flow's first packets.
//!
//! One file a protocol. What the first octets are begins its parser, not the port alone. A parser
//! gets the first packets with payload only, and says when it knows enough. A TCP parser sees each
//! direction as one piece from its start, put in order again.
//!
//! Bounds, of a flow: [`MAX_PACKETS`] packets with payload; [`Stream::LIMIT`] octets of each
//! direction; [`text::MAX_TEXT`] octets of each string. Of all flows together: [`OCTETS_PER_FLOW`]
//! for each slot there is room for, beyond the slots themselves. That is to read with; as much
//! again is for what is known. What would need more is counted and left out.

mod dhcp;
mod dns;
mod fingerprint;
mod hello;
mod http;
mod initial;
mod ntp;
mod parse;
mod parser;
mod quic;
mod sip;
mod smtp;
mod ssh;
mod stream;
#[cfg(test)]
mod tests;
mod text;
mod tls;

use sonde_results::flow::App;
use sonde_wire::feature::{Feature, Layers, SHAPE_FRAGMENT, SHAPE_NO_TRANSPORT};
use sonde_wire::ipv4::{PROTOCOL_TCP, PROTOCOL_UDP};
use sonde_wire::tcp::SYN;

use super::prefetch::prefetch;
use super::slots::set_slot;
use crate::counters::counters;
use parse::{Input, Parse as _, RECOGNISABLE, Step};
use parser::Parser;
use stream::Stream;

counters! {
    /// Flows by what became of their applications.
    AppCounters {
        /// Recognised, with something to report.
        identified,
        /// With payload in which nothing was recognised, or nothing that could be read.
        unknown,
        /// Left out, whole or in part, for lack of memory.
        no_memory,
    }
}

/// The applications of all flows, by slot.
pub(super) struct Apps {
    slots: Vec<Slot>,
    /// Octets of flows that are read, and of what is known of those that were.
    held: [usize; 2],
    /// Of each of the two.
    limit: usize,
    /// For flows that will be read.
    spare: Spare,
    counters: AppCounters,
}

#[derive(Default)]
struct Slot {
    state: State,
    /// The sequence number of each direction's first octet, with its bit in `known`.
    start: [u32; 2],
    /// Octets of memory that are charged to it.
    held: u32,
    packets: u8,
    known: u8,
    /// Directions that are not read any more: all is known, or nothing was recognised.
    silent: u8,
    /// Nothing more is read: what became of it has been counted.
    closed: bool,
}

#[derive(Default)]
enum State {
    #[default]
    New,
    Open(Box<Flow>),
    Done(Option<Box<App>>),
}

/// A flow whose parser wants more.
#[derive(Default)]
struct Flow {
    parser: Option<Parser>,
    streams: [Stream; 2],
}

/// Memory of flows that have been read, for the next ones: asking the allocator costs as much
/// as reading.
#[derive(Default)]
struct Spare {
    #[expect(clippy::vec_box, reason = "a box goes into a slot and comes back as it is")]
    flows: Vec<Box<Flow>>,
    /// Of streams, [`Stream::STEP`] octets each. Apart, for most flows need none.
    rooms: Vec<Vec<u8>>,
}

impl Spare {
    fn take(&mut self) -> Box<Flow> {
        self.flows.pop().unwrap_or_default()
    }

    fn room(&mut self) -> Vec<u8> {
        self.rooms.pop().unwrap_or_default()
    }

    fn clear(&mut self, stream: &mut Stream) {
        let room = stream.clear();
        if room.capacity() == Stream::STEP && self.rooms.len() < 2 * SPARE {
            self.rooms.push(room);
        }
    }

    fn give(&mut self, mut flow: Box<Flow>) {
        flow.streams.iter_mut().for_each(|stream| self.clear(stream));
        if self.flows.len() < SPARE {
            flow.parser = None;
            self.flows.push(flow);
        }
    }
}

impl Apps {
    pub(super) fn new(flows: usize) -> Self {
        Apps {
            slots: Vec::with_capacity(flows),
            held: [0; 2],
            limit: flows.saturating_mul(OCTETS_PER_FLOW).max(MIN_OCTETS),
            spare: Spare::default(),
            counters: AppCounters::default(),
        }
    }

    pub(super) fn counters(&self) -> &AppCounters {
        &self.counters
    }

    /// A flow begins; whatever was in the slot is forgotten.
    pub(super) fn created(&mut self, slot: usize) {
        if slot < self.slots.len() {
            self.charge(slot, 0);
        }
        set_slot(&mut self.slots, slot, Slot::default());
    }

    /// Fetches the line of a slot.
    #[inline]
    pub(super) fn prefetch(&self, slot: usize) {
        prefetch(&self.slots, slot);
    }

    /// A packet of the flow. False: no further one is wanted.
    pub(super) fn packet(
        &mut self,
        slot: usize,
        reverse: bool,
        packet: &Feature,
        frame: &[u8],
        layers: &Layers,
    ) -> bool {
        let entry = &mut self.slots[slot];
        if entry.closed {
            return false;
        }
        if frame.is_empty() || ![PROTOCOL_TCP, PROTOCOL_UDP].contains(&packet.protocol) {
            self.close(slot);
            return false;
        }
        if packet.shape & (SHAPE_FRAGMENT | SHAPE_NO_TRANSPORT) != 0 {
            // Its payload is not whole, or not to be found.
            return true;
        }
        let tcp = packet.protocol == PROTOCOL_TCP;
        let mut sequence = packet.sequence;
        if tcp && packet.tcp_flags & u16::from(SYN) != 0 {
            sequence = sequence.wrapping_add(1);
            entry.start[usize::from(reverse)] = sequence;
            entry.known |= 1 << u8::from(reverse);
        }
        let payload = usize::from(layers.payload)..usize::from(layers.end).min(frame.len());
        let data = frame.get(payload).unwrap_or(&[]);
        if data.is_empty() {
            return true;
        }
        let input = Input {
            data,
            length: packet.payload_len() as usize,
            reverse,
            last: false,
            at_ns: packet.at_ns,
            source_port: packet.source_port,
            destination_port: packet.destination_port,
        };
        entry.packets += 1;
        let room = self.limit.saturating_sub(self.held[0]);
        let (step, short) = match tcp {
            true => entry.segment(&input, sequence, room, &mut self.spare),
            false => entry.datagram(&input, room, &mut self.spare),
        };
        self.counters.no_memory += u64::from(short);
        if step == Step::Done || entry.packets == MAX_PACKETS {
            self.close(slot);
            return false;
        }
        if let State::Open(flow) = &entry.state {
            let held = size_of::<Flow>() + flow.held();
            self.charge(slot, held);
        }
        true
    }

    /// What is known of a flow that goes on, whose next packets may add more.
    pub(super) fn so_far(&self, slot: usize) -> Option<App> {
        match &self.slots[slot].state {
            State::New => None,
            State::Done(app) => app.as_deref().cloned(),
            State::Open(flow) => flow.parser.clone().and_then(|parser| flow.concluded(parser)),
        }
    }

    /// The flow is over.
    pub(super) fn ended(&mut self, slot: usize) -> Option<App> {
        self.close(slot);
        self.charge(slot, 0);
        match std::mem::take(&mut self.slots[slot].state) {
            State::Done(app) => app.map(|app| *app),
            _ => None,
        }
    }

    /// No further packet of the flow will be read.
    fn close(&mut self, slot: usize) {
        if self.slots[slot].closed {
            return;
        }
        self.charge(slot, 0);
        let entry = &mut self.slots[slot];
        entry.closed = true;
        entry.conclude(&mut self.spare);
        let State::Done(Some(app)) = &entry.state else {
            self.counters.unknown += u64::from(entry.packets > 0);
            return;
        };
        let held = size_of::<App>() + parser::octets(app);
        if self.held[1] + held > self.limit {
            entry.state = State::Done(None);
            self.counters.no_memory += 1;
            return;
        }
        self.counters.identified += 1;
        self.charge(slot, held);
    }

    /// What the flow in the slot takes from now on.
    fn charge(&mut self, slot: usize, held: usize) {
        let entry = &mut self.slots[slot];
        let sum = &mut self.held[usize::from(entry.closed)];
        *sum = *sum - entry.held as usize + held;
        entry.held = held as u32;
    }
}

impl Slot {
    /// A segment with payload, from `sequence` on. True: memory was short.
    fn segment(
        &mut self,
        input: &Input<'_>,
        sequence: u32,
        room: usize,
        spare: &mut Spare,
    ) -> (Step, bool) {
        let d = usize::from(input.reverse);
        if self.silent & 1 << d != 0 {
            let parser = matches!(&self.state, State::Open(flow) if flow.parser.is_some());
            return (if self.is_hopeless(parser) { Step::Done } else { Step::More }, false);
        }
        if self.known & 1 << d == 0 {
            self.start[d] = sequence;
            self.known |= 1 << d;
        }
        // The start is the first octet: what lies before was sent again.
        let offset = sequence.wrapping_sub(self.start[d]) as i32;
        let old = offset.min(0).unsigned_abs() as usize;
        let offset = offset.max(0) as usize;
        let data = input.data.get(old..).unwrap_or(&[]);
        if data.is_empty() || offset >= Stream::LIMIT {
            return (Step::More, false);
        }
        let data = &data[..data.len().min(Stream::LIMIT - offset)];

        let mut flow = self.open();
        let mut parser = flow.as_mut().and_then(|flow| flow.parser.take());
        let mut step = Step::More;
        let stored = flow.as_ref().is_some_and(|flow| !flow.streams[d].is_empty());
        // In order and in one piece, as most are: nothing is copied before it is needed.
        let direct = offset == 0 && !stored;
        if direct {
            let input = Input { data, last: data.len() == Stream::LIMIT, ..*input };
            step = self.parse(&mut parser, &input);
        }
        let mut short = false;
        if step == Step::More && self.silent & 1 << d == 0 {
            let stream = flow.as_ref().map_or(0, |flow| flow.streams[d].held());
            let need = size_of::<Flow>() + offset + data.len() + Stream::STEP;
            short = need.saturating_sub(stream) > room;
            if short
                && direct
                && let Some(parser) = &mut parser
            {
                parser.input(&Input { data, last: true, ..*input });
            } else if !short {
                let stream = &mut flow.get_or_insert_with(|| spare.take()).streams[d];
                if stream.held() == 0 {
                    stream.lend(spare.room());
                }
                if stream.insert(offset, data) && !direct {
                    let input = Input { data: stream.data(), last: stream.is_full(), ..*input };
                    step = self.parse(&mut parser, &input);
                }
            }
        }
        if short || self.is_hopeless(parser.is_some()) {
            step = Step::Done;
        }
        if step == Step::Other {
            self.silent |= 1 << d;
            if let Some(flow) = &mut flow {
                spare.clear(&mut flow.streams[d]);
            }
        }
        self.put(flow, parser, step, spare);
        (step, short)
    }

    /// A datagram with payload. True: memory was short.
    fn datagram(&mut self, input: &Input<'_>, room: usize, spare: &mut Spare) -> (Step, bool) {
        let mut flow = self.open();
        let mut parser = flow.as_mut().and_then(|flow| flow.parser.take());
        if parser.is_none() {
            parser = Parser::of_datagram(input);
        }
        let Some(known) = &mut parser else {
            let more = self.packets < UNKNOWN_PACKETS || quic::Quic::may_begin_later(input);
            return (if more { Step::More } else { Step::Done }, false);
        };
        let mut step = known.input(input);
        let short = step == Step::More && size_of::<Flow>() + known.held() > room;
        if short {
            step = Step::Done;
        }
        self.put(flow, parser, step, spare);
        (step, short)
    }

    /// Hands a direction's start to its parser, which is chosen first.
    fn parse(&mut self, parser: &mut Option<Parser>, input: &Input<'_>) -> Step {
        if parser.is_none() {
            *parser = Parser::of_stream(input);
        }
        if let Some(parser) = parser {
            return parser.input(input);
        }
        if input.data.len() >= RECOGNISABLE {
            self.silent |= 1 << u8::from(input.reverse);
        }
        Step::More
    }

    /// No parser was found, and none will be: the other direction had its turn, too.
    fn is_hopeless(&self, parser: bool) -> bool {
        !parser && (self.silent == 3 || self.silent != 0 && self.packets >= UNKNOWN_PACKETS)
    }

    fn open(&mut self) -> Option<Box<Flow>> {
        match std::mem::take(&mut self.state) {
            State::Open(flow) => Some(flow),
            _ => None,
        }
    }

    /// Keeps what is needed for the next packet, or what is known after the last.
    fn put(
        &mut self,
        flow: Option<Box<Flow>>,
        mut parser: Option<Parser>,
        step: Step,
        spare: &mut Spare,
    ) {
        self.state = match (step, &mut parser, flow) {
            // What waits in streams may still add something: see `conclude`.
            (Step::Done, Some(parser), None) => State::Done(parser.finish().map(Box::new)),
            (_, None, None) => State::New,
            (_, _, flow) => {
                let mut flow = flow.unwrap_or_else(|| spare.take());
                flow.parser = parser;
                State::Open(flow)
            }
        };
    }

    /// Reads what is there for the last time.
    fn conclude(&mut self, spare: &mut Spare) {
        if let State::Done(_) = self.state {
            return;
        }
        let Some(mut flow) = self.open() else { return };
        let Some(parser) = flow.parser.take() else { return spare.give(flow) };
        self.state = State::Done(flow.concluded(parser).map(Box::new));
        spare.give(flow);
    }
}

impl Flow {
    /// What a parser makes of what waits in the streams, if nothing more comes.
    fn concluded(&self, mut parser: Parser) -> Option<App> {
        for (reverse, stream) in [(false, &self.streams[0]), (true, &self.streams[1])] {
            let data = stream.data();
            if !data.is_empty() {
                parser.input(&Input {
                    data,
                    length: data.len(),
                    reverse,
                    last: true,
                    at_ns: 0,
                    source_port: 0,
                    destination_port: 0,
                });
            }
        }
        parser.finish()
    }

    fn held(&self) -> usize {
        let streams: usize = self.streams.iter().map(Stream::held).sum();
        streams + self.parser.as_ref().map_or(0, Parser::held)
    }
}

/// Most packets with payload that are read of a flow.
const MAX_PACKETS: u8 = 16;
/// Most of a flow in which nothing is recognised.
const UNKNOWN_PACKETS: u8 = 2;
/// Flows whose memory is kept for others, 5 MB at most.
const SPARE: usize = 1024;
/// Memory on average, octets, of each kind.
const OCTETS_PER_FLOW: usize = 512;
/// The same of a small cache, in total.
const MIN_OCTETS: usize = 1 << 20;
const _: () = assert!(size_of::<Slot>() == 32 && size_of::<Flow>() <= 1024);
