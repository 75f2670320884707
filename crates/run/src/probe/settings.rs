//! Settings of streams and of a run, wherever they were given.
//!
//! The most specific setting counts. The order is: a target's own table in the file, the
//! command line, the top of the file, the built-in default.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
pub use sonde_meter::stamp::{ReflectorKind, Schedule};
use sonde_results::units::{
    SECOND, format_dscp, format_duration, parse_amount, parse_duration, parse_within,
};

pub use super::names::Family;
use super::names::{group_address, is_group};
use crate::bounds::{bounded, bounded_time};
use crate::change::Change;
use crate::engine::{Engine, EngineSettings, twice};
use crate::error::{FileLine, SettingsError};
use crate::{duration, text};

/// Settings of a probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where probes go, in this order.
    #[serde(rename = "target")]
    pub targets: Vec<TargetEntry>,
    /// Of all targets that say nothing themselves.
    pub stream: StreamOptions,
    /// The run as a whole.
    pub run: RunOptions,
    /// Which addresses of a name will do.
    pub family: Family,
    /// Every address of a name is a target, not only the first that there is a way to.
    pub all_addresses: bool,
    /// Probes longer than the path's MTU go in pieces, instead of with "don't fragment".
    pub fragment: bool,
    /// How packets are sent and received.
    pub engine: EngineSettings,
    /// The fate of each packet is handed out, too.
    pub samples: bool,
}

/// What can be said about a target's streams. Absent: look one step further.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StreamOptions {
    /// Time between the probes of one stream, ns, 1 ns to 8784 h. `None`: 1 s.
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    #[schemars(
        with = "Option<String>",
        description = "Time between the probes of one stream [default: 1s]"
    )]
    pub interval: Option<i64>,
    /// Stop after this many probes on each stream
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Length of the IP packet, bytes [default: 72 for IPv4, 92 for IPv6]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u16>,
    /// DSCPs, each 0..=63, one stream each [default: 0]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Vec<u8>>,
    /// The reflector's UDP port [default: 862]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Streams per destination and DSCP, each from a random source port, for ECMP [default: 1]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<u16>,
    /// With several flows: destination ports drawn from this range; the reflector must listen on all of it
    #[serde(with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub flow_ports: Option<PortRange>,
    /// When probes leave: 'periodic' (RFC 3432) or 'poisson' (RFC 2330) [default: periodic]
    #[serde(with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schedule_names")]
    pub schedule: Option<Schedule>,
    /// TTL or hop limit of the probes, 1..255 [default: 255]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u8>,
    /// How the reflector numbers its replies: 'auto', 'stateful' or 'stateless' [default: auto]
    #[serde(with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "reflector_names")]
    pub reflector: Option<ReflectorKind>,
    /// Send from this address of ours
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// First source port; further DSCP classes of a destination take the next ones [default: 62000, or the next that is free]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
}

fn schedule_names(_: &mut SchemaGenerator) -> Schema {
    text::one_of_or_none(&[Schedule::Periodic, Schedule::Poisson])
}

fn reflector_names(_: &mut SchemaGenerator) -> Schema {
    use ReflectorKind::{Auto, Stateful, Stateless};
    text::one_of_or_none(&[Auto, Stateful, Stateless])
}

/// What can be said about a whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunOptions {
    /// How long probes are sent, ns, 1 ns to 600,000 h. `None`: until their count or a stop.
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", description = "Stop after this time")]
    pub duration: Option<i64>,
    /// A probe not answered after this is lost (Tmax of RFC 7680), ns, 1 ms to 60 s. `None`: 2 s.
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    #[schemars(
        with = "Option<String>",
        description = "A probe not answered after this is lost (Tmax of RFC 7680) [default: 2s]"
    )]
    pub timeout: Option<i64>,
    /// Length of an interval record, ns, 100 ms to 24 h. `None`: 10 s.
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    #[schemars(
        with = "Option<String>",
        description = "Length of an interval record [default: 10s]"
    )]
    pub record_interval: Option<i64>,
    /// Probes that leave later than this after their time are counted, ns, at least 0. `None`: 50
    /// us.
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    #[schemars(
        with = "Option<String>",
        description = "Count and report probes that leave later than this after their time [default: 50us]"
    )]
    pub late_limit: Option<i64>,
    /// Seed of everything random, for a run to be repeated [default: 1]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// One target, or a range of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetEntry {
    /// Name, address, range or prefix.
    pub host: String,
    /// What to call it in the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of a range or prefix, take only so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// What this target sets differently from the run.
    #[serde(default)]
    pub stream: StreamOptions,
    /// Where it stands in a targets file; `None`: it came from elsewhere.
    #[serde(skip)]
    pub at: Option<FileLine>,
}

