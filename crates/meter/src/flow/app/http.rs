//! HTTP/1 (RFC 9112): the first request and the status of its answer.

use httparse::{EMPTY_HEADER, Error, Header, Request, Response, Status};
use sonde_results::flow::App;

use super::parse::{Input, Parse, RECOGNISABLE, Step};
use super::text::{closed, text};

/// A request, its answer, or both.
#[derive(Clone, Default)]
pub(super) struct Http {
    request: Option<[String; 4]>,
    status: u16,
    /// Directions that will add nothing more.
    read: [bool; 2],
}

impl Http {
    /// A status line, or a request with one of the methods of RFC 9110 and RFC 5789. Any other
    /// method counts if its line says HTTP (RFC 9112, section 3).
    pub(super) fn begins(data: &[u8]) -> bool {
        const STARTS: [&[u8]; 10] = [
            b"GET ",
            b"POST ",
            b"HEAD ",
            b"PUT ",
            b"DELETE ",
            b"OPTIONS ",
            b"PATCH ",
            b"CONNECT ",
            b"TRACE ",
            b"HTTP/1.",
        ];
        STARTS.iter().any(|start| data.starts_with(start)) || Http::begins_otherwise(data)
    }

    /// A request with a method that others have defined, of WebDAV (RFC 4918) or UPnP for
    /// instance. A line that is not whole yet is one if its target is a path.
    fn begins_otherwise(mut data: &[u8]) -> bool {
        // An empty line before it is to be ignored (RFC 9112, section 2.2).
        while let Some(rest) = data.strip_prefix(b"\r\n") {
            data = rest;
        }
        let method = data.iter().take(MAX_METHOD).take_while(|octet| is_token(**octet)).count();
        let Some((b' ', rest)) = data[method..].split_first().map(|(c, rest)| (*c, rest)) else {
            return false;
        };
        if method == 0 {
            return false;
        }
        match rest.iter().position(|octet| *octet == b'\n') {
            Some(end) => {
                let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
                let version = line.len().checked_sub(VERSION.len() + 1).map(|at| &line[at..]);
                version.is_some_and(|text| text.starts_with(VERSION) && text[8].is_ascii_digit())
            }
            None => {
                (rest.starts_with(b"/") || rest.starts_with(b"http://"))
                    && data.len() >= RECOGNISABLE
                    && data[..method].iter().all(|octet| matches!(octet, b'A'..=b'Z' | b'-'))
            }
        }
    }

    /// True: nothing more is to be learnt of it.
    fn read_request(&mut self, data: &[u8], last: bool) -> bool {
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        let mut request = Request::new(&mut headers);
        match request.parse(data) {
            Ok(Status::Partial) if last => {
                // Cut off: what there is of it, once.
                let lines = closed(data);
                lines.len() > 2 && lines != data && self.read_request(&lines, false)
            }
            Ok(Status::Partial) => false,
            Ok(Status::Complete(_)) | Err(Error::TooManyHeaders) => {
                if let (Some(method), Some(target)) = (request.method, request.path) {
                    let field = |name| text(value(request.headers, name));
                    self.request = Some([
                        text(method.as_bytes()),
                        field("host"),
                        text(target.as_bytes()),
                        field("user-agent"),
                    ]);
                }
                true
            }
            Err(_) => true,
        }
    }

    fn read_status(&mut self, mut data: &[u8], last: bool) -> bool {
        // Interim answers (RFC 9110, section 15.2) come before the one that counts.
        for _ in 0..MAX_INTERIM {
            let mut headers = [EMPTY_HEADER; MAX_HEADERS];
            let mut response = Response::new(&mut headers);
            let outcome = response.parse(data);
            let Some(code) = response.code else { return last || outcome.is_err() };
            self.status = code;
            let interim = (100..200).contains(&code) && code != SWITCHING_PROTOCOLS;
            match outcome {
                Ok(Status::Complete(len)) if interim => data = &data[len..],
                Ok(Status::Partial) if interim => return last,
                _ => return true,
            }
        }
        true
    }
}

impl Parse for Http {
    fn input(&mut self, input: &Input<'_>) -> Step {
        let d = usize::from(input.reverse);
        self.read[d] = match input.data.starts_with(b"HTTP/") {
            true => self.read_status(input.data, input.last),
            false => self.read_request(input.data, input.last),
        };
        match self.read {
            [true, true] => Step::Done,
            read if read[d] => Step::Other,
            _ => Step::More,
        }
    }

    fn finish(&mut self) -> Option<App> {
        if self.request.is_none() && self.status == 0 {
            return None;
        }
        let [method, host, target, user_agent] = self.request.take().unwrap_or_default();
        Some(App::Http { method, host, target, user_agent, status: self.status })
    }

    fn held(&self) -> usize {
        self.request.iter().flatten().map(String::capacity).sum()
    }
}

/// The first field of this name, in small letters.
pub(super) fn value<'a>(headers: &[Header<'a>], name: &str) -> &'a [u8] {
    let found = headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    found.map_or(&[], |header| header.value)
}

/// An octet of a token (RFC 9110, section 5.6.2).
fn is_token(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet)
}

/// What a request line ends with, before the minor version.
const VERSION: &[u8] = b" HTTP/1.";
/// Longer than any method that is registered.
const MAX_METHOD: usize = 32;
/// Most fields of a request that are looked at.
pub(super) const MAX_HEADERS: usize = 64;
const MAX_INTERIM: usize = 4;
const SWITCHING_PROTOCOLS: u16 = 101;
