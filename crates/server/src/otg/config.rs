//! What is configured: ports, emulated devices, flows. The part of the model that Sonde
//! serves; anything else is refused by name, because every structure here knows all of its
//! fields.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Deserialize;

use super::devices::{Device, FlowDevices};
use super::pattern::{ChecksumPattern, FieldPattern, Integer, MacText, one, whole};
use super::ports::{Capture, Layer1};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    #[serde(default)]
    pub ports: Vec<PortConfig>,
    /// Settings of their links.
    #[serde(default)]
    pub layer1: Vec<Layer1>,
    /// What is kept of what comes to them.
    #[serde(default)]
    pub captures: Vec<Capture>,
    #[serde(default)]
    pub devices: Vec<Device>,
    #[serde(default)]
    pub flows: Vec<Flow>,
    /// Accepted empty, or with what is the default anyway.
    #[serde(default)]
    pub options: ConfigOptions,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// Unique among all names of the configuration.
    pub name: String,
    /// `INTERFACE`, or `NAMESPACE/INTERFACE`.
    pub location: Option<String>,
}

/// Options of the whole configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigOptions {
    /// Options of every port.
    #[serde(default)]
    pub port_options: PortOptions,
}

/// Options of all ports.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortOptions {
    /// Take ports from another user: there is none.
    #[serde(default)]
    pub location_preemption: bool,
    /// Count frames that were changed on their way.
    #[serde(default)]
    pub data_integrity: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Unique among all names of the configuration.
    pub name: String,
    /// From where to where.
    pub tx_rx: TxRx,
    /// Headers in the order of the wire; empty: Ethernet alone.
    #[serde(default)]
    pub packet: Vec<Header>,
    #[serde(default)]
    pub size: Size,
    /// How many frames, or bits, a second.
    #[serde(default)]
    pub rate: Rate,
    #[serde(default)]
    pub duration: Duration,
    #[serde(default)]
    pub metrics: FlowMetrics,
    /// What stands behind the headers.
    #[serde(default)]
    pub payload: Payload,
}

/// Ends of a flow.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TxRx {
    /// Which of the others counts.
    #[serde(default)]
    pub choice: TxRxChoice,
    pub port: Option<FlowPort>,
    pub device: Option<FlowDevices>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TxRxChoice {
    #[default]
    Port,
    Device,
}

/// Ports of a flow.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowPort {
    /// Where it is sent.
    pub tx_name: String,
    /// Where it should arrive, in the old spelling.
    pub rx_name: Option<String>,
    /// Where it should arrive.
    #[serde(default)]
    pub rx_names: Vec<String>,
}

/// Something with a `choice` and a field of that name.
macro_rules! chosen {
    ($(#[$doc:meta])* $name:ident, $choice:ident, $default:ident, $(
        $(#[$variant_doc:meta])* $variant:ident $field:ident: $type:ty,
    )*) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Which of the others counts.
            #[serde(default)]
            pub choice: $choice,
            $( $(#[$variant_doc])* pub $field: Option<$type>, )*
        }
        /// Which of them counts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $choice { $( $(#[$variant_doc])* $variant, )* }
        impl Default for $choice {
            fn default() -> Self { $choice::$default }
        }
    };
}

chosen! {
    Header, HeaderChoice, Ethernet,
    /// Octets as given.
    Custom custom: Custom,
    /// Ethernet (IEEE 802.3).
    Ethernet ethernet: Ethernet,
    /// A tag (IEEE 802.1Q).
    Vlan vlan: Vlan,
    /// A label (RFC 3032).
    Mpls mpls: Mpls,
    /// IPv4 without options (RFC 791).
    Ipv4 ipv4: Ipv4,
    /// IPv6 (RFC 8200).
    Ipv6 ipv6: Ipv6,
    /// TCP without options (RFC 9293): segments, no connection.
    Tcp tcp: Tcp,
    /// UDP (RFC 768).
    Udp udp: Udp,
    /// VXLAN (RFC 7348): Ethernet follows.
    Vxlan vxlan: Vxlan,
}

/// Octets as given.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Custom {
    /// Hexadecimal; spaces and colons may stand between.
    pub bytes: String,
}

