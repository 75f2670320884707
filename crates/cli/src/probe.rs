//! `sonde probe`: sends, collects, shows, saves.

use std::io::{IsTerminal as _, Write as _, stdout};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sonde_meter::stamp::{Fate, Sample};
use sonde_port::clock::{ClockState, tai_now};
use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::record::LossSide;
use sonde_results::run::{Health, RunConfig, SCHEMA_VERSION};
use sonde_results::{Interval, Run, StreamInfo, ToUtc as _};

use crate::args::ProbeArgs;
use crate::config::{TargetEntry, TargetsFile};
use crate::doctor;
use crate::exit::{Exit, Failure};
use crate::output::live::{self, InPlace, Snapshot};
use crate::output::ping_line::{self, Outcome, PacketEvent};
use crate::output::style::{Style, terminal_size};
use crate::output::{run_file, summary};
use crate::records::Writers;
use crate::session::{Event, Progress, Session};
use crate::settings::{RunOptions, RunSettings, StreamOptions};
use crate::signals::Signals;
use crate::targets::{self, Family, Target};

/// Runs until everything is sent, the time is over, or Ctrl-C.
pub fn run(args: &ProbeArgs) -> Result<Exit, Failure> {
    let (targets, run) = what(args).map_err(Failure::Usage)?;
    let signals = Signals::catch()?;
    let to_terminal = stdout().is_terminal();
    let streams: usize =
        targets.iter().map(|t| t.settings.dscp.len() * usize::from(t.settings.flows)).sum();
    let quiet = args.output.quiet || args.output.json;
    let per_packet = !quiet && args.output.per_packet.unwrap_or(streams == 1 && to_terminal);
    let mut session = Session::open(&targets, &run, &args.engine, per_packet)?;
    let mut collected = Collected::new(args, &run, &session)?;
    let mut screen = Screen {
        show: if quiet {
            Show::Nothing
        } else if per_packet {
            Show::Packets
        } else if to_terminal {
            Show::Table
        } else {
            Show::Lines
        },
        place: InPlace::default(),
        next_ns: 0,
    };
    if screen.show != Show::Nothing {
        screen.begin(&collected, &run);
    }
    let mut interrupts = 0;
    while !session.is_finished() {
        let progress = session.poll(&mut |event| collected.take(event, &screen));
        collected.write_records();
        let elapsed = tai_now() - session.start;
        if screen.refresh(&session, &collected, progress, elapsed, &run).is_err() {
            // Nobody looks any more; the measurement and its files go on.
            screen.show = Show::Nothing;
        }
        if signals.wait(Duration::from_millis(if per_packet { 5 } else { 20 })) {
            interrupts += 1;
            session.stop();
            if interrupts > 1 {
                break;
            }
        }
    }
    let (clock, start) = (session.clock(), session.start);
    let ended = session.close(&mut |event| collected.take(event, &screen));
    collected.write_records();
    let failure = ended.failure;
    let finished =
        collected.finish(args, &run, start.as_nanos(), clock, ended.health, ended.caveats);
    let exit = report(args, &finished)?;
    match failure {
        Some(error) => Err(Failure::CannotRun(error)),
        None if interrupts > 0 && finished.run.overall.counters.sent == 0 => Ok(Exit::Interrupted),
        None => Ok(exit),
    }
}

/// The targets and settings that command line and file ask for.
fn what(args: &ProbeArgs) -> Result<(Vec<Target>, RunSettings)> {
    let file = match &args.targets {
        Some(path) => TargetsFile::read(path)?,
        None => TargetsFile {
            stream: StreamOptions::default(),
            run: RunOptions::default(),
            targets: Vec::new(),
        },
    };
    let mut entries = file.targets;
    entries.extend(args.hosts.iter().map(|host| TargetEntry {
        host: host.clone(),
        name: None,
        first: None,
        stream: StreamOptions::default(),
        at: String::new(),
    }));
    let family = match (args.ipv4, args.ipv6) {
        (true, _) => Family::V4,
        (_, true) => Family::V6,
        _ => Family::Any,
    };
    let defaults = args.stream.clone().or(&file.stream);
    let run = args.run.clone().or(&file.run).resolve();
    Ok((targets::expand(&entries, &defaults, family)?, run))
}

