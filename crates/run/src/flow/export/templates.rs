//! The templates of a stream of IPFIX messages, to be repeated to a collector that begins
//! in its middle.

use sonde_wire::ipfix::{HEADER_LEN, Header, Message};

/// All template sets so far, each once, by observation domain.
#[derive(Clone, Debug, Default)]
pub struct TemplateSets {
    sets: Vec<(u32, Vec<u8>)>,
}

impl TemplateSets {
    /// Notes the template sets of a message that are new.
    pub fn note(&mut self, message: &[u8]) {
        let Ok(message) = Message::new_checked(message) else { return };
        for set in message.sets().flatten() {
            if is_template(set.id) {
                let mut whole = Vec::with_capacity(set.body.len() + 4);
                whole.extend_from_slice(&set.id.to_be_bytes());
                whole.extend_from_slice(&((set.body.len() + 4) as u16).to_be_bytes());
                whole.extend_from_slice(set.body);
                let entry = (message.header.domain, whole);
                if !self.sets.contains(&entry) {
                    self.sets.push(entry);
                }
            }
        }
    }

    /// Messages with the templates of `domain`, to go before its data record `sequence`;
    /// empty if there are none.
    pub fn of_domain(&self, domain: u32, sequence: u32, export_time: u32) -> Vec<u8> {
        let mut messages = Vec::new();
        for (_, set) in self.sets.iter().filter(|(of, _)| *of == domain) {
            // It came in a message, so it fits into one.
            let length = (HEADER_LEN + set.len()) as u16;
            let mut header = [0; HEADER_LEN];
            let fields = Header { length, export_time, sequence, domain };
            if fields.emit(&mut header).is_ok() {
                messages.extend_from_slice(&header);
                messages.extend_from_slice(set);
            }
        }
        messages
    }

    /// Messages with all templates, to go before the first data record of each domain.
    pub fn all(&self, export_time: u32) -> Vec<u8> {
        let mut domains: Vec<u32> = self.sets.iter().map(|(domain, _)| *domain).collect();
        domains.sort_unstable();
        domains.dedup();
        domains.iter().flat_map(|&domain| self.of_domain(domain, 0, export_time)).collect()
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
        message(7, 0, &[0, 2, 0, 12, 1, 0, 0, 1, 0, 4, 0, 1])
    }

    /// A message with a data record, the `i`th.
    pub fn data(i: u32) -> Vec<u8> {
        message(7, i, &[1, 0, 0, 5, 17])
    }

    fn message(domain: u32, sequence: u32, set: &[u8]) -> Vec<u8> {
        let length = (HEADER_LEN + set.len()) as u16;
        let mut message = vec![0; HEADER_LEN];
        Header { length, export_time: 1, sequence, domain }.emit(&mut message).unwrap();
        message.extend_from_slice(set);
        message
    }

    #[test]
    fn each_template_is_kept_once_in_its_domain() {
        let mut templates = TemplateSets::default();
        assert!(templates.all(1).is_empty());
        let other = message(0, 0, &[0, 2, 0, 12, 1, 0, 0, 1, 0, 4, 0, 1]);
        for message in [template(), data(0), template(), other.clone()] {
            templates.note(&message);
        }
        assert_eq!(templates.of_domain(7, 0, 1), template());
        assert_eq!(templates.all(1), [other, template()].concat());
        assert!(templates.of_domain(8, 0, 1).is_empty());
    }
}
