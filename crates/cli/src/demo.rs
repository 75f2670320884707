//! `sonde demo`: the main job on real packets, on one machine: probe, Linux router and
//! reflectors in namespaces of their own, thousands of destinations and several classes,
//! at a load that the machine carries.

mod station;

use anyhow::{Context as _, Result};
use sonde_lab::{Host, Lab, LinkOptions, Topology, Uplinks};
use sonde_results::Counters;
use sonde_results::units::{SECOND, format_count, format_share};
use sonde_run::engine::EngineSettings;
use sonde_run::error::RunError;
use sonde_run::probe::settings::TargetEntry;
use sonde_run::probe::settings::{RunOptions, StreamOptions};
use sonde_run::probe::{self, About, Collected, Probe, Settings};
use sonde_run::reflect::settings::Limit;
use sonde_run::reflect::{self, Reflecting};
use sonde_run::running::Context;

use crate::args::{DemoArgs, ProbeOutputArgs};
use crate::exit::{Exit, Failure};
use crate::output::run_file;
use crate::probe::follow;
use crate::signals;

/// Builds the network, runs reflectors and probe in it, and takes it down again.
pub fn run(args: &DemoArgs) -> Result<Exit, Failure> {
    let context = signals::context()?;
    Lab::sweep();
    if let Some(folder) = args.out.parent().filter(|f| !f.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let _claim = run_file::claim(Some(&args.out))?;
    let mut demo = Demo::build(args)?;
    let rate = match args.rate {
        Some(rate) => Some(rate),
        None => demo.find_rate(args, &context)?,
    };
    let Some(rate) = rate else { return Ok(Exit::Interrupted) };
    if let Some(folder) = &args.station {
        demo.end_reflectors();
        return station::run(args, folder, &demo.network, rate, &context.stop);
    }
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
    let (about, probe) =
        demo.probe(args, rate, (args.duration.unwrap_or(DURATION), SECOND), &context)?;
    let output = ProbeOutputArgs { out: Some(args.out.clone()), ..ProbeOutputArgs::default() };
    let exit = follow(about, probe, &output, false, &context)?;
    outln!("run file: {}", args.out.display());
    Ok(exit)
}

/// The network, with its reflectors at work.
struct Demo {
    /// Ended before the network goes.
    reflectors: Vec<Reflecting>,
    network: Uplinks,
}

impl Demo {
    fn build(args: &DemoArgs) -> Result<Demo, Failure> {
        // What arrives on an uplink is processed where its sender runs: one processor each.
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        let uplinks = processors.min(MOST_UPLINKS).min(args.destinations as usize) as u8;
        let network = Uplinks::new("sonde", uplinks, &LinkOptions::default())
            .context("cannot make the demonstration network; it needs root")?;
        let mut reflectors = Vec::new();
        for host in &network.reflectors {
            let settings = reflect::Settings {
                engine: EngineSettings {
                    iface: Some(Topology::INTERFACE.into()),
                    ..EngineSettings::default()
                },
                kernel: true,
                // Nobody else is there to be protected.
                rate_limit: Limit(None),
                total_rate_limit: Limit(None),
                ..reflect::Settings::default()
            };
            // They go on until the probe has its last replies.
            let start = || reflect::start(settings, &Context::default());
            let (_, reflector) = within(host, start).context("the reflector did not start")?;
            reflectors.push(reflector);
        }
        Ok(Demo { reflectors, network })
    }

    /// Starts a probe of all destinations, for so long and with so long a time-out, ns.
    fn probe(
        &self,
        args: &DemoArgs,
        rate: u64,
        (duration, timeout): (i64, i64),
        context: &Context,
    ) -> Result<(About, Probe), Failure> {
        let streams = u64::from(args.destinations) * args.dscp.len() as u64;
        let uplinks = self.network.reflectors.len() as u32;
        // The first ones have one more where they do not divide evenly.
        let count = |n: u32| (args.destinations + uplinks - 1 - n) / uplinks;
        let range = |n: u32| TargetEntry::of(Uplinks::target_range(n as u8, count(n) as u16));
        let settings = Settings {
            targets: (0..uplinks).map(range).collect(),
            stream: StreamOptions {
                dscp: Some(args.dscp.clone()),
                interval: Some((streams * 1_000_000_000 / rate.max(1)) as i64),
                size: Some(150),
                ..StreamOptions::default()
            },
            run: RunOptions {
                duration: Some(duration),
                timeout: Some(timeout),
                record_interval: Some(5 * SECOND),
                ..RunOptions::default()
            },
            engine: EngineSettings {
                engine: args.engine,
                cpu: Some(0),
                ..EngineSettings::default()
            },
            ..Settings::default()
        };
        Ok(within(&self.network.probe, || probe::start(settings, context))?)
    }

    /// The greatest round load that is well within what the network carries, found by short
    /// trials; `None`: interrupted.
    fn find_rate(&self, args: &DemoArgs, context: &Context) -> Result<Option<u64>, Failure> {
        errln!(
            INFO,
            "looking for a load that this machine sends mostly on time and its virtual network carries; --rate names one instead"
        );
        // Why the load before was too much.
        let mut bound = Bound::default();
        for load in LOADS {
            let above = std::mem::take(&mut bound);
            for _ in 0..TRIES {
                let tried = load + load / MARGIN;
                let Some(trial) = self.trial(args, tried, context)? else { return Ok(None) };
                errln!(INFO, "  {:>7} packets/s: {}", format_count(tried), outcome(&trial));
                if is_clean(&trial) {
                    outln!("{}", found(tried, load, &trial, &above));
                    return Ok(Some(load));
                }
                bound.add(tried, &trial);
            }
        }
        let least = LOADS[LOADS.len() - 1];
        outln!(
            "{}; probing at {} all the same: expect {} that are this machine's",
            bound.text(),
            format_count(least),
            bound.consequence(),
        );
        Ok(Some(least))
    }

    /// What became of the packets of a short trial; `None`: interrupted.
    fn trial(
        &self,
        args: &DemoArgs,
        rate: u64,
        context: &Context,
    ) -> Result<Option<Counters>, Failure> {
        let (about, probe) = self.probe(args, rate, (TRIAL, SECOND / 2), context)?;
        let clock = about.clock;
        let mut collected = Collected::new(about);
        probe.records.iter().for_each(|event| drop(collected.add(&event)));
        let mut ended = probe.join();
        if let Some(error) = ended.failure.take() {
            return Err(error.into());
        }
        let run = collected.finish(&ended, clock);
        Ok((!context.stop.is_asked()).then_some(run.overall.counters))
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.end_reflectors();
    }
}

impl Demo {
    fn end_reflectors(&mut self) {
        self.reflectors.iter().for_each(Reflecting::stop);
        // Their programs are attached to interfaces that go with the network.
        self.reflectors.drain(..).for_each(|reflector| drop(reflector.join()));
    }
}

/// Starts an instrument in a host's network namespace: its threads stay there.
fn within<T: Send>(
    host: &Host,
    start: impl FnOnce() -> Result<T, RunError> + Send,
) -> Result<T, RunError> {
    host.inside(start).map_err(anyhow::Error::from)?
}

/// No loss, nothing left out, and at least half of the probes in time: beyond what the processors carry
/// the backlog grows until nearly all of them are late.
fn is_clean(c: &Counters) -> bool {
    c.sent > 0 && c.lost == 0 && c.skipped == 0 && c.sent_late * 2 <= c.sent
}

/// What was wrong with the trials of a load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Bound {
    /// Packets a second; 0: there was no such trial.
    rate: u64,
    /// Some packets were lost.
    loss: bool,
    /// The sender could not send on time.
    late: bool,
}

