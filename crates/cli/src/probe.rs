//! `sonde probe`: asks for a probe, shows it, saves what comes of it.

use std::io::{IsTerminal as _, stderr, stdout};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::units::{SECOND, format_ns};
use sonde_results::{Interval, Run};
use sonde_run::error::{RunError, SettingsError};
use sonde_run::files::RunFiles;
use sonde_run::probe::settings::TargetEntry;
use sonde_run::probe::target_file::TargetsFile;
use sonde_run::probe::{
    self, About, Collected, Event, Family, Fate, Probe, Sample, Settings, Status, WriterSettings,
    Writers, icmp_text,
};
use sonde_run::running::{Context, Ended};
use sonde_sys::clock::steady_now;

use crate::args::{ProbeArgs, ProbeOutputArgs};
use crate::console;
use crate::exit::{Exit, Failure};
use crate::options;
use crate::output::interval_lines::IntervalLines;
use crate::output::live::{self, InPlace, ProbeSnapshot};
use crate::output::ping_line::{self, PacketEvent, PingOutcome};
use crate::output::run_file::SaveSoFar;
use crate::output::style::{Style, Tone, terminal_size};
use crate::output::{run_file, summary};
use crate::signals;

/// Runs until everything is sent, the time is over, or Ctrl-C.
pub fn run(args: &ProbeArgs) -> Result<Exit, Failure> {
    let mut settings = settings(args).map_err(Failure::Usage)?;
    check_outputs(args)?;
    let _claim = run_file::claim(args.output.out.as_deref())?;
    let context = signals::context()?;
    let to_terminal = !args.output.takes_stdout() && stdout().is_terminal();
    let quiet = args.output.quiet || args.output.json;
    // Without a word about it, packets are shown of a single stream only.
    let maybe = !quiet && args.output.per_packet.unwrap_or(to_terminal);
    settings.samples = maybe && (args.output.per_packet.is_some() || may_be_one(&settings));
    let (about, probe) = probe::start(settings, &context)?;
    let per_packet = maybe && (args.output.per_packet.is_some() || about.streams.len() == 1);
    follow(about, probe, &args.output, per_packet, &context)
}

/// Shows a probe until it ends, and saves what comes of it.
pub fn follow(
    about: About,
    probe: Probe,
    output: &ProbeOutputArgs,
    per_packet: bool,
    context: &Context,
) -> Result<Exit, Failure> {
    let to_stderr = output.takes_stdout();
    let mut screen = Screen {
        show: if output.quiet || output.json {
            Show::Nothing
        } else if per_packet {
            Show::Packets
        } else if !to_stderr && stdout().is_terminal() {
            Show::Table
        } else {
            Show::Lines
        },
        to_stderr,
        command: signals::command_line(),
        redraw: InPlace::default(),
        next_ns: SECOND.min(about.run.record_interval),
    };
    let (start, timeout) = (about.start, about.run.timeout);
    if screen.show != Show::Nothing {
        screen.begin(&about);
    }
    let mut printing = Printing::new(output, about, context)?;
    let mut stopping = false;
    let patience = Duration::from_millis(if per_packet { 5 } else { 20 });
    while !probe.wait(patience) {
        printing.take_all(&probe, &screen);
        screen.refresh(|| probe.status.get(), &mut printing, steady_now() - start, false);
        printing.save_so_far(output, || probe.status.get());
        if printing.nobody_reads(output) {
            probe.stop();
        }
        if context.stop.is_asked() && !stopping {
            stopping = true;
            if stderr().is_terminal() {
                let timeout = format_ns(timeout as f64);
                errln!(INFO, "late replies are awaited for {timeout}; Ctrl-C again ends at once");
            }
        }
    }
    stopping |= context.stop.is_asked();
    printing.take_all(&probe, &screen);
    while printing.lines.first().is_some() {
        screen.refresh(|| probe.status.get(), &mut printing, steady_now() - start, true);
    }
    let status = probe.status.get();
    let mut ended = probe.join();
    let failure = ended.failure.take();
    let (run, finished) = printing.finish(&ended, &status);
    let exit = report(output, &run, finished)?;
    match failure {
        Some(error) => Err(error.into()),
        None if stopping && run.overall.counters.sent == 0 => Ok(Exit::Interrupted),
        None => Ok(exit),
    }
}

