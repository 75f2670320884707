//! `sonde gen flows`: traffic with known flows, and the truth about it.

pub mod args;

use anyhow::Context as _;
use sonde_results::units::{format_count, format_share};
use sonde_run::error::RunError;
use sonde_run::traffic::{self, TrafficReport};

use self::args::{GenArgs, GenCommand};
use crate::exit::{Exit, Failure};
use crate::signals;

/// Makes what was asked for, until it is done or Ctrl-C.
pub fn run(args: &GenArgs) -> Result<Exit, Failure> {
    let GenCommand::Flows(args) = &args.command;
    let settings = args.settings();
    let json = args.json.then_some("-");
    settings.files().writes("json", json).check().map_err(RunError::from)?;
    let files = [&settings.out, &settings.truth];
    let to_stderr = files.into_iter().flatten().any(|path| path.as_os_str() == "-");
    let context = signals::context()?;
    let (made, ended) = traffic::start(settings, &context)?.last();
    if let Some(made) = &made {
        match args.json {
            true => outln!("{}", serde_json::to_string(made).context("the summary as JSON")?),
            false if to_stderr => errln!(INFO, "{}", summary(made)),
            false => outln!("{}", summary(made)),
        }
    }
    match ended.failure {
        None => {
            let made = made.context("nothing is known of what was made")?;
            Ok(if made.interrupted && made.packets == 0 { Exit::Interrupted } else { Exit::Ok })
        }
        Some(error) => Err(error.into()),
    }
}

fn summary(made: &TrafficReport) -> String {
    let rate = if made.seconds > 0.0 { made.packets as f64 / made.seconds } else { 0.0 };
    let mut text = format!(
        "{} packets of {} flows, {} bytes, in {:.3} s: {} packets/s",
        format_count(made.packets),
        format_count(made.flows),
        format_count(made.bytes),
        made.seconds,
        format_count(rate.round() as u64),
    );
    if let Some(drops) = made.own_drops {
        text += &format!(
            "\nown drops {} ({}); at most {:.3} ms behind the schedule",
            format_count(drops),
            format_share(drops, made.packets),
            made.behind_s.unwrap_or_default() * 1e3,
        );
        let TrafficReport { too_long, filtered, .. } = *made;
        if too_long > 0 {
            text += &format!(
                "\n{} of them were longer than the interface takes: choose a smaller --size.",
                format_count(too_long)
            );
        }
        if filtered > 0 {
            text += &format!(
                "\n{} of them were refused by this host's packet filter ('nft list ruleset').",
                format_count(filtered)
            );
        }
        if drops > too_long + filtered {
            text += "\nThe truth has the dropped frames too: repeat, perhaps at a lower --rate.";
        } else if drops > 0 {
            text += "\nThe truth has the dropped frames too: repeat without them.";
        }
    }
    if made.unread {
        text += "\nThe reader left before the end: these packets were written, and no others are in \
                 the truth.";
    }
    if made.interrupted {
        text += "\nInterrupted: the traffic is shorter than it was asked for.";
    }
    text
}
