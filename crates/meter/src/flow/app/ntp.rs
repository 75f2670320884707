//! NTP (RFC 5905, section 7.3): version, mode and the server's stratum.

use sonde_results::flow::App;

use super::parse::{Input, Parse, Step};

/// What the first packet and the server's said.
#[derive(Clone, Default)]
pub(super) struct Ntp {
    first: Option<(u8, u8)>,
    stratum: u8,
}

impl Ntp {
    /// At port 123 a header that makes sense; elsewhere a client's whose fields that a
    /// client does not fill are empty (RFC 5905, section 14).
    pub(super) fn begins(input: &Input<'_>) -> bool {
        let Some(header) = input.data.first_chunk::<HEADER_LEN>() else { return false };
        let (version, mode) = version_and_mode(header[0]);
        if !(1..=4).contains(&version) || !(1..=5).contains(&mode) || header[1] > MAX_STRATUM {
            return false;
        }
        input.has_port(PORT)
            || (mode == CLIENT
                && version >= 3
                && input.length == HEADER_LEN
                && header[1..40].iter().all(|octet| *octet == 0)
                && header[40..] != [0; 8])
    }
}

impl Parse for Ntp {
    fn input(&mut self, input: &Input<'_>) -> Step {
        let [head, stratum, ..] = *input.data else { return Step::More };
        let (version, mode) = version_and_mode(head);
        self.first.get_or_insert((version, mode));
        match mode {
            SERVER | BROADCAST => {
                self.stratum = stratum;
                Step::Done
            }
            _ => Step::More,
        }
    }

    fn finish(&mut self) -> Option<App> {
        let (version, mode) = self.first?;
        Some(App::Ntp { version, mode, stratum: self.stratum })
    }
}

fn version_and_mode(head: u8) -> (u8, u8) {
    (head >> 3 & 7, head & 7)
}

const PORT: u16 = 123;
const HEADER_LEN: usize = 48;
const CLIENT: u8 = 3;
const SERVER: u8 = 4;
const BROADCAST: u8 = 5;
/// Not synchronised; more is reserved.
const MAX_STRATUM: u8 = 16;
