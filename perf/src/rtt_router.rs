//! What `sonde rtt` costs a Linux router that it watches: iperf3 through client, router
//! and server, the processor time of the whole machine for each packet that the router
//! carried, with the monitor and without.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use sonde_lab::{Host, ROUTER_PROBE_SIDE};

use crate::child::ChildGuard;
use crate::routed::{self, PATIENCE, PORT, SERVER};

/// One way to watch, or none.
struct Monitor {
    name: &'static str,
    options: Option<&'static [&'static str]>,
}

/// What one run came to.
struct RouterRun {
    gbps: f64,
    /// Both directions at the watched interface.
    packets: u64,
    /// Of the whole machine, s.
    cpu: f64,
    /// Of the monitor's process, s.
    monitor_cpu: f64,
    /// By the monitor's own count.
    seen: u64,
    samples: u64,
    lost_events: u64,
}

/// All monitors in turn, `rounds` times, so that drift of the machine meets all alike.
pub fn bench(seconds: u64, rounds: usize) -> Result<()> {
    println!("\n## A router watched by `sonde rtt`\n");
    if Command::new("iperf3").arg("--version").output().is_err() {
        println!("Not measured: iperf3 is not installed (`apt-get install iperf3`).");
        return Ok(());
    }
    println!(
        "iperf3, cubic, {seconds} s a run, {rounds} rounds; offloads off everywhere; watched at \
         the router's interface towards the client. Medians.\n"
    );
    println!(
        "| flows | monitor | Gbit/s | CPU us a packet | against none | packets seen | samples/s | \
         events lost | its process, ns a packet |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for flows in [1, 10, 100, 1000] {
        let mut runs: BTreeMap<&str, Vec<RouterRun>> = BTreeMap::new();
        for round in 0..rounds {
            for monitor in MONITORS {
                eprintln!("{flows} flows, {}, round {} ...", monitor.name, round + 1);
                let outcome = run(monitor, flows, seconds)
                    .with_context(|| format!("{flows} flows, {}", monitor.name))?;
                runs.entry(monitor.name).or_default().push(outcome);
            }
        }
        let per_packet = |o: &RouterRun| o.cpu * 1e6 / o.packets as f64;
        let none = median(&runs[MONITORS[0].name], per_packet);
        for monitor in MONITORS {
            let all = &runs[monitor.name];
            let cost = median(all, per_packet);
            print!("| {flows} | {} | {:.2} ", monitor.name, median(all, |o| o.gbps));
            print!("| {cost:.2} | {:.2} ", cost / none);
            if monitor.options.is_none() {
                println!("| | | | |");
                continue;
            }
            // What iperf3 and the kernel send before the monitor is attached or after it
            // has gone is a packet or two.
            let seen = median(all, |o| o.seen as f64 / o.packets as f64);
            println!(
                "| {:.2} % | {:.0} | {} | {:.1} |",
                seen * 100.0,
                median(all, |o| o.samples as f64 / seconds as f64),
                all.iter().map(|o| o.lost_events).sum::<u64>(),
                median(all, |o| o.monitor_cpu * 1e9 / o.packets as f64),
            );
        }
    }
    Ok(())
}

fn run(monitor: &Monitor, flows: usize, seconds: u64) -> Result<RouterRun> {
    let topology = routed::network()?;
    let router = routed::router(&topology)?;
    let report = std::env::temp_dir().join(format!("sonde-rtt-{}.json", std::process::id()));
    let report = report.to_str().context("the temporary folder's path is not text")?.to_owned();
    let watching = monitor.options.map(|options| watch(router, options, &report)).transpose()?;

    let processes = flows.div_ceil(FLOWS_A_PROCESS);
    let servers = routed::servers(&topology.reflector, processes)?;
    let before = (carried(router)?, busy()?);
    let cpu_of = |child: &Option<ChildGuard>| child.as_ref().map_or(0.0, ChildGuard::cpu_seconds);
    let monitor_before = cpu_of(&watching);
    let mut clients = Vec::new();
    for i in 0..processes {
        let port = (PORT + i).to_string();
        let share = flows / processes + usize::from(i < flows % processes);
        let mut client = topology.probe.command("iperf3");
        client.args(["-c", SERVER, "-C", "cubic", "-p", &port, "-P", &share.to_string()]);
        client.args(["-t", &seconds.to_string(), "-J"]);
        clients.push(client.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?);
    }
    let mut bits = 0.0;
    for client in clients {
        let output = client.wait_with_output()?;
        let result: serde_json::Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("iperf3 ended with {}", output.status))?;
        match result["end"]["sum_received"]["bits_per_second"].as_f64() {
            Some(rate) => bits += rate,
            None => bail!("iperf3: {}", result["error"]),
        }
    }
    let after = (carried(router)?, busy()?);
    let monitor_cpu = cpu_of(&watching) - monitor_before;
    drop(servers);
    let (mut seen, mut samples, mut lost_events) = (0, 0, 0);
    if let Some(mut watching) = watching {
        let status = watching.finish()?;
        if !status.success() {
            bail!("sonde rtt ended with {status}");
        }
        let text = std::fs::read_to_string(&report).context("the monitor left no run file")?;
        let _ = std::fs::remove_file(&report);
        let counters = &serde_json::from_str::<serde_json::Value>(&text)?["coverage"]["counters"];
        let count = |name: &str| counters[name].as_u64().unwrap_or(0);
        (seen, samples, lost_events) =
            (count("packets"), samples_of(counters), count("events_lost"));
    }
    Ok(RouterRun {
        gbps: bits / 1e9,
        packets: after.0 - before.0,
        cpu: after.1 - before.1,
        monitor_cpu,
        seen,
        samples,
        lost_events,
    })
}

