//! The engines "af_xdp" and "af_packet": a thread a direction that sends, and one that receives,
//! each with a port of its own. Frames are made and judged by `sonde_meter::load`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sonde_meter::Paced as _;
use sonde_meter::load::{FCS_LEN, LoadAnalyser, LoadAnalyserConfig, LoadGenerator, LossLog};
use sonde_port::{Engine, OpenSpec, Port, PortStats};
use sonde_results::trial::{Direction, LedgerEntry, Side};
use sonde_run::pump;
use sonde_run::thread::{join_scoped, spawn_scoped};
use sonde_sys::clock::tai_now;
use sonde_sys::netns;
use sonde_wire::Time;
use sonde_wire::ethernet::Mac;
use sonde_wire::signature::Secret;

use super::bed::{PortFacts, Watch, refused_beyond};
use super::copies::{CopyShare, CopySpec, Expects};
use super::drain::Drain;
use super::series::QuantileSeries;
use super::{
    DirectionLoad, LoadResult, SECOND, TesterPort, TesterSpec, TrialProgress, patiently,
    settle_sender,
};

/// Ports are opened for every trial, so that none has anything left of the one before.
pub(super) struct Ports {
    engine: Engine,
    secret: Secret,
    mode: String,
}

impl Ports {
    pub(super) fn open(engine: Engine, spec: &TesterSpec, secret: [u64; 2]) -> Result<Ports> {
        if engine == Engine::AfXdp {
            for way in &spec.ways {
                ensure!(
                    spec.ways.iter().all(|other| other.from != way.to),
                    "engine af_xdp sends and receives by different ports only: one direction, or \
                     engine xdp or af_packet"
                );
            }
        }
        let mut modes = Vec::new();
        for way in &spec.ways {
            let longest = way.traffic.longest_size() as usize - FCS_LEN;
            let sender = open_sender(engine, &spec.ports[way.from])?;
            let most = sender.caps().max_frame;
            ensure!(
                longest <= most,
                "port {}: frames of {} octets are longer than engine {} sends ({} with the FCS)",
                spec.ports[way.from].name,
                longest + FCS_LEN,
                engine.name(),
                most + FCS_LEN
            );
            modes.push(format!("{} {}", spec.ports[way.from].name, sender.caps().mode));
        }
        let mode = format!("{}: {}", engine.name(), modes.join("; "));
        Ok(Ports { engine, secret: Secret(secret), mode })
    }

    pub(super) fn mode(&self) -> &str {
        &self.mode
    }

