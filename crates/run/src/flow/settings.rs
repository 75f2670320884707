//! The settings of flow metering.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::choice;
use sonde_results::units::{SECOND, parse_amount};
use sonde_wire::prefix::Prefix;

use super::collector_address::{CollectorAddress, CollectorTransport};
use super::sampling::{IpProtocol, Sampling};
use crate::bounds::{bounded, bounded_time, longer_than_zero};
use crate::change::{Change, restart};
use crate::engine::twice;
use crate::error::SettingsError;
use crate::files::RunFiles;
use crate::joins::Join;
use crate::{duration, octets, text};

/// Settings of flow metering.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Interfaces to meter, or captures to read one behind the other; `-` is standard input.
    pub sources: Vec<String>,
    /// Stop after this time, ns, more than 0. `None`: without end, or at that of the captures.
    #[serde(with = "duration::option")]
    #[schemars(with = "Option<String>", description = "Stop after this time.")]
    pub duration: Option<i64>,
    /// Capture: engine, workers, processors.
    pub input: InputSettings,
    /// Flow keys, time-outs, fields.
    pub metering: Metering,
    /// Filters and sampling.
    pub selection: Selection,
    /// Collectors and files of flow records.
    pub export: Export,
    /// The fastest flows of now are in the status.
    pub fastest: bool,
    /// Flow records are handed out to the program, too.
    pub records: bool,
}

/// How packets come in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InputSettings {
    /// How interfaces are read; absent: `af_packet`.
    pub engine: Option<InputEngine>,
    /// Metering threads, 1 to 64; packets are divided by a hash that both directions share.
    pub workers: u16,
    /// The metering threads run on these processors, in order.
    pub cpus: Vec<usize>,
    /// Packets are cut to so many octets, at least 64, before they are handed up.
    pub trim: Option<u16>,
    /// The interfaces are mirror ports: what they receive may be taken from the host.
    pub mirror: bool,
}

impl Default for InputSettings {
    fn default() -> Self {
        InputSettings { engine: None, workers: 1, cpus: Vec::new(), trim: None, mirror: false }
    }
}

/// What becomes a flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Metering {
    /// A flow without packets for this time has ended: ns, 1 ms to 12 h; by default 30 s.
    #[serde(with = "duration")]
    #[schemars(with = "String", description = "A flow without packets for this time has ended.")]
    pub idle: i64,
    /// A flow that lasts longer is reported, and goes on in a further record: ns, 1 ms to 12 h; by
    /// default 300 s.
    #[serde(with = "duration")]
    #[schemars(
        with = "String",
        description = "A flow that lasts longer is reported, and goes on in a further record."
    )]
    pub active: i64,
    /// Flows held at once by all workers, at most: 64 to 268,435,456.
    pub flows: u32,
    /// Each direction is a flow of its own.
    pub uniflow: bool,
    /// Interfaces that are one observation point, as the two ports of a tap are: `all`, or
    /// `eth0,eth1`.
    #[serde(with = "text::list")]
    #[schemars(with = "Vec<String>")]
    pub join: Vec<Join>,
    /// Leave the VLAN out of a flow's key, where each direction has its own.
    pub no_vlan_in_key: bool,
    /// Which IP header of a tunnel is metered.
    pub keys: TunnelKeys,
    /// Kept beyond the basic record: `link`, `packets=N`, `spread`, `tcp`, `apps`.
    #[serde(with = "text::list")]
    #[schemars(with = "Vec<String>")]
    pub fields: Vec<Field>,
    /// Seed of the cache's hash, for a run to be repeated; absent: random.
    pub seed: Option<u64>,
}

impl Default for Metering {
    fn default() -> Self {
        Metering {
            idle: 30 * SECOND,
            active: 300 * SECOND,
            flows: 1 << 20,
            uniflow: false,
            join: Vec::new(),
            no_vlan_in_key: false,
            keys: TunnelKeys::Outer,
            fields: Vec::new(),
            seed: None,
        }
    }
}

