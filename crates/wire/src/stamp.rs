//! STAMP test packets, open mode (RFC 8762 sections 4.2.1 and 4.3.1, with the session
//! identifier of RFC 8972 section 3). TLVs follow the base packet: see [`crate::tlv`].
//!
//! Timestamps are the eight octets on the wire as an integer. [`Time::from_wire`] and the format
//! bit of the error estimate beside them say what they mean.
//!
//! [`Time::from_wire`]: crate::Time::from_wire

use crate::field::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::{Error, ErrorEstimate};

/// A checked view of what a Session-Sender sends.
///
/// TWAMP Light senders may send as few as [`SENDER_MIN_LEN`] octets (RFC 8762 section
/// 4.6): the view accepts them, and reads a session identifier of 0.
#[derive(Clone, Copy, Debug)]
pub struct SenderPacket<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> SenderPacket<T> {
    /// Checks that sequence number, timestamp and error estimate are there.
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        match buffer.as_ref().len() < SENDER_MIN_LEN {
            true => Err(Error::Truncated),
            false => Ok(SenderPacket { buffer }),
        }
    }

    pub fn sequence(&self) -> u32 {
        u32_at(self.buffer.as_ref(), 0)
    }

    /// T1, when the request left, in the format that the error estimate's Z bit names.
    pub fn timestamp(&self) -> u64 {
        u64_at(self.buffer.as_ref(), 4)
    }

    /// Error estimate of T1.
    pub fn error_estimate(&self) -> ErrorEstimate {
        ErrorEstimate(u16_at(self.buffer.as_ref(), 12))
    }

    /// Session identifier; 0: none. A packet shorter than the base packet is of TWAMP Light
    /// and has padding instead.
    pub fn ssid(&self) -> u16 {
        if self.has_base() { u16_at(self.buffer.as_ref(), 14) } else { 0 }
    }

    /// At least the 44 octets of the base packet.
    pub fn has_base(&self) -> bool {
        self.buffer.as_ref().len() >= BASE_LEN
    }

    /// What follows the base packet: TLVs, or nothing.
    pub fn tlvs(&self) -> &[u8] {
        self.buffer.as_ref().get(BASE_LEN..).unwrap_or(&[])
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> SenderPacket<T> {
    /// Sets the sequence number.
    pub fn set_sequence(&mut self, sequence: u32) {
        put_u32(self.buffer.as_mut(), 0, sequence);
    }

    /// Sets T1: its format is what the Z bit says.
    pub fn set_timestamp(&mut self, timestamp: u64) {
        put_u64(self.buffer.as_mut(), 4, timestamp);
    }

    /// Sets the error estimate of T1.
    pub fn set_error_estimate(&mut self, estimate: ErrorEstimate) {
        put_u16(self.buffer.as_mut(), 12, estimate.0);
    }
}

/// What a Session-Sender sends, as a value: the base packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SenderRepr {
    pub sequence: u32,
    /// T1, when the request left, in the format that the error estimate's Z bit names.
    pub timestamp: u64,
    /// Error estimate of T1.
    pub error_estimate: ErrorEstimate,
    /// Session identifier; 0: none.
    pub ssid: u16,
}

impl SenderRepr {
    /// Reads the base packet; what must be zero is ignored (RFC 8762 section 4.2.1).
    pub fn parse<T: AsRef<[u8]>>(packet: &SenderPacket<T>) -> Self {
        SenderRepr {
            sequence: packet.sequence(),
            timestamp: packet.timestamp(),
            error_estimate: packet.error_estimate(),
            ssid: packet.ssid(),
        }
    }

    /// Length that [`SenderRepr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        BASE_LEN
    }

    /// Writes the base packet at the start of `buffer`; returns its length.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let base = buffer.get_mut(..BASE_LEN).ok_or(Error::NoRoom)?;
        put_u32(base, 0, self.sequence);
        put_u64(base, 4, self.timestamp);
        put_u16(base, 12, self.error_estimate.0);
        put_u16(base, 14, self.ssid);
        base[16..].fill(0);
        Ok(BASE_LEN)
    }
}

