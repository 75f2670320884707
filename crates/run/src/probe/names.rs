//! Names to addresses: many at once, since each that does not resolve takes seconds.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs as _};
use std::sync::Mutex;

use anyhow::{Context as _, anyhow};
use sonde_results::choice;
use sonde_wire::prefix::Prefix;

use crate::error::{RunError, SettingsError};

choice! {
    /// Which addresses of a name will do.
    pub enum Family default Any {
        /// The first that the resolver gives
        Any = "any",
        /// IPv4 only
        V4 = "ipv4",
        /// IPv6 only
        V6 = "ipv6",
    }
}

impl Family {
    /// Whether `address` is of this family.
    pub fn fits(self, address: IpAddr) -> bool {
        match self {
            Family::Any => true,
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        }
    }
}

/// The addresses of `host` of the family asked for, in the resolver's order; an address is
/// its own name.
///
/// # Errors
/// Wrong settings: what is no name on any host, an address of the other family. Of this host: a
/// name that it cannot resolve now. The text does not name `host`.
pub fn resolve(host: &str, family: Family) -> Result<Vec<IpAddr>, RunError> {
    let found: Vec<IpAddr> = match (address(host), with_port(host)) {
        (Some(address), _) => vec![address],
        (None, Some(_)) => return Err(check_form(host).err().unwrap_or_default().into()),
        (None, None) => (bare(host), 0)
            .to_socket_addrs()
            .context("cannot be resolved; check the name, or give its address")?
            .map(|a| a.ip())
            .collect(),
    };
    let mut fitting = Vec::new();
    for address in found.into_iter().filter(|a| family.fits(*a)) {
        if !fitting.contains(&address) {
            fitting.push(address);
        }
    }
    if fitting.is_empty() {
        let wanted = if family == Family::V6 { "IPv6" } else { "IPv4" };
        let why = format!("has no {wanted} address; leave out `family`");
        return Err(match is_name(host) {
            true => RunError::Host(anyhow!(why)),
            false => SettingsError::of("target.host", why).into(),
        });
    }
    Ok(fitting)
}

/// Whether `host` can be an address or a name, before anybody is asked.
///
/// # Errors
/// It has a port. The text does not name `host`.
pub fn check_form(host: &str) -> Result<(), SettingsError> {
    match (address(host), with_port(host)) {
        (None, Some((name, port))) => {
            let why = format!("is no name; give the port apart: {name} `stream.port = {port}`");
            Err(SettingsError::of("target.host", why))
        }
        _ => Ok(()),
    }
}

/// An address and its scope (RFC 4007, section 11): "fe80::1%eth0", also in brackets.
pub(super) fn scoped(host: &str) -> (&str, Option<&str>) {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    match bare.split_once('%') {
        Some((address, zone)) if address.parse::<Ipv6Addr>().is_ok() && !zone.is_empty() => {
            (address, Some(zone))
        }
        _ => (host, None),
    }
}

/// The first address of `host` that is no single host's on any network: multicast (RFC 1112, RFC
/// 4291) or the limited broadcast (RFC 919). A name has none before it is resolved.
pub(super) fn group_address(host: &str) -> Option<IpAddr> {
    let (host, _) = scoped(host);
    let ends = match (host.parse::<Prefix>(), range_of(host)) {
        (Ok(prefix), _) if host.contains('/') => [Some(prefix.address), None],
        (_, Some((low, high))) => [Some(low), Some(high)],
        _ => [address(host), None],
    };
    ends.into_iter().flatten().find(is_group)
}

/// Whether it is multicast, or the limited broadcast.
pub(super) fn is_group(address: &IpAddr) -> bool {
    address.is_multicast() || *address == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// Both ends of "10.0.0.1-10.0.0.9"; names may contain hyphens, so both must be addresses.
pub(super) fn range_of(host: &str) -> Option<(IpAddr, IpAddr)> {
    let (low, high) = host.split_once('-')?;
    Some((low.trim().parse().ok()?, high.trim().parse().ok()?))
}

/// "10.0.0.1:862" and "[2001:db8::1]:862" in two parts.
fn with_port(host: &str) -> Option<(&str, u16)> {
    let (name, port) = host.rsplit_once(':')?;
    let whole = name.ends_with(']') || !name.contains(':');
    Some((name, port.parse().ok().filter(|_| whole)?))
}

/// Resolves all of `hosts`, several at a time.
pub fn resolve_all(
    hosts: &[&str],
    family: Family,
) -> HashMap<String, Result<Vec<IpAddr>, RunError>> {
    let (next, found) = (Mutex::new(hosts.iter()), Mutex::new(HashMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(hosts.len()) {
            scope.spawn(|| {
                loop {
                    let host = next.lock().unwrap_or_else(|e| e.into_inner()).next();
                    let Some(&host) = host else { break };
                    let addresses = resolve(host, family);
                    let mut found = found.lock().unwrap_or_else(|e| e.into_inner());
                    found.insert(host.to_string(), addresses);
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(|e| e.into_inner())
}

/// Whether `host` has to be looked up.
pub fn is_name(host: &str) -> bool {
    address(host).is_none()
}

/// The address that `host` is, perhaps in brackets; `None`: it is a name.
pub fn address(host: &str) -> Option<IpAddr> {
    bare(host).parse().ok()
}

fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host)
}

/// Names looked up at the same time.
const AT_ONCE: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_name_does_not_hide_the_others() {
        let hosts: Vec<String> = (1..100).map(|i| format!("127.0.0.{i}")).collect();
        let mut all: Vec<&str> = hosts.iter().map(String::as_str).collect();
        all.insert(50, "no-such-host.invalid");
        let found = resolve_all(&all, Family::Any);
        assert_eq!(found.len(), 100);
        assert_eq!(found.values().filter(|r| r.is_err()).count(), 1);
        assert_eq!(found["127.0.0.7"].as_ref().unwrap(), &["127.0.0.7".parse::<IpAddr>().unwrap()]);
    }
}
