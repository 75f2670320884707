//! Passive round-trip times as rows: one group of hosts in one interval, and roll-ups of them.
//!
//! Single samples and flows of round trips are in no table: at the rate of traffic they are a
//! capture, not a history.

use sonde_results::Caveat;
use sonde_results::caveat::CaveatSet;
use sonde_results::rtt::{GroupKey, RttGroup};
use sonde_results::units::format_dscp;

use crate::column::{Column, Kind, On, StoredRow};
use crate::hist_blob::{HistBlob, HistSum};
use crate::interval::{IntervalRow, from_pairs, pairs};
use crate::series::SeriesId;

/// One group of one or more intervals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RttRow {
    /// The unit that measured.
    pub series: SeriesId,
    /// What the hosts have in common, as [`group_name`] gives it: "192.0.2.0/24".
    pub group: Box<str>,
    /// First instant (inclusive) of the interval or window, ns since 1970 UTC.
    pub start_ns: i64,
    /// Time that the intervals last together, ns.
    pub length_ns: i64,
    /// How many intervals; 1 at the full rate.
    pub intervals: u64,
    /// Samples of the path and the host alone.
    pub clean: HistBlob,
    /// Samples taken in loss recovery.
    pub recovery: HistBlob,
    /// Samples with an acknowledgement that was held back.
    pub delayed_ack: HistBlob,
    /// Caveats of any interval: bit n is [`Caveat::ALL`]`[n]`.
    pub caveats: u64,
    /// Of a roll-up: pairs of a caveat's bit and the number of intervals in which it is true.
    pub caveat_counts: Box<[u8]>,
}

impl RttRow {
    /// A group of an interval. Its times are UTC; `point` names interfaces by their index.
    pub fn new(
        series: SeriesId,
        group: &RttGroup,
        caveats: CaveatSet,
        point: &dyn Fn(u8) -> String,
    ) -> Self {
        RttRow {
            series,
            group: group_name(&group.key, point).into(),
            start_ns: group.start_ns,
            length_ns: group.end_ns.saturating_sub(group.start_ns).max(0),
            intervals: 1,
            clean: HistBlob::new(&group.clean),
            recovery: HistBlob::new(&group.recovery),
            delayed_ack: HistBlob::new(&group.delayed_ack),
            caveats: caveats.iter().fold(0, |mask, c| mask | 1 << c as u8),
            caveat_counts: Box::default(),
        }
    }

    /// The same as an interval without probes, whose round trips are the clean samples: so all
    /// questions of delay can be asked of it.
    pub fn to_interval(&self) -> IntervalRow {
        IntervalRow {
            series: self.series,
            start_ns: self.start_ns,
            length_ns: self.length_ns,
            intervals: self.intervals,
            rtt_net: self.clean.clone(),
            caveats: self.caveats,
            caveat_counts: self.caveat_counts.clone(),
            ..IntervalRow::default()
        }
    }

    /// Moved to the window of `step_ns` in which it begins.
    pub(crate) fn in_window(mut self, step_ns: i64) -> Self {
        self.start_ns -= self.start_ns.rem_euclid(step_ns);
        self
    }

    /// Bits of caveats, and of how many intervals each is true.
    fn caveat_counts(&self) -> impl Iterator<Item = (u64, u64)> {
        // At the full rate the bits say it all.
        let alone = if self.caveat_counts.is_empty() { self.caveats } else { 0 };
        let alone = (0..64).filter(move |bit| alone >> bit & 1 == 1).map(|bit| (bit, 1));
        alone.chain(from_pairs(&self.caveat_counts))
    }
}

/// What a group is called in the store: a prefix, `AS64500` (`AS0`: not known), `interface eth0`,
/// `vlan 12`, `dscp EF`, a flow as `host:port>peer:port/protocol`, `other`.
pub fn group_name(key: &GroupKey, point: &dyn Fn(u8) -> String) -> String {
    match key {
        GroupKey::Prefix { address, length } => format!("{address}/{length}"),
        GroupKey::As(number) => format!("AS{number}"),
        GroupKey::Interface(index) => format!("interface {}", point(*index)),
        GroupKey::Vlan(id) => format!("vlan {id}"),
        GroupKey::Dscp(dscp) => format!("dscp {}", format_dscp(*dscp)),
        GroupKey::Flow(flow) => {
            let end = std::net::SocketAddr::new;
            let vlan = if flow.vlan == 0 { String::new() } else { format!(" vlan {}", flow.vlan) };
            format!(
                "{}>{}/{}{vlan} {}",
                end(flow.source, flow.source_port),
                end(flow.destination, flow.destination_port),
                flow.protocol,
                point(flow.point)
            )
        }
        GroupKey::Other => "other".into(),
    }
}

/// Adds rows up, of one group or of several. The result does not depend on their order.
#[derive(Clone, Debug, Default)]
pub struct RttSum {
    /// Time that the intervals last together, ns.
    pub length_ns: i64,
    /// How many intervals.
    pub intervals: u64,
    /// Samples of the path and the host alone.
    pub clean: HistSum,
    /// Samples taken in loss recovery.
    pub recovery: HistSum,
    /// Samples with an acknowledgement that was held back.
    pub delayed_ack: HistSum,
    /// Of how many intervals each bit is true.
    caveats: Vec<u64>,
}