/// Which packets are metered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Selection {
    /// How packets are sampled, as `1/100`, `flow:1/8`; absent: all are metered.
    #[serde(with = "text::option")]
    #[schemars(with = "Option<String>")]
    pub sample: Option<Sampling>,
    /// Key of samples by hash: the same wherever the same are to be taken.
    pub sample_key: u32,
    /// Only these IP protocols, by name or number; none: all.
    #[serde(with = "text::list")]
    #[schemars(with = "Vec<String>")]
    pub proto: Vec<IpProtocol>,
    /// Only traffic from or to these prefixes; none: all.
    #[serde(with = "text::list")]
    #[schemars(with = "Vec<String>")]
    pub net: Vec<Prefix>,
    /// Only traffic from or to these ports; none: all.
    pub port: Vec<u16>,
}

/// Where flow records go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Export {
    /// Collectors: `udp://`, `tcp://`, `tls://` or `sctp://` HOST[:PORT].
    #[serde(with = "text::list")]
    #[schemars(with = "Vec<String>")]
    pub export: Vec<CollectorAddress>,
    /// Files, `.ipfix` (RFC 5655) or `.parquet`.
    pub write: Vec<PathBuf>,
    /// Parquet: after this time, or a million rows, goes on in FILE-0002.parquet and so on. In ns,
    /// more than 0; by default 300 s.
    #[serde(with = "duration")]
    #[schemars(
        with = "String",
        description = "Parquet: after this time, or a million rows, goes on in FILE-0002.parquet and so on."
    )]
    pub rotate: i64,
    /// IPFIX files: an MD5 checksum in each message (RFC 5655, section 8.1.1).
    pub checksums: bool,
    /// A file of one JSON object a line.
    pub jsonl: Option<PathBuf>,
    /// Version of the export protocol.
    pub format: ExportFormat,
    /// IPFIX: both directions in one record (RFC 5103).
    pub biflow: bool,
    /// IPFIX: unit of times.
    pub times: TimeUnits,
    /// Observation domain (IPFIX) or source (NetFlow v9) identifier.
    pub domain: u32,
    /// UDP: templates are sent again after this time, ns, more than 0; by default 600 s.
    #[serde(with = "duration")]
    #[schemars(with = "String", description = "UDP: templates are sent again after this time.")]
    pub template_every: i64,
    /// UDP: messages a second to each collector at most; 0: as many as can be sent.
    pub udp_rate: u32,
    /// TCP and TLS: what a collector cannot take waits in this folder.
    pub spool: Option<PathBuf>,
    /// Octets that may wait there for one collector.
    #[serde(with = "octets")]
    #[schemars(schema_with = "octets::schema")]
    pub spool_max: u64,
    /// TLS: certificates of the authorities that collectors are trusted by (PEM).
    pub tls_ca: Option<PathBuf>,
    /// TLS: our certificate (PEM).
    pub tls_cert: Option<PathBuf>,
    /// TLS: its key (PEM).
    pub tls_key: Option<PathBuf>,
}

impl Default for Export {
    fn default() -> Self {
        Export {
            export: Vec::new(),
            write: Vec::new(),
            rotate: 300 * SECOND,
            checksums: false,
            jsonl: None,
            format: ExportFormat::Ipfix,
            biflow: false,
            times: TimeUnits::Ms,
            domain: 1,
            template_every: 600 * SECOND,
            udp_rate: 4_000,
            spool: None,
            spool_max: 1 << 30,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
        }
    }
}

choice! {
    /// How interfaces are read.
    pub enum InputEngine {
        /// Packet sockets: both directions, copies, all fields
        AfPacket = "af_packet",
        /// An XDP program parses and passes 64 bytes a packet up: received packets, basic fields
        Header = "header",
        /// AF_XDP: takes packets from a mirror port (needs --mirror), all fields
        AfXdp = "af_xdp",
    }
}

choice! {
    /// Which IP header of a tunnel is metered.
    pub enum TunnelKeys {
        /// That of the tunnel
        Outer = "outer",
        /// That inside IP in IP, GRE, VXLAN, GENEVE and GTP-U
        Inner = "inner",
    }
}

choice! {
    /// What collectors get.
    pub enum ExportFormat {
        /// RFC 7011
        Ipfix = "ipfix",
        /// RFC 3954
        Netflow9 = "netflow9",
        /// IPv4 only, no more than 32 bits a counter
        Netflow5 = "netflow5",
    }
}

choice! {
    /// Unit of times in IPFIX.
    pub enum TimeUnits {
        /// Milliseconds: what collectors know
        Ms = "ms",
        /// Microseconds (NTP format)
        Us = "us",
        /// Nanoseconds (NTP format)
        Ns = "ns",
    }
}

