//! The command line: what can be typed, and its help.

use clap::{ArgAction, ArgGroup, Args, Parser, Subcommand, ValueEnum};
use sonde_port::{Engine, XdpMode};
use sonde_results::units::{parse_dscp, parse_positive_duration, parse_rate};
use sonde_wire::prefix::Prefix;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::exit;
use crate::flow::args::FlowCommand;
use crate::rtt::args::RttArgs;
use crate::settings::{RunOptions, StreamOptions, parse_port};

/// Measures networks, and says how far each of its numbers can be trusted.
#[derive(Parser, Debug)]
#[command(name = "sonde", version, max_term_width = 100, after_help = exit::HELP)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
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
    /// Run the main job on real packets, in three network namespaces
    Demo(DemoArgs),
    /// Print the JSON schema of run files
    #[command(after_help = SCHEMA_HELP)]
    Schema(SchemaArgs),
}

/// `sonde schema`
#[derive(Args, Debug)]
pub struct SchemaArgs {
    /// Whose run files
    #[arg(value_enum, default_value = "probe", value_name = "INSTRUMENT")]
    pub instrument: RunKind,
}

/// What wrote a run file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RunKind {
    /// `sonde probe` and `sonde demo`
    Probe,
    /// `sonde rtt`
    Rtt,
    /// `sonde flow`
    Flow,
    /// `sonde bench`: its folder as one document
    Bench,
}

/// `sonde probe`
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
    /// What is sent.
    #[command(flatten, next_help_heading = "Probes")]
    pub stream: StreamOptions,
    /// How the run goes.
    #[command(flatten, next_help_heading = "Run")]
    pub run: RunOptions,
    /// How packets are sent and received.
    #[command(flatten, next_help_heading = "Engine")]
    pub engine: EngineArgs,
    /// Where the numbers go.
    #[command(flatten, next_help_heading = "Output")]
    pub output: OutputArgs,
}

/// How packets are sent and received.
#[derive(Args, Clone, Debug)]
pub struct EngineArgs {
    /// socket (needs no privilege), af_packet or af_xdp
    #[arg(long, default_value = "socket", value_parser = parse_engine)]
    pub engine: Engine,
    /// Use this interface instead of that of the route (socket: SO_BINDTODEVICE)
    #[arg(long, value_name = "IF")]
    pub iface: Option<String>,
    /// af_xdp: how to bind: auto, zerocopy, copy or generic
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = parse_xdp_mode)]
    pub xdp_mode: XdpMode,
    /// af_xdp: the queues to bind, as 0,1,2 [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub queues: Vec<u32>,
    /// af_xdp: prefer busy polling, with this budget in packets (wrong for veth)
    #[arg(long, value_name = "BUDGET", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub busy_poll: Option<u32>,
    /// Pin the sending and receiving thread to this processor
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
}

/// Where the numbers go.
#[derive(Args, Clone, Debug, Default)]
pub struct OutputArgs {
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

impl OutputArgs {
    /// Whether records or the run have standard output: all else then goes to standard error.
    pub fn takes_stdout(&self) -> bool {
        let files = [&self.jsonl, &self.csv, &self.out].into_iter().flatten();
        self.json || files.into_iter().any(|path| path.as_os_str() == "-")
    }
}

/// `sonde reflect`
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
    /// How packets are received and sent.
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
          value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
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

/// `sonde doctor`
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Try the engines that need an interface on this one
    #[arg(long, value_name = "IF")]
    pub iface: Option<String>,
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
}

