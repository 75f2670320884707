//! Counters of interfaces as rows: what one interface counted in an interval, and roll-ups of that.

use serde::{Deserialize, Serialize};

use crate::column::{Column, Kind, On, StoredRow};
use crate::series::SeriesId;

/// What one interface counted in one or more intervals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceRow {
    /// The interface.
    pub series: SeriesId,
    /// First instant (inclusive) of the interval or window, ns since 1970 UTC.
    pub start_ns: i64,
    /// Time that the intervals last together, ns.
    pub length_ns: i64,
    /// How many intervals; 1 at the full rate.
    pub intervals: u64,
    /// What came in.
    pub receive: InterfaceSide,
    /// What went out.
    pub transmit: InterfaceSide,
    /// Packets that the queueing disciplines of the interface dropped before it had them.
    pub queue_dropped: u64,
    /// The greatest speed that the interface said it has, bit/s; 0: none.
    pub speed_bps: u64,
}

/// What an interface counted in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceSide {
    /// Octets of frames, as the driver counts them: mostly with the Ethernet header, without the FCS.
    pub octets: u64,
    /// Packets.
    pub packets: u64,
    /// Packets that were dropped though nothing was wrong with them: no room, no receiver.
    pub dropped: u64,
    /// Packets that were damaged or could not be sent.
    pub errors: u64,
}

impl InterfaceSide {
    fn add(&mut self, other: &InterfaceSide) {
        self.octets += other.octets;
        self.packets += other.packets;
        self.dropped += other.dropped;
        self.errors += other.errors;
    }
}

impl InterfaceRow {
    /// Adds another row. The begin stays.
    pub fn add(&mut self, other: &InterfaceRow) {
        self.length_ns += other.length_ns;
        self.intervals += other.intervals;
        self.receive.add(&other.receive);
        self.transmit.add(&other.transmit);
        self.queue_dropped += other.queue_dropped;
        self.speed_bps = self.speed_bps.max(other.speed_bps);
    }

    /// Moved to the window of `step_ns` in which it begins.
    pub(crate) fn in_window(mut self, step_ns: i64) -> Self {
        self.start_ns -= self.start_ns.rem_euclid(step_ns);
        self
    }
}

impl StoredRow for InterfaceRow {
    /// Interface, time.
    type Key = (u32, i64);

    const COLUMNS: &'static [Column<Self>] = &[
        every("series", Kind::Close(|r| r.series.0.into(), |r, v| r.series = SeriesId(v as u32))),
        every("start", Kind::Instant(|r| r.start_ns, |r, v| r.start_ns = v)),
        every("length_ns", Kind::Few(|r| r.length_ns, |r, v| r.length_ns = v)),
        every("intervals", Kind::Few(|r| r.intervals as i64, |r, v| r.intervals = v as u64)),
        count("receive_octets", |r| r.receive.octets as i64, |r, v| r.receive.octets = v as u64),
        count("receive_packets", |r| r.receive.packets as i64, |r, v| r.receive.packets = v as u64),
        count("receive_dropped", |r| r.receive.dropped as i64, |r, v| r.receive.dropped = v as u64),
        count("receive_errors", |r| r.receive.errors as i64, |r, v| r.receive.errors = v as u64),
        count(
            "transmit_octets",
            |r| r.transmit.octets as i64,
            |r, v| {
                r.transmit.octets = v as u64;
            },
        ),
        count(
            "transmit_packets",
            |r| r.transmit.packets as i64,
            |r, v| {
                r.transmit.packets = v as u64;
            },
        ),
        count(
            "transmit_dropped",
            |r| r.transmit.dropped as i64,
            |r, v| {
                r.transmit.dropped = v as u64;
            },
        ),
        count(
            "transmit_errors",
            |r| r.transmit.errors as i64,
            |r, v| {
                r.transmit.errors = v as u64;
            },
        ),
        count("queue_dropped", |r| r.queue_dropped as i64, |r, v| r.queue_dropped = v as u64),
        count("speed_bps", |r| r.speed_bps as i64, |r, v| r.speed_bps = v as u64),
    ];

    fn key(&self) -> Self::Key {
        (self.series.0, self.start_ns)
    }

    fn time_ns(&self) -> i64 {
        self.start_ns
    }

    fn series(&self) -> u32 {
        self.series.0
    }

    fn merged(rows: &[Self]) -> Self {
        let mut rows = rows.iter();
        let mut sum = rows.next().cloned().unwrap_or_default();
        rows.for_each(|row| sum.add(row));
        sum
    }
}

const fn every(name: &'static str, kind: Kind<InterfaceRow>) -> Column<InterfaceRow> {
    Column { name, on: On::Every, kind }
}

const fn count(
    name: &'static str,
    get: fn(&InterfaceRow) -> i64,
    set: fn(&mut InterfaceRow, i64),
) -> Column<InterfaceRow> {
    every(name, Kind::Few(get, set))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_add_up_but_for_the_speed() {
        let side = |n| InterfaceSide { octets: 100 * n, packets: n, dropped: n / 2, errors: 1 };
        let row = |n: u64, speed_bps| InterfaceRow {
            start_ns: 7,
            length_ns: 10,
            intervals: 1,
            receive: side(n),
            transmit: side(2 * n),
            queue_dropped: n,
            speed_bps,
            ..InterfaceRow::default()
        };
        let sum = InterfaceRow::merged(&[row(4, 10), row(6, 1_000)]);
        let total =
            |octets, packets, dropped| InterfaceSide { octets, packets, dropped, errors: 2 };
        assert_eq!((sum.start_ns, sum.length_ns, sum.intervals), (7, 20, 2));
        assert_eq!((sum.receive, sum.transmit), (total(1_000, 10, 5), total(2_000, 20, 10)));
        assert_eq!((sum.queue_dropped, sum.speed_bps), (10, 1_000));
    }
}
