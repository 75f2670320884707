//! A flow as it is carried out: checked, with its frames, its pace and its end.

use sonde_meter::load::FCS_LEN;
use sonde_results::units::WIRE_OCTETS;
use sonde_server::otg::config::{
    Delay, DelayChoice, Duration, DurationChoice, Flow, Rate, RateChoice, RxTxRatioChoice,
    TxRxChoice,
};

use super::allowed::Allowed;
use super::devices::{self, EmulatedInterface, FlowEndpoints};
use super::frames::FrameTemplate;
use super::sizes::sizes;

#[derive(Clone, Debug)]
pub struct FlowPlan {
    /// As configured.
    pub name: String,
    /// Index of the sending port.
    pub from: usize,
    /// Indexes of the receiving ports.
    pub to: Vec<usize>,
    pub frames: FrameTemplate,
    /// Octets without the FCS, in turn.
    pub sizes: Vec<u16>,
    /// How fast they leave.
    pub pace: FlowPace,
    pub end: FlowDuration,
    /// Frames in a row at the pace, and the pause behind them, ns.
    pub burst: Option<(u64, f64)>,
    /// Before the first, ns.
    pub delay_ns: f64,
    /// Whether they carry signatures and are counted by flow.
    pub measured: bool,
    /// What of it is reported to clients.
    pub metrics: RequestedMetrics,
}

/// Which optional metrics a client asked for.
#[derive(Clone, Copy, Debug)]
pub struct RequestedMetrics {
    /// Loss, in percent of so many times the frames sent.
    pub loss: Option<f64>,
    /// First and last arrival.
    pub timestamps: bool,
    pub latency: bool,
}

/// The time from one frame to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowPace {
    /// Always the same, ns.
    Even(f64),
    /// So many ns for each octet that the frame before took on the wire.
    ByLength(f64),
}

/// When a flow ends by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowDuration {
    Never,
    /// After so many frames.
    Frames(u64),
    /// After so many ns, the delay not counted.
    After(f64),
}

/// What a flow must know of the ports.
pub struct PortsView<'a> {
    pub names: &'a [String],
    /// Bits a second; `None`: they have no speed.
    pub speeds: &'a [Option<u64>],
    /// Octets of a frame with the FCS, at most.
    pub longest: &'a [usize],
    /// The devices at them.
    pub interfaces: &'a [EmulatedInterface],
}

impl FlowPace {
    /// From a frame of so many octets without the FCS to the next, ns.
    #[inline]
    pub fn after(self, octets: u16) -> f64 {
        match self {
            FlowPace::Even(ns) => ns,
            FlowPace::ByLength(ns) => ns * (usize::from(octets) + FCS_LEN + WIRE_OCTETS) as f64,
        }
    }
}

impl FlowPlan {
    /// From one frame, or burst, to the next, ns; of frames of several sizes the first counts.
    pub fn cycle_ns(&self) -> f64 {
        match self.burst {
            Some((frames, pause)) => self.gap_ns() * frames as f64 + pause,
            None => self.gap_ns(),
        }
    }

    /// From one frame to the next, ns; of frames of several sizes the first counts.
    pub fn gap_ns(&self) -> f64 {
        self.pace.after(self.sizes.first().copied().unwrap_or(0))
    }

    /// Checks `flow`.
    ///
    /// # Errors
    /// All that is wrong, each with its path in the flow.
    pub fn new(
        flow: &Flow,
        ports: &PortsView<'_>,
        allowed: &Allowed,
    ) -> Result<FlowPlan, Vec<String>> {
        let mut errors = Vec::new();
        let mut note = |e: String| errors.push(e);
        let (from, to, devices) = ends(flow, ports).unwrap_or_else(|e| {
            note(e);
            (0, Vec::new(), None)
        });
        let speed = ports.speeds.get(from).copied().flatten();
        let pace = pace(&flow.rate, speed).map_err(&mut note).unwrap_or(FlowPace::Even(1.0));
        let timing = timing(&flow.duration, speed).map_err(&mut note).unwrap_or_default();
        let ratio = ratio(flow, to.len()).map_err(&mut note).unwrap_or(1.0);
        let sizes = sizes(&flow.size).map_err(&mut note).unwrap_or_default();
        let octets: Vec<u16> = sizes.iter().map(|s| s - FCS_LEN as u16).collect();
        let (least, most) = (octets.iter().min(), octets.iter().max());
        let (Some(&least), Some(&most)) = (least, most) else { return Err(errors) };
        let longest = ports.longest.get(from).copied().unwrap_or(usize::MAX);
        if usize::from(most) + FCS_LEN > longest {
            note(format!(
                "size: {} octets do not fit port {}, which takes {longest} (its MTU)",
                usize::from(most) + FCS_LEN,
                ports.names[from]
            ));
        }
        let frames =
            match FrameTemplate::new(flow, least.into(), most.into(), allowed, devices.as_ref()) {
                Ok(frames) if errors.is_empty() => frames,
                Ok(_) => return Err(errors),
                Err(more) => return Err([errors, more].concat()),
            };
        Ok(FlowPlan {
            name: flow.name.clone(),
            from,
            to,
            frames,
            sizes: octets,
            pace,
            end: timing.end,
            burst: timing.burst,
            delay_ns: timing.delay_ns,
            measured: flow.metrics.enable,
            metrics: RequestedMetrics {
                loss: flow.metrics.loss.then_some(ratio),
                timestamps: flow.metrics.timestamps,
                latency: flow.metrics.latency.enable,
            },
        })
    }
}

