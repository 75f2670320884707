//! The two reflectors: nanoseconds a packet in the kernel, packets a second in user space.

use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use sonde_bpf::{KernelReflector, KernelReflectorConfig};
use sonde_lab::{LinkOptions, Topology};
use sonde_wire::stamp::SenderRepr;
use sonde_wire::{ErrorEstimate, build, ethernet};

use crate::child::ChildGuard;
use crate::load::{Load, Look, SIZE};
use crate::measure;

/// The kernel reflector at the far end.
pub fn start_kernel(topology: &Topology) -> Result<ChildGuard> {
    start(topology, &["--kernel"])
}

fn start(topology: &Topology, options: &[&str]) -> Result<ChildGuard> {
    let me = std::env::current_exe()?;
    let sonde = me.with_file_name("sonde");
    let mut command = topology.reflector.command(sonde.to_str().context("path is not text")?);
    command.args(["reflect", "--iface", Topology::INTERFACE]).args(options);
    let mut far = ChildGuard(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?);
    let output = far.0.stdout.take().context("no output")?;
    let mut lines = BufReader::new(output).lines();
    for line in lines.by_ref() {
        if line?.contains("reflecting") {
            std::thread::spawn(move || lines.for_each(drop));
            return Ok(far);
        }
    }
    bail!("the reflector ended with {}; build it first: cargo build --release", far.0.wait()?)
}

pub fn bench() -> Result<()> {
    println!("\n## Reflectors\n");
    test_run()?;
    println!("\nUser space, on its own processor, 150-byte packets, sent by `af_xdp`:\n");
    println!("| engine | asked/s | sent/s | answered | lost | its CPU us/packet |");
    println!("|---|---|---|---|---|---|");
    for (engine, rates) in [
        ("af_xdp", [200_000, 250_000, 300_000]),
        ("af_packet", [50_000, 100_000, 150_000]),
        ("socket", [50_000, 100_000, 150_000]),
    ] {
        for rate in rates {
            eprintln!("user-space reflector on {engine} at {rate} packets/s ...");
            let topology = Topology::pair("bench", &LinkOptions::default())?;
            let far = start(&topology, &["--engine", engine, "--cpu", "1"])?;
            let before = far.cpu_seconds();
            let o = measure(&topology, "af_xdp", Load { rate, seconds: 5 }, Look::Records)?;
            let cpu = (far.cpu_seconds() - before) * 1e6 / o.received.max(1) as f64;
            println!(
                "| {engine} | {rate} | {:.0} | {} | {} | {cpu:.2} |",
                o.rate(),
                o.received,
                o.lost()
            );
        }
    }
    Ok(())
}

/// By `BPF_PROG_TEST_RUN`: nine runs of 200,000 packets each.
pub fn test_run() -> Result<()> {
    println!(
        "In the kernel, by `BPF_PROG_TEST_RUN` (IPv4, Extra Padding TLV, stateful). A wrapper"
    );
    println!("makes each reply the request of the next session; its own cost, measured around an");
    println!("empty program in turn with the reflector, is subtracted in the last column:\n");
    println!(
        "| sessions | packet bytes | with wrapper, ns: least / median / most | wrapper, median | reflector, median |"
    );
    println!("|---|---|---|---|---|");
    for (sessions, size) in [(1, 72), (1, SIZE), (20_000, 72), (20_000, SIZE), (20_000, 1500)] {
        let local = [(IpAddr::from(Ipv4Addr::new(10, 2, 0, 0)), 16)];
        // With limits, as it runs, but such as nothing here exceeds.
        let reflector = KernelReflector::load(&KernelReflectorConfig {
            rate_limit: Some((1_000_000_000, 1_000_000_000)),
            total_limit: Some((1_000_000_000, 1_000_000_000)),
            max_sessions: sessions,
            ..KernelReflectorConfig::new(862, &local)
        })?;
        let packet = request(size)?;
        let (mut total, mut wrapper, mut program) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..9 {
            let cost = reflector.measure(&packet, 200_000)?;
            total.push(cost.total_ns);
            wrapper.push(cost.wrapper_ns);
            program.push(cost.program_ns());
        }
        for of in [&mut total, &mut wrapper, &mut program] {
            of.sort_unstable();
        }
        println!(
            "| {sessions} | {size} | {} / {} / {} | {} | {} |",
            total[0], total[4], total[8], wrapper[4], program[4]
        );
    }
    Ok(())
}

fn request(size: u16) -> Result<Vec<u8>> {
    let mut frame = vec![0u8; 14 + usize::from(size)];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&ethernet::ETHERTYPE_IPV4.to_be_bytes());
    let payload = usize::from(size) - 28;
    let (source, destination) = ("10.0.0.1:62000".parse()?, "10.2.0.1:862".parse()?);
    build::emit_udp_ip(&mut frame[14..], source, destination, 0, 255, payload)
        .map_err(|e| anyhow::anyhow!("{e:?}"))?;
    let probe = SenderRepr { sequence: 0, timestamp: 0, error_estimate: ErrorEstimate(1), ssid: 7 };
    probe.emit(&mut frame[42..]).map_err(|e| anyhow::anyhow!("{e:?}"))?;
    if let Some(value) = payload.checked_sub(48).filter(|&v| v > 0) {
        frame[86..90].copy_from_slice(&[0x80, 1, (value >> 8) as u8, value as u8]);
    }
    let sum = build::udp_header_sum(source, destination, payload)
        .map_err(|e| anyhow::anyhow!("{e:?}"))?;
    build::finish_udp(&mut frame[34..], sum, payload).map_err(|e| anyhow::anyhow!("{e:?}"))?;
    Ok(frame)
}
