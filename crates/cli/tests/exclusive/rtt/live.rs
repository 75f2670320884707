//! The kernel's program on an interface that carries real traffic, against the oracle over
//! a capture taken there at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sonde_bpf::{RttConfig, RttEvents, RttHook, RttProgram};
use sonde_results::rtt::RttKind;

use super::net::Net;
use super::truth::{Differences, NARROW, compare_with_oracle, everything};

#[test]
fn the_kernels_samples_are_those_of_a_simultaneous_capture() {
    let test = "the_kernels_samples_are_those_of_a_simultaneous_capture";
    for hook in [RttHook::Tc, RttHook::Xdp] {
        let Some(found) = difference(test, hook) else { return };
        // What else the machine does comes between the program and the capture: it adds to
        // their differences and takes nothing away.
        let of_round_trip = |ns: i64| ns as f64 / found.round_trip as f64;
        assert!(of_round_trip(found.p50) <= 0.001, "{hook:?}: {found:?}");
        assert!(of_round_trip(found.p99) <= 0.05, "{hook:?}: {found:?}");
    }
}

/// The program's samples against the oracle's. `None`: skipped.
fn difference(test: &str, hook: RttHook) -> Option<Differences> {
    let net = Net::new(test, NARROW, NARROW)?;
    let name = format!("{hook:?}");
    let stop = Arc::new(AtomicBool::new(false));
    let (attached, when_attached) = std::sync::mpsc::channel();
    let (host, stopped) = (net.hosts.client.clone(), stop.clone());
    let index = net.hosts.client.run(&["cat", INDEX]).unwrap().trim().parse().unwrap();
    let meter = std::thread::spawn(move || {
        let attached = || attached.send(()).unwrap();
        host.inside(|| measure(index, hook, &stopped, attached)).unwrap()
    });
    when_attached.recv().expect("attached");
    let capture = net.capture_at(&net.hosts.client, "live.pcap");
    everything(&net);
    let (_, frames) = capture.stop();
    stop.store(true, Ordering::Relaxed);
    let (mut samples, counters) = meter.join().unwrap();
    println!("{name}: {counters:?}");
    for lost in ["events_lost", "untracked_full", "malformed"] {
        assert_eq!(counters[lost], 0, "{name}: {lost}");
    }
    // A processor that the machine takes away in the middle of a packet makes the other one
    // give up on its own: counted, and rare.
    assert!(counters["contended"] * 100 <= counters["packets"], "{name}");
    // The capture's clock is UTC, the program's TAI.
    let offset = i64::from(sonde_sys::clock::clock_state().tai_offset_s) * 1_000_000_000;
    samples.iter_mut().for_each(|s| s.at_ns -= offset);
    assert!(samples.iter().any(|s| s.kind == RttKind::TcpHandshakeServer), "{name}");
    Some(compare_with_oracle(&name, &frames, &samples))
}

type Measured = (Vec<sonde_results::rtt::RttSample>, std::collections::BTreeMap<String, u64>);

/// Measures in the calling thread's namespace until it is stopped.
fn measure(index: i32, hook: RttHook, stop: &AtomicBool, attached: impl FnOnce()) -> Measured {
    let config = RttConfig {
        events: RttEvents::All,
        seed: [1, 2],
        time_base_ns: sonde_sys::clock::steady_base(),
        ..RttConfig::default()
    };
    let mut program = RttProgram::load(&config).unwrap();
    program.attach(index, 0, hook, false).unwrap();
    attached();
    let mut samples = Vec::new();
    let mut take = |program: &mut RttProgram| {
        program.poll(Duration::ZERO, &mut |sample| samples.push(sample), &mut |_| {}).unwrap();
    };
    while !stop.load(Ordering::Relaxed) {
        take(&mut program);
        // A reader that waits is woken from within the program, before the capture's stamp.
        std::thread::sleep(PAUSE);
    }
    take(&mut program);
    (samples, program.coverage().unwrap().counters)
}

/// Of the monitored interface.
const INDEX: &str = "/sys/class/net/eth0/ifindex";
const PAUSE: Duration = Duration::from_millis(5);
