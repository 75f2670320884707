//! `sonde probe`: sends, collects, shows, saves.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, stderr, stdout};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use sonde_meter::stamp::{Fate, Sample};
use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::record::LossSide;
use sonde_results::run::{Health, RunConfig, SCHEMA_VERSION};
use sonde_results::units::{SECOND, format_ns};
use sonde_results::{Interval, Run, StreamInfo, ToUtc as _};
use sonde_sys::clock::{ClockState, steady_now, tai_now};

use crate::args::ProbeArgs;
use crate::config::{TargetEntry, TargetsFile};
use crate::console;
use crate::exit::{Exit, Failure};
use crate::names;
use crate::output::live::{self, InPlace, Snapshot};
use crate::output::ping_line::{self, Outcome, PacketEvent};
use crate::output::run_file::SaveSoFar;
use crate::output::style::{Style, Tone, terminal_size};
use crate::output::{run_file, summary};
use crate::records::Writers;
use crate::session::{self, Event, Progress, Session};
use crate::settings::{RunOptions, RunSettings, StreamOptions};
use crate::signals::Signals;
use crate::targets::{self, Expanded, Family, Target};
use crate::unreachable::{self, Unreachable};
use sonde_run::header::run_header;

/// Runs until everything is sent, the time is over, or Ctrl-C.
pub fn run(args: &ProbeArgs) -> Result<Exit, Failure> {
    let (expanded, family, run) = what(args).map_err(Failure::Usage)?;
    let Expanded { targets, mut left_out } = expanded;
    let signals = Signals::catch()?;
    let to_stderr = args.output.takes_stdout();
    let to_terminal = !to_stderr && stdout().is_terminal();
    let streams: usize =
        targets.iter().map(|t| t.settings.dscp.len() * usize::from(t.settings.flows)).sum();
    let quiet = args.output.quiet || args.output.json;
    let per_packet = !quiet && args.output.per_packet.unwrap_or(streams == 1 && to_terminal);
    let names = names_of(&targets, &left_out);
    let options = session::Options { samples: per_packet, fragment: args.fragment };
    let mut session = Session::open(targets, &run, &args.engine, options)?;
    left_out.append(&mut session.left_out);
    let mut collected = Collected::new(args, &run, &session)?;
    collected.left_out = left_out;
    let watch = match names.is_empty() {
        true => None,
        false => Some(names::Watch::start(names, family, LOOK_UP_EVERY)?),
    };
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
        to_stderr,
        command: std::env::args().collect(),
        place: InPlace::default(),
        next_ns: SECOND.min(run.record_interval),
    };
    if screen.show != Show::Nothing {
        screen.begin(&collected, &run);
    }
    let mut interrupts = 0;
    while !session.is_finished() {
        let progress = session.poll(&mut |event| collected.take(event, &screen));
        collected.notices.extend(watch.iter().flat_map(names::Watch::notices));
        collected.write_records();
        let elapsed = steady_now() - session.start;
        screen.refresh(&session, &collected, progress, elapsed, &run);
        collected.save_so_far(args, &run, &session);
        if nobody_reads(args, &collected) {
            session.stop();
        }
        if signals.wait(Duration::from_millis(if per_packet { 5 } else { 20 })) {
            interrupts += 1;
            session.stop();
            if interrupts > 1 {
                session.hurry();
            } else if stderr().is_terminal() {
                let timeout = format_ns(run.timeout as f64);
                errln!("late replies are awaited for {timeout}; Ctrl-C again ends at once");
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

/// Whether all that was asked for went to a reader who has gone: a measurement without end
/// would be for nobody.
fn nobody_reads(args: &ProbeArgs, collected: &Collected) -> bool {
    let gone = console::reader_has_gone() || collected.writers.are_unread();
    let to_file = args.output.out.as_ref().is_some_and(|path| path.as_os_str() != "-");
    gone && !to_file && !collected.writers.are_read()
}

/// The targets and settings that command line and file ask for.
fn what(args: &ProbeArgs) -> Result<(Expanded, Family, RunSettings)> {
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
    let expanded = targets::expand(&entries, &defaults, family, args.all_addresses)?;
    Ok((expanded, family, run))
}

/// The names that are used, with their addresses, to be looked up again now and then.
fn names_of(targets: &[Target], left_out: &[(String, String)]) -> Vec<names::Watched> {
    let mut used: BTreeMap<&str, Vec<IpAddr>> =
        left_out.iter().map(|(name, _)| (name.as_str(), Vec::new())).collect();
    for target in targets {
        if let Some(name) = &target.looked_up {
            let addresses = used.entry(name).or_default();
            addresses.push(target.address);
            addresses.extend(&target.others);
        }
    }
    let watched = |(host, addresses): (&str, Vec<IpAddr>)| names::Watched {
        host: host.to_string(),
        addresses,
    };
    used.into_iter().map(watched).collect()
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
    /// Targets that are not measured, with the reason.
    left_out: Vec<(String, String)>,
    unreachable: Unreachable,
    saving: SaveSoFar,
}

/// A run, and whether all of it could be saved.
struct Finished {
    run: Run,
    unsaved: Vec<String>,
    undelivered: Vec<String>,
    left_out: Vec<(String, String)>,
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
            left_out: Vec::new(),
            unreachable: Unreachable::new(session.infos.iter().map(|i| i.source.ip())),
            saving: SaveSoFar::default(),
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
            Event::Sample(sample) if screen.show == Show::Packets => {
                screen.line(&self.packet_line(&sample));
            }
            Event::Sample(_) => {}
            Event::Notice(text) => self.notices.push(text),
            Event::Undelivered(error) => {
                self.notices.extend(self.unreachable.add(error));
            }
        }
    }

    fn packet_line(&self, sample: &Sample) -> String {
        let info = &self.infos[sample.stream as usize];
        let outcome = match sample.fate {
            Fate::Lost => Outcome::Lost {
                timeout: self.timeout,
                why: self.unreachable.latest(info.destination).map(unreachable::text),
            },
            Fate::NotSent(why) => Outcome::NotSent { why },
            Fate::Reply {
                t2,
                t3,
                t4,
                ttl,
                length,
                duplicate,
                peer_synchronised,
                comparable,
                ..
            } => Outcome::Reply {
                length: length + headers(info.destination),
                rtt: t4.at - sample.t1.at,
                dwell: t3 - t2,
                one_way: (peer_synchronised && comparable && self.clock_synchronised)
                    .then(|| (t2 - sample.t1.at, t4.at - t3)),
                ttl: Some(ttl),
                duplicate,
            },
        };
        let event = PacketEvent {
            destination: info.destination,
            dscp: info.dscp,
            seq: sample.seq,
            outcome,
        };
        ping_line::format(&event)
    }

    fn write_records(&mut self) {
        self.writers.flush();
        self.notices.extend(self.writers.take_reports());
        for notice in self.notices.drain(..) {
            errln!("{notice}");
        }
    }

    /// Writes the run file as far as the run has come.
    fn save_so_far(&mut self, args: &ProbeArgs, run: &RunSettings, session: &Session) {
        let mut saving = std::mem::take(&mut self.saving);
        saving.save(args.output.out.as_deref(), || {
            let (overall, caveats) = self.overall();
            let mut so_far = Run {
                streams: self.infos.clone(),
                totals: self.totals.clone(),
                overall,
                health: session.health(),
                caveats,
                ..empty_run(run, session.start.as_nanos(), session.clock(), &self.engine)
            };
            so_far.header.end_ns = tai_now().as_nanos();
            so_far.turn_to_utc(so_far.header.tai_offset_ns());
            so_far
        });
        self.saving = saving;
    }

    /// All streams together.
    fn overall(&self) -> (Interval, CaveatSet) {
        let mut overall = Interval::empty(0);
        for total in &self.totals {
            overall.merge(total);
        }
        let sideless = |t: &Interval| t.counters.lost > 0 && t.loss_side == LossSide::Unknown;
        if self.totals.iter().any(sideless) {
            overall.caveats.insert(Caveat::LossSideUnknown);
        }
        let caveats = overall.caveats;
        (overall, caveats)
    }

    fn finish(
        self,
        args: &ProbeArgs,
        run: &RunSettings,
        start_ns: i64,
        clock: ClockState,
        mut health: Health,
        mut caveats: CaveatSet,
    ) -> Finished {
        health.counters.extend(self.unreachable.counters());
        if !self.left_out.is_empty() {
            health.counters.insert("targets_left_out".into(), self.left_out.len() as u64);
        }
        let (overall, doubts) = self.overall();
        caveats.merge(doubts);
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
        if let Some(path) = &args.output.out
            && let Err(error) = run_file::save(path, &run)
        {
            unsaved.push(format!("{}: {error}", path.display()));
        }
        Finished { run, unsaved, undelivered: self.unreachable.lines(), left_out: self.left_out }
    }
}

/// Prints the summary, and says how it went.
fn report(args: &ProbeArgs, finished: &Finished) -> Result<Exit> {
    let run = &finished.run;
    if args.output.json {
        run_file::print(run);
    } else {
        let (width, _) = terminal_size();
        let to_stderr = args.output.takes_stdout();
        let style = if to_stderr { Style::default() } else { Style::for_stdout() };
        let mut text = Vec::new();
        summary::write(&mut text, run, width, style).context("cannot make the summary")?;
        let mut text = String::from_utf8_lossy(&text).into_owned();
        for line in &finished.undelivered {
            for line in live::wrapped(&format!("! {line}"), width) {
                text.push_str(&style.paint(Tone::Warn, &line));
                text.push('\n');
            }
        }
        match to_stderr {
            true => errln!("{}", text.trim_end()),
            false => console::print(&text),
        }
    }
    for (name, why) in finished.left_out.iter().take(FEW_LEFT_OUT) {
        errln!("not measured: {name}: {why}");
    }
    if finished.left_out.len() > FEW_LEFT_OUT {
        errln!("not measured: {} more targets", finished.left_out.len() - FEW_LEFT_OUT);
    }
    for what in &finished.unsaved {
        errln!("not saved: {what}");
    }
    // Also a stream that nothing could be sent on, for want of a next hop, had no reply.
    let unanswered =
        run.totals.iter().map(|t| &t.counters).any(|c| c.sent + c.skipped > 0 && c.received == 0)
            || !finished.left_out.is_empty();
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
    /// Standard output has records.
    to_stderr: bool,
    command: Vec<String>,
    place: InPlace,
    next_ns: i64,
}

impl Screen {
    fn begin(&self, collected: &Collected, run: &RunSettings) {
        let n = collected.infos.len();
        let first = &collected.infos[0];
        let what = if n == 1 { first.destination.to_string() } else { format!("{n} streams") };
        self.line(&format!(
            "SONDE {what}: {} bytes of IP every {}, timeout {}, {}",
            first.ip_length,
            format_ns(first.period_ns as f64),
            format_ns(run.timeout as f64),
            collected.engine
        ));
    }

    fn line(&self, text: &str) {
        match self.to_stderr {
            true => errln!("{text}"),
            false => outln!("{text}"),
        }
    }

    fn refresh(
        &mut self,
        session: &Session,
        collected: &Collected,
        progress: Progress,
        elapsed_ns: i64,
        run: &RunSettings,
    ) {
        let every = match self.show {
            Show::Table => SECOND,
            Show::Lines => run.record_interval,
            Show::Packets | Show::Nothing => return,
        };
        if elapsed_ns < self.next_ns {
            return;
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
            command: &self.command,
            streams: &collected.infos,
            latest: &collected.latest,
            total,
            delays: progress.delays,
            lateness: &health.send_lateness,
            pauses: &health.pauses,
            caveats,
        };
        if self.show == Show::Table {
            let (width, height) = terminal_size();
            let lines = live::table(&snapshot, width, height, Style::for_stdout());
            // The console keeps its failures to itself.
            let _ = self.place.draw(&mut console::out(), &lines);
        } else {
            self.line(&live::line(&snapshot));
        }
    }
}

fn empty_run(run: &RunSettings, start_ns: i64, clock: ClockState, engine: &str) -> Run {
    Run {
        header: run_header("probe", SCHEMA_VERSION, start_ns, &clock),
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

/// Between two look-ups of the names in use.
const LOOK_UP_EVERY: Duration = Duration::from_secs(60);
/// Targets that were left out, told one by one.
const FEW_LEFT_OUT: usize = 10;

/// IP and UDP header, bytes.
fn headers(destination: SocketAddr) -> u16 {
    if destination.is_ipv4() { 28 } else { 48 }
}
