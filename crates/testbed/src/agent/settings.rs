//! How an agent serves.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_run::change::{Change, restart};
use sonde_run::confined::Uses;
use sonde_run::error::SettingsError;
use sonde_run::text;
use sonde_wire::prefix::Prefix;

/// How an agent serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Address and port to listen on, for the controller.
    pub listen: SocketAddr,
    /// This agent's certificate, PEM; it carries the address by which the plan names it.
    pub cert: PathBuf,
    /// The certificate's key, PEM.
    pub key: PathBuf,
    /// The authority by which controllers are trusted, PEM.
    pub ca: PathBuf,
    /// Addresses in these prefixes are allowed, too, besides 198.18.0.0/15 and 2001:2::/48
    /// (RFC 6815).
    #[serde(default, with = "text::list")]
    #[schemars(with = "Vec<String>")]
    pub allow: Vec<Prefix>,
}

impl Settings {
    /// What going over to `new` takes.
    pub fn change(&self, new: &Settings) -> Change {
        restart(self, new)
    }

    /// What it needs of root's rights once it listens.
    pub fn uses(&self) -> Vec<Uses> {
        vec![Uses::Trials, Uses::Namespaces]
    }

    /// Whether they can be: the first that cannot is named.
    ///
    /// # Errors
    /// A file that is not named.
    pub fn check(&self) -> Result<(), SettingsError> {
        for (key, path) in [("cert", &self.cert), ("key", &self.key), ("ca", &self.ca)] {
            if path.as_os_str().is_empty() {
                let why = "name a PEM file; 'sonde agent cert' makes them";
                return Err(SettingsError::new(key, why));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_the_same_after_they_were_written() {
        let settings = Settings {
            listen: "192.0.2.1:8620".parse().unwrap(),
            cert: "a.pem".into(),
            key: "a.key".into(),
            ca: "ca.pem".into(),
            allow: vec!["10.0.0.0/8".parse().unwrap()],
        };
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings);
        assert_eq!(settings.check(), Ok(()));
        let without = Settings { ca: PathBuf::new(), ..settings };
        assert!(without.check().unwrap_err().message.starts_with("ca: "));
    }
}
