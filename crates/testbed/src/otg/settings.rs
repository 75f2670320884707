//! How a server of the model serves.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_run::change::{Change, restart};
use sonde_run::confined::Uses;
use sonde_run::engine::Engine::{AfPacket, AfXdp};
use sonde_run::error::SettingsError;
use sonde_run::text;
use sonde_wire::prefix::Prefix;

use super::EtherType;

/// How a server of the model serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// HTTPS: this server's certificate, PEM.
    #[serde(default)]
    pub cert: Option<PathBuf>,
    /// HTTPS: the certificate's key, PEM.
    #[serde(default)]
    pub key: Option<PathBuf>,
    /// HTTPS: only clients with a certificate of this authority, PEM.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// Addresses in these prefixes are allowed, too, besides 198.18.0.0/15 and 2001:2::/48
    /// (RFC 6815).
    #[serde(default, with = "text::list")]
    #[schemars(with = "Vec<String>")]
    pub allow: Vec<Prefix>,
    /// Frames of these EtherTypes are allowed without headers that Sonde could check: `arp`,
    /// `0x88f7`.
    #[serde(default, with = "text::list")]
    #[schemars(with = "Vec<String>")]
    pub allow_ethertype: Vec<EtherType>,
    /// The token that clients show is kept in this file; absent: every start draws another one.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// Plans are taken, too, and their runs kept in this folder.
    #[serde(default)]
    pub runs: Option<PathBuf>,
}

impl Settings {
    /// What going over to `new` takes.
    pub fn change(&self, new: &Settings) -> Change {
        restart(self, new)
    }

    /// What it needs of root's rights once it listens.
    pub fn uses(&self) -> Vec<Uses> {
        match self.runs {
            // A plan makes laboratories of network namespaces.
            Some(_) => vec![Uses::Commands],
            None => {
                let engines = [AfPacket, AfXdp].map(Uses::Engine).into_iter();
                engines.chain([Uses::Trials, Uses::Namespaces]).collect()
            }
        }
    }

    /// Whether they can be: the first that cannot is named.
    ///
    /// # Errors
    /// A certificate without a key, an address that others reach without certificates.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.cert.is_some() != self.key.is_some() {
            return Err(SettingsError::new("cert", "a certificate and its `key` go together"));
        }
        if self.ca.is_some() && self.cert.is_none() {
            return Err(SettingsError::new(
                "ca",
                "clients show certificates over HTTPS only; give `cert` and `key`",
            ));
        }
        if self.ca.is_some() && self.token_file.is_some() {
            return Err(SettingsError::new(
                "token_file",
                "clients show certificates of `ca` instead of a token",
            ));
        }
        if self.ca.is_none() && !self.listen.ip().is_loopback() {
            return Err(SettingsError::new(
                "listen",
                format!(
                    "{} can be reached by others; listen on 127.0.0.1, or give `cert`, `key` \
                 and `ca`, so that clients need certificates",
                    self.listen
                ),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named_and_the_rest_is_the_same_after_it_was_written() {
        let open = r#"{"listen": "127.0.0.1:8443", "allow_ethertype": ["arp", "0x88f7"]}"#;
        let settings: Settings = serde_json::from_str(open).unwrap();
        assert_eq!(settings.check(), Ok(()));
        let written = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&written).unwrap(), settings);
        let wrong = |change: fn(&mut Settings)| {
            let mut settings = settings.clone();
            change(&mut settings);
            settings.check().unwrap_err().message
        };
        assert!(wrong(|s| s.cert = Some("c.pem".into())).starts_with("cert: "));
        assert!(wrong(|s| s.ca = Some("ca.pem".into())).starts_with("ca: "));
        let everywhere = |s: &mut Settings| s.listen = "0.0.0.0:8443".parse().unwrap();
        assert!(wrong(everywhere).starts_with("listen: "));
    }
}
