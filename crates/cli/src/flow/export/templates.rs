//! The templates of a stream of IPFIX messages, to be told to a collector that begins in
//! its middle.

use sonde_wire::ipfix::{HEADER_LEN, Header, Message};

/// All template sets so far, each once.
#[derive(Clone, Debug, Default)]
pub struct Templates {
    sets: Vec<Vec<u8>>,
    domain: u32,
}

impl Templates {
    /// Notes the template sets of a message that are new.
    pub fn note(&mut self, message: &[u8]) {
        let Ok(message) = Message::new_checked(message) else { return };
        self.domain = message.header.domain;
        for set in message.sets().flatten() {
            if is_template(set.id) {
                let mut whole = Vec::with_capacity(set.body.len() + 4);
                whole.extend_from_slice(&set.id.to_be_bytes());
                whole.extend_from_slice(&((set.body.len() + 4) as u16).to_be_bytes());
                whole.extend_from_slice(set.body);
                if !self.sets.contains(&whole) {
                    self.sets.push(whole);
                }
            }
        }
    }

    /// A message of all of them, to go before data record `sequence`; empty if there are none.
    pub fn message(&self, sequence: u32, export_time: u32) -> Vec<u8> {
        let body: usize = self.sets.iter().map(Vec::len).sum();
        let mut message = vec![0; HEADER_LEN];
        let header = match u16::try_from(body + HEADER_LEN) {
            Ok(length) if body > 0 => Header { length, export_time, sequence, domain: self.domain },
            _ => return Vec::new(),
        };
        if header.emit(&mut message).is_err() {
            return Vec::new();
        }
        self.sets.iter().for_each(|set| message.extend_from_slice(set));
        message
    }

    /// Whether a message holds templates and nothing else.
    #[cfg(test)]
    pub fn is_only(message: &[u8]) -> bool {
        Message::new_checked(message)
            .is_ok_and(|m| m.sets().all(|s| s.is_ok_and(|s| is_template(s.id))))
    }
}

/// Template sets and options template sets (RFC 7011, section 3.3.2).
fn is_template(set: u16) -> bool {
    matches!(set, 2 | 3)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A message with a template of one field.
    pub fn template() -> Vec<u8> {
        message(0, &[0, 2, 0, 12, 1, 0, 0, 1, 0, 4, 0, 1])
    }

    /// A message with a data record, number `i`.
    pub fn data(i: u32) -> Vec<u8> {
        message(i, &[1, 0, 0, 5, 17])
    }

    fn message(sequence: u32, set: &[u8]) -> Vec<u8> {
        let length = (HEADER_LEN + set.len()) as u16;
        let mut message = vec![0; HEADER_LEN];
        Header { length, export_time: 1, sequence, domain: 7 }.emit(&mut message).unwrap();
        message.extend_from_slice(set);
        message
    }

    #[test]
    fn each_template_is_told_once() {
        let mut templates = Templates::default();
        assert!(templates.message(0, 1).is_empty());
        for message in [template(), data(0), template()] {
            templates.note(&message);
        }
        assert_eq!(templates.message(0, 1), template());
        assert!(Templates::is_only(&template()) && !Templates::is_only(&data(0)));
    }
}