impl Settings {
    /// What going over to `new` takes.
    pub fn change(&self, new: &Settings) -> Change {
        restart(self, new)
    }

    /// Whether they can be: the first that cannot is named.
    ///
    /// # Errors
    /// A value out of its range, two that do not go together, no source.
    pub fn check(&self) -> Result<(), SettingsError> {
        let Settings { input, metering, selection, export, .. } = self;
        if self.sources.is_empty() {
            return Err(SettingsError::new("sources", "name an interface or a capture"));
        }
        longer_than_zero("duration", self.duration)?;
        bounded("input.workers", input.workers, 1..=MOST_WORKERS)?;
        if let Some(octets) = input.trim {
            bounded("input.trim", octets, LEAST_TRIM..)?;
        }
        bounded_time("metering.idle", metering.idle, FLOW_TIMEOUT)?;
        bounded_time("metering.active", metering.active, FLOW_TIMEOUT)?;
        longer_than_zero("export.rotate", export.rotate)?;
        longer_than_zero("export.template_every", export.template_every)?;
        parse_cache_size(&metering.flows.to_string())
            .map_err(|why| SettingsError::new("metering.flows", why))?;
        self.check_input()?;
        if metering.uniflow && export.biflow {
            return Err(SettingsError::new(
                "export.biflow",
                "there are no biflows with `metering.uniflow`",
            ));
        }
        if export.tls_cert.is_some() != export.tls_key.is_some() {
            return Err(SettingsError::new(
                "export.tls_cert",
                "a certificate and its key go together",
            ));
        }
        if input.cpus.len() > usize::from(input.workers) {
            let (cpus, workers) = (input.cpus.len(), input.workers);
            let why = format!(
                "{cpus} processors are more than `input.workers = {workers}`; name one for each"
            );
            return Err(SettingsError::new("input.cpus", why));
        }
        if selection.sample_key != 0 && !selection.sample.is_some_and(Sampling::has_key) {
            return Err(SettingsError::new(
                "selection.sample_key",
                "it is for `selection.sample` by flow:, packet: or crc:; leave it out",
            ));
        }
        let kinds: Vec<_> = metering.fields.iter().map(std::mem::discriminant).collect();
        if let Some(kind) = twice(&kinds) {
            let field =
                metering.fields.iter().find(|field| std::mem::discriminant(*field) == *kind);
            let name = field.map(Field::to_string).unwrap_or_default();
            let name = name.split('=').next().unwrap_or_default();
            let why = format!("{name} is given twice; give it once");
            return Err(SettingsError::new("metering.fields", why));
        }
        for path in &export.write {
            FlowFileFormat::of(path).map_err(|why| SettingsError::new("export.write", why))?;
        }
        export.check_effects()?;
        export.check_collectors()?;
        self.files().check()
    }

    /// The files that it reads and writes.
    pub fn files(&self) -> RunFiles<'_> {
        let Export { write, jsonl, tls_ca, tls_cert, tls_key, .. } = &self.export;
        let parquet = |path: &&PathBuf| FlowFileFormat::of(path) == Ok(FlowFileFormat::Parquet);
        RunFiles::default()
            .writes("export.write", write)
            .renames(write.iter().filter(parquet))
            .writes("export.jsonl", jsonl)
            .reads("sources", &self.sources)
            .reads("export.tls_ca", tls_ca)
            .reads("export.tls_cert", tls_cert)
            .reads("export.tls_key", tls_key)
    }

    /// What an engine cannot hand up, or must not take.
    fn check_input(&self) -> Result<(), SettingsError> {
        let Settings { input, metering, selection, .. } = self;
        match input.engine {
            Some(InputEngine::AfXdp) if !input.mirror => Err(SettingsError::new(
                "input.mirror",
                "`input.engine = af_xdp` takes packets from the host; say \
                     `input.mirror` if the interfaces only get copies of others' traffic, else use \
                     `input.engine = header` or af_packet",
            )),
            Some(InputEngine::Header) if input.trim.is_some() => Err(SettingsError::new(
                "input.trim",
                "`input.engine = header` hands up no packets; leave it out",
            )),
            Some(InputEngine::Header)
                if metering.fields.iter().any(|f| matches!(f, Field::Link | Field::Apps)) =>
            {
                Err(SettingsError::new(
                    "metering.fields",
                    "`input.engine = header` hands up no packets, and link and \
                     apps need them; use `input.engine = af_packet`, or af_xdp",
                ))
            }
            Some(InputEngine::Header) if matches!(selection.sample, Some(Sampling::Packet(..))) => {
                Err(SettingsError::new(
                    "selection.sample",
                    "`input.engine = header` hands up no packets, and packet: \
                     hashes them; use `selection.sample = flow:N/M`, or `input.engine = af_packet`",
                ))
            }
            Some(InputEngine::AfPacket) | None if input.mirror => Err(SettingsError::new(
                "input.mirror",
                "it is for `input.engine = af_xdp` and header; af_packet takes \
                     nothing from the host",
            )),
            _ => Ok(()),
        }
    }
}