/// The sending port, the receiving ports, and the devices there.
fn ends(
    flow: &Flow,
    ports: &PortsView<'_>,
) -> Result<(usize, Vec<usize>, Option<FlowEndpoints>), String> {
    if flow.tx_rx.choice == TxRxChoice::Device {
        let between = flow.tx_rx.device.as_ref().ok_or("tx_rx.device: is missing")?;
        let (from, to, ends) = devices::ends(flow, between, ports.interfaces)?;
        return Ok((from, vec![to], Some(ends)));
    }
    let names = ports.names;
    let port = flow.tx_rx.port.as_ref().ok_or("tx_rx.port: is missing")?;
    let find = |field: &str, name: &str| {
        let index = names.iter().position(|n| n == name);
        index.ok_or_else(|| format!("tx_rx.port.{field}: there is no port '{name}'"))
    };
    let from = find("tx_name", &port.tx_name)?;
    let mut to = match (&port.rx_name, &port.rx_names[..]) {
        (None, []) => (0..names.len()).filter(|&i| i != from).collect(),
        (Some(name), []) => vec![find("rx_name", name)?],
        (_, list) => list.iter().map(|n| find("rx_names", n)).collect::<Result<Vec<_>, _>>()?,
    };
    to.sort_unstable();
    to.dedup();
    if to.contains(&from) {
        return Err("tx_rx.port: a port cannot receive what it sends; use two".into());
    }
    Ok((from, to, None))
}

fn pace(rate: &Rate, speed: Option<u64>) -> Result<FlowPace, String> {
    let whole = |n: Option<sonde_server::otg::pattern::Integer>| n.map(|n| n.0 as f64);
    // The key, its value or the model's default, and its unit in bit/s.
    let (key, value, unit) = match rate.choice {
        RateChoice::Pps => ("pps", whole(rate.pps).unwrap_or(1000.0), None),
        RateChoice::Bps => ("bps", whole(rate.bps).unwrap_or(1e9), Some(1.0)),
        RateChoice::Kbps => ("kbps", whole(rate.kbps).unwrap_or(1e6), Some(1e3)),
        RateChoice::Mbps => ("mbps", whole(rate.mbps).unwrap_or(1e3), Some(1e6)),
        RateChoice::Gbps => ("gbps", whole(rate.gbps).unwrap_or(1.0), Some(1e9)),
        RateChoice::Percentage => {
            let speed = speed.ok_or(
                "rate.percentage: the port has no speed that its driver reports; use pps or bps",
            )?;
            let value = rate.percentage.unwrap_or(100.0);
            if value > 100.0 {
                return Err(format!(
                    "rate.percentage: {value:?} is more than 100, which is the port's speed; use \
                     pps or bps to send as fast as this host can"
                ));
            }
            ("percentage", value, Some(speed as f64 / 100.0))
        }
    };
    let pace = match unit {
        None => FlowPace::Even(1e9 / value),
        Some(unit) => FlowPace::ByLength(8e9 / (value * unit)),
    };
    let (FlowPace::Even(ns) | FlowPace::ByLength(ns)) = pace;
    match value > 0.0 && ns.is_finite() {
        true => Ok(pace),
        false => Err(format!("rate.{key}: {value:?} is no rate; it must be greater than 0")),
    }
}

struct Timing {
    end: FlowDuration,
    burst: Option<(u64, f64)>,
    delay_ns: f64,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { end: FlowDuration::Never, burst: None, delay_ns: 0.0 }
    }
}

