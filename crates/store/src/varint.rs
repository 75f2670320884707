//! Integers of variable length (LEB128), signed ones zigzag.

/// Appends `value`, seven bits an octet, the lowest first.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed value: 0, -1, 1, -2 are 0, 1, 2, 3.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i128) {
    put(out, ((value << 1) ^ (value >> 127)) as u128);
}

/// Takes a value off the front. `None`: cut short, or wider than 128 bits.
pub(crate) fn take(from: &mut &[u8]) -> Option<u128> {
    let mut value = 0u128;
    for (i, &octet) in from.iter().enumerate() {
        let (shift, bits) = (7 * i as u32, u128::from(octet & 0x7F));
        if shift >= 128 || bits << shift >> shift != bits {
            return None;
        }
        value |= bits << shift;
        if octet < 0x80 {
            *from = &from[i + 1..];
            return Some(value);
        }
    }
    None
}

/// Takes a value of at most 64 bits off the front.
pub(crate) fn take_u64(from: &mut &[u8]) -> Option<u64> {
    let value = match from {
        // Nearly all are of one octet.
        [octet, rest @ ..] if *octet < 0x80 => {
            let value = u64::from(*octet);
            *from = rest;
            return Some(value);
        }
        _ => take(from)?,
    };
    u64::try_from(value).ok()
}

/// Takes a signed value off the front.
pub(crate) fn take_signed(from: &mut &[u8]) -> Option<i128> {
    let value = take(from)?;
    Some((value >> 1) as i128 ^ -((value & 1) as i128))
}

/// Takes a signed value of at most 64 bits off the front.
pub(crate) fn take_i64(from: &mut &[u8]) -> Option<i64> {
    i64::try_from(take_signed(from)?).ok()
}

/// Takes the step to the next bucket off the front: the first one is signed, the others ascend.
pub(crate) fn take_i64_step(from: &mut &[u8], first: bool) -> Option<i64> {
    match first {
        true => take_i64(from),
        false => i64::try_from(take_u64(from)?).ok(),
    }
}

/// Takes `n` octets off the front.
pub(crate) fn take_bytes<'a>(from: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, rest) = from.split_at_checked(n)?;
    *from = rest;
    Some(head)
}

/// Appends octets after their number.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u128);
    out.extend_from_slice(bytes);
}

/// Takes octets that stand after their number.
pub(crate) fn take_counted<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let n = usize::try_from(take_u64(from)?).ok()?;
    take_bytes(from, n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_is_taken(values in prop::collection::vec(any::<i128>(), 0..20), shift in 0u32..127) {
            let mut out = Vec::new();
            for &v in &values {
                put_signed(&mut out, v >> shift);
                put(&mut out, (v >> shift) as u128);
            }
            let mut from = &out[..];
            for &v in &values {
                prop_assert_eq!(take_signed(&mut from), Some(v >> shift));
                prop_assert_eq!(take(&mut from), Some((v >> shift) as u128));
            }
            prop_assert!(from.is_empty() && take(&mut from).is_none());
        }

        #[test]
        fn arbitrary_octets_do_no_harm(octets in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut from = &octets[..];
            while take_signed(&mut from).is_some() {}
            let mut from = &octets[..];
            while take_counted(&mut from).is_some() {}
        }
    }
}
