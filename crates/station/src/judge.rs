//! Judges what probes measure by objectives, purely: reports and the time go in, findings come out.
//!
//! A *subject* is a target and class of a probe, with all its streams. Each objective whose `match`
//! fits it judges it by itself. What is missing is unknown, and what is missing because the station
//! did not measure is left out by name: no breach is concluded from either. [`thread`] has the
//! thread and the clock.

mod burn;
pub(crate) mod conclude;
mod located;
pub(crate) mod maintenance;
mod passive;
mod past;
mod series;
pub mod settings;
mod subject;
pub mod thread;
pub mod trouble;
mod unsent;
mod usual;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use sonde_meter::sla::{Judge, JudgeOutput, Objective, TimeRange};
use sonde_results::rtt_run::RttPoint;
use sonde_results::sla::{AvailabilityLabel, ObjectiveMonth};
use sonde_results::units::{format_dscp, format_elapsed};
use sonde_results::{Caveat, Interval, StreamInfo};
use sonde_run::probe::{About, Event};

use self::settings::JudgeSettings;
pub(crate) use self::subject::never_met;
use self::subject::{
    Doubt, Known, LATE_NS, MemberStream, Subject, SubjectState, packets_warning, samples_warning,
    subject_name,
};
use self::trouble::{JudgeFinding, Trouble, TroubleKind, event, evidence_of};
use self::unsent::{AnsweredTimes, Unsent};
pub use self::usual::UsualWanted;
use crate::alert::model::{Alert, AlertSeverity, LabelSet};
use crate::alert::silence::Mute;
use crate::hub::{Report, Said};
use crate::plan::UnitId;
use crate::supervise::Notice;

/// Judges a station's units.
pub struct StationJudge {
    station: String,
    settings: JudgeSettings,
    units: BTreeMap<UnitId, JudgedUnit>,
    subjects: BTreeMap<LabelSet, Subject>,
    /// What is wrong, by its labels.
    open: BTreeMap<LabelSet, Trouble>,
    /// What ended lately, and when that was found: it is told again after a restart.
    ended: VecDeque<EndedTrouble>,
    /// The last maintenance that alerts know of, by the id of its mute.
    announced: BTreeMap<String, i64>,
    /// Maintenance that was entered while the station ran.
    entered: Vec<Mute>,
    /// When the last doubtful record of a unit ended of which people know, ns since 1970 UTC.
    doubted_until: BTreeMap<UnitId, i64>,
    findings: Vec<JudgeFinding>,
}

/// A unit that is judged.
#[derive(Default)]
struct JudgedUnit {
    /// Subject and member of each stream, by its identifier.
    streams: Vec<(Arc<LabelSet>, u32)>,
    /// It measures.
    runs: bool,
    doubts: VecDeque<Doubt>,
    answered: AnsweredTimes,
    /// Of a unit that watches traffic, its interfaces.
    points: Vec<RttPoint>,
    /// Its groups that are judged.
    groups: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct EndedTrouble {
    trouble: Trouble,
    ends_ns: i64,
    found_ns: i64,
}

/// All that a restart must not forget.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JudgeState {
    /// Of this form; another one is not read.
    version: u32,
    /// When it was saved, ns since 1970 UTC.
    at_ns: i64,
    /// The station ended in order after it.
    ended_in_order: bool,
    subjects: Vec<SubjectState>,
    open: Vec<Trouble>,
    ended: Vec<EndedTrouble>,
    #[serde(default)]
    entered: Vec<Mute>,
}

/// How an objective of a subject stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// station, unit, target, class.
    pub labels: LabelSet,
    /// For whom it was promised; empty: for none.
    pub customer: String,
    /// Whom it is about, in one line.
    pub subject: String,
    /// What was promised.
    pub objective: Objective,
    /// Since when it is breached, ns since 1970 UTC; `None`: it is not.
    pub breach_ns: Option<i64>,
    /// The month that is filling.
    pub month: Option<ObjectiveMonth>,
}

