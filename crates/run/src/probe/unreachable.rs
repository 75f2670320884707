//! ICMP errors, added up and described: what a host or router says is worth more than
//! "no reply".

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use sonde_port::icmp::{IcmpError, IcmpKind};

/// The errors of one run, by destination and kind.
#[derive(Debug, Default)]
pub struct Unreachable {
    /// This host's addresses: it says so itself when no neighbour answers.
    own: HashSet<IpAddr>,
    counts: BTreeMap<(SocketAddr, IcmpKind), (u64, Option<IpAddr>)>,
    latest: BTreeMap<SocketAddr, IcmpKind>,
    /// Of destinations beyond [`MOST`].
    further: u64,
}

impl Unreachable {
    /// For a run that sends from the addresses `own`.
    pub fn new(own: impl Iterator<Item = IpAddr>) -> Unreachable {
        Unreachable { own: own.collect(), ..Unreachable::default() }
    }

    /// Adds one. Returns a text for the first of its destination and kind, while few were reported.
    pub fn add(&mut self, error: IcmpError) -> Option<String> {
        let from = error.from.filter(|from| !self.own.contains(from));
        let key = (error.destination, error.kind);
        if let Some((count, _)) = self.counts.get_mut(&key) {
            *count += 1;
            self.latest.insert(error.destination, error.kind);
            return None;
        }
        if self.counts.len() >= MOST {
            self.further += 1;
            return None;
        }
        self.counts.insert(key, (1, from));
        self.latest.insert(error.destination, error.kind);
        (self.counts.len() <= FEW).then(|| line(error.destination, error.kind, from))
    }

    /// What was last said of a destination.
    pub fn latest(&self, destination: SocketAddr) -> Option<IcmpKind> {
        self.latest.get(&destination).copied()
    }

    /// One line for each of the first destinations, and one for the rest.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .counts
            .iter()
            .take(FEW)
            .map(|(&(destination, kind), &(count, from))| {
                let times = if count == 1 { "once".into() } else { format!("{count} times") };
                format!("{} ({times})", line(destination, kind, from))
            })
            .collect();
        if self.counts.len() > FEW {
            let rest: u64 = self.counts.values().skip(FEW).map(|(count, _)| count).sum();
            lines.push(format!("and {} more such answers", rest + self.further));
        }
        lines
    }

    /// Counts by kind, for the run file.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for (&(_, kind), &(count, _)) in &self.counts {
            *all.entry(format!("icmp_{}", name(kind))).or_default() += count;
        }
        if self.further > 0 {
            all.insert("icmp_further".into(), self.further);
        }
        all
    }
}

/// What happened, in short.
pub fn text(kind: IcmpKind) -> String {
    match kind {
        IcmpKind::PortClosed => "the port is closed".into(),
        IcmpKind::Prohibited => "a filter prohibits it".into(),
        IcmpKind::NoRoute => "no route to it".into(),
        IcmpKind::NoNeighbour => "no such neighbour".into(),
        IcmpKind::TooBig(0) => "packet too big for the path".into(),
        IcmpKind::TooBig(mtu) => format!("packet too big: the path carries {mtu} bytes"),
        IcmpKind::TtlExceeded => "the TTL ran out on the way".into(),
        IcmpKind::Other(kind, code) => format!("ICMP type {kind}, code {code}"),
    }
}

fn line(destination: SocketAddr, kind: IcmpKind, from: Option<IpAddr>) -> String {
    let says = from.map_or("this host".into(), |from| from.to_string());
    let advice = match kind {
        IcmpKind::PortClosed => "start 'sonde reflect' there, or name its port with `stream.port`",
        IcmpKind::Prohibited => "allow UDP to this port in the filter there",
        IcmpKind::NoRoute => "look at the routes there ('ip route get')",
        IcmpKind::NoNeighbour => "is the host up, its address right, the VLAN the same?",
        IcmpKind::TooBig(_) => "use a smaller `stream.size`, or `fragment`",
        IcmpKind::TtlExceeded => "raise `stream.ttl`, or look for a loop with traceroute",
        IcmpKind::Other(..) => "see RFC 792 and RFC 4443 for its meaning",
    };
    format!("{destination}: {}, says {says}; {advice}", text(kind))
}

fn name(kind: IcmpKind) -> &'static str {
    match kind {
        IcmpKind::PortClosed => "port_closed",
        IcmpKind::Prohibited => "prohibited",
        IcmpKind::NoRoute => "no_route",
        IcmpKind::NoNeighbour => "no_neighbour",
        IcmpKind::TooBig(_) => "too_big",
        IcmpKind::TtlExceeded => "ttl_exceeded",
        IcmpKind::Other(..) => "other",
    }
}

/// Destinations and kinds that are reported one by one.
const FEW: usize = 8;
/// Those that are kept apart.
const MOST: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn error(destination: &str, kind: IcmpKind) -> IcmpError {
        IcmpError {
            from: Some("10.0.0.1".parse().unwrap()),
            destination: destination.parse().unwrap(),
            source_port: 62_000,
            kind,
        }
    }

    #[test]
    fn the_first_is_reported_and_all_are_counted() {
        let own = "10.0.0.9".parse().unwrap();
        let mut all = Unreachable::new([own].into_iter());
        let closed = error("10.1.0.2:862", IcmpKind::PortClosed);
        let text = all.add(closed).unwrap();
        assert!(
            text.starts_with("10.1.0.2:862: the port is closed, says 10.0.0.1; start"),
            "{text}"
        );
        assert_eq!(all.add(closed), None);
        assert!(all.lines()[0].ends_with("(2 times)"), "{:?}", all.lines());
        assert_eq!(all.latest(closed.destination), Some(IcmpKind::PortClosed));
        let silent = IcmpError { from: Some(own), kind: IcmpKind::NoNeighbour, ..closed };
        assert!(all.add(silent).unwrap().contains("no such neighbour, says this host"));
        assert_eq!(all.counters()["icmp_port_closed"], 2);
    }

    #[test]
    fn thousands_are_a_few_lines() {
        let own = "10.0.0.9".parse().unwrap();
        let mut all = Unreachable::new([own].into_iter());
        let reported = (0..10_000u32)
            .filter_map(|i| {
                let [_, _, a, b] = i.to_be_bytes();
                all.add(error(&format!("10.1.{a}.{b}:862"), IcmpKind::TooBig(1_400)))
            })
            .count();
        assert_eq!((reported, all.lines().len()), (FEW, FEW + 1));
        assert_eq!(all.counters().values().sum::<u64>(), 10_000);
        assert!(all.lines()[0].contains("1400 bytes"));
    }
}