impl Export {
    /// Whether what is set has a destination that it is for.
    fn check_effects(&self) -> Result<(), SettingsError> {
        if let Some(collector) = twice(&self.export) {
            let why = format!("{collector} is given twice, and would get each record twice");
            return Err(SettingsError::new("export.export", why));
        }
        let over = |wanted: &[CollectorTransport]| {
            self.export.iter().any(|collector| wanted.contains(&collector.transport))
        };
        let file = |wanted| self.write.iter().any(|path| FlowFileFormat::of(path) == Ok(wanted));
        let (udp, tls) = (over(&[CollectorTransport::Udp]), over(&[CollectorTransport::Tls]));
        let streams = over(&[CollectorTransport::Tcp, CollectorTransport::Tls]);
        let collectors = !self.export.is_empty();
        let messages = collectors || file(FlowFileFormat::Ipfix);
        let ipfix = collectors && self.format == ExportFormat::Ipfix || file(FlowFileFormat::Ipfix);
        let usual = Export::default();
        let to_collector = "a collector (`export.export`)";
        let to_ipfix = "IPFIX: a collector (`export.export`), or a file (`export.write`) .ipfix";
        for (key, is_set, serves, needs) in [
            (
                "rotate",
                self.rotate != usual.rotate,
                file(FlowFileFormat::Parquet),
                "a file \
              (`export.write`) .parquet",
            ),
            (
                "checksums",
                self.checksums,
                file(FlowFileFormat::Ipfix),
                "a file (`export.write`) \
              .ipfix",
            ),
            ("format", self.format != usual.format, collectors, to_collector),
            ("biflow", self.biflow, ipfix, to_ipfix),
            ("times", self.times != usual.times, ipfix, to_ipfix),
            ("domain", self.domain != usual.domain, messages, to_ipfix),
            (
                "template_every",
                self.template_every != usual.template_every,
                udp,
                "a collector \
              (`export.export`) udp://",
            ),
            (
                "udp_rate",
                self.udp_rate != usual.udp_rate,
                udp,
                "a collector (`export.export`) \
              udp://",
            ),
            (
                "spool",
                self.spool.is_some(),
                streams,
                "a collector (`export.export`) tcp:// or \
              tls://",
            ),
            (
                "spool_max",
                self.spool_max != usual.spool_max,
                self.spool.is_some(),
                "a folder \
              (`export.spool`)",
            ),
            ("tls_ca", self.tls_ca.is_some(), tls, "a collector (`export.export`) tls://"),
            ("tls_cert", self.tls_cert.is_some(), tls, "a collector (`export.export`) tls://"),
        ] {
            if is_set && !serves {
                let why = format!("it is for {needs}, and there is none; leave it out");
                return Err(SettingsError::new(&format!("export.{key}"), why));
            }
        }
        Ok(())
    }
}

impl Export {
    /// Whether each collector can get what it is to get.
    fn check_collectors(&self) -> Result<(), SettingsError> {
        for collector in &self.export {
            let transport = collector.transport;
            if self.format != ExportFormat::Ipfix && transport != CollectorTransport::Udp {
                let why = "NetFlow goes over UDP; use udp://, or `export.format = ipfix`";
                return Err(SettingsError::new("export.export", format!("{collector}: {why}")));
            }
            if transport == CollectorTransport::Tls {
                self.authorities(&collector.host)?;
            }
        }
        Ok(())
    }

