//! Round-trip times from interfaces by the matcher of user space: where eBPF cannot be had.
//! Each interface has a port that watches; all are read in turn, and their packets have the
//! kernel's stamps.

use std::time::{Duration, Instant};

use sonde_meter::rtt::Matcher;
use sonde_port::{Engine, OpenSpec, Port, open};
use sonde_results::rtt::{Coverage, RttFlow, RttGroup};
use sonde_sys::clock::steady_now;
use sonde_sys::netlink::Link;
use sonde_wire::Time;
use sonde_wire::flow::{Detail, FlowPacket, LinkType, parse_cut};

use super::about::About;
use super::event::RttWatching;
use super::live;
use super::out::RttOutput;
use super::points::{WatchedInterfaces, joined};
use super::settings::{self, Settings};
use super::source::InterfaceWatcher;
use crate::confined::Uses;
use crate::error::RunError;
use crate::joins;
use crate::joins::ordered::{HANDED_OVER, Ordered};
use crate::links::has_ethernet;
use crate::running::Context;

/// Opens ports on `links` by `engine`, and begins.
pub fn start(
    links: Vec<Link>,
    engine: Engine,
    settings: Settings,
    context: &Context,
) -> Result<(About, RttWatching), RunError> {
    let config = settings::config(&settings)?;
    let joined = joined(&links, &settings)?;
    live::check_count(&links)?;
    let mut source = Watcher {
        engine,
        tunnels: settings.tunnels,
        ordered: joins::any(&joined).then(Ordered::default),
        joined: joined.clone(),
        matcher: Matcher::new(config.clone()),
        points: Vec::new(),
        swept: Instant::now(),
    };
    let mut points = WatchedInterfaces::open(&links, joined)?;
    let described = points.attach(&mut source)?;
    let uses = (Uses::Engine(engine), Vec::new(), None);
    live::start(source, (points, described), settings, &config, uses, context)
}

/// The matcher and the ports that it is fed from.
struct Watcher {
    engine: Engine,
    tunnels: bool,
    /// By interface, the index of its observation point.
    joined: Vec<u8>,
    /// Where interfaces are joined, their packets.
    ordered: Option<Ordered>,
    matcher: Matcher,
    points: Vec<Point>,
    /// When idle flows were last looked for.
    swept: Instant,
}

/// An interface that is watched, while it exists.
#[derive(Default)]
struct Point {
    /// `None`: gone, for now.
    port: Option<Box<dyn Port>>,
    way: PointLink,
    /// Packets lost by ports that are closed.
    lost: u64,
}

impl Point {
    /// Packets that passed and were not seen.
    fn lost(&mut self) -> u64 {
        self.lost + self.port.as_mut().map_or(0, |port| lost(port.as_mut()))
    }
}

fn lost(port: &mut dyn Port) -> u64 {
    let stats = port.stats();
    stats.rx_dropped + stats.rx_invalid
}

/// How packets of an interface come to the matcher.
#[derive(Clone, Copy, Default)]
struct PointLink {
    /// The index of its observation point.
    point: u8,
    header: LinkType,
    mtu: u32,
    tunnels: bool,
}

impl PointLink {
    /// Takes a packet of `wire_len` octets. `segment_len`: octets of payload in each of the
    /// packets that it was on the wire, as the kernel says.
    #[inline]
    fn input(
        self,
        frame: &[u8],
        (wire_len, segment_len): (usize, u16),
        at: Time,
        matcher: &mut Matcher,
    ) {
        match parse_cut(frame, wire_len, self.header, self.tunnels) {
            Ok(packet) => {
                let segments = segments(&packet, self.mtu, segment_len);
                matcher.input(self.point, &packet, segments, at);
            }
            Err(error) => matcher.refused(error),
        }
    }
}

