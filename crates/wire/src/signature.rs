//! The signature in a benchmark's test frames: the last 18 octets before the FCS. The payload of a
//! UDP datagram over IPv4 in a frame of 64 octets has as many. RFC 2544, section 9.1 and appendix
//! C, want frames that the tester recognises and counts.
//!
//! | octets | |
//! |---|---|
//! | 0 | [`MAGIC`] |
//! | 1 | the trial, modulo 256 |
//! | 2-3 | the stream |
//! | 4-7 | the sequence number, in the order of sending, modulo 2^32 |
//! | 8-13 | when it was sent, ns TAI, modulo 2^48 (78 hours) |
//! | 14-17 | a digest of all that, of the frame's length, and of the tester's secret |
//!
//! The digest distinguishes a frame of this tester from any other, and one that was changed or cut
//! from one that is whole. It guards against accidents, not against somebody who forges
//! frames. What lies between the headers and the signature is not covered.

use crate::Error;
use crate::field::{put_u16, put_u32, u16_at, u32_at};

/// Octets of a signature.
pub const LEN: usize = 18;

/// The first octet of every signature.
pub const MAGIC: u8 = 0xb5;

/// Of the sequence numbers and times that a signature has room for.
const TIME_BITS: u32 = 48;

/// What a signature says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The trial's number, modulo 256.
    pub trial: u8,
    /// The stream, by which frames are counted.
    pub stream: u16,
    /// The frame's sequence number in the order of sending, of one direction, modulo 2^32.
    pub sequence: u32,
    /// When it was sent, ns since 1970 TAI, modulo 2^48.
    pub sent: u64,
}

/// The tester's secret, from which the digest is made; drawn anew by every tester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Secret(pub [u64; 2]);

impl Repr {
    /// Whether the frame `frame`, without its FCS, ends in something like a signature.
    #[inline]
    pub fn marked(frame: &[u8]) -> bool {
        frame.len() >= LEN && frame[frame.len() - LEN] == MAGIC
    }

    /// Reads the signature at the end of `frame`, without its FCS.
    ///
    /// `sent_len` is the length that the frame left with: that of `frame`, unless tags were
    /// added or taken away under way.
    ///
    /// # Errors
    /// [`Error::Truncated`]: shorter than a signature; [`Error::Type`]: it has none;
    /// [`Error::Checksum`]: of another tester, changed under way, or cut.
    #[inline]
    pub fn parse(frame: &[u8], sent_len: usize, secret: &Secret) -> Result<Repr, Error> {
        let at = frame.len().checked_sub(LEN).ok_or(Error::Truncated)?;
        let s = &frame[at..];
        if s[0] != MAGIC {
            return Err(Error::Type);
        }
        let sent = u64::from(u16_at(s, 8)) << 32 | u64::from(u32_at(s, 10));
        let repr = Repr { trial: s[1], stream: u16_at(s, 2), sequence: u32_at(s, 4), sent };
        if repr.digest(sent_len, secret) != u32_at(s, 14) {
            return Err(Error::Checksum);
        }
        Ok(repr)
    }

    /// Writes it into the last octets of `frame`, which is without its FCS.
    ///
    /// # Errors
    /// [`Error::NoRoom`]: the frame is shorter than a signature.
    #[inline]
    pub fn emit(&self, frame: &mut [u8], secret: &Secret) -> Result<(), Error> {
        let at = frame.len().checked_sub(LEN).ok_or(Error::NoRoom)?;
        let digest = self.digest(frame.len(), secret);
        let s = &mut frame[at..];
        s[0] = MAGIC;
        s[1] = self.trial;
        put_u16(s, 2, self.stream);
        put_u32(s, 4, self.sequence);
        put_u16(s, 8, (self.sent >> 32) as u16);
        put_u32(s, 10, self.sent as u32);
        put_u32(s, 14, digest);
        Ok(())
    }

    /// Two rounds of multiplication, each of which no change of a single bit survives unseen.
    #[inline]
    fn digest(&self, len: usize, secret: &Secret) -> u32 {
        let who = u64::from(MAGIC) << 56
            | u64::from(self.trial) << 48
            | u64::from(self.stream) << 32
            | u64::from(self.sequence);
        let when = self.sent << 16 | (len as u64 & 0xffff);
        let mut x = (who ^ secret.0[0]).wrapping_mul(MIX[0]);
        x ^= x >> 32;
        x = (x ^ when ^ secret.0[1]).wrapping_mul(MIX[1]);
        (x >> 32) as u32
    }
}

