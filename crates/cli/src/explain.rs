//! `sonde explain`: what changed most at the time of an event.

use anyhow::anyhow;
use clap::Args;
use serde_json::Value;
use sonde_results::civil_time;
use sonde_results::units::{SECOND, format_count, format_elapsed, format_ns, format_percent};
use sonde_station::client::{ClientError, StationClient};

use crate::exit::{Exit, Failure};
use crate::output::style::{Style, Tone, terminal_size};
use crate::output::text_table::{TextColumn, TextTable};
use crate::status::{StationSocket, clean};

#[derive(Args, Debug)]
#[command(after_help = EXPLAIN_HELP)]
pub struct ExplainArgs {
    /// The event's number, as 'sonde events' shows it
    #[arg(value_name = "EVENT", value_parser = clap::value_parser!(u64).range(1..))]
    pub event: u64,
    #[command(flatten)]
    pub station: StationSocket,
    /// Print all of it as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Asks what explains an event.
pub fn run(args: &ExplainArgs) -> Result<Exit, Failure> {
    let mut found = explanation(&args.station.client(), &args.event.to_string()).map_err(failed)?;
    match args.json {
        true => outln!("{found:#}"),
        false => {
            clean(&mut found);
            lines(&found).iter().for_each(|line| outln!("{line}"));
        }
    }
    Ok(if found["grade"] == "none" { Exit::Undecided } else { Exit::Ok })
}

/// What explains the first event since then (ms since 1970 UTC) that is a breach of an objective, as
/// lines; `None`: there is none.
pub(crate) fn first_breach(
    client: &StationClient,
    since_ms: i64,
) -> Result<Option<Vec<String>>, ClientError> {
    let events = client.list("/sonde/v1/events", "kind=breach", EVENTS)?;
    let is_later = |event: &&Value| event["begin"]["ms"].as_i64().is_some_and(|ms| ms >= since_ms);
    let first = events.iter().rfind(is_later).and_then(|event| event["id"].as_str());
    let Some(id) = first else { return Ok(None) };
    explanation(client, id).map(|mut found| {
        clean(&mut found);
        Some(lines(&found))
    })
}

fn explanation(client: &StationClient, id: &str) -> Result<Value, ClientError> {
    client.get(&format!("/sonde/v1/events/{id}/explanation"))
}

fn failed(error: ClientError) -> Failure {
    let text = anyhow!("{error}");
    match error {
        // There is no such event, or it is none that has an explanation: so on every host.
        ClientError::Refused { status: 404 | 422, .. } => Failure::Usage(text),
        _ => Failure::CannotRun(text),
    }
}

fn lines(found: &Value) -> Vec<String> {
    let list = |name: &str| found[name].as_array().map_or(&[][..], Vec::as_slice);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ms = |name: &str| found[name]["ms"].as_i64().unwrap_or_default();
    let mut lines: Vec<String> = list("text").iter().map(text).collect();
    let span = |from: &str, to: &str| match (ms(to) - ms(from)).max(0).saturating_mul(1_000_000) {
        short @ 0..MINUTE => format_ns(short as f64),
        long => format_elapsed(long),
    };
    lines.push(format!(
        "From {} for {}, held against {} windows in the {} before; {} series; {}.",
        civil_time::plain(ms("onset").saturating_mul(1_000_000)),
        span("onset", "to"),
        count(&found["baseline_windows"]),
        span("baseline_from", "baseline_to"),
        count(&found["series"]),
        reliance(&found["grade"])
    ));
    let rows: Vec<(&str, &Value)> = list("candidates")
        .iter()
        .map(|row| ("", row))
        .chain(list("next").iter().map(|row| ("or ", row)))
        .collect();
    if rows.is_empty() {
        return lines;
    }
    let column = |head, rank, cell: &dyn Fn(&Value) -> String| TextColumn {
        head,
        rank,
        left: false,
        cells: rows.iter().map(|(_, row)| cell(row)).collect(),
    };
    let names = rows.iter().map(|(or, row)| {
        let names = row["names"].as_array().map_or(&[][..], Vec::as_slice);
        let first = names.iter().take(NAMES).map(text).collect::<Vec<_>>().join(", ");
        let more = names.len().saturating_sub(NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{or}{first}{more}")
    });
    let table = TextTable::new([
        TextColumn { head: "what", rank: 0, left: true, cells: names.collect() },
        column("kind", 1, &|row| {
            row["kind"].as_str().map_or("-".into(), |kind| kind.replace('_', " "))
        }),
        column("covers", 0, &|row| share(&row["coverage"])),
        column("affected", 2, &|row| share(&row["purity"])),
        column("bad there", 0, &|row| share(&row["inside_ratio"])),
        column("elsewhere", 1, &|row| match row["outside_n"].as_u64() {
            Some(0) | None => "-".into(),
            Some(_) => share(&row["outside_ratio"]),
        }),
        column("before", 1, &|row| share(&row["before_ratio"])),
        column("n", 3, &|row| count(&row["inside_n"])),
        column("way", 2, &|row| row["direction"].as_str().unwrap_or("-").to_owned()),
    ]);
    let (width, style) = (terminal_size().0, Style::for_stdout());
    lines.extend(table.lines(width, style, |_, _| Tone::Plain));
    lines
}

fn reliance(grade: &Value) -> &'static str {
    match grade.as_str() {
        Some("strong") => "a strong answer",
        Some("leaning") => "no more than what fits best",
        Some("cannot_judge") => "the network is not judged",
        _ => "nothing explains it",
    }
}

fn count(value: &Value) -> String {
    format_count(value.as_u64().unwrap_or(0))
}

fn share(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".into(), format_percent)
}

/// Names of one set that a table shows.
const NAMES: usize = 3;

/// What is shorter has a fraction of seconds.
const MINUTE: i64 = 60 * SECOND;
/// Events that are looked at.
const EVENTS: usize = 1_000;

const EXPLAIN_HELP: &str = "\
Example:
  sonde events --last 1h
  sonde explain 12
  sonde explain 12 --json
It ranks what changed and proves no cause; docs/explain.md says what it can and cannot see.
Exit codes: 0 something explains it, 2 usage, no such event or none that has an explanation,
3 no station answers, 5 nothing explains it.";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_explanation_is_sentences_and_a_table() {
        let at = |ms: i64| json!({"ms": ms});
        let row = |name: &str, purity: Value| {
            json!({
                "names": [name, "x", "y", "z"], "kind": "bad_member", "coverage": 0.98,
                "purity": purity, "inside_ratio": 0.2, "inside_n": 1_000, "outside_ratio": 0.001,
                "outside_n": 3_000, "before_ratio": 0.0, "direction": "forward",
            })
        };
        let found = json!({
            "grade": "strong", "text": ["Path member a explains it."],
            "onset": at(1_000), "to": at(3_000), "baseline_from": at(-20_000),
            "baseline_to": at(1_000), "baseline_windows": 10, "series": 4,
            "candidates": [row("path member a", json!(1.0))],
            "next": [row("target muc", Value::Null)],
        });
        let lines = lines(&found);
        assert_eq!(lines[0], "Path member a explains it.");
        assert!(
            lines[1].contains("for 2.00 s, held against 10 windows in the 21.0 s before"),
            "{lines:?}"
        );
        assert!(lines[1].ends_with("4 series; a strong answer."), "{lines:?}");
        assert!(lines[3].contains("path member a, x, y and 1 more"), "{lines:?}");
        assert!(lines[3].contains("bad member") && lines[3].contains("98%"), "{lines:?}");
        assert!(lines[4].contains("or target muc"), "{lines:?}");
        assert_eq!(share(&json!(0.0012)), "0.12%");
    }

    #[test]
    fn an_event_that_has_no_explanation_is_wrong_usage() {
        let refused = |status| {
            let why = "why".to_owned();
            matches!(failed(ClientError::Refused { status, why }), Failure::Usage(_))
        };
        assert!(refused(404) && refused(422) && !refused(503));
    }
}
