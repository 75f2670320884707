//! The command line: what can be typed, and its help.

use clap::{ArgAction, ArgGroup, Args, Parser, Subcommand};
use sonde_results::units::{parse_dscp, parse_duration, parse_positive_duration, parse_rate};
use sonde_run::engine::{Engine, EngineSettings, XdpMode};
use sonde_run::probe::settings::{
    PortRange, ReflectorKind, RunOptions, Schedule, StreamOptions, parse_address, parse_count,
    parse_flows, parse_port, parse_record_interval, parse_size, parse_timeout, parse_ttl,
};
use sonde_run::reflect::settings::{
    Bind, Limit, MOST_SESSIONS, Settings as ReflectSettings, parse_session_timeout,
};
use sonde_wire::prefix::Prefix;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::choice::{engine, named};
use crate::exit;
use crate::flow::args::FlowCommand;
use crate::log::LogArgs;
use crate::manual::args::{CompletionArgs, ManArgs};
use crate::number::{processor, whole};
use crate::rtt::args::RttArgs;

/// Measures networks, and says how far each of its results can be trusted.
#[derive(Parser, Debug)]
#[command(name = "sonde", version, max_term_width = 100, after_help = exit::HELP)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten, next_help_heading = "Messages")]
    pub log: LogArgs,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a station: any mix of instruments without end, by a configuration file
    Run(crate::station::RunArgs),
    /// Look whether a station's configuration can be run
    CheckConfig(crate::station::CheckConfigArgs),
    /// Ask a station's store
    Query(crate::query::QueryArgs),
    /// Say how a running station does
    Status(crate::status::StatusArgs),
    /// List what happened at a running station
    Events(crate::status::EventsArgs),
    /// Hold alerts of a running station back for a time, and announce work
    Silence(crate::silence::SilenceArgs),
    /// Watch a running station
    Top(crate::top::TopArgs),
    /// Say what changed most at the time of an event of a running station
    Explain(crate::explain::ExplainArgs),
    /// Make a token for a station's API
    Token(crate::token::TokenArgs),
    /// Write rows of a station's store as CSV, JSON Lines or Parquet
    Export(crate::export::ExportArgs),
    /// Send STAMP probes and measure delay, loss and jitter
    Probe(Box<ProbeArgs>),
    /// Answer STAMP and TWAMP-Light probes
    Reflect(ReflectArgs),
    /// Measure the round-trip times of other people's traffic, in the kernel or from a capture
    Rtt(Box<RttArgs>),
    /// Meter flows, from interfaces or a capture, and export them
    Flow(Box<FlowCommand>),
    /// Make traffic of known flows
    Gen(crate::traffic::args::GenArgs),
    /// Benchmark a forwarding device, by a plan
    Bench(crate::bench::args::BenchArgs),
    /// Show a benchmark's results: a page, tables, files
    Report(crate::report::ReportArgs),
    /// Compare two benchmarks, case by case
    Compare(crate::compare::CompareArgs),
    /// Lend this host's ports to a benchmark that is controlled from elsewhere
    Agent(crate::agent::AgentArgs),
    /// Serve the Open Traffic Generator model, for snappi and other clients
    Otg(crate::otg::OtgArgs),
    /// Measure the instrument itself: clock, pauses, stamps, engines, tuning
    #[command(after_help = DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Make test beds with devices under test, and tune them
    Lab(crate::lab::LabCommand),
    /// Run the main job on real packets, between network namespaces
    Demo(DemoArgs),
    /// Print the JSON schema of run files, or of settings
    Schema(crate::schema::SchemaArgs),
    /// Print what a shell needs to complete commands and options
    Completion(CompletionArgs),
    /// Write the manual pages
    Man(ManArgs),
}

#[derive(Args, Debug)]
#[command(
    after_help = PROBE_HELP,
    group = ArgGroup::new("what").args(["hosts", "targets"]).required(true).multiple(true)
)]
pub struct ProbeArgs {
    /// Where to send: a name, an address, a range (10.2.0.1-10.2.15.160) or a prefix (10.2.0.0/20)
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,
    /// Targets from a file: TOML, or one HOST on each line
    #[arg(long, value_name = "FILE")]
    pub targets: Option<PathBuf>,
    /// Resolve names to IPv4 addresses only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    pub ipv4: bool,
    /// Resolve names to IPv6 addresses only
    #[arg(short = '6', long)]
    pub ipv6: bool,
    /// Measure to every address of a name, not only to the first that there is a way to
    #[arg(long)]
    pub all_addresses: bool,
    /// Send probes longer than the path's MTU in pieces, instead of with "don't fragment"
    #[arg(long)]
    pub fragment: bool,
    #[command(flatten, next_help_heading = "Probes")]
    pub stream: StreamArgs,
    #[command(flatten, next_help_heading = "Run")]
    pub run: RunArgs,
    #[command(flatten, next_help_heading = "Engine")]
    pub engine: EngineArgs,
    #[command(flatten, next_help_heading = "Output")]
    pub output: ProbeOutputArgs,
}

