//! From what was asked for to streams: hosts to addresses, addresses to 4-tuples. First sends
//! are spread so that no two streams leave together without need.

use anyhow::anyhow;
use sonde_meter::stamp::StreamSpec;
use sonde_results::StreamInfo;
use sonde_wire::prefix::Prefix;
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::names::{self, range_of, scoped};
use super::settings::{
    DEFAULT_SOURCE_PORT, Family, LEAST_IPV4, LEAST_IPV6, Settings, StreamOptions, StreamSettings,
    TargetEntry,
};
use crate::error::{RunError, SettingsError};

/// One destination address and what to do with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its name in tables and results.
    pub name: String,
    /// Where its probes go.
    pub address: IpAddr,
    /// Further addresses of the name, for when there is no way to the first.
    pub others: Vec<IpAddr>,
    /// The interface to go by: the scope of a link-local address.
    pub interface: Option<String>,
    /// The name that was looked up.
    pub looked_up: Option<String>,
    /// How its probes are sent.
    pub settings: StreamSettings,
    /// What was set for it alone, for errors.
    pub own: StreamOptions,
}

impl Target {
    /// The path of a setting of its streams: see [`TargetEntry::stream_key`].
    pub fn stream_key(
        &self,
        of_all: &'static str,
        is_own: impl Fn(&StreamOptions) -> bool,
    ) -> String {
        self.own.key(of_all, is_own)
    }

    /// Whether the same is to be measured.
    pub fn is_same(&self, other: &Target) -> bool {
        let others = std::iter::once(&other.address).chain(&other.others);
        let of_name = self.looked_up.is_some() && self.looked_up == other.looked_up;
        let to = of_name && others.into_iter().any(|a| *a == self.address);
        (to || self.address == other.address)
            && self.name == other.name
            && self.interface == other.interface
            && self.settings == other.settings
    }
}

/// The streams of a run; `infos[i]` and `target_of[i]` are those of `streams[i]`.
#[derive(Clone, Debug, Default)]
pub struct StreamPlan {
    /// What the sender needs of each stream.
    pub streams: Vec<StreamSpec>,
    /// What the results say of each stream.
    pub infos: Vec<StreamInfo>,
    /// Indices of the targets: two of them may have one address.
    pub target_of: Vec<u32>,
}

/// What became of the entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expanded {
    /// Targets with an address.
    pub targets: Vec<Target>,
    /// Targets whose name does not resolve, with the reason: one does not stop a list of many.
    pub left_out: Vec<(String, String)>,
    /// These names.
    pub unresolved: HashSet<String>,
}

/// Resolves each entry to its addresses, in order. `defaults` is what the command line
/// and the top of the file say. With `every` each address of a name is a target, else the
/// first to which there is a way.
///
/// # Errors
/// Wrong settings: what is no host, too many of them, a source of the other family. Of this host:
/// no name resolves.
pub fn expand(
    entries: &[TargetEntry],
    defaults: &StreamOptions,
    family: Family,
    every: bool,
) -> Result<Expanded, RunError> {
    let expanded = expand_found(entries, defaults, family, (every, entries.len() > 1))?;
    if let (true, Some((name, error))) = (expanded.targets.is_empty(), expanded.left_out.first()) {
        let n = expanded.left_out.len();
        return Err(anyhow!("none of {n} names can be measured; the first: {name}: {error}").into());
    }
    Ok(expanded)
}

