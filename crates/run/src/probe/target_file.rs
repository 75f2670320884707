//! The targets file: TOML, or plain text with one host on each line.
//!
//! Every complaint names the file, the line and the key. Values go through the same
//! parsers as the command line's, so both accept the same things.

mod value;

use std::net::IpAddr;
use std::path::Path;

use serde::Deserialize;
use sonde_meter::stamp::{ReflectorKind, Schedule};
use toml::Spanned;

use super::settings::{PortRange, RunOptions, StreamOptions, TargetEntry};
use crate::error::{FileLine, SettingsError};
use crate::toml_file::TomlText;

/// What a targets file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetsFile {
    /// For all targets that say nothing themselves.
    pub stream: StreamOptions,
    /// Options of the run as a whole.
    pub run: RunOptions,
    /// The targets, in the file's order.
    pub targets: Vec<TargetEntry>,
}

impl TargetsFile {
    /// Reads and checks `path`.
    ///
    /// # Errors
    /// It cannot be read, or says what cannot be.
    pub fn read(path: &Path) -> Result<TargetsFile, SettingsError> {
        TargetsFile::parse(&TomlText::read(path, "name a TOML or text file")?)
    }

    /// Checks what a file holds.
    ///
    /// # Errors
    /// It says what cannot be.
    pub fn parse(source: &TomlText) -> Result<TargetsFile, SettingsError> {
        let read = if is_toml(&source.text) { toml(source) } else { plain(source) }?;
        if read.targets.is_empty() {
            let why = "holds no target; add one host a line, or [[target]] tables with 'host'";
            return Err(source.whole(why));
        }
        refuse_twins(&read.targets)?;
        Ok(read)
    }
}

fn plain(source: &TomlText) -> Result<TargetsFile, SettingsError> {
    let mut read = TargetsFile::default();
    for (index, line) in source.text.lines().enumerate() {
        let host = line.split('#').next().unwrap_or_default().trim();
        if host.is_empty() {
            continue;
        }
        let at = Some(FileLine { file: source.file.clone(), line: index + 1 });
        if host.contains(char::is_whitespace) {
            let message = format!("'{host}' is not one host; write one a line, or use TOML");
            return Err(SettingsError::of("target.host", message).at(at.as_ref()));
        }
        read.targets.push(TargetEntry { host: host.into(), at, ..Default::default() });
    }
    Ok(read)
}

fn toml(source: &TomlText) -> Result<TargetsFile, SettingsError> {
    let top: Top = source.parse()?;
    let stream = top.stream();
    let Top { duration, timeout, record_interval, late_limit, seed, target, .. } = top;
    let run = RunOptions { duration, timeout, record_interval, late_limit, seed };
    let entry = |table: Spanned<Target>| {
        let line = source.line(table.span().start);
        let at = Some(FileLine { file: source.file.clone(), line });
        let table = table.into_inner();
        let stream = table.stream();
        TargetEntry { host: table.host, name: table.name, first: table.first, stream, at }
    };
    Ok(TargetsFile { stream, run, targets: target.into_iter().map(entry).collect() })
}

/// A table that may also say all of [`StreamOptions`]: `serde(flatten)` would lose the lines.
macro_rules! with_stream_keys {
    (struct $table:ident { $($own:tt)* } $($key:ident: $type:ty = $read:literal,)*) => {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $table {
            $($own)*
            $(#[serde(default, deserialize_with = $read)] $key: Option<$type>,)*
        }

        impl $table {
            fn stream(&self) -> StreamOptions {
                StreamOptions { $($key: self.$key.clone(),)* }
            }
        }
    };
    ($(struct $table:ident $own:tt)*) => { $(with_stream_keys! {
        struct $table $own
        interval: i64 = "value::interval",
        count: u64 = "value::count",
        size: u16 = "value::size",
        dscp: Vec<u8> = "value::dscp",
        port: u16 = "value::port",
        flows: u16 = "value::flows",
        flow_ports: PortRange = "value::flow_ports",
        schedule: Schedule = "value::schedule",
        ttl: u8 = "value::ttl",
        reflector: ReflectorKind = "value::reflector",
        source: IpAddr = "value::source",
        source_port: u16 = "value::port",
    })* };
}

with_stream_keys! {
    struct Top {
        #[serde(default, deserialize_with = "value::interval")]
        duration: Option<i64>,
        #[serde(default, deserialize_with = "value::timeout")]
        timeout: Option<i64>,
        #[serde(default, deserialize_with = "value::record_interval")]
        record_interval: Option<i64>,
        #[serde(default, deserialize_with = "value::late_limit")]
        late_limit: Option<i64>,
        #[serde(default, deserialize_with = "value::seed")]
        seed: Option<u64>,
        #[serde(default)]
        target: Vec<Spanned<Target>>,
    }
    struct Target {
        #[serde(deserialize_with = "value::host")]
        host: String,
        #[serde(default, deserialize_with = "value::name")]
        name: Option<String>,
        #[serde(default, deserialize_with = "value::first")]
        first: Option<u64>,
        #[serde(
            default,
            rename = "duration",
            alias = "timeout",
            alias = "record_interval",
            alias = "late_limit",
            alias = "seed",
            deserialize_with = "value::of_the_run"
        )]
        _of_the_run: (),
    }
}

/// The first line that says anything decides: keys and tables are TOML, hosts are not.
fn is_toml(text: &str) -> bool {
    text.lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .find(|line| !line.is_empty())
        .is_some_and(|line| line.contains('=') || line.starts_with('['))
}

/// The same host with the same settings is a slip: its streams would be the same twice.
fn refuse_twins(targets: &[TargetEntry]) -> Result<(), SettingsError> {
    let mut seen = std::collections::HashMap::<&str, Vec<&TargetEntry>>::new();
    for target in targets {
        let namesakes = seen.entry(&target.host).or_default();
        if let Some(twin) = namesakes.iter().find(|t| t.stream == target.stream) {
            let before = twin.at.iter().map(FileLine::to_string).collect::<String>();
            let message = format!("host '{}' is there already, at {before}", target.host);
            return Err(SettingsError::of("target.host", message).at(target.at.as_ref()));
        }
        namesakes.push(target);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
