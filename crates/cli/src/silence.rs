//! `sonde silence`: who does not want to hear of alerts for a time, and announced work.

use anyhow::anyhow;
use clap::{ArgGroup, Args, Subcommand};
use serde_json::{Value, json};
use sonde_results::civil_time;
use sonde_results::units::parse_positive_duration;
use sonde_station::client::ClientError;
use sonde_sys::clock::unix_now_ns;

use crate::exit::{Exit, Failure};
use crate::output::style::{Style, Tone, terminal_size};
use crate::output::text_table::{TextColumn, TextTable};
use crate::query::label;
use crate::status::{StationSocket, print_silence, text_of, time_of};

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct SilenceArgs {
    #[command(subcommand)]
    pub command: SilenceCommand,
}

/// What is done.
#[derive(Subcommand, Debug)]
pub enum SilenceCommand {
    /// Hold alerts back for a time
    Add(AddArgs),
    /// List silences and maintenance
    List(ListArgs),
    /// End silences or maintenance now
    End(EndArgs),
}

#[derive(Args, Debug)]
#[command(after_help = ADD_HELP, group = ArgGroup::new("end").args(["lasting", "to"]).required(true))]
pub struct AddArgs {
    /// Alerts with these labels; '*' stands for any characters, '!' before a pattern for all else
    #[arg(value_name = "LABEL=PATTERN", required = true, value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// What to call it on charts and reports
    #[arg(long, value_name = "TEXT")]
    pub name: String,
    /// How long
    #[arg(long = "for", value_name = "TIME", value_parser = parse_positive_duration)]
    pub lasting: Option<i64>,
    /// Until when, as 2026-12-01T06:00:00Z
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub to: Option<i64>,
    /// From when on, as 2026-12-01T04:00:00Z [default: now]
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub from: Option<i64>,
    /// Announced work: its time is left out of objectives, too; it is entered before it begins
    #[arg(long)]
    pub maintenance: bool,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub note: String,
    #[command(flatten)]
    pub station: StationSocket,
    /// Print it as a JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = LIST_HELP)]
pub struct ListArgs {
    /// Also those that have ended
    #[arg(long)]
    pub ended: bool,
    #[command(flatten)]
    pub station: StationSocket,
    /// Print each as a JSON object in a line of its own
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = END_HELP)]
pub struct EndArgs {
    /// As 'sonde silence list' shows them
    #[arg(value_name = "ID", required = true)]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub station: StationSocket,
}

/// Does what is asked of silences.
pub fn run(args: &SilenceArgs) -> Result<Exit, Failure> {
    match &args.command {
        SilenceCommand::Add(args) => add(args),
        SilenceCommand::List(args) => list(args),
        SilenceCommand::End(args) => end(args),
    }
}

fn add(args: &AddArgs) -> Result<Exit, Failure> {
    let order = order(args, unix_now_ns());
    let made = args.station.client().post(SILENCES, &order.to_string()).map_err(failed)?;
    match args.json {
        true => outln!("{made}"),
        false => print_silence(&made),
    }
    Ok(Exit::Ok)
}

/// The order as the API takes it.
fn order(args: &AddArgs, now_ns: i64) -> Value {
    let ms = |ns: i64| ns.div_euclid(1_000_000);
    let begin = args.from.unwrap_or(now_ns);
    let lasting = args.lasting.map(|length| begin.saturating_add(length));
    let mut order = json!({
        "name": args.name,
        "kind": if args.maintenance { "maintenance" } else { "silence" },
        "labels": args.labels.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        "to": ms(args.to.or(lasting).unwrap_or(now_ns)),
        "note": args.note,
    });
    if let Some(from) = args.from {
        order["from"] = ms(from).into();
    }
    order
}

fn list(args: &ListArgs) -> Result<Exit, Failure> {
    let query = if args.ended { "ended=true" } else { "" };
    let all = args.station.client().list(SILENCES, query, usize::MAX).map_err(failed)?;
    if args.json {
        all.iter().for_each(|silence| outln!("{silence}"));
        return Ok(Exit::Ok);
    }
    if all.is_empty() {
        errln!(INFO, "there is neither a silence nor maintenance");
        return Ok(Exit::Ok);
    }
    let (width, style) = (terminal_size().0, Style::for_stdout());
    table(&all).lines(width, style, |_, _| Tone::Plain).iter().for_each(|line| outln!("{line}"));
    Ok(Exit::Ok)
}

fn table(all: &[Value]) -> TextTable {
    let column = |head, rank, cell: &dyn Fn(&Value) -> String| TextColumn {
        head,
        rank,
        left: true,
        cells: all.iter().map(cell).collect(),
    };
    let labels = |silence: &Value| {
        let labels = silence["labels"].as_object().into_iter().flatten();
        labels.map(|(n, v)| format!("{n}={}", text_of(v))).collect::<Vec<_>>().join(" ")
    };
    TextTable::new([
        column("id", 0, &|silence| text_of(&silence["id"])),
        column("kind", 1, &|silence| text_of(&silence["kind"])),
        column("name", 0, &|silence| text_of(&silence["name"])),
        column("labels", 0, &labels),
        column("from", 2, &|silence| time_of(&silence["from"])),
        column("to", 0, &|silence| time_of(&silence["to"])),
        column("by", 3, &|silence| text_of(&silence["by"])),
        column("note", 4, &|silence| text_of(&silence["note"])),
    ])
}