impl RttSum {
    /// Adds a row.
    pub fn add(&mut self, row: &RttRow) {
        self.length_ns += row.length_ns;
        self.intervals += row.intervals;
        self.clean.add(&row.clean);
        self.recovery.add(&row.recovery);
        self.delayed_ack.add(&row.delayed_ack);
        for (bit, n) in row.caveat_counts() {
            self.caveats.resize(64, 0);
            if let Some(count) = self.caveats.get_mut(bit as usize) {
                *count += n;
            }
        }
    }

    /// Adds all that `other` holds.
    pub fn merge(&mut self, other: &RttSum) {
        self.length_ns += other.length_ns;
        self.intervals += other.intervals;
        self.clean.merge(&other.clean);
        self.recovery.merge(&other.recovery);
        self.delayed_ack.merge(&other.delayed_ack);
        self.caveats.resize(self.caveats.len().max(other.caveats.len()), 0);
        self.caveats.iter_mut().zip(&other.caveats).for_each(|(n, more)| *n += more);
    }

    /// Caveats, and of how many of [`RttSum::intervals`] each is true. Those of later versions are
    /// left out.
    pub fn caveats(&self) -> Vec<(Caveat, u64)> {
        let all = Caveat::ALL.into_iter().zip(self.caveats.iter().copied());
        all.filter(|&(_, n)| n > 0).collect()
    }

    /// As a row of a roll-up.
    fn to_row(&self, series: SeriesId, group: Box<str>, start_ns: i64) -> RttRow {
        let counts = self.caveats.iter().enumerate().map(|(bit, &n)| (bit as u64, n));
        let counts = counts.filter(|&(_, n)| n > 0);
        RttRow {
            series,
            group,
            start_ns,
            length_ns: self.length_ns,
            intervals: self.intervals,
            clean: self.clean.to_blob(),
            recovery: self.recovery.to_blob(),
            delayed_ack: self.delayed_ack.to_blob(),
            caveats: counts.clone().fold(0, |mask, (bit, _)| mask | 1 << bit),
            caveat_counts: pairs(counts),
        }
    }
}

impl StoredRow for RttRow {
    /// Unit, group, time: a group's rows lie together.
    type Key = (u32, Box<str>, i64);

    const COLUMNS: &'static [Column<Self>] = &[
        every("series", Kind::Close(|r| r.series.0.into(), |r, v| r.series = SeriesId(v as u32))),
        every("group", Kind::Text(|r| &r.group, |r, v| r.group = v.into())),
        every("start", Kind::Instant(|r| r.start_ns, |r, v| r.start_ns = v)),
        every("length_ns", Kind::Few(|r| r.length_ns, |r, v| r.length_ns = v)),
        every("intervals", Kind::Few(|r| r.intervals as i64, |r, v| r.intervals = v as u64)),
        every("clean", Kind::Hist(|r| &r.clean, |r, v| r.clean = v)),
        every("recovery", Kind::Hist(|r| &r.recovery, |r, v| r.recovery = v)),
        every("delayed_ack", Kind::Hist(|r| &r.delayed_ack, |r, v| r.delayed_ack = v)),
        every("caveats", Kind::Few(|r| r.caveats as i64, |r, v| r.caveats = v as u64)),
        Column {
            name: "caveat_counts",
            on: On::RollUp,
            kind: Kind::Octets(|r| &r.caveat_counts, |r, v| r.caveat_counts = v.into()),
        },
    ];

    fn key(&self) -> Self::Key {
        (self.series.0, self.group.clone(), self.start_ns)
    }

    fn time_ns(&self) -> i64 {
        self.start_ns
    }

    fn series(&self) -> u32 {
        self.series.0
    }

    fn merged(rows: &[Self]) -> Self {
        let mut sum = RttSum::default();
        rows.iter().for_each(|row| sum.add(row));
        let first = rows.first().cloned().unwrap_or_default();
        sum.to_row(first.series, first.group, first.start_ns)
    }
}

const fn every(name: &'static str, kind: Kind<RttRow>) -> Column<RttRow> {
    Column { name, on: On::Every, kind }
}

#[cfg(test)]
mod tests {
    use sonde_results::rtt::FlowKey;

    use super::*;

    #[test]
    fn a_group_is_called_by_what_its_hosts_have_in_common() {
        let name = |key| group_name(&key, &|index| format!("eth{index}"));
        let prefix = GroupKey::Prefix { address: "2001:db8::".parse().unwrap(), length: 48 };
        assert_eq!(name(prefix), "2001:db8::/48");
        assert_eq!(name(GroupKey::As(64_500)), "AS64500");
        assert_eq!(name(GroupKey::Interface(3)), "interface eth3");
        assert_eq!(name(GroupKey::Vlan(0)), "vlan 0");
        assert_eq!(name(GroupKey::Dscp(46)), "dscp EF");
        assert_eq!(name(GroupKey::Other), "other");
        let flow = FlowKey {
            point: 1,
            vlan: 7,
            protocol: 6,
            source: "192.0.2.1".parse().unwrap(),
            destination: "2001:db8::1".parse().unwrap(),
            source_port: 443,
            destination_port: 5_000,
        };
        let expected = "192.0.2.1:443>[2001:db8::1]:5000/6 vlan 7 eth1";
        assert_eq!(name(GroupKey::Flow(flow)), expected);
    }
}