fn timing(duration: &Duration, speed: Option<u64>) -> Result<Timing, String> {
    let usual = Timing::default();
    let gap = |gap: u64| match gap {
        LEAST_GAP => Ok(()),
        _ => Err(format!("duration: gap: Sonde keeps frames apart by their rate, not by {gap}")),
    };
    Ok(match duration.choice {
        DurationChoice::Continuous => match &duration.continuous {
            None => usual,
            Some(c) => {
                gap(c.gap)?;
                Timing { delay_ns: delay(c.delay.as_ref(), speed)?, ..usual }
            }
        },
        DurationChoice::FixedPackets => {
            let f = duration.fixed_packets.as_ref().ok_or("duration.fixed_packets: is missing")?;
            gap(f.gap)?;
            if f.packets == 0 {
                return Err("duration.fixed_packets.packets: at least 1".into());
            }
            let end = FlowDuration::Frames(f.packets);
            Timing { end, delay_ns: delay(f.delay.as_ref(), speed)?, ..usual }
        }
        DurationChoice::FixedSeconds => {
            let f = duration.fixed_seconds.as_ref().ok_or("duration.fixed_seconds: is missing")?;
            gap(f.gap)?;
            if !(f.seconds.is_finite() && f.seconds > 0.0) {
                return Err("duration.fixed_seconds.seconds: greater than 0".into());
            }
            // Longer than any clock counts: without an end.
            let end = FlowDuration::After(f.seconds * 1e9);
            Timing { end, delay_ns: delay(f.delay.as_ref(), speed)?, ..usual }
        }
        DurationChoice::Burst => {
            let b = duration.burst.as_ref().ok_or("duration.burst: is missing")?;
            gap(b.gap)?;
            if b.packets == 0 {
                return Err("duration.burst.packets: at least 1".into());
            }
            let pause = match &b.inter_burst_gap {
                // 12 octets of silence follow every frame anyway.
                Some(d) if d.choice == DelayChoice::Bytes && d.bytes.unwrap_or(12.0) <= 12.0 => 0.0,
                other => delay(other.as_ref(), speed)?,
            };
            let end = match b.bursts {
                0 => FlowDuration::Never,
                n => FlowDuration::Frames(n.saturating_mul(b.packets)),
            };
            Timing { end, burst: Some((b.packets, pause)), ..usual }
        }
    })
}

/// ns
fn delay(delay: Option<&Delay>, speed: Option<u64>) -> Result<f64, String> {
    let Some(d) = delay else { return Ok(0.0) };
    let ns = match d.choice {
        DelayChoice::Nanoseconds => d.nanoseconds.unwrap_or(0.0),
        DelayChoice::Microseconds => d.microseconds.unwrap_or(0.0) * 1e3,
        DelayChoice::Bytes => match (d.bytes.unwrap_or(0.0), speed) {
            (0.0, _) => 0.0,
            (bytes, Some(speed)) => bytes * 8e9 / speed as f64,
            (_, None) => {
                let why = "a time in bytes needs the port's speed, which its driver does not report; \
                           use nanoseconds or microseconds";
                return Err(format!("duration: {why}"));
            }
        },
    };
    match ns.is_finite() && ns >= 0.0 {
        true => Ok(ns),
        false => Err(format!("duration: a delay of {ns:?} ns cannot be; give 0 or longer")),
    }
}

fn ratio(flow: &Flow, receivers: usize) -> Result<f64, String> {
    let Some(ratio) = &flow.metrics.rx_tx_ratio else { return Ok(1.0) };
    let value = match ratio.choice {
        RxTxRatioChoice::RxCount => receivers as f64,
        RxTxRatioChoice::Value => ratio.value.unwrap_or(1.0),
    };
    match value.is_finite() && value > 0.0 {
        true => Ok(value),
        false => Err("metrics.rx_tx_ratio: must be greater than 0".into()),
    }
}

