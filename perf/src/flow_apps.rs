//! What fields beyond the basic flow record cost: a realistic mix from memory through the
//! flow cache, with each group of fields alone and with all; and what a flow of each
//! application costs by itself, from captures of real programs.

use std::hint::black_box;

use anyhow::{Result, ensure};
use sonde_meter::flow::features;
use sonde_meter::flow::{BURST, Config, FlowCache};
use sonde_meter::traffic::{self, FlowGenerator};
use sonde_results::flow::FlowRecord;
use sonde_wire::capture;
use sonde_wire::feature::{Feature, Keys, Layers, PacketMeta, parse_into};
use sonde_wire::flow::LinkType;

use crate::rtt::thread_cpu;

pub fn bench(repeat: usize) -> Result<()> {
    mix(repeat)?;
    single(repeat)
}

/// Frames one after the other, and when each was seen.
#[derive(Default)]
struct Load {
    bytes: Vec<u8>,
    frames: Vec<(usize, usize, i64)>,
    link: Option<LinkType>,
}

impl Load {
    fn push(&mut self, frame: &[u8], at_ns: i64) {
        self.frames.push((self.bytes.len(), frame.len(), at_ns));
        self.bytes.extend_from_slice(frame);
    }
}

/// The generator's mix of protocols, sizes and flow lengths: applications speak in as many
/// of its flows as it is made for by default.
fn generated() -> Result<(Load, u64)> {
    let config = traffic::Config {
        flows: CONCURRENT,
        total_flows: Some(FLOWS),
        start_ns: START_NS,
        ..traffic::Config::default()
    };
    let mut buffer = vec![0; config.longest_frame()];
    let mut generator = FlowGenerator::new(config)?;
    let mut load = Load::default();
    while let Some(at_ns) = generator.next_at() {
        let len = generator.emit(at_ns, &mut buffer, &mut |_| {});
        load.push(&buffer[..len], at_ns);
    }
    Ok((load, generator.begun()))
}

/// A capture that is checked in.
fn captured(file: &[u8]) -> Result<Load> {
    let mut load = Load::default();
    for packet in capture::Reader::new(file)? {
        let packet = packet?;
        load.link = LinkType::from_capture(packet.link_type);
        load.push(packet.data, packet.unix_nanos);
    }
    Ok(load)
}

/// Seconds of processor time for all frames, the end of all flows included; and how many
/// records have an application.
fn pass(load: &Load, cache: &mut FlowCache, shift_ns: i64) -> Result<(f64, u64)> {
    let link = load.link.unwrap_or(LinkType::Ethernet);
    let mut apps = 0;
    let mut sink = |record: FlowRecord| {
        let extra = black_box(&record).extra.as_ref();
        apps += u64::from(extra.is_some_and(|extra| extra.app.is_some()));
    };
    let mut packets = [Feature::default(); BURST];
    let mut with: [(&[u8], Layers); BURST] = [(&[], Layers::default()); BURST];
    let before = thread_cpu()?;
    let mut last = 0;
    for burst in load.frames.chunks(BURST) {
        let mut len = 0;
        for (start, length, at_ns) in burst {
            let frame = &load.bytes[*start..start + length];
            last = at_ns + shift_ns;
            let seen = PacketMeta { wire_len: frame.len(), link, at_ns: last, point: 0 };
            let (part, layers) = &mut with[len];
            match parse_into(frame, &seen, Keys::Outer, &mut packets[len], layers) {
                Ok(()) => {
                    *part = frame;
                    len += 1;
                }
                Err(error) => cache.refused(error, frame.len()),
            }
        }
        cache.burst(&packets[..len], &with[..len], &mut sink);
    }
    cache.finish(last, &mut sink);
    Ok((thread_cpu()? - before, apps))
}

fn cache(flows: usize, features: features::Config) -> FlowCache {
    FlowCache::new(Config { flows, features, ..Config::default() })
}