/// A target by what it is, wherever it stands.
struct Named<'a>(&'a TargetEntry);

impl PartialEq for Named<'_> {
    fn eq(&self, other: &Self) -> bool {
        let of = |entry: &TargetEntry| (entry.host.clone(), entry.name.clone(), entry.first);
        of(self.0) == of(other.0)
    }
}

type Resolved<'a> = (Named<'a>, StreamSettings);

impl TargetEntry {
    /// The path of a setting of its streams, by that of all streams: its own if `is_own`.
    pub(super) fn stream_key(
        &self,
        of_all: &'static str,
        is_own: impl Fn(&StreamOptions) -> bool,
    ) -> String {
        self.stream.key(of_all, is_own)
    }

    /// A host without settings of its own.
    pub fn of(host: impl Into<String>) -> TargetEntry {
        TargetEntry { host: host.into(), ..TargetEntry::default() }
    }
}

impl Settings {
    /// What going over to `new` takes.
    pub fn change(&self, new: &Settings) -> Change {
        let differ: Vec<&str> = [
            ("run", self.run != new.run),
            ("family", self.family != new.family),
            ("all_addresses", self.all_addresses != new.all_addresses),
            ("fragment", self.fragment != new.fragment),
            ("engine", self.engine != new.engine),
            ("samples", self.samples != new.samples),
        ]
        .into_iter()
        .filter_map(|(key, differs)| differs.then_some(key))
        .collect();
        if !differ.is_empty() {
            return Change::Restart(format!("{} cannot change while it runs", differ.join(", ")));
        }
        let (old, new) = (self.resolved(), new.resolved());
        let lacking = |of: &[Resolved<'_>], others: &[Resolved<'_>]| -> Vec<String> {
            let lacks = of.iter().filter(|target| !others.contains(target));
            lacks.map(|(entry, _)| entry.0.host.clone()).collect()
        };
        let (added, ended) = (lacking(&new, &old), lacking(&old, &new));
        match (added.is_empty(), ended.is_empty()) {
            (true, true) => Change::Same,
            _ => Change::Live { added, ended },
        }
    }

    /// What each entry is called in results, and how its streams are sent. Of an entry of many addresses
    /// each target has its address in its name, too.
    pub fn named_streams(&self) -> impl Iterator<Item = (&str, StreamSettings)> {
        self.targets.iter().map(|entry| {
            let name = entry.name.as_ref().unwrap_or(&entry.host).as_str();
            (name, entry.stream.clone().or(&self.stream).resolve())
        })
    }

    /// Whether no two entries have one name and one class: who judges by names cannot tell them apart.
    ///
    /// # Errors
    /// The second of the first two that have, with the line of both.
    pub fn check_names(&self) -> Result<(), SettingsError> {
        let mut seen: HashMap<(&str, u8), &TargetEntry> = HashMap::new();
        for (entry, (name, stream)) in self.targets.iter().zip(self.named_streams()) {
            for dscp in stream.dscp {
                let Some(twin) = seen.insert((name, dscp), entry) else { continue };
                let line = twin.at.as_ref().map_or(String::new(), |at| format!(", at {at}"));
                let why = format!(
                    "'{name}' is the name of the target {}{line}, too, in the class {}; give each a \
                     `name` of its own",
                    twin.host,
                    format_dscp(dscp)
                );
                return Err(SettingsError::of("target.name", why).at(entry.at.as_ref()));
            }
        }
        Ok(())
    }