    pub(super) fn run(
        &mut self,
        spec: &TesterSpec,
        copies: &CopySpec,
        ports: &[PortFacts],
        loads: &[DirectionLoad],
        stop: &AtomicBool,
        progress: &mut dyn FnMut(TrialProgress),
    ) -> Result<LoadResult> {
        let mut watch = Watch::open(&spec.ports, ports)?;
        let mut opened = Vec::new();
        for load in loads {
            let way = &spec.ways[load.way];
            let longest = load.traffic.longest_size() as usize;
            let change = way.length_change.unsigned_abs() as usize;
            let receiver = open_receiver(self.engine, &spec.ports[way.to], longest + change)?;
            opened.push((open_sender(self.engine, &spec.ports[way.from])?, receiver));
        }
        let mut branches = Vec::new();
        for branch in &copies.branches {
            let longest = loads[0].traffic.longest_size() as usize;
            let change = spec.ways[0].length_change.unsigned_abs() as usize;
            branches.push(open_receiver(self.engine, &spec.ports[branch.to], longest + change)?);
        }
        let refused = || -> Vec<u64> {
            spec.ports.iter().zip(ports).map(|(port, facts)| refused_beyond(port, facts)).collect()
        };
        let refused_before = refused();
        // Each kernel block is handed over when full or a millisecond old: what was there
        // before is gone by the start.
        let start = tai_now() + LEAD_NS;
        let shared: Vec<Shared> = loads.iter().map(|_| Shared::default()).collect();
        let at_branches: Vec<AtomicU64> = branches.iter().map(|_| AtomicU64::new(0)).collect();
        let (enough, finish) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut down = None;
        let (mut sent, results) = std::thread::scope(|scope| {
            let mut senders = Vec::new();
            let mut receivers = Vec::new();
            for ((load, shared), (sender, receiver)) in loads.iter().zip(&shared).zip(opened) {
                let way = &spec.ways[load.way];
                let headers = load.headers()?;
                let generator = LoadGenerator::new(
                    headers,
                    &load.traffic.sizes,
                    load.schedule.clone(),
                    start,
                    load.tag,
                    self.secret,
                );
                let analyser = self.analyser(load, spec, way.for_mac, start);
                let share = load.share(Expects::All);
                let (port, enough, finish) = (&spec.ports[way.from], &enough, &finish);
                let counted = start.as_nanos() + load.schedule.counted_ns();
                senders.push(spawn_scoped(scope, "sonde-tx", move || -> Result<_> {
                    let _preferred = settle_sender(port, loads.len(), counted)?;
                    send(sender, generator, shared, enough)
                }));
                receivers.push(spawn_scoped(scope, "sonde-rx", move || {
                    let counts = (&shared.sent, &shared.received);
                    receive(receiver, analyser, load, share, start, counts, finish)
                }));
            }
            // What arrives at a branch is of the first sender.
            for ((receiver, branch), received) in
                branches.into_iter().zip(&copies.branches).zip(&at_branches)
            {
                let (load, finish) = (&loads[0], &finish);
                let analyser = self.analyser(load, spec, branch.for_mac, start);
                let (share, counts) = (load.share(branch.expects), (&shared[0].sent, received));
                receivers.push(spawn_scoped(scope, "sonde-rx", move || {
                    receive(receiver, analyser, load, share, start, counts, finish)
                }));
            }
            let shares: Vec<CopyShare> =
                copies.branches.iter().map(|b| loads[0].share(b.expects)).collect();
            let so_far = || {
                let sent = |s: &Shared| s.sent.load(Ordering::Relaxed);
                let mut all =
                    TrialProgress { start_ns: start.as_nanos(), ..TrialProgress::default() };
                for direction in &shared {
                    all.sent += sent(direction);
                    all.received += direction.received.load(Ordering::Relaxed);
                }
                for (share, received) in shares.iter().zip(&at_branches) {
                    let expected = share.of(sent(&shared[0]));
                    all.sent += expected;
                    all.received += received.load(Ordering::Relaxed).min(expected);
                }
                all
            };
            let limit = start + loads.iter().map(DirectionLoad::limit_ns).max().unwrap_or(0);
            while senders.iter().any(|thread| !thread.is_finished()) {
                down = down.take().or_else(|| watch.down());
                let broken = receivers.iter().any(|thread| thread.is_finished());
                let late = tai_now() > limit;
                if broken || late || down.is_some() || stop.load(Ordering::Relaxed) {
                    enough.store(true, Ordering::Relaxed);
                }
                progress(so_far());
                std::thread::sleep(TICK);
            }
            let mut drain = Drain::new(tai_now().as_nanos(), spec.drain);
            while !stop.load(Ordering::Relaxed) {
                let all = so_far();
                progress(all);
                let Some(pause) = drain.pause(tai_now().as_nanos(), all, TICK) else { break };
                std::thread::sleep(pause);
            }
            finish.store(true, Ordering::Relaxed);
            let (mut sent, mut results) = (Vec::new(), Vec::new());
            for sender in senders {
                sent.push(join_scoped(sender)??);
            }
            for receiver in receivers {
                results.push(join_scoped(receiver)??);
            }
            Ok::<_, anyhow::Error>((sent, results))
        })?;

        let refused_after = refused();
        for (load, sent) in loads.iter().zip(&mut sent) {
            // They left here, and are lost at whoever is at the other end.
            let from = spec.ways[load.way].from;
            let beyond = refused_after[from].saturating_sub(refused_before[from]);
            sent.stats.tx_dropped = sent.stats.tx_dropped.saturating_sub(beyond);
        }
        let mut outcome = LoadResult { start_ns: start.as_nanos(), down, ..LoadResult::default() };
        // Each sender's drops count once; a branch is of the first one.
        let none = PortStats::default();
        let whole = loads.iter().zip(&sent).map(|(load, sent)| (&spec.ways[load.way], sent));
        let whole = whole.map(|(way, sent)| (way.from, way.to, sent, &sent.stats));
        let branches = copies.branches.iter();
        let branches = branches.map(|b| (spec.ways[0].from, b.to, &sent[0], &none));
        for ((from, to, sent, refused), received) in whole.chain(branches).zip(results) {
            let [from, to] = [from, to].map(|p| format!("tester port {}", spec.ports[p].name));
            for (port, counter, frames) in [
                (&to, "rx_dropped", received.stats.rx_dropped),
                (&to, "rx_invalid", received.stats.rx_invalid),
                (&from, "tx_dropped", refused.tx_dropped),
            ] {
                if frames > 0 {
                    let (place, counter) = (port.clone(), counter.into());
                    let side = Side::Tester;
                    outcome.counters.push(LedgerEntry { side, place, counter, frames });
                }
            }
            outcome.directions.push(received.with(sent));
        }
        Ok(outcome)
    }

    fn analyser(
        &self,
        load: &DirectionLoad,
        spec: &TesterSpec,
        mac: Option<Mac>,
        start: Time,
    ) -> LoadAnalyser {
        let way = &spec.ways[load.way];
        LoadAnalyser::new(LoadAnalyserConfig {
            tag: load.tag,
            secret: self.secret,
            schedule: load.schedule.clone(),
            streams: load.flows() as usize,
            start: start + load.schedule.counted_ns(),
            slot_ns: load.slot_ns(),
            length_change: way.length_change,
            tagged: !load.traffic.tags.is_empty(),
            mac,
        })
    }
}

