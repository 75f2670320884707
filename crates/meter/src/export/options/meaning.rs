//! What the fields of flow records mean: keys, types, names of interfaces, the rate of
//! sampling.

use sonde_wire::ipfix::element::{self as ie, DataType, Element};
use sonde_wire::ipfix::template::FieldSpecifier;
use sonde_wire::netflow9;

use super::{OptionRecord, SYSTEM};
use crate::export::ExportInterface;
use crate::export::fields::{Fields, Floor as _};

/// Which fields are keys (RFC 7011, section 4.4).
pub(super) struct FlowKeys {
    pub template: u16,
    pub indicator: u64,
}

impl OptionRecord for FlowKeys {
    fn kind(&self) -> u32 {
        4
    }

    fn fields<W: Fields>(&self, w: &mut W) {
        w.u16(ie::TEMPLATE_ID, self.template);
        w.u64(ie::FLOW_KEY_INDICATOR, self.indicator);
    }
}

pub(super) struct InterfaceName<'a> {
    pub ipfix: bool,
    pub interface: &'a ExportInterface,
}

impl OptionRecord for InterfaceName<'_> {
    fn kind(&self) -> u32 {
        5
    }

    fn fields<W: Fields>(&self, w: &mut W) {
        let ExportInterface { index, name, description } = self.interface;
        w.u32(if self.ipfix { ie::INGRESS_INTERFACE } else { INTERFACE }, *index);
        w.put(ie::INTERFACE_NAME, padded::<32>(name));
        if self.ipfix {
            w.put(ie::INTERFACE_DESCRIPTION, padded::<64>(description));
        }
    }
}

/// A string of fixed length, zeros behind it: nfcapd refuses options of variable length.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let end = text.floor(N);
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    bytes
}

/// The rate of all selectors together in NetFlow's field: what most collectors multiply by. The
/// element samplingAlgorithm (35) does not go with it: nfcapd 1.7.1 knows the two together for
/// nothing.
pub(super) struct Sampling {
    pub ipfix: bool,
    pub domain: u32,
    pub interval: u32,
}

impl OptionRecord for Sampling {
    fn kind(&self) -> u32 {
        6
    }

    fn fields<W: Fields>(&self, w: &mut W) {
        w.u32(if self.ipfix { ie::OBSERVATION_DOMAIN_ID } else { SYSTEM }, self.domain);
        w.u32(ie::SAMPLING_INTERVAL, self.interval);
    }
}

/// Name and type of an enterprise's element (RFC 5610, section 3).
pub(super) struct TypeInformation(pub Element);

impl OptionRecord for TypeInformation {
    const SCOPES: u16 = 2;

    fn kind(&self) -> u32 {
        8
    }

    fn fields<W: Fields>(&self, w: &mut W) {
        w.u32(ie::PRIVATE_ENTERPRISE_NUMBER, self.0.enterprise);
        w.u16(ie::INFORMATION_ELEMENT_ID, self.0.id);
        w.u8(ie::INFORMATION_ELEMENT_DATA_TYPE, self.0.kind.code());
        // 0: none of the semantics of section 3.6 is claimed.
        w.u8(ie::INFORMATION_ELEMENT_SEMANTICS, 0);
        w.put(ie::INFORMATION_ELEMENT_NAME, padded::<32>(self.0.name));
    }
}

/// Which fields are the flow's key, as bits from the first field on. RFC 5103 and RFC 7011 leave
/// the rest to flowKeyIndicator's definition in the registry.
pub(super) fn key_indicator(fields: &[FieldSpecifier]) -> u64 {
    // Of elements that are there twice the first is the outer header's.
    KEYS.iter()
        .filter_map(|key| fields.iter().rposition(|f| f.enterprise == 0 && f.id == key.id))
        .filter(|at| *at < 64)
        .fold(0, |bits, at| bits | 1 << at)
}

const INTERFACE: Element = Element {
    enterprise: 0,
    id: netflow9::SCOPE_INTERFACE,
    name: "interface",
    kind: DataType::Unsigned32,
};
const KEYS: [Element; 9] = [
    ie::SOURCE_IPV4_ADDRESS,
    ie::DESTINATION_IPV4_ADDRESS,
    ie::SOURCE_IPV6_ADDRESS,
    ie::DESTINATION_IPV6_ADDRESS,
    ie::SOURCE_TRANSPORT_PORT,
    ie::DESTINATION_TRANSPORT_PORT,
    ie::PROTOCOL_IDENTIFIER,
    ie::VLAN_ID,
    ie::INGRESS_INTERFACE,
];
/// Elements that are only in lists, which the template does not show.
pub(super) const LISTED: [Element; 8] = [
    ie::PACKET_LENGTHS,
    ie::PACKET_TIMES,
    ie::PACKET_FLAGS,
    ie::PACKET_DIRECTIONS,
    ie::SOURCE_LENGTH_HISTOGRAM,
    ie::SOURCE_GAP_HISTOGRAM,
    ie::DESTINATION_LENGTH_HISTOGRAM,
    ie::DESTINATION_GAP_HISTOGRAM,
];
