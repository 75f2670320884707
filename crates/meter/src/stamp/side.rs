//! On which side of the path probes were lost, from the reflector's own sequence numbers (RFC 8762,
//! section 4.3, stateful).
//!
//! Between two answered probes the reflector's counter went on by as many requests as it saw;
//! what else we sent between them never reached it. That holds only while these are the numbers
//! of one session that counts each of our requests once. So a side is stated only where they
//! prove it, and whatever speaks against it makes losses nearby unknown:
//!
//! - A sequence number that was given before, or fewer of them than answers. The reflector was
//!   restarted, or the probe was a new session to it (a NAT gave it another port).
//! - More sequence numbers than requests: some were duplicated on their way, another sender shares
//!   the session, or the numbers began elsewhere. A duplicate whose own reply is lost hides a loss
//!   on the way there. So losses are not split by side for a while after the first one seen. Only two
//!   replies to one request, with two numbers, are called duplicates.
//! - A session that begins behind our first probes may have had one before it. So losses before the
//!   first answer that the reflector did not count were on the way there only when many answers in
//!   order speak for one session.
//! - A request that was overtaken moves the sequence number of its neighbours: nothing is concluded
//!   between the two, only behind them.

use sonde_results::caveat::{Caveat, CaveatSet};

use super::spec::ReflectorKind;

/// The account of one stream.
pub(crate) struct LossAccount {
    /// Our sequence number and the reflector's at the last answered probe behind which nothing is
    /// open. Probes that were not sent have moved the former on.
    at: u32,
    reflector_seq: u32,
    /// The reflector's greatest sequence number since.
    top: u32,
    /// Lost since.
    pending: u32,
    /// The newest of our probes that was answered, and the reflector's sequence number for it.
    newest: (u32, u32),
    /// Losses of the last gap: stated when the next answer does not speak against them.
    open: (u32, u32),
    /// Losses on the way back, if the reflector counts by itself, which it has not shown yet.
    kept: u32,
    /// Stated and not yet taken.
    decided: (u32, u32),
    /// Answers in order that are asked for until they are believed again, and how many it
    /// will be the next time.
    trust: u16,
    distrust: u16,
    /// Answers for which a duplicated request still casts doubt.
    doubt: u16,
    /// Losses on the way there before the first answer, until `leading_wait` further answers do not
    /// speak against them. More than fit in here have no side.
    leading: u16,
    leading_wait: u16,
    flags: u16,
}

impl LossAccount {
    pub(crate) fn new(kind: ReflectorKind) -> Self {
        LossAccount {
            at: u32::MAX,
            reflector_seq: u32::MAX,
            top: u32::MAX,
            pending: 0,
            newest: (0, 0),
            open: (0, 0),
            kept: 0,
            decided: (0, 0),
            trust: 0,
            distrust: TRUST,
            doubt: 0,
            leading: 0,
            leading_wait: 0,
            flags: match kind {
                ReflectorKind::Auto => 0,
                ReflectorKind::Stateful => STATEFUL,
                ReflectorKind::Stateless => STATELESS,
            },
        }
    }

    /// Our first sequence number is `seq` instead of 0.
    pub(crate) fn begin_at(&mut self, seq: u32) {
        self.at = seq.wrapping_sub(1);
    }

    /// A first reply has arrived, in whatever order. If it shows that one of two requests overtook
    /// the other: the first of ours between which and the second nothing can be concluded.
    #[inline]
    pub(crate) fn seen(&mut self, seq: u32, reflector_seq: u32) -> Option<(u32, u32)> {
        let (newest, of_newest) = self.newest;
        if self.has(SEEN) {
            let later = after(seq, newest);
            // Or the sequence numbers began anew between them, which shows later.
            let overtaken = later != after(reflector_seq, of_newest);
            if !later {
                return overtaken.then_some((seq, newest));
            }
            self.newest = (seq, reflector_seq);
            return overtaken.then_some((newest, seq));
        }
        self.flags |= SEEN;
        self.newest = (seq, reflector_seq);
        None
    }

