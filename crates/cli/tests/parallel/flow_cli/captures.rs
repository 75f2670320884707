//! Captures: what is metered of them, what is refused, and with which exit code.

use std::process::{Command, Stdio};

use serde_json::Value;
use sonde_results::Caveat;
use sonde_results::flow::FlowEnd;

use super::packets::{flows, pcap, pcapng, ten};
use super::support::{Exported, Folder, SONDE, assert_conserved, flow, records, run_of};

#[test]
fn all_formats_of_a_capture_give_the_same_records() {
    let folder = Folder::new();
    let files = [
        folder.write("us.pcap", &pcap(&ten(), 1, false)),
        folder.write("ns.pcap", &pcap(&ten(), 1, true)),
        folder.write("a.pcapng", &pcapng(&ten())),
    ];
    let by_format: Vec<_> = files
        .iter()
        .map(|file| {
            let ended = flow(&format!("{file} --jsonl - -q"));
            assert_eq!(ended.code, 0, "{}", ended.err);
            let mut all = records(&ended.out);
            all.sort_by_key(|r| r.key.source_port);
            all
        })
        .collect();
    assert!(by_format[0] == by_format[1] && by_format[1] == by_format[2]);
    let [one, dns, time] = &by_format[0][..] else { panic!("{by_format:?}") };
    assert_eq!((dns.forward.packets, dns.forward.bytes), (3, 3 * 68));
    assert_eq!((dns.reverse.packets, dns.reverse.bytes), (3, 3 * 428));
    assert_eq!((time.forward.packets, time.reverse.packets), (2, 0));
    assert_eq!((one.forward.bytes, one.end), (2 * 28, FlowEnd::Forced));
    // UTC, as in the capture.
    let first = 1_700_000_000 * 1_000_000_000;
    assert_eq!((dns.first_ns(), dns.last_ns()), (first, first + 900_000));
}

#[test]
fn the_run_is_described_by_its_schema_and_adds_up() {
    let folder = Folder::new();
    let file = folder.write("a.pcap", &pcap(&ten(), 1, false));
    let (saved, lines) = (folder.file("run.json"), folder.file("a.jsonl"));
    let ended = flow(&format!("{file} --json -o {saved} --jsonl {lines}"));
    assert_eq!(ended.code, 0, "{}", ended.err);
    let saved = std::fs::read_to_string(saved).unwrap();
    assert_eq!(run_of(&saved), run_of(&ended.out));
    assert_conserved(&run_of(&saved), &records(&std::fs::read_to_string(lines).unwrap()));
    let schema = Command::new(SONDE).args(["schema", "flow"]).output().unwrap().stdout;
    let schema: Value = serde_json::from_slice(&schema).unwrap();
    let run: Value = serde_json::from_str(&saved).unwrap();
    let described = |value: &Value, schema: &Value| {
        let known = schema["properties"].as_object().unwrap();
        let value = value.as_object().unwrap();
        assert!(value.keys().all(|name| known.contains_key(name)), "{value:?}");
        let required = schema["required"].as_array().unwrap();
        assert!(required.iter().all(|name| value.contains_key(name.as_str().unwrap())));
    };
    described(&run, &schema);
    for (path, name) in
        [("/config", "FlowRunConfig"), ("/exports/0", "ExportTotal"), ("/top/0", "FlowRecord")]
    {
        described(run.pointer(path).unwrap(), &schema["$defs"][name]);
    }
}