impl Bound {
    /// A trial at `rate` that was not clean.
    fn add(&mut self, rate: u64, c: &Counters) {
        self.rate = rate;
        self.loss |= c.lost > 0;
        self.late |= c.skipped > 0 || c.sent_late * 2 > c.sent || c.sent == 0;
    }

    fn text(&self) -> String {
        let rate = format_count(self.rate);
        match (self.loss, self.late) {
            (true, false) => format!("at {rate} packets/s the virtual network lost some"),
            (false, _) => format!(
                "at {rate} packets/s none was lost, but this host was too busy to send on time"
            ),
            (true, true) => format!(
                "at {rate} packets/s this host was too busy to send on time, and some were lost"
            ),
        }
    }

    fn consequence(&self) -> &'static str {
        match (self.loss, self.late) {
            (true, false) => "losses",
            (false, _) => "late sends",
            (true, true) => "losses and late sends",
        }
    }
}

/// What the search has found: `trial` at `tried` was clean, those above had `bound`. How many left
/// late is said: a busy host that sends half of them late may still be the best there is.
fn found(tried: u64, load: u64, trial: &Counters, bound: &Bound) -> String {
    let limit = if bound.rate > 0 { format!(" ({})", bound.text()) } else { String::new() };
    let late = match trial.sent_late {
        0 => "on time".to_owned(),
        late => format!("({} of them late)", format_share(late, trial.sent)),
    };
    format!(
        "this machine sends {} packets/s {late} and loses none{limit}; probing at {}",
        format_count(tried),
        format_count(load)
    )
}

