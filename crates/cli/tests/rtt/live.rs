//! The kernel's program on an interface that carries real traffic, against the oracle over
//! a capture taken there at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sonde_bpf::{RttConfig, RttEvents, RttHook, RttProgram};
use sonde_results::rtt::RttKind;

use crate::net::Net;
use crate::truth::{CLEAN, compare_with_oracle, everything};

#[test]
fn the_kernels_samples_are_those_of_a_simultaneous_capture() {
    let test = "the_kernels_samples_are_those_of_a_simultaneous_capture";
    for hook in [RttHook::Tc, RttHook::Xdp] {
        let Some(net) = Net::new(test, CLEAN, CLEAN) else { return };
        let name = format!("{hook:?}");
        let stop = Arc::new(AtomicBool::new(false));
        let (attached, when_attached) = std::sync::mpsc::channel();
        let (host, stopped) = (net.hosts.middle.clone(), stop.clone());
        let index = net.hosts.middle.run(&["cat", INDEX]).unwrap().trim().parse().unwrap();
        let meter = std::thread::spawn(move || {
            let attached = || attached.send(()).unwrap();
            host.inside(|| measure(index, hook, &stopped, attached)).unwrap()
        });
        when_attached.recv().expect("attached");
        let capture = net.capture("live.pcap");
        everything(&net);
        let (_, frames) = capture.stop();
        stop.store(true, Ordering::Relaxed);
        let (mut samples, counters) = meter.join().unwrap();
        for lost in ["events_lost", "contended", "untracked_full", "malformed"] {
            assert_eq!(counters[lost], 0, "{name}: {lost}: {counters:?}");
        }
        // The capture's clock is UTC, the program's TAI.
        let offset = i64::from(sonde_port::clock::clock_state().tai_offset_s) * 1_000_000_000;
        samples.iter_mut().for_each(|s| s.at_ns -= offset);
        assert!(samples.iter().any(|s| s.kind == RttKind::TcpHandshakeServer), "{name}");
        compare_with_oracle(&name, &frames, &samples);
    }
}

type Measured = (Vec<sonde_results::rtt::RttSample>, std::collections::BTreeMap<String, u64>);

/// Measures in the calling thread's namespace until told to stop.
fn measure(index: i32, hook: RttHook, stop: &AtomicBool, attached: impl FnOnce()) -> Measured {
    let config = RttConfig { events: RttEvents::All, seed: [1, 2], ..RttConfig::default() };
    let mut program = RttProgram::load(&config).unwrap();
    program.attach(index, 0, hook, false).unwrap();
    attached();
    let mut samples = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        program.poll(POLL, &mut |sample| samples.push(sample), &mut |_| {}).unwrap();
    }
    program.poll(Duration::ZERO, &mut |sample| samples.push(sample), &mut |_| {}).unwrap();
    (samples, program.coverage().unwrap().counters)
}

/// Of the monitored interface.
const INDEX: &str = "/sys/class/net/eth0/ifindex";
const POLL: Duration = Duration::from_millis(20);
