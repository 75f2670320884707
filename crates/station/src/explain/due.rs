//! What the series of an event should have measured in its time, and what they have.
//!
//! Pure: [`super::explain_event`] asks the store. An event that says that nothing could be judged is
//! mostly about the station: its records are missing, or say that it was late.

use sonde_meter::explain::CauseKind;
use sonde_results::Caveat;
use sonde_results::units::{format_count, format_share};
use sonde_store::query::{BadSampleRow, BadSampleTable, BadSampleWindow, TimeRange};
use sonde_store::{MINUTE_NS, StoredEvent};

use super::kept::capital;

/// What was due of an event's series, by what they did before, and what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct DueCounts {
    /// Of which time.
    pub span: TimeRange,
    /// Records that begin in it.
    pub records: u64,
    pub records_due: u64,
    /// Packets that were sent in it.
    pub packets: u64,
    pub packets_due: u64,
    /// End of the last record, also of one that begins later, ns since 1970 UTC; 0: there is none.
    pub last_ns: i64,
    /// What the records say.
    pub sum: BadSampleWindow,
}

/// Why there is less than was due.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum MissingWhy {
    /// The station had too little of its processors, or did not work at all.
    Starved,
    /// This host could not send.
    Refused,
    /// Its records have not come to the store.
    NotYet,
    /// The judge had more of them than the store has.
    StoreGap,
    /// It is not in the configuration any more.
    Removed,
    /// The unit did not run or left the target out, or its records were lost: a sentence.
    Known(String),
}

/// That the station, and not the network, is why an event could not be judged.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OwnFault {
    pub kind: Option<CauseKind>,
    /// What explains it: "station ber", "unit probe.core".
    pub name: Option<String>,
    pub sentence: String,
    /// In short.
    pub evidence: String,
    /// Share of what was due, or of the samples, that it explains.
    pub share: f64,
}

/// What else is known of the unit.
pub(super) struct UnitFacts<'a> {
    /// Its name.
    pub unit: &'a str,
    /// The target of the event; empty: all of them.
    pub target: &'a str,
    /// Samples that the judge had of the window of the event.
    pub judged: u64,
    /// The configuration has it, with this target.
    pub runs: bool,
    /// Events of the time of the event, and of the hour before, by their begin.
    pub events: &'a [StoredEvent],
    /// The present time, ns since 1970 UTC.
    pub now_ns: i64,
}

impl DueCounts {
    /// So long before `span` is to be asked for, ns: what was usual.
    pub fn before_ns(span: TimeRange) -> i64 {
        (2 * (span.to_ns - span.from_ns)).max(MINUTE_NS)
    }

    /// Of the windows of `table`, which are `step_ns` long and begin before `span`.
    pub fn of(table: &BadSampleTable, step_ns: i64, span: TimeRange) -> DueCounts {
        let mut counts = DueCounts { span, ..DueCounts::default() };
        let at = |window: &BadSampleWindow| table.from_ns + i64::from(window.window) * step_ns;
        let firsts: Vec<i64> =
            table.rows.iter().filter_map(|row| row.windows.first()).map(at).collect();
        table.rows.iter().for_each(|row| counts.add(row, (table.from_ns, step_ns), &firsts));
        counts
    }

