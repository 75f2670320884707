//! What is asked for, and the configuration of the matchers.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use sonde_meter::rtt::{Config, ConfigError, PrefixTable, RttFilter};
use sonde_port::Engine;
use sonde_results::choice;
use sonde_results::rtt::{GroupKey, RttEvents, RttGroupBy, RttProtocol};
use sonde_results::rtt_run::RttRunConfig;
use sonde_results::units::{SECOND, format_duration, parse_amount, parse_positive_duration};
use sonde_wire::prefix::Prefix;

use super::about::GroupOf;
use crate::bounds::{bounded_time, longer_than_zero};
use crate::change::{Change, restart};
use crate::error::SettingsError;
use crate::files::RunFiles;
use crate::joins::Join;
use crate::secrets::secrets;
use crate::{duration, text, text_file};

/// Settings of passive round-trip times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Interfaces to watch, or captures to read one behind the other; `-` is standard input.
    pub sources: Vec<String>,
    /// What groups the samples.
    pub by: RttGroupBy,
    /// Prefixes to group by instead of /24 and /48, one on each line, with an AS number if by AS.
    pub prefixes: Option<PathBuf>,
    /// Length of an interval, ns, 100 ms to 24 h; by default 1 s.
    #[serde(with = "duration")]
    #[schemars(with = "String", description = "Length of an interval.")]
    pub interval: i64,
    /// Stop after this time, ns, more than 0. `None`: without end, or at that of the captures.
    #[serde(with = "duration::option")]
    #[schemars(with = "Option<String>", description = "Stop after this time.")]
    pub duration: Option<i64>,
    /// Flows tracked at once, at most: a power of two, 64 to 4,194,304.
    pub flows: u32,
    /// `af_packet`: measure in user space, where eBPF cannot be had.
    #[serde(with = "text::option")]
    #[schemars(schema_with = "engine_names")]
    pub engine: Option<Engine>,
    /// How each interface is watched in the kernel; absent: `tc`.
    pub hook: Option<Hook>,
    /// Look into tunnels, and measure what is inside.
    pub tunnels: bool,
    /// Interfaces that are one observation point, as the two ports of a tap are: `all`, or
    /// `eth0,eth1`.
    #[serde(with = "text::list")]
    #[schemars(with = "Vec<String>")]
    pub join: Vec<Join>,
    /// Leave the VLAN out of a flow's key, where each direction has its own.
    pub no_vlan_in_key: bool,
    /// Leave the programs attached at the end.
    pub persist: bool,
    /// Seed of the flow table's hash, for a run to be repeated; absent: random.
    pub seed: Option<u64>,
    /// Only these protocols; none: all.
    pub proto: Vec<RttProtocol>,
    /// Only traffic from or to these prefixes; none: all.
    #[serde(with = "text::list")]
    #[schemars(with = "Vec<String>")]
    pub net: Vec<Prefix>,
    /// Only traffic from or to these ports, at most 8; none: all.
    pub port: Vec<u16>,
    /// Keep the prefix of every address (/24, /48) and never the whole.
    pub prefix_only: bool,
    /// Each direction of a flow counts in the groups at most once a second.
    pub weight_by_flow: bool,
    /// Which samples are handed out one by one; absent: none.
    #[serde(with = "text::option")]
    #[schemars(with = "Option<String>")]
    pub samples: Option<SampleLimit>,
    /// Flows that have ended are handed out.
    pub flow_records: bool,
    /// Loss in the flows that are open is reported with the intervals.
    pub losses: bool,
}

