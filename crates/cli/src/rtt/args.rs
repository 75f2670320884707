//! What can be typed after `sonde rtt`.

use anyhow::bail;
use clap::{Args, ValueEnum};
use sonde_results::rtt::{RttGroupBy, RttProtocol};
use sonde_results::units::parse_positive_duration;
use sonde_run::engine::Engine;
use sonde_run::joins::Join;
use sonde_run::probe::settings::{parse_port, parse_record_interval};
use sonde_run::rtt::settings::{Hook, SampleLimit, Settings, parse_table_size};
use sonde_wire::prefix::Prefix;
use std::path::PathBuf;

use crate::choice::{choice, engine};
use crate::number::whole;

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct RttArgs {
    /// Interfaces to watch, or captures to read one behind the other (pcap, pcapng; also gzip or
    /// zstd; - is standard input)
    #[arg(value_name = "IFACE|FILE", required = true)]
    pub sources: Vec<String>,
    /// What groups the samples: the host that answered, by one of these
    #[arg(long, value_parser = choice::<RttGroupBy>(), default_value = "prefix", value_name = "KEY")]
    pub by: RttGroupBy,
    /// Prefixes to group by instead of /24 and /48, one on each line, with an AS number if --by as
    #[arg(long, value_name = "FILE")]
    pub prefixes: Option<PathBuf>,
    /// Length of an interval: how often groups are read and shown
    #[arg(short, long, value_name = "TIME", default_value = "1s",
          value_parser = parse_record_interval)]
    pub interval: i64,
    /// Stop after this time
    #[arg(short = 'w', long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub duration: Option<i64>,
    /// Flows tracked at once, at most; a power of two
    #[arg(long, value_name = "N", default_value = "131072", value_parser = parse_table_size)]
    pub flows: u32,
    /// Measure in user space, where eBPF cannot be had: af_packet [default: in the kernel]
    #[arg(long, value_name = "ENGINE", value_parser = engine(|_| true))]
    pub engine: Option<Engine>,
    /// How each interface is watched in the kernel [default: tc]
    #[arg(long, value_parser = choice::<Hook>(), value_name = "HOOK")]
    pub hook: Option<Hook>,
    /// Look into IP in IP, GRE, VXLAN, GENEVE and GTP-U, and measure what is inside
    #[arg(long)]
    pub tunnels: bool,
    /// Treat these interfaces as one observation point, as the two ports of a tap: all, or
    /// eth0,eth1 (of a capture their indices); may be given more than once
    #[arg(long, value_name = "all|LIST")]
    pub join: Vec<Join>,
    /// Leave the VLAN out of a flow's key, where each direction has its own
    #[arg(long)]
    pub no_vlan_in_key: bool,
    /// Leave the programs attached at the end, pinned under /sys/fs/bpf/sonde
    #[arg(long)]
    pub persist: bool,
    /// Seed of the flow table's hash, for a run to be repeated [default: random; of regular
    /// files fixed]
    #[arg(long, value_name = "N", value_parser = whole(0..=u64::MAX))]
    pub seed: Option<u64>,
    #[command(flatten, next_help_heading = "Filter and privacy")]
    pub filter: FilterArgs,
    #[command(flatten, next_help_heading = "Output")]
    pub output: RttOutputArgs,
}

/// What is measured.
#[derive(Args, Clone, Debug, Default)]
pub struct FilterArgs {
    /// Only these protocols [default: all]
    #[arg(long, value_parser = choice::<RttProtocol>(), value_name = "LIST", value_delimiter = ',')]
    pub proto: Vec<RttProtocol>,
    /// Only traffic from or to this prefix; may be given more than once
    #[arg(long, value_name = "PREFIX")]
    pub net: Vec<Prefix>,
    /// Only traffic from or to these ports
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_port)]
    pub port: Vec<u16>,
    /// Keep the prefix of every address (/24, /48) and never the whole
    #[arg(long)]
    pub prefix_only: bool,
}

/// What is printed.
#[derive(Args, Clone, Debug, Default)]
pub struct RttOutputArgs {
    /// table, ePPing's standard, json or ppviz, or Sonde's own records as jsonl
    /// [default: table on a terminal, else standard]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Samples to print of each flow and direction: none (no limit), one every TIME, or one
    /// every N round trips of the flow (4x). jsonl prints samples only if this is given
    #[arg(long, value_name = "none|TIME|Nx")]
    pub sample_limit: Option<SampleLimit>,
    /// flow: each direction of a flow counts in the groups at most once a second
    #[arg(long, value_enum, value_name = "WHAT")]
    pub weight: Option<Weight>,
    /// Write the run to this file as JSON ('sonde schema rtt' describes it); '-': standard output
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

impl RttArgs {
    /// What is to be measured, for what is to be printed.
    pub fn settings(&self, prints: &Prints) -> Settings {
        let limit = self.output.sample_limit.unwrap_or(SampleLimit::None);
        let FilterArgs { proto, net, port, prefix_only } = self.filter.clone();
        Settings {
            sources: self.sources.clone(),
            by: self.by,
            prefixes: self.prefixes.clone(),
            interval: self.interval,
            duration: self.duration,
            flows: self.flows,
            engine: self.engine,
            hook: self.hook,
            tunnels: self.tunnels,
            join: self.join.clone(),
            no_vlan_in_key: self.no_vlan_in_key,
            persist: self.persist,
            seed: self.seed,
            proto,
            net,
            port,
            prefix_only,
            weight_by_flow: self.output.weight.is_some(),
            samples: prints.samples.then_some(limit),
            // The summary shows the loss of the flows that have ended.
            flow_records: prints.flows || prints.format == Some(Format::Table),
            losses: prints.live,
        }
    }
}

/// What goes to standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prints {
    /// How; `None`: nothing, the run file goes there.
    pub format: Option<Format>,
    /// One line or object for each sample.
    pub samples: bool,
    /// Likewise for each flow that ended.
    pub flows: bool,
    /// Likewise for each group and interval.
    pub groups: bool,
    /// A table that is redrawn.
    pub live: bool,
}

