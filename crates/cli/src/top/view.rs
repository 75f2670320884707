//! What `sonde top` shows: a pure function of what the station has said.

use serde_json::{Value, json};
use sonde_results::plain_text::plain;
use sonde_results::units::{SECOND, format_count, format_elapsed, format_ns};

use crate::output::style::{Style, Tone, clip};
use crate::output::text_table::{TextColumn, TextTable};
use crate::status::{event_line, state_counts, text_of, time_of};

/// What is known of a station.
pub struct StationPicture {
    /// As it was looked at last, with what came since.
    now: Value,
    /// Why there is no station; `None`: there is one.
    away: Option<String>,
}

impl StationPicture {
    /// As it is now.
    pub fn new(now: Value) -> StationPicture {
        StationPicture { now, away: None }
    }

    /// It was looked at again.
    pub fn look(&mut self, now: Value) {
        let alerts = self.now["alerts"].take();
        self.now = now;
        self.now["alerts"] = alerts;
    }

    /// It has gone.
    pub fn away(&mut self, why: &str) {
        self.away = Some(why.to_owned());
    }

    /// It is there again. Alerts of before are told again, if they last.
    pub fn back(&mut self, now: Value) {
        *self = StationPicture::new(now);
    }

    /// Takes an event of the stream; what it says, in lines.
    pub fn take(&mut self, topic: &str, data: &Value) -> Vec<String> {
        match topic {
            "state" => {
                self.now["overview"]["counts"] = data["counts"].clone();
                vec![format!("streams: {}", state_counts(&data["counts"]))]
            }
            "units" => {
                replace(&mut self.now["units"], &data["unit"], "name", false);
                vec![unit_line(&data["unit"])]
            }
            "events" => {
                replace(&mut self.now["events"], &data["event"], "id", true);
                vec![clean(&event_line(&data["event"]))]
            }
            "alerts" => {
                let group = &data["group"];
                replace(&mut self.now["alerts"], group, "id", true);
                vec![clean(&alert_line(group))]
            }
            _ => vec!["events were left out: this reader was too slow, or away".to_owned()],
        }
    }

    /// In one line.
    pub fn line(&self) -> String {
        if let Some(why) = &self.away {
            return clean(&format!("{why}; it is waited for"));
        }
        let counts = state_counts(&self.now["overview"]["counts"]);
        clean(&format!("{}; streams: {counts}; {}", self.title(), self.health_line()))
    }

    /// The units that do not work, in a line each.
    pub fn troubles(&self) -> Vec<String> {
        let units = array(&self.now["units"]).iter().filter(|_| self.away.is_none());
        units.filter(|unit| !crate::status::works(unit)).map(unit_line).collect()
    }

    /// The picture for a terminal of `width` by `height`: never wider, never higher.
    pub fn lines(&self, width: usize, height: usize, style: Style) -> Vec<String> {
        let health = &self.now["health"];
        let mut lines = Vec::new();
        let mut say = |tone, text: &str| lines.push(style.paint(tone, &clip(&clean(text), width)));
        say(Tone::Head, &self.title());
        if let Some(why) = &self.away {
            say(Tone::Bad, &format!("AWAY: {why}; it is waited for. What is below is of before."));
        }
        let counts = &self.now["overview"]["counts"];
        let bad = ["breach", "down"].iter().any(|state| counts[*state].as_u64() > Some(0));
        let tone = if bad { Tone::Bad } else { Tone::Good };
        say(tone, &format!("streams: {}", state_counts(counts)));
        let tone = if health["sound"] == true { Tone::Plain } else { Tone::Warn };
        say(tone, &self.health_line());
        say(Tone::Dim, &self.queue_line());
        for problem in array(&health["problems"]) {
            say(Tone::Bad, &text_of(problem));
        }
        for doubt in array(&health["doubts"]) {
            say(Tone::Warn, &format!("{}; {}", text_of(&doubt["text"]), text_of(&doubt["advice"])));
        }
        for group in array(&self.now["alerts"]).iter().filter(|g| !array(&g["alerts"]).is_empty()) {
            say(Tone::Bad, &alert_line(group));
        }
        // Half of what is left is for units and events, the rest for targets.
        let room = height.saturating_sub(lines.len() + 1);
        let units = self.units(width, style, (room / 4).max(2));
        let events = self.events(width, style, room / 4);
        let left = room.saturating_sub(units.len() + events.len());
        for block in [units, self.targets(width, style, left), events] {
            if block.len() > 1 {
                lines.push(String::new());
                lines.extend(block);
            }
        }
        lines.truncate(height.saturating_sub(1));
        lines
    }

