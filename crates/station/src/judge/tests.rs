//! Stations in simulated time.

mod changes;
mod doubts;
mod figures;

use std::sync::Arc;

use sonde_meter::sla::{MaintenanceTime, Usual};
use sonde_results::caveat::CaveatSet;
use sonde_results::run::Health;
use sonde_results::sla::ExclusionKind;
use sonde_results::units::SECOND;
use sonde_results::{Caveat, Counters};
use sonde_run::probe::Settings;
use sonde_sys::clock::ClockState;
use sonde_wire::Time;

use super::settings::{JudgedMaintenance, ObjectiveSettings};
use super::*;
use crate::alert::route::LabelPatterns;
use crate::alert::silence::MuteKind;
use crate::supervise::Gap;

/// 2026-11-29 00:00:00 UTC.
const BEGIN: i64 = 1_795_910_400;
/// What times of records are ahead of UTC.
const OFFSET: i64 = 37 * SECOND;

fn settings(objectives: &[(&str, &str)]) -> JudgeSettings {
    let of = |(name, text): &(&str, &str)| {
        let settings: ObjectiveSettings = toml::from_str(text).unwrap();
        settings.objectives(name).unwrap()
    };
    JudgeSettings { objectives: objectives.iter().flat_map(of).collect(), maintenance: Vec::new() }
}

const LOSS: (&str, &str) = (
    "loss",
    "metric = 'loss_ratio'\nlimit = '10%'\nwindow = '10s'\nleast_samples = 10\n\
     breach = { n = 2, m = 3 }\nrecovery = { n = 2, m = 2 }",
);
const AVAILABLE: (&str, &str) =
    ("up", "preset = 'mef_10'\ntarget_percent = 99.9\nseverity = 'critical'");

/// A station, its probe and what was found, second by second.
struct Sim {
    judge: StationJudge,
    settings: JudgeSettings,
    streams: Vec<StreamInfo>,
    at: i64,
    found: Vec<JudgeFinding>,
}

fn unit() -> UnitId {
    UnitId::new("probe.a")
}

fn stream(target: &str, port: u16) -> StreamInfo {
    StreamInfo {
        target: target.into(),
        source: format!("192.0.2.1:{port}").parse().unwrap(),
        destination: "192.0.2.9:862".parse().unwrap(),
        dscp: 46,
        ssid: 0,
        ip_length: 72,
        period_ns: 50_000_000,
    }
}

impl Sim {
    fn new(objectives: &[(&str, &str)], streams: Vec<StreamInfo>) -> Sim {
        let (settings, units) = (settings(objectives), BTreeSet::from([unit()]));
        let judge = StationJudge::new("ber", settings.clone(), &units, None, BEGIN * SECOND);
        let mut sim = Sim { judge, settings, streams, at: BEGIN, found: Vec::new() };
        sim.unit_begins();
        sim
    }

    fn say(&mut self, said: Said) {
        let report = Report { unit: unit(), said };
        self.judge.take(&report, (OFFSET, self.at * SECOND));
        self.found.extend(self.judge.take_findings());
    }

    fn unit_begins(&mut self) {
        let about = About {
            streams: self.streams.clone(),
            engine: "socket".into(),
            start: Time::from_nanos(0),
            clock: ClockState {
                tai_offset_s: 37,
                synchronised: true,
                max_error_ns: 0,
                est_error_ns: 0,
            },
            left_out: Vec::new(),
            run: Settings::default().run.resolve(),
            settings: Settings::default(),
        };
        self.say(Said::Probe(Box::new(about)));
    }

    fn unit_ends(&mut self) {
        let (counters, health) = (BTreeMap::new(), Health::default());
        self.say(Said::Ended { counters, health, caveats: CaveatSet::default() });
    }

    /// A record of the second that begins now.
    fn record(&mut self, stream: u32, counters: Counters, caveats: &[Caveat]) {
        let start_ns = self.at * SECOND + OFFSET;
        let mut record =
            Interval { start_ns, end_ns: start_ns + SECOND, ..Interval::empty(stream) };
        record.counters = Counters { received: counters.sent - counters.lost, ..counters };
        record.counters.settle_sides();
        caveats.iter().for_each(|caveat| record.caveats.insert(*caveat));
        self.say(Said::ProbeEvent(Event::Record(Box::new(record))));
    }

