//! Flow metering alone, from frames in memory, on one core, beside what this machine's
//! memory allows: the same frames parsed and hashed, and a bare table walked with the same
//! prefetching. All processor time of the thread; each repetition runs every row once.

mod bare;

use std::collections::HashMap;
use std::hint::black_box;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use sonde_meter::flow::{BURST, Config, FlowCache};
use sonde_results::flow::{FlowEnd, FlowRecord};
use sonde_wire::feature::{Feature, Keys, Layers, PacketMeta, parse_into};
use sonde_wire::flow::LinkType;

use crate::rtt::thread_cpu;
use bare::Bare;

pub fn bench(repeat: usize) -> Result<()> {
    rates(repeat)?;
    collisions(repeat)?;
    flood()?;
    threads(repeat)
}

/// What a load's frames are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// UDP over IPv4, one direction.
    OneWay,
    /// The same, every other round of all flows in the other direction.
    BothWays,
    /// Both ways; one flow in five IPv6, every other one TCP.
    Mix,
    /// Both ways; flows whose keys all fall into a 64th of the buckets of the bare table's
    /// hash, whose secret is known.
    Chosen,
    /// Both ways; flows whose key words all have the same exclusive or.
    SameXor,
}

/// Frames one after the other, at a fixed distance.
struct Load {
    bytes: Vec<u8>,
    stride: usize,
}

impl Load {
    /// Packet i is of flow (i * 0x9E3779B1) mod `flows`, a power of two.
    fn new(kind: Kind, flows: u32) -> Self {
        let stride = if kind == Kind::Mix { 80 } else { 64 };
        let mut bytes = vec![0; PACKETS as usize * stride];
        let ends = ends(kind, flows);
        for (i, frame) in (0..PACKETS).zip(bytes.chunks_exact_mut(stride)) {
            let flow = i.wrapping_mul(0x9E37_79B1) & (flows - 1);
            let mut ends = ends[flow as usize];
            if kind != Kind::OneWay && (i / flows) & 1 == 1 {
                ends = Ends { source: ends.destination, destination: ends.source };
            }
            let (ipv6, tcp) =
                (kind == Kind::Mix && flow.is_multiple_of(5), kind == Kind::Mix && flow & 1 == 1);
            write_frame(frame, ends, ipv6, tcp);
        }
        Load { bytes, stride }
    }

    fn frames(&self) -> impl Iterator<Item = &[u8]> {
        // What is on the wire without its checksum: 60 bytes, or 74 for the longest.
        let len = if self.stride == 64 { 60 } else { 74 };
        self.bytes.chunks_exact(self.stride).map(move |frame| &frame[..len])
    }
}

/// Address and port of both.
#[derive(Clone, Copy)]
struct Ends {
    source: (u32, u16),
    destination: (u32, u16),
}

fn ends(kind: Kind, flows: u32) -> Vec<Ends> {
    let server = (0xC000_0201, 53);
    let plain = |flow: u32| Ends { source: (0x0A00_0000 + flow, 40_000), destination: server };
    match kind {
        Kind::Chosen => {
            let is_chosen = |ends: &Ends| {
                let (low, high) = (ends.source, ends.destination);
                bare::hash(Bare::key(low, high)) >> 58 == 0
            };
            let tried = (0u32..).map(|i| Ends {
                source: (0x0A00_0000 + (i & 0xFF_FFFF), 40_000 + (i >> 24) as u16),
                destination: server,
            });
            tried.filter(is_chosen).take(flows as usize).collect()
        }
        Kind::SameXor => (0..flows)
            .map(|flow| Ends {
                source: (0x0A00_0000 + flow, 40_000),
                destination: (0xC000_0201 ^ flow, 40_000),
            })
            .collect(),
        _ => (0..flows).map(plain).collect(),
    }
}

