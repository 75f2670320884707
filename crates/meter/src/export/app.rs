//! What applications said, in the elements that are in use: CESNET's and Flowmon's, as
//! ipfixprobe exports them, CERT's and ntop's. What has no element there is left to JSON
//! Lines and Parquet.

use sonde_results::flow::{App, TlsInfo};
use sonde_wire::ipfix::element as ie;

use super::fields::{Fields, Floor as _};

/// A value for each protocol, from 1, below 16.
pub(super) fn index(app: &App) -> u32 {
    match app {
        App::Tls(_) => 1,
        App::Quic { .. } => 2,
        App::Dns { .. } => 3,
        App::Http { .. } => 4,
        App::Ssh { .. } => 5,
        App::Ntp { .. } => 6,
        App::Sip { .. } => 7,
        App::Smtp { .. } => 8,
        App::Dhcp { .. } => 9,
    }
}

/// The fields; strings are cut to `text` bytes.
pub(super) fn fields<W: Fields>(w: &mut W, app: &App, text: usize) {
    let name = match app {
        App::Tls(_) => "tls",
        App::Quic { .. } => "quic",
        App::Dns { .. } => "dns",
        App::Http { .. } => "http",
        App::Ssh { .. } => "ssh",
        App::Ntp { .. } => "ntp",
        App::Sip { .. } => "sip",
        App::Smtp { .. } => "smtp",
        App::Dhcp { .. } => "dhcp",
    };
    w.variable(ie::APPLICATION_NAME, name.as_bytes());
    match app {
        App::Tls(info) => {
            w.variable(ie::TLS_SERVER_NAME, cut(&info.sni, text));
            w.u16(ie::TLS_VERSION, info.version);
            tls(w, info, text);
        }
        App::Quic { version, tls: info } => {
            w.variable(ie::QUIC_SERVER_NAME, cut(&info.sni, text));
            w.u32(ie::QUIC_VERSION, *version);
            tls(w, info, text);
        }
        App::Dns { name, qtype, rcode, answers, latency_ns } => {
            w.variable(ie::DNS_NAME, cut(name, text));
            w.u16(ie::DNS_QUERY_TYPE, *qtype);
            w.u8(ie::DNS_RESPONSE_CODE, rcode.unwrap_or(0));
            w.u16(ie::DNS_ANSWERS, *answers);
            // Rounded up, so that 0 says that there was no answer.
            let ms = latency_ns.div_ceil(1_000_000).min(u32::MAX.into());
            w.u32(ie::APPL_LATENCY_MS, ms as u32);
        }
        App::Http { method, host, target, user_agent, status } => {
            w.variable(ie::HTTP_METHOD, cut(method, text));
            w.variable(ie::HTTP_HOST, cut(host, text));
            w.variable(ie::HTTP_TARGET, cut(target, text));
            w.variable(ie::HTTP_USER_AGENT, cut(user_agent, text));
            w.u16(ie::HTTP_STATUS, *status);
        }
        App::Ntp { version, mode, stratum } => {
            w.u8(ie::NTP_VERSION, *version);
            w.u8(ie::NTP_MODE, *mode);
            w.u8(ie::NTP_STRATUM, *stratum);
        }
        App::Sip { method, call_id, from, to, status } => {
            w.u16(ie::SIP_MESSAGE_TYPE, sip_message_type(method));
            w.u16(ie::SIP_STATUS_CODE, *status);
            w.variable(ie::SIP_CALL_ID, cut(call_id, text));
            w.variable(ie::SIP_CALLING_PARTY, cut(from, text));
            w.variable(ie::SIP_CALLED_PARTY, cut(to, text));
        }
        App::Smtp { helo, from, to, starttls: _ } => {
            w.variable(ie::SMTP_DOMAIN, cut(helo, text));
            w.variable(ie::SMTP_SENDER, cut(from, text));
            w.variable(ie::SMTP_RECIPIENT, cut(to, text));
        }
        App::Ssh { client, server } => {
            // One element for both; the order distinguishes them (RFC 7011, section 8).
            w.variable(ie::SSH_VERSION, cut(client, text));
            w.variable(ie::SSH_VERSION, cut(server, text));
        }
        App::Dhcp { message, client_mac, host_name, vendor } => {
            w.u8(ie::DHCP_MESSAGE_TYPE, *message);
            w.put(ie::DHCP_CLIENT_MAC, *client_mac);
            w.variable(ie::DHCP_CLIENT_NAME, cut(host_name, text));
            w.variable(ie::DHCP_VENDOR_CODE, cut(vendor, text));
        }
    }
}

fn tls<W: Fields>(w: &mut W, info: &TlsInfo, text: usize) {
    w.variable(ie::TLS_ALPN, cut(&info.alpn, text));
    // Flowmon's element holds the 16 bytes that the digits stand for.
    match digest(&info.ja3) {
        Some(bytes) => w.variable(ie::TLS_JA3, &bytes),
        None => w.variable(ie::TLS_JA3, &[]),
    }
    w.variable(ie::TLS_JA4, cut(&info.ja4, text));
}

/// 32 hexadecimal digits.
fn digest(digits: &str) -> Option<[u8; 16]> {
    let digits: &[u8; 32] = digits.as_bytes().try_into().ok()?;
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |octet: u8| char::from(octet).to_digit(16);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(bytes)
}

/// ipfixprobe's values of SIP's methods; 0: another, or none was seen.
fn sip_message_type(method: &str) -> u16 {
    const METHODS: [&str; 10] = [
        "INVITE",
        "ACK",
        "CANCEL",
        "BYE",
        "REGISTER",
        "OPTIONS",
        "PUBLISH",
        "NOTIFY",
        "INFO",
        "SUBSCRIBE",
    ];
    METHODS.iter().position(|known| *known == method).map_or(0, |at| at as u16 + 1)
}

/// At most `max` bytes, and no part of a character (RFC 7011, section 6.1.6: UTF-8).
fn cut(text: &str, max: usize) -> &[u8] {
    &text.as_bytes()[..text.floor(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_cut_between_characters() {
        assert_eq!(cut("abc", 9), b"abc");
        assert_eq!(cut("aß", 2), b"a");
        assert_eq!(cut("ß", 0), b"");
    }

    #[test]
    fn ja3_is_sent_as_bytes() {
        let bytes = digest("e7d705a3286e19ea42f587b344ee6865").unwrap();
        assert_eq!(bytes[..3], [0xe7, 0xd7, 0x05]);
        assert_eq!(digest(""), None);
        assert_eq!(digest("z7d705a3286e19ea42f587b344ee6865"), None);
    }

    #[test]
    fn methods_of_sip() {
        assert_eq!(sip_message_type("INVITE"), 1);
        assert_eq!(sip_message_type("SUBSCRIBE"), 10);
        assert_eq!(sip_message_type("PING"), 0);
    }
}