    /// All targets with all that holds for each.
    fn resolved(&self) -> Vec<Resolved<'_>> {
        let whole = |entry: &TargetEntry| entry.stream.clone().or(&self.stream).resolve();
        self.targets.iter().map(|entry| (Named(entry), whole(entry))).collect()
    }

    /// Whether they can be: the first that cannot is named.
    ///
    /// # Errors
    /// A value out of its range, two that do not go together, no target.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.targets.is_empty() {
            return Err(SettingsError::new("target", "there is none; name a host"));
        }
        self.stream.check().map_err(|why| why.inside("stream"))?;
        self.run.check().map_err(|why| why.inside("run"))?;
        for target in &self.targets {
            target.stream.check().map_err(|why| {
                let why = why.inside("target.stream");
                why.within(format!("target {}", target.host)).at(target.at.as_ref())
            })?;
            if let Some(address) = group_address(&target.host) {
                let why = format!("{address} is {NO_UNICAST}; measure to a single host");
                return Err(SettingsError::of("target.host", why).at(target.at.as_ref()));
            }
        }
        self.engine.check()?;
        self.check_together()?;
        if self.fragment && self.engine.engine != Engine::Socket {
            return Err(SettingsError::new(
                "fragment",
                format!(
                    "it needs `engine.engine = socket`; {} sends each frame as it is",
                    self.engine.engine.name()
                ),
            ));
        }
        Ok(())
    }
}

impl Settings {
    /// Whether the targets can be, as far as it shows before a name is looked up.
    ///
    /// # Errors
    /// A host that can be none, one of another family than its source, too many streams: the first
    /// of them. The key is that of a targets file.
    pub fn check_hosts(&self) -> Result<(), SettingsError> {
        super::targets::check_hosts(self)
    }

    /// What holds for a target only once all its settings are known.
    fn check_together(&self) -> Result<(), SettingsError> {
        let run = self.run.clone().resolve();
        let resolved = self.resolved();
        for (target, stream) in &resolved {
            if run.record_interval / stream.interval > MOST_PROBES {
                let why = format!(
                    "{} makes more than 2 billion probes in `run.record_interval = {}`, which \
                     cannot be counted; use a longer one, or shorter records",
                    format_duration(stream.interval),
                    format_duration(run.record_interval)
                );
                let key = target.0.stream_key("stream.interval", |own| own.interval.is_some());
                return Err(SettingsError::new(&key, why).at(target.0.at.as_ref()));
            }
        }
        // What is said to all targets has to serve one of them, and what is said to one, that one.
        for ([key, own_key], needed, of, serves) in FLOW_OPTIONS {
            let own = resolved.iter().find(|(t, s)| of(&t.0.stream) && !serves(s));
            if let Some((target, _)) = own {
                let wrong = SettingsError::new(own_key, needed);
                let wrong = wrong.within(format!("target {}", target.0.host));
                return Err(wrong.at(target.0.at.as_ref()));
            }
            if of(&self.stream) && !resolved.iter().any(|(_, s)| serves(s)) {
                return Err(SettingsError::new(key, needed));
            }
        }
        Ok(())
    }
}

const NO_UNICAST: &str = "not a unicast address";

