//! The reflector in the kernel and the one of `sonde-meter` were written apart. Whatever the
//! kernel's answers, the other one answers with the same octets, but for the two timestamps. So one
//! may replace the other in the middle of a session.

use std::net::IpAddr;

use crate::common::packet::{OUR_PORT, Request, base};
use crate::common::privileged;
use crate::common::rtt::both::Random;
use sonde_bpf::{KernelReflector, KernelReflectorConfig};
use sonde_meter::Instrument;
use sonde_meter::stamp::{Reflector, ReflectorConfig};
use sonde_wire::prefix::Prefix;
use sonde_wire::{Stamp, StampSource, Time, Verdict};

const PACKETS: u32 = 30_000;
const XDP_TX: u32 = 3;
const NOW: i64 = 1_800_000_000_000_000_000;

/// A sender that goes on, loses, doubles and delays its requests, and begins anew.
#[derive(Clone, Copy, Default)]
struct Talk {
    sequence: u32,
    ms: u64,
}

impl Talk {
    fn next(&mut self, random: &mut Random) -> (u32, u64) {
        self.ms += u64::from(random.below(20));
        self.sequence = match random.below(60) {
            0 => 0,
            1 => random.below(3),
            2 => self.sequence.wrapping_add(random.below(100)),
            3 => self.sequence.wrapping_sub(random.below(10)),
            _ => self.sequence.wrapping_add(1),
        };
        let late = if random.once_in(30) { u64::from(random.below(200)) } else { 0 };
        (self.sequence, self.ms.saturating_sub(late))
    }
}

fn request(random: &mut Random, talks: &mut [Talk; 8]) -> Vec<u8> {
    let which = random.below(8) as usize;
    let mut request = if which < 5 { Request::v4() } else { Request::v6() };
    let (sequence, ms) = talks[which].next(random);
    request.source_port = match random.below(60) {
        0 => OUR_PORT,
        1 => 53,
        _ => 40_000 + which as u16,
    };
    request.payload = base(sequence, 7);
    // One sender's clock stands still.
    let t1 = if which == 0 { 0 } else { (0xed00_3780u64 << 32) + ms * ((1 << 32) / 1000) };
    request.payload[4..12].copy_from_slice(&t1.to_be_bytes());
    request.payload.resize(44 + 4 * random.below(30) as usize, 0);
    request.partial_checksum = random.once_in(4);
    let mut frame = request.frame();
    if random.once_in(20) {
        let at = 14 + random.below(frame.len() as u32 - 14) as usize;
        frame[at] ^= 1 << random.below(8);
    }
    frame
}

#[test]
fn the_same_requests_get_the_same_replies() {
    if !privileged("the_same_requests_get_the_same_replies") {
        return;
    }
    let example = [Request::v4(), Request::v6()];
    let local: Vec<(IpAddr, u8)> = example
        .iter()
        .map(|q| (q.destination, if q.destination.is_ipv4() { 32 } else { 128 }))
        .collect();
    for stateful in [true, false] {
        let kernel = KernelReflector::load(&KernelReflectorConfig {
            stateful,
            rate_limit: None,
            total_limit: None,
            ..KernelReflectorConfig::new(OUR_PORT, &local)
        })
        .unwrap();
        let config = ReflectorConfig {
            stateful,
            local: local.iter().map(|&(address, _)| address).collect(),
            no_senders: local.iter().map(|&(address, bits)| Prefix { address, bits }).collect(),
            rate_limit: None,
            total_limit: None,
            ..ReflectorConfig::new(vec![OUR_PORT], 0, 1)
        };
        let now = Time::from_nanos(NOW);
        let mut user = Reflector::new(&config, now).unwrap();
        user.set_clock(0, true, 1_000_000);
        let mut random = Random::new(u64::from(stateful));
        let (mut talks, mut answered) = ([Talk::default(); 8], 0);
        for n in 0..PACKETS {
            let asked = request(&mut random, &mut talks);
            let run = kernel.test_run(&asked, 1).unwrap();
            if run.verdict != XDP_TX {
                assert_eq!(run.packet, asked, "packet {n}");
                continue;
            }
            answered += 1;
            let mut reply = asked.clone();
            let stamp = Stamp { at: now, source: StampSource::Driver };
            let verdict = user.input(&mut reply, stamp, now);
            assert!(
                matches!(verdict, Verdict::Transmit { .. }),
                "packet {n}: {:?}",
                user.counters()
            );
            let payload = if asked[12] == 8 { 42 } else { 62 };
            let comparable = |frame: &[u8]| {
                let mut frame = frame.to_vec();
                // UDP checksum, T3, error estimate, T2.
                for (from, to) in [(payload - 2, payload), (payload + 4, payload + 14)] {
                    frame[from..to].fill(0);
                }
                frame[payload + 16..payload + 24].fill(0);
                frame
            };
            assert_eq!(comparable(&run.packet), comparable(&reply), "packet {n}");
        }
        assert!(answered > PACKETS / 2, "{answered}");
        let (ours, theirs) = (user.counters(), kernel.counters().unwrap());
        assert_eq!(ours.sessions_restarted, theirs.get("restarted_sessions"));
        assert_eq!(ours.sessions_begun, theirs.get("new_sessions"));
        assert!(!stateful || ours.sessions_restarted > 100, "{ours:?}");
    }
}
