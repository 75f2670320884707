//! Announced work: that of the configuration, and what is entered while the station runs.

use sonde_meter::sla::{MaintenanceTime, MaintenanceWindow};

use super::StationJudge;
use super::settings::{JudgeSettings, JudgedMaintenance};
use super::trouble::JudgeFinding;
use crate::alert::silence::{Mute, MuteKind};

impl StationJudge {
    /// Takes maintenance that is entered now; one of the same id goes. Its time is left out of
    /// objectives from here on.
    pub fn enter(&mut self, maintenance: Mute) {
        self.announced.remove(&maintenance.id);
        self.entered.retain(|other| other.id != maintenance.id);
        self.entered.push(maintenance);
        // No objective changes by it.
        self.judge_all(&self.settings.clone(), 0);
    }

    /// Has all subjects judged by the settings as they are from `now_ns` on; they were `old`.
    pub(super) fn judge_all(&mut self, old: &JudgeSettings, now_ns: i64) {
        let settings = self.effective();
        let judged = self.subjects.values_mut();
        let past = judged.map(|s| (s.labels.clone(), s.judge_by(&settings, now_ns)));
        let past: Vec<_> = past.filter(|(_, months)| !months.is_empty()).collect();
        past.into_iter()
            .for_each(|(labels, months)| self.close_months(&labels, months, (old, now_ns)));
    }

    /// The settings, with what was entered.
    pub(super) fn effective(&self) -> JudgeSettings {
        let lasting = self.entered.iter().filter(|mute| mute.starts_ns < mute.ends_ns);
        let entered = lasting.map(|mute| JudgedMaintenance {
            labels: mute.labels.clone(),
            window: MaintenanceWindow {
                name: if mute.name.is_empty() { mute.id.clone() } else { mute.name.clone() },
                when: MaintenanceTime::Once { start_ns: mute.starts_ns, end_ns: mute.ends_ns },
                entered_ns: None,
            },
        });
        let mut settings = self.settings.clone();
        settings.maintenance.extend(entered);
        settings
    }

    /// While announced work is done, nobody is told of those that it is about. By the sliding rule
    /// time becomes unavailable in it, too.
    pub(super) fn announce(&mut self, now_ns: i64) {
        for maintenance in &self.settings.maintenance {
            let window = &maintenance.window;
            let Some(now) = window.when.last_before(now_ns).filter(|r| r.contains(now_ns)) else {
                continue;
            };
            let id = format!("{CONFIGURED}{}", window.name);
            if self.announced.insert(id.clone(), now.start_ns) == Some(now.start_ns) {
                continue;
            }
            self.findings.push(JudgeFinding::Muted(Mute {
                id,
                name: window.name.clone(),
                kind: MuteKind::Maintenance,
                labels: maintenance.labels.clone(),
                starts_ns: now.start_ns,
                ends_ns: now.end_ns,
                author: self.station.clone(),
                comment: "announced in the configuration".into(),
            }));
        }
        self.entered.retain(|mute| mute.ends_ns + ENTERED_KEPT_NS > now_ns);
        for mute in &self.entered {
            let begun = mute.starts_ns <= now_ns;
            if begun && self.announced.insert(mute.id.clone(), mute.starts_ns).is_none() {
                self.findings.push(JudgeFinding::Muted(mute.clone()));
            }
        }
    }
}

/// What the ids of maintenance of the configuration begin with.
pub(crate) const CONFIGURED: &str = "maintenance.";
/// Maintenance that was entered is remembered for so long after its end: records come late.
const ENTERED_KEPT_NS: i64 = 86_400 * 1_000_000_000;
