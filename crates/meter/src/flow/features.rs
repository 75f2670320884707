//! What a flow record holds beyond the basic one. It is kept apart from the flow cache, indexed by
//! its slots, and there only for what was asked for.
//!
//! Memory of a flow, bytes, whether the slot is used or not. They are `link` 80, `packets` 16 each
//! and 16, `spread` 144, `tcp` at most 144, `apps` 32. Room for it is taken at the start. What
//! applications say takes more where there is something to keep: see `app.rs`.

mod link;
mod spread;
mod tcp;
#[cfg(test)]
mod tests;

use sonde_results::flow::{App, FlowExtra, FlowPacketInfo};
use sonde_wire::feature::{Feature, Layers, SHAPE_FRAGMENT, SHAPE_NO_TRANSPORT};
use sonde_wire::ipv4::PROTOCOL_TCP;

use super::app::{AppCounters, Apps};
use super::prefetch::{prefetch, prefetch_end};
use super::slots::set_slot;
use link::LinkFeatures;
use spread::Spread;
use tcp::{SegmentHeader, TcpFeatures};

use crate::copies::{APART, DuplicateDetector, MOMENT_BITS};

/// What is asked for. The default is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// MAC addresses, inner VLAN, MPLS labels and tunnel of the first packet.
    pub link: bool,
    /// How many of the first packets with payload are listed; 0: none.
    pub packets: u8,
    /// Histograms of lengths and of times between packets.
    pub spread: bool,
    /// Handshake, loss, reordering and windows of TCP.
    pub tcp: bool,
    /// What the application says.
    pub apps: bool,
}

impl Config {
    /// Nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Config::default()
    }
}

/// The state of all flows. A slot counts from [`Features::created`] to
/// [`Features::ended`].
pub struct Features {
    config: Config,
    link: Vec<LinkFeatures>,
    /// `config.packets` of each slot.
    packets: Vec<FlowPacketInfo>,
    lists: Vec<List>,
    spread: Vec<Spread>,
    tcp: Vec<TcpFeatures>,
    copies: Option<DuplicateDetector>,
    /// Segments that passed twice.
    copied: u64,
    apps: Option<Apps>,
}

/// The list of a flow's first packets.
#[derive(Clone, Copy, Default)]
struct List {
    last_ns: i64,
    len: u8,
}

impl Features {
    /// Room for `flows` slots.
    pub fn new(config: &Config, flows: usize) -> Self {
        let of = |wanted: bool| if wanted { flows } else { 0 };
        Features {
            config: *config,
            link: Vec::with_capacity(of(config.link)),
            packets: Vec::with_capacity(usize::from(config.packets) * flows),
            lists: Vec::with_capacity(of(config.packets > 0)),
            spread: Vec::with_capacity(of(config.spread)),
            tcp: Vec::with_capacity(of(config.tcp)),
            copies: config.tcp.then(DuplicateDetector::new),
            copied: 0,
            apps: config.apps.then(|| Apps::new(flows)),
        }
    }

    /// A flow begins in `slot` with this packet, which [`Features::packet`] is then given,
    /// too. `frame` may be empty where only headers were passed.
    pub fn created(&mut self, slot: u32, packet: &Feature, frame: &[u8], layers: &Layers) {
        let slot = slot as usize;
        let Config { link, packets, spread, tcp, .. } = self.config;
        if packets > 0 {
            set_slot(&mut self.lists, slot, List::default());
            let end = (slot + 1) * usize::from(packets);
            if self.packets.len() < end {
                self.packets.resize(end, NO_PACKET);
            }
        }
        if link {
            set_slot(&mut self.link, slot, LinkFeatures::read(packet, frame, layers));
        }
        if spread {
            set_slot(&mut self.spread, slot, Spread::default());
        }
        if tcp {
            set_slot(&mut self.tcp, slot, TcpFeatures::default());
        }
        if let Some(apps) = &mut self.apps {
            apps.created(slot);
        }
    }

    /// Fetches the state of a slot that has been used: the cache lines in which each part
    /// begins and ends.
    #[inline]
    pub fn prefetch(&self, slot: u32) {
        let slot = slot as usize;
        if self.config.packets > 0 {
            prefetch(&self.lists, slot);
            prefetch(&self.packets, slot * usize::from(self.config.packets));
        }
        if self.config.spread {
            prefetch(&self.spread, slot);
            prefetch_end(&self.spread, slot);
        }
        if self.config.tcp {
            prefetch(&self.tcp, slot);
            prefetch_end(&self.tcp, slot);
        }
        if let Some(apps) = &self.apps {
            apps.prefetch(slot);
        }
    }

