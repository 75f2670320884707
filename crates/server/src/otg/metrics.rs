//! Counters of flows and ports.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sonde_results::units::WIRE_OCTETS;

use super::pattern::as_text;

/// Which metrics are wanted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricsRequest {
    #[serde(default)]
    pub choice: MetricsChoice,
    pub port: Option<PortMetricsRequest>,
    pub flow: Option<FlowMetricsRequest>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricsChoice {
    #[default]
    Port,
    Flow,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortMetricsRequest {
    /// Empty: all.
    #[serde(default)]
    pub port_names: Vec<String>,
    /// Empty: all.
    #[serde(default)]
    pub column_names: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowMetricsRequest {
    /// Empty: all.
    #[serde(default)]
    pub flow_names: Vec<String>,
    /// Empty: all.
    #[serde(default)]
    pub metric_names: Vec<String>,
    /// There are no tags (configurations with some are refused), so none are left out.
    #[serde(default, rename = "tagged_metrics")]
    _tagged_metrics: Option<serde::de::IgnoredAny>,
}

/// Whether a flow sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TransmitState {
    /// It sends.
    Started,
    /// It does not: never begun, stopped by a request, or at its end.
    #[default]
    Stopped,
    /// It goes on when a request resumes it.
    Paused,
}

/// Counters of a flow. Bytes are octets with the FCS.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowMetric {
    pub name: String,
    pub port_tx: String,
    /// To; empty: to several, together.
    pub port_rx: String,
    pub transmit: TransmitState,
    #[serde(serialize_with = "as_text")]
    pub frames_tx: u64,
    /// Frames received, each once.
    #[serde(serialize_with = "as_text")]
    pub frames_rx: u64,
    #[serde(serialize_with = "as_text")]
    pub bytes_tx: u64,
    #[serde(serialize_with = "as_text")]
    pub bytes_rx: u64,
    /// Frames and octets a second, over the last second or so.
    #[serde(flatten)]
    pub rates: FlowRates,
    /// Frames lost of those sent and expected, percent; where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// First and last arrival; where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamps: Option<Timestamps>,
    /// `None` where the flow does not measure it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<FlowLatency>,
}

/// Rates of a flow, in all the units of the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowRates {
    frames_tx_rate: f64,
    frames_rx_rate: f64,
    tx_l1_rate_bps: f64,
    rx_l1_rate_bps: f64,
    tx_rate_bytes: f64,
    rx_rate_bytes: f64,
    tx_rate_bps: f64,
    rx_rate_bps: f64,
    tx_rate_kbps: f64,
    rx_rate_kbps: f64,
    tx_rate_mbps: f64,
    rx_rate_mbps: f64,
}

impl FlowRates {
    /// From frames and octets (with the FCS) a second, sent and received.
    pub fn new(frames: [f64; 2], bytes: [f64; 2]) -> FlowRates {
        let bits = bytes.map(|b| b * 8.0);
        let l1 = [0, 1].map(|i| bits[i] + frames[i] * (8 * WIRE_OCTETS) as f64);
        FlowRates {
            frames_tx_rate: frames[0],
            frames_rx_rate: frames[1],
            tx_l1_rate_bps: l1[0],
            rx_l1_rate_bps: l1[1],
            tx_rate_bytes: bytes[0],
            rx_rate_bytes: bytes[1],
            tx_rate_bps: bits[0],
            rx_rate_bps: bits[1],
            tx_rate_kbps: bits[0] / 1e3,
            rx_rate_kbps: bits[1] / 1e3,
            tx_rate_mbps: bits[0] / 1e6,
            rx_rate_mbps: bits[1] / 1e6,
        }
    }
}

/// Times of arrival, ns since 1970 TAI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Timestamps {
    /// Of the first frame.
    pub first_timestamp_ns: f64,
    pub last_timestamp_ns: f64,
}

/// Latency, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FlowLatency {
    pub minimum_ns: f64,
    pub maximum_ns: f64,
    pub average_ns: f64,
}

/// Counters of a port: all frames, whosever they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PortMetric {
    pub name: String,
    /// `INTERFACE`, or `NAMESPACE/INTERFACE`.
    pub location: String,
    /// "up", "down", or what is wrong.
    pub link: String,
    /// Whether frames are captured: "started" or "stopped".
    pub capture: &'static str,
    #[serde(serialize_with = "as_text")]
    pub frames_tx: u64,
    #[serde(serialize_with = "as_text")]
    pub frames_rx: u64,
    #[serde(serialize_with = "as_text")]
    pub bytes_tx: u64,
    #[serde(serialize_with = "as_text")]
    pub bytes_rx: u64,
    /// Frames a second.
    pub frames_tx_rate: f64,
    /// Frames a second.
    pub frames_rx_rate: f64,
    /// Octets a second.
    pub bytes_tx_rate: f64,
    /// Octets a second.
    pub bytes_rx_rate: f64,
    /// Whether one of its flows sends.
    pub transmit: TransmitState,
    /// Frames whose signature was damaged under way; where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_integrity: Option<DataIntegrity>,
}

/// Whole and damaged frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DataIntegrity {
    /// Whole and damaged ones.
    #[serde(serialize_with = "as_text")]
    pub total_frames_rx: u64,
    #[serde(serialize_with = "as_text")]
    pub error_frames_rx: u64,
}

/// As JSON, with no other columns than `wanted` and the keys; an empty list means all.
pub(super) fn columns(metric: &impl Serialize, keys: &[&str], wanted: &[String]) -> Value {
    let mut value = serde_json::to_value(metric).unwrap_or_default();
    if !wanted.is_empty()
        && let Some(object) = value.as_object_mut()
    {
        object.retain(|name, _| keys.contains(&name.as_str()) || wanted.contains(name));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_agree_with_each_other() {
        // 1,000 frames of 64 octets a second: 84 octets each on the wire.
        let rates = FlowRates::new([1000.0, 500.0], [64_000.0, 32_000.0]);
        assert_eq!((rates.tx_l1_rate_bps, rates.rx_l1_rate_bps), (672_000.0, 336_000.0));
        assert_eq!((rates.tx_rate_kbps, rates.rx_rate_mbps), (512.0, 0.256));
    }

    #[test]
    fn columns_are_chosen_and_64_bits_go_as_text() {
        let metric = FlowMetric { name: "f".into(), frames_tx: 7, ..Default::default() };
        let all = columns(&metric, &["name"], &[]);
        assert_eq!((&all["frames_tx"], &all["transmit"]), (&"7".into(), &"stopped".into()));
        assert!(all.get("tx_rate_bps").is_some() && all.get("loss").is_none());
        let some = columns(&metric, &["name"], &["frames_tx".into()]);
        assert_eq!(some, serde_json::json!({ "name": "f", "frames_tx": "7" }));
    }
}
