//! DNS (RFC 1035), over TCP too (section 4.2.2; RFC 7766), and multicast DNS (RFC 6762):
//! the first query and its answer. A notification (RFC 1996) and an update (RFC 2136) ask
//! for a zone, where a query has its question.

use sonde_results::flow::App;
use sonde_wire::dns::{HEADER_LEN, Header, PORT};

use super::parse::{Input, Parse, Step};
use super::text::{ByteReader, text};

/// A query, its answer, or both.
#[derive(Clone, Default)]
pub(super) struct Dns {
    tcp: bool,
    /// The query's identifier, direction and time.
    asked: Option<(u16, bool, i64)>,
    question: Option<(String, u16)>,
    answer: Option<Answer>,
}

#[derive(Clone)]
struct Answer {
    rcode: u8,
    records: u16,
    latency_ns: u64,
}

impl Dns {
    pub(super) fn over_tcp() -> Self {
        Dns { tcp: true, ..Dns::default() }
    }

    /// A message as other protocols seldom have them; at the ports of DNS (53), multicast
    /// DNS (5353) and LLMNR (5355) one whose header is sound.
    pub(super) fn begins(input: &Input<'_>) -> bool {
        let Ok(header) = Header::parse(input.data) else { return false };
        if header.flags & RESERVED != 0 || !is_known(&header) || input.has_port(NETBIOS_PORT) {
            return false;
        }
        let named = || first_name(&header, input.data);
        if [PORT, MDNS_PORT, LLMNR_PORT].iter().any(|port| input.has_port(*port)) {
            return named().is_some() || is_bare(&header, input.data);
        }
        if header.flags & OPCODE != 0 {
            return false;
        }
        // Elsewhere: one question of the Internet class, and a query no more than it, but
        // for EDNS (RFC 6891).
        let response = header.is_response();
        let records = header.answers | header.authorities;
        let counts = header.questions == 1
            && match response {
                true => header.additionals <= 32 && records <= 64,
                false => header.additionals <= 1 && records == 0 && header.flags & RCODE == 0,
            };
        counts
            && named().is_some_and(|(name, _, rest)| {
                let ends = rest.len() == 2 || header.additionals == 1;
                ByteReader(rest).u16() == Some(1)
                    && (response || ends)
                    && !is_netbios(name.octets())
            })
    }

    /// The same after its length, where the port says so.
    pub(super) fn begins_stream(input: &Input<'_>) -> bool {
        let mut reader = ByteReader(input.data);
        let Some(length) = reader.u16() else { return false };
        let data = &reader.0[..reader.0.len().min(length.into())];
        let cut = data.len() < usize::from(length) && data.len() >= HEADER_LEN;
        let sound = || match cut {
            // The name comes with the next segment.
            true => Header::parse(data)
                .is_ok_and(|header| header.flags & RESERVED == 0 && is_known(&header)),
            false => Dns::begins(&Input { data, ..*input }),
        };
        input.has_port(PORT) && sound()
    }

    fn message(&mut self, message: &[u8], input: &Input<'_>) -> Step {
        let Some(header) = Header::parse(message).ok().filter(is_known) else { return Step::More };
        if !header.is_response() {
            if self.asked.is_none() {
                self.asked = Some((header.id, input.reverse, input.at_ns));
                self.read_question(&header, message);
            }
            return Step::More;
        }
        let latency_ns = match self.asked {
            None => {
                self.read_question(&header, message);
                0
            }
            Some((id, reverse, at_ns)) if id == header.id && reverse != input.reverse => {
                input.at_ns.saturating_sub(at_ns).max(1) as u64
            }
            Some(_) => return Step::More,
        };
        let rcode = (header.flags & RCODE) as u8;
        self.answer = Some(Answer { rcode, records: header.answers, latency_ns });
        Step::Done
    }

    fn read_question(&mut self, header: &Header, message: &[u8]) {
        let found = first_name(header, message);
        self.question = found.map(|(name, kind, _)| (text(name.octets()), kind));
    }
}

impl Parse for Dns {
    fn input(&mut self, input: &Input<'_>) -> Step {
        if !self.tcp {
            return self.message(input.data, input);
        }
        if input.last {
            // There is nothing new in it.
            return Step::More;
        }
        match ByteReader(input.data).vector16() {
            Some(message) => self.message(message, input),
            None => Step::More,
        }
    }

