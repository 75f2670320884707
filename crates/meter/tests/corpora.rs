//! The fuzzers' corpora (fuzz/corpus) through the fuzzers' own functions, and each input
//! again cut short and with single octets changed.

use sonde_meter::export::Decoder;

#[path = "../../../fuzz/src/apps.rs"]
mod apps;
#[path = "../../../fuzz/src/decode.rs"]
mod decode;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn applications_of_flows() {
    replay::replay("flow_apps", 300, apps::apps);
}

#[test]
fn messages_of_exporters() {
    replay::replay("ipfix", 2_048, decode::decode);
}

/// The file with checksums was made by Python's hashlib: another's word for what they are.
#[test]
fn checksums_of_another_are_right() {
    let mut file = std::fs::read(replay::corpus("ipfix").join("checksums")).unwrap();
    let read = |file: &[u8]| {
        let mut decoder = Decoder::new(37);
        assert_eq!(decoder.file(file, &mut |_| ()), 0);
        (decoder.counters().records, decoder.counters().malformed)
    };
    assert_eq!(read(&file), (3, 0));
    // In an address of the first record, which makes it none the less a record.
    let at = file.windows(4).position(|octets| octets == [192, 0, 2, 1]).unwrap();
    file[at] ^= 1;
    assert_eq!(read(&file), (3, 1));
}
