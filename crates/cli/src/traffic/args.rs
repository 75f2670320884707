//! What can be typed after `sonde gen flows`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use sonde_results::units::{
    parse_amount, parse_positive_amount, parse_positive_duration, parse_rate, parse_share,
};
use sonde_run::engine::Engine;
use sonde_run::flow::settings::TunnelKeys;
use sonde_run::traffic::{
    ArrivalProcess, Length, MAX_FLOWS, ProtocolWeights, Reorder, Resolution, Settings, Shares,
    Sizes, TruthForm,
};

use crate::choice::{choice, engine};
use crate::number::whole;

#[derive(Args, Debug)]
#[command(after_help = GEN_HELP)]
pub struct GenArgs {
    #[command(subcommand)]
    pub command: GenCommand,
}

/// What can be made.
#[derive(Subcommand, Debug)]
pub enum GenCommand {
    /// Traffic with known flows, and the truth about them as CSV
    Flows(Box<FlowsArgs>),
}

#[derive(Args, Debug)]
#[command(
    after_help = HELP,
    group = ArgGroup::new("output").args(["out", "iface"]).required(true)
)]
pub struct FlowsArgs {
    /// Write a capture file; '-' is standard output
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Send on this interface, paced by --rate. Nothing is sent anywhere else
    #[arg(long, value_name = "IF")]
    pub iface: Option<String>,
    /// Write the truth about every flow to this file as CSV; '-' is standard output
    #[arg(long, value_name = "FILE")]
    pub truth: Option<PathBuf>,
    /// Columns of the truth
    #[arg(long, value_parser = choice::<TruthForm>(), value_name = "FORM", default_value = "full", requires = "truth")]
    pub truth_form: TruthForm,
    /// The IP header of a tunnel that the truth describes
    #[arg(long, value_parser = choice::<TunnelKeys>(), value_name = "WHICH", default_value = "outer", requires = "truth")]
    pub keys: TunnelKeys,
    /// The same seed and options give the same file
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole(0..=u64::MAX))]
    pub seed: u64,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,

    /// Flows open at once
    #[arg(long, value_name = "N", default_value = "10000", help_heading = "Flows",
          value_parser = parse_open_flows)]
    pub flows: u32,
    /// Packets of a flow: constant:N, geometric:MEAN or pareto:INDEX:MIN:MAX
    #[arg(long, value_name = "LAW", default_value = "pareto:1.2:5:100000", help_heading = "Flows")]
    pub length: Length,
    /// New flows a second: gives --length the mean that this takes
    #[arg(long, value_name = "N", help_heading = "Flows", value_parser = parse_rate)]
    pub new_flows: Option<u64>,
    /// Stop when so many flows have ended
    #[arg(long, value_name = "N", help_heading = "Flows", value_parser = parse_positive_amount)]
    pub total_flows: Option<u64>,
    /// Stop after so many packets, as 8M [default: 1M, where nothing else ends the traffic]
    #[arg(long, value_name = "N", help_heading = "Flows", value_parser = parse_positive_amount)]
    pub packets: Option<u64>,
    /// Stop after this time
    #[arg(short = 'w', long, value_name = "TIME", help_heading = "Flows",
          value_parser = parse_positive_duration)]
    pub duration: Option<i64>,
    /// Packet i belongs to flow (i * 0x9E3779B1) mod FLOWS: IPv4 UDP, one direction, constant
    /// distances, no flow ends. Takes --flows, --size, --packets, --duration and --rate
    #[arg(long, help_heading = "Flows", conflicts_with_all = [
        "length", "new_flows", "total_flows", "arrival", "variety", "proto", "ipv6", "encap",
        "reorder", "fragments", "apps"])]
    pub round_robin: bool,

    /// Packets a second, all flows together
    #[arg(long, value_name = "PPS", default_value = "1M", help_heading = "Packets",
          value_parser = parse_rate)]
    pub rate: u64,
    /// How packets follow each other: constant, poisson, or bursts:PACKETS:PEAK (so many on
    /// average, at PEAK times the rate)
    #[arg(long, value_name = "LAW", default_value = "poisson", help_heading = "Packets")]
    pub arrival: ArrivalProcess,
    /// Bytes on the wire of a packet with data, with the check sequence: N, imix, or a mix as
    /// 64=5,576=3,1518=2
    #[arg(long, value_name = "SIZE", default_value = "imix", help_heading = "Packets")]
    pub size: Sizes,
    /// Share of a flow's packets whose size is drawn anew and is not the flow's own
    #[arg(long, value_name = "SHARE", default_value = "1", help_heading = "Packets",
          value_parser = |t: &str| parse_share(t, 1.0))]
    pub variety: f64,
    /// Transport protocols by flows
    #[arg(
        long,
        value_name = "MIX",
        default_value = "tcp=0.7,udp=0.28,icmp=0.02",
        help_heading = "Packets"
    )]
    pub proto: ProtocolWeights,
    /// Share of flows over IPv6
    #[arg(long, value_name = "SHARE", default_value = "0.2", help_heading = "Packets",
          value_parser = |t: &str| parse_share(t, 1.0))]
    pub ipv6: f64,
    /// Shares of flows in vlan, qinq, mpls, gre, vxlan, gtpu and geneve, as vlan=0.2,gre=0.1
    #[arg(long, value_name = "SHARES", help_heading = "Packets")]
    pub encap: Option<Shares>,
    /// Share of data packets that come late, and how many of their flow overtake them [1]
    #[arg(long, value_name = "SHARE[:N]", help_heading = "Packets")]
    pub reorder: Option<Reorder>,
    /// Share of packets with data that come in fragments
    #[arg(long, value_name = "SHARE", default_value = "0", help_heading = "Packets",
          value_parser = |t: &str| parse_share(t, 1.0))]
    pub fragments: f64,
    /// Share of TCP and UDP flows that speak DNS, HTTP/1 or TLS
    #[arg(long, value_name = "SHARE", default_value = "0.5", help_heading = "Packets",
          value_parser = |t: &str| parse_share(t, 1.0))]
    pub apps: f64,
    /// IPv4 addresses of 10.0.0.0/8 instead of 198.18.0.0/15; for files only
    #[arg(long, help_heading = "Packets")]
    pub private_addresses: bool,

    /// Of a file: unit of its time stamps
    #[arg(
        long,
        value_parser = choice::<Resolution>(),
        value_name = "UNIT",
        default_value = "ns",
        conflicts_with = "iface",
        help_heading = "Output"
    )]
    pub resolution: Resolution,
    /// Of --iface: how packets pass from Sonde to the kernel
    #[arg(
        long,
        value_name = "ENGINE",
        value_parser = engine(Engine::transmits),
        default_value = "af_packet",
        conflicts_with = "out",
        help_heading = "Output"
    )]
    pub engine: Engine,
}