/// Everything measured so far.
struct Collected {
    infos: Vec<StreamInfo>,
    engine: String,
    timeout: i64,
    clock_synchronised: bool,
    latest: Vec<Interval>,
    /// Place of a stream in `latest`, or none.
    place: Vec<u32>,
    totals: Vec<Interval>,
    writers: Writers,
    notices: Vec<String>,
}

/// A run, and whether all of it could be saved.
struct Finished {
    run: Run,
    unsaved: Vec<String>,
}

impl Collected {
    fn new(args: &ProbeArgs, run: &RunSettings, session: &Session) -> Result<Self, Failure> {
        let caps = &session.caps[0];
        let engine = format!("{} ({})", caps.engine, caps.mode);
        let empty = empty_run(run, session.start.as_nanos(), session.clock(), &engine);
        let writers =
            Writers::open(&args.output, &empty, &session.infos).map_err(Failure::Usage)?;
        Ok(Collected {
            engine,
            timeout: run.timeout,
            clock_synchronised: session.clock().synchronised,
            latest: Vec::new(),
            place: vec![u32::MAX; session.infos.len()],
            totals: (0..session.infos.len() as u32).map(Interval::empty).collect(),
            infos: session.infos.clone(),
            writers,
            notices: Vec::new(),
        })
    }

    fn take(&mut self, event: Event<'_>, screen: &Screen) {
        match event {
            Event::Record(record) => {
                self.totals[record.stream as usize].merge(record);
                self.writers.push(record);
                if matches!(screen.show, Show::Table | Show::Lines) {
                    let place = &mut self.place[record.stream as usize];
                    match self.latest.get_mut(*place as usize) {
                        Some(latest) => latest.clone_from(record),
                        None => {
                            *place = self.latest.len() as u32;
                            self.latest.push(record.clone());
                        }
                    }
                }
            }
            Event::Sample(sample) if screen.show == Show::Packets => self.print(&sample),
            Event::Sample(_) => {}
            Event::Notice(text) => self.notices.push(text),
        }
    }

    fn print(&self, sample: &Sample) {
        let info = &self.infos[sample.stream as usize];
        let outcome = match sample.fate {
            Fate::Lost => Outcome::Lost { timeout: self.timeout },
            Fate::Reply { t2, t3, t4, ttl, length, duplicate, peer_synchronised, .. } => {
                Outcome::Reply {
                    length: length + headers(info.destination),
                    rtt: t4.at - sample.t1.at,
                    dwell: t3 - t2,
                    one_way: (peer_synchronised && self.clock_synchronised)
                        .then(|| (t2 - sample.t1.at, t4.at - t3)),
                    ttl: Some(ttl),
                    duplicate,
                }
            }
        };
        let event = PacketEvent {
            destination: info.destination,
            dscp: info.dscp,
            seq: sample.seq,
            outcome,
        };
        // A closed pipe ends with the run's own summary; nothing is to be done here.
        let _ = writeln!(stdout(), "{}", ping_line::format(&event));
    }

    fn write_records(&mut self) {
        self.writers.flush();
        self.notices.extend(self.writers.take_reports());
        for notice in self.notices.drain(..) {
            eprintln!("{notice}");
        }
    }

    fn finish(
        self,
        args: &ProbeArgs,
        run: &RunSettings,
        start_ns: i64,
        clock: ClockState,
        health: Health,
        mut caveats: CaveatSet,
    ) -> Finished {
        let mut overall = Interval::empty(0);
        for total in &self.totals {
            overall.merge(total);
        }
        let sideless = |t: &Interval| t.counters.lost > 0 && t.loss_side == LossSide::Unknown;
        if self.totals.iter().any(sideless) {
            overall.loss_side = LossSide::Unknown;
            overall.caveats.insert(Caveat::LossSideUnknown);
        }
        let mut unsaved = self.writers.finish();
        if !unsaved.is_empty() {
            caveats.insert(Caveat::RecordsLost);
        }
        let mut run = Run {
            streams: self.infos,
            totals: self.totals,
            overall,
            health,
            caveats,
            ..empty_run(run, start_ns, clock, &self.engine)
        };
        run.header.end_ns = tai_now().as_nanos();
        run.turn_to_utc(run.header.tai_offset_ns());
        run.caveats.merge(run.overall.caveats);
        if let Some(path) = &args.output.out
            && let Err(error) = run_file::save(path, &run)
        {
            unsaved.push(format!("{}: {error}", path.display()));
        }
        Finished { run, unsaved }
    }
}

