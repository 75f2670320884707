//! Address prefixes and the autonomous systems that announce them: longest match.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sonde_wire::prefix::Prefix;

/// A table of prefixes, each with or without an AS number.
#[derive(Clone, Debug, Default)]
pub struct PrefixTable {
    v4: Family,
    v6: Family,
}

/// A line of a prefix file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the prefix file: {problem}")]
pub struct PrefixFileError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong, and what to write.
    pub problem: String,
}

/// The prefixes of one address family, by address, then by length.
#[derive(Clone, Debug, Default)]
struct Family(Vec<Entry>);

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Left-aligned.
    address: u128,
    asn: Option<u32>,
    /// The index of the longest prefix around it, or [`NONE`].
    parent: u32,
    length: u8,
}

impl PrefixTable {
    /// Reads lines of `prefix` or `prefix ASN`, such as `192.0.2.0/24 64500` (`AS64500` will
    /// do too). What follows a `#` is a comment. Of equal prefixes the last line holds.
    pub fn parse(text: &str) -> Result<Self, PrefixFileError> {
        let mut table = PrefixTable::default();
        for (i, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let mut fields = line.split_whitespace();
            let Some(prefix) = fields.next() else { continue };
            let at = |problem| PrefixFileError { line: i + 1, problem };
            let Prefix { address, bits: length } = parse_prefix(prefix).map_err(at)?;
            let asn = fields.next().map(parse_asn).transpose().map_err(at)?;
            if let Some(field) = fields.next() {
                return Err(at(format!(
                    "\"{field}\" follows the AS number: begin a comment with #"
                )));
            }
            let (family, address) = table.family_mut(address);
            family.0.push(Entry { address, asn, parent: NONE, length });
        }
        table.v4.settle();
        table.v6.settle();
        Ok(table)
    }

    pub fn len(&self) -> usize {
        self.v4.0.len() + self.v6.0.len()
    }

    /// No prefix in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The prefixes, each with the AS of its hosts: its own, else that of the longest prefix
    /// around it that has one.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, u8, Option<u32>)> {
        let v4 =
            self.v4.0.iter().map(|e| (Ipv4Addr::from((e.address >> 96) as u32).into(), e.length));
        let v6 = self.v6.0.iter().map(|e| (Ipv6Addr::from(e.address).into(), e.length));
        v4.chain(v6).map(|(address, length)| (address, length, self.as_within(address, length)))
    }

    /// The AS of the longest prefix around `address` that has one.
    pub fn as_of(&self, address: IpAddr) -> Option<u32> {
        self.as_within(address, u8::MAX)
    }

    /// The longest prefix around `address`; /24 or /48 of it when the table has none.
    pub fn prefix_of(&self, address: IpAddr) -> (IpAddr, u8) {
        self.prefix_within(address, u8::MAX)
    }

    /// [`PrefixTable::as_of`] with prefixes of at most so many bits.
    pub(super) fn as_within(&self, address: IpAddr, longest: u8) -> Option<u32> {
        let (family, address) = self.family(address);
        family.around(address).filter(|entry| entry.length <= longest).find_map(|entry| entry.asn)
    }

    /// [`PrefixTable::prefix_of`] with prefixes of at most so many bits.
    pub(super) fn prefix_within(&self, address: IpAddr, longest: u8) -> (IpAddr, u8) {
        let (family, bits) = self.family(address);
        let default = if address.is_ipv4() { DEFAULT_V4 } else { DEFAULT_V6 };
        let length = family
            .around(bits)
            .find(|entry| entry.length <= longest)
            .map_or(default, |entry| entry.length);
        let bits = bits & mask(length);
        match address {
            IpAddr::V4(_) => (Ipv4Addr::from((bits >> 96) as u32).into(), length),
            IpAddr::V6(_) => (Ipv6Addr::from(bits).into(), length),
        }
    }

    fn family(&self, address: IpAddr) -> (&Family, u128) {
        match address {
            IpAddr::V4(_) => (&self.v4, aligned(address)),
            IpAddr::V6(_) => (&self.v6, aligned(address)),
        }
    }

    fn family_mut(&mut self, address: IpAddr) -> (&mut Family, u128) {
        match address {
            IpAddr::V4(_) => (&mut self.v4, aligned(address)),
            IpAddr::V6(_) => (&mut self.v6, aligned(address)),
        }
    }
}

impl Family {
    /// Sorts, drops what a later line replaces, and links each prefix to the one around it.
    fn settle(&mut self) {
        // Stable, so equal prefixes stay in the order of their lines.
        self.0.sort_by_key(|entry| (entry.address, entry.length));
        self.0.dedup_by(|later, kept| {
            let same = (later.address, later.length) == (kept.address, kept.length);
            if same {
                kept.asn = later.asn;
            }
            same
        });
        let mut open: Vec<u32> = Vec::new();
        for i in 0..self.0.len() {
            let address = self.0[i].address;
            while open.last().is_some_and(|&o| !self.0[o as usize].holds(address)) {
                open.pop();
            }
            self.0[i].parent = open.last().copied().unwrap_or(NONE);
            open.push(i as u32);
        }
    }

