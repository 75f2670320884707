//! Captures that other meters read and this one did not: each packet of them is read.

use std::fs;
use std::path::Path;

use sonde_wire::capture::{Reader, Skipped};
use sonde_wire::feature::{self, Keys};
use sonde_wire::flow::{self, LinkType};

#[test]
fn every_packet_is_read_or_counted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/reading");
    for (name, packets, bad_times) in [
        ("ifs65.pcapng", 1, 0),
        ("link0.pcap", 43, 0),
        ("link12.pcap", 43, 0),
        ("llcsnap.pcap", 2, 0),
        ("loop.pcap", 2, 0),
        ("null_le.pcap", 2, 0),
        ("packet_block.pcapng", 2, 0),
        ("ppp9.pcap", 2, 0),
        ("raw12.pcap", 2, 0),
        ("time_overflow_mid.pcapng", 9, 1),
        ("vlan3.pcap", 1, 0),
    ] {
        let file = fs::read(folder.join(name)).unwrap();
        let mut reader = Reader::new(&file).unwrap();
        let mut read = 0;
        for record in reader.by_ref().map(Result::unwrap) {
            read += 1;
            let link = LinkType::from_capture(record.link_type).unwrap();
            let (feature, _) = feature::parse(record.data, link, Keys::Outer, 0, 0).unwrap();
            let packet = flow::parse(record.data, link, false).unwrap();
            assert_eq!((feature.source, feature.ip_len), (packet.source, packet.ip_len));
        }
        assert_eq!(read, packets, "{name}");
        assert_eq!(reader.skipped(), Skipped { bad_times, ..Skipped::default() }, "{name}");
    }
}