    /// A packet of the flow in `slot`. False: no further packet of it is wanted.
    pub fn packet(
        &mut self,
        slot: u32,
        reverse: bool,
        packet: &Feature,
        frame: &[u8],
        layers: &Layers,
    ) -> bool {
        let slot = slot as usize;
        let mut wants = false;
        // A fragment has its identification where others have the sequence number.
        let whole = packet.shape & (SHAPE_FRAGMENT | SHAPE_NO_TRANSPORT) == 0;
        let length = packet.payload_len();
        if self.config.packets > 0 {
            if length > 0 {
                self.list(slot, reverse, packet, length);
            }
            wants = self.lists[slot].len < self.config.packets;
        }
        if let Some(spread) = self.spread.get_mut(slot) {
            if length > 0 {
                spread.packet(reverse, length, packet.at_ns);
            }
            wants = true;
        }
        if packet.protocol == PROTOCOL_TCP
            && let Some(tcp) = self.tcp.get_mut(slot)
        {
            if whole {
                let header = SegmentHeader::read(packet, frame, layers);
                let is_copy = header.zip(self.copies.as_mut()).is_some_and(|(header, copies)| {
                    let apart = if header.is_numbered() { APART } else { APART_UNNUMBERED };
                    let moment = (packet.at_ns >> MOMENT_BITS) as u32;
                    copies.note(header.print(slot, reverse, packet), moment, apart)
                });
                match is_copy {
                    true => self.copied += 1,
                    false => tcp.packet(reverse, packet, header),
                }
            }
            wants = true;
        }
        if let Some(apps) = &mut self.apps {
            wants |= apps.packet(slot, reverse, packet, frame, layers);
        }
        wants
    }

    /// TCP segments that passed twice within a millisecond: a mirror port's copies.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// What became of the flows' applications, if they are asked for.
    pub fn app_counters(&self) -> Option<&AppCounters> {
        self.apps.as_ref().map(Apps::counters)
    }

    fn list(&mut self, slot: usize, reverse: bool, packet: &Feature, length: u32) {
        let list = &mut self.lists[slot];
        if list.len == self.config.packets {
            return;
        }
        let after = match list.len {
            0 => 0,
            _ => packet.at_ns.saturating_sub(list.last_ns).max(0) as u64,
        };
        self.packets[slot * usize::from(self.config.packets) + usize::from(list.len)] =
            FlowPacketInfo {
                reverse,
                length: u16::try_from(length).unwrap_or(u16::MAX),
                after_ns: after,
                tcp_flags: packet.tcp_flags as u8,
            };
        list.last_ns = packet.at_ns;
        list.len += 1;
    }

    /// The flow in `slot` is over: what is to be reported of it, if there is anything.
    pub fn ended(&mut self, slot: u32) -> Option<Box<FlowExtra>> {
        let app = self.apps.as_mut().and_then(|apps| apps.ended(slot as usize));
        self.report(slot as usize, app)
    }

    /// The same where the flow goes on with another record: its link, its handshake and its
    /// application stay known, and what is counted begins anew.
    pub fn renewed(&mut self, slot: u32) -> Option<Box<FlowExtra>> {
        let slot = slot as usize;
        let app = self.apps.as_ref().and_then(|apps| apps.so_far(slot));
        let extra = self.report(slot, app);
        if let Some(list) = self.lists.get_mut(slot) {
            *list = List::default();
        }
        if let Some(spread) = self.spread.get_mut(slot) {
            *spread = Spread::default();
        }
        if let Some(tcp) = self.tcp.get_mut(slot) {
            tcp.renew();
        }
        extra
    }

    fn report(&self, slot: usize, app: Option<App>) -> Option<Box<FlowExtra>> {
        let listed = self.lists.get(slot).map_or(0, |list| usize::from(list.len));
        let start = slot * usize::from(self.config.packets);
        let spread = self.spread.get(slot);
        let forward_spread = spread.and_then(|spread| spread.result(false));
        let reverse_spread = spread.and_then(|spread| spread.result(true));
        let tcp = self.tcp.get(slot).and_then(TcpFeatures::result);
        let known = self.config.link
            || listed > 0
            || forward_spread.is_some()
            || reverse_spread.is_some()
            || tcp.is_some()
            || app.is_some();
        if !known {
            return None;
        }
        let mut extra = Box::<FlowExtra>::default();
        extra.link = self.link.get(slot).map(LinkFeatures::result);
        extra.packets.extend_from_slice(&self.packets[start..start + listed]);
        (extra.forward_spread, extra.reverse_spread) = (forward_spread, reverse_spread);
        extra.tcp = tcp;
        extra.app = app;
        Some(extra)
    }
}

const NO_PACKET: FlowPacketInfo =
    FlowPacketInfo { reverse: false, length: 0, after_ns: 0, tcp_flags: 0 };

/// Moments between copies where what is sent again looks the same: sooner than a sender can know
/// of a loss.
const APART_UNNUMBERED: u32 = 6;