/// How packets are sent and received.
#[derive(Args, Clone, Debug)]
pub struct EngineArgs {
    /// How packets pass between Sonde and the kernel; socket needs no privilege
    #[arg(long, value_name = "ENGINE", default_value = "socket", value_parser = engine(|_| true))]
    pub engine: Engine,
    /// Use this interface instead of that of the route (socket: SO_BINDTODEVICE)
    #[arg(long, value_name = "IF")]
    pub iface: Option<String>,
    /// af_xdp, and reflect --kernel: how to bind: auto, zerocopy, copy or generic
    #[arg(long, value_name = "MODE", default_value = "auto",
          value_parser = named::<XdpMode>(XdpMode::ALL.iter().map(|mode| mode.name())))]
    pub xdp_mode: XdpMode,
    /// af_xdp: the queues to bind, as 0,1,2 [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = whole(0..=u32::MAX))]
    pub queues: Vec<u32>,
    /// af_xdp: prefer busy polling, with this budget in packets (wrong for veth)
    #[arg(long, value_name = "BUDGET", value_parser = whole(1..=512_u32))]
    pub busy_poll: Option<u32>,
    /// Pin the sending and receiving thread to this processor
    #[arg(long, value_name = "N", value_parser = processor())]
    pub cpu: Option<usize>,
}

impl EngineArgs {
    /// As a part of an instrument's settings.
    pub fn settings(&self) -> EngineSettings {
        let EngineArgs { engine, iface, xdp_mode, queues, busy_poll, cpu } = self.clone();
        EngineSettings { engine, iface, xdp_mode, queues, busy_poll, cpu }
    }
}

/// Options of all streams, which a target of a file may override.
#[derive(Args, Clone, Debug, Default)]
pub struct StreamArgs {
    /// Time between the probes of one stream [default: 1s]
    #[arg(short, long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub interval: Option<i64>,
    /// Stop after this many probes were sent on each stream; a sender that is late and leaves some out
    /// takes longer for them
    #[arg(short, long, value_name = "N", value_parser = parse_count)]
    pub count: Option<u64>,
    /// Length of the IP packet, bytes [default: 72 for IPv4, 92 for IPv6]
    #[arg(short, long, value_name = "BYTES", value_parser = parse_size)]
    pub size: Option<u16>,
    /// DSCP, or a list of them: 0..63, BE, EF, AF41, CS5; one stream each [default: BE]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_dscp)]
    pub dscp: Option<Vec<u8>>,
    /// The reflector's UDP port [default: 862]
    #[arg(short, long, value_name = "PORT", value_parser = parse_port)]
    pub port: Option<u16>,
    /// Streams per destination and DSCP, each from a random source port, for ECMP [default: 1]
    #[arg(long, value_name = "N", value_parser = parse_flows)]
    pub flows: Option<u16>,
    /// With --flows: destination ports drawn from this range; the reflector must listen on all of it
    #[arg(long, value_name = "LOW-HIGH")]
    pub flow_ports: Option<PortRange>,
    /// When probes leave: 'periodic' (RFC 3432) or 'poisson' (RFC 2330) [default: periodic]
    #[arg(long, value_name = "KIND", value_parser = named::<Schedule>(["periodic", "poisson"]))]
    pub schedule: Option<Schedule>,
    /// TTL or hop limit of the probes, 1..255 [default: 255]
    #[arg(long, value_name = "N", value_parser = parse_ttl)]
    pub ttl: Option<u8>,
    /// How the reflector numbers its replies: 'auto', 'stateful' or 'stateless' [default: auto]
    #[arg(long, value_name = "KIND",
          value_parser = named::<ReflectorKind>(["auto", "stateful", "stateless"]))]
    pub reflector: Option<ReflectorKind>,
    /// Send from this address of ours
    #[arg(short = 'S', long, value_name = "ADDR", value_parser = parse_address)]
    pub source: Option<IpAddr>,
    /// First source port; further DSCP classes of a destination take the next ones [default: 62000, or the next that is free]
    #[arg(long, value_name = "BASE", value_parser = parse_port)]
    pub source_port: Option<u16>,
}

