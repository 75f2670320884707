//! What the inputs of `sonde flow` cost, engine by engine, under one load: in the kernel up
//! to the hand-over, and in the metering thread; what cutting frames, passing headers alone
//! and dealing packets out gain. And what the XDP program costs a packet.
//!
//! The load waits for the metering thread after every few packets. So nothing is lost, and
//! the processor time of both sides is right on a machine that others use, too.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sonde_bpf::flow::LiveFrames;
use sonde_bpf::{FlowInput, FlowInterface, FlowProgram};
use sonde_lab::{Host, Lab, LinkOptions};
use sonde_port::headers::{self, HeaderSpec};
use sonde_port::{Engine, OpenSpec, open_group};
use sonde_sys::clock::{tai_now, thread_cpu_ns};
use sonde_wire::feature::{Feature, Keys, parse};
use sonde_wire::flow::LinkType;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EngineSetup {
    /// Packet sockets that get whole frames, or the first bytes, or are several.
    AfPacket { snap: usize, workers: usize },
    /// AF_XDP with whole frames, or cut by the XDP program.
    AfXdp { snap: usize },
    /// The unified header; packets end there, or go on to the host.
    Header { workers: u32, consume: bool },
}

impl EngineSetup {
    fn name(self) -> String {
        let cut = |snap| if snap == WHOLE { "whole".into() } else { format!("{snap} B") };
        match self {
            EngineSetup::AfPacket { snap, workers: 1 } => format!("af_packet, {}", cut(snap)),
            EngineSetup::AfPacket { snap, workers } => {
                format!("af_packet, {}, {workers} workers", cut(snap))
            }
            EngineSetup::AfXdp { snap } => format!("af_xdp, {}", cut(snap)),
            EngineSetup::Header { workers, consume } => format!(
                "header, {}{}",
                if consume { "consumed" } else { "passed on" },
                if workers > 1 { format!(", {workers} workers") } else { String::new() }
            ),
        }
    }
}

/// What one run came to.
#[derive(Clone, Copy, Default)]
struct EngineRun {
    /// That reached the interface.
    sent: u64,
    received: u64,
    /// Lost by the engine's own count.
    lost: u64,
    /// Processor time of the sender, in which the kernel's receiving side runs, too.
    kernel_ns: u64,
    /// Processor time of the metering threads while they had packets.
    worker_ns: u64,
    /// Packets of the worker that had most.
    most: u64,
}

impl EngineRun {
    fn kernel(&self) -> f64 {
        self.kernel_ns as f64 / self.sent as f64
    }

    fn worker(&self) -> f64 {
        self.worker_ns as f64 / self.received as f64
    }

    fn both(&self) -> f64 {
        self.kernel() + self.worker()
    }

    /// Of the busiest worker, for each packet of all: what bounds the rate of the workers.
    fn busiest(&self) -> f64 {
        self.worker() * self.most as f64 / self.received as f64
    }
}

/// A metering thread's input: `turn` takes what is there and adds to `sum`.
trait Source: Send {
    fn wait(&mut self) -> Result<()>;
    fn turn(&mut self, sum: &mut Sum) -> Result<()>;
    fn lost(&mut self) -> u64;
}

/// What stands for the meter: it looks at each feature.
#[derive(Default)]
struct Sum {
    packets: u64,
    bytes: u64,
    ports: u64,
}

impl Sum {
    fn add(&mut self, packet: &Feature) {
        // What the hosts say of their own accord is not ours.
        if packet.protocol == TCP {
            self.packets += 1;
            self.bytes += u64::from(packet.ip_len);
            self.ports ^= u64::from(packet.source_port) ^ u64::from(packet.source[15]);
        }
    }
}

struct Frames(Box<dyn sonde_port::Port>);

impl Source for Frames {
    fn wait(&mut self) -> Result<()> {
        Ok(self.0.wait(tai_now() + PATIENCE_NS)?)
    }

    fn turn(&mut self, sum: &mut Sum) -> Result<()> {
        loop {
            let mut burst = self.0.rx()?;
            if burst.is_empty() {
                return Ok(());
            }
            for i in 0..burst.len() {
                let (frame, stamp) = burst.frame(i);
                let at = stamp.at.as_nanos();
                if let Ok((packet, _)) = parse(frame, LinkType::Ethernet, Keys::Outer, at, 0) {
                    sum.add(&packet);
                }
            }
        }
    }