    /// Seconds in which every stream sends 20 packets and loses so many.
    fn seconds(&mut self, seconds: i64, lost: u64) {
        for _ in 0..seconds {
            for stream in 0..self.streams.len() as u32 {
                let sides = (lost > 0).then_some((lost, 0));
                let counters = Counters {
                    sent: 20,
                    lost,
                    lost_forward: sides.map(|s| s.0),
                    lost_backward: sides.map(|s| s.1),
                    ..Counters::default()
                };
                self.record(stream, counters, &[]);
            }
            self.pass(1);
        }
    }

    /// Time passes, and nothing comes.
    fn pass(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.at += 1;
            self.judge.handle_timeout(self.at * SECOND);
            self.found.extend(self.judge.take_findings());
        }
    }

    /// The station ends, by its last saved state, and another one begins after a while.
    fn restart(&mut self, in_order: bool, away: i64) {
        let state = self.judge.state(self.at * SECOND, in_order);
        let text = serde_json::to_string(&state).unwrap();
        self.at += away;
        let (settings, units) = (self.settings.clone(), BTreeSet::from([unit()]));
        let saved = Some(serde_json::from_str(&text).unwrap());
        self.judge = StationJudge::new("ber", settings, &units, saved, self.at * SECOND);
        self.found.extend(self.judge.take_findings());
        self.unit_begins();
    }

    fn gap(&mut self, from: i64) {
        let utc = |at: i64| Time::from_nanos(at * SECOND + OFFSET);
        let gap = Gap { unit: unit(), from: utc(from), to: utc(self.at), why: "x".into() };
        self.say(Said::Gap(gap));
    }

    /// Begins and ends of troubles, in seconds since [`BEGIN`].
    fn troubles(&self) -> Vec<(&'static str, i64, Option<i64>)> {
        let s = |ns: i64| {
            assert_eq!(ns % SECOND, 0);
            ns / SECOND - BEGIN
        };
        let of = |finding: &JudgeFinding| match finding {
            JudgeFinding::Begins(t) => Some((t.kind.name(), s(t.starts_ns), None)),
            JudgeFinding::Ends(t, end) => Some((t.kind.name(), s(t.starts_ns), Some(s(*end)))),
            _ => None,
        };
        self.found.iter().filter_map(of).collect()
    }

    fn happened(&self, kind: &str) -> Vec<&sonde_store::StoredEvent> {
        let events = self.found.iter().filter_map(|finding| match finding {
            JudgeFinding::Happened { event, .. } => Some(event),
            _ => None,
        });
        events.filter(|event| event.kind == kind).collect()
    }

    fn excluded(&self) -> Vec<(ExclusionKind, String, i64)> {
        let month = self.judge.months_so_far().pop().unwrap();
        let all = month.availability.excluded.into_iter();
        all.map(|e| (e.kind, e.name, e.length_ns / SECOND)).collect()
    }
}

#[test]
fn a_breach_begins_with_its_first_window_and_ends_with_its_last() {
    let mut sim = Sim::new(&[LOSS], vec![stream("muc", 1)]);
    sim.seconds(30, 0);
    sim.seconds(30, 10);
    assert_eq!(sim.troubles(), [("breach", 30, None)]);
    let JudgeFinding::Begins(breach) =
        sim.found.iter().find(|f| matches!(f, JudgeFinding::Begins(_))).unwrap()
    else {
        panic!()
    };
    assert_eq!(
        breach.title,
        "probe.a muc EF: two-way loss at most 10 % in each 10 s: missed in 2 of the last 3 windows"
    );
    assert_eq!(
        breach.text,
        "50%, wanted at most 10%; n = 200; from 2026-11-29 00:00:40 UTC for 10s"
    );
    let event = breach.to_event();
    assert_eq!((event.end_ns, event.evidence["window"]["samples"].as_u64()), (None, Some(200)));
    assert_eq!(event.evidence["labels"]["objective"], "loss");
    let labels = &breach.to_alert(None).labels;
    let label = |name: &str| labels[name].as_str();
    assert_eq!(
        (label("alertname"), label("severity"), label("target"), label("class")),
        ("ObjectiveBreached", "error", "muc", "EF")
    );
    sim.seconds(30, 0);
    assert_eq!(sim.troubles(), [("breach", 30, None), ("breach", 30, Some(60))]);
    assert_eq!(sim.happened("recovery").len(), 1);
    let JudgeFinding::Ends(over, ends_ns) =
        sim.found.iter().find(|f| matches!(f, JudgeFinding::Ends(..))).unwrap()
    else {
        panic!()
    };
    let resolved = over.to_alert(Some(*ends_ns));
    assert_eq!((resolved.lasts(), resolved.duration_ns(0)), (false, 30 * SECOND));
    // The losses are located, once they are over.
    let located = sim.happened("located_loss");
    let [loss] = located.as_slice() else { panic!("{located:?}") };
    assert_eq!((loss.begin_ns, loss.end_ns), ((BEGIN + 30) * SECOND, Some((BEGIN + 60) * SECOND)));
    assert_eq!(loss.evidence["direction"], "forward");
    assert_eq!(
        loss.title,
        "probe.a muc EF: 300 of 600 packets lost (50.0%) on the way there within 30 s; streams \
         concerned: 1 of 1"
    );
}

