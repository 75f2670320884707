//! Where a collector of flow records is.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use anyhow::{Context as _, Result, anyhow};

/// How records reach a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectorTransport {
    /// RFC 7011, section 10.3.
    Udp,
    /// RFC 7011, section 10.4.
    Tcp,
    /// TCP secured by TLS: RFC 7011, section 11.
    Tls,
    /// RFC 7011, section 10.2.
    Sctp,
}

/// A collector that records are exported to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorAddress {
    /// Transport protocol of the export.
    pub transport: CollectorTransport,
    /// Host name or IP address.
    pub host: String,
    /// UDP or TCP port.
    pub port: u16,
}

impl CollectorAddress {
    /// Its first address.
    ///
    /// # Errors
    /// The host has none.
    pub fn resolve(&self) -> Result<SocketAddr> {
        (self.host.as_str(), self.port)
            .to_socket_addrs()
            .with_context(|| format!("{self}: cannot find the host '{}'", self.host))?
            .next()
            .ok_or_else(|| {
                anyhow!(
                    "{self}: the host '{}' has no address; give another, or an address",
                    self.host
                )
            })
    }
}

impl FromStr for CollectorAddress {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("'{text}' is no collector; write udp://, tcp://, tls:// or sctp://HOST[:PORT]")
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let transport = match scheme {
            "udp" => CollectorTransport::Udp,
            "tcp" => CollectorTransport::Tcp,
            "tls" => CollectorTransport::Tls,
            "sctp" => CollectorTransport::Sctp,
            _ => return Err(wrong()),
        };
        let (host, port) = match rest.strip_prefix('[').map(|r| r.split_once(']')) {
            Some(Some((host, ""))) => (host, None),
            Some(Some((host, port))) => (host, Some(port.strip_prefix(':').ok_or_else(wrong)?)),
            Some(None) => return Err(wrong()),
            None => match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        let port = match port {
            Some(port) => port.parse().ok().filter(|&p| p != 0).ok_or_else(wrong)?,
            None if transport == CollectorTransport::Tls => 4740,
            None => 4739,
        };
        if host.is_empty() || host.contains(['/', ':']) && !rest.starts_with('[') {
            return Err(wrong());
        }
        Ok(CollectorAddress { transport, host: host.to_string(), port })
    }
}

impl fmt::Display for CollectorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.transport {
            CollectorTransport::Udp => "udp",
            CollectorTransport::Tcp => "tcp",
            CollectorTransport::Tls => "tls",
            CollectorTransport::Sctp => "sctp",
        };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_reads_back() {
        for text in ["udp://192.0.2.9:4739", "tls://[2001:db8::1]:4740", "tcp://flows.example:9995"]
        {
            assert_eq!(text.parse::<CollectorAddress>().unwrap().to_string(), text);
        }
        assert_eq!("tls://a".parse::<CollectorAddress>().unwrap().port, 4740);
        assert_eq!("udp://[::1]".parse::<CollectorAddress>().unwrap().port, 4739);
        for text in ["a:1", "udp://", "udp://a:0", "udp://a:b", "udp://::1", "udp://[::1", "x://a"]
        {
            assert!(
                text.parse::<CollectorAddress>().unwrap_err().contains("udp://, tcp://"),
                "{text}"
            );
        }
    }
}
