//! Memory, packets and slots.

use super::tls::{browser, record};
use super::*;

/// A hello that is never finished: as much memory as one flow can take.
fn greedy() -> Talk {
    let mut hello = browser("www.example.org");
    hello.extensions.insert(0, (21, vec![0; 60_000]));
    let records: Vec<u8> = hello.message().chunks(10_000).flat_map(record).collect();
    Talk::tcp(443).ask(&records[..8100]).cut(1400)
}

#[test]
fn memory_of_one_flow() {
    let talk = greedy();
    let mut apps = Apps::new(4);
    apps.created(0);
    for i in 0..talk.packets.len() {
        assert!(talk.packet(i, 0, &mut apps));
        assert!(apps.held[0] <= 20 * 1024, "{:?}", apps.held);
    }
    assert!(apps.held[0] > 8000);
    apps.created(0);
    assert_eq!(apps.held, [0; 2], "a slot used anew");
}

#[test]
fn memory_of_all_flows() {
    let flows = 4096;
    let limit = flows * OCTETS_PER_FLOW;
    let talk = greedy();
    let mut apps = Apps::new(flows);
    for slot in 0..flows {
        apps.created(slot);
        for i in 0..talk.packets.len() {
            talk.packet(i, slot, &mut apps);
            assert!(apps.held[0] <= limit, "{:?} of {limit}", apps.held);
        }
    }
    assert!(apps.counters.no_memory > 3000, "{:?}", apps.counters);
    // What needs no memory between packets is still read.
    apps.created(5);
    let short = Talk::udp(53).ask(super::datagrams::query(1, "a.example", 1));
    short.packet(0, 5, &mut apps);
    assert!(matches!(apps.ended(5), Some(App::Dns { .. })));
    // So is the room for results: the longest that there are.
    let text = "x".repeat(255);
    let request = format!("GET /{text} HTTP/1.1\r\nHost: {text}\r\nUser-Agent: {text}\r\n\r\n");
    let talk = Talk::tcp(80).ask(request).answer("HTTP/1.1 200 OK\r\n\r\n");
    let left_out = apps.counters.no_memory;
    for slot in 0..flows {
        apps.created(slot);
        for i in 0..talk.packets.len() {
            talk.packet(i, slot, &mut apps);
        }
        assert!(apps.held[1] <= limit, "{:?} of {limit}", apps.held);
    }
    assert!(apps.held[1] > limit - 2000 && apps.counters.no_memory > left_out + 1000);
    let ended = (0..flows).filter(|slot| apps.ended(*slot).is_some()).count();
    assert!((limit / 2000..limit / 500).contains(&ended), "{ended}");
    assert_eq!(apps.held, [0; 2]);
}

#[test]
fn packets_are_bounded() {
    let mut talk = Talk::tcp(25).answer("220 x ESMTP\r\n");
    for _ in 0..100 {
        talk = talk.ask("NOOP\r\n");
    }
    assert_eq!(talk.run().1, 2 + usize::from(MAX_PACKETS));
}

#[test]
fn counters() {
    let mut apps = Apps::new(8);
    let cases = [
        (Talk::tcp(22).ask("SSH-2.0-a\r\n"), 1, 0),
        (Talk::tcp(22).ask("rubbish and nothing else"), 1, 1),
        (Talk::udp(9).ask("GET / HTTP/1.1\r\n\r\n"), 1, 2),
        // Without payload there is nothing to know.
        (Talk::tcp(22), 1, 2),
        (Talk::udp(123).ask([0x23; 48]), 1, 3),
    ];
    for (talk, identified, unknown) in cases {
        apps.created(3);
        for i in 0..talk.packets.len() {
            talk.packet(i, 3, &mut apps);
        }
        apps.ended(3);
        let want = AppCounters { identified, unknown, no_memory: 0 };
        assert_eq!(apps.counters, want);
    }
}

#[test]
fn flows_that_have_no_payload_to_read() {
    let mut apps = Apps::new(1);
    let packet = Feature { protocol: PROTOCOL_TCP, headers: 10, ip_len: 100, ..Feature::default() };
    let layers = Layers { payload: 0, end: 60, ..Layers::default() };
    let frame = [b'G'; 60];
    // Only headers were passed; a protocol without applications.
    for (packet, frame) in [(packet, &[][..]), (Feature { protocol: 1, ..packet }, &frame[..])] {
        apps.created(0);
        assert!(!apps.packet(0, false, &packet, frame, &layers));
        assert_eq!(apps.ended(0), None);
    }
    // A fragment's payload is not whole; layers that point nowhere.
    apps.created(0);
    let fragment = Feature { shape: SHAPE_FRAGMENT, ..packet };
    assert!(apps.packet(0, false, &fragment, &frame, &layers));
    let astray = Layers { payload: 700, end: 800, ..Layers::default() };
    assert!(apps.packet(0, false, &packet, &frame, &astray));
    assert_eq!(apps.ended(0), None);
}