/// The same, where it is no failure that no name resolves. A single one that does not is left out
/// only where `leaves_out`.
///
/// # Errors
/// Wrong settings: what is no host, too many of them, a source of the other family.
pub fn expand_found(
    entries: &[TargetEntry],
    defaults: &StreamOptions,
    family: Family,
    (every, leaves_out): (bool, bool),
) -> Result<Expanded, RunError> {
    let named: Vec<&str> = entries.iter().filter_map(name_of).collect();
    let mut found = names::resolve_all(&named, family);
    let (mut targets, mut left_out, mut unresolved) = (Vec::new(), Vec::new(), HashSet::new());
    for entry in entries {
        let settings = entry.stream.clone().or(defaults).resolve();
        let wrong = |key: &str, why: String| match &entry.at {
            None => SettingsError::of(key, why).within(&entry.host),
            line => SettingsError::of(key, why).at(line.as_ref()),
        };
        let unknown = |why: RunError| match why {
            RunError::Settings(why) => {
                RunError::Settings(why.within(&entry.host).at(entry.at.as_ref()))
            }
            RunError::Host(why) => {
                let line = entry.at.as_ref().map_or(String::new(), |at| format!("{at}: "));
                RunError::Host(why.context(format!("{line}{}", entry.host)))
            }
            other => other,
        };
        let (host, interface) = scoped(&entry.host);
        let looked_up = found.contains_key(host);
        let hosts = match found.get_mut(host) {
            _ if entry.first.is_some() => addresses(host, entry.first, family).map_err(unknown)?,
            Some(Ok(addresses)) => addresses.clone(),
            Some(Err(RunError::Host(error))) if leaves_out => {
                let name = entry.name.as_ref().unwrap_or(&entry.host);
                left_out.push((name.clone(), format!("{error:#}")));
                unresolved.insert(host.to_owned());
                continue;
            }
            _ => addresses(host, entry.first, family).map_err(unknown)?,
        };
        let hosts = match settings.source {
            None => hosts,
            Some(source) => {
                let fits = |address: &IpAddr| address.is_ipv4() == source.is_ipv4();
                // A name may have an address of either family; what is an address, or many, is
                // of one.
                let (fit, others): (Vec<_>, Vec<_>) = hosts.into_iter().partition(fits);
                match others.first() {
                    Some(&address) if fit.is_empty() || !looked_up => {
                        let key = entry.stream_key("stream.source", |own| own.source.is_some());
                        return Err(wrong(&key, other_family(source, address)).into());
                    }
                    _ => fit,
                }
            }
        };
        // Of a name one address is measured, unless all are asked for.
        let (hosts, others) = match looked_up && !every {
            true => (hosts[..1].to_vec(), hosts[1..].to_vec()),
            false => (hosts, Vec::new()),
        };
        let several = hosts.len() > 1;
        for address in hosts {
            if let Some(why) = settings.size.and_then(|size| too_short(size, address)) {
                let key = entry.stream_key("stream.size", |own| own.size.is_some());
                return Err(wrong(&key, why).into());
            }
            let name = match (&entry.name, several || is_many(host)) {
                (Some(name), false) => name.clone(),
                (Some(name), true) => format!("{name} {address}"),
                (None, false) => entry.host.clone(),
                (None, true) if looked_up => format!("{host} {address}"),
                (None, true) => address.to_string(),
            };
            targets.push(Target {
                name,
                address,
                others: others.clone(),
                interface: interface.map(String::from),
                looked_up: looked_up.then(|| host.to_string()),
                settings: settings.clone(),
                own: entry.stream.clone(),
            });
        }
    }
    let n = targets.len();
    if n > MOST_STREAMS {
        let why = format!("{n} destinations are more than {MOST_STREAMS}; split the run");
        return Err(SettingsError::of("target", why).into());
    }
    Ok(Expanded { targets, left_out, unresolved })
}

/// Builds the streams: for each target its DSCP classes, for each class its flows. No source
/// port is one of `busy`, unless it was asked for, nor one of those `used` towards its destination.
///
/// `route` gives our source address towards a target, by its index, and the index of its next
/// hop. Streams of one destination differ by source port. The same source ports serve all
/// destinations, so that a run needs few sockets and a short filter.
pub fn plan<E: Display>(
    targets: &[Target],
    seed: u64,
    busy: &HashSet<u16>,
    used: &HashMap<IpAddr, HashSet<u16>>,
    mut route: impl FnMut(usize) -> Result<(IpAddr, u16), E>,
) -> Result<StreamPlan, RunError> {
    let mut plan = StreamPlan::default();
    let random_ports = shuffled_ports(seed);
    let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed_f10e);
    let mut taken: HashMap<IpAddr, Taken> = HashMap::new();
    for (index, target) in targets.iter().enumerate() {
        let settings = &target.settings;
        let (routed, next_hop) = route(index).map_err(|e| anyhow!("{}: {e}", target.name))?;
        let source = settings.source.unwrap_or(routed);
        if source.is_ipv4() != target.address.is_ipv4() {
            let why = other_family(source, target.address);
            let key = target.stream_key("stream.source", |own| own.source.is_some());
            return Err(SettingsError::of(&key, why).within(&target.name).into());
        }
        let least = if target.address.is_ipv4() { LEAST_IPV4 } else { LEAST_IPV6 };
        let ports = taken.entry(target.address).or_insert_with(|| Taken {
            ports: used.get(&target.address).cloned().unwrap_or_default(),
            cursor: 0,
        });
        let none = HashSet::new();
        let base = settings.source_port.unwrap_or(DEFAULT_SOURCE_PORT);
        let busy = if settings.source_port.is_some() { &none } else { busy };
        for &dscp in &settings.dscp {
            for _ in 0..settings.flows {
                let source_port = if settings.flows > 1 {
                    ports.next_random(&random_ports, busy)
                } else {
                    ports.next_from(base, busy)
                }
                .ok_or_else(|| {
                    let why = "no source port is left; ask for fewer `stream.flows` or a lower \
                               `stream.source_port`";
                    // What others of this host leave is another matter than what there is.
                    match busy.is_empty() {
                        true => {
                            let is_own = |own: &StreamOptions| own.source_port.is_some();
                            let key = target.stream_key("stream.source_port", is_own);
                            SettingsError::of(&key, why).within(&target.name).into()
                        }
                        false => RunError::Host(anyhow!("{}: {why}", target.name)),
                    }
                })?;
                let port = match settings.flow_ports {
                    Some(range) if settings.flows > 1 => random.u16(range.low..=range.high),
                    _ => settings.port,
                };
                if plan.streams.len() >= MOST_STREAMS {
                    let why = format!("more than {MOST_STREAMS} streams; split the run");
                    return Err(SettingsError::of("target", why).into());
                }
                let stream = StreamSpec {
                    source: SocketAddr::new(source, source_port),
                    destination: SocketAddr::new(target.address, port),
                    dscp,
                    ttl: settings.ttl,
                    next_hop,
                    ssid: (plan.streams.len() % 65_535) as u16 + 1,
                    ip_length: settings.size.unwrap_or(least),
                    period: settings.interval,
                    phase: 0,
                    schedule: settings.schedule,
                    count: settings.count,
                    reflector: settings.reflector,
                };
                plan.infos.push(StreamInfo {
                    target: target.name.clone(),
                    source: stream.source,
                    destination: stream.destination,
                    dscp,
                    ssid: stream.ssid,
                    ip_length: stream.ip_length,
                    period_ns: stream.period,
                });
                plan.streams.push(stream);
                plan.target_of.push(index as u32);
            }
        }
    }
    spread(&mut plan.streams);
    Ok(plan)
}

