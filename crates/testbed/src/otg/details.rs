//! Sonde's own view of flows and ports, for `GET /sonde/v1/flows`: what the model has no
//! field for.

use serde_json::{Map, Value, json};
use sonde_port::PortStats;
use sonde_results::hist::{Hist, supports};

use super::flow::FlowPlan;
use super::port::TestPort;
use super::receiver::FlowReceived;
use super::receiver::ReceiverReport;
use super::sender::Sent;

/// What was counted of one flow.
pub struct FlowState<'a> {
    pub plan: &'a FlowPlan,
    /// Names of its ports.
    pub from: &'a str,
    /// Names of the receiving ports.
    pub to: Vec<&'a str>,
    pub sent: Sent,
    /// What has come, by port of `to`.
    pub received: Vec<FlowReceived>,
}

/// A flow, with what came at each of its ports.
pub fn flow(state: &FlowState<'_>) -> Value {
    let sent = &state.sent;
    let receivers: Vec<Value> = state
        .to
        .iter()
        .zip(&state.received)
        .map(|(port, r)| {
            json!({
                "port": port,
                "frames": r.frames,
                "bytes": r.bytes,
                "lost": sent.frames.saturating_sub(r.frames),
                "duplicates": r.duplicates,
                "reordered": r.reordered,
                "too_late": r.too_late,
                "first_ns": r.times[0],
                "last_ns": r.times[1],
                "latency_ns": distribution(&r.latency),
                "jitter_rfc4689_ns": distribution(&r.jitter),
                "jitter_rfc3550_ns": r.rfc3550_jitter_ns,
            })
        })
        .collect();
    json!({
        "name": state.plan.name,
        "measured": state.plan.measured,
        "transmit": sent.state,
        "tx": {
            "port": state.from,
            "frames": sent.frames,
            "bytes": sent.bytes,
            "lateness_ns": distribution(&sent.lateness),
        },
        "rx": receivers,
    })
}

/// A port, with what it has itself lost since it was configured: of whichever flow, these frames
/// are `lost`, too.
pub fn port(port: &TestPort, sent: &PortStats, came: &ReceiverReport) -> Value {
    let (tx, rx) = &port.engines;
    json!({
        "name": port.name,
        "engines": { "tx": tx, "rx": rx },
        "tx": {
            "frames": sent.tx_frames,
            "dropped": sent.tx_dropped,
            "full": sent.tx_full,
        },
        "rx": {
            "frames": came.stats.rx_frames,
            "dropped": came.stats.rx_dropped,
            "invalid": came.stats.rx_invalid,
            "stray": came.stray,
            "damaged": came.damaged,
        },
        "capture": came.capture.map(|[kept, left_out]| json!({ "kept": kept, "left_out": left_out })),
    })
}

/// Least, mean, quantiles and greatest. A quantile is given only where enough values lie beyond it;
/// the median always is.
fn distribution(hist: &Hist) -> Value {
    if hist.count == 0 {
        return json!({ "count": 0 });
    }
    let mut all = Map::new();
    all.insert("count".into(), hist.count.into());
    all.insert("min".into(), hist.min.into());
    all.insert("mean".into(), json!(hist.mean()));
    for (name, q) in QUANTILES {
        if q <= 0.5 || supports(hist.count, q) {
            all.insert(name.into(), json!(hist.quantile(q)));
        }
    }
    all.insert("max".into(), hist.max.into());
    Value::Object(all)
}

const QUANTILES: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99_9", 0.999),
    ("p99_99", 0.9999),
    ("p99_999", 0.99999),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_need_values_beyond_them() {
        let of = |n| {
            let mut hist = Hist::default();
            (1..=n).for_each(|v| hist.add(v * 1000));
            distribution(&hist)
        };
        assert_eq!(of(0), json!({ "count": 0 }));
        let few = of(99);
        assert!(few.get("p90").is_none() && few["p50"].is_i64() && few["max"] == 99_000);
        let many = of(1000);
        assert!(many["p99"].is_i64() && many.get("p99_9").is_none());
    }
}
