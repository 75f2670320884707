//! Known segments, malformed options, and the inverse of emit.

use super::*;
use proptest::prelude::*;

extern crate std;
use std::vec::Vec;

fn options() -> impl Strategy<Value = Options> {
    let block = any::<(u32, u32)>();
    (
        any::<Option<u16>>(),
        any::<Option<u8>>(),
        any::<bool>(),
        any::<Option<(u32, u32)>>(),
        proptest::collection::vec(block, 0..=MAX_SACK_BLOCKS),
    )
        .prop_map(|(size, shift, sack_permitted, timestamps, blocks)| Options {
            maximum_segment_size: size,
            window_scale: shift,
            sack_permitted,
            timestamps,
            sack: SackBlocks::new(&blocks).unwrap(),
        })
}

/// A SYN of Linux: its options fill 20 octets without a gap.
#[test]
fn known_syn() {
    let repr = Repr {
        source_port: 0xC001,
        destination_port: 443,
        seq: 0x0102_0304,
        flags: SYN | ECE | CWR,
        window: 64_240,
        options: Options {
            maximum_segment_size: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some((0x1122_3344, 0)),
            sack: SackBlocks::default(),
        },
        ..Repr::default()
    };
    let bytes = [
        0xC0, 0x01, 0x01, 0xBB, 1, 2, 3, 4, 0, 0, 0, 0, 0xA0, 0xC2, 0xFA, 0xF0, 0, 0, 0, 0, //
        2, 4, 5, 0xB4, 4, 2, 8, 10, 0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0, 1, 3, 3, 7,
    ];
    let packet = Packet::new_checked(&bytes).unwrap();
    assert_eq!(Repr::parse(&packet), Ok(repr));
    let mut again = [0xEE; 40];
    assert_eq!(repr.emit(&mut again), Ok(40));
    assert_eq!(again, bytes);
    assert_eq!(scan(&bytes[20..]), Ok((Some((0x1122_3344, 0)), false)));
}

/// The sum of all words by hand, pseudo-header first.
#[test]
fn known_checksum() {
    let v4 = |last| IpAddr::from([192, 0, 2, last]);
    let repr = Repr { source_port: 1, destination_port: 2, seq: 3, ..Repr::default() };
    let mut bytes = [0; 21];
    repr.emit(&mut bytes).unwrap();
    bytes[20] = 0x48;
    let words = [0xC000u32, 0x0201, 0xC000, 0x0202, 6, 21, 1, 2, 3, 0x5000, 0x4800];
    let mut packet = Packet::new_checked(&mut bytes[..]).unwrap();
    packet.fill_checksum(v4(1), v4(2)).unwrap();
    assert_eq!(packet.checksum(), checksum::finish(words.iter().sum()));
    assert!(packet.verify_checksum(v4(1), v4(2)));
    assert!(!packet.verify_checksum(v4(1), v4(3)));
    let v6 = IpAddr::V6(core::net::Ipv6Addr::LOCALHOST);
    assert!(!packet.verify_checksum(v4(1), v6));
    assert_eq!(packet.fill_checksum(v4(1), v6), Err(Error::AddressFamily));
    packet.fill_checksum(v6, v6).unwrap();
    assert!(packet.verify_checksum(v6, v6));
}

#[test]
fn lying_data_offsets() {
    let mut bytes = [0; 24];
    for (offset, error) in [(0x40, Error::Length), (0x70, Error::Truncated)] {
        bytes[12] = offset;
        assert_eq!(Packet::new_checked(&bytes).err(), Some(error));
    }
    bytes[12] = 0x50;
    assert_eq!(Packet::new_checked(&bytes).unwrap().payload().len(), 4);
    assert_eq!(Packet::new_checked(&bytes[..19]).err(), Some(Error::Truncated));
}