/// How judging goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JudgeStatus {
    /// Targets and classes that are judged by some objective.
    pub subjects: u64,
    /// Objectives of all of them together.
    pub judged: u64,
    /// What is wrong.
    pub open: Vec<Trouble>,
    /// Maintenance that was entered while the station ran: to come, of now, and of the last day.
    pub entered: Vec<Mute>,
    /// Records that came too late, or twice.
    pub refused: u64,
    /// Records that found no room on their way here.
    pub lost_records: u64,
    /// Why findings cannot be kept or the state cannot be saved, if so.
    pub error: Option<String>,
}

impl StationJudge {
    /// Of the station of that name, which begins at `now_ns` (ns since 1970 UTC) with `units`. It
    /// goes on from `saved`. The time in between is the station's own gap.
    pub fn new(
        station: &str,
        settings: JudgeSettings,
        units: &BTreeSet<UnitId>,
        saved: Option<JudgeState>,
        now_ns: i64,
    ) -> StationJudge {
        let mut judge = StationJudge {
            station: station.into(),
            settings,
            units: BTreeMap::new(),
            subjects: BTreeMap::new(),
            open: BTreeMap::new(),
            ended: VecDeque::new(),
            announced: BTreeMap::new(),
            entered: Vec::new(),
            doubted_until: BTreeMap::new(),
            findings: Vec::new(),
        };
        let since = saved.as_ref().map(|saved| (saved.at_ns.min(now_ns), saved.ended_in_order));
        if let Some(saved) = saved.filter(|saved| saved.version == VERSION) {
            judge.resume(saved, now_ns);
        }
        judge.tell_start(since, now_ns);
        judge.reload(judge.settings.clone(), units, now_ns);
        judge
    }

    fn resume(&mut self, saved: JudgeState, now_ns: i64) {
        self.entered = saved.entered;
        let at_ns = saved.at_ns.min(now_ns);
        for state in saved.subjects {
            let (mut subject, past) = Subject::resume(state, &self.settings, at_ns);
            let settings = self.settings.clone();
            self.close_months(&subject.labels, past, (&settings, at_ns));
            subject.begin();
            self.subjects.insert(subject.labels.clone(), subject);
        }
        for ended in saved.ended {
            self.findings.push(JudgeFinding::Ends(ended.trouble.clone(), ended.ends_ns));
            self.ended.push_back(ended);
        }
        for trouble in saved.open {
            let watched = matches!(trouble.kind, TroubleKind::Breach | TroubleKind::Unavailable);
            let objective = trouble.labels.get("objective").cloned().unwrap_or_default();
            let subject = self.subjects.get_mut(&subject_labels(&trouble.labels));
            if let Some(subject) = subject.filter(|_| watched) {
                subject.located.watch(&objective, now_ns);
            }
            match trouble.kind {
                // The unit starts anew, and is told of if it fails again.
                TroubleKind::UnitFailed | TroubleKind::StationDoubt => {
                    self.ends(trouble, now_ns, now_ns)
                }
                _ => {
                    self.findings.push(JudgeFinding::Begins(trouble.clone()));
                    self.open.insert(trouble.labels.clone(), trouble);
                }
            }
        }
    }