/// A trial in one line.
fn outcome(c: &Counters) -> String {
    let left_out = match c.skipped {
        0 => String::new(),
        n => format!(", {} not sent", format_count(n)),
    };
    format!(
        "sent {} ({} late), lost {} ({}){left_out}",
        format_count(c.sent),
        format_share(c.sent_late, c.sent),
        format_count(c.lost),
        format_share(c.lost, c.sent),
    )
}

/// Loads to choose from, packets a second, greatest first.
const LOADS: [u64; 10] =
    [200_000, 150_000, 120_000, 100_000, 80_000, 60_000, 40_000, 20_000, 10_000, 5_000];
/// A load is well within what is carried with a fifth more than it.
const MARGIN: u64 = 5;
/// A shared host may stop for once.
const TRIES: u32 = 2;
/// How long is sent if nothing else is said, ns.
const DURATION: i64 = 30 * SECOND;
/// How long a trial sends, ns.
const TRIAL: i64 = SECOND;
/// More senders than this would leave the rest of the program no processor on many machines.
const MOST_UPLINKS: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_says_why_its_load_is_too_much() {
        let clean = Counters { sent: 1_000, received: 1_000, ..Counters::default() };
        assert!(is_clean(&clean));
        assert_eq!(outcome(&clean), "sent 1,000 (0% late), lost 0 (0%)");
        let not = Counters { lost: 5, skipped: 20, sent_late: 600, ..clean };
        assert!(!is_clean(&not));
        assert_eq!(outcome(&not), "sent 1,000 (60.0% late), lost 5 (0.5%), 20 not sent");
    }

    #[test]
    fn the_search_says_whether_loss_or_a_busy_host_bounded_it() {
        let clean = Counters { sent: 1_000, received: 1_000, ..Counters::default() };
        let late = Counters { sent: 1_000, sent_late: 988, ..Counters::default() };
        let lossy = Counters { sent: 1_000, lost: 1, ..Counters::default() };
        let text = |trials: &[&Counters]| {
            let mut bound = Bound::default();
            trials.iter().for_each(|trial| bound.add(12_000, trial));
            found(6_000, 5_000, &clean, &bound)
        };
        let begin = "this machine sends 6,000 packets/s on time and loses none";
        assert_eq!(text(&[]), format!("{begin}; probing at 5,000"));
        let busy = "at 12,000 packets/s none was lost, but this host was too busy to send on time";
        assert_eq!(text(&[&late, &late]), format!("{begin} ({busy}); probing at 5,000"));
        let lost = "at 12,000 packets/s the virtual network lost some";
        assert_eq!(text(&[&lossy, &lossy]), format!("{begin} ({lost}); probing at 5,000"));
        let both = "at 12,000 packets/s this host was too busy to send on time, and some were lost";
        assert_eq!(text(&[&late, &lossy]), format!("{begin} ({both}); probing at 5,000"));
        // What was found is not better than it was.
        let half = Counters { sent_late: 437, ..clean };
        assert!(is_clean(&half));
        let begin = "this machine sends 6,000 packets/s (43.7% of them late) and loses none";
        let said = found(6_000, 5_000, &half, &Bound::default());
        assert_eq!(said, format!("{begin}; probing at 5,000"));
        let begin = "this machine sends 6,000 packets/s on time and loses none";
        // Probes that were left out are no loss.
        let skipped = Counters { sent: 900, skipped: 100, ..Counters::default() };
        assert_eq!(text(&[&skipped]), format!("{begin} ({busy}); probing at 5,000"));
    }
}