#[test]
fn options_anywhere_and_malformed_ones() {
    let stamps = [8, 10, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 1];
    let found = (Some((u32::MAX, 1)), false);
    for before in [&[][..], &[1], &[1, 1], &[1, 1, 1], &[2, 4, 5, 0xB4, 4, 2], &[254, 3, 9]] {
        let mut options = before.to_vec();
        options.extend(stamps);
        assert_eq!(scan(&options), Ok(found), "{before:?}");
        options.extend([5, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(scan(&options), Ok((found.0, true)), "{before:?}");
        // What follows the end of the list is not looked at.
        options.extend([0, 9, 0]);
        assert_eq!(scan(&options), Ok((found.0, true)), "{before:?}");
    }
    for (bad, error) in [
        (&[8u8][..], Error::Truncated),
        (&[8, 0, 1], Error::Length),
        (&[8, 1, 1], Error::Length),
        (&[8, 10, 0, 0, 0, 0, 0, 0, 0], Error::Truncated),
        (&[1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 5, 11, 1], Error::Truncated),
    ] {
        assert_eq!(scan(bad), Err(error), "{bad:?}");
    }
    // Of a wrong length, but within the header: another option, as far as is known.
    assert_eq!(scan(&[8, 6, 0, 0, 0, 0, 5, 2, 5, 3, 0]), Ok((None, false)));
}

#[test]
fn no_more_than_ten_options_are_looked_at() {
    let stamps = [8, 10, 0, 0, 0, 5, 0, 0, 0, 6];
    for (padding, found) in [(9, Some((5, 6))), (10, None), (30, None)] {
        let mut options = std::vec![NOP; padding];
        options.extend(stamps);
        assert_eq!(scan(&options), Ok((found, false)), "{padding}");
    }
    // The padding of the usual layout counts too.
    let sack = [5, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    for (padding, found) in [(6, true), (7, false)] {
        let mut options = std::vec![NOP; 2];
        options.extend(stamps);
        options.extend(std::iter::repeat_n(NOP, padding));
        options.extend(sack);
        assert_eq!(scan(&options), Ok((Some((5, 6)), found)), "{padding}");
    }
}

proptest! {
    #[test]
    fn parse_is_the_inverse_of_emit(
        ports: (u16, u16), seq: u32, ack: u32, flags: u8, window: u16, urgent: u16,
        options in options(), payload: Vec<u8>,
    ) {
        let repr = Repr {
            source_port: ports.0, destination_port: ports.1,
            seq, ack, flags, window, urgent, options,
        };
        let mut bytes = [0xEE; MAX_HEADER_LEN];
        match repr.emit(&mut bytes) {
            Err(error) => {
                prop_assert_eq!(error, Error::Range);
                prop_assert!(repr.buffer_len() > MAX_HEADER_LEN);
            }
            Ok(len) => {
                prop_assert_eq!(len, repr.buffer_len());
                prop_assert_eq!(repr.emit(&mut bytes[..len - 1]), Err(Error::NoRoom));
                repr.emit(&mut bytes).unwrap();
                let mut whole = bytes[..len].to_vec();
                whole.extend(&payload);
                let packet = Packet::new_checked(&whole).unwrap();
                prop_assert_eq!(Repr::parse(&packet), Ok(repr));
                prop_assert_eq!(packet.payload(), payload);
                let sack = !options.sack.as_slice().is_empty();
                prop_assert_eq!(scan(&bytes[HEADER_LEN..len]), Ok((options.timestamps, sack)));
            }
        }
    }

    /// The way of a segment that begins with timestamps is the way of all others, sooner.
    #[test]
    fn the_fast_path_finds_what_the_walk_finds(
        rest in proptest::collection::vec(0u8..12, 0..=28), value: u32,
    ) {
        let mut options = std::vec![NOP, NOP, TIMESTAMPS, 10];
        options.extend(value.to_be_bytes());
        options.extend([0; 4]);
        options.extend(&rest);
        let mut timestamps = None;
        let mut sack = false;
        let mut bad = None;
        for option in (OptionIter { rest: &options }).take(MAX_OPTIONS) {
            match option {
                Ok(TcpOption::Timestamps(v, e)) => timestamps = Some((v, e)),
                Ok(TcpOption::Sack(_)) => sack = true,
                Ok(_) => {}
                Err(error) => bad = Some(error),
            }
        }
        prop_assert_eq!(scan(&options), bad.map_or(Ok((timestamps, sack)), Err));
    }

    #[test]
    fn never_panics(bytes: Vec<u8>, s: [u8; 4]) {
        let _ = scan(&bytes);
        if let Ok(packet) = Packet::new_checked(&bytes) {
            let _ = Repr::parse(&packet);
            let _ = packet.verify_checksum(s.into(), s.into());
        }
    }
}
