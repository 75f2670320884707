//! What one reflected packet costs.

use crate::common::packet::{Request, base};
use crate::common::privileged;
use crate::turn;
use sonde_bpf::{Cost, KernelReflector, KernelReflectorConfig};

const ROUNDS: usize = 15;
const REPEAT: u32 = 100_000;

/// Prints the figures; asserts only that every run reflected. Run it alone, in release:
/// `cargo test --release -p sonde-bpf --test alone reflect_speed -- --ignored --nocapture`.
///
/// The cases take turns, so that a change in the machine's pace meets all of them.
#[test]
#[ignore = "a benchmark"]
fn nanoseconds_per_packet() {
    if !privileged("nanoseconds_per_packet") {
        return;
    }
    let _turn = turn::alone();
    let cases = [
        ("stateful, 20,000 sessions, 150 octets", true, 20_000, 150),
        ("stateful, 1 session, 150 octets", true, 1, 150),
        ("stateless, 150 octets", false, 20_000, 150),
        ("stateful, 20,000 sessions, 72 octets", true, 20_000, 72),
        ("stateful, 20,000 sessions, 1500 octets", true, 20_000, 1500),
    ];
    let loaded = cases.map(|(_, stateful, sessions, octets)| {
        let mut request = Request::v4();
        request.payload = base(1, 0);
        request.payload.resize(octets - 28, 0);
        let reflector = KernelReflector::load(&KernelReflectorConfig {
            stateful,
            // Limits as it runs with, but such as nothing here exceeds.
            rate_limit: Some((1_000_000_000, 1_000_000_000)),
            total_limit: Some((1_000_000_000, 1_000_000_000)),
            max_sessions: sessions,
            ..KernelReflectorConfig::new(request.port, &[(request.destination, 32)])
        });
        (reflector.unwrap(), request.frame())
    });
    let mut costs: [Vec<Cost>; 5] = Default::default();
    for _ in 0..ROUNDS {
        for ((reflector, frame), costs) in loaded.iter().zip(&mut costs) {
            costs.push(reflector.measure(frame, REPEAT).unwrap());
        }
    }
    println!("ns per packet, least and median of {ROUNDS} runs of {REPEAT}:");
    for (((name, stateful, sessions, _), (reflector, _)), costs) in
        cases.iter().zip(&loaded).zip(&costs)
    {
        let counters = reflector.counters().unwrap();
        assert_eq!(counters.get("reflected"), ROUNDS as u64 * u64::from(REPEAT), "{name}");
        if *stateful {
            // One more than rotate: the frame that begins. None was forgotten.
            assert_eq!(counters.get("new_sessions"), u64::from(*sessions) + 1, "{name}");
        }
        // Each in order by itself: a pause in one of a pair would spoil their difference.
        let sorted = |part: fn(&Cost) -> u32| {
            let mut ns: Vec<u32> = costs.iter().map(part).collect();
            ns.sort_unstable();
            (ns[0], ns[ROUNDS / 2])
        };
        let (total, wrapper) = (sorted(|c| c.total_ns), sorted(|c| c.wrapper_ns));
        println!(
            "{name}: program {} / {}  (total {} / {}, wrapper {} / {})",
            total.0.saturating_sub(wrapper.0),
            total.1.saturating_sub(wrapper.1),
            total.0,
            total.1,
            wrapper.0,
            wrapper.1
        );
    }
}