impl StreamArgs {
    /// As a part of a probe's settings.
    pub fn options(&self) -> StreamOptions {
        let StreamArgs { interval, count, size, dscp, port, flows, flow_ports, .. } = self.clone();
        let StreamArgs { schedule, ttl, reflector, source, source_port, .. } = *self;
        StreamOptions {
            interval,
            count,
            size,
            dscp,
            port,
            flows,
            flow_ports,
            schedule,
            ttl,
            reflector,
            source,
            source_port,
        }
    }
}

/// Options of the whole run.
#[derive(Args, Clone, Debug, Default)]
pub struct RunArgs {
    /// Stop after this time
    #[arg(short = 'w', long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub duration: Option<i64>,
    /// A probe not answered after this is lost (Tmax of RFC 7680) [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    pub timeout: Option<i64>,
    /// Length of an interval record [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_record_interval)]
    pub record_interval: Option<i64>,
    /// Count and report probes that leave later than this after their time [default: 50us]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub late_limit: Option<i64>,
    /// Seed of everything random, for a run to be repeated [default: 1]
    #[arg(long, value_name = "N", value_parser = whole(0..=u64::MAX))]
    pub seed: Option<u64>,
}

impl RunArgs {
    /// As a part of a probe's settings.
    pub fn options(&self) -> RunOptions {
        let RunArgs { duration, timeout, record_interval, late_limit, seed } = *self;
        RunOptions { duration, timeout, record_interval, late_limit, seed }
    }
}

/// Where records and the run of a probe go.
#[derive(Args, Clone, Debug, Default)]
pub struct ProbeOutputArgs {
    /// Print the summary only
    #[arg(short, long)]
    pub quiet: bool,
    /// A line for each packet, as ping prints it [default: for a single stream on a terminal]
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub per_packet: Option<bool>,
    /// Write interval records to this file, one JSON object a line; '-' is standard output
    #[arg(long, value_name = "FILE")]
    pub jsonl: Option<PathBuf>,
    /// Write the run to this file as JSON ('sonde schema' describes it)
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write interval records to this file as CSV; '-' is standard output
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Print the run as JSON instead of the summary
    #[arg(long)]
    pub json: bool,
}

impl ProbeOutputArgs {
    /// Whether records or the run have standard output: all else then goes to standard error.
    pub fn takes_stdout(&self) -> bool {
        let files = [&self.jsonl, &self.csv, &self.out].into_iter().flatten();
        self.json || files.into_iter().any(|path| path.as_os_str() == "-")
    }
}

#[derive(Args, Debug)]
#[command(after_help = REFLECT_HELP)]
pub struct ReflectArgs {
    /// UDP port to answer on; may be given more than once
    #[arg(short, long, value_name = "PORT", default_value = "862", value_delimiter = ',',
          value_parser = parse_port)]
    pub port: Vec<u16>,
    /// Answer at this address only, as 192.0.2.7 or fe80::1%eth0; may be given more than once.
    /// With --iface also on that interface only
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub bind: Vec<Bind>,
    #[command(flatten, next_help_heading = "Engine")]
    pub engine: EngineArgs,
    /// Answer in the kernel, by an XDP program; what it leaves goes to the engine
    #[arg(long, requires = "iface")]
    pub kernel: bool,
    /// Copy the sender's sequence number instead of counting (RFC 8762, section 4.3)
    #[arg(long)]
    pub stateless: bool,
    /// Answer only senders in this prefix; may be given more than once
    #[arg(long, value_name = "PREFIX")]
    pub allow: Vec<Prefix>,
    /// Answer each source address at most this often a second; 'none': without limit
    #[arg(long, value_name = "PPS[:BURST]", default_value = "250k:62500")]
    pub rate_limit: Limit,
    /// Answer all together at most this often a second; 'none': without limit
    #[arg(long, value_name = "PPS[:BURST]", default_value = "1M:250k")]
    pub total_rate_limit: Limit,
    /// Remember at most this many sessions
    #[arg(long, value_name = "N", default_value = "65536",
          value_parser = whole(1..=MOST_SESSIONS))]
    pub max_sessions: u32,
    /// A session ends after this much silence
    #[arg(long, value_name = "TIME", default_value = "15min", value_parser = parse_session_timeout)]
    pub session_timeout: i64,
    /// Print counters as JSON, one object a line
    #[arg(long)]
    pub json: bool,
    /// Time between counter reports
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_positive_duration)]
    pub report_interval: i64,
}