#[test]
fn an_outage_is_dated_back_and_told_when_it_is_certain() {
    let mut sim = Sim::new(&[AVAILABLE], vec![stream("muc", 1)]);
    sim.seconds(20, 0);
    sim.seconds(9, 20);
    assert_eq!(sim.troubles(), []);
    sim.seconds(6, 20);
    assert_eq!(sim.troubles(), [("unavailable", 20, None)]);
    let begun = sim.found.iter().find_map(|found| match found {
        JudgeFinding::Begins(trouble) => Some(trouble),
        _ => None,
    });
    let (text, losses) = begun.map(|t| (&t.text, &t.evidence["losses"])).unwrap();
    let (sent, lost) = (losses["sent"].as_u64().unwrap(), losses["lost"].as_u64().unwrap());
    assert!(sent == lost && lost >= 200, "{losses}");
    assert_eq!(losses["since_ns"], (BEGIN + 20) * SECOND);
    let wanted = format!(
        "; {lost} of {lost} packets lost since 2026-11-29 00:00:20 UTC: there {lost}, back 0, side \
         unknown 0; to 192.0.2.9"
    );
    assert!(text.ends_with(&wanted), "{text}");
    sim.seconds(10, 0);
    assert_eq!(sim.troubles(), [("unavailable", 20, None), ("unavailable", 20, Some(35))]);
    assert_eq!(sim.happened("available")[0].evidence["duration_ns"], 15 * SECOND);
    let month = sim.judge.months_so_far().pop().unwrap();
    assert_eq!((month.availability.unavailable, month.availability.outages), (15, 1));
}

#[test]
fn what_did_not_come_is_neither_good_nor_bad() {
    let mut sim = Sim::new(&[LOSS, AVAILABLE], vec![stream("muc", 1)]);
    sim.seconds(30, 0);
    // The probe runs, and nothing comes: no breach, but it is said that nothing is judged.
    sim.pass(300);
    let names: Vec<&str> = sim.troubles().iter().map(|t| t.0).collect();
    assert_eq!(names, ["unjudged"]);
    let month = sim.judge.months_so_far().pop().unwrap();
    let (low, high) = (month.availability.low().unwrap(), month.availability.high().unwrap());
    assert!(low < 0.2 && high == 1.0, "{low} to {high}");
    sim.seconds(40, 0);
    let names: Vec<_> = sim.troubles().iter().map(|t| (t.0, t.2.is_some())).collect();
    assert_eq!(names, [("unjudged", false), ("unjudged", true)]);
}

#[test]
fn a_gap_of_the_station_is_left_out_by_name() {
    let mut sim = Sim::new(&[LOSS, AVAILABLE], vec![stream("muc", 1)]);
    sim.seconds(30, 0);
    sim.seconds(30, 20);
    let before = sim.troubles();
    assert_eq!(before, [("unavailable", 30, None), ("breach", 30, None)]);
    // The unit fails in the outage, and comes back after ten minutes.
    sim.unit_ends();
    sim.pass(600);
    sim.gap(BEGIN + 60);
    sim.unit_begins();
    assert_eq!(sim.troubles(), before, "nothing begins or ends in the gap");
    sim.seconds(40, 0);
    let ended =
        |kind: &str| sim.troubles().iter().find(|t| t.0 == kind && t.2.is_some()).and_then(|t| t.2);
    // The last window that missed ended before the gap; the outage may have gone on in it.
    assert_eq!((ended("breach"), ended("unavailable")), (Some(60), Some(660)));
    assert_eq!(sim.excluded(), [(ExclusionKind::StationDoubt, "station_gap".to_owned(), 600)]);
}

