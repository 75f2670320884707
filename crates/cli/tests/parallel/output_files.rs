//! Each output has a file for itself, within a command and between processes.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::flow_cli::Folder;
use crate::process::{Ended, Process, until};

const SONDE: &str = env!("CARGO_BIN_EXE_sonde");

fn command(line: &str, folder: &Path) -> Command {
    let mut command = Command::new(SONDE);
    command.args(line.split_whitespace()).current_dir(folder);
    command
}

fn sonde(line: &str, folder: &Path) -> Ended {
    Process::start(command(line, folder)).end()
}

/// A folder with a capture, a file of targets and a symbolic link.
fn folder() -> Folder {
    let folder = Folder::new();
    let made = sonde("gen flows --packets 50 --flows 5 --out cap.pcap --truth t.csv", &folder.0);
    assert_eq!(made.code, 0, "{}", made.err);
    folder.write("targets.txt", b"127.0.0.1\n");
    symlink("x", folder.0.join("link")).unwrap();
    folder
}

#[test]
fn two_outputs_on_one_file_are_refused_with_both_options() {
    let folder = folder();
    for (line, options) in [
        ("probe 127.0.0.1 -c 1 -o x --csv x", ["--csv", "--out"]),
        ("probe 127.0.0.1 -c 1 -o x --jsonl ./x", ["--jsonl", "--out"]),
        ("probe 127.0.0.1 -c 1 --csv link --jsonl x", ["--csv", "--jsonl"]),
        ("probe 127.0.0.1 -c 1 --csv - --jsonl -", ["--csv", "--jsonl"]),
        ("probe 127.0.0.1 -c 1 --json -o -", ["--json", "--out"]),
        ("flow cap.pcap --write x.ipfix --jsonl x.ipfix", ["--write", "--jsonl"]),
        ("flow cap.pcap --write x.ipfix --write ./x.ipfix", ["--write", "twice"]),
        ("flow cap.pcap -q --write x.parquet --jsonl x.parquet.part", ["--write", "--jsonl"]),
        ("flow cap.pcap -q -o x --jsonl .x.lock", ["--out", "--jsonl"]),
        ("flow cap.pcap --jsonl x -o link", ["--jsonl", "--out"]),
        ("flow cap.pcap --jsonl - --json", ["--jsonl", "--json"]),
        ("gen flows --packets 5 --out x --truth x", ["--out", "--truth"]),
        ("gen flows --packets 5 --out - --truth -", ["--out", "--truth"]),
        ("gen flows --packets 5 --out - --json", ["--out", "--json"]),
        ("rtt cap.pcap -o - --format jsonl", ["--out", "--format"]),
        // An input is no output.
        ("probe --targets targets.txt -c 1 -o targets.txt", ["--targets", "--out"]),
        ("flow cap.pcap --jsonl cap.pcap", ["IFACE|FILE", "--jsonl"]),
        ("rtt cap.pcap -o cap.pcap", ["IFACE|FILE", "--out"]),
        ("rtt cap.pcap --prefixes targets.txt -o ./targets.txt", ["--prefixes", "--out"]),
    ] {
        let ended = sonde(line, &folder.0);
        assert_eq!(ended.code, 2, "{line}: {}", ended.err);
        for option in options {
            assert!(ended.err.contains(option), "{line}: {}", ended.err);
        }
    }
    let made: Vec<_> = ["x", "x.ipfix", "x.parquet.part", ".x.lock"]
        .into_iter()
        .filter(|f| folder.0.join(f).exists())
        .collect();
    assert!(made.is_empty(), "{made:?}");
    assert!(std::fs::read(folder.0.join("cap.pcap")).unwrap().len() > 1_000);
    // What takes everything is for all.
    let both = sonde("flow cap.pcap --jsonl /dev/null -o /dev/null", &folder.0);
    assert_eq!(both.code, 0, "{}", both.err);
}

/// Octets of the header of a pcap file.
const HEADER: usize = 24;

