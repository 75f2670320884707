//! One subject: a target and class of a probe, with all its streams.
//!
//! The streams of a target and class (equal-cost paths) are members. Their records of one time are
//! added up: a percentile is that of all samples.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use sonde_meter::sla::{
    Judge, JudgeInput, JudgeOutput, MaintenanceWindow, Objective, ObjectiveMetric, ObjectiveWindow,
    SideSettler, TimeRange, Usual,
};
use sonde_results::sla::{
    Exclusion, ExclusionKind, MeasuredDirection, ObjectiveMonth, loss_doubt, own_doubt,
};
use sonde_results::units::format_count;
use sonde_results::{Caveat, Counters, Interval, StreamInfo};

use super::burn::{BurnChange, BurnWatch};
use super::located::Located;
use super::passive::is_traffic;
use super::settings::JudgeSettings;
use super::unsent::{AnsweredTimes, Unsent};
use crate::alert::model::LabelSet;

/// A target and class of a probe.
pub(super) struct Subject {
    /// station, unit, target, class.
    pub labels: LabelSet,
    pub members: Vec<MemberStream>,
    /// Both ways, and one way.
    lanes: [Lane; 2],
    maintenance: Vec<MaintenanceWindow>,
    pub located: Located,
    /// Since when every record is left out because the station doubts itself, and when the last of
    /// them ended, ns since 1970 UTC; why.
    pub doubtful: Option<(TimeRange, String)>,
    /// Times that came too late to be judged, or twice.
    pub refused: u64,
    /// When the last record ended that had an answer.
    answered_ns: i64,
}

/// A stream of a subject.
pub(super) struct MemberStream {
    pub info: StreamInfo,
    /// It sends no more.
    pub ended: bool,
    pub unsent: Unsent,
}

/// Records on their way to judges of one kind of direction.
struct Lane {
    /// Records wait until their losses have sides, or for [`SIDES_NS`] at most.
    one_way: bool,
    settlers: BTreeMap<u32, SideSettler>,
    /// When the last record of each member ends.
    latest: BTreeMap<u32, i64>,
    /// Records that wait for those of other members, by time.
    waiting: VecDeque<Slot>,
    judges: Vec<Judge>,
    /// How fast the budgets of their objectives are spent.
    burns: Vec<BurnWatch>,
    burned: Vec<BurnChange>,
    /// Up to here all was judged.
    next_ns: Option<i64>,
    record_ns: i64,
    /// The unit has begun: what is missing before its next record is the station's own gap.
    resumes: bool,
}

/// One time of all members.
struct Slot {
    sum: Interval,
    parts: Vec<(u32, Counters)>,
}

/// What a restart must not forget of a subject.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SubjectState {
    pub labels: LabelSet,
    lanes: Vec<LaneState>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct LaneState {
    next_ns: Option<i64>,
    record_ns: i64,
    judges: Vec<Judge>,
    #[serde(default)]
    burns: Vec<BurnWatch>,
}

/// What the station knows of the time that a subject judges, beside its records.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub doubts: &'a [Doubt],
    /// Times in which some target of the unit answered.
    pub answered: &'a AnsweredTimes,
}

/// Time in which the station doubts itself, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Doubt {
    pub range: TimeRange,
    pub name: &'static str,
}

impl Subject {
    pub fn new(labels: LabelSet, settings: &JudgeSettings) -> Subject {
        let lane = |one_way| Lane {
            one_way,
            settlers: BTreeMap::new(),
            latest: BTreeMap::new(),
            waiting: VecDeque::new(),
            judges: Vec::new(),
            burns: Vec::new(),
            burned: Vec::new(),
            next_ns: None,
            record_ns: 0,
            resumes: false,
        };
        let mut subject = Subject {
            labels,
            members: Vec::new(),
            lanes: [lane(false), lane(true)],
            maintenance: Vec::new(),
            located: Located::default(),
            doubtful: None,
            refused: 0,
            answered_ns: i64::MIN,
        };
        // It has judged nothing yet.
        subject.judge_by(settings, 0);
        subject
    }

