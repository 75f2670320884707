//! Files that a station reads at its start, and without which it does not start.

use sonde_run::error::SettingsError;

use super::{Config, ReadFile};

impl Config {
    /// What is wrong with files of secrets, tokens and certificates that `files` name, as the start
    /// of a station on this host would say it.
    pub fn check_secrets(&self, files: &[ReadFile]) -> Vec<SettingsError> {
        let mut errors = Vec::new();
        let mut add = |file: &ReadFile, table: &str, result: Result<(), SettingsError>| {
            let Err(error) = result else { return };
            let error = error.inside(table);
            let key = error.key.clone().unwrap_or_default();
            let line = file.line_of(&key.split('.').collect::<Vec<_>>());
            errors.push(error.at(Some(&line)));
        };
        for file in files {
            let says = &file.says;
            for (name, sink) in says.alert.iter().flat_map(|alert| &alert.receiver) {
                let table = format!("alert.receiver.{name}.{}", sink.kind());
                add(file, &table, sink.open().map(drop));
            }
            for (name, export) in &says.export {
                add(file, &format!("export.{name}"), export.open().map(drop));
            }
            if let Some(api) = &says.api {
                add(file, "api", api.check_files());
            }
        }
        errors
    }
}
