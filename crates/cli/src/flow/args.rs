//! What can be typed after `sonde flow`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sonde_results::units::{parse_octets, parse_positive_duration};
use sonde_run::flow::settings::{
    Export, ExportFormat, Field, InputEngine, InputSettings, Metering, Selection, Settings,
    TimeUnits, TunnelKeys, parse_cache_size,
};
use sonde_run::flow::{CollectorAddress, IpProtocol, Sampling};
use sonde_run::joins::Join;
use sonde_run::probe::settings::{parse_port, parse_record_interval};
use sonde_wire::prefix::Prefix;

use crate::choice::choice;
use crate::number::{processor, whole};

/// `sonde flow` and what stands under it.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = HELP)]
pub struct FlowCommand {
    #[command(subcommand)]
    pub instead: Option<Instead>,
    #[command(flatten)]
    pub args: FlowArgs,
}

/// What stands under `sonde flow`.
#[derive(Subcommand, Debug)]
pub enum Instead {
    /// Hold what an exporter said against the truth
    Verify(Box<super::verify_args::VerifyArgs>),
}

#[derive(Args, Debug)]
pub struct FlowArgs {
    /// Interfaces to meter, or captures to read one behind the other (pcap, pcapng; also gzip or
    /// zstd; - is standard input)
    #[arg(value_name = "IFACE|FILE", required = true)]
    pub sources: Vec<String>,
    /// Stop after this time
    #[arg(short = 'w', long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub duration: Option<i64>,
    /// Between two pictures of the live view
    #[arg(short, long, value_name = "TIME", default_value = "1s",
          value_parser = parse_record_interval)]
    pub interval: i64,
    #[command(flatten, next_help_heading = "Input")]
    pub input: InputArgs,
    #[command(flatten, next_help_heading = "Metering")]
    pub metering: MeteringArgs,
    #[command(flatten, next_help_heading = "Selection")]
    pub selection: SelectionArgs,
    #[command(flatten, next_help_heading = "Export")]
    pub export: ExportArgs,
    #[command(flatten, next_help_heading = "Output")]
    pub output: FlowOutputArgs,
}

/// How packets come in.
#[derive(Args, Clone, Debug, Default)]
pub struct InputArgs {
    /// How interfaces are read [default: af_packet]
    #[arg(long, value_parser = choice::<InputEngine>(), value_name = "ENGINE")]
    pub engine: Option<InputEngine>,
    /// Metering threads; packets are divided by a hash that both directions share
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole(1..=64_u16))]
    pub workers: u16,
    /// Pin the metering threads to these processors, in order
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = processor())]
    pub cpus: Vec<usize>,
    /// Cut packets to so many bytes before they are handed up
    #[arg(long, value_name = "BYTES", value_parser = whole(64..=u16::MAX))]
    pub trim: Option<u16>,
    /// The interfaces are mirror ports: what they receive may be taken from the host
    #[arg(long)]
    pub mirror: bool,
}

/// What becomes a flow.
#[derive(Args, Clone, Debug)]
pub struct MeteringArgs {
    /// A flow without packets for this time has ended
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_positive_duration)]
    pub idle: i64,
    /// A flow that lasts longer is reported, and goes on in a further record
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_positive_duration)]
    pub active: i64,
    /// Flows held at once by all workers, at most
    #[arg(long, value_name = "N", default_value = "1048576", value_parser = parse_cache_size)]
    pub flows: u32,
    /// Each direction is a flow of its own
    #[arg(long)]
    pub uniflow: bool,
    /// Treat these interfaces as one observation point, as the two ports of a tap: all, or
    /// eth0,eth1 (of a capture their indices); may be given more than once
    #[arg(long, value_name = "all|LIST")]
    pub join: Vec<Join>,
    /// Leave the VLAN out of a flow's key, where each direction has its own
    #[arg(long)]
    pub no_vlan_in_key: bool,
    /// Which IP header of a tunnel is metered
    #[arg(long, value_parser = choice::<TunnelKeys>(), value_name = "WHICH", default_value = "outer")]
    pub keys: TunnelKeys,
    /// Kept beyond the basic record: link, packets[=N], spread, tcp, apps
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub fields: Vec<Field>,
    /// Seed of the cache's hash, for a run to be repeated [default: random; of regular files
    /// fixed]
    #[arg(long, value_name = "N", value_parser = whole(0..=u64::MAX))]
    pub seed: Option<u64>,
}

