//! Round-trip times from interfaces: matched and added up in the kernel, read here once
//! an interval. An interface that vanishes is waited for; one that comes back under the
//! same name is watched again.

use std::cell::{Cell, RefCell};
use std::io::stdout;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use sonde_bpf::BpfError;
use sonde_bpf::rtt::{RttConfig, RttEvents, RttGroupBy, RttProgram, RttProtocols};
use sonde_meter::rtt::{Config, EventLimit, GroupBy};
use sonde_port::clock::tai_now;
use sonde_port::netlink::Link;
use sonde_results::rtt::{Coverage, EndReason, RttGroup};
use sonde_wire::Time;

use super::args::{Hook, Proto, RttArgs};
use super::collect::{Collected, Prints};
use super::loss::Losses;
use super::places::Places;
use super::totals::slowest_first;
use super::view::{self, Snapshot};
use super::{coverage, empty_run, settings};
use crate::exit::{Exit, Failure};
use crate::output::live::InPlace;
use crate::output::style::{Style, terminal_size};
use crate::signals::Signals;

/// Runs until the time is over, or Ctrl-C.
pub fn run(links: Vec<Link>, args: &RttArgs, prints: Prints) -> Result<Exit, Failure> {
    let config = settings::config(args, &prints).map_err(Failure::Usage)?;
    if links.len() > MOST_POINTS {
        return Err(Failure::Usage(anyhow!(
            "{} interfaces are too many for one run, which watches {MOST_POINTS}",
            links.len()
        )));
    }
    let signals = Signals::catch()?;
    let pins = args.persist.then(Pins::make).transpose()?;
    let mut screen = prints.live.then(Screen::begin);
    let mut program = RttProgram::load(&kernel_config(&config, args, links.len()))
        .map_err(anyhow::Error::from)?;
    let mut places = Places::open(&links, args.hook.unwrap_or(Hook::Tc))?;
    let points = places.attach(&mut program)?;
    if let Some(pins) = pins {
        pins.keep(&program).map_err(anyhow::Error::from)?;
    }
    let run = empty_run(args, points);
    let out = args.output.out.clone();
    let collected = Collected::new(run, prints, out, settings::group_of(&config));
    if let Some(screen) = &mut screen {
        screen.say("watching");
    }
    let start = tai_now();
    let mut watching =
        Watching { program, places, collected, screen, start, begun: start, seen: (0, 0) };
    let end = args.duration.map(|ns| start + ns);
    let (mut interrupted, mut look_around) = (false, start);
    loop {
        let due = watching.begun + args.interval;
        let until = end.map_or(due, |end| end.min(due));
        let brought = watching.fetch((until - tai_now()).clamp(0, LOOK_AROUND_NS))?;
        // Where samples come without end, some at a time cost less than each at once.
        let patience = if brought { Duration::from_millis(GATHER_MS) } else { Duration::ZERO };
        interrupted |= signals.wait(patience);
        let now = tai_now();
        if now >= look_around {
            look_around = now + LOOK_AROUND_NS;
            watching.collected.flush();
            watching.places.follow(&mut watching.program, &mut watching.collected)?;
        }
        let vain = watching.collected.is_in_vain();
        if interrupted || vain || end.is_some_and(|end| now >= end) {
            return Ok(watching.finish(interrupted, args.persist)?);
        }
        if now >= due {
            watching.end_interval(now)?;
        }
    }
}

/// A run in progress.
struct Watching {
    program: RttProgram,
    places: Places,
    collected: Collected,
    screen: Option<Screen>,
    start: Time,
    /// Begin of the interval.
    begun: Time,
    /// Packets and samples up to then.
    seen: (u64, u64),
}

impl Watching {
    /// Takes samples and flows that have ended, waiting for the first for at most
    /// `patience_ns`. Whether there were any.
    fn fetch(&mut self, patience_ns: i64) -> anyhow::Result<bool> {
        let (collected, brought) = (RefCell::new(&mut self.collected), Cell::new(false));
        self.program.poll(
            // Rounded up: the kernel waits in milliseconds.
            Duration::from_millis(patience_ns.max(0) as u64 / 1_000_000 + 1),
            &mut |sample| {
                brought.set(true);
                collected.borrow_mut().sample(&sample);
            },
            &mut |flow| collected.borrow_mut().flow(&flow),
        )?;
        Ok(brought.get())
    }