impl Watcher {
    /// Takes one burst of point `i`. The latest stamp in it, if it was not empty.
    fn burst(&mut self, i: usize) -> anyhow::Result<Option<Time>> {
        let point = &mut self.points[i];
        let Some(port) = &mut point.port else { return Ok(None) };
        let burst = port.rx()?;
        let mut latest = None;
        for n in 0..burst.len() {
            let (wire_len, segment_len) = (burst.wire_len(n), burst.segment(n));
            let (frame, stamp) = burst.seen(n);
            match &mut self.ordered {
                Some(ordered) => ordered.keep(i as u8, frame, (wire_len, segment_len), stamp.at),
                None => {
                    point.way.input(frame, (wire_len, segment_len), stamp.at, &mut self.matcher)
                }
            }
            latest = Some(stamp.at);
        }
        if let (Some(ordered), Some(latest)) = (&mut self.ordered, latest) {
            ordered.may_have_more(latest);
        }
        Ok(latest)
    }

    /// Goes on with packets of joined interfaces; with all if none are watched any more.
    fn release(&mut self) {
        let Some(ordered) = &mut self.ordered else { return };
        if self.points.iter().all(|p| p.port.is_none()) {
            ordered.end();
        }
        for kept in ordered.release(usize::MAX) {
            let way = self.points[usize::from(kept.point)].way;
            way.input(&kept.bytes, (kept.wire_len, kept.segment), kept.at, &mut self.matcher);
        }
    }

