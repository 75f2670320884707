//! The laws, on scenes and on a simulation.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::alert::model::AlertSeverity;
use crate::alert::notification::{AlertNews, NotificationReason, NotifiedAlert};
use crate::alert::route::LabelPatterns;
use crate::alert::silence::MuteKind;

const WAIT: i64 = 10;
const INTERVAL: i64 = 60;
const REPEAT: i64 = 400;
const TIMING: GroupTiming = GroupTiming {
    wait_ns: WAIT,
    interval_ns: INTERVAL,
    repeat_ns: REPEAT,
    refresh: false,
    whole: false,
};
const WHOLE: GroupTiming = GroupTiming { whole: true, ..TIMING };

fn labels(site: &str, target: &str) -> LabelSet {
    LabelSet::from([("site".into(), site.into()), ("target".into(), target.into())])
}

fn alert(site: &str, target: &str, starts_ns: i64, ends_ns: Option<i64>) -> AlertInput {
    let labels = labels(site, target);
    AlertInput::Alert(Alert { labels, starts_ns, ends_ns, ..Alert::default() })
}

fn mute(id: &str, site: &str, span: std::ops::Range<i64>) -> Mute {
    Mute {
        name: String::new(),
        id: id.into(),
        kind: MuteKind::Silence,
        labels: LabelPatterns::of(&[("site", site)]),
        starts_ns: span.start,
        ends_ns: span.end,
        author: "ann".into(),
        comment: String::new(),
    }
}

fn route(receivers: &[(&str, GroupTiming)], group_by: &[&str]) -> AlertRoute {
    AlertRoute {
        labels: LabelPatterns::default(),
        severity: AlertSeverity::Info,
        receivers: receivers.iter().map(|(name, timing)| ((*name).into(), *timing)).collect(),
        group_by: group_by.iter().map(|label| (*label).to_owned()).collect(),
        goes_on: true,
    }
}

fn by_site() -> Alerting {
    Alerting::new(vec![route(&[("noc", TIMING)], &["site"])], Teller::default())
}

/// Runs until `until`, and what was told.
fn run(alerting: &mut Alerting, from: i64, until: i64) -> Vec<Notification> {
    let (mut now, mut told) = (from, Vec::new());
    loop {
        let due = alerting.poll_timeout(now).map(|due| due.max(now));
        let Some(due) = due.filter(|&due| due <= until) else { return told };
        now = due;
        let before = told.len();
        alerting.handle_timeout(now, &mut told);
        let idles = told.len() == before && alerting.poll_timeout(now) == Some(due);
        assert!(!idles, "due at {due}, and nothing is done");
    }
}

fn names(told: &Notification) -> Vec<(&str, AlertNews)> {
    told.alerts.iter().map(|a| (a.alert.labels["target"].as_str(), a.news)).collect()
}

#[test]
fn alerts_of_one_cause_are_one_notification_and_the_end_is_told_with_its_duration() {
    let mut alerting = by_site();
    alerting.handle(0, alert("ber", "a", 0, None));
    assert_eq!(run(&mut alerting, 0, 5), []);
    alerting.handle(5, alert("ber", "b", 5, None));
    let told = run(&mut alerting, 5, 50);
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].at_ns, told[0].reason), (WAIT, NotificationReason::Opened));
    assert_eq!(names(&told[0]), [("a", AlertNews::Began), ("b", AlertNews::Began)]);

    alerting.handle(50, alert("ber", "a", 0, Some(50)));
    let told = run(&mut alerting, 50, 100);
    assert_eq!((told.len(), told[0].at_ns), (1, WAIT + INTERVAL));
    assert_eq!((told[0].reason, told[0].lasts), (NotificationReason::Changed, true));
    // What lasts as before is a count.
    assert_eq!((names(&told[0]), told[0].unchanged), (vec![("a", AlertNews::Ended)], 1));
    assert_eq!(told[0].alerts[0].alert.duration_ns(100), 50);

    alerting.handle(100, alert("ber", "b", 5, Some(90)));
    let told = run(&mut alerting, 100, 1000);
    assert_eq!((told.len(), told[0].reason), (1, NotificationReason::Resolved));
    assert_eq!(names(&told[0]), [("b", AlertNews::Ended)]);
    assert_eq!((alerting.open.len(), alerting.groups.len()), (0, 0));
}