    fn end_interval(&mut self, now: Time) -> anyhow::Result<()> {
        let so_far = self.program.coverage()?;
        let mut groups = self.program.take_groups(self.begun.as_nanos(), now.as_nanos())?;
        self.collected.interval(&groups, now.as_nanos(), &so_far);
        if let Some(screen) = &mut self.screen {
            slowest_first(&mut groups);
            let total = (coverage::count(&so_far, "packets"), coverage::samples(&so_far));
            let latest = (total.0 - self.seen.0, total.1 - self.seen.1);
            self.seen = total;
            let interval = Interval { groups: &groups, latest, length_ns: now - self.begun };
            let elapsed_ns = now - self.start;
            let shown =
                screen.refresh(&self.program, &self.collected, &so_far, interval, elapsed_ns);
            if shown.is_err() {
                // Nobody looks any more; the measurement and its file go on.
                self.screen = None;
            }
        }
        self.begun = now;
        Ok(())
    }

    fn finish(mut self, interrupted: bool, persist: bool) -> anyhow::Result<Exit> {
        if !persist {
            // So that what is read now stands still.
            self.places.detach(&mut self.program);
        }
        self.fetch(0)?;
        let collected = &mut self.collected;
        self.program.open_flows(&mut |mut flow| {
            if flow.reason == EndReason::Open {
                flow.reason = EndReason::Stopped;
            }
            collected.flow(&flow);
        });
        let now = tai_now();
        let groups = self.program.take_groups(self.begun.as_nanos(), now.as_nanos())?;
        let coverage = self.program.coverage()?;
        self.collected.interval(&groups, now.as_nanos(), &coverage);
        if persist {
            eprintln!("left attached; 'rm -r {PIN_FOLDER}' detaches it");
        }
        self.collected.finish(now.as_nanos(), coverage, interrupted)
    }
}

/// The folder that lets the programs outlive this process; gone again unless they were
/// pinned there.
struct Pins {
    kept: bool,
}

impl Pins {
    fn make() -> anyhow::Result<Pins> {
        match std::fs::create_dir(PIN_FOLDER) {
            Ok(()) => Ok(Pins { kept: false }),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Err(anyhow!(
                "{PIN_FOLDER} is there from an earlier run; 'rm -r {PIN_FOLDER}' ends that one"
            )),
            Err(e) => Err(e).with_context(|| {
                format!("cannot make {PIN_FOLDER}; 'mount -t bpf bpf /sys/fs/bpf' may help")
            }),
        }
    }

    fn keep(mut self, program: &RttProgram) -> Result<(), BpfError> {
        program.pin(Path::new(PIN_FOLDER))?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        if !self.kept {
            // The first error is the one to report.
            let _ = std::fs::remove_dir_all(PIN_FOLDER);
        }
    }
}

/// The same settings, for the kernel.
fn kernel_config(config: &Config, args: &RttArgs, interfaces: usize) -> RttConfig {
    let protocols = args.filter.proto.iter().map(|proto| match proto {
        Proto::Tcp => RttProtocols::TCP,
        Proto::Icmp => RttProtocols::ICMP,
        Proto::Quic => RttProtocols::QUIC,
        Proto::Dns => RttProtocols::DNS,
        Proto::Sctp => RttProtocols::SCTP,
    });
    RttConfig {
        flows: config.flows as u32,
        seed: config.seed,
        group_by: match config.group_by {
            GroupBy::Flow => RttGroupBy::Flow,
            GroupBy::Prefix => RttGroupBy::Prefix,
            GroupBy::As => RttGroupBy::As,
            GroupBy::Interface => RttGroupBy::Interface,
            GroupBy::Vlan => RttGroupBy::Vlan,
            GroupBy::Dscp => RttGroupBy::Dscp,
        },
        groups: config.groups as u32,
        prefixes: config
            .prefixes
            .iter()
            // Of a hidden address no more is kept: longer prefixes would match by chance.
            .filter(|(ip, n, _)| !config.hide_addresses || *n <= if ip.is_ipv4() { 24 } else { 48 })
            .map(|(ip, n, asn)| (ip, n, asn.unwrap_or(0)))
            .collect(),
        events: match config.events {
            EventLimit::None => RttEvents::None,
            EventLimit::All => RttEvents::All,
            EventLimit::Every(time) => RttEvents::Every(time.as_nanos() as u64),
            EventLimit::RttMultiple(sixteenths) => RttEvents::RttMultiple(sixteenths),
        },
        weight_by_flow: config.weight_by_flow,
        hide_addresses: config.hide_addresses,
        protocols: protocols.reduce(RttProtocols::with).unwrap_or(RttProtocols::ALL),
        nets: config.filter.nets.clone(),
        ports: config.filter.ports.clone(),
        tunnels: args.tunnels,
        // From one interface to another: takes two, and egress.
        residence: interfaces > 1 && args.hook != Some(Hook::Ingress),
        xdp: args.hook == Some(Hook::Xdp),
    }
}

/// One interval for the screen.
struct Interval<'a> {
    groups: &'a [RttGroup],
    /// Packets and samples.
    latest: (u64, u64),
    length_ns: i64,
}

