//! `sonde demo`: the main job on real packets, on one machine: probe, Linux router and
//! reflector in namespaces of their own, thousands of destinations and several classes.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use sonde_lab::{Lab, LinkOptions, ROUTER_PROBE_SIDE, ROUTER_REFLECTOR_SIDE, Topology};

use crate::args::DemoArgs;
use crate::exit::{Exit, Failure};
use crate::signals::Signals;
use crate::units::{format_count, format_dscp};

/// Builds the network, runs reflector and probe in it, and takes it down again.
pub fn run(args: &DemoArgs) -> Result<Exit, Failure> {
    // The probe gets the terminal's Ctrl-C by itself and ends in order; this process
    // must outlive it to remove the network.
    let signals = Signals::catch()?;
    Lab::sweep();
    let topology = Topology::three_hosts("sonde", &LinkOptions::default())
        .context("cannot make the demonstration network; it needs root")?;
    if std::thread::available_parallelism().is_ok_and(|n| n.get() > 1)
        && let Some(router) = &topology.router
    {
        // The router is another machine in earnest: it gets a processor that is not the
        // sender's.
        for side in [ROUTER_PROBE_SIDE, ROUTER_REFLECTOR_SIDE] {
            router.steer(side, 1).map_err(anyhow::Error::from)?;
        }
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let program = program.to_str().ok_or_else(|| anyhow!("this program's path is not text"))?;
    let mut reflect = topology.reflector.command(program);
    reflect.args(["reflect", "--kernel", "--iface", Topology::INTERFACE]);
    // Nobody else is there to be protected.
    reflect.args(["--rate-limit", "none", "--total-rate-limit", "none"]);
    let _reflector =
        Running::start(reflect, "reflecting").context("the reflector did not start")?;

    let streams = u64::from(args.destinations) * args.dscp.len() as u64;
    let interval = streams * 1_000_000_000 / args.rate.max(1);
    let dscp: Vec<_> = args.dscp.iter().map(|&d| format_dscp(d)).collect();
    println!(
        "probe -- router -- reflector: {} destinations x {} classes = {} streams, {} packets/s",
        args.destinations,
        args.dscp.len(),
        format_count(streams),
        format_count(args.rate),
    );
    if let Some(folder) = args.out.parent().filter(|f| !f.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let mut probe = topology.probe.command(program);
    probe
        .arg("probe")
        .arg(target_range(args.destinations))
        .args(["--engine", args.engine.name(), "--dscp", &dscp.join(",")])
        .args(["--interval", &format!("{interval}ns"), "--size", "150", "--timeout", "1s"])
        .args(["--duration", &format!("{}ns", args.duration), "--record-interval", "5s"])
        .args(["--cpu", "0", "--out"])
        .arg(&args.out);
    let mut probe = probe.spawn().context("the probe did not start")?;
    loop {
        if let Some(status) = probe.try_wait().context("cannot wait for the probe")? {
            println!("run file: {}", args.out.display());
            return match status.code() {
                Some(0) => Ok(Exit::Ok),
                Some(1) => Ok(Exit::NoReply),
                Some(4) => Ok(Exit::NotSaved),
                _ => Err(Failure::CannotRun(anyhow!("the probe ended with {status}"))),
            };
        }
        if signals.wait(Duration::from_millis(100)) {
            // SIGTERM reaches only this process: pass it on.
            let pid = probe.id().to_string();
            let _ = Command::new("kill").args(["-INT", &pid]).status();
        }
    }
}

fn target_range(destinations: u32) -> String {
    let [high, low] = (destinations as u16).to_be_bytes();
    format!("10.2.0.1-10.2.{high}.{low}")
}

/// A child that is ended when dropped.
struct Running(Child);

impl Running {
    /// Starts it, and waits for a line of its output that contains `ready`.
    fn start(mut command: Command, ready: &str) -> Result<Self> {
        let mut child = Running(command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn()?);
        let output = child.0.stdout.take().context("no output")?;
        let mut lines = BufReader::new(output).lines();
        for line in lines.by_ref() {
            if line?.contains(ready) {
                // Nobody reads further; but the pipe must not fill.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(child);
            }
        }
        let status = child.0.wait()?;
        bail!("it ended with {status}")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-INT", &pid]).status();
        let _ = self.0.wait();
    }
}