    fn tell_start(&mut self, since: Option<(i64, bool)>, now_ns: i64) {
        let name = &self.station;
        let mut labels = LabelSet::from([("station".to_owned(), name.clone())]);
        let Some((at_ns, in_order)) = since else {
            let title = format!("station {name} started, and judges from now on");
            let evidence = evidence_of(&labels, "", json!({}));
            let times = (now_ns, Some(now_ns));
            let event = event("station_started", AlertSeverity::Info, times, title, evidence);
            self.findings.push(JudgeFinding::Happened { event, alert: None });
            return;
        };
        let gap = format_elapsed(now_ns - at_ns);
        let (kind, severity, title) = match in_order {
            true => (
                "station_started",
                AlertSeverity::Info,
                format!("station {name} started; it did not measure for {gap}"),
            ),
            false => (
                "station_unclean_end",
                AlertSeverity::Warning,
                format!("station {name} started; it had not ended in order, and lacks {gap}"),
            ),
        };
        let text = format!("last known to work {gap} before it started");
        let evidence = evidence_of(&labels, &text, json!({"gap_ns": now_ns - at_ns}));
        let event = event(kind, severity, (at_ns, Some(now_ns)), title.clone(), evidence);
        labels.insert("alertname".into(), "StationUncleanEnd".into());
        labels.insert("severity".into(), severity.as_str().into());
        let alert = (!in_order).then(|| Alert {
            labels,
            annotations: [("summary".to_owned(), title)].into(),
            starts_ns: at_ns,
            ends_ns: Some(now_ns),
            evidence: text,
            link: None,
        });
        self.findings.push(JudgeFinding::Happened { event, alert });
    }

    /// Goes over to other settings, and to the units that there are now. Objectives that stay the
    /// same go on; a trouble whose objective or unit is gone has ended.
    pub fn reload(&mut self, settings: JudgeSettings, units: &BTreeSet<UnitId>, now_ns: i64) {
        let redefined = self.redefined_by(&settings);
        let left = self.subjects.keys().filter(|labels| !units.contains(&unit_of(labels)));
        let left: Vec<LabelSet> = left.cloned().collect();
        left.iter().for_each(|labels| self.retire(labels, now_ns));
        let old = std::mem::replace(&mut self.settings, settings);
        // What alerts were told of a window that is another one now, is told again.
        self.announced.clear();
        let gone = |labels: &LabelSet| {
            labels.get("unit").is_some_and(|unit| !units.contains(&UnitId::new(unit)))
        };
        self.units.retain(|unit, _| units.contains(unit));
        self.judge_all(&old, now_ns);
        for trouble in self.open.values_mut() {
            let of_it = |name: &String| redefined.contains(name);
            if trouble.labels.get("objective").is_some_and(of_it)
                && let Some(figures) = trouble.evidence.as_object_mut()
            {
                figures.insert(conclude::REDEFINED.into(), now_ns.into());
            }
        }
        let stale = |trouble: &&Trouble| {
            let objective = trouble.labels.get("objective");
            let subject = self.subjects.get(&subject_labels(&trouble.labels));
            // What an objective that has changed found before, is judged anew.
            let says = |judge: &Judge| match trouble.kind {
                TroubleKind::Breach => judge.breach_ns().is_some(),
                TroubleKind::Unjudged => judge.is_unknown(),
                TroubleKind::Unavailable => {
                    judge.label().is_some_and(|label| label != AvailabilityLabel::Available)
                }
                TroubleKind::StationDoubt
                | TroubleKind::UnitFailed
                | TroubleKind::BudgetBurn
                | TroubleKind::NotSent
                | TroubleKind::NotMeasured => true,
            };
            let lasts = subject.is_some_and(|s| {
                s.judges().any(|j| Some(&j.objective().name) == objective && says(j))
            });
            let burns = trouble.kind != TroubleKind::BudgetBurn
                || subject.is_some_and(|s| s.burns().any(|burn| conclude::is_of(trouble, burn)));
            gone(&trouble.labels) || (objective.is_some() && !(lasts && burns))
        };
        let stale: Vec<Trouble> = self.open.values().filter(stale).cloned().collect();
        stale.into_iter().for_each(|trouble| self.ends(trouble, now_ns, now_ns));
    }

