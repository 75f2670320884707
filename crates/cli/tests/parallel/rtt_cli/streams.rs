//! Captures that are no plain files: pipes, standard input, compressed ones, several in a row.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::support::{SONDE, Temporary, capture, lines, rtt};
use crate::process::{Ended, Process};

const CAPTURE: &str = "tcp_recovery.pcap";
const FORM: &str = "--format jsonl --sample-limit none --seed 1";

/// All that is printed of packets.
fn results(ended: &Ended) -> Vec<Value> {
    ["sample", "flow", "group"].iter().flat_map(|kind| lines(&ended.out, kind)).collect()
}

/// A run whose standard input has `octets`, a few at a time.
fn with_input(octets: &[u8], arguments: &str) -> Ended {
    let mut command = Command::new(SONDE);
    command.arg("rtt").args(arguments.split_whitespace());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for few in octets.chunks(37) {
        // A run that is refused reads nothing.
        let _ = input.write_all(few);
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

fn gzip(octets: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(octets).unwrap();
    encoder.finish().unwrap()
}

fn zstd(octets: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(octets, 3).unwrap()
}

fn file(name: &str, octets: &[u8]) -> Temporary {
    let file = Temporary::new(name);
    std::fs::write(&file.0, octets).unwrap();
    file
}

/// A capture cut in two behind `packets` packets, each part with a file header.
fn in_two(octets: &[u8], packets: usize) -> [Vec<u8>; 2] {
    let mut at = 24;
    for _ in 0..packets {
        let captured = u32::from_le_bytes(octets[at + 8..at + 12].try_into().unwrap());
        at += 16 + captured as usize;
    }
    [octets[..at].to_vec(), [&octets[..24], &octets[at..]].concat()]
}

#[test]
fn a_capture_gives_the_same_whichever_way_it_comes() {
    let path = capture(CAPTURE);
    let octets = std::fs::read(&path).unwrap();
    let wanted = results(&rtt(&format!("{path} {FORM}")));
    assert!(wanted.len() > 5, "{wanted:?}");
    let input = format!("- {FORM}");
    // Compressed files may have several members, or frames.
    let (front, back) = octets.split_at(octets.len() / 3);
    for (name, octets) in [
        ("plain", octets.clone()),
        ("gzip", gzip(&octets)),
        ("zstd", zstd(&octets)),
        ("two members", [gzip(front), gzip(back)].concat()),
        ("two frames", [zstd(front), zstd(back)].concat()),
    ] {
        let ended = with_input(&octets, &input);
        assert_eq!((ended.code, results(&ended)), (0, wanted.clone()), "{name}: {}", ended.err);
        if name != "plain" {
            // By what it holds, not by its name.
            let file = file("compressed.pcap", &octets);
            let ended = rtt(&format!("{} {FORM}", file.path()));
            assert_eq!((ended.code, results(&ended)), (0, wanted.clone()), "{name}: {}", ended.err);
        }
    }
    let redirected = Command::new(SONDE)
        .args(["rtt", "-"])
        .args(FORM.split_whitespace())
        .stdin(File::open(&path).unwrap())
        .output()
        .unwrap();
    let out = String::from_utf8(redirected.stdout).unwrap();
    assert_eq!(results(&Ended { code: 0, out, err: String::new() }), wanted);
}

#[test]
fn a_capture_under_way_is_measured_as_it_grows() {
    let octets = std::fs::read(capture(CAPTURE)).unwrap();
    let pipe = Temporary::new("pipe");
    assert!(Command::new("mkfifo").arg(pipe.path()).status().unwrap().success());
    let mut command = Command::new(SONDE);
    command.args(["rtt", pipe.path()]).args(FORM.split_whitespace());
    let mut process = Process::start(command);
    // Opens when the other end does.
    let mut writer = OpenOptions::new().write(true).open(&pipe.0).unwrap();
    let half = octets.len() / 2;
    writer.write_all(&octets[..half]).unwrap();
    process.until("samples of the first half", |p| {
        p.out().iter().any(|line| line.contains("\"type\":\"sample\""))
    });
    // Ctrl-C ends it though the pipe is open and silent, and what came is reported.
    process.signal("INT");
    let ended = process.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(!lines(&ended.out, "flow").is_empty(), "{}", ended.out);
}

/// Nor does a pipe that nobody writes to keep it from ending.
#[test]
fn ctrl_c_ends_the_wait_for_a_pipes_writer() {
    let pipe = Temporary::new("no-writer");
    assert!(Command::new("mkfifo").arg(pipe.path()).status().unwrap().success());
    for instrument in ["rtt", "flow"] {
        let mut command = Command::new(SONDE);
        command.args([instrument, pipe.path()]);
        let mut process = Process::start(command);
        // It catches signals before it opens anything.
        process.until("the reading thread", |p| {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", p.id())).unwrap();
            let names = tasks
                .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
            names.into_iter().any(|name| name.trim() == "sonde-read")
        });
        process.signal("INT");
        let ended = process.end();
        assert_eq!(ended.code, 130, "{instrument}: {}", ended.err);
    }
}

#[test]
fn captures_in_a_row_are_one_run() {
    let octets = std::fs::read(capture(CAPTURE)).unwrap();
    let wanted = results(&rtt(&format!("{} {FORM}", capture(CAPTURE))));
    let parts = in_two(&octets, 9);
    let (first, second) = (file("row-1.pcap", &parts[0]), file("row-2.pcap", &gzip(&parts[1])));
    // The connection goes on from one to the next.
    let ended = rtt(&format!("{} {} {FORM}", first.path(), second.path()));
    assert_eq!((ended.code, results(&ended)), (0, wanted), "{}", ended.err);
    let ended = with_input(&parts[1], &format!("{} - {FORM}", first.path()));
    assert_eq!(results(&ended), results(&rtt(&format!("{} {FORM}", capture(CAPTURE)))));

    // One that is none is reported, and the others are measured.
    let text = file("row-3.pcap", b"this is a text and no capture");
    let line = format!("{} {} {} {FORM}", first.path(), text.path(), second.path());
    let ended = rtt(&line);
    assert!(ended.err.contains("row-3.pcap: at byte 0: this is neither"), "{}", ended.err);
    let coverage = lines(&ended.out, "coverage").pop().unwrap();
    assert!(coverage["caveats"].as_array().unwrap().contains(&"capture_cut_short".into()));
    let whole = lines(&rtt(&format!("{} {FORM}", capture(CAPTURE))).out, "sample");
    assert_eq!(lines(&ended.out, "sample"), whole);
}

#[test]
fn what_comes_before_the_end_of_a_broken_stream_is_measured() {
    let octets = std::fs::read(capture(CAPTURE)).unwrap();
    let compressed = gzip(&octets);
    let (front, back) = octets.split_at(octets.len() * 3 / 4);
    let mut damaged = zstd(back);
    let end = damaged.len() - 1;
    damaged[end] ^= 0xFF;
    let damaged = [zstd(front), damaged].concat();
    for (octets, part) in [
        (compressed[..compressed.len() * 3 / 4].to_vec(), "ends too early"),
        (octets[..octets.len() - 5].to_vec(), "ends too early"),
        (damaged, "cannot be decompressed further"),
    ] {
        let ended = with_input(&octets, &format!("- {FORM}"));
        assert!(ended.err.contains(part), "{}", ended.err);
        assert!(!lines(&ended.out, "sample").is_empty(), "{part}: {}", ended.err);
        let coverage = lines(&ended.out, "coverage").pop().unwrap();
        assert!(coverage["caveats"].as_array().unwrap().contains(&"capture_cut_short".into()));
    }
    // Behind a packet that cannot be nothing is read, however much comes.
    let mut wrong = [&octets[..], &[0xFF; 16], &octets[24..]].concat();
    wrong.resize(8 << 20, 0);
    let ended = with_input(&gzip(&wrong), &format!("- {FORM}"));
    assert!(ended.err.contains("a length of 4294967295 cannot be"), "{}", ended.err);
    let whole = lines(&rtt(&format!("{} {FORM}", capture(CAPTURE))).out, "sample");
    assert_eq!(lines(&ended.out, "sample"), whole);
    for octets in [&b""[..], b"abc", b"this is a text and no capture", &[0x1F, 0x8B, 9, 9, 9, 9]] {
        let ended = with_input(octets, &format!("- {FORM}"));
        assert_eq!(ended.code, 3, "{octets:?}: {}", ended.err);
        assert!(ended.err.contains("standard input"), "{}", ended.err);
    }
}

#[test]
fn interfaces_have_the_names_that_the_capture_gives_them() {
    let ended = rtt(&format!("{} {FORM}", capture("../joins/tap_two_ports.pcapng")));
    let names: Vec<String> = ended
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter_map(|line| match line["type"].as_str() {
            Some("run") => line["points"][0]["name"].as_str().map(str::to_owned),
            Some("point") => line["name"].as_str().map(str::to_owned),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["tap_two_ports.pcapng tap-a", "tap_two_ports.pcapng tap-b"]);
}
