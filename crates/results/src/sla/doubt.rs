//! When the station doubts itself: its own faults are no faults of the network.

use crate::caveat::{Caveat, CaveatSet};
use crate::record::Counters;
use sonde_wire::NotSent;

/// Why an interval says more of the station than of the network; `None`: it does not. Its time is
/// left out under the caveat's name.
///
/// - What [`loss_doubt`] says.
/// - More than 1 % left late: the 99th percentile of the lateness is beyond the probe's limit. A thread
///   that is woken late may read late, too.
pub fn own_doubt(c: &Counters, caveats: CaveatSet) -> Option<Caveat> {
    let late = (c.sent_late * 100 > c.sent).then_some(Caveat::SenderLate);
    loss_doubt(c, caveats).or(late)
}

/// The same of its losses: a packet that left late, and of which no reply came, is lost all the same.
///
/// - Less than 90 % of what was due was sent, though something was.
/// - Nothing was sent because of this host alone: its interface was down, or its address gone. (Where
///   nothing was sent for another reason there is no data.)
/// - This host dropped packets itself, and some count as lost.
/// - Its clock was set.
pub fn loss_doubt(c: &Counters, caveats: CaveatSet) -> Option<Caveat> {
    let has = |caveat| caveats.contains(caveat);
    let due = c.sent + c.skipped;
    let own: u64 = OWN_REASONS.into_iter().map(|why| c.not_sent.of(why)).sum();
    match () {
        () if has(Caveat::ClockStepped) => Some(Caveat::ClockStepped),
        () if c.sent == 0 && own > 0 && own == c.skipped => Some(Caveat::SendsFailed),
        () if c.sent > 0 && c.sent * 10 < due * 9 => Some(match has(Caveat::SendsFailed) {
            true => Caveat::SendsFailed,
            false => Caveat::SendsSkipped,
        }),
        () if has(Caveat::OwnDrops) && c.lost > 0 => Some(Caveat::OwnDrops),
        () => None,
    }
}

/// Reasons why packets were not sent that are this host's own. That no route leads to a target, or
/// that its next hop is silent, says something of the network.
pub const OWN_REASONS: [NotSent; 2] = [NotSent::LinkDown, NotSent::NoAddress];

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
        let unsent = |why, n| {
            let mut counters = sent(0, 100);
            counters.not_sent.add(NotSent::LinkDown, 100 - n);
            counters.not_sent.add(why, n);
            of(counters, &[])
        };
        assert_eq!(unsent(NotSent::NoAddress, 60), Some(Caveat::SendsFailed));
        assert_eq!(unsent(NotSent::NoRoute, 60), None, "the network's, in part");
    }

    #[test]
    fn what_left_late_and_was_lost_is_lost() {
        let mut set = CaveatSet::default();
        let late = Counters { sent: 100, sent_late: 50, lost: 100, ..Counters::default() };
        assert_eq!(own_doubt(&late, set), Some(Caveat::SenderLate));
        assert_eq!(loss_doubt(&late, set), None);
        set.insert(Caveat::OwnDrops);
        assert_eq!(own_doubt(&late, set), Some(Caveat::OwnDrops));
    }
}