    /// Takes what a unit says. Its times are `utc_offset_ns` ahead of UTC; it is `now_ns`.
    pub fn take(&mut self, report: &Report, (utc_offset_ns, now_ns): (i64, i64)) {
        let unit = &report.unit;
        match &report.said {
            Said::Probe(about) => self.begin(unit, about, now_ns),
            Said::ProbeEvent(Event::Added(streams)) => self.add(unit, streams),
            Said::ProbeEvent(Event::Ended(streams)) => {
                let ended = streams.iter().filter_map(|&stream| self.member(unit, stream));
                for (labels, member) in ended.collect::<Vec<_>>() {
                    let subject = self.subjects.get_mut(&*labels);
                    let member = subject.and_then(|s| s.members.get_mut(member as usize));
                    member.into_iter().for_each(|member| member.ended = true);
                }
            }
            Said::ProbeEvent(Event::LeftOut(left_out)) => self.left_out(unit, left_out, now_ns),
            Said::ProbeEvent(Event::Record(record)) => self.record(unit, record, utc_offset_ns),
            Said::Lost(_) => self.doubt_unit(unit, (now_ns - LATE_NS, now_ns), "records_lost"),
            Said::Gap(gap) => {
                let utc = |time: sonde_wire::Time| time.as_nanos() - utc_offset_ns;
                self.doubt_unit(unit, (utc(gap.from), utc(gap.to)), subject::STATION_GAP);
            }
            Said::Rtt(about) => self.traffic_begins(unit, &about.run.points),
            Said::RttEvents(events) => {
                events.iter().for_each(|event| self.traffic(unit, event, utc_offset_ns));
            }
            Said::Ended { .. } => self.end(unit),
            Said::Notice(notice) => self.notice(notice, now_ns),
            _ => {}
        }
    }

    /// Records were lost on their way here: what they would have said is not concluded from.
    pub fn lost(&mut self, from_ns: i64, to_ns: i64) {
        let units: Vec<UnitId> = self.units.keys().cloned().collect();
        units.iter().for_each(|unit| self.doubt_unit(unit, (from_ns, to_ns), "records_lost"));
    }

    /// It is `now_ns`: what did not come by now is missing. To be called every second or so.
    pub fn handle_timeout(&mut self, now_ns: i64) {
        self.announce(now_ns);
        let mut concluded = Vec::new();
        for (labels, subject) in &mut self.subjects {
            let Some(unit) = self.units.get_mut(&unit_of(labels)) else { continue };
            let mut out = JudgeOutput::default();
            let runs = unit.runs;
            subject.handle_timeout(now_ns, runs, unit.known(), &mut out);
            if !out.events.is_empty() || !out.months.is_empty() || subject.has_burned() {
                concluded.push((labels.clone(), out));
            }
        }
        concluded.into_iter().for_each(|(labels, out)| self.conclude(&labels, out));
        self.doubt_itself();
        self.tell_unsent();
        let over = self.subjects.iter().filter(|(_, subject)| subject.is_over(now_ns));
        let over: Vec<LabelSet> = over.map(|(labels, _)| labels.clone()).collect();
        over.iter().for_each(|labels| self.retire(labels, now_ns));
        self.ended.retain(|ended| ended.found_ns + TOLD_AGAIN_NS > now_ns);
    }

    /// What was found since the last call.
    pub fn take_findings(&mut self) -> Vec<JudgeFinding> {
        std::mem::take(&mut self.findings)
    }

    /// The event of a trouble is kept under this number.
    pub fn kept(&mut self, trouble: &Trouble, event: u64) {
        let same = |other: &Trouble| {
            other.labels == trouble.labels && other.starts_ns == trouble.starts_ns
        };
        let open = self.open.values_mut().chain(self.ended.iter_mut().map(|e| &mut e.trouble));
        open.filter(|other| same(other)).for_each(|other| other.event = Some(event));
    }

    /// What is wrong now.
    pub fn open(&self) -> impl Iterator<Item = &Trouble> {
        self.open.values()
    }

    /// The months that are filling, as they look now. Later intervals change them.
    pub fn months_so_far(&self) -> Vec<ObjectiveMonth> {
        self.standings().into_iter().filter_map(|standing| standing.month).collect()
    }

