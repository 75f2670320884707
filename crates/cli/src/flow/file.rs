//! Flow metering from a capture file, at the speed of memory. The file's clock is its
//! packets' time. Each metering thread reads the whole file and meters its share.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use sonde_port::clock::pin_to_cpu;
use sonde_results::rtt_run::RttPoint;
use sonde_results::{Caveat, FlowRun};
use sonde_wire::capture::{CaptureError, Reader};

use super::args::FlowArgs;
use super::export::{self, Common};
use super::exporting::{Exporting, Records, Shared};
use super::meter::{Group, Meter};
use super::share::Share;
use super::walk::{GROUP, Walk};
use super::{outcome, settings};
use crate::capture_file::{self, unreadable};
use crate::exit::{Exit, Failure};
use crate::joins::Numbers;
use crate::settings::secrets;
use crate::signals::Signals;

/// Reads the whole file, until `--duration` of its time has passed, or Ctrl-C.
pub fn run(path: &Path, args: &FlowArgs) -> Result<Exit, Failure> {
    let input = &args.input;
    if input.engine.is_some() || input.trim.is_some() || input.mirror {
        return Err(Failure::Usage(anyhow!(
            "--engine, --trim and --mirror are for interfaces, not files"
        )));
    }
    let signals = Signals::catch()?;
    let mapping = capture_file::open(path)?;
    let cannot_read = |e: CaptureError| Failure::CannotRun(unreadable(path, e));
    let first = Reader::new(mapping.as_slice()).map_err(cannot_read)?.next();
    let mut run = super::empty_run(args, "capture file".into());
    let tai_offset_s = run.header.host.tai_offset_s;
    let offset_ns = i64::from(tai_offset_s) * 1_000_000_000;
    if let Some(Ok(first)) = first {
        run.header.start_ns = first.unix_nanos.saturating_add(offset_ns);
    }
    let start_ns = run.header.start_ns;
    let end_ns = args.duration.map_or(i64::MAX, |d| start_ns.saturating_add(d));
    let walk = Walk::new(mapping.as_slice(), offset_ns, end_ns).map_err(cannot_read)?;
    let meters = meters(args).map_err(Failure::Usage)?;
    let common = Common { args, tai_offset_s, interfaces: Vec::new(), can_wait: true };
    let outputs = export::open(&common)?;
    let (exporting, queues) = Exporting::start(outputs, meters.len(), QUEUE)?;
    let shared = exporting.shared();
    shared.packet_time_ns.store(start_ns.max(1), Ordering::Relaxed);

    let turnstile = Turnstile::default();
    let part = |((number, meter), queue)| Part {
        number,
        meter,
        queue,
        walk: walk.clone(),
        shared: &shared,
        turnstile: &turnstile,
        start_ns,
    };
    let mut parts = meters.into_iter().enumerate().zip(queues).map(part);
    let here = parts.next().context("there is at least one worker")?;
    let interrupted = || signals.wait(Duration::ZERO);
    let parts: Vec<Part<'_>> = thread::scope(|scope| {
        let started: Vec<_> = parts.map(|part| scope.spawn(|| part.run(args, || false))).collect();
        let mut parts = vec![here.run(args, interrupted)?];
        for thread in started {
            parts.push(thread.join().map_err(|_| {
                anyhow!("a metering thread failed; please report what it printed")
            })??);
        }
        anyhow::Ok(parts)
    })?;

    let interrupted = turnstile.is_closed();
    let meters: Vec<&Meter> = parts.iter().map(|part| &part.meter).collect();
    tell(&mut run, &parts[0].walk, path);
    outcome::finish(run, &meters, exporting, args, interrupted)
}

/// One for each metering thread, in the memory of its processor.
fn meters(args: &FlowArgs) -> anyhow::Result<Vec<Meter>> {
    let (workers, keys) = (usize::from(args.input.workers), settings::keys(args));
    let secret = secrets(args.metering.seed);
    // Chance decides the same in every thread, if all of them ask it for every packet.
    let parses_all = !super::selection::sequence(&args.selection, secret[0])?.is_empty();
    let share = |i| match workers {
        1 => Share::whole(),
        _ => Share::new(i, workers, secret, keys, parses_all),
    };
    let numbers = Numbers::new(&args.metering.join)?;
    let places: Vec<u8> = (0..=u8::MAX).map(|i| numbers.place(i.into()) as u8).collect();
    (0..workers).map(|i| settings::meter_at(i, args, secret, share(i), &places)).collect()
}

