//! `make bench`: what Sonde reaches, loses and misstates on this machine, with the machine's own
//! noise beside it. Each engine is held in the same run against plain sockets with user-space stamps.
//! Prints Markdown.

mod alert_delay;
mod args;
mod child;
mod engine;
mod feature;
mod figures;
mod flow_apps;
mod flow_cache;
mod flow_engines;
mod flow_peers;
mod folder;
mod forwarding;
mod ipfix;
mod load;
mod near;
mod no_drop;
mod plain;
mod queries;
mod reflectors;
mod routed;
mod rtt;
mod rtt_router;
mod search;
mod station_load;
mod station_process;
mod station_reload;
mod store;
#[path = "../../tests/support/store_rows.rs"]
mod store_rows;
mod stored;
mod table;
mod tables;
mod traffic;

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use sonde_lab::{Lab, LinkOptions, Topology};
use sonde_port::Engine;
use sonde_sys::clock;

use args::{Args, Asked, Measure};
use load::{EngineResult, Load, Look};

/// The state of thousands of streams lies in a few large allocations.
#[global_allocator]
static ALLOCATOR: sonde_sys::memory::HugePageAllocator = sonde_sys::memory::HugePageAllocator;

fn main() -> Result<()> {
    match args::parse(std::env::args().skip(1))? {
        Asked::Measure(measure) => {
            let (load, look) = (measure.load(), measure.look);
            let outcome = match measure.name.as_str() {
                "plain" => plain::measure(load, 0, look)?,
                engine => engine::measure(engine.parse()?, load, 0, look)?,
            };
            println!("{}", serde_json::to_string(&outcome)?);
            Ok(())
        }
        Asked::TestRun => reflectors::test_run(),
        Asked::Sweep(pid) => child::sweep(pid),
        Asked::Bench(args) => bench(&args),
        Asked::Help => {
            println!("{}", args::help());
            Ok(())
        }
    }
}

fn bench(args: &Args) -> Result<()> {
    let wanted = |part: &str| args.only.as_deref().is_none_or(|only| only == part);
    if let Some(folder) = &args.out {
        let parts: Vec<&str> = args::PARTS.into_iter().filter(|part| wanted(part)).collect();
        return tables::write(folder, &parts, args);
    }
    Lab::sweep();
    let _sweeper = child::Sweeper::start()?;
    println!("# Sonde measured by itself\n");
    print_machine()?;
    if wanted("reflectors") {
        reflectors::bench()?;
    }
    if wanted("accuracy") {
        accuracy(args)?;
    }
    if wanted("endurance") {
        endurance(args)?;
    }
    if wanted("forwarding") {
        forwarding::bench(args.repeat)?;
    }
    if wanted("no-drop") {
        no_drop::bench(args.repeat)?;
    }
    if wanted("flow") {
        flow_peers::bench(args.repeat)?;
    }
    if wanted("rtt") {
        rtt::cost_bench()?;
        rtt::capture_bench()?;
        rtt_router::bench(args.seconds, args.repeat)?;
    }
    if wanted("gen") {
        traffic::bench(args.repeat)?;
    }
    if wanted("search") {
        search::bench()?;
    }
    if wanted("feature") {
        feature::bench()?;
    }
    if wanted("ipfix") {
        ipfix::bench()?;
    }
    if wanted("flow-cache") {
        flow_cache::bench(args.repeat)?;
    }
    if wanted("flow-apps") {
        flow_apps::bench(args.repeat)?;
    }
    if wanted("flow-engines") {
        flow_engines::bench(args.seconds, args.repeat)?;
    }
    if wanted("store") {
        store::bench(args.seconds)?;
    }
    if wanted("station") {
        station_load::bench(args)?;
    }
    if wanted("queries") {
        queries::bench(args)?;
    }
    if wanted("alert") {
        alert_delay::bench(args)?;
    }
    if wanted("reload") {
        station_reload::bench(args)?;
    }
    if wanted("slow-clients") {
        station_load::slow_clients(args)?;
    }
    Ok(())
}

/// Both rates, every engine, in turn; repeated as a whole, so that drift of the machine
/// meets all alike.
fn accuracy(args: &Args) -> Result<()> {
    for rate in [10_000, 200_000] {
        let names = ["plain", "socket", "af_packet", "af_xdp"];
        let mut runs: Vec<Vec<EngineResult>> = vec![Vec::new(); names.len()];
        for round in 0..args.repeat {
            for (i, name) in names.iter().enumerate() {
                eprintln!("{rate} packets/s, round {}, {name} ...", round + 1);
                let load = Load { rate, seconds: args.seconds };
                runs[i].push(in_pair(name, load, Look::Packets)?);
            }
        }
        println!("\n## Time stamps at {rate} packets a second\n");
        table::accuracy(&runs);
        // Runs of their own: the near end's programs would make the distances above longer.
        let mut near = Vec::new();
        for name in names {
            eprintln!("{rate} packets/s, near end, {name} ...");
            near.push(in_pair(name, Load { rate, seconds: args.seconds }, Look::NearEnd)?);
        }
        println!("\n### With stamps of the near end, at {rate} packets a second");
        table::near_end(&near);
    }
    Ok(())
}

/// The headline load for a minute, as `sonde probe` runs it, without a look at each packet.
fn endurance(args: &Args) -> Result<()> {
    println!("\n## {} s at full load\n", args.endurance);
    let mut runs = Vec::new();
    for (engine, rate) in [(Engine::AfXdp, 200_000), (Engine::Socket, 100_000)] {
        eprintln!("{} at {rate} packets/s for {} s ...", engine.name(), args.endurance);
        let load = Load { rate, seconds: args.endurance };
        runs.push((rate, in_pair(engine.name(), load, Look::Records)?));
    }
    table::endurance(&runs);
    Ok(())
}

/// A fresh pair of hosts, the kernel reflector at the far end, the measurement at this end.
fn in_pair(name: &str, load: Load, look: Look) -> Result<EngineResult> {
    let topology = Topology::pair("bench", &LinkOptions::default())?;
    let _far = reflectors::start_kernel(&topology)?;
    measure(&topology, name, load, look)
}

/// The measurement in the probe's namespace, as a process of its own.
fn measure(topology: &Topology, name: &str, load: Load, look: Look) -> Result<EngineResult> {
    let me = std::env::current_exe()?;
    let Load { rate, seconds } = load;
    let asked = Measure { name: name.to_owned(), rate, seconds, look };
    let output = topology
        .probe
        .command(me.to_str().context("the path of this program is not text")?)
        .args(["measure", &serde_json::to_string(&asked)?])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "measuring {name} ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("the measurement's output")
}

fn print_machine() -> Result<()> {
    let pauses = clock::measure_pauses(
        std::time::Duration::from_secs(2),
        std::time::Duration::from_micros(20),
    );
    let uname = Command::new("uname").arg("-r").output()?;
    if !uname.status.success() {
        bail!("uname failed");
    }
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name\t: ")).unwrap_or("unknown");
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!(
        "Linux {}, {} x {model}, load average {}.",
        String::from_utf8_lossy(&uname.stdout).trim(),
        std::thread::available_parallelism()?,
        load.split_whitespace().next().unwrap_or("?"),
    );
    println!(
        "In {:.1} s of spinning this machine paused {} times above 20 us, {:.0} us at the longest.",
        pauses.watched_ns as f64 / 1e9,
        pauses.stats.count,
        pauses.stats.max_ns as f64 / 1e3,
    );
    Ok(())
}
