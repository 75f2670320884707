//! Files made here, replayed, and read back.

use sonde_wire::SECOND;

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// A path in the temporary directory; the file is removed when this is dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn new(content: &[u8]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sonde-pcap-{}-{serial}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, content).unwrap();
        Temporary(path)
    }

    fn read(&self) -> Vec<(i64, Vec<u8>)> {
        let bytes = std::fs::read(&self.0).unwrap();
        let records = Reader::new(&bytes).unwrap().map(|r| r.unwrap());
        records.map(|r| (r.unix_nanos, r.data.to_vec())).collect()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn capture(link_type: u16, packets: &[(i64, &[u8])]) -> Vec<u8> {
    let mut file = file_header(link_type, MAX_CAPTURED_LEN).to_vec();
    for &(at, data) in packets {
        file.extend(record_header(at, data.len(), data.len() as u32).unwrap());
        file.extend(data);
    }
    file
}

fn replay(file: &[u8]) -> (PcapPort, Temporary) {
    let input = Temporary::new(file);
    (PcapPort::open(&input.0, None, 37).unwrap(), input)
}

#[test]
fn all_packets_come_in_bursts_with_their_time() {
    let frames: Vec<[u8; 60]> = (0..150u8).map(|i| [i; 60]).collect();
    let packets: Vec<_> = (0..).zip(&frames).map(|(i, p)| (SECOND + i * 10, &p[..])).collect();
    let (mut port, _file) = replay(&capture(LINKTYPE_ETHERNET, &packets));
    assert_eq!(port.now().as_nanos(), 38 * SECOND, "the first packet's time, in TAI");
    let (mut got, mut bursts) = (Vec::new(), 0);
    while !port.finished() {
        let mut burst = port.rx().unwrap();
        assert!(burst.done().is_empty());
        for i in 0..burst.len() {
            let (frame, stamp) = burst.frame(i);
            assert_eq!(stamp.source, StampSource::File);
            got.push((stamp.at.as_nanos() - 37 * SECOND, frame.to_vec()));
        }
        bursts += 1;
        assert_eq!(port.now().as_nanos() - 37 * SECOND, got.last().unwrap().0);
    }
    let sent: Vec<_> = packets.iter().map(|p| (p.0, p.1.to_vec())).collect();
    assert_eq!((got, bursts, port.stats().rx_frames), (sent, 3, 150));
    assert!(port.rx().unwrap().is_empty(), "and no more");
}

#[test]
fn what_is_sent_is_written_with_nanoseconds() {
    let input = Temporary::new(&capture(
        LINKTYPE_ETHERNET,
        &[(SECOND + 1, b"a request"), (SECOND + 2, b"not for us"), (SECOND + 3, b"another one")],
    ));
    let output = Temporary::new(b"old content");
    let mut port = PcapPort::open(&input.0, Some(&output.0), 37).unwrap();
    let mut burst = port.rx().unwrap();
    burst.frame(0).0[0] = b'A';
    burst.set_verdict(0, Verdict::Transmit { cookie: 1 });
    burst.set_verdict(2, Verdict::Transmit { cookie: 0 });
    let mut burst = port.tx();
    burst.slot().unwrap()[..3].copy_from_slice(b"own");
    burst.commit(3, 7);
    port.flush().unwrap();
    let wanted = [
        (SECOND + 1, b"A request".to_vec()),
        (SECOND + 3, b"another one".to_vec()),
        (SECOND + 3, b"own".to_vec()),
    ];
    // The port is still open: nothing waits in it.
    assert_eq!(output.read(), wanted);
    port.flush().unwrap();
    assert_eq!((output.read().len(), port.stats().tx_frames), (3, 3), "nothing twice");
}

#[test]
fn without_output_what_is_sent_is_counted() {
    let (mut port, _file) = replay(&capture(LINKTYPE_ETHERNET, &[(SECOND, b"x")]));
    port.rx().unwrap().set_verdict(0, Verdict::Transmit { cookie: 0 });
    assert!(port.rx().unwrap().is_empty(), "the next call acts on the verdict");
    let mut burst = port.tx();
    while burst.slot().is_some() {
        burst.commit(1, 0);
    }
    assert!(port.tx().slot().is_none());
    port.flush().unwrap();
    let stats = port.stats();
    assert_eq!((stats.tx_frames, stats.tx_full), (1 + BURST as u64, 1));
}

#[test]
fn other_link_types_get_an_ethernet_header_or_are_counted() {
    let first = |link_type, data: &[u8]| {
        let (mut port, _file) = replay(&capture(link_type, &[(SECOND, data)]));
        let mut burst = port.rx().unwrap();
        let frame = (!burst.is_empty()).then(|| burst.frame(0).0.to_vec());
        (frame, port.stats().rx_invalid)
    };
    let with =
        |ethertype: [u8; 2], data: &[u8]| (Some([&[0; 12][..], &ethertype, data].concat()), 0);
    assert_eq!(first(LINKTYPE_RAW, b"\x45rest"), with([8, 0], b"\x45rest"));
    assert_eq!(first(LINKTYPE_RAW, b"\x60rest"), with([0x86, 0xdd], b"\x60rest"));
    assert_eq!(first(LINKTYPE_RAW, b"\x10rest"), (None, 1));
    assert_eq!(first(LINKTYPE_RAW, b""), (None, 1));
    let cooked = [&[0; 14][..], &[8, 0], b"\x45rest"].concat();
    assert_eq!(first(LINKTYPE_LINUX_SLL, &cooked), with([8, 0], b"\x45rest"));
    assert_eq!(first(LINKTYPE_LINUX_SLL, &cooked[..16]), with([8, 0], b""));
    assert_eq!(first(LINKTYPE_LINUX_SLL, &cooked[..15]), (None, 1));
    assert_eq!(first(147, b"whatever"), (None, 1));
}

#[test]
fn large_packets_end_a_burst_early_and_none_is_lost() {
    let large = vec![7; MAX_CAPTURED_LEN as usize];
    let packets: Vec<_> = (0..10).map(|i| (i, &large[..])).collect();
    let (mut port, _file) = replay(&capture(LINKTYPE_ETHERNET, &packets));
    let mut lengths = Vec::new();
    while !port.finished() {
        lengths.push(port.rx().unwrap().len());
    }
    assert_eq!(lengths, [4, 4, 2]);
}

#[test]
fn a_file_cut_short_is_reported_after_its_packets() {
    let mut file = capture(LINKTYPE_ETHERNET, &[(SECOND, b"one"), (SECOND, b"two")]);
    file.pop();
    let (mut port, _file) = replay(&file);
    assert_eq!(port.rx().unwrap().len(), 1);
    assert!(!port.finished());
    let error = port.rx().err().expect("an error").to_string();
    assert!(error.contains("ends too early") && error.contains("sonde-pcap-"), "{error}");
    assert!(port.finished() && port.rx().unwrap().is_empty());
}

#[test]
fn time_does_not_step_back_with_the_packets() {
    let (mut port, _file) =
        replay(&capture(LINKTYPE_ETHERNET, &[(5 * SECOND, b"b"), (4 * SECOND, b"a")]));
    let mut burst = port.rx().unwrap();
    assert_eq!(burst.frame(1).1.at.as_nanos(), 41 * SECOND, "stamps are the file's");
    assert_eq!(port.now().as_nanos(), 42 * SECOND);
}

#[test]
fn what_cannot_be_opened_is_named() {
    let error = |input: &Path, output: Option<&Path>| {
        PcapPort::open(input, output, 0).err().expect("an error").to_string()
    };
    assert!(error(Path::new("/nonexistent"), None).contains("opening /nonexistent"));
    assert!(error(Path::new("/dev/null"), None).contains("not a regular file"));
    for garbage in [&b""[..], b"garbage that is no capture"] {
        let file = Temporary::new(garbage);
        assert!(error(&file.0, None).contains("neither a pcap nor a pcapng"));
    }
    let good = Temporary::new(&capture(LINKTYPE_ETHERNET, &[(SECOND, b"x")]));
    assert!(error(&good.0, Some(&good.0)).contains("would be overwritten"));
    assert_eq!(good.read().len(), 1, "and was not");
    assert!(error(&good.0, Some(Path::new("/nonexistent/x"))).contains("creating /nonexistent/x"));
}

#[test]
fn a_full_disk_is_an_error_with_advice() {
    // A device on which every write fails for want of space.
    let input = Temporary::new(&capture(LINKTYPE_ETHERNET, &[(SECOND, b"x")]));
    let error = PcapPort::open(&input.0, Some(Path::new("/dev/full")), 0).err().unwrap();
    assert!(error.to_string().contains("free some space"), "{error}");
}
