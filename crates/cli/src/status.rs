//! `sonde status` and `sonde events`: what a running station says of itself.

use std::borrow::Cow;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Args, ValueEnum, ValueHint};
use serde_json::{Value, json};
use sonde_results::civil_time;
use sonde_results::plain_text::plain;
use sonde_results::units::{
    format_count, format_duration, format_elapsed, format_ns, parse_positive_duration,
};
use sonde_station::client::{ClientError, StationClient};

use crate::exit::{Exit, Failure};
use crate::output::style::{Style, Tone, terminal_size};
use crate::output::text_table::{TextColumn, TextTable};

#[derive(Args, Debug)]
#[command(after_help = STATUS_HELP)]
pub struct StatusArgs {
    #[command(flatten)]
    pub station: StationSocket,
    /// Print all of it as one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = EVENTS_HELP)]
pub struct EventsArgs {
    #[command(flatten)]
    pub station: StationSocket,
    /// Of so much time until now
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_positive_duration)]
    pub last: i64,
    /// Only those that last
    #[arg(long)]
    pub open: bool,
    /// Only those that are at least as grave
    #[arg(long, value_enum, value_name = "GRADE")]
    pub grade: Option<Grade>,
    /// So many, the newest
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub most: u32,
    /// Print each as a JSON object in a line of its own
    #[arg(long)]
    pub json: bool,
    /// Say that you take care of this event, by the number in brackets behind it: its alerts are not
    /// repeated
    #[arg(long, value_name = "EVENT", conflicts_with_all = ["last", "open", "grade", "most"])]
    pub acknowledge: Option<u64>,
    /// What to say beside it
    #[arg(long, value_name = "TEXT", requires = "acknowledge")]
    pub note: Option<String>,
    /// Say that nobody takes care of this event any more: its alerts are repeated again
    #[arg(
        long,
        value_name = "EVENT",
        conflicts_with_all = ["last", "open", "grade", "most", "acknowledge"]
    )]
    pub release: Option<u64>,
}

/// How grave an event is.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Grade {
    Info,
    Warning,
    Critical,
}

/// Which station is asked.
#[derive(Args, Debug)]
pub struct StationSocket {
    /// The station's Unix socket
    #[arg(
        long,
        value_name = "PATH",
        value_hint = ValueHint::FilePath,
        default_value = "/var/lib/sonde/store.sock"
    )]
    pub socket: PathBuf,
}

impl StationSocket {
    /// Who asks it.
    pub fn client(&self) -> StationClient {
        StationClient::new(&self.socket)
    }
}

/// Asks how the station does.
pub fn status(args: &StatusArgs) -> Result<Exit, Failure> {
    let client = args.station.client();
    let get = |path: &str| client.get(path).map_err(failed);
    let station = get("/sonde/v1/station")?;
    let health = get("/sonde/v1/station/health")?;
    let states = get("/sonde/v1/states")?;
    let mut silences = client.list("/sonde/v1/silences", "", usize::MAX).map_err(failed)?;
    let has_alerts = station["parts"].as_array().is_some_and(|p| p.contains(&json!("alerts")));
    let mut alerts = match has_alerts {
        true => client.list("/sonde/v1/alerts", "", usize::MAX).map_err(failed)?,
        false => Vec::new(),
    };
    let mut units = client.list("/sonde/v1/units", "", usize::MAX).map_err(failed)?;
    let bad = units.iter().any(|unit| !works(unit)) || health["sound"] != true;
    if args.json {
        let counts = &states["counts"];
        let all = json!({
            "station": station, "units": units, "states": counts, "health": health,
            "silences": silences, "alerts": alerts,
        });
        outln!("{all:#}");
    } else {
        let mut shown = [station, health, states];
        shown.iter_mut().chain(&mut alerts).chain(&mut silences).chain(&mut units).for_each(clean);
        let [station, health, states] = shown;
        print_status(&station, &health, &states["counts"]);
        alert_lines(&alerts).iter().for_each(|line| outln!("{line}"));
        silences.iter().for_each(print_silence);
        print_units(&units);
    }
    Ok(if bad { Exit::Negative } else { Exit::Ok })
}