    /// A further reply to one request: `counted` anew by the reflector.
    pub(crate) fn duplicate(&mut self, counted: bool) {
        if counted {
            self.flags |= DUPLICATES | DUPLICATES_SEEN;
            self.doubt = DOUBT;
        }
    }

    /// Why losses that come while there is doubt have no side.
    fn reason(&self) -> u16 {
        if self.has(DUPLICATES_SEEN) { DUPLICATES } else { JUMPED }
    }

    /// The next probe in order was lost.
    pub(crate) fn lost(&mut self) {
        self.pending = self.pending.saturating_add(1);
        self.flags |= EVER_LOST;
    }

    /// The next probe in order was never sent.
    pub(crate) fn not_sent(&mut self) {
        self.at = self.at.wrapping_add(1);
    }

    /// The next probe in order was answered. `overtaken`: a request around it was.
    #[inline]
    pub(crate) fn answered(&mut self, seq: u32, reflector_seq: u32, overtaken: bool) {
        if self.has(STATELESS) {
            self.pending = 0;
            return;
        }
        if !self.has(ANCHORED) {
            self.anchor(seq, reflector_seq);
            if self.at == seq {
                return;
            }
        }
        if after(reflector_seq, self.top) {
            self.top = reflector_seq;
        } else if !after(reflector_seq, self.reflector_seq) {
            self.flags |= BROKEN;
        }
        if overtaken {
            return;
        }
        let sent = i64::from(seq.wrapping_sub(self.at));
        let counted = i64::from(self.top.wrapping_sub(self.reflector_seq) as i32);
        let lost = std::mem::take(&mut self.pending);
        // Sequence numbers that nobody has shown us: those of requests whose replies were lost.
        let unseen = counted - (sent - i64::from(lost));
        (self.at, self.reflector_seq) = (seq, self.top);
        if self.has(BROKEN) || unseen < 0 || unseen > i64::from(lost) + JUMP {
            self.breaks(reflector_seq);
        } else if unseen > i64::from(lost) {
            self.surplus(seq != reflector_seq);
        } else {
            self.conclude(lost, unseen as u32, seq != reflector_seq);
        }
    }

    /// The first answer. A new session starts at 0, or where we do if the reflector copies our
    /// sequence number. A counter beyond ours has counted before us, and what was lost until now
    /// has no side.
    fn anchor(&mut self, seq: u32, reflector_seq: u32) {
        self.flags |= ANCHORED | LEADING;
        let since = seq.wrapping_sub(self.at);
        let copied = self.at.wrapping_sub(reflector_seq).wrapping_add(since);
        if copied < since {
            self.reflector_seq = self.at;
        } else if reflector_seq < since {
            self.reflector_seq = u32::MAX;
        } else {
            (self.at, self.reflector_seq, self.pending) = (seq, reflector_seq, 0);
            self.flags |= STATEFUL;
        }
        self.top = self.reflector_seq;
    }

    /// The sequence numbers are not those of one session.
    fn breaks(&mut self, reflector_seq: u32) {
        // Whatever was thought of losses before: who copies our sequence number at one time and
        // counts at another did not count all the time.
        if !self.has(STATEFUL) {
            self.kept = 0;
        }
        self.flags &= !BROKEN;
        self.flags |= STATEFUL | JUMPED;
        (self.reflector_seq, self.top) = (reflector_seq, reflector_seq);
        (self.open, self.leading) = ((0, 0), 0);
        self.trust = self.distrust;
        self.distrust = self.distrust.saturating_mul(2).min(DOUBT);
    }

    /// More was counted than was sent.
    fn surplus(&mut self, differs: bool) {
        (self.open, self.leading) = ((0, 0), 0);
        if differs && !self.has(STATEFUL) {
            self.flags |= STATEFUL;
            self.kept = 0;
        }
        // Who copies our sequence number passes over the probes that were not sent.
        if self.has(STATEFUL) {
            self.flags |= if self.has(EVER_LOST) { self.reason() } else { 0 };
            self.doubt = DOUBT;
        }
    }