    fn finish(&mut self) -> Option<App> {
        // Neither asked nor answered: nothing of it could be read.
        if self.asked.is_none() && self.answer.is_none() {
            return None;
        }
        let (name, qtype) = self.question.take().unwrap_or_default();
        let answer = self.answer.take();
        Some(App::Dns {
            name,
            qtype,
            rcode: answer.as_ref().map(|answer| answer.rcode),
            answers: answer.as_ref().map_or(0, |answer| answer.records),
            latency_ns: answer.map_or(0, |answer| answer.latency_ns),
        })
    }

    fn held(&self) -> usize {
        self.question.as_ref().map_or(0, |(name, _)| name.capacity())
    }
}

/// The name and type of the first question, and what follows the type. Where there is no question,
/// of the first answer (RFC 6762, section 6).
fn first_name<'a>(header: &Header, message: &'a [u8]) -> Option<(Name, u16, &'a [u8])> {
    if header.questions == 0 && header.answers == 0 {
        return None;
    }
    let (name, at) = Name::read(message, HEADER_LEN)?;
    let mut reader = ByteReader(message.get(at..)?);
    Some((name, reader.u16()?, reader.0))
}

/// Whether what its opcode means is known: a query, a notification, an update.
fn is_known(header: &Header) -> bool {
    matches!(header.flags & OPCODE, QUERY | NOTIFY | UPDATE)
}

/// A message without a question and without an answer, and nothing behind it but EDNS. It is an
/// error that does not repeat the question, or a query for a cookie (RFC 7873, section 5.4).
fn is_bare(header: &Header, message: &[u8]) -> bool {
    let rest = &message[HEADER_LEN..];
    let records = header.questions | header.answers | header.authorities;
    records == 0
        && match header.additionals {
            0 => rest.is_empty(),
            // The root's name and the type OPT (RFC 6891, section 6.1.2).
            1 => rest.starts_with(&[0, 0, 41]),
            _ => false,
        }
}

/// A name as NetBIOS encodes it (RFC 1001, section 14.1): 32 letters for 16 octets.
fn is_netbios(name: &[u8]) -> bool {
    let label = name.split(|octet| *octet == b'.').next().unwrap_or(&[]);
    label.len() == 32 && label.iter().all(|octet| matches!(octet, b'A'..=b'P'))
}

/// A name with dots.
struct Name {
    octets: [u8; MAX_NAME],
    len: usize,
}

impl Name {
    fn octets(&self) -> &[u8] {
        &self.octets[..self.len]
    }

    /// Adds octets; `None`: that would be too many.
    fn push(&mut self, octets: &[u8]) -> Option<()> {
        let end = self.len + octets.len();
        self.octets.get_mut(self.len..end)?.copy_from_slice(octets);
        self.len = end;
        Some(())
    }

    /// The name at `at`, and where it ends. Pointers (RFC 1035, section 4.1.4) lead back
    /// only, so there is an end.
    fn read(message: &[u8], at: usize) -> Option<(Name, usize)> {
        let mut name = Name { octets: [0; MAX_NAME], len: 0 };
        let mut reader = ByteReader(message.get(at..)?);
        let (mut end, mut earliest) = (None, at);
        loop {
            let length = reader.u8()?;
            match length >> 6 {
                0 if length == 0 => break,
                0 => {
                    let label = reader.take(length.into())?;
                    if name.len > 0 {
                        name.push(b".")?;
                    }
                    name.push(label)?;
                }
                3 => {
                    let target = usize::from(length & 0x3F) << 8 | usize::from(reader.u8()?);
                    end.get_or_insert(message.len() - reader.0.len());
                    if target >= earliest {
                        return None;
                    }
                    earliest = target;
                    reader = ByteReader(&message[target..]);
                }
                _ => return None,
            }
        }
        Some((name, end.unwrap_or(message.len() - reader.0.len())))
    }
}

const OPCODE: u16 = 0x7800;
const QUERY: u16 = 0;
/// RFC 1996.
const NOTIFY: u16 = 4 << 11;
/// RFC 2136.
const UPDATE: u16 = 5 << 11;
/// The bit that stays reserved (RFC 2535, section 6.1).
const RESERVED: u16 = 0x0040;
const RCODE: u16 = 0x000F;
/// The name service of NetBIOS (RFC 1002) has the form of DNS, and is another protocol.
const NETBIOS_PORT: u16 = 137;
const MDNS_PORT: u16 = 5353;
/// RFC 4795.
const LLMNR_PORT: u16 = 5355;
/// RFC 1035, section 3.1: 255 octets with the lengths.
const MAX_NAME: usize = 253;
