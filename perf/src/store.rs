//! What keeping records costs: processor time, octets, memory. 20,000 interval records and 10,000 flow
//! records a second, as fast as they are taken; all of it in one thread, so that its time is all.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use sonde_results::units::format_count;
use sonde_store::{
    Batch, IntervalRow, Rows, SeriesId, SeriesLabels, Store, StoreOptions, Writer as _,
};

use crate::folder::WorkFolder;
use crate::rtt::thread_cpu;
use crate::store_rows::{BASE_NS, Random, flow, interval};

/// Prints what `seconds` seconds of records take, in two shapes of traffic.
pub fn bench(seconds: u64) -> Result<()> {
    println!("\n## The store: ingest and size\n");
    println!(
        "{} interval and {} flow records for each of {seconds} s, in batches of a fifth of a second, \
         each made durable; segments every 20 s, roll-ups and compaction as they are due. Processor \
         time of the one thread that does it all.\n",
        format_count(STREAMS),
        format_count(FLOWS),
    );
    println!(
        "| probes a record | records a processor second | of a core at this rate | journal | iv | \
         iv1m | flow | flow5m | memory |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for probes in [10, 100] {
        let folder = WorkFolder::new()?;
        let m = measure(&folder, seconds, probes)?;
        let rate = m.records as f64 / m.processor_s;
        let share = (STREAMS + FLOWS) as f64 / rate * 100.0;
        let octets = |table: &str| match m.octets.get(table) {
            Some(octets) => format!("{octets:.1} B"),
            None => "-".to_owned(),
        };
        println!(
            "| {probes} | {} | {share:.1} % | {} | {} | {} | {} | {} | {} MB |",
            format_count(rate as u64),
            octets("journal"),
            octets("iv"),
            octets("iv1m"),
            octets("flow"),
            octets("flow5m"),
            m.peak_octets / 1_000_000,
        );
        eprintln!("{} records in {:.1} s of wall time", format_count(m.records), m.wall_s);
    }
    println!("\nOctets are for each row of the table; of the journal for each record.");
    Ok(())
}

struct Measured {
    records: u64,
    processor_s: f64,
    wall_s: f64,
    /// A row, by table.
    octets: BTreeMap<String, f64>,
    peak_octets: u64,
}

fn measure(folder: &WorkFolder, seconds: u64, probes: u64) -> Result<Measured> {
    let path = folder.0.join("store");
    let store = Store::open(&path, StoreOptions::default())?;
    let labels = |stream: u64| SeriesLabels { target: stream.to_string(), ..Default::default() };
    store.register_all(&(0..STREAMS).map(labels).collect::<Vec<_>>())?;
    let mut random = Random(7);
    let bases: Vec<f64> = (0..STREAMS).map(|_| 1e5 * 1_000f64.powf(random.share())).collect();
    let mut writer = store.writer()?;
    let (mut processor_s, mut records, mut number, mut journal) = (0.0, 0, 0, 0);
    let begin = Instant::now();
    for second in 0..seconds as i64 {
        for part in 0..PARTS {
            // Making records is no part of it.
            let streams = (0..STREAMS).filter(|s| s % PARTS == part);
            let intervals = streams.map(|s| {
                let base = bases[s as usize];
                let record = interval(&mut random, base, second, probes, false);
                IntervalRow::new(SeriesId(s as u32), &record)
            });
            let intervals = Rows::Intervals(intervals.collect());
            let flows =
                Rows::Flows((0..FLOWS / PARTS).map(|_| flow(&mut random, second)).collect());
            let start = thread_cpu()?;
            for rows in [intervals, flows] {
                number += 1;
                records += rows.len() as u64;
                writer.append(&Batch { writer: "perf".into(), number, rows: rows.into() })?;
            }
            writer.sync()?;
            processor_s += thread_cpu()? - start;
        }
        journal = journal.max(size(&path.join("journal"))?);
        let start = thread_cpu()?;
        store.maintain(BASE_NS + (second + 1) * 1_000_000_000, None)?;
        processor_s += thread_cpu()? - start;
    }
    drop(writer);
    let start = thread_cpu()?;
    store.flush()?;
    processor_s += thread_cpu()? - start;
    let wall_s = begin.elapsed().as_secs_f64();
    let mut octets = BTreeMap::new();
    for table in store.state() {
        ensure!(table.rows > 0, "{} is empty", table.table.name());
        octets.insert(table.table.name().to_owned(), table.octets as f64 / table.rows as f64);
    }
    // The journal is of 20 s at most.
    let held = (STREAMS + FLOWS) * seconds.min(20);
    octets.insert("journal".into(), journal as f64 / held as f64);
    let peak_octets = peak_octets()?;
    Ok(Measured { records, processor_s, wall_s, octets, peak_octets })
}

fn size(folder: &std::path::Path) -> Result<u64> {
    let mut total = 0;
    for entry in std::fs::read_dir(folder)? {
        total += entry?.metadata()?.len();
    }
    Ok(total)
}

/// The most memory that this process ever had, with the records that it made.
fn peak_octets() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1_024)
}

const STREAMS: u64 = 20_000;
const FLOWS: u64 = 10_000;
/// Batches of a second.
const PARTS: u64 = 5;