/// The live table.
struct Screen {
    place: InPlace,
    /// Of the flows that were open at the last look.
    losses: Losses,
    /// No look at the flows before this.
    rest: Instant,
}

impl Screen {
    /// The kernel takes seconds to check the programs: say so.
    fn begin() -> Screen {
        let (place, losses) = (InPlace::default(), Losses::default());
        let mut screen = Screen { place, losses, rest: Instant::now() };
        screen.say("loading");
        screen
    }

    /// What goes on before there is a table.
    fn say(&mut self, what: &str) {
        // If nobody looks, the first table finds out.
        let _ = self.place.draw(&mut stdout().lock(), &[format!("sonde rtt  {what}")]);
    }

    fn refresh(
        &mut self,
        program: &RttProgram,
        collected: &Collected,
        so_far: &Coverage,
        interval: Interval<'_>,
        elapsed_ns: i64,
    ) -> std::io::Result<()> {
        self.look_at_flows(program, collected);
        let caveats = collected.caveats(so_far);
        let snapshot = Snapshot {
            elapsed_ns,
            interval_ns: interval.length_ns,
            points: &collected.run.points,
            group_by: &collected.run.config.group_by,
            groups: interval.groups,
            losses: &self.losses,
            coverage: so_far,
            latest: interval.latest,
            caveats,
        };
        let (width, height) = terminal_size();
        let lines = view::live(&snapshot, width, height, Style::for_stdout());
        self.place.draw(&mut stdout().lock(), &lines)
    }

    /// Loss in the flows that are open. A full table takes long to read: so at most a
    /// fiftieth of the time goes into this.
    fn look_at_flows(&mut self, program: &RttProgram, collected: &Collected) {
        let begin = Instant::now();
        if begin < self.rest {
            return;
        }
        self.losses.clear();
        program.open_flows(&mut |flow| self.losses.add(&flow, collected.group_of()));
        let end = Instant::now();
        self.rest = end + (end - begin) * 50;
    }
}

/// `point` is an octet; a run of more interfaces than this is a mistake.
const MOST_POINTS: usize = 64;
/// How long a signal, or a change of interfaces, may wait.
const LOOK_AROUND_NS: i64 = 100_000_000;
/// How long samples gather once some have come.
const GATHER_MS: u64 = 5;
const PIN_FOLDER: &str = "/sys/fs/bpf/sonde";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Rtt {
        #[command(flatten)]
        args: RttArgs,
    }

    fn told(line: &str, interfaces: usize) -> RttConfig {
        let args = Rtt::try_parse_from(format!("rtt x {line}").split_whitespace()).unwrap().args;
        let prints = Prints::new(&args.output, false).unwrap();
        kernel_config(&settings::config(&args, &prints).unwrap(), &args, interfaces)
    }

    #[test]
    fn the_kernel_is_told_what_was_typed() {
        let config = told(
            "--proto tcp,dns --net 10.0.0.0/8 --port 53 --by vlan --tunnels --prefix-only \
             --weight flow --flows 64 --sample-limit 2x --seed 1",
            1,
        );
        assert_eq!(config.protocols, RttProtocols::TCP.with(RttProtocols::DNS));
        assert_eq!((config.nets.len(), &config.ports[..]), (1, &[53][..]));
        assert_eq!((config.group_by, config.flows), (RttGroupBy::Vlan, 64));
        assert_eq!(config.events, RttEvents::RttMultiple(32));
        assert!(config.tunnels && config.hide_addresses && config.weight_by_flow);
        assert_eq!(told("", 1).protocols, RttProtocols::ALL);
        assert_eq!(told("--format table", 1).events, RttEvents::None);
    }

    #[test]
    fn prefixes_are_no_finer_than_what_is_kept_of_an_address() {
        let path = std::env::temp_dir().join(format!("sonde-finer-{}", std::process::id()));
        std::fs::write(&path, "10.0.0.0/8 64500\n10.1.2.0/25\n2001:db8::/48\n2001:db8::/56\n")
            .unwrap();
        let lengths = |line: &str| -> Vec<u8> {
            let config = told(&format!("--prefixes {} {line}", path.display()), 1);
            config.prefixes.iter().map(|p| p.1).collect()
        };
        let (whole, hidden) = (lengths(""), lengths("--prefix-only"));
        std::fs::remove_file(&path).unwrap();
        assert_eq!((whole, hidden), (vec![8, 25, 48, 56], vec![8, 48]));
    }

    #[test]
    fn residence_takes_two_interfaces_and_what_they_send() {
        assert!(told("", 2).residence);
        assert!(!told("", 1).residence && !told("--hook ingress", 2).residence);
    }
}
