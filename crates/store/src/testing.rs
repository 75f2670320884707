//! Made-up rows for the tests: the same for a seed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use sonde_results::flow::{FlowEnd, FlowRecord, FlowSide};
use sonde_results::rtt::FlowKey;
use sonde_results::{Caveat, Hist, Interval};
use sonde_wire::{NotSent, StampSource};

use crate::embedded::disk::{Disk, DiskFile, HostDisk};
use crate::flow::FlowRow;
use crate::hist_blob::HistBlob;
use crate::interface::{InterfaceRow, InterfaceSide};
use crate::interval::IntervalRow;
use crate::rtt::RttRow;
use crate::series::SeriesId;

/// 2026-11-25 23:00 UTC, ns since 1970.
pub(crate) const START: i64 = 1_795_647_600 * 1_000_000_000;

/// A small generator (SplitMix64), so that a seed gives the same rows for ever.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// The record of a stream of `n` probes from `start_ns` on.
pub(crate) fn record(random: &mut Random, start_ns: i64, length_ns: i64, n: u64) -> Interval {
    let mut i = Interval::empty(0);
    (i.start_ns, i.end_ns) = (start_ns, start_ns + length_ns);
    i.counters.sent = n;
    i.counters.lost = match random.below(8) {
        0 => random.below(n + 1),
        1 => n,
        _ => 0,
    };
    i.counters.received = n - i.counters.lost;
    if random.below(2) == 0 {
        let forward = random.below(i.counters.lost + 1);
        let backward = random.below(i.counters.lost - forward + 1);
        (i.counters.lost_forward, i.counters.lost_backward) = (Some(forward), Some(backward));
    }
    i.counters.settle_sides();
    i.loss_side = i.counters.loss_side();
    i.counters.duplicated = random.below(2);
    i.counters.skipped = random.below(3);
    i.counters.not_sent.add(NotSent::Late, i.counters.skipped);
    let base = 1_000_000 << random.below(6);
    for _ in 0..i.counters.received {
        let (there, back, dwell) =
            (base + random.below(1 << 20), base + random.below(1 << 18), random.below(50_000));
        i.rtt.add((there + back + dwell) as i64);
        i.rtt_net.add((there + back) as i64);
        i.forward.add(there as i64 - 20_000_000);
        i.backward.add(back as i64 + 20_000_000);
        i.ipdv_forward.add(random.below(1 << 16) as i64 - (1 << 15));
        i.ipdv_backward.add(random.below(1 << 12) as i64 - (1 << 11));
    }
    i.jitter_forward_ns = random.below(1 << 20) as f64;
    i.jitter_backward_ns = random.below(1 << 10) as f64;
    if i.counters.received > 0 {
        i.t1_source = Some(StampSource::Driver);
        i.t4_source = Some([StampSource::Kernel, StampSource::User][random.below(2) as usize]);
        i.peer_error_ns = (random.below(2) == 0).then(|| random.below(9_000) as f64);
    }
    for caveat in [Caveat::SenderLate, Caveat::PeerClockUnsynchronised, Caveat::DwellDominates] {
        if random.below(5) == 0 {
            i.caveats.insert(caveat);
        }
    }
    i
}

/// `per_series` rows of one second for each of `series` series, in the order in which they come.
pub(crate) fn intervals(seed: u64, series: u32, per_series: i64, probes: u64) -> Vec<IntervalRow> {
    let mut random = Random(seed);
    let mut rows = Vec::new();
    for second in 0..per_series {
        for s in 0..series {
            let start = START + second * 1_000_000_000;
            rows.push(IntervalRow::new(
                SeriesId(s),
                &record(&mut random, start, 1_000_000_000, probes),
            ));
        }
    }
    rows
}