/// Starts `sonde rtt` in the router, its records to a file, and waits for the first:
/// its programs are attached then.
fn watch(router: &Host, options: &[&str], report: &str) -> Result<ChildGuard> {
    let sonde = std::env::current_exe()?.with_file_name("sonde");
    let mut command = router.command(sonde.to_str().context("path is not text")?);
    command.args(["rtt", ROUTER_PROBE_SIDE]).args(options).args(["--out", report]);
    let records = std::env::temp_dir().join(format!("sonde-rtt-{}.jsonl", std::process::id()));
    let output = std::fs::File::create(&records)?;
    let mut child = ChildGuard(command.stdout(output).stderr(Stdio::null()).spawn()?);
    let patience = Instant::now();
    let ready = loop {
        if std::fs::metadata(&records)?.len() > 0 {
            break Ok(());
        }
        if let Some(status) = child.0.try_wait()? {
            break Err(anyhow::anyhow!("sonde rtt ended with {status}"));
        }
        if patience.elapsed() > PATIENCE {
            break Err(anyhow::anyhow!("sonde rtt was not ready in time"));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    // It goes on being written; nobody reads it.
    std::fs::remove_file(&records)?;
    ready.map(|()| child)
}

fn samples_of(counters: &serde_json::Value) -> u64 {
    ["samples_clean", "samples_recovery", "samples_delayed_ack"]
        .iter()
        .filter_map(|name| counters[name].as_u64())
        .sum()
}

/// Packets of the watched interface so far, both directions.
fn carried(router: &Host) -> Result<u64> {
    let text = router.run(&["ip", "-j", "-s", "link", "show", ROUTER_PROBE_SIDE])?;
    let stats = &serde_json::from_str::<serde_json::Value>(&text)?[0]["stats64"];
    match (stats["rx"]["packets"].as_u64(), stats["tx"]["packets"].as_u64()) {
        (Some(rx), Some(tx)) => Ok(rx + tx),
        _ => bail!("ip shows no counters: {text}"),
    }
}

/// Processor time that this machine has spent on anything, s.
fn busy() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let fields: Vec<f64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|f| f.parse().ok())
        .collect();
    // user, nice, system, then idle and iowait, then irq and softirq.
    match fields[..] {
        [user, nice, system, _, _, irq, softirq, ..] => {
            Ok((user + nice + system + irq + softirq) / TICKS)
        }
        _ => bail!("/proc/stat is not as expected: {stat}"),
    }
}

fn median(all: &[RouterRun], value: impl Fn(&RouterRun) -> f64) -> f64 {
    let mut values: Vec<f64> = all.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

const MONITORS: &[Monitor] = &[
    Monitor { name: "none", options: None },
    Monitor { name: "by prefix, no samples", options: Some(&["--format", "jsonl"]) },
    Monitor { name: "by flow, no samples", options: Some(&["--format", "jsonl", "--by", "flow"]) },
    Monitor {
        name: "every sample",
        options: Some(&["--format", "jsonl", "--sample-limit", "none"]),
    },
];
/// More streams than this in one process are refused.
const FLOWS_A_PROCESS: usize = 125;
/// USER_HZ: the unit of /proc/stat.
const TICKS: f64 = 100.0;
