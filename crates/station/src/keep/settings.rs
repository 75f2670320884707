//! The table `[store]` of a station's configuration: where it keeps what, and for how long.
//!
//! ```toml
//! [store]
//! path = "/var/lib/sonde/store"
//! keep_free = "2GB"
//! url = "http://clickhouse.example:8123/sonde"    # into ClickHouse; without it, into `path`
//!
//! [store.keep]
//! iv = { age = "2d", size = "3GB" }
//! iv1d = { age = "forever" }
//! ```

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::units::{format_duration, format_octets, parse_duration, parse_octets};
use sonde_run::error::{RunError, SettingsError};
use sonde_run::text;
use sonde_store::{
    ClickHouseOptions, ClickHouseServer, ClickHouseStore, KeepTable, MINUTE_NS, Retention, Store,
    StoreBackend, StoreOptions, Table,
};

use crate::alert::secret::SecretFile;

/// Where what is measured is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StoreSettings {
    /// The folder of the store; made if it is not there. With `url` the spool is in it.
    pub path: PathBuf,
    /// A ClickHouse that keeps the rows: `http://host:8123/database`, or https; a user may stand
    /// before the host. Absent: the rows are kept in `path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The file that holds the user's password there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<SecretFile>,
    /// The spool takes no more once it is so large: what is measured while ClickHouse is away.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub spool: KeepSize,
    /// So much of the disk is left to others: the oldest rows go before there is less.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub keep_free: KeepSize,
    /// How long and how much of each table is kept.
    pub keep: KeepTables,
}

impl Default for StoreSettings {
    fn default() -> Self {
        StoreSettings {
            path: "/var/lib/sonde/store".into(),
            url: None,
            password_file: None,
            spool: KeepSize(Some(5_000_000_000)),
            keep_free: KeepSize(Some(Retention::default().floor_octets)),
            keep: KeepTables::default(),
        }
    }
}

/// How long and how much of each table is kept; absent: as by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KeepTables {
    /// Interval records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iv: Option<KeepSettings>,
    /// Those of one minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iv1m: Option<KeepSettings>,
    /// Those of one hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iv1h: Option<KeepSettings>,
    /// Those of one day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iv1d: Option<KeepSettings>,
    /// Flow records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<KeepSettings>,
    /// Those of five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow5m: Option<KeepSettings>,
    /// Those of one hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow1h: Option<KeepSettings>,
    /// Groups of round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<KeepSettings>,
    /// Those of one minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt1m: Option<KeepSettings>,
    /// Those of one hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt1h: Option<KeepSettings>,
    /// Those of one day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt1d: Option<KeepSettings>,
    /// Counters of interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iface: Option<KeepSettings>,
    /// Those of five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iface5m: Option<KeepSettings>,
    /// Those of one hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iface1h: Option<KeepSettings>,
}

impl KeepTables {
    fn of(&self, table: Table) -> Option<&KeepSettings> {
        let own = match table {
            Table::Interval => &self.iv,
            Table::Interval1m => &self.iv1m,
            Table::Interval1h => &self.iv1h,
            Table::Interval1d => &self.iv1d,
            Table::Flow => &self.flow,
            Table::Flow5m => &self.flow5m,
            Table::Flow1h => &self.flow1h,
            Table::Rtt => &self.rtt,
            Table::Rtt1m => &self.rtt1m,
            Table::Rtt1h => &self.rtt1h,
            Table::Rtt1d => &self.rtt1d,
            Table::Interface => &self.iface,
            Table::Interface5m => &self.iface5m,
            Table::Interface1h => &self.iface1h,
        };
        own.as_ref()
    }
}

/// How long and how much of a table is kept: whichever is reached first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KeepSettings {
    /// Rows older than this go: at least one minute, or `forever`; absent: as by default.
    #[serde(with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub age: Option<KeepAge>,
    /// The oldest rows go while the table is larger: at least 1MB, or `unlimited`; absent: as by
    /// default.
    #[serde(with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub size: Option<KeepSize>,
}

/// An age, ns; `None`: for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAge(pub Option<i64>);

/// Octets; `None`: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepSize(pub Option<u64>);

