//! Names of IP protocols (IANA, Assigned Internet Protocol Numbers).

/// The name of a protocol that is met often: "TCP" for 6.
pub fn name(protocol: u8) -> Option<&'static str> {
    NAMES.iter().find(|(number, _)| *number == protocol).map(|(_, name)| *name)
}

/// The protocol number of a [`name`], in capitals or not.
pub fn number(name: &str) -> Option<u8> {
    NAMES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(number, _)| *number)
}

const NAMES: [(u8, &str); 7] =
    [(1, "ICMP"), (6, "TCP"), (17, "UDP"), (47, "GRE"), (50, "ESP"), (58, "ICMPv6"), (132, "SCTP")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_its_number_belong_together() {
        assert_eq!((name(6), name(58), name(4)), (Some("TCP"), Some("ICMPv6"), None));
        assert_eq!((number("udp"), number("SCTP"), number("tcpp")), (Some(17), Some(132), None));
        let named = (0..=u8::MAX).filter_map(|protocol| Some((protocol, name(protocol)?)));
        assert!(named.clone().all(|(protocol, name)| number(name) == Some(protocol)));
        assert_eq!(named.count(), NAMES.len());
    }
}
