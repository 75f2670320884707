//! What is wrong on every host is exit code 2, what this host does not have is 3; the message names
//! the options.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::flow_cli::Folder;
use crate::process::{Ended, Process};

const SONDE: &str = env!("CARGO_BIN_EXE_sonde");

fn sonde(line: &str, folder: &Folder) -> Ended {
    let mut command = Command::new(SONDE);
    command.args(line.split_whitespace()).current_dir(&folder.0);
    Process::start(command).end()
}

#[test]
fn settings_that_fail_everywhere_are_2_and_name_their_options() {
    let folder = Folder::new();
    let made = sonde("gen flows --packets 50 --flows 5 --out cap.pcap", &folder);
    assert_eq!(made.code, 0, "{}", made.err);
    for (line, parts) in [
        ("probe 127.0.0.1 -S ::1 -c 1", ["127.0.0.1: ", "--source"]),
        ("probe ::1 -S 127.0.0.1 -c 1", ["::1: ", "--source"]),
        (
            "probe 127.0.0.1 --source-port 65535 --dscp BE,EF -c 1",
            ["no source port", "--source-port"],
        ),
        ("probe 127.0.0.1 -i 1ns -c 2", ["--interval: 1ns", "--record-interval 10s"]),
        ("probe 127.0.0.1 --flow-ports 5-9 -c 1", ["--flow-ports: ", "--flows"]),
        ("probe 127.0.0.1 --source-port 5 --flows 2 -c 1", ["--source-port: ", "--flows"]),
        ("probe 127.0.0.1 --dscp BE,EF,0 -c 1", ["--dscp: ", "BE is given twice"]),
        ("probe 127.0.0.1 --queues 0 -c 1", ["--queues: ", "--engine af_xdp"]),
        ("probe 127.0.0.1 --xdp-mode copy -c 1", ["--xdp-mode: ", "--engine af_xdp"]),
        ("probe 127.0.0.1 -q --per-packet -c 1", ["--per-packet: ", "--quiet"]),
        ("reflect -p 8620 -p 8620", ["--port: ", "8620 is given twice"]),
        ("reflect --busy-poll 64", ["--busy-poll: ", "--engine af_xdp"]),
        ("flow cap.pcap --write f.bogus", ["--write: ", "f.bogus"]),
        ("flow cap.pcap --format netflow9 --jsonl j", ["--format: ", "--export"]),
        ("flow cap.pcap --spool s --export udp://127.0.0.1", ["--spool: ", "--export"]),
        ("flow cap.pcap --spool-max 5M --jsonl j", ["--spool-max: ", "--spool"]),
        ("flow cap.pcap --rotate 1s --write f.ipfix", ["--rotate: ", ".parquet"]),
        ("flow cap.pcap --cpus 0,0 --jsonl j", ["--cpus: ", "--workers 1"]),
        ("flow cap.pcap --fields tcp,tcp", ["--fields: ", "tcp is given twice"]),
        ("flow cap.pcap --idle 2562047h", ["--idle: ", "between 1ms and 12h"]),
        ("flow cap.pcap --idle 9999999999h", ["--idle", "is more than 292 years"]),
        ("gen flows --packets 0 --out x", ["--packets", "'0' is less than 1"]),
        (
            "gen flows --seed 18446744073709551616 --out x",
            ["--seed", "is not a whole number, at least 0"],
        ),
        ("report x --format html,md,html", ["--format: ", "html is given twice"]),
    ] {
        let ended = sonde(line, &folder);
        assert_eq!(ended.code, 2, "{line}: {}", ended.err);
        for part in parts {
            assert!(ended.err.contains(part), "{line}: '{part}' is missing: {}", ended.err);
        }
    }
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[test]
fn a_processor_that_is_not_there_is_3_everywhere() {
    let folder = Folder::new();
    let made = sonde("gen flows --packets 50 --flows 5 --out cap.pcap", &folder);
    assert_eq!(made.code, 0, "{}", made.err);
    for (line, option) in [
        ("probe 127.0.0.1 -c 1 --cpu 99999", "--cpu: "),
        ("reflect -p 48620 --cpu 99999", "--cpu: "),
        ("flow cap.pcap --cpus 99999", "--cpus: "),
    ] {
        let ended = sonde(line, &folder);
        assert_eq!(ended.code, 3, "{line}: {}", ended.err);
        let why = format!("{option}cannot run on processor 99999");
        assert!(
            ended.err.contains(&why) && ended.out.is_empty(),
            "{line}: {}{}",
            ended.out,
            ended.err
        );
    }
}

#[test]
fn files_of_settings_are_read_within_bounds_and_without_a_mark() {
    let folder = Folder::new();
    for line in ["probe --targets /dev/zero", "bench /dev/zero", "rtt lo --prefixes /dev/zero"] {
        let ended = sonde(line, &folder);
        assert_eq!(ended.code, 2, "{line}: {}", ended.err);
        assert!(ended.err.contains("it has more than 64 MiB"), "{line}: {}", ended.err);
    }
    // A pipe that somebody fills without end.
    let mut command = Command::new(SONDE);
    command.args(["probe", "--targets", "/dev/stdin"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let host = b"192.0.2.1\n".repeat(1 << 16);
    // It stops reading, and the pipe breaks.
    while stdin.write_all(&host).is_ok() {}
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("it has more than 64 MiB"));
    folder.write("marked.txt", "\u{feff}127.0.0.1\n".as_bytes());
    let ended = sonde("probe --targets marked.txt -c 1 --timeout 100ms -p 9 --json", &folder);
    assert!(ended.out.contains("\"target\":\"127.0.0.1\""), "{}{}", ended.out, ended.err);
}
