//! Round-trip times from interfaces by the matcher of user space: where eBPF cannot be had.
//! Each interface has a port that watches; all are read in turn, and their packets have the
//! kernel's stamps.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use sonde_meter::rtt::Matcher;
use sonde_port::clock::tai_now;
use sonde_port::netlink::Link;
use sonde_port::{Engine, OpenSpec, Port, open};
use sonde_results::rtt::{Coverage, RttFlow, RttGroup};
use sonde_wire::Time;
use sonde_wire::flow::{Detail, FlowPacket, Link as Header, parse_cut};

use super::args::RttArgs;
use super::collect::{Collected, Prints};
use super::live::{Source, Stage};
use super::places::{Places, has_ethernet, joined};
use super::settings;
use crate::exit::{Exit, Failure};

/// Runs until the time is over, or Ctrl-C.
pub fn run(
    links: Vec<Link>,
    engine: Engine,
    args: &RttArgs,
    prints: Prints,
) -> Result<Exit, Failure> {
    if engine != Engine::AfPacket {
        return Err(Failure::Usage(anyhow!(
            "--engine {} takes packets away and cannot watch those of others; use --engine \
             af_packet, or leave --engine out to measure in the kernel",
            engine.name()
        )));
    }
    if args.hook.is_some() || args.persist {
        return Err(Failure::Usage(anyhow!(
            "--hook and --persist are for programs in the kernel; leave them out, or --engine"
        )));
    }
    let config = settings::config(args, &prints).map_err(Failure::Usage)?;
    let joined = joined(&links, args)?;
    let stage = Stage::begin(&links, &prints)?;
    let mut source = Watcher {
        engine,
        tunnels: args.tunnels,
        joined: joined.clone(),
        matcher: Matcher::new(config.clone()),
        points: Vec::new(),
        swept: Instant::now(),
        lost: 0,
    };
    let mut places = Places::open(&links, joined)?;
    let points = places.attach(&mut source)?;
    stage.watch(source, places, points, args, prints, &config)
}

/// The matcher and the ports that it is fed from.
struct Watcher {
    engine: Engine,
    tunnels: bool,
    /// By point, the number of its place.
    joined: Vec<u8>,
    matcher: Matcher,
    /// `None`: gone, for now.
    points: Vec<Option<Point>>,
    /// When idle flows were last looked for.
    swept: Instant,
    /// Packets lost by ports that are closed.
    lost: u64,
}

/// One interface.
struct Point {
    port: Box<dyn Port>,
    header: Header,
    mtu: u32,
}

impl Point {
    /// Packets that passed and were not seen.
    fn lost(&mut self) -> u64 {
        let stats = self.port.stats();
        stats.rx_dropped + stats.rx_invalid
    }
}

impl Watcher {
    /// Takes one burst of point `i`. The latest stamp in it, if it was not empty.
    fn burst(&mut self, i: usize) -> anyhow::Result<Option<Time>> {
        let Some(point) = &mut self.points[i] else { return Ok(None) };
        let mut burst = point.port.rx()?;
        let mut latest = None;
        for n in 0..burst.len() {
            let (wire_len, told) = (burst.wire_len(n), burst.segment(n));
            let (frame, stamp) = burst.frame(n);
            match parse_cut(frame, wire_len, point.header, self.tunnels) {
                Ok(packet) => {
                    let segments = segments(&packet, point.mtu, told);
                    self.matcher.input(self.joined[i], &packet, segments, stamp.at);
                }
                Err(error) => self.matcher.refused(error),
            }
            latest = Some(stamp.at);
        }
        Ok(latest)
    }

