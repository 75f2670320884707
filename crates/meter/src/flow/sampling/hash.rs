//! Hash-based selection (RFC 5475, section 6.2): what is hashed, and which values count.

use sonde_wire::feature::{Feature, Layers, SHAPE_IPV6};

use super::SelectorError;
use super::bob::bob;
use super::crc::crc32;
use super::ipsx::ipsx;

/// Selects packets by a hash of their content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSelector {
    /// How it is hashed.
    pub function: HashFunction,
    /// What is hashed; for [`HashFunction::Ipsx`] [`HashInput::IPSX`].
    pub input: HashInput,
    /// hashInitialiserValue (334): the same wherever the same packets are to be selected;
    /// secret where senders must not know which. 0 for IPSX, which has none.
    pub initialiser: u32,
    /// hashSelectedRangeMin (331) and hashSelectedRangeMax (332), both included.
    pub selected: [u32; 2],
}

/// How packets are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashFunction {
    /// RFC 5475, appendix A.2; 32 bits. The one to take (section 6.2.4.1): with a secret
    /// initialiser a sender cannot know which packets are selected.
    Bob,
    /// RFC 5475, appendix A.1; 16 bits. Of IPv4 only: packets of IPv6 have no value and are
    /// not selected.
    Ipsx,
    /// CRC-32; 32 bits. Linear: a sender can know it, whatever the initialiser.
    Crc32,
}

impl HashFunction {
    /// Its value in the registry of selectorAlgorithm (304).
    pub const fn selector_algorithm(self) -> u16 {
        match self {
            HashFunction::Bob => 6,
            HashFunction::Ipsx => 7,
            HashFunction::Crc32 => 8,
        }
    }

    /// The greatest value; the least is 0.
    pub const fn most(self) -> u32 {
        match self {
            HashFunction::Ipsx => u16::MAX as u32,
            HashFunction::Bob | HashFunction::Crc32 => u32::MAX,
        }
    }

    /// How many values there are.
    fn values(self) -> f64 {
        f64::from(self.most()) + 1.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashInput {
    /// What does not change on a packet's way (RFC 5475, section 6.2.4): packets are selected one
    /// by one, the same ones at all observation points. Of IPv4 identification, flags, fragment
    /// offset and addresses. Of IPv6 payload length and octets 10, 11, 14, 15 and 16 of each
    /// address. Of both, octets of the payload, which begins behind the fixed IPv6 header or behind
    /// IPv4's options.
    Packet {
        /// hashIPPayloadOffset (327).
        offset: u16,
        /// hashIPPayloadSize (328), at most [`MAX_PAYLOAD`]. A packet's end comes first.
        size: u16,
    },
    /// Addresses, ports and protocol, so that the packets of a flow are all selected or
    /// none, and both directions alike. Later fragments, which have no ports, are judged
    /// by themselves.
    Flow,
}

impl HashInput {
    /// What IPSX takes: the header's fields, and octets 4 to 7 of the payload.
    pub const IPSX: HashInput = HashInput::Packet { offset: 4, size: 4 };
}

impl HashSelector {
    /// Selects this part of all hash values: more than 0, at most 1.
    pub fn of_fraction(
        function: HashFunction,
        input: HashInput,
        initialiser: u32,
        fraction: f64,
    ) -> Result<Self, SelectorError> {
        let last = (fraction * function.values()).round() - 1.0;
        if !(0.0..function.values()).contains(&last) {
            return Err(SelectorError::Probability(fraction));
        }
        Ok(HashSelector { function, input, initialiser, selected: [0, last as u32] })
    }

    pub(super) fn check(&self) -> Result<(), SelectorError> {
        let is_ipsx = self.function == HashFunction::Ipsx;
        match (self.selected, self.input) {
            ([first, last], _) if first > last || last > self.function.most() => {
                Err(SelectorError::Range(first, last))
            }
            (_, input) if is_ipsx && (input != HashInput::IPSX || self.initialiser != 0) => {
                Err(SelectorError::Ipsx)
            }
            (_, HashInput::Packet { size, .. }) if usize::from(size) > MAX_PAYLOAD => {
                Err(SelectorError::Payload(size))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn fraction(&self) -> f64 {
        let [first, last] = self.selected;
        (f64::from(last) - f64::from(first) + 1.0) / self.function.values()
    }

    #[inline]
    pub(super) fn selects(&self, value: Option<u32>) -> bool {
        value.is_some_and(|value| (self.selected[0]..=self.selected[1]).contains(&value))
    }

    /// The hash, if the packet has one, and whether all that belongs into it was there.
    pub(super) fn value(
        &self,
        packet: &Feature,
        frame: &[u8],
        layers: &Layers,
    ) -> (Option<u32>, bool) {
        if self.function == HashFunction::Ipsx && packet.shape & SHAPE_IPV6 != 0 {
            return (None, true);
        }
        let mut key = Key { octets: [0; KEY_LEN], len: 0 };
        let mut whole = true;
        match self.input {
            HashInput::Packet { offset, size } => {
                let v6 = packet.shape & SHAPE_IPV6 != 0;
                let end = usize::from(layers.end).min(frame.len());
                let ip = frame.get(usize::from(layers.ip)..end).unwrap_or(&[]);
                whole = ip.len() >= if v6 { IPV6_LEN } else { IPV4_LEN };
                let header_len = if v6 {
                    key.put(ip.get(4..6).unwrap_or(&[]));
                    for address in [packet.source, packet.destination] {
                        key.put(&[address[9], address[10], address[13], address[14], address[15]]);
                    }
                    IPV6_LEN
                } else {
                    key.put(ip.get(4..8).unwrap_or(&[]));
                    key.put(&packet.source[12..]);
                    key.put(&packet.destination[12..]);
                    usize::from(ip.first().unwrap_or(&0) & 0x0F) * 4
                };
                let from = header_len + usize::from(offset);
                let to = (from + usize::from(size)).min(packet.ip_len as usize);
                let payload = ip.get(from..to.min(ip.len())).unwrap_or(&[]);
                whole &= payload.len() == to.saturating_sub(from);
                key.put(payload);
            }
            HashInput::Flow => {
                let mut ends = [
                    (packet.source, packet.source_port),
                    (packet.destination, packet.destination_port),
                ];
                ends.sort_unstable();
                key.put(&[packet.protocol]);
                for (address, port) in ends {
                    key.put(&address);
                    key.put(&port.to_be_bytes());
                }
            }
        }
        let value = match self.function {
            HashFunction::Bob => bob(key.octets(), self.initialiser),
            HashFunction::Crc32 => crc32(key.octets(), self.initialiser),
            // What is missing at the packet's end counts as 0.
            HashFunction::Ipsx => key.octets.first_chunk().map_or(0, |f| ipsx(f).into()),
        };
        (Some(value), whole)
    }
}

/// The input, put together.
struct Key {
    octets: [u8; KEY_LEN],
    len: usize,
}

impl Key {
    fn octets(&self) -> &[u8] {
        &self.octets[..self.len]
    }

    fn put(&mut self, octets: &[u8]) {
        self.octets[self.len..self.len + octets.len()].copy_from_slice(octets);
        self.len += octets.len();
    }
}

/// Most octets of payload that are hashed.
pub const MAX_PAYLOAD: usize = 64;
/// Header fields (12 octets of either version), or a flow's key (37), and payload.
const KEY_LEN: usize = 12 + MAX_PAYLOAD;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
