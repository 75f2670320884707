//! How packets are sent and received.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use sonde_port::{Engine, XdpMode};

/// An engine, and how it is opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EngineSettings {
    /// `socket`, `af_packet` or `af_xdp`.
    #[serde(with = "crate::text")]
    #[schemars(with = "String")]
    pub engine: Engine,
    /// Use this interface instead of that of the route (socket: SO_BINDTODEVICE).
    pub iface: Option<String>,
    /// `af_xdp`: how to bind: `auto`, `zerocopy`, `copy` or `generic`.
    #[serde(with = "crate::text")]
    #[schemars(with = "String")]
    pub xdp_mode: XdpMode,
    /// `af_xdp`: the queues to bind; none: all.
    pub queues: Vec<u32>,
    /// `af_xdp`: busy polling is preferred, with this budget in packets, 1 to 512.
    pub busy_poll: Option<u32>,
    /// The sending and receiving thread runs on this processor.
    pub cpu: Option<usize>,
}

impl Default for EngineSettings {
    fn default() -> Self {
        EngineSettings {
            engine: Engine::Socket,
            iface: None,
            xdp_mode: XdpMode::Auto,
            queues: Vec::new(),
            busy_poll: None,
            cpu: None,
        }
    }
}