fn graded(target: &str, severity: &str, starts_ns: i64) -> AlertInput {
    let mut labels = labels("ber", target);
    labels.insert("severity".into(), severity.into());
    AlertInput::Alert(Alert { labels, starts_ns, ..Alert::default() })
}

#[test]
fn what_is_worse_than_all_that_was_told_waits_for_no_interval() {
    let mut alerting = by_site();
    alerting.handle(0, graded("a", "info", 0));
    assert_eq!(run(&mut alerting, 0, 12).len(), 1);
    alerting.handle(12, graded("b", "info", 12));
    alerting.handle(13, graded("c", "critical", 13));
    alerting.handle(14, graded("d", "critical", 14));
    let told = run(&mut alerting, 14, 60);
    assert_eq!((told.len(), told[0].at_ns), (1, 13 + WAIT));
    let began = AlertNews::Began;
    assert_eq!(names(&told[0]), [("c", began), ("d", began), ("b", began)]);
    assert_eq!(told[0].unchanged, 1);
    // The next of the same severity does.
    alerting.handle(60, graded("e", "critical", 60));
    let told = run(&mut alerting, 60, 200);
    assert_eq!((told.len(), told[0].at_ns), (1, 13 + WAIT + INTERVAL));
    assert_eq!((names(&told[0]), told[0].unchanged), (vec![("e", began)], 4));
}

#[test]
fn each_alert_is_repeated_after_its_own_time_also_in_a_group_that_changes_all_the_time() {
    let mut alerting = by_site();
    alerting.handle(0, alert("ber", "a", 0, None));
    let mut told = run(&mut alerting, 0, 100);
    for (n, at) in (100..900).step_by(100).enumerate() {
        alerting.handle(at, alert("ber", &format!("{n}"), at, None));
        told.extend(run(&mut alerting, at, at + 99));
    }
    let of_a = told.iter().filter(|n| n.alerts.iter().any(|t| t.alert.labels["target"] == "a"));
    let times: Vec<i64> = of_a.map(|n| n.at_ns).collect();
    assert_eq!(times.len(), 3, "{times:?}");
    assert!(
        times.windows(2).all(|two| (REPEAT..REPEAT + 2 * INTERVAL).contains(&(two[1] - two[0])))
    );
}

#[test]
fn a_receiver_of_whole_groups_has_all_of_them_each_time() {
    let mut alerting = Alerting::new(vec![route(&[("hook", WHOLE)], &["site"])], Teller::default());
    alerting.handle(0, alert("ber", "a", 0, None));
    assert_eq!(run(&mut alerting, 0, 50).len(), 1);
    alerting.handle(50, alert("ber", "b", 50, None));
    let told = run(&mut alerting, 50, 200);
    let wanted = vec![("a", AlertNews::Lasts), ("b", AlertNews::Began)];
    assert_eq!((names(&told[0]), told[0].unchanged), (wanted, 0));
}

#[test]
fn what_is_shorter_than_the_wait_is_told_with_its_end() {
    let mut alerting = by_site();
    alerting.handle(0, alert("ber", "a", 0, None));
    alerting.handle(3, alert("ber", "a", 0, Some(3)));
    let told = run(&mut alerting, 3, 1000);
    assert_eq!((told.len(), told[0].reason), (1, NotificationReason::Resolved));
    assert_eq!(names(&told[0]), [("a", AlertNews::BeganAndEnded)]);
}

#[test]
fn what_begins_again_before_the_end_was_told_goes_on() {
    let mut alerting = by_site();
    alerting.handle(0, alert("ber", "a", 0, None));
    assert_eq!(run(&mut alerting, 0, 20).len(), 1);
    alerting.handle(20, alert("ber", "a", 0, Some(20)));
    alerting.handle(30, alert("ber", "a", 30, None));
    assert_eq!(run(&mut alerting, 30, 200), []);
    alerting.handle(200, alert("ber", "a", 30, Some(200)));
    let told = run(&mut alerting, 200, 1000);
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].alerts[0].episodes, told[0].alerts[0].alert.starts_ns), (2, 0));
}

