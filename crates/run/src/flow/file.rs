//! Flow metering from captures, at the speed of memory. The clock is that of their packets.
//! Each metering thread reads everything and meters its shard.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;

use anyhow::Context as _;
use sonde_results::{Caveat, FlowRun};
use sonde_sys::schedule::pin_to_cpu;

use super::capture_reader::{CaptureReader, GROUP, GROUPS, Within};
use super::export::{self, Common};
use super::exporting::{Exporting, MeteringState, RecordQueue};
use super::meter::{Meter, PacketGroup};
use super::settings::Settings;
use super::shard::Shard;
use super::status::{FlowMetering, Status, empty_run, ended};
use super::{outcome, setup};
use crate::capture_file::{CaptureFiles, CapturePiece, First, LOOK_AROUND, NextPiece, point};
use crate::error::{RunError, SettingsError};
use crate::joins::CaptureJoins;
use crate::running::{Context, Latest, Running, Stop};
use crate::secrets::secrets_of_captures;
use crate::thread::{join_scoped, spawn_scoped};

/// Waits for the first packets, and reads everything from there on. It ends when the duration
/// has passed in the captures' time, or when the end is asked for.
pub fn start(
    paths: &[PathBuf],
    settings: Settings,
    context: &Context,
) -> Result<FlowMetering, RunError> {
    let input = &settings.input;
    let of_interfaces = [
        ("input.engine", input.engine.is_some()),
        ("input.trim", input.trim.is_some()),
        ("input.mirror", input.mirror),
    ];
    if let Some((key, _)) = of_interfaces.iter().find(|(_, given)| *given) {
        let why = "`input.engine`, `input.trim` and `input.mirror` are for interfaces, not files; \
                   leave them out";
        return Err(SettingsError::of(key, why).into());
    }
    let stop = context.stop.clone();
    let mut input = CaptureFiles::open(paths)?.in_groups(GROUPS);
    let secret = secrets_of_captures(settings.metering.seed, input.are_regular());
    let first = match input.first(|| stop.is_asked())? {
        First::Piece(piece) => Some(piece),
        First::Nothing | First::BrokenOff => None,
    };
    let mut run = empty_run(&settings, "capture file".into());
    let tai_offset_s = run.header.host.tai_offset_s;
    let offset_ns = i64::from(tai_offset_s) * 1_000_000_000;
    if let Some(utc) = first.as_ref().and_then(CapturePiece::begin_ns) {
        run.header.start_ns = utc.saturating_add(offset_ns);
    }
    let meters = meters(&settings, secret)?;
    let common = Common {
        settings: &settings,
        tai_offset_s,
        interfaces: Vec::new(),
        can_wait: true,
        stop: stop.clone(),
        stdout: context.stdout,
    };
    let (outputs, records) = export::open(&common)?;
    let (exporting, queues) = Exporting::start(outputs, meters.len(), ROOM)?;
    let control = exporting.control();
    let shared = exporting.shared();
    shared.packet_time_ns.store(run.header.start_ns.max(1), Ordering::Relaxed);
    let status = Latest::new(Status::new(run.clone()));
    let (theirs, asked, paths) = (status.clone(), stop.clone(), paths.to_owned());
    let work = move || {
        let read =
            read_all(&run, &settings, (input, first, offset_ns), (meters, queues), &shared, &asked);
        let finished = read.and_then(|(meters, broken, reader)| {
            describe(&mut run, &reader, broken, &paths);
            let meters: Vec<&Meter> = meters.iter().collect();
            outcome::finish(run, &meters, exporting)
        });
        ended(&theirs, finished, None)
    };
    Running::start("sonde-flow", (records, status, control), stop, work)
}