/// Settings whose effect depends on `flows`. Each has the key for all targets and that of one, what
/// it needs, whether it is given, whether it has an effect.
type FlowOption =
    ([&'static str; 2], &'static str, fn(&StreamOptions) -> bool, fn(&StreamSettings) -> bool);
const FLOW_OPTIONS: [FlowOption; 2] = [
    (
        ["stream.flow_ports", "target.stream.flow_ports"],
        "it has no effect without `stream.flows` of 2 or more; leave it out, or use `stream.port`",
        |s| s.flow_ports.is_some(),
        |s| s.flows > 1,
    ),
    (
        ["stream.source_port", "target.stream.source_port"],
        "it has no effect with `stream.flows`, whose source ports are random; leave one out",
        |s| s.source_port.is_some(),
        |s| s.flows == 1,
    ),
];

impl StreamOptions {
    fn check(&self) -> Result<(), SettingsError> {
        if let Some(source) = self.source.filter(is_group) {
            let why = format!("{source} is {NO_UNICAST}; name one of this host's");
            return Err(SettingsError::new("source", why));
        }
        self.interval.map_or(Ok(()), |ns| bounded_time("interval", ns, INTERVAL))?;
        self.count.map_or(Ok(()), |n| bounded("count", n, 1..))?;
        self.size.map_or(Ok(()), |n| bounded("size", n, LEAST_IPV4..=u16::MAX))?;
        self.port.map_or(Ok(()), |n| bounded("port", n, 1..=u16::MAX))?;
        self.flows.map_or(Ok(()), |n| bounded("flows", n, 1..=MOST_FLOWS))?;
        self.ttl.map_or(Ok(()), |n| bounded("ttl", n, 1..=u8::MAX))?;
        self.source_port.map_or(Ok(()), |n| bounded("source_port", n, 1..=u16::MAX))?;
        let dscp = self.dscp.as_deref();
        if dscp.is_some_and(<[u8]>::is_empty) {
            return Err(SettingsError::new("dscp", "the list is empty; leave it out instead"));
        }
        if let Some(dscp) = twice(dscp.unwrap_or_default()) {
            let why = format!("{} is given twice; give it once", format_dscp(*dscp));
            return Err(SettingsError::new("dscp", why));
        }
        dscp.unwrap_or_default().iter().try_for_each(|&dscp| bounded("dscp", dscp, 0..=63))
    }

    /// The path of a setting of a target that has these of its own. It is that of all targets,
    /// `of_all`, or the target's if it is set here.
    pub(super) fn key(&self, of_all: &'static str, is_own: impl Fn(&Self) -> bool) -> String {
        if is_own(self) { format!("target.{of_all}") } else { of_all.into() }
    }

    /// Fills what is absent here from `further`.
    pub fn or(self, further: &StreamOptions) -> StreamOptions {
        StreamOptions {
            interval: self.interval.or(further.interval),
            count: self.count.or(further.count),
            size: self.size.or(further.size),
            dscp: self.dscp.or_else(|| further.dscp.clone()),
            port: self.port.or(further.port),
            flows: self.flows.or(further.flows),
            flow_ports: self.flow_ports.or(further.flow_ports),
            schedule: self.schedule.or(further.schedule),
            ttl: self.ttl.or(further.ttl),
            reflector: self.reflector.or(further.reflector),
            source: self.source.or(further.source),
            source_port: self.source_port.or(further.source_port),
        }
    }

    /// With the built-in defaults.
    pub fn resolve(self) -> StreamSettings {
        StreamSettings {
            interval: self.interval.unwrap_or(SECOND),
            count: self.count,
            size: self.size,
            dscp: self.dscp.unwrap_or_else(|| vec![0]),
            port: self.port.unwrap_or(862),
            flows: self.flows.unwrap_or(1),
            flow_ports: self.flow_ports,
            schedule: self.schedule.unwrap_or(Schedule::Periodic),
            ttl: self.ttl.unwrap_or(255),
            reflector: self.reflector.unwrap_or_default(),
            source: self.source,
            source_port: self.source_port,
        }
    }
}

impl RunOptions {
    fn check(&self) -> Result<(), SettingsError> {
        let RunOptions { duration, timeout, record_interval, late_limit, .. } = *self;
        duration.map_or(Ok(()), |ns| bounded_time("duration", ns, DURATION))?;
        timeout.map_or(Ok(()), |ns| bounded_time("timeout", ns, TIMEOUT))?;
        record_interval
            .map_or(Ok(()), |ns| bounded_time("record_interval", ns, RECORD_INTERVAL))?;
        late_limit.map_or(Ok(()), |ns| bounded_time("late_limit", ns, 0..))
    }

    /// Fills what is absent here from `further`.
    pub fn or(self, further: &RunOptions) -> RunOptions {
        RunOptions {
            duration: self.duration.or(further.duration),
            timeout: self.timeout.or(further.timeout),
            record_interval: self.record_interval.or(further.record_interval),
            late_limit: self.late_limit.or(further.late_limit),
            seed: self.seed.or(further.seed),
        }
    }

    /// With the built-in defaults.
    pub fn resolve(self) -> RunSettings {
        RunSettings {
            duration: self.duration,
            timeout: self.timeout.unwrap_or(2 * SECOND),
            record_interval: self.record_interval.unwrap_or(10 * SECOND),
            late_limit: self.late_limit.unwrap_or(50_000),
            seed: self.seed.unwrap_or(1),
        }
    }
}

/// What a target's streams do.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamSettings {
    /// Time between the probes of one stream, ns, positive.
    pub interval: i64,
    /// Probes of each stream; `None`: without end.
    pub count: Option<u64>,
    /// IP packet length, bytes; `None`: the least for the family.
    pub size: Option<u16>,
    /// DSCPs, each 0..=63, one stream each.
    pub dscp: Vec<u8>,
    /// UDP port of the reflector.
    pub port: u16,
    /// Streams per destination and DSCP; above 1 their source ports are random.
    pub flows: u16,
    /// Where to draw destination ports from, for flows.
    pub flow_ports: Option<PortRange>,
    /// The law of the times between probes.
    pub schedule: Schedule,
    /// TTL or hop limit.
    pub ttl: u8,
    /// How the reflector numbers its replies.
    pub reflector: ReflectorKind,
    /// Our address; `None`: by the route.
    pub source: Option<IpAddr>,
    /// First source port; `None`: [`DEFAULT_SOURCE_PORT`], or the next that is free.
    pub source_port: Option<u16>,
}

