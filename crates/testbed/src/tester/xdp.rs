//! The engine "xdp": both generator and analyser run in the kernel. This process loads them,
//! waits, and reads what they have counted.

pub(super) mod halves;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sonde_bpf::load_gen::WINDOW;
use sonde_bpf::{
    AttachMode, BpfError, Expected, FlowHeader, XdpAnalyser, XdpAnalyserConfig, XdpGenerator,
    XdpGeneratorConfig, XdpPace,
};
use sonde_meter::load::{FCS_LEN, HeaderTemplate, LoadError, LossLog};
use sonde_results::trial::{Direction, Offer};
use sonde_run::thread::{join_scoped, spawn_scoped};
use sonde_sys::clock::tai_now;
use sonde_sys::netns;

use super::bed::{PortFacts, Watch, handed_on};
use super::copies::{CopyShare, CopySpec, Expects};
use super::drain::Drain;
use super::series::QuantileSeries;
use super::{
    DirectionLoad, DirectionSpec, LoadResult, SECOND, TesterSpec, TrialProgress, patiently,
    settle_sender,
};

/// The analysers, one a direction and then one a branch of the first, attached to the ports
/// where frames arrive.
pub(super) struct XdpEngine {
    analysers: Vec<XdpAnalyser>,
    branches: Vec<Expects>,
    secret: [u64; 2],
    mode: String,
}

impl XdpEngine {
    pub(super) fn open(
        spec: &TesterSpec,
        copies: &CopySpec,
        ports: &[PortFacts],
        secret: [u64; 2],
    ) -> Result<XdpEngine> {
        let (mut analysers, mut modes) = (Vec::new(), Vec::new());
        let tagged = |way: &DirectionSpec| !way.traffic.tags.is_empty();
        let ways = spec.ways.iter().map(|way| (way.to, way.for_mac, tagged(way)));
        let branches = copies.branches.iter();
        let branches = branches.map(|b| (b.to, b.for_mac, spec.ways.first().is_some_and(tagged)));
        for (to, mac, tagged) in ways.chain(branches) {
            let (port, facts) = (&spec.ports[to], &ports[to]);
            let config = XdpAnalyserConfig {
                queues: facts.rx_queues,
                secret,
                mac,
                long_frames: facts.mtu > LINEAR,
                tagged,
            };
            let attached = netns::inside(port.netns.as_deref(), || -> Result<_, BpfError> {
                let mut analyser = XdpAnalyser::load(&config)?;
                let mode = patiently(|| attach(&mut analyser, facts.ifindex))?;
                Ok((analyser, mode))
            });
            let attached = attached?.with_context(|| format!("port {}", port.name))?;
            analysers.push(attached.0);
            modes.push(format!("{} {}", port.name, attached.1.name()));
        }
        let mode = format!("live frames; analyser in XDP: {}", modes.join(", "));
        let branches = copies.branches.iter().map(|branch| branch.expects).collect();
        Ok(XdpEngine { analysers, branches, secret, mode })
    }

    pub(super) fn mode(&self) -> &str {
        &self.mode
    }

