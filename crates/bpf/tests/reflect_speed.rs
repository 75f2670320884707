//! What one reflected packet costs.

mod common;

use common::packet::{Request, base};
use common::privileged;
use sonde_bpf::{KernelReflector, KernelReflectorConfig};

/// Prints the figures; asserts only that every run reflected. Run it alone, in release:
/// `cargo test --release -p sonde-bpf --test reflect_speed -- --ignored --nocapture`.
#[test]
#[ignore = "a benchmark"]
fn nanoseconds_per_packet() {
    if !privileged("nanoseconds_per_packet") {
        return;
    }
    let mut request = Request::v4();
    request.payload = base(1, 0);
    request.payload.resize(150 - 28, 0);
    let frame = request.frame();
    for (name, stateful, sessions) in [
        ("stateful, 20,000 sessions", true, 20_000),
        ("stateful, 1 session", true, 1),
        ("stateless", false, 20_000),
    ] {
        let reflector = KernelReflector::load(&KernelReflectorConfig {
            port: request.port,
            stateful,
            local: &[(request.destination, 32)],
            allow: &[],
            rate_limit: None,
            max_sessions: sessions,
        })
        .unwrap();
        let mut ns: Vec<u32> =
            (0..9).map(|_| reflector.test_run(&frame, 200_000).unwrap().ns_per_run).collect();
        ns.sort_unstable();
        let counters = reflector.counters().unwrap();
        assert_eq!(counters.get("reflected"), 9 * 200_000);
        if stateful {
            // One more than rotate: the frame that begins. None was forgotten.
            assert_eq!(counters.get("new_sessions"), u64::from(sessions) + 1);
        }
        println!("{name}: min {} ns, median {} ns, max {} ns", ns[0], ns[4], ns[8]);
        // What the measurement itself costs, the parser and one counter: no clock reading.
        request.port = 863;
        let other = reflector.test_run(&request.frame(), 200_000).unwrap().ns_per_run;
        request.port = 862;
        println!("    of which test loop and parser: {other} ns");
    }
}