/// A checked view of what a Session-Reflector sends.
#[derive(Clone, Copy, Debug)]
pub struct ReflectorPacket<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> ReflectorPacket<T> {
    /// Checks that all fields are there that a sender needs. Some peers leave out the last three
    /// octets of the base packet. Old responders of TWAMP Light end with the error estimate of the
    /// request. So [`REFLECTOR_MIN_LEN`] octets are enough.
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        match buffer.as_ref().len() < REFLECTOR_MIN_LEN {
            true => Err(Error::Truncated),
            false => Ok(ReflectorPacket { buffer }),
        }
    }

    /// Sequence number: the reflector's own if it is stateful, else the sender's.
    pub fn sequence(&self) -> u32 {
        u32_at(self.buffer.as_ref(), 0)
    }

    /// T3, when the reply left, in the format that its error estimate's Z bit names.
    pub fn timestamp(&self) -> u64 {
        u64_at(self.buffer.as_ref(), 4)
    }

    /// Error estimate of T2 and T3.
    pub fn error_estimate(&self) -> ErrorEstimate {
        ErrorEstimate(u16_at(self.buffer.as_ref(), 12))
    }

    /// Session identifier; 0: none.
    pub fn ssid(&self) -> u16 {
        u16_at(self.buffer.as_ref(), 14)
    }

    /// T2, when the request arrived, in the format of T3.
    pub fn receive_timestamp(&self) -> u64 {
        u64_at(self.buffer.as_ref(), 16)
    }

    /// Sequence number of the request.
    pub fn sender_sequence(&self) -> u32 {
        u32_at(self.buffer.as_ref(), 24)
    }

    /// T1, from the request.
    pub fn sender_timestamp(&self) -> u64 {
        u64_at(self.buffer.as_ref(), 28)
    }

    /// Error estimate of T1, from the request.
    pub fn sender_error_estimate(&self) -> ErrorEstimate {
        ErrorEstimate(u16_at(self.buffer.as_ref(), 36))
    }

    /// TTL or hop limit with which the request arrived; 0: unknown.
    pub fn sender_ttl(&self) -> u8 {
        self.buffer.as_ref().get(40).copied().unwrap_or(0)
    }

    /// What follows the base packet: TLVs, or nothing.
    pub fn tlvs(&self) -> &[u8] {
        self.buffer.as_ref().get(BASE_LEN..).unwrap_or(&[])
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> ReflectorPacket<T> {
    /// Turns the request in `buffer` into its reply, in place. The sender's fields move, the
    /// session identifier stays, what must be zero becomes zero. The sequence number stays for a
    /// stateless reflector. Timestamps, error estimate, and the sequence number of a stateful
    /// reflector are then set. TLVs are not touched.
    ///
    /// `buffer` must hold the whole base packet: for a shorter request make room first,
    /// zeros after the octets that came.
    #[inline]
    pub fn reflect(mut buffer: T, ttl: u8) -> Result<Self, Error> {
        let base = buffer.as_mut().get_mut(..BASE_LEN).ok_or(Error::NoRoom)?;
        base.copy_within(..14, 24);
        base[4..14].fill(0);
        base[16..24].fill(0);
        base[38..].fill(0);
        base[40] = ttl;
        Ok(ReflectorPacket { buffer })
    }

    /// Sets the sequence number.
    pub fn set_sequence(&mut self, sequence: u32) {
        put_u32(self.buffer.as_mut(), 0, sequence);
    }

    /// Sets T3: its format is what the Z bit says.
    pub fn set_timestamp(&mut self, timestamp: u64) {
        put_u64(self.buffer.as_mut(), 4, timestamp);
    }

    /// Sets the error estimate of T2 and T3.
    pub fn set_error_estimate(&mut self, estimate: ErrorEstimate) {
        put_u16(self.buffer.as_mut(), 12, estimate.0);
    }

    /// Sets T2, in the format of T3.
    pub fn set_receive_timestamp(&mut self, timestamp: u64) {
        put_u64(self.buffer.as_mut(), 16, timestamp);
    }

    /// What follows the base packet.
    pub fn tlvs_mut(&mut self) -> &mut [u8] {
        self.buffer.as_mut().get_mut(BASE_LEN..).unwrap_or(&mut [])
    }
}

/// What a Session-Reflector sends, as a value: the base packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReflectorRepr {
    /// The reflector's own sequence number if it is stateful, else the sender's.
    pub sequence: u32,
    /// T3, when the reply left, in the format that its error estimate's Z bit names.
    pub timestamp: u64,
    /// Error estimate of T2 and T3.
    pub error_estimate: ErrorEstimate,
    /// Session identifier, from the request.
    pub ssid: u16,
    /// T2, when the request arrived, in the format of T3.
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
    /// Reads the base packet; what must be zero is ignored.
    pub fn parse<T: AsRef<[u8]>>(packet: &ReflectorPacket<T>) -> Self {
        ReflectorRepr {
            sequence: packet.sequence(),
            timestamp: packet.timestamp(),
            error_estimate: packet.error_estimate(),
            ssid: packet.ssid(),
            receive_timestamp: packet.receive_timestamp(),
            sender_sequence: packet.sender_sequence(),
            sender_timestamp: packet.sender_timestamp(),
            sender_error_estimate: packet.sender_error_estimate(),
            sender_ttl: packet.sender_ttl(),
        }
    }

    /// Length that [`ReflectorRepr::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        BASE_LEN
    }

    /// Writes the base packet at the start of `buffer`; returns its length.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let base = buffer.get_mut(..BASE_LEN).ok_or(Error::NoRoom)?;
        put_u32(base, 0, self.sequence);
        put_u64(base, 4, self.timestamp);
        put_u16(base, 12, self.error_estimate.0);
        put_u16(base, 14, self.ssid);
        put_u64(base, 16, self.receive_timestamp);
        put_u32(base, 24, self.sender_sequence);
        put_u64(base, 28, self.sender_timestamp);
        put_u16(base, 36, self.sender_error_estimate.0);
        base[38..].fill(0);
        base[40] = self.sender_ttl;
        Ok(BASE_LEN)
    }
}

