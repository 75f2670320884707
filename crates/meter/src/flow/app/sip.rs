//! SIP (RFC 3261): the first request and its last answer.

use httparse::{EMPTY_HEADER, Header, Status, parse_headers};
use sonde_results::flow::App;

use super::http::MAX_HEADERS;
use super::parse::{Input, Parse, Step};
use super::text::{begins, closed, line, text};

/// A request, its answer, or both.
#[derive(Clone, Default)]
pub(super) struct Sip {
    method: String,
    call_id: String,
    from: String,
    to: String,
    status: u16,
    /// The direction of the first request.
    asked: Option<bool>,
}

impl Sip {
    /// A request for one of its URIs, or a status line.
    pub(super) fn begins(data: &[u8]) -> bool {
        if begins(data, b"SIP/2.0 ") {
            return true;
        }
        let method = data.iter().take(MAX_METHOD).take_while(|octet| octet.is_ascii_uppercase());
        let rest = &data[method.count()..];
        let schemes: [&[u8]; 3] = [b" sip:", b" sips:", b" tel:"];
        rest.len() < data.len() && schemes.iter().any(|scheme| begins(rest, scheme))
    }

    /// A message cut off by the capture, or by the bound: its whole lines.
    fn read_cut(&mut self, first: &[u8], rest: &[u8], reverse: bool) -> Step {
        let lines = closed(rest);
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        match parse_headers(&lines, &mut headers) {
            Ok(Status::Complete((_, headers))) => self.read(first, headers, reverse),
            _ => Step::More,
        }
    }

    fn read(&mut self, first: &[u8], headers: &[Header<'_>], reverse: bool) -> Step {
        let status = first.get(8..11).filter(|_| begins(first, b"SIP/2.0 "));
        let known = !self.call_id.is_empty() || !self.method.is_empty();
        if !known {
            self.call_id = text(field(headers, "call-id", "i"));
            self.from = text(uri(field(headers, "from", "f")));
            self.to = text(uri(field(headers, "to", "t")));
            let sequence = field(headers, "cseq", "cseq");
            self.method = text(match status {
                Some(_) => sequence.rsplit(|octet| *octet == b' ').next().unwrap_or(&[]),
                None => first.split(|octet| *octet == b' ').next().unwrap_or(&[]),
            });
            self.asked = Some(reverse ^ status.is_some());
        }
        if let Some(digits) = status
            && self.asked != Some(reverse)
            && let Some(code) = decimal(digits)
        {
            self.status = code;
            if code >= FINAL {
                return Step::Done;
            }
        }
        Step::More
    }
}

impl Parse for Sip {
    fn input(&mut self, input: &Input<'_>) -> Step {
        let cut = input.last || input.length > input.data.len();
        let mut data = input.data;
        // In a stream one message follows the other (RFC 3261, section 18.3).
        for _ in 0..MAX_MESSAGES {
            let Some((first, rest)) = line(data) else { return Step::More };
            let mut headers = [EMPTY_HEADER; MAX_HEADERS];
            let Ok(Status::Complete((len, headers))) = parse_headers(rest, &mut headers) else {
                return if cut { self.read_cut(first, rest, input.reverse) } else { Step::More };
            };
            if self.read(first, headers, input.reverse) == Step::Done {
                return Step::Done;
            }
            let body = decimal(field(headers, "content-length", "l")).unwrap_or(0);
            let next = rest.get(len + usize::from(body)..).unwrap_or(&[]);
            data = next.trim_ascii_start();
        }
        Step::More
    }

    fn finish(&mut self) -> Option<App> {
        let Sip { method, call_id, from, to, status, .. } = std::mem::take(self);
        let seen = !method.is_empty();
        seen.then_some(App::Sip { method, call_id, from, to, status })
    }

    fn held(&self) -> usize {
        [&self.method, &self.call_id, &self.from, &self.to].map(String::capacity).iter().sum()
    }
}

/// The first field of this name or of its short form (RFC 3261, section 7.3.3).
fn field<'a>(headers: &[Header<'a>], name: &str, short: &str) -> &'a [u8] {
    let is = |header: &&Header<'_>| {
        [name, short].iter().any(|name| header.name.eq_ignore_ascii_case(name))
    };
    headers.iter().find(is).map_or(&[], |header| header.value)
}

/// The URI of an address (RFC 3261, section 20.10): in angle brackets behind a name, or
/// alone before its parameters.
fn uri(address: &[u8]) -> &[u8] {
    let bracket = |wanted: u8| address.iter().rposition(|octet| *octet == wanted);
    match (bracket(b'<'), bracket(b'>')) {
        (Some(start), Some(end)) if start < end => &address[start + 1..end],
        _ => address.split(|octet| *octet == b';').next().unwrap_or(&[]).trim_ascii(),
    }
}

/// A decimal integer of up to four digits: a status, or as long a body as is looked behind.
fn decimal(digits: &[u8]) -> Option<u16> {
    digits.iter().take(5).try_fold(0u16, |sum, digit| match digit {
        b'0'..=b'9' if sum < 1000 => Some(sum * 10 + u16::from(digit - b'0')),
        _ => None,
    })
}

/// Most messages that are looked for in what has come of a stream.
const MAX_MESSAGES: usize = 8;
/// Longest method that is recognised.
const MAX_METHOD: usize = 16;
/// Below are provisional answers.
const FINAL: u16 = 200;