fn other_family(source: IpAddr, address: IpAddr) -> String {
    format!(
        "source {source} and destination {address} are of different families; give a \
         `stream.source` of the target's"
    )
}

/// Sets the phases. The streams of one period divide it evenly. Neighbours in the list
/// (classes of one destination) are far apart in time, so that no path sees a burst.
pub fn spread(streams: &mut [StreamSpec]) {
    let mut groups: HashMap<i64, Vec<usize>> = HashMap::new();
    for (i, stream) in streams.iter().enumerate() {
        groups.entry(stream.period).or_default().push(i);
    }
    for (period, members) in groups {
        let n = members.len() as u64;
        let stride = stride(n);
        for (k, i) in members.into_iter().enumerate() {
            let slot = (k as u64 * stride) % n;
            streams[i].phase = (i128::from(slot) * i128::from(period) / i128::from(n)) as i64;
        }
    }
}

/// Streams that one process may have.
pub const MOST_STREAMS: usize = 1_000_000;
/// The dynamic ports (RFC 6335, section 6), for random source ports.
const DYNAMIC_PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// The source ports in use towards one destination.
#[derive(Default)]
struct Taken {
    ports: HashSet<u16>,
    cursor: usize,
}

impl Taken {
    fn next_from(&mut self, base: u16, busy: &HashSet<u16>) -> Option<u16> {
        (base..=u16::MAX).find(|&p| !busy.contains(&p) && self.ports.insert(p))
    }

    fn next_random(&mut self, sequence: &[u16], busy: &HashSet<u16>) -> Option<u16> {
        while let Some(&port) = sequence.get(self.cursor) {
            self.cursor += 1;
            if !busy.contains(&port) && self.ports.insert(port) {
                return Some(port);
            }
        }
        None
    }
}

fn shuffled_ports(seed: u64) -> Vec<u16> {
    let mut ports: Vec<u16> = DYNAMIC_PORTS.collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut ports);
    ports
}