impl FromStr for KeepAge {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "forever" => Ok(KeepAge(None)),
            _ => match parse_duration(text) {
                Ok(ns) => Ok(KeepAge(Some(ns))),
                Err(_) => Err(format!("'{text}' is no age; write 36h, 90d or forever")),
            },
        }
    }
}

impl Display for KeepAge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("forever"),
            Some(ns) => f.write_str(&format_duration(ns)),
        }
    }
}

impl FromStr for KeepSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "unlimited" => Ok(KeepSize(None)),
            _ => match parse_octets(text) {
                Ok(octets) => Ok(KeepSize(Some(octets))),
                Err(_) => Err(format!("'{text}' is no size; write 500MB, 3GB or unlimited")),
            },
        }
    }
}

impl Display for KeepSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("unlimited"),
            Some(octets) => f.write_str(&format_octets(octets)),
        }
    }
}

impl StoreSettings {
    /// Whether they can be: the first that cannot is named.
    ///
    /// # Errors
    /// No folder; an age or size that is too small to hold anything.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.path.as_os_str().is_empty() {
            return Err(SettingsError::new("path", "it is empty; name a folder"));
        }
        if self.keep_free.0.is_none() {
            return Err(SettingsError::new(
                "keep_free",
                "give a size, as 2GB; 0B keeps nothing free",
            ));
        }
        if let Some(url) = &self.url {
            ClickHouseServer::parse(url).map_err(|why| SettingsError::new("url", why))?;
        }
        if self.password_file.is_some() && self.url.is_none() {
            return Err(SettingsError::new(
                "password_file",
                "it is for a ClickHouse; give its `url`",
            ));
        }
        if self.spool.0.is_some_and(|octets| octets < 1_000_000) {
            return Err(SettingsError::new("spool", "at least 1MB, or unlimited"));
        }
        for table in Table::ALL {
            let Some(keep) = self.keep.of(table) else { continue };
            let wrong = |key: &str, why: &str| {
                Err(SettingsError::new(&format!("keep.{}.{key}", table.name()), why))
            };
            if let Some(KeepAge(Some(age))) = keep.age
                && age < MINUTE_NS
            {
                return wrong("age", "at least 1m, or forever");
            }
            if let Some(KeepSize(Some(size))) = keep.size
                && size < 1_000_000
            {
                return wrong("size", "at least 1MB, or unlimited");
            }
        }
        Ok(())
    }

    /// What is kept.
    pub fn retention(&self) -> Retention {
        let mut retention = Retention::default();
        for table in Table::ALL {
            let KeepTable { age_ns, octets } = retention.tables.entry(table).or_default();
            if self.url.is_some() {
                // By default the sizes are those of a small disk.
                *octets = None;
            }
            let keep = self.keep.of(table);
            if let Some(age) = keep.and_then(|keep| keep.age) {
                *age_ns = age.0;
            }
            if let Some(size) = keep.and_then(|keep| keep.size) {
                *octets = size.0;
            }
        }
        retention.floor_octets = self.keep_free.0.unwrap_or(0);
        retention
    }

    /// Opens the store of the station of that name.
    ///
    /// # Errors
    /// The folder cannot be written, or belongs to another station; of a ClickHouse the first time
    /// also that it cannot be reached.
    pub fn open(&self, station: &str) -> Result<Arc<dyn StoreBackend>, RunError> {
        let Some(url) = &self.url else {
            let store = Store::open(&self.path, self.options()).map_err(anyhow::Error::from)?;
            let found = store.recovery();
            tracing::debug!("found in {}: {found:?}", self.path.display());
            if let Some(example) = &found.foreign_example {
                tracing::warn!(
                    "files in the store that it did not make, and leaves alone: {}, {} among them; \
                     move them elsewhere",
                    found.foreign,
                    example.display()
                );
            }
            if found.unknown > 0 {
                tracing::warn!(
                    "segments in {} that are later than its catalogue, and were set aside in its folder \
                     'damaged': {}; put back a whole back-up, or leave them there",
                    self.path.display(),
                    found.unknown
                );
            }
            return Ok(Arc::new(store));
        };
        let mut server =
            ClickHouseServer::parse(url).map_err(|why| SettingsError::new("store.url", why))?;
        if let Some(file) = &self.password_file {
            let password =
                file.read().map_err(|error| SettingsError::new("store.password_file", error))?;
            server = server.with_password(password.expose().to_owned());
        }
        let options = ClickHouseOptions {
            spool_octets: self.spool.0.unwrap_or(u64::MAX),
            retention: self.retention(),
            ..ClickHouseOptions::new(server, station)
        };
        let store = ClickHouseStore::open(&self.path.join(SPOOL), options);
        Ok(Arc::new(store.map_err(anyhow::Error::from)?))
    }

    /// Whether both write to the same server, in the same way.
    pub fn same_server(&self, other: &StoreSettings) -> bool {
        (&self.url, &self.password_file, self.spool)
            == (&other.url, &other.password_file, other.spool)
    }

    /// How the embedded store works.
    pub fn options(&self) -> StoreOptions {
        StoreOptions { retention: self.retention(), ..StoreOptions::default() }
    }
}

