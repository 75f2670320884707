//! SIP (RFC 3261): the first request and its last answer.

use httparse::{EMPTY_HEADER, Header, parse_headers};
use sonde_results::flow::App;

use super::http::MAX_HEADERS;
use super::text::{begins, closed, line, text};
use super::{Input, Parse, Step};

/// A request, its answer, or both.
#[derive(Default)]
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
            && let Some(code) = number(digits)
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
        // A stream has its messages one behind the other: the first of each direction.
        let Some((first, rest)) = line(input.data) else { return Step::More };
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        match parse_headers(rest, &mut headers) {
            Ok(httparse::Status::Complete((_, headers))) => {
                self.read(first, headers, input.reverse)
            }
            Ok(httparse::Status::Partial) if input.last || input.length > input.data.len() => {
                // Cut off by the capture, or by the bound.
                let lines = closed(rest);
                let mut headers = [EMPTY_HEADER; MAX_HEADERS];
                match parse_headers(&lines, &mut headers) {
                    Ok(httparse::Status::Complete((_, headers))) => {
                        self.read(first, headers, input.reverse)
                    }
                    _ => Step::More,
                }
            }
            _ => Step::More,
        }
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

/// Three digits.
fn number(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0, |sum, digit| match digit {
        b'0'..=b'9' => Some(sum * 10 + u16::from(digit - b'0')),
        _ => None,
    })
}

/// Longest method that is recognised.
const MAX_METHOD: usize = 16;
/// Below are provisional answers.
const FINAL: u16 = 200;