    /// How every objective of every subject stands.
    pub fn standings(&self) -> Vec<Standing> {
        let judges =
            self.subjects.iter().flat_map(|(l, subject)| subject.judges().map(move |j| (l, j)));
        let standing = |(labels, judge): (&LabelSet, &Judge)| Standing {
            labels: labels.clone(),
            customer: self.customer_of(&judge.objective().name),
            subject: subject_name(labels),
            objective: judge.objective().clone(),
            breach_ns: judge.breach_ns(),
            month: judge.month_so_far(),
        };
        judges.map(standing).collect()
    }

    /// For whom an objective was promised; empty: for none.
    fn customer_of(&self, objective: &str) -> String {
        self.settings.customer_of(objective)
    }

    /// All that a restart must not forget. `ended_in_order`: nothing comes after it.
    pub fn state(&self, now_ns: i64, ended_in_order: bool) -> JudgeState {
        JudgeState {
            version: VERSION,
            // Of a station that ends, the last that it measured: its units wait for late replies.
            at_ns: match self.subjects.values().filter_map(Subject::judged_until).max() {
                Some(last_ns) if ended_in_order => last_ns.min(now_ns),
                _ => now_ns,
            },
            ended_in_order,
            subjects: self.subjects.values().map(Subject::state).collect(),
            open: self.open.values().cloned().collect(),
            ended: self.ended.iter().cloned().collect(),
            entered: self.entered.clone(),
        }
    }

    /// How judging goes; losses and errors are the caller's.
    pub fn status(&self) -> JudgeStatus {
        let judged = self.subjects.values().map(|s| s.judges().count() as u64);
        JudgeStatus {
            subjects: judged.clone().filter(|judges| *judges > 0).count() as u64,
            judged: judged.sum(),
            open: self.open.values().cloned().collect(),
            entered: self.entered.clone(),
            refused: self.subjects.values().map(|s| s.refused).sum(),
            ..JudgeStatus::default()
        }
    }

    /// A probe has begun. Its subjects go on; those that it has no more are over.
    fn begin(&mut self, id: &UnitId, about: &About, now_ns: i64) {
        let unit = self.units.entry(id.clone()).or_default();
        (unit.runs, unit.streams) = (true, Vec::new());
        let of_unit = |labels: &LabelSet| labels.get("unit").is_some_and(|u| u == id.as_str());
        let subjects = self.subjects.iter_mut().filter(|(labels, _)| of_unit(labels));
        subjects.for_each(|(_, subject)| subject.begin());
        self.add(id, &about.streams);
        self.left_out(id, &about.left_out, now_ns);
        let left_out = |labels: &LabelSet| {
            about.left_out.iter().any(|(target, _)| labels.get("target") == Some(target))
        };
        let gone = self.subjects.iter().filter(|(labels, subject)| {
            of_unit(labels) && subject.members.is_empty() && !left_out(labels)
        });
        let gone: Vec<LabelSet> = gone.map(|(labels, _)| labels.clone()).collect();
        gone.iter().for_each(|labels| self.retire(labels, now_ns));
    }

    fn add(&mut self, id: &UnitId, streams: &[StreamInfo]) {
        let settings = self.effective();
        let unit = self.units.entry(id.clone()).or_default();
        let mut touched = BTreeSet::new();
        for info in streams {
            let labels = LabelSet::from(
                [
                    ("station", self.station.as_str()),
                    ("unit", id.as_str()),
                    ("target", &info.target),
                    ("class", &format_dscp(info.dscp)),
                ]
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
            );
            let new = || Subject::new(labels.clone(), &settings);
            let subject = self.subjects.entry(labels.clone()).or_insert_with(new);
            unit.streams.push((Arc::new(labels.clone()), subject.members.len() as u32));
            let unsent = Unsent::default();
            subject.members.push(MemberStream { info: info.clone(), ended: false, unsent });
            touched.insert(labels);
        }
        // A probe of many targets is warned of once for each objective.
        let subjects = touched.iter().filter_map(|labels| self.subjects.get(labels));
        let mut warned = BTreeSet::new();
        for subject in subjects {
            for objective in subject.objectives() {
                let warnings =
                    [packets_warning(subject, objective), samples_warning(subject, objective)];
                for (kind, why) in warnings.into_iter().enumerate() {
                    let new = |_: &String| warned.insert((objective.name.clone(), kind));
                    self.findings.extend(why.filter(new).map(JudgeFinding::Warning));
                }
            }
        }
    }

