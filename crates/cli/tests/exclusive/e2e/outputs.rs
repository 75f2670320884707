//! Outputs that close, fill or hang up; signals that come twice or not at all.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use sonde_results::Run;

use super::net::{Net, SONDE, json_reports};
use crate::process::{Process, until};

/// Reads one line, then closes the pipe, as `head -1` does.
fn head(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(!line.is_empty());
    child
}

/// Waits for its end: the code, and standard error.
fn end(mut child: Child) -> (i32, String) {
    until("the end", || child.try_wait().unwrap().is_some());
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (child.wait().unwrap().code().unwrap_or(-1), text)
}

#[test]
fn a_reflector_goes_on_without_its_reader() {
    let Some(net) = Net::pair("a_reflector_goes_on_without_its_reader") else { return };
    let mut command = net.topology.reflector.command(SONDE);
    command.arg("reflect");
    let mut reflector = head(json_reports(command));
    // Longer than several reports to a pipe that is closed.
    let run = net.measure("10.1.0.2 -i 10ms -c 100");
    assert_eq!(run.overall.counters.received, 100);
    assert!(reflector.try_wait().unwrap().is_none());
    Command::new("kill").args(["-INT", &reflector.id().to_string()]).status().unwrap();
    let (code, err) = end(reflector);
    assert_eq!(code, 0, "{err}");
}

#[test]
fn a_probe_for_nobody_ends_in_order() {
    let Some(net) = Net::pair("a_probe_for_nobody_ends_in_order") else { return };
    let _reflector = net.reflect("");
    for output in ["", "--per-packet", "--jsonl -"] {
        let mut command = net.topology.probe.command(SONDE);
        command.args(["probe", "10.1.0.2", "-i", "5ms", "--timeout", "50ms"]);
        command.args(["--record-interval", "100ms"]).args(output.split_whitespace());
        let (code, err) = end(head(command));
        assert_eq!(code, 0, "{err}");
        assert!(!err.contains("panicked"), "{err}");
    }
}

#[test]
fn a_full_standard_output_is_code_4_for_every_command() {
    let Some(net) = Net::pair("a_full_standard_output_is_code_4_for_every_command") else { return };
    let _reflector = net.reflect("");
    let capture = net.file("gen.pcap");
    let capture = capture.to_str().unwrap();
    for line in [
        "probe 10.1.0.2 -i 5ms -c 20",
        "probe 10.1.0.2 -i 5ms -c 20 --json",
        "probe 10.1.0.2 -i 5ms -c 20 --jsonl -",
        "gen flows --packets 100 --out CAPTURE",
        "rtt CAPTURE",
        "flow CAPTURE",
        "schema",
        "lab list",
        "doctor",
    ] {
        let line = line.replace("CAPTURE", capture);
        let mut command = net.topology.probe.command(SONDE);
        command.args(line.split_whitespace()).stdin(Stdio::null()).stderr(Stdio::piped());
        command.stdout(File::options().write(true).open("/dev/full").unwrap());
        let (code, err) = end(command.spawn().unwrap());
        assert_eq!(code, 4, "{line}: {err}");
        assert!(!err.contains("panicked"), "{line}: {err}");
    }
}

#[test]
fn records_have_standard_output_for_themselves() {
    let Some(net) = Net::pair("records_have_standard_output_for_themselves") else { return };
    let _reflector = net.reflect("");
    let what = "10.1.0.2 -i 5ms -c 50 --timeout 100ms --record-interval 100ms";
    let ended = net.probe(&format!("{what} --jsonl -"));
    assert_eq!(ended.code, 0, "{}", ended.err);
    let lines: Vec<Value> = ended.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(lines.iter().any(|l| l["type"] == "interval"), "{}", ended.out);
    assert!(ended.err.contains("50 sent, 50 received"), "{}", ended.err);
    let ended = net.probe(&format!("{what} --csv -"));
    let commas: Vec<usize> = ended.out.lines().map(|l| l.matches(',').count()).collect();
    assert!(commas.len() > 1 && commas.iter().all(|&n| n == commas[0]), "{}", ended.out);
    let ended = net.probe(&format!("{what} --json"));
    serde_json::from_str::<Run>(&ended.out).unwrap();
}

