//! `sonde demo`: the main job on real packets, on one machine: probe, Linux router and
//! reflectors in namespaces of their own, thousands of destinations and several classes,
//! at a load that the machine carries.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use sonde_lab::{Lab, LinkOptions, Topology, Uplinks};
use sonde_results::Run;
use sonde_results::units::{format_count, format_dscp};

use crate::args::DemoArgs;
use crate::exit::{Exit, Failure};
use crate::signals::Signals;

/// Builds the network, runs reflectors and probe in it, and takes it down again.
pub fn run(args: &DemoArgs) -> Result<Exit, Failure> {
    // The probe gets the terminal's Ctrl-C by itself and ends in order; this process
    // must outlive it to remove the network.
    let signals = Signals::catch()?;
    Lab::sweep();
    let demo = Demo::build(args)?;
    let rate = match args.rate {
        Some(rate) => Some(rate),
        None => demo.find_rate(args, &signals)?,
    };
    let Some(rate) = rate else { return Ok(Exit::Interrupted) };
    let streams = u64::from(args.destinations) * args.dscp.len() as u64;
    outln!(
        "probe == router == reflectors, {} uplinks: {} destinations x {} classes = {} streams, \
         {} packets/s",
        demo.network.reflectors.len(),
        args.destinations,
        args.dscp.len(),
        format_count(streams),
        format_count(rate),
    );
    if let Some(folder) = args.out.parent().filter(|f| !f.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let mut probe = demo.probe(args, rate);
    probe
        .args(["--timeout", "1s", "--duration", &format!("{}ns", args.duration)])
        .args(["--record-interval", "5s", "--out"])
        .arg(&args.out);
    let mut probe = Child(probe.spawn().context("the probe did not start")?);
    let (status, _) = probe.end(&signals)?;
    outln!("run file: {}", args.out.display());
    match status.code() {
        Some(0) => Ok(Exit::Ok),
        Some(1) => Ok(Exit::NoReply),
        Some(4) => Ok(Exit::NotSaved),
        _ => Err(Failure::CannotRun(anyhow!("the probe ended with {status}"))),
    }
}

/// The network, with its reflectors at work.
struct Demo {
    program: String,
    /// Ended before the network goes.
    _reflectors: Vec<Child>,
    network: Uplinks,
}

impl Demo {
    fn build(args: &DemoArgs) -> Result<Demo> {
        // What arrives on an uplink is processed where its sender runs: one processor each.
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        let uplinks = processors.min(MOST_UPLINKS).min(args.destinations as usize) as u8;
        let network = Uplinks::new("sonde", uplinks, &LinkOptions::default())
            .context("cannot make the demonstration network; it needs root")?;
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let program =
            program.to_str().ok_or_else(|| anyhow!("this program's path is not text"))?.to_owned();
        let mut reflectors = Vec::new();
        for host in &network.reflectors {
            let mut reflect = host.command(&program);
            reflect.args(["reflect", "--kernel", "--iface", Topology::INTERFACE]);
            // Nobody else is there to be protected.
            reflect.args(["--rate-limit", "none", "--total-rate-limit", "none"]);
            reflectors
                .push(Child::start(reflect, "reflecting").context("the reflector did not start")?);
        }
        Ok(Demo { program, _reflectors: reflectors, network })
    }

    /// The probe's command line, less its times and outputs.
    fn probe(&self, args: &DemoArgs, rate: u64) -> Command {
        let streams = u64::from(args.destinations) * args.dscp.len() as u64;
        let interval = streams * 1_000_000_000 / rate.max(1);
        let dscp: Vec<_> = args.dscp.iter().map(|&d| format_dscp(d)).collect();
        let uplinks = self.network.reflectors.len() as u32;
        let mut probe = self.network.probe.command(&self.program);
        probe.arg("probe");
        for n in 0..uplinks {
            // The first ones have one more where they do not divide evenly.
            let count = (args.destinations + uplinks - 1 - n) / uplinks;
            probe.arg(Uplinks::target_range(n as u8, count as u16));
        }
        probe.args(["--engine", args.engine.name(), "--dscp", &dscp.join(",")]).args([
            "--interval",
            &format!("{interval}ns"),
            "--size",
            "150",
            "--cpu",
            "0",
        ]);
        probe
    }

    /// The greatest round load that is well within what the network carries, found by short
    /// trials; `None`: interrupted.
    fn find_rate(&self, args: &DemoArgs, signals: &Signals) -> Result<Option<u64>> {
        for load in LOADS {
            for _ in 0..TRIES {
                match self.carries(args, load + load / MARGIN, signals)? {
                    None => return Ok(None),
                    Some(false) => {}
                    Some(true) => {
                        outln!(
                            "this machine's virtual network carries {} packets/s without loss; \
                             probing at {}",
                            format_count(load + load / MARGIN),
                            format_count(load)
                        );
                        return Ok(Some(load));
                    }
                }
            }
        }
        let least = LOADS[LOADS.len() - 1];
        outln!(
            "this machine's virtual network loses packets even at {} a second; probing at {}: \
             expect losses that are this machine's",
            format_count(least + least / MARGIN),
            format_count(least)
        );
        Ok(Some(least))
    }

    /// Whether all packets of a short trial left in time and came back.
    fn carries(&self, args: &DemoArgs, rate: u64, signals: &Signals) -> Result<Option<bool>> {
        let mut probe = self.probe(args, rate);
        probe.args(["--timeout", "500ms", "--duration", TRIAL, "--record-interval", "5s"]);
        probe.args(["--quiet", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Child(probe.spawn().context("the trial's probe did not start")?);
        let output = child.0.stdout.take().context("no output")?;
        let errors = child.0.stderr.take().context("no error output")?;
        let read = |mut from: Box<dyn Read + Send>| {
            std::thread::spawn(move || {
                let mut text = String::new();
                from.read_to_string(&mut text).map(|_| text)
            })
        };
        let (output, errors) = (read(Box::new(output)), read(Box::new(errors)));
        let (status, interrupted) = child.end(signals)?;
        if interrupted {
            return Ok(None);
        }
        let text = output.join().map_err(|_| anyhow!("the trial's output was not read"))??;
        let Ok(run) = serde_json::from_str::<Run>(&text) else {
            let errors =
                errors.join().map_err(|_| anyhow!("the trial's errors were not read"))??;
            bail!("the trial ended with {status}: {}", errors.trim());
        };
        Ok(Some(is_clean(&run)))
    }
}

/// No loss, nothing left out, and most probes in time: beyond what the processors carry
/// the backlog grows until nearly all of them are late.
fn is_clean(run: &Run) -> bool {
    let c = &run.overall.counters;
    c.sent > 0 && c.lost == 0 && c.skipped == 0 && c.sent_late * 2 <= c.sent
}

/// A child that is ended when dropped.
struct Child(std::process::Child);

impl Child {
    /// Starts it, and waits for a line of its output that contains `ready`.
    fn start(mut command: Command, ready: &str) -> Result<Self> {
        let mut child = Child(command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn()?);
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

    /// Ctrl-C. It may have ended just now.
    fn interrupt(&self) {
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-INT", &pid]).stderr(Stdio::null()).status();
    }

    /// Waits for its end, and passes on what only this process is told (SIGTERM): whether
    /// there was such a thing.
    fn end(&mut self, signals: &Signals) -> Result<(ExitStatus, bool)> {
        let mut interrupted = false;
        loop {
            if let Some(status) = self.0.try_wait().context("cannot wait for the probe")? {
                return Ok((status, interrupted));
            }
            if signals.wait(Duration::from_millis(100)) {
                interrupted = true;
                self.interrupt();
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            self.interrupt();
        }
        let _ = self.0.wait();
    }
}

/// Loads to choose from, packets a second, greatest first.
const LOADS: [u64; 10] =
    [200_000, 150_000, 120_000, 100_000, 80_000, 60_000, 40_000, 20_000, 10_000, 5_000];
/// A load is well within what is carried with a fifth more than it.
const MARGIN: u64 = 5;
/// A shared host may stop for once.
const TRIES: u32 = 2;
/// How long a trial sends.
const TRIAL: &str = "1s";
/// More senders than this would leave the rest of the program no processor on many machines.
const MOST_UPLINKS: usize = 2;
