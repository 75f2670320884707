//! Alerts of one cause for one receiver, and when that one is told.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::alerting::{OPEN_MOST, Open, Teller};
use super::model::{AlertSeverity, LabelSet, severity_of};
use super::notification::{
    ALERTS_MOST, AlertNews, EPISODES_MOST, Notification, NotificationReason, NotifiedAlert,
};
use super::route::{AlertGroupKey, GroupTiming};
use super::silence::{Mute, unmuted_from};

/// A group of alerts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Group {
    pub key: AlertGroupKey,
    pub timing: GroupTiming,
    members: Vec<(LabelSet, Member)>,
    /// When the receiver was last told something, ns.
    told_ns: Option<i64>,
    /// The worst that lasted then; where nothing did, the worst that had ended.
    #[serde(default)]
    told_severity: Option<AlertSeverity>,
    /// When there is something to do, if that is known.
    #[serde(skip)]
    due: Option<Due>,
}

/// `None`: never.
type Due = Option<i64>;

/// An alert in a group.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Member {
    /// When it came to the group, ns.
    came_ns: i64,
    /// When the station learned that it ended; `None`: it lasts.
    ended_ns: Option<i64>,
    /// Begins of what the receiver knows, or will know, as one alert.
    episodes: BTreeSet<i64>,
    /// The receiver knows that it began.
    told: bool,
    /// When a notification last had it, ns.
    #[serde(default)]
    said_ns: i64,
    /// It ended when nothing held it back, and began again before the receiver was told.
    owed: bool,
    /// The receiver knows who takes care of it.
    acknowledgement_told: bool,
}

/// What is known of an alert.
pub(super) struct Known {
    pub now_ns: i64,
    /// A begin of it.
    pub starts_ns: i64,
    /// It has begun again: an earlier end does not count any more.
    pub begins: bool,
    /// Whether it lasts.
    pub lasts: bool,
}

/// Everything that a group has to know to decide.
pub(super) struct Around<'a> {
    pub open: &'a BTreeMap<LabelSet, Open>,
    pub mutes: &'a BTreeMap<String, Mute>,
    pub teller: &'a Teller,
}

impl Around<'_> {
    fn unmuted_from(&self, labels: &LabelSet, from_ns: i64) -> i64 {
        unmuted_from(self.mutes.values(), labels, from_ns)
    }

    fn is_muted(&self, labels: &LabelSet, at_ns: i64) -> bool {
        self.mutes.values().any(|mute| mute.holds_back(labels, at_ns))
    }
}

/// What came of looking at a group.
#[derive(Default)]
pub(super) struct Turned {
    pub notification: Option<Notification>,
    /// Alerts that are in the group no more.
    pub gone: Vec<LabelSet>,
    /// How many of those nobody was told of, because they were held back to their end.
    pub unsaid: u64,
}

impl Group {
    pub fn new(key: AlertGroupKey, timing: GroupTiming) -> Group {
        Group { key, timing, members: Vec::new(), told_ns: None, told_severity: None, due: None }
    }

    /// Something that its decisions depend on has changed.
    pub fn touch(&mut self) {
        self.due = None;
    }

    /// Takes what is known of an alert now; it comes to the group if it is not in it.
    pub fn take(&mut self, labels: &LabelSet, known: &Known, mutes: &BTreeMap<String, Mute>) {
        let &Known { now_ns, starts_ns, begins, lasts } = known;
        self.due = None;
        let at = self.members.binary_search_by(|(l, _)| l.cmp(labels)).unwrap_or_else(|at| {
            let member = Member {
                came_ns: now_ns,
                ended_ns: None,
                episodes: BTreeSet::new(),
                told: false,
                said_ns: now_ns,
                owed: false,
                acknowledgement_told: false,
            };
            self.members.insert(at, (labels.clone(), member));
            at
        });
        let member = &mut self.members[at].1;
        // The first always stays, since the alert began there.
        let first = member.episodes.first().is_none_or(|&first| starts_ns < first);
        if first || member.episodes.len() < EPISODES_MOST as usize {
            member.episodes.insert(starts_ns);
        }
        if member.episodes.len() > EPISODES_MOST as usize {
            member.episodes.pop_last();
        }
        if begins && let Some(ended) = member.ended_ns.take_if(|ended| *ended < now_ns) {
            member.owed |= !mutes.values().any(|mute| mute.holds_back(labels, ended));
        }
        let ended_ns = member.ended_ns.filter(|_| !begins);
        member.ended_ns = (!lasts).then(|| ended_ns.unwrap_or(now_ns));
    }