/// Reads and meters everything. Returns the meters, what captures could not be read to their ends,
/// and the reader.
fn read_all(
    run: &FlowRun,
    settings: &Settings,
    (input, first, offset_ns): (CaptureFiles, Option<CapturePiece>, i64),
    (meters, queues): (Vec<Meter>, Vec<RecordQueue>),
    shared: &MeteringState,
    asked: &Stop,
) -> anyhow::Result<(Vec<Meter>, Vec<String>, CaptureReader)> {
    let start_ns = run.header.start_ns;
    let end_ns = settings.duration.map_or(i64::MAX, |d| start_ns.saturating_add(d));
    let turnstile = Turnstile::default();
    let stop = AtomicBool::new(false);
    let (gives, takes): (Vec<_>, Vec<_>) = meters.iter().map(|_| sync_channel(PIECES)).unzip();
    let part = |((worker, meter), queue)| Part {
        worker,
        meter,
        queue,
        reader: CaptureReader::new(offset_ns, end_ns),
        shared,
        turnstile: &turnstile,
        start_ns,
    };
    let mut parts = meters.into_iter().enumerate().zip(queues).map(part).zip(takes);
    let (here, pieces) = parts.next().context("`input.workers`: at least 1")?;
    thread::scope(|scope| {
        let reading = spawn_scoped(scope, "sonde-read", || feed(input, first, gives, &stop));
        let mut started = Vec::new();
        for (part, pieces) in parts {
            let work = move || part.run(pieces, settings, || false);
            started.push(spawn_scoped(scope, "sonde-meter", work));
        }
        let here = here.run(pieces, settings, || asked.is_asked());
        // Those that still wait for packets wait in vain.
        stop.store(true, Ordering::Relaxed);
        let Part { meter, reader, .. } = here?;
        let mut meters = vec![meter];
        for thread in started {
            meters.push(join_scoped(thread)??.meter);
        }
        Ok((meters, join_scoped(reading)??, reader))
    })
}

/// Gives every metering thread every piece. Returns what captures could not be read to their
/// ends.
fn feed(
    mut input: CaptureFiles,
    first: Option<CapturePiece>,
    gives: Vec<SyncSender<Arc<CapturePiece>>>,
    stop: &AtomicBool,
) -> anyhow::Result<Vec<String>> {
    let mut broken = Vec::new();
    let mut next = first.map_or(NextPiece::End, NextPiece::Piece);
    while !stop.load(Ordering::Relaxed) {
        match next {
            NextPiece::Piece(piece) => {
                let piece = Arc::new(piece);
                // One that has ended wants no more.
                gives.iter().for_each(|give| drop(give.send(Arc::clone(&piece))));
            }
            NextPiece::Broken(why) => broken.push(why),
            NextPiece::Wait => {}
            NextPiece::End => break,
        }
        next = input.next(LOOK_AROUND)?;
    }
    Ok(broken)
}

/// One for each metering thread, in the memory of its processor.
fn meters(settings: &Settings, secret: [u64; 2]) -> Result<Vec<Meter>, RunError> {
    let (workers, keys) = (usize::from(settings.input.workers), setup::keys(settings));
    // Chance decides the same in every thread, if all of them ask it for every packet.
    let parses_all = !super::selection::sequence(&settings.selection, secret[0])?.is_empty();
    let shard = |i| match workers {
        1 => Shard::whole(),
        _ => Shard::new(i, workers, secret, keys, parses_all),
    };
    let joins = CaptureJoins::new("metering.join", &settings.metering.join)?;
    let points: Vec<u8> = (0..=u8::MAX).map(|i| joins.point_of(i.into()) as u8).collect();
    (0..workers).map(|i| setup::meter_at(i, settings, secret, shard(i), &points)).collect()
}

/// What the captures were like: points, caveats, packets that could not be read.
fn describe(run: &mut FlowRun, reader: &CaptureReader, mut broken: Vec<String>, paths: &[PathBuf]) {
    broken.extend(reader.broken.iter().cloned());
    for why in &broken {
        tracing::warn!("{why}");
        run.caveats.insert(Caveat::CaptureCutShort);
    }
    let name = match paths {
        [path] if path.as_os_str() == "-" => "standard input".into(),
        [path] => path.display().to_string(),
        _ => "captures".into(),
    };
    let unread = &reader.unread;
    for line in unread.lines() {
        tracing::warn!("{name}: {line}");
    }
    if unread.has_bad_times() {
        run.caveats.insert(Caveat::CaptureTimesWrong);
    }
    run.counters.extend(unread.counters());
    let name = name.rsplit('/').next().unwrap_or(&name);
    let several = reader.last_interface > 0;
    let at = |i: u8| {
        let called = reader.names.get(&i).map(String::as_str);
        point(name, called, several.then_some(i.into()))
    };
    run.points = (0..=reader.last_interface).map(at).collect();
    run.header.end_ns = reader.latest_ns.max(run.header.start_ns);
}

/// One metering thread's work.
struct Part<'a> {
    worker: usize,
    meter: Meter,
    queue: RecordQueue,
    reader: CaptureReader,
    shared: &'a MeteringState,
    turnstile: &'a Turnstile,
    start_ns: i64,
}