    pub(super) fn run(
        &mut self,
        spec: &TesterSpec,
        ports: &[PortFacts],
        loads: &[DirectionLoad],
        stop: &AtomicBool,
        progress: &mut dyn FnMut(TrialProgress),
    ) -> Result<LoadResult> {
        let mut watch = Watch::open(&spec.ports, ports)?;
        let before: Vec<Option<u64>> = spec.ports.iter().map(handed_on).collect();
        let generators = loads.iter().map(|load| generator(load, ports, spec, self.secret));
        let generators = generators.collect::<Result<Vec<_>>>()?;
        let start_ns = tai_now().as_nanos() + LEAD_NS;
        generators.iter().for_each(|generator| generator.start_at(start_ns));
        // What arrives at a branch is of the first generator.
        let whole = loads.iter().enumerate().map(|(i, load)| (i, load, Expects::All));
        let branches = self.branches.iter().map(|&expects| (0, &loads[0], expects));
        let (mut tracks, mut sources) = (Vec::new(), Vec::new());
        for (analyser, (source, load, expects)) in
            self.analysers.iter_mut().zip(whole.chain(branches))
        {
            let change = spec.ways[load.way].length_change;
            tracks.push(Track::begin(analyser, load, load.share(expects), change, start_ns));
            sources.push(&generators[source]);
        }

        let mut down = None;
        let sent = std::thread::scope(|scope| {
            let threads: Vec<_> = generators
                .iter()
                .zip(loads)
                .map(|(generator, load)| {
                    let port = &spec.ports[spec.ways[load.way].from];
                    let counted = start_ns + load.schedule.counted_ns();
                    spawn_scoped(scope, "sonde-tx", move || -> Result<()> {
                        let _preferred = settle_sender(port, loads.len(), counted)?;
                        Ok(generator.run()?)
                    })
                })
                .collect();
            let limit_ns = start_ns + loads.iter().map(DirectionLoad::limit_ns).max().unwrap_or(0);
            let mut turn = 0u32;
            while threads.iter().any(|thread| !thread.is_finished()) {
                let failed = threads
                    .iter()
                    .zip(&generators)
                    .any(|(thread, generator)| thread.is_finished() && !generator.done());
                let now = tai_now().as_nanos();
                if turn.is_multiple_of(LOOK_EVERY) {
                    down = down.take().or_else(|| watch.down());
                    progress(so_far(start_ns, &sources, &tracks));
                }
                turn += 1;
                if failed || down.is_some() || now > limit_ns || stop.load(Ordering::Relaxed) {
                    generators.iter().for_each(XdpGenerator::stop);
                }
                for (track, generator) in tracks.iter_mut().zip(&sources) {
                    generator.end_if_done();
                    track.follow(now, generator.sent());
                }
                std::thread::sleep(TICK);
            }
            let ended = threads.into_iter().map(|thread| join_scoped(thread)?);
            ended.collect::<Result<Vec<()>>>()
        });
        wait_for_late_frames(spec.drain, start_ns, stop, &sources, &mut tracks, progress);
        let directions: Vec<Direction> = tracks
            .into_iter()
            .zip(&sources)
            .map(|(track, generator)| track.end(generator))
            .collect();
        sent?;
        for (load, direction) in loads.iter().zip(&directions) {
            let from = spec.ways[load.way].from;
            let port = &spec.ports[from];
            let refused =
                none_was_taken(direction, &ports[from].kind, [before[from], handed_on(port)]);
            ensure!(
                !refused || down.is_some(),
                "port {}: the kernel took none of {} frames; on virtual Ethernet the other end of \
                 {} must run an XDP program or have GRO on ('ethtool -K NAME gro off', then on)",
                port.name,
                direction.sent,
                port.interface
            );
        }
        Ok(LoadResult { start_ns, directions, counters: Vec::new(), down })
    }
}

/// Whether the kernel took no frame of a direction, by what its port of this kind has `handed_on`
/// before and after the trial. Such a frame is in no counter, and must not pass for the device's
/// loss.
fn none_was_taken(direction: &Direction, kind: &str, handed_on: [Option<u64>; 2]) -> bool {
    let [before, after] = handed_on;
    direction.received == 0
        && direction.sent > 0
        && kind == "veth"
        && before.is_some()
        && before == after
}

/// Waits for late frames, and for copies of frames where none is missing.
fn wait_for_late_frames(
    drain: Duration,
    start_ns: i64,
    stop: &AtomicBool,
    sources: &[&XdpGenerator],
    tracks: &mut [Track],
    progress: &mut dyn FnMut(TrialProgress),
) {
    let mut drain = Drain::new(tai_now().as_nanos(), drain);
    loop {
        let now = tai_now().as_nanos();
        for (track, generator) in tracks.iter_mut().zip(sources) {
            track.follow(now, generator.sent());
        }
        let all = so_far(start_ns, sources, tracks);
        progress(all);
        match drain.pause(now, all, TICK) {
            Some(pause) if !stop.load(Ordering::Relaxed) => std::thread::sleep(pause),
            _ => return,
        }
    }
}

/// Of a branch that expects nothing, nothing.
fn so_far(start_ns: i64, sources: &[&XdpGenerator], tracks: &[Track]) -> TrialProgress {
    let mut all = TrialProgress { start_ns, ..TrialProgress::default() };
    for (track, generator) in tracks.iter().zip(sources) {
        let expected = track.share.of(generator.sent());
        all.sent += expected;
        all.received += track.analyser.received().min(expected);
    }
    all
}

fn generator(
    load: &DirectionLoad,
    ports: &[PortFacts],
    spec: &TesterSpec,
    secret: [u64; 2],
) -> Result<XdpGenerator> {
    let from = spec.ways[load.way].from;
    let port = &spec.ports[from];
    let GeneratorLoad { config, flows, pace } =
        GeneratorLoad::new(load, ports[from].ifindex, secret)?;
    let loaded =
        netns::inside(port.netns.as_deref(), || XdpGenerator::load(&config, &flows, &pace));
    loaded?.with_context(|| format!("port {}", port.name))
}

/// What a generator is loaded with.
struct GeneratorLoad {
    config: XdpGeneratorConfig,
    flows: Vec<FlowHeader>,
    pace: XdpPace,
}