/// `n` flow records of an exporter within `span_ns` from [`START`] on.
pub(crate) fn flows(seed: u64, exporter: u32, n: usize, span_ns: i64) -> Vec<FlowRow> {
    let mut random = Random(seed);
    let mut rows = Vec::new();
    for _ in 0..n {
        let last_ns = START + random.below(span_ns as u64) as i64;
        let first_ns = last_ns - random.below(60_000_000_000) as i64;
        let side = |random: &mut Random| FlowSide {
            packets: 1 + random.below(100),
            bytes: 40 + random.below(100_000),
            first_ns,
            last_ns,
            tcp_flags: 0x1B,
            tos: 0,
            ttl_min: 60,
            ttl_max: 64,
        };
        let host = |random: &mut Random| match random.below(10) {
            0 => format!("2001:db8::{:x}", random.below(9)).parse().unwrap(),
            _ => format!("10.0.{}.{}", random.below(3), random.below(200)).parse().unwrap(),
        };
        let record = FlowRecord {
            key: FlowKey {
                point: random.below(2) as u8,
                vlan: 0,
                protocol: [6, 17, 1][random.below(3) as usize],
                source: host(&mut random),
                destination: host(&mut random),
                source_port: 32_768 + random.below(20_000) as u16,
                destination_port: [443, 53, 0x800][random.below(3) as usize],
            },
            forward: side(&mut random),
            reverse: match random.below(4) {
                0 => FlowSide::default(),
                _ => FlowSide { first_ns: first_ns.min(last_ns - 5_000), ..side(&mut random) },
            },
            end: FlowEnd::ALL[random.below(5) as usize],
            extra: None,
        };
        rows.push(FlowRow::new(SeriesId(exporter), &record));
    }
    rows
}

/// Rows of one second for each of `groups` groups of a unit.
pub(crate) fn rtt(seed: u64, series: u32, groups: u64) -> Vec<RttRow> {
    let mut random = Random(seed);
    let mut rows = Vec::new();
    for second in 0..20 {
        for group in 0..groups {
            let mut hists = [Hist::default(), Hist::default(), Hist::default()];
            for hist in &mut hists {
                (0..random.below(9)).for_each(|_| hist.add(1 << (10 + random.below(20))));
            }
            rows.push(RttRow {
                series: SeriesId(series),
                group: format!("10.0.{group}.0/24").into(),
                start_ns: START + second * 1_000_000_000,
                length_ns: 1_000_000_000,
                intervals: 1,
                clean: HistBlob::new(&hists[0]),
                recovery: HistBlob::new(&hists[1]),
                delayed_ack: HistBlob::new(&hists[2]),
                caveats: random.below(4),
                caveat_counts: Box::default(),
            });
        }
    }
    rows
}

/// Rows of ten seconds of `count` interfaces.
pub(crate) fn interfaces(seed: u64, count: u32) -> Vec<InterfaceRow> {
    let mut random = Random(seed);
    let mut side = || InterfaceSide {
        octets: random.below(10_000_000_000),
        packets: random.below(10_000_000),
        dropped: random.below(3),
        errors: random.below(2),
    };
    let row = |(series, turn): (u32, i64)| InterfaceRow {
        series: SeriesId(series),
        start_ns: START + turn * 10_000_000_000,
        length_ns: 10_000_000_000,
        intervals: 1,
        receive: side(),
        transmit: side(),
        queue_dropped: u64::from(series),
        speed_bps: 1_000_000_000,
    };
    (0..count).flat_map(|series| (0..60).map(move |turn| (series, turn))).map(row).collect()
}

/// A folder of its own, gone at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("sonde-store-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        // In memory where there is such a folder: a sync costs nothing there.
        let memory = Path::new("/dev/shm");
        let path =
            if memory.is_dir() { memory.join(name) } else { std::env::temp_dir().join(name) };
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A disk with so much room, and with faults.
pub(crate) struct FaultyDisk {
    room: Arc<AtomicU64>,
    truncate_fails: Arc<AtomicBool>,
    /// Calls that change something may still succeed so often; then each fails.
    calls: Arc<AtomicU64>,
    faults: Arc<AtomicU64>,
}