impl ReflectArgs {
    /// The settings of the reflector.
    pub fn settings(&self) -> ReflectSettings {
        ReflectSettings {
            port: self.port.clone(),
            bind: self.bind.clone(),
            engine: self.engine.settings(),
            kernel: self.kernel,
            stateless: self.stateless,
            allow: self.allow.clone(),
            rate_limit: self.rate_limit,
            total_rate_limit: self.total_rate_limit,
            max_sessions: self.max_sessions,
            session_timeout: self.session_timeout,
            report_interval: self.report_interval,
        }
    }
}

#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Try the engines that need an interface on this one
    #[arg(long, value_name = "IF")]
    pub iface: Option<String>,
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = DEMO_HELP)]
pub struct DemoArgs {
    /// Destinations behind the router
    #[arg(long, value_name = "N", default_value = "4000",
          value_parser = whole(1..=4_000_u32))]
    pub destinations: u32,
    /// DSCP classes, one stream each to every destination
    #[arg(long, value_name = "LIST", default_value = "BE,AF11,AF21,AF41,EF",
          value_delimiter = ',', value_parser = parse_dscp)]
    pub dscp: Vec<u8>,
    /// Packets a second, all streams together: 200k, 50000; if left out, the greatest round
    /// load, up to 200k, that is well within what this machine's virtual network carries
    #[arg(long, value_name = "PPS", value_parser = parse_rate)]
    pub rate: Option<u64>,
    /// How long to send; if left out, 30s, or 4m of a station
    #[arg(short = 'w', long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub duration: Option<i64>,
    /// How packets pass between Sonde and the kernel
    #[arg(long, value_name = "ENGINE", default_value = "af_xdp", value_parser = engine(|_| true))]
    pub engine: Engine,
    /// Write the run to this file
    #[arg(short, long, value_name = "FILE", default_value = "results/demo.json")]
    pub out: PathBuf,
    /// Run a station there instead, with its configuration, store and alerts in this folder: it
    /// probes, watches the router, and tells of a fault that is made after a minute
    #[arg(long, value_name = "FOLDER", conflicts_with = "out", value_hint = clap::ValueHint::DirPath)]
    pub station: Option<PathBuf>,
}

const PROBE_HELP: &str = "\
Example:
  sonde probe 192.0.2.7 -i 10ms -c 1000
  sonde probe 192.0.2.7 --dscp BE,AF41,EF -s 150 -o run.json
  sonde probe --targets targets.toml --engine af_xdp --jsonl records.jsonl