/// Length of the base packet, both ways.
pub const BASE_LEN: usize = 44;
/// Shortest request: an unpadded TWAMP-Test packet.
pub const SENDER_MIN_LEN: usize = 14;
/// Shortest reply: an unpadded TWAMP-Test reply without the sender's TTL, as old responders
/// send it.
pub const REFLECTOR_MIN_LEN: usize = 38;
/// Length of the base packet in authenticated mode, both ways; the last 16 octets of
/// it are the HMAC.
pub const AUTHENTICATED_BASE_LEN: usize = 112;
/// The UDP port that a reflector listens on by default (RFC 8762 section 4.1).
pub const DEFAULT_PORT: u16 = 862;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    extern crate std;
    use std::vec::Vec;

    #[test]
    fn sender_layout() {
        let repr = SenderRepr {
            sequence: 0x0102_0304,
            timestamp: 0x1112_1314_1516_1718,
            error_estimate: ErrorEstimate(0x2122),
            ssid: 0x3132,
        };
        let mut bytes = [0xFF; 45];
        assert_eq!(repr.emit(&mut bytes), Ok(44));
        let mut want = [0; 45];
        want[..16].copy_from_slice(&[
            1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x31, 0x32,
        ]);
        want[44] = 0xFF;
        assert_eq!(bytes, want);
    }

    #[test]
    fn reflector_layout() {
        let repr = ReflectorRepr {
            sequence: 0x0102_0304,
            timestamp: 0x1112_1314_1516_1718,
            error_estimate: ErrorEstimate(0x2122),
            ssid: 0x3132,
            receive_timestamp: 0x4142_4344_4546_4748,
            sender_sequence: 0x5152_5354,
            sender_timestamp: 0x6162_6364_6566_6768,
            sender_error_estimate: ErrorEstimate(0x7172),
            sender_ttl: 0x81,
        };
        let mut bytes = [0xFF; 44];
        assert_eq!(repr.emit(&mut bytes), Ok(44));
        assert_eq!(
            bytes,
            [
                1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x31, 0x32,
                0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x51, 0x52, 0x53, 0x54, 0x61, 0x62,
                0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x71, 0x72, 0, 0, 0x81, 0, 0, 0
            ]
        );
    }

    #[test]
    fn a_short_request_is_read() {
        let bytes = [1u8; 44];
        assert_eq!(SenderPacket::new_checked(&bytes[..13]).err(), Some(Error::Truncated));
        let short = SenderPacket::new_checked(&bytes[..43]).unwrap();
        assert_eq!((short.ssid(), short.has_base(), short.tlvs()), (0, false, &[][..]));
        let whole = SenderPacket::new_checked(&bytes).unwrap();
        assert_eq!((whole.ssid(), whole.has_base()), (0x0101, true));
        assert_eq!(ReflectorPacket::new_checked(&bytes[..37]).err(), Some(Error::Truncated));
        // An old responder ends with the request's error estimate, another with its TTL.
        let old = ReflectorPacket::new_checked(&bytes[..38]).unwrap();
        assert_eq!((old.sender_error_estimate().0, old.sender_ttl()), (0x0101, 0));
        assert_eq!(ReflectorPacket::new_checked(&bytes[..41]).unwrap().sender_ttl(), 1);
        assert_eq!(ReflectorPacket::reflect([0; 43], 1).err(), Some(Error::NoRoom));
    }

    proptest! {
        #[test]
        fn sender_parse_is_the_inverse_of_emit(
            sequence: u32, timestamp: u64, estimate: u16, ssid: u16,
        ) {
            let repr = SenderRepr {
                sequence, timestamp, error_estimate: ErrorEstimate(estimate), ssid,
            };
            let mut bytes = [0; 44];
            repr.emit(&mut bytes).unwrap();
            let packet = SenderPacket::new_checked(&bytes).unwrap();
            prop_assert_eq!(SenderRepr::parse(&packet), repr);
            let mut again = SenderPacket::new_checked([0; 44]).unwrap();
            again.set_sequence(sequence);
            again.set_timestamp(timestamp);
            again.set_error_estimate(ErrorEstimate(estimate));
            prop_assert_eq!(&again.buffer[..14], &bytes[..14]);
        }

        #[test]
        fn reflection_in_place_equals_the_reply_written_anew(
            request: [u8; 44], ttl: u8, t2: u64, t3: u64, estimate: u16, sequence: u32,
            tail: Vec<u8>,
        ) {
            let estimate = ErrorEstimate(estimate);
            let from = SenderRepr::parse(&SenderPacket::new_checked(&request).unwrap());
            let want = ReflectorRepr {
                sequence,
                timestamp: t3,
                error_estimate: estimate,
                ssid: from.ssid,
                receive_timestamp: t2,
                sender_sequence: from.sequence,
                sender_timestamp: from.timestamp,
                sender_error_estimate: from.error_estimate,
                sender_ttl: ttl,
            };
            let mut buffer = request.to_vec();
            buffer.extend(&tail);
            let mut reply = ReflectorPacket::reflect(buffer, ttl).unwrap();
            prop_assert_eq!(reply.sequence(), from.sequence);
            reply.set_sequence(sequence);
            reply.set_timestamp(t3);
            reply.set_receive_timestamp(t2);
            reply.set_error_estimate(estimate);
            prop_assert_eq!(ReflectorRepr::parse(&reply), want);
            prop_assert_eq!(reply.tlvs(), &tail[..]);
            let mut bytes = [0; 44];
            want.emit(&mut bytes).unwrap();
            prop_assert_eq!(&reply.buffer[..44], &bytes[..]);
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            if let Ok(packet) = SenderPacket::new_checked(&bytes) {
                let _ = SenderRepr::parse(&packet);
                let _ = packet.tlvs();
            }
            if let Ok(packet) = ReflectorPacket::new_checked(&bytes) {
                let _ = ReflectorRepr::parse(&packet);
                let _ = packet.tlvs();
            }
            let _ = ReflectorPacket::reflect(bytes, 64);
        }
    }
}
