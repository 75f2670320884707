//! Collectors that get datagrams.

use std::net::UdpSocket;
use std::time::Duration;

use super::packets::{flow_index, flows, pcap};
use super::support::{Exported, Folder, SONDE, flow, meter, pair, run_of};
use crate::process;

/// The datagrams that have come, in order.
fn received(socket: &UdpSocket) -> Vec<Vec<u8>> {
    socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 65_536];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|n| buffer[..n].to_vec())).collect()
}

#[test]
fn no_message_is_longer_than_the_path_takes_and_none_is_missing() {
    let name = "no_message_is_longer_than_the_path_takes_and_none_is_missing";
    let folder = Folder::new();
    let capture = folder.write("a.pcap", &pcap(&flows(1_000), 1, false));
    for mtu in [600, 1_500] {
        let Some(net) = pair(name) else { return };
        for host in [&net.probe, &net.reflector] {
            host.run(&["ip", "link", "set", "eth0", "mtu", &mtu.to_string()]).unwrap();
        }
        let socket = net.reflector.inside(|| UdpSocket::bind("10.1.0.2:0").unwrap()).unwrap();
        let to = socket.local_addr().unwrap();
        let mut command = net.probe.command(SONDE);
        command.args(["flow", &capture, "--json", "--export", &format!("udp://{to}")]);
        let ended = process::Process::start(command).end();
        assert_eq!(ended.code, 0, "{}", ended.err);
        let messages = received(&socket);
        let longest = messages.iter().map(Vec::len).max().unwrap();
        assert!(longest <= mtu - 28 && longest > mtu - 28 - 100, "{longest}");
        let exported = Exported::of(&messages.concat());
        assert!(exported.is_whole);
        let mut indices: Vec<u32> = exported.flows.iter().map(flow_index).collect();
        indices.sort_unstable();
        assert!(indices.into_iter().eq(0..1_000));
        let run = run_of(&ended.out);
        assert_eq!(run.exports[0].counters["messages_sent"], messages.len() as u64);
    }
}

#[test]
fn a_path_that_becomes_narrower_gets_shorter_messages() {
    let Some(net) = pair("a_path_that_becomes_narrower_gets_shorter_messages") else { return };
    let socket = net.reflector.inside(|| UdpSocket::bind("10.1.0.2:0").unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let to = socket.local_addr().unwrap();
    let line = format!("eth0 --export udp://{to} --proto udp --port 9 --idle 300ms --json");
    let run = meter(&net.probe, &line);
    let send = |flows: usize| {
        let sockets: Vec<_> = net
            .probe
            .inside(|| (0..flows).map(|_| UdpSocket::bind("10.1.0.1:0").unwrap()).collect())
            .unwrap();
        for socket in &sockets as &Vec<UdpSocket> {
            assert_eq!(socket.send_to(&[0; 10], "10.1.0.2:9").unwrap(), 10);
        }
    };
    let mut buffer = [0; 65_536];
    let mut long: Vec<Vec<u8>> = Vec::new();
    send(100);
    while Exported::of(&long.concat()).flows.len() < 100 {
        let n = socket.recv(&mut buffer).unwrap();
        long.push(buffer[..n].to_vec());
    }
    assert!(long.iter().any(|m| m.len() > 572));
    net.probe.run(&["ip", "link", "set", "eth0", "mtu", "600"]).unwrap();
    send(100);
    run.signal("INT");
    let ended = run.end();
    let short = received(&socket);
    assert!(!short.is_empty() && short.iter().all(|m| m.len() <= 572));
    // Messages that were too long are counted, and both sides agree how many are missing.
    let run = run_of(&ended.out);
    let lost = run.exports[0].counters["records_lost"];
    assert_eq!(
        Exported::of(&long.into_iter().chain(short).collect::<Vec<_>>().concat()).flows.len()
            as u64
            + lost,
        200
    );
    assert_eq!(run.exports[0].counters["messages_lost_too_long"], 1);
    assert_eq!(ended.code, 4, "{}", ended.err);
}

#[test]
fn a_collector_that_does_not_listen_is_a_counted_loss() {
    let folder = Folder::new();
    for count in [5, 1_000] {
        let capture = folder.write("a.pcap", &pcap(&flows(count), 1, false));
        let to = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let ended = flow(&format!("{capture} --export udp://{to} --json"));
        assert_eq!(ended.code, 4, "{}", ended.err);
        assert!(ended.err.contains("is lost, and counted"), "{}", ended.err);
        let run = run_of(&ended.out);
        let counters = &run.exports[0].counters;
        assert_eq!(counters["messages_lost_unreachable"], counters["messages"]);
        assert_eq!(counters["records_lost"], u64::from(count));
    }
}