/// Frames that the threads of a direction have sent and received so far.
#[derive(Default)]
struct Shared {
    sent: AtomicU64,
    received: AtomicU64,
}

struct Sent {
    generator: LoadGenerator,
    stats: PortStats,
}

struct Received {
    analyser: LoadAnalyser,
    losses: LossLog,
    share: CopyShare,
    series: QuantileSeries,
    stats: PortStats,
}

impl Received {
    /// Puts both ends of a direction together.
    fn with(mut self, sent: &Sent) -> Direction {
        let mut direction = Direction::default();
        sent.generator.read(&mut direction, sent.stats.tx_dropped);
        self.analyser.read(&mut direction);
        let count = sent.generator.sent();
        let (losses, share) = (&mut self.losses, &self.share);
        let mut read = |first, arrived| losses.read(first, arrived | share.excused(first), count);
        self.analyser.harvest(count, &mut read);
        self.series.fill(&mut direction.series, self.analyser.latency());
        self.losses.finish(&mut direction);
        // What the kernel refused never left: it is in the ledger, and no loss of the device.
        direction.lost = direction.lost.saturating_sub(sent.stats.tx_dropped);
        direction
    }
}

fn send(
    mut port: Box<dyn Port>,
    mut generator: LoadGenerator,
    shared: &Shared,
    enough: &AtomicBool,
) -> Result<Sent> {
    while generator.due().is_some() {
        // It never sleeps: a processor that idles takes its time to wake up.
        pump::send(port.as_mut(), &mut generator, 0)?;
        shared.sent.store(generator.sent(), Ordering::Relaxed);
        if enough.load(Ordering::Relaxed) {
            break;
        }
    }
    let stats = port.stats();
    Ok(Sent { generator, stats })
}

fn receive(
    mut port: Box<dyn Port>,
    mut analyser: LoadAnalyser,
    load: &DirectionLoad,
    share: CopyShare,
    start: Time,
    (sent, received): (&AtomicU64, &AtomicU64),
    finish: &AtomicBool,
) -> Result<Received> {
    let slot_ns = load.slot_ns();
    let mut losses = LossLog::new(load.schedule.clone(), slot_ns);
    let counted = start.as_nanos() + load.schedule.counted_ns();
    let mut series = QuantileSeries::new(counted, slot_ns);
    loop {
        // Read before the ring is: what came until then is still taken.
        let last = finish.load(Ordering::Relaxed);
        let burst = port.rx()?;
        let count = burst.len();
        for i in 0..count {
            let (frame, stamp) = burst.seen(i);
            analyser.input(frame, stamp.at);
        }
        if count > 0 {
            received.store(analyser.received(), Ordering::Relaxed);
            continue;
        }
        if last {
            break;
        }
        let now = port.now();
        if series.due(now.as_nanos()) {
            series.note(now.as_nanos(), analyser.latency());
        }
        let sent = sent.load(Ordering::Relaxed);
        let old = sent.saturating_sub(LoadAnalyser::WINDOW / 2) & !63;
        let mut read = |first, arrived| losses.read(first, arrived | share.excused(first), sent);
        analyser.harvest(old, &mut read);
        port.wait(now + WAIT_NS)?;
    }
    let stats = port.stats();
    Ok(Received { analyser, losses, share, series, stats })
}

fn open_sender(engine: Engine, port: &TesterPort) -> Result<Box<dyn Port>> {
    let spec = OpenSpec::transmit(port.interface.clone());
    let open = || sonde_port::open(engine, &spec);
    let opened = netns::inside(port.netns.as_deref(), || patiently(open))?;
    opened.with_context(|| format!("port {}", port.name))
}

fn open_receiver(engine: Engine, port: &TesterPort, longest: usize) -> Result<Box<dyn Port>> {
    let spec = OpenSpec {
        consume: engine == Engine::AfXdp,
        // The signature is at the end.
        snap: longest.max(OpenSpec::WATCHED_BYTES),
        ring: RING,
        ..OpenSpec::watching(port.interface.clone())
    };
    let open = || sonde_port::open(engine, &spec);
    let opened = netns::inside(port.netns.as_deref(), || patiently(open))?;
    opened.with_context(|| format!("port {}", port.name))
}

/// Frames that can wait for the analyser.
pub(crate) const RING: usize = 16_384;
/// Between two looks at the order to finish, while nothing arrives.
const WAIT_NS: i64 = 2_000_000;
/// From opening the ports to the first frame.
const LEAD_NS: i64 = SECOND / 20;
/// Between two looks at the threads.
const TICK: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests;
