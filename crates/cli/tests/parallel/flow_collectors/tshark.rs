//! tshark's dissector: over captures of the messages, and over IPFIX files.

use std::process::Command;

use sonde_meter::export::{Checksums, ExportStats, Profile, TimeUnit};
use sonde_wire::{build, pcap};

use super::collector::{
    BIFLOW, DEFAULT, Folder, MICROS, NETFLOW5, NETFLOW9, RECORDS, config, program,
};
use super::truth::{self, CollectorFlow, Flows, Key, compare};

/// What tshark says of the messages in a capture of UDP datagrams, or in an IPFIX file.
fn dissect(test: &str, profile: Profile, ipv6: bool, as_file: bool) -> Option<Flows> {
    let messages =
        truth::messages(config(profile), &ExportStats::default(), &truth::records(RECORDS, ipv6));
    let bytes = if as_file { messages.concat() } else { capture(&messages) };
    Some(flows(&text(test, &bytes)?))
}

/// What tshark makes of a file.
fn text(test: &str, bytes: &[u8]) -> Option<String> {
    let tshark = program(test, "tshark")?;
    let folder = Folder::new(test);
    let file = folder.file("messages");
    std::fs::write(&file, bytes).unwrap();
    let mut command = Command::new(tshark);
    command.args(["-n", "-V", "-d", &format!("udp.port=={PORT},cflow"), "-r", &file]);
    let output = command.env("TZ", "UTC").env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for complaint in
        ["Malformed", "Expert Info (Warning", "Expert Info (Error", "No template found"]
    {
        assert!(!text.contains(complaint), "{test}: tshark says '{complaint}'");
    }
    Some(text)
}

/// Ethernet frames of the messages.
fn capture(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut file = pcap::file_header(LINKTYPE_RAW, 65_535).to_vec();
    let from = "127.0.0.1:4000".parse().unwrap();
    let to = format!("127.0.0.1:{PORT}").parse().unwrap();
    for (n, message) in messages.iter().enumerate() {
        let mut packet = vec![0; 28 + message.len()];
        packet[28..].copy_from_slice(message);
        let headers = build::emit_udp_ip(&mut packet, from, to, 0, 64, message.len()).unwrap();
        assert_eq!(headers, 28);
        let at = 1_700_000_000_000_000_000 + n as i64 * 1000;
        let header = pcap::record_header(at, packet.len(), packet.len() as u32).unwrap();
        file.extend_from_slice(&header);
        file.extend_from_slice(&packet);
    }
    file
}

/// The flows of tshark's text: a line `Flow 1` or `pdu 1/30` begins each.
fn flows(text: &str) -> Flows {
    let mut flows = Flows::new();
    let mut flow: Option<Pdu> = None;
    // NetFlow: when the exporter started, by the header: its time less its uptime.
    let (mut uptime_us, mut boot_us) = (0, 0);
    for line in text.lines().map(str::trim) {
        let begins = line.starts_with("Flow ") && line[5..].bytes().all(|c| c.is_ascii_digit());
        if begins || line.starts_with("pdu ") || line.starts_with("Frame ") {
            if let Some(flow) = flow.take() {
                flow.into(&mut flows);
            }
            flow = (!line.starts_with("Frame ")).then(Pdu::default);
        } else if let Some((name, value)) = line.split_once(": ") {
            match (&mut flow, name) {
                (Some(flow), _) => flow.field(name, value, boot_us),
                (None, "SysUptime") => uptime_us = time(value, 0),
                (None, "Timestamp") => boot_us = time(value, 0) - uptime_us,
                _ => {}
            }
        }
    }
    if let Some(flow) = flow {
        flow.into(&mut flows);
    }
    flows
}

#[derive(Default)]
struct Pdu {
    source: Option<std::net::IpAddr>,
    destination: Option<std::net::IpAddr>,
    ports: (u16, u16),
    protocol: u8,
    /// Forward and reverse: what comes for the second time is reverse (RFC 5103).
    packets: Vec<u64>,
    octets: Vec<u64>,
    first: Vec<i64>,
    last: Vec<i64>,
    flags: Vec<u16>,
}

