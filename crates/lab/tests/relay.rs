//! The relay between two hosts, on the real kernel. Needs root.

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use sonde_lab::{Impairment, RelayPath, RelayReport, skip};
use sonde_sys::schedule::prefer_this_thread;

const SERVER: &str = "10.1.0.2:7777";
const LIMIT: Duration = Duration::from_secs(10);

/// Sends `count` datagrams with their sequence numbers and send times through a relay. Returns the
/// sequence numbers in order of arrival, each with its one-way time and when it came after the
/// first was sent. Also the relay's report.
fn carry(
    path: &RelayPath,
    count: u32,
    there: Impairment,
    seed: u64,
    expected: impl Fn(&RelayReport) -> usize,
) -> (Vec<(u32, Duration, Duration)>, RelayReport) {
    let relay = path.relay(there, Impairment::default(), seed).unwrap();
    let bind = |address: &'static str| move || UdpSocket::bind(address).unwrap();
    let server = path.server.inside(bind(SERVER)).unwrap();
    let client = path.client.inside(bind("10.1.0.1:0")).unwrap();
    // No more come when nothing has come for longer than anything takes.
    server.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let ((ready, is_ready), (begins, began)) = (channel(), channel::<Instant>());
    let receiver = std::thread::spawn(move || {
        // Other work would keep it from its socket until that is full. Where it is not permitted
        // to go before that, the host may be too busy.
        let _ = prefer_this_thread();
        ready.send(()).unwrap();
        let begin = began.recv().unwrap();
        let (mut arrived, mut buffer) = (Vec::new(), [0; 700]);
        while let Ok((len, _)) = server.recv_from(&mut buffer) {
            assert_eq!(len, 600);
            let sent = Duration::from_nanos(u64::from_be_bytes(buffer[4..12].try_into().unwrap()));
            let now = begin.elapsed();
            arrived.push((u32::from_be_bytes(buffer[..4].try_into().unwrap()), now - sent, now));
            assert!(begin.elapsed() < LIMIT);
        }
        arrived
    });
    is_ready.recv().unwrap();
    let begin = Instant::now();
    begins.send(begin).unwrap();
    let sender = std::thread::spawn(move || {
        for sequence in 0..count {
            let mut datagram = [0u8; 600];
            datagram[..4].copy_from_slice(&sequence.to_be_bytes());
            datagram[4..12].copy_from_slice(&(begin.elapsed().as_nanos() as u64).to_be_bytes());
            client.send_to(&datagram, SERVER.parse::<SocketAddr>().unwrap()).unwrap();
            // Paced, so that no socket's buffer fills; after a stop of this thread as before.
            let sent = Instant::now();
            while sent.elapsed() < Duration::from_micros(100) {
                std::hint::spin_loop();
            }
        }
    });
    sender.join().unwrap();
    let arrived = receiver.join().unwrap();
    let report = relay.stop().unwrap();
    println!("seed {seed}: {report:?}");
    assert_eq!(report.directions[0].failed, 0, "{report:?}");
    assert_eq!(arrived.len(), expected(&report), "{report:?}");
    (arrived, report)
}

/// Without IPv6: its hosts report their multicast groups at times of their own.
fn quiet_path() -> RelayPath {
    let path = RelayPath::new("t-relay").unwrap();
    for host in [&path.client, &path.server] {
        host.sysctl(&["net.ipv6.conf.all.disable_ipv6=1"]).unwrap();
    }
    path
}

#[test]
fn frames_are_delayed_in_order_and_never_short_of_the_delay() {
    if skip("frames_are_delayed_in_order_and_never_short_of_the_delay") {
        return;
    }
    let path = quiet_path();
    let delay = Duration::from_millis(10);
    let (arrived, report) =
        carry(&path, 500, Impairment { delay, ..Impairment::default() }, 1, |_| 500);
    assert!(arrived.iter().map(|a| a.0).eq(0..500), "out of order");
    assert!(arrived.iter().all(|a| a.1 >= delay));
    let counts = &report.directions[0];
    assert_eq!((counts.lost, counts.reordered, counts.queue_full), (0, 0, 0));
    // Nothing of its own comes back to it: it carried what was sent, and no more.
    assert_eq!((counts.relayed, report.directions[1].relayed), (500, 0));
}

#[test]
fn loss_and_reordering_are_what_the_seed_says() {
    if skip("loss_and_reordering_are_what_the_seed_says") {
        return;
    }
    let path = quiet_path();
    let there = Impairment {
        delay: Duration::from_millis(2),
        loss: 0.1,
        reorder: 0.05,
        reorder_by: Duration::from_millis(3),
        ..Impairment::default()
    };
    let run = |seed| carry(&path, 1000, there, seed, |r| 1000 - r.directions[0].lost as usize);
    let ((first, report), (second, _), (other, _)) = (run(7), run(7), run(8));
    let set = |a: &[(u32, Duration, Duration)]| {
        a.iter().map(|a| a.0).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(set(&first), set(&second), "the same seed, other losses");
    assert_ne!(set(&first), set(&other), "another seed, the same losses");
    assert!((50..=150).contains(&report.directions[0].lost), "{report:?}");
    // At 100 us a frame, some 30 overtake each one that is held back.
    let overtaken = first.windows(2).filter(|w| w[1].0 < w[0].0).count();
    assert!((20..=90).contains(&overtaken), "{overtaken} of {report:?}");
}

#[test]
fn a_limited_rate_spreads_a_burst() {
    if skip("a_limited_rate_spreads_a_burst") {
        return;
    }
    let path = quiet_path();
    // 642 bytes at 10 Mbit/s take 514 us, five times as long as between two sendings.
    let there = Impairment { rate: 10_000_000, ..Impairment::default() };
    let (arrived, _) = carry(&path, 200, there, 1, |_| 200);
    // However late anything ran, the last cannot come sooner.
    let needed = Duration::from_nanos(642 * 800 * 200);
    let last = arrived.last().unwrap().2;
    assert!(last >= needed, "{last:?} of {needed:?}");
}

#[test]
fn what_finds_a_bounded_queue_full_is_lost_and_counted() {
    if skip("what_finds_a_bounded_queue_full_is_lost_and_counted") {
        return;
    }
    let path = quiet_path();
    // Sent within 20 ms, long before the first leaves.
    let delay = Duration::from_millis(300);
    let there = Impairment { delay, queue: 50, ..Impairment::default() };
    let kept = |r: &RelayReport| 200 - r.directions[0].queue_full as usize;
    let (arrived, report) = carry(&path, 200, there, 1, kept);
    // Where the sender was held up, those that were sent later found room.
    let first: Vec<u32> = arrived.iter().map(|a| a.0).take(50).collect();
    assert!(first.into_iter().eq(0..50), "{arrived:?}");
    let counts = &report.directions[0];
    assert!(counts.queue_full > 0 && counts.relayed + counts.queue_full == 200, "{report:?}");
}
