//! MD5 checksums of the messages in IPFIX files (RFC 5655, section 8.1.1): a record of
//! options in each message. They find what a disk has changed; they are no protection
//! against people.

use md5::{Digest as _, Md5};
use sonde_wire::ipfix::element as ie;
use sonde_wire::ipfix::record::Record;
use sonde_wire::ipfix::{Header, OPTIONS_TEMPLATE_SET, set_sequence};

/// Puts checksums into messages on their way into a file.
#[derive(Debug, Default)]
pub struct Checksums {
    /// Records put in so far, by domain: sequence numbers count them.
    added: Vec<(u32, u32)>,
    message: Vec<u8>,
}

impl Checksums {
    /// How much longer a message may become, bytes.
    pub const ADDED: usize = TEMPLATE_SET_LEN + DATA_SET_LEN;

    /// The message with its checksum, and in a domain's first one the template before it. It
    /// must be one of the exporter's and have room for [`Checksums::ADDED`] bytes.
    pub fn seal(&mut self, message: &[u8]) -> &[u8] {
        let sealed = &mut self.message;
        sealed.clear();
        sealed.extend_from_slice(message);
        let Ok(Header { domain, sequence, .. }) = Header::parse(message) else { return sealed };
        let known = self.added.iter_mut().find(|(of, _)| *of == domain);
        let before = match known {
            Some((_, added)) => {
                *added = added.wrapping_add(1);
                added.wrapping_sub(1)
            }
            None => {
                self.added.push((domain, 1));
                put_fields(
                    sealed,
                    &[OPTIONS_TEMPLATE_SET, TEMPLATE_SET_LEN as u16, TEMPLATE, 2, 1],
                );
                put_fields(sealed, &[ie::MESSAGE_SCOPE.id, 1, ie::MESSAGE_MD5_CHECKSUM.id, 16]);
                0
            }
        };
        put_fields(sealed, &[TEMPLATE, DATA_SET_LEN as u16]);
        // The scope is the message; its value is always 0 and says nothing.
        sealed.push(0);
        let at = sealed.len();
        sealed.extend_from_slice(&[0; 16]);
        let length = sealed.len() as u16;
        sealed[2..4].copy_from_slice(&length.to_be_bytes());
        // It has a header, which was read above.
        let _ = set_sequence(sealed, sequence.wrapping_add(before));
        let sum = Md5::digest(&*sealed);
        sealed[at..].copy_from_slice(&sum);
        sealed
    }
}

fn put_fields(bytes: &mut Vec<u8>, fields: &[u16]) {
    fields.iter().for_each(|field| bytes.extend_from_slice(&field.to_be_bytes()));
}

/// Whether the checksum in a record of this message is right; `None`: it holds none.
pub(super) fn is_right(message: &[u8], record: &Record<'_, '_>) -> Option<bool> {
    let is_sum = |id| (0, ie::MESSAGE_MD5_CHECKSUM.id) == id;
    let value = record.values().find(|(f, _)| is_sum((f.enterprise, f.id)))?.1;
    if value.len() != 16 {
        return Some(false);
    }
    // The record is a part of the message.
    let at = (value.as_ptr() as usize).wrapping_sub(message.as_ptr() as usize);
    let (head, tail) = (message.get(..at)?, message.get(at + 16..)?);
    let sum = Md5::new().chain_update(head).chain_update([0; 16]).chain_update(tail).finalize();
    Some(sum[..] == *value)
}

/// The template's id: none of the exporter's, which begin at 256 and are about 1,000.
const TEMPLATE: u16 = u16::MAX;
const TEMPLATE_SET_LEN: usize = 18;
const DATA_SET_LEN: usize = 21;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Decoder;
    use crate::export::tests::{formats::config, sample};

    /// A message without records, domain 7, sealed twice; the sums are by Python's hashlib.
    #[test]
    fn known_values() {
        let message = [0, 10, 0, 16, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 7];
        let mut checksums = Checksums::default();
        let first = checksums.seal(&message).to_vec();
        assert_eq!(first.len(), 16 + Checksums::ADDED);
        assert_eq!(first[8..12], [0, 0, 0, 5]);
        let set = [0, 3, 0, 18, 255, 255, 0, 2, 0, 1, 1, 7, 0, 1, 1, 6, 0, 16, 255, 255, 0, 21, 0];
        assert_eq!(first[16..39], set);
        assert_eq!(first[39..], FIRST.to_be_bytes());
        let second = checksums.seal(&message);
        assert_eq!((second.len(), &second[8..12]), (37, &[0, 0, 0, 6][..]));
        assert_eq!(second[21..], SECOND.to_be_bytes());
    }

    const FIRST: u128 = 0xFF4C04A8_ABCD0509_5DD906B4_FFEFE885;
    const SECOND: u128 = 0x31D717E9_77DA3E98_270B9BF4_22172832;

    #[test]
    fn every_changed_octet_is_found() {
        let mut random = sample::Random(21);
        let records: Vec<_> = (0..40).map(|_| random.record()).collect();
        let (_, messages) = sample::export(&config(Default::default()), &records);
        let mut checksums = Checksums::default();
        let sealed: Vec<_> = messages.iter().map(|m| checksums.seal(m).to_vec()).collect();
        sample::assert_same(&sample::read(&sealed), &sample::read(&messages));
        let malformed = |message: &[u8]| {
            let mut decoder = Decoder::new(37);
            decoder.message(message, &mut |_| ());
            decoder.counters().malformed
        };
        assert_eq!(malformed(&sealed[0]), 0);
        // Behind the header, up to the checksum's own template: what is changed there may
        // make it unreadable.
        let mut changed = sealed[0].clone();
        for at in 16..changed.len() - Checksums::ADDED {
            changed[at] ^= 4;
            let mut decoder = Decoder::new(37);
            decoder.message(&changed, &mut |_| ());
            let c = decoder.counters();
            assert!(c.malformed + c.no_template + c.not_flows > 0, "octet {at}");
            changed[at] ^= 4;
        }
        let last = changed.len() - 1;
        changed[last] ^= 1;
        assert_eq!(malformed(&changed), 1);
    }
}
