//! The records with most bytes, of arbitrarily many.

use sonde_results::flow::FlowRecord;

/// Keeps the greatest, in bounded memory.
pub struct Largest {
    keep: usize,
    /// At most twice as many as are kept.
    records: Vec<FlowRecord>,
    /// Records of no more bytes are not among the greatest, once there are enough.
    least: Option<u64>,
}

impl Largest {
    pub fn new(keep: usize) -> Self {
        Largest { keep, records: Vec::with_capacity(2 * keep), least: None }
    }

    #[inline]
    pub fn add(&mut self, record: &FlowRecord) {
        if self.least.is_none_or(|least| bytes(record) > least) {
            self.keep(record);
        }
    }

    #[inline(never)]
    fn keep(&mut self, record: &FlowRecord) {
        let FlowRecord { key, forward, reverse, end, .. } = *record;
        self.records.push(FlowRecord { key, forward, reverse, end, extra: None });
        if self.records.len() == 2 * self.keep {
            self.cut();
        }
    }

    /// The records by bytes, descending.
    pub fn sorted(mut self) -> Vec<FlowRecord> {
        self.cut();
        self.records
    }

    fn cut(&mut self) {
        self.records.sort_by_key(|r| std::cmp::Reverse(bytes(r)));
        self.records.truncate(self.keep);
        if self.records.len() == self.keep {
            self.least = self.records.last().map(bytes);
        }
    }
}

/// Octets of both directions together.
pub fn bytes(record: &FlowRecord) -> u64 {
    record.forward.bytes + record.reverse.bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::flow::{FlowEnd, FlowKey, FlowSide};
    use std::net::{IpAddr, Ipv4Addr};

    fn record(bytes: u64) -> FlowRecord {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        FlowRecord {
            key: FlowKey {
                point: 0,
                vlan: 0,
                protocol: 17,
                source: address,
                destination: address,
                source_port: 1,
                destination_port: 2,
            },
            forward: FlowSide { packets: 1, bytes, ..FlowSide::default() },
            reverse: FlowSide::default(),
            end: FlowEnd::Idle,
            extra: None,
        }
    }

    #[test]
    fn the_greatest_are_kept_in_order() {
        let mut top = Largest::new(3);
        // 7919 is prime: every size from 0 to 999 comes once, in no order.
        (0..1000).for_each(|i| top.add(&record(i * 7919 % 1000)));
        assert_eq!(top.sorted().iter().map(bytes).collect::<Vec<_>>(), [999, 998, 997]);
    }
}
