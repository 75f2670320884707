//! What the tests of this folder run, and what it runs on.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use sonde_lab::{Host, LinkOptions, Topology};
use sonde_meter::export::{Decoded, Decoder};
use sonde_results::FlowRun;
use sonde_results::flow::FlowRecord;
use sonde_wire::ipfix::record::unsigned;
use sonde_wire::ipfix::template::FieldSpecifier;

use crate::process::{Ended, Process};

pub const SONDE: &str = env!("CARGO_BIN_EXE_sonde");

/// `sonde flow` to its end. Not a terminal.
pub fn flow(arguments: &str) -> Ended {
    let mut command = Command::new(SONDE);
    command.arg("flow").args(arguments.split_whitespace()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap_or(-1);
    Ended { code, out: text(output.stdout), err: text(output.stderr) }
}

pub fn start(arguments: &str) -> Process {
    let mut command = Command::new(SONDE);
    command.arg("flow").args(arguments.split_whitespace());
    Process::start(command)
}

/// `sonde flow` in a namespace, metering already.
pub fn meter(host: &Host, arguments: &str) -> Process {
    let mut command = host.command(SONDE);
    command.arg("flow").args(arguments.split_whitespace()).args(["-i", "100ms"]);
    let mut process = Process::start(command);
    process.until("the first interval", |p| p.err().iter().any(|l| l.contains("packets ")));
    process
}

/// `None` without root.
pub fn pair(test: &str) -> Option<Topology> {
    if sonde_lab::skip(test) {
        return None;
    }
    let net = Topology::pair("flowcli", &LinkOptions::default()).unwrap();
    // Nothing but what the tests send.
    for host in [&net.probe, &net.reflector] {
        host.sysctl(&["net.ipv6.conf.all.disable_ipv6=1"]).unwrap();
        host.sysctl(&["net.ipv6.conf.default.disable_ipv6=1"]).unwrap();
    }
    Some(net)
}

/// A folder of this test alone, removed when dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sonde-flow-{}-{serial}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_string()
    }

    /// Writes a file in it, and returns its path.
    pub fn write(&self, name: &str, content: &[u8]) -> String {
        std::fs::write(self.0.join(name), content).unwrap();
        self.file(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Lines of `--jsonl`.
pub fn records(text: &str) -> Vec<FlowRecord> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    text.lines().map(parse).collect()
}

pub fn run_of(text: &str) -> FlowRun {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Offered = exported + refused; no flow is held at the end.
pub fn assert_conserved(run: &FlowRun, records: &[FlowRecord]) {
    let sum = |of: fn(&FlowRecord) -> u64| records.iter().map(of).sum::<u64>();
    let packets: u64 = run.protocols.iter().map(|p| p.packets).sum();
    let bytes: u64 = run.protocols.iter().map(|p| p.bytes).sum();
    assert_eq!(sum(|r| r.forward.packets + r.reverse.packets), packets);
    assert_eq!(sum(|r| r.forward.bytes + r.reverse.bytes), bytes);
    assert_eq!(run.ends.values().sum::<u64>(), records.len() as u64);
    assert_eq!(run.counters["exported_packets"], packets);
}

/// The contents of IPFIX messages.
#[derive(Default)]
pub struct Exported {
    pub flows: Vec<FlowRecord>,
    /// ingressInterface of each.
    pub interfaces: Vec<u32>,
    /// The last value of ignoredPacketTotalCount.
    pub ignored: Option<u64>,
    /// Exported in order: every message was understood, none is missing.
    pub is_whole: bool,
}

impl Exported {
    pub fn of(messages: &[u8]) -> Exported {
        let mut exported = Exported::default();
        // Times in UTC, as they come.
        let mut decoder = Decoder::new(0);
        let left = decoder.file(messages, &mut |decoded| match decoded {
            Decoded::Flow(flow) => {
                exported.flows.push(flow.record);
                exported.interfaces.push(flow.interface);
            }
            Decoded::Options { record, .. } => {
                let ignored = |(field, _): &(&FieldSpecifier, _)| {
                    (field.enterprise, field.id) == (0, IGNORED_PACKETS)
                };
                if let Some((_, value)) = record.values().find(ignored) {
                    exported.ignored = unsigned(value);
                }
            }
        });
        let c = decoder.counters();
        let wrong =
            c.malformed + c.no_template + c.missing + c.out_of_sequence + c.not_flows + left as u64;
        exported.is_whole = wrong == 0;
        if wrong > 0 {
            println!("{c:?}, {left} bytes left");
        }
        exported
    }
}

/// ignoredPacketTotalCount.
const IGNORED_PACKETS: u16 = 164;