/// What a frame that is sent at `now` (ns TAI) says of it.
#[inline]
pub fn sent(now: i64) -> u64 {
    now as u64 & ((1 << TIME_BITS) - 1)
}

/// The latency of a frame that was received at `received` (ns TAI) and says that it was sent at
/// `sent` (modulo 2^48), ns. Right between -39 and 39 hours.
#[inline]
pub fn latency(received: u64, sent: u64) -> i64 {
    let unused = u64::BITS - TIME_BITS;
    (received.wrapping_sub(sent) << unused) as i64 >> unused
}

/// The whole sequence number of a frame, of which the signature has the low 32 bits. `near` is
/// another one no more than 2^31 away, such as the greatest so far.
#[inline]
pub fn extend(sequence: u32, near: u64) -> u64 {
    let ahead = sequence.wrapping_sub(near as u32) as i32;
    // Before the first wrap there are no sequence numbers below 0.
    near.checked_add_signed(i64::from(ahead)).unwrap_or(u64::from(sequence))
}

/// Odd, with about as many ones as zeros (2^64 by the golden ratio; a prime of xxHash).
const MIX: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn repr() -> impl Strategy<Value = Repr> {
        (any::<u8>(), any::<u16>(), any::<u32>(), 0u64..1 << TIME_BITS)
            .prop_map(|(trial, stream, sequence, sent)| Repr { trial, stream, sequence, sent })
    }

    #[test]
    fn octets_are_where_the_table_says() {
        let mut frame = [0; 20];
        let r = Repr { trial: 2, stream: 0x0304, sequence: 0x0506_0708, sent: 0x090a_0b0c_0d0e };
        r.emit(&mut frame, &Secret([1, 2])).unwrap();
        assert_eq!(frame[..16], [0, 0, MAGIC, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
    }

    #[test]
    fn frames_without_room_or_mark_are_recognised() {
        let secret = Secret([1, 2]);
        let r = Repr { trial: 0, stream: 0, sequence: 0, sent: 0 };
        assert_eq!(r.emit(&mut [0; 17], &secret), Err(Error::NoRoom));
        assert_eq!(Repr::parse(&[MAGIC; 17], 17, &secret), Err(Error::Truncated));
        assert_eq!(Repr::parse(&[0; 60], 60, &secret), Err(Error::Type));
        assert!(!Repr::marked(&[MAGIC; 17]) && Repr::marked(&[MAGIC; 18]));
    }

    #[test]
    fn numbers_go_on_past_32_bits() {
        for (sequence, near, whole) in [
            (5, 3, 5),
            (3, 5, 3),
            (0, u64::from(u32::MAX), 1 << 32),
            (u32::MAX, 1 << 32, u64::from(u32::MAX)),
            (7, (3 << 32) + 9, (3 << 32) + 7),
            (u32::MAX, 0, u64::from(u32::MAX)),
        ] {
            assert_eq!(extend(sequence, near), whole, "{sequence} near {near}");
        }
    }

    proptest! {
        #[test]
        fn parse_is_the_inverse_of_emit(r in repr(), len in LEN..200, secret: [u64; 2]) {
            let mut frame = [0; 200];
            let (frame, secret) = (&mut frame[..len], Secret(secret));
            r.emit(frame, &secret).unwrap();
            prop_assert!(Repr::marked(frame));
            prop_assert_eq!(Repr::parse(frame, len, &secret), Ok(r));
        }

        #[test]
        fn a_changed_bit_another_length_and_another_tester_are_seen(
            r in repr(), secret: [u64; 2], other: [u64; 2], bit in 8usize..LEN * 8,
        ) {
            prop_assume!(secret != other);
            let (mut frame, secret) = ([0; 60], Secret(secret));
            r.emit(&mut frame, &secret).unwrap();
            prop_assert_eq!(Repr::parse(&frame, 64, &secret), Err(Error::Checksum));
            prop_assert_eq!(Repr::parse(&frame, 60, &Secret(other)), Err(Error::Checksum));
            frame[60 - LEN + bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Repr::parse(&frame, 60, &secret), Err(Error::Checksum));
        }

        #[test]
        fn latency_survives_the_wrap_of_time(sent in 0u64..1 << 62, took in -1i64 << 46..1 << 46) {
            let received = sent.wrapping_add_signed(took);
            prop_assert_eq!(latency(received, super::sent(sent as i64)), took);
        }
    }
}
