//! What parsing costs: nanoseconds a packet from the first-level cache, each kind of frame
//! alone, without the work that a meter does with the result.

use std::hint::black_box;

use anyhow::{Context as _, Result};
use sonde_wire::feature::{self, Keys};
use sonde_wire::flow::LinkType;

use crate::rtt::thread_cpu;

/// Prints a row for each kind of frame.
pub fn bench() -> Result<()> {
    println!("\n## Parsing into the unified header: ns a packet\n");
    println!(
        "{FRAMES} frames of a kind in turn, from the first-level cache; processor time, least of \
         {ROUNDS} rounds.\n"
    );
    println!("| frame | outer keys | inner keys |");
    println!("|---|---|---|");
    for (name, frame) in frames() {
        let outer = cost(&frame, Keys::Outer).with_context(|| name.to_owned())?;
        let inner = cost(&frame, Keys::Inner).with_context(|| name.to_owned())?;
        println!("| {name} | {outer:.1} | {inner:.1} |");
    }
    Ok(())
}

/// Least ns a frame over the rounds; an error if it does not parse.
fn cost(frame: &[u8], keys: Keys) -> Result<f64> {
    // Distinct frames: what one packet was may not help to foretell the next.
    let frames: Vec<Vec<u8>> = (0..FRAMES)
        .map(|i| {
            let mut frame = frame.to_vec();
            frame[0..6].copy_from_slice(&[2, 0, 0, 0, 0, i as u8]);
            frame
        })
        .collect();
    let mut least = f64::INFINITY;
    for round in 0..ROUNDS {
        let start = thread_cpu()?;
        let mut parsed = 0;
        for pass in 0..PASSES {
            for frame in &frames {
                let at_ns = (round * PASSES + pass) as i64;
                let found = feature::parse(black_box(frame), LinkType::Ethernet, keys, at_ns, 0);
                parsed += u64::from(black_box(&found).is_ok());
            }
        }
        let ns = (thread_cpu()? - start) * 1e9;
        anyhow::ensure!(parsed == (PASSES * FRAMES) as u64, "a frame was refused");
        least = least.min(ns / parsed as f64);
    }
    Ok(least)
}

/// Frames by name, 64 octets of application data in each.
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let data = [0x55; 64];
    let udp = |port: u16, payload: &[u8]| {
        let length = (8 + payload.len()) as u16;
        [&[0x9C, 0x40], &port.to_be_bytes()[..], &length.to_be_bytes(), &[0, 0], payload].concat()
    };
    let mut tcp =
        vec![0x9C, 0x40, 0x01, 0xBB, 1, 2, 3, 4, 5, 6, 7, 8, 0x80, 0x18, 16, 0, 0, 0, 0, 0];
    tcp.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    tcp.extend(data);
    let datagram = udp(443, &data);
    let plain = ethernet(0x0800, &ipv4(6, &tcp));
    let tagged = [&plain[..12], &[0x81, 0, 0, 5], &plain[12..]].concat();
    let labels = [&plain[..12], &[0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64], &plain[14..]].concat();
    let options = [&[6, 0, 1, 4, 0, 0, 0, 0][..], &tcp].concat();
    let vxlan = [&[8, 0, 0, 0, 0, 0, 5, 0][..], &plain].concat();
    let gre = [&[0, 0, 8, 0][..], &ipv4(6, &tcp)].concat();
    vec![
        ("IPv4, UDP", ethernet(0x0800, &ipv4(17, &datagram))),
        ("IPv4, TCP", plain),
        ("VLAN, IPv4, TCP", tagged),
        ("two MPLS labels, IPv4, TCP", labels),
        ("IPv6, TCP", ethernet(0x86DD, &ipv6(6, &tcp))),
        ("IPv6, destination options, TCP", ethernet(0x86DD, &ipv6(60, &options))),
        ("IPv4, GRE, IPv4, TCP", ethernet(0x0800, &ipv4(47, &gre))),
        ("IPv4, VXLAN, IPv4, TCP", ethernet(0x0800, &ipv4(17, &udp(4789, &vxlan)))),
    ]
}

fn ethernet(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &ethertype.to_be_bytes(), packet].concat()
}

fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len()) as u16;
    let addresses = [192, 0, 2, 1, 198, 51, 100, 2];
    let rest = [0, 1, 0x40, 0, 64, protocol, 0, 0];
    [&[0x45, 0], &length.to_be_bytes()[..], &rest, &addresses, payload].concat()
}

fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next_header, 64]);
    for last in [1, 2] {
        packet.extend([0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    [&packet, payload].concat()
}

/// Few enough for the first-level cache.
const FRAMES: usize = 64;
/// A round takes long against a tick of the scheduler, which processor time may be late by.
const PASSES: usize = 300_000;
const ROUNDS: usize = 5;