    fn lost(&mut self) -> u64 {
        let stats = self.0.stats();
        stats.rx_dropped + stats.rx_invalid
    }
}

struct Headers(headers::HeaderPort);

impl Source for Headers {
    fn wait(&mut self) -> Result<()> {
        self.0.wait(tai_now() + PATIENCE_NS);
        Ok(())
    }

    fn turn(&mut self, sum: &mut Sum) -> Result<()> {
        loop {
            let burst = self.0.burst();
            if burst.is_empty() {
                return Ok(());
            }
            burst.iter().for_each(|packet| sum.add(packet));
        }
    }

    fn lost(&mut self) -> u64 {
        self.0.lost().packets
    }
}

/// The cost of the program, then all ways in turn, `rounds` times.
pub fn bench(seconds: u64, rounds: usize) -> Result<()> {
    println!("\n## Inputs of `sonde flow`\n");
    program_cost(rounds)?;
    println!(
        "\nFrames of {FLOWS} flows, each there and back, sent into virtual Ethernet from within \
         the kernel (live frames: no socket buffers), {CHUNK} at a time. \"Kernel\" is the \
         sender's processor time: making the frame, the XDP program, the copy or the network \
         stack up to the ring. \"Worker\" is the metering thread's: taking packets, parsing \
         where that is left to do, adding up. {seconds} s a run, {rounds} rounds, medians.\n"
    );
    println!("| frame | input | kernel, ns | worker, ns | both | lost | busiest worker has |");
    println!("|---|---|---|---|---|---|---|");
    let mut medians = BTreeMap::new();
    for frame in [64, 512, 1500] {
        let mut runs: BTreeMap<usize, Vec<EngineRun>> = BTreeMap::new();
        for round in 0..rounds {
            for (i, way) in WAYS.iter().enumerate() {
                eprintln!("{frame} B, {}, round {} ...", way.name(), round + 1);
                let outcome = run(*way, frame, Duration::from_secs(seconds))
                    .with_context(|| format!("{frame} B, {}", way.name()))?;
                runs.entry(i).or_default().push(outcome);
            }
        }
        for (i, way) in WAYS.iter().enumerate() {
            let all = &runs[&i];
            println!(
                "| {frame} B | {} | {:.0} | {:.0} | {:.0} | {:.1} % | {:.0} % |",
                way.name(),
                median(all, EngineRun::kernel),
                median(all, EngineRun::worker),
                median(all, EngineRun::both),
                median(all, |o| 100.0 * o.lost as f64 / o.sent as f64),
                median(all, |o| 100.0 * o.most as f64 / o.received as f64),
            );
            let costs = [median(all, EngineRun::both), median(all, EngineRun::busiest)];
            medians.insert((frame, *way), costs);
        }
    }
    gains(&medians);
    Ok(())
}

/// Each means by itself: the cost without it, by the cost with it.
fn gains(medians: &BTreeMap<(usize, EngineSetup), [f64; 2]>) {
    println!("\n| gain in | by | 64 B | 512 B | 1500 B |\n|---|---|---|---|---|");
    let whole = EngineSetup::AfXdp { snap: WHOLE };
    let cut = EngineSetup::AfXdp { snap: CUT };
    let packet = |snap, workers| EngineSetup::AfPacket { snap, workers };
    let passed = EngineSetup::Header { workers: 1, consume: false };
    let two = EngineSetup::Header { workers: 2, consume: true };
    for (which, name, with, without) in [
        (0, "trimming: af_xdp, 128 B against whole frames", cut, whole),
        (0, "trimming: af_packet, 128 B against whole frames", packet(CUT, 1), packet(WHOLE, 1)),
        (0, "unified header, against af_xdp with whole frames", HEADER, whole),
        (0, "unified header, against af_xdp, 128 B", HEADER, cut),
        (0, "unified header on a live host, against af_packet, 128 B", passed, packet(CUT, 1)),
        (1, "unified header, against af_xdp, 128 B", HEADER, cut),
        (1, "unified header, against af_packet, 128 B", HEADER, packet(CUT, 1)),
        (1, "hash distribution in XDP, 2 workers against 1", two, HEADER),
        (1, "fan-out, 2 workers against 1 (af_packet, 128 B)", packet(CUT, 2), packet(CUT, 1)),
    ] {
        print!("| {} | {name} ", ["processor time", "what the workers can take"][which]);
        for frame in [64, 512, 1500] {
            print!("| {:.2} ", medians[&(frame, without)][which] / medians[&(frame, with)][which]);
        }
        println!("|");
    }
}

