//! One flow: what it sends next, and what it has sent.

use fastrand::Rng;
use sonde_wire::tcp::{ACK, FIN, PSH, RST, SYN};

use super::address::Tuple;
use super::app::TrafficApp;
use super::config::Encapsulation;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Transport {
    #[default]
    Udp,
    Tcp,
    Icmp,
}

/// One direction of a flow, as its packets went out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSideTruth {
    /// Packets; fragments count one by one. 0: the rest means nothing.
    pub packets: u32,
    /// Bytes of IP packets with their headers.
    pub bytes: u64,
    /// Time of the first, ns.
    pub first_ns: i64,
    /// Time of the last, ns.
    pub last_ns: i64,
    /// TCP flags of all together.
    pub tcp_flags: u8,
}

impl FlowSideTruth {
    #[inline]
    pub(super) fn count(&mut self, at_ns: i64, bytes: u32, tcp_flags: u8) {
        if self.packets == 0 {
            self.first_ns = at_ns;
        }
        self.packets = self.packets.saturating_add(1);
        self.bytes += u64::from(bytes);
        self.last_ns = at_ns;
        self.tcp_flags |= tcp_flags;
    }
}

/// An open flow. Side 0 is the client, who begins; side 1 the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    /// Counts up from 0 over the whole run.
    pub index: u64,
    pub sides: [FlowSideTruth; 2],
    pub tuple: Tuple,
    pub server_port: u16,
    /// Hosts of the tunnel's ends.
    pub outer: [u32; 2],
    /// Bytes on the wire of its data packets.
    pub size: u16,
    pub tos: u8,
    pub ttl: [u8; 2],
    pub transport: Transport,
    pub encapsulation: Encapsulation,
    pub app: TrafficApp,
    pub is_v6: bool,
    /// Packets to send; `u32::MAX`: it does not end.
    pub length: u32,
    /// Packets thought out, held ones included.
    planned: u32,
    /// Data packets among them, client and server: the first carries the application.
    data: [bool; 2],
    /// Next TCP sequence number.
    seq: [u32; 2],
    held: Option<Held>,
}

/// A packet that others overtake.
#[derive(Clone, Copy, Debug)]
struct Held {
    plan: PacketPlan,
    /// Others still to go before it.
    left: u8,
}

/// A packet, thought out but not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketPlan {
    /// Counts the flow's packets from 0, of both sides. No two are alike, as a mirror port's copies
    /// are: it goes into the IPv4 identification, the TCP window and the payload of UDP.
    pub index: u32,
    pub side: u8,
    pub tcp_flags: u8,
    /// TCP sequence number; of ICMP the echo's.
    pub seq: u32,
    pub ack: u32,
    pub content: Content,
}

/// What follows the transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// No payload.
    Empty,
    /// As much as makes the frame so long on the wire.
    Fill(u16),
    /// The application's message, the so-many-eth exchange.
    App(u16),
}

/// How a flow's packets vary.
pub(super) struct Habits<'a> {
    pub variety: f64,
    pub sizes: &'a super::law::Sizes,
    pub reorder: super::config::Reorder,
}

impl Flow {
    /// With initial sequence numbers; the rest is for the caller to set.
    pub fn new(index: u64, size: u16, seq: [u32; 2]) -> Self {
        Flow { index, size, seq, ..Flow::default() }
    }

