//! The address of a server that is not reached over HTTP: `HOST` or `HOST:PORT`.

use sonde_run::error::SettingsError;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// A name or an address; one of IPv6 without brackets.
    pub host: String,
    /// 1 to 65535.
    pub port: u16,
}

impl ServerAddress {
    /// Of a setting. An address of IPv6 stands in brackets where a port follows.
    ///
    /// # Errors
    /// It is none, with `key` as its key.
    pub fn parse(key: &str, text: &str, default_port: u16) -> Result<ServerAddress, SettingsError> {
        let wrong = || SettingsError::new(key, format!("'{text}' is no HOST or HOST:PORT"));
        let bare = |host: &str| (host.to_owned(), None);
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => bare(host),
            Some((host, rest)) => {
                (host.to_owned(), Some(rest.strip_prefix(':').ok_or_else(wrong)?))
            }
            None => match text.rsplit_once(':') {
                // More than one colon: an address of IPv6.
                Some((host, _)) if host.contains(':') => bare(text),
                Some((host, port)) => (host.to_owned(), Some(port)),
                None => bare(text),
            },
        };
        let port = match port {
            None => default_port,
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?,
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
        match (1..=255).contains(&host.len()) && host.chars().all(fits) {
            true => Ok(ServerAddress { host, port }),
            false => Err(wrong()),
        }
    }

    /// Whether it is this host itself: `localhost` or a loopback address.
    pub fn is_loopback(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_host_and_perhaps_a_port() {
        let of = |text: &str| {
            let address = ServerAddress::parse("to", text, 514).ok()?;
            Some((address.host, address.port))
        };
        let is = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(of("log.example"), is("log.example", 514));
        assert_eq!(of("log.example:6514"), is("log.example", 6514));
        assert_eq!(of("192.0.2.1:1"), is("192.0.2.1", 1));
        assert_eq!(of("2001:db8::1"), is("2001:db8::1", 514));
        assert_eq!(of("[2001:db8::1]"), is("2001:db8::1", 514));
        assert_eq!(of("[fe80::1%eth0]:99"), is("fe80::1%eth0", 99));
        for wrong in ["", ":1", "a:0", "a:65536", "a:b", "a b", "[::1]99", "udp://a", "a/b"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        let wrong = ServerAddress::parse("to", "a:b", 1).unwrap_err();
        assert_eq!(wrong.key.as_deref(), Some("to"));
        let local = |text| ServerAddress::parse("to", text, 25).unwrap().is_loopback();
        assert!(local("localhost") && local("127.0.0.2:25") && local("::1") && !local("192.0.2.1"));
    }
}
