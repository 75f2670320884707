//! Which protocol a flow speaks, and the parser that reads it: chosen once, called without
//! indirection.

use sonde_results::flow::{App, TlsInfo};

use super::dhcp::Dhcp;
use super::dns::Dns;
use super::http::Http;
use super::ntp::Ntp;
use super::parse::{Input, Parse, Step};
use super::quic::Quic;
use super::sip::Sip;
use super::smtp::Smtp;
use super::ssh::Ssh;
use super::tls::Tls;

macro_rules! parsers {
    ($($name:ident($kind:ty),)*) => {
        /// One of the parsers. Those that are large, or seldom, are apart.
        #[derive(Clone)]
        pub(super) enum Parser {
            $($name($kind),)*
        }

        impl Parse for Parser {
            fn input(&mut self, input: &Input<'_>) -> Step {
                match self {
                    $(Parser::$name(parser) => parser.input(input),)*
                }
            }

            fn finish(&mut self) -> Option<App> {
                match self {
                    $(Parser::$name(parser) => parser.finish(),)*
                }
            }

            fn held(&self) -> usize {
                match self {
                    $(Parser::$name(parser) => parser.held(),)*
                }
            }
        }
    };
}

parsers! {
    Dhcp(Dhcp),
    Dns(Dns),
    Http(Http),
    Ntp(Ntp),
    Quic(Box<Quic>),
    Sip(Sip),
    Smtp(Smtp),
    Ssh(Ssh),
    Tls(Tls),
}

impl Parser {
    /// By the first octets of one direction of a TCP connection.
    pub(super) fn of_stream(input: &Input<'_>) -> Option<Self> {
        let data = input.data;
        if Tls::begins(data) {
            Some(Parser::Tls(Tls::default()))
        } else if Sip::begins(data) {
            // Before HTTP: both have OPTIONS.
            Some(Parser::Sip(Sip::default()))
        } else if Http::begins(data) {
            Some(Parser::Http(Http::default()))
        } else if Ssh::begins(data) {
            Some(Parser::Ssh(Ssh::default()))
        } else if Smtp::begins(input) {
            Some(Parser::Smtp(Smtp::default()))
        } else if Dns::begins_stream(input) {
            Some(Parser::Dns(Dns::over_tcp()))
        } else {
            None
        }
    }

    pub(super) fn of_datagram(input: &Input<'_>) -> Option<Self> {
        if Quic::begins(input) {
            Some(Parser::Quic(Box::default()))
        } else if Dhcp::begins(input.data) {
            Some(Parser::Dhcp(Dhcp::default()))
        } else if Ntp::begins(input) {
            Some(Parser::Ntp(Ntp::default()))
        } else if Sip::begins(input.data) {
            Some(Parser::Sip(Sip::default()))
        } else if Dns::begins(input) {
            Some(Parser::Dns(Dns::default()))
        } else {
            None
        }
    }
}

/// Octets of the strings of a result.
pub(super) fn octets(app: &App) -> usize {
    let of_tls = |tls: &TlsInfo| sum([&tls.sni, &tls.alpn, &tls.ja3, &tls.ja4]);
    match app {
        App::Tls(tls) => of_tls(tls),
        App::Quic { tls, .. } => of_tls(tls),
        App::Dns { name, .. } => sum([name]),
        App::Http { method, host, target, user_agent, .. } => {
            sum([method, host, target, user_agent])
        }
        App::Ssh { client, server } => sum([client, server]),
        App::Ntp { .. } => 0,
        App::Sip { method, call_id, from, to, .. } => sum([method, call_id, from, to]),
        App::Smtp { helo, from, to, .. } => sum([helo, from, to]),
        App::Dhcp { host_name, vendor, .. } => sum([host_name, vendor]),
    }
}

fn sum<const N: usize>(strings: [&String; N]) -> usize {
    strings.into_iter().map(String::capacity).sum()
}