    fn title(&self) -> String {
        let station = &self.now["station"];
        let ms = |value: &Value| value["ms"].as_i64().unwrap_or_default();
        let up = (ms(&station["now"]) - ms(&station["started"])).max(0) / 1_000 * SECOND;
        let (name, version) = (text_of(&station["name"]), text_of(&station["version"]));
        format!("sonde top  {name}  up {}  sonde {version}", format_elapsed(up))
    }

    fn health_line(&self) -> String {
        let health = &self.now["health"];
        let store = &health["store"];
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let megabytes = |value: &Value| format_count(value.as_u64().unwrap_or(0) / 1_000_000);
        let sound = if health["sound"] == true { "sound" } else { "NOT SOUND" };
        let lost: u64 = array(&health["drops"]).iter().filter_map(|d| d["recent"].as_u64()).sum();
        let lost = match lost {
            0 => String::new(),
            n => format!("  dropped in 5 min {}", format_count(n)),
        };
        format!(
            "{sound}  processors {:.2}  memory {} MB  store {} MB, {:.0} records/s, lag {} ms{lost}",
            number(&health["cpu"]),
            megabytes(&health["memory_octets"]),
            megabytes(&store["octets"]),
            number(&store["records_per_s"]),
            store["lag_ms"].as_u64().unwrap_or(0),
        )
    }

    fn queue_line(&self) -> String {
        let queue = |queue: &Value| {
            let n = |name: &str| format_count(queue[name].as_u64().unwrap_or(0));
            format!("{} {}/{}", text_of(&queue["reader"]), n("length"), n("capacity"))
        };
        let queues: Vec<String> = array(&self.now["health"]["queues"]).iter().map(queue).collect();
        format!("queues: {}", queues.join("  "))
    }

    /// Those that do not work first.
    fn units(&self, width: usize, style: Style, room: usize) -> Vec<String> {
        let mut units: Vec<&Value> = array(&self.now["units"]).iter().collect();
        units.sort_by_key(|unit| crate::status::works(unit));
        let more = units.len().saturating_sub(room.saturating_sub(1));
        units.truncate(room.saturating_sub(1));
        let count = |value: &Value| format_count(value.as_u64().unwrap_or(0));
        let column = |head, rank, left, cell: &dyn Fn(&Value) -> String| TextColumn {
            head,
            rank,
            left,
            cells: units.iter().map(|unit| cell(unit)).collect(),
        };
        let mut table = TextTable::new([
            column("unit", 0, true, &|unit| text_of(&unit["name"])),
            column("phase", 0, true, &|unit| text_of(&unit["phase"])),
            column("records", 1, false, &|unit| count(&unit["records"])),
            column("lost", 2, false, &|unit| count(&unit["records_lost"])),
            column("starts", 3, false, &|unit| count(&unit["starts"])),
            column("why", 4, true, &|unit| unit["reason"].as_str().unwrap_or("").to_owned()),
        ]);
        table.leave_out(width, 4);
        let works: Vec<bool> = units.iter().map(|unit| crate::status::works(unit)).collect();
        let tone = |row: usize, head: &str| match works.get(row) {
            Some(false) if head == "phase" => Tone::Bad,
            _ => Tone::Plain,
        };
        let mut lines = fitted(table, width, style, tone);
        if more > 0 && !lines.is_empty() {
            lines.pop();
            lines.push(clip(&format!("and {} more", format_count(more as u64 + 1)), width));
        }
        lines
    }

    /// The worst first, as the station sorts them.
    fn targets(&self, width: usize, style: Style, room: usize) -> Vec<String> {
        let overview = &self.now["overview"];
        let rows = array(&overview["groups"]).len().min(room.saturating_sub(2));
        let value = |name: &str, row: usize| {
            let column = array(&overview["columns"]).iter().find(|c| c["name"] == name)?;
            column["values"][row].as_f64()
        };
        let ns = |name, row| value(name, row).map_or_else(|| "-".to_owned(), format_ns);
        let count = |name, row| value(name, row).map_or(0, |v: f64| v as u64);
        let label = |row: usize, at: usize| text_of(&overview["groups"][row][at]);
        let state = |row: usize| text_of(&overview["states"][row]).replace('_', " ");
        let column = |head, rank, left, cell: &dyn Fn(usize) -> String| TextColumn {
            head,
            rank,
            left,
            cells: (0..rows).map(cell).collect(),
        };
        let loss = |row| match (count("lost", row), count("sent", row)) {
            (0, _) => "0".to_owned(),
            (lost, sent) => sonde_results::units::format_share(lost, sent),
        };
        let table = TextTable::new([
            column("target", 0, true, &|row| label(row, 0)),
            column("class", 3, true, &|row| label(row, 1)),
            column("state", 0, true, &state),
            column("loss", 1, false, &loss),
            column("lost", 4, false, &|row| format_count(count("lost", row))),
            column("p50", 2, false, &|row| ns("p50", row)),
            column("p99", 1, false, &|row| ns("p99", row)),
            column("errored s", 5, false, &|row| format_count(count("errored_seconds", row))),
        ]);
        let states: Vec<String> = (0..rows).map(state).collect();
        let tone = |row: usize, head: &str| match states.get(row).map(String::as_str) {
            Some("down" | "breach") if head == "state" => Tone::Bad,
            Some("degraded" | "no data") if head == "state" => Tone::Warn,
            _ => Tone::Plain,
        };
        fitted(table, width, style, tone)
    }