    /// All packets are out.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.planned >= self.length && self.held.is_none()
    }

    /// The application's first message is out.
    pub fn spoke(&self) -> bool {
        match self.transport {
            Transport::Tcp => self.data[0],
            _ => self.planned > 0,
        }
    }

    /// The length of a segment is known once it is written.
    #[inline]
    pub fn sent(&mut self, side: u8, payload: usize) {
        let seq = &mut self.seq[usize::from(side)];
        *seq = seq.wrapping_add(payload as u32);
    }

    /// The next packet, and whether its payload moves the sequence number on (that of one
    /// which was held has done so before). `fill` returns the payload for a frame length.
    #[inline]
    pub fn next(
        &mut self,
        rng: &mut Rng,
        habits: &Habits<'_>,
        fill: impl Fn(&Flow, u16) -> usize,
    ) -> (PacketPlan, bool) {
        if let Some(held) = &mut self.held {
            if held.left == 0 {
                let plan = held.plan;
                self.held = None;
                return (plan, false);
            }
            held.left -= 1;
        }
        let plan = self.plan(rng, habits);
        let may_wait = habits.reorder.share > 0.0
            && self.held.is_none()
            // The first one shows who began.
            && self.planned > 1
            && matches!(plan.content, Content::Fill(_))
            && self.transport != Transport::Icmp
            && self.data_left() > u32::from(habits.reorder.distance);
        if may_wait && rng.f64() < habits.reorder.share {
            if let Content::Fill(size) = plan.content {
                self.sent(plan.side, fill(self, size));
            }
            self.held = Some(Held { plan, left: habits.reorder.distance - 1 });
            return (self.plan(rng, habits), true);
        }
        (plan, true)
    }

    /// Packets still to come before the connection is closed: what is held must be out by
    /// then.
    fn data_left(&self) -> u32 {
        let closing = match (self.transport, self.length) {
            (Transport::Tcp, 7..) => 3,
            (Transport::Tcp, _) => 1,
            _ => 0,
        };
        (self.length - self.planned).saturating_sub(closing)
    }

    #[inline]
    fn plan(&mut self, rng: &mut Rng, habits: &Habits<'_>) -> PacketPlan {
        let index = self.planned;
        self.planned = match self.length {
            // It does not end: the count begins again before it would.
            u32::MAX => (self.planned + 1) % u32::MAX,
            length => (self.planned + 1).min(length),
        };
        match self.transport {
            Transport::Tcp => self.tcp(index, rng, habits),
            Transport::Udp => {
                let side = match (index, self.app, self.length) {
                    (0, ..) | (.., u32::MAX) => 0,
                    (_, TrafficApp::Dns, _) => index as u8 & 1,
                    _ => rng.bool().into(),
                };
                let content = match self.app {
                    TrafficApp::None => self.fill(rng, habits),
                    _ => Content::App((index / 2) as u16),
                };
                PacketPlan { index, side, tcp_flags: 0, seq: 0, ack: 0, content }
            }
            Transport::Icmp => PacketPlan {
                index,
                side: index as u8 & 1,
                tcp_flags: 0,
                seq: index / 2,
                ack: 0,
                // A reply repeats what was asked (RFC 792).
                content: Content::Fill(self.size),
            },
        }
    }

    /// Handshake, data and pure acknowledgements, FIN from both; where the flow is too
    /// short for that, a refused or reset connection, or a SYN alone.
    fn tcp(&mut self, index: u32, rng: &mut Rng, habits: &Habits<'_>) -> PacketPlan {
        let last = index + 1 == self.length;
        let (side, tcp_flags, data) = match (index, self.length) {
            (0, _) => (0, SYN, false),
            (1, 2) => (1, RST | ACK, false),
            (1, _) => (1, SYN | ACK, false),
            (_, 3..=6) if last => (0, RST | ACK, false),
            (2, _) => (0, ACK, false),
            (_, n @ 7..) if index + 3 >= n => {
                [(0, FIN | ACK, false), (1, FIN | ACK, false), (0, ACK, false)]
                    [(index + 3 - n) as usize]
            }
            _ => self.exchange(rng),
        };
        let s = usize::from(side);
        // The other side's data, but nothing from a packet on that has not come yet.
        let held = self.held.filter(|held| held.plan.side != side).map(|held| held.plan.seq);
        let ack = if tcp_flags & ACK == 0 { 0 } else { held.unwrap_or(self.seq[1 - s]) };
        let content = match data {
            false => Content::Empty,
            true if self.app != TrafficApp::None && !self.data[s] => Content::App(0),
            true => self.fill(rng, habits),
        };
        self.data[s] |= data;
        let plan = PacketPlan { index, side, tcp_flags, seq: self.seq[s], ack, content };
        // SYN and FIN take a sequence number (RFC 9293, section 3.4).
        self.sent(side, usize::from(tcp_flags & (SYN | FIN) != 0));
        plan
    }

    /// Who sends in an open connection: the client asks first and the server answers; then
    /// most data flows from the server, and the client acknowledges.
    fn exchange(&mut self, rng: &mut Rng) -> (u8, u8, bool) {
        match (self.data, rng.u8(0..20)) {
            ([false, _], _) => (0, ACK | PSH, true),
            ([_, false], _) | (_, 0..11) => (1, ACK | PSH, true),
            (_, 11..14) => (0, ACK | PSH, true),
            _ => (0, ACK, false),
        }
    }

    #[inline]
    fn fill(&self, rng: &mut Rng, habits: &Habits<'_>) -> Content {
        let anew = habits.variety >= 1.0 || habits.variety > 0.0 && rng.f64() < habits.variety;
        Content::Fill(if anew { habits.sizes.draw(rng) } else { self.size })
    }
}
