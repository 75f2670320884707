//! Messages of SNMP in BER, as far as notifications need it (RFC 3417, section 8; X.690).

/// A value of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnmpValue {
    /// INTEGER.
    Integer(i32),
    /// Gauge32 or Unsigned32.
    Unsigned(u32),
    /// Hundredths of a second.
    TimeTicks(u32),
    /// OCTET STRING.
    Octets(Vec<u8>),
    /// OBJECT IDENTIFIER.
    Oid(Vec<u32>),
}

impl SnmpValue {
    fn encoded(&self) -> Vec<u8> {
        match self {
            SnmpValue::Integer(n) => integer(INTEGER, i64::from(*n)),
            SnmpValue::Unsigned(n) => integer(UNSIGNED, i64::from(*n)),
            SnmpValue::TimeTicks(n) => integer(TIME_TICKS, i64::from(*n)),
            SnmpValue::Octets(octets) => element(OCTETS, octets),
            SnmpValue::Oid(oid) => object_identifier(oid),
        }
    }
}

/// SNMPv2-Trap-PDU (RFC 3416, section 4.2.6).
pub fn trap_pdu(request: i32, objects: &[(Vec<u32>, SnmpValue)]) -> Vec<u8> {
    let bound =
        objects.iter().map(|(oid, value)| sequence(&[object_identifier(oid), value.encoded()]));
    let objects = sequence(&bound.collect::<Vec<_>>());
    let zero = integer(INTEGER, 0);
    element(TRAP, &[integer(INTEGER, i64::from(request)), zero.clone(), zero, objects].concat())
}

/// A message of version 2c (RFC 1901, section 3).
pub fn community_message(community: &str, pdu: &[u8]) -> Vec<u8> {
    sequence(&[integer(INTEGER, 1), element(OCTETS, community.as_bytes()), pdu.to_vec()])
}

/// SEQUENCE.
pub fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    element(SEQUENCE, &parts.concat())
}

/// OCTET STRING.
pub fn octets(octets: &[u8]) -> Vec<u8> {
    element(OCTETS, octets)
}

/// INTEGER.
pub fn number(n: i32) -> Vec<u8> {
    integer(INTEGER, i64::from(n))
}

fn integer(tag: u8, n: i64) -> Vec<u8> {
    let octets = n.to_be_bytes();
    // The shortest in which the first nine bits are not alike.
    let alike =
        |pair: &[u8]| (pair[0] == 0 && pair[1] < 0x80) || (pair[0] == 0xff && pair[1] >= 0x80);
    let skipped = octets.windows(2).take_while(|pair| alike(pair)).count();
    element(tag, &octets[skipped..])
}

fn object_identifier(oid: &[u32]) -> Vec<u8> {
    let (first, rest) = match oid {
        [first, second, rest @ ..] => (first * 40 + second, rest),
        _ => (0, &[][..]),
    };
    let mut octets = Vec::new();
    for &number in [first].iter().chain(rest) {
        let groups = (0..5).rev().map(|at| (number >> (7 * at)) as u8 & 0x7f);
        let mut groups: Vec<u8> = groups.skip_while(|group| *group == 0).collect();
        if groups.is_empty() {
            groups.push(0);
        }
        let last = groups.len() - 1;
        groups[..last].iter_mut().for_each(|group| *group |= 0x80);
        octets.extend(groups);
    }
    element(OBJECT_IDENTIFIER, &octets)
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        length @ 0..0x80 => out.push(length as u8),
        length @ 0x80..0x100 => out.extend([0x81, length as u8]),
        length => out.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    out.extend(content);
    out
}

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const UNSIGNED: u8 = 0x42;
const TIME_TICKS: u8 = 0x43;
const TRAP: u8 = 0xa7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_octets_of_the_standard() {
        let of = |value: SnmpValue| value.encoded();
        assert_eq!(of(SnmpValue::Integer(0)), [2, 1, 0]);
        assert_eq!(of(SnmpValue::Integer(127)), [2, 1, 0x7f]);
        assert_eq!(of(SnmpValue::Integer(128)), [2, 2, 0, 0x80]);
        assert_eq!(of(SnmpValue::Integer(-128)), [2, 1, 0x80]);
        assert_eq!(of(SnmpValue::Integer(-129)), [2, 2, 0xff, 0x7f]);
        assert_eq!(of(SnmpValue::Unsigned(u32::MAX)), [0x42, 5, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(of(SnmpValue::TimeTicks(256)), [0x43, 2, 1, 0]);
        // X.690, section 8.19.5: {2 999 3}.
        assert_eq!(of(SnmpValue::Oid(vec![2, 999, 3])), [6, 3, 0x88, 0x37, 3]);
        assert_eq!(
            of(SnmpValue::Oid(vec![1, 3, 0, u32::MAX])),
            [6, 7, 0x2b, 0, 0x8f, 0xff, 0xff, 0xff, 0x7f]
        );
        assert_eq!(of(SnmpValue::Octets(vec![7; 127]))[..3], [4, 127, 7]);
        assert_eq!(of(SnmpValue::Octets(vec![7; 200]))[..4], [4, 0x81, 200, 7]);
        assert_eq!(of(SnmpValue::Octets(vec![7; 300]))[..5], [4, 0x82, 1, 44, 7]);
    }

    #[test]
    fn a_message_of_version_2c_is_octet_by_octet() {
        // sysUpTime.0 = 1, by hand.
        let objects = [(vec![1, 3, 6, 1, 2, 1, 1, 3, 0], SnmpValue::TimeTicks(1))];
        let wanted = [
            0x30, 0x27, 2, 1, 1, 4, 6, b'p', b'u', b'b', b'l', b'i',
            b'c', // version, community
            0xa7, 0x1a, 2, 1, 5, 2, 1, 0, 2, 1, 0, // request, no error
            0x30, 0x0f, 0x30, 0x0d, 6, 8, 0x2b, 6, 1, 2, 1, 1, 3, 0, 0x43, 1, 1,
        ];
        let message = community_message("public", &trap_pdu(5, &objects));
        assert_eq!(message, wanted);
    }
}
