//! The reported round trip against the wire: tcpdump listens at the probe's interface
//! while an engine measures, and the two medians stand side by side. What `af_packet`
//! and `af_xdp` send passes below tcpdump; for them the far end's stamps give a bound,
//! "RTT beyond the far end" in the tables before.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use sonde_lab::{LinkOptions, Topology};
use sonde_results::Hist;
use sonde_wire::capture;
use sonde_wire::parse_udp;
use sonde_wire::stamp::{ReflectorPacket, SenderPacket};

use crate::load::Load;
use crate::{measure, reflectors};

/// What tcpdump can see, at 10,000 packets a second.
pub fn bench(seconds: u64) -> Result<()> {
    println!("\n## The reported round trip and the wire, at 10000 packets a second\n");
    if Command::new("tcpdump").arg("--version").output().is_err() {
        println!("Not measured: tcpdump is not installed (`apt-get install tcpdump`).");
        return Ok(());
    }
    println!("| engine | packets on both sides | wire p50 us | reported p50 us | difference us |");
    println!("|---|---|---|---|---|");
    for name in ["plain", "socket"] {
        eprintln!("{name} against tcpdump ...");
        let topology = Topology::pair("bench", &LinkOptions::default())?;
        let _far = reflectors::start_kernel(&topology)?;
        let file = std::env::temp_dir().join(format!("sonde-wire-{}.pcap", std::process::id()));
        let path = file.to_str().context("the path of the capture is not text")?;
        let mut dump = topology
            .probe
            .command("tcpdump")
            .args(["-i", Topology::INTERFACE, "-w", path, "-U", "-n", "-s", "128", "-B", "65536"])
            .args(["--time-stamp-precision=nano", "udp", "port", "862"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // It listens from when the file's header is there.
        let patience = Instant::now();
        while std::fs::metadata(&file).map_or(0, |m| m.len()) < 24 {
            if patience.elapsed() > Duration::from_secs(10) {
                let _ = dump.kill();
                bail!("tcpdump did not begin to listen");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let outcome = measure(&topology, name, Load { rate: 10_000, seconds }, true);
        let _ = Command::new("kill").args(["-INT", &dump.id().to_string()]).status();
        let _ = dump.wait();
        let captured = std::fs::read(&file);
        let _ = std::fs::remove_file(&file);
        let wire = round_trips(&captured?)?;
        let outcome = outcome?;
        let (Some(w), Some(r)) = (wire.quantile(0.5), outcome.rtt.quantile(0.5)) else {
            bail!("{name}: nothing was captured");
        };
        println!(
            "| {} | {} of {} | {:.2} | {:.2} | {:+.2} |",
            outcome.name,
            wire.count,
            outcome.received,
            w as f64 / 1e3,
            r as f64 / 1e3,
            (r - w) as f64 / 1e3
        );
    }
    println!(
        "\nBuckets are 32 ns wide or 3 %. Sends of `af_packet` and `af_xdp` pass below tcpdump."
    );
    Ok(())
}

/// From each probe's capture to that of its reply.
fn round_trips(file: &[u8]) -> Result<Hist> {
    let mut sent = HashMap::new();
    let mut hist = Hist::default();
    for record in capture::Reader::new(file).map_err(|e| anyhow::anyhow!("{e:?}"))? {
        // tcpdump was interrupted: its last record may be cut.
        let Ok(record) = record else { break };
        // 128 octets hold the base packet; the length says more than was kept.
        let Some((key, is_probe)) = identify(record.data) else { continue };
        if is_probe {
            sent.insert(key, record.unix_nanos);
        } else if let Some(out) = sent.remove(&key) {
            hist.add(record.unix_nanos - out);
        }
    }
    Ok(hist)
}

/// The far address, our port and our sequence number; and whether it is a probe.
fn identify(data: &[u8]) -> Option<((std::net::IpAddr, u16, u32), bool)> {
    // A snapped frame is shorter than its headers say: give it its length back.
    let mut frame = [0u8; 256];
    let n = data.len().min(frame.len());
    frame[..n].copy_from_slice(&data[..n]);
    let udp = parse_udp(&frame).ok()?;
    let payload = &frame[udp.payload];
    if udp.destination_port == 862 {
        let sequence = SenderPacket::new_checked(payload).ok()?.sequence();
        Some(((udp.destination, udp.source_port, sequence), true))
    } else {
        let sequence = ReflectorPacket::new_checked(payload).ok()?.sender_sequence();
        Some(((udp.source, udp.destination_port, sequence), false))
    }
}
