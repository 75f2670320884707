//! Hash-based selection (RFC 5475, section 6.2): what is hashed, and which values count.

use sonde_wire::feature::{Feature, Layers, SHAPE_IPV6};

use super::SelectorError;
use super::bob::bob;

/// Selects packets by the BOB hash of their content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSelector {
    /// What is hashed.
    pub input: HashInput,
    /// hashInitialiserValue (334): the same wherever the same packets are to be selected;
    /// secret where senders must not know which.
    pub initialiser: u32,
    /// hashSelectedRangeMin (331) and hashSelectedRangeMax (332), both included.
    pub selected: [u32; 2],
}

/// What is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashInput {
    /// What does not change on a packet's way (RFC 5475, section 6.2.4): packets are selected
    /// one by one, the same ones at all observation points. Of IPv4 identification, flags,
    /// fragment offset and addresses; of IPv6 payload length and octets 10, 11, 14, 15 and 16
    /// of each address; of both, octets of the payload, which begins behind the fixed IPv6
    /// header or behind IPv4's options.
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

impl HashSelector {
    /// Selects this part of all hash values: more than 0, at most 1.
    pub fn of_fraction(
        input: HashInput,
        initialiser: u32,
        fraction: f64,
    ) -> Result<Self, SelectorError> {
        let last = (fraction * VALUES).round() - 1.0;
        if !(0.0..VALUES).contains(&last) {
            return Err(SelectorError::Probability(fraction));
        }
        Ok(HashSelector { input, initialiser, selected: [0, last as u32] })
    }

    pub(super) fn check(&self) -> Result<(), SelectorError> {
        match (self.selected, self.input) {
            ([first, last], _) if first > last => Err(SelectorError::Range(first, last)),
            (_, HashInput::Packet { size, .. }) if usize::from(size) > MAX_PAYLOAD => {
                Err(SelectorError::Payload(size))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn fraction(&self) -> f64 {
        let [first, last] = self.selected;
        (f64::from(last) - f64::from(first) + 1.0) / VALUES
    }

    #[inline]
    pub(super) fn selects(&self, value: u32) -> bool {
        (self.selected[0]..=self.selected[1]).contains(&value)
    }

    /// The hash, and whether all that belongs into it was there.
    pub(super) fn value(&self, packet: &Feature, frame: &[u8], layers: &Layers) -> (u32, bool) {
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
        (bob(&key.octets[..key.len], self.initialiser), whole)
    }
}

/// The input, put together.
struct Key {
    octets: [u8; KEY_LEN],
    len: usize,
}

impl Key {
    fn put(&mut self, octets: &[u8]) {
        self.octets[self.len..self.len + octets.len()].copy_from_slice(octets);
        self.len += octets.len();
    }
}

/// Most octets of payload that are hashed.
pub const MAX_PAYLOAD: usize = 64;
/// Header fields (12 octets of either version), or a flow's key (37), and payload.
const KEY_LEN: usize = 12 + MAX_PAYLOAD;
/// How many hash values there are.
const VALUES: f64 = 4_294_967_296.0;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
