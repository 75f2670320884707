//! `sonde status` and `sonde events`: what a running station says of itself.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Args, ValueEnum, ValueHint};
use serde_json::{Value, json};
use sonde_results::civil_time;
use sonde_results::units::{format_count, format_duration, parse_positive_duration};
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
    fn client(&self) -> StationClient {
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
    let units = client.list("/sonde/v1/units", "", usize::MAX).map_err(failed)?;
    let bad = units.iter().any(|unit| !works(unit)) || health["sound"] != true;
    if args.json {
        let counts = &states["counts"];
        let all = json!({ "station": station, "units": units, "states": counts, "health": health });
        outln!("{all:#}");
    } else {
        print_status(&station, &health, &states["counts"]);
        print_units(&units);
    }
    Ok(if bad { Exit::Negative } else { Exit::Ok })
}

/// Lists what happened, the newest last.
pub fn events(args: &EventsArgs) -> Result<Exit, Failure> {
    let mut query = format!("from=now-{}s", args.last.div_euclid(1_000_000_000).max(1));
    if args.open {
        query.push_str("&state=open");
    }
    if let Some(grade) = args.grade.and_then(|grade| grade.to_possible_value()) {
        query.push_str(&format!("&grade={}", grade.get_name()));
    }
    let client = args.station.client();
    let mut events = client.list("/sonde/v1/events", &query, args.most as usize).map_err(failed)?;
    events.reverse();
    for event in &events {
        match args.json {
            true => outln!("{event}"),
            false => print_event(event),
        }
    }
    if events.is_empty() && !args.json {
        errln!(INFO, "nothing happened in this time; --last asks for more");
    }
    Ok(Exit::Ok)
}

fn failed(error: ClientError) -> Failure {
    // Its text has its cause.
    Failure::CannotRun(anyhow!("{error}"))
}

fn works(unit: &Value) -> bool {
    matches!(unit["phase"].as_str(), Some("running" | "starting" | "done"))
}

fn print_status(station: &Value, health: &Value, counts: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let ms = |value: &Value| value["ms"].as_i64().unwrap_or_default();
    let up = (ms(&station["now"]) - ms(&station["started"])).max(0) / 1_000 * 1_000_000_000;
    let name = text(&station["name"]);
    outln!("{name}: sonde {}, up {}", text(&station["version"]), format_duration(up));
    let count = |name: &str| counts[name].as_u64().unwrap_or(0);
    let states = ["ok", "degraded", "breach", "down", "no_data", "excluded", "doubtful"];
    let states = states.iter().filter(|name| **name == "ok" || count(name) > 0);
    let states: Vec<String> = states
        .map(|name| format!("{} {}", format_count(count(name)), name.replace('_', " ")))
        .collect();
    outln!("streams: {}", states.join(", "));
    let store = &health["store"];
    let octets = store["octets"].as_u64().unwrap_or(0);
    let rate = store["records_per_s"].as_f64().unwrap_or(0.0);
    outln!("store: {} MB, {rate:.0} records/s", format_count(octets / 1_000_000));
    if let Some(why) = store["last_error"].as_str() {
        outln!("the store takes nothing: {why}");
    }
    for drop in health["drops"].as_array().into_iter().flatten() {
        let count = format_count(drop["count"].as_u64().unwrap_or(0));
        outln!("dropped by {}: {count} ({})", text(&drop["by"]), text(&drop["reason"]));
    }
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

fn time_of(instant: &Value) -> String {
    let ms = instant["ms"].as_i64().unwrap_or_default();
    civil_time::plain(ms.saturating_mul(1_000_000))
}

fn print_event(event: &Value) {
    let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
    let ms = |name: &str| event[name]["ms"].as_i64();
    let begin = ms("begin").unwrap_or_default();
    let lasted = match ms("end") {
        None => ", goes on".to_owned(),
        Some(end) if end > begin => {
            format!(", {} long", format_duration((end - begin).saturating_mul(1_000_000)))
        }
        Some(_) => String::new(),
    };
    outln!("{}{lasted}: {} ({})", time_of(&event["begin"]), text("title"), text("grade"));
}

const STATUS_HELP: &str = "\
Example:
  sudo sonde status
  sonde status --socket /run/sonde/api.sock --json
The socket is that of the configuration ([api] socket), else the path of the store with .sock behind.
Exit codes: 0 all units work and nothing is dropped, 1 a unit does not work or something is dropped,
2 usage, 3 no station answers.";

const EVENTS_HELP: &str = "\
Example:
  sudo sonde events --last 7d --grade warning
  sudo sonde events --open --json
Exit codes: 0 answered, 2 usage, 3 no station answers.";

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
    fn a_station_that_is_away_is_code_3() {
        let station = StationSocket { socket: "/nonexistent/s".into() };
        let away = status(&StatusArgs { station, json: true }).unwrap_err();
        assert!(matches!(&away, Failure::CannotRun(_)), "{away:?}");
        let text = away.message();
        assert!(text.contains("/nonexistent/s") && text.matches("os error").count() == 1, "{text}");
    }
}