    /// As it was saved; what has changed in its objectives begins anew.
    pub fn resume(
        state: SubjectState,
        settings: &JudgeSettings,
        now_ns: i64,
    ) -> (Subject, Vec<ObjectiveMonth>) {
        let mut subject = Subject::new(state.labels, &JudgeSettings::default());
        for (lane, saved) in subject.lanes.iter_mut().zip(state.lanes) {
            (lane.next_ns, lane.record_ns) = (saved.next_ns, saved.record_ns);
            (lane.judges, lane.burns) = (saved.judges, saved.burns);
        }
        let past = subject.judge_by(settings, now_ns);
        (subject, past)
    }

    pub fn state(&self) -> SubjectState {
        let lane = |lane: &Lane| LaneState {
            next_ns: lane.next_ns,
            record_ns: lane.record_ns,
            judges: lane.judges.clone(),
            burns: lane.burns.clone(),
        };
        SubjectState { labels: self.labels.clone(), lanes: self.lanes.iter().map(lane).collect() }
    }

    /// Goes over to other objectives at `now_ns`. Those that are the same go on. The months of those
    /// that are gone, or defined in another way now, come out.
    pub fn judge_by(&mut self, settings: &JudgeSettings, now_ns: i64) -> Vec<ObjectiveMonth> {
        let of_us = settings.maintenance.iter().filter(|m| m.labels.matches(&self.labels));
        self.maintenance = of_us.map(|m| m.window.clone()).collect();
        let name = subject_name(&self.labels);
        let mut past = Vec::new();
        for lane in &mut self.lanes {
            let mut old = std::mem::take(&mut lane.judges);
            let mut old_burns = std::mem::take(&mut lane.burns);
            if old.is_empty() {
                // Nothing was judged so far: the time until the next record is no gap.
                lane.next_ns = None;
            }
            let ours = settings.objectives.iter().filter(|o| o.judges(&self.labels));
            for judged in ours.filter(|o| is_one_way(&o.objective) == lane.one_way) {
                let same = |judge: &Judge| judge.objective().name == judged.objective.name;
                let saved = old.iter().position(same).map(|at| old.swap_remove(at));
                let objective = judged.objective.clone();
                lane.judges.push(match saved {
                    Some(old) if *old.objective() != *objective => {
                        past.extend(old.month_so_far());
                        old.redefine(objective, now_ns)
                    }
                    saved => Judge::resume(objective, name.clone(), saved),
                });
                lane.burns.extend(BurnWatch::of(judged, &mut old_burns));
            }
            past.extend(old.iter().filter_map(Judge::month_so_far));
        }
        past
    }

    /// The months that are filling, as far as they have come.
    pub fn months(&self) -> impl Iterator<Item = ObjectiveMonth> {
        self.judges().filter_map(Judge::month_so_far)
    }

    /// Up to here all was judged, ns since 1970 UTC.
    pub fn judged_until(&self) -> Option<i64> {
        self.lanes.iter().filter_map(|lane| lane.next_ns).max()
    }

    /// The objectives that it is judged by.
    pub fn judges(&self) -> impl Iterator<Item = &Judge> {
        self.lanes.iter().flat_map(|lane| &lane.judges)
    }

    /// The same, each with the time up to which it has judged.
    pub fn judges_and_times(&self) -> impl Iterator<Item = (&Judge, Option<i64>)> {
        self.lanes.iter().flat_map(|lane| lane.judges.iter().map(|judge| (judge, lane.next_ns)))
    }

    /// Says what is usual in an hour, for an objective; `None`: it is not known.
    pub fn set_usual(&mut self, objective: &str, hour_ns: i64, usual: Option<Usual>) {
        let judges = self.lanes.iter_mut().flat_map(|lane| &mut lane.judges);
        let own = judges.filter(|judge| judge.objective().name == objective);
        own.for_each(|judge| judge.set_usual(hour_ns, usual));
    }

    /// How fast the budgets of its objectives are spent.
    pub fn burns(&self) -> impl Iterator<Item = &BurnWatch> {
        self.lanes.iter().flat_map(|lane| &lane.burns)
    }