impl FlowsArgs {
    /// What is to be made.
    pub fn settings(&self) -> Settings {
        Settings {
            out: self.out.clone(),
            iface: self.iface.clone(),
            engine: self.engine,
            truth: self.truth.clone(),
            truth_form: self.truth_form,
            keys: self.keys,
            seed: self.seed,
            flows: self.flows,
            length: self.length,
            new_flows: self.new_flows,
            total_flows: self.total_flows,
            packets: self.packets,
            duration: self.duration,
            round_robin: self.round_robin,
            rate: self.rate,
            arrival: self.arrival,
            sizes: self.size.clone(),
            variety: self.variety,
            protocols: self.proto,
            ipv6: self.ipv6,
            encapsulation: self.encap,
            reorder: self.reorder,
            fragments: self.fragments,
            apps: self.apps,
            private_addresses: self.private_addresses,
            resolution: self.resolution,
        }
    }
}

fn parse_open_flows(text: &str) -> Result<u32, String> {
    match parse_amount(text).map(u32::try_from) {
        Ok(Ok(flows @ 1..=MAX_FLOWS)) => Ok(flows),
        _ => Err(format!("'{text}' is not a count of flows, 1..16777216; write 2000, 100k or 2M")),
    }
}

const GEN_HELP: &str = "\
Example:
  sonde gen flows --flows 100k --packets 8M --seed 7 --out t.pcap --truth t.csv";