fn write_frame(frame: &mut [u8], ends: Ends, ipv6: bool, tcp: bool) {
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    let transport = if tcp { 20 } else { 8 };
    let protocol = if tcp { 6 } else { 17 };
    let start = if ipv6 {
        frame[12..14].copy_from_slice(&[0x86, 0xDD]);
        frame[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, transport, protocol, 64]);
        for (i, (address, _)) in [ends.source, ends.destination].into_iter().enumerate() {
            let field = &mut frame[22 + 16 * i..38 + 16 * i];
            field[..4].copy_from_slice(&[0x20, 1, 0x0D, 0xB8]);
            field[12..].copy_from_slice(&address.to_be_bytes());
        }
        54
    } else {
        frame[12..14].copy_from_slice(&[0x08, 0]);
        frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, protocol]);
        frame[26..30].copy_from_slice(&ends.source.0.to_be_bytes());
        frame[30..34].copy_from_slice(&ends.destination.0.to_be_bytes());
        34
    };
    frame[start..start + 2].copy_from_slice(&ends.source.1.to_be_bytes());
    frame[start + 2..start + 4].copy_from_slice(&ends.destination.1.to_be_bytes());
    if tcp {
        frame[start + 12..start + 14].copy_from_slice(&[0x50, 0x10]);
    } else {
        frame[start + 4..start + 6].copy_from_slice(&26u16.to_be_bytes());
    }
}

/// Millions of packets a second of processor time of the bare table.
fn limit(load: &Load, flows: u32) -> Result<f64> {
    let mut table = Bare::new(flows);
    let mut used = 0;
    let mut pass = |table: &mut Bare, pass_index: u64| {
        let mut frames = load.frames();
        let mut burst: [&[u8]; BURST] = [&[]; BURST];
        for i in 0..PACKETS as usize / BURST {
            burst.fill_with(|| frames.next().unwrap_or_default());
            table.burst(&burst, pass_index + i as u64, &mut used);
        }
    };
    pass(&mut table, 0);
    let before = thread_cpu()?;
    for pass_index in 0..PASSES {
        pass(&mut table, u64::from(pass_index));
    }
    let seconds = thread_cpu()? - before;
    black_box(&table);
    Ok(f64::from(PACKETS) * f64::from(PASSES) / seconds / 1e6)
}

/// What metering a load gave.
struct Metered {
    /// Millions of packets a second of processor time.
    mpps: f64,
    /// Records while it was measured.
    records: u64,
}

/// All passes through a cache; the first is not measured.
fn metered(load: &Load, config: Config) -> Result<Metered> {
    let mut cache = FlowCache::new(config);
    let mut records = 0u64;
    let mut sink = |record: FlowRecord| {
        records += 1;
        black_box(record.forward.packets);
    };
    pass(load, &mut cache, 0, &mut sink);
    let before = thread_cpu()?;
    for pass_index in 1..=PASSES {
        pass(load, &mut cache, pass_index, &mut sink);
    }
    let seconds = thread_cpu()? - before;
    let counters = *cache.counters();
    let offered = u64::from(PACKETS) * u64::from(PASSES + 1);
    ensure!(counters.packets == offered, "{} of {offered} packets metered", counters.packets);
    ensure!(counters.exported_packets + cache.occupancy().packets == offered, "packets were lost");
    let evicted = counters.evicted_full + counters.evicted_crowded;
    ensure!(evicted == 0, "{evicted} flows were evicted of {}", counters.flows);
    Ok(Metered { mpps: f64::from(PACKETS) * f64::from(PASSES) / seconds / 1e6, records })
}

/// Parses and meters every frame; 1 us apart.
fn pass(load: &Load, cache: &mut FlowCache, pass_index: u32, sink: &mut impl FnMut(FlowRecord)) {
    let mut packets = [Feature::default(); BURST];
    let mut with: [(&[u8], Layers); BURST] = [(&[], Layers::default()); BURST];
    let mut at_ns = START_NS + i64::from(pass_index) * i64::from(PACKETS) * 1_000;
    let mut frames = load.frames();
    for _ in 0..PACKETS as usize / BURST {
        let mut len = 0;
        for frame in frames.by_ref().take(BURST) {
            at_ns += 1_000;
            let seen =
                PacketMeta { wire_len: frame.len(), link: LinkType::Ethernet, at_ns, point: 0 };
            let (part, layers) = &mut with[len];
            match parse_into(frame, &seen, Keys::Outer, &mut packets[len], layers) {
                Ok(()) => {
                    *part = frame;
                    len += 1;
                }
                Err(error) => cache.refused(error, frame.len()),
            }
        }
        cache.burst(&packets[..len], &with[..len], sink);
    }
}

