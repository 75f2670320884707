//! Whoever reads standard output may stop reading: a second Ctrl-C waits for them no longer.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Far more than a pipe holds.
const PACKETS: &str = "60k";
/// Only what hangs takes so long.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_second_signal_ends_what_a_stalled_reader_holds_up() {
    let folder = std::env::temp_dir().join(format!("sonde-stalled-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let capture = folder.join("traffic.pcap");
    let capture = capture.to_str().unwrap();
    let made = sonde(&["gen", "flows", "--flows", "2000", "--packets", PACKETS, "--out", capture])
        .wait()
        .unwrap();
    assert!(made.success());
    for arguments in [
        &["rtt", capture, "--format", "jsonl", "--sample-limit", "none"][..],
        &["flow", capture, "--jsonl", "-", "-q"],
    ] {
        let mut run = sonde(arguments);
        let mut reader = BufReader::with_capacity(1, run.stdout.take().unwrap());
        let mut line = Vec::new();
        // It writes by now, and nobody reads the rest.
        assert!(reader.read_until(b'\n', &mut line).unwrap() > 0, "{arguments:?}");
        let begun = Instant::now();
        let ended = loop {
            // Signals of one kind that come together are one.
            let _ = Command::new("kill").args(["-INT", &run.id().to_string()]).status();
            if let Some(ended) = run.try_wait().unwrap() {
                break ended;
            }
            assert!(begun.elapsed() < LIMIT, "{arguments:?} hangs");
            std::thread::yield_now();
        };
        // What was not taken is reported.
        assert_eq!(ended.code(), Some(4), "{arguments:?}");
        drop(reader);
    }
    let _ = std::fs::remove_dir_all(folder);
}

fn sonde(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_sonde"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
