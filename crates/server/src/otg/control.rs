//! Changes of state.

use serde::Deserialize;

/// A request to change a state.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlState {
    choice: ControlChoice,
    traffic: Option<TrafficState>,
    protocol: Option<ProtocolState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ControlChoice {
    Traffic,
    Protocol,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrafficState {
    #[serde(rename = "choice")]
    _choice: TrafficChoice,
    flow_transmit: Option<FlowTransmit>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TrafficChoice {
    FlowTransmit,
}

/// What is to become of flows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowTransmit {
    /// Of which flows; empty: of all.
    #[serde(default)]
    pub flow_names: Vec<String>,
    /// What.
    pub state: Transmit,
}

/// What is to become of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transmit {
    /// From its first frame, with counters at 0.
    Start,
    /// No further frame.
    Stop,
    /// No frame for now.
    Pause,
    /// Go on from where it was paused; one that is stopped begins again. Counters stay.
    Resume,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProtocolState {
    #[serde(rename = "choice")]
    _choice: ProtocolChoice,
    #[serde(rename = "all")]
    _all: Option<ProtocolAll>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProtocolChoice {
    All,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProtocolAll {
    #[serde(rename = "state")]
    _state: ProtocolAllState,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProtocolAllState {
    Start,
    Stop,
}

impl ControlState {
    /// What is to become of which flows; `None`: protocols are to be started or stopped, of
    /// which there are none without devices.
    ///
    /// # Errors
    /// The choice is named and its content is missing.
    pub fn transmit(self) -> Result<Option<FlowTransmit>, &'static str> {
        match self.choice {
            ControlChoice::Protocol => match self.protocol {
                Some(_) => Ok(None),
                None => Err("protocol: is missing"),
            },
            ControlChoice::Traffic => {
                let traffic = self.traffic.ok_or("traffic: is missing")?;
                traffic.flow_transmit.map(Some).ok_or("traffic.flow_transmit: is missing")
            }
        }
    }
}