#[test]
fn what_is_wrong_with_a_capture_is_said() {
    let folder = Folder::new();
    let whole = pcap(&ten(), 1, false);
    let cut = folder.write("cut.pcap", &whole[..whole.len() - 1]);
    for (name, content, code, part) in [
        ("none.pcap", &[][..], 3, "neither a pcap nor a pcapng"),
        ("text.pcap", b"this is no capture, but some text", 3, "neither a pcap nor a pcapng"),
        ("header.pcap", &whole[..24], 1, ""),
        (
            "user.pcap",
            &pcap(&ten(), 147, false),
            1,
            "10 packets of link types that are not known (147)",
        ),
    ] {
        let file = folder.write(name, content);
        let ended = flow(&format!("{file} -q"));
        assert_eq!(ended.code, code, "{name}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains(part), "{name}: {}", ended.err);
    }
    let ended = flow(&format!("{cut} --json"));
    assert_eq!(ended.code, 0, "{}", ended.err);
    let run = run_of(&ended.out);
    assert!(run.caveats.contains(Caveat::CaptureCutShort));
    assert_eq!(run.protocols.iter().map(|p| p.packets).sum::<u64>(), 9);
    let ended = flow(&folder.file("absent.pcap"));
    assert_eq!(ended.code, 3, "{}", ended.err);
    let ended = flow(&format!("{cut} --trim 64"));
    assert_eq!(ended.code, 2, "{}", ended.err);
}

/// Captures of link types, headers and blocks that occur, and how many packets they have.
#[test]
fn every_packet_of_a_capture_is_metered_or_counted() {
    for (name, packets, bad_times) in [
        ("ifs65.pcapng", 1, 0),
        ("llcsnap.pcap", 2, 0),
        ("loop.pcap", 2, 0),
        ("null_le.pcap", 2, 0),
        ("packet_block.pcapng", 2, 0),
        ("ppp9.pcap", 2, 0),
        ("raw12.pcap", 2, 0),
        ("time_overflow_mid.pcapng", 9, 1),
        ("vlan3.pcap", 1, 0),
    ] {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/reading");
        for workers in [1, 2] {
            let ended = flow(&format!("{golden}/{name} --json --workers {workers}"));
            assert_eq!(ended.code, 0, "{name}: {}", ended.err);
            let run = run_of(&ended.out);
            assert_eq!(run.protocols.iter().map(|p| p.packets).sum::<u64>(), packets, "{name}");
            assert_eq!(run.counters["bad_time"], bad_times, "{name}");
            assert_eq!(run.caveats.contains(Caveat::CaptureTimesWrong), bad_times > 0, "{name}");
            assert_eq!(ended.err.contains("1 packets whose time"), bad_times > 0, "{name}");
        }
    }
}

/// Thirty seconds of connections that open, close, fall silent and last. Some packets are cut
/// short, some are out of order.
fn long_capture(folder: &Folder) -> String {
    let capture = folder.file("long.pcap");
    let line = format!(
        "gen flows --seed 9 --flows 600 --packets 60000 --rate 2000 --fragments 0.02 \
         --encap vlan=0.1,vxlan=0.1,gre=0.1 --out {capture}"
    );
    let made = Command::new(SONDE).args(line.split_whitespace()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut file = std::fs::read(&capture).unwrap();
    // Every 50th packet loses all but its first 20 octets, every 70th comes 20 ms late.
    let (mut at, mut index, mut out) = (24, 0, file[..24].to_vec());
    let per_second =
        if file[..4] == 0xa1b2_3c4du32.to_le_bytes() { 1_000_000_000 } else { 1_000_000 };
    while at < file.len() {
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let (fraction, len) = (word(at + 4), word(at + 8) as usize);
        if index % 70 == 69 {
            let earlier = fraction.saturating_sub(per_second / 50);
            file[at + 4..at + 8].copy_from_slice(&earlier.to_le_bytes());
        }
        if index % 50 == 49 {
            file[at + 8..at + 12].copy_from_slice(&20u32.to_le_bytes());
            out.extend(&file[at..at + 16 + 20]);
        } else {
            out.extend(&file[at..at + 16 + len]);
        }
        (at, index) = (at + 16 + len, index + 1);
    }
    folder.write("long.pcap", &out)
}

fn gzip(octets: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, octets).unwrap();
    encoder.finish().unwrap()
}

/// From standard input, two captures in a row, and the names of their interfaces.
#[test]
fn captures_come_by_pipes_and_in_a_row() {
    let folder = Folder::new();
    let whole = std::fs::read(long_capture(&folder)).unwrap();
    let mut at = 24;
    while at < whole.len() / 2 {
        let captured = u32::from_le_bytes(whole[at + 8..at + 12].try_into().unwrap());
        at += 16 + captured as usize;
    }
    let first = folder.write("first.pcap", &whole[..at]);
    let second = [&whole[..24], &whole[at..]].concat();
    let records_of = |arguments: &str, input: &[u8]| {
        let mut command = Command::new(SONDE);
        command.arg("flow").args(arguments.split_whitespace());
        command.args("-q --seed 4 --idle 1s --jsonl -".split_whitespace());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
        let writer = std::thread::spawn(move || {
            input.chunks(10_007).for_each(|few| drop(std::io::Write::write_all(&mut stdin, few)));
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        // A file's end, or a pause of a pipe, decides what of two reasons a record has that is
        // over for both.
        let reasons = ["\"end\":\"idle\"", "\"end\":\"end_detected\""];
        let text = reasons.iter().fold(text, |text, reason| text.replace(reason, "over"));
        let mut lines: Vec<String> = text.lines().map(String::from).collect();
        lines.sort_unstable();
        lines
    };
    let wanted = records_of(&folder.file("long.pcap"), b"");
    assert!(wanted.len() > 600);
    for (name, arguments, input) in [
        ("a pipe", "-".to_string(), &whole),
        ("a pipe of what is compressed", "-".to_string(), &gzip(&whole)),
        ("two threads", "- --workers 2".to_string(), &whole),
        ("two in a row", format!("{first} -"), &second),
    ] {
        let found = records_of(&arguments, input);
        let differ = wanted.iter().zip(&found).find(|(a, b)| a != b);
        assert!(found == wanted, "{name}: {} of {}: {differ:?}", found.len(), wanted.len());
    }
}

#[test]
fn any_number_of_workers_makes_the_same_records_of_a_file() {
    let folder = Folder::new();
    let capture = long_capture(&folder);
    let gzip = folder.write("long.pcap.gz", &gzip(&std::fs::read(&capture).unwrap()));
    for options in [
        "--idle 1s --active 5s --fields link,packets=8,spread,tcp,apps",
        "--keys inner --idle 2s --uniflow",
        "--sample random:1/3 --proto tcp,udp --idle 1s",
        "-w 11s --idle 1s",
    ] {
        // Compressed, it comes in pieces.
        let ways =
            [(&capture, 1), (&capture, 2), (&capture, 3), (&capture, 8), (&gzip, 1), (&gzip, 3)];
        let results = ways.map(|(capture, workers)| {
            let lines = folder.file("w.jsonl");
            let ended = flow(&format!(
                "{capture} --workers {workers} --seed 4 {options} --jsonl {lines} --json"
            ));
            assert_eq!(ended.code, 0, "{}", ended.err);
            let text = std::fs::read_to_string(lines).unwrap();
            let mut run = run_of(&ended.out);
            assert_conserved(&run, &records(&text));
            run.protocols.sort_by_key(|p| p.protocol);
            let mut lines: Vec<String> = text.lines().map(String::from).collect();
            lines.sort_unstable();
            (lines, run.protocols, run.counters, run.ends, run.header.end_ns)
        });
        let (lines, _, counters, ends, _) = &results[0];
        assert!(lines.len() > 600 && counters["refused_truncated"] > 100, "{counters:?}");
        assert!(options.contains("-w") || (ends["idle"] > 100), "{options}: {ends:?}");
        assert_eq!(counters["not_selected"] > 0, options.contains("--sample"));
        for other in &results[1..] {
            let differ: Vec<_> = lines.iter().zip(&other.0).filter(|(a, b)| a != b).collect();
            assert!(differ.is_empty(), "{options}: {:?}", &differ[..differ.len().min(3)]);
            assert!(results[0] == *other, "{options}: {counters:?} {:?}", other.2);
        }
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let folder = Folder::new();
    let file = folder.write("many.pcap", &pcap(&flows(20_000), 1, false));
    let mut child = Command::new(SONDE)
        .args(["flow", &file, "--jsonl", "-"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn generated_traffic_is_verified_against_its_truth() {
    let folder = Folder::new();
    let (capture, truth, out) =
        (folder.file("g.pcap"), folder.file("g.csv"), folder.file("g.ipfix"));
    let line = format!(
        "gen flows --seed 5 --flows 2000 --packets 60000 --fragments 0.02 --out {capture} --truth {truth}"
    );
    let made = Command::new(SONDE).args(line.split_whitespace()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let ended = flow(&format!("{capture} --write {out} --json"));
    assert_eq!(ended.code, 0, "{}", ended.err);
    let exported = Exported::of(&std::fs::read(&out).unwrap());
    assert!(exported.is_whole);
    let packets: u64 = exported.flows.iter().map(|r| r.forward.packets).sum();
    assert_eq!(packets, run_of(&ended.out).counters["exported_packets"]);
    let verified = flow(&format!("verify --truth {truth} {out}"));
    assert_eq!(verified.code, 0, "{}{}", verified.out, verified.err);
}