    /// Whether something has changed of that.
    pub fn has_burned(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.burned.is_empty())
    }

    /// What has changed of that since the last call.
    pub fn take_burned(&mut self) -> Vec<BurnChange> {
        self.lanes.iter_mut().flat_map(|lane| std::mem::take(&mut lane.burned)).collect()
    }

    pub fn objectives(&self) -> impl Iterator<Item = &Objective> {
        self.judges().map(Judge::objective)
    }

    /// Its unit has begun to measure, with these streams; the members that there were are gone.
    pub fn begin(&mut self) {
        self.members.clear();
        for lane in &mut self.lanes {
            lane.settlers.clear();
            lane.latest.clear();
            lane.waiting.clear();
            lane.resumes = true;
        }
    }

    /// Takes a record of a member.
    pub fn take(
        &mut self,
        member: u32,
        record: &Interval,
        known: Known<'_>,
        out: &mut JudgeOutput,
    ) {
        let Subject {
            lanes, members, maintenance, located, refused, doubtful, answered_ns, ..
        } = self;
        if record.counters.received > 0 {
            *answered_ns = record.end_ns.max(*answered_ns);
        }
        let around = Around { members, maintenance, known, answered_ns: *answered_ns };
        let [both, one_way] = lanes;
        let mut judges = both.judges.iter().chain(&one_way.judges);
        let delays = judges.any(|judge| is_of_delay(judge.objective()));
        for slot in both.collect(member, record.clone(), &around, refused) {
            let range = (slot.sum.start_ns, slot.sum.end_ns);
            located.observe(range, &slot.parts);
            note_doubt(doubtful, &slot.sum, &around, delays);
            both.judge(&slot.sum, &around, refused, out);
        }
        if one_way.judges.is_empty() {
            return;
        }
        let mut settled = Vec::new();
        let new = || SideSettler::new(SIDES_NS);
        one_way.settlers.entry(member).or_insert_with(new).push(record.clone(), &mut settled);
        for record in settled {
            for slot in one_way.collect(member, record, &around, refused) {
                one_way.judge(&slot.sum, &around, refused, out);
            }
        }
    }

    /// It is `now_ns`. `runs`: its unit measures, so that what does not come is missing.
    pub fn handle_timeout(
        &mut self,
        now_ns: i64,
        runs: bool,
        known: Known<'_>,
        out: &mut JudgeOutput,
    ) {
        // Traffic that pauses is not missing.
        let runs = runs && !is_traffic(&self.labels);
        let Subject { lanes, members, maintenance, refused, located, answered_ns, .. } = self;
        let around = Around { members, maintenance, known, answered_ns: *answered_ns };
        for lane in lanes.iter_mut().filter(|lane| !lane.one_way || !lane.judges.is_empty()) {
            let before_ns = now_ns - LATE_NS - 2 * lane.record_ns;
            let mut settled = Vec::new();
            for (&member, settler) in &mut lane.settlers {
                let from = settled.len();
                settler.advance(before_ns, &mut settled);
                settled[from..].iter_mut().for_each(|record| record.stream = member);
            }
            for record in settled {
                for slot in lane.collect(record.stream, record, &around, refused) {
                    lane.judge(&slot.sum, &around, refused, out);
                }
            }
            lane.release(before_ns, &around, located, refused, out);
            let held_ns = if lane.one_way { SIDES_NS } else { 0 };
            let silent = lane.next_ns.filter(|next| *next + lane.record_ns < before_ns - held_ns);
            if let (Some(from), true, false) = (silent, runs, lane.resumes) {
                lane.fill(TimeRange { start_ns: from, end_ns: before_ns - held_ns }, &around, out);
            }
        }
    }

    /// Its unit has ended: what waits for more is judged as it is.
    pub fn end(&mut self, known: Known<'_>, out: &mut JudgeOutput) {
        let Subject { lanes, members, maintenance, refused, located, answered_ns, .. } = self;
        let around = Around { members, maintenance, known, answered_ns: *answered_ns };
        for lane in lanes {
            for (member, mut settler) in std::mem::take(&mut lane.settlers) {
                let mut settled = Vec::new();
                settler.finish(&mut settled);
                for record in settled {
                    for slot in lane.collect(member, record, &around, refused) {
                        lane.judge(&slot.sum, &around, refused, out);
                    }
                }
            }
            lane.release(i64::MAX, &around, located, refused, out);
        }
    }

    /// Whether all its streams have ended, and nothing more comes of them.
    pub fn is_over(&self, now_ns: i64) -> bool {
        let lane = &self.lanes[0];
        if is_traffic(&self.labels) {
            return lane.next_ns.is_some_and(|next| next + FORGOTTEN_NS < now_ns);
        }
        let late = lane.next_ns.is_none_or(|next| next + LATE_NS + 2 * lane.record_ns < now_ns);
        !self.members.is_empty() && self.members.iter().all(|m| m.ended) && late
    }
}