    fn conclude(&mut self, lost: u32, backward: u32, differs: bool) {
        let (mut forward_before, backward_before) = std::mem::take(&mut self.open);
        if self.has(LEADING_OPEN) {
            self.leading = u16::try_from(forward_before).unwrap_or(u16::MAX);
            self.leading_wait = JUMP as u16;
            forward_before = 0;
        }
        self.flags &= !LEADING_OPEN;
        self.leading_wait = self.leading_wait.saturating_sub(1);
        if self.leading_wait == 0 {
            forward_before =
                forward_before.saturating_add(std::mem::take(&mut self.leading).into());
        }
        self.kept = self.kept.saturating_add(backward_before);
        self.decided.0 = self.decided.0.saturating_add(forward_before);
        if differs {
            self.flags |= STATEFUL;
        }
        if self.has(STATEFUL) {
            self.decided.1 = self.decided.1.saturating_add(std::mem::take(&mut self.kept));
        }
        if self.trust > 0 {
            self.trust -= 1;
            self.flags |= if lost > 0 { JUMPED } else { 0 };
        } else if self.doubt > 0 {
            self.doubt -= 1;
            self.flags |= if lost > 0 { self.reason() } else { 0 };
        } else if lost > 0 {
            self.open = (lost - backward, backward);
            self.flags |= if self.has(LEADING) { LEADING_OPEN } else { 0 };
        }
        self.flags &= !LEADING;
    }

    /// Nothing more is sent: no later answer will speak against the last gap. Losses before the
    /// only answer of all stay without a side: nothing showed in which session it was.
    pub(crate) fn finish(&mut self) {
        let (forward, backward) = std::mem::take(&mut self.open);
        let leading = std::mem::take(&mut self.leading);
        self.pending = 0;
        if self.has(STATEFUL) && !self.has(LEADING_OPEN) {
            self.decided.0 = self.decided.0.saturating_add(leading.into());
            self.decided.0 = self.decided.0.saturating_add(forward);
            let backward = backward.saturating_add(std::mem::take(&mut self.kept));
            self.decided.1 = self.decided.1.saturating_add(backward);
        }
    }

    /// Whether something was stated that no record has.
    pub(crate) fn has_news(&self) -> bool {
        self.decided != (0, 0)
    }

