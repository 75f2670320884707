//! What pmacct's nfacctd makes of Sonde's exports.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use serde_json::Value;
use sonde_meter::export::{ExportStats, Profile};

use super::collector::{
    BIFLOW, Collector, DEFAULT, Folder, MICROS, NETFLOW5, NETFLOW9, RECORDS, config, free_port,
    program,
};
use super::truth::{self, CollectorFlow, Flows, compare};

/// What nfacctd printed: `wanted` flows, then nothing more.
fn collect(test: &str, profile: Profile, ipv6: bool, wanted: usize) -> Option<Flows> {
    let nfacctd = program(test, "nfacctd")?;
    let folder = Folder::new(test);
    let port = free_port();
    let configuration = format!(
        "daemonize: false\nnfacctd_ip: 127.0.0.1\nnfacctd_port: {port}\n\
         nfacctd_disable_checks: false\nplugins: print\nprint_output: json\n\
         print_output_file: {}\nprint_output_file_append: true\nprint_refresh_time: 1\n\
         aggregate: src_host,dst_host,src_port,dst_port,proto,tcpflags,timestamp_start,\
         timestamp_end\n",
        folder.file("out.json")
    );
    std::fs::write(folder.file("nfacctd.conf"), configuration).unwrap();
    let mut command = Command::new(nfacctd);
    command.args(["-f", &folder.file("nfacctd.conf")]).env("TZ", "UTC");
    let mut collector = Collector::start(command, port);
    // Its two processes start side by side; what comes before the second is at work is lost.
    collector.process.until("its start", |process| {
        let said = [process.out(), process.err()].concat();
        READY.iter().all(|ready| said.iter().any(|line| line.contains(ready)))
    });
    // Of what it was sent last it counts some records twice, now and then, when it prints
    // at that moment: therefore some follow that nobody asks for.
    let mut records = truth::records(RECORDS, ipv6);
    let mut last = records[0].clone();
    last.reverse.packets = 0;
    for n in 0..LAST {
        last.key.source = Ipv4Addr::new(192, 0, 2, n).into();
        records.push(last.clone());
    }
    let wanted = wanted + usize::from(LAST);
    collector.send(&truth::messages(config(profile), &ExportStats::default(), &records));
    let printed = || std::fs::read_to_string(folder.file("out.json")).unwrap_or_default();
    collector.process.until("its flows", |_| printed().lines().count() >= wanted);
    collector.process.signal("INT");
    let said = collector.process.end();
    let said = said.out + &said.err;
    assert!(!said.contains("expecting") && !said.contains("WARN"), "{said}");
    let text = printed();
    let records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), wanted);
    let mut flows: Flows = records.iter().map(flow).collect();
    assert_eq!(flows.len(), wanted, "a flow came twice");
    flows.retain(
        |key, _| !matches!(key.0, IpAddr::V4(address) if address.octets()[..3] == [192, 0, 2]),
    );
    Some(flows)
}

fn flow(record: &Value) -> (truth::Key, CollectorFlow) {
    let text = |name: &str| record[name].as_str().unwrap_or_else(|| panic!("{name}: {record}"));
    let integer = |name: &str| record[name].as_u64().unwrap_or_else(|| panic!("{name}: {record}"));
    let protocol = match text("ip_proto") {
        "tcp" => 6,
        "udp" => 17,
        "icmp" => 1,
        "ipv6-icmp" => 58,
        other => panic!("protocol {other}"),
    };
    let key = (
        text("ip_src").parse().unwrap(),
        text("ip_dst").parse().unwrap(),
        integer("port_src") as u16,
        integer("port_dst") as u16,
        protocol,
    );
    let collected = CollectorFlow {
        packets: integer("packets"),
        bytes: integer("bytes"),
        first_us: truth::iso_us(text("timestamp_start")),
        last_us: truth::iso_us(text("timestamp_end")),
        tcp_flags: text("tcp_flags").parse().unwrap(),
    };
    (key, collected)
}

#[test]
fn nfacctd_reads_the_default_profile() {
    let truth = truth::flows(&truth::records(RECORDS, true));
    let Some(collected) = collect("nfacctd-ipfix", DEFAULT, true, truth.len()) else { return };
    compare("nfacctd, IPFIX", &collected, &truth);
}

/// It divides NetFlow's uptimes by 1000 before it uses them: its times are true to a second.
#[test]
fn nfacctd_reads_netflow_to_the_second() {
    for (name, profile, ipv6) in [("nfacctd-v9", NETFLOW9, true), ("nfacctd-v5", NETFLOW5, false)] {
        let truth = truth::flows(&truth::records(RECORDS, ipv6));
        let Some(mut collected) = collect(name, profile, ipv6, truth.len()) else { return };
        for (key, collected) in &mut collected {
            let truth = &truth[key];
            for (collected, truth) in
                [(&mut collected.first_us, truth.first_us), (&mut collected.last_us, truth.last_us)]
            {
                assert!((*collected - truth).abs() < 1_000_000, "{name}: {key:?}");
                *collected = truth;
            }
        }
        compare(name, &collected, &truth);
    }
}

/// 1.7.7 keeps the counters of microsecond profiles, not the times; of biflows the forward
/// half.
#[test]
fn nfacctd_counts_what_is_opted_in() {
    let records = truth::records(RECORDS, true);
    let truth = truth::flows(&records);
    let Some(collected) = collect("nfacctd-us", MICROS, true, truth.len()) else { return };
    for (key, collected) in &collected {
        assert_eq!((collected.packets, collected.bytes), (truth[key].packets, truth[key].bytes));
    }
    let truth = truth::forward_flows(&records);
    let Some(collected) = collect("nfacctd-biflow", BIFLOW, true, truth.len()) else { return };
    compare("nfacctd, biflows", &collected, &truth);
}

/// How many more than it holds back at a time.
const LAST: u8 = 64;
const READY: [&str; 2] = ["waiting for NetFlow/IPFIX data", "Purging cache - END"];