/// Every flow is looked at for its time-outs twice while it is measured, and none ends.
fn config() -> Config {
    Config {
        flows: ROOM,
        idle_ns: 10_000_000_000,
        active_ns: 60_000_000_000,
        secret: [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344],
        ..Config::default()
    }
}

/// A row of the table of rates.
#[derive(Clone, Copy)]
enum Row {
    Bare,
    /// With room for many more flows than there are.
    Metered(Kind),
    /// Nine tenths of the slots are taken.
    Full,
    /// Every flow meets the active time-out once while it is measured, and begins anew.
    Ending,
}

fn rates(repeat: usize) -> Result<()> {
    println!("\n## Flow metering from memory: million packets a second of one core\n");
    println!(
        "Frames of 64 bytes, {PACKETS} in memory, {PASSES} passes after a first; median of {repeat}. Room for \
         {ROOM} flows, packets 1 us apart, time-outs 10 s and 60 s (where flows end 20 s)."
    );
    println!("\n| | {} |", FLOWS.map(|flows| format!("{flows} flows")).join(" | "));
    println!("|---|{}", "---|".repeat(FLOWS.len()));
    const ROWS: [(&str, Row); 6] = [
        ("bare table, one way", Row::Bare),
        ("metering, one way", Row::Metered(Kind::OneWay)),
        ("metering, both ways", Row::Metered(Kind::BothWays)),
        ("metering, both ways, 90 % full", Row::Full),
        ("metering, both ways, every flow ends and begins anew", Row::Ending),
        ("metering, both ways, 20 % IPv6, 50 % TCP", Row::Metered(Kind::Mix)),
    ];
    let mut runs = vec![vec![Vec::new(); FLOWS.len()]; ROWS.len()];
    let mut records = vec![[0; FLOWS.len()]; ROWS.len()];
    for round in 0..repeat {
        for (column, flows) in FLOWS.into_iter().enumerate() {
            eprintln!("flow cache, {flows} flows, round {} ...", round + 1);
            let mut load = Load::new(Kind::OneWay, flows);
            let mut kind = Kind::OneWay;
            for (row, (_, what)) in ROWS.into_iter().enumerate() {
                let (wanted, config) = match what {
                    Row::Bare => (Kind::OneWay, config()),
                    Row::Metered(kind) => (kind, config()),
                    Row::Full => {
                        (Kind::BothWays, Config { flows: flows as usize * 10 / 9, ..config() })
                    }
                    Row::Ending => {
                        (Kind::BothWays, Config { active_ns: 20_000_000_000, ..config() })
                    }
                };
                if kind != wanted {
                    load = Load::new(wanted, flows);
                    kind = wanted;
                }
                let rate = if matches!(what, Row::Bare) {
                    limit(&load, flows)?
                } else {
                    let metered = metered(&load, config)?;
                    records[row][column] = metered.records;
                    metered.mpps
                };
                runs[row][column].push(rate);
            }
        }
    }
    for (row, (name, what)) in ROWS.into_iter().enumerate() {
        print!("| {name} |");
        for (rates, bare) in runs[row].iter().zip(&runs[0]) {
            let rate = median(rates);
            print!(" {rate:.1}");
            if !matches!(what, Row::Bare) {
                print!(" ({:.0} %)", 100.0 * rate / median(bare));
            }
            print!(" |");
        }
        println!();
    }
    println!("\nIn brackets the share of the bare table's rate. Records that the time-outs made:");
    for (row, (name, _)) in ROWS.into_iter().enumerate().skip(1) {
        println!("- {name}: {}", records[row].map(|n| n.to_string()).join(", "));
    }
    let largest = FLOWS[FLOWS.len() - 1] as usize;
    let cache = FlowCache::new(Config { flows: largest, ..config() });
    println!(
        "\nMemory: {:.1} bytes a flow with room for {largest}.",
        cache.memory() as f64 / largest as f64
    );
    Ok(())
}

fn collisions(repeat: usize) -> Result<()> {
    println!("\n## Flows that someone chose\n");
    println!("{CHOSEN} flows, both ways; million packets a second, median of {repeat}.\n");
    println!("| flows | rate | of ordinary |\n|---|---|---|");
    let kinds = [
        ("ordinary", Kind::BothWays),
        ("all in 1/64 of the buckets of a hash without a secret", Kind::Chosen),
        ("all words together always the same (exclusive or)", Kind::SameXor),
    ];
    let mut runs = [const { Vec::new() }; 3];
    for _ in 0..repeat {
        for ((_, kind), runs) in kinds.iter().zip(&mut runs) {
            runs.push(metered(&Load::new(*kind, CHOSEN), config())?.mpps);
        }
    }
    for ((name, _), rates) in kinds.iter().zip(&runs) {
        let rate = median(rates);
        println!("| {name} | {rate:.1} | {:.0} % |", 100.0 * rate / median(&runs[0]));
    }
    Ok(())
}