    /// Adds a series. `firsts`: when each series of the table began.
    fn add(&mut self, row: &BadSampleRow, (from_ns, step_ns): (i64, i64), firsts: &[i64]) {
        let TimeRange { from_ns: begin, to_ns: end } = self.span;
        let (mut before, mut within) = (BadSampleWindow::default(), BadSampleWindow::default());
        let (mut covered_ns, mut last_ns) = (0, 0);
        for window in &row.windows {
            let start_ns = from_ns + i64::from(window.window) * step_ns;
            let to_ns = start_ns + window.length_ns;
            covered_ns += (to_ns.min(end) - start_ns.max(begin)).max(0);
            last_ns = to_ns.max(last_ns);
            match start_ns {
                at if at < begin => before.add(window),
                at if at < end => within.add(window),
                _ => {}
            }
        }
        // Others follow it: a unit that starts again may have other ports.
        if last_ns <= begin && firsts.iter().any(|first| first + step_ns >= last_ns) {
            return;
        }
        self.last_ns = self.last_ns.max(last_ns);
        self.sum.add(&within);
        self.records += within.intervals;
        self.packets += within.n;
        let usual_ns = before.length_ns / before.intervals.max(1) as i64;
        let known_due = within.n + within.skipped;
        if before.intervals < LEAST_BEFORE || usual_ns == 0 {
            // It is new: nothing says how much was due.
            self.records_due += within.intervals;
            self.packets_due += known_due;
            return;
        }
        // Where a record begins is known to a step, and where it ends to its own length.
        let missing_ns = Some(end - begin - covered_ns).filter(|ns| *ns > usual_ns.max(step_ns));
        let missing_ns = missing_ns.unwrap_or(0);
        let rate = (before.n + before.skipped) as f64 / before.length_ns as f64;
        let due = |ns: i64, of_ns: f64| (ns as f64 * of_ns).round() as u64;
        self.records_due += due(end - begin, 1.0 / usual_ns as f64).max(within.intervals);
        self.packets_due += known_due + due(missing_ns, rate);
    }

    /// Whether less was sent than a judge concludes from (as [`sonde_results::sla::own_doubt`]).
    fn lacks(&self) -> bool {
        self.packets * 10 < self.packets_due * 9
    }

    /// Why the station is at fault itself; `None`: it measured.
    pub fn own_fault(&self, facts: &UnitFacts<'_>) -> Option<OwnFault> {
        if self.lacks() {
            return Some(self.missing(&self.why(facts), facts.unit));
        }
        let doubt = self.sum.doubt.filter(|_| self.sum.doubtful_n * 5 > self.sum.n)?;
        Some(doubtful(doubt, &self.sum))
    }

    fn why(&self, facts: &UnitFacts<'_>) -> MissingWhy {
        let TimeRange { from_ns, to_ns } = self.span;
        let (lost, left_out) = (
            format!("{}: ", facts.unit),
            format!("{} does not measure {}: ", facts.unit, facts.target),
        );
        let mut told = facts.events.iter().filter(|event| event.begin_ns < to_ns + SOON_NS);
        let known = |event: &StoredEvent| match event.kind.as_str() {
            "gap" => {
                event.evidence["unit"].as_str() == Some(facts.unit)
                    && event.begin_ns < to_ns
                    && event.end_ns.is_none_or(|end| end > from_ns)
            }
            // It is told once some are lost.
            "records_lost" => event.title.starts_with(&lost) && event.begin_ns >= from_ns,
            "target_left_out" => event.title.starts_with(&left_out),
            _ => false,
        };
        if let Some(event) = told.clone().find(|event| known(event)) {
            return MissingWhy::Known(event.title.clone());
        }
        // It is told when a unit fails, and not again until it has recovered.
        let of_unit = |event: &&StoredEvent| {
            event.kind.starts_with("unit_") && event.evidence["unit"].as_str() == Some(facts.unit)
        };
        let state = told.rfind(of_unit);
        if let Some(failed) = state.filter(|event| event.kind != "unit_recovered") {
            return MissingWhy::Known(failed.title.clone());
        }
        match () {
            () if !facts.runs => MissingWhy::Removed,
            () if facts.judged > self.packets => MissingWhy::StoreGap,
            () if self.last_ns < to_ns && facts.now_ns < to_ns + PATIENCE_NS => MissingWhy::NotYet,
            () if self.sum.refused * 2 > self.packets_due - self.packets => MissingWhy::Refused,
            () => MissingWhy::Starved,
        }
    }

