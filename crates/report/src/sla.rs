//! The monthly report of objectives: one page for people, tables for programs.
//!
//! A chapter is a customer, a class or a target. Each of its objectives is as good as its worst
//! subject: subjects are never averaged. What is not known makes a range, and what was left out is
//! listed by name.

use sonde_results::civil_time;
use sonde_results::sla::{
    ExclusionKind, GroupObjective, MeasuredDirection, ObjectiveMonth, SlaReport,
};
use sonde_results::units::{
    SECOND, format_availability, format_count, format_duration, format_elapsed,
};

use crate::file::{RenderError, delimited, html};
use crate::sheet::{Cell, Sheet};

/// What a report is about.
#[derive(Clone, Debug, PartialEq)]
pub struct SlaMonthReport<'a> {
    /// Who measured.
    pub station: &'a str,
    /// The month: "2026-11".
    pub month: &'a str,
    /// What the chapters are: "customer".
    pub by: &'static str,
    /// When it was made, ns since 1970 UTC.
    pub at_ns: i64,
    /// The chapters.
    pub groups: &'a [SlaReport],
}

/// A table for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlaSheet {
    /// Each objective of each subject.
    Objectives,
    /// Each chapter and objective, by its worst subject.
    Groups,
    /// Time that was left out, by name.
    Exclusions,
}

