//! Requests that start, stop and pause transmission and captures.

use serde::Deserialize;

/// A request to change a state.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlState {
    choice: ControlChoice,
    traffic: Option<TrafficState>,
    protocol: Option<ProtocolState>,
    port: Option<PortState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ControlChoice {
    Traffic,
    Protocol,
    Port,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PortState {
    #[serde(rename = "choice")]
    _choice: PortChoice,
    capture: Option<PortCapture>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PortChoice {
    Capture,
}

/// What is to become of captures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortCapture {
    /// At which ports; empty: at all.
    #[serde(default)]
    pub port_names: Vec<String>,
    pub state: CaptureState,
}

/// What is to become of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureState {
    /// Frames are kept from now on; those of before are gone.
    Start,
    /// The capture ends; its frames stay.
    Stop,
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
    pub state: TransmitChange,
}

/// What is to become of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransmitChange {
    /// From its first frame, with counters at 0.
    Start,
    /// Sending ends.
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
    all: Option<ProtocolAll>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProtocolChoice {
    All,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProtocolAll {
    state: ProtocolAllState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProtocolAllState {
    Start,
    Stop,
}

/// What a request comes to.
#[derive(Clone, Debug)]
pub enum StateChange {
    Flows(FlowTransmit),
    /// Of all protocols: whether they are to be there.
    Protocols(bool),
    Captures(PortCapture),
}

impl ControlState {
    /// What is to become of what.
    ///
    /// # Errors
    /// The choice is named and its content is missing.
    pub fn change(self) -> Result<StateChange, &'static str> {
        match self.choice {
            ControlChoice::Protocol => {
                let protocol = self.protocol.ok_or("protocol: is missing")?;
                let all = protocol.all.ok_or("protocol.all: is missing")?;
                Ok(StateChange::Protocols(all.state == ProtocolAllState::Start))
            }
            ControlChoice::Port => {
                let port = self.port.ok_or("port: is missing")?;
                Ok(StateChange::Captures(port.capture.ok_or("port.capture: is missing")?))
            }
            ControlChoice::Traffic => {
                let traffic = self.traffic.ok_or("traffic: is missing")?;
                let flows = traffic.flow_transmit.ok_or("traffic.flow_transmit: is missing")?;
                Ok(StateChange::Flows(flows))
            }
        }
    }
}
