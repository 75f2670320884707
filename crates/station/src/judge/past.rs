//! What is judged no more stays in the report of its month, with until when.

use std::collections::BTreeSet;

use sonde_results::civil_time;
use sonde_results::sla::ObjectiveMonth;

use super::StationJudge;
use super::settings::JudgeSettings;
use crate::alert::model::LabelSet;

impl StationJudge {
    /// Objectives that `new` defines in another way.
    pub(super) fn redefined_by(&self, new: &JudgeSettings) -> BTreeSet<String> {
        let differs = |name: &str| {
            let of = |settings: &JudgeSettings| {
                let found = settings.objectives.iter().find(|o| o.objective.name == name);
                found.map(|o| o.objective.clone())
            };
            of(&self.settings) != of(new)
        };
        let names = new.objectives.iter().map(|o| &o.objective.name);
        names.filter(|name| differs(name)).cloned().collect()
    }

    /// Nothing more comes to these months of a subject, which was judged by `settings` until `until_ns`:
    /// they are told as those that close.
    pub(super) fn close_months(
        &mut self,
        labels: &LabelSet,
        months: Vec<ObjectiveMonth>,
        (settings, until_ns): (&JudgeSettings, i64),
    ) {
        let until = civil_time::plain(until_ns);
        let mut labels = labels.clone();
        labels.insert(UNTIL.into(), until.clone());
        for month in months.into_iter().filter(has_something) {
            let subject = format!("{} until {until}", month.subject);
            let month = ObjectiveMonth { subject, provisional: false, ..month };
            let customer = settings.customer_of(&month.objective);
            self.tell_month(&labels, &customer, &month, until_ns);
        }
    }
}

/// Whether anything was judged in it.
fn has_something(month: &ObjectiveMonth) -> bool {
    let windows = &month.windows;
    windows.met + windows.missed + windows.undecided + windows.excluded > 0
        || month.availability.base() > 0
}

/// The label of a month that says until when its subject was judged.
const UNTIL: &str = "until";