/// Which packets are metered.
#[derive(Args, Clone, Debug, Default)]
pub struct SelectionArgs {
    /// Sample: N/M packets in a row, random:N/M, flow:N/M whole flows, packet:N/M the same
    /// packets at every point (by other hashes: crc:N/M, ipsx:N/M), time:ON/PERIOD
    #[arg(long, value_name = "HOW")]
    pub sample: Option<Sampling>,
    /// Key of flow:, packet: and crc: samples: the same wherever the same are to be taken
    #[arg(long, value_name = "N", default_value = "0", requires = "sample",
          value_parser = whole(0..=u32::MAX))]
    pub sample_key: u32,
    /// Only these IP protocols, by name or number
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub proto: Vec<IpProtocol>,
    /// Only traffic from or to this prefix; may be given more than once
    #[arg(long, value_name = "PREFIX")]
    pub net: Vec<Prefix>,
    /// Only traffic from or to these ports
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_port)]
    pub port: Vec<u16>,
}

/// Where flow records go.
#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// Collector: udp://, tcp://, tls:// or sctp://HOST[:PORT]; may be given more than once
    #[arg(long, value_name = "URL")]
    pub export: Vec<CollectorAddress>,
    /// Write flow records to this file: .ipfix (RFC 5655) or .parquet
    #[arg(long, value_name = "FILE")]
    pub write: Vec<PathBuf>,
    /// Parquet: after this time, or a million rows, goes on in FILE-0002.parquet and so on
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_positive_duration)]
    pub rotate: i64,
    /// IPFIX files: an MD5 checksum in each message (RFC 5655, section 8.1.1)
    #[arg(long, requires = "write")]
    pub checksums: bool,
    /// Write flow records to this file, one JSON object a line; '-' is standard output
    #[arg(long, value_name = "FILE")]
    pub jsonl: Option<PathBuf>,
    /// What collectors get
    #[arg(long, value_parser = choice::<ExportFormat>(), value_name = "FORMAT", default_value = "ipfix")]
    pub format: ExportFormat,
    /// IPFIX: both directions in one record (RFC 5103) [default: one record a direction]
    #[arg(long, conflicts_with = "uniflow")]
    pub biflow: bool,
    /// IPFIX: unit of times
    #[arg(long, value_parser = choice::<TimeUnits>(), value_name = "UNIT", default_value = "ms")]
    pub times: TimeUnits,
    /// Observation domain (IPFIX) or source (NetFlow v9) identifier
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole(0..=u32::MAX))]
    pub domain: u32,
    /// UDP: templates are sent again after this time
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_positive_duration)]
    pub template_every: i64,
    /// UDP: messages a second to each collector at most; 0: as many as can be sent
    #[arg(long, value_name = "N", default_value = "4000", value_parser = whole(0..=u32::MAX))]
    pub udp_rate: u32,
    /// TCP and TLS: what a collector cannot take waits in this folder
    #[arg(long, value_name = "FOLDER")]
    pub spool: Option<PathBuf>,
    /// Octets that may wait there for one collector: 500k, 64M, 2G by thousands, 64Mi by 1024
    #[arg(long, value_name = "OCTETS", default_value = "1Gi", value_parser = parse_octets)]
    pub spool_max: u64,
    /// TLS: certificates of the authorities that collectors are trusted by (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// TLS: our certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// TLS: its key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
}

/// What is printed and saved.
#[derive(Args, Clone, Debug, Default)]
pub struct FlowOutputArgs {
    /// Print the summary only
    #[arg(short, long)]
    pub quiet: bool,
    /// Write the run to this file as JSON ('sonde schema flow' describes it)
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print the run as JSON instead of the summary
    #[arg(long)]
    pub json: bool,
}