    /// What is newly stated, lost forward and backward, if the reflector counts by itself; and
    /// what casts doubt on sides.
    pub(crate) fn take(&mut self) -> (Option<(u64, u64)>, CaveatSet) {
        let mut caveats = CaveatSet::default();
        if self.has(JUMPED) {
            caveats.insert(Caveat::ReflectorSequenceJump);
        }
        if self.has(DUPLICATES) && self.has(EVER_LOST) {
            caveats.insert(Caveat::RequestsDuplicated);
        }
        self.flags &= !(JUMPED | DUPLICATES);
        let (forward, backward) = std::mem::take(&mut self.decided);
        (self.has(STATEFUL).then_some((forward.into(), backward.into())), caveats)
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Whether `a` comes after `b` in the order of serial numbers.
#[inline]
fn after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

const STATELESS: u16 = 1;
/// It has shown that it counts by itself.
const STATEFUL: u16 = 1 << 1;
/// Set once a probe was answered.
const ANCHORED: u16 = 1 << 2;
/// A reply has come.
const SEEN: u16 = 1 << 3;
/// A sequence number came that had been given before.
const BROKEN: u16 = 1 << 5;
/// The next gap is the one before the first answer; `open` is of that gap.
const LEADING: u16 = 1 << 6;
const LEADING_OPEN: u16 = 1 << 7;
/// For the record: numbering broke off; requests were duplicated.
const JUMPED: u16 = 1 << 8;
const DUPLICATES: u16 = 1 << 9;
const EVER_LOST: u16 = 1 << 10;
/// Two replies to one request had two sequence numbers.
const DUPLICATES_SEEN: u16 = 1 << 11;

/// More sequence numbers than this without a request are no duplicates.
const JUMP: i64 = 64;
/// Answers in order after a break until they are believed.
const TRUST: u16 = 16;
/// Answers in order after a duplicated request until losses are split by side again.
const DOUBT: u16 = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    /// Settles probes given as (our sequence, the reflector's; `None`: lost), replies in order.
    fn judge(fates: &[Option<u32>]) -> (Option<(u64, u64)>, CaveatSet) {
        let mut side = LossAccount::new(ReflectorKind::Auto);
        let mut overtaken = vec![false; fates.len()];
        for (seq, fate) in (0..).zip(fates) {
            if let Some(reflector_seq) = *fate
                && let Some((from, until)) = side.seen(seq, reflector_seq)
            {
                overtaken[from as usize..until as usize].fill(true);
            }
        }
        for (seq, fate) in (0..).zip(fates) {
            match *fate {
                Some(reflector_seq) => side.answered(seq, reflector_seq, overtaken[seq as usize]),
                None => side.lost(),
            }
        }
        side.finish();
        side.take()
    }

    fn sides(fates: &[Option<u32>]) -> Option<(u64, u64)> {
        let (decided, caveats) = judge(fates);
        assert!(caveats.is_empty(), "{fates:?}: {:?}", caveats.iter().collect::<Vec<_>>());
        decided
    }

    #[test]
    fn losses_are_split_by_side() {
        // Forward: the reflector never counted them. Backward: it did.
        assert_eq!(sides(&[Some(0), Some(1), None, None, Some(2), Some(3)]), Some((2, 0)));
        assert_eq!(sides(&[Some(0), None, None, Some(2)]), Some((1, 1)), "in one gap");
        assert_eq!(sides(&[None, None, Some(1), Some(2)]), Some((1, 1)), "before the first");
        let later = [Some(0), None, None, Some(3), Some(4), None, Some(5)];
        assert_eq!(sides(&later), Some((1, 2)), "the sides of the first are kept until proved");
    }

    #[test]
    fn a_reflector_that_copies_our_sequence_number_decides_nothing() {
        assert_eq!(sides(&[Some(0), Some(1), None, None, Some(4), Some(5)]), None);
        // Its table is full at first, and it copies; then it counts: no side for what was before.
        let mut fates = vec![Some(0), None, None, Some(3), Some(4)];
        fates.extend((0..40).map(Some));
        let (decided, caveats) = judge(&fates);
        assert_eq!(decided, Some((0, 0)));
        assert!(caveats.contains(Caveat::ReflectorSequenceJump));
    }

    #[test]
    fn reordering_on_the_way_there_is_no_loss() {
        assert_eq!(sides(&[Some(0), Some(2), Some(1), Some(3)]), Some((0, 0)));
        assert_eq!(sides(&[Some(0), Some(2), Some(1), None, Some(3), Some(4)]), Some((1, 0)));
        // Lost forward, and the two after it came the other way round.
        assert_eq!(sides(&[Some(0), None, Some(2), Some(1), Some(3), Some(4)]), Some((1, 0)));
    }

    #[test]
    fn probes_that_were_never_sent_have_no_side() {
        let mut side = LossAccount::new(ReflectorKind::Auto);
        side.answered(0, 0, false);
        for _ in 1..=20 {
            side.not_sent();
        }
        side.answered(21, 1, false);
        side.lost();
        side.answered(23, 2, false);
        side.answered(24, 3, false);
        assert_eq!(side.take(), (Some((1, 0)), CaveatSet::default()));
    }

    #[test]
    fn a_session_older_than_we_are() {
        let fates = [None, Some(900), Some(901), None, Some(902), Some(903)];
        assert_eq!(sides(&fates), Some((1, 0)));
    }

    #[test]
    fn a_restart_within_64_numbers_does_not_turn_losses_round() {
        // Three lost on the way there, a restart after 40 requests, twenty replies dropped later.
        let (mut reflector_seq, mut fates) = (0, Vec::new());
        for seq in 0..100 {
            if (10..13).contains(&seq) {
                fates.push(None);
                continue;
            }
            if seq == 43 {
                reflector_seq = 0;
            }
            fates.push((!(70..90).contains(&seq)).then_some(reflector_seq));
            reflector_seq += 1;
        }
        let (decided, caveats) = judge(&fates);
        assert_eq!(decided, Some((3, 20)));
        assert!(caveats.contains(Caveat::ReflectorSequenceJump));
        // Losses at the restart have no side.
        let mut fates: Vec<_> = (0..40).map(Some).collect();
        fates.extend([None, None, Some(1), Some(2), None, Some(4)]);
        let (sides, caveats) = judge(&fates);
        assert_eq!(sides, Some((0, 0)));
        assert!(caveats.contains(Caveat::ReflectorSequenceJump));
    }

    #[test]
    fn a_new_session_for_each_probe_decides_nothing() {
        // Rebinding NAT: sequence number 0 in every reply; backward losses.
        let fates: Vec<_> = (0..100).map(|i| (i % 7 != 3).then_some(0)).collect();
        let (decided, caveats) = judge(&fates);
        assert_eq!(decided, Some((0, 0)));
        assert!(caveats.contains(Caveat::ReflectorSequenceJump));
    }

    #[test]
    fn a_duplicate_whose_reply_is_lost_hides_no_loss() {
        // Request 2 was counted as 2 and 3, one reply lost; 5 is lost on the way there.
        let fates = [Some(0), Some(1), Some(2), Some(4), Some(5), None, Some(6), Some(7), Some(8)];
        let (sides, caveats) = judge(&fates);
        assert_eq!(sides, Some((0, 0)), "no claim");
        // Nobody has seen a duplicate: the numbers alone accuse no path of making some.
        assert!(caveats.contains(Caveat::ReflectorSequenceJump));
        assert!(!caveats.contains(Caveat::RequestsDuplicated));
        // In the very gap of a loss it shows only by what was counted too many.
        let (sides, caveats) = judge(&[Some(0), None, Some(1), Some(3), Some(4)]);
        assert_eq!(sides, Some((0, 0)));
        assert!(caveats.contains(Caveat::ReflectorSequenceJump));
    }

    #[test]
    fn a_session_that_two_reflectors_count_accuses_nobody() {
        // 35 answers are lost on the way back; then another counter than theirs numbers 16
        // replies, and theirs goes on.
        for by_the_other in [1, 2, 16, 30] {
            let mut fates = vec![None; 35];
            fates.extend((0..by_the_other).map(Some));
            fates.extend((35..165).map(Some));
            let (decided, caveats) = judge(&fates);
            assert_eq!(decided, Some((0, 0)), "{by_the_other}");
            assert!(caveats.contains(Caveat::ReflectorSequenceJump), "{by_the_other}");
            assert!(!caveats.contains(Caveat::RequestsDuplicated), "{by_the_other}");
        }
        // One counter goes on over both: no side is shown, and nothing is doubtful.
        let mut fates = vec![None; 35];
        fates.extend((35..200).map(Some));
        assert_eq!(sides(&fates), None);
        // Losses on the way there, once the numbers are those of one session.
        let mut fates = vec![None; 3];
        fates.extend((0..100).map(Some));
        assert_eq!(sides(&fates), Some((3, 0)));
    }

    /// What a simulated path did with every probe.
    #[derive(Default, Debug)]
    struct Truth {
        forward: u64,
        backward: u64,
    }

    /// A path and a stateful reflector: loss, duplication, reordering both ways, restarts, new
    /// sessions. Requests that are counted twice never stand beside a loss on the way there or
    /// another such request: then nobody could see either.
    fn run(seed: u64) -> (Truth, Option<(u64, u64)>, CaveatSet) {
        let mut rng = Rng::with_seed(seed);
        let n = 3000u32;
        let rare = |rng: &mut Rng, per_mille: u32| rng.u32(..1000) < per_mille;
        let pick = |rng: &mut Rng, all: &[u32]| all[rng.usize(..all.len())];
        let lost_forward = pick(&mut rng, &[0, 1, 20, 200]);
        let lost_backward = pick(&mut rng, &[0, 1, 20, 200]);
        let copies = pick(&mut rng, &[0, 0, 1, 20]);
        let swaps = pick(&mut rng, &[0, 0, 5, 100]);
        let restarts = pick(&mut rng, &[0, 0, 1, 5]);
        let rebinding = pick(&mut rng, &[0, 0, 1, 1000]);
        let mut truth = Truth::default();
        // The order in which requests reach the reflector.
        let mut order: Vec<u32> = (0..n).collect();
        for i in 1..order.len() {
            if rare(&mut rng, swaps) {
                order.swap(i - 1, i);
            }
        }
        let mut fates = vec![None; n as usize];
        let mut arrivals = Vec::new();
        let (mut reflector_seq, mut since, mut quiet) = (0u32, 100, 0);
        let mut duplicates = Vec::new();
        for &seq in &order {
            since += 1;
            quiet += 1;
            if since > 60 && rare(&mut rng, restarts) || rare(&mut rng, rebinding) {
                (reflector_seq, since) = (0, 0);
            }
            if (copies == 0 || quiet > 12) && rare(&mut rng, lost_forward) {
                truth.forward += 1;
                quiet = 0;
                continue;
            }
            let mut answered = !rare(&mut rng, lost_backward);
            let first = reflector_seq;
            reflector_seq += 1;
            if quiet > 12 && rare(&mut rng, copies) {
                quiet = 0;
                if answered && rng.bool() {
                    duplicates.push(seq);
                }
                reflector_seq += 1;
            }
            if seq == 0 {
                answered = true;
            }
            if answered {
                fates[seq as usize] = Some(first);
                arrivals.push((seq, first));
            } else {
                truth.backward += 1;
            }
        }
        for i in 1..arrivals.len() {
            if rare(&mut rng, swaps) {
                arrivals.swap(i - 1, i);
            }
        }
        let mut side = LossAccount::new(ReflectorKind::Auto);
        // Replies arrive long before their probes are settled: 50 probes ahead.
        let mut arrivals = arrivals.into_iter().peekable();
        let mut overtaken = vec![false; n as usize];
        for seq in 0..n {
            while let Some(&(s, r)) = arrivals.peek()
                && s <= seq + 50
            {
                if let Some((from, until)) = side.seen(s, r) {
                    overtaken[from as usize..until as usize].fill(true);
                }
                if duplicates.contains(&s) {
                    side.duplicate(true);
                }
                arrivals.next();
            }
            match fates[seq as usize] {
                Some(reflector_seq) => side.answered(seq, reflector_seq, overtaken[seq as usize]),
                None => side.lost(),
            }
        }
        side.finish();
        let (decided, caveats) = side.take();
        (truth, decided, caveats)
    }

    #[test]
    fn what_is_stated_without_a_caveat_is_true() {
        let (mut exact, mut doubted) = (0, 0);
        for seed in 0..2000 {
            let (truth, decided, caveats) = run(seed);
            let lost = truth.forward + truth.backward;
            let Some((forward, backward)) = decided else { continue };
            assert!(forward + backward <= lost, "seed {seed}: {truth:?} {decided:?}");
            if !caveats.is_empty() {
                doubted += 1;
                continue;
            }
            // What stands without a side (after the last answer) may have been on either.
            let rest = lost - forward - backward;
            assert!(
                forward <= truth.forward && truth.forward <= forward + rest,
                "seed {seed}: {truth:?}, decided {decided:?}"
            );
            exact += u64::from(lost > 0 && rest == 0);
        }
        assert!(exact > 100 && doubted > 300, "{exact} exact, {doubted} doubted");
    }
}