    fn member(&self, unit: &UnitId, stream: u32) -> Option<(Arc<LabelSet>, u32)> {
        self.units.get(unit)?.streams.get(stream as usize).cloned()
    }

    fn record(&mut self, id: &UnitId, record: &Interval, utc_offset_ns: i64) {
        let Some((labels, member)) = self.member(id, record.stream) else { return };
        let (Some(subject), Some(unit)) = (self.subjects.get_mut(&*labels), self.units.get_mut(id))
        else {
            return;
        };
        let mut record = record.clone();
        record.start_ns -= utc_offset_ns;
        record.end_ns -= utc_offset_ns;
        unit.answered.note(&record);
        if let Some(member) = subject.members.get_mut(member as usize) {
            member.unsent.note(&record);
        }
        if subject.judges().next().is_none() {
            return;
        }
        let mut out = JudgeOutput::default();
        subject.take(member, &record, unit.known(), &mut out);
        self.conclude(&labels, out);
    }

    fn end(&mut self, id: &UnitId) {
        let Some(unit) = self.units.get_mut(id) else { return };
        unit.runs = false;
        let known = unit.known();
        let mut concluded = Vec::new();
        for (labels, subject) in self.subjects.iter_mut().filter(|(l, _)| unit_of(l) == *id) {
            let mut out = JudgeOutput::default();
            subject.end(known, &mut out);
            concluded.push((labels.clone(), out));
        }
        concluded.into_iter().for_each(|(labels, out)| self.conclude(&labels, out));
    }

    fn doubt_unit(&mut self, id: &UnitId, (start_ns, end_ns): (i64, i64), name: &'static str) {
        let Some(unit) = self.units.get_mut(id) else { return };
        let range = TimeRange { start_ns, end_ns };
        match unit.doubts.back_mut() {
            Some(last) if last.name == name && last.range.end_ns >= start_ns => {
                last.range.end_ns = last.range.end_ns.max(end_ns);
                last.range.start_ns = last.range.start_ns.min(start_ns);
            }
            _ => unit.doubts.push_back(Doubt { range, name }),
        }
        if unit.doubts.len() > DOUBTS {
            unit.doubts.pop_front();
        }
    }

    fn notice(&mut self, notice: &Notice, now_ns: i64) {
        let unit = notice.unit().as_str();
        let severity = match notice {
            Notice::Failed(..) => AlertSeverity::Warning,
            Notice::Refused(..) | Notice::Stuck(_) => AlertSeverity::Error,
            Notice::Recovered(_) => {
                let of_unit = |t: &&Trouble| {
                    t.kind == TroubleKind::UnitFailed
                        && t.labels.get("unit").is_some_and(|u| u == unit)
                };
                let over: Vec<Trouble> = self.open.values().filter(of_unit).cloned().collect();
                over.into_iter().for_each(|trouble| self.ends(trouble, now_ns, now_ns));
                return;
            }
        };
        let labels = [("station", self.station.as_str()), ("unit", unit)];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let title = notice.to_string();
        self.begins(
            TroubleKind::UnitFailed,
            labels.into(),
            severity,
            now_ns,
            title,
            String::new(),
            json!({}),
        );
    }

