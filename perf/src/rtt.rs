//! Passive round-trip times: nanoseconds a packet of the kernel's programs, and of the
//! user-space matcher over a capture.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use sonde_bpf::{RttBench, RttConfig, RttProgram, RttTraffic};
use sonde_lab::ROUTER_PROBE_SIDE;
use sonde_meter::rtt::{Config, Matcher};
use sonde_sys::cpu_time::stat_field;
use sonde_wire::flow::{self, LinkType};
use sonde_wire::{Time, capture};

use crate::child::ChildGuard;
use crate::routed::{self, SERVER};

/// What each packet costs in the kernel, with the groups' histograms on.
pub fn cost_bench() -> Result<()> {
    println!("\n## The kernel's programs: ns a packet\n");
    println!(
        "BPF_PROG_TEST_RUN, requests and answers in turn; least of {ROUNDS} rounds, less what it \
         costs to make the packets. With a sample, each pair of packets is one: each of the two \
         reads the clock. While a spin bit spins, each packet is one. Plain UDP, neither DNS nor \
         QUIC, makes no flow.\n"
    );
    print!("| packets | ");
    for flows in FLOWS {
        print!("{flows} flows | ");
    }
    println!("\n|---|{}", "---|".repeat(FLOWS.len()));
    for (traffic, samples, what) in TRAFFIC {
        for ipv6 in [false, true] {
            let version = if ipv6 { "IPv6" } else { "IPv4" };
            print!("| {version} {what} | ");
            for flows in FLOWS {
                eprintln!("{version} {what}, {flows} flows ...");
                let bench = RttBench { flows, packets: PACKETS, ipv6, traffic, samples };
                let config = RttConfig { flows: TABLE, xdp: false, ..RttConfig::default() };
                let cost = RttProgram::measure(&config, bench, ROUNDS)?;
                print!("{} | ", cost.total_ns.saturating_sub(cost.wrapper_ns));
            }
            println!();
        }
    }
    Ok(())
}

const TRAFFIC: [(RttTraffic, bool, &str); 8] = [
    (RttTraffic::Tcp, false, "TCP with timestamps, no sample"),
    (RttTraffic::Tcp, true, "TCP with timestamps, a sample a pair"),
    (RttTraffic::Dns, false, "UDP (DNS), no sample"),
    (RttTraffic::Dns, true, "UDP (DNS), a sample a pair"),
    (RttTraffic::QuicShort, false, "QUIC, short header, spin bit still"),
    (RttTraffic::QuicShort, true, "QUIC, short header, a sample a packet"),
    (RttTraffic::QuicInitial, false, "QUIC, Initial, no sample"),
    (RttTraffic::Udp, false, "UDP, plain"),
];

/// The matcher over real traffic, against tcptrace where that is installed.
pub fn capture_bench() -> Result<()> {
    println!("\n## The matcher over a capture\n");
    for tool in ["iperf3", "tcpdump"] {
        if Command::new(tool).arg("--version").output().is_err() {
            println!("Not measured: {tool} is not installed (`apt-get install {tool}`).");
            return Ok(());
        }
    }
    println!("| TCP | packets | us a packet | samples | tcptrace us a packet |");
    println!("|---|---|---|---|---|");
    for timestamps in [true, false] {
        let file = record(timestamps)?;
        let bytes = std::fs::read(&file)?;
        let mut best: Option<(f64, u64, u64)> = None;
        for _ in 0..REPEAT {
            let (seconds, packets, samples) = match_all(&bytes)?;
            if best.is_none_or(|(least, ..)| seconds < least) {
                best = Some((seconds, packets, samples));
            }
        }
        let (seconds, packets, samples) = best.context("repeated at least once")?;
        let peer = tcptrace(&file, packets);
        let _ = std::fs::remove_file(&file);
        println!(
            "| {} | {packets} | {:.3} | {samples} | {} |",
            if timestamps { "with timestamps" } else { "without" },
            seconds * 1e6 / packets as f64,
            peer.map_or("not installed".into(), |us| format!("{us:.3}")),
        );
    }
    Ok(())
}