    fn missing(&self, why: &MissingWhy, unit: &str) -> OwnFault {
        let records = (self.records * 10 < self.records_due * 9).then(|| {
            format!(
                "Of {} records that were due, {} {} there",
                format_count(self.records_due),
                match self.records {
                    0 => "none".to_owned(),
                    n => format_count(n),
                },
                if self.records <= 1 { "is" } else { "are" },
            )
        });
        let sent = format!(
            "{} {} packets that were due, {} {} sent",
            if records.is_some() { "of" } else { "Of" },
            format_count(self.packets_due),
            format_count(self.packets),
            if self.packets == 1 { "was" } else { "were" },
        );
        let counted = records.into_iter().chain([sent]).collect::<Vec<_>>().join("; ");
        let said = match why {
            MissingWhy::Starved => "the station did not measure".to_owned(),
            MissingWhy::Refused => "this host could not send them".to_owned(),
            MissingWhy::NotYet => "what else was measured has not come to the store".to_owned(),
            MissingWhy::StoreGap => "the store lacks records that were measured".to_owned(),
            MissingWhy::Removed => format!("{unit} does not measure it any more"),
            MissingWhy::Known(title) => title.clone(),
        };
        let is_unit = matches!(why, MissingWhy::Removed | MissingWhy::Known(_));
        let own = match why {
            MissingWhy::Removed | MissingWhy::Known(_) => "The network is not judged",
            _ => "It is the station's own doing; the network is not judged",
        };
        let doubt = self.sum.doubt.map(|doubt| format!(" {}.", capital(doubt.advice())));
        OwnFault {
            kind: (*why == MissingWhy::Starved).then_some(CauseKind::StarvedStation),
            name: is_unit.then(|| format!("unit {unit}")),
            sentence: format!("{counted}: {said}. {own}.{}", doubt.unwrap_or_default()),
            evidence: format!("{}.", capital(&said)),
            share: 1.0 - self.packets as f64 / self.packets_due.max(1) as f64,
        }
    }
}

/// What is said where a share of the samples says more of the station than of the network.
pub(super) fn doubtful(caveat: Caveat, sum: &BadSampleWindow) -> OwnFault {
    let starved = matches!(
        caveat,
        Caveat::SenderLate | Caveat::SendsSkipped | Caveat::SendsFailed | Caveat::OwnDrops
    );
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    OwnFault {
        kind: starved.then_some(CauseKind::StarvedStation),
        name: None,
        sentence: format!(
            "{} of the samples of that time say more of this station than of the network: {}. It is \
             its own doing; the network is not judged. {}.",
            format_share(sum.doubtful_n, sum.n),
            caveat.text(),
            capital(caveat.advice())
        ),
        evidence: format!("{}.", capital(caveat.text())),
        share: match sum.bad {
            0 => share(sum.doubtful_n, sum.n),
            bad => share(sum.doubtful_bad, bad),
        },
    }
}