#[test]
fn a_silence_keeps_what_it_holds_back_and_its_end_lets_it_out() {
    let mut alerting = by_site();
    alerting.handle(0, AlertInput::Mute(mute("s", "ber", 0..500)));
    alerting.handle(1, alert("ber", "a", 1, None));
    alerting.handle(1, alert("ber", "b", 1, None));
    assert_eq!(alerting.alerts(1)[0].held_back_by, ["s"]);
    alerting.handle(100, alert("ber", "b", 1, Some(100)));
    let told = run(&mut alerting, 100, 550);
    assert_eq!((told.len(), told[0].at_ns), (1, 500));
    assert_eq!(names(&told[0]), [("a", AlertNews::Began)]);
    assert_eq!(alerting.counters().unsaid, 1);

    // What was told before is resolved also during a silence.
    alerting.handle(600, AlertInput::Mute(mute("t", "ber", 600..5_000)));
    assert_eq!(run(&mut alerting, 600, 2_000), []);
    alerting.handle(2_000, alert("ber", "a", 1, Some(2_000)));
    let told = run(&mut alerting, 2_000, 2_100);
    assert_eq!((told.len(), told[0].reason), (1, NotificationReason::Resolved));
}

#[test]
fn a_silence_that_is_taken_back_ends_at_once() {
    let mut alerting = by_site();
    alerting.handle(0, AlertInput::Mute(mute("s", "*", 0..i64::MAX)));
    alerting.handle(1, alert("ber", "a", 1, None));
    assert_eq!(run(&mut alerting, 1, 300), []);
    alerting.handle(300, AlertInput::Unmute("s".into()));
    let told = run(&mut alerting, 300, 310);
    assert_eq!((told.len(), told[0].at_ns), (1, 300));
}

#[test]
fn who_takes_care_is_told_once_and_ends_the_repetition() {
    let mut alerting = by_site();
    alerting.handle(0, alert("ber", "a", 0, None));
    let told = run(&mut alerting, 0, 2 * REPEAT + WAIT);
    let reasons: Vec<_> = told.iter().map(|n| (n.at_ns, n.reason)).collect();
    let repeated = NotificationReason::Repeated;
    let wanted = [
        (WAIT, NotificationReason::Opened),
        (WAIT + REPEAT, repeated),
        (WAIT + 2 * REPEAT, repeated),
    ];
    assert_eq!(reasons, wanted);
    let by = Acknowledgement { author: "bob".into(), at_ns: 900, comment: "mine".into() };
    alerting.handle(900, AlertInput::Acknowledge(labels("ber", "a"), by.clone()));
    let told = run(&mut alerting, 900, 9_000);
    assert_eq!((told.len(), told[0].reason), (1, NotificationReason::Acknowledged));
    assert_eq!(told[0].alerts[0].acknowledged, Some(by));
    alerting.handle(9_000, AlertInput::Unacknowledge(labels("ber", "a")));
    assert_eq!(run(&mut alerting, 9_000, 9_010).len(), 1);
    alerting.handle(9_100, alert("ber", "a", 0, Some(9_100)));
    assert_eq!(run(&mut alerting, 9_100, 10_000)[0].reason, NotificationReason::Resolved);
}

#[test]
fn what_comes_again_after_its_end_was_told_is_late() {
    let mut alerting = by_site();
    alerting.handle(0, alert("ber", "a", 0, Some(1)));
    assert_eq!(run(&mut alerting, 0, 500).len(), 1);
    alerting.handle(500, alert("ber", "a", 0, None));
    assert_eq!((run(&mut alerting, 500, 1000), alerting.counters().late), (vec![], 1));
}