/// Processor time, packets and samples of one pass.
fn match_all(bytes: &[u8]) -> Result<(f64, u64, u64)> {
    let mut matcher = Matcher::new(Config::default());
    let before = thread_cpu()?;
    let mut packets = 0;
    for record in capture::Reader::new(bytes)? {
        let record = record?;
        packets += 1;
        let link = LinkType::from_capture(record.link_type).context("an unknown link type")?;
        match flow::parse(record.data, link, false) {
            Ok(packet) => matcher.input(0, &packet, 1, Time::from_nanos(record.unix_nanos)),
            Err(error) => matcher.refused(error),
        }
    }
    let seconds = thread_cpu()? - before;
    let counters = matcher.coverage().counters;
    let samples = counters.iter().filter(|(name, _)| name.starts_with("samples_"));
    Ok((seconds, packets, samples.map(|(_, n)| n).sum()))
}

/// A capture of 100 flows through a router, each packet's first 96 bytes.
fn record(timestamps: bool) -> Result<String> {
    let topology = routed::network()?;
    let router = routed::router(&topology)?;
    let setting = format!("net.ipv4.tcp_timestamps={}", u8::from(timestamps));
    topology.probe.sysctl(&[&setting])?;
    topology.reflector.sysctl(&[&setting])?;
    let file = std::env::temp_dir().join(format!("sonde-rtt-{}.pcap", std::process::id()));
    let path = file.to_str().context("the temporary folder's path is not text")?.to_owned();
    let mut dump = router.command("tcpdump");
    dump.args(["-i", ROUTER_PROBE_SIDE, "-w", &path, "-s", "96", "-n", "-B", "65536"])
        .args(["--time-stamp-precision=nano", "-Z", "root", "-c", "300000"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let mut dump = ChildGuard(dump.spawn()?);
    let mut said = BufReader::new(dump.0.stderr.take().context("no output")?).lines();
    if !said.any(|line| line.is_ok_and(|line| line.contains("listening on"))) {
        bail!("tcpdump ended with {}", dump.0.wait()?);
    }
    std::thread::spawn(move || said.for_each(drop));
    let _servers = routed::servers(&topology.reflector, 1)?;
    let client = topology
        .probe
        .command("iperf3")
        .args(["-c", SERVER, "-C", "cubic", "-P", "100", "-t", "4"])
        .stdout(Stdio::null())
        .status()?;
    dump.finish()?;
    if !client.success() {
        bail!("iperf3 ended with {client}");
    }
    Ok(path)
}

/// Microseconds of processor time a packet of `tcptrace -r`, or `None` without it.
fn tcptrace(file: &str, packets: u64) -> Option<f64> {
    let before = children_cpu()?;
    let status = Command::new("tcptrace")
        .args(["-r", "-l", file])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.ok().filter(|s| s.success())?;
    Some((children_cpu()? - before) * 1e6 / packets as f64)
}

/// Processor time of this thread, s.
pub fn thread_cpu() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos: u64 = text.split_whitespace().next().unwrap_or_default().parse()?;
    Ok(nanos as f64 / 1e9)
}

/// Processor time of the children that have ended, s, to 10 ms.
fn children_cpu() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let ticks = |field: usize| stat_field::<f64>(&stat, field);
    Some((ticks(16)? + ticks(17)?) / 100.0)
}

const FLOWS: [u32; 3] = [1, 1_024, 65_536];
/// Packets of a round: three of each flow at least.
const PACKETS: u32 = 400_000;
const ROUNDS: u32 = 15;
/// Room in the flow table.
const TABLE: u32 = 131_072;
/// Passes over a capture; the quickest counts, the others met other work.
const REPEAT: usize = 5;