/// The integer nearest to 0.618 n (the golden section) that has no factor in common with n.
fn stride(n: u64) -> u64 {
    let wanted = (n as f64 * 0.618_033_988_749_895).round() as u64;
    (0..=n)
        .flat_map(|d| [wanted.saturating_sub(d), wanted + d])
        .find(|&s| s > 0 && gcd(s, n) == 1)
        .unwrap_or(1)
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The name that has to be looked up for an entry; `None`: it gives addresses.
pub fn name_of(entry: &TargetEntry) -> Option<&str> {
    let host = scoped(&entry.host).0;
    (!is_many(host) && names::is_name(host)).then_some(host)
}

fn is_many(host: &str) -> bool {
    host.contains('/') || range_of(host).is_some()
}

/// The text of an error does not name `host`.
fn addresses(host: &str, first: Option<u64>, family: Family) -> Result<Vec<IpAddr>, RunError> {
    match span(host, first, family)? {
        Some(span) => Ok((0..span.count).map(|n| span.address(n)).collect()),
        None => names::resolve(host, family),
    }
}

/// Addresses that follow each other.
struct AddressSpan {
    low: u128,
    count: u128,
    v4: bool,
}

impl AddressSpan {
    fn address(&self, n: u128) -> IpAddr {
        match self.v4 {
            true => IpAddr::V4(Ipv4Addr::from_bits((self.low + n) as u32)),
            false => IpAddr::V6(Ipv6Addr::from_bits(self.low + n)),
        }
    }
}

/// What a range or prefix stands for; `None`: it is one host. The text of an error does not name
/// `host`.
fn span(
    host: &str,
    first: Option<u64>,
    family: Family,
) -> Result<Option<AddressSpan>, SettingsError> {
    let wrong = |why: String| SettingsError::of("target.host", why);
    let (low, high, v4) = if host.contains('/') {
        let prefix: Result<Prefix, _> = host.parse();
        let prefix = prefix.map_err(|why| wrong(format!("is no prefix: {why}")))?;
        let (low, high) = prefix.bounds();
        // The network's and the broadcast address of an IPv4 subnet, and the
        // subnet-router anycast address of an IPv6 one (RFC 4291, section 2.6.1).
        match prefix.address {
            IpAddr::V4(_) if prefix.bits < 31 => (low + 1, high - 1, true),
            IpAddr::V6(_) if prefix.bits < 127 => (low + 1, high, false),
            address => (low, high, address.is_ipv4()),
        }
    } else if let Some((low, high)) = range_of(host) {
        match (low, high) {
            (IpAddr::V4(a), IpAddr::V4(b)) if a <= b => {
                (a.to_bits().into(), b.to_bits().into(), true)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) if a <= b => (a.to_bits(), b.to_bits(), false),
            _ => {
                let why = "is not a range; write the lower address first, both of one family";
                return Err(wrong(why.into()));
            }
        }
    } else {
        if first.is_some() {
            return Err(wrong("is one host, and 'first' needs a range or a prefix".into()));
        }
        return Ok(None);
    };
    if matches!((family, v4), (Family::V4, false) | (Family::V6, true)) {
        return Err(wrong("is not of the family asked for; leave out `family`".into()));
    }
    let all = (high - low).saturating_add(1);
    let count = first.map_or(all, |f| u128::from(f).min(all));
    if count > MOST_STREAMS as u128 {
        return Err(wrong(format!(
            "has {all} addresses, more than {MOST_STREAMS}; take the first of them with 'first = N'"
        )));
    }
    Ok(Some(AddressSpan { low, count, v4 }))
}

/// Whether each target can be, and all of them together, as far as it shows before a name is looked
/// up.
pub(super) fn check_hosts(settings: &Settings) -> Result<(), SettingsError> {
    let mut streams: u128 = 0;
    for entry in &settings.targets {
        let wrong = |error: SettingsError| error.within(&entry.host).at(entry.at.as_ref());
        names::check_form(&entry.host).map_err(wrong)?;
        let own = entry.stream.clone().or(&settings.stream).resolve();
        let (host, _) = scoped(&entry.host);
        let span = span(host, entry.first, settings.family).map_err(wrong)?;
        let address = match &span {
            Some(span) => Some(span.address(0)),
            None => names::address(host),
        };
        if let Some(address) = address.filter(|&address| !settings.family.fits(address)) {
            let why = format!("{address} is not of the family asked for; leave out `family`");
            return Err(wrong(SettingsError::of("target.host", why)));
        }
        if let (Some(source), Some(address)) = (own.source, address)
            && source.is_ipv4() != address.is_ipv4()
        {
            let key = entry.stream_key("stream.source", |own| own.source.is_some());
            return Err(wrong(SettingsError::of(&key, other_family(source, address))));
        }
        if let (Some(size), Some(address)) = (own.size, address)
            && let Some(why) = too_short(size, address)
        {
            let key = entry.stream_key("stream.size", |own| own.size.is_some());
            return Err(wrong(SettingsError::of(&key, why)));
        }
        let each = own.dscp.len() as u128 * u128::from(own.flows.max(1));
        streams += span.map_or(1, |span| span.count) * each;
        if streams > MOST_STREAMS as u128 {
            let why = format!("more than {MOST_STREAMS} streams up to here; use two probes");
            return Err(wrong(SettingsError::of("target.host", why)));
        }
    }
    Ok(())
}

/// Why no probe to `address` has this length.
fn too_short(size: u16, address: IpAddr) -> Option<String> {
    let least = if address.is_ipv4() { LEAST_IPV4 } else { LEAST_IPV6 };
    (size < least).then(|| format!("size {size} is too short for {address}; at least {least}"))
}

#[cfg(test)]
mod tests;
