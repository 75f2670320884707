//! What the tests of this folder run, and what it runs on.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use sonde_lab::{Host, LinkOptions, Topology};

use crate::process::{Ended, Process};

pub const SONDE: &str = env!("CARGO_BIN_EXE_sonde");

/// Not a terminal, seed fixed.
pub fn rtt(arguments: &str) -> Ended {
    let mut command = Command::new(SONDE);
    command.arg("rtt").args(arguments.split_whitespace()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

pub fn capture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/rtt").join(name);
    path.to_str().unwrap().to_string()
}

/// A file of this test alone, removed when dropped.
pub struct Temporary(pub PathBuf);

impl Temporary {
    pub fn new(name: &str) -> Temporary {
        Temporary(std::env::temp_dir().join(format!("sonde-rtt-{}-{name}", std::process::id())))
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub fn lines(text: &str, kind: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .filter(|value| value["type"] == kind)
        .collect()
}

/// TAI - UTC as this host's kernel knows it: captures are in UTC.
pub fn tai_offset_ns() -> i64 {
    i64::from(sonde_sys::clock::clock_state().tai_offset_s) * 1_000_000_000
}

/// `None` without root.
pub fn pair(test: &str) -> Option<Topology> {
    if sonde_lab::skip(test) {
        return None;
    }
    Some(Topology::pair("rttcli", &LinkOptions::default()).unwrap())
}

/// A run that watches already.
pub fn watch(host: &Host, arguments: &str) -> Process {
    let mut command = host.command(SONDE);
    command.arg("rtt").args(arguments.split_whitespace());
    let mut process = Process::start(command);
    until_watching(&mut process);
    process
}

/// Waits for the first record: from then on packets are seen.
pub fn until_watching(run: &mut Process) {
    run.until("the first record", |p| p.out().iter().any(|l| l.contains("\"run\"")));
}

pub fn ping(host: &Host, count: u32) {
    let count = count.to_string();
    host.run(&["ping", "-q", "-c", &count, "-i", "0.02", "-W", "5", "10.1.0.2"]).unwrap();
}

/// A connection with requests and answers of one and of many segments, closed by both.
pub fn talk(client: &Host, server: &Host, address: &str) {
    let listener = server.inside(|| TcpListener::bind((address, 0)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 100];
        for round in 0..ROUNDS {
            stream.read_exact(&mut request).unwrap();
            stream.write_all(&vec![7; 1 + round * 300]).unwrap();
        }
    });
    let mut stream = client.inside(|| TcpStream::connect(address).unwrap()).unwrap();
    for round in 0..ROUNDS {
        // The hosts' timestamps advance once a millisecond.
        std::thread::sleep(std::time::Duration::from_millis(2));
        stream.write_all(&[8; 100]).unwrap();
        stream.read_exact(&mut vec![0; 1 + round * 300]).unwrap();
    }
    drop(stream);
    server.join().unwrap();
}

/// Of [`talk`]; the longest answer has a dozen segments.
const ROUNDS: usize = 60;

pub fn has_xdp(host: &Host) -> bool {
    host.run(&["ip", "link", "show", "dev", "eth0"]).unwrap().contains("prog/xdp")
}
