//! Captured packets, and the golden captures with what must come out of them.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};
use sonde_results::rtt::{RttClass, RttKind};
use sonde_wire::capture;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// ns since 1970, as the file says.
    pub at_ns: i64,
    /// From the Ethernet header on.
    pub data: Vec<u8>,
    /// The index of the interface in the matchers.
    pub point: u8,
}

/// All packets of an Ethernet capture.
pub fn read(file: &Path) -> Vec<Frame> {
    let bytes = std::fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let reader = capture::Reader::new(&bytes).unwrap();
    let frames = reader.map(|record| {
        let record = record.unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        assert_eq!(record.link_type, capture::LINKTYPE_ETHERNET);
        Frame { at_ns: record.unix_nanos, data: record.data.to_vec(), point: 0 }
    });
    frames.collect()
}

/// A golden capture: see tests/golden/make_rtt.py.
pub struct Golden {
    pub name: String,
    pub frames: Vec<Frame>,
    pub expected: Expected,
}

/// What must come out of one.
#[derive(Debug, Deserialize)]
pub struct Expected {
    pub why: String,
    pub tunnels: bool,
    pub packets: usize,
    pub counters: Map<String, Value>,
    pub flows: Vec<Map<String, Value>>,
    pub samples: Vec<ExpectedSample>,
}

/// One sample; `timed` and `packet` are the indices of the packet that was timed and its answer.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedSample {
    pub packet: usize,
    pub timed: usize,
    pub at_ns: i64,
    pub rtt_ns: u64,
    pub kind: RttKind,
    pub class: RttClass,
    pub source: IpAddr,
    pub source_port: u16,
    pub destination: IpAddr,
    pub destination_port: u16,
    pub protocol: u8,
    pub vlan: u16,
}

/// All golden captures, by name.
pub fn golden() -> Vec<Golden> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(GOLDEN)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "pcap"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{GOLDEN} is empty");
    let read_one = |file: PathBuf| {
        let text = std::fs::read_to_string(file.with_extension("json")).unwrap();
        let expected: Expected = serde_json::from_str(&text).unwrap();
        let frames = read(&file);
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        assert_eq!(frames.len(), expected.packets, "{name}");
        for sample in &expected.samples {
            assert_eq!(sample.at_ns, frames[sample.packet].at_ns, "{name}: {sample:?}");
            let timed = frames[sample.timed].at_ns;
            assert_eq!(sample.rtt_ns as i64, sample.at_ns - timed, "{name}: {sample:?}");
        }
        Golden { name, frames, expected }
    };
    files.into_iter().map(read_one).collect()
}

/// The file of a golden capture.
pub fn golden_file(name: &str) -> PathBuf {
    Path::new(GOLDEN).join(name).with_extension("pcap")
}

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/rtt");
