//! Output files, and disks that are full.

use std::os::unix::fs::symlink;

use super::packets::{flow_index, flows, pcap, ten};
use super::support::{Exported, Folder, flow, records, run_of};

#[test]
fn every_form_of_output_has_every_record() {
    let folder = Folder::new();
    let capture = folder.write("a.pcap", &pcap(&flows(3_000), 1, false));
    let [ipfix, parquet, lines] = ["a.ipfix", "a.parquet", "a.jsonl"].map(|n| folder.file(n));
    let ended =
        flow(&format!("{capture} --write {ipfix} --write {parquet} --jsonl {lines} --json"));
    assert_eq!(ended.code, 0, "{}", ended.err);
    let exported = Exported::of(&std::fs::read(ipfix).unwrap());
    assert!(exported.is_whole);
    let mut indices: Vec<u32> = exported.flows.iter().map(flow_index).collect();
    indices.sort_unstable();
    assert!(indices.into_iter().eq(0..3_000));
    assert_eq!(records(&std::fs::read_to_string(lines).unwrap()).len(), 3_000);
    let parquet = std::fs::read(parquet).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    assert!(run_of(&ended.out).exports.iter().all(|e| e.records == 3_000));
}

#[test]
fn the_last_options_records_have_what_the_summary_has() {
    let folder = Folder::new();
    let mut packets = ten();
    // Not IP; cut short; a datagram that contradicts itself.
    let mut arp = packets[0].clone();
    arp[12..14].copy_from_slice(&[8, 6]);
    let mut wrong = packets[0].clone();
    wrong[14] = 0x42;
    packets.extend([arp.clone(), arp, packets[0][..30].to_vec(), wrong]);
    let capture = folder.write("a.pcap", &pcap(&packets, 1, false));
    let ipfix = folder.file("a.ipfix");
    for workers in [1, 3] {
        let ended = flow(&format!("{capture} --write {ipfix} --json --workers {workers}"));
        assert_eq!(ended.code, 0, "{}", ended.err);
        let c = &run_of(&ended.out).counters;
        let parts = ["refused_not_ip", "refused_truncated", "refused_malformed"].map(|n| c[n]);
        assert_eq!(parts, [2, 1, 1]);
        assert_eq!(Exported::of(&std::fs::read(&ipfix).unwrap()).ignored, Some(4));
    }
}

#[test]
fn a_full_disk_is_reported_and_everything_is_metered() {
    let folder = Folder::new();
    let capture = folder.write("a.pcap", &pcap(&flows(3_000), 1, false));
    for (option, name) in [
        ("--write", "full.ipfix"),
        ("--write", "full.parquet"),
        ("--jsonl", "full.jsonl"),
        ("-o", "full.json"),
    ] {
        // Where every write fails for want of space.
        let written = if name.ends_with("parquet") { "full.parquet.part" } else { name };
        symlink("/dev/full", folder.0.join(written)).unwrap();
        let (full, other) = (folder.file(name), folder.file("other.ipfix"));
        let option =
            if option == "-o" { "-o /dev/full".into() } else { format!("{option} {full}") };
        let ended = flow(&format!("{capture} {option} --json --write {other}"));
        assert_eq!(ended.code, 4, "{name}: {}", ended.err);
        assert!(ended.err.contains("No space left"), "{name}: {}", ended.err);
        let run = run_of(&ended.out);
        let lost = if name == "full.json" { 0 } else { 3_000 };
        assert_eq!((run.counters["records_lost"], run.counters["exported_packets"]), (lost, 3_000));
        let exported = Exported::of(&std::fs::read(other).unwrap());
        assert!(exported.is_whole && exported.flows.len() == 3_000, "{name}");
    }
}

#[test]
fn a_name_without_a_known_format_is_refused() {
    let folder = Folder::new();
    let capture = folder.write("a.pcap", &pcap(&flows(3), 1, false));
    let ended = flow(&format!("{capture} --write {}", folder.file("a.txt")));
    assert_eq!(ended.code, 2, "{}", ended.err);
    assert!(ended.err.contains("call it .ipfix or .parquet"), "{}", ended.err);
}