    /// The file of the authorities by which the collector `host` is trusted.
    pub(super) fn authorities(&self, host: &str) -> Result<&Path, SettingsError> {
        self.tls_ca.as_deref().ok_or_else(|| {
            let why = format!("name the certificates that {host} is trusted by");
            SettingsError::new("export.tls_ca", why)
        })
    }
}

/// What a file of flow records holds, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowFileFormat {
    /// `.ipfix`, RFC 5655.
    Ipfix,
    /// `.parquet`
    Parquet,
}

impl FlowFileFormat {
    /// That of the file at `path`.
    ///
    /// # Errors
    /// Its extension names none.
    pub fn of(path: &Path) -> Result<FlowFileFormat, String> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("ipfix") => Ok(FlowFileFormat::Ipfix),
            Some("parquet") => Ok(FlowFileFormat::Parquet),
            _ => Err(format!(
                "the extension of {} names no format; call it .ipfix or .parquet, or use \
                 `export.jsonl`",
                path.display()
            )),
        }
    }
}

/// What is kept beyond the basic record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// MAC addresses, inner VLAN, MPLS labels, tunnel.
    Link,
    /// Lengths and times of the first so many packets with payload.
    Packets(u8),
    /// Histograms of lengths and gaps.
    Spread,
    /// TCP performance.
    Tcp,
    /// What the application says.
    Apps,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Link => f.write_str("link"),
            Field::Packets(n) => write!(f, "packets={n}"),
            Field::Spread => f.write_str("spread"),
            Field::Tcp => f.write_str("tcp"),
            Field::Apps => f.write_str("apps"),
        }
    }
}

impl FromStr for Field {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "link" => Field::Link,
            "packets" => Field::Packets(PACKETS),
            "spread" => Field::Spread,
            "tcp" => Field::Tcp,
            "apps" => Field::Apps,
            _ => match text.strip_prefix("packets=").map(str::parse) {
                Some(Ok(n @ 1..=MOST_PACKETS)) => Field::Packets(n),
                Some(_) => {
                    return Err(format!(
                        "'{text}' is out of range; packets=1..packets={MOST_PACKETS}"
                    ));
                }
                None => {
                    return Err(format!(
                        "'{text}' is no field; choose link, packets, spread, tcp or apps"
                    ));
                }
            },
        })
    }
}

/// A size of the flow cache, in flows: "1048576", "2M".
///
/// # Errors
/// Not an amount, or out of range.
pub fn parse_cache_size(text: &str) -> Result<u32, String> {
    text::flows(text, parse_amount(text)?, CACHE_SIZE)
}