/// The spool's folder in that of the store.
const SPOOL: &str = "clickhouse";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_are_read_as_they_are_written() {
        for text in ["0B", "7B", "64kB", "500MB", "3GB", "2TB", "unlimited"] {
            let written = text.parse::<KeepSize>().unwrap().to_string();
            assert_eq!(written.parse::<KeepSize>(), text.parse());
            assert_eq!(written, text);
        }
        for text in ["", "GB", "3 gb", "-1GB", "99999999999TB", "3GBB"] {
            assert!(text.parse::<KeepSize>().unwrap_err().contains("500MB"), "{text}");
        }
        assert_eq!("3 GB".parse(), Ok(KeepSize(Some(3_000_000_000))));
        assert_eq!("1.5GB".parse(), Ok(KeepSize(Some(1_500_000_000))));
        assert_eq!("2GiB".parse(), Ok(KeepSize(Some(1 << 31))));
        assert_eq!("2d".parse::<KeepAge>().unwrap().to_string(), "172800s");
        assert_eq!("forever".parse(), Ok(KeepAge(None)));
        assert!("2 fortnights".parse::<KeepAge>().is_err());
    }

    #[test]
    fn what_is_not_named_is_as_by_default() {
        let text = "path = '/s'\nkeep_free = '1GB'\n[keep]\niv = { age = '3h' }\nflow = { size = 'unlimited' }";
        let settings: StoreSettings = toml::from_str(text).unwrap();
        let (own, default) = (settings.retention(), Retention::default());
        assert_eq!(own.floor_octets, 1_000_000_000);
        let of = |r: &Retention, table| (r.tables[&table].age_ns, r.tables[&table].octets);
        let (_, size) = of(&default, Table::Interval);
        assert_eq!(of(&own, Table::Interval), (Some(3 * 60 * MINUTE_NS), size));
        let (age, _) = of(&default, Table::Flow);
        assert_eq!(of(&own, Table::Flow), (age, None));
        assert_eq!(own.tables[&Table::Rtt1h], default.tables[&Table::Rtt1h]);
        assert_eq!(StoreSettings::default().retention(), default);
        let written = toml::to_string(&settings).unwrap();
        assert_eq!(toml::from_str::<StoreSettings>(&written).unwrap(), settings);
    }

    #[test]
    fn one_line_names_a_clickhouse_and_its_sizes_are_the_servers() {
        let of = |text: &str| toml::from_str::<StoreSettings>(text).unwrap();
        let settings = of("url = 'http://ch:8123/net'\n[keep]\nflow = { size = '1GB' }");
        settings.check().unwrap();
        let retention = settings.retention();
        assert_eq!(retention.tables[&Table::Interval].octets, None);
        assert_eq!(retention.tables[&Table::Flow].octets, Some(1_000_000_000));
        let age = Retention::default().tables[&Table::Interval].age_ns;
        assert_eq!(retention.tables[&Table::Interval].age_ns, age);
        assert!(!settings.same_server(&StoreSettings::default()));
        for (text, key) in [
            ("url = 'ch:8123'", "url"),
            ("url = 'http://me:secret@ch'", "url"),
            ("password_file = '/p'", "password_file"),
            ("url = 'http://ch'\nspool = '5kB'", "spool"),
        ] {
            let error = of(text).check().unwrap_err();
            assert!(error.to_string().starts_with(key), "{text}: {error}");
        }
    }
}