/// A structure of optional patterns.
macro_rules! fields {
    ($(#[$doc:meta])* $name:ident: $( $(#[$field_doc:meta])* $field:ident: $type:ty, )*) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $( $(#[$field_doc])* pub $field: Option<$type>, )* }
    };
}

fields! {
    /// Fields of the Ethernet header.
    Ethernet:
    /// Destination; auto is 0 between ports, and the gateway's between devices.
    dst: FieldPattern<MacText>,
    src: FieldPattern<MacText>,
    /// What follows; auto: the next header's.
    ether_type: FieldPattern<Integer>,
}

fields! {
    /// Fields of a VLAN tag.
    Vlan:
    /// Priority, 3 bits.
    priority: FieldPattern<Integer>,
    /// Drop eligible, 1 bit.
    cfi: FieldPattern<Integer>,
    /// VLAN, 12 bits.
    id: FieldPattern<Integer>,
    /// The 16 bits behind them, which name what follows; absent: the next header's.
    tpid: FieldPattern<Integer>,
}

fields! {
    /// Fields of an MPLS label stack entry.
    Mpls:
    /// Label, 20 bits.
    label: FieldPattern<Integer>,
    /// Traffic class, 3 bits.
    traffic_class: FieldPattern<Integer>,
    /// Bottom of stack; auto: where no other label follows.
    bottom_of_stack: FieldPattern<Integer>,
    /// Time to live, 8 bits.
    time_to_live: FieldPattern<Integer>,
}

fields! {
    /// Fields of the IPv4 header.
    Ipv4:
    /// 4 bits.
    version: FieldPattern<Integer>,
    /// In units of 32 bits.
    header_length: FieldPattern<Integer>,
    /// The octet once called type of service.
    priority: Priority,
    /// Octets from here on.
    total_length: FieldPattern<Integer>,
    /// 16 bits.
    identification: FieldPattern<Integer>,
    /// 1 bit.
    reserved: FieldPattern<Integer>,
    /// 1 bit.
    dont_fragment: FieldPattern<Integer>,
    /// 1 bit.
    more_fragments: FieldPattern<Integer>,
    /// 13 bits.
    fragment_offset: FieldPattern<Integer>,
    /// 8 bits.
    time_to_live: FieldPattern<Integer>,
    /// What follows; auto: the next header's.
    protocol: FieldPattern<Integer>,
    header_checksum: ChecksumPattern,
    src: FieldPattern<Ipv4Addr>,
    dst: FieldPattern<Ipv4Addr>,
}

chosen! {
    /// The octet that says how an IPv4 packet is to be treated.
    Priority, PriorityChoice, Dscp,
    Raw raw: FieldPattern<Integer>,
    /// In the bits of RFC 1349.
    Tos tos: Tos,
    /// In the bits of RFC 2474 and RFC 3168.
    Dscp dscp: Dscp,
}

fields! {
    /// RFC 1349.
    Tos:
    /// 3 bits.
    precedence: FieldPattern<Integer>,
    /// 1 bit.
    delay: FieldPattern<Integer>,
    /// 1 bit.
    throughput: FieldPattern<Integer>,
    /// 1 bit.
    reliability: FieldPattern<Integer>,
    /// 1 bit.
    monetary: FieldPattern<Integer>,
    /// 1 bit.
    unused: FieldPattern<Integer>,
}

fields! {
    /// RFC 2474, RFC 3168.
    Dscp:
    /// 6 bits.
    phb: FieldPattern<Integer>,
    /// 2 bits.
    ecn: FieldPattern<Integer>,
}

fields! {
    /// Fields of the IPv6 header.
    Ipv6:
    /// 4 bits.
    version: FieldPattern<Integer>,
    /// 8 bits.
    traffic_class: FieldPattern<Integer>,
    /// 20 bits.
    flow_label: FieldPattern<Integer>,
    /// Octets behind the header.
    payload_length: FieldPattern<Integer>,
    /// What follows; auto: the next header's.
    next_header: FieldPattern<Integer>,
    /// 8 bits.
    hop_limit: FieldPattern<Integer>,
    src: FieldPattern<Ipv6Addr>,
    dst: FieldPattern<Ipv6Addr>,
}

fields! {
    /// Fields of the TCP header.
    Tcp:
    src_port: FieldPattern<Integer>,
    dst_port: FieldPattern<Integer>,
    /// 32 bits.
    seq_num: FieldPattern<Integer>,
    /// 32 bits.
    ack_num: FieldPattern<Integer>,
    /// In units of 32 bits; absent: 5.
    data_offset: FieldPattern<Integer>,
    ecn_ns: FieldPattern<Integer>,
    ecn_cwr: FieldPattern<Integer>,
    ecn_echo: FieldPattern<Integer>,
    ctl_urg: FieldPattern<Integer>,
    ctl_ack: FieldPattern<Integer>,
    ctl_psh: FieldPattern<Integer>,
    ctl_rst: FieldPattern<Integer>,
    ctl_syn: FieldPattern<Integer>,
    ctl_fin: FieldPattern<Integer>,
    /// 16 bits.
    window: FieldPattern<Integer>,
    /// Of pseudo-header and segment.
    checksum: ChecksumPattern,
}

fields! {
    /// Fields of the UDP header.
    Udp:
    src_port: FieldPattern<Integer>,
    dst_port: FieldPattern<Integer>,
    /// Octets from here on; absent: as it is.
    length: FieldPattern<Integer>,
    /// Of pseudo-header and datagram.
    checksum: ChecksumPattern,
}

fields! {
    /// Fields of the VXLAN header (RFC 7348, section 5).
    Vxlan:
    /// 8 bits; absent: 8, the bit that says that there is an identifier.
    flags: FieldPattern<Integer>,
    /// 24 bits.
    reserved0: FieldPattern<Integer>,
    /// Identifier, 24 bits.
    vni: FieldPattern<Integer>,
    /// 8 bits.
    reserved1: FieldPattern<Integer>,
}

chosen! {
    /// Sizes of frames, octets with the FCS.
    Size, SizeChoice, Fixed,
    Fixed fixed: Integer,
    /// Upwards, then again from the first.
    Increment increment: SizeIncrement,
    /// Drawn evenly from a range.
    Random random: SizeRandom,
    WeightPairs weight_pairs: WeightPairs,
}

/// Sizes at equal distances.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeIncrement {
    /// The first size, in octets.
    #[serde(default = "smallest", deserialize_with = "whole")]
    pub start: u64,
    /// The greatest size; after it comes `start` again.
    #[serde(default = "largest", deserialize_with = "whole")]
    pub end: u64,
    /// From one to the next.
    #[serde(default = "one", deserialize_with = "whole")]
    pub step: u64,
}

