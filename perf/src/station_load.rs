//! A whole station beside its sender of 20,000 streams: what it takes in and keeps, what that costs the
//! sender, what memory it needs. Without it: the same sender alone.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sonde_lab::{LinkOptions, Topology};
use sonde_results::Counters;
use sonde_results::units::format_count;

use crate::args::Args;
use crate::folder::WorkFolder;
use crate::load::{CLASSES, DESTINATIONS, Load, Look, SIZE, STREAMS};
use crate::reflectors;
use crate::station_process::{ProcessUse, StationProcess, store_folder};
use crate::stored;

/// What runs in the station beside the probe.
#[derive(Clone, Copy, Default)]
struct Beside {
    /// A flow unit, and traffic for it.
    flows: bool,
    /// The streams are known before, from a short run.
    known: bool,
    /// Clients of the live stream that hardly read.
    clients: usize,
}

/// What became of one run.
#[derive(Default)]
struct LoadRun {
    counters: Counters,
    /// How late packets left: median, 99th percentile and most, us.
    lateness_us: [f64; 3],
    /// Pauses of the sender's thread above 50 us: how many, and the longest, us.
    pauses: (u64, f64),
    used: ProcessUse,
    intervals: u64,
    flows: u64,
    /// Records that found no room, or were not kept.
    dropped: u64,
    /// Of tables, rows and octets.
    sizes: Vec<(&'static str, u64, u64)>,
    written: u64,
    /// Clients that were still served at the end, and octets that all of them read.
    clients: (usize, u64),
    seconds: f64,
}

/// Prints what a station takes in beside its sender, and what that costs.
pub fn bench(args: &Args) -> Result<()> {
    println!("\n## A station beside its sender\n");
    let (seconds, rounds) = args.of_station();
    let load = Load { rate: carried()?, seconds };
    println!(
        "{} streams of {SIZE} octets, {} packets/s, `af_xdp` on the first processor, kernel reflector at \
         the far end of the link; a record of each stream each second; {seconds} s a run, {rounds} \
         rounds, medians. Flows: {} new ones a second of two packets each, from `sonde gen flows`, \
         metered from a link of their own.\n",
        format_count(STREAMS),
        format_count(load.rate),
        format_count(NEW_FLOWS),
    );
    let ways = [
        ("sender alone", None),
        ("station", Some(Beside::default())),
        ("station with flows", Some(Beside { flows: true, ..Beside::default() })),
    ];
    let runs = rounds_of(load, rounds, &ways)?;
    lateness(load, &runs);
    println!(
        "\n| | interval records/s | flow records/s | not kept | processors | peak memory, MiB |"
    );
    println!("|---|---|---|---|---|---|");
    for (name, all) in &runs[1..] {
        println!(
            "| {name} | {:.0} | {:.0} | {} | {:.2} | {:.0} |",
            median(all, |run| run.intervals as f64 / run.seconds),
            median(all, |run| run.flows as f64 / run.seconds),
            all.iter().map(|run| run.dropped).sum::<u64>(),
            median(all, |run| run.used.cpu_s / run.seconds),
            median(all, |run| run.used.peak as f64 / f64::from(1 << 20)),
        );
    }
    let last = runs.last().and_then(|(_, all)| all.last()).context("there was no run")?;
    println!("\n| table | rows | octets a row |\n|---|---|---|");
    for (table, rows, octets) in &last.sizes {
        println!("| {table} | {} | {:.1} |", format_count(*rows), *octets as f64 / *rows as f64);
    }
    println!(
        "\nFor each record {:.0} octets were sent to the disk, journal and all passes included.",
        last.written as f64 / (last.intervals + last.flows).max(1) as f64
    );
    Ok(())
}

/// Prints what 1,000 clients of the live stream cost that hardly read.
pub fn slow_clients(args: &Args) -> Result<()> {
    println!("\n## 1,000 slow clients of the live stream\n");
    // Both ends of each connection are files of a process; the station inherits it.
    let me = std::process::id().to_string();
    let most = format!("--nofile={FILES}:{FILES}");
    let raised = Command::new("prlimit").args(["--pid", &me, &most]).status()?;
    ensure!(raised.success(), "prlimit cannot allow {FILES} open files");
    let (seconds, rounds) = args.of_station();
    let load = Load { rate: carried()?, seconds };
    println!(
        "{CLIENTS} connections to `/sonde/v1/stream`: {WATCHED} of them follow a series each, a record a \
         second; every other one reads {SIP} octets a second, the rest nothing. {} packets/s, {seconds} s \
         a run, {rounds} rounds, medians.\n",
        format_count(load.rate)
    );
    let with = |clients| Some(Beside { known: true, clients, ..Beside::default() });
    let ways = [("no client", with(0)), ("1,000 slow clients", with(CLIENTS))];
    let runs = rounds_of(load, rounds, &ways)?;
    lateness(load, &runs);
    println!("\n| | not kept | processors | peak memory, MiB | served at the end | octets read |");
    println!("|---|---|---|---|---|---|");
    for (name, all) in &runs {
        println!(
            "| {name} | {} | {:.2} | {:.0} | {:.0} | {:.0} |",
            all.iter().map(|run| run.dropped).sum::<u64>(),
            median(all, |run| run.used.cpu_s / run.seconds),
            median(all, |run| run.used.peak as f64 / f64::from(1 << 20)),
            median(all, |run| run.clients.0 as f64),
            median(all, |run| run.clients.1 as f64),
        );
    }
    Ok(())
}

type Runs = Vec<(&'static str, Vec<LoadRun>)>;

/// All ways in turn, so that drift of the machine meets all alike.
fn rounds_of(load: Load, rounds: usize, ways: &[(&'static str, Option<Beside>)]) -> Result<Runs> {
    let mut runs: Runs = ways.iter().map(|(name, _)| (*name, Vec::new())).collect();
    for round in 0..rounds {
        for ((name, beside), (_, all)) in ways.iter().zip(&mut runs) {
            eprintln!("{name}, round {} ...", round + 1);
            let done = match beside {
                None => alone(load),
                Some(beside) => station(load, *beside),
            };
            all.push(done.with_context(|| (*name).to_owned())?);
        }
    }
    Ok(runs)
}

fn lateness(load: Load, runs: &Runs) {
    println!(
        "| | sent/s of {} | lost | not sent | more than 1 ms late | late p50 / p99 / most, us | p99 against \
         the first | pauses of the sender > 50 us a second, longest ms |",
        load.rate
    );
    println!("|---|---|---|---|---|---|---|---|");
    let p99 = |all: &[LoadRun]| median(all, |run| run.lateness_us[1]);
    let first = runs.first().map_or(f64::NAN, |(_, all)| p99(all));
    for (name, all) in runs {
        let total =
            |count: fn(&Counters) -> u64| all.iter().map(|run| count(&run.counters)).sum::<u64>();
        let late = |q: usize| median(all, |run| run.lateness_us[q]);
        println!(
            "| {name} | {:.0} | {} | {} | {:.3} % | {:.1} / {:.1} / {:.0} | {:.2} | {:.0}, {:.1} |",
            median(all, |run| run.counters.sent as f64 / run.seconds),
            total(|c| c.lost),
            total(|c| c.skipped),
            median(all, |run| 100.0 * run.counters.sent_late as f64
                / run.counters.sent.max(1) as f64),
            late(0),
            late(1),
            late(2),
            p99(all) / first,
            median(all, |run| run.pauses.0 as f64 / run.seconds),
            median(all, |run| run.pauses.1 / 1e3),
        );
    }
}

/// The greatest round load that this machine carries without a station: none lost, none left out, at
/// least half in time.
pub fn carried() -> Result<u64> {
    let (mut rate, mut above) = (*LOADS.last().context("there are loads")?, String::new());
    for load in LOADS {
        let clean = (0..TRIES).find_map(|_| match alone(Load { rate: load, seconds: TRIAL }) {
            Ok(run) if is_clean(&run.counters) => Some(Ok(run)),
            Ok(run) => {
                above = format!(
                    "; at {} it lost {} of {}, left {} out, and {:.0} % left more than 1 ms late",
                    format_count(load),
                    run.counters.lost,
                    run.counters.sent,
                    run.counters.skipped,
                    100.0 * run.counters.sent_late as f64 / run.counters.sent.max(1) as f64,
                );
                eprintln!("{}", above.trim_start_matches("; "));
                None
            }
            Err(error) => Some(Err(error)),
        });
        if clean.transpose()?.is_some() {
            rate = load;
            break;
        }
    }
    println!("Without a station this machine carries {} packets/s{above}.\n", format_count(rate));
    Ok(rate)
}

fn is_clean(c: &Counters) -> bool {
    c.sent > 0 && c.lost == 0 && c.skipped == 0 && c.sent_late * 2 <= c.sent
}

/// The sender without a station: the records are read and dropped.
fn alone(load: Load) -> Result<LoadRun> {
    let outcome = crate::in_pair("af_xdp", load, Look::Seconds)?;
    let late = |q| outcome.lateness.quantile(q).unwrap_or(0) as f64 / 1e3;
    Ok(LoadRun {
        counters: Counters {
            sent: outcome.sent,
            received: outcome.received,
            lost: outcome.lost(),
            skipped: outcome.skipped,
            sent_late: outcome.lateness.count_above(1_000_000),
            ..Counters::default()
        },
        lateness_us: [late(0.5), late(0.99), outcome.lateness.max().unwrap_or(0) as f64 / 1e3],
        pauses: (outcome.pauses.count, outcome.pauses.max().unwrap_or(0) as f64 / 1e3),
        seconds: outcome.seconds,
        ..LoadRun::default()
    })
}

/// The same in a station, until the unit has done what it was to do.
fn station(load: Load, beside: Beside) -> Result<LoadRun> {
    let topology = Topology::pair("bench", &LinkOptions::default())?;
    let _far = reflectors::start_kernel(&topology)?;
    let folder = WorkFolder::new()?;
    let metered =
        beside.flows.then(|| Topology::pair("flows", &LinkOptions::default())).transpose()?;
    let configuration = |seconds: u64| {
        let flow = metered.as_ref().map(|metered| flow_unit(metered.probe.name()));
        probe_unit(load, seconds) + &flow.unwrap_or_default()
    };
    // A run of its own makes the series known that clients name.
    let short = if beside.known { KNOWN } else { load.seconds };
    let begin = unix_ns()?;
    let mut station = StationProcess::start(&topology.probe, &folder.0, &configuration(short))?;
    let mut measured_from = begin;
    let mut clients = None;
    if beside.known {
        station.wait_for_phase(UNIT, "done")?;
        clients = Some(SlowClients::connect(&station, beside.clients)?);
        measured_from = unix_ns()?;
        station.reload(&configuration(load.seconds))?;
    }
    let before = station.used().cpu_s;
    let traffic = metered.as_ref().map(|metered| generate(metered, load.seconds)).transpose()?;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(load.seconds) {
        std::thread::sleep(LOOK);
    }
    let mut used = station.used();
    used.cpu_s = (used.cpu_s - before) * load.seconds as f64 / begin.elapsed().as_secs_f64();
    for (name, seconds) in station.threads() {
        eprintln!("  {name}: {:.2} of a processor", seconds / begin.elapsed().as_secs_f64());
    }
    station.wait_for_phase(UNIT, "done")?;
    traffic.map(Child::wait_with_output).transpose()?.iter().for_each(|output| {
        eprintln!("  sonde gen flows: {}", String::from_utf8_lossy(&output.stdout).trim());
    });
    let unit = station.get(&format!("/sonde/v1/units/{UNIT}"))?;
    let health = station.get("/sonde/v1/station/health")?;
    eprintln!("  drops: {}, problems: {}", health["drops"], health["problems"]);
    let clients = clients.map(SlowClients::finish).transpose()?.unwrap_or_default();
    used.peak = station.used().peak;
    let written = station.written();
    let said = station.end()?;
    if let Some(line) = said.lines().find(|line| line.contains("are not kept")) {
        eprintln!("  {line}");
    }
    let kept = stored::intervals(&store_folder(&folder.0), (measured_from, i64::MAX))?;
    let sizes = stored::sizes(&store_folder(&folder.0))?;
    let us = |of: &Value| of.as_f64().unwrap_or(f64::NAN) / 1e3;
    let late = &unit["send_lateness"];
    ensure!(kept.counters.sent > 0, "the station kept nothing:\n{said}");
    Ok(LoadRun {
        counters: kept.counters,
        lateness_us: [us(&late["p50_ns"]), us(&late["p99_ns"]), us(&late["max_ns"])],
        pauses: (unit["pauses"]["n"].as_u64().unwrap_or(0), us(&unit["pauses"]["max_ns"])),
        used,
        intervals: kept.records,
        flows: sizes.get("flow").map_or(0, |(rows, _)| *rows),
        dropped: dropped(&health),
        written,
        sizes: sizes.into_iter().map(|(name, (rows, octets))| (name, rows, octets)).collect(),
        clients,
        seconds: load.seconds as f64,
    })
}

/// Records that found no room anywhere in it.
fn dropped(health: &Value) -> u64 {
    let drops = health["drops"].as_array();
    drops.into_iter().flatten().filter_map(|drop| drop["count"].as_u64()).sum()
}

fn probe_unit(load: Load, seconds: u64) -> String {
    let last = std::net::Ipv4Addr::from(0x0a02_0000 + DESTINATIONS as u32);
    format!(
        "[probe.load]\n\
         target = [{{ host = \"10.2.0.1-{last}\" }}]\n\
         stream = {{ interval = \"{}ns\", size = {SIZE}, dscp = {CLASSES:?} }}\n\
         run = {{ duration = \"{seconds}s\", timeout = \"1s\", record_interval = \"1s\", late_limit = \"1ms\" }}\n\
         engine = {{ engine = \"af_xdp\", cpu = 0 }}\n",
        load.stream_interval()
    )
}

fn flow_unit(netns: &str) -> String {
    format!(
        "[flow.load]\nsources = [\"{}\"]\nmetering = {{ idle = \"1s\", active = \"5s\" }}\n\
         [netns]\n\"flow.load\" = \"{netns}\"\n",
        Topology::INTERFACE
    )
}

/// Traffic with so many flows a second that a flow unit at the other end meters.
fn generate(metered: &Topology, seconds: u64) -> Result<Child> {
    let sonde = std::env::current_exe()?.with_file_name("sonde");
    let mut command = metered.reflector.command(sonde.to_str().context("path is not text")?);
    command.args(["gen", "flows", "--iface", Topology::INTERFACE, "--json", "--size", "128"]);
    command.args(["--flows", "1000", "--length", "constant:2", "--proto", "udp=1"]);
    command.args(["--rate", &(2 * NEW_FLOWS).to_string(), "--duration", &format!("{seconds}s")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command.spawn().context("sonde gen flows")
}

/// Clients of the live stream that read little or nothing.
struct SlowClients {
    stop: Arc<AtomicBool>,
    reading: JoinHandle<(usize, u64)>,
}

impl SlowClients {
    fn connect(station: &StationProcess, count: usize) -> Result<SlowClients> {
        let series = station.get("/sonde/v1/series?limit=500")?;
        let ids: Vec<u64> = series["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|series| series["id"].as_u64())
            .take(WATCHED)
            .collect();
        ensure!(ids.len() == WATCHED, "the station lists only {} series: {series}", ids.len());
        let mut clients = Vec::new();
        for n in 0..count {
            let series = ids.get(n).map(|id| format!(",m:{id}")).unwrap_or_default();
            let mut client =
                station.connect(&format!("/sonde/v1/stream?topics=state,units,events{series}"))?;
            let mut status = [0; 12];
            client.read_exact(&mut status).context("a client of the live stream")?;
            ensure!(status.ends_with(b"200"), "a client got {}", String::from_utf8_lossy(&status));
            client.set_nonblocking(true)?;
            clients.push(client);
            // Somebody has 50 requests a second.
            std::thread::sleep(BETWEEN);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        let reading = std::thread::spawn(move || read_slowly(&mut clients, &asked));
        Ok(SlowClients { stop, reading })
    }

    /// Clients that are still served, and octets that were read.
    fn finish(self) -> Result<(usize, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        self.reading.join().map_err(|_| anyhow::anyhow!("the slow clients panicked"))
    }
}

fn read_slowly(clients: &mut [UnixStream], stop: &AtomicBool) -> (usize, u64) {
    let (mut taken, mut octets) = (0, [0; SIP]);
    while !stop.load(Ordering::Relaxed) {
        for client in clients.iter_mut().step_by(2) {
            taken += client.read(&mut octets).unwrap_or(0) as u64;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    // What waits is read; a connection that was closed then has its end.
    let mut all = vec![0; 1 << 16];
    let served = clients.iter_mut().filter_map(|client| {
        loop {
            match client.read(&mut all) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => {
                    return (error.kind() == std::io::ErrorKind::WouldBlock).then_some(());
                }
            }
        }
    });
    (served.count(), taken)
}

fn unix_ns() -> Result<i64> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(now.as_nanos() as i64)
}

fn median(all: &[LoadRun], value: impl Fn(&LoadRun) -> f64) -> f64 {
    crate::figures::median(all.iter().map(value))
}

const UNIT: &str = "probe.load";
/// Loads to choose from, packets a second.
const LOADS: [u64; 9] =
    [200_000, 150_000, 120_000, 100_000, 80_000, 60_000, 40_000, 20_000, 10_000];
/// A shared host may stop for once.
const TRIES: u32 = 2;
/// Seconds of a trial.
const TRIAL: u64 = 3;
/// Seconds until the series are known.
const KNOWN: u64 = 2;
const NEW_FLOWS: u64 = 10_000;
const CLIENTS: usize = 1_000;
/// Files that a process may have open.
const FILES: usize = 8_192;
/// Clients that follow a series. All together may follow 512.
const WATCHED: usize = 500;
/// Octets that a slow client reads a second.
const SIP: usize = 16;
/// Between two connections.
const BETWEEN: Duration = Duration::from_millis(25);
const LOOK: Duration = Duration::from_millis(500);