const HELP: &str = "\
Example:
  sonde gen flows --flows 100k --packets 8M --seed 7 --out t.pcap --truth t.csv
  sonde gen flows --round-robin --flows 2097152 --packets 8388608 --size 64 --out rr.pcap
  sonde gen flows --encap vlan=0.2,vxlan=0.1 --reorder 0.01:3 --fragments 0.01 --out e.pcap
  sudo sonde gen flows --iface veth0 --rate 500k --new-flows 20k -w 1m --truth t.csv
Addresses are those for benchmarks: 198.18.0.0/15 (RFC 2544) and 2001:2::/48 (RFC 5180).
'sonde flow verify --truth t.csv' compares what a meter exports; docs/traffic.md has the details.
Exit codes: 0 made, 2 usage, 3 cannot run, 4 not saved, 130 interrupted before any packet.";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Flows {
        #[command(flatten)]
        args: FlowsArgs,
    }

    fn flows(line: &str) -> Result<FlowsArgs, String> {
        Flows::try_parse_from(format!("flows {line}").split_whitespace())
            .map(|f| f.args)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_full_line() {
        let args = flows(
            "--out t.pcap --truth t.csv --truth-form biflow --keys inner --seed 7 --flows 100k \
             --length geometric:12 --new-flows 20k --total-flows 1M --packets 8M -w 10s --rate 2M \
             --arrival bursts:100:10 --size 64=1,1518=3 --variety 0.5 --proto tcp=1,udp=1 \
             --ipv6 0.5 --encap vlan=0.5,geneve=0.5 --reorder 0.01:3 --fragments 0.02 --apps 0 \
             --resolution us --private-addresses",
        )
        .unwrap();
        assert_eq!((args.flows, args.packets), (100_000, Some(8_000_000)));
        assert_eq!(args.arrival, ArrivalProcess::Bursts { packets: 100.0, peak: 10.0 });
        assert_eq!(args.reorder, Some(Reorder { share: 0.01, distance: 3 }));
        assert_eq!(args.encap.unwrap().geneve, 0.5);
    }

    #[test]
    fn without_options_it_is_what_is_usual() {
        let settings = flows("--out t.pcap").unwrap().settings();
        let usual = Settings { out: Some("t.pcap".into()), ..Settings::default() };
        assert_eq!(settings, usual);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, part) in [
            ("", "<--out <FILE>|--iface <IF>>"),
            ("--out a --iface b", "cannot be used with"),
            ("--out a --engine af_xdp", "cannot be used with"),
            ("--out a --size 63", "64..9216, imix"),
            ("--out a --size 64=0", "64..9216, imix"),
            ("--out a --flows 0", "not a count of flows"),
            ("--out a --packets 0", "'0' is less than 1"),
            ("--out a --packets 99999999999999999999", "is more than 9223372036854775807"),
            ("--out a --length normal:3", "not a law of lengths"),
            ("--out a --arrival bursts:3", "not a law of arrivals"),
            ("--out a --proto sctp=1", "not a mix of protocols"),
            ("--out a --encap vlan=0.6,gre=0.6", "together at most 1"),
            ("--out a --encap ipip=0.6", "of vlan, qinq"),
            ("--out a --reorder 0.1:0", "the distance is 1..255"),
            ("--out a --ipv6 2", "write 0 to 1"),
            ("--out a --keys inner", "--truth"),
            ("--out a --round-robin --proto tcp=1", "cannot be used with"),
        ] {
            let message = flows(line).unwrap_err();
            assert!(message.contains(part), "{line}: {message}");
        }
    }
}
