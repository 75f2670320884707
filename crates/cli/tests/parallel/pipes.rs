//! Outputs that are pipes: a reader is waited for, an interrupt ends that, and a reader may leave.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::flow_cli::Folder;
use crate::process::Process;

fn command(line: &str, folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sonde"));
    command.args(line.split_whitespace()).current_dir(folder);
    command
}

fn sonde(line: &str, folder: &Path) -> Process {
    Process::start(command(line, folder))
}

fn mkfifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A folder with a capture and a pipe `f`.
fn folder() -> Folder {
    let folder = Folder::new();
    let made = sonde("gen flows --flows 100 --packets 5k --seed 7 --out t.pcap", &folder.0).end();
    assert_eq!(made.code, 0, "{}", made.err);
    mkfifo(&folder.0.join("f"));
    folder
}

/// Packets that a truth has, both directions together.
fn packets_of(truth: &Path) -> u64 {
    let text = std::fs::read_to_string(truth).unwrap();
    let mut lines = text.lines();
    let column = lines.next().unwrap().split(',').position(|name| name == "PACKETS").unwrap();
    lines.map(|line| line.split(',').nth(column).unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn an_interrupt_ends_the_wait_for_the_reader_of_a_pipe() {
    let folder = folder();
    // What is shown before the wait, where something was measured.
    for (line, summary, code) in [
        ("rtt t.pcap -o f", Some("round trips"), 4),
        ("flow t.pcap -o f", Some("5,000 packets"), 4),
        ("probe 127.0.0.1 -c 1 --timeout 10ms -o f", Some("loss"), 4),
        ("flow t.pcap -q --jsonl f", None, 130),
        ("flow t.pcap -q --write f.ipfix", None, 130),
        ("probe 127.0.0.1 -c 1 --timeout 10ms --jsonl f", None, 130),
        ("gen flows --packets 5 --out f", None, 130),
        ("gen flows --packets 5 --out x.pcap --truth f", None, 130),
    ] {
        if line.ends_with("f.ipfix") {
            mkfifo(&folder.0.join("f.ipfix"));
        }
        let mut run = sonde(line, &folder.0);
        run.until("a word about the wait", |run| {
            run.err().iter().any(|text| text.contains("this pipe has no reader yet"))
        });
        let shown = run.out().join("\n");
        run.signal("INT");
        let ended = run.end();
        assert_eq!(ended.code, code, "{line}: {}", ended.err);
        let words = ended.err.matches("this pipe has no reader yet").count();
        assert_eq!(words, 1, "{line}: {}", ended.err);
        assert!(ended.err.contains("before the pipe had a reader"), "{line}: {}", ended.err);
        if let Some(summary) = summary {
            assert!(
                !shown.is_empty() && shown == ended.out.trim_end(),
                "{line}: {summary} {shown}"
            );
        }
    }
}

#[test]
fn a_reader_that_comes_late_gets_all() {
    let folder = folder();
    for line in ["rtt t.pcap -o f", "flow t.pcap -q --jsonl f", "gen flows --packets 50k --out f"] {
        let mut run = sonde(line, &folder.0);
        run.until("a word about the wait", |run| {
            run.err().iter().any(|text| text.contains("this pipe has no reader yet"))
        });
        let mut bytes = Vec::new();
        File::open(folder.0.join("f")).unwrap().read_to_end(&mut bytes).unwrap();
        let ended = run.end();
        assert_eq!(ended.code, 0, "{line}: {}", ended.err);
        assert!(bytes.len() > 1_000, "{line}: {}", bytes.len());
    }
}

#[test]
fn a_lock_that_is_a_pipe_is_refused() {
    let folder = folder();
    mkfifo(&folder.0.join(".v.json.lock"));
    mkfifo(&folder.0.join(".v.parquet.lock"));
    for line in ["flow t.pcap -o v.json", "rtt t.pcap -o v.json", "flow t.pcap --write v.parquet"] {
        let ended = sonde(line, &folder.0).end();
        assert_eq!(ended.code, 3, "{line}: {}", ended.err);
        assert!(ended.err.contains(".lock is no ordinary file; remove it"), "{}", ended.err);
    }
}

#[test]
fn a_reader_that_leaves_is_reported_and_the_truth_has_what_was_written() {
    let folder = folder();
    let truth = folder.0.join("t.csv");
    // Opened before the program does, so that it does not wait.
    let nonblocking = File::options().read(true).custom_flags(libc::O_NONBLOCK).clone();
    let reader = nonblocking.open(folder.0.join("f")).unwrap();
    let mut run = sonde("gen flows --packets 100k --out f --truth t.csv --json", &folder.0);
    let (mut some, mut got) = ([0; 100], 0);
    run.until("packets", |_| {
        got += (&reader).read(&mut some).unwrap_or(0);
        got > 0
    });
    drop(reader);
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let report: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    let packets = report["packets"].as_u64().unwrap();
    assert_eq!(report["unread"], true);
    assert!((1..100_000).contains(&packets), "{report}");
    assert_eq!(packets_of(&truth), packets);

    let mut to_stdout = command("gen flows --packets 100k --out - --truth t.csv", &folder.0);
    let mut child = to_stdout.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut some[..10]).unwrap();
    drop(out);
    let ended = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{text}");
    assert!(text.contains("The reader left before the end"), "{text}");
    let counted = text.split_once(" packets of ").unwrap().0.replace(',', "");
    assert_eq!(counted.parse::<u64>().unwrap(), packets_of(&truth), "{text}");
}

#[test]
fn a_full_disk_leaves_the_truth_of_what_was_written() {
    let folder = folder();
    let truth = folder.0.join("k.csv");
    let ended = sonde("gen flows --packets 5k --out /dev/full --truth k.csv", &folder.0).end();
    assert_eq!(ended.code, 4, "{}", ended.err);
    assert!(ended.err.contains("cannot write /dev/full"), "{}", ended.err);
    assert!(ended.err.contains("0 packets are in it"), "{}", ended.err);
    assert_eq!(packets_of(&truth), 0);
    let mut command = command("gen flows --packets 5k --out - --truth k.csv", &folder.0);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let ended = command.stdout(full).output().unwrap();
    let text = String::from_utf8_lossy(&ended.stderr);
    assert_eq!((ended.status.code(), packets_of(&truth)), (Some(4), 0), "{text}");
    assert!(text.contains("cannot write standard output: "), "{text}");
    let ended = sonde("gen flows --packets 5k --out x.pcap --truth /dev/full", &folder.0).end();
    assert_eq!(ended.code, 4, "{}", ended.err);
    assert!(ended.err.contains("the truth is incomplete: /dev/full"), "{}", ended.err);
}