/// Settings of the run as a whole, with defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSettings {
    /// How long to send, ns; `None`: until the count is reached or Ctrl-C.
    pub duration: Option<i64>,
    /// Tmax, ns.
    pub timeout: i64,
    /// Length of an interval record, ns.
    pub record_interval: i64,
    /// Sends later than this are counted, ns.
    pub late_limit: i64,
    /// Seed of everything random.
    pub seed: u64,
}

/// Ports `low..=high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The first port.
    pub low: u16,
    /// The last port, included.
    pub high: u16,
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.low, self.high)
    }
}

impl FromStr for PortRange {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a range of ports; write 20000-20099");
        let (low, high) = text.split_once('-').ok_or_else(wrong)?;
        let low = parse_port(low.trim()).map_err(|_| wrong())?;
        let high = parse_port(high.trim()).map_err(|_| wrong())?;
        if low > high { Err(wrong()) } else { Ok(PortRange { low, high }) }
    }
}

/// A UDP port, 1..=65535.
pub fn parse_port(text: &str) -> Result<u16, String> {
    parse_within(text, 1..=65_535, "a UDP port")
}

/// A count of probes, at least 1.
pub fn parse_count(text: &str) -> Result<u64, String> {
    match parse_amount(text)? {
        0 => Err(format!("'{text}' is not a number of probes, at least 1")),
        count => Ok(count),
    }
}

/// An IP packet length. The least for IPv6 is checked when the family is known.
pub fn parse_size(text: &str) -> Result<u16, String> {
    parse_within(text, LEAST_IPV4..=65_535, "an IP packet length in bytes")
}

/// Flows per destination.
pub fn parse_flows(text: &str) -> Result<u16, String> {
    parse_within(text, 1..=MOST_FLOWS, "a number of flows")
}

/// A TTL or hop limit.
pub fn parse_ttl(text: &str) -> Result<u8, String> {
    parse_within(text, 1..=255, "a TTL")
}

/// An IP address, without a port or brackets.
pub fn parse_address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("'{text}' is not an IP address"))
}

/// Tmax: at least 1 ms, at most 60 s (each stream keeps what it sent in that time).
pub fn parse_timeout(text: &str) -> Result<i64, String> {
    between(text, TIMEOUT, "1ms and 60s")
}

/// The length of a record: 100 ms to a day.
pub fn parse_record_interval(text: &str) -> Result<i64, String> {
    between(text, RECORD_INTERVAL, "100ms and 24h")
}

/// Time between the probes of a stream, ns: so short that sums of times fit 64 bits.
const INTERVAL: RangeInclusive<i64> = 1..=366 * 24 * 3600 * SECOND;
/// Length of a run, ns: so short that sums of times fit 64 bits.
const DURATION: RangeInclusive<i64> = 1..=600_000 * 3_600 * SECOND;
/// Tmax, ns.
const TIMEOUT: RangeInclusive<i64> = 1_000_000..=60 * SECOND;
/// Length of a record, ns.
const RECORD_INTERVAL: RangeInclusive<i64> = SECOND / 10..=86_400 * SECOND;
/// Probes of a stream in one record: what the sender's counters hold.
const MOST_PROBES: i64 = (u32::MAX / 2) as i64;
/// Streams of one destination and DSCP.
const MOST_FLOWS: u16 = 4_096;
/// The shortest IPv4 packet that carries 44 octets of STAMP (RFC 8762, section 4.2.1).
pub const LEAST_IPV4: u16 = 20 + 8 + 44;
/// The shortest IPv6 one.
pub const LEAST_IPV6: u16 = 40 + 8 + 44;
/// Above Linux's default range of ephemeral ports (32768..60999): no other program is
/// given one of these by chance.
pub const DEFAULT_SOURCE_PORT: u16 = 62_000;

