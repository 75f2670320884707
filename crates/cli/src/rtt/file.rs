//! Round-trip times from captures, by the matcher of user space. The clock is that of their
//! packets.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use sonde_meter::rtt::{Config, Matcher};
use sonde_results::Caveat;
use sonde_wire::Time;
use sonde_wire::capture::{Reader, Record};
use sonde_wire::flow::{Link, parse_cut};

use super::args::RttArgs;
use super::collect::{Collected, Prints};
use super::{empty_run, settings};
use crate::capture_file::{First, Input, LOOK_AROUND, Next, Piece, Unread, describe, point};
use crate::exit::{Exit, Failure};
use crate::joins::Numbers;
use crate::signals::Signals;

/// Reads everything, until `--duration` of the captures' time has passed, or Ctrl-C.
pub fn run(paths: &[PathBuf], args: &RttArgs, prints: Prints) -> Result<Exit, Failure> {
    if args.hook.is_some() || args.persist || args.engine.is_some() {
        return Err(Failure::Usage(anyhow!(
            "--engine, --hook and --persist are for interfaces, not files"
        )));
    }
    let config = settings::config(args, &prints).map_err(Failure::Usage)?;
    let joined = Numbers::new(&args.join).map_err(Failure::Usage)?;
    let signals = Signals::catch()?;
    let mut input = Input::open(paths)?;
    let (first, mut interrupted) =
        match input.first(|| signals.wait(Duration::ZERO)).map_err(Failure::CannotRun)? {
            First::Piece(piece) => (Some(piece), false),
            First::Nothing => (None, false),
            First::BrokenOff => (None, true),
        };
    let name = first.as_ref().map_or("", Piece::file_name).to_owned();
    let called = first.as_ref().and_then(Piece::interface_name);
    let time = first.as_ref().and_then(Piece::begin_ns);
    let mut run = empty_run(args, vec![point(&name, called.as_deref(), None)]);
    let offset_ns = i64::from(run.header.host.tai_offset_s) * 1_000_000_000;
    let start = Time::from_nanos(time.map_or(0, |utc| utc.saturating_add(offset_ns)));
    run.header.start_ns = start.as_nanos();
    let mut collected =
        Collected::new(run, prints, args.output.out.clone(), settings::group_of(&config));
    let mut replay = Replay::new(config, joined, prints, (start, offset_ns), args, name);
    let mut next = first.map_or(Next::End, Next::Piece);
    while !interrupted {
        match next {
            Next::Piece(piece) => {
                match replay.piece(&piece, args, &mut collected, &signals) {
                    Ended::No => {}
                    Ended::Over => break,
                    Ended::Interrupted => interrupted = true,
                }
                // What came by a pipe is shown at once.
                collected.flush();
            }
            Next::Broken(why) => {
                errln!("{why}");
                collected.doubt(Caveat::CaptureCutShort);
            }
            Next::Wait => interrupted = signals.wait(Duration::ZERO),
            Next::End => break,
        }
        interrupted |= collected.is_in_vain();
        next = input.next(LOOK_AROUND)?;
    }
    for line in replay.unread.lines() {
        errln!("{}: {line}", if paths.len() > 1 { "captures" } else { &replay.name });
    }
    replay.finish(collected, interrupted).map_err(Failure::CannotRun)
}

/// Whether there is a reason to read no further.
enum Ended {
    No,
    /// The duration has passed, or nobody reads what is printed.
    Over,
    Interrupted,
}

/// The matcher and its place in the file's time.
struct Replay {
    matcher: Matcher,
    prints: Prints,
    tunnels: bool,
    joined: Numbers,
    /// TAI - UTC, ns.
    offset_ns: i64,
    start: Time,
    interval: i64,
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
    /// The kernel's number, of a capture of all interfaces (Linux cooked, version 2); else 0.
    index: u32,
}

impl Interface {
    /// The one that stands for this packet's place.
    fn of(record: &Record<'_>, link: Link, joined: &Numbers) -> Interface {
        let number = || record.data.get(4..8)?.try_into().ok().map(u32::from_be_bytes);
        let index = if link == Link::LinuxCooked2 { number().unwrap_or(0) } else { 0 };
        Interface { described: joined.place(record.interface), index: joined.place(index) }
    }
}