impl Prints {
    /// What the options ask for, standard output being a terminal or not.
    pub fn new(args: &RttOutputArgs, to_terminal: bool) -> anyhow::Result<Prints> {
        let run_to_stdout = args.out.as_ref().is_some_and(|path| path.as_os_str() == "-");
        let format = match args.format {
            Some(_) if run_to_stdout => {
                bail!("only one of --format and --out can go to standard output")
            }
            None if run_to_stdout => None,
            None if to_terminal => Some(Format::Table),
            None => Some(Format::Standard),
            format => format,
        };
        let epping = matches!(format, Some(Format::Standard | Format::Json | Format::Ppviz));
        let jsonl = format == Some(Format::Jsonl);
        if args.sample_limit.is_some() && !epping && !jsonl {
            bail!(
                "--sample-limit limits the samples that are printed; add --format standard or jsonl"
            );
        }
        Ok(Prints {
            format,
            samples: epping || args.sample_limit.is_some(),
            flows: jsonl || epping && format != Some(Format::Ppviz),
            groups: jsonl,
            live: format == Some(Format::Table) && to_terminal,
        })
    }
}

/// How samples and records look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Groups in a table, the slowest first
    Table,
    /// One line a sample, as ePPing prints it
    Standard,
    /// An array of samples and flow events, as ePPing prints it
    Json,
    /// One line a sample, for the viewer ppviz
    Ppviz,
    /// Groups, flows and samples with all their fields, one JSON object a line
    Jsonl,
}

/// What has equal weight in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Weight {
    /// Flows, whatever they send
    Flow,
}

const HELP: &str = "\
Example:
  sudo sonde rtt eth0
  sudo sonde rtt eth0 eth1 --by flow --net 192.0.2.0/24 --port 443
  sudo sonde rtt eth0 --engine af_packet
  sonde rtt capture.pcap --format jsonl > records.jsonl
Each round trip is that between this host and the host that answered. Samples taken in loss
recovery or with a delayed acknowledgement are counted apart. docs/rtt.md defines every metric.
Exit codes: 0 measured, 1 measured but found no round trip, 2 usage, 3 cannot run,
4 not saved, 130 interrupted before any packet was seen.";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use sonde_results::units::SECOND;

    #[derive(Parser, Debug)]
    struct Rtt {
        #[command(flatten)]
        args: RttArgs,
    }

    fn rtt(line: &str) -> Result<RttArgs, String> {
        Rtt::try_parse_from(format!("rtt {line}").split_whitespace())
            .map(|r| r.args)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_full_line() {
        let args = rtt(
            "eth0 eth1 --by as --prefixes p.txt -i 5s -w 1m --flows 1024 --hook xdp --tunnels \
             --join eth0,eth1 --no-vlan-in-key --persist --proto tcp,quic --net 10.0.0.0/8 --net 2001:db8::/32 --port 443,80 \
             --prefix-only --format jsonl --sample-limit 4x --weight flow -o r.json --seed 7",
        )
        .unwrap();
        assert_eq!(args.sources, ["eth0", "eth1"]);
        assert_eq!((args.by, args.hook, args.flows), (RttGroupBy::As, Some(Hook::Xdp), 1024));
        assert_eq!(args.join, ["eth0,eth1".parse().unwrap()]);
        assert!(args.no_vlan_in_key);
        assert_eq!(args.filter.proto, [RttProtocol::Tcp, RttProtocol::Quic]);
        assert_eq!((args.filter.net.len(), &args.filter.port[..]), (2, &[443, 80][..]));
        assert_eq!(args.output.sample_limit, Some(SampleLimit::RoundTrips(4)));
        assert_eq!((args.interval, args.duration), (5 * SECOND, Some(60 * SECOND)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, part) in [
            ("", "<IFACE|FILE>"),
            ("a --by colour", "possible values: flow, prefix, as"),
            ("a --flows 1000", "write 512 or 1024"),
            ("a --flows 3", "64..4194304"),
            ("a --sample-limit 0x", "1x..1000x"),
            ("a --sample-limit fast", "write none, 100ms or 4x"),
            ("a --sample-limit 2m", "longer than 60s"),
            ("a --net 10.0.0.1/8", "bits set"),
            ("a --port 0", "not a UDP port"),
            ("a -i 1ms", "between 100ms and 24h"),
            ("a --format xml", "possible values"),
            ("a --join a", "write all, or two or more"),
            ("a --engine dpdk", "possible values: socket, af_packet, af_xdp"),
        ] {
            let message = rtt(line).unwrap_err();
            assert!(message.contains(part), "{line}: {message}");
        }
    }
}
