//! Captures: what is printed of them, and what is refused.

use std::process::{Command, Stdio};

use serde_json::Value;
use sonde_results::RttRun;
use sonde_results::rtt::GroupKey;

use super::support::{SONDE, Temporary, capture, lines, rtt, tai_offset_ns};

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
    // Two requests, and then their two answers: as long as those, and counted as ePPing does.
    let counts = ["sent_packets", "sent_bytes", "rec_packets", "rec_bytes"];
    let counters_of = |n: usize| counts.map(|name| array[n][name].as_u64().unwrap());
    let [_, bytes, ..] = counters_of(0);
    assert_eq!((counters_of(0), counters_of(1)), ([2, bytes, 1, bytes / 2], [2, bytes, 2, bytes]));
    let rtts: Vec<&Value> = array.iter().filter_map(|o| o.get("rtt")).collect();
    let rtts_wanted: Vec<&Value> = wanted.iter().map(|s| &s["rtt_ns"]).collect();
    assert_eq!(rtts, rtts_wanted);
}

#[test]
fn link_types_of_bsd_are_read() {
    for name in ["link0", "link12"] {
        let file = capture(&format!("../reading/{name}.pcap"));
        let ended = rtt(&format!("{file} --format jsonl --sample-limit none"));
        assert_eq!(lines(&ended.out, "sample").len(), 22, "{name}: {}", ended.err);
    }
}

#[test]
fn a_bad_time_is_reported_and_the_capture_goes_on() {
    let out = Temporary::new("bad-time");
    let file = capture("../reading/time_overflow_mid.pcapng");
    let ended = rtt(&format!("{file} -o {}", out.path()));
    assert!(ended.err.contains("1 packets whose time"), "{}", ended.err);
    let run: RttRun = serde_json::from_str(&std::fs::read_to_string(out.path()).unwrap()).unwrap();
    assert_eq!((run.coverage.counters["packets"], run.coverage.counters["bad_time"]), (9, 1));
    assert!(run.caveats.contains(sonde_results::Caveat::CaptureTimesWrong));
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
        let key_of = |s: &Value, key: &str| (s["kind"].clone(), s["class"].clone(), s[key].clone());
        let mut got: Vec<_> = samples.iter().map(|s| key_of(s, "at_ns")).collect();
        let mut want: Vec<_> = wanted.iter().map(|s| key_of(s, "at_ns")).collect();
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
fn the_first_line_has_the_command_and_settings_of_the_run_file() {
    let file = Temporary::new("command.json");
    let line = format!("{} --format jsonl -o {}", capture("echo.pcap"), file.path());
    let ended = rtt(&line);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&file.0).unwrap()).unwrap();
    let wanted: Vec<&str> = [SONDE, "rtt"].into_iter().chain(line.split_whitespace()).collect();
    assert_eq!(saved["config"]["command"], serde_json::json!(wanted));
    assert_eq!(lines(&ended.out, "run")[0]["config"], saved["config"]);
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
    for part in ["198.51.100.0/24", "P99", "seen: 32 packets", "2 requests sent again"] {
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
        (format!("{echo} lo"), 2, "give files alone"),
        ("- -".into(), 2, "named twice"),
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
        ("/".into(), 3, "is a folder"),
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
