//! Interfaces: every packet is in a record, in time, however the run ends.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;

use sonde_lab::{Host, LinkOptions, Topology};
use sonde_results::Caveat;
use sonde_results::flow::{FlowEnd, FlowRecord};
use sonde_sys::clock::unix_now_ns;

use super::support::{Exported, Folder, SONDE, assert_conserved, meter, pair, records, run_of};
use crate::process::{self, Process};

/// Datagrams there and back over one pair of ports, one after the other.
fn exchange(net: &Topology, count: usize) {
    let bind = |host: &Host, address| host.inside(|| UdpSocket::bind(address).unwrap()).unwrap();
    let (near, far) = (bind(&net.probe, "10.1.0.1:0"), bind(&net.reflector, "10.1.0.2:0"));
    near.connect(far.local_addr().unwrap()).unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 300];
    for _ in 0..count {
        near.send(&[1; 100]).unwrap();
        far.recv(&mut buffer).unwrap();
        far.send(&[2; 200]).unwrap();
        near.recv(&mut buffer).unwrap();
    }
}

/// Ends the run: its records, which are all of what the run says it metered.
fn interrupt(run: Process, lines: &str, file: &str) -> Vec<FlowRecord> {
    run.signal("INT");
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let all = records(&std::fs::read_to_string(lines).unwrap());
    assert_conserved(&run_of(&std::fs::read_to_string(file).unwrap()), &all);
    all
}

#[test]
fn both_directions_are_one_record_and_every_packet_is_counted() {
    let name = "both_directions_are_one_record_and_every_packet_is_counted";
    let Some(net) = pair(name) else { return };
    for workers in [1, 2] {
        let folder = Folder::new();
        let [lines, file, ipfix] = ["a.jsonl", "run.json", "a.ipfix"].map(|n| folder.file(n));
        let line = format!(
            "eth0 --workers {workers} --jsonl {lines} -o {file} --write {ipfix} --proto udp"
        );
        let run = meter(&net.probe, &line);
        let flows = 20;
        (0..flows).for_each(|i| exchange(&net, 5 + i));
        let all = interrupt(run, &lines, &file);
        let mut counts: Vec<_> =
            all.iter().map(|r| (r.forward.packets, r.reverse.packets)).collect();
        counts.sort_unstable();
        let expected: Vec<_> = (0..flows as u64).map(|i| (5 + i, 5 + i)).collect();
        assert_eq!(counts, expected);
        assert!(all.iter().all(|r| r.forward.bytes == 128 * r.forward.packets
            && r.reverse.bytes == 228 * r.reverse.packets
            && r.end == FlowEnd::Forced));
        let index = net.probe.run(&["cat", "/sys/class/net/eth0/ifindex"]).unwrap();
        let exported = Exported::of(&std::fs::read(ipfix).unwrap());
        assert!(exported.is_whole && exported.flows.len() == 2 * flows);
        let counters = run_of(&std::fs::read_to_string(file).unwrap()).counters;
        let left_out = ["packets_lost", "refused_not_ip", "refused_truncated", "refused_malformed"];
        assert_eq!(exported.ignored, Some(left_out.map(|name| counters[name]).iter().sum()));
        assert!(workers > 1 || counters["refused_not_ip"] > 0, "the first address resolution");
        assert!(exported.interfaces.iter().all(|i| i.to_string() == index.trim()));
    }
}

#[test]
fn the_kernels_headers_and_af_xdp_count_what_is_received() {
    let Some(net) = pair("the_kernels_headers_and_af_xdp_count_what_is_received") else { return };
    // To AF_XDP with --mirror packets are taken from the host: one way only, and by hand.
    net.probe.set_neighbour("eth0", "10.1.0.2", "02:00:00:00:00:99").unwrap();
    for how in ["--engine header", "--engine header --workers 2", "--engine af_xdp --mirror"] {
        let folder = Folder::new();
        let [lines, file] = ["a.jsonl", "run.json"].map(|n| folder.file(n));
        let run =
            meter(&net.reflector, &format!("eth0 {how} --jsonl {lines} -o {file} --proto udp"));
        let sockets: Vec<UdpSocket> = net
            .probe
            .inside(|| (0..50).map(|_| UdpSocket::bind("10.1.0.1:0").unwrap()).collect())
            .unwrap();
        for _ in 0..20 {
            for socket in &sockets {
                assert_eq!(socket.send_to(&[0; 100], "10.1.0.2:9").unwrap(), 100);
            }
        }
        let all = interrupt(run, &lines, &file);
        assert_eq!(all.len(), 50, "{how}");
        for r in all {
            assert_eq!((r.forward.packets, r.forward.bytes, r.reverse.packets), (20, 20 * 128, 0));
        }
    }
}