#[test]
fn other_routes_find_who_was_not_told_and_resolve_whoever_was() {
    let mut alerting = by_site();
    alerting.handle(0, alert("ber", "a", 0, None));
    assert_eq!(run(&mut alerting, 0, 20).len(), 1);
    alerting.handle(20, alert("muc", "b", 20, None));
    let both = route(&[("new", TIMING)], &[]);
    let mut noc = route(&[("noc", TIMING)], &[]);
    noc.labels = LabelPatterns::of(&[("site", "none")]);
    alerting.reload(25, vec![both.clone(), noc], Teller::default());
    let told = run(&mut alerting, 25, 100);
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].group.receiver.as_str(), told[0].alerts.len()), ("new", 2));
    alerting.handle(100, alert("ber", "a", 0, Some(100)));
    let receivers: BTreeSet<String> =
        run(&mut alerting, 100, 300).into_iter().map(|n| n.group.receiver).collect();
    assert_eq!(receivers, BTreeSet::from(["new".into(), "noc".into()]));

    // One that no route names is told nothing any more.
    alerting.handle(400, alert("muc", "b", 20, Some(400)));
    alerting.reload(401, vec![], Teller::default());
    assert_eq!(run(&mut alerting, 401, 2_000), []);
    assert_eq!((alerting.open.len(), alerting.counters().abandoned), (0, 1));
}

#[test]
fn a_state_of_another_version_is_refused() {
    let state = AlertState { version: 2, ..by_site().state() };
    let refused = Alerting::restore(vec![], Teller::default(), state, 0).err().unwrap();
    assert!(refused.to_string().contains("version 2"), "{refused}");
}

#[test]
fn a_state_of_another_station_is_refused() {
    let named = |name: &str| Teller { station: name.into(), link: None };
    let state = Alerting::new(vec![], named("ber")).state();
    assert!(Alerting::restore(vec![], named("ber"), state.clone(), 0).is_ok());
    let refused = Alerting::restore(vec![], named("muc"), state, 0).err().unwrap();
    let (wrote, reads) = ("ber".to_owned(), "muc".to_owned());
    assert_eq!(refused, AlertStateError::OtherStation { wrote, reads });
}

/// A history of alerts and silences, and what has to come of it.
struct History {
    inputs: BTreeMap<i64, Vec<AlertInput>>,
    /// Times in which each alert really lasted.
    periods: BTreeMap<LabelSet, Vec<(i64, i64)>>,
    mutes: Vec<Mute>,
    acknowledged: bool,
}

impl History {
    fn drawn(random: &mut fastrand::Rng) -> History {
        let mut history = History {
            inputs: BTreeMap::new(),
            periods: BTreeMap::new(),
            mutes: Vec::new(),
            acknowledged: random.bool(),
        };
        for site in ["ber", "muc"] {
            for target in ["a", "b", "c"] {
                history.periods_of(site, target, random);
            }
        }
        for i in 0..random.usize(0..5) {
            let start = random.i64(0..4_000);
            let site = ["ber", "muc", "*"][random.usize(0..3)];
            let mute = mute(&format!("m{i}"), site, start..start + random.i64(1..900));
            let known = if random.bool() { mute.starts_ns } else { random.i64(0..=start) };
            history.at(known, AlertInput::Mute(mute.clone()));
            history.mutes.push(mute);
        }
        history
    }

    fn periods_of(&mut self, site: &str, target: &str, random: &mut fastrand::Rng) {
        let mut at = random.i64(0..2_000);
        for _ in 0..random.usize(0..5) {
            let length = span(random);
            let end = at + length;
            self.at(at, alert(site, target, at, None));
            self.at(end, alert(site, target, at, Some(end)));
            if random.bool() {
                // It comes again while it lasts, and late.
                self.at(random.i64(at..=end), alert(site, target, at, None));
                self.at(end + random.i64(0..100), alert(site, target, at, Some(end)));
            }
            if self.acknowledged && random.bool() && length > 0 {
                let by =
                    Acknowledgement { author: "bob".into(), at_ns: at, comment: String::new() };
                let when = random.i64(at..end) + 1;
                self.at(when, AlertInput::Acknowledge(labels(site, target), by));
            }
            self.periods.entry(labels(site, target)).or_default().push((at, end));
            // Two periods that begin at one instant would be one.
            at = (end + span(random)).max(at + 1);
        }
    }

    fn at(&mut self, now: i64, input: AlertInput) {
        self.inputs.entry(now).or_default().push(input);
    }

