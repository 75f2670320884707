//! The flows that carry most now: the rate of each since it was last looked at. All flows
//! are looked at in turn, a part at a time, so that a large cache does not hold up packets.

use sonde_meter::flow::FlowCache;
use sonde_results::flow::FlowRecord;

/// A flow and its rate.
#[derive(Clone, Debug)]
pub struct Talker {
    /// The flow so far.
    pub record: FlowRecord,
    /// Bytes a second since the look before.
    pub rate: u64,
}

/// Finds the fastest flows of one cache.
#[derive(Default)]
pub struct TopTalkers {
    /// Bytes of the flow when it was looked at last, by slot. That costs no memory until a
    /// slot is in use.
    seen: Vec<u64>,
    /// When each part was looked at last, ns.
    looked_ns: Vec<i64>,
    part: usize,
    /// The fastest of this round so far, in no order.
    round: Vec<Talker>,
    /// Slower flows are not among the fastest of this round.
    least: u64,
}

impl TopTalkers {
    /// Looks at the next part. At the end of each round: the fastest flows, the fastest first.
    pub fn look(&mut self, cache: &FlowCache, now_ns: i64) -> Option<Vec<Talker>> {
        self.seen.resize(cache.occupancy().capacity as usize, 0);
        self.looked_ns.resize(self.seen.len().div_ceil(PART), 0);
        let before_ns = std::mem::replace(&mut self.looked_ns[self.part], now_ns);
        let first = (self.part * PART) as u32;
        cache.scan(first..first + PART as u32, |flow| {
            let bytes = flow.bytes();
            let then = std::mem::replace(&mut self.seen[flow.slot() as usize], bytes);
            let first_ns = flow.first_ns();
            // A flow may have gone, and another have its slot.
            let (since_ns, then) =
                if first_ns >= before_ns { (first_ns, 0) } else { (before_ns, then) };
            let span = (now_ns - since_ns).max(SHORTEST_NS) as u128;
            let rate = (u128::from(bytes.saturating_sub(then)) * 1_000_000_000 / span) as u64;
            if rate > self.least {
                self.round.push(Talker { record: flow.record(), rate });
                if self.round.len() == 2 * KEPT {
                    cut(&mut self.round);
                    self.least = self.round.last().map_or(0, |f| f.rate);
                }
            }
        });
        self.part += 1;
        if self.part * PART < cache.slots() as usize {
            return None;
        }
        (self.part, self.least) = (0, 0);
        let mut round = std::mem::take(&mut self.round);
        cut(&mut round);
        Some(round)
    }
}

/// The fastest, the fastest first.
pub fn cut(flows: &mut Vec<Talker>) {
    flows.sort_by_key(|f| std::cmp::Reverse(f.rate));
    flows.truncate(KEPT);
}

/// Slots of one look: 4 MiB are read in order, which takes well below the 100 ms between looks.
const PART: usize = 1 << 16;
/// Flows that are kept.
const KEPT: usize = 50;
/// A flow that is younger than this has no rate worth showing.
const SHORTEST_NS: i64 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_meter::flow::{Config, features};
    use sonde_results::units::SECOND;
    use sonde_wire::feature::Feature;

    fn packet(flow: u32, length: u32, at_ns: i64) -> Feature {
        let mut packet = Feature { protocol: 17, ip_len: length, at_ns, ..Feature::default() };
        packet.source = std::net::Ipv4Addr::from(flow).to_ipv6_mapped().octets();
        packet.destination = std::net::Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets();
        (packet.source_port, packet.destination_port) = (1, 2);
        packet
    }

    #[test]
    fn the_fastest_of_all_slots_are_shown_with_their_rates() {
        let flows = 2 * PART as u32;
        let mut cache = FlowCache::new(Config {
            flows: flows as usize,
            idle_ns: 60 * SECOND,
            active_ns: 600 * SECOND,
            biflow: true,
            secret: [1, 2],
            features: features::Config::default(),
            ..Config::default()
        });
        let mut sink = |_| panic!("no flow ends");
        let base = 1_800_000_000 * SECOND;
        let each = 100_000;
        for flow in 0..each {
            // The first one is the greatest, and then silent.
            let length = if flow == 0 { 60_000 } else { 100 };
            cache.burst(&[packet(flow, length, base + i64::from(flow))], &[], &mut sink);
        }
        let mut now = TopTalkers::default();
        assert!(now.look(&cache, base + SECOND).is_none());
        let fast = now.look(&cache, base + SECOND).unwrap();
        assert_eq!((fast.len(), fast[0].record.forward.bytes), (KEPT, 60_000));
        for (flow, length) in [(7, 500), (each - 1, 900)] {
            let at = base + SECOND + SECOND / 2;
            cache.burst(&[packet(flow, length, at)], &[], &mut sink);
        }
        assert!(now.look(&cache, base + 2 * SECOND).is_none());
        let fast = now.look(&cache, base + 2 * SECOND).unwrap();
        let rates: Vec<_> = fast.iter().map(|f| (f.rate, f.record.forward.bytes)).collect();
        assert_eq!(rates, [(900, 1_000), (500, 600)]);
    }
}