    /// Whether the receiver was told of this alert.
    pub fn has_told(&self, labels: &LabelSet) -> bool {
        self.members.iter().any(|(l, member)| l == labels && member.told)
    }

    /// Takes an alert out of which nobody was told.
    pub fn forget(&mut self, labels: &LabelSet) {
        self.due = None;
        self.members.retain(|(l, _)| l != labels);
    }

    /// Whether nothing is left of it that matters.
    pub fn is_over(&self, now_ns: i64) -> bool {
        let rests =
            self.told_ns.map_or(i64::MIN, |told| told.saturating_add(self.timing.interval_ns));
        self.members.is_empty() && rests <= now_ns
    }

    /// When there is something to do, seen from now.
    pub fn due(&mut self, now_ns: i64, around: &Around<'_>) -> Due {
        if self.due.is_none() {
            let each = self.members.iter().filter_map(|(labels, member)| {
                let open = around.open.get(labels)?;
                self.due_of(now_ns, member, labels, open, around)
            });
            let rests = self.told_ns.map(|told| told.saturating_add(self.timing.interval_ns));
            let over = self.members.is_empty().then_some(rests.unwrap_or(i64::MIN));
            self.due = Some(each.chain(over).min());
        }
        self.due.flatten()
    }

    /// Does what is due.
    pub fn turn(&mut self, now_ns: i64, around: &Around<'_>) -> Turned {
        let mut turned = Turned::default();
        if self.due(now_ns, around).is_none_or(|due| due > now_ns) {
            return turned;
        }
        self.due = None;
        self.drop_unsaid(around, &mut turned);
        let says = |(labels, member): &(LabelSet, Member)| {
            let due = around
                .open
                .get(labels)
                .and_then(|open| self.due_of(now_ns, member, labels, open, around));
            due.is_some_and(|due| due <= now_ns)
        };
        if self.members.iter().any(says) {
            self.tell(now_ns, around, &mut turned);
        }
        turned
    }

    /// No instant lies after the present: the clock was ahead when they were written.
    pub fn not_after(&mut self, now_ns: i64) {
        self.due = None;
        self.told_ns = self.told_ns.map(|told| told.min(now_ns));
        for (_, member) in &mut self.members {
            member.came_ns = member.came_ns.min(now_ns);
            member.said_ns = member.said_ns.min(now_ns);
            member.ended_ns = member.ended_ns.map(|ended| ended.min(now_ns));
        }
    }

    fn due_of(
        &self,
        now_ns: i64,
        member: &Member,
        labels: &LabelSet,
        open: &Open,
        around: &Around<'_>,
    ) -> Due {
        let GroupTiming { wait_ns, interval_ns, repeat_ns, refresh, .. } = self.timing;
        // What was due in the past and is held back now is due when that ends.
        let unmuted_from = |at: i64| match at <= now_ns {
            true if !around.is_muted(labels, now_ns) => at,
            _ => around.unmuted_from(labels, at.max(now_ns)),
        };
        let told_ns = self.told_ns.unwrap_or(i64::MIN / 2);
        let apart = told_ns.saturating_add(interval_ns);
        let news = |since: i64| since.saturating_add(wait_ns).max(apart);
        // What is worse than all that was told waits for others of its cause, but for no interval.
        let came = match Some(severity_of(labels)) > self.told_severity {
            true => member.came_ns.saturating_add(wait_ns),
            false => news(member.came_ns),
        };
        match (member.told, member.ended_ns) {
            // It is taken out then.
            (false, Some(ended)) if member.is_unsaid(labels, around) => Some(ended),
            (false, _) => Some(unmuted_from(came)),
            (true, Some(ended)) => Some(news(ended)),
            (true, None) => {
                let repeat = match self.timing.whole {
                    true => told_ns.saturating_add(repeat_ns),
                    false => member.said_ns.saturating_add(repeat_ns).max(apart),
                };
                if refresh {
                    return Some(repeat);
                }
                match &open.acknowledged {
                    None => Some(unmuted_from(repeat)),
                    Some(_) if member.acknowledgement_told => None,
                    Some((known_ns, _)) => Some(unmuted_from(apart.max(*known_ns))),
                }
            }
        }
    }