impl Replay {
    fn new(
        config: Config,
        joined: Numbers,
        prints: Prints,
        (start, offset_ns): (Time, i64),
        args: &RttArgs,
        name: String,
    ) -> Self {
        Replay {
            matcher: Matcher::new(config),
            prints,
            tunnels: args.tunnels,
            joined,
            offset_ns,
            start,
            interval: args.interval,
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

    fn piece(
        &mut self,
        piece: &Piece,
        args: &RttArgs,
        collected: &mut Collected,
        signals: &Signals,
    ) -> Ended {
        if piece.is_first {
            self.name = piece.file_name().to_owned();
        }
        let mut reader = piece.reader();
        let mut ended = Ended::No;
        while let Some(record) = reader.next() {
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    errln!("{}", describe(&piece.name, error));
                    collected.doubt(Caveat::CaptureCutShort);
                    break;
                }
            };
            let at = Time::from_nanos(record.unix_nanos.saturating_add(self.offset_ns));
            if args.duration.is_some_and(|longest| at - self.start >= longest) {
                ended = Ended::Over;
                break;
            }
            self.take(&record, at, &reader, collected);
            if self.read.is_multiple_of(LOOKS_AROUND) {
                if signals.wait(Duration::ZERO) {
                    ended = Ended::Interrupted;
                    break;
                }
                if collected.is_in_vain() {
                    ended = Ended::Over;
                    break;
                }
            }
        }
        self.unread.stepped_over(piece, reader.skipped());
        ended
    }

    fn take(
        &mut self,
        record: &Record<'_>,
        at: Time,
        reader: &Reader<'_>,
        collected: &mut Collected,
    ) {
        if !record.is_timed {
            self.read += 1;
            self.unread.untimed += 1;
            return;
        }
        if at - self.begun >= self.interval {
            self.end_intervals(at, collected);
        }
        if at - self.swept >= SWEEP {
            self.swept = at;
            self.matcher.handle_timeout(at);
        }
        self.read += 1;
        self.steps_back += u64::from(self.latest - at > STEP_BACK);
        self.latest = self.latest.max(at);
        let Some(link) = Link::from_capture(record.link_type) else {
            self.unread.link_type(record.link_type);
            return;
        };
        if !self.unread.may_read(link, record.data) {
            return;
        }
        let interface = Interface::of(record, link, &self.joined);
        let point = self.point_of(interface, reader, collected);
        match parse_cut(record.data, record.original_len as usize, link, self.tunnels) {
            Ok(packet) => self.matcher.input(point, &packet, 1, at),
            Err(error) => self.matcher.refused(error),
        }
        self.drain(collected);
    }

    /// A router's packet passes two interfaces: taken for one place, each would look like
    /// its own retransmission.
    fn point_of(
        &mut self,
        interface: Interface,
        reader: &Reader<'_>,
        collected: &mut Collected,
    ) -> u8 {
        let known = self.interfaces.iter().position(|&i| i == interface);
        let place = known.unwrap_or_else(|| {
            if self.interfaces.len() == POINTS_MAX {
                return POINTS_MAX - 1;
            }
            self.interfaces.push(interface);
            if self.interfaces.len() > 1 {
                let Interface { described, index } = interface;
                let number = if index == 0 { described } else { index };
                let name = reader.interface_name(described).filter(|_| index == 0);
                collected.add_point(point(&self.name, name, Some(number)));
            }
            self.interfaces.len() - 1
        });
        place as u8
    }

    /// Ends the interval that `at` lies beyond; the empty ones between are left out.
    fn end_intervals(&mut self, at: Time, collected: &mut Collected) {
        let end = self.begun + self.interval;
        self.drain(collected);
        let groups = self.matcher.take_groups(self.begun.as_nanos(), end.as_nanos());
        collected.interval(&groups, end.as_nanos(), &self.matcher.coverage());
        self.begun = end + (at - end) / self.interval * self.interval;
    }

    #[inline]
    fn drain(&mut self, collected: &mut Collected) {
        if self.prints.samples {
            while let Some(sample) = self.matcher.poll_sample() {
                collected.sample(&sample);
            }
        }
        while let Some(flow) = self.matcher.poll_flow() {
            collected.flow(&flow);
        }
    }

    fn finish(mut self, mut collected: Collected, interrupted: bool) -> anyhow::Result<Exit> {
        self.matcher.finish(self.latest);
        self.drain(&mut collected);
        let end_ns = self.latest.as_nanos().saturating_add(1);
        let groups = self.matcher.take_groups(self.begun.as_nanos(), end_ns);
        let mut coverage = self.matcher.coverage();
        coverage.counters.extend(self.unread.counters());
        collected.interval(&groups, end_ns, &coverage);
        let stands_still = self.read > 1 && self.latest.as_nanos() == collected.run.header.start_ns;
        if self.steps_back > 0 || stands_still || self.unread.has_bad_times() {
            collected.doubt(Caveat::CaptureTimesWrong);
        }
        collected.finish(end_ns, coverage, interrupted)
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