#[test]
fn no_breach_is_concluded_from_time_in_which_the_station_doubts_itself() {
    type Fault = (&'static str, fn(&mut Sim));
    let faults: [Fault; 3] = [
        ("clock_stepped", |sim| {
            let counters = Counters { sent: 20, lost: 20, ..Counters::default() };
            sim.record(0, counters, &[Caveat::ClockStepped]);
            sim.pass(1);
        }),
        ("own_drops", |sim| {
            let counters = Counters { sent: 20, lost: 20, ..Counters::default() };
            sim.record(0, counters, &[Caveat::OwnDrops]);
            sim.pass(1);
        }),
        ("records_lost", |sim| {
            sim.judge.lost(sim.at * SECOND, (sim.at + 1) * SECOND);
            sim.seconds(1, 20);
        }),
    ];
    for (name, fault) in faults {
        let mut sim = Sim::new(&[LOSS, AVAILABLE], vec![stream("muc", 1)]);
        sim.seconds(30, 0);
        (0..60).for_each(|_| fault(&mut sim));
        sim.seconds(30, 0);
        assert_eq!(sim.troubles(), [], "{name}");
        assert_eq!(sim.excluded(), [(ExclusionKind::StationDoubt, name.to_owned(), 60)]);
        // After five minutes it is said that nothing is judged.
        (0..300).for_each(|_| fault(&mut sim));
        sim.seconds(30, 0);
        let doubts: Vec<_> = sim.troubles().iter().map(|t| (t.0, t.1, t.2)).collect();
        let doubt = |end| ("station_doubt", 120, end);
        assert_eq!(doubts, [doubt(None), doubt(Some(420))], "{name}");
        sim.found.clear();
        // The same losses without a doubt are both.
        sim.seconds(60, 20);
        assert_eq!(sim.troubles().len(), 2, "{name}");
    }
}

#[test]
fn announced_work_is_left_out_of_those_that_it_is_about() {
    let mut sim = Sim::new(&[LOSS, AVAILABLE], vec![stream("muc", 1), stream("fra", 2)]);
    let when =
        MaintenanceTime::Once { start_ns: (BEGIN + 30) * SECOND, end_ns: (BEGIN + 90) * SECOND };
    let window =
        sonde_meter::sla::MaintenanceWindow { name: "swap".into(), when, entered_ns: None };
    let labels = LabelPatterns::of(&[("target", "muc")]);
    sim.settings.maintenance.push(JudgedMaintenance { labels, window });
    let (settings, units) = (sim.settings.clone(), BTreeSet::from([unit()]));
    sim.judge.reload(settings, &units, sim.at * SECOND);
    sim.seconds(30, 0);
    sim.seconds(50, 20);
    sim.seconds(30, 0);
    let mutes: Vec<&Mute> = sim
        .found
        .iter()
        .filter_map(|f| match f {
            JudgeFinding::Muted(mute) => Some(mute),
            _ => None,
        })
        .collect();
    let [mute] = mutes.as_slice() else { panic!("{mutes:?}") };
    let s = |at: i64| (BEGIN + at) * SECOND;
    assert_eq!((mute.starts_ns, mute.ends_ns), (s(30), s(90)));
    let told: BTreeSet<String> = sim
        .found
        .iter()
        .filter_map(|f| match f {
            JudgeFinding::Begins(t) => {
                let muted = mute.holds_back(&t.to_alert(None).labels, s(60));
                Some(format!("{} {}, muted: {muted}", t.kind.name(), t.labels["target"]))
            }
            _ => None,
        })
        .collect();
    // By the rule the outage is one in maintenance, too. Its time is in no figure.
    assert_eq!(
        told.into_iter().collect::<Vec<_>>(),
        [
            "breach fra, muted: false",
            "unavailable fra, muted: false",
            "unavailable muc, muted: true"
        ]
    );
    let months = sim.judge.months_so_far();
    let unavailable = |subject: &str| {
        let of = |m: &&ObjectiveMonth| m.objective == "up" && m.subject.contains(subject);
        months.iter().find(of).unwrap().availability.unavailable
    };
    assert_eq!((unavailable("muc"), unavailable("fra")), (0, 50));
}

#[test]
fn maintenance_that_is_entered_is_left_out_survives_a_restart_and_ends_early() {
    let mut sim = Sim::new(&[AVAILABLE], vec![stream("muc", 1), stream("fra", 2)]);
    let at = |s: i64| (BEGIN + s) * SECOND;
    let entered = |ends_ns: i64| Mute {
        id: "7".into(),
        name: "new cable".into(),
        kind: MuteKind::Maintenance,
        labels: LabelPatterns::of(&[("target", "muc")]),
        starts_ns: at(30),
        ends_ns,
        author: "ann".into(),
        comment: String::new(),
    };
    let mutes = |sim: &Sim| -> Vec<Mute> {
        let mute = |found: &JudgeFinding| match found {
            JudgeFinding::Muted(mute) => Some(mute.clone()),
            _ => None,
        };
        sim.found.iter().filter_map(mute).collect()
    };
    sim.judge.enter(entered(at(500)));
    sim.seconds(20, 0);
    assert_eq!(mutes(&sim), [], "it has not begun");
    sim.restart(true, 0);
    sim.seconds(20, 0);
    sim.seconds(40, 20);
    assert_eq!(mutes(&sim), [entered(at(500))], "alerts are held back from its begin on");
    // It ends 80 s after the begin of all: what is lost from then on counts.
    sim.judge.enter(entered(at(80)));
    sim.seconds(20, 20);
    sim.seconds(30, 0);
    assert_eq!(mutes(&sim).last(), Some(&entered(at(80))));
    let months = sim.judge.months_so_far();
    let of = |subject: &str| months.iter().find(|m| m.subject.contains(subject)).unwrap();
    assert_eq!(of("fra").availability.unavailable, 60);
    assert_eq!(of("muc").availability.unavailable, 20);
    let left_out = |e: &&sonde_results::sla::ExcludedTime| e.name == "new cable";
    let excluded = of("muc").availability.excluded.iter().find(left_out).unwrap();
    assert_eq!((excluded.intervals, excluded.kind), (50, ExclusionKind::Maintenance));
    assert_eq!(sim.judge.status().entered, [entered(at(80))]);
}

#[test]
fn an_outage_over_the_month_s_border_counts_in_both_months() {
    // 2026-12-01 00:00 UTC is 172,800 s after BEGIN.
    let mut sim = Sim::new(&[AVAILABLE], vec![stream("muc", 1)]);
    sim.at = BEGIN + 172_800 - 60;
    sim.seconds(53, 0);
    sim.seconds(7, 20);
    sim.restart(false, 0);
    sim.seconds(8, 20);
    sim.seconds(30, 0);
    let s = 172_800;
    // November has 60 known seconds, and 53 are below the target. Nothing is said of time before.
    let november = ("breach", s - 60, None);
    let outage = |end| ("unavailable", s - 7, end);
    assert_eq!(sim.troubles(), [outage(None), november, outage(Some(s + 8))]);
    let months = sim.happened("sla_month");
    let [november] = months.as_slice() else { panic!("{months:?}") };
    let figures = &november.evidence["month"]["availability"];
    assert_eq!(
        (figures["available"].as_u64(), figures["unavailable"].as_u64()),
        (Some(53), Some(7))
    );
    let december = sim.judge.months_so_far().pop().unwrap();
    assert_eq!((december.availability.unavailable, december.provisional), (8, true));
}

#[test]
fn a_member_that_is_worse_than_its_group_is_named() {
    let paths: Vec<StreamInfo> = (1..=8).map(|port| stream("muc", port)).collect();
    let mut sim = Sim::new(&[LOSS], paths);
    sim.seconds(30, 0);
    for _ in 0..30 {
        for stream in 0..8 {
            let lost = if stream == 5 { 19 } else { 0 };
            sim.record(stream, Counters { sent: 20, lost, ..Counters::default() }, &[]);
        }
        sim.pass(1);
    }
    sim.seconds(30, 0);
    let worse = sim.happened("worse_member");
    let [worse] = worse.as_slice() else { panic!("{worse:?}") };
    assert_eq!(worse.evidence["source"], "192.0.2.1:6");
    assert_eq!(
        worse.title,
        "probe.a muc EF: 192.0.2.1:6 > 192.0.2.9:862 loses more than the others of its group"
    );
    let located = sim.happened("located_loss");
    assert_eq!(located[0].evidence["direction"], "unknown");
    assert!(located[0].title.ends_with("streams concerned: 1 of 8"), "{}", located[0].title);
    // The group's loss is that of all its packets: 19 of 160.
    let JudgeFinding::Begins(breach) = &sim.found[1] else { panic!("{:?}", sim.found[1]) };
    assert!(breach.text.starts_with("11.88%, wanted at most 10%; n = 1,600"), "{}", breach.text);
}

#[test]
fn a_trouble_whose_objective_target_or_unit_is_gone_has_ended() {
    let units = BTreeSet::from([unit()]);
    let ends: [fn(&mut Sim, &BTreeSet<UnitId>); 3] = [
        |sim, units| sim.judge.reload(JudgeSettings::default(), units, sim.at * SECOND),
        |sim, _| {
            let same = sim.settings.clone();
            sim.judge.reload(same, &BTreeSet::new(), sim.at * SECOND);
        },
        |sim, _| {
            sim.streams = vec![stream("fra", 1)];
            sim.unit_begins();
        },
    ];
    for end in ends {
        let mut sim = Sim::new(&[LOSS], vec![stream("muc", 1)]);
        sim.seconds(60, 20);
        assert_eq!(sim.troubles(), [("breach", 0, None)]);
        end(&mut sim, &units);
        sim.found.extend(sim.judge.take_findings());
        assert_eq!(sim.troubles(), [("breach", 0, None), ("breach", 0, Some(60))]);
        assert_eq!(sim.judge.open().count(), 0);
    }
    // A target that is taken from a running probe, once its last records have come.
    let mut sim = Sim::new(&[LOSS], vec![stream("muc", 1)]);
    sim.seconds(60, 20);
    sim.say(Said::ProbeEvent(Event::Ended(vec![0])));
    sim.pass(200);
    assert_eq!((sim.troubles().len(), sim.judge.open().count()), (2, 0));
}

#[test]
fn a_unit_that_failed_is_told_until_it_has_recovered() {
    let mut sim = Sim::new(&[], vec![stream("muc", 1)]);
    sim.say(Said::Notice(Notice::Failed(unit(), "no such interface".into())));
    sim.pass(10);
    sim.say(Said::Notice(Notice::Stuck(unit())));
    sim.pass(10);
    sim.say(Said::Notice(Notice::Recovered(unit())));
    let names: Vec<_> = sim.troubles().iter().map(|t| (t.0, t.2)).collect();
    let failed = |end| ("unit_failed", end);
    assert_eq!(names, [failed(None), failed(None), failed(Some(20)), failed(Some(20))]);
}

#[test]
fn a_station_says_how_it_ended_and_how_long_it_was_away() {
    let mut sim = Sim::new(&[AVAILABLE], vec![stream("muc", 1)]);
    assert_eq!(sim.judge.take_findings().len(), 0);
    sim.seconds(10, 0);
    sim.restart(true, 60);
    assert_eq!(sim.happened("station_started").last().unwrap().evidence["gap_ns"], 60 * SECOND);
    assert!(sim.happened("station_unclean_end").is_empty());
    sim.seconds(10, 0);
    sim.restart(false, 30);
    let unclean = sim.happened("station_unclean_end");
    let s = |at: i64| (BEGIN + at) * SECOND;
    assert_eq!((unclean[0].begin_ns, unclean[0].end_ns), (s(80), Some(s(110))));
    let alerts: Vec<_> = sim
        .found
        .iter()
        .filter_map(|f| match f {
            JudgeFinding::Happened { alert: Some(alert), .. } => Some(alert.duration_ns(0)),
            _ => None,
        })
        .collect();
    assert_eq!(alerts, [30 * SECOND]);
    sim.seconds(10, 0);
    assert_eq!(sim.excluded(), [(ExclusionKind::StationDoubt, "station_gap".to_owned(), 90)]);
}

/// A history, with the station restarted at once now and then, or never.
fn history(seed: u64, restarts: bool) -> Sim {
    let mut random = fastrand::Rng::with_seed(seed);
    let one_way = (
        "forward",
        "metric = 'loss_ratio'\nlimit = '10%'\nwindow = '10s'\nleast_samples = 10\n\
         direction = 'forward'",
    );
    let mut sim = Sim::new(&[LOSS, AVAILABLE, one_way], vec![stream("muc", 1)]);
    for _ in 0..60 {
        let seconds = random.i64(1..30);
        match random.u8(0..8) {
            0 => sim.seconds(seconds, 20),
            1 => sim.seconds(seconds, 3),
            2 => sim.pass(seconds),
            3 => {
                let from = sim.at;
                sim.unit_ends();
                sim.pass(seconds);
                sim.gap(from);
                sim.unit_begins();
            }
            _ => sim.seconds(seconds, 0),
        }
        if restarts && random.u8(0..4) == 0 {
            sim.restart(random.bool(), 0);
        } else {
            // The same as a restart: what is missing now is the station's own gap.
            random.u8(0..2);
        }
    }
    sim
}

#[test]
fn every_trouble_that_began_ends_once_or_is_open() {
    for seed in 0..60 {
        let sim = history(seed, seed % 2 == 1);
        let mut open: BTreeMap<LabelSet, Trouble> = BTreeMap::new();
        for finding in &sim.found {
            match finding {
                JudgeFinding::Begins(trouble) => {
                    let before = open.insert(trouble.labels.clone(), trouble.clone());
                    // After a restart what lasts is told again, as it was.
                    assert!(before.is_none_or(|b| b == *trouble), "seed {seed}: {trouble:?}");
                }
                JudgeFinding::Ends(trouble, end) => {
                    let begun = open.remove(&trouble.labels);
                    // After a restart what ended lately is told again, too.
                    assert!(begun.is_some() || seed % 2 == 1, "seed {seed}: {trouble:?}");
                    assert!(*end >= trouble.starts_ns, "seed {seed}: {trouble:?}");
                }
                _ => {}
            }
        }
        let last: BTreeMap<_, _> =
            sim.judge.open().map(|t| (t.labels.clone(), t.clone())).collect();
        assert_eq!(open, last, "seed {seed}");
    }
}

#[test]
fn a_restart_between_two_records_changes_nothing() {
    for seed in 0..30 {
        let mut random = fastrand::Rng::with_seed(seed);
        let steps: Vec<(i64, u64, bool)> = (0..40)
            .map(|_| (random.i64(1..25), random.choice([0, 0, 0, 3, 20]).unwrap(), random.bool()))
            .collect();
        let run = |restarts: bool| {
            let mut sim = Sim::new(&[LOSS, AVAILABLE], vec![stream("muc", 1)]);
            for &(seconds, lost, restart) in &steps {
                sim.seconds(seconds, lost);
                if restart && restarts {
                    sim.restart(false, 0);
                }
            }
            let mut troubles = sim.troubles();
            troubles.sort_unstable();
            troubles.dedup();
            (troubles, sim.judge.months_so_far())
        };
        assert_eq!(run(true), run(false), "seed {seed}");
    }
}

#[test]
fn an_objective_that_comes_later_is_judged_from_then_on() {
    let mut sim = Sim::new(&[AVAILABLE], vec![stream("muc", 1)]);
    let units = BTreeSet::from([unit()]);
    sim.seconds(30, 0);
    sim.judge.reload(JudgeSettings::default(), &units, sim.at * SECOND);
    sim.seconds(600, 20);
    sim.judge.reload(sim.settings.clone(), &units, sim.at * SECOND);
    sim.seconds(30, 0);
    let month = sim.judge.months_so_far().pop().unwrap();
    assert_eq!((month.availability.base(), month.availability.available), (30, 30));
    assert_eq!(sim.troubles(), []);
}

#[test]
fn an_objective_is_shared_by_all_its_subjects() {
    let sim = Sim::new(&[LOSS], (1..=3).map(|n| stream(&format!("t{n}"), n)).collect());
    assert_eq!(sim.judge.status().judged, 3);
    // The settings here, those of the judge, and three subjects.
    assert_eq!(Arc::strong_count(&sim.settings.objectives[0].objective), 5);
}

#[test]
fn a_budget_that_is_spent_too_fast_is_told_before_it_is_gone() {
    let burns = (
        "up",
        "preset = 'mef_10'\ntarget_percent = 99\nwindow = 'month'\n\
         burn_rates = [{ long = '10m', short = '1m', factor = 20, kind = 'page' }]",
    );
    let mut sim = Sim::new(&[burns], vec![stream("muc", 1)]);
    sim.seconds(600, 0);
    // Each third second is good: no outage, and 66 times too fast at last.
    let some = |sim: &mut Sim, seconds: i64| {
        for second in 0..seconds {
            sim.seconds(1, if second % 3 == 0 { 0 } else { 20 });
        }
    };
    some(&mut sim, 150);
    assert_eq!(sim.troubles(), [], "over 10 min it is not so much yet");
    some(&mut sim, 300);
    let told = sim.troubles();
    assert_eq!((told.len(), told[0].0, told[0].2), (1, "budget_burn", None), "{told:?}");
    let JudgeFinding::Begins(burning) =
        sim.found.iter().find(|f| matches!(f, JudgeFinding::Begins(_))).unwrap()
    else {
        panic!()
    };
    assert!(burning.title.contains("the error budget is spent 2"), "{}", burning.title);
    assert_eq!((&*burning.labels["severity"], &*burning.labels["window"]), ("critical", "10m"));
    // A restart forgets nothing of it.
    sim.restart(true, 1);
    some(&mut sim, 30);
    assert_eq!(sim.judge.open().map(|t| t.kind).collect::<Vec<_>>(), [TroubleKind::BudgetBurn]);
    sim.seconds(120, 0);
    assert_eq!(sim.judge.open().count(), 0, "the short window is quiet");
    // Without its pair, an objective's trouble is over.
    some(&mut sim, 120);
    assert_eq!(sim.judge.open().count(), 1);
    let units = BTreeSet::from([unit()]);
    sim.judge.reload(settings(&[AVAILABLE]), &units, sim.at * SECOND);
    assert_eq!(sim.judge.open().count(), 0);
}

#[test]
fn what_is_usual_is_asked_for_before_it_is_needed() {
    let twice = (
        "twice",
        "metric = 'loss_ratio'\ntimes_usual = 2\nlimit = '1%'\nwindow = '10s'\n\
         least_samples = 10",
    );
    let mut sim = Sim::new(&[twice], vec![stream("muc", 1)]);
    let wanted = sim.judge.wanted_usuals(sim.at * SECOND, 10);
    assert_eq!(wanted.iter().map(|w| w.hour_ns).collect::<Vec<_>>(), [BEGIN * SECOND]);
    let usual = Usual { low: 0.1, high: 0.1, weeks: 4, samples: 1_000 };
    wanted.iter().for_each(|wanted| sim.judge.set_usual(wanted, Some(usual)));
    assert_eq!(sim.judge.wanted_usuals(sim.at * SECOND, 10), []);
    sim.seconds(30, 3);
    assert_eq!(sim.troubles(), [], "15 % is less than twice 10 %");
    sim.seconds(30, 5);
    assert_eq!(sim.troubles(), [("breach", 30, None)]);
    // The next hour is wanted ten minutes before.
    let next = sim.judge.wanted_usuals((BEGIN + 3_001) * SECOND, 10);
    assert_eq!(next.iter().map(|w| w.hour_ns).collect::<Vec<_>>(), [(BEGIN + 3_600) * SECOND]);
}

#[test]
fn traffic_is_judged_where_an_objective_names_its_unit() {
    let unit = UnitId::new("rtt.up");
    let slow = (
        "slow",
        "match = { unit = 'rtt.*', target = '192.0.2.*' }\nmetric = 'delay_percentile'\n\
         percent = 90\nlimit = '20ms'\nwindow = '10s'",
    );
    let (settings, units) = (settings(&[slow, LOSS]), BTreeSet::from([unit.clone()]));
    let mut judge = StationJudge::new("ber", settings, &units, None, BEGIN * SECOND);
    let second = |judge: &mut StationJudge, at: i64, delay_ns: i64| {
        let group = |address: &str| {
            let mut clean = sonde_results::Hist::default();
            (0..10).for_each(|_| clean.add(delay_ns));
            sonde_results::rtt::RttGroup {
                key: sonde_results::rtt::GroupKey::Prefix {
                    address: address.parse().unwrap(),
                    length: 24,
                },
                start_ns: at * SECOND + OFFSET,
                end_ns: (at + 1) * SECOND + OFFSET,
                clean,
                recovery: sonde_results::Hist::default(),
                delayed_ack: sonde_results::Hist::default(),
            }
        };
        let interval = sonde_run::rtt::RttInterval {
            groups: vec![group("192.0.2.0"), group("198.51.100.0")],
            ..sonde_run::rtt::RttInterval::default()
        };
        let said = Said::RttEvents(vec![sonde_run::rtt::Event::Interval(interval)]);
        judge.take(&Report { unit: unit.clone(), said }, (OFFSET, at * SECOND));
        judge.handle_timeout(at * SECOND);
        judge.take_findings()
    };
    (BEGIN..BEGIN + 30).for_each(|at| drop(second(&mut judge, at, 5_000_000)));
    assert_eq!((judge.status().subjects, judge.open().count()), (1, 0));
    (BEGIN + 30..BEGIN + 50).for_each(|at| drop(second(&mut judge, at, 50_000_000)));
    let open: Vec<&Trouble> = judge.open().collect();
    let [breach] = open.as_slice() else { panic!("{open:?}") };
    assert!(breach.title.starts_with("rtt.up 192.0.2.0/24: 90 % of"), "{}", breach.title);
    assert_eq!(breach.starts_ns, (BEGIN + 30) * SECOND);
    // It pauses for minutes, which is nothing to tell of; after an hour it is forgotten.
    (BEGIN + 50..BEGIN + 400).for_each(|at| judge.handle_timeout(at * SECOND));
    assert_eq!(judge.open().count(), 1);
    judge.handle_timeout((BEGIN + 3_800) * SECOND);
    assert_eq!((judge.open().count(), judge.status().subjects), (0, 0));
}
