//! Messages on standard error as objects: `--log-format json`.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The exit code, and what standard error has: nothing but objects of the documented keys.
fn messages(arguments: &str) -> (i32, Vec<Value>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sonde"));
    command.args(["--log-format", "json"]).args(arguments.split_whitespace());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let object = |line: &str| {
        let value: Value = serde_json::from_str(line)
            .unwrap_or_else(|e| panic!("sonde {arguments}: {e}: '{line}' of:\n{text}"));
        let mut keys: Vec<&String> = value.as_object().unwrap().keys().collect();
        keys.sort();
        assert_eq!(keys, ["at_ns", "level", "message", "module"], "{line}");
        assert!(value["at_ns"].as_i64().unwrap() > 0, "{line}");
        for key in ["level", "module", "message"] {
            assert!(value[key].as_str().is_some_and(|v| !v.is_empty()), "{key}: {line}");
        }
        assert!(!value["message"].as_str().unwrap().starts_with("sonde: "), "{line}");
        value
    };
    let objects = text.lines().map(object).collect();
    (output.status.code().unwrap_or(-1), objects)
}

/// Whether one of them is of this level and module, and says `part`.
fn has(all: &[Value], level: &str, module: &str, part: &str) {
    let is = |m: &&Value| {
        (m["level"].as_str(), m["module"].as_str()) == (Some(level), Some(module))
            && m["message"].as_str().unwrap().contains(part)
    };
    assert!(all.iter().any(|m| is(&m)), "{level} {module} '{part}' is missing: {all:#?}");
}

fn capture() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/rtt/echo.pcap");
    assert!(PathBuf::from(path).exists());
    path.into()
}

#[test]
fn a_missing_interface_is_an_object() {
    let (code, all) = messages("rtt nosuch0");
    assert_eq!((code, all.len()), (3, 1), "{all:?}");
    has(&all, "error", "sonde", "nosuch0");
}

#[test]
fn a_usage_error_of_a_command_is_an_object() {
    let (code, all) = messages(&format!("rtt {} --hook xdp", capture()));
    assert_eq!((code, all.len()), (2, 1), "{all:?}");
    has(&all, "error", "sonde", "for interfaces, not files");
}

#[test]
fn an_unresolvable_name_and_a_closed_port_are_objects() {
    // Its port is free again once it is dropped.
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (code, all) = messages(&format!(
        "-v probe 127.0.0.1 nosuch.invalid -p {port} -c 3 -i 10ms --timeout 300ms"
    ));
    assert_eq!(code, 1, "{all:?}");
    has(&all, "warn", "sonde_cli::probe", "not measured: nosuch.invalid: ");
    has(&all, "warn", "sonde_cli::probe", "the port is closed");
    assert!(all.iter().any(|m| m["level"] == "debug"), "{all:?}");
}

#[test]
fn an_unsaved_file_is_an_object() {
    let (code, all) = messages(&format!("rtt {} --format ppviz -o /dev/full", capture()));
    assert_eq!(code, 4, "{all:?}");
    has(&all, "error", "sonde_cli::rtt::print", "not saved: /dev/full");
    // The summary is beside the records.
    has(&all, "info", "sonde_cli::rtt::print", "measured at ");
    let (code, all) = messages(&format!("flow {} -o /dev/full", capture()));
    assert_eq!(code, 4, "{all:?}");
    has(&all, "error", "sonde_cli::flow", "not saved: /dev/full");
}

#[test]
fn a_summary_beside_records_is_one_object() {
    let (code, all) = messages(&format!("flow {} --jsonl -", capture()));
    assert_eq!(code, 0, "{all:?}");
    let summaries: Vec<&str> = all
        .iter()
        .filter(|m| m["module"] == "sonde_cli::flow")
        .map(|m| m["message"].as_str().unwrap())
        .collect();
    assert_eq!(summaries.len(), 1, "{all:?}");
    assert!(summaries[0].lines().count() > 1, "{summaries:?}");
}

#[test]
fn standard_output_that_cannot_be_written_is_an_object() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sonde"));
    let output = command.args(["--log-format", "json", "schema"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let message: Value = serde_json::from_slice(&output.stderr).unwrap();
    has(&[message], "error", "sonde", "cannot write to standard output: ");
}