impl Part<'_> {
    /// Reads everything, or to where all threads end after one was interrupted.
    fn run(
        mut self,
        pieces: Receiver<Arc<CapturePiece>>,
        settings: &Settings,
        interrupted: impl Fn() -> bool,
    ) -> anyhow::Result<Self> {
        if let Some(&cpu) = settings.input.cpus.get(self.worker) {
            pin_to_cpu(cpu).with_context(|| {
                format!("`input.cpus`: cannot run on processor {cpu}; 'lscpu -e' lists them")
            })?;
        }
        let mut stretch = 0;
        loop {
            let piece = match pieces.recv_timeout(LOOK_AROUND) {
                Ok(piece) => piece,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if interrupted() => {
                    self.turnstile.close();
                    break;
                }
                Err(RecvTimeoutError::Timeout) => continue,
            };
            if !self.pass(&piece, &mut stretch, &interrupted) {
                break;
            }
        }
        // Whoever gives them must not wait for this thread to take more.
        drop(pieces);
        let queue = &mut self.queue;
        let now_ns = self.reader.now_ns().max(self.start_ns);
        self.meter.cache_mut().finish(now_ns, &mut |record| queue.push_waiting(record));
        self.queue.flush_waiting();
        self.report();
        Ok(self)
    }

    /// Meters a piece; false: no more are wanted.
    fn pass(
        &mut self,
        piece: &CapturePiece,
        stretch: &mut u64,
        interrupted: &impl Fn() -> bool,
    ) -> bool {
        let shard = *self.meter.shard();
        let mut group = PacketGroup::<GROUP>::new();
        let mut within = Within::new(piece);
        let mut reported = self.reader.latest_ns;
        let goes_on = 'piece: loop {
            if interrupted() {
                self.turnstile.close();
            }
            if !self.turnstile.lets_in(*stretch) {
                break false;
            }
            *stretch += 1;
            for _ in 0..STRETCH {
                let (reader, meter) = (&mut self.reader, &mut self.meter);
                if !reader.group(&mut within, &shard, |frame| meter.gather(frame, &mut group)) {
                    break 'piece !reader.is_over();
                }
                let queue = &mut self.queue;
                let mut sink = |record| queue.push_waiting(record);
                if let Some(now) = self.reader.clock() {
                    self.meter.cache_mut().handle_timeout(now, &mut sink);
                }
                self.meter.pass(&mut group, &mut sink);
            }
            if self.reader.latest_ns.saturating_sub(reported) >= REPORT_NS {
                reported = self.reader.latest_ns;
                self.report();
            }
        };
        self.reader.leave(&within);
        self.report();
        goes_on
    }

    /// How far it is, and what could not be metered.
    fn report(&self) {
        let now = self.reader.latest_ns.max(self.start_ns).max(1);
        self.shared.packet_time_ns.fetch_max(now, Ordering::Relaxed);
        let reports_all = self.meter.shard().reports_all();
        let unread = if reports_all { self.reader.unread.packets() } else { 0 };
        self.shared.report(self.worker, &self.meter, unread);
    }
}

/// Has all threads end after the same part of the file, though none knows how far the others
/// are.
#[derive(Debug, Default)]
struct Turnstile(AtomicU64);

impl Turnstile {
    /// A thread asks to begin a stretch: all that one of them has begun before this was
    /// closed may be read by all.
    fn lets_in(&self, stretch: u64) -> bool {
        let mut begun = self.0.load(Ordering::Relaxed);
        loop {
            if stretch < begun & !CLOSED {
                return true;
            }
            if begun & CLOSED != 0 {
                return false;
            }
            let (order, next) = (Ordering::Relaxed, stretch + 1);
            match self.0.compare_exchange_weak(begun, next, order, order) {
                Ok(_) => return true,
                Err(now) => begun = now,
            }
        }
    }

    fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::Relaxed);
    }

    #[cfg(test)]
    fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & CLOSED != 0
    }
}

/// Beside the count of stretches that have begun.
const CLOSED: u64 = 1 << 63;
/// Records under way to the export thread: no more than a processor's cache holds.
const ROOM: usize = 1 << 13;
/// Groups of packets between two looks at time and signals.
const STRETCH: usize = 128;
/// Pieces that wait for a thread.
const PIECES: usize = 2;
/// Between two reports to the export thread, ns of the packets' time.
const REPORT_NS: i64 = 100_000_000;

#[cfg(test)]
mod tests;