/// The kernel hands over what a sender has not cut up yet, and what it has joined: counted is
/// what is on the wire, where it says so (Linux 6.2), and else there is a doubt.
#[test]
fn joined_segments_count_as_the_packets_on_the_wire() {
    let Some(net) = pair("joined_segments_count_as_the_packets_on_the_wire") else { return };
    let folder = Folder::new();
    let [lines, file] = ["a.jsonl", "run.json"].map(|n| folder.file(n));
    let listener = net.reflector.inside(|| TcpListener::bind("10.1.0.2:5001").unwrap()).unwrap();
    let run = meter(&net.probe, &format!("eth0 --jsonl {lines} -o {file} --port 5001"));
    let octets = 2_000_000;
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut all).unwrap()
    });
    let mut stream = net.probe.inside(|| TcpStream::connect("10.1.0.2:5001").unwrap()).unwrap();
    stream.write_all(&vec![7; octets]).unwrap();
    drop(stream);
    assert_eq!(reader.join().unwrap(), octets);
    let all = interrupt(run, &lines, &file);
    let joined = run_of(&std::fs::read_to_string(&file).unwrap()).counters["packets_joined"];
    if !sonde_sys::host::kernel_is_at_least(6, 2) {
        return assert!(joined > 0);
    }
    let sent = all.iter().map(|r| r.forward).find(|side| side.bytes > octets as u64).unwrap();
    // At least 40 octets of headers a packet, and none longer than the MTU.
    assert!(sent.packets >= octets as u64 / 1_460, "{sent:?}");
    assert!(sent.bytes <= 1_500 * sent.packets, "{sent:?}");
    assert!(sent.bytes >= octets as u64 + 40 * sent.packets, "{sent:?}");
    assert_eq!(joined, 0);
}

#[test]
fn af_xdp_on_one_queue_names_what_has_several_workers() {
    let Some(net) = pair("af_xdp_on_one_queue_names_what_has_several_workers") else { return };
    let mut command = net.probe.command(SONDE);
    let line = "flow eth0 --engine af_xdp --mirror --workers 2 -w 1s";
    command.args(line.split_whitespace());
    let ended = Process::start(command).end();
    assert_eq!(ended.code, 3, "{}", ended.err);
    for part in ["1 receive queues for 2 workers", "--engine af_packet", "--engine header"] {
        assert!(ended.err.contains(part), "{}", ended.err);
    }
}

#[test]
fn an_idle_flow_is_exported_though_nothing_comes() {
    let Some(net) = pair("an_idle_flow_is_exported_though_nothing_comes") else { return };
    let mut run = meter(&net.probe, "eth0 --idle 300ms --jsonl - --proto udp");
    exchange(&net, 3);
    run.until("the record", |p| !p.out().is_empty());
    let flows = records(&run.out().join("\n"));
    assert_eq!((flows.len(), flows[0].end, flows[0].reverse.packets), (1, FlowEnd::Idle, 3));
    run.signal("INT");
    assert_eq!(run.end().code, 0);
}