/// `sonde flow -` that waits for packets on its standard input.
fn waiting(options: &str, folder: &Path) -> Child {
    let mut command = command(&format!("flow - {options}"), folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_file_that_another_process_writes_is_left_to_it() {
    let folder = folder();
    let capture = std::fs::read(folder.0.join("cap.pcap")).unwrap();
    for (options, file) in [
        ("--jsonl k.jsonl", "k.jsonl"),
        ("--write k.ipfix", "k.ipfix"),
        ("--write k.parquet", ".k.parquet.lock"),
        ("-o k.json", ".k.json.lock"),
    ] {
        let mut first = waiting(options, &folder.0);
        let mut stdin = first.stdin.take().unwrap();
        // Files are opened once it is known that there is a capture.
        stdin.write_all(&capture[..HEADER]).unwrap();
        until("its file", || folder.0.join(file).exists());
        let refused = sonde(&format!("flow cap.pcap {options}"), &folder.0);
        assert_eq!(refused.code, 3, "{options}: {}", refused.err);
        let name = options.split(' ').next_back().unwrap();
        assert!(refused.err.contains(name), "{}", refused.err);
        assert!(refused.err.contains("another process is writing to it"), "{}", refused.err);
        stdin.write_all(&capture[HEADER..]).unwrap();
        drop(stdin);
        assert_eq!(first.wait().unwrap().code(), Some(0));
        let again = sonde(&format!("flow cap.pcap {options}"), &folder.0);
        assert_eq!(again.code, 0, "{options}: {}", again.err);
    }
    let lines = std::fs::read_to_string(folder.0.join("k.jsonl")).unwrap();
    assert!(lines.lines().count() > 1 && lines.lines().all(|l| l.starts_with('{')), "{lines}");
    let left = std::fs::read_dir(&folder.0).unwrap().map(|e| e.unwrap().file_name());
    let hidden: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with('.')).collect();
    assert!(hidden.is_empty(), "{hidden:?}");
}

/// The kernel's signal for it ended the process, without a word.
#[test]
fn a_file_that_reaches_the_limit_of_its_size_is_reported_as_a_full_disk_is() {
    let folder = folder();
    let cause = "File too large";
    for (limit, line, file, why) in [
        (
            20_000,
            "gen flows --packets 5000 --flows 50 --out big.pcap --truth b.csv",
            "big.pcap",
            cause,
        ),
        // Whoever writes records goes on, and counts those that found no room.
        (1_000, "flow cap.pcap --jsonl flows.jsonl", "flows.jsonl", "could be saved (4 lost"),
        (1_000, "flow cap.pcap -o run.json", "run.json", cause),
    ] {
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--fsize={limit}")).arg(SONDE).args(line.split_whitespace());
        let ended = Process::start({
            limited.current_dir(&folder.0);
            limited
        })
        .end();
        assert_eq!(ended.code, 4, "{line}: {} {}", ended.out, ended.err);
        assert!(ended.err.contains(file), "{line}: {}", ended.err);
        assert!(ended.err.contains(why), "{line}: {}", ended.err);
    }
}

#[test]
fn a_capture_goes_to_standard_output_and_its_summary_elsewhere() {
    let folder = folder();
    let line = "gen flows --packets 50 --flows 5 --out - --truth again.csv";
    let mut command = command(line, &folder.0);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut out, mut err) = (Vec::new(), String::new());
    child.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{err}");
    assert!(err.contains("50 packets of"), "{err}");
    assert_eq!(out, std::fs::read(folder.0.join("cap.pcap")).unwrap());
    assert!(!folder.0.join("-").exists());
}

#[test]
fn an_output_that_cannot_be_written_is_the_hosts_matter_everywhere() {
    let folder = folder();
    for output in ["/nonexistent/x", "/tmp"] {
        for line in [
            "probe 127.0.0.1 -c 1 -o",
            "probe 127.0.0.1 -c 1 --csv",
            "probe 127.0.0.1 -c 1 --jsonl",
            "flow cap.pcap -o",
            "flow cap.pcap --jsonl",
            "rtt cap.pcap -o",
            "gen flows --packets 5 --out",
            "gen flows --packets 5 --out y.pcap --truth",
        ] {
            let ended = sonde(&format!("{line} {output}"), &folder.0);
            assert_eq!(ended.code, 3, "{line} {output}: {}", ended.err);
            assert!(
                ended.err.contains(&format!("cannot write {output}; choose another path")),
                "{line}: {}",
                ended.err
            );
        }
    }
}

#[test]
fn a_file_may_have_a_name_that_is_no_text() {
    let folder = folder();
    let name = OsStr::from_bytes(b"caf\xe9.out");
    for line in [
        "probe 127.0.0.1 -c 1 --timeout 10ms -q -o",
        "probe 127.0.0.1 -c 1 --timeout 10ms -q --csv",
        "flow cap.pcap -o",
        "flow cap.pcap -q --jsonl",
        "rtt cap.pcap -o",
        "gen flows --packets 5 --out",
        "gen flows --packets 5 --out x.pcap --truth",
    ] {
        let mut command = command(line, &folder.0);
        command.arg(name);
        let ended = Process::start(command).end();
        // Nobody answers a probe, and there is no round trip.
        assert!([0, 1].contains(&ended.code), "{line}: {} {}", ended.code, ended.err);
        assert!(!ended.err.contains("panicked"), "{line}: {}", ended.err);
        let text = std::fs::read(folder.0.join(name)).unwrap();
        assert!(!text.is_empty(), "{line}");
        std::fs::remove_file(folder.0.join(name)).unwrap();
    }
}