/// The targets and settings that command line and file ask for.
fn settings(args: &ProbeArgs) -> Result<Settings> {
    let file = match &args.targets {
        Some(path) => TargetsFile::read(path)?,
        None => TargetsFile::default(),
    };
    let mut targets = file.targets;
    targets.extend(args.hosts.iter().map(TargetEntry::of));
    let family = match (args.ipv4, args.ipv6) {
        (true, _) => Family::V4,
        (_, true) => Family::V6,
        _ => Family::Any,
    };
    Ok(Settings {
        targets,
        stream: args.stream.options().or(&file.stream),
        run: args.run.options().or(&file.run),
        family,
        all_addresses: args.all_addresses,
        fragment: args.fragment,
        engine: args.engine.settings(),
        samples: false,
    })
}

/// Whether these may be a single stream: a name may have more addresses.
fn may_be_one(settings: &Settings) -> bool {
    let [target] = settings.targets.as_slice() else { return false };
    let stream = target.stream.clone().or(&settings.stream);
    let classes = stream.dscp.as_ref().map_or(1, Vec::len);
    classes == 1 && stream.flows.unwrap_or(1) == 1
}

/// Whether each output has a file for itself.
fn check_outputs(args: &ProbeArgs) -> Result<(), RunError> {
    let ProbeOutputArgs { jsonl, csv, out, json, quiet, per_packet } = &args.output;
    if *per_packet == Some(true) && (*quiet || *json) {
        let other = if *quiet { "quiet" } else { "json" };
        let why = format!("`{other}` prints no packets; leave one out");
        return Err(SettingsError::new("per_packet", why).into());
    }
    RunFiles::default()
        .writes("json", json.then_some("-"))
        .writes("jsonl", jsonl)
        .writes("csv", csv)
        .writes("out", out)
        .reads("targets", &args.targets)
        .check()?;
    Ok(())
}

/// Everything measured so far, and where it is printed.
struct Printing {
    collected: Collected,
    latest: Vec<Interval>,
    /// Index of each stream in `latest`, or none.
    index: Vec<u32>,
    writers: Writers,
    saving: SaveSoFar,
    /// By the clock of the records, ns.
    begun_ns: i64,
    lines: IntervalLines,
}

/// What became of a run's outputs.
struct Finished {
    unsaved: Vec<String>,
    undelivered: Vec<String>,
    left_out: Vec<(String, String)>,
}

impl Printing {
    fn new(output: &ProbeOutputArgs, about: About, context: &Context) -> Result<Self, Failure> {
        let n = about.streams.len();
        let (index, lines) = (vec![u32::MAX; n], IntervalLines::new(n));
        let clock = about.clock;
        let collected = Collected::new(about);
        let to = WriterSettings { jsonl: output.jsonl.clone(), csv: output.csv.clone() };
        let mut begun = collected.begun(clock);
        begun.config.command = signals::command_line();
        let writers = Writers::open(&to, &begun, &collected.about().streams, context)?;
        let (latest, saving) = (Vec::new(), SaveSoFar::default());
        let begun_ns = begun.header.start_ns;
        Ok(Printing { collected, latest, index, writers, saving, begun_ns, lines })
    }

    /// Takes what has come until now, and writes it.
    fn take_all(&mut self, probe: &Probe, screen: &Screen) {
        while let Some(event) = probe.records.next_now() {
            self.take(&event, screen);
        }
        self.writers.flush();
        for report in self.writers.take_reports() {
            errln!(WARN, "{}", options::named(&report));
        }
    }