/// A series with fewer records before is new.
const LEAST_BEFORE: u64 = 2;
/// What is found of a time is told so long after it, at most, ns.
const SOON_NS: i64 = 10_000_000_000;
/// Records come so long after the time of an event, at most, while the station is well.
const PATIENCE_NS: i64 = MINUTE_NS;

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sonde_store::{EventSeverity, SeriesId};

    use super::*;

    const SECOND: i64 = 1_000_000_000;
    /// The event begins here, and is looked at for 10 s.
    const BEGIN: i64 = 1_000 * SECOND;
    const SPAN: TimeRange = TimeRange { from_ns: BEGIN, to_ns: BEGIN + 10 * SECOND };
    const STEP: i64 = SECOND / 10;
    const UNIT: &str = "probe.core";

    /// A record of a second, in which `sent` of 10 packets were sent.
    fn record(at: i64, sent: u64) -> BadSampleWindow {
        BadSampleWindow {
            window: ((at - BEGIN) / STEP + 600) as u32,
            n: sent,
            skipped: 10 - sent,
            intervals: 1,
            length_ns: SECOND,
            ..BadSampleWindow::default()
        }
    }

    /// Records of a minute before, and `during`.
    fn counts(during: impl IntoIterator<Item = BadSampleWindow>) -> DueCounts {
        let before = (1..=60).rev().map(|s| record(BEGIN - s * SECOND, 10));
        let windows = before.chain(during).collect();
        let row = BadSampleRow { series: SeriesId(0), group: String::new(), windows };
        let from_ns = BEGIN - 60 * SECOND;
        let table = BadSampleTable { from_ns, interval_ns: SECOND, rows: vec![row] };
        DueCounts::of(&table, STEP, SPAN)
    }

    fn facts(events: &[StoredEvent]) -> UnitFacts<'_> {
        let now_ns = SPAN.to_ns + 5 * SECOND;
        UnitFacts { unit: UNIT, target: "muc", judged: 0, runs: true, events, now_ns }
    }

    fn event(kind: &str, unit: &str, begin_ns: i64, end_ns: i64, title: &str) -> StoredEvent {
        StoredEvent {
            kind: kind.into(),
            severity: EventSeverity::Warning,
            series: None,
            begin_ns,
            end_ns: Some(end_ns),
            title: title.into(),
            evidence: json!({"unit": unit}),
        }
    }

    /// One record of ten, and one after the event.
    fn starved() -> DueCounts {
        counts([record(BEGIN, 3), record(SPAN.to_ns, 10)])
    }

    #[test]
    fn a_station_that_measured_is_not_at_fault() {
        let all = counts((0..10).map(|s| record(BEGIN + s * SECOND, 10)));
        assert_eq!((all.records, all.records_due), (10, 10));
        assert_eq!((all.packets, all.packets_due), (100, 100));
        assert_eq!(all.own_fault(&facts(&[])), None);
        // Records lie a fraction beside the event: none is missing for that.
        let shifted = counts((-1..10).map(|s| record(BEGIN + s * SECOND + 6 * STEP, 10)));
        assert_eq!((shifted.records, shifted.packets_due), (10, 100));
        assert_eq!(shifted.own_fault(&facts(&[])), None);
    }

    #[test]
    fn records_that_are_missing_are_counted() {
        let counts = starved();
        assert_eq!((counts.records, counts.records_due), (1, 10));
        // Ten in the record that is there, and ten in each second without one.
        assert_eq!((counts.packets, counts.packets_due), (3, 100));
        let fault = counts.own_fault(&facts(&[])).unwrap();
        assert_eq!(fault.kind, Some(CauseKind::StarvedStation));
        assert_eq!(
            fault.sentence,
            "Of 10 records that were due, 1 is there; of 100 packets that were due, 3 were sent: the \
             station did not measure. It is the station's own doing; the network is not judged."
        );
        assert!((fault.share - 0.97).abs() < 1e-9, "{fault:?}");
    }

    #[test]
    fn a_long_record_without_packets_is_none_that_is_missing() {
        // The sender was away for all of it, and said so in one record.
        let long = BadSampleWindow { skipped: 100, length_ns: 10 * SECOND, ..record(BEGIN, 0) };
        let counts = counts([long, record(SPAN.to_ns, 10)]);
        assert_eq!((counts.packets, counts.packets_due), (0, 100));
        let fault = counts.own_fault(&facts(&[])).unwrap();
        assert_eq!(fault.kind, Some(CauseKind::StarvedStation));
        assert!(fault.sentence.contains("of 100 packets that were due, 0 were sent"), "{fault:?}");
    }

    #[test]
    fn a_series_that_is_new_lacks_nothing() {
        let windows = (5..10).map(|s| record(BEGIN + s * SECOND, 10)).collect();
        let row = BadSampleRow { series: SeriesId(0), group: String::new(), windows };
        let from_ns = BEGIN - 60 * SECOND;
        let table = BadSampleTable { from_ns, interval_ns: SECOND, rows: vec![row] };
        let counts = DueCounts::of(&table, STEP, SPAN);
        assert_eq!((counts.packets, counts.packets_due), (50, 50));
        assert_eq!(counts.own_fault(&facts(&[])), None);
    }

    #[test]
    fn a_series_that_others_follow_lacks_nothing() {
        let row = |from: i64, to: i64, series| {
            let windows = (from..to).map(|s| record(BEGIN + s * SECOND, 10)).collect();
            BadSampleRow { series: SeriesId(series), group: String::new(), windows }
        };
        // It started again, with another port, half a minute before.
        let rows = vec![row(-60, -30, 0), row(-28, 10, 1)];
        let mut table = BadSampleTable { from_ns: BEGIN - 60 * SECOND, interval_ns: SECOND, rows };
        let counts = DueCounts::of(&table, STEP, SPAN);
        assert_eq!((counts.packets, counts.packets_due), (100, 100));
        // Nothing follows it.
        table.rows[1] = row(-60, 10, 1);
        let counts = DueCounts::of(&table, STEP, SPAN);
        assert_eq!((counts.packets, counts.packets_due), (100, 200));
    }

    #[test]
    fn what_is_known_of_the_unit_is_said_instead() {
        let of = |events: &[StoredEvent]| {
            let fault = starved().own_fault(&facts(events)).unwrap();
            assert_eq!((fault.kind, fault.name.as_deref()), (None, Some("unit probe.core")));
            fault.evidence
        };
        let (from, to) = (BEGIN + SECOND, BEGIN + 9 * SECOND);
        let gap = event("gap", UNIT, from, to, "probe.core measured nothing: its target changed");
        assert_eq!(
            of(std::slice::from_ref(&gap)),
            "Probe.core measured nothing: its target changed."
        );
        let lost = "probe.core: 9 records found no room and are lost";
        let lost = event("records_lost", "", to, to, lost);
        assert_eq!(of(&[lost]), "Probe.core: 9 records found no room and are lost.");
        let failed = event("unit_failed", UNIT, BEGIN - 100 * SECOND, BEGIN, "probe.core: no eth0");
        assert_eq!(of(std::slice::from_ref(&failed)), "Probe.core: no eth0.");
        let left_out = "probe.core does not measure muc: it has no address";
        let left_out = event("target_left_out", "", from, from, left_out);
        assert!(of(&[left_out]).starts_with("Probe.core does not measure muc"));
        // Another unit, another time, and a failure that is over are none of it.
        let mut recovered = failed.clone();
        recovered.kind = "unit_recovered".into();
        let others = [
            StoredEvent { evidence: json!({"unit": "probe.edge"}), ..gap.clone() },
            StoredEvent { begin_ns: BEGIN - 50 * SECOND, end_ns: Some(BEGIN), ..gap },
            failed,
            recovered,
        ];
        let fault = starved().own_fault(&facts(&others)).unwrap();
        assert_eq!(fault.kind, Some(CauseKind::StarvedStation));
    }

    #[test]
    fn other_reasons_are_told_apart() {
        let said = |counts: &DueCounts, facts: UnitFacts<'_>| {
            let fault = counts.own_fault(&facts).unwrap();
            assert_eq!(fault.kind, None, "{fault:?}");
            fault.evidence
        };
        let removed = UnitFacts { runs: false, ..facts(&[]) };
        assert_eq!(said(&starved(), removed), "Probe.core does not measure it any more.");
        let judged = UnitFacts { judged: 90, ..facts(&[]) };
        assert_eq!(said(&starved(), judged), "The store lacks records that were measured.");
        // Nothing has come since.
        let open = counts([record(BEGIN, 3)]);
        let text = "What else was measured has not come to the store.";
        assert_eq!(said(&open, facts(&[])), text);
        let later = UnitFacts { now_ns: SPAN.to_ns + 2 * MINUTE_NS, ..facts(&[]) };
        let fault = open.own_fault(&later).unwrap();
        assert_eq!(
            fault.kind,
            Some(CauseKind::StarvedStation),
            "a minute later it did not measure"
        );
        let refused = |s| BadSampleWindow { refused: 10, ..record(BEGIN + s * SECOND, 0) };
        let refused = counts((0..11).map(refused));
        assert_eq!(said(&refused, facts(&[])), "This host could not send them.");
    }

    #[test]
    fn records_that_doubt_themselves_are_no_judges() {
        let late = |s| BadSampleWindow {
            doubtful_n: 10,
            doubt: Some(Caveat::SenderLate),
            ..record(BEGIN + s * SECOND, 10)
        };
        let well = |s| record(BEGIN + s * SECOND, 10);
        let much = counts((0..3).map(late).chain((3..10).map(well)));
        let fault = much.own_fault(&facts(&[])).unwrap();
        assert_eq!(fault.kind, Some(CauseKind::StarvedStation));
        assert!(fault.sentence.starts_with("30.0% of the samples of that time"), "{fault:?}");
        let little = counts((0..2).map(late).chain((2..10).map(well)));
        assert_eq!(little.own_fault(&facts(&[])), None);
    }
}