/// Time-outs of flows, ns.
const FLOW_TIMEOUT: RangeInclusive<i64> = 1_000_000..=12 * 3_600 * SECOND;
/// Threads beyond are a mistake.
const MOST_WORKERS: u16 = 64;
/// Less has no room for the headers.
const LEAST_TRIM: u16 = 64;
/// Flows in the cache.
const CACHE_SIZE: RangeInclusive<u32> = 64..=1 << 28;
/// Of `packets` without a count.
const PACKETS: u8 = 30;
/// As ipfixprobe's pstats at most.
const MOST_PACKETS: u8 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_go_together_is_named_by_its_key() {
        let wrong = |change: fn(&mut Settings)| {
            let mut settings = Settings { sources: vec!["eth0".into()], ..Settings::default() };
            assert_eq!(settings.check(), Ok(()));
            change(&mut settings);
            settings.check().unwrap_err().message
        };
        let header = |s: &mut Settings| s.input.engine = Some(InputEngine::Header);
        assert!(wrong(|s| s.input.mirror = true).starts_with("input.mirror: "));
        let taken = wrong(|s| s.input.engine = Some(InputEngine::AfXdp));
        assert!(taken.starts_with("input.mirror: "), "{taken}");
        let mut settings = Settings { sources: vec!["eth0".into()], ..Settings::default() };
        header(&mut settings);
        for (key, change) in [
            ("input.trim", (|s| s.input.trim = Some(96)) as fn(&mut Settings)),
            ("metering.fields", |s| s.metering.fields = vec![Field::Apps]),
            ("selection.sample", |s| s.selection.sample = Some("packet:1/8".parse().unwrap())),
        ] {
            let mut settings = settings.clone();
            change(&mut settings);
            let wrong = settings.check().unwrap_err();
            assert!(wrong.message.starts_with(&format!("{key}: ")), "{wrong}");
            assert_eq!(wrong.key.as_deref(), Some(key));
        }
        let name = wrong(|s| s.export.write = vec!["flows.csv".into()]);
        assert!(name.starts_with("export.write: ") && name.contains("flows.csv"), "{name}");
        for change in [(|s| s.metering.idle = 1) as fn(&mut Settings), |s| {
            s.metering.active = 12 * 3_600 * SECOND + 1
        }] {
            assert!(wrong(change).ends_with("between 1ms and 12h"));
        }
        let cpus = wrong(|s| s.input.cpus = vec![0, 1]);
        assert!(cpus.starts_with("input.cpus: ") && cpus.contains("`input.workers = 1`"), "{cpus}");
        let fields = wrong(|s| s.metering.fields = vec![Field::Packets(3), Field::Packets(5)]);
        assert_eq!(fields, "metering.fields: packets is given twice; give it once");
        let key = wrong(|s| {
            (s.selection.sample_key, s.selection.sample) = (5, Some("1/8".parse().unwrap()));
        });
        assert!(key.starts_with("selection.sample_key: "), "{key}");
        let both = wrong(|s| (s.metering.uniflow, s.export.biflow) = (true, true));
        assert!(both.starts_with("export.biflow: "), "{both}");
    }

    #[test]
    fn what_has_no_destination_to_serve_is_refused() {
        let at = |url: &str| vec![url.parse::<CollectorAddress>().unwrap()];
        let file = |name: &str| Export { write: vec![name.into()], ..Export::default() };
        let to = |url: &str| Export { export: at(url), ..Export::default() };
        type Change = fn(&mut Export);
        let cases: [(&str, Change, Export, Export); 12] = [
            ("rotate", |e| e.rotate = SECOND, file("a.parquet"), file("a.ipfix")),
            ("checksums", |e| e.checksums = true, file("a.ipfix"), file("a.parquet")),
            ("format", |e| e.format = ExportFormat::Netflow9, to("udp://a"), file("a.ipfix")),
            ("biflow", |e| e.biflow = true, file("a.ipfix"), file("a.parquet")),
            ("times", |e| e.times = TimeUnits::Ns, to("tcp://a"), Export::default()),
            ("domain", |e| e.domain = 7, to("tcp://a"), file("a.parquet")),
            ("template_every", |e| e.template_every = SECOND, to("udp://a"), to("tcp://a")),
            ("udp_rate", |e| e.udp_rate = 7, to("udp://a"), to("sctp://a")),
            ("spool", |e| e.spool = Some("s".into()), to("tcp://a"), to("udp://a")),
            (
                "spool_max",
                |e| e.spool_max = 7,
                Export { spool: Some("s".into()), ..to("tcp://a") },
                to("tcp://a"),
            ),
            ("tls_ca", |e| e.tls_ca = Some("c".into()), to("tls://a"), to("tcp://a")),
            (
                "tls_cert",
                |e| (e.tls_cert, e.tls_key) = (Some("c".into()), Some("k".into())),
                Export { tls_ca: Some("c".into()), ..to("tls://a") },
                to("tcp://a"),
            ),
        ];
        for (key, change, serves, not) in cases {
            for (mut export, good) in [(serves, true), (not, false)] {
                change(&mut export);
                let settings =
                    Settings { sources: vec!["eth0".into()], export, ..Settings::default() };
                let wrong = settings.check().err().map(|wrong| wrong.message);
                assert_eq!(wrong.is_none(), good, "{key}: {wrong:?}");
                assert!(wrong.is_none_or(|w| w.starts_with(&format!("export.{key}: "))), "{key}");
            }
        }
        let twice =
            Export { export: [at("udp://a"), at("udp://a:4739")].concat(), ..Export::default() };
        assert!(twice.check_effects().unwrap_err().message.contains("given twice"));
        let untrusted = to("tls://a").check_collectors().unwrap_err();
        assert_eq!(untrusted.key.as_deref(), Some("export.tls_ca"));
        let netflow = Export { format: ExportFormat::Netflow9, ..to("tcp://a") };
        let over_tcp = netflow.check_collectors().unwrap_err();
        assert!(over_tcp.message.starts_with("export.export: tcp://a:4739: NetFlow"), "{over_tcp}");
    }
}
