//! Collectors that are connected to, and are slow, away, or restarting.

use std::net::{TcpListener, UdpSocket};

use sonde_lab::Host;

use super::collector::{accept, message, rest, silent_port, unread};
use super::packets::{flow_index, flows, pcap};
use super::support::{Exported, Folder, meter, pair, run_of, start};
use crate::process;

/// All of `0..count` once, in any order: flows end in the order of the cache's slots.
fn assert_each_once(exported: &Exported, count: u32) {
    let mut indices: Vec<u32> = exported.flows.iter().map(flow_index).collect();
    indices.sort_unstable();
    assert!(indices.into_iter().eq(0..count), "{} records", exported.flows.len());
}

#[test]
fn a_collector_that_is_slow_gets_everything_in_order() {
    let folder = Folder::new();
    let count = 200_000;
    let capture = folder.write("a.pcap", &pcap(&flows(count), 1, false));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let run = start(&format!("{capture} --export tcp://{address} --json"));
    let mut stream = accept(&listener);
    // It reads nothing until the exporter cannot send any more.
    let mut before = 0;
    process::until("both buffers to fill", || {
        let now = unread(&stream);
        let is_full = now > 0 && now == before;
        before = now;
        is_full
    });
    let all = rest(&mut stream);
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let exported = Exported::of(&all);
    assert!(exported.is_whole);
    assert_each_once(&exported, count);
    let run = run_of(&ended.out);
    let counters = &run.exports[0].counters;
    assert_eq!((counters["connections"], counters["messages_sent_again"]), (1, 0));
    assert_eq!(counters["messages_delivered"], counters["messages"]);
}

#[test]
fn a_collector_that_comes_late_gets_everything() {
    let folder = Folder::new();
    let capture = folder.write("a.pcap", &pcap(&flows(5_000), 1, false));
    let address = silent_port();
    let mut run = start(&format!("{capture} --export tcp://{address} --json"));
    run.until("the refusal", |p| p.err().iter().any(|l| l.contains("trying again, records wait")));
    let listener = TcpListener::bind(address).unwrap();
    let all = rest(&mut accept(&listener));
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let exported = Exported::of(&all);
    assert!(exported.is_whole);
    assert_each_once(&exported, 5_000);
}

#[test]
fn a_collector_that_never_comes_is_a_counted_loss() {
    let folder = Folder::new();
    let capture = folder.write("a.pcap", &pcap(&flows(500), 1, false));
    let ended = start(&format!("{capture} --export tcp://{} --json", silent_port())).end();
    assert_eq!(ended.code, 4, "{}", ended.err);
    assert!(
        ended.err.contains("with 500 records") && ended.err.contains("--spool"),
        "{}",
        ended.err
    );
    assert_eq!(run_of(&ended.out).counters["records_lost"], 500);
}

#[test]
fn a_collector_that_is_killed_gets_what_it_had_not_received() {
    let folder = Folder::new();
    let count = 100_000;
    let capture = folder.write("a.pcap", &pcap(&flows(count), 1, false));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let run = start(&format!("{capture} --export tcp://{} --json", listener.local_addr().unwrap()));
    let mut stream = accept(&listener);
    let mut first: Vec<u8> = (0..20).flat_map(|_| message(&mut stream)).collect();
    process::until("more to come", || unread(&stream) > 0);
    // With octets unread that is a reset.
    drop(stream);
    let second = rest(&mut accept(&listener));
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let (a, b) = (Exported::of(&first), Exported::of(&second));
    assert!(a.is_whole && b.is_whole, "each connection has its templates and its own sequence");
    let mut indices: Vec<u32> = a.flows.iter().chain(&b.flows).map(flow_index).collect();
    indices.sort_unstable();
    let before = indices.len();
    indices.dedup();
    assert_eq!(indices.len(), before, "no record comes twice");
    // What the collector's kernel had is gone with it, and no more than a receive buffer.
    assert!(before > count as usize / 4, "{before}");
    first.clear();
    assert_eq!(run_of(&ended.out).exports[0].counters["connections"], 2);
}

/// `count` datagrams of 10 octets to a port that identifies the round.
fn send(host: &Host, port: u16, count: usize) {
    let socket = host.inside(|| UdpSocket::bind("10.1.0.1:0").unwrap()).unwrap();
    (0..count).for_each(|_| assert_eq!(socket.send_to(&[0; 10], ("10.1.0.2", port)).unwrap(), 10));
}

#[test]
fn a_collector_that_restarts_in_order_gets_each_record_once() {
    let Some(net) = pair("a_collector_that_restarts_in_order_gets_each_record_once") else {
        return;
    };
    let listen =
        |address: &str| net.reflector.inside(|| TcpListener::bind(address).unwrap()).unwrap();
    let listener = listen("10.1.0.2:0");
    let address = listener.local_addr().unwrap();
    let _sink =
        net.reflector.inside(|| [9_001, 9_002].map(|p| UdpSocket::bind(("10.1.0.2", p)).unwrap()));
    let line = format!("eth0 --export tcp://{address} --idle 300ms --proto udp");
    let run = meter(&net.probe, &line);
    let mut rounds = Vec::new();
    let mut stream = accept(&listener);
    send(&net.probe, 9_001, 30);
    // Reads until the first round is there, and closes with nothing unread.
    let mut all = Vec::new();
    while Exported::of(&all).flows.is_empty() {
        all.extend(message(&mut stream));
    }
    rounds.push(all);
    drop((stream, listener));
    run_until_closed(&net.reflector, address.port());
    send(&net.probe, 9_002, 40);
    let listener = listen(&address.to_string());
    let mut stream = accept(&listener);
    run.signal("INT");
    rounds.push(rest(&mut stream));
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let exported: Vec<_> = rounds.iter().map(|all| Exported::of(all)).collect();
    assert!(exported.iter().all(|t| t.is_whole));
    let each = |t: &Exported| -> Vec<(u16, u64)> {
        t.flows.iter().map(|r| (r.key.destination_port, r.forward.packets)).collect()
    };
    assert_eq!((each(&exported[0]), each(&exported[1])), (vec![(9_001, 30)], vec![(9_002, 40)]));
}

/// The exporter has seen the end of the connection, and has closed, too.
fn run_until_closed(host: &Host, port: u16) {
    process::until("the old connection to be closed", || {
        let all = host.run(&["ss", "-Htn", "state", "fin-wait-2", &format!("sport = :{port}")]);
        all.unwrap().trim().is_empty()
    });
}