fn engine_names(_: &mut SchemaGenerator) -> Schema {
    text::one_of_or_none(&[Engine::AfPacket])
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            sources: Vec::new(),
            by: RttGroupBy::Prefix,
            prefixes: None,
            interval: SECOND,
            duration: None,
            flows: 131_072,
            engine: None,
            hook: None,
            tunnels: false,
            join: Vec::new(),
            no_vlan_in_key: false,
            persist: false,
            seed: None,
            proto: Vec::new(),
            net: Vec::new(),
            port: Vec::new(),
            prefix_only: false,
            weight_by_flow: false,
            samples: None,
            flow_records: false,
            losses: false,
        }
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
        if self.sources.is_empty() {
            return Err(SettingsError::new("sources", "name an interface or a capture"));
        }
        bounded_time("interval", self.interval, INTERVAL)?;
        longer_than_zero("duration", self.duration)?;
        parse_table_size(&self.flows.to_string())
            .map_err(|why| SettingsError::new("flows", why))?;
        if self.by == RttGroupBy::As && self.prefixes.is_none() {
            return Err(SettingsError::new(
                "by",
                "`by = as` needs `prefixes` with a prefix and its AS number on each \
                        line",
            ));
        }
        if self.prefixes.is_some() && !matches!(self.by, RttGroupBy::Prefix | RttGroupBy::As) {
            return Err(SettingsError::new(
                "prefixes",
                format!("they serve `by = prefix` and `by = as`, not `by = {}`", self.by),
            ));
        }
        if self.by == RttGroupBy::Vlan && self.no_vlan_in_key {
            return Err(SettingsError::new(
                "no_vlan_in_key",
                "`by = vlan` needs the VLAN in a flow's key; leave it out",
            ));
        }
        if let Some(engine) = self.engine.filter(|&engine| engine != Engine::AfPacket) {
            return Err(SettingsError::new(
                "engine",
                format!(
                    "{} takes packets away and cannot watch those of others; use \
                 `engine = af_packet`, or leave `engine` out to measure in the kernel",
                    engine.name()
                ),
            ));
        }
        if self.engine.is_some() && (self.hook.is_some() || self.persist) {
            return Err(SettingsError::new(
                "engine",
                "`hook` and `persist` are for programs in the kernel; leave them \
                        out, or `engine`",
            ));
        }
        let ports = |why: &ConfigError| matches!(why, ConfigError::Ports(_));
        let key = |why: &ConfigError| if ports(why) { "port" } else { "net" };
        filter(self).check().map_err(|why| SettingsError::new(key(&why), why))
    }
}

impl Settings {
    /// The files that it reads.
    pub fn files(&self) -> RunFiles<'_> {
        RunFiles::default().reads("sources", &self.sources).reads("prefixes", &self.prefixes)
    }
}

choice! {
    /// The hook of the kernel's programs.
    pub enum Hook {
        /// Traffic control, both directions (tcx, else clsact)
        Tc = "tc",
        /// XDP for what comes in, traffic control for what goes out
        Xdp = "xdp",
        /// Incoming only: for a mirror port, where both directions come in
        Ingress = "ingress",
    }
}

/// How many samples of one direction of a flow are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleLimit {
    /// Every sample.
    None,
    /// At most one in this time, ns.
    Every(i64),
    /// At most one in so many of the flow's smoothed round-trip times.
    RoundTrips(u32),
}

impl fmt::Display for SampleLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SampleLimit::None => f.write_str("none"),
            SampleLimit::Every(ns) => f.write_str(&format_duration(*ns)),
            SampleLimit::RoundTrips(n) => write!(f, "{n}x"),
        }
    }
}

impl FromStr for SampleLimit {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(SampleLimit::None);
        }
        if let Some(n) = text.strip_suffix('x') {
            return match n.parse() {
                Ok(n @ 1..=1_000) => Ok(SampleLimit::RoundTrips(n)),
                _ => Err(format!("'{text}' is not a number of round trips, 1x..1000x")),
            };
        }
        match parse_positive_duration(text) {
            Ok(ns) if ns <= 60 * SECOND => Ok(SampleLimit::Every(ns)),
            Ok(_) => Err(format!("'{text}' is longer than 60s")),
            Err(_) => Err(format!("'{text}' is not a limit; write none, 100ms or 4x")),
        }
    }
}

/// A size of the flow table, in flows: "131072", "256k".
///
/// # Errors
/// No power of two, or out of range.
pub fn parse_table_size(text: &str) -> Result<u32, String> {
    let amount = parse_amount(text)?;
    // "256k" is an approximate amount: the next size that there is.
    let round = !text.ends_with(|c: char| c.is_ascii_digit());
    let amount = if round { amount.checked_next_power_of_two().unwrap_or(amount) } else { amount };
    let flows = text::flows(text, amount, TABLE_SIZE)?;
    if !flows.is_power_of_two() {
        let above = flows.next_power_of_two();
        return Err(format!("{flows} is not a power of two; write {} or {above}", above / 2));
    }
    Ok(flows)
}

/// The same for a matcher.
///
/// # Errors
/// Prefixes that cannot be read: with the line of their file.
pub fn config(settings: &Settings) -> Result<Config, SettingsError> {
    let config = Config {
        flows: settings.flows as usize,
        seed: secrets(settings.seed),
        group_by: settings.by,
        groups: groups(settings.by),
        prefixes: settings.prefixes.as_deref().map(prefixes).transpose()?.unwrap_or_default(),
        events: match settings.samples {
            None => RttEvents::None,
            Some(SampleLimit::None) => RttEvents::All,
            Some(SampleLimit::Every(ns)) => RttEvents::Every(Duration::from_nanos(ns as u64)),
            Some(SampleLimit::RoundTrips(n)) => RttEvents::RttMultiple(16 * n),
        },
        weight_by_flow: settings.weight_by_flow,
        hide_addresses: settings.prefix_only,
        vlan_in_key: !settings.no_vlan_in_key,
        filter: filter(settings),
        ..Config::default()
    };
    config.check().map_err(|why| SettingsError::from(why.to_string()))?;
    Ok(config)
}