/// What a lane has to know to judge.
struct Around<'a> {
    members: &'a [MemberStream],
    maintenance: &'a [MaintenanceWindow],
    known: Known<'a>,
    /// When the last record of this subject ended that had an answer.
    answered_ns: i64,
}

/// Why a record is left out: of all objectives, or of those about delays.
#[derive(Default)]
struct LeftOut {
    all: Option<Exclusion>,
    delays: Option<Exclusion>,
}

impl LeftOut {
    fn of(&self, objective: &Objective) -> Option<&Exclusion> {
        match is_of_delay(objective) {
            true => self.all.as_ref().or(self.delays.as_ref()),
            false => self.all.as_ref(),
        }
    }
}

impl Lane {
    /// Adds a record; the times that are complete come out, in order.
    fn collect(
        &mut self,
        member: u32,
        record: Interval,
        around: &Around<'_>,
        refused: &mut u64,
    ) -> Vec<Slot> {
        let latest = self.latest.entry(member).or_insert(i64::MIN);
        *latest = record.end_ns.max(*latest);
        let middle = record.start_ns + (record.end_ns - record.start_ns) / 2;
        if self.next_ns.is_some_and(|next| middle < next) {
            *refused += 1;
            return Vec::new();
        }
        let (range, part) = ((record.start_ns, record.end_ns), (member, record.counters));
        match self.waiting.iter_mut().find(|s| (s.sum.start_ns..s.sum.end_ns).contains(&middle)) {
            Some(slot) => {
                let whole = (slot.sum.start_ns, slot.sum.end_ns);
                slot.sum.merge(&record);
                (slot.sum.start_ns, slot.sum.end_ns) = whole;
                slot.parts.push(part);
            }
            None => {
                let at = self.waiting.partition_point(|s| s.sum.start_ns < range.0);
                self.waiting.insert(at, Slot { sum: record, parts: vec![part] });
            }
        }
        let mut complete = Vec::new();
        while let Some(slot) = self.waiting.front() {
            let (end_ns, length_ns) = (slot.sum.end_ns, slot.sum.end_ns - slot.sum.start_ns);
            let live = around.members.iter().enumerate().filter(|(_, member)| !member.ended);
            let all = live
                .map(|(index, _)| self.latest.get(&(index as u32)))
                .all(|latest| latest.is_some_and(|latest| *latest >= end_ns));
            let hold_ns = 2 * length_ns + if self.one_way { SIDES_NS } else { 0 };
            let newest = self.latest.values().max();
            if !all && newest.is_none_or(|newest| *newest < end_ns + hold_ns) {
                break;
            }
            complete.extend(self.waiting.pop_front());
        }
        complete
    }

    /// Judges what ended before `before_ns`, also without the records of some members.
    fn release(
        &mut self,
        before_ns: i64,
        around: &Around<'_>,
        located: &mut Located,
        refused: &mut u64,
        out: &mut JudgeOutput,
    ) {
        while self.waiting.front().is_some_and(|slot| slot.sum.end_ns <= before_ns) {
            let Some(slot) = self.waiting.pop_front() else { return };
            if !self.one_way {
                located.observe((slot.sum.start_ns, slot.sum.end_ns), &slot.parts);
            }
            self.judge(&slot.sum, around, refused, out);
        }
    }