    /// A subject is measured no more. What was judged of it in this month stays in its report.
    fn retire(&mut self, labels: &LabelSet, now_ns: i64) {
        if let Some(subject) = self.subjects.remove(labels)
            && !passive::is_traffic(labels)
        {
            let until_ns = subject.judged_until().unwrap_or(now_ns);
            let settings = self.settings.clone();
            self.close_months(labels, subject.months().collect(), (&settings, until_ns));
        }
        if let Some(unit) = self.units.get_mut(&unit_of(labels)) {
            unit.groups = unit.groups.saturating_sub(u32::from(passive::is_traffic(labels)));
        }
        let of_it = |trouble: &&Trouble| subject_labels(&trouble.labels) == *labels;
        let over: Vec<Trouble> = self.open.values().filter(of_it).cloned().collect();
        over.into_iter().for_each(|trouble| self.ends(trouble, now_ns, now_ns));
    }

    /// Where the station doubts itself for long, people learn that nothing is judged.
    fn doubt_itself(&mut self) {
        let mut longest: BTreeMap<UnitId, (TimeRange, String)> = BTreeMap::new();
        for (labels, subject) in &self.subjects {
            let Some((range, name)) = &subject.doubtful else { continue };
            let longer = |known: &(TimeRange, String)| known.0.length_ns() < range.length_ns();
            let unit = unit_of(labels);
            if longest.get(&unit).is_none_or(longer) {
                longest.insert(unit, (*range, name.clone()));
            }
        }
        let open = self.open.values().filter(|t| t.kind == TroubleKind::StationDoubt);
        let over = open.filter(|t| !longest.contains_key(&unit_of(&t.labels)));
        for trouble in over.cloned().collect::<Vec<_>>() {
            let end_ns = self.doubted_until.remove(&unit_of(&trouble.labels));
            let end_ns = end_ns.unwrap_or(trouble.starts_ns);
            self.ends(trouble, end_ns, end_ns);
        }
        for (unit, (range, name)) in longest {
            if range.length_ns() < DOUBT_TOLD_NS {
                continue;
            }
            self.doubted_until.insert(unit.clone(), range.end_ns);
            let labels = [("station", self.station.as_str()), ("unit", unit.as_str())];
            let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let what = match name.as_str() {
                "sender_late" => "delays are not judged",
                _ => "nothing is judged",
            };
            let title = format!("{unit}: {what}, because the station doubts itself");
            let caveat: Option<Caveat> = serde_json::from_value(json!(name)).ok();
            let text = match caveat {
                Some(caveat) => format!("{}; {}", caveat.text(), caveat.advice()),
                None => format!("{}: see docs/sla.md", name.replace('_', " ")),
            };
            let severity = AlertSeverity::Warning;
            let figures = json!({"doubt": name});
            let kind = TroubleKind::StationDoubt;
            self.begins(kind, labels.into(), severity, range.start_ns, title, text, figures);
        }
    }
}

impl JudgedUnit {
    fn known(&mut self) -> Known<'_> {
        let JudgedUnit { doubts, answered, .. } = self;
        Known { doubts: doubts.make_contiguous(), answered }
    }
}

fn unit_of(labels: &LabelSet) -> UnitId {
    UnitId::new(labels.get("unit").map_or("", String::as_str))
}

/// The labels of a subject, among those of an objective or a trouble.
fn subject_labels(labels: &LabelSet) -> LabelSet {
    let ours = labels.iter().filter(|(name, _)| settings::LABELS.contains(&name.as_str()));
    ours.map(|(name, value)| (name.clone(), value.clone())).collect()
}

const VERSION: u32 = 1;
/// Ends are told again after a restart within this time: an alert is saved a second later.
const TOLD_AGAIN_NS: i64 = 60 * 1_000_000_000;
/// After so long a doubt people are told.
const DOUBT_TOLD_NS: i64 = 300 * 1_000_000_000;
/// Times of doubt that are remembered of a unit.
const DOUBTS: usize = 4_096;

#[cfg(test)]
mod tests;
