//! Passive round trips as subjects: each group of hosts by itself, where an objective asks for it by
//! a `unit` that begins with `rtt.`.
//!
//! Traffic that pauses says nothing: a group without samples is neither good nor bad, and nobody is
//! told.

use sonde_meter::sla::{JudgeOutput, Objective, ObjectiveMetric};
use sonde_results::Interval;
use sonde_results::caveat::CaveatSet;
use sonde_results::rtt::RttGroup;
use sonde_results::rtt_run::RttPoint;
use sonde_results::sla::MeasuredDirection;
use sonde_run::rtt;
use sonde_store::rtt::group_name;

use super::settings::JudgedObjective;
use super::subject::Subject;
use super::trouble::JudgeFinding;
use super::{StationJudge, unit_of};
use crate::alert::model::LabelSet;
use crate::plan::UnitId;

impl JudgedObjective {
    /// It is about passive round trips.
    pub fn is_of_traffic(&self) -> bool {
        self.labels.0.get("unit").is_some_and(|unit| unit.starts_with(RTT))
    }

    /// Whether it judges a subject.
    pub(crate) fn judges(&self, labels: &LabelSet) -> bool {
        self.is_of_traffic() == is_traffic(labels) && self.labels.matches(labels)
    }
}

/// Whether an objective can judge passive round trips: they have delays there and back alone.
pub(super) fn fits_traffic(objective: &Objective) -> bool {
    use MeasuredDirection::{RoundTrip, RoundTripNet};
    matches!(objective.direction, RoundTrip | RoundTripNet)
        && matches!(
            objective.metric,
            ObjectiveMetric::DelayPercentile { .. }
                | ObjectiveMetric::DelayMean { .. }
                | ObjectiveMetric::PdvPercentile { .. }
        )
        && objective.available_time.is_none()
}

/// Whether a subject is a group of passive round trips.
pub(super) fn is_traffic(labels: &LabelSet) -> bool {
    labels.get("unit").is_some_and(|unit| unit.starts_with(RTT))
}

impl StationJudge {
    /// A unit watches traffic from now on.
    pub(super) fn traffic_begins(&mut self, id: &UnitId, points: &[RttPoint]) {
        let unit = self.units.entry(id.clone()).or_default();
        (unit.runs, unit.points) = (true, points.to_vec());
        let own = self.subjects.iter_mut().filter(|(labels, _)| unit_of(labels) == *id);
        own.for_each(|(_, subject)| subject.begin());
    }

    /// Takes what a unit that watches traffic says.
    pub(super) fn traffic(&mut self, id: &UnitId, event: &rtt::Event, utc_offset_ns: i64) {
        let unit = self.units.entry(id.clone()).or_default();
        match event {
            rtt::Event::Point(point) => unit.points.push(point.clone()),
            rtt::Event::PointChanged(index, point) => {
                if let Some(known) = unit.points.get_mut(*index) {
                    known.clone_from(point);
                }
            }
            rtt::Event::Interval(interval) => {
                if !self.settings.objectives.iter().any(JudgedObjective::is_of_traffic) {
                    return;
                }
                for group in &interval.groups {
                    self.traffic_group(id, group, interval.caveats, utc_offset_ns);
                }
            }
            rtt::Event::Sample(_) | rtt::Event::Flow(_) | rtt::Event::UtcOffset(_) => {}
        }
    }

    fn traffic_group(
        &mut self,
        id: &UnitId,
        group: &RttGroup,
        caveats: CaveatSet,
        utc_offset_ns: i64,
    ) {
        let Some(unit) = self.units.get_mut(id) else { return };
        let point = |index: u8| match unit.points.get(usize::from(index)) {
            Some(point) => point.name.clone(),
            None => index.to_string(),
        };
        let name = group_name(&group.key, &point);
        let labels = [("station", &*self.station), ("unit", id.as_str()), ("target", &*name)];
        let labels: LabelSet =
            labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        if !self.subjects.contains_key(&labels) {
            if !self.settings.objectives.iter().any(|objective| objective.judges(&labels)) {
                return;
            }
            if unit.groups >= MOST_GROUPS {
                if unit.groups == MOST_GROUPS {
                    unit.groups += 1;
                    let why = format!(
                        "{id}: {MOST_GROUPS} groups are judged, and further ones are not; narrow \
                         the objectives' match.target"
                    );
                    self.findings.push(JudgeFinding::Warning(why));
                }
                return;
            }
            unit.groups += 1;
        }
        let new = || Subject::new(labels.clone(), &self.settings);
        let subject = self.subjects.entry(labels.clone()).or_insert_with(new);
        let mut record = Interval {
            start_ns: group.start_ns - utc_offset_ns,
            end_ns: group.end_ns - utc_offset_ns,
            rtt: group.clean.clone(),
            rtt_net: group.clean.clone(),
            caveats,
            ..Interval::empty(0)
        };
        // Each sample is a packet that came back; of those that did not, nothing is known.
        (record.counters.sent, record.counters.received) = (group.clean.count, group.clean.count);
        let mut out = JudgeOutput::default();
        subject.take(0, &record, unit.known(), &mut out);
        self.conclude(&labels, out);
    }
}

/// Units that watch traffic are called so.
const RTT: &str = "rtt.";
/// Groups of a unit that are judged, at most.
const MOST_GROUPS: u32 = 2_000;
