//! Where a store is: the option `--store` of what reads one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use clap::{Args, ValueHint};
use sonde_station::alert::secret::SecretFile;
use sonde_store::{ClickHouseReader, ClickHouseServer, EmbeddedReader, Reader};

use crate::exit::Failure;
use crate::query::failed;

#[derive(Args, Debug)]
pub struct StoreArgs {
    /// The folder of the store, or of a ClickHouse its address, as http://host:8123/sonde
    #[arg(
        long,
        global = true,
        value_name = "DIR|URL",
        value_hint = ValueHint::DirPath,
        default_value = "/var/lib/sonde/store"
    )]
    pub store: String,
    /// The file with the password of the ClickHouse's user
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub store_password: Option<PathBuf>,
}

impl StoreArgs {
    /// Opens it to read.
    pub fn open(&self) -> Result<Arc<dyn Reader>, Failure> {
        if !self.store.contains("://") {
            if self.store_password.is_some() {
                let why = "--store-password is for a ClickHouse: give its address with --store";
                return Err(Failure::Usage(anyhow!(why)));
            }
            let folder = Path::new(&self.store);
            if !folder.exists() {
                let why = anyhow!(
                    "there is no store at {}: name a station's folder with --store, or start a \
                     station, which makes it ('sonde run FILE')",
                    folder.display()
                );
                return Err(Failure::CannotRun(why));
            }
            let reader = EmbeddedReader::open(folder, None).map_err(failed)?;
            return Ok(Arc::new(reader));
        }
        let usage = |why: String| Failure::Usage(anyhow!("--store: {why}"));
        let mut server = ClickHouseServer::parse(&self.store).map_err(usage)?;
        if let Some(path) = &self.store_password {
            let password = SecretFile(path.clone()).read();
            let password = password.map_err(|e| Failure::CannotRun(anyhow!(e)))?;
            server = server.with_password(password.expose().to_owned());
        }
        Ok(Arc::new(ClickHouseReader::open(&server)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_nowhere_is_told_with_what_to_do() {
        let store = StoreArgs { store: "/nonexistent/store".into(), store_password: None };
        let Err(Failure::CannotRun(why)) = store.open() else { panic!("it is opened") };
        let text = why.to_string();
        assert!(text.contains("/nonexistent/store") && text.contains("--store"), "{text}");
        assert!(!text.contains("disk"), "{text}");
    }
}
