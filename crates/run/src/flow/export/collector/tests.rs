//! Datagrams in their time, over the loopback.

use std::net::UdpSocket;

use super::*;

/// An output of so many messages a second, and who gets them.
fn udp(per_second: u32) -> (Udp, UdpSocket) {
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let socket = Datagrams::connect(peer.local_addr().unwrap()).unwrap();
    (Udp::new("udp://here".into(), socket, Config::default(), per_second), peer)
}

/// However late this is run: no more has left than the time allows, and in the end all has.
#[test]
fn a_burst_leaves_at_the_rate() {
    let (mut udp, peer) = udp(2_000);
    for i in 0..200u32 {
        udp.out.message(&i.to_be_bytes(), 1);
        // All that may have left by now: 2 a millisecond, and 2 ms ahead.
        let most = udp.out.begun.elapsed().as_micros() as u64 / 500 + 5;
        assert!(udp.out.sent <= most, "{} of {most}", udp.out.sent);
    }
    udp.finish(0, &ExportStats::default());
    let mut next = 0;
    let mut buffer = [0; 2_048];
    while udp.send_due() {
        // Read at once: the socket's buffer is not what is tried here.
        while udp.out.sent > next {
            peer.recv(&mut buffer).unwrap();
            next += 1;
        }
    }
    udp.close();
    assert!(udp.out.sent >= 201 && udp.lost() == 0, "{}", udp.out.sent);
}

#[test]
fn what_finds_no_room_to_wait_is_counted() {
    let (mut udp, _peer) = udp(1);
    let message = [0; 60_000];
    let most = MOST_WAITING / message.len() + 10;
    (0..most).for_each(|_| udp.out.message(&message, 3));
    assert!(udp.out.waiting_bytes <= MOST_WAITING);
    let lost = udp.total().counters["messages_lost_too_fast"];
    assert!((1..=10).contains(&lost), "{lost}");
    assert_eq!(udp.lost(), 3 * lost);
}

/// Only templates and options, as the first message after the start of a collector that comes late.
#[test]
fn a_lost_message_without_records_is_no_lost_record() {
    let (mut udp, _peer) = udp(0);
    udp.out.lose("messages_lost_unreachable", 0, &ErrorKind::ConnectionRefused.into());
    assert_eq!((udp.total().counters["messages_lost_unreachable"], udp.lost()), (1, 0));
    udp.out.lose("messages_lost_unreachable", 7, &ErrorKind::ConnectionRefused.into());
    assert_eq!((udp.total().counters["messages_lost_unreachable"], udp.lost()), (2, 7));
}

#[test]
fn the_end_is_bounded_and_what_is_left_is_reported() {
    let (mut udp, _peer) = udp(1);
    (0..100).for_each(|_| udp.out.message(&[0; 20], 2));
    udp.finish(0, &ExportStats::default());
    assert!(udp.send_due());
    // The time is over.
    udp.out.end = Some(Instant::now());
    assert!(!udp.send_due());
    let total = udp.total();
    let lost = total.counters["messages_lost_at_end"];
    assert!(lost >= 95, "{lost}");
    assert_eq!(total.counters["messages_sent"] + lost, 100 + total.counters["messages"]);
}

#[test]
fn an_urgent_end_waits_for_nothing_and_counts_what_is_left() {
    let (mut udp, _peer) = udp(1);
    udp.out.waits_for_room = true;
    (0..100).for_each(|_| udp.out.message(&[0; 20], 2));
    udp.out.stop.hurry();
    // At one message a second, room would never come.
    let message = [0; 60_000];
    (0..MOST_WAITING / message.len() + 10).for_each(|_| udp.out.message(&message, 3));
    assert!(udp.total().counters["messages_lost_too_fast"] >= 1);
    udp.finish(0, &ExportStats::default());
    assert!(!udp.send_due());
    let total = udp.total();
    let lost = total.counters["messages_lost_at_end"] + total.counters["messages_lost_too_fast"];
    let all = 110 + (MOST_WAITING / message.len()) as u64 + total.counters["messages"];
    assert_eq!(total.counters["messages_sent"] + lost, all);
}
