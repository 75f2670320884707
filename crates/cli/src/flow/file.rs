//! Flow metering from a capture file, at the speed of memory. The file's clock is its
//! packets' time.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::anyhow;
use sonde_meter::flow::prefetch::prefetch;
use sonde_results::Caveat;
use sonde_results::rtt_run::RttPoint;
use sonde_wire::capture::{CaptureError, Reader, Record};
use sonde_wire::flow::Link;

use super::args::FlowArgs;
use super::export::{self, Common};
use super::exporting::Exporting;
use super::meter::Frame;
use super::{outcome, settings};
use crate::capture_file::{self, unreadable};
use crate::exit::{Exit, Failure};
use crate::signals::Signals;

/// Reads the whole file, until `--duration` of its time has passed, or Ctrl-C.
pub fn run(path: &Path, args: &FlowArgs) -> Result<Exit, Failure> {
    let input = &args.input;
    if input.engine.is_some() || input.trim.is_some() || input.mirror || input.workers > 1 {
        return Err(Failure::Usage(anyhow!(
            "--engine, --trim, --mirror and --workers are for interfaces, not files"
        )));
    }
    let signals = Signals::catch()?;
    let mapping = capture_file::open(path)?;
    let cannot_read = |e: CaptureError| Failure::CannotRun(unreadable(path, e));
    let records = Reader::new(mapping.as_slice()).map_err(cannot_read)?;
    let first = Reader::new(mapping.as_slice()).map_err(cannot_read)?.next();
    let mut run = super::empty_run(args, "capture file".into());
    let tai_offset_s = run.header.host.tai_offset_s;
    let offset_ns = i64::from(tai_offset_s) * 1_000_000_000;
    if let Some(Ok(first)) = first {
        run.header.start_ns = first.unix_nanos.saturating_add(offset_ns);
    }
    let mut meter = settings::meter(args, 1).map_err(Failure::Usage)?;
    let common = Common { args, tai_offset_s, interfaces: Vec::new() };
    let outputs = export::open(&common)?;
    let (exporting, mut queues) = Exporting::start(outputs, 1, QUEUE)?;
    let (shared, mut queue) = (exporting.shared(), queues.remove(0));
    shared.packet_time_ns.store(run.header.start_ns.max(1), Ordering::Relaxed);
    let mut sink = |record| queue.push_waiting(record);

    let end_ns = args.duration.map_or(i64::MAX, |d| run.header.start_ns.saturating_add(d));
    let mut walk = Walk {
        records,
        bytes: mapping.as_slice(),
        offset_ns,
        end_ns,
        ended: false,
        broken: None,
        other_link: 0,
        last_interface: 0,
    };
    let (mut swept, mut interrupted) = (i64::MIN, false);
    while !walk.ended && !interrupted {
        meter.frames(walk.by_ref().take(STRETCH), &mut sink);
        let now = meter.latest_ns();
        if now.saturating_sub(swept) >= SWEEP_NS {
            swept = now;
            meter.cache_mut().handle_timeout(now, &mut sink);
            shared.packet_time_ns.store(now.max(1), Ordering::Relaxed);
            shared.tell_selectors(0, &meter);
        }
        interrupted = signals.wait(Duration::ZERO);
    }
    let latest = meter.latest_ns().max(run.header.start_ns);
    meter.cache_mut().finish(latest, &mut sink);
    queue.flush_waiting();
    shared.packet_time_ns.store(latest.max(1), Ordering::Relaxed);
    shared.tell_selectors(0, &meter);

    if let Some(error) = walk.broken {
        eprintln!("{:#}", unreadable(path, error));
        run.caveats.insert(Caveat::CaptureCutShort);
    }
    if walk.other_link > 0 {
        eprintln!(
            "{}: {} packets of link types that are not known; capture with tcpdump -y EN10MB, \
             RAW or LINUX_SLL2",
            path.display(),
            walk.other_link
        );
    }
    run.counters.insert("other_link_type".into(), walk.other_link);
    run.points = (0..=walk.last_interface).map(|i| point(path, i, walk.last_interface)).collect();
    run.header.end_ns = latest;
    outcome::finish(run, &[&meter], exporting, args, interrupted)
}

/// The file's packets as frames.
struct Walk<'a> {
    records: Reader<'a>,
    /// The file.
    bytes: &'a [u8],
    offset_ns: i64,
    /// Packets from this time on are left out.
    end_ns: i64,
    ended: bool,
    broken: Option<CaptureError>,
    /// Packets of link types that are not known.
    other_link: u64,
    /// The highest of the interfaces that a pcapng file describes and its packets name.
    last_interface: u8,
}

impl<'a> Walk<'a> {
    #[inline]
    fn frame(&mut self, record: &Record<'a>) -> Option<Frame<'a>> {
        let Some(link) = Link::from_capture(record.link_type) else {
            self.other_link += 1;
            return None;
        };
        // The processor fetches ahead by itself, but not across pages.
        let at = record.data.as_ptr().addr() - self.bytes.as_ptr().addr();
        prefetch(self.bytes, at + AHEAD);
        let at_ns = record.unix_nanos.saturating_add(self.offset_ns);
        let point = record.interface.min(u8::MAX.into()) as u8;
        self.last_interface = self.last_interface.max(point);
        let wire_len = record.original_len as usize;
        Some(Frame { bytes: record.data, wire_len, link, at_ns, point })
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Frame<'a>;

    #[inline]
    fn next(&mut self) -> Option<Frame<'a>> {
        loop {
            match self.records.next() {
                Some(Ok(record)) => match self.frame(&record) {
                    Some(frame) if frame.at_ns < self.end_ns => return Some(frame),
                    Some(_) => break,
                    None => {}
                },
                Some(Err(error)) => {
                    self.broken = Some(error);
                    break;
                }
                None => break,
            }
        }
        self.ended = true;
        None
    }
}

fn point(path: &Path, interface: u8, last: u8) -> RttPoint {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    RttPoint {
        name: if last == 0 { file.into() } else { format!("{file} interface {interface}") },
        how: "capture file, by the packets' times".into(),
        vanished: 0,
    }
}

/// Records under way to the export thread: no more than a processor's cache holds.
const QUEUE: usize = 1 << 13;
/// Bytes of the file that are fetched ahead.
const AHEAD: usize = 2_048;
/// Packets between two looks at time and signals.
const STRETCH: usize = 4_096;
/// Between two looks for expired flows, ns of the packets' time.
const SWEEP_NS: i64 = 100_000_000;
