//! SMTP (RFC 5321), STARTTLS (RFC 3207): the client's first commands. What it says to
//! authenticate itself is not kept.

use sonde_results::flow::App;

use super::parse::{Input, Parse, Step};
use super::text::{begins, line, text};

/// What the client's first commands said.
#[derive(Clone, Default)]
pub(super) struct Smtp {
    helo: String,
    from: Option<String>,
    to: Option<String>,
    starttls: bool,
    /// Octets of each direction that were read.
    read: [usize; 2],
}

impl Smtp {
    /// A greeting that names it, or that comes from one of its ports; or the client's.
    pub(super) fn begins(input: &Input<'_>) -> bool {
        let data = input.data;
        if [b"EHLO ", b"HELO "].iter().any(|word| begins(data, *word)) {
            return true;
        }
        let greeting = data.starts_with(b"220 ") || data.starts_with(b"220-");
        // Looked for last: it may be long, and most data is no greeting.
        let first = || data.split(|octet| *octet == b'\n').next().unwrap_or(&[]);
        greeting
            && (PORTS.contains(&input.source_port)
                || first().windows(4).any(|word| word.eq_ignore_ascii_case(b"SMTP")))
    }

    fn command(&mut self, line: &[u8]) -> Step {
        if begins(line, b"EHLO ") || begins(line, b"HELO ") {
            self.helo = text(line[5..].trim_ascii());
        } else if begins(line, b"MAIL FROM:") {
            self.from.get_or_insert_with(|| text(path(&line[10..])));
        } else if begins(line, b"RCPT TO:") {
            self.to.get_or_insert_with(|| text(path(&line[8..])));
            return Step::Done;
        } else if begins(line, b"STARTTLS") {
            self.starttls = true;
            return Step::Done;
        }
        Step::More
    }
}

impl Parse for Smtp {
    fn input(&mut self, input: &Input<'_>) -> Step {
        let d = usize::from(input.reverse);
        let mut rest = input.data.get(self.read[d]..).unwrap_or(&[]);
        // A server's lines begin with digits: none is a command.
        while let Some((command, behind)) = line(rest) {
            rest = behind;
            if self.command(command) == Step::Done {
                return Step::Done;
            }
        }
        self.read[d] = input.data.len() - rest.len();
        Step::More
    }

    fn finish(&mut self) -> Option<App> {
        let Smtp { helo, from, to, starttls, .. } = std::mem::take(self);
        let (from, to) = (from.unwrap_or_default(), to.unwrap_or_default());
        Some(App::Smtp { helo, from, to, starttls })
    }

    fn held(&self) -> usize {
        let paths = [&self.from, &self.to].into_iter().flatten();
        self.helo.capacity() + paths.map(String::capacity).sum::<usize>()
    }
}

/// The mailbox of a path (RFC 5321, section 4.1.2), without its brackets and parameters.
fn path(argument: &[u8]) -> &[u8] {
    let argument = argument.trim_ascii();
    let bracket = |wanted: u8| argument.iter().position(|octet| *octet == wanted);
    match (bracket(b'<'), bracket(b'>')) {
        (Some(start), Some(end)) if start < end => &argument[start + 1..end],
        _ => argument.split(|octet| *octet == b' ').next().unwrap_or(&[]),
    }
}

/// Relay and submission (RFC 6409).
const PORTS: [u16; 3] = [25, 587, 2525];
