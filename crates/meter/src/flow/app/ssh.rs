//! SSH (RFC 4253, section 4.2): both identification strings.

use sonde_results::flow::App;

use super::parse::{Input, Parse, Step};
use super::text::{line, text};

/// What was said, by direction.
#[derive(Clone, Default)]
pub(super) struct Ssh {
    said: [Option<String>; 2],
    /// A direction that will add nothing more.
    read: [bool; 2],
    /// The server's direction, where the port shows it.
    server: Option<usize>,
}

impl Ssh {
    pub(super) fn begins(data: &[u8]) -> bool {
        data.starts_with(b"SSH-")
    }

    /// The identification, behind other lines that a server may send before it.
    fn find(&mut self, d: usize, mut data: &[u8], last: bool) -> bool {
        while let Some((said, rest)) = line(data) {
            if said.starts_with(b"SSH-") {
                self.said[d] = Some(text(said));
                return true;
            }
            data = rest;
        }
        // RFC 4253 allows 255 octets with the end of the line.
        last || data.len() > MAX_LINE
    }
}

impl Parse for Ssh {
    fn input(&mut self, input: &Input<'_>) -> Step {
        let d = usize::from(input.reverse);
        if self.server.is_none() {
            self.server = match PORT {
                port if input.source_port == port => Some(d),
                port if input.destination_port == port => Some(1 - d),
                _ => None,
            };
        }
        self.read[d] = self.find(d, input.data, input.last);
        match self.read {
            [true, true] => Step::Done,
            read if read[d] => Step::Other,
            _ => Step::More,
        }
    }

    fn finish(&mut self) -> Option<App> {
        if self.said == [None, None] {
            return None;
        }
        let server = self.server.unwrap_or(1);
        let mut said = |d: usize| self.said[d].take().unwrap_or_default();
        Some(App::Ssh { client: said(1 - server), server: said(server) })
    }

    fn held(&self) -> usize {
        self.said.iter().flatten().map(String::capacity).sum()
    }
}

const PORT: u16 = 22;
const MAX_LINE: usize = 255;