#[test]
fn an_ignored_hang_up_stays_ignored() {
    let Some(net) = Net::pair("an_ignored_hang_up_stays_ignored") else { return };
    let mut command = net.topology.reflector.command("sh");
    command
        .args(["-c", &format!("trap '' HUP; exec {SONDE} reflect --json --report-interval 100ms")]);
    let mut reflector = Process::start(command);
    reflector.until("the first report", |p| !p.out().is_empty());
    reflector.signal("HUP");
    let before = reflector.out().len();
    reflector.until("more reports", |p| p.out().len() > before + 5);
    reflector.signal("INT");
    assert_eq!(reflector.end().code, 0);
}

#[test]
fn a_second_interrupt_does_not_wait_for_replies() {
    let Some(net) = Net::pair("a_second_interrupt_does_not_wait_for_replies") else { return };
    // Nobody answers: the wait would be longer than any step of a test may be.
    let mut probe = net.start("10.1.0.2 -i 5ms --timeout 60s --record-interval 100ms");
    probe.until("the first counts", |p| p.out().iter().any(|l| l.contains("so far sent")));
    probe.signal("INT");
    // The first one ends the sending, and nothing else.
    let mut sent = String::new();
    probe.until("the sending to end", |p| {
        let latest = p.out().last().cloned().unwrap_or_default();
        let count = latest.split("sent ").nth(1).unwrap_or_default().to_owned();
        std::mem::replace(&mut sent, count.clone()) == count && !count.is_empty()
    });
    assert!(probe.is_running());
    probe.signal("INT");
    let ended = probe.end();
    assert!(ended.out.contains("0 received, 0 lost"), "{}", ended.out);
}

#[test]
fn a_killed_probe_leaves_its_run_file() {
    let Some(net) = Net::pair("a_killed_probe_leaves_its_run_file") else { return };
    let _reflector = net.reflect("");
    let file = net.file("run.json");
    let mut probe = net.start(&format!(
        "10.1.0.2 -i 5ms --timeout 100ms --record-interval 100ms -o {}",
        file.display()
    ));
    probe.until("a run file", |_| file.exists());
    probe.signal("KILL");
    probe.end();
    let run: Run = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert!(run.overall.counters.received > 0 && run.header.end_ns > run.header.start_ns);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777 & !0o640, 0, "{mode:o}");
}

#[test]
fn a_killed_passive_run_leaves_its_run_file() {
    let Some(net) = Net::pair("a_killed_passive_run_leaves_its_run_file") else { return };
    for instrument in ["rtt", "flow"] {
        let file = net.file(&format!("{instrument}.json"));
        let mut command = net.topology.probe.command(SONDE);
        command.args([instrument, "eth0", "-i", "100ms", "-o"]).arg(&file);
        let mut process = Process::start(command);
        let packets_in = |file: &std::path::Path| -> u64 {
            let Ok(text) = std::fs::read(file) else { return 0 };
            let run: serde_json::Value = serde_json::from_slice(&text).expect("a whole file");
            let packets = |p: &serde_json::Value| p["packets"].as_u64();
            packets(&run["coverage"]["counters"]).unwrap_or_else(|| {
                run["protocols"].as_array().unwrap().iter().filter_map(packets).sum()
            })
        };
        process.until("a run file with packets in it", |_| {
            net.topology.probe.run(&["ping", "-c", "1", "10.1.0.2"]).unwrap();
            packets_in(&file) > 0
        });
        process.signal("KILL");
        process.end();
        assert!(packets_in(&file) > 0, "{instrument}");
    }
}

#[test]
fn a_run_file_that_cannot_be_is_refused_before_the_run() {
    let Some(net) = Net::pair("a_run_file_that_cannot_be_is_refused_before_the_run") else {
        return;
    };
    // No count: only a refusal ends it.
    let ended = net.probe("10.1.0.2 -o /nonexistent/run.json");
    assert_eq!(ended.code, 3, "{}", ended.err);
    assert!(ended.err.contains("/nonexistent/run.json; choose another path"), "{}", ended.err);
}