    /// Those that last first, then the newest.
    fn events(&self, width: usize, style: Style, room: usize) -> Vec<String> {
        let mut events: Vec<&Value> = array(&self.now["events"]).iter().collect();
        events.sort_by_key(|event| !event["end"].is_null());
        let rows = events.iter().take(room.saturating_sub(2));
        let line = |event: &&Value| {
            let tone = match (event["end"].is_null(), event["grade"].as_str()) {
                (true, Some("critical")) => Tone::Bad,
                (true, _) => Tone::Warn,
                (false, _) => Tone::Dim,
            };
            style.paint(tone, &clip(&clean(&event_line(event)), width))
        };
        let head = style.paint(Tone::Head, &clip("events of 24 h", width));
        [head].into_iter().chain(rows.map(line)).collect()
    }
}

/// The table, with its first column cut and others left out until it fits.
fn fitted(
    mut table: TextTable,
    width: usize,
    style: Style,
    tone: impl Fn(usize, &str) -> Tone,
) -> Vec<String> {
    table.leave_out(width, 3);
    table.cut_first(width, 12);
    table.leave_out(width, 1);
    table.lines(width, style, tone)
}

fn unit_line(unit: &Value) -> String {
    let why = unit["reason"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
    clean(&format!("{} is {}{why}", text_of(&unit["name"]), text_of(&unit["phase"])))
}

fn alert_line(group: &Value) -> String {
    let alerts = array(&group["alerts"]);
    let n = alerts.len() as u64 + group["truncated"].as_u64().unwrap_or(0);
    let Some(first) = alerts.first() else {
        return format!("alerts are over: {}", labels_of(&group["labels"]));
    };
    let more = if n > 1 { format!(" and {} more", format_count(n - 1)) } else { String::new() };
    let held = match group["held_back"].as_u64() {
        Some(n) if n > 0 => format!(", {} held back", format_count(n)),
        _ => String::new(),
    };
    let by = first["acknowledged"]["by"].as_str();
    let by = by.map(|by| format!(", acknowledged by {by}")).unwrap_or_default();
    let (severity, since) = (text_of(&group["severity"]), time_of(&group["since"]));
    format!("alert ({severity}) since {since}: {}{more}{held}{by}", text_of(&first["summary"]))
}

fn labels_of(labels: &Value) -> String {
    let labels = labels.as_object().into_iter().flatten();
    let labels: Vec<String> = labels.map(|(name, v)| format!("{name}={}", text_of(v))).collect();
    labels.join(" ")
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Puts `new` in the place of what has the same `key`, else at the begin or the end.
fn replace(list: &mut Value, new: &Value, key: &str, first: bool) {
    if !list.is_array() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else { return };
    match list.iter_mut().find(|old| old[key] == new[key]) {
        Some(old) => old.clone_from(new),
        None if first => list.insert(0, new.clone()),
        None => list.push(new.clone()),
    }
    list.truncate(MOST);
}

/// Without what would steer a terminal: names and reasons come from elsewhere.
fn clean(text: &str) -> String {
    plain(text).into_owned()
}

/// Of a list that a stream makes longer.
const MOST: usize = 10_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(targets: usize) -> StationPicture {
        let at = |ms: i64| json!({"ms": ms});
        let rows = |value: f64| vec![Some(value); targets];
        let column = |name: &str, value: f64| json!({"name": name, "values": rows(value)});
        StationPicture::new(json!({
            "station": {"name": "ber", "version": "0.1.0", "started": at(0), "now": at(3_720_000)},
            "health": {
                "sound": false, "cpu": 0.25, "memory_octets": 45_000_000,
                "problems": ["the receiver ops takes no alert: refused"],
                "doubts": [],
                "drops": [{"by": "live", "reason": "records_lost", "count": 9, "recent": 2}],
                "queues": [{"reader": "store", "length": 3, "capacity": 65_536}],
                "store": {"octets": 12_000_000, "records_per_s": 1_234.4, "lag_ms": 87},
            },
            "units": [
                {"name": "probe.core", "phase": "running", "records": 1_000, "starts": 1},
                {"name": "flow.up\u{1b}[2Jlink", "phase": "waiting", "reason": "no eth9"},
            ],
            "overview": {
                "counts": {"ok": 12, "down": 1},
                "groups": (0..targets).map(|i| [format!("10.0.0.{i}"), "EF".into()]).collect::<Vec<_>>(),
                "states": vec!["down"; targets],
                "columns": [
                    column("sent", 100.0), column("lost", 50.0), column("p50", 1_500_000.0),
                    column("p99", 2_500_000.0), column("errored_seconds", 5.0),
                ],
            },
            "events": [{"id": "1", "grade": "critical", "title": "muc is unavailable", "begin": at(0)}],
        }))
    }

    #[test]
    fn what_is_wrong_stands_on_top_and_nothing_steers_the_terminal() {
        let lines = sample(2).lines(120, 40, Style::default());
        let text = lines.join("\n");
        for part in [
            "sonde top  ber  up 1 h 02 m  sonde 0.1.0",
            "streams: 12 ok, 1 down",
            "NOT SOUND  processors 0.25  memory 45 MB  store 12 MB, 1234 records/s, lag 87 ms  dropped in 5 min 2",
            "queues: store 3/65,536",
            "the receiver ops takes no alert",
            "muc is unavailable",
        ] {
            assert!(text.contains(part), "no '{part}' in\n{text}");
        }
        let at = |what: &str| lines.iter().position(|line| line.contains(what)).unwrap();
        assert!(at("flow.up") < at("probe.core"), "{text}");
        assert_eq!(sample(1).troubles(), ["flow.up\u{fffd}[2Jlink is waiting: no eth9"]);
        let row = &lines[at("10.0.0.1")];
        assert!(row.contains("50.0%") && row.contains("1.50 ms") && row.contains("down"), "{row}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn what_the_stream_says_is_in_the_picture_and_in_a_line() {
        let mut picture = sample(1);
        let line = picture.take("state", &json!({"counts": {"ok": 13}}));
        assert_eq!(line, ["streams: 13 ok"]);
        let unit = json!({"unit": {"name": "probe.core", "phase": "stuck", "reason": "no turn"}});
        assert_eq!(picture.take("units", &unit), ["probe.core is stuck: no turn"]);
        let end = json!({"ms": 60_000});
        let event = json!({"event": {"id": "1", "grade": "critical", "title": "muc is unavailable",
            "begin": {"ms": 0}, "end": end, "acknowledged": {"by": "ann", "note": ""}}});
        let line = picture.take("events", &event);
        assert!(
            line[0].contains("1 m 00 s long") && line[0].contains("acknowledged by ann"),
            "{line:?}"
        );
        let group = json!({"group": {"id": "g", "severity": "error", "since": {"ms": 0},
            "labels": {"site": "ber"}, "held_back": 1,
            "alerts": [{"summary": "loss"}, {"summary": "delay"}]}});
        let line = picture.take("alerts", &group);
        assert!(line[0].ends_with("loss and 1 more, 1 held back"), "{line:?}");
        let text = picture.lines(120, 40, Style::default()).join("\n");
        assert!(text.contains("stuck") && text.contains("loss and 1 more"), "{text}");
        let over = json!({"group": {"id": "g", "alerts": [], "labels": {"site": "ber"}}});
        assert_eq!(picture.take("alerts", &over), ["alerts are over: site=ber"]);
        assert!(!picture.lines(120, 40, Style::default()).join("\n").contains("loss and"));
        assert!(picture.take("gap", &json!({}))[0].contains("left out"));
    }

    #[test]
    fn a_station_that_goes_is_said_until_it_is_back() {
        let mut picture = sample(1);
        picture.away("no station answers on /s: refused");
        assert!(picture.line().contains("no station answers on /s"));
        let text = picture.lines(120, 40, Style::default()).join("\n");
        assert!(text.contains("AWAY") && text.contains("of before"), "{text}");
        picture.back(sample(1).now);
        assert!(picture.line().starts_with("sonde top  ber"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_fits_any_terminal(width in 40usize..160, height in 1usize..60, targets in 0usize..40) {
            let lines = sample(targets).lines(width, height, Style::default());
            prop_assert!(lines.len() < height.max(2));
            prop_assert!(lines.iter().all(|l| l.chars().count() <= width), "{:?}", lines);
        }
    }
}
