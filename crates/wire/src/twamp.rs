//! TWAMP-Test packets, open mode (RFC 5357 sections 4.1.2 and 4.2.1, RFC 4656 section
//! 4.1.2): as STAMP, but without a fixed length; padding follows the fields.
//!
//! The fields lie where STAMP's lie, so [`stamp::SenderPacket`] and
//! [`stamp::ReflectorPacket`] read these packets too; what is here are the values
//! that write them.
//!
//! [`stamp::SenderPacket`]: crate::stamp::SenderPacket
//! [`stamp::ReflectorPacket`]: crate::stamp::ReflectorPacket

use crate::field::{put_u16, put_u32, put_u64};
use crate::stamp::{ReflectorPacket, SENDER_MIN_LEN, SenderPacket};
use crate::{Error, ErrorEstimate};

/// What a Session-Sender sends, without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SenderRepr {
    pub sequence: u32,
    /// T1, as on the wire.
    pub timestamp: u64,
    /// Error estimate of T1.
    pub error_estimate: ErrorEstimate,
}

impl SenderRepr {
    pub fn parse<T: AsRef<[u8]>>(packet: &SenderPacket<T>) -> Self {
        SenderRepr {
            sequence: packet.sequence(),
            timestamp: packet.timestamp(),
            error_estimate: packet.error_estimate(),
        }
    }

    /// Length that [`SenderRepr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        SENDER_LEN
    }

    /// Writes the fields at the start of `buffer`; returns their length. Padding is left
    /// as it is.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let fields = buffer.get_mut(..SENDER_LEN).ok_or(Error::NoRoom)?;
        put_u32(fields, 0, self.sequence);
        put_u64(fields, 4, self.timestamp);
        put_u16(fields, 12, self.error_estimate.0);
        Ok(SENDER_LEN)
    }
}

/// What a Session-Reflector sends, without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReflectorRepr {
    /// The reflector's own sequence number, or a TWAMP Light reflector's copy.
    pub sequence: u32,
    /// T3, as on the wire.
    pub timestamp: u64,
    /// Error estimate of T2 and T3.
    pub error_estimate: ErrorEstimate,
    /// T2, as on the wire.
    pub receive_timestamp: u64,
    /// Sequence number of the request.
    pub sender_sequence: u32,
    /// T1, from the request.
    pub sender_timestamp: u64,
    /// Error estimate of T1, from the request.
    pub sender_error_estimate: ErrorEstimate,
    /// TTL or hop limit with which the request arrived.
    pub sender_ttl: u8,
}

impl ReflectorRepr {
    /// Reads the fields; what must be zero is ignored.
    pub fn parse<T: AsRef<[u8]>>(packet: &ReflectorPacket<T>) -> Self {
        ReflectorRepr {
            sequence: packet.sequence(),
            timestamp: packet.timestamp(),
            error_estimate: packet.error_estimate(),
            receive_timestamp: packet.receive_timestamp(),
            sender_sequence: packet.sender_sequence(),
            sender_timestamp: packet.sender_timestamp(),
            sender_error_estimate: packet.sender_error_estimate(),
            sender_ttl: packet.sender_ttl(),
        }
    }

    /// Length that [`ReflectorRepr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        REFLECTOR_LEN
    }

    /// Writes the fields at the start of `buffer`; returns their length. Padding is left
    /// as it is.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let fields = buffer.get_mut(..REFLECTOR_LEN).ok_or(Error::NoRoom)?;
        put_u32(fields, 0, self.sequence);
        put_u64(fields, 4, self.timestamp);
        put_u16(fields, 12, self.error_estimate.0);
        put_u16(fields, 14, 0);
        put_u64(fields, 16, self.receive_timestamp);
        put_u32(fields, 24, self.sender_sequence);
        put_u64(fields, 28, self.sender_timestamp);
        put_u16(fields, 36, self.sender_error_estimate.0);
        put_u16(fields, 38, 0);
        fields[40] = self.sender_ttl;
        Ok(REFLECTOR_LEN)
    }
}

/// Padding of the reply to a request with `padding` octets of it. They are 27 fewer, so that both
/// packets are of one length (RFC 5357 section 4.2.1). None if there were fewer.
pub const fn reflected_padding(padding: usize) -> usize {
    padding.saturating_sub(REFLECTOR_LEN - SENDER_LEN)
}

/// Length of a request without padding.
pub const SENDER_LEN: usize = SENDER_MIN_LEN;
/// Length of a reply without padding.
pub const REFLECTOR_LEN: usize = 41;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp;
    use proptest::prelude::*;

    #[test]
    fn a_padded_reply_has_the_length_of_its_request() {
        for padding in 27..100 {
            assert_eq!(SENDER_LEN + padding, REFLECTOR_LEN + reflected_padding(padding));
        }
        assert_eq!(reflected_padding(26), 0);
    }

    proptest! {
        #[test]
        fn sender_parse_is_the_inverse_of_emit(sequence: u32, timestamp: u64, estimate: u16) {
            let repr =
                SenderRepr { sequence, timestamp, error_estimate: ErrorEstimate(estimate) };
            let mut bytes = [0xEE; 20];
            prop_assert_eq!(repr.emit(&mut bytes), Ok(14));
            prop_assert_eq!(&bytes[14..], &[0xEE; 6]);
            prop_assert_eq!(SenderRepr::parse(&SenderPacket::new_checked(&bytes).unwrap()), repr);
            prop_assert_eq!(repr.emit(&mut bytes[..13]), Err(Error::NoRoom));
        }

        #[test]
        fn a_reply_is_a_stamp_reply_without_session_identifier(bytes: [u8; 44]) {
            let packet = ReflectorPacket::new_checked(&bytes).unwrap();
            let repr = ReflectorRepr::parse(&packet);
            let mut twamp = [0; 41];
            prop_assert_eq!(repr.emit(&mut twamp), Ok(41));
            let again = ReflectorPacket::new_checked(&twamp).unwrap();
            prop_assert_eq!(ReflectorRepr::parse(&again), repr);
            let mut stamp = [0; 44];
            stamp::ReflectorRepr { ssid: 0, ..stamp::ReflectorRepr::parse(&packet) }
                .emit(&mut stamp)
                .unwrap();
            prop_assert_eq!(&stamp[..41], &twamp);
            prop_assert_eq!(repr.emit(&mut twamp[..40]), Err(Error::NoRoom));
        }
    }
}