    /// What the ring of point `i` holds and will still get of what has passed until now.
    fn rest(&mut self, i: usize) -> anyhow::Result<()> {
        let (end, begin) = (tai_now(), Instant::now());
        while begin.elapsed() < LONGEST_REST {
            match self.burst(i)? {
                Some(latest) if latest > end => break,
                Some(_) => {}
                None if begin.elapsed() >= HANDED_OVER => break,
                None => {
                    let Some(point) = &mut self.points[i] else { break };
                    point.port.wait(tai_now() + HANDED_OVER.as_nanos() as i64)?;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn drain(&mut self, collected: &mut Collected) {
        while let Some(sample) = self.matcher.poll_sample() {
            collected.sample(&sample);
        }
        while let Some(flow) = self.matcher.poll_flow() {
            collected.flow(&flow);
        }
    }
}

impl Source for Watcher {
    fn attach(&mut self, link: &Link, i: u8) -> anyhow::Result<String> {
        let port = open(self.engine, &OpenSpec::watching(link.name.clone()))?;
        let header = if has_ethernet(link) { Header::Ethernet } else { Header::RawIp };
        let caps = port.caps();
        let how = format!("{}: {}, timed by kernel stamps", caps.engine, caps.mode);
        let i = usize::from(i);
        if self.points.len() <= i {
            self.points.resize_with(i + 1, || None);
        }
        self.points[i] = Some(Point { port, header, mtu: link.mtu });
        Ok(how)
    }

    fn detach(&mut self, i: u8) {
        let i = usize::from(i);
        // An interface that is gone may give an error; the ring was read until then.
        let _ = self.rest(i);
        if let Some(mut point) = self.points[i].take() {
            self.lost += point.lost();
        }
    }

    fn fetch(&mut self, _: i64, collected: &mut Collected) -> anyhow::Result<bool> {
        let mut empty = false;
        for _ in 0..TURNS {
            empty = true;
            for i in 0..self.points.len() {
                empty &= self.burst(i)?.is_none();
                self.drain(collected);
            }
            if empty {
                break;
            }
        }
        if self.swept.elapsed() >= SWEEP {
            self.swept = Instant::now();
            self.matcher.handle_timeout(tai_now());
            // The ports read the offset of TAI by the way.
            for point in self.points.iter_mut().flatten() {
                point.port.stats();
            }
        }
        self.drain(collected);
        // Nothing is left to do until the rings are handed over again.
        Ok(empty)
    }

    fn take_groups(&mut self, start_ns: i64, end_ns: i64) -> anyhow::Result<Vec<RttGroup>> {
        Ok(self.matcher.take_groups(start_ns, end_ns))
    }

    fn coverage(&mut self) -> anyhow::Result<Coverage> {
        let mut coverage = self.matcher.coverage();
        let lost: u64 = self.points.iter_mut().flatten().map(Point::lost).sum();
        coverage.counters.insert("packets_lost".into(), self.lost + lost);
        Ok(coverage)
    }

    fn open_flows(&self, each: &mut dyn FnMut(RttFlow)) {
        self.matcher.open_flows().for_each(each);
    }
}

/// How many packets of the wire this is: several were joined by receive offload, or will be
/// made of it by the card. `told`: octets of payload in each; 0: the kernel does not tell, and
/// what is longer than the interface sends was several.
#[inline]
fn segments(packet: &FlowPacket, mtu: u32, told: u16) -> u16 {
    if told == 0 && packet.ip_len <= mtu {
        return 1;
    }
    let payload = match packet.detail {
        Detail::Tcp(tcp) => tcp.payload_len,
        _ => packet.ip_len,
    };
    if told != 0 {
        return payload.div_ceil(told.into()).clamp(1, u16::MAX.into()) as u16;
    }
    let room = mtu.saturating_sub(packet.ip_len - payload.min(packet.ip_len)).max(1);
    payload.div_ceil(room).clamp(1, u16::MAX.into()) as u16
}

/// Bursts of each port in one go: then signals and intervals have their turn.
const TURNS: usize = 64;
/// Between two looks for idle flows.
const SWEEP: Duration = Duration::from_millis(100);
/// A packet is handed over after a millisecond, which a slow kernel timer makes eight.
const HANDED_OVER: Duration = Duration::from_millis(20);
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
        assert_eq!(segments(&packet(3_000, Detail::Other), 1_500, 0), 2);
        assert_eq!(segments(&packet(60_000, Detail::Other), 65_536, 0), 1);
        assert_eq!(segments(&packet(u32::MAX, Detail::Other), 0, 0), u16::MAX);
        // What the kernel says counts, also below the MTU.
        let detail = || Detail::Tcp(Tcp { payload_len: 1_300, ..Tcp::default() });
        assert_eq!(segments(&packet(1_352, detail()), 1_500, 536), 3);
        assert_eq!(segments(&packet(1_352, detail()), 1_500, 1_400), 1);
    }
}