impl GeneratorLoad {
    fn new(
        load: &DirectionLoad,
        ifindex: u32,
        secret: [u64; 2],
    ) -> Result<GeneratorLoad, LoadError> {
        let headers = load.headers()?;
        let HeaderTemplate { len, l3_at, l4_at, .. } = headers[0];
        let offer = &load.offer;
        let config = XdpGeneratorConfig {
            ifindex,
            batch: batch(offer),
            batch_stamps: false,
            sizes: load.traffic.sizes.iter().map(|&s| s - FCS_LEN as u32).collect(),
            header_len: len,
            l3_at,
            l4_at,
            ipv6: load.traffic.ipv6(),
            tag: load.tag,
            secret,
        };
        let schedule = &load.schedule;
        let mut loads = schedule.loads();
        let pace = XdpPace {
            frames: schedule.frames,
            counted_from: schedule.counted_from,
            burst: schedule.burst,
            rate_fps: loads.next().map_or(offer.rate_fps, |(_, rate)| rate),
            changes: loads.collect(),
            catch_up_ns: schedule.catch_up_ns(CATCH_UP_MOST_NS) as u64,
        };
        let flow = |h: HeaderTemplate| FlowHeader {
            header: h.octets,
            ip_sum: h.ip_sum,
            udp_sum: h.udp_sum,
            stream: h.stream,
        };
        let flows = headers.into_iter().map(flow).collect();
        Ok(GeneratorLoad { config, flows, pace })
    }
}

/// One direction under way.
struct Track<'a> {
    analyser: &'a mut XdpAnalyser,
    losses: LossLog,
    /// What has to arrive.
    share: CopyShare,
    series: QuantileSeries,
    /// When the first counted frame was due.
    start_ns: i64,
}

impl<'a> Track<'a> {
    fn begin(
        analyser: &'a mut XdpAnalyser,
        load: &DirectionLoad,
        share: CopyShare,
        length_change: i32,
        start_ns: i64,
    ) -> Self {
        let (slot_ns, schedule) = (load.slot_ns(), load.schedule.clone());
        let start_ns = start_ns + schedule.counted_ns();
        analyser.begin(&Expected {
            tag: load.tag,
            frames: schedule.frames,
            counted_from: schedule.counted_from,
            streams: load.flows() as usize,
            start_ns,
            slot_ns,
            length_change,
        });
        let losses = LossLog::new(schedule, slot_ns);
        Track { analyser, losses, share, series: QuantileSeries::new(start_ns, slot_ns), start_ns }
    }

    /// Settles what is too long ago to arrive any more, and notes seconds that have passed.
    fn follow(&mut self, now_ns: i64, sent: u64) {
        let old = sent.saturating_sub(WINDOW / 2) & !63;
        let (losses, share) = (&mut self.losses, &self.share);
        let mut read = |first, arrived| losses.read(first, arrived | share.excused(first), sent);
        self.analyser.harvest(old, &mut read);
        if self.series.due(now_ns) {
            self.series.note(now_ns, self.analyser.latency());
        }
    }

    fn end(self, generator: &XdpGenerator) -> Direction {
        let start_ns = self.start_ns;
        let mut direction = self.arrivals(generator.sent());
        generator.read(&mut direction);
        // Times count from the first departure, not from when it was due.
        let late = direction.sent_ns[0] - start_ns;
        direction.worst.iter_mut().for_each(|worst| worst.at_ns -= late);
        direction
    }

    /// What became of the `sent` frames. Times count from when the first was due.
    fn arrivals(self, sent: u64) -> Direction {
        let mut direction = Direction::default();
        self.analyser.end();
        self.analyser.read(&mut direction);
        let (mut losses, share) = (self.losses, &self.share);
        let mut read = |first, arrived| losses.read(first, arrived | share.excused(first), sent);
        self.analyser.harvest(sent, &mut read);
        self.series.fill(&mut direction.series, self.analyser.latency());
        losses.finish(&mut direction);
        direction
    }
}

/// In the driver, or where it cannot, in the generic hook.
fn attach(analyser: &mut XdpAnalyser, ifindex: u32) -> Result<AttachMode, BpfError> {
    match analyser.attach(ifindex, AttachMode::Native) {
        Err(BpfError::Mode { .. }) => {
            analyser.attach(ifindex, AttachMode::Generic).map(|()| AttachMode::Generic)
        }
        result => result.map(|()| AttachMode::Native),
    }
}

