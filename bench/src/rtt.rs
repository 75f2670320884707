//! Passive round-trip times: nanoseconds a packet of the kernel's programs, and of the
//! user-space matcher over a capture.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use sonde_lab::{LinkOptions, ROUTER_PROBE_SIDE, ROUTER_REFLECTOR_SIDE, Topology};
use sonde_meter::rtt::{Config, Matcher};
use sonde_wire::capture;
use sonde_wire::flow::{self, Link};

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
    let (mut packets, mut samples) = (0, 0);
    for record in capture::Reader::new(bytes)? {
        let record = record?;
        packets += 1;
        match flow::parse(record.data, Link::Ethernet, false) {
            Ok(packet) => matcher.input(0, &packet, 1, record.at),
            Err(error) => matcher.refused(error),
        }
        while matcher.poll_sample().is_some() {
            samples += 1;
        }
    }
    Ok((thread_cpu()? - before, packets, samples))
}

/// A capture of 100 flows through a router, each packet's first 96 bytes.
fn record(timestamps: bool) -> Result<String> {
    let topology = Topology::three_hosts("bench", &LinkOptions::default())?;
    let router = topology.router.as_ref().context("the topology has a router")?;
    for (host, interface) in [
        (&topology.probe, Topology::INTERFACE),
        (router, ROUTER_PROBE_SIDE),
        (router, ROUTER_REFLECTOR_SIDE),
        (&topology.reflector, Topology::INTERFACE),
    ] {
        host.offloads_off(interface)?;
    }
    let setting = format!("net.ipv4.tcp_timestamps={}", u8::from(timestamps));
    topology.probe.sysctl(&[&setting])?;
    topology.reflector.sysctl(&[&setting])?;
    let file = std::env::temp_dir().join(format!("sonde-rtt-{}.pcap", std::process::id()));
    let path = file.to_str().context("the temporary folder's path is not text")?.to_owned();
    let mut dump = router
        .command("tcpdump")
        .args(["-i", ROUTER_PROBE_SIDE, "-w", &path, "-s", "96", "-n", "-B", "65536"])
        .args(["--time-stamp-precision=nano", "-Z", "root", "-c", "300000"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let patience = Instant::now();
    while std::fs::metadata(&file).map_or(0, |m| m.len()) < 24 {
        if patience.elapsed() > Duration::from_secs(10) {
            let _ = dump.kill();
            bail!("tcpdump did not begin to listen");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut server = topology.reflector.command("iperf3");
    let mut server = server.args(["-s", "-1"]).stdout(Stdio::null()).spawn()?;
    while !topology.reflector.run(&["ss", "-Hltn"])?.contains(":5201") {
        if patience.elapsed() > Duration::from_secs(20) {
            let _ = server.kill();
            bail!("the iperf3 server does not listen");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let client = topology
        .probe
        .command("iperf3")
        .args(["-c", "10.3.0.1", "-C", "cubic", "-P", "100", "-t", "4"])
        .stdout(Stdio::null())
        .status()?;
    let _ = server.wait();
    let _ = Command::new("kill").args(["-INT", &dump.id().to_string()]).status();
    dump.wait()?;
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
fn thread_cpu() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos: u64 = text.split_whitespace().next().unwrap_or_default().parse()?;
    Ok(nanos as f64 / 1e9)
}

/// Processor time of the children that have ended, s, to 10 ms.
fn children_cpu() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let after = stat.rsplit(')').next()?;
    let field = |i: usize| after.split_whitespace().nth(i)?.parse::<f64>().ok();
    Some((field(13)? + field(14)?) / 100.0)
}

/// Passes over a capture; the quickest counts, the others met other work.
const REPEAT: usize = 5;
