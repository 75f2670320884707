//! `sonde rtt` as a process: what it prints of a capture and of an interface, and how it
//! ends.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use process::Process;
use serde_json::Value;
use sonde_lab::{Host, LinkOptions, Topology};
use sonde_results::RttRun;
use sonde_results::rtt::GroupKey;

#[path = "e2e/process.rs"]
#[expect(dead_code, reason = "the end-to-end tests use more of it")]
mod process;

const SONDE: &str = env!("CARGO_BIN_EXE_sonde");

struct Ended {
    code: i32,
    out: String,
    err: String,
}

/// Not a terminal, seed fixed.
fn rtt(arguments: &str) -> Ended {
    let mut command = Command::new(SONDE);
    command.arg("rtt").args(arguments.split_whitespace()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

fn capture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/rtt").join(name);
    path.to_str().unwrap().to_string()
}

/// A file of this test alone, removed when dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Temporary {
        Temporary(std::env::temp_dir().join(format!("sonde-rtt-{}-{name}", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn lines(text: &str, kind: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .filter(|value| value["type"] == kind)
        .collect()
}

/// TAI - UTC as this host's kernel knows it: captures are in UTC.
fn tai_offset_ns() -> i64 {
    i64::from(sonde_port::clock::clock_state().tai_offset_s) * 1_000_000_000
}

fn expected(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(capture(name)).unwrap();
    let case: Value = serde_json::from_str(&text).unwrap();
    case["samples"].as_array().unwrap().clone()
}

#[test]
fn every_sample_of_a_capture_is_printed_in_each_format() {
    let wanted = expected("echo.json");
    let standard = rtt(&capture("echo.pcap"));
    assert_eq!(standard.code, 0, "{}", standard.err);
    let printed: Vec<&str> = standard.out.lines().filter(|l| l.contains(" ms ")).collect();
    assert_eq!(printed.len(), wanted.len(), "{}", standard.out);
    // 2023-11-14T22:13:20.012 UTC.
    assert_eq!(
        printed[0],
        "22:13:20.012000000 12.000000 ms 12.000000 ms ICMP 198.51.100.2:77+192.0.2.1:77"
    );
    let ppviz = rtt(&format!("{} --format ppviz", capture("echo.pcap")));
    let first = ppviz.out.lines().next().unwrap();
    assert_eq!(first, "1700000000.012000000 0.012000000 0.012000000 198.51.100.2:77+192.0.2.1:77");
    assert_eq!(ppviz.out.lines().count(), wanted.len());
    let json = rtt(&format!("{} --format json", capture("echo.pcap")));
    let array: Vec<Value> = serde_json::from_str(&json.out).unwrap();
    let rtts: Vec<&Value> = array.iter().filter_map(|o| o.get("rtt")).collect();
    let rtts_wanted: Vec<&Value> = wanted.iter().map(|s| &s["rtt_ns"]).collect();
    assert_eq!(rtts, rtts_wanted);
}

#[test]
fn our_own_records_hold_what_the_capture_was_made_of() {
    for name in ["tcp_recovery", "tcp_dns", "dns", "sctp"] {
        let line = format!(
            "{} --format jsonl --sample-limit none --seed 1",
            capture(&format!("{name}.pcap"))
        );
        let ended = rtt(&line);
        assert_eq!(ended.code, 0, "{}", ended.err);
        let samples = lines(&ended.out, "sample");
        let wanted = expected(&format!("{name}.json"));
        let told = |s: &Value, key: &str| (s["kind"].clone(), s["class"].clone(), s[key].clone());
        let mut got: Vec<_> = samples.iter().map(|s| told(s, "at_ns")).collect();
        let mut want: Vec<_> = wanted.iter().map(|s| told(s, "at_ns")).collect();
        want.iter_mut().for_each(|s| s.2 = (s.2.as_i64().unwrap() + tai_offset_ns()).into());
        got.sort_by_key(|s| (s.2.as_i64(), s.0.to_string()));
        want.sort_by_key(|s| (s.2.as_i64(), s.0.to_string()));
        assert_eq!(got, want, "{name}");
        let coverage = lines(&ended.out, "coverage");
        let counters = &coverage.last().unwrap()["counters"];
        let count = |name: &str| counters[name].as_u64().unwrap_or(0);
        let counted =
            count("samples_clean") + count("samples_recovery") + count("samples_delayed_ack");
        assert_eq!(counted, wanted.len() as u64, "{name}: {counters}");
        let grouped: u64 = lines(&ended.out, "group")
            .iter()
            .flat_map(|g| {
                ["clean", "recovery", "delayed_ack"].map(|class| g[class]["count"].clone())
            })
            .map(|n| n.as_u64().unwrap())
            .sum();
        assert_eq!(grouped, wanted.len() as u64, "{name}");
    }
}

#[test]
fn aggregated_records_are_the_same_without_any_sample() {
    let base = format!("{} --format jsonl --seed 1", capture("tcp_recovery.pcap"));
    let (quiet, loud) = (rtt(&base), rtt(&format!("{base} --sample-limit none")));
    assert!(lines(&quiet.out, "sample").is_empty() && !lines(&loud.out, "sample").is_empty());
    assert_eq!(lines(&quiet.out, "group"), lines(&loud.out, "group"));
    assert_eq!(lines(&quiet.out, "flow"), lines(&loud.out, "flow"));
}

#[test]
fn the_run_file_reads_back_and_is_as_its_schema_says() {
    let file = Temporary::new("run.json");
    let ended = rtt(&format!("{} --by flow -o {}", capture("tcp_dns.pcap"), file.path()));
    assert_eq!(ended.code, 0, "{}", ended.err);
    let text = std::fs::read_to_string(&file.0).unwrap();
    let run: RttRun = serde_json::from_str(&text).unwrap();
    assert_eq!((run.header.instrument.as_str(), run.config.group_by.as_str()), ("rtt", "flow"));
    assert!(
        run.groups.iter().all(|g| matches!(g.key, GroupKey::Flow(_))) && !run.groups.is_empty()
    );
    assert_eq!(run.header.start_ns, 1_700_000_000_000_000_000 + tai_offset_ns());
    let schema = Command::new(SONDE).args(["schema", "rtt"]).output().unwrap();
    let schema: Value = serde_json::from_slice(&schema.stdout).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert!(schema["properties"].as_object().unwrap().keys().eq(value.as_object().unwrap().keys()));
}

#[test]
fn the_run_file_can_go_to_standard_output() {
    let ended = rtt(&format!("{} -o -", capture("echo.pcap")));
    let run: RttRun = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(run.points[0].name, "echo.pcap");
    assert!(ended.err.contains("seen: "), "{}", ended.err);
}

#[test]
fn a_table_ends_with_what_was_left_out() {
    let ended = rtt(&format!("{} --format table", capture("echo.pcap")));
    assert_eq!(ended.code, 0);
    for part in ["198.51.100.0/24", "P99", "seen: 32 packets", "2 of identifiers used twice"] {
        assert!(ended.out.contains(part), "'{part}' is missing: {}", ended.out);
    }
    assert!(!ended.out.contains('\x1b'), "colours only on a terminal");
}

#[test]
fn a_file_cut_in_mid_packet_is_measured_up_to_there() {
    let whole = std::fs::read(capture("echo.pcap")).unwrap();
    let file = Temporary::new("cut.pcap");
    std::fs::write(&file.0, &whole[..whole.len() / 2]).unwrap();
    let ended = rtt(&format!("{} --format table", file.path()));
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.contains("ends too early"), "{}", ended.err);
    assert!(ended.out.contains("the capture file ends early"), "{}", ended.out);
    assert!(ended.out.contains("198.51.100.0/24"), "{}", ended.out);
}

/// The capture as `tcpdump -i any` on a router would have it: every packet comes in at one
/// interface and leaves at another, a little later.
fn forwarded(capture: &[u8]) -> Vec<u8> {
    const LINUX_SLL2: u32 = 276;
    let mut file = capture[..20].to_vec();
    file.extend(LINUX_SLL2.to_le_bytes());
    let mut at = 24;
    while at + 16 <= capture.len() {
        let word = |i: usize| u32::from_le_bytes(capture[at + i..at + i + 4].try_into().unwrap());
        let frame = &capture[at + 16..at + 16 + word(8) as usize];
        for (ifindex, later) in [(2u32, 0), (3, 1)] {
            for field in [word(0), word(4) + later, word(8) + 6, word(12) + 6] {
                file.extend(field.to_le_bytes());
            }
            file.extend(&frame[12..14]);
            file.extend([0, 0]);
            file.extend(ifindex.to_be_bytes());
            file.extend([0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0]);
            file.extend(&frame[14..]);
        }
        at += 16 + frame.len();
    }
    file
}

#[test]
fn a_capture_of_all_interfaces_of_a_router_has_each_flow_twice_and_no_false_loss() {
    let file = Temporary::new("any.pcap");
    let once = std::fs::read(capture("tcp_sequence.pcap")).unwrap();
    std::fs::write(&file.0, forwarded(&once)).unwrap();
    let of = |path: &str| rtt(&format!("{path} --format jsonl --sample-limit none --seed 1"));
    let (plain, twice) = (of(&capture("tcp_sequence.pcap")), of(file.path()));
    assert_eq!(twice.code, 0, "{}", twice.err);
    let points = lines(&twice.out, "point");
    assert_eq!(points.len(), 1, "{}", twice.out);
    assert!(points[0]["name"].as_str().unwrap().ends_with("interface 3"));
    let of_point = |point: u8| -> Vec<Value> {
        let mut samples = lines(&twice.out, "sample");
        samples.retain(|s| s["flow"]["point"] == point);
        samples.iter().map(|s| s["rtt_ns"].clone()).collect()
    };
    let expected: Vec<Value> =
        lines(&plain.out, "sample").iter().map(|s| s["rtt_ns"].clone()).collect();
    assert_eq!((of_point(0), of_point(1)), (expected.clone(), expected));
    let again = |out: &str| -> u64 {
        let flows = lines(out, "flow");
        flows.iter().map(|f| f["forward"]["retransmitted"].as_u64().unwrap()).sum()
    };
    assert_eq!(again(&twice.out), 2 * again(&plain.out));
}

#[test]
fn times_that_stand_still_are_a_doubt() {
    let mut bytes = std::fs::read(capture("echo.pcap")).unwrap();
    let mut at = 24;
    while at + 16 <= bytes.len() {
        let len = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        bytes[at..at + 8].fill(0);
        at += 16 + len;
    }
    let file = Temporary::new("still.pcap");
    std::fs::write(&file.0, bytes).unwrap();
    let ended = rtt(&format!("{} --format table", file.path()));
    assert!(ended.out.contains("do not ascend"), "{}", ended.out);
}

#[test]
fn prefix_only_shows_no_whole_address() {
    for format in ["jsonl --sample-limit none", "standard", "json"] {
        let ended = rtt(&format!("{} --prefix-only --format {format}", capture("echo.pcap")));
        assert!(
            !ended.out.contains("198.51.100.2") && !ended.out.contains("192.0.2.1\""),
            "{}",
            ended.out
        );
        assert!(
            ended.out.contains("198.51.100.0") && !ended.out.contains("2001:db8:2::2"),
            "{}",
            ended.out
        );
    }
}

#[test]
fn the_filter_leaves_out_what_it_says() {
    let count = |options: &str| {
        let ended = rtt(&format!("{} --format ppviz {options}", capture("echo.pcap")));
        (ended.code, ended.out.lines().count())
    };
    let (v4, v6) = ((0, 5), (0, 5));
    assert_eq!(count("--net 192.0.2.0/24"), v4);
    assert_eq!(count("--net 2001:db8::/32"), v6);
    assert_eq!(count("--proto icmp"), (0, 10));
    assert_eq!(count("--proto tcp"), (1, 0), "nothing found is exit code 1");
}

#[test]
fn what_cannot_be_is_refused_with_the_next_step() {
    let not_capture = Temporary::new("text.pcap");
    std::fs::write(&not_capture.0, "this is a text and no capture").unwrap();
    let echo = capture("echo.pcap");
    for (arguments, code, part) in [
        (String::new(), 2, "IFACE|FILE"),
        ("nope0".into(), 3, "'ip link' lists"),
        (format!("{echo} {echo}"), 2, "give one file alone"),
        (format!("{echo} --hook xdp"), 2, "for interfaces, not files"),
        (format!("{echo} --engine af_packet"), 2, "for interfaces, not files"),
        ("lo --engine af_xdp".into(), 2, "use --engine af_packet, or leave --engine out"),
        ("lo --engine socket".into(), 2, "use --engine af_packet, or leave --engine out"),
        ("lo --engine af_packet --hook tc".into(), 2, "for programs in the kernel"),
        ("lo --engine af_packet --persist".into(), 2, "for programs in the kernel"),
        (format!("{echo} --by as"), 2, "--prefixes"),
        (format!("{echo} --prefixes /nonexistent"), 2, "/nonexistent"),
        (format!("{echo} --format json -o -"), 2, "only one of --format and --out"),
        (format!("{echo} --format table --sample-limit none"), 2, "add --format"),
        (format!("{echo} --flows 1000"), 2, "power of two"),
        (not_capture.path().into(), 3, "neither a pcap nor a pcapng"),
        ("/".into(), 3, "not a regular file"),
        (format!("{echo} --format ppviz -o /dev/full"), 4, "not saved: /dev/full"),
    ] {
        let ended = rtt(&arguments);
        assert_eq!(ended.code, code, "{arguments}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains(part), "{arguments}: '{part}' is missing: {}", ended.err);
        assert!(!ended.err.contains("panicked"), "{}", ended.err);
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let mut child = Command::new(SONDE)
        .args(["rtt", &capture("tcp_many_in_flight.pcap")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_interface_is_measured_until_interrupted() {
    let Some(net) = pair("an_interface_is_measured_until_interrupted") else { return };
    let run = watch(&net.probe, "eth0 --format jsonl --sample-limit none -i 200ms");
    ping(&net.probe, 20);
    run.signal("INT");
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let samples = lines(&ended.out, "sample");
    let echoes = samples.iter().filter(|s| s["kind"] == "icmp_echo").count();
    assert_eq!(echoes, 20, "{}", ended.out);
    assert!(samples.iter().all(|s| s["flow"]["source"] == "10.1.0.2"), "{}", ended.out);
    let grouped: u64 =
        lines(&ended.out, "group").iter().map(|g| g["clean"]["count"].as_u64().unwrap()).sum();
    assert_eq!(grouped, 20);
    let flows = lines(&ended.out, "flow");
    assert_eq!((flows.len(), &flows[0]["reason"]), (1, &"stopped".into()));
    assert_eq!(flows[0]["forward"]["samples"], 20);
    let how = lines(&ended.out, "run")[0]["points"][0]["how"].as_str().unwrap().to_string();
    assert!(how.contains("tcx") || how.contains("clsact"), "{how}");
}

#[test]
fn an_interface_that_returns_is_watched_again() {
    for engine in ["", "--engine af_packet"] {
        let Some(mut net) = pair("an_interface_that_returns_is_watched_again") else { return };
        let file = Temporary::new("returned.json");
        let mut run =
            watch(&net.probe, &format!("eth0 {engine} --format jsonl -o {}", file.path()));
        net.probe.run(&["ip", "link", "del", "eth0"]).unwrap();
        run.until("the loss to be reported", |p| {
            p.err().iter().any(|l| l.contains("has vanished"))
        });
        net.lab.link(&net.probe, "eth0", &net.reflector, "eth0", &LinkOptions::default()).unwrap();
        run.until("the return", |p| p.err().iter().any(|l| l.contains("is watched again")));
        net.probe.add_address("eth0", "10.1.0.1/24").unwrap();
        net.reflector.add_address("eth0", "10.1.0.2/24").unwrap();
        ping(&net.probe, 10);
        run.signal("INT");
        let ended = run.end();
        assert_eq!(ended.code, 0, "{}", ended.err);
        let run: RttRun = serde_json::from_slice(&std::fs::read(&file.0).unwrap()).unwrap();
        assert_eq!(run.points[0].vanished, 1);
        assert!(run.caveats.contains(sonde_results::Caveat::InterfaceVanished));
        assert_eq!(run.groups.iter().map(|g| g.clean.count).sum::<u64>(), 10);
    }
}

#[test]
fn the_kernels_program_and_a_packet_ring_find_the_same() {
    let Some(net) = pair("the_kernels_program_and_a_packet_ring_find_the_same") else { return };
    let line = "eth0 --format jsonl --sample-limit none --seed 1 -i 200ms";
    let runs = ["", " --engine af_packet"].map(|e| watch(&net.probe, &format!("{line}{e}")));
    ping(&net.probe, 20);
    for _ in 0..3 {
        talk(&net.probe, &net.reflector, "10.1.0.2");
    }
    let [kernel, ring] = runs.map(|run| {
        run.signal("INT");
        let ended = run.end();
        assert_eq!(ended.code, 0, "{}", ended.err);
        ended.out
    });
    let counter = |out: &str, name: &str| {
        let coverage = lines(out, "coverage");
        coverage.last().unwrap()["counters"][name].as_u64().unwrap_or(0)
    };
    let lost = counter(&ring, "packets_lost") + counter(&kernel, "contended");
    let flows = |out: &str| -> Vec<(String, String, u64, u64)> {
        let packets = |flow: &Value, way: &str| flow[way]["packets"].as_u64().unwrap();
        let mut all: Vec<_> = lines(out, "flow")
            .iter()
            // Neighbour discovery and the like may fall between the two starts.
            .filter(|f| f["flow"]["source"].as_str().unwrap().starts_with("10.1."))
            .map(|f| {
                let (forward, backward) = (packets(f, "forward"), packets(f, "backward"));
                (f["flow"].to_string(), f["reason"].to_string(), forward, backward)
            })
            .collect();
        all.sort();
        all
    };
    let (by_kernel, by_ring) = (flows(&kernel), flows(&ring));
    assert_eq!(by_ring.len(), 4, "{ring}");
    let echo = by_ring.iter().find(|f| f.0.contains("\"protocol\":1,")).unwrap();
    assert_eq!((echo.2, echo.3), (20, 20), "each way once");
    let names = |flows: &[(String, String, u64, u64)]| -> Vec<(String, String)> {
        flows.iter().map(|f| (f.0.clone(), f.1.clone())).collect()
    };
    assert_eq!(names(&by_kernel), names(&by_ring));
    for (a, b) in by_kernel.iter().zip(&by_ring) {
        let differ = a.2.abs_diff(b.2) + a.3.abs_diff(b.3);
        assert!(differ <= lost, "{a:?} {b:?}, lost {lost}");
    }

    let (by_kernel, by_ring) = (lines(&kernel, "sample"), lines(&ring, "sample"));
    println!("{} and {} samples, lost {lost}", by_kernel.len(), by_ring.len());
    assert!(by_ring.len() > 100, "{}", by_ring.len());
    assert!(by_kernel.len().abs_diff(by_ring.len()) as u64 <= lost);
    let number = |sample: &Value, key: &str| sample[key].as_i64().unwrap();
    let mut differences: Vec<i64> = by_ring
        .iter()
        .map(|ours| {
            let same = |s: &&Value| s["flow"] == ours["flow"] && s["kind"] == ours["kind"];
            let theirs = by_kernel
                .iter()
                .filter(same)
                .min_by_key(|s| number(s, "at_ns").abs_diff(number(ours, "at_ns")))
                .unwrap();
            number(ours, "rtt_ns") - number(theirs, "rtt_ns")
        })
        .map(i64::abs)
        .collect();
    differences.sort_unstable();
    let median = differences[differences.len() / 2];
    println!("median difference {median} ns, greatest {} ns", differences.last().unwrap());
    assert!(median < 50_000, "{median} ns");
}

#[test]
fn packets_that_pass_while_the_ring_is_full_are_counted() {
    let Some(net) = pair("packets_that_pass_while_the_ring_is_full_are_counted") else { return };
    let run = watch(&net.probe, "eth0 --engine af_packet --format jsonl");
    run.signal("STOP");
    let sender = net.probe.inside(|| UdpSocket::bind("10.1.0.1:0").unwrap()).unwrap();
    let receiver = net.reflector.inside(|| UdpSocket::bind("10.1.0.2:0").unwrap()).unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    // Twice what a ring of 16 MB holds.
    let sent = 120_000;
    (0..sent).for_each(|_| assert_eq!(sender.send(&[0; 300]).unwrap(), 300));
    run.signal("CONT");
    ping(&net.probe, 5);
    run.signal("INT");
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let coverage = lines(&ended.out, "coverage").pop().unwrap();
    let counter = |name: &str| coverage["counters"][name].as_u64().unwrap();
    let (seen, lost) = (counter("packets"), counter("packets_lost"));
    assert!(lost > 0 && seen > 0 && seen + lost >= sent, "{seen} and {lost}");
    assert!(seen + lost < sent + 100, "{seen} and {lost}");
    assert!(coverage["caveats"].to_string().contains("own_drops"), "{coverage}");
    assert!(ended.err.contains("packets that passed while the ring was full"), "{}", ended.err);
}

#[test]
fn on_the_loopback_no_packet_is_its_own_retransmission() {
    let Some(net) = pair("on_the_loopback_no_packet_is_its_own_retransmission") else { return };
    net.probe.set_up("lo", true).unwrap();
    for engine in ["", "--engine af_packet"] {
        let run = watch(&net.probe, &format!("lo {engine} --format jsonl"));
        talk(&net.probe, &net.probe, "127.0.0.1");
        run.signal("INT");
        let ended = run.end();
        assert_eq!(ended.code, 0, "{}", ended.err);
        let flows = lines(&ended.out, "flow");
        assert_eq!(flows.len(), 1, "{}", ended.out);
        for way in ["forward", "backward"] {
            assert_eq!(flows[0][way]["retransmitted"], 0, "{engine}: {}", ended.out);
        }
        assert!(flows[0]["forward"]["samples"].as_u64().unwrap() > 10, "{}", ended.out);
    }
}

#[test]
fn several_interfaces_are_read_in_turn() {
    let test = "several_interfaces_are_read_in_turn";
    if sonde_lab::skip(test) {
        return;
    }
    let net = Topology::three_hosts("rttcli", &LinkOptions::default()).unwrap();
    let line = "eth0 eth1 --engine af_packet --format jsonl --sample-limit none";
    let run = watch(net.router.as_ref().unwrap(), line);
    net.probe.run(&["ping", "-q", "-c", "10", "-i", "0.02", "-W", "5", "10.3.0.1"]).unwrap();
    run.signal("INT");
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let mut samples = lines(&ended.out, "sample");
    samples.retain(|s| s["kind"] == "icmp_echo");
    let at = |point: u8| -> Vec<u64> {
        let of_point = samples.iter().filter(|s| s["flow"]["point"] == point);
        of_point.map(|s| s["rtt_ns"].as_u64().unwrap()).collect()
    };
    let (near, far) = (at(0), at(1));
    assert_eq!((near.len(), far.len()), (10, 10), "{}", ended.out);
    assert!(near.iter().zip(&far).all(|(near, far)| near > far), "{near:?} {far:?}");
}

#[test]
fn where_ebpf_is_refused_the_message_names_what_works() {
    let Some(net) = pair("where_ebpf_is_refused_the_message_names_what_works") else { return };
    let without = |arguments: &str| {
        let mut command = net.probe.command("setpriv");
        command.args(["--bounding-set=-all,+net_raw", SONDE, "rtt", "eth0"]);
        command.args(arguments.split_whitespace());
        command
    };
    let refused = Process::start(without("")).end();
    assert_eq!(refused.code, 3, "{}", refused.err);
    assert!(refused.err.contains("'--engine af_packet' measures without it"), "{}", refused.err);
    let mut run = Process::start(without("--engine af_packet --format jsonl"));
    run.until("the first record", |p| p.out().iter().any(|l| l.contains("\"run\"")));
    ping(&net.probe, 5);
    run.signal("INT");
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let grouped: u64 =
        lines(&ended.out, "group").iter().map(|g| g["clean"]["count"].as_u64().unwrap()).sum();
    assert_eq!(grouped, 5);
}

#[test]
fn nothing_stays_attached_however_it_ends() {
    let Some(net) = pair("nothing_stays_attached_however_it_ends") else { return };
    for signal in ["KILL", "TERM", "INT"] {
        let run = watch(&net.probe, "eth0 --hook xdp --format jsonl");
        assert!(has_xdp(&net.probe));
        ping(&net.probe, 3);
        run.signal(signal);
        let code = run.end().code;
        assert_eq!(code, if signal == "KILL" { 128 + 9 } else { 0 }, "{signal}");
        process::until("the program to go", || !has_xdp(&net.probe));
        ping(&net.probe, 1);
    }
}

#[test]
fn a_duration_ends_a_run_and_silence_is_exit_code_1() {
    let Some(net) = pair("a_duration_ends_a_run_and_silence_is_exit_code_1") else { return };
    let run = watch(&net.probe, "eth0 --format jsonl --port 9 -w 300ms");
    let ended = run.end();
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains("seen: "), "{}", ended.err);
}

/// `None` without root.
fn pair(test: &str) -> Option<Topology> {
    if sonde_lab::skip(test) {
        return None;
    }
    Some(Topology::pair("rttcli", &LinkOptions::default()).unwrap())
}

/// A run that watches already.
fn watch(host: &Host, arguments: &str) -> Process {
    let mut command = host.command(SONDE);
    command.arg("rtt").args(arguments.split_whitespace());
    let mut process = Process::start(command);
    process.until("the first record", |p| p.out().iter().any(|l| l.contains("\"run\"")));
    process
}

fn ping(host: &Host, count: u32) {
    let count = count.to_string();
    host.run(&["ping", "-q", "-c", &count, "-i", "0.02", "-W", "5", "10.1.0.2"]).unwrap();
}

/// A connection with requests and answers of one and of many segments, closed by both.
fn talk(client: &Host, server: &Host, address: &str) {
    let listener = server.inside(|| TcpListener::bind((address, 0)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 100];
        for round in 0..ROUNDS {
            stream.read_exact(&mut request).unwrap();
            stream.write_all(&vec![7; 1 + round * 300]).unwrap();
        }
    });
    let mut stream = client.inside(|| TcpStream::connect(address).unwrap()).unwrap();
    for round in 0..ROUNDS {
        // The hosts' timestamps advance once a millisecond.
        std::thread::sleep(std::time::Duration::from_millis(2));
        stream.write_all(&[8; 100]).unwrap();
        stream.read_exact(&mut vec![0; 1 + round * 300]).unwrap();
    }
    drop(stream);
    server.join().unwrap();
}

/// Of [`talk`]; the longest answer has a dozen segments.
const ROUNDS: usize = 60;

fn has_xdp(host: &Host) -> bool {
    host.run(&["ip", "link", "show", "dev", "eth0"]).unwrap().contains("prog/xdp")
}