impl FlowArgs {
    /// What is to be metered; `fastest`: the fastest flows of now are shown.
    pub fn settings(&self, fastest: bool) -> Settings {
        let InputArgs { engine, workers, cpus, trim, mirror } = self.input.clone();
        let MeteringArgs { idle, active, flows, uniflow, join, no_vlan_in_key, keys, fields, seed } =
            self.metering.clone();
        let SelectionArgs { sample, sample_key, proto, net, port } = self.selection.clone();
        let e = self.export.clone();
        Settings {
            sources: self.sources.clone(),
            duration: self.duration,
            input: InputSettings { engine, workers, cpus, trim, mirror },
            metering: Metering {
                idle,
                active,
                flows,
                uniflow,
                join,
                no_vlan_in_key,
                keys,
                fields,
                seed,
            },
            selection: Selection { sample, sample_key, proto, net, port },
            export: Export {
                export: e.export,
                write: e.write,
                rotate: e.rotate,
                checksums: e.checksums,
                jsonl: e.jsonl,
                format: e.format,
                biflow: e.biflow,
                times: e.times,
                domain: e.domain,
                template_every: e.template_every,
                udp_rate: e.udp_rate,
                spool: e.spool,
                spool_max: e.spool_max,
                tls_ca: e.tls_ca,
                tls_cert: e.tls_cert,
                tls_key: e.tls_key,
            },
            fastest,
            records: false,
        }
    }
}

const HELP: &str = "\
Example:
  sudo sonde flow eth0 eth1 --export udp://192.0.2.9:4739
  sudo sonde flow eth0 --engine header --workers 4 --export tcp://192.0.2.9 --spool /var/spool/sonde
  sonde flow capture.pcap --write flows.ipfix --fields apps,tcp
  sonde flow capture.pcap --jsonl - | jq .
Every packet offered is exported in a record, or counted as dropped with its reason.
docs/flow.md describes what is metered, and how.
Exit codes: 0 metered and exported, 1 metered but saw no packet, 2 usage, 3 cannot run,
4 some records could not be exported or saved, 130 interrupted before any packet was seen.";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use sonde_results::units::SECOND;

    #[derive(Parser, Debug)]
    struct Flow {
        #[command(flatten)]
        args: FlowArgs,
    }

    fn flow(line: &str) -> Result<FlowArgs, String> {
        Flow::try_parse_from(format!("flow {line}").split_whitespace())
            .map(|f| f.args)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_full_line() {
        let args = flow(
            "eth0 eth1 -w 1m --engine header --workers 4 --cpus 0,1 --idle 15s --active 60s \
             --flows 4096 --keys inner --fields link,packets=8,apps --seed 7 \
             --export udp://192.0.2.9:9995 --export tcp://[2001:db8::1] --times ns --biflow \
             --sample flow:1/8 --sample-key 3 --proto tcp,47 --net 192.0.2.0/24 --port 443 \
             --spool /tmp/s --spool-max 64M --write a.ipfix -o r.json",
        )
        .unwrap();
        assert_eq!(args.metering.fields, [Field::Link, Field::Packets(8), Field::Apps]);
        assert_eq!((args.metering.idle, args.export.spool_max), (15 * SECOND, 64_000_000));
        assert_eq!(args.export.export.len(), 2);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, part) in [
            ("", "<IFACE|FILE>"),
            ("a --engine dpdk", "possible values: af_packet, header, af_xdp"),
            ("a --fields colour", "choose link, packets, spread, tcp or apps"),
            ("a --fields packets=0", "packets=1..packets=128"),
            ("a --spool-max 5X", "write 500M or 2G"),
            ("a --export http://x", "udp://"),
            ("a --uniflow --biflow", "cannot be used with"),
            ("a --trim 10", "'10' is not a whole number, 64..65535"),
            ("a --spool-max 99999999999T", "is more than 9223372036854775807 octets"),
            ("a --workers 0x10", "'0x10' is not a whole number, 1..64"),
            ("a --sample 5", "write 1/100"),
            ("a --sample-key 5", "--sample <HOW>"),
            ("a --proto x", "is no protocol"),
        ] {
            let message = flow(line).unwrap_err();
            assert!(message.contains(part), "{line}: {message}");
        }
    }
}
