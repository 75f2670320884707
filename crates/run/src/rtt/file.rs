//! Round-trip times from captures, by the matcher of user space. The clock is that of their
//! packets.

use std::path::PathBuf;

use sonde_meter::rtt::{Config, Matcher};
use sonde_results::Caveat;
use sonde_wire::Time;
use sonde_wire::capture::{Reader, Record};
use sonde_wire::flow::{LinkType, parse_cut};

use super::about::{About, empty_run};
use super::control::Control;
use super::event::RttWatching;
use super::out::RttOutput;
use super::settings::{self, Settings};
use crate::capture_file::{
    CaptureFiles, CapturePiece, First, LOOK_AROUND, NextPiece, Unread, describe, point,
};
use crate::error::{RunError, SettingsError};
use crate::joins::CaptureJoins;
use crate::running::{Context, Ended, Running, Stop};
use crate::secrets::secrets_of_captures;

/// Waits for the first packets, and reads everything from there on. It ends when the duration
/// has passed in the captures' time, or when the end is asked for.
pub fn start(
    paths: &[PathBuf],
    settings: Settings,
    context: &Context,
) -> Result<(About, RttWatching), RunError> {
    let of_interfaces = [
        ("engine", settings.engine.is_some()),
        ("hook", settings.hook.is_some()),
        ("persist", settings.persist),
    ];
    if let Some((key, _)) = of_interfaces.iter().find(|(_, given)| *given) {
        let why = "`engine`, `hook` and `persist` are for interfaces, not files; leave them out";
        return Err(SettingsError::of(key, why).into());
    }
    let mut config = settings::config(&settings)?;
    let joined = CaptureJoins::new("join", &settings.join)?;
    let stop = context.stop.clone();
    let mut input = CaptureFiles::open(paths)?;
    // Addresses are hidden by a key that nobody knows.
    if !settings.prefix_only {
        config.seed = secrets_of_captures(settings.seed, input.are_regular());
    }
    let first = match input.first(|| stop.is_asked())? {
        First::Piece(piece) => Some(piece),
        First::Nothing | First::BrokenOff => None,
    };
    let name = first.as_ref().map_or("", CapturePiece::file_name).to_owned();
    let called = first.as_ref().and_then(CapturePiece::interface_name);
    let time = first.as_ref().and_then(CapturePiece::begin_ns);
    let points = vec![point(&name, called.as_deref(), None)];
    let mut run = empty_run(settings::run_config(&settings), points.clone());
    let offset_ns = i64::from(run.header.host.tai_offset_s) * 1_000_000_000;
    let start = Time::from_nanos(time.map_or(0, |utc| utc.saturating_add(offset_ns)));
    run.header.start_ns = start.as_nanos();
    let about = About { run, group_of: settings::group_of(&config) };
    let (out, records, status) = RttOutput::new(&settings, points, Some(stop.clone()));
    let several = paths.len() > 1;
    let asked = stop.clone();
    let replay = Replay::new(config, joined, (start, offset_ns), &settings, name, out);
    let work = move || replay.run(input, first, several, &asked);
    Ok((about, Running::start("sonde-rtt", (records, status, Control::default()), stop, work)?))
}

/// The matcher, and where it is in the file's time.
struct Replay {
    matcher: Matcher,
    out: RttOutput,
    samples: bool,
    tunnels: bool,
    joined: CaptureJoins,
    /// TAI - UTC, ns.
    offset_ns: i64,
    start: Time,
    interval: i64,
    /// How much of the captures' time is read, ns.
    duration: Option<i64>,
    /// Begin of the interval.
    begun: Time,
    /// When idle flows were last looked for.
    swept: Time,
    latest: Time,
    read: u64,
    /// Packets that are far earlier than one before them.
    steps_back: u64,
    name: String,
    /// Interfaces in the order in which they came: a point each.
    interfaces: Vec<Interface>,
    unread: Unread,
}

/// Where a packet of the file was seen.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Interface {
    /// Which of the interfaces that a pcapng file describes.
    described: u32,
    /// The kernel's index, of a capture of all interfaces (Linux cooked, version 2); else 0.
    index: u32,
}

impl Interface {
    /// The interface whose index is that of this packet's observation point.
    fn of(record: &Record<'_>, link: LinkType, joined: &CaptureJoins) -> Interface {
        let ifindex = || record.data.get(4..8)?.try_into().ok().map(u32::from_be_bytes);
        let index = if link == LinkType::LinuxCooked2 { ifindex().unwrap_or(0) } else { 0 };
        Interface { described: joined.point_of(record.interface), index: joined.point_of(index) }
    }
}

impl Replay {
    fn new(
        config: Config,
        joined: CaptureJoins,
        (start, offset_ns): (Time, i64),
        settings: &Settings,
        name: String,
        out: RttOutput,
    ) -> Self {
        Replay {
            matcher: Matcher::new(config),
            out,
            samples: settings.samples.is_some(),
            tunnels: settings.tunnels,
            joined,
            offset_ns,
            start,
            interval: settings.interval,
            duration: settings.duration,
            begun: start,
            latest: start,
            read: 0,
            steps_back: 0,
            name,
            interfaces: Vec::new(),
            unread: Unread::default(),
            swept: start,
        }
    }