    /// The prefixes around an address, longest first.
    fn around(&self, address: u128) -> impl Iterator<Item = &Entry> {
        let end = self.0.partition_point(|entry| entry.address <= address);
        let last = end.checked_sub(1).and_then(|i| self.0.get(i));
        std::iter::successors(last, |entry| self.0.get(entry.parent as usize))
            .filter(move |entry| entry.holds(address))
    }
}

impl Entry {
    fn holds(&self, address: u128) -> bool {
        (address ^ self.address) & mask(self.length) == 0
    }
}

/// A length has to be written: of a bare address it would be that of a single host.
fn parse_prefix(text: &str) -> Result<Prefix, String> {
    if !text.contains('/') {
        return Err(format!(
            "\"{text}\" has no length: write it like 192.0.2.0/24 or 2001:db8::/32"
        ));
    }
    text.parse().map_err(|problem| format!("\"{text}\": {problem}"))
}

fn parse_asn(text: &str) -> Result<u32, String> {
    let digits =
        text.get(..2).filter(|p| p.eq_ignore_ascii_case("as")).map_or(text, |_| &text[2..]);
    digits
        .parse()
        .map_err(|_| format!("\"{text}\" is no AS number: write it like 64500 or AS64500"))
}

/// The address at the top of 128 bits.
fn aligned(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
        IpAddr::V6(v6) => v6.into(),
    }
}

fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0)
}

const NONE: u32 = u32::MAX;
const DEFAULT_V4: u8 = 24;
const DEFAULT_V6: u8 = 48;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_longest_prefix_holds_and_gaps_have_defaults() {
        let table = PrefixTable::parse(
            "# ours\n10.0.0.0/8 AS64500\n10.1.0.0/16\n10.1.2.0/24 64502 # lab\n\n\
             2001:db8::/32 as64510\n2001:db8:1::/56\n10.1.2.0/24 64503\n",
        )
        .unwrap();
        assert_eq!(table.len(), 5);
        for (address, prefix, asn) in [
            ("10.9.9.9", ("10.0.0.0", 8), Some(64500)),
            ("10.1.9.9", ("10.1.0.0", 16), Some(64500)),
            ("10.1.2.9", ("10.1.2.0", 24), Some(64503)),
            ("10.1.3.0", ("10.1.0.0", 16), Some(64500)),
            ("192.0.2.77", ("192.0.2.0", 24), None),
            ("2001:db8:1::5", ("2001:db8:1::", 56), Some(64510)),
            ("2001:db8:2::5", ("2001:db8::", 32), Some(64510)),
            ("2001:db9:2:3::5", ("2001:db9:2::", 48), None),
        ] {
            assert_eq!(table.prefix_of(ip(address)), (ip(prefix.0), prefix.1), "{address}");
            assert_eq!(table.as_of(ip(address)), asn, "{address}");
        }
        assert_eq!(table.prefix_within(ip("10.1.2.9"), 23), (ip("10.1.0.0"), 16));
        let all: Vec<_> = table.iter().collect();
        assert_eq!(all.len(), table.len());
        assert_eq!(all[1], (ip("10.1.0.0"), 16, Some(64500)), "of the prefix around it");
        assert_eq!(all[2], (ip("10.1.2.0"), 24, Some(64503)));
        assert_eq!(all[4], (ip("2001:db8:1::"), 56, Some(64510)));
    }

    #[test]
    fn an_error_names_its_line_and_what_to_write() {
        for (text, line, message) in [
            ("10.0.0.0/8\n\n10.0.0.0\n", 3, "no length"),
            ("nonsense/8", 1, "not a prefix"),
            ("10.0.0.0/33", 1, "not a prefix"),
            ("::/129", 1, "not a prefix"),
            ("10.0.0.1/8", 1, "bits set after the first 8"),
            ("#\n10.0.0.0/8 x1", 2, "AS number"),
            ("10.0.0.0/8 1 2", 1, "comment"),
            ("10.0.0.0/8 é", 1, "AS number"),
        ] {
            let error = PrefixTable::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.to_string().contains(message), "{error}");
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_trying_every_prefix(
            prefixes in prop::collection::vec((any::<u16>(), 0u8..=16, any::<u32>()), 0..40),
            address in any::<u16>(),
        ) {
            // All in a small space, so that prefixes nest.
            let spread = |bits: u16, length: u8| u32::from(bits) << 16 & (mask(length) >> 96) as u32;
            let mut text = String::new();
            for &(bits, length, asn) in &prefixes {
                text += &format!("{}/{length} {asn}\n", Ipv4Addr::from(spread(bits, length)));
            }
            let table = PrefixTable::parse(&text).unwrap();
            let of = spread(address, 32);
            let best = prefixes
                .iter()
                .filter(|&&(bits, length, _)| spread(address, length) == spread(bits, length))
                .max_by_key(|&&(_, length, _)| length);
            let length = best.map_or(24, |&(_, length, _)| length);
            let expected = Ipv4Addr::from(of & (mask(length) >> 96) as u32);
            prop_assert_eq!(table.prefix_of(IpAddr::V4(of.into())), (expected.into(), length));
            // max_by_key takes the last of equals, as the table does.
            prop_assert_eq!(table.as_of(IpAddr::V4(of.into())), best.map(|&(.., asn)| asn));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,80}") {
            let _ = PrefixTable::parse(&text);
        }
    }
}
