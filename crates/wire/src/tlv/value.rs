//! What the known TLVs carry (RFC 8972 sections 4.2 to 4.5 and 4.7).
//!
//! Each value is read from a TLV's value octets and written back as an array. [`Error::Length`]:
//! there are too few octets, or another count than the section fixes. A sender requests most of
//! them with zeros: [`super::Writer::push_zeros`].

use core::net::IpAddr;

use super::Tlvs;
use crate::Error;
use crate::field::{array_at, put_u32, put_u64, u16_at, u32_at, u64_at};

/// Location (section 4.2): the addresses and ports that the reflector saw.
#[derive(Clone, Debug)]
pub struct Location<'a> {
    /// UDP destination port of the request as it arrived; 0 in a request.
    pub destination_port: u16,
    /// UDP source port of the request as it arrived; 0 in a request.
    pub source_port: u16,
    /// One sub-TLV for each address.
    pub sub_tlvs: Tlvs<'a>,
}

impl<'a> Location<'a> {
    pub fn parse(value: &'a [u8]) -> Result<Self, Error> {
        let (ports, sub_tlvs) = value.split_at_checked(4).ok_or(Error::Length)?;
        Ok(Location {
            destination_port: u16_at(ports, 0),
            source_port: u16_at(ports, 2),
            sub_tlvs: Tlvs::new(sub_tlvs),
        })
    }

    /// The source address that the reflector saw, if it answered with one.
    pub fn source(&self) -> Option<IpAddr> {
        self.address(SOURCE_IPV4, SOURCE_IPV6)
    }

    /// The destination address that the reflector saw, if it answered with one.
    pub fn destination(&self) -> Option<IpAddr> {
        self.address(DESTINATION_IPV4, DESTINATION_IPV6)
    }

    fn address(&self, v4: u8, v6: u8) -> Option<IpAddr> {
        self.sub_tlvs.clone().map_while(Result::ok).find_map(|tlv| match tlv.value.len() {
            ADDRESS_LEN if tlv.kind == v4 => Some(array_at::<4>(tlv.value, 0).into()),
            ADDRESS_LEN if tlv.kind == v6 => Some(array_at::<16>(tlv.value, 0).into()),
            _ => None,
        })
    }
}

/// Timestamp information (section 4.3): how the reflector's clock is kept and read.
/// Zeros in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TimestampInformation {
    /// Synchronisation source of T2: [`SYNC_NTP`] and so on.
    pub sync_source_in: u8,
    /// How T2 was taken: [`METHOD_HARDWARE`] and so on.
    pub method_in: u8,
    /// Synchronisation source of T3.
    pub sync_source_out: u8,
    /// How T3 was taken.
    pub method_out: u8,
}

impl TimestampInformation {
    /// Length of the value, without sub-TLVs.
    pub const LEN: usize = 4;

    /// Reads the value; sub-TLVs after it are not looked at.
    pub fn parse(value: &[u8]) -> Result<Self, Error> {
        match *value {
            [sync_source_in, method_in, sync_source_out, method_out, ..] => {
                Ok(TimestampInformation { sync_source_in, method_in, sync_source_out, method_out })
            }
            _ => Err(Error::Length),
        }
    }

    pub const fn emit(&self) -> [u8; Self::LEN] {
        [self.sync_source_in, self.method_in, self.sync_source_out, self.method_out]
    }
}

/// Class of service (section 4.4): DSCP1 6, DSCP2 6, ECN 2, RP 2, reserved 16 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClassOfService {
    /// The DSCP that the sender wants in the reply, 0..=63.
    pub dscp1: u8,
    /// The DSCP with which the request arrived, 0..=63; 0 in a request.
    pub dscp2: u8,
    /// The ECN with which the request arrived, 0..=3; 0 in a request.
    pub ecn: u8,
    /// Reverse path, 0..=3: 1 when the reflector's policy forbids `dscp1`; 0 in a request.
    pub reverse_path: u8,
}

impl ClassOfService {
    /// Length of the value.
    pub const LEN: usize = 4;

    pub fn parse(value: &[u8]) -> Result<Self, Error> {
        let &[_, _, _, _] = value else { return Err(Error::Length) };
        let field = u16_at(value, 0);
        Ok(ClassOfService {
            dscp1: (field >> 10) as u8,
            dscp2: (field >> 4) as u8 & 0x3F,
            ecn: (field >> 2) as u8 & 3,
            reverse_path: field as u8 & 3,
        })
    }

