//! How packets of interfaces come to a metering thread.

use anyhow::{Context as _, Result, anyhow};
use sonde_port::clock::tai_now;
use sonde_port::netlink::Link as Interface;
use sonde_port::{Engine, OpenSpec, Port, open as open_port};
use sonde_results::flow::FlowRecord;
use sonde_results::rtt_run::RttPoint;
use sonde_wire::Time;
use sonde_wire::flow::Link;

use super::args::{FlowArgs, InputEngine};
use super::meter::{Frame, Meter};

/// What was opened for a run.
pub struct Opened {
    /// One for each metering thread.
    pub inputs: Vec<Input>,
    /// The engine, and how it runs.
    pub engine: String,
}

impl Opened {
    /// Where packets are seen.
    pub fn points(&self, interfaces: &[Interface]) -> Vec<RttPoint> {
        let point = |l: &Interface| RttPoint {
            name: l.name.clone(),
            how: self.engine.clone(),
            vanished: 0,
        };
        interfaces.iter().map(point).collect()
    }
}

/// Opens the interfaces for all metering threads.
pub fn open(interfaces: &[Interface], args: &FlowArgs) -> Result<Opened> {
    match args.input.engine.unwrap_or(InputEngine::AfPacket) {
        InputEngine::AfPacket => {}
        _ => return Err(anyhow!("not built yet")),
    }
    let mut places = Vec::new();
    let mut engine = String::new();
    for interface in interfaces {
        let mut place = Place {
            name: interface.name.clone(),
            port: None,
            link: link_of(interface),
            lost: 0,
            vanished: 0,
            tried: tai_now(),
        };
        place.open().with_context(|| format!("cannot meter {}", interface.name))?;
        if let Some(port) = &place.port {
            engine = format!("{}: {}", port.caps().engine, port.caps().mode);
        }
        places.push(place);
    }
    Ok(Opened { inputs: vec![Input { places }], engine })
}

/// What one metering thread reads.
pub struct Input {
    places: Vec<Place>,
}

/// One interface.
struct Place {
    name: String,
    /// `None`: gone, for now.
    port: Option<Box<dyn Port>>,
    link: Link,
    /// Packets lost by ports that are closed.
    lost: u64,
    vanished: u64,
    /// When it was last tried to open it.
    tried: Time,
}

impl Input {
    /// Takes what has come by every interface. Whether there was anything.
    pub fn turn(&mut self, meter: &mut Meter, sink: &mut impl FnMut(FlowRecord)) -> Result<bool> {
        let mut busy = false;
        for (i, place) in self.places.iter_mut().enumerate() {
            busy |= place.turn(i as u8, meter, sink);
        }
        Ok(busy)
    }

    /// Sleeps until something has come, or `until`.
    pub fn wait(&mut self, until: Time) -> Result<()> {
        // With one interface its port wakes us; with several, none may be waited for alone.
        let several = self.places.len() > 1;
        let until = if several { until.min(tai_now() + SHORT_NS) } else { until };
        match self.places.iter_mut().find_map(|p| p.port.as_mut()) {
            Some(port) if !several => port.wait(until)?,
            _ => std::thread::sleep(std::time::Duration::from_nanos(
                (until - tai_now()).max(0) as u64
            )),
        }
        Ok(())
    }

    /// Takes up interfaces that have returned.
    pub fn follow(&mut self) {
        let now = tai_now();
        for place in &mut self.places {
            if place.port.is_none() && now - place.tried >= RETRY_NS {
                place.tried = now;
                // It is told when it cannot be opened at the start; later it is waited for.
                let _ = place.open();
            }
        }
    }

    /// Takes what the rings still get of what has passed until now.
    pub fn rest(&mut self, meter: &mut Meter, sink: &mut impl FnMut(FlowRecord)) -> Result<()> {
        let end = tai_now() + REST_NS;
        while tai_now() < end {
            if !self.turn(meter, sink)? {
                self.wait(end)?;
            }
        }
        Ok(())
    }

    /// Packets that came in and did not reach the meter.
    pub fn lost(&mut self) -> u64 {
        self.places.iter_mut().map(Place::lost).sum()
    }

    /// How often each interface vanished.
    pub fn vanished(&self) -> Vec<u64> {
        self.places.iter().map(|p| p.vanished).collect()
    }
}

impl Place {
    fn open(&mut self) -> Result<()> {
        self.port = Some(open_port(Engine::AfPacket, &OpenSpec::watching(self.name.clone()))?);
        Ok(())
    }

    /// Takes one burst. Whether it was not empty.
    #[inline]
    fn turn(&mut self, point: u8, meter: &mut Meter, sink: &mut impl FnMut(FlowRecord)) -> bool {
        let Some(port) = &mut self.port else { return false };
        let Ok(burst) = port.rx() else {
            // The interface has gone; its port is of no further use.
            self.lost += lost(port.as_mut());
            self.port = None;
            self.vanished += 1;
            return false;
        };
        let link = self.link;
        let frames = (0..burst.len()).map(|i| {
            let (bytes, stamp) = burst.seen(i);
            Frame { bytes, link, at_ns: stamp.at.as_nanos(), point }
        });
        meter.frames(frames, sink);
        !burst.is_empty()
    }

    fn lost(&mut self) -> u64 {
        self.lost + self.port.as_mut().map_or(0, |port| lost(port.as_mut()))
    }
}

fn lost(port: &mut dyn Port) -> u64 {
    let stats = port.stats();
    stats.rx_dropped + stats.rx_invalid
}

/// What frames of the interface begin with.
fn link_of(interface: &Interface) -> Link {
    if crate::rtt::has_ethernet(interface) { Link::Ethernet } else { Link::RawIp }
}

/// Between tries to open an interface that has gone.
const RETRY_NS: i64 = 500_000_000;
/// With several interfaces, how long one may wait for the others.
const SHORT_NS: i64 = 1_000_000;
/// A packet is handed over after a millisecond, which a slow kernel timer makes eight.
const REST_NS: i64 = 20_000_000;