/// Sizes drawn from a range.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeRandom {
    #[serde(default = "smallest", deserialize_with = "whole")]
    pub min: u64,
    #[serde(default = "largest", deserialize_with = "whole")]
    pub max: u64,
}

chosen! {
    /// A mix of sizes.
    WeightPairs, WeightPairsChoice, Predefined,
    Predefined predefined: Mix,
    Custom custom: Vec<WeightPair>,
}

/// The mixes of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mix {
    /// 64:7, 570:4, 1518:1.
    #[default]
    Imix,
    /// 90:58.67, 92:2, 594:23.66, 1418:15.67.
    IpsecImix,
    /// 60:58.67, 496:2, 594:23.66, 1518:15.67.
    Ipv6Imix,
    /// 58:58.67, 62:2, 594:23.66, 1518:15.67.
    StandardImix,
    /// 90:58.67, 92:2, 594:23.66, 1518:15.67.
    TcpImix,
}

/// A size of a mix.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightPair {
    /// Octets with the FCS.
    #[serde(default = "smallest", deserialize_with = "whole")]
    pub size: u64,
    /// Its share, relative to the others.
    #[serde(default = "full_weight")]
    pub weight: f64,
}

chosen! {
    /// How fast frames leave.
    Rate, RateChoice, Pps,
    /// Frames a second.
    Pps pps: Integer,
    /// Bits a second on the wire: with preamble and gap.
    Bps bps: Integer,
    /// Thousands of them.
    Kbps kbps: Integer,
    /// Millions of them.
    Mbps mbps: Integer,
    /// Thousands of millions of them.
    Gbps gbps: Integer,
    /// Of the port's speed.
    Percentage percentage: f64,
}