impl Pdu {
    fn field(&mut self, name: &str, value: &str, boot_us: i64) {
        let word = value.split_whitespace().next().unwrap_or("");
        let integer = || word.parse::<u64>().unwrap_or_else(|e| panic!("{name}: {value}: {e}"));
        match name {
            "SrcAddr" => self.source = word.parse().ok(),
            "DstAddr" => self.destination = word.parse().ok(),
            "SrcPort" => self.ports.0 = integer() as u16,
            "DstPort" => self.ports.1 = integer() as u16,
            "Protocol" => {
                let digits = value.split(['(', ')']).nth(1).unwrap_or(word);
                self.protocol = digits.parse().unwrap();
            }
            "Packets" => self.packets.push(integer()),
            "Octets" => self.octets.push(integer()),
            "StartTime" => self.first.push(time(value, boot_us)),
            "EndTime" => self.last.push(time(value, boot_us)),
            "TCP Flags" => {
                let hex = word.trim_end_matches(',').trim_start_matches("0x");
                self.flags.push(u16::from_str_radix(hex, 16).unwrap());
            }
            _ => {}
        }
    }

    fn into(self, flows: &mut Flows) {
        // Options data have no addresses.
        let (Some(source), Some(destination)) = (self.source, self.destination) else { return };
        let (from, to) = self.ports;
        let forward = (source, destination, from, to, self.protocol);
        let reply = match self.protocol {
            1 => (0, 0),
            58 => (0, 129 << 8),
            _ => (to, from),
        };
        let reverse = (destination, source, reply.0, reply.1, self.protocol);
        let keys: [Key; 2] = [forward, reverse];
        for (at, key) in keys.into_iter().enumerate().take(self.packets.len()) {
            let collected = CollectorFlow {
                packets: self.packets[at],
                bytes: self.octets[at],
                first_us: self.first[at],
                last_us: self.last[at],
                tcp_flags: self.flags[at],
            };
            assert!(flows.insert(key, collected).is_none(), "{key:?} came twice");
        }
    }
}

/// `Nov 14, 2023 22:12:50.000000000 UTC`, us since 1970; or `86370.000000000 seconds`
/// since `boot_us`.
fn time(text: &str, boot_us: i64) -> i64 {
    if let Some((seconds, fraction)) =
        text.strip_suffix(" seconds").and_then(|seconds| seconds.split_once('.'))
    {
        let seconds: i64 = seconds.parse().unwrap();
        let micros: i64 = fraction[..6].parse().unwrap();
        return boot_us + seconds * 1_000_000 + micros;
    }
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let parts: Vec<&str> = text.split([' ', ',']).filter(|part| !part.is_empty()).collect();
    let month = MONTHS.find(parts[0]).unwrap_or_else(|| panic!("{text}")) / 3 + 1;
    let day: u32 = parts[1].parse().unwrap();
    truth::iso_us(&format!("{}-{month:02}-{day:02}T{}", parts[2], parts[3]))
}

#[test]
fn tshark_reads_ipfix_as_datagrams_and_as_a_file() {
    let nanos = Profile { time: TimeUnit::Nano, ..DEFAULT };
    let both = Profile { time: TimeUnit::Micro, ..BIFLOW };
    for (name, profile) in
        [("ms", DEFAULT), ("us", MICROS), ("ns", nanos), ("biflow", BIFLOW), ("biflow-us", both)]
    {
        for as_file in [false, true] {
            let test = format!("tshark-{name}-{as_file}");
            let Some(collected) = dissect(&test, profile, true, as_file) else { return };
            compare(&test, &collected, &truth::flows(&truth::records(RECORDS, true)));
        }
    }
}

#[test]
fn tshark_reads_files_with_checksums() {
    let records = truth::records(RECORDS, true);
    let messages = truth::messages(config(DEFAULT), &ExportStats::default(), &records);
    let mut checksums = Checksums::default();
    let sealed: Vec<Vec<u8>> = messages.iter().map(|m| checksums.seal(m).to_vec()).collect();
    let Some(text) = text("tshark-checksums", &sealed.concat()) else { return };
    compare("tshark-checksums", &flows(&text), &truth::flows(&records));
    for message in sealed {
        let sum: String =
            message[message.len() - 16..].iter().map(|b| format!("{b:02x}")).collect();
        assert!(text.contains(&format!("Message MD5 Checksum: {sum}")), "{sum}");
    }
}

#[test]
fn tshark_reads_netflow() {
    for (test, profile, ipv6) in [("tshark-v9", NETFLOW9, true), ("tshark-v5", NETFLOW5, false)] {
        let Some(collected) = dissect(test, profile, ipv6, false) else { return };
        compare(test, &collected, &truth::flows(&truth::records(RECORDS, ipv6)));
    }
}

const PORT: u16 = 4739;
/// Packets that begin with their IP header.
const LINKTYPE_RAW: u16 = 101;
