//! Which EtherTypes frames may have. Behind one that Sonde makes no header for, octets are the
//! client's own. They could be a forged ARP reply, a frame that takes a port out of a bundle, or an
//! IP packet with unchecked addresses. So those types are sent only where the user names them.

use std::fmt;
use std::str::FromStr;

use sonde_server::otg::config::HeaderChoice;

use super::values::FieldValues;

/// An EtherType (IEEE 802.3, clause 3.2.6), as a user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtherType(pub u16);

impl FromStr for EtherType {
    type Err = String;

    fn from_str(text: &str) -> Result<EtherType, String> {
        let lower = text.to_ascii_lowercase();
        if let Some((_, value)) = NAMES.iter().find(|(name, _)| *name == lower) {
            return Ok(EtherType(*value));
        }
        let value = lower.strip_prefix("0x").and_then(|hex| u16::from_str_radix(hex, 16).ok());
        value.map(EtherType).ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|n| n.0).collect();
            format!("is no EtherType; write {}, or a value as 0x88f7", names.join(", "))
        })
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&named(self.0))
    }
}

/// The EtherType that announces a header.
pub fn announcing(next: Option<HeaderChoice>) -> u16 {
    match next {
        Some(HeaderChoice::Vlan) => 0x8100,
        Some(HeaderChoice::Mpls) => 0x8847,
        Some(HeaderChoice::Ipv4) => 0x0800,
        Some(HeaderChoice::Ipv6) => 0x86dd,
        _ => NONE,
    }
}

/// Checks the types that announce `next`, beside those of which the user has said that they may
/// be anything.
///
/// # Errors
/// One that announces what is not there.
pub fn check(
    values: &FieldValues,
    next: Option<HeaderChoice>,
    allowed: &[u16],
) -> Result<(), String> {
    let further: &[u16] = match next {
        Some(HeaderChoice::Vlan) => &TAGS,
        Some(HeaderChoice::Mpls) => &[0x8848],
        _ => &[],
    };
    let own = [announcing(next)];
    let fine = own.iter().chain(further).chain(&HARMLESS).chain(allowed);
    let mut ranges: Vec<u16> = fine.copied().collect();
    ranges.sort_unstable();
    ranges.dedup();
    match values.beyond(&ranges) {
        None => Ok(()),
        Some(other) => Err(format!(
            "0x{other:04x} announces what Sonde makes no header for and cannot check; start sonde \
             otg with --allow-ethertype {} if such frames do no harm there",
            named(other)
        )),
    }
}

fn named(value: u16) -> String {
    let name = NAMES.iter().find(|n| n.1 == value).map(|n| n.0.to_owned());
    name.unwrap_or_else(|| format!("0x{value:04x}"))
}

/// IEEE 802: reserved; nobody takes it for something else.
const NONE: u16 = 0xffff;
/// That, and those for experiments, which no product understands (IEEE 802, clause 9.2.4).
const HARMLESS: [u16; 3] = [NONE, 0x88b5, 0x88b6];
/// Of VLAN tags: IEEE 802.1Q, 802.1ad, and what came before the latter.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const NAMES: [(&str, u16); 14] = [
    ("arp", 0x0806),
    ("ipv4", 0x0800),
    ("ipv6", 0x86dd),
    ("vlan", 0x8100),
    ("qinq", 0x88a8),
    ("mpls", MPLS),
    ("lldp", 0x88cc),
    ("slow", 0x8809),
    ("pause", 0x8808),
    ("eapol", 0x888e),
    ("macsec", 0x88e5),
    ("ptp", 0x88f7),
    ("cfm", 0x8902),
    ("profinet", 0x8892),
];
/// Allows labels behind which no IP header stands.
pub const MPLS: u16 = 0x8847;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_or_given_by_value() {
        assert_eq!("ARP".parse(), Ok(EtherType(0x0806)));
        assert_eq!("0x88F7".parse(), Ok(EtherType(0x88f7)));
        for bad in ["", "2054", "0x1ffff", "arpp"] {
            assert!(bad.parse::<EtherType>().unwrap_err().contains("lldp"), "{bad}");
        }
    }

    #[test]
    fn a_type_announces_the_header_behind_it_or_must_be_allowed() {
        let one = |value: u16| FieldValues::One(value.into());
        let (v4, raw) = (Some(HeaderChoice::Ipv4), None);
        assert_eq!(check(&one(0x0800), v4, &[]), Ok(()));
        assert_eq!(check(&one(0x88a8), Some(HeaderChoice::Vlan), &[]), Ok(()));
        assert_eq!(check(&one(0xffff), raw, &[]), Ok(()));
        assert_eq!(check(&one(0x88b5), raw, &[]), Ok(()));
        let arp = check(&one(0x0806), raw, &[]).unwrap_err();
        assert!(arp.contains("0x0806") && arp.contains("--allow-ethertype arp"), "{arp}");
        assert_eq!(check(&one(0x0806), raw, &[0x0806]), Ok(()));
        // A whole packet of the client's own, and a header under another name.
        assert!(check(&one(0x0800), raw, &[]).is_err());
        assert!(check(&one(0x86dd), v4, &[]).is_err());
        let listed = FieldValues::List([0xffff, 0x88cc].into());
        assert!(check(&listed, raw, &[]).unwrap_err().contains("lldp"));
        // Steps that pass what is forbidden, the one at the end alone included.
        let steps =
            |start, step: u128, count| FieldValues::Steps { start, step, count, mask: 0xffff };
        assert_eq!(check(&steps(0x88b5, 1, 2), raw, &[]), Ok(()));
        assert!(check(&steps(0x88b5, 1, 3), raw, &[]).unwrap_err().contains("0x88b7"));
        assert_eq!(check(&steps(0x88b6, 1u128.wrapping_neg(), 2), raw, &[]), Ok(()));
        assert!(check(&steps(0xffff, 0x0807, u64::MAX), raw, &[]).is_err());
    }
}