    /// The value octets; what does not fit a field is cut off.
    pub const fn emit(&self) -> [u8; Self::LEN] {
        let field = (self.dscp1 as u16 & 0x3F) << 10
            | (self.dscp2 as u16 & 0x3F) << 4
            | (self.ecn as u16 & 3) << 2
            | (self.reverse_path as u16 & 3);
        let [high, low] = field.to_be_bytes();
        [high, low, 0, 0]
    }
}

/// Direct measurement (section 4.5): counters of the measured traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DirectMeasurement {
    /// Sent by the sender, at the request.
    pub sender_tx: u32,
    /// Received by the reflector, at the request; 0 in a request.
    pub reflector_rx: u32,
    /// Sent by the reflector, at the reply; 0 in a request.
    pub reflector_tx: u32,
}

impl DirectMeasurement {
    /// Length of the value.
    pub const LEN: usize = 12;

    pub fn parse(value: &[u8]) -> Result<Self, Error> {
        if value.len() != Self::LEN {
            return Err(Error::Length);
        }
        Ok(DirectMeasurement {
            sender_tx: u32_at(value, 0),
            reflector_rx: u32_at(value, 4),
            reflector_tx: u32_at(value, 8),
        })
    }

    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut value = [0; Self::LEN];
        put_u32(&mut value, 0, self.sender_tx);
        put_u32(&mut value, 4, self.reflector_rx);
        put_u32(&mut value, 8, self.reflector_tx);
        value
    }
}

/// Follow-up telemetry (section 4.7): when the previous reply really left. All zeros in
/// a request, and from a reflector that does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FollowUpTelemetry {
    /// Sequence number of that reply.
    pub sequence: u32,
    /// When it left, in the format of the reply's other timestamps.
    pub timestamp: u64,
    /// How that was taken: [`METHOD_HARDWARE`] and so on.
    pub method: u8,
}

impl FollowUpTelemetry {
    /// Length of the value.
    pub const LEN: usize = 16;

    pub fn parse(value: &[u8]) -> Result<Self, Error> {
        if value.len() != Self::LEN {
            return Err(Error::Length);
        }
        Ok(FollowUpTelemetry {
            sequence: u32_at(value, 0),
            timestamp: u64_at(value, 4),
            method: value[12],
        })
    }

    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut value = [0; Self::LEN];
        put_u32(&mut value, 0, self.sequence);
        put_u64(&mut value, 4, self.timestamp);
        value[12] = self.method;
        value
    }
}

/// Sub-TLV of a location: asks for the source MAC address.
pub const SOURCE_MAC: u8 = 1;
/// Answers [`SOURCE_MAC`] with six octets and two of zeros.
pub const SOURCE_EUI48: u8 = 2;
/// Answers [`SOURCE_MAC`] with eight octets.
pub const SOURCE_EUI64: u8 = 3;
/// Asks for the destination address.
pub const DESTINATION_IP: u8 = 4;
/// Answers [`DESTINATION_IP`] with four octets and twelve of zeros.
pub const DESTINATION_IPV4: u8 = 5;
/// Answers [`DESTINATION_IP`] with sixteen octets.
pub const DESTINATION_IPV6: u8 = 6;
/// Asks for the source address.
pub const SOURCE_IP: u8 = 7;
/// Answers [`SOURCE_IP`] with four octets and twelve of zeros.
pub const SOURCE_IPV4: u8 = 8;
/// Answers [`SOURCE_IP`] with sixteen octets.
pub const SOURCE_IPV6: u8 = 9;
/// Length of the value of sub-TLVs 1 to 3.
pub const MAC_LEN: usize = 8;
/// Length of the value of sub-TLVs 4 to 9.
pub const ADDRESS_LEN: usize = 16;

pub const SYNC_NTP: u8 = 1;
pub const SYNC_PTP: u8 = 2;
/// Synchronisation source: SSU/BITS.
pub const SYNC_SSU_BITS: u8 = 3;
/// Synchronisation source: a satellite system or LORAN-C.
pub const SYNC_GNSS: u8 = 4;
/// Synchronisation source: none, the clock runs freely.
pub const SYNC_LOCAL: u8 = 5;