/// The same for the run file.
pub fn run_config(settings: &Settings) -> RttRunConfig {
    RttRunConfig {
        command: Vec::new(),
        // Of types whose keys are strings: this cannot fail.
        settings: serde_json::to_value(settings).unwrap_or_default(),
        group_by: settings.by.to_string(),
        interval_ns: settings.interval,
        flows_max: settings.flows.into(),
        weight_by_flow: settings.weight_by_flow,
        prefix_only: settings.prefix_only,
    }
}

/// Gives the group of a flow's answering host, where it follows from the flow's key.
pub fn group_of(config: &Config) -> GroupOf {
    let (by, table) = (config.group_by, config.prefixes.clone());
    Arc::new(move |flow| match by {
        RttGroupBy::Flow => Some(GroupKey::Flow(*flow)),
        RttGroupBy::Prefix => {
            let (address, length) = table.prefix_of(flow.source);
            Some(GroupKey::Prefix { address, length })
        }
        RttGroupBy::As => Some(GroupKey::As(table.as_of(flow.source).unwrap_or(0))),
        RttGroupBy::Interface => Some(GroupKey::Interface(flow.point)),
        RttGroupBy::Vlan => Some(GroupKey::Vlan(flow.vlan)),
        // Of the first packet, which the key does not hold.
        RttGroupBy::Dscp => None,
    })
}

/// Groups at once in the matcher, that is, between two readings of it.
fn groups(by: RttGroupBy) -> usize {
    match by {
        // The most that the kernel's program takes.
        RttGroupBy::Flow => 16_383,
        _ => Config::default().groups,
    }
}

fn prefixes(path: &Path) -> Result<PrefixTable, SettingsError> {
    let file = path.display().to_string();
    let wrong = |line: Option<usize>, why: String| SettingsError {
        file: Some(file.clone()),
        line,
        ..SettingsError::of("prefixes", why)
    };
    let text = text_file::read(path).map_err(|e| {
        wrong(
            None,
            format!(
                "cannot read {file}; name a text file of prefixes that this user may read: {e}"
            ),
        )
    })?;
    let table = PrefixTable::parse(&text)
        .map_err(|e| wrong(Some(e.line), format!("in the file {file}: {e}")))?;
    if table.is_empty() {
        let why = format!("{file} holds no prefix; write one on each line, as 192.0.2.0/24");
        return Err(wrong(None, why));
    }
    Ok(table)
}

fn filter(settings: &Settings) -> RttFilter {
    let protocols = settings.proto.iter().copied().collect();
    let nets = settings.net.iter().map(|p| (p.address, p.bits)).collect();
    RttFilter { protocols, nets, ports: settings.port.clone() }
}