impl Default for FaultyDisk {
    fn default() -> Self {
        FaultyDisk {
            room: Arc::new(AtomicU64::new(u64::MAX)),
            truncate_fails: Arc::default(),
            calls: Arc::new(AtomicU64::new(u64::MAX)),
            faults: Arc::new(AtomicU64::new(u64::MAX)),
        }
    }
}

impl FaultyDisk {
    /// So many octets can still be written. What is removed gives its room back.
    pub(crate) fn room_for(&self, octets: u64) {
        self.room.store(octets, Relaxed);
    }

    pub(crate) fn truncate_fails(&self, fails: bool) {
        self.truncate_fails.store(fails, Relaxed);
    }

    /// So many calls succeed, then each fails as of a disk without room.
    pub(crate) fn calls_until_full(&self, calls: u64) {
        self.calls.store(calls, Relaxed);
    }

    /// So many calls succeed, then each fails, and no room helps.
    pub(crate) fn fail_after(&self, calls: u64) {
        self.faults.store(calls, Relaxed);
    }

    pub(crate) fn works_again(&self) {
        self.faults.store(u64::MAX, Relaxed);
    }

    fn call(&self) -> io::Result<()> {
        call(&self.calls, &self.faults)
    }
}

fn call(calls: &AtomicU64, faults: &AtomicU64) -> io::Result<()> {
    count_down(faults, 1).map_err(|_| io::Error::other("no disk today"))?;
    count_down(calls, 1).map(drop)
}

/// Takes `n` off, or says that the disk is full. `u64::MAX` stays as it is.
fn count_down(left: &AtomicU64, n: u64) -> io::Result<u64> {
    let take = |left: u64| match left {
        u64::MAX => Some(left),
        _ => left.checked_sub(n),
    };
    left.fetch_update(Relaxed, Relaxed, take).map_err(|_| io::ErrorKind::StorageFull.into())
}

impl Disk for FaultyDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        HostDisk.create_folder(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.call()?;
        Ok(Box::new(self.file(HostDisk.create(path)?)))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.call()?;
        Ok(Box::new(self.file(HostDisk.append(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call()?;
        HostDisk.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call()?;
        HostDisk.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        count_down(&self.faults, 1).map_err(|_| io::Error::other("no disk today"))?;
        let length = std::fs::metadata(path).map_or(0, |m| m.len());
        HostDisk.remove(path)?;
        let give = |left: u64| Some(left.saturating_add(length));
        let _ = self.room.fetch_update(Relaxed, Relaxed, give);
        if length > 0 && self.calls.load(Relaxed) == 0 {
            self.calls.store(u64::MAX, Relaxed);
        }
        Ok(())
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.call()?;
        HostDisk.sync_folder(path)
    }
}

impl FaultyDisk {
    fn file(&self, inner: Box<dyn DiskFile>) -> FaultyFile {
        FaultyFile {
            inner,
            room: self.room.clone(),
            truncate_fails: self.truncate_fails.clone(),
            calls: self.calls.clone(),
            faults: self.faults.clone(),
        }
    }
}

struct FaultyFile {
    inner: Box<dyn DiskFile>,
    room: Arc<AtomicU64>,
    truncate_fails: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    faults: Arc<AtomicU64>,
}

impl io::Write for FaultyFile {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        call(&self.calls, &self.faults)?;
        // A disk that fills takes what it has room for.
        let room = self.room.load(Relaxed).min(octets.len() as u64);
        if room == 0 && !octets.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        count_down(&self.room, room)?;
        self.inner.write_all(&octets[..room as usize])?;
        Ok(room as usize)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl DiskFile for FaultyFile {
    fn sync(&mut self) -> io::Result<()> {
        call(&self.calls, &self.faults)?;
        self.inner.sync()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        match self.truncate_fails.load(Relaxed) {
            true => Err(io::Error::other("no truncation today")),
            false => self.inner.truncate(length),
        }
    }
}