/// By test runs: the least of each counts, since all that disturbs only adds.
fn program_cost(rounds: usize) -> Result<()> {
    println!("| the XDP program, by test runs | ns a packet |\n|---|---|");
    let mut tagged = frame(64);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    let mut options = frame(64);
    options[14] = 0x46;
    for (name, frame, workers) in [
        ("header, 1 worker", frame(64), 1),
        ("header, 4 workers", frame(64), 4),
        ("header, 4 workers, VLAN tag", tagged, 4),
        ("header, 4 workers, IPv4 options", options, 4),
    ] {
        let input = FlowInput::Headers {
            workers,
            ring: TEST_RUNS,
            inner: false,
            consume: true,
            time_base_ns: 0,
        };
        let loopback = FlowInterface { ifindex: 1, raw_ip: false };
        let mut program = FlowProgram::load(input, &[loopback])?;
        let mut rings =
            (0..workers).map(|worker| program.ring(worker)).collect::<Result<Vec<_>, _>>()?;
        let mut least = u32::MAX;
        for _ in 0..rounds.max(1) * 20 {
            least = least.min(program.test_run(&frame, TEST_RUNS)?.ns_per_run);
            let mut records = 0;
            for ring in &mut rings {
                while let count @ 1.. = ring.take(headers::BURST).len() {
                    records += count;
                }
            }
            ensure!(records == TEST_RUNS as usize, "{records} of {TEST_RUNS} records");
        }
        println!("| {name} | {least} |");
    }
    println!(
        "\nReading the clock is part of it. Cutting and redirecting to AF_XDP is not shown: its \
         work is done behind the program."
    );
    Ok(())
}

fn run(way: EngineSetup, size: usize, duration: Duration) -> Result<EngineRun> {
    let mut lab = Lab::new("flow-engines")?;
    let (near, far) = (lab.host("near")?, lab.host("far")?);
    let options = LinkOptions { mtu: 1500, ..LinkOptions::default() };
    lab.link(&near, "eth0", &far, "eth0", &options)?;
    let sources = near.inside(|| open(way))??;
    let (reading, taken) = (AtomicBool::new(true), AtomicU64::new(0));
    let mut outcome = EngineRun::default();
    std::thread::scope(|scope| -> Result<()> {
        let (reading, taken) = (&reading, &taken);
        let readers: Vec<_> = sources
            .into_iter()
            .map(|source| scope.spawn(move || read(source, reading, taken)))
            .collect();
        let sender = scope.spawn(|| send(&far, size, duration, taken));
        let sent = sender.join().expect("the sender does not panic");
        reading.store(false, Ordering::Relaxed);
        for reader in readers {
            let (packets, lost, ns) = reader.join().expect("readers do not panic")?;
            outcome.received += packets;
            outcome.most = outcome.most.max(packets);
            outcome.lost += lost;
            outcome.worker_ns += ns;
        }
        (outcome.sent, outcome.kernel_ns) = sent?;
        Ok(())
    })?;
    // Where the network stack has its softirqs put off, the link's own queue overflows.
    outcome.sent -= refused_by_link(&far)?;
    let missing = outcome.sent - outcome.received.min(outcome.sent);
    ensure!(missing == outcome.lost, "{missing} packets are missing, {} counted", outcome.lost);
    Ok(outcome)
}

fn open(way: EngineSetup) -> Result<Vec<Box<dyn Source>>> {
    let frames = |engine, snap, workers| -> Result<Vec<Box<dyn Source>>> {
        let spec = OpenSpec { snap, consume: true, ..OpenSpec::watching("eth0".into()) };
        let ports = open_group(engine, &spec, workers)?;
        Ok(ports.into_iter().map(|port| Box::new(Frames(port)) as Box<dyn Source>).collect())
    };
    match way {
        EngineSetup::AfPacket { snap, workers } => frames(Engine::AfPacket, snap, workers),
        EngineSetup::AfXdp { snap } => frames(Engine::AfXdp, snap, 1),
        EngineSetup::Header { workers, consume } => {
            let spec = HeaderSpec { workers, consume, ..HeaderSpec::new("eth0".into()) };
            let ports = headers::open(&spec)?;
            Ok(ports.into_iter().map(|port| Box::new(Headers(port)) as Box<dyn Source>).collect())
        }
    }
}