impl SlaMonthReport<'_> {
    /// One page, with everything inside.
    pub fn html(&self) -> String {
        let title = format!("Service levels of {} in {}", self.station, self.month);
        let sheets = [
            self.overview(),
            self.windows(),
            self.time(),
            self.exclusions_for_people(),
            self.standards(),
            self.caveats(),
        ];
        let shown: Vec<&Sheet> = sheets.iter().filter(|sheet| !sheet.rows.is_empty()).collect();
        html::page(&title, &self.lead(), &shown, METHODS)
    }

    /// A table as CSV: all digits, a unit in each column's name.
    ///
    /// # Errors
    /// What the encoder refuses.
    pub fn csv(&self, which: SlaSheet) -> Result<Vec<u8>, RenderError> {
        let sheet = match which {
            SlaSheet::Objectives => self.objectives_for_programs(),
            SlaSheet::Groups => self.groups_for_programs(),
            SlaSheet::Exclusions => self.exclusions_for_programs(),
        };
        let failed = |error| RenderError::Delimited(sheet.id.clone(), error);
        delimited::table(&sheet, b',').map_err(failed)
    }

    fn lead(&self) -> Vec<String> {
        let mut lead = Vec::new();
        let span = |report: &SlaReport| {
            let (from, to) = (civil_time::plain(report.start_ns), civil_time::plain(report.end_ns));
            format!("{from} to {to}")
        };
        let mut spans: Vec<String> = self.groups.iter().map(span).collect();
        spans.sort();
        spans.dedup();
        match spans.is_empty() {
            true => lead.push(format!(
                "Nothing was judged in {}: the station has no objective, or did not measure then.",
                self.month
            )),
            false => lead.push(format!("{}.", spans.join("; "))),
        }
        let all = || self.groups.iter().flat_map(|group| &group.objectives);
        let count = |of: fn(&GroupObjective) -> u64| all().map(of).sum::<u64>();
        if !spans.is_empty() {
            lead.push(format!(
                "Objectives kept: {}. Missed: {}. Undecided: {}.",
                format_count(count(|o| o.kept)),
                format_count(count(|o| o.missed)),
                format_count(count(|o| o.undecided)),
            ));
        }
        if self.groups.iter().any(|group| group.provisional) {
            lead.push("The month is not closed: its figures can still change.".into());
        }
        lead.push(format!("Made {}.", civil_time::plain(self.at_ns)));
        lead
    }

    fn overview(&self) -> Sheet {
        let columns = [
            (self.by, ""),
            ("objective", ""),
            ("subjects", ""),
            ("kept", ""),
            ("missed", ""),
            ("undecided", ""),
            ("worst subject", ""),
            ("its windows kept", ""),
            ("its availability", ""),
            ("its errored seconds", ""),
        ];
        let note = "An objective of a group is as good as its worst subject.";
        let mut sheet = Sheet::new("overview", "Objectives", note, &columns);
        for (group, objective) in self.objectives() {
            let worst = objective.worst();
            sheet.rows.push(vec![
                group.group.as_str().into(),
                objective.objective.as_str().into(),
                Cell::Count(objective.members.len() as u64),
                Cell::Count(objective.kept),
                Cell::Count(objective.missed),
                Cell::Count(objective.undecided),
                worst.map_or(Cell::None, |m| m.subject.as_str().into()),
                worst
                    .and_then(|m| m.windows.compliance())
                    .map_or(Cell::None, |range| format_availability(range).into()),
                worst.map_or(Cell::None, availability),
                worst.map_or(Cell::None, errored),
            ]);
        }
        kept(sheet, &columns)
    }

    fn windows(&self) -> Sheet {
        let columns = [
            (self.by, ""),
            ("objective", ""),
            ("subject", ""),
            ("way", ""),
            ("kept", ""),
            ("missed", ""),
            ("undecided", ""),
            ("left out", ""),
            ("compliance", ""),
            ("revision", ""),
        ];
        let note =
            "Windows of each subject by verdict. Compliance is a range where some are undecided.";
        let mut sheet = Sheet::new("windows", "Compliance", note, &columns);
        for (group, month) in self.members() {
            let windows = &month.windows;
            sheet.rows.push(vec![
                group.group.as_str().into(),
                month.objective.as_str().into(),
                month.subject.as_str().into(),
                way(month.direction).into(),
                Cell::Count(windows.met),
                Cell::Count(windows.missed),
                Cell::Count(windows.undecided),
                Cell::Count(windows.excluded),
                windows.compliance().map_or(Cell::None, |range| format_availability(range).into()),
                if month.revision > 0 { Cell::Count(month.revision.into()) } else { Cell::None },
            ]);
        }
        kept(sheet, &columns)
    }

    fn time(&self) -> Sheet {
        let columns = [
            (self.by, ""),
            ("objective", ""),
            ("subject", ""),
            ("availability", ""),
            ("unavailable", ""),
            ("undecided", ""),
            ("left out", ""),
            ("outages", ""),
            ("longest", ""),
            ("errored seconds", ""),
            ("severely errored", ""),
        ];
        let note = "Availability and seconds, where the objective has a rule for them. Errored \
                    seconds are those of available time.";
        let mut sheet = Sheet::new("time", "Unavailable time and errored seconds", note, &columns);
        for (group, month) in self.members().filter(|(_, month)| has_time(month)) {
            let of = &month.availability;
            let length = |intervals: u64| match of.interval_ns {
                0 => Cell::None,
                ns => elapsed(intervals as i64 * ns),
            };
            let counted = of.interval_ns > 0;
            let count = |n: u64| if counted { Cell::Count(n) } else { Cell::None };
            sheet.rows.push(vec![
                group.group.as_str().into(),
                month.objective.as_str().into(),
                month.subject.as_str().into(),
                availability(month),
                length(of.unavailable),
                length(of.undecided),
                if of.excluded.is_empty() { Cell::None } else { elapsed(excluded_ns(month)) },
                count(of.outages),
                length(of.longest_outage),
                errored(month),
                range(month.seconds.severe, month.seconds.severe_possible),
            ]);
        }
        kept(sheet, &columns)
    }

    fn exclusions_for_people(&self) -> Sheet {
        let columns = [
            (self.by, ""),
            ("objective", ""),
            ("subject", ""),
            ("left out", ""),
            ("name", ""),
            ("time", ""),
            ("intervals", ""),
        ];
        let note = "Time that is in no figure above: announced work, and time in which the station \
                    did not measure or doubted itself.";
        let mut sheet = Sheet::new("left_out", "What was left out", note, &columns);
        for (group, month) in self.members() {
            for left_out in &month.availability.excluded {
                sheet.rows.push(vec![
                    group.group.as_str().into(),
                    month.objective.as_str().into(),
                    month.subject.as_str().into(),
                    kind(left_out.kind).into(),
                    left_out.name.as_str().into(),
                    elapsed(left_out.length_ns),
                    Cell::Count(left_out.intervals),
                ]);
            }
        }
        kept(sheet, &columns)
    }

    fn standards(&self) -> Sheet {
        let columns = [("objective", ""), ("in words", ""), ("standard, edition, grid", "")];
        let mut sheet = Sheet::new("standards", "What was promised", "", &columns);
        for (_, month) in self.members() {
            let standard = month.standard.as_ref().map(ToString::to_string);
            let row: Vec<Cell> = vec![
                month.objective.as_str().into(),
                month.text.as_str().into(),
                standard.unwrap_or_else(|| "the user's own".into()).into(),
            ];
            if !sheet.rows.contains(&row) {
                sheet.rows.push(row);
            }
        }
        kept(sheet, &columns)
    }

    fn caveats(&self) -> Sheet {
        let columns = [("objective", ""), ("subject", ""), ("doubt", ""), ("intervals", "")];
        let note = "Intervals that count, and about which there is a doubt.";
        let mut sheet = Sheet::new("doubts", "Doubts", note, &columns);
        for (_, month) in self.members() {
            for of in &month.caveats {
                sheet.rows.push(vec![
                    month.objective.as_str().into(),
                    month.subject.as_str().into(),
                    of.caveat.text().into(),
                    Cell::Count(of.intervals),
                ]);
            }
        }
        kept(sheet, &columns)
    }

    fn objectives_for_programs(&self) -> Sheet {
        let columns = [
            ("group", ""),
            ("objective", ""),
            ("subject", ""),
            ("direction", ""),
            ("from", ""),
            ("to", ""),
            ("provisional", ""),
            ("revision", ""),
            ("windows met", ""),
            ("windows missed", ""),
            ("windows undecided", ""),
            ("windows excluded", ""),
            ("compliance low", ""),
            ("compliance high", ""),
            ("availability low", ""),
            ("availability high", ""),
            ("unavailable", "s"),
            ("undecided", "s"),
            ("excluded", "s"),
            ("outages", ""),
            ("longest outage", "s"),
            ("errored seconds", ""),
            ("errored seconds possible", ""),
            ("severely errored seconds", ""),
            ("severely errored seconds possible", ""),
            ("text", ""),
            ("standard", ""),
        ];
        let mut sheet = Sheet::new("sla_objectives", "Objectives", "", &columns);
        for (group, month) in self.members() {
            let of = &month.availability;
            let counted = of.interval_ns > 0;
            let seconds =
                |ns: i64| if counted { Cell::Number(ns as f64 / 1e9) } else { Cell::None };
            let intervals = |n: u64| seconds(n as i64 * of.interval_ns);
            let compliance = month.windows.compliance();
            sheet.rows.push(vec![
                group.group.as_str().into(),
                month.objective.as_str().into(),
                month.subject.as_str().into(),
                way(month.direction).into(),
                civil_time::rfc3339(month.start_ns).into(),
                civil_time::rfc3339(month.end_ns).into(),
                month.provisional.to_string().into(),
                Cell::Count(month.revision.into()),
                Cell::Count(month.windows.met),
                Cell::Count(month.windows.missed),
                Cell::Count(month.windows.undecided),
                Cell::Count(month.windows.excluded),
                compliance.map_or(Cell::None, |(low, _)| Cell::Number(low)),
                compliance.map_or(Cell::None, |(_, high)| Cell::Number(high)),
                of.low().map_or(Cell::None, Cell::Number),
                of.high().map_or(Cell::None, Cell::Number),
                intervals(of.unavailable),
                intervals(of.undecided),
                seconds(excluded_ns(month)),
                if counted { Cell::Count(of.outages) } else { Cell::None },
                intervals(of.longest_outage),
                Cell::Count(month.seconds.errored),
                Cell::Count(month.seconds.errored_possible),
                Cell::Count(month.seconds.severe),
                Cell::Count(month.seconds.severe_possible),
                month.text.as_str().into(),
                month.standard.as_ref().map(ToString::to_string).unwrap_or_default().into(),
            ]);
        }
        sheet
    }

    fn groups_for_programs(&self) -> Sheet {
        let columns = [
            ("group", ""),
            ("objective", ""),
            ("subjects", ""),
            ("kept", ""),
            ("missed", ""),
            ("undecided", ""),
            ("worst subject", ""),
            ("compliance low", ""),
            ("compliance high", ""),
            ("availability low", ""),
            ("availability high", ""),
        ];
        let mut sheet = Sheet::new("sla_groups", "Groups", "", &columns);
        for (group, objective) in self.objectives() {
            let worst = objective.worst();
            let compliance = worst.and_then(|m| m.windows.compliance());
            let of = |value: Option<f64>| value.map_or(Cell::None, Cell::Number);
            sheet.rows.push(vec![
                group.group.as_str().into(),
                objective.objective.as_str().into(),
                Cell::Count(objective.members.len() as u64),
                Cell::Count(objective.kept),
                Cell::Count(objective.missed),
                Cell::Count(objective.undecided),
                worst.map_or(Cell::None, |m| m.subject.as_str().into()),
                of(compliance.map(|(low, _)| low)),
                of(compliance.map(|(_, high)| high)),
                of(worst.and_then(|m| m.availability.low())),
                of(worst.and_then(|m| m.availability.high())),
            ]);
        }
        sheet
    }

    fn exclusions_for_programs(&self) -> Sheet {
        let columns = [
            ("group", ""),
            ("objective", ""),
            ("subject", ""),
            ("kind", ""),
            ("name", ""),
            ("intervals", ""),
            ("length", "s"),
        ];
        let mut sheet = Sheet::new("sla_exclusions", "What was left out", "", &columns);
        for (group, month) in self.members() {
            for left_out in &month.availability.excluded {
                sheet.rows.push(vec![
                    group.group.as_str().into(),
                    month.objective.as_str().into(),
                    month.subject.as_str().into(),
                    kind(left_out.kind).into(),
                    left_out.name.as_str().into(),
                    Cell::Count(left_out.intervals),
                    Cell::Number(left_out.length_ns as f64 / 1e9),
                ]);
            }
        }
        sheet
    }

    fn objectives(&self) -> impl Iterator<Item = (&SlaReport, &GroupObjective)> {
        self.groups.iter().flat_map(|group| group.objectives.iter().map(move |o| (group, o)))
    }

    fn members(&self) -> impl Iterator<Item = (&SlaReport, &ObjectiveMonth)> {
        self.objectives().flat_map(|(group, o)| o.members.iter().map(move |month| (group, month)))
    }
}