    fn run(
        mut self,
        mut input: CaptureFiles,
        first: Option<CapturePiece>,
        several: bool,
        stop: &Stop,
    ) -> Ended {
        let mut next = first.map_or(NextPiece::End, NextPiece::Piece);
        let mut failure = None;
        loop {
            match next {
                NextPiece::Piece(piece) => {
                    if !self.piece(&piece, stop) {
                        break;
                    }
                    // What came by a pipe is shown at once.
                    self.out.flush();
                }
                NextPiece::Broken(why) => {
                    tracing::warn!("{why}");
                    self.out.doubt(Caveat::CaptureCutShort);
                }
                NextPiece::Wait => {}
                NextPiece::End => break,
            }
            if stop.is_asked() || self.out.is_unread() {
                break;
            }
            next = match input.next(LOOK_AROUND) {
                Ok(next) => next,
                Err(error) => {
                    failure = Some(RunError::Host(error));
                    break;
                }
            };
        }
        for line in self.unread.lines() {
            tracing::warn!("{}: {line}", if several { "captures" } else { &self.name });
        }
        Ended { failure, ..self.finish(stop) }
    }

    /// False: there is a reason to read no further.
    fn piece(&mut self, piece: &CapturePiece, stop: &Stop) -> bool {
        if piece.is_first {
            self.name = piece.file_name().to_owned();
        }
        let mut reader = piece.reader();
        let mut goes_on = true;
        while let Some(record) = reader.next() {
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    tracing::warn!("{}", describe(&piece.name, error));
                    self.out.doubt(Caveat::CaptureCutShort);
                    break;
                }
            };
            let at = Time::from_nanos(record.unix_nanos.saturating_add(self.offset_ns));
            if self.duration.is_some_and(|longest| at - self.start >= longest) {
                goes_on = false;
                break;
            }
            self.take(&record, at, &reader);
            if self.read.is_multiple_of(LOOKS_AROUND) && (stop.is_asked() || self.out.is_unread()) {
                goes_on = false;
                break;
            }
        }
        self.unread.stepped_over(piece, reader.skipped());
        goes_on
    }

    fn take(&mut self, record: &Record<'_>, at: Time, reader: &Reader<'_>) {
        if !record.is_timed {
            self.read += 1;
            self.unread.untimed += 1;
            return;
        }
        if at - self.begun >= self.interval {
            self.end_intervals(at);
        }
        if at - self.swept >= SWEEP {
            self.swept = at;
            self.matcher.handle_timeout(at);
        }
        self.read += 1;
        self.steps_back += u64::from(self.latest - at > STEP_BACK);
        self.latest = self.latest.max(at);
        let Some(link) = LinkType::from_capture(record.link_type) else {
            self.unread.link_type(record.link_type);
            return;
        };
        if !self.unread.may_read(link, record.data) {
            return;
        }
        let interface = Interface::of(record, link, &self.joined);
        let point = self.point_of(interface, reader);
        match parse_cut(record.data, record.original_len as usize, link, self.tunnels) {
            Ok(packet) => self.matcher.input(point, &packet, 1, at),
            Err(error) => self.matcher.refused(error),
        }
        self.drain();
    }

    /// A router's packet passes two interfaces: taken for one point, each would look like
    /// its own retransmission.
    fn point_of(&mut self, interface: Interface, reader: &Reader<'_>) -> u8 {
        let known = self.interfaces.iter().position(|&i| i == interface);
        let index = known.unwrap_or_else(|| {
            if self.interfaces.len() == POINTS_MAX {
                return POINTS_MAX - 1;
            }
            self.interfaces.push(interface);
            if self.interfaces.len() > 1 {
                let Interface { described, index } = interface;
                let shown = if index == 0 { described } else { index };
                let name = reader.interface_name(described).filter(|_| index == 0);
                self.out.add_point(point(&self.name, name, Some(shown)));
            }
            self.interfaces.len() - 1
        });
        index as u8
    }

    /// Ends the interval that `at` lies beyond; the empty ones between are left out.
    fn end_intervals(&mut self, at: Time) {
        let end = self.begun + self.interval;
        self.drain();
        let span = (self.begun.as_nanos(), end.as_nanos());
        let groups = self.matcher.take_groups(span.0, span.1);
        self.out.interval(groups, span, &self.matcher.coverage(), None);
        self.begun = end + (at - end) / self.interval * self.interval;
    }

    #[inline]
    fn drain(&mut self) {
        if self.samples {
            while let Some(sample) = self.matcher.poll_sample() {
                self.out.sample(&sample);
            }
        }
        while let Some(flow) = self.matcher.poll_flow() {
            self.out.flow(&flow);
        }
    }

    fn finish(mut self, stop: &Stop) -> Ended {
        self.matcher.finish(self.latest);
        self.drain();
        let span = (self.begun.as_nanos(), self.latest.as_nanos().saturating_add(1));
        let groups = self.matcher.take_groups(span.0, span.1);
        let mut coverage = self.matcher.coverage();
        coverage.counters.extend(self.unread.counters());
        let stands_still = self.read > 1 && self.latest == self.start;
        if self.steps_back > 0 || stands_still || self.unread.has_bad_times() {
            self.out.doubt(Caveat::CaptureTimesWrong);
        }
        self.out.interval(groups, span, &coverage, None);
        self.out.finish(coverage, stop)
    }
}

/// Packets between two looks at signals.
const LOOKS_AROUND: u64 = 4_096;
/// Between two looks for idle flows, ns.
const SWEEP: i64 = 100_000_000;
/// Captures of several queues are out of order by less, ns.
const STEP_BACK: i64 = 1_000_000;
/// Interfaces beyond share the last point.
const POINTS_MAX: usize = 64;

#[cfg(test)]
mod tests;