/// The least and greatest length of an interval, ns.
const INTERVAL: RangeInclusive<i64> = SECOND / 10..=86_400 * SECOND;
/// Flows in the table.
const TABLE_SIZE: RangeInclusive<u32> = 64..=1 << 22;

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::rtt::RttProtocols;
    use sonde_results::testing::rtt as sample;

    fn with(change: impl FnOnce(&mut Settings)) -> Result<Config, SettingsError> {
        let mut settings = Settings::default();
        change(&mut settings);
        config(&settings)
    }

    fn wrong(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings { sources: vec!["eth0".into()], ..Settings::default() };
        assert_eq!(settings.check(), Ok(()));
        change(&mut settings);
        settings.check().unwrap_err().message
    }

    #[test]
    fn no_event_is_asked_for_unless_samples_are_wanted() {
        for (text, events) in [
            (None, RttEvents::None),
            (Some("none"), RttEvents::All),
            (Some("100ms"), RttEvents::Every(Duration::from_millis(100))),
            (Some("4x"), RttEvents::RttMultiple(64)),
        ] {
            let limit: Option<SampleLimit> = text.map(|text| text.parse().unwrap());
            assert_eq!(limit.map(|limit| limit.to_string()).as_deref(), text);
            assert_eq!(with(|s| s.samples = limit).unwrap().events, events, "{text:?}");
        }
    }

    #[test]
    fn the_filter_is_handed_on_and_its_limits_are_named() {
        let config = with(|s| {
            s.proto = vec![RttProtocol::Tcp, RttProtocol::Dns];
            s.net = vec!["10.0.0.0/8".parse().unwrap()];
            (s.prefix_only, s.weight_by_flow) = (true, true);
        })
        .unwrap();
        assert_eq!(config.filter.protocols, RttProtocols::TCP.with(RttProtocols::DNS));
        assert_eq!(config.filter.nets, [("10.0.0.0".parse().unwrap(), 8)]);
        assert!(config.hide_addresses && config.weight_by_flow);
        let error = wrong(|s| s.port = (1..10).collect());
        assert!(error.starts_with("port: ") && error.contains("at most 8"), "{error}");
    }

    #[test]
    fn the_vlan_is_left_out_of_the_key_and_not_grouped_by() {
        assert!(with(|_| {}).unwrap().vlan_in_key);
        assert!(!with(|s| s.no_vlan_in_key = true).unwrap().vlan_in_key);
        let error = wrong(|s| (s.by, s.no_vlan_in_key) = (RttGroupBy::Vlan, true));
        assert!(error.starts_with("no_vlan_in_key: "), "{error}");
    }

    #[test]
    fn a_seed_repeats_and_no_seed_does_not() {
        let seed = |seed| with(|s| s.seed = seed).unwrap().seed;
        assert_eq!(seed(Some(7)), seed(Some(7)));
        assert_ne!(seed(None), seed(None));
    }

    #[test]
    fn wrong_prefixes_are_named() {
        let by = |path: &Path| with(|s| s.prefixes = Some(path.to_owned()));
        let missing = format!("{:#}", by(Path::new("/nonexistent/p")).unwrap_err());
        assert!(missing.contains("/nonexistent/p"), "{missing}");
        let idle = wrong(|s| (s.by, s.prefixes) = (RttGroupBy::Vlan, Some("x".into())));
        assert!(idle.starts_with("prefixes: ") && idle.contains("not `by = vlan`"), "{idle}");
        let none = wrong(|s| s.by = RttGroupBy::As);
        assert!(none.starts_with("by: ") && none.contains("`prefixes`"), "{none}");
        let engine = wrong(|s| (s.engine, s.persist) = (Some(Engine::AfPacket), true));
        assert!(engine.starts_with("engine: "), "{engine}");
        let path = std::env::temp_dir().join(format!("sonde-prefixes-{}", std::process::id()));
        std::fs::write(&path, "192.0.2.0/24\n10.0.0.1/8\n").unwrap();
        let wrong = by(&path);
        std::fs::write(&path, "\u{feff}192.0.2.0/24\n").unwrap();
        assert_eq!(by(&path).unwrap().prefixes.prefix_of("192.0.2.9".parse().unwrap()).1, 24);
        std::fs::write(&path, "# none\n").unwrap();
        let empty = by(&path);
        std::fs::remove_file(&path).unwrap();
        let wrong = wrong.unwrap_err();
        assert_eq!((wrong.key.as_deref(), wrong.line), (Some("prefixes"), Some(2)));
        let wrong = wrong.to_string();
        assert!(wrong.contains("line 2") && wrong.contains("sonde-prefixes"), "{wrong}");
        assert!(empty.unwrap_err().to_string().contains("no prefix"));
    }

    #[test]
    fn settings_read_back_as_they_are_written() {
        let settings = Settings {
            sources: vec!["eth0".into()],
            by: RttGroupBy::As,
            duration: Some(90 * SECOND),
            engine: Some(Engine::AfPacket),
            hook: Some(Hook::Xdp),
            join: vec![Join::All],
            proto: vec![RttProtocol::Quic],
            net: vec!["2001:db8::/32".parse().unwrap()],
            samples: Some(SampleLimit::Every(1_500)),
            ..Settings::default()
        };
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings, "{text}");
        let unknown = serde_json::from_str::<Settings>("{\"colour\": 1}").unwrap_err();
        assert!(unknown.to_string().contains("unknown field `colour`"), "{unknown}");
    }

    #[test]
    fn the_group_of_a_flow_is_that_of_the_host_that_answers() {
        let flow = sample::from_server();
        let of = |by| group_of(&Config { group_by: by, ..Config::default() })(&flow);
        let prefix = GroupKey::Prefix { address: "192.0.2.0".parse().unwrap(), length: 24 };
        assert_eq!(of(RttGroupBy::Prefix), Some(prefix));
        assert_eq!(of(RttGroupBy::Flow), Some(GroupKey::Flow(flow)));
        assert_eq!(of(RttGroupBy::As), Some(GroupKey::As(0)));
        assert_eq!((of(RttGroupBy::Vlan), of(RttGroupBy::Dscp)), (Some(GroupKey::Vlan(0)), None));
    }
}
