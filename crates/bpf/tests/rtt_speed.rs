//! What a packet costs the programs of passive RTT.

mod common;

use common::privileged;
use sonde_bpf::{RttBench, RttConfig, RttProgram};

/// Prints the figures; asserts only that every packet was what it should be. Run it alone, in
/// release: `cargo test --release -p sonde-bpf --test rtt_speed -- --ignored --nocapture`.
#[test]
#[ignore = "a benchmark"]
fn nanoseconds_per_packet() {
    if !privileged("nanoseconds_per_packet") {
        return;
    }
    let config = RttConfig { flows: 1 << 17, seed: [3, 4], ..RttConfig::default() };
    for (ipv6, dns) in [(false, false), (true, false), (false, true)] {
        for flows in [1, 1024, 65_536] {
            for samples in [false, true] {
                let bench = RttBench { ipv6, dns, flows, samples, packets: 4 * 65_536 };
                let cost = RttProgram::measure(&config, bench, 5).unwrap();
                println!(
                    "{} {} {flows} flows, samples {samples}: {} ns ({} - {})",
                    if ipv6 { "IPv6" } else { "IPv4" },
                    if dns { "DNS" } else { "TCP" },
                    cost.program_ns(),
                    cost.total_ns,
                    cost.wrapper_ns
                );
            }
        }
    }
}
