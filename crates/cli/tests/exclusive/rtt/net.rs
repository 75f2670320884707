//! A client, a server, and a relay with a capture between them.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};

use sonde_lab::{Host, Impairment, Relay, RelayPath as Hosts, RelayReport};

use super::capture::{self, Frame};
use crate::process::Process;
use crate::turn::{self, Turn};

/// A topology, a relay and a folder for files, all removed when dropped.
pub struct Net {
    relay: Option<Relay>,
    pub hosts: Hosts,
    folder: PathBuf,
    _turn: Turn,
}

impl Net {
    /// `None` without root.
    pub fn new(test: &str, there: Impairment, back: Impairment) -> Option<Net> {
        if sonde_lab::skip(test) {
            return None;
        }
        let turn = turn::alone();
        let hosts = Hosts::new("rtt").unwrap();
        let folder = std::env::temp_dir().join(format!("{}.files", hosts.client.name()));
        std::fs::create_dir_all(&folder).unwrap();
        println!("{test}: relay with seed {SEED}: {there:?}, {back:?}");
        let relay = Some(hosts.relay(there, back, SEED).unwrap());
        Some(Net { relay, hosts, folder, _turn: turn })
    }

    /// A file or folder that goes with the network.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Both hosts' TCP without timestamps.
    pub fn without_timestamps(&self) {
        for host in [&self.hosts.client, &self.hosts.server] {
            host.sysctl(&["net.ipv4.tcp_timestamps=0"]).unwrap();
        }
    }

    /// Starts a capture at the middle's interface towards the client, and waits until it
    /// captures.
    pub fn capture(&self, name: &str) -> Capture {
        self.capture_at(&self.hosts.middle, name)
    }

    /// The same at the first interface of a host.
    pub fn capture_at(&self, host: &Host, name: &str) -> Capture {
        let file = self.file(name);
        let mut command = host.command("tcpdump");
        command.args(["-i", INTERFACE, "-U", "-B", "65536", "-Z", "root"]);
        command.args(["--time-stamp-precision=nano", "-s", "200", "-w"]).arg(&file);
        let mut process = Process::start(command);
        process.until("the capture", |p| p.err().iter().any(|l| l.contains("listening on")));
        Capture { process, file, client: self.hosts.client.clone() }
    }

    /// Ends the relay; none of its frames may have failed.
    pub fn stop_relay(&mut self) -> RelayReport {
        let report = self.relay.take().unwrap().stop().unwrap();
        println!("{report:?}");
        assert!(report.directions.iter().all(|d| d.failed == 0), "{report:?}");
        report
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub struct Capture {
    process: Process,
    file: PathBuf,
    client: Host,
}

impl Capture {
    /// Ends it when all that passed before is in the file, which it names. What the kernel
    /// dropped is a failure.
    pub fn stop(mut self) -> (PathBuf, Vec<Frame>) {
        let mark = || UdpSocket::bind("10.1.0.1:0").unwrap().send_to(MARK, "10.1.0.2:9").unwrap();
        self.client.inside(mark).unwrap();
        let file = self.file.clone();
        self.process.until("the last packet", |_| ends_with_mark(&file));
        self.process.signal("INT");
        let ended = self.process.end();
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(ended.err.contains("\n0 packets dropped by kernel"), "{}", ended.err);
        let frames = capture::read(&self.file);
        (self.file, frames)
    }
}

/// The mark is near the end of the file: what answers it may follow.
fn ends_with_mark(file: &Path) -> bool {
    let bytes = std::fs::read(file).unwrap_or_default();
    let tail = &bytes[bytes.len().saturating_sub(2000)..];
    tail.windows(MARK.len()).any(|window| window == MARK)
}

/// The first one of every host.
const INTERFACE: &str = Hosts::SIDES[0];
const MARK: &[u8] = b"sonde: the capture may end";
const SEED: u64 = 20_231_114;