    fn is_muted(&self, labels: &LabelSet, at: i64) -> bool {
        self.mutes.iter().any(|mute| mute.holds_back(labels, at))
    }

    /// Whether there was reason to tell of a period: it ended when nothing held it back, or
    /// nothing held it back for long enough.
    fn must_be_told(&self, labels: &LabelSet, (start, end): (i64, i64)) -> bool {
        // One that begins where another ends goes on with it.
        let goes_on = self.periods[labels].iter().find(|(other, _)| *other == end);
        if let Some(&next) = goes_on.filter(|next| **next != (start, end)) {
            return self.must_be_told(labels, next);
        }
        let mut unmuted = 0;
        for at in start..end {
            unmuted = if self.is_muted(labels, at) { 0 } else { unmuted + 1 };
            if unmuted > WAIT + INTERVAL {
                return true;
            }
        }
        !self.is_muted(labels, end)
    }
}

/// A short or long time; nothing is among them.
fn span(random: &mut fastrand::Rng) -> i64 {
    let most = [3, 30, 200, 1_500][random.usize(0..4)];
    random.i64(0..most)
}

const REFRESH: GroupTiming =
    GroupTiming { wait_ns: 0, interval_ns: 20, repeat_ns: 20, refresh: true, whole: true };

fn routes() -> Vec<AlertRoute> {
    vec![
        route(&[("site", TIMING)], &["site"]),
        route(&[("all", WHOLE), ("site", TIMING)], &[]),
        route(&[("am", REFRESH)], &["site", "target"]),
    ]
}

/// Plays a history. `shuffle`: the inputs of an instant in another order. `restart`: the state is
/// saved and restored now and then.
fn play(history: &History, shuffle: bool, restart: bool, seed: u64) -> Vec<Notification> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut alerting = Alerting::new(routes(), Teller::default());
    let mut told = Vec::new();
    let mut instants = history.inputs.iter().peekable();
    let mut now = 0;
    while let Some((&at, inputs)) = instants.next() {
        told.extend(run(&mut alerting, now, at - 1));
        now = at;
        let mut inputs = inputs.clone();
        if shuffle {
            random.shuffle(&mut inputs);
        }
        inputs.into_iter().for_each(|input| alerting.handle(now, input));
        if restart && random.u8(0..4) == 0 {
            let text = serde_json::to_string(&alerting.state()).unwrap();
            let state = serde_json::from_str(&text).unwrap();
            alerting = Alerting::restore(routes(), Teller::default(), state, now).unwrap();
        }
        let until = instants.peek().map_or(i64::MAX, |(at, _)| **at - 1);
        told.extend(run(&mut alerting, now, until));
        now = until.min(now + 1);
    }
    assert_eq!((alerting.open.len(), alerting.groups.len()), (0, 0), "all has ended");
    told
}

/// Periods of each alert as a receiver heard of them: begin, when told, end, when told.
type Heard = BTreeMap<(String, LabelSet), Vec<(i64, i64)>>;