    fn judge(
        &mut self,
        record: &Interval,
        around: &Around<'_>,
        refused: &mut u64,
        out: &mut JudgeOutput,
    ) {
        let range = TimeRange { start_ns: record.start_ns, end_ns: record.end_ns };
        if let Some(next_ns) = self.next_ns.filter(|next| *next < range.start_ns) {
            self.fill(TimeRange { start_ns: next_ns, end_ns: range.start_ns }, around, out);
        }
        if std::mem::take(&mut self.resumes) {
            self.judges.iter_mut().for_each(|judge| judge.begins(range.start_ns));
        }
        self.record_ns = range.length_ns();
        self.next_ns = Some(self.next_ns.map_or(range.end_ns, |next| next.max(range.end_ns)));
        let left_out = around.left_out(record);
        let input = JudgeInput::record(record);
        let mut late = false;
        for judge in &mut self.judges {
            let exclusion = left_out.of(judge.objective());
            let input = exclusion.map_or(input, |exclusion| input.excluded(exclusion));
            late |= judge.push(input, out).is_err();
        }
        self.burn(range, Some(record), &left_out);
        *refused += u64::from(late);
    }

    fn burn(&mut self, range: TimeRange, record: Option<&Interval>, left_out: &LeftOut) {
        for burn in &mut self.burns {
            let own = self.judges.iter().find(|judge| judge.objective().name == burn.objective);
            let Some(objective) = own.map(Judge::objective) else { continue };
            burn.push(objective, range, record, left_out.of(objective), &mut self.burned);
        }
    }

    /// Time of which there is no record: unknown, but where the station itself is the reason.
    fn fill(&mut self, range: TimeRange, around: &Around<'_>, out: &mut JudgeOutput) {
        self.next_ns = Some(range.end_ns);
        let mut cuts = around.borders(range);
        cuts.extend([range.start_ns, range.end_ns]);
        cuts.sort_unstable();
        cuts.dedup();
        for pair in cuts.windows(2) {
            let piece = TimeRange { start_ns: pair[0], end_ns: pair[1] };
            let own = || self.resumes.then(|| Exclusion::doubt(STATION_GAP));
            let left_out = LeftOut { all: around.exclusion(piece).or_else(own), delays: None };
            let input = JudgeInput::gap(piece);
            let input = left_out.all.as_ref().map_or(input, |exclusion| input.excluded(exclusion));
            for judge in &mut self.judges {
                // A new judge begins here; what an older one has judged stays.
                let _ = judge.push(input, out);
            }
            self.burn(piece, None, &left_out);
        }
    }
}

impl Around<'_> {
    fn exclusion(&self, range: TimeRange) -> Option<Exclusion> {
        MaintenanceWindow::exclusion(self.maintenance, range).or_else(|| {
            let found = self.known.doubts.iter().find(|doubt| doubt.range.overlaps(&range));
            found.map(|doubt| Exclusion::doubt(doubt.name))
        })
    }

    /// The same of a record, which may itself say more of this host than of the network.
    fn left_out(&self, record: &Interval) -> LeftOut {
        let range = TimeRange { start_ns: record.start_ns, end_ns: record.end_ns };
        if let Some(all) = self.exclusion(range) {
            return LeftOut { all: Some(all), delays: None };
        }
        let named = |caveat: Caveat| {
            let name = serde_json::to_value(caveat).ok()?;
            name.as_str().map(Exclusion::doubt)
        };
        let (c, caveats) = (&record.counters, record.caveats);
        let doubt = loss_doubt(c, caveats).filter(|&doubt| {
            // Where all that left is lost, and other targets answer, this host is not the reason.
            let lost = c.sent > 0 && c.lost == c.sent && doubt != Caveat::ClockStepped;
            !(lost && self.known.answered.about(range, self.answered_ns))
        });
        LeftOut { all: doubt.and_then(named), delays: own_doubt(c, caveats).and_then(named) }
    }

    /// Instants inside `range` at which maintenance or a doubt begins or ends.
    fn borders(&self, range: TimeRange) -> Vec<i64> {
        let mut all: Vec<i64> =
            self.known.doubts.iter().flat_map(|d| [d.range.start_ns, d.range.end_ns]).collect();
        for window in self.maintenance {
            let mut before_ns = range.end_ns;
            while let Some(last) = window.when.last_before(before_ns - 1) {
                all.extend([last.start_ns, last.end_ns]);
                before_ns = last.start_ns;
                if last.start_ns <= range.start_ns || all.len() > BORDERS {
                    break;
                }
            }
        }
        all.retain(|at| range.start_ns < *at && *at < range.end_ns);
        all
    }
}

