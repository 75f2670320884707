//! What a configuration says of ports beyond their names: layer 1, and captures.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::pattern::{one, whole};

/// Settings of the link of some ports.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer1 {
    /// Unique among all names of the configuration.
    pub name: String,
    pub port_names: Vec<String>,
    /// As the model names it; a hint.
    pub speed: Option<Speed>,
    /// Whether frames to whatever MAC address come in.
    #[serde(default = "yes")]
    pub promiscuous: bool,
    /// Octets of an IP packet, at most.
    pub mtu: Option<u32>,
    /// Not for Sonde to set.
    pub media: Option<IgnoredAny>,
    /// Not for Sonde to set.
    pub ieee_media_defaults: Option<IgnoredAny>,
    /// Not for Sonde to set.
    pub auto_negotiate: Option<IgnoredAny>,
    /// Not for Sonde to set.
    pub auto_negotiation: Option<IgnoredAny>,
    /// Not for Sonde to set.
    pub flow_control: Option<IgnoredAny>,
}

impl Layer1 {
    /// The settings that are there and are not Sonde's to make.
    pub fn others(&self) -> impl Iterator<Item = &'static str> {
        [
            ("media", &self.media),
            ("ieee_media_defaults", &self.ieee_media_defaults),
            ("auto_negotiate", &self.auto_negotiate),
            ("auto_negotiation", &self.auto_negotiation),
            ("flow_control", &self.flow_control),
        ]
        .into_iter()
        .filter(|(_, value)| value.is_some())
        .map(|(name, _)| name)
    }
}

/// Speeds of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the names are the speeds")]
pub enum Speed {
    #[serde(rename = "speed_10_fd_mbps", alias = "speed_10_hd_mbps")]
    M10,
    #[serde(rename = "speed_100_fd_mbps", alias = "speed_100_hd_mbps")]
    M100,
    #[serde(rename = "speed_1_gbps")]
    G1,
    #[serde(rename = "speed_10_gbps")]
    G10,
    #[serde(rename = "speed_25_gbps")]
    G25,
    #[serde(rename = "speed_40_gbps")]
    G40,
    #[serde(rename = "speed_50_gbps")]
    G50,
    #[serde(rename = "speed_100_gbps")]
    G100,
    #[serde(rename = "speed_200_gbps")]
    G200,
    #[serde(rename = "speed_400_gbps")]
    G400,
    #[serde(rename = "speed_800_gbps")]
    G800,
}

impl Speed {
    /// Bits a second.
    pub fn bps(self) -> u64 {
        const G: u64 = 1_000_000_000;
        match self {
            Speed::M10 => 10_000_000,
            Speed::M100 => 100_000_000,
            Speed::G1 => G,
            Speed::G10 => 10 * G,
            Speed::G25 => 25 * G,
            Speed::G40 => 40 * G,
            Speed::G50 => 50 * G,
            Speed::G100 => 100 * G,
            Speed::G200 => 200 * G,
            Speed::G400 => 400 * G,
            Speed::G800 => 800 * G,
        }
    }
}

/// What is kept of the frames that come to some ports.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// Unique among all names of the configuration.
    pub name: String,
    pub port_names: Vec<String>,
    /// Taken only empty: whatever comes is kept.
    #[serde(default)]
    pub filters: Vec<IgnoredAny>,
    /// Whether the oldest frames make room for new ones; else what finds no room is not kept.
    #[serde(default = "yes")]
    pub overwrite: bool,
    /// Octets of each frame, at most.
    pub packet_size: Option<u32>,
    #[serde(default)]
    pub format: CaptureFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureFormat {
    /// The one with stamps in ns.
    #[default]
    Pcap,
    /// Blocks.
    Pcapng,
}

/// A request for what was captured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureRequest {
    pub port_name: String,
    /// Which of the frames; absent: all.
    pub packets: Option<CapturePackets>,
}

/// Which frames of a capture.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapturePackets {
    #[serde(default)]
    pub choice: PacketsChoice,
    pub slice: Option<CaptureSlice>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PacketsChoice {
    #[default]
    All,
    Slice,
}

/// Some frames of a capture.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureSlice {
    #[serde(default, rename = "choice")]
    _choice: SliceChoice,
    /// Frames in a row.
    pub initial: Option<SliceInitial>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SliceChoice {
    #[default]
    Initial,
}

/// Frames in a row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SliceInitial {
    /// The first, from 1.
    #[serde(default = "one", deserialize_with = "whole")]
    pub start: u64,
    /// How many, at most.
    #[serde(default = "hundred", deserialize_with = "whole")]
    pub count: u64,
}

impl CaptureRequest {
    /// How many frames are left out, and how many are wanted behind them.
    pub fn range(&self) -> (usize, usize) {
        let all = (0, usize::MAX);
        let Some(packets) = &self.packets else { return all };
        if packets.choice == PacketsChoice::All {
            return all;
        }
        let initial = packets.slice.as_ref().and_then(|s| s.initial.as_ref());
        let (start, count) = initial.map_or((1, hundred()), |i| (i.start, i.count));
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        (size(start.saturating_sub(1)), size(count))
    }
}

fn yes() -> bool {
    true
}

fn hundred() -> u64 {
    100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_snappi_writes_of_ports_is_understood() {
        let layer1: Layer1 = serde_json::from_str(
            r#"{"port_names": ["a"], "speed": "speed_1_gbps", "promiscuous": true, "mtu": 1500,
                "name": "ly", "auto_negotiation": {"link_training": true}}"#,
        )
        .unwrap();
        assert_eq!(layer1.speed.map(Speed::bps), Some(1_000_000_000));
        assert_eq!(layer1.others().collect::<Vec<_>>(), ["auto_negotiation"]);
        let capture: Capture = serde_json::from_str(
            r#"{"port_names": ["a", "b"], "overwrite": true, "format": "pcap", "name": "ca"}"#,
        )
        .unwrap();
        assert!(capture.overwrite && capture.format == CaptureFormat::Pcap);
    }

    #[test]
    fn a_slice_begins_with_its_first_frame() {
        let of = |text: &str| serde_json::from_str::<CaptureRequest>(text).unwrap().range();
        assert_eq!(of(r#"{"port_name": "a"}"#), (0, usize::MAX));
        let slice = r#"{"port_name": "a", "packets": {"choice": "slice", "slice":
            {"choice": "initial", "initial": {"start": 3, "count": "2"}}}}"#;
        assert_eq!(of(slice), (2, 2));
        assert_eq!(of(r#"{"port_name": "a", "packets": {"choice": "slice"}}"#), (0, 100));
    }
}
