//! When the station doubts itself: its own faults are no faults of the network.

use crate::caveat::{Caveat, CaveatSet};
use crate::record::Counters;

/// Why an interval says more of the station than of the network; `None`: it does not. Its time is
/// left out under the caveat's name.
///
/// - Less than 90 % of what was due was sent, though something was. (Where nothing was sent there
///   is no data.)
/// - More than 1 % left late: the 99th percentile of the lateness is beyond the probe's limit.
/// - This host dropped packets itself, and some count as lost.
/// - Its clock was set.
pub fn own_doubt(c: &Counters, caveats: CaveatSet) -> Option<Caveat> {
    let has = |caveat| caveats.contains(caveat);
    let due = c.sent + c.skipped;
    match () {
        () if has(Caveat::ClockStepped) => Some(Caveat::ClockStepped),
        () if c.sent > 0 && c.sent * 10 < due * 9 => Some(match has(Caveat::SendsFailed) {
            true => Caveat::SendsFailed,
            false => Caveat::SendsSkipped,
        }),
        () if c.sent_late * 100 > c.sent => Some(Caveat::SenderLate),
        () if has(Caveat::OwnDrops) && c.lost > 0 => Some(Caveat::OwnDrops),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_faults_are_doubts() {
        let of = |counters: Counters, caveats: &[Caveat]| {
            let mut set = CaveatSet::default();
            caveats.iter().for_each(|&caveat| set.insert(caveat));
            own_doubt(&counters, set)
        };
        let sent = |sent, skipped| Counters { sent, skipped, ..Counters::default() };
        assert_eq!(of(sent(90, 10), &[]), None);
        assert_eq!(of(sent(89, 11), &[]), Some(Caveat::SendsSkipped));
        assert_eq!(of(sent(89, 11), &[Caveat::SendsFailed]), Some(Caveat::SendsFailed));
        assert_eq!(of(sent(0, 100), &[Caveat::SendsFailed]), None, "no data");
        let late = |sent_late| Counters { sent: 100, sent_late, ..Counters::default() };
        assert_eq!(of(late(1), &[Caveat::SenderLate]), None);
        assert_eq!(of(late(2), &[]), Some(Caveat::SenderLate));
        let lost = |lost| Counters { sent: 100, lost, ..Counters::default() };
        assert_eq!(of(lost(100), &[Caveat::NoReply]), None);
        assert_eq!(of(lost(1), &[Caveat::OwnDrops]), Some(Caveat::OwnDrops));
        assert_eq!(of(lost(0), &[Caveat::OwnDrops]), None);
        assert_eq!(of(lost(0), &[Caveat::ClockStepped]), Some(Caveat::ClockStepped));
    }
}
