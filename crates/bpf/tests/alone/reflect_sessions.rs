//! The kernel reflector's table of sessions under two CPUs at once.

use crate::common::packet::{OUR_PORT, Request};
use crate::common::privileged;
use crate::turn;
use sonde_bpf::{KernelReflector, KernelReflectorConfig};

const XDP_TX: u32 = 3;
const SESSIONS: u16 = 3000;
const THREADS: u32 = 2;
/// What `Request::v4` bears.
const REQUEST_NUMBER: u32 = 7;

/// Runs one request of the session; the sequence number of its reply.
fn reply_number(reflector: &KernelReflector, session: u16) -> u32 {
    let request = Request { source_port: 10_000 + session, ..Request::v4() };
    let run = reflector.test_run(&request.frame(), 1).unwrap();
    assert_eq!(run.verdict, XDP_TX, "session {session}: {:?}", reflector.counters());
    let at = request.payload_offset();
    u32::from_be_bytes(run.packet[at..at + 4].try_into().unwrap())
}

/// Both threads begin the same sessions at the same time: each session is made once, and
/// no sequence number is given twice.
///
/// Who cannot have the table's lock answers without a session, with the request's own sequence
/// number, and counts it. That happens where the host stops a processor that holds the lock.
#[test]
fn two_cpus_number_the_same_sessions() {
    if !privileged("two_cpus_number_the_same_sessions") {
        return;
    }
    let _turn = turn::alone();
    let request = Request::v4();
    let reflector = KernelReflector::load(&KernelReflectorConfig {
        max_sessions: SESSIONS.into(),
        ..KernelReflectorConfig::new(OUR_PORT, &[(request.destination, 32)])
    })
    .unwrap();
    let together = std::sync::Barrier::new(THREADS as usize);
    let mut sequences: Vec<(u16, u32)> = std::thread::scope(|scope| {
        let begin = || {
            let mut sequences = Vec::with_capacity(SESSIONS.into());
            for session in 0..SESSIONS {
                if session % 100 == 0 {
                    together.wait();
                }
                sequences.push((session, reply_number(&reflector, session)));
            }
            sequences
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(begin)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    sequences.sort_unstable();
    let (stateless, stateful): (Vec<_>, Vec<_>) =
        sequences.into_iter().partition(|&(_, sequence)| sequence == REQUEST_NUMBER);
    let counters = reflector.counters().unwrap();
    assert_eq!(counters.get("reflected_stateless"), stateless.len() as u64);

    let mut replies = vec![0; SESSIONS.into()];
    for &(session, sequence) in &stateful {
        assert_eq!(sequence, replies[usize::from(session)], "session {session}: {stateful:?}");
        replies[usize::from(session)] += 1;
    }
    let established = replies.iter().filter(|&&n| n == THREADS).count();
    assert_eq!(counters.get("new_sessions"), established as u64);
    assert!(established > usize::from(SESSIONS) / 2, "{established} of {SESSIONS}");
}