/// Single packets of ever new flows, and established flows among them.
fn flood() -> Result<()> {
    println!("\n## A flood of single packets\n");
    let mut cache = FlowCache::new(Config { flows: FLOOD_ROOM, ..config() });
    let memory = cache.memory();
    let mut records: HashMap<(bool, FlowEnd), u64> = HashMap::new();
    let mut sink = |record: FlowRecord| {
        let is_established = record.key.destination_port == 443;
        *records.entry((is_established, record.end)).or_default() += 1;
    };
    let mut packets = [Feature::default(); BURST];
    let (mut at_ns, mut established, mut new) = (START_NS, 0u32, 0u32);
    let before = thread_cpu()?;
    while new < FLOOD_FLOWS {
        for (i, packet) in packets.iter_mut().enumerate() {
            // Each established flow first says something twice, then one packet in eight is theirs.
            let is_established = established < 2 * ESTABLISHED || i % 8 == 0;
            let (host, port) = if is_established {
                established += 1;
                (0x0A00_0000 + established % ESTABLISHED, 443)
            } else {
                new += 1;
                (new, 80)
            };
            let mut source = [0; 16];
            source[10..12].fill(0xFF);
            source[12..].copy_from_slice(&host.to_be_bytes());
            *packet = Feature {
                at_ns,
                source,
                source_port: 1_024 + (host >> 24) as u16,
                destination_port: port,
                ip_len: 46,
                protocol: 17,
                ..Feature::default()
            };
            at_ns += 1_000;
        }
        cache.burst(&packets, &[], &mut sink);
    }
    let seconds = thread_cpu()? - before;
    let counters = *cache.counters();
    let offered = counters.packets;
    ensure!(cache.memory() == memory, "the cache grew");
    ensure!(counters.exported_packets + cache.occupancy().packets == offered, "packets were lost");
    let evicted = records.get(&(true, FlowEnd::LackOfResources)).copied().unwrap_or(0);
    println!(
        "{FLOOD_FLOWS} flows of one packet and {ESTABLISHED} established ones, room for {FLOOD_ROOM}: {:.1} million \
         packets a second, {} flows evicted, of the established {evicted}; {:.0} MB throughout.",
        offered as f64 / seconds / 1e6,
        counters.evicted_full + counters.evicted_crowded,
        memory as f64 / 1e6,
    );
    Ok(())
}

fn threads(repeat: usize) -> Result<()> {
    println!("\n## Two caches on two threads\n");
    println!("Both ways, million packets a second of processor time, median of {repeat}.\n");
    println!("| flows each | one thread | two, together | ratio |\n|---|---|---|---|");
    for flows in FLOWS {
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for _ in 0..repeat {
            let load = Load::new(Kind::BothWays, flows);
            one.push(metered(&load, config())?.mpps);
            let both = thread::scope(|scope| {
                let threads = [(); 2].map(|()| scope.spawn(|| metered(&load, config())));
                threads.map(|thread| thread.join())
            });
            let mut sum = 0.0;
            for thread in both {
                sum += thread.ok().context("a thread panicked")??.mpps;
            }
            two.push(sum);
        }
        let (one, two) = (median(&one), median(&two));
        println!("| {flows} | {one:.1} | {two:.1} | {:.2} |", two / one);
    }
    Ok(())
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

const FLOWS: [u32; 3] = [1 << 11, 1 << 18, 1 << 21];
const PACKETS: u32 = 1 << 22;
const PASSES: u32 = 6;
/// Flows that each cache has room for.
const ROOM: usize = 1 << 22;
const CHOSEN: u32 = 1 << 18;
const FLOOD_FLOWS: u32 = 10_000_000;
const FLOOD_ROOM: usize = 1 << 20;
const ESTABLISHED: u32 = 100_000;
/// Any day.
const START_NS: i64 = 1_700_000_000_000_000_000;