/// Packets that found no room in virtual Ethernet's queue to the other end.
fn refused_by_link(far: &Host) -> Result<u64> {
    let text = far.run(&["ip", "-j", "-s", "link", "show", "eth0"])?;
    let links: serde_json::Value = serde_json::from_str(&text)?;
    links[0]["stats64"]["tx"]["dropped"].as_u64().context("ip shows no counters")
}

/// Packets sent, and the processor time that it took, ns.
fn send(far: &Host, size: usize, duration: Duration, taken: &AtomicU64) -> Result<(u64, u64)> {
    far.inside(|| {
        let ifindex = sonde_sys::netlink::Links::open()?
            .all()?
            .into_iter()
            .find(|link| link.name == "eth0")
            .context("the far end has gone")?
            .ifindex;
        let load = LiveFrames::load(ifindex, FLOWS)?;
        let frame = frame(size);
        let (begin, mut sent, mut ns) = (Instant::now(), 0, 0);
        while begin.elapsed() < duration {
            let before = thread_cpu_ns();
            load.send(&frame, CHUNK)?;
            ns += thread_cpu_ns() - before;
            sent += u64::from(CHUNK);
            // What is lost never comes.
            let patience = Instant::now();
            while taken.load(Ordering::Relaxed) < sent && patience.elapsed() < LOST {
                std::thread::yield_now();
            }
        }
        Ok((sent, ns))
    })?
}

/// Packets read, packets lost, and the thread's processor time while it had any, ns.
fn read(
    mut source: Box<dyn Source>,
    reading: &AtomicBool,
    taken: &AtomicU64,
) -> Result<(u64, u64, u64)> {
    let (mut sum, mut ns) = (Sum::default(), 0);
    while reading.load(Ordering::Relaxed) {
        source.wait()?;
        let (before, packets) = (thread_cpu_ns(), sum.packets);
        source.turn(&mut sum)?;
        if sum.packets > packets {
            ns += thread_cpu_ns() - before;
            taken.fetch_add(sum.packets - packets, Ordering::Relaxed);
        }
    }
    std::hint::black_box((sum.bytes, sum.ports));
    Ok((sum.packets, source.lost(), ns))
}

/// Ethernet, IPv4, TCP of so many bytes in all, with the four of the frame check sequence
/// that nobody sees. The generator puts addresses and ports in.
fn frame(size: usize) -> Vec<u8> {
    let size = size.max(64) - 4;
    let [high, low] = ((size - 14) as u16).to_be_bytes();
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, high, low, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x9c, 0x40, 1, 0xbb, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    frame.resize(size, 0);
    frame
}

fn median(all: &[EngineRun], value: impl Fn(&EngineRun) -> f64) -> f64 {
    let mut values: Vec<f64> = all.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

const WAYS: [EngineSetup; 8] = [
    EngineSetup::AfPacket { snap: WHOLE, workers: 1 },
    EngineSetup::AfPacket { snap: CUT, workers: 1 },
    EngineSetup::AfPacket { snap: CUT, workers: 2 },
    EngineSetup::AfXdp { snap: WHOLE },
    EngineSetup::AfXdp { snap: CUT },
    HEADER,
    EngineSetup::Header { workers: 2, consume: true },
    EngineSetup::Header { workers: 1, consume: false },
];
const HEADER: EngineSetup = EngineSetup::Header { workers: 1, consume: true };
const WHOLE: usize = usize::MAX;
const CUT: usize = 128;
const FLOWS: u32 = 1 << 14;
/// Packets that are sent at once: fewer than any ring holds.
const CHUNK: u32 = 2048;
const TEST_RUNS: u32 = 60_000;
/// How long a worker waits for packets, ns.
const PATIENCE_NS: i64 = 5_000_000;
/// After so long what was sent and has not come is lost.
const LOST: Duration = Duration::from_millis(500);
const TCP: u8 = 6;
