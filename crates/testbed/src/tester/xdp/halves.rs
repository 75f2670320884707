//! The two halves of a direction, for testers on different hosts: one generates, the other
//! analyses, and somebody who knows both clocks puts the counters together.

use anyhow::{Context as _, Error};
use sonde_bpf::{BpfError, XdpAnalyser, XdpAnalyserConfig, XdpGenerator};
use sonde_meter::load::LoadSchedule;
use sonde_results::trial::Direction;
use sonde_run::error::RunError;
use sonde_sys::netns;
use sonde_wire::ethernet::Mac;

use super::super::bed::{PortFacts, port_facts};
use super::super::copies::Expects;
use super::super::{
    DirectionLoad, DirectionSpec, LoadEngine, TesterPort, TesterSpec, settle_sender,
};
use super::{LINEAR, Track, attach, generator};

/// The sending half, loaded for one trial.
pub struct XdpSendingEnd {
    generator: XdpGenerator,
    port: TesterPort,
    /// From the first frame to the first that counts.
    counted_ns: i64,
}

impl XdpSendingEnd {
    /// Loads the generator.
    ///
    /// # Errors
    /// No such interface; what the kernel refuses.
    pub fn load(
        port: &TesterPort,
        load: &DirectionLoad,
        secret: [u64; 2],
    ) -> Result<XdpSendingEnd, RunError> {
        let facts = port_facts(port)?;
        let spec = TesterSpec {
            engine: LoadEngine::Xdp,
            ports: vec![port.clone()],
            ways: vec![DirectionSpec {
                from: 0,
                to: 0,
                traffic: load.traffic.clone(),
                length_change: 0,
                for_mac: None,
            }],
            drain: std::time::Duration::ZERO,
        };
        let generator = generator(load, &[facts], &spec, secret)?;
        let counted_ns = load.schedule.counted_ns();
        Ok(XdpSendingEnd { generator, port: port.clone(), counted_ns })
    }

    /// Sends on this thread, one of `senders` of this process, until all frames have left or
    /// [`XdpSendingEnd::stop`] is called. The first frame is due at `start_ns` (TAI of this host).
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn run(&self, start_ns: i64, senders: usize) -> Result<(), RunError> {
        self.generator.start_at(start_ns);
        let _preferred = settle_sender(&self.port, senders, start_ns + self.counted_ns)?;
        Ok(self.generator.run().map_err(Error::from)?)
    }

    /// Frames that have left. To be called every few milliseconds by another thread than that
    /// which sends.
    pub fn watch(&self) -> u64 {
        self.generator.end_if_done();
        self.generator.sent()
    }

    /// No further frame leaves.
    pub fn stop(&self) {
        self.generator.stop();
    }

    /// Whether all frames have left, or a stop was asked for.
    pub fn done(&self) -> bool {
        self.generator.done()
    }

    /// What is known of the departures; stamps are of this host's clock.
    pub fn read(&self) -> Direction {
        let mut direction = Direction::default();
        self.generator.read(&mut direction);
        direction
    }
}

/// The receiving half, attached to its port.
pub struct XdpReceivingEnd {
    analyser: XdpAnalyser,
    mode: &'static str,
}

impl XdpReceivingEnd {
    /// Attaches the analyser.
    ///
    /// # Errors
    /// No such interface, or one that has an XDP program; what the kernel refuses.
    pub fn open(
        port: &TesterPort,
        for_mac: Option<Mac>,
        tagged: bool,
        secret: [u64; 2],
    ) -> Result<XdpReceivingEnd, RunError> {
        let facts: PortFacts = port_facts(port)?;
        let config = XdpAnalyserConfig {
            queues: facts.rx_queues,
            secret,
            mac: for_mac,
            long_frames: facts.mtu > LINEAR,
            tagged,
        };
        let attached = netns::inside(port.netns.as_deref(), || -> Result<_, BpfError> {
            let mut analyser = XdpAnalyser::load(&config)?;
            let mode = attach(&mut analyser, facts.ifindex)?;
            Ok((analyser, mode))
        });
        let attached = attached.map_err(Error::from)?;
        let (analyser, mode) = attached.with_context(|| format!("port {}", port.name))?;
        Ok(XdpReceivingEnd { analyser, mode: mode.name() })
    }

    /// How frames are received, for people.
    pub fn mode(&self) -> &'static str {
        self.mode
    }

    /// Counts a trial from now on. Its first frame is due at `start_ns` (TAI of this host);
    /// the sender's clock is `clock_offset_ns` behind this host's (negative: ahead).
    pub fn begin(
        &mut self,
        load: &DirectionLoad,
        expects: Expects,
        length_change: i32,
        start_ns: i64,
        clock_offset_ns: i64,
    ) -> CountedTrial<'_> {
        let schedule = load.schedule.clone();
        self.analyser.set_clock_offset(clock_offset_ns);
        let share = load.share(expects);
        let track = Track::begin(&mut self.analyser, load, share, length_change, start_ns);
        CountedTrial { track, schedule, start_ns }
    }
}

/// A trial that is being counted.
pub struct CountedTrial<'a> {
    track: Track<'a>,
    schedule: LoadSchedule,
    start_ns: i64,
}

impl CountedTrial<'_> {
    /// To be called every few milliseconds. What was sent so far is not known here: what was
    /// due by now is.
    pub fn follow(&mut self, now_ns: i64) {
        self.track.follow(now_ns, due(&self.schedule, now_ns - self.start_ns));
    }

    /// Frames that have arrived, each once.
    pub fn received(&self) -> u64 {
        self.track.analyser.received()
    }

    /// What became of the `sent` frames; stamps are of this host's clock.
    pub fn end(self, sent: u64) -> Direction {
        self.track.arrivals(sent)
    }
}

/// About how many frames are due within `passed_ns` of the first, as if they were evenly spread.
fn due(schedule: &LoadSchedule, passed_ns: i64) -> u64 {
    let share = passed_ns.max(0) as f64 / schedule.duration_ns().max(1) as f64;
    (schedule.frames as f64 * share.min(1.0)) as u64
}

#[cfg(test)]
mod tests {
    use sonde_results::trial::Offer;

    use super::*;

    #[test]
    fn no_frame_is_due_before_the_first_and_none_after_the_last() {
        let schedule = LoadSchedule::new(&Offer::steady(1000.0, 2_000_000_000));
        assert_eq!([-5, 0, 1_000_000_000].map(|ns| due(&schedule, ns)), [0, 0, 1000]);
        assert_eq!([2_000_000_000, i64::MAX].map(|ns| due(&schedule, ns)), [2000, 2000]);
    }
}
