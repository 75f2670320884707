//! How a client authenticates: by a token or a certificate.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HeaderMap};

/// What a client has to present.
#[derive(Clone)]
pub enum Authentication {
    /// A token, over plain HTTP: for loopback addresses, where nobody listens between.
    Token(Token),
    /// A token, over TLS.
    TlsToken(Arc<rustls::ServerConfig>, Token),
    /// A certificate, as this configuration of TLS demands.
    Certificates(Arc<rustls::ServerConfig>),
}

impl Authentication {
    pub(super) fn tls(&self) -> Option<&Arc<rustls::ServerConfig>> {
        match self {
            Authentication::Token(_) => None,
            Authentication::TlsToken(tls, _) | Authentication::Certificates(tls) => Some(tls),
        }
    }

    pub(super) fn token(&self) -> Option<&Token> {
        match self {
            Authentication::Token(token) | Authentication::TlsToken(_, token) => Some(token),
            Authentication::Certificates(_) => None,
        }
    }
}

/// What whoever may order something knows, and nobody else on this host.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// `None`: shorter than [`TOKEN_MIN`], or with characters that do not stand in an address
    /// (RFC 3986, section 2.3: letters, digits, `-._~`).
    pub fn new(text: &str) -> Option<Token> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        (text.len() >= TOKEN_MIN && text.bytes().all(plain)).then(|| Token(text.to_owned()))
    }

    /// As it stands in an address.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether a request shows it: as `Bearer` (RFC 6750, section 2.1), or as the password of
    /// whatever user (RFC 7617), which is what clients make of `http://sonde:TOKEN@HOST`.
    pub(super) fn is_shown(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(AUTHORIZATION).and_then(|h| h.to_str().ok()).unwrap_or_default();
        let Some((scheme, rest)) = shown.split_once(' ') else { return false };
        if scheme.eq_ignore_ascii_case("bearer") {
            return self.is(rest.trim().as_bytes());
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return false;
        }
        let Ok(pair) = STANDARD.decode(rest.trim()) else { return false };
        let colon = pair.iter().position(|&b| b == b':');
        colon.is_some_and(|colon| self.is(&pair[colon + 1..]))
    }

    /// In a time that does not depend on how much of it is right.
    fn is(&self, shown: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differ = own.iter().zip(shown).fold(0, |all, (a, b)| all | (a ^ b));
        own.len() == shown.len() && std::hint::black_box(differ) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Characters of a token, at least.
pub const TOKEN_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_shown_in_either_way_and_whole() {
        let token = Token::new("0123456789abcdef").unwrap();
        let shown = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, text.parse().unwrap());
            token.is_shown(&headers)
        };
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        assert!(shown("Bearer 0123456789abcdef") && shown("bearer  0123456789abcdef"));
        assert!(shown(&basic("sonde:0123456789abcdef")) && shown(&basic(":0123456789abcdef")));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Bearer 0123456789abcdeg",
            "Basic !",
            "Digest 0123456789abcdef",
            &basic("0123456789abcdef"),
            &basic("0123456789abcdef:"),
        ] {
            assert!(!shown(wrong), "{wrong}");
        }
        assert!(!token.is_shown(&HeaderMap::new()));
        assert_eq!(format!("{token:?}"), "Token(..)");
    }

    #[test]
    fn a_token_that_can_be_guessed_or_not_be_written_in_an_address_is_none() {
        for bad in ["", "short", "0123456789abcde", "0123456789abcde/", "0123456789abcd e"] {
            assert_eq!(Token::new(bad), None, "{bad}");
        }
    }
}