/// Prints the summary, and says how it went.
fn report(args: &ProbeArgs, finished: &Finished) -> Result<Exit> {
    let run = &finished.run;
    let mut out = stdout().lock();
    if args.output.json {
        run_file::write(&mut out, run).context("cannot print the run")?;
    } else {
        let (width, _) = terminal_size();
        let printed = summary::write(&mut out, run, width, Style::for_stdout());
        match printed {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                return Err(e).context("cannot print the summary");
            }
            _ => {}
        }
    }
    for what in &finished.unsaved {
        eprintln!("not saved: {what}");
    }
    // Also a stream that nothing could be sent on, for want of a next hop, had no reply.
    let unanswered =
        run.totals.iter().map(|t| &t.counters).any(|c| c.sent + c.skipped > 0 && c.received == 0);
    Ok(match (finished.unsaved.is_empty(), unanswered) {
        (false, _) => Exit::NotSaved,
        (true, true) => Exit::NoReply,
        (true, false) => Exit::Ok,
    })
}

/// What is on the screen meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Show {
    Nothing,
    Packets,
    Table,
    Lines,
}

struct Screen {
    show: Show,
    place: InPlace,
    next_ns: i64,
}

impl Screen {
    fn begin(&self, collected: &Collected, run: &RunSettings) {
        let n = collected.infos.len();
        let first = &collected.infos[0];
        let what = if n == 1 { first.destination.to_string() } else { format!("{n} streams") };
        println!(
            "SONDE {what}: {} bytes of IP every {}, timeout {}, {}",
            first.ip_length,
            crate::units::format_ns(first.period_ns as f64),
            crate::units::format_ns(run.timeout as f64),
            collected.engine
        );
    }

    fn refresh(
        &mut self,
        session: &Session,
        collected: &Collected,
        progress: Progress,
        elapsed_ns: i64,
        run: &RunSettings,
    ) -> std::io::Result<()> {
        let every = match self.show {
            Show::Table => 1_000_000_000,
            Show::Lines => run.record_interval,
            Show::Packets | Show::Nothing => return Ok(()),
        };
        if elapsed_ns < self.next_ns || (self.show == Show::Lines && collected.latest.is_empty()) {
            return Ok(());
        }
        self.next_ns = elapsed_ns + every;
        let health = session.health();
        let mut total = sonde_results::Counters::default();
        let mut caveats = CaveatSet::default();
        for t in &collected.totals {
            total.merge(&t.counters);
            caveats.merge(t.caveats);
        }
        // What the records hold is settled; the display may be ahead of it.
        total.sent = progress.sent;
        total.received = progress.received;
        let snapshot = Snapshot {
            elapsed_ns,
            engine: &collected.engine,
            streams: &collected.infos,
            latest: &collected.latest,
            total,
            lateness: &health.send_lateness,
            pauses: &health.pauses,
            caveats,
        };
        let mut out = stdout().lock();
        if self.show == Show::Table {
            let (width, height) = terminal_size();
            let lines = live::table(&snapshot, width, height, Style::for_stdout());
            self.place.draw(&mut out, &lines)
        } else {
            writeln!(out, "{}", live::line(&snapshot))
        }
    }
}

fn empty_run(run: &RunSettings, start_ns: i64, clock: ClockState, engine: &str) -> Run {
    Run {
        header: doctor::run_header("probe", SCHEMA_VERSION, start_ns, &clock),
        config: RunConfig {
            command: std::env::args().collect(),
            engine: engine.into(),
            timeout_ns: run.timeout,
            interval_ns: run.record_interval,
            late_limit_ns: run.late_limit,
            seed: run.seed,
        },
        streams: Vec::new(),
        totals: Vec::new(),
        overall: Interval::empty(0),
        health: Health::default(),
        caveats: CaveatSet::default(),
    }
}

/// IP and UDP header, bytes.
fn headers(destination: SocketAddr) -> u16 {
    if destination.is_ipv4() { 28 } else { 48 }
}
