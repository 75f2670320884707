//! The store in ClickHouse, for what one machine cannot keep: plain HTTP, RowBinary, several stations
//! in one database.
//!
//! What comes is durable in a spool on this host first: the journal of the embedded store. Every few
//! seconds a file of it, a *lot*, becomes rows of the server: those at the full rate, and the roll-ups
//! of them, each by one statement for each table and partition. A lot has a number; each table keeps
//! for each row the greatest number that is in it, and a statement inserts only where it is not there
//! yet. So a lot may be sent as often as needed, and is in each table once. Materialised views would
//! not do: a server that ends between a table and its view has the one without the other.
//!
//! A station has a number, claimed once, and the numbers of its series and events begin with it. So
//! stations register series without asking anybody, also while the server is away.
//!
//! ```text
//! sonde.station_0, station_1   views: who has the number; making one is the claim
//! sonde.series, event          labels and events
//! sonde.iv, iv1m, ...          tables, by the names of the embedded store
//! ```

mod claim;
mod http;
mod layout;
mod reader;
mod retain;
mod schema;
mod ship;
mod spool;

pub use reader::ClickHouseReader;
pub use spool::{ClickHouseOptions, ClickHouseStore, ClickHouseWriter};

use std::fmt;

/// Where ClickHouse is.
#[derive(Clone, PartialEq, Eq)]
pub struct ClickHouseServer {
    url: String,
    database: String,
    user: Option<String>,
    password: Option<String>,
}

impl ClickHouseServer {
    /// From `http://host:8123/database`, or https; without a database, `sonde`. A user stands before
    /// the host or is given by itself; the password is no part of the address.
    ///
    /// # Errors
    /// What is wrong, and what is allowed.
    pub fn parse(url: &str) -> Result<Self, String> {
        let wrong = || format!("'{url}' is no address of ClickHouse; write http://host:8123/sonde");
        let scheme = ["http://", "https://"].into_iter().find(|s| url.starts_with(s));
        let scheme = scheme.ok_or_else(wrong)?;
        let (host, path) =
            url[scheme.len()..].split_once('/').unwrap_or((&url[scheme.len()..], ""));
        let (user, host) = host.rsplit_once('@').map_or((None, host), |(u, h)| (Some(u), h));
        let plain = |text: &str, more: &str| {
            text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        if host.is_empty() || !plain(host, ".-:[]%") {
            return Err(wrong());
        }
        if user.is_some_and(|user| user.contains(':')) {
            return Err(
                "a password does not stand in the address; name a file that holds it".into()
            );
        }
        let database = if path.is_empty() { "sonde" } else { path };
        let begins = database.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !begins || !plain(database, "_") || database.len() > 64 {
            return Err(format!(
                "'{database}' is no name of a database; use letters, digits and _"
            ));
        }
        Ok(ClickHouseServer {
            url: format!("{scheme}{host}/"),
            database: database.into(),
            user: user.map(Into::into),
            password: None,
        })
    }

    /// With that password.
    pub fn with_password(self, password: String) -> Self {
        ClickHouseServer { password: Some(password), ..self }
    }
}

impl fmt::Debug for ClickHouseServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClickHouseServer({}{})", self.url, self.database)
    }
}

/// The numbers of series that a station has: those that begin with its own.
fn series_of(station: u32) -> std::ops::RangeInclusive<u32> {
    let first = station << SERIES_BITS;
    first..=first + ((1 << SERIES_BITS) - 1)
}

/// Numbers of series for each station, as a power of two.
const SERIES_BITS: u32 = 20;
/// Stations that one database takes.
const STATIONS: u32 = 1 << (32 - SERIES_BITS);
/// Numbers of events for each station, as a power of two; with the station they are below 2^53, so
/// that JavaScript can hold them.
const EVENT_BITS: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_host_and_database() {
        let of = |url: &str| ClickHouseServer::parse(url).map(|s| (s.url, s.database, s.user));
        let it = |url: &str, database: &str, user: Option<&str>| {
            Ok((url.to_owned(), database.to_owned(), user.map(str::to_owned)))
        };
        assert_eq!(of("http://[::1]:8123"), it("http://[::1]:8123/", "sonde", None));
        assert_eq!(of("https://ch.example/net_1"), it("https://ch.example/", "net_1", None));
        assert_eq!(of("http://me@ch:8123/"), it("http://ch:8123/", "sonde", Some("me")));
        for url in
            ["", "ch:8123", "http://", "http:///x", "ftp://ch", "http://ch/a/b", "http://ch/a;b"]
        {
            assert!(of(url).is_err(), "{url}");
        }
        assert!(of("http://me:secret@ch/").unwrap_err().contains("file"));
    }
}
