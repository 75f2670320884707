//! Every table once: name, levels, windows, default retention.

use serde::{Deserialize, Serialize};

use crate::{DAY_NS, HOUR_NS, MINUTE_NS};

/// A table of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Table {
    /// Interval records at the full rate.
    #[serde(rename = "iv")]
    Interval,
    /// Those of one minute.
    #[serde(rename = "iv1m")]
    Interval1m,
    /// Those of one hour.
    #[serde(rename = "iv1h")]
    Interval1h,
    /// Those of one day.
    #[serde(rename = "iv1d")]
    Interval1d,
    /// Flow records.
    #[serde(rename = "flow")]
    Flow,
    /// Those of five minutes.
    #[serde(rename = "flow5m")]
    Flow5m,
    /// Those of one hour.
    #[serde(rename = "flow1h")]
    Flow1h,
    /// Groups of passive round-trip times, of intervals.
    #[serde(rename = "rtt")]
    Rtt,
    /// Those of one minute.
    #[serde(rename = "rtt1m")]
    Rtt1m,
    /// Those of one hour.
    #[serde(rename = "rtt1h")]
    Rtt1h,
    /// Those of one day.
    #[serde(rename = "rtt1d")]
    Rtt1d,
    /// Counters of interfaces, of intervals.
    #[serde(rename = "iface")]
    Interface,
    /// Those of five minutes.
    #[serde(rename = "iface5m")]
    Interface5m,
    /// Those of one hour.
    #[serde(rename = "iface1h")]
    Interface1h,
}

impl Table {
    /// All, each after that which it is rolled up from.
    pub const ALL: [Table; 14] = [
        Table::Interval,
        Table::Interval1m,
        Table::Interval1h,
        Table::Interval1d,
        Table::Flow,
        Table::Flow5m,
        Table::Flow1h,
        Table::Rtt,
        Table::Rtt1m,
        Table::Rtt1h,
        Table::Rtt1d,
        Table::Interface,
        Table::Interface5m,
        Table::Interface1h,
    ];

    /// Its name: folder, catalogue, SQL.
    pub fn name(self) -> &'static str {
        match self {
            Table::Interval => "iv",
            Table::Interval1m => "iv1m",
            Table::Interval1h => "iv1h",
            Table::Interval1d => "iv1d",
            Table::Flow => "flow",
            Table::Flow5m => "flow5m",
            Table::Flow1h => "flow1h",
            Table::Rtt => "rtt",
            Table::Rtt1m => "rtt1m",
            Table::Rtt1h => "rtt1h",
            Table::Rtt1d => "rtt1d",
            Table::Interface => "iface",
            Table::Interface5m => "iface5m",
            Table::Interface1h => "iface1h",
        }
    }

    /// The table of that name.
    pub fn from_name(name: &str) -> Option<Table> {
        Table::ALL.into_iter().find(|table| table.name() == name)
    }

    /// Length of its windows, ns; 0: rows at the full rate.
    pub fn step_ns(self) -> i64 {
        match self {
            Table::Interval | Table::Flow | Table::Rtt | Table::Interface => 0,
            Table::Interval1m | Table::Rtt1m => MINUTE_NS,
            Table::Flow5m | Table::Interface5m => 5 * MINUTE_NS,
            Table::Interval1h | Table::Flow1h | Table::Rtt1h | Table::Interface1h => HOUR_NS,
            Table::Interval1d | Table::Rtt1d => DAY_NS,
        }
    }

    /// What it is rolled up into.
    pub fn coarser(self) -> Option<Table> {
        match self {
            Table::Interval => Some(Table::Interval1m),
            Table::Interval1m => Some(Table::Interval1h),
            Table::Interval1h => Some(Table::Interval1d),
            Table::Flow => Some(Table::Flow5m),
            Table::Flow5m => Some(Table::Flow1h),
            Table::Rtt => Some(Table::Rtt1m),
            Table::Rtt1m => Some(Table::Rtt1h),
            Table::Rtt1h => Some(Table::Rtt1d),
            Table::Interface => Some(Table::Interface5m),
            Table::Interface5m => Some(Table::Interface1h),
            Table::Interval1d | Table::Flow1h | Table::Rtt1d | Table::Interface1h => None,
        }
    }

    /// What it is rolled up from.
    pub fn finer(self) -> Option<Table> {
        Table::ALL.into_iter().find(|table| table.coarser() == Some(self))
    }

    /// Rows at the full rate.
    pub fn is_raw(self) -> bool {
        self.step_ns() == 0
    }

    /// What it is rolled up from in the end: the table of its rows at the full rate.
    pub fn raw(self) -> Table {
        self.finer().map_or(self, Table::raw)
    }

    /// Compaction makes one segment of so much time, ns.
    pub fn period_ns(self) -> i64 {
        match self {
            Table::Interval | Table::Flow | Table::Rtt | Table::Interface => HOUR_NS,
            Table::Interval1m | Table::Flow5m | Table::Rtt1m | Table::Interface5m => DAY_NS,
            Table::Interval1h | Table::Flow1h | Table::Rtt1h | Table::Interface1h => 30 * DAY_NS,
            Table::Interval1d | Table::Rtt1d => 360 * DAY_NS,
        }
    }
}