A targets file:
  interval = \"100ms\"
  dscp = [\"BE\", \"EF\"]
  [[target]]
  host = \"10.2.0.1-10.2.15.160\"
  size = 150
A target's own table counts before the command line, that before the top of the file.
Exit codes: 0 every stream answered, 1 some never, 2 usage, 3 cannot run, 4 not saved,
130 interrupted before anything was measured.";

const REFLECT_HELP: &str = "\
Example:
  sonde reflect
  sonde reflect --engine af_xdp --iface eth0 --allow 192.0.2.0/24 --rate-limit 10k:1000
  sonde reflect --kernel --iface eth0
  sonde reflect --bind 192.0.2.7
Exit codes: 0 ended by Ctrl-C, 2 usage, 3 cannot run.";

const DOCTOR_HELP: &str = "\
Example:
  sonde doctor
  sudo sonde doctor --iface eth0 --json
Exit codes: 0 examined, whatever was found (warnings are in the output), 2 usage, 3 the
named interface does not exist.";

const DEMO_HELP: &str = "\
Example:
  sudo sonde demo
  sudo sonde demo --rate 50k --duration 10s --engine socket
  sudo sonde demo --station results/station
Needs root: it makes network namespaces and removes them when it ends.";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use sonde_run::reflect::settings::ReplyRateLimit;

    #[derive(Parser, Debug)]
    struct Probe {
        #[command(flatten)]
        args: ProbeArgs,
    }

    #[derive(Parser, Debug)]
    struct Reflect {
        #[command(flatten)]
        args: ReflectArgs,
    }

    #[derive(Parser, Debug)]
    struct Demo {
        #[command(flatten)]
        args: DemoArgs,
    }

    fn probe(line: &str) -> Result<ProbeArgs, String> {
        Probe::try_parse_from(format!("probe {line}").split_whitespace())
            .map(|p| p.args)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn the_definitions_are_sound_and_every_help_has_an_example() {
        Cli::command().debug_assert();
        for mut command in [Probe::command(), Reflect::command(), Demo::command()] {
            command.clone().debug_assert();
            assert!(command.render_help().to_string().contains("Example:"));
        }
        for sub in Cli::command().get_subcommands_mut().filter(|c| c.get_name() != "help") {
            assert!(sub.render_help().to_string().contains("Example:"), "{}", sub.get_name());
        }
    }

    #[test]
    fn a_full_probe_line() {
        let args = probe(
            "10.0.0.1 host -i 250us -c 10 -w 1m --timeout 500ms -s 150 --dscp EF,AF41,3 -p 8620 \
             -S 10.0.0.9 --source-port 61000 --flows 16 --flow-ports 20000-20099 --seed 7 \
             --schedule poisson --ttl 9 --reflector stateless --engine af_xdp --iface eth0 \
             --xdp-mode copy --queues 0,1 --busy-poll 64 --cpu 1 -q --jsonl - -o r.json --csv c.csv \
             --late-limit 5us --record-interval 1s --per-packet=false -4",
        )
        .unwrap();
        assert_eq!(args.hosts, ["10.0.0.1", "host"]);
        assert_eq!(args.stream.interval, Some(250_000));
        assert_eq!(args.stream.dscp, Some(vec![46, 34, 3]));
        assert_eq!(args.run.timeout, Some(500_000_000));
        assert_eq!(args.engine.engine, Engine::AfXdp);
        assert_eq!(args.engine.queues, [0, 1]);
        assert_eq!(args.output.per_packet, Some(false));
        assert!(args.ipv4 && args.output.quiet);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, part) in [
            ("", "<HOST|--targets <FILE>>"),
            ("h --dscp 64", "'64' is not a DSCP"),
            ("h -i 0", "must be longer than zero"),
            ("h -s 60", "'60' is not an IP packet length in bytes, 72..65535"),
            ("h --engine dpdk", "possible values: socket, af_packet, af_xdp"),
            ("h --xdp-mode fast", "possible values: auto, zerocopy, copy, generic"),
            ("h --busy-poll 513", "'513' is not a whole number, 1..512"),
            ("h -4 -6", "cannot be used with"),
            ("h --timeout 2min", "between 1ms and 60s"),
        ] {
            let message = probe(line).unwrap_err();
            assert!(message.contains(part), "{line}: {message}");
        }
        assert_eq!(probe("h --per-packet").unwrap().output.per_packet, Some(true));
    }

    #[test]
    fn reflectors_arguments() {
        let args = Reflect::try_parse_from(
            "reflect -p 862 -p 8620 --allow 10.0.0.0/8 --allow ::1 --rate-limit 10k:500"
                .split_whitespace(),
        )
        .unwrap()
        .args;
        assert_eq!(args.port, [862, 8620]);
        assert_eq!(args.allow[1], Prefix { address: "::1".parse().unwrap(), bits: 128 });
        assert_eq!(args.rate_limit, Limit(Some(ReplyRateLimit { pps: 10_000, burst: 500 })));
        let total = ReplyRateLimit { pps: 1_000_000, burst: 250_000 };
        assert_eq!(args.total_rate_limit, Limit(Some(total)));
        assert_eq!(args.session_timeout, 900_000_000_000);
        assert_eq!("none".parse::<Limit>(), Ok(Limit(None)));
        let bound: Bind = "fe80::1%eth0".parse().unwrap();
        assert_eq!(bound.interface.as_deref(), Some("eth0"));
        for (text, part) in [
            ("nope", "not an IP address"),
            ("192.0.2.1%eth0", "needs no interface"),
            ("0.0.0.0", "one host"),
        ] {
            assert!(text.parse::<Bind>().unwrap_err().contains(part), "{text}");
        }
        assert_eq!(args.report_interval, 10_000_000_000);
    }
}