fn mix(repeat: usize) -> Result<()> {
    let (load, flows) = generated()?;
    let packets = load.frames.len();
    let none = features::Config::default();
    let rows = [
        ("basic record", none),
        ("link layer", features::Config { link: true, ..none }),
        ("first 8 packets", features::Config { packets: 8, ..none }),
        ("histograms", features::Config { spread: true, ..none }),
        ("TCP performance", features::Config { tcp: true, ..none }),
        ("applications", features::Config { apps: true, ..none }),
        ("all", features::Config { link: true, packets: 8, spread: true, tcp: true, apps: true }),
    ];
    println!("\n## What flow fields cost\n");
    println!(
        "{packets} frames of the generator's mix, {} bytes on average, in memory: {flows} flows, \
         {CONCURRENT} at a time; parsed and metered by one core, every record made. Processor time; \
         least of {repeat} rounds, in turn.\n",
        load.bytes.len() / packets,
    );
    let mut least = [f64::INFINITY; 7];
    let mut applications = 0;
    for round in 0..repeat {
        for ((_, features), least) in rows.iter().zip(&mut least) {
            eprintln!("flow fields, round {} ...", round + 1);
            let mut cache = cache(1 << 17, *features);
            // The first pass finds the memory.
            pass(&load, &mut cache, 0)?;
            let (seconds, apps) = pass(&load, &mut cache, NEXT_NS)?;
            *least = seconds.min(*least);
            if features.apps {
                applications = apps;
            }
        }
    }
    ensure!(applications > flows / 4, "{applications} applications in {flows} flows");
    println!("| fields | Mpps | ns a packet | times basic |\n|---|---|---|---|");
    for ((name, _), seconds) in rows.iter().zip(least) {
        println!(
            "| {name} | {:.1} | {:.1} | {:.2} |",
            packets as f64 / seconds / 1e6,
            seconds * 1e9 / packets as f64,
            seconds / least[0]
        );
    }
    println!("\nApplications were found in {applications} flows.");
    Ok(())
}

/// What the application adds to one flow.
fn single(repeat: usize) -> Result<()> {
    println!("\n### A flow's application, microseconds\n");
    println!(
        "Captures of real clients and servers, {ROUNDS} times each; the basic record's time taken \
         off. Least of {repeat} rounds.\n"
    );
    println!("| protocol | flows | us a flow |\n|---|---|---|");
    let files: [(&str, &[u8]); 4] = [
        ("TLS", include_bytes!("../../tests/golden/flow_apps/tls.pcap")),
        ("QUIC", include_bytes!("../../tests/golden/flow_apps/quic.pcap")),
        ("HTTP/1", include_bytes!("../../tests/golden/flow_apps/http.pcap")),
        ("DNS", include_bytes!("../../tests/golden/flow_apps/dns.pcap")),
    ];
    for (name, file) in files {
        let load = captured(file)?;
        let mut least = [f64::INFINITY; 2];
        let mut found = 0;
        for _ in 0..repeat {
            for (apps, least) in [false, true].into_iter().zip(&mut least) {
                let features = features::Config { apps, ..features::Config::default() };
                let mut cache = cache(1024, features);
                let mut sum = 0.0;
                for round in 0..ROUNDS {
                    let (seconds, apps) = pass(&load, &mut cache, round * NEXT_NS)?;
                    sum += seconds;
                    found = apps;
                }
                *least = sum.min(*least);
            }
        }
        ensure!(found > 0, "{name}: nothing was found");
        let us = (least[1] - least[0]) * 1e6 / (ROUNDS as u64 * found) as f64;
        println!("| {name} | {found} | {us:.1} |");
    }
    Ok(())
}

const CONCURRENT: u32 = 10_000;
/// All of them to their ends: what a flow costs at its beginning spreads over its packets.
const FLOWS: u64 = 20_000;
const START_NS: i64 = 1_700_000_000_000_000_000;
/// From one pass to the next: beyond every time-out.
const NEXT_NS: i64 = 1_000_000_000_000;
const ROUNDS: i64 = 300;