fn between(text: &str, range: RangeInclusive<i64>, bounds: &str) -> Result<i64, String> {
    let ns = parse_duration(text)?;
    if range.contains(&ns) { Ok(ns) } else { Err(format!("'{text}' must be between {bounds}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_word_counts() {
        let near = StreamOptions { port: Some(1), ..Default::default() };
        let far = StreamOptions { port: Some(2), ttl: Some(9), ..Default::default() };
        let settings = near.or(&far).resolve();
        assert_eq!((settings.port, settings.ttl, settings.interval), (1, 9, SECOND));
    }

    #[test]
    fn targets_change_live_and_the_rest_needs_a_new_start() {
        let of = |hosts: &[&str]| Settings {
            targets: hosts.iter().map(|host| TargetEntry::of(*host)).collect(),
            ..Settings::default()
        };
        let old = of(&["a", "b"]);
        assert_eq!(old.change(&of(&["b", "a"])), Change::Same);
        let live = |added: &[&str], ended: &[&str]| Change::Live {
            added: added.iter().map(|host| host.to_string()).collect(),
            ended: ended.iter().map(|host| host.to_string()).collect(),
        };
        assert_eq!(old.change(&of(&["b", "c"])), live(&["c"], &["a"]));
        // The same default given elsewhere is the same.
        let mut said = of(&["a", "b"]);
        said.targets[0].stream.interval = Some(SECOND);
        assert_eq!(old.change(&said), Change::Same);
        said.stream.dscp = Some(vec![46]);
        assert_eq!(old.change(&said), live(&["a", "b"], &["a", "b"]));
        said.fragment = true;
        match old.change(&said) {
            Change::Restart(why) => assert!(why.starts_with("fragment cannot"), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_interval_is_so_short_that_sums_of_times_fit() {
        let longest = *INTERVAL.end();
        for (interval, good) in [(0, false), (1, true), (longest, true), (longest + 1, false)] {
            let stream = StreamOptions { interval: Some(interval), ..Default::default() };
            let targets = vec![TargetEntry::of("a")];
            // What a record has of probes is bounded, too.
            let run = RunOptions { record_interval: Some(SECOND), ..Default::default() };
            let checked = Settings { targets, stream, run, ..Default::default() }.check();
            assert_eq!(checked.is_ok(), good, "{interval}: {checked:?}");
        }
    }

    #[test]
    fn what_has_no_effect_or_cannot_be_counted_is_refused() {
        let two = |stream: StreamOptions, second: StreamOptions| {
            let mut targets = vec![TargetEntry::of("a"), TargetEntry::of("b")];
            targets[1].stream = second;
            let checked = Settings { targets, stream, ..Default::default() }.check();
            checked.err().map_or(String::new(), |wrong| wrong.message)
        };
        let none = StreamOptions::default;
        let ports = || Some(PortRange { low: 5, high: 9 });
        let (flow_ports, flows) = (
            StreamOptions { flow_ports: ports(), ..none() },
            StreamOptions { flows: Some(2), ..none() },
        );
        let wrong = two(flow_ports.clone(), none());
        assert!(
            wrong.starts_with("stream.flow_ports: ") && wrong.contains("`stream.flows`"),
            "{wrong}"
        );
        assert_eq!(two(flow_ports.clone(), flows.clone()), "");
        let wrong = two(none(), flow_ports.clone());
        assert!(wrong.starts_with("target.stream.flow_ports: target b: "), "{wrong}");
        assert_eq!(two(flows.clone(), flow_ports), "");
        let source_port = StreamOptions { source_port: Some(5_000), ..none() };
        assert_eq!(two(source_port.clone(), flows.clone()), "");
        let wrong = two(flows, source_port);
        assert!(wrong.contains("it has no effect with `stream.flows`"), "{wrong}");
        let wrong = two(StreamOptions { dscp: Some(vec![46, 0, 46]), ..none() }, none());
        assert_eq!(wrong, "stream.dscp: EF is given twice; give it once");
        let wrong = two(StreamOptions { interval: Some(1), ..none() }, none());
        assert!(
            wrong.starts_with("stream.interval: 1ns") && wrong.contains("record_interval = 10s"),
            "{wrong}"
        );
    }

    #[test]
    fn bounds_hold() {
        assert!(parse_size("71").is_err() && parse_size("72").is_ok());
        assert!(
            parse_size("65536").is_err() && parse_ttl("0").is_err() && parse_port("0").is_err()
        );
        assert!(parse_timeout("0").is_err() && parse_timeout("61s").is_err());
        assert_eq!("5-9".parse(), Ok(PortRange { low: 5, high: 9 }));
        for bad in ["9-5", "5", "0-9", "5-99999", "a-b"] {
            assert!(bad.parse::<PortRange>().is_err(), "{bad}");
        }
    }
}
