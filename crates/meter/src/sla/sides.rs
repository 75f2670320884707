//! Losses whose side the next answers prove.
//!
//! Nothing that comes back during an outage shows on which side it is. The first answer after it
//! does: its record has the sides of losses that stand in the records before. So records with losses
//! of no side are held back for a while. Where the sides that come are all of one direction, and as
//! many as all losses that are open, each record gets its own. Else nothing is shared out: which
//! loss was on which side is not known then.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::Interval;

/// Holds back the records of one stream until their losses have sides, or for some time at most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SideSettler {
    hold_ns: i64,
    held: VecDeque<Interval>,
}

impl SideSettler {
    /// Holds for at most `hold_ns`: longer outages stay without a side.
    pub fn new(hold_ns: i64) -> Self {
        SideSettler { hold_ns, held: VecDeque::new() }
    }

    /// Takes the stream's next record, and adds to `out` those that nothing can change any more.
    pub fn push(&mut self, record: Interval, out: &mut Vec<Interval>) {
        self.held.push_back(record);
        self.share_out();
        let last_ns = self.held.back().map_or(i64::MIN, |r| r.end_ns);
        self.release(last_ns.saturating_sub(self.hold_ns), out);
    }

    /// Nothing more comes from before `now_ns`.
    pub fn advance(&mut self, now_ns: i64, out: &mut Vec<Interval>) {
        self.release(now_ns.saturating_sub(self.hold_ns), out);
    }

    /// Gives all that is held, as it is.
    pub fn finish(&mut self, out: &mut Vec<Interval>) {
        out.extend(self.held.drain(..));
    }

    fn release(&mut self, before_ns: i64, out: &mut Vec<Interval>) {
        while self.held.front().is_some_and(|r| open(r) == 0 || r.end_ns <= before_ns) {
            out.extend(self.held.pop_front());
        }
    }

    fn share_out(&mut self) {
        let sum = |of: fn(&Interval) -> u64| self.held.iter().map(of).sum::<u64>();
        let forward = sum(|r| r.counters.lost_forward.unwrap_or(0));
        let backward = sum(|r| r.counters.lost_backward.unwrap_or(0));
        let lost = sum(|r| r.counters.lost);
        if lost == 0 || forward + backward != lost || (forward > 0 && backward > 0) {
            return;
        }
        for record in &mut self.held {
            let c = &mut record.counters;
            let (ours, others) = (Some(c.lost), Some(0));
            (c.lost_forward, c.lost_backward) =
                if forward > 0 { (ours, others) } else { (others, ours) };
            c.settle_sides();
            record.loss_side = c.loss_side();
        }
    }
}

/// Losses of a record that have no side yet.
fn open(record: &Interval) -> u64 {
    let c = &record.counters;
    c.lost.saturating_sub(c.lost_forward.unwrap_or(0) + c.lost_backward.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::LossSide;

    fn record(at: i64, lost: u64, sides: Option<(u64, u64)>) -> Interval {
        let mut record = Interval { start_ns: at, end_ns: at + 1, ..Interval::empty(0) };
        record.counters.sent = 10;
        record.counters.lost = lost;
        record.counters.lost_forward = sides.map(|s| s.0);
        record.counters.lost_backward = sides.map(|s| s.1);
        record
    }

    /// When each came out (by what was put in), and its sides.
    fn settled(hold_ns: i64, records: &[Interval]) -> Vec<(i64, Option<u64>, Option<u64>)> {
        let mut settler = SideSettler::new(hold_ns);
        let mut out = Vec::new();
        records.iter().for_each(|r| settler.push(r.clone(), &mut out));
        settler.finish(&mut out);
        assert!(out.is_sorted_by_key(|r| r.start_ns) && out.len() == records.len());
        out.iter()
            .map(|r| (r.start_ns, r.counters.lost_forward, r.counters.lost_backward))
            .collect()
    }

    #[test]
    fn an_outage_gets_its_side_from_the_first_answer_after_it() {
        let outage = [
            record(0, 0, Some((0, 0))),
            record(1, 4, None),
            record(2, 10, None),
            record(3, 10, None),
            record(4, 2, Some((0, 26))),
            record(5, 0, Some((0, 0))),
        ];
        let backward = [0, 4, 10, 10, 2, 0].map(|n| (Some(0), Some(n)));
        let got = settled(100, &outage);
        for (at, (got, want)) in got.iter().zip(backward).enumerate() {
            assert_eq!((got.0, (got.1, got.2)), (at as i64, want));
        }
        let mut settler = SideSettler::new(100);
        let mut out = Vec::new();
        outage.iter().take(4).for_each(|r| settler.push(r.clone(), &mut out));
        assert_eq!(out.len(), 1, "three wait");
        settler.push(outage[4].clone(), &mut out);
        assert_eq!((out.len(), out[3].loss_side), (5, LossSide::Known));
    }

    #[test]
    fn what_is_not_certain_is_not_shared_out() {
        // Both sides; fewer sides than losses; an outage longer than is waited for.
        for last in [(13, 13), (0, 25)] {
            let outage = [record(1, 14, None), record(2, 10, None), record(3, 2, Some(last))];
            assert_eq!(settled(100, &outage)[0], (1, None, None));
        }
        let outage = [
            record(1, 10, None),
            record(2, 10, None),
            record(3, 10, None),
            record(4, 0, Some((30, 0))),
        ];
        let got = settled(2, &outage);
        assert_eq!((got[0], got[3]), ((1, None, None), (4, Some(30), Some(0))));
    }

    #[test]
    fn time_releases_what_is_held() {
        let mut settler = SideSettler::new(10);
        let mut out = Vec::new();
        settler.push(record(1, 10, None), &mut out);
        settler.advance(11, &mut out);
        assert!(out.is_empty());
        settler.advance(12, &mut out);
        assert_eq!(out.len(), 1);
    }
}