/// People see every column that has a value, also where it is the same in all rows.
fn kept(sheet: Sheet, columns: &[(&'static str, &str)]) -> Sheet {
    let names: Vec<&'static str> = columns.iter().map(|(name, _)| *name).collect();
    sheet.keeping(&names)
}

/// Whether it has a rule of availability, or counts seconds.
fn has_time(month: &ObjectiveMonth) -> bool {
    let seconds = &month.seconds;
    let possible = seconds.errored + seconds.errored_possible + seconds.severe_possible;
    month.availability.interval_ns > 0 || possible > 0
}

fn excluded_ns(month: &ObjectiveMonth) -> i64 {
    month.availability.excluded.iter().map(|e| e.length_ns).sum()
}

fn availability(month: &ObjectiveMonth) -> Cell {
    let of = &month.availability;
    of.low().zip(of.high()).map_or(Cell::None, |range| format_availability(range).into())
}

fn errored(month: &ObjectiveMonth) -> Cell {
    match has_time(month) {
        true => range(month.seconds.errored, month.seconds.errored_possible),
        false => Cell::None,
    }
}

/// A count, and how many more there can have been.
fn range(sure: u64, possible: u64) -> Cell {
    match possible {
        0 => Cell::Count(sure),
        _ => format!("{} to {}", format_count(sure), format_count(sure + possible)).into(),
    }
}

fn elapsed(ns: i64) -> Cell {
    match ns {
        ns if ns % SECOND != 0 => format_duration(ns).into(),
        ns => format_elapsed(ns).into(),
    }
}

fn way(direction: MeasuredDirection) -> &'static str {
    match direction {
        MeasuredDirection::RoundTrip => "round trip",
        MeasuredDirection::RoundTripNet => "round trip, net",
        MeasuredDirection::Forward => "forward",
        MeasuredDirection::Backward => "backward",
    }
}

fn kind(kind: ExclusionKind) -> &'static str {
    match kind {
        ExclusionKind::Maintenance => "maintenance",
        ExclusionKind::StationDoubt => "station's doubt",
    }
}

const METHODS: &str = "A window belongs to the month in which it begins. Undecided windows and \
    intervals are neither kept nor missed: they make the ranges. Percentiles are decided by counts \
    on either side of the limit, never by interpolation. Unavailable time is dated back to its \
    first interval; loss and delay are judged in available time where the objective says so. \
    Subjects are never averaged.";

#[cfg(test)]
mod tests;