/// Timestamp method: assisted by hardware.
pub const METHOD_HARDWARE: u8 = 1;
/// Timestamp method: software, on the data path.
pub const METHOD_SOFTWARE: u8 = 2;
/// Timestamp method: software, on the control plane.
pub const METHOD_CONTROL_PLANE: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tlv::Writer;
    use proptest::prelude::*;

    extern crate std;
    use std::vec::Vec;

    #[test]
    fn class_of_service_layout() {
        // 46, 10, 1, 2: 101110 001010 01 10.
        let cos = ClassOfService { dscp1: 46, dscp2: 10, ecn: 1, reverse_path: 2 };
        assert_eq!(cos.emit(), [0b1011_1000, 0b1010_0110, 0, 0]);
        assert_eq!(ClassOfService::parse(&cos.emit()), Ok(cos));
        assert_eq!(ClassOfService::parse(&[0; 3]), Err(Error::Length));
        assert_eq!(ClassOfService::parse(&[0; 5]), Err(Error::Length));
    }

    #[test]
    fn follow_up_telemetry_layout() {
        let value = FollowUpTelemetry {
            sequence: 0x0102_0304,
            timestamp: 0x1112_1314_1516_1718,
            method: METHOD_SOFTWARE,
        };
        let bytes = [1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 2, 0, 0, 0];
        assert_eq!(value.emit(), bytes);
        assert_eq!(FollowUpTelemetry::parse(&bytes), Ok(value));
    }

    #[test]
    fn the_answers_in_a_location_are_found() {
        for (source, destination, kinds) in [
            ("192.0.2.1", "192.0.2.2", [SOURCE_IPV4, DESTINATION_IPV4]),
            ("2001:db8::1", "2001:db8::2", [SOURCE_IPV6, DESTINATION_IPV6]),
        ] {
            let (source, destination): (IpAddr, IpAddr) =
                (source.parse().unwrap(), destination.parse().unwrap());
            let mut value = [0; 4 + 2 * (4 + ADDRESS_LEN)];
            value[..4].copy_from_slice(&[3, 94, 15, 160]);
            let mut writer = Writer::new(&mut value[4..]);
            for (kind, address) in kinds.into_iter().zip([source, destination]) {
                let mut octets = [0; ADDRESS_LEN];
                match address {
                    IpAddr::V4(v4) => octets[..4].copy_from_slice(&v4.octets()),
                    IpAddr::V6(v6) => octets.copy_from_slice(&v6.octets()),
                }
                writer.push(kind, &octets).unwrap();
            }
            let location = Location::parse(&value).unwrap();
            assert_eq!((location.destination_port, location.source_port), (862, 4000));
            assert_eq!(location.source(), Some(source));
            assert_eq!(location.destination(), Some(destination));
            // A question is no answer.
            value[4 + 1] = SOURCE_IP;
            assert_eq!(Location::parse(&value).unwrap().source(), None);
        }
    }

    proptest! {
        #[test]
        fn parse_is_the_inverse_of_emit(
            a in any::<[u8; 4]>(), b: (u32, u32, u32), c: (u32, u64, u8),
        ) {
            let info = TimestampInformation {
                sync_source_in: a[0], method_in: a[1], sync_source_out: a[2], method_out: a[3],
            };
            prop_assert_eq!(TimestampInformation::parse(&info.emit()), Ok(info));
            let cos = ClassOfService {
                dscp1: a[0] & 0x3F, dscp2: a[1] & 0x3F, ecn: a[2] & 3, reverse_path: a[3] & 3,
            };
            prop_assert_eq!(ClassOfService::parse(&cos.emit()), Ok(cos));
            let direct = DirectMeasurement {
                sender_tx: b.0, reflector_rx: b.1, reflector_tx: b.2,
            };
            prop_assert_eq!(DirectMeasurement::parse(&direct.emit()), Ok(direct));
            let follow = FollowUpTelemetry { sequence: c.0, timestamp: c.1, method: c.2 };
            prop_assert_eq!(FollowUpTelemetry::parse(&follow.emit()), Ok(follow));
        }

        #[test]
        fn never_panics(mut bytes: Vec<u8>, small: bool) {
            if small {
                for b in bytes.iter_mut() {
                    *b %= 17;
                }
            }
            let _ = TimestampInformation::parse(&bytes);
            let _ = ClassOfService::parse(&bytes);
            let _ = DirectMeasurement::parse(&bytes);
            let _ = FollowUpTelemetry::parse(&bytes);
            if let Ok(location) = Location::parse(&bytes) {
                let _ = (location.source(), location.destination());
            }
        }
    }
}
