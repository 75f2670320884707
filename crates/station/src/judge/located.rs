//! Losses of a subject, with side and members, while an objective is in trouble.
//!
//! Every lost packet belongs to an episode. Only those that overlap a trouble are told: else a path
//! that always loses a little would be an event each minute.

use std::collections::{BTreeMap, VecDeque};

use sonde_meter::sla::{LossEpisodes, MemberCounts, WorseMember, dispersion, worse_members};
use sonde_results::sla::LossEpisode;
use sonde_results::{Counters, Interval};

/// What is located of a subject.
#[derive(Default)]
pub(super) struct Located {
    /// `None`: no record has come yet.
    episodes: Option<LossEpisodes>,
    /// What each member sent and lost in the open episode: in records with a loss, and between them.
    members: BTreeMap<u32, MemberCounts>,
    /// The same after its last loss so far.
    after: BTreeMap<u32, MemberCounts>,
    /// Replies in it that came after the timeout.
    late: u64,
    /// Losses of the intervals before it, the last ones.
    before: VecDeque<u64>,
    finished: VecDeque<LocatedLoss>,
    troubles: VecDeque<Watched>,
}

/// An episode that is over.
#[derive(Clone, Debug)]
pub(super) struct LocatedLoss {
    pub episode: LossEpisode,
    /// Members that lose more than the others, by the same index as `episode.streams`.
    pub worse: Vec<WorseMember>,
    /// Of its losses, those that were answered after the timeout.
    pub late: u64,
    told: bool,
}

/// A time in which episodes are told.
struct Watched {
    objective: String,
    from_ns: i64,
    to_ns: Option<i64>,
    left: u32,
}

impl Located {
    /// Takes what the members of the subject lost from `start_ns` to `end_ns`.
    pub fn observe(&mut self, (start_ns, end_ns): (i64, i64), parts: &[(u32, Counters)]) {
        let length_ns = (end_ns - start_ns).max(1);
        let episodes = self.episodes.get_or_insert_with(|| LossEpisodes::new(QUIET * length_ns));
        for mut over in episodes.advance(start_ns) {
            let members: Vec<MemberCounts> =
                std::mem::take(&mut self.members).into_values().collect();
            self.after.clear();
            // Of all that was sent in its time, not in its records with a loss alone.
            over.sent = members.iter().map(|member| member.sent).sum::<u64>().max(over.sent);
            for stream in &mut over.streams {
                let of_it = members.iter().find(|member| member.member == stream.stream);
                stream.sent = of_it.map_or(stream.sent, |member| member.sent.max(stream.sent));
            }
            let late = std::mem::take(&mut self.late).min(over.lost);
            let spread = dispersion(self.before.make_contiguous());
            let worse = worse_members(&members, ERROR_RATE, spread);
            self.finished.push_back(LocatedLoss { episode: over, worse, late, told: false });
            if self.finished.len() > FINISHED {
                self.finished.pop_front();
            }
        }
        let lost: u64 = parts.iter().map(|(_, counters)| counters.lost).sum();
        let sides =
            parts.iter().any(|(_, c)| c.lost_forward.or(c.lost_backward).is_some_and(|n| n > 0));
        if lost > 0 || sides {
            for (member, counters) in parts {
                let record =
                    Interval { start_ns, end_ns, counters: *counters, ..Interval::empty(*member) };
                episodes.observe(&record);
            }
        }
        if episodes.open().next().is_none() {
            self.late = 0;
            self.before.push_back(lost);
            if self.before.len() > BEFORE {
                self.before.pop_front();
            }
            return;
        }
        let count = |sums: &mut BTreeMap<u32, MemberCounts>, more: MemberCounts| {
            let none = MemberCounts { sent: 0, lost: 0, ..more };
            let sum = sums.entry(more.member).or_insert(none);
            sum.sent += more.sent;
            sum.lost += more.lost;
        };
        for &(member, Counters { sent, lost, late, .. }) in parts {
            count(&mut self.after, MemberCounts { member, sent, lost });
            self.late += late;
        }
        if lost > 0 {
            for (_, more) in std::mem::take(&mut self.after) {
                count(&mut self.members, more);
            }
        }
    }

    /// What is being lost now, of all members; `None`: nothing.
    pub fn open_loss(&self) -> Option<LossEpisode> {
        self.episodes.as_ref()?.open().reduce(|mut sum, more| {
            sum.start_ns = sum.start_ns.min(more.start_ns);
            sum.end_ns = sum.end_ns.max(more.end_ns);
            sum.sent += more.sent;
            sum.lost += more.lost;
            sum.lost_forward += more.lost_forward;
            sum.lost_backward += more.lost_backward;
            sum.lost_unknown += more.lost_unknown;
            sum
        })
    }

    /// An objective is in trouble from `from_ns` on.
    pub fn watch(&mut self, objective: &str, from_ns: i64) {
        let watched = Watched { objective: objective.into(), from_ns, to_ns: None, left: TOLD };
        self.troubles.push_back(watched);
        if self.troubles.len() > WATCHED {
            self.troubles.pop_front();
        }
    }

    /// It is no more from `to_ns` on.
    pub fn unwatch(&mut self, objective: &str, to_ns: i64) {
        let open = self.troubles.iter_mut().filter(|t| t.to_ns.is_none());
        open.filter(|t| t.objective == objective).for_each(|t| t.to_ns = Some(to_ns));
    }

    /// Replies of the open episode that came after the timeout so far.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// The episodes that are to be told, each once.
    pub fn told(&mut self) -> Vec<LocatedLoss> {
        let mut told = Vec::new();
        for loss in self.finished.iter_mut().filter(|loss| !loss.told) {
            let (from, to) = (loss.episode.start_ns, loss.episode.end_ns);
            let within = |t: &&mut Watched| {
                t.left > 0 && to > t.from_ns && t.to_ns.is_none_or(|end| from < end)
            };
            let Some(trouble) = self.troubles.iter_mut().find(within) else { continue };
            trouble.left -= 1;
            loss.told = true;
            told.push(loss.clone());
        }
        told
    }
}

/// So many records without loss end an episode.
const QUIET: i64 = 3;
/// Where no member is worse, one is named as seldom as this.
const ERROR_RATE: f64 = 0.01;
/// Episodes that are over, and may still be told.
const FINISHED: usize = 32;
/// Intervals from which the usual spread of losses is known.
const BEFORE: usize = 60;
/// Times of trouble that are remembered.
const WATCHED: usize = 16;
/// Episodes that are told of one trouble.
const TOLD: u32 = 20;