/// The model's default, and Ethernet's.
const LEAST_GAP: u64 = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn plan(change: Value) -> Result<FlowPlan, Vec<String>> {
        let mut flow = json!({
            "name": "f", "tx_rx": { "port": { "tx_name": "a", "rx_names": ["b"] } },
            "metrics": { "enable": true, "loss": true },
        });
        flow.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let names = ["a", "b", "c"].map(String::from);
        let ports = PortsView {
            names: &names,
            speeds: &[Some(10_000_000_000), None, None],
            longest: &[1518, 1518, 1518],
            interfaces: &[],
        };
        let allowed = Allowed { prefixes: Vec::new(), types: Vec::new() };
        FlowPlan::new(&serde_json::from_value(flow).unwrap(), &ports, &allowed)
    }

    #[test]
    fn rates_come_to_the_distance_of_frames() {
        // A frame of 64 octets takes 84 on the wire: 672 bits.
        for (rate, ns) in [
            (json!({}), 1e6),
            (json!({ "choice": "pps", "pps": "20000" }), 50_000.0),
            (json!({ "choice": "bps", "bps": 672 }), 1e9),
            (json!({ "choice": "kbps", "kbps": 672 }), 1e6),
            (json!({ "choice": "mbps", "mbps": 672 }), 1e3),
            (json!({ "choice": "gbps", "gbps": 10 }), 67.2),
            (json!({ "choice": "percentage", "percentage": 50 }), 134.4),
        ] {
            let plan = plan(json!({ "rate": rate })).unwrap();
            assert!((plan.pace.after(60) - ns).abs() < ns * 1e-9, "{rate}: {:?}", plan.pace);
        }
        let no_speed = json!({ "tx_rx": { "port": { "tx_name": "b", "rx_names": ["a"] } },
                               "rate": { "choice": "percentage", "percentage": 50 } });
        assert!(plan(no_speed).unwrap_err()[0].contains("no speed"));
        for (rate, wanted) in [
            (json!({ "pps": 0 }), "rate.pps: 0.0 is no rate; it must be greater than 0"),
            (json!({ "choice": "mbps", "mbps": 0 }), "rate.mbps: 0.0 is no rate"),
            (json!({ "choice": "percentage", "percentage": 0 }), "rate.percentage: 0.0 is no"),
            (json!({ "choice": "percentage", "percentage": -1e308 }), "rate.percentage: -1e308 is"),
            (json!({ "choice": "percentage", "percentage": 5e-324 }), "rate.percentage: 5e-324 is"),
            (
                json!({ "choice": "percentage", "percentage": 1e308 }),
                "rate.percentage: 1e308 is more than 100, which is the port's speed",
            ),
            (json!({ "choice": "percentage", "percentage": 100.5 }), "100.5 is more than 100"),
        ] {
            let errors = plan(json!({ "rate": rate })).unwrap_err();
            assert!(errors.len() == 1 && errors[0].contains(wanted), "{errors:?}");
        }
        let line = json!({ "rate": { "choice": "percentage", "percentage": 100 } });
        assert!((plan(line).unwrap().pace.after(60) - 67.2).abs() < 1e-9);
    }

    #[test]
    fn durations_end_and_pause() {
        let of = |d: Value| plan(json!({ "duration": d })).map(|p| (p.end, p.burst, p.delay_ns));
        assert_eq!(of(json!({})), Ok((FlowDuration::Never, None, 0.0)));
        let fixed = json!({ "choice": "fixed_packets", "fixed_packets": {
            "packets": 7, "delay": { "choice": "microseconds", "microseconds": 5 } } });
        assert_eq!(of(fixed), Ok((FlowDuration::Frames(7), None, 5_000.0)));
        let seconds = json!({ "choice": "fixed_seconds", "fixed_seconds": { "seconds": 1.5 } });
        assert_eq!(of(seconds), Ok((FlowDuration::After(1.5e9), None, 0.0)));
        let burst = json!({ "choice": "burst", "burst": { "bursts": 3, "packets": 5,
            "inter_burst_gap": { "choice": "bytes", "bytes": 1250 } } });
        assert_eq!(of(burst), Ok((FlowDuration::Frames(15), Some((5, 1000.0)), 0.0)));
        for bad in [
            json!({ "choice": "fixed_packets" }),
            json!({ "choice": "fixed_packets", "fixed_packets": { "packets": 0 } }),
            json!({ "choice": "fixed_packets", "fixed_packets": { "gap": 100 } }),
            json!({ "choice": "fixed_seconds", "fixed_seconds": { "seconds": -1 } }),
            json!({ "choice": "fixed_seconds", "fixed_seconds": { "seconds": 0 } }),
            json!({ "choice": "burst", "burst": { "packets": 0 } }),
        ] {
            assert!(of(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn ends_are_ports_that_are_there_and_all_complaints_come_together() {
        let to = |port: Value| plan(json!({ "tx_rx": { "port": port } })).map(|p| (p.from, p.to));
        assert_eq!(to(json!({ "tx_name": "b" })), Ok((1, vec![0, 2])));
        assert_eq!(to(json!({ "tx_name": "a", "rx_name": "c" })), Ok((0, vec![2])));
        assert!(to(json!({ "tx_name": "a", "rx_names": ["a"] })).unwrap_err()[0].contains("two"));
        let all = plan(json!({
            "tx_rx": { "port": { "tx_name": "x" } }, "rate": { "pps": 0 }, "size": { "fixed": 1519 },
            "packet": [{ "choice": "udp" }], "metrics": { "rx_tx_ratio": { "value": 0 } },
        }))
        .unwrap_err();
        for part in ["no port 'x'", "rate.pps: ", "do not fit", "packet[0]", "rx_tx_ratio"] {
            assert!(all.iter().any(|e| e.contains(part)), "{part}: {all:?}");
        }
    }
}