/// Remembers since when all is left out, or, where `delays` are judged, all of these.
fn note_doubt(
    doubtful: &mut Option<(TimeRange, String)>,
    record: &Interval,
    around: &Around<'_>,
    delays: bool,
) {
    let range = TimeRange { start_ns: record.start_ns, end_ns: record.end_ns };
    let left_out = around.left_out(record);
    let exclusion = left_out.all.or(left_out.delays.filter(|_| delays));
    match (exclusion.filter(|e| e.kind == ExclusionKind::StationDoubt), doubtful) {
        (None, doubtful) => *doubtful = None,
        (Some(_), Some((whole, _))) => whole.end_ns = range.end_ns.max(whole.end_ns),
        (Some(exclusion), doubtful) => *doubtful = Some((range, exclusion.name)),
    }
}

/// Whether an objective is about delays: what reads late may say a wrong one.
fn is_of_delay(objective: &Objective) -> bool {
    matches!(
        objective.metric,
        ObjectiveMetric::DelayPercentile { .. }
            | ObjectiveMetric::DelayMean { .. }
            | ObjectiveMetric::PdvPercentile { .. }
            | ObjectiveMetric::IpdvPercentile { .. }
    )
}

/// How events and months call a subject: "probe.core muc EF".
pub(super) fn subject_name(labels: &LabelSet) -> String {
    let parts = ["unit", "target", "class"].map(|name| labels.get(name).map_or("", String::as_str));
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

pub(super) fn is_one_way(objective: &Objective) -> bool {
    matches!(objective.direction, MeasuredDirection::Forward | MeasuredDirection::Backward)
}

/// Why an objective can never be met where at most `packets` go out in each second.
pub(crate) fn never_met(objective: &Objective, packets: f64) -> Option<String> {
    let window_s = match objective.window {
        ObjectiveWindow::Fixed { length_s, .. } => f64::from(length_s),
        ObjectiveWindow::Month => MONTH_S,
    };
    let (most, needed) = ((packets * window_s).ceil() as u64, objective.least_samples());
    (packets > 0.0 && most < needed).then(|| {
        format!(
            "a window has {} samples at most, and {} are needed to say that it is met: it can be \
             missed, and else says nothing; take a longer `window`, or send more often",
            format_count(most),
            format_count(needed)
        )
    })
}

/// What an objective cannot tell because too few packets are sent in its windows.
pub(super) fn samples_warning(subject: &Subject, objective: &Objective) -> Option<String> {
    let rate = |m: &MemberStream| 1e9 / m.info.period_ns.max(1) as f64;
    let packets: f64 = subject.members.iter().filter(|m| !m.ended).map(rate).sum();
    let why = never_met(objective, packets)?;
    Some(format!("objective {} of {}: {why}", objective.name, subject_name(&subject.labels)))
}

/// What a rule cannot tell because too few packets are sent.
pub(super) fn packets_warning(subject: &Subject, objective: &Objective) -> Option<String> {
    let rule = objective.rule()?;
    let rate = |m: &MemberStream| rule.interval_ns() as f64 / m.info.period_ns.max(1) as f64;
    let packets: f64 = subject.members.iter().map(rate).sum();
    let why = rule.too_few_packets(packets)?;
    Some(format!("objective {} of {}: {why}", objective.name, subject_name(&subject.labels)))
}

/// The shortest month, s.
const MONTH_S: f64 = 28.0 * 86_400.0;
/// Records come so long after their end, at most; what comes later is not judged.
pub(super) const LATE_NS: i64 = 120 * 1_000_000_000;
/// A group of hosts without traffic for so long is judged no more.
const FORGOTTEN_NS: i64 = 3_600 * 1_000_000_000;
/// Records wait so long for what proves the side of their losses, at most.
const SIDES_NS: i64 = 600 * 1_000_000_000;
/// Borders of maintenance in one time without data, at most.
const BORDERS: usize = 2_000;
/// Why time was left out in which the station did not measure.
pub(super) const STATION_GAP: &str = "station_gap";
