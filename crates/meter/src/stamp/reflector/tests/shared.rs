//! Sessions whose replies are counted elsewhere, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

const FULL: u32 = u32::MAX;

/// A counter that the kernel's program shares; [`FULL`]: no room.
struct Shared(Arc<AtomicU32>);

impl ReplyCounter for Shared {
    fn next_sequence(&mut self, request: &SessionRequest) -> Option<u32> {
        let sender: SocketAddr = SENDER.parse().unwrap();
        assert_eq!((request.source, request.source_port), (sender.ip(), sender.port()));
        assert_eq!((request.ssid, request.timestamp), (9, 0xe102_0304_0506_0708));
        if self.0.load(Ordering::Relaxed) == FULL {
            return None;
        }
        Some(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

fn shared() -> (Reflector, Arc<AtomicU32>) {
    let (mut reflector, counter) = (stateful(), Arc::new(AtomicU32::new(0)));
    reflector.share_sessions(862, Box::new(Shared(counter.clone())));
    (reflector, counter)
}

#[test]
fn replies_go_on_where_the_kernels_are_and_these_where_ours_are() {
    let (mut reflector, counter) = shared();
    // The kernel has answered 35 requests before.
    counter.store(35, Ordering::Relaxed);
    for n in 35..51 {
        assert_eq!(sequence(&reply(&mut reflector, &request(n, 9, &[]))), n);
    }
    assert_eq!(counter.load(Ordering::Relaxed), 51, "what it goes on from");
    counter.store(80, Ordering::Relaxed);
    assert_eq!(sequence(&reply(&mut reflector, &request(80, 9, &[]))), 80);
    assert_eq!(sequence(&reply(&mut reflector, &request(81, 9, &[]))), 81);
}

#[test]
fn without_room_for_the_session_replies_copy_the_senders_number() {
    let (mut reflector, counter) = shared();
    counter.store(FULL, Ordering::Relaxed);
    assert_eq!(sequence(&reply(&mut reflector, &request(7, 9, &[]))), 7);
    assert_eq!(reflector.counters().reflected_stateless, 1);
}

#[test]
fn another_port_than_the_kernels_has_counters_of_its_own() {
    let (mut reflector, counter) = shared();
    counter.store(35, Ordering::Relaxed);
    let other = US.replace(":862", ":863");
    let mut bytes = frame(SENDER, &other, &[], &request(4, 9, &[]));
    assert!(matches!(put(&mut reflector, &mut bytes), Verdict::Transmit { .. }));
    assert_eq!(sequence(&bytes[42..]), 0);
    assert_eq!(counter.load(Ordering::Relaxed), 35);
}
