//! `sonde rtt`: asks for round-trip times of other people's traffic, shows and saves them.

pub mod args;
mod print;
mod table;
mod view;

use std::io::{IsTerminal as _, stdout};
use std::time::Duration;

use sonde_results::rtt::RttGroup;
use sonde_run::error::RunError;
use sonde_run::rtt::{self, Event, Losses, RttInterval, coverage, slowest_first};
use sonde_run::running::Next;
use sonde_run::sources::{Source, source};

use self::args::{Prints, RttArgs};
use self::print::Printing;
use self::view::RttSnapshot;
use crate::console;
use crate::exit::{Exit, Failure};
use crate::output::live::InPlace;
use crate::output::run_file;
use crate::output::style::{Style, terminal_size};
use crate::signals;

/// Runs until the file ends, the time is over, or Ctrl-C.
pub fn run(args: &RttArgs) -> Result<Exit, Failure> {
    let mut prints = Prints::new(&args.output, stdout().is_terminal()).map_err(Failure::Usage)?;
    let settings = args.settings(&prints);
    settings.files().writes("out", &args.output.out).check().map_err(RunError::from)?;
    console::check_input(&args.sources)?;
    let _claim = run_file::claim(args.output.out.as_deref())?;
    // A capture is over in a moment.
    let on_interfaces = matches!(source(&args.sources)?, Source::Interfaces(_));
    prints.live &= on_interfaces;
    let context = signals::confined_context(args.output.out.clone().into_iter().collect())?;
    let mut screen = prints.live.then(Screen::begin);
    let (about, watching) = rtt::start(args.settings(&prints), &context)?;
    let start_ns = about.run.header.start_ns;
    let mut printing = Printing::new(about, prints, args.output.out.clone());
    if let Some(screen) = &mut screen {
        screen.say("measuring");
        screen.start_ns = start_ns;
    } else if on_interfaces {
        // The kernel has taken a second or more to check the programs.
        sonde_errln!(INFO, "measuring on {}", args.sources.join(", "));
    }
    loop {
        match watching.records.next(LOOK_AROUND) {
            Next::Record(events) => {
                for event in &events {
                    printing.add(event);
                    if let (Some(shown), Event::Interval(interval)) = (&mut screen, event)
                        && (shown.refresh(&printing, interval).is_err()
                            || console::reader_has_gone())
                    {
                        // Nobody looks any more; the measurement and its file go on.
                        screen = None;
                    }
                }
            }
            Next::Nothing => {}
            Next::End => break,
        }
        printing.flush();
        if printing.is_in_vain() {
            watching.stop();
        }
    }
    let mut ended = watching.join();
    let failure = ended.failure.take();
    let exit = printing.finish(&ended, context.stop.is_asked());
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(exit),
    }
}

struct Screen {
    redraw: InPlace,
    /// Of the flows that were open at the last look.
    losses: Losses,
    start_ns: i64,
    /// Packets and samples up to the last interval.
    seen: (u64, u64),
}

impl Screen {
    /// The kernel takes seconds to check the programs: say so.
    fn begin() -> Screen {
        let (redraw, losses) = (InPlace::default(), Losses::default());
        let mut screen = Screen { redraw, losses, start_ns: 0, seen: (0, 0) };
        screen.say("loading");
        screen
    }

    /// What goes on before there is a table.
    fn say(&mut self, what: &str) {
        // If nobody looks, the first table finds out.
        let _ = self.redraw.draw(&mut console::out(), &[format!("sonde rtt  {what}")]);
    }

    fn refresh(&mut self, printing: &Printing, interval: &RttInterval) -> std::io::Result<()> {
        let mut groups: Vec<RttGroup> = interval.groups.clone();
        slowest_first(&mut groups);
        if let Some(losses) = &interval.losses {
            self.losses.clone_from(losses);
        }
        let so_far = &interval.coverage;
        let total = (coverage::count(so_far, "packets"), coverage::samples(so_far));
        let latest = (total.0 - self.seen.0, total.1 - self.seen.1);
        self.seen = total;
        let run = printing.collected.run();
        let snapshot = RttSnapshot {
            elapsed_ns: interval.end_ns - self.start_ns,
            interval_ns: interval.end_ns - interval.start_ns,
            points: &run.points,
            group_by: &run.config.group_by,
            groups: &groups,
            losses: &self.losses,
            coverage: so_far,
            latest,
            caveats: run.caveats,
        };
        let (width, height) = terminal_size();
        let lines = view::live(&snapshot, width, height, Style::for_stdout());
        self.redraw.draw(&mut console::out(), &lines)
    }
}

/// Between two looks at whether somebody still reads.
const LOOK_AROUND: Duration = Duration::from_millis(100);