#[test]
fn a_connection_ends_when_both_have_closed() {
    let Some(net) = pair("a_connection_ends_when_both_have_closed") else { return };
    let mut run = meter(&net.probe, "eth0 --jsonl - --proto tcp");
    let listener = net.reflector.inside(|| TcpListener::bind("10.1.0.2:0").unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut near = net.probe.inside(|| TcpStream::connect(address).unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.write_all(b"question").unwrap();
    far.read_exact(&mut [0; 8]).unwrap();
    far.write_all(b"answer").unwrap();
    near.read_exact(&mut [0; 6]).unwrap();
    drop((near, far));
    run.until("the record", |p| !p.out().is_empty());
    let flows = records(&run.out().join("\n"));
    assert_eq!((flows.len(), flows[0].end), (1, FlowEnd::EndDetected));
    assert_eq!(flows[0].key.destination_port, address.port());
    run.signal("INT");
    let ended = run.end();
    assert_eq!(records(&ended.out).len(), 1, "its last acknowledgement is no flow of its own");
}

#[test]
fn an_interface_that_returns_is_metered_again() {
    let Some(mut net) = pair("an_interface_that_returns_is_metered_again") else { return };
    let folder = Folder::new();
    let [lines, file, ipfix] = ["a.jsonl", "run.json", "a.ipfix"].map(|n| folder.file(n));
    let line = format!("eth0 --jsonl {lines} -o {file} --write {ipfix} --proto udp --idle 500ms");
    let mut run = meter(&net.probe, &line);
    exchange(&net, 4);
    process::until("the first record", || std::fs::metadata(&lines).unwrap().len() > 0);
    let index = |net: &Topology| -> u32 {
        let text = net.probe.run(&["cat", "/sys/class/net/eth0/ifindex"]).unwrap();
        text.trim().parse().unwrap()
    };
    let first = index(&net);
    net.probe.run(&["ip", "link", "del", "eth0"]).unwrap();
    run.until("the loss", |p| p.err().iter().any(|l| l.contains("has vanished")));
    net.lab.link(&net.probe, "eth0", &net.reflector, "eth0", &LinkOptions::default()).unwrap();
    run.until("the return", |p| p.err().iter().any(|l| l.contains("is metered again")));
    net.probe.add_address("eth0", "10.1.0.1/24").unwrap();
    net.reflector.add_address("eth0", "10.1.0.2/24").unwrap();
    exchange(&net, 7);
    let all = interrupt(run, &lines, &file);
    let counts: Vec<_> = all.iter().map(|r| (r.forward.packets, r.reverse.packets)).collect();
    assert_eq!((counts.first(), counts.last()), (Some(&(4, 4)), Some(&(7, 7))));
    let exported = Exported::of(&std::fs::read(ipfix).unwrap());
    assert!(exported.is_whole && first != index(&net));
    let [.., last, _] = exported.interfaces[..] else { panic!("{:?}", exported.interfaces) };
    assert_eq!((exported.interfaces[0], last), (first, index(&net)));
    let run = run_of(&std::fs::read_to_string(file).unwrap());
    assert_eq!(run.points[0].vanished, 1);
    assert!(run.caveats.contains(Caveat::InterfaceVanished));
}

/// Datagrams one way, each of a flow of its own.
fn send(net: &Topology, to: &str, count: usize) {
    let sockets: Vec<UdpSocket> = net
        .probe
        .inside(|| (0..count).map(|_| UdpSocket::bind("0.0.0.0:0").unwrap()).collect())
        .unwrap();
    sockets.iter().for_each(|socket| assert_eq!(socket.send_to(&[0; 100], to).unwrap(), 100));
}

#[test]
fn the_kernels_headers_of_an_interface_that_returns_are_metered_again() {
    let name = "the_kernels_headers_of_an_interface_that_returns_are_metered_again";
    let Some(mut net) = pair(name) else { return };
    let folder = Folder::new();
    let [lines, file] = ["a.jsonl", "run.json"].map(|n| folder.file(n));
    net.lab.link(&net.probe, "eth1", &net.reflector, "eth1", &LinkOptions::default()).unwrap();
    let address = |net: &Topology, interface: &str, n: u8| {
        net.probe.add_address(interface, &format!("10.{n}.0.1/24")).unwrap();
        net.reflector.add_address(interface, &format!("10.{n}.0.2/24")).unwrap();
    };
    address(&net, "eth1", 9);
    let line = format!(
        "eth1 eth0 --engine header --workers 2 --jsonl {lines} -o {file} --port 9 --idle 500ms"
    );
    let mut run = meter(&net.reflector, &line);
    send(&net, "10.1.0.2:9", 5);
    let count = |of: &str| {
        std::fs::read_to_string(&lines).unwrap().lines().filter(|l| l.contains(of)).count()
    };
    process::until("the first records", || count("10.1.0.2") == 5);
    // Twice: the program that took the first one's name goes, too.
    for (round, sent) in [7, 11].into_iter().enumerate() {
        net.reflector.run(&["ip", "link", "del", "eth0"]).unwrap();
        let lost = |l: &&String| l.contains("eth0 has vanished");
        run.until("the loss", |p| p.err().iter().filter(lost).count() > round);
        net.lab.link(&net.probe, "eth0", &net.reflector, "eth0", &LinkOptions::default()).unwrap();
        let back = |l: &&String| l.contains("eth0 has returned and is metered again");
        run.until("the return", |p| p.err().iter().filter(back).count() > round);
        address(&net, "eth0", 1);
        send(&net, "10.1.0.2:9", sent);
        send(&net, "10.9.0.2:9", 3);
        let all = [5, 5 + 7, 5 + 7 + 11][round + 1];
        process::until("all records", || count("10.1.0.2") == all);
    }
    let all = interrupt(run, &lines, &file);
    assert_eq!(all.len(), 5 + 7 + 11 + 2 * 3);
    for r in &all {
        let point = u8::from(r.key.destination.to_string() == "10.1.0.2");
        assert_eq!((r.key.point, r.forward.packets, r.forward.bytes), (point, 1, 128), "{r:?}");
    }
    let run = run_of(&std::fs::read_to_string(file).unwrap());
    assert_eq!((run.points[0].vanished, run.points[1].vanished), (0, 2));
}

/// It keeps its index then, and would keep the program.
#[test]
fn the_kernels_headers_follow_an_interface_that_was_renamed_and_back() {
    let name = "the_kernels_headers_follow_an_interface_that_was_renamed_and_back";
    let Some(net) = pair(name) else { return };
    let mut run = meter(&net.reflector, "eth0 --engine header --jsonl - --port 9 --idle 500ms");
    let count = |p: &Process| p.out().iter().filter(|l| l.contains("10.1.0.2")).count();
    send(&net, "10.1.0.2:9", 5);
    run.until("the first records", |p| count(p) == 5);
    let rename = |from: &str, to: &str| {
        for change in [&["down"][..], &["name", to]] {
            net.reflector.run(&[&["ip", "link", "set", from][..], change].concat()).unwrap();
        }
        net.reflector.run(&["ip", "link", "set", to, "up"]).unwrap();
    };
    rename("eth0", "other0");
    run.until("the loss", |p| p.err().iter().any(|l| l.contains("eth0 has vanished")));
    // Its program goes in the thread that meters, a moment later.
    process::until("the program to be gone", || {
        let shown = net.reflector.run(&["ip", "link", "show", "dev", "other0"]).unwrap();
        !shown.contains("prog/xdp")
    });
    send(&net, "10.1.0.2:9", 3);
    rename("other0", "eth0");
    run.until("the return", |p| p.err().iter().any(|l| l.contains("eth0 has returned and is")));
    send(&net, "10.1.0.2:9", 7);
    run.until("all records", |p| count(p) >= 12);
    run.signal("INT");
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(!ended.err.contains("cannot be metered again"), "{}", ended.err);
    assert_eq!(ended.out.lines().filter(|l| l.contains("10.1.0.2")).count(), 12);
}

/// The kernel's own clock knows no time namespaces, and the program's stamps are of that.
#[test]
fn the_kernels_headers_have_the_right_time_in_a_time_namespace() {
    let name = "the_kernels_headers_have_the_right_time_in_a_time_namespace";
    let Some(net) = pair(name) else { return };
    let mut command = net.reflector.command("unshare");
    command.args(["--time", "--monotonic", "100000", "--boottime", "100000", "--fork"]);
    command.args([SONDE, "flow", "eth0", "--engine", "header", "--jsonl", "-", "--port", "9"]);
    let mut run = Process::start(command);
    run.until("the interface", |_| {
        let shown = net.reflector.run(&["ip", "link", "show", "dev", "eth0"]).unwrap();
        shown.contains("prog/xdp")
    });
    let begin = unix_now_ns();
    // Some packets of one flow, apart from each other.
    net.probe
        .inside(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for i in 0..20 {
                socket.send_to(&[i; 100], "10.1.0.2:9").unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        })
        .unwrap();
    let end = unix_now_ns();
    // The process in the namespace is the child of the one that was started.
    let children = format!("/proc/{0}/task/{0}/children", run.id());
    let child = std::fs::read_to_string(children).unwrap();
    net.reflector.run(&["kill", "-s", "INT", child.trim()]).unwrap();
    let ended = run.end();
    let flows = records(&ended.out);
    assert_eq!(flows.len(), 1, "{}", ended.out);
    assert_eq!(flows[0].forward.packets, 20);
    let span = (flows[0].forward.first_ns, flows[0].forward.last_ns);
    assert!(begin <= span.0 && span.0 < span.1 && span.1 <= end, "{begin} {span:?} {end}");
}

/// A mirror port by AF_XDP: its only port waits for packets, and finds out first that it is gone.
#[test]
fn a_mirror_port_that_was_away_or_down_is_metered_again() {
    let name = "a_mirror_port_that_was_away_or_down_is_metered_again";
    let Some(mut net) = pair(name) else { return };
    let folder = Folder::new();
    let [lines, file] = ["a.jsonl", "run.json"].map(|n| folder.file(n));
    let line =
        format!("eth0 --engine af_xdp --mirror --jsonl {lines} -o {file} --port 9 --idle 500ms");
    let mut run = meter(&net.reflector, &line);
    // The host behind a mirror port answers nobody.
    let show = |net: &Topology, count: usize| {
        let to = ["10.1.0.2", "lladdr", "02:00:00:00:00:99", "dev", "eth0"];
        net.probe.run(&[&["ip", "neigh", "replace"][..], &to].concat()).unwrap();
        send(net, "10.1.0.2:9", count);
    };
    let records = || std::fs::read_to_string(&lines).unwrap_or_default().lines().count();
    show(&net, 5);
    process::until("the first records", || records() == 5);
    net.reflector.run(&["ip", "link", "del", "eth0"]).unwrap();
    run.until("the loss", |p| p.err().iter().any(|l| l.contains("eth0 has vanished")));
    net.lab.link(&net.probe, "eth0", &net.reflector, "eth0", &LinkOptions::default()).unwrap();
    run.until("the return", |p| p.err().iter().any(|l| l.contains("is metered again")));
    net.probe.add_address("eth0", "10.1.0.1/24").unwrap();
    show(&net, 7);
    process::until("records after the return", || records() == 5 + 7);
    net.reflector.run(&["ip", "link", "set", "eth0", "down"]).unwrap();
    run.until("the gap", |p| p.err().iter().any(|l| l.contains("eth0 is down or has no carrier")));
    net.reflector.run(&["ip", "link", "set", "eth0", "up"]).unwrap();
    run.until("its end", |p| p.err().iter().any(|l| l.contains("eth0 is up again")));
    show(&net, 11);
    process::until("records after the gap", || records() == 5 + 7 + 11);
    let all = interrupt(run, &lines, &file);
    assert_eq!(all.iter().map(|r| r.forward.packets).sum::<u64>(), 5 + 7 + 11);
    let run = run_of(&std::fs::read_to_string(file).unwrap());
    assert_eq!(run.points[0].vanished, 2);
    assert!(run.caveats.contains(Caveat::InterfaceVanished));
}

#[test]
fn a_run_ends_when_nobody_reads_its_lines() {
    let Some(net) = pair("a_run_ends_when_nobody_reads_its_lines") else { return };
    let folder = Folder::new();
    let err = folder.file("err");
    let line = "flow eth0 --idle 300ms --jsonl - --proto udp -i 100ms";
    let mut child = net
        .probe
        .command(SONDE)
        .args(line.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&err).unwrap())
        .spawn()
        .unwrap();
    let printed = || std::fs::read_to_string(&err).unwrap();
    process::until("the first interval", || printed().contains("packets "));
    exchange(&net, 3);
    let mut first = String::new();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut first).unwrap();
    assert_eq!(records(&first)[0].reverse.packets, 3);
    drop(reader);
    exchange(&net, 2);
    process::until("its end", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(0), "{}", printed());
    assert!(printed().contains("10 packets"), "{}", printed());
}

#[test]
fn nothing_stays_attached_however_it_ends() {
    let Some(net) = pair("nothing_stays_attached_however_it_ends") else { return };
    let has_xdp =
        || net.reflector.run(&["ip", "link", "show", "dev", "eth0"]).unwrap().contains("prog/xdp");
    for how in ["--engine header", "--engine af_xdp --mirror"] {
        for signal in ["KILL", "TERM", "INT"] {
            let run = meter(&net.reflector, &format!("eth0 {how}"));
            assert!(has_xdp(), "{how}");
            run.signal(signal);
            let code = run.end().code;
            // Interrupted before any packet was seen.
            assert_eq!(code, if signal == "KILL" { 128 + 9 } else { 130 }, "{how} {signal}");
            process::until("the program to go", || !has_xdp());
        }
    }
}

#[test]
fn a_duration_ends_a_run_and_silence_is_exit_code_1() {
    let Some(net) = pair("a_duration_ends_a_run_and_silence_is_exit_code_1") else { return };
    let ended = meter(&net.probe, "eth0 -w 1s --port 9").end();
    assert_eq!(ended.code, 1, "{}", ended.err);
}
