//! A collector as a process: started, fed over UDP, watched.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use sonde_meter::export::{Config, ExportProtocol, Profile, TimeUnit};

use crate::process::Process;

/// IPFIX as it is by default.
pub const DEFAULT: Profile = Profile {
    protocol: ExportProtocol::Ipfix,
    biflow: false,
    time: TimeUnit::Milli,
    lists: false,
    extra: sonde_meter::export::Extra { link: false, tcp: false, apps: false },
};
pub const MICROS: Profile = Profile { time: TimeUnit::Micro, ..DEFAULT };
pub const BIFLOW: Profile = Profile { biflow: true, ..DEFAULT };
pub const NETFLOW9: Profile = Profile { protocol: ExportProtocol::Netflow9, ..DEFAULT };
pub const NETFLOW5: Profile = Profile { protocol: ExportProtocol::Netflow5, ..DEFAULT };

/// How many records a test sends: several messages of each template.
pub const RECORDS: u32 = 400;

pub fn config(profile: Profile) -> Config {
    Config { profile, ..Config::default() }
}

/// Where a program is, or a word on standard error that the test is skipped.
pub fn program(test: &str, name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let found = path.split(':').map(|folder| Path::new(folder).join(name)).find(|p| p.is_file());
    if found.is_none() {
        skipped(test, format!("no '{name}' on this machine; 'make setup' installs it"));
    }
    found
}

pub use sonde_lab::skipped;

/// A folder of its own, removed when dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sonde-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("the temporary folder's path is text").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A UDP port that nobody had a moment ago, and that no other test of this process gets.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<Vec<u16>> = Mutex::new(Vec::new());
    let mut given = GIVEN.lock().unwrap();
    loop {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if !given.contains(&port) {
            given.push(port);
            return port;
        }
    }
}

/// A process that listens on a UDP port of the loopback.
pub struct Collector {
    pub process: Process,
    port: u16,
}

impl Collector {
    /// Starts it and waits until it listens.
    pub fn start(command: Command, port: u16) -> Collector {
        let mut process = Process::start(command);
        process.until("its port", |_| socket(port).is_some());
        Collector { process, port }
    }

    /// Sends the messages and waits until it has read them all.
    pub fn send(&mut self, messages: &[Vec<u8>]) {
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for message in messages {
            sender.send_to(message, ("127.0.0.1", self.port)).unwrap();
        }
        let port = self.port;
        self.process.until("its reading", |_| {
            let (queued, dropped) = socket(port).expect("it listens");
            assert_eq!(dropped, 0, "the collector's socket overflowed");
            queued == 0
        });
    }
}

/// Bytes queued, and datagrams dropped, at a UDP socket of this port.
fn socket(port: u16) -> Option<(u64, u64)> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    for table in ["/proc/net/udp", "/proc/net/udp6"] {
        for line in std::fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let local = fields[1].rsplit(':').next().and_then(hex);
            if local == Some(u64::from(port)) {
                let queued = fields[4].rsplit(':').next().and_then(hex)?;
                return Some((queued, fields.last()?.parse().ok()?));
            }
        }
    }
    None
}
