//! Target files: whatever stands in one, it is read or refused at a line that it has.

use sonde_run::probe::target_file::TargetsFile;
use sonde_run::toml_file::TomlText;

pub fn targets(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match TargetsFile::parse(&TomlText { file: "f".into(), text: text.into() }) {
        Ok(file) => {
            assert!(!file.targets.is_empty());
            assert!(file.targets.iter().all(|target| !target.host.is_empty()));
        }
        Err(error) => {
            let lines = text.lines().count().max(1) + 1;
            assert!(error.line.is_none_or(|line| (1..=lines).contains(&line)), "{error}");
            assert!(!error.message.is_empty());
        }
    }
}