fn end(args: &EndArgs) -> Result<Exit, Failure> {
    let client = args.station.client();
    for id in &args.ids {
        client.delete(&format!("{SILENCES}/{}", encoded(id))).map_err(failed)?;
        outln!("ended {id}");
    }
    Ok(Exit::Ok)
}

/// A segment of a path (RFC 3986, section 2.1).
fn encoded(text: &str) -> String {
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-._~".contains(&octet);
    text.bytes()
        .map(|octet| match plain(octet) {
            true => char::from(octet).to_string(),
            false => format!("%{octet:02X}"),
        })
        .collect()
}

fn failed(error: ClientError) -> Failure {
    let text = anyhow!("{error}");
    match error {
        // There is no such silence, or it cannot be so: the same at every try.
        ClientError::Refused { status: 400 | 404 | 409 | 422, .. } => Failure::Usage(text),
        _ => Failure::CannotRun(text),
    }
}

fn instant(text: &str) -> Result<i64, String> {
    let wrong = || "write a date and time with a zone, as 2026-12-01T06:00:00Z".to_owned();
    civil_time::parse_rfc3339(text).ok_or_else(wrong)
}

const SILENCES: &str = "/sonde/v1/silences";

const HELP: &str = "\
Example:
  sudo sonde silence add target='muc*' --name 'new cable' --for 2h
  sudo sonde silence list
  sudo sonde silence end 0f3a8c5d11e2b790
Labels are those of alerts: station, target, class, unit, objective, alertname, severity.
Exit codes: 0 done, 2 usage, no such silence or one that cannot be, 3 no station answers.";

const ADD_HELP: &str = "\
Example:
  sudo sonde silence add target='muc*' --name 'new cable' --for 2h --note 'ticket 4711'
  sudo sonde silence add class=BE severity='!critical' --name 'tests' --for 30m
  sudo sonde silence add --maintenance unit=probe.core --name 'router update' \\
    --from 2026-12-01T04:00:00Z --to 2026-12-01T06:00:00Z
What was told stays told, and the end of an alert is told all the same. A silence needs [alert] in the
station's configuration; maintenance does not.";

const LIST_HELP: &str = "\
Example:
  sudo sonde silence list --ended --json";

const END_HELP: &str = "\
Example:
  sudo sonde silence end 0f3a8c5d11e2b790
One that stands in the configuration ends there, and by a reload.";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn parsed(arguments: &[&str]) -> Result<AddArgs, String> {
        let all = ["sonde", "silence", "add"].iter().chain(arguments);
        match crate::args::Cli::try_parse_from(all).map_err(|e| e.to_string())?.command {
            crate::args::Command::Silence(SilenceArgs { command: SilenceCommand::Add(args) }) => {
                Ok(args)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_order_has_labels_and_an_end() {
        let now_ns = 1_000_000_000_000;
        let args = parsed(&["target=muc*", "class=EF", "--name", "x", "--for", "2m"]).unwrap();
        let made = order(&args, now_ns);
        assert_eq!(made["labels"], json!({"target": "muc*", "class": "EF"}));
        assert_eq!((&made["to"], &made["from"]), (&1_120_000.into(), &Value::Null));
        assert_eq!(made["kind"], "silence");
        let later = ["a=b", "--name", "x", "--maintenance", "--from", "2026-12-01T04:00:00Z"];
        let made = order(&parsed(&[&later[..], &["--for", "1h"]].concat()).unwrap(), now_ns);
        let (from, to) = (made["from"].as_i64().unwrap(), made["to"].as_i64().unwrap());
        assert_eq!((to - from, &made["kind"]), (3_600_000, &"maintenance".into()));
        assert_eq!(from, 1_796_097_600_000);
    }

    #[test]
    fn without_an_end_or_a_label_there_is_no_silence() {
        assert!(parsed(&["a=b", "--name", "x"]).unwrap_err().contains("--for"));
        assert!(parsed(&["--name", "x", "--for", "1h"]).unwrap_err().contains("LABEL=PATTERN"));
        let both = ["a=b", "--name", "x", "--for", "1h", "--to", "2026-12-01T04:00:00Z"];
        assert!(parsed(&both).is_err());
        assert!(parsed(&["a=b", "--name", "x", "--to", "noon"]).unwrap_err().contains("zone"));
        assert_eq!(encoded("maintenance.night work"), "maintenance.night%20work");
    }

    #[test]
    fn what_cannot_be_is_wrong_usage() {
        let refused = |status| {
            let why = "why".to_owned();
            matches!(failed(ClientError::Refused { status, why }), Failure::Usage(_))
        };
        assert!(refused(404) && refused(409) && refused(422) && !refused(501) && !refused(503));
    }
}