/// Slots that the kernel gathers before it hands over what has left. Each alone has the least
/// latency and costs most; what is offered faster than that can go needs more.
fn batch(offer: &Offer) -> u32 {
    let peak = offer.peak_fps();
    if offer.burst > 1 {
        return offer.burst.clamp(1, BATCH_MAX);
    }
    if peak <= ALONE_FPS { 1 } else { ((peak / BATCH_FPS) as u32).clamp(4, BATCH_MAX) }
}

/// Frames a second up to which each frame leaves alone.
const ALONE_FPS: f64 = 300_000.0;
/// Frames a second for each slot of a batch beyond that.
const BATCH_FPS: f64 = 50_000.0;
const BATCH_MAX: u32 = 64;
/// After a longer stop of a generator its schedule is put off, ns: frames leave one by one here.
const CATCH_UP_MOST_NS: i64 = 100_000;
/// From loading the generators to the first frame: threads start and pages are made meanwhile.
const LEAD_NS: i64 = SECOND / 20;
/// Between two looks at the programs.
const TICK: Duration = Duration::from_millis(2);
/// Looks, of which one in this many goes to the ports and the reader of the progress, too.
const LOOK_EVERY: u32 = 50;
/// MTU up to which a frame lies in one page.
const LINEAR: u32 = 3000;

#[cfg(test)]
mod tests {
    use sonde_results::trial::LoadStep;

    use super::*;
    use crate::tester::test_load::load;

    fn generator_load(offer: &Offer) -> GeneratorLoad {
        GeneratorLoad::new(&load(offer), 3, [1, 2]).unwrap()
    }

    #[test]
    fn a_generator_gets_frames_without_the_fcs_and_a_header_for_each_flow() {
        let GeneratorLoad { config, flows, .. } = generator_load(&Offer::steady(1e4, SECOND));
        assert_eq!((config.ifindex, config.tag, config.secret), (3, 7, [1, 2]));
        assert_eq!((&config.sizes[..], config.ipv6), (&[124][..], false));
        // Ethernet, IPv4 and UDP.
        assert_eq!((config.l3_at, config.l4_at, config.header_len), (14, 34, 42));
        assert_eq!(flows.iter().map(|f| f.stream).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(flows.iter().all(|f| f.header[30..34] == [198, 19, 0, 2]));
    }

    #[test]
    fn a_generator_changes_its_load_where_the_offer_does() {
        let step = |after_frames, rate_fps| LoadStep { after_frames, rate_fps };
        let steps = vec![step(1_000, 2e4), step(5_000, 5e3)];
        let offer = Offer { steps, discard_ns: SECOND / 20, ..Offer::steady(1e4, SECOND) };
        let XdpPace { frames, counted_from, burst, rate_fps, changes, .. } =
            generator_load(&offer).pace;
        assert_eq!((frames, counted_from, burst), (10_000, 500, 1));
        let changes: Vec<(u64, u64)> =
            changes.iter().map(|&(from, rate)| (from, rate.round() as u64)).collect();
        assert_eq!((rate_fps.round(), &changes[..]), (1e4, &[(1_000, 20_000), (5_000, 5_000)][..]));
    }

    #[test]
    fn frames_leave_alone_until_that_is_too_slow_and_bursts_together() {
        let of = |rate, burst| batch(&Offer { burst, ..Offer::steady(rate, SECOND) });
        assert_eq!((of(1e3, 1), of(300e3, 1)), (1, 1));
        assert_eq!((of(301e3, 1), of(1e6, 1), of(1e9, 1)), (6, 20, 64));
        assert_eq!((of(1e3, 8), of(1e3, 1_000)), (8, 64));
        // The greatest load of the trial counts.
        let steps = vec![LoadStep { after_frames: 10, rate_fps: 1e6 }];
        assert_eq!(batch(&Offer { steps, ..Offer::steady(1e3, SECOND) }), 20);
    }

    #[test]
    fn frames_that_the_kernel_refused_are_no_loss_of_the_device() {
        let direction = |sent, received| Direction { sent, received, ..Direction::default() };
        let refused = |sent, received, kind, handed_on| {
            none_was_taken(&direction(sent, received), kind, handed_on)
        };
        assert!(refused(10, 0, "veth", [Some(5), Some(5)]));
        // The device lost them: they left.
        assert!(!refused(10, 0, "veth", [Some(5), Some(15)]));
        assert!(!refused(10, 1, "veth", [Some(5), Some(5)]));
        assert!(!refused(0, 0, "veth", [Some(5), Some(5)]));
        // Cards do not refuse, and without counters nothing is known.
        assert!(!refused(10, 0, "", [Some(5), Some(5)]));
        assert!(!refused(10, 0, "veth", [None, None]));
    }
}