fn check(history: &History, told: &[Notification]) {
    let mut heard: Heard = BTreeMap::new();
    let mut open: BTreeMap<(String, LabelSet), i64> = BTreeMap::new();
    let mut last: BTreeMap<AlertGroupKey, &Notification> = BTreeMap::new();
    let mut said: BTreeMap<(AlertGroupKey, LabelSet), i64> = BTreeMap::new();
    for notification in told {
        let (at, key) = (notification.at_ns, &notification.group);
        let refreshes = key.receiver == "am";
        for NotifiedAlert { alert, news, acknowledged, .. } in &notification.alerts {
            let before = said.insert((key.clone(), alert.labels.clone()), at);
            if *news == AlertNews::Lasts && key.receiver == "site" && acknowledged.is_none() {
                assert!(at - before.unwrap() >= REPEAT, "{at}: {alert:?} is told again");
            }
            let id = (key.receiver.clone(), alert.labels.clone());
            let begins = matches!(news, AlertNews::Began | AlertNews::BeganAndEnded);
            let ends = matches!(news, AlertNews::Ended | AlertNews::BeganAndEnded);
            assert_eq!(open.contains_key(&id), !begins, "{at}: {id:?} {news:?}");
            if !ends && (begins || !refreshes) {
                assert!(!history.is_muted(&alert.labels, at), "{at}: {id:?} is held back");
            }
            if begins {
                open.insert(id.clone(), alert.starts_ns);
            }
            assert_eq!(alert.ends_ns.is_some(), ends);
            if let Some(ended) = alert.ends_ns {
                let began = open.remove(&id).unwrap();
                assert_eq!(began, alert.starts_ns);
                heard.entry(id).or_default().push((began, ended));
            }
        }
        assert!(!notification.alerts.is_empty(), "{at}: nothing is told");
        let lasts = open.keys().any(|(receiver, labels)| {
            *receiver == key.receiver && key.labels.iter().all(|(n, v)| labels.get(n) == Some(v))
        });
        assert_eq!(notification.lasts, lasts, "{at}");
        if let Some(before) = last.insert(key.clone(), notification) {
            let timing = match key.receiver.as_str() {
                "am" => REFRESH,
                "all" => WHOLE,
                _ => TIMING,
            };
            let since = at - before.at_ns;
            match notification.reason {
                NotificationReason::Repeated if timing.whole => {
                    assert!(since >= timing.repeat_ns, "{at} {key:?}");
                }
                _ => assert!(since >= timing.interval_ns, "{at}: {key:?}"),
            }
        }
    }
    assert_eq!(open, BTreeMap::new(), "all that was told is resolved");
    for (labels, periods) in &history.periods {
        for &(start, end) in periods {
            for receiver in ["site", "all", "am"] {
                let heard = heard.get(&(receiver.to_owned(), labels.clone()));
                let covers = |(began, ended): &(i64, i64)| *began <= start && *ended >= end;
                let covered = heard.is_some_and(|all| all.iter().any(covers));
                let needed = history.must_be_told(labels, (start, end));
                assert!(
                    covered || !needed,
                    "{receiver}: {labels:?} {start}..{end} of {periods:?}: {heard:?}, {:?}",
                    history.mutes
                );
            }
        }
    }
}

#[test]
fn the_laws_hold_on_any_history() {
    for seed in 0..150 {
        println!("seed {seed}");
        let history = History::drawn(&mut fastrand::Rng::with_seed(seed));
        let told = play(&history, false, false, seed);
        check(&history, &told);
        same(&play(&history, true, false, seed), &told, "the order of an instant matters");
        same(&play(&history, true, true, seed), &told, "a restart matters");
    }
}

/// The first difference, since all would be too much to read.
fn same(got: &[Notification], wanted: &[Notification], why: &str) {
    for (got, wanted) in got.iter().zip(wanted) {
        assert_eq!(got, wanted, "{why}");
    }
    assert_eq!(got.len(), wanted.len(), "{why}");
}

#[test]
fn what_ended_before_a_silence_comes_out_after_it() {
    let mut alerting = by_site();
    alerting.handle(0, AlertInput::Mute(mute("s", "*", 29..609)));
    for (begin, end) in [(19, 20), (26, 37), (42, 62)] {
        assert_eq!(run(&mut alerting, begin, begin), []);
        alerting.handle(begin, alert("muc", "a", begin, None));
        assert_eq!(run(&mut alerting, begin, end), []);
        alerting.handle(end, alert("muc", "a", begin, Some(end)));
    }
    let told = run(&mut alerting, 62, 700);
    assert_eq!((told.len(), told[0].at_ns, told[0].alerts[0].episodes), (1, 609, 3));
}

#[test]
fn a_receiver_that_forgets_is_told_of_all_and_others_of_so_many_as_people_read() {
    let routes = vec![route(&[("am", REFRESH), ("noc", TIMING)], &["site"])];
    let mut alerting = Alerting::new(routes, Teller::default());
    for n in 0..201 {
        alerting.handle(0, alert("ber", &format!("{n}"), 0, None));
    }
    let told = run(&mut alerting, 0, WAIT);
    let lengths: Vec<_> =
        told.iter().map(|n| (n.group.receiver.as_str(), n.alerts.len(), n.truncated)).collect();
    assert_eq!(lengths, [("am", 201, 0), ("noc", 200, 1)]);
}
