//! `sonde top`: a running station at a glance, for as long as somebody looks.

mod view;

use std::io::{IsTerminal as _, stdout};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use sonde_results::units::{SECOND, parse_positive_duration};
use sonde_run::running::Stop;
use sonde_station::client::{ClientError, StationClient, StationStream, StreamNews};
use sonde_sys::clock::steady_now;

use self::view::StationPicture;
use crate::console;
use crate::exit::{Exit, Failure};
use crate::output::live::InPlace;
use crate::output::style::{Style, terminal_size};
use crate::status::{StationSocket, failed};

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct TopArgs {
    #[command(flatten)]
    pub station: StationSocket,
    /// Print what there is now as one JSON object, and end
    #[arg(long)]
    pub json: bool,
    /// Between two looks at what the station does not tell by itself: queues, store, delays
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_positive_duration)]
    pub interval: i64,
    /// Rows of the table of targets are of so much time until now
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_positive_duration)]
    pub last: i64,
    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub duration: Option<i64>,
}

impl TopArgs {
    /// Of the station that answers on `socket`, as if nothing else were given.
    pub(crate) fn of(socket: &Path) -> TopArgs {
        TopArgs {
            station: StationSocket { socket: socket.to_owned() },
            json: false,
            interval: 2 * SECOND,
            last: 300 * SECOND,
            duration: None,
        }
    }
}

/// Shows a station until Ctrl-C.
pub fn run(args: &TopArgs) -> Result<Exit, Failure> {
    if args.json {
        let client = args.station.client().with_patience(PATIENCE);
        outln!("{:#}", look(&client, args).map_err(failed)?);
        return Ok(Exit::Ok);
    }
    show(args, &crate::signals::stop()?)
}

/// Shows a station until `stop` is asked for.
pub(crate) fn show(args: &TopArgs, stop: &Stop) -> Result<Exit, Failure> {
    let client = args.station.client().with_patience(PATIENCE);
    let (mut stream, now) = connect(&client, args).map_err(failed)?;
    let mut picture = StationPicture::new(now);
    let mut shown = match stdout().is_terminal() {
        true => Shown::Screen(InPlace::default()),
        false => Shown::Lines,
    };
    let end = args.duration.map(|ns| steady_now() + ns);
    let is_over = || {
        stop.is_asked() || console::reader_has_gone() || end.is_some_and(|end| steady_now() >= end)
    };
    shown.all(&picture);
    while let Err(lost) = follow(&client, &mut stream, args, &mut picture, &mut shown, &is_over) {
        picture.away(&lost.to_string());
        shown.all(&picture);
        while !is_over() {
            if let Ok((again, now)) = connect(&client, args) {
                stream = again;
                picture.back(now);
                shown.all(&picture);
                break;
            }
            stop.wait(AGAIN);
        }
    }
    Ok(Exit::Ok)
}

/// Follows the station first, and looks at it then: so nothing is missed in between.
fn connect(client: &StationClient, args: &TopArgs) -> Result<(StationStream, Value), ClientError> {
    let stream = client.follow(&TOPICS)?;
    Ok((stream, look(client, args)?))
}

/// Shows what comes until it is over.
fn follow(
    client: &StationClient,
    stream: &mut StationStream,
    args: &TopArgs,
    picture: &mut StationPicture,
    shown: &mut Shown,
    is_over: &dyn Fn() -> bool,
) -> Result<(), ClientError> {
    let mut due = steady_now() + args.interval;
    while !is_over() {
        if steady_now() >= due {
            let begun = steady_now();
            picture.look(look(client, args)?);
            shown.picture(picture);
            // A look at very many streams takes a tenth of the time at most.
            let now = steady_now();
            due = now + args.interval.max(10 * (now - begun));
        }
        let left = Duration::from_nanos((due - steady_now()).max(1).unsigned_abs());
        if let StreamNews::Event(topic, data) = stream.next(left.min(LOOK_AROUND))? {
            let lines = picture.take(&topic, &data);
            shown.news(picture, &lines);
        }
    }
    Ok(())
}

/// All that a station says of now.
fn look(client: &StationClient, args: &TopArgs) -> Result<Value, ClientError> {
    let seconds = (args.last / SECOND).max(1);
    let overview = format!(
        "/sonde/v1/overview?by=target,class&from=now-{seconds}s\
         &metrics=loss_ratio,sent,lost,p50,p99,errored_seconds&limit=100"
    );
    let events = client.list("/sonde/v1/events", "from=now-24h", EVENTS)?;
    let units = client.list("/sonde/v1/units", "", usize::MAX)?;
    Ok(json!({
        "station": client.get("/sonde/v1/station")?,
        "health": client.get("/sonde/v1/station/health")?,
        "units": units,
        "overview": client.get(&overview)?,
        "events": events,
    }))
}

/// Where it is shown.
enum Shown {
    /// On a terminal, each picture over the one before.
    Screen(InPlace),
    /// A line for each thing that changes.
    Lines,
}

impl Shown {
    /// The whole, once: where there is no terminal in a line, and one for each unit that does not
    /// work.
    fn all(&mut self, picture: &StationPicture) {
        if let Shown::Lines = self {
            outln!("{}", picture.line());
            picture.troubles().iter().for_each(|line| outln!("{line}"));
        }
        self.picture(picture);
    }

    fn picture(&mut self, picture: &StationPicture) {
        if let Shown::Screen(redraw) = self {
            let (width, height) = terminal_size();
            let lines = picture.lines(width, height, Style::for_stdout());
            // If nobody looks any more, the end is near.
            let _ = redraw.draw(&mut console::out(), &lines);
        }
    }

    fn news(&mut self, picture: &StationPicture, lines: &[String]) {
        match self {
            Shown::Lines => lines.iter().for_each(|line| outln!("{line}")),
            Shown::Screen(_) => self.picture(picture),
        }
    }
}

const TOPICS: [&str; 4] = ["state", "units", "events", "alerts"];
/// Events that are listed.
const EVENTS: usize = 50;
/// For a part of an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at whether it is over.
const LOOK_AROUND: Duration = Duration::from_millis(200);
/// Between two tries to reach a station that has gone.
const AGAIN: Duration = Duration::from_secs(1);

const HELP: &str = "\
Example:
  sudo sonde top
  sudo sonde top --json | jq .health.queues
On a terminal a picture that is drawn anew; else a line for each change. Ctrl-C ends it. A station
that goes away is waited for.
Exit codes: 0 it was shown, 2 usage, 3 no station answers at first.";