/// `sonde demo`
#[derive(Args, Debug)]
#[command(after_help = DEMO_HELP)]
pub struct DemoArgs {
    /// Destinations behind the router
    #[arg(long, value_name = "N", default_value = "4000",
          value_parser = clap::value_parser!(u32).range(1..=4_000))]
    pub destinations: u32,
    /// DSCP classes, one stream each to every destination
    #[arg(long, value_name = "LIST", default_value = "BE,AF11,AF21,AF41,EF",
          value_delimiter = ',', value_parser = parse_dscp)]
    pub dscp: Vec<u8>,
    /// Packets a second, all streams together: 200k, 50000; if left out, the greatest round
    /// load, up to 200k, that is well within what this machine's virtual network carries
    #[arg(long, value_name = "PPS", value_parser = parse_rate)]
    pub rate: Option<u64>,
    /// How long to send
    #[arg(short = 'w', long, value_name = "TIME", default_value = "30s",
          value_parser = parse_positive_duration)]
    pub duration: i64,
    /// socket, af_packet or af_xdp
    #[arg(long, default_value = "af_xdp", value_parser = parse_engine)]
    pub engine: Engine,
    /// Write the run to this file
    #[arg(short, long, value_name = "FILE", default_value = "results/demo.json")]
    pub out: PathBuf,
}

/// A token bucket's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Replies a second.
    pub pps: u64,
    /// Replies that may follow each other at once; by default those of a tenth of a second.
    pub burst: u64,
}

impl FromStr for RateLimit {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (pps, burst) = match text.split_once(':') {
            Some((pps, burst)) => (parse_rate(pps)?, Some(parse_rate(burst)?)),
            None => (parse_rate(text)?, None),
        };
        Ok(RateLimit { pps, burst: burst.unwrap_or((pps / 10).max(1)) })
    }
}

/// A limit, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<RateLimit>);

impl FromStr for Limit {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(Limit(None)) } else { text.parse().map(|limit| Limit(Some(limit))) }
    }
}

/// An address of this host, with the interface that a link-local one belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The address.
    pub address: IpAddr,
    /// Its interface.
    pub interface: Option<String>,
}

impl FromStr for Bind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (address, interface) = match text.split_once('%') {
            Some((address, interface)) => (address, Some(interface.to_owned())),
            None => (text, None),
        };
        let parsed: IpAddr =
            address.parse().map_err(|_| format!("'{address}' is not an IP address"))?;
        let link_local = matches!(parsed, IpAddr::V6(a) if a.is_unicast_link_local());
        if interface.is_some() && !link_local {
            return Err(format!(
                "'{address}' needs no interface; '%' is for addresses in fe80::/10"
            ));
        }
        if parsed.is_unspecified() || parsed.is_multicast() {
            return Err(format!("'{address}' is not the address of one host"));
        }
        Ok(Bind { address: parsed, interface })
    }
}

fn parse_session_timeout(text: &str) -> Result<i64, String> {
    let nanos = parse_positive_duration(text)?;
    if nanos < 1_000_000_000 {
        return Err(format!("'{text}' is too short for a session; use 1s or more"));
    }
    Ok(nanos)
}

fn parse_engine(text: &str) -> Result<Engine, String> {
    text.parse::<Engine>().map_err(|e| e.to_string())
}

fn parse_xdp_mode(text: &str) -> Result<XdpMode, String> {
    match text {
        "auto" => Ok(XdpMode::Auto),
        "zerocopy" => Ok(XdpMode::ZeroCopy),
        "copy" => Ok(XdpMode::Copy),
        "generic" => Ok(XdpMode::Generic),
        _ => Err(format!("'{text}' is not a mode; write auto, zerocopy, copy or generic")),
    }
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

const SCHEMA_HELP: &str = "\
Example:
  sonde schema > run.schema.json
  sonde schema rtt > rtt.schema.json";

const DEMO_HELP: &str = "\
Example:
  sudo sonde demo
  sudo sonde demo --rate 50k --duration 10s --engine socket
Needs root: it makes network namespaces and removes them when it ends.";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

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
            ("h --engine dpdk", "choose socket, af_packet or af_xdp"),
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
        assert_eq!(args.rate_limit, Limit(Some(RateLimit { pps: 10_000, burst: 500 })));
        let total = RateLimit { pps: 1_000_000, burst: 250_000 };
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