    /// What the ring of point `i` holds and will still get of what has passed until now.
    fn rest(&mut self, i: usize) -> anyhow::Result<()> {
        let (end, begin) = (steady_now(), Instant::now());
        while begin.elapsed() < LONGEST_REST {
            match self.burst(i)? {
                Some(latest) if latest > end => break,
                Some(_) => {}
                None if begin.elapsed() >= HANDED_OVER => break,
                None => {
                    let Some(port) = &mut self.points[i].port else { break };
                    port.wait(steady_now() + HANDED_OVER.as_nanos() as i64)?;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn drain(&mut self, out: &mut RttOutput) {
        while let Some(sample) = self.matcher.poll_sample() {
            out.sample(&sample);
        }
        while let Some(flow) = self.matcher.poll_flow() {
            out.flow(&flow);
        }
    }
}

impl InterfaceWatcher for Watcher {
    fn attach(&mut self, link: &Link, i: u8) -> anyhow::Result<String> {
        let spec = OpenSpec { steady: true, ..OpenSpec::watching(link.name.clone()) };
        let port = open(self.engine, &spec)?;
        let header = if has_ethernet(link) { LinkType::Ethernet } else { LinkType::RawIp };
        let caps = port.caps();
        let how = format!("{}: {}, timed by kernel stamps", caps.engine, caps.mode);
        let i = usize::from(i);
        if self.points.len() <= i {
            self.points.resize_with(i + 1, Point::default);
        }
        let point = &mut self.points[i];
        let (joined_point, tunnels) = (self.joined[i], self.tunnels);
        point.way = PointLink { point: joined_point, header, mtu: link.mtu, tunnels };
        point.port = Some(port);
        Ok(how)
    }

    fn detach(&mut self, i: u8) {
        let i = usize::from(i);
        // An interface that is gone may give an error; the ring was read until then.
        let _ = self.rest(i);
        let point = &mut self.points[i];
        if let Some(mut port) = point.port.take() {
            point.lost += lost(port.as_mut());
        }
    }

    fn fetch(&mut self, _: i64, out: &mut RttOutput) -> anyhow::Result<bool> {
        let mut empty = false;
        for _ in 0..TURNS {
            empty = true;
            if let Some(ordered) = &mut self.ordered {
                ordered.begin_turn(steady_now());
            }
            for i in 0..self.points.len() {
                empty &= self.burst(i)?.is_none();
                self.drain(out);
            }
            self.release();
            if empty {
                break;
            }
        }
        if self.swept.elapsed() >= SWEEP {
            self.swept = Instant::now();
            self.matcher.handle_timeout(steady_now());
            // The ports read the offset of TAI by the way.
            for port in self.points.iter_mut().flat_map(|p| &mut p.port) {
                port.stats();
            }
        }
        self.drain(out);
        // Nothing is left to do until the rings are handed over again.
        Ok(empty)
    }

    fn take_groups(&mut self, start_ns: i64, end_ns: i64) -> anyhow::Result<Vec<RttGroup>> {
        Ok(self.matcher.take_groups(start_ns, end_ns))
    }

    fn coverage(&mut self) -> anyhow::Result<Coverage> {
        let mut coverage = self.matcher.coverage();
        let lost: u64 = self.points.iter_mut().map(Point::lost).sum();
        coverage.counters.insert("packets_lost".into(), lost);
        Ok(coverage)
    }

    fn open_flows(&self, each: &mut dyn FnMut(RttFlow)) {
        self.matcher.open_flows().for_each(each);
    }
}

/// How many packets of the wire this is: several were joined by receive offload, or will be
/// made of it by the card. `segment_len`: octets of payload in each. 0: the kernel does not
/// say, and what is longer than the interface sends was several.
#[inline]
fn segments(packet: &FlowPacket, mtu: u32, segment_len: u16) -> u16 {
    if segment_len == 0 && packet.ip_len <= mtu {
        return 1;
    }
    let payload = match packet.detail {
        Detail::Tcp(tcp) => tcp.payload_len,
        _ => packet.ip_len.saturating_sub(packet.header_len()),
    };
    if segment_len != 0 {
        return payload.div_ceil(segment_len.into()).clamp(1, u16::MAX.into()) as u16;
    }
    let room = mtu.saturating_sub(packet.ip_len - payload.min(packet.ip_len)).max(1);
    payload.div_ceil(room).clamp(1, u16::MAX.into()) as u16
}

/// Bursts of each port in one go: then signals and intervals have their turn.
const TURNS: usize = 64;
/// Between two looks for idle flows.
const SWEEP: Duration = Duration::from_millis(100);
/// A full ring takes a fraction of this.
const LONGEST_REST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_wire::flow::Tcp;

    fn packet(ip_len: u32, detail: Detail) -> FlowPacket {
        FlowPacket {
            source: [0; 16],
            destination: [0; 16],
            source_port: 1,
            destination_port: 2,
            vlan: 0,
            protocol: 6,
            tos: 0,
            ip_len,
            fragment: false,
            identity: 0,
            payload: 0..0,
            detail,
        }
    }

    #[test]
    fn a_packet_longer_than_the_interface_sends_is_several() {
        let tcp = |payload_len| {
            let detail = Detail::Tcp(Tcp { payload_len, ..Tcp::default() });
            segments(&packet(payload_len + 52, detail), 1_500, 0)
        };
        for (payload, wire) in
            [(0, 1), (1_448, 1), (1_449, 2), (2_896, 2), (2_897, 3), (45 * 1_448, 45)]
        {
            assert_eq!(tcp(payload), wire, "{payload}");
        }
        // Each has IPv6's header.
        assert_eq!(segments(&packet(40 + 2 * 1_460, Detail::Other), 1_500, 0), 2);
        assert_eq!(segments(&packet(40 + 2 * 1_460 + 1, Detail::Other), 1_500, 0), 3);
        let udp = FlowPacket { protocol: 17, ..packet(48 + 10 * 1_200, Detail::Other) };
        assert_eq!(segments(&udp, 1_500, 1_200), 10);
        assert_eq!(segments(&packet(60_000, Detail::Other), 65_536, 0), 1);
        assert_eq!(segments(&packet(u32::MAX, Detail::Other), 0, 0), u16::MAX);
        // What the kernel says counts, also below the MTU.
        let detail = || Detail::Tcp(Tcp { payload_len: 1_300, ..Tcp::default() });
        assert_eq!(segments(&packet(1_352, detail()), 1_500, 536), 3);
        assert_eq!(segments(&packet(1_352, detail()), 1_500, 1_400), 1);
    }
}
