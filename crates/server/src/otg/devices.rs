//! Emulated devices: addresses at a port, and the gateway behind which the others are.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Deserialize;
use serde_json::{Value, json};
use sonde_results::units::format_mac;

use super::pattern::{MacText, whole};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Unique among all names of the configuration.
    pub name: String,
    #[serde(default)]
    pub ethernets: Vec<DeviceEthernet>,
}

/// An interface of a device.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceEthernet {
    /// Unique among all names of the configuration.
    pub name: String,
    /// The port it is connected to.
    pub connection: Option<EthernetConnection>,
    pub mac: Option<MacText>,
    /// Octets of an IP packet, at most.
    #[serde(default = "usual_mtu", deserialize_with = "whole")]
    pub mtu: u64,
    #[serde(default)]
    pub ipv4_addresses: Vec<DeviceIp<Ipv4Addr>>,
    #[serde(default)]
    pub ipv6_addresses: Vec<DeviceIp<Ipv6Addr>>,
}

/// Where an interface is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EthernetConnection {
    #[serde(default)]
    pub choice: ConnectionChoice,
    pub port_name: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionChoice {
    #[default]
    PortName,
}

/// An address of a device.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceIp<A> {
    /// Unique among all names of the configuration.
    pub name: String,
    pub address: A,
    /// To whom its frames go.
    pub gateway: A,
    /// The gateway's MAC address.
    #[serde(default)]
    pub gateway_mac: GatewayMac,
    /// Leading bits that are the same in the whole network; absent: 24 of IPv4, 64 of IPv6.
    pub prefix: Option<u8>,
}

/// A gateway's MAC address.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayMac {
    #[serde(default)]
    pub choice: GatewayMacChoice,
    /// As the client knows it.
    pub value: Option<MacText>,
    /// Shown to the client; what it really is the gateway says.
    #[serde(default, rename = "auto")]
    _auto: Option<serde::de::IgnoredAny>,
}

/// Who says a gateway's MAC address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatewayMacChoice {
    /// It does, by ARP or neighbour discovery.
    #[default]
    Auto,
    /// The client gives it.
    Value,
}

/// Devices of a flow.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowDevices {
    /// Between one and one both are the same.
    #[serde(default)]
    pub mode: FlowMode,
    /// Names of devices, of their interfaces or of their addresses.
    pub tx_names: Vec<String>,
    pub rx_names: Vec<String>,
    /// Whether a flow the other way belongs to it.
    #[serde(default)]
    pub bidirectional: bool,
}

/// Who sends to whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowMode {
    /// Every sender to every receiver.
    #[default]
    Mesh,
    /// The first to the first, and so on.
    OneToOne,
}

/// A request for states.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatesRequest {
    #[serde(default)]
    pub choice: StatesChoice,
    pub ipv4_neighbors: Option<NeighborsRequest>,
    pub ipv6_neighbors: Option<NeighborsRequest>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatesChoice {
    #[default]
    Ipv4Neighbors,
    /// Gateways, by neighbour discovery.
    Ipv6Neighbors,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighborsRequest {
    /// Of which interfaces; empty: of all.
    #[serde(default)]
    pub ethernet_names: Vec<String>,
}

/// A gateway, as far as a device knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbor {
    pub ethernet_name: String,
    pub address: IpAddr,
    /// `None`: it has not answered yet.
    pub mac: Option<[u8; 6]>,
}

impl Neighbor {
    /// As the model has it.
    pub fn row(&self) -> Value {
        let mac = self.mac.map(format_mac);
        let address = match self.address {
            IpAddr::V4(_) => "ipv4_address",
            IpAddr::V6(_) => "ipv6_address",
        };
        let mut row = json!({
            "ethernet_name": self.ethernet_name, address: self.address.to_string(),
        });
        if let Some(mac) = mac {
            row["link_layer_address"] = mac.into();
        }
        row
    }
}

fn usual_mtu() -> u64 {
    1500
}
