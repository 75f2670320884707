//! The user-based security model of version 3 (RFC 3414), with HMAC-SHA-256 (RFC 7860) and AES-128
//! (RFC 3826). The sender of a notification is the engine whose clock counts.

use aes::Aes128;
use cfb_mode::Encryptor;
use cfb_mode::cipher::KeyIvInit as _;
use ring::{digest, hmac};

use super::ber::{number, octets, sequence};
use crate::alert::secret::SecretText;

/// A user, and the engine that is the station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsmUser {
    /// `msgUserName`.
    pub name: String,
    /// `snmpEngineID` of the station.
    pub engine: Vec<u8>,
    /// The passphrase to sign.
    pub auth: SecretText,
    /// The passphrase to encrypt; `None`: nothing is.
    pub privacy: Option<SecretText>,
}

/// Keys of a user on one engine.
pub struct UsmKeys {
    name: String,
    engine: Vec<u8>,
    auth: hmac::Key,
    privacy: Option<[u8; 16]>,
}

/// What differs between messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsmMoment {
    /// How often the engine has started.
    pub boots: i32,
    /// Seconds since it last did.
    pub time: i32,
    /// `msgID`.
    pub message: i32,
    /// Never the same twice with the same key, `boots` and `time`.
    pub salt: u64,
}

impl UsmKeys {
    /// Takes a megabyte of hashing for each passphrase (RFC 3414, section 2.6).
    pub fn new(user: &UsmUser) -> UsmKeys {
        let auth = localized(user.auth.expose(), &user.engine);
        let privacy = user.privacy.as_ref().map(|phrase| {
            let mut key = [0; 16];
            key.copy_from_slice(&localized(phrase.expose(), &user.engine)[..16]);
            key
        });
        UsmKeys {
            name: user.name.clone(),
            engine: user.engine.clone(),
            auth: hmac::Key::new(hmac::HMAC_SHA256, &auth),
            privacy,
        }
    }

    /// A message around `pdu`.
    pub fn message(&self, moment: &UsmMoment, pdu: &[u8]) -> Vec<u8> {
        let scoped = sequence(&[octets(&self.engine), octets(b""), pdu.to_vec()]);
        let (data, salt) = match &self.privacy {
            None => (scoped, Vec::new()),
            Some(key) => {
                let salt = moment.salt.to_be_bytes();
                let mut iv = [0; 16];
                iv[..4].copy_from_slice(&moment.boots.to_be_bytes());
                iv[4..8].copy_from_slice(&moment.time.to_be_bytes());
                iv[8..].copy_from_slice(&salt);
                let mut sealed = scoped;
                Encryptor::<Aes128>::new(key.into(), &iv.into()).encrypt(&mut sealed);
                (octets(&sealed), salt.to_vec())
            }
        };
        let flags = if self.privacy.is_some() { 3 } else { 1 };
        let with = |tag: &[u8]| {
            let security = sequence(&[
                octets(&self.engine),
                number(moment.boots),
                number(moment.time),
                octets(self.name.as_bytes()),
                octets(tag),
                octets(&salt),
            ]);
            let header = sequence(&[
                number(moment.message),
                number(SIZE_MOST),
                octets(&[flags]),
                number(USER_BASED),
            ]);
            sequence(&[number(VERSION_3), header, octets(&security), data.clone()])
        };
        // Signed with zeros in the place of the tag (RFC 3414, section 6.3.1).
        let tag = hmac::sign(&self.auth, &with(&[0; TAG]));
        with(&tag.as_ref()[..TAG])
    }
}

/// RFC 3414, sections 2.6 and A.2, with SHA-256.
fn localized(phrase: &str, engine: &[u8]) -> Vec<u8> {
    let all: Vec<u8> = phrase.bytes().cycle().take(1 << 20).collect();
    let key = digest::digest(&digest::SHA256, &all);
    let local = [key.as_ref(), engine, key.as_ref()].concat();
    digest::digest(&digest::SHA256, &local).as_ref().to_vec()
}

/// Of a passphrase, octets (RFC 3414, section 11.2).
pub const PHRASE_LEAST: usize = 8;
const VERSION_3: i32 = 3;
const USER_BASED: i32 = 3;
/// What the station would take: the least that each engine has to.
const SIZE_MOST: i32 = 1_472;
/// Octets of usmHMAC192SHA256AuthProtocol's tag.
const TAG: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use cfb_mode::Decryptor;
    use sonde_results::units::format_hex;

    fn user(privacy: bool) -> UsmUser {
        UsmUser {
            name: "sonde".into(),
            engine: vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
            auth: SecretText::new("maplesyrup"),
            privacy: privacy.then(|| SecretText::new("syrupmaple")),
        }
    }

    #[test]
    fn a_key_belongs_to_its_engine() {
        // The passphrase and engine of RFC 3414, section A.3, by Python's hashlib.
        let wanted = "8982e0e549e866db361a6b625d84cccc11162d453ee8ce3a6445c2d6776f0f8b";
        assert_eq!(format_hex(&localized("maplesyrup", &user(false).engine)), wanted);
    }

    const MOMENT: UsmMoment =
        UsmMoment { boots: 3, time: 77, message: 9, salt: 0x0102_0304_0506_0708 };

    #[test]
    fn a_message_is_signed_over_all_of_it() {
        let message = UsmKeys::new(&user(false)).message(&MOMENT, &[0xa7, 0]);
        // By Python's hmac over a message that was put together by hand.
        assert_eq!(
            format_hex(&message),
            "3061020103300d020109020205c004010102010304393037040c00000000000000000000000202010302014d\
            0405736f6e646504182fc9b912b03af72bb0b56b3faba2653770d135b97f91eb8904003012040c0000000000\
            000000000000020400a700"
        );
    }

    #[test]
    fn what_is_encrypted_is_read_with_the_key_alone() {
        let keys = UsmKeys::new(&user(true));
        let message = keys.message(&MOMENT, &[0xa7, 0]);
        let scoped = sequence(&[octets(&keys.engine), octets(b""), vec![0xa7, 0]]);
        let mut sealed = message[message.len() - scoped.len()..].to_vec();
        assert_ne!(sealed, scoped);
        let iv = [0, 0, 0, 3, 0, 0, 0, 77, 1, 2, 3, 4, 5, 6, 7, 8];
        let key = keys.privacy.unwrap();
        Decryptor::<Aes128>::new(&key.into(), &iv.into()).decrypt(&mut sealed);
        assert_eq!(sealed, scoped);
        assert!(format_hex(&message).contains("04080102030405060708"));
    }
}