chosen! {
    /// How long frames leave.
    Duration, DurationChoice, Continuous,
    /// After so many frames.
    FixedPackets fixed_packets: FixedPackets,
    /// After so many seconds.
    FixedSeconds fixed_seconds: FixedSeconds,
    Burst burst: Burst,
    /// Until a request stops it.
    Continuous continuous: Continuous,
}

/// The end after so many frames.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedPackets {
    #[serde(default = "one", deserialize_with = "whole")]
    pub packets: u64,
    /// Least distance, octets.
    #[serde(default = "least_gap", deserialize_with = "whole")]
    pub gap: u64,
    /// Time before the first frame.
    pub delay: Option<Delay>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedSeconds {
    #[serde(default = "full_weight")]
    pub seconds: f64,
    /// Least distance, octets.
    #[serde(default = "least_gap", deserialize_with = "whole")]
    pub gap: u64,
    /// Time before the first frame.
    pub delay: Option<Delay>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// How many; 0: without end.
    #[serde(default, deserialize_with = "whole")]
    pub bursts: u64,
    #[serde(default = "one", deserialize_with = "whole")]
    pub packets: u64,
    /// Least distance within, octets.
    #[serde(default = "least_gap", deserialize_with = "whole")]
    pub gap: u64,
    /// Pause between the end of one burst and the begin of the next.
    pub inter_burst_gap: Option<Delay>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Continuous {
    /// Least distance, octets.
    #[serde(default = "least_gap", deserialize_with = "whole")]
    pub gap: u64,
    /// Time before the first frame.
    pub delay: Option<Delay>,
}

chosen! {
    Delay, DelayChoice, Bytes,
    /// As octets on the wire.
    Bytes bytes: f64,
    /// ns.
    Nanoseconds nanoseconds: f64,
    /// us.
    Microseconds microseconds: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowMetrics {
    /// Whether at all: then frames carry Sonde's signature.
    #[serde(default)]
    pub enable: bool,
    /// Share of frames lost.
    #[serde(default)]
    pub loss: bool,
    /// First and last arrival.
    #[serde(default)]
    pub timestamps: bool,
    #[serde(default)]
    pub latency: LatencyMetrics,
    /// Frames expected for each that is sent.
    pub rx_tx_ratio: Option<RxTxRatio>,
}

/// What is measured of the latency.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyMetrics {
    #[serde(default)]
    pub enable: bool,
    /// Between which of a frame's bits (RFC 1242, section 3.8).
    #[serde(default)]
    pub mode: LatencyMode,
}

/// RFC 1242, section 3.8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LatencyMode {
    /// From the last bit to the first.
    #[default]
    StoreForward,
    /// From the first bit to the first.
    CutThrough,
}

chosen! {
    /// Frames expected for each that is sent.
    RxTxRatio, RxTxRatioChoice, Value,
    /// As many as there are receiving ports.
    RxCount rx_count: NoFields,
    /// This many.
    Value value: f64,
}

/// An object without fields.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoFields {}

chosen! {
    /// What stands behind the headers, up to the signature.
    Payload, PayloadChoice, Fixed,
    /// The same octets over and over.
    Fixed fixed: PayloadFixed,
    /// 00, 01 and so on.
    IncrementByte increment_byte: NoFields,
    /// ff, fe and so on.
    DecrementByte decrement_byte: NoFields,
    /// 0000, 0001 and so on.
    IncrementWord increment_word: NoFields,
    /// ffff, fffe and so on.
    DecrementWord decrement_word: NoFields,
}

/// Octets of the client's choice.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PayloadFixed {
    /// Hexadecimal.
    #[serde(default = "zeros")]
    pub pattern: String,
    /// Again and again; else zeros follow.
    #[serde(default = "yes")]
    pub repeat: bool,
}

fn smallest() -> u64 {
    64
}

fn largest() -> u64 {
    1518
}

fn least_gap() -> u64 {
    12
}

fn full_weight() -> f64 {
    1.0
}

fn zeros() -> String {
    "00".into()
}

fn yes() -> bool {
    true
}