    fn take(&mut self, event: &Event, screen: &Screen) {
        if let Some(text) = self.collected.add(event) {
            errln!(WARN, "{}", options::named(&text));
        }
        match event {
            Event::Record(record) => {
                self.writers.push(record);
                if screen.show == Show::Lines {
                    self.lines.push(record);
                }
                if screen.show == Show::Table {
                    let index = &mut self.index[record.stream as usize];
                    match self.latest.get_mut(*index as usize) {
                        Some(latest) => latest.clone_from(record),
                        None => {
                            *index = self.latest.len() as u32;
                            self.latest.push(Interval::clone(record));
                        }
                    }
                }
            }
            Event::Sample(sample) if screen.show == Show::Packets => {
                screen.line(&self.packet_line(sample));
            }
            Event::Added(streams) => {
                self.index.resize(self.index.len() + streams.len(), u32::MAX);
                self.lines.add_streams(streams.len());
                self.writers.add_streams(streams);
            }
            Event::Sample(_) | Event::Undelivered(_) | Event::Ended(_) | Event::LeftOut(_) => {}
        }
    }

    fn packet_line(&self, sample: &Sample) -> String {
        let about = self.collected.about();
        let info = &about.streams[sample.stream as usize];
        let outcome = match sample.fate {
            Fate::Lost => PingOutcome::Lost {
                timeout: about.run.timeout,
                why: self.collected.undelivered(info.destination).map(icmp_text),
            },
            Fate::NotSent(why) => PingOutcome::NotSent { why },
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
            } => PingOutcome::Reply {
                length: length + headers(info.destination),
                rtt: t4.at - sample.t1.at,
                dwell: t3 - t2,
                one_way: (peer_synchronised && comparable && about.clock.synchronised)
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

    /// Writes the run file as far as the run has come.
    fn save_so_far(&mut self, output: &ProbeOutputArgs, status: impl FnOnce() -> Status) {
        let mut saving = std::mem::take(&mut self.saving);
        saving.save(output.out.as_deref(), || {
            let status = status();
            let mut run = self.collected.so_far(status.health, status.clock);
            run.config.command = signals::command_line();
            run
        });
        self.saving = saving;
    }

    /// Whether all that was asked for went to a reader who has gone: a measurement without end
    /// would be for nobody.
    fn nobody_reads(&self, output: &ProbeOutputArgs) -> bool {
        let gone = console::reader_has_gone() || self.writers.are_unread();
        let to_file = output.out.as_ref().is_some_and(|path| path.as_os_str() != "-");
        gone && !to_file && !self.writers.are_read()
    }

    fn finish(self, ended: &Ended, status: &Status) -> (Run, Finished) {
        let lines = self.collected.undelivered_lines();
        let undelivered = lines.iter().map(|line| options::named(line).into_owned()).collect();
        let left_out = self.collected.about().left_out.clone();
        let mut run = self.collected.finish(ended, status.clock);
        run.config.command = signals::command_line();
        let unsaved = self.writers.finish();
        if !unsaved.is_empty() {
            run.caveats.insert(Caveat::RecordsLost);
        }
        (run, Finished { unsaved, undelivered, left_out })
    }
}

/// Saves the run, prints its summary, and says how it went.
fn report(output: &ProbeOutputArgs, run: &Run, mut finished: Finished) -> Result<Exit> {
    let summary = match output.json {
        true => None,
        false => Some(summary_text(output, run, &finished.undelivered)?),
    };
    let show = || match &summary {
        None => run_file::print(run),
        Some(text) if output.takes_stdout() => errln!(INFO, "{}", text.trim_end()),
        Some(text) => console::print(text),
    };
    finished.unsaved.extend(run_file::save_and_show(output.out.as_deref(), run, show));
    for (name, why) in finished.left_out.iter().take(FEW_LEFT_OUT) {
        errln!(WARN, "not measured: {name}: {}", options::named(why));
    }
    if finished.left_out.len() > FEW_LEFT_OUT {
        errln!(WARN, "not measured: {} more targets", finished.left_out.len() - FEW_LEFT_OUT);
    }
    for what in &finished.unsaved {
        errln!(ERROR, "not saved: {what}");
    }
    // Also a stream that nothing could be sent on, for want of a next hop, had no reply.
    let unanswered =
        run.totals.iter().map(|t| &t.counters).any(|c| c.sent + c.skipped > 0 && c.received == 0)
            || !finished.left_out.is_empty();
    Ok(match (finished.unsaved.is_empty(), unanswered) {
        (false, _) => Exit::NotSaved,
        (true, true) => Exit::Negative,
        (true, false) => Exit::Ok,
    })
}

fn summary_text(output: &ProbeOutputArgs, run: &Run, undelivered: &[String]) -> Result<String> {
    let (width, _) = terminal_size();
    let style = if output.takes_stdout() { Style::default() } else { Style::for_stdout() };
    let mut text = Vec::new();
    summary::write(&mut text, run, width, style).context("cannot make the summary")?;
    let mut text = String::from_utf8_lossy(&text).into_owned();
    for line in undelivered {
        for line in live::wrapped(&format!("! {line}"), width) {
            text.push_str(&style.paint(Tone::Warn, &line));
            text.push('\n');
        }
    }
    Ok(text)
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
    redraw: InPlace,
    next_ns: i64,
}

impl Screen {
    fn begin(&self, about: &About) {
        let n = about.streams.len();
        let first = &about.streams[0];
        let what = if n == 1 { first.destination.to_string() } else { format!("{n} streams") };
        self.line(&format!(
            "SONDE {what}: {} bytes of IP every {}, timeout {}, {}",
            first.ip_length,
            format_ns(first.period_ns as f64),
            format_ns(about.run.timeout as f64),
            about.engine
        ));
    }

    fn line(&self, text: &str) {
        match self.to_stderr {
            true => errln!(INFO, "{text}"),
            false => outln!("{text}"),
        }
    }

    /// `status`: only asked for when it is shown, for it holds histograms.
    fn refresh(
        &mut self,
        status: impl FnOnce() -> Status,
        printing: &mut Printing,
        elapsed_ns: i64,
        ended: bool,
    ) {
        let is_due = elapsed_ns >= self.next_ns;
        let run = &printing.collected.about().run;
        let (every, timeout) = (run.record_interval, run.timeout);
        let mut next_line = None;
        match self.show {
            Show::Table if is_due => self.next_ns = elapsed_ns + SECOND,
            Show::Lines => {
                // A stream that has no further records holds the others up for so long.
                let patience = 3 * every + timeout;
                let first = printing.lines.first().map(|start| start - printing.begun_ns);
                let anyhow = ended || first.is_some_and(|start| elapsed_ns > start + patience);
                next_line = printing.lines.next(anyhow);
                if next_line.is_none() && !(is_due && printing.lines.are_new() && !ended) {
                    return;
                }
                self.next_ns = elapsed_ns + every;
            }
            _ => return,
        }
        let about = printing.collected.about();
        let status = status();
        let mut total = sonde_results::Counters::default();
        let mut caveats = CaveatSet::default();
        for t in printing.collected.totals() {
            total.merge(&t.counters);
            caveats.merge(t.caveats);
        }
        // What the records hold is settled; the display may be ahead of it.
        (total.sent, total.received) = (status.sent, status.received);
        let snapshot = ProbeSnapshot {
            elapsed_ns,
            begun_ns: printing.begun_ns,
            engine: &about.engine,
            command: &self.command,
            streams: &about.streams,
            latest: &printing.latest,
            total,
            delays: status.delays,
            lateness: &status.health.send_lateness,
            pauses: &status.health.pauses,
            caveats,
        };
        if self.show == Show::Table {
            let (width, height) = terminal_size();
            let lines = live::table(&snapshot, width, height, Style::for_stdout());
            // The console keeps its failures to itself.
            let _ = self.redraw.draw(&mut console::out(), &lines);
        } else {
            self.line(&match next_line {
                Some(sum) => live::line(&snapshot, &sum),
                None => live::so_far(&snapshot),
            });
        }
    }
}

/// At most so many targets that were left out are named one by one.
const FEW_LEFT_OUT: usize = 10;

/// IP and UDP header, bytes.
fn headers(destination: SocketAddr) -> u16 {
    if destination.is_ipv4() { 28 } else { 48 }
}