/// Makes all texts of an answer fit to be shown: they come from elsewhere.
pub(crate) fn clean(answer: &mut Value) {
    match answer {
        Value::String(text) => {
            if let Cow::Owned(seen) = plain(text) {
                *text = seen;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(fields) => fields.values_mut().for_each(clean),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Lists what happened, the newest last.
pub fn events(args: &EventsArgs) -> Result<Exit, Failure> {
    if let Some(id) = args.acknowledge {
        return acknowledge(args, id);
    }
    if let Some(id) = args.release {
        return release(args, id);
    }
    let mut query = format!("from=now-{}s", args.last.div_euclid(1_000_000_000).max(1));
    if args.open {
        query.push_str("&state=open");
    }
    if let Some(grade) = args.grade.and_then(|grade| grade.to_possible_value()) {
        query.push_str(&format!("&grade={}", grade.get_name()));
    }
    let client = args.station.client();
    let most = args.most as usize;
    let listed = most.saturating_add(COUNTED);
    let mut events = client.list("/sonde/v1/events", &query, listed).map_err(failed)?;
    if let Some(text) = left_out(events.len(), most, listed) {
        errln!(INFO, "{text}");
    }
    events.truncate(most);
    events.reverse();
    let nothing = events.is_empty();
    for mut event in events {
        match args.json {
            true => outln!("{event}"),
            false => {
                clean(&mut event);
                outln!("{}", event_line(&event));
            }
        }
    }
    if nothing && !args.json {
        errln!(INFO, "nothing happened in this time; --last asks for more");
    }
    Ok(Exit::Ok)
}

/// Says that somebody takes care of an event, and prints it.
fn acknowledge(args: &EventsArgs, id: u64) -> Result<Exit, Failure> {
    let path = format!("/sonde/v1/events/{id}/acknowledgement");
    let order = json!({ "note": args.note.as_deref().unwrap_or_default() }).to_string();
    let event = args.station.client().post(&path, &order).map_err(failed)?;
    match args.json {
        true => outln!("{}", event["event"]),
        false => outln!("{}", event_line(&event["event"])),
    }
    Ok(Exit::Ok)
}

/// Says that nobody takes care of an event any more, and prints it.
fn release(args: &EventsArgs, id: u64) -> Result<Exit, Failure> {
    let client = args.station.client();
    client.delete(&format!("/sonde/v1/events/{id}/acknowledgement")).map_err(failed)?;
    let event = client.get(&format!("/sonde/v1/events/{id}")).map_err(failed)?;
    match args.json {
        true => outln!("{}", event["event"]),
        false => outln!("{}", event_line(&event["event"])),
    }
    Ok(Exit::Ok)
}

/// What came of a request that failed.
pub(crate) fn failed(error: ClientError) -> Failure {
    // Its text has its cause.
    let text = anyhow!("{error}");
    match error {
        // There is no such thing, or it is none that this can be done to: so on every host.
        ClientError::Refused { status: 404 | 409 | 422, .. } => Failure::Usage(text),
        _ => Failure::CannotRun(text),
    }
}

/// That there are more events than are listed. `listed`: so many were asked for.
fn left_out(found: usize, most: usize, listed: usize) -> Option<String> {
    let more = if found >= listed { "more than " } else { "" };
    let (shown, all) = (format_count(most as u64), format_count(found as u64));
    (found > most).then(|| format!("the newest {shown} of {more}{all}; --most shows more"))
}

/// How long something lasted, for people.
pub(crate) fn lasted(ns: i64) -> String {
    match ns < 60_000_000_000 {
        true => format_ns(ns.max(0) as f64),
        false => format_elapsed(ns),
    }
}

/// Whether a unit does what it was asked to.
pub(crate) fn works(unit: &Value) -> bool {
    matches!(unit["phase"].as_str(), Some("running" | "starting" | "done"))
}

fn print_status(station: &Value, health: &Value, counts: &Value) {
    let ms = |value: &Value| value["ms"].as_i64().unwrap_or_default();
    let up = (ms(&station["now"]) - ms(&station["started"])).max(0) / 1_000 * 1_000_000_000;
    let name = text_of(&station["name"]);
    outln!("{name}: sonde {}, up {}", text_of(&station["version"]), format_duration(up));
    let guards = station["guards"].as_array().into_iter().flatten();
    let guards: Vec<&str> = guards.filter_map(Value::as_str).collect();
    if !guards.is_empty() {
        outln!("guarded by: {}", guards.join(", "));
    }
    outln!("streams: {}", state_counts(counts));
    let store = &health["store"];
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let rate = store["records_per_s"].as_f64().unwrap_or(0.0);
    outln!(
        "store: {} MB, {rate:.0} records/s, {} not safe yet, the oldest for {} ms",
        format_count(count(&store["octets"]) / 1_000_000),
        format_count(count(&store["waiting_rows"])),
        format_count(count(&store["lag_ms"])),
    );
    let items = |name: &str| health[name].as_array().into_iter().flatten();
    for problem in items("problems") {
        outln!("problem: {}", text_of(problem));
    }
    for doubt in items("doubts") {
        let since = time_of(&doubt["from"]);
        outln!("doubt since {since}: {}; {}", text_of(&doubt["text"]), text_of(&doubt["advice"]));
    }
    let clock = &health["clock"];
    for step in clock["steps"].as_array().into_iter().flatten().take(STEPS_SHOWN) {
        outln!("{}", step_line(step));
    }
    for finding in items("doctor").filter(|finding| finding["verdict"] != "good") {
        let advice = finding["advice"].as_str().map(|advice| format!("; {advice}"));
        let (check, found) = (text_of(&finding["check"]), text_of(&finding["found"]));
        outln!("host: {check}: {found}{}", advice.unwrap_or_default());
    }
    for drop in items("drops") {
        let (all, recent) =
            (format_count(count(&drop["count"])), format_count(count(&drop["recent"])));
        let (by, reason) = (text_of(&drop["by"]), text_of(&drop["reason"]));
        outln!("dropped by {by}: {all} since the start, {recent} in the last 5 min ({reason})");
    }
    let waiting = items("queues").filter(|queue| count(&queue["length"]) > 0);
    for queue in waiting {
        let (length, room) = (count(&queue["length"]), count(&queue["capacity"]));
        let reader = text_of(&queue["reader"]);
        outln!("queue of {reader}: {} of {}", format_count(length), format_count(room));
    }
}

/// The clock was set: when, by how much, and what is marked for it.
fn step_line(step: &Value) -> String {
    let by_ns = step["by_ns"].as_i64().unwrap_or(0);
    let way = if by_ns < 0 { "back" } else { "forward" };
    let by = format_ns(by_ns.unsigned_abs() as f64);
    let marked = step["marked"].as_object().into_iter().flatten();
    let marked: Vec<String> = marked
        .map(|(unit, n)| format!("{} of {unit}", format_count(n.as_u64().unwrap_or(0))))
        .collect();
    let marked = match marked.is_empty() {
        true => "no interval is marked for it so far".to_owned(),
        false => format!("intervals marked for it: {}", marked.join(", ")),
    };
    format!("clock set {way} by {by} at {}; {marked}", time_of(&step["at"]))
}

/// Alerts, the gravest first: a line each, or one for many of the same cause.
fn alert_lines(groups: &[Value]) -> Vec<String> {
    let grave = |alert: &Value| {
        let severity = alert["labels"]["severity"].as_str();
        SEVERITIES.iter().position(|name| Some(*name) == severity).unwrap_or(SEVERITIES.len())
    };
    let begin = |alert: &Value| alert["begin"]["ms"].as_i64().unwrap_or_default();
    let listed = groups.iter().flat_map(|group| group["alerts"].as_array().into_iter().flatten());
    let mut alerts: Vec<&Value> = listed.collect();
    alerts.sort_by_key(|alert| (grave(alert), begin(alert)));
    // Causes in the order of their first alerts.
    let mut causes: Vec<(AlertCause, Vec<&Value>)> = Vec::new();
    for alert in alerts {
        let cause = AlertCause::of(alert);
        match causes.iter_mut().find(|(other, _)| *other == cause) {
            Some((_, of_cause)) => of_cause.push(alert),
            None => causes.push((cause, vec![alert])),
        }
    }
    let mut lines = Vec::new();
    for (cause, of_cause) in causes {
        match of_cause.len() > ALIKE_SHOWN {
            true => lines.push(cause.line(&of_cause)),
            false => lines.extend(of_cause.into_iter().map(alert_line)),
        }
    }
    let truncated = groups.iter().filter_map(|group| group["truncated"].as_u64()).sum::<u64>();
    if truncated > 0 {
        lines.push(format!("alerts beside those: {}", format_count(truncated)));
    }
    lines
}

/// What alerts agree in that are one line.
#[derive(PartialEq, Eq)]
struct AlertCause {
    severity: String,
    name: String,
    unit: Option<String>,
    /// Whether a silence holds it back, and who takes care of it.
    care: String,
}

impl AlertCause {
    fn of(alert: &Value) -> AlertCause {
        let held = alert["silences"].as_array().is_some_and(|s| !s.is_empty());
        let held = if held { ", held back" } else { "" };
        let by = acknowledged(alert).unwrap_or_default();
        AlertCause {
            severity: text_of(&alert["labels"]["severity"]),
            name: alert["labels"]["alertname"].as_str().unwrap_or_default().to_owned(),
            unit: alert["labels"]["unit"].as_str().map(str::to_owned),
            care: format!("{held}{by}"),
        }
    }

    fn line(&self, alerts: &[&Value]) -> String {
        let AlertCause { severity, name, unit, care } = self;
        let what = match name.as_str() {
            "ObjectiveNotJudged" => "cannot be judged",
            "ObjectiveBreached" => "objective missed",
            "Unavailable" => "unavailable",
            "ErrorBudgetBurns" => "error budget is spent too fast",
            other => other,
        };
        let n = format_count(alerts.len() as u64);
        let of = unit.as_ref().map(|unit| format!(" of {unit}")).unwrap_or_default();
        let (since, example) = (time_of(&alerts[0]["begin"]), text_of(&alerts[0]["summary"]));
        format!("alerts ({severity}) since {since}: {what}: {n}{of}, as {example}{care}")
    }
}

fn alert_line(alert: &Value) -> String {
    let AlertCause { severity, care, .. } = AlertCause::of(alert);
    let since = time_of(&alert["begin"]);
    format!("alert ({severity}) since {since}: {}{care}", text_of(&alert["summary"]))
}

/// A silence or maintenance in one line.
pub(crate) fn print_silence(silence: &Value) {
    let labels = silence["labels"].as_object().into_iter().flatten();
    let labels: Vec<String> = labels.map(|(name, v)| format!("{name}={}", text_of(v))).collect();
    outln!(
        "{} '{}' of {}: {} until {}",
        text_of(&silence["kind"]),
        text_of(&silence["name"]),
        text_of(&silence["by"]),
        labels.join(" "),
        time_of(&silence["to"]),
    );
}

/// How many streams are in which state: those of which there are some, and those that are well.
pub(crate) fn state_counts(counts: &Value) -> String {
    let count = |name: &str| counts[name].as_u64().unwrap_or(0);
    let states = ["ok", "degraded", "breach", "down", "no_data", "excluded", "doubtful"];
    let states = states.iter().filter(|name| **name == "ok" || count(name) > 0);
    let states: Vec<String> = states
        .map(|name| format!("{} {}", format_count(count(name)), name.replace('_', " ")))
        .collect();
    states.join(", ")
}

/// A text; `?` where there is none.
pub(crate) fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or("?").to_owned()
}

fn print_units(units: &[Value]) {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let column = |head, rank, left, cell: &dyn Fn(&Value) -> String| TextColumn {
        head,
        rank,
        left,
        cells: units.iter().map(cell).collect(),
    };
    let count = |value: &Value| format_count(value.as_u64().unwrap_or(0));
    let table = TextTable::new([
        column("unit", 0, true, &|unit| text(&unit["name"])),
        column("phase", 0, true, &|unit| text(&unit["phase"])),
        column("since", 2, true, &|unit| time_of(&unit["since"])),
        column("records", 1, false, &|unit| count(&unit["records"])),
        column("lost", 1, false, &|unit| count(&unit["records_lost"])),
        column("starts", 3, false, &|unit| count(&unit["starts"])),
        column("why", 0, true, &|unit| text(&unit["reason"])),
    ]);
    let (width, style) = (terminal_size().0, Style::for_stdout());
    table.lines(width, style, |_, _| Tone::Plain).iter().for_each(|line| outln!("{line}"));
}

/// An instant for people.
pub(crate) fn time_of(instant: &Value) -> String {
    let ms = instant["ms"].as_i64().unwrap_or_default();
    civil_time::plain(ms.saturating_mul(1_000_000))
}

/// Who takes care of it, and what that one says.
fn acknowledged(of: &Value) -> Option<String> {
    let by = of["acknowledged"]["by"].as_str()?;
    let note = of["acknowledged"]["note"].as_str().filter(|note| !note.is_empty());
    Some(format!(", acknowledged by {by}{}", note.map(|n| format!(": {n}")).unwrap_or_default()))
}

/// An event in one line.
pub(crate) fn event_line(event: &Value) -> String {
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    let ms = |name: &str| event[name]["ms"].as_i64();
    let begin = ms("begin").unwrap_or_default();
    let lasted = match ms("end") {
        None => ", goes on".to_owned(),
        Some(end) if end > begin => {
            format!(", {} long", lasted((end - begin).saturating_mul(1_000_000)))
        }
        Some(_) => String::new(),
    };
    let by = acknowledged(event).unwrap_or_default();
    let id = event["id"].as_str().map(|id| format!(" [{id}]")).unwrap_or_default();
    let (title, grade) = (text("title"), text("grade"));
    format!("{}{lasted}: {title} ({grade}){by}{id}", time_of(&event["begin"]))
}

/// Times that the clock was set, of which the status tells.
const STEPS_SHOWN: usize = 3;

/// The gravest first.
const SEVERITIES: [&str; 4] = ["critical", "error", "warning", "info"];
/// Alerts of one cause that have a line each.
const ALIKE_SHOWN: usize = 3;
/// Events beyond those listed are counted so far.
const COUNTED: usize = 10_000;

const STATUS_HELP: &str = "\
Example:
  sudo sonde status
  sonde status --socket /run/sonde/api.sock --json
The socket is that of the configuration ([api] socket), else the path of the store with .sock behind.
Exit codes: 0 all units work and the station is sound, 1 a unit does not work, or within the last
5 minutes something was dropped, or there is a problem or a doubt; 2 usage, 3 no station answers.";

const EVENTS_HELP: &str = "\
Example:
  sudo sonde events --last 7d --grade warning
  sudo sonde events --open --json
  sudo sonde events --acknowledge 17 --note 'cable ordered'
  sudo sonde events --release 17
Exit codes: 0 answered, 2 usage, or no such event, 3 no station answers.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_works_that_measures_begins_or_is_done() {
        let unit = |phase: &str| json!({ "phase": phase });
        assert!(["running", "starting", "done"].iter().all(|phase| works(&unit(phase))));
        let others = ["blocked", "stopping", "waiting", "stuck", "refused"];
        assert!(!others.iter().any(|phase| works(&unit(phase))) && !works(&json!({})));
    }

    #[test]
    fn a_step_of_the_clock_is_told_with_what_is_marked_for_it() {
        let mut step = json!({"at": {"ms": 0}, "by_ns": -3_200_000_000_i64, "marked": {}});
        assert_eq!(
            step_line(&step),
            "clock set back by 3.20 s at 1970-01-01 00:00:00 UTC; no interval is marked for it so far"
        );
        step["marked"] = json!({"probe.core": 2});
        assert!(step_line(&step).ends_with("intervals marked for it: 2 of probe.core"));
    }

    #[test]
    fn the_gravest_alerts_come_first_and_many_of_one_cause_are_a_line() {
        let alert = |severity: &str, name: &str, target: &str, ms: i64| {
            json!({
                "labels": {"severity": severity, "alertname": name, "unit": "probe.core"},
                "begin": {"ms": ms}, "summary": format!("{target} {name}"), "silences": [],
            })
        };
        let unjudged = |n: i64| alert("info", "ObjectiveNotJudged", &format!("t{n}"), 1_000 + n);
        let mut held = alert("info", "ObjectiveNotJudged", "h", 0);
        held["silences"] = json!(["cable"]);
        let mut infos: Vec<Value> = (0..83).map(unjudged).collect();
        infos.push(held);
        let groups = [
            json!({"alerts": infos, "truncated": 7}),
            json!({"alerts": [alert("critical", "Unavailable", "t20", 60_000)]}),
        ];
        let wanted = [
            "alert (critical) since 1970-01-01 00:01:00 UTC: t20 Unavailable",
            "alert (info) since 1970-01-01 00:00:00 UTC: h ObjectiveNotJudged, held back",
            "alerts (info) since 1970-01-01 00:00:01 UTC: cannot be judged: 83 of probe.core, as t0 \
             ObjectiveNotJudged",
            "alerts beside those: 7",
        ];
        assert_eq!(alert_lines(&groups), wanted);
        assert_eq!(alert_lines(&[]), [""; 0]);
    }

    #[test]
    fn events_that_are_not_listed_are_counted() {
        assert_eq!(left_out(100, 100, 10_100), None);
        let text = left_out(837, 100, 10_100).unwrap();
        assert_eq!(text, "the newest 100 of 837; --most shows more");
        assert!(left_out(10_100, 100, 10_100).unwrap().contains("of more than 10,100;"));
    }

    #[test]
    fn how_long_an_event_lasted_is_as_people_read_it() {
        let event =
            |ms: i64| json!({"begin": {"ms": 0}, "end": {"ms": ms}, "title": "a", "grade": "info"});
        let of = |ms: i64| event_line(&event(ms));
        assert_eq!(of(1_704_783), "1970-01-01 00:00:00 UTC, 28 m 24 s long: a (info)");
        assert!(of(139).contains(", 139 ms long:"), "{}", of(139));
        assert!(of(0).starts_with("1970-01-01 00:00:00 UTC: a"));
    }

    #[test]
    fn what_the_station_does_not_have_is_wrong_usage() {
        let of = |status| failed(ClientError::Refused { status, why: "why".into() });
        for status in [404, 409, 422] {
            assert!(matches!(of(status), Failure::Usage(_)), "{status}");
        }
        assert!(matches!(of(503), Failure::CannotRun(_)));
    }

    #[test]
    fn a_station_that_is_away_is_code_3() {
        let station = StationSocket { socket: "/nonexistent/s".into() };
        let away = status(&StatusArgs { station, json: true }).unwrap_err();
        assert!(matches!(&away, Failure::CannotRun(_)), "{away:?}");
        let text = away.message();
        assert!(text.contains("/nonexistent/s") && text.matches("os error").count() == 1, "{text}");
    }
}