/// What the file was like.
fn tell(run: &mut FlowRun, walk: &Walk<'_>, path: &Path) {
    if let Some(error) = walk.broken {
        errln!("{:#}", unreadable(path, error));
        run.caveats.insert(Caveat::CaptureCutShort);
    }
    let unread = walk.unread();
    for line in unread.lines() {
        errln!("{}: {line}", path.display());
    }
    if unread.skipped.bad_times > 0 {
        run.caveats.insert(Caveat::CaptureTimesWrong);
    }
    run.counters.extend(unread.counters());
    run.points = (0..=walk.last_interface).map(|i| point(path, i, walk.last_interface)).collect();
    run.header.end_ns = walk.latest_ns.max(run.header.start_ns);
}

fn point(path: &Path, interface: u8, last: u8) -> RttPoint {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    RttPoint {
        name: if last == 0 { file.into() } else { format!("{file} interface {interface}") },
        how: "capture file, by the packets' times".into(),
        vanished: 0,
    }
}

/// One metering thread's work.
struct Part<'a> {
    number: usize,
    meter: Meter,
    queue: Records,
    walk: Walk<'a>,
    shared: &'a Shared,
    turnstile: &'a Turnstile,
    start_ns: i64,
}

impl Part<'_> {
    /// Reads the file to its end, or to where all threads end after one was interrupted.
    fn run(mut self, args: &FlowArgs, interrupted: impl Fn() -> bool) -> anyhow::Result<Self> {
        if let Some(&cpu) = args.input.cpus.get(self.number) {
            pin_to_cpu(cpu).with_context(|| format!("cannot run on processor {cpu}"))?;
        }
        let share = *self.meter.share();
        let mut group = Group::<GROUP>::new();
        let (mut told, mut stretch) = (i64::MIN, 0);
        'file: loop {
            if interrupted() {
                self.turnstile.close();
            }
            if !self.turnstile.lets_in(stretch) {
                break;
            }
            stretch += 1;
            for _ in 0..STRETCH {
                let (walk, meter) = (&mut self.walk, &mut self.meter);
                if !walk.group(&share, |frame| meter.gather(frame, &mut group)) {
                    break 'file;
                }
                let queue = &mut self.queue;
                let mut sink = |record| queue.push_waiting(record);
                if let Some(now) = self.walk.clock() {
                    self.meter.cache_mut().handle_timeout(now, &mut sink);
                }
                self.meter.pass(&mut group, &mut sink);
            }
            if self.walk.latest_ns.saturating_sub(told) >= TELL_NS {
                told = self.walk.latest_ns;
                self.tell();
            }
        }
        let queue = &mut self.queue;
        let now_ns = self.walk.now_ns().max(self.start_ns);
        self.meter.cache_mut().finish(now_ns, &mut |record| queue.push_waiting(record));
        self.queue.flush_waiting();
        self.tell();
        Ok(self)
    }

    /// How far it is, and what could not be metered.
    fn tell(&self) {
        let now = self.walk.latest_ns.max(self.start_ns).max(1);
        self.shared.packet_time_ns.fetch_max(now, Ordering::Relaxed);
        let tells_all = self.meter.share().tells_all();
        let unread = if tells_all { self.walk.unread().packets() } else { 0 };
        self.shared.tell(self.number, &self.meter, unread);
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

    fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & CLOSED != 0
    }
}

/// Beside the number of stretches that have begun.
const CLOSED: u64 = 1 << 63;
/// Records under way to the export thread: no more than a processor's cache holds.
const QUEUE: usize = 1 << 13;
/// Groups of packets between two looks at time and signals.
const STRETCH: usize = 128;
/// Between two reports to the export thread, ns of the packets' time.
const TELL_NS: i64 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_turnstile_lets_everyone_go_as_far_as_the_first() {
        let turnstile = Turnstile::default();
        assert!((0..5).all(|stretch| turnstile.lets_in(stretch)));
        assert!(turnstile.lets_in(0) && !turnstile.is_closed());
        turnstile.close();
        assert!((1..5).all(|stretch| turnstile.lets_in(stretch)));
        assert!(!turnstile.lets_in(5) && turnstile.is_closed());
    }
}