    /// Takes out what was held back to its end.
    fn drop_unsaid(&mut self, around: &Around<'_>, turned: &mut Turned) {
        self.members.retain(|(labels, member)| {
            let unsaid = member.is_unsaid(labels, around);
            if unsaid {
                turned.gone.push(labels.clone());
                turned.unsaid += 1;
            }
            !unsaid
        });
    }

    fn tell(&mut self, now_ns: i64, around: &Around<'_>, turned: &mut Turned) {
        let knew = self.members.iter().any(|(_, member)| member.told);
        let mut alerts = Vec::new();
        let (mut muted, mut unchanged, mut news, mut cared_for) = (0, 0, false, false);
        for (labels, member) in &mut self.members {
            let Some(open) = around.open.get(labels) else { continue };
            let is_news = !member.told || member.ended_ns.is_some();
            let resolves = member.told && member.ended_ns.is_some();
            let refreshed = member.told && self.timing.refresh;
            if around.is_muted(labels, now_ns) && !resolves && !refreshed {
                muted += 1;
                continue;
            }
            let acknowledged = open.acknowledged.is_some() && member.ended_ns.is_none();
            let takes_over = acknowledged && !member.acknowledgement_told;
            let old = now_ns.saturating_sub(member.said_ns) >= self.timing.repeat_ns;
            let repeats = open.acknowledged.is_none() && old;
            if !(self.timing.whole || is_news || takes_over || repeats) {
                unchanged += 1;
                continue;
            }
            news |= is_news;
            cared_for |= takes_over;
            alerts.push(member.notified(open));
            (member.told, member.said_ns) = (true, now_ns);
            member.acknowledgement_told |= takes_over;
        }
        self.members.retain(|(labels, member)| {
            let ended = member.told && member.ended_ns.is_some();
            if ended {
                turned.gone.push(labels.clone());
            }
            !ended
        });
        let lasts = self.members.iter().any(|(_, member)| member.told);
        let reason = match (lasts, knew) {
            (false, _) => NotificationReason::Resolved,
            (true, false) => NotificationReason::Opened,
            (true, true) if news => NotificationReason::Changed,
            (true, true) if cared_for => NotificationReason::Acknowledged,
            (true, true) => NotificationReason::Repeated,
        };
        self.told_ns = Some(now_ns);
        let known = self.members.iter().filter(|(_, member)| member.told);
        let known = known.map(|(labels, _)| severity_of(labels)).max();
        let ended = || alerts.iter().map(|told| told.alert.severity()).max();
        self.told_severity = known.or_else(ended);
        let worst = |told: &NotifiedAlert| (told.alert.lasts(), told.alert.severity());
        alerts.sort_by_key(|told| std::cmp::Reverse(worst(told)));
        // What a receiver forgets unless it is repeated has to be in each notification.
        let most = if self.timing.refresh { OPEN_MOST } else { ALERTS_MOST };
        let truncated = alerts.len().saturating_sub(most) as u64;
        alerts.truncate(most);
        turned.notification = Some(Notification {
            group: self.key.clone(),
            reason,
            at_ns: now_ns,
            alerts,
            truncated,
            unchanged,
            muted,
            lasts,
            station: around.teller.station.clone(),
            link: around.teller.link.clone(),
        });
    }
}

impl Member {
    /// Whether it is over, and was held back whenever the receiver could have been told.
    fn is_unsaid(&self, labels: &LabelSet, around: &Around<'_>) -> bool {
        let silent = !self.told && !self.owed;
        silent && self.ended_ns.is_some_and(|ended| around.is_muted(labels, ended))
    }

    fn notified(&self, open: &Open) -> NotifiedAlert {
        let starts_ns = self.episodes.first().copied().unwrap_or(open.alert.starts_ns);
        let news = match (self.told, self.ended_ns) {
            (false, None) => AlertNews::Began,
            (true, None) => AlertNews::Lasts,
            (false, Some(_)) => AlertNews::BeganAndEnded,
            (true, Some(_)) => AlertNews::Ended,
        };
        NotifiedAlert {
            alert: super::model::Alert { starts_ns, ..open.alert.clone() },
            news,
            episodes: self.episodes.len() as u32,
            acknowledged: open.acknowledged.as_ref().map(|(_, by)| by.clone()),
        }
    }
}
