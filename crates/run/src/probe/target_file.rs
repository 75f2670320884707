//! The targets file: TOML, or plain text with one host on each line.
//!
//! Every complaint names the file, the line and the key. Values go through the same
//! parsers as the command line's, so both accept the same things.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use sonde_results::units::{parse_dscp, parse_duration, parse_positive_duration};

use super::settings::{self, RunOptions, StreamOptions, TargetEntry};

/// What a targets file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetsFile {
    /// For all targets that say nothing themselves.
    pub stream: StreamOptions,
    /// For the run.
    pub run: RunOptions,
    /// The targets, in the file's order.
    pub targets: Vec<TargetEntry>,
}

/// What is wrong with a targets file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file's name as it was given.
    pub file: String,
    /// Line, from 1; `None`: the file as a whole.
    pub line: Option<usize>,
    /// What is wrong, with the key's name.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{} line {line}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for ConfigError {}

impl TargetsFile {
    /// Reads and checks `path`.
    pub fn read(path: &Path) -> Result<TargetsFile, ConfigError> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => TargetsFile::parse(&file, &text),
            Err(e) => Err(ConfigError {
                file,
                line: None,
                message: format!("cannot be read: {e}; --targets names a TOML or text file"),
            }),
        }
    }

    /// Checks `text`; `file` is for messages only.
    pub fn parse(file: &str, text: &str) -> Result<TargetsFile, ConfigError> {
        let parsed = if is_toml(text) {
            Reader { file, text }.toml()
        } else {
            Reader { file, text }.plain()
        }?;
        if parsed.targets.is_empty() {
            let message = "holds no target; add one host a line, or [[target]] tables with 'host'";
            return Err(ConfigError { file: file.into(), line: None, message: message.into() });
        }
        refuse_twins(file, &parsed.targets)?;
        Ok(parsed)
    }
}

/// A scalar as text, and what it was.
struct Scalar {
    text: String,
    is_text: bool,
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
}

impl Reader<'_> {
    fn plain(&self) -> Result<TargetsFile, ConfigError> {
        let mut parsed = TargetsFile::default();
        for (index, line) in self.text.lines().enumerate() {
            let host = line.split('#').next().unwrap_or_default().trim();
            if host.is_empty() {
                continue;
            }
            if host.contains(char::is_whitespace) {
                return Err(ConfigError {
                    file: self.file.into(),
                    line: Some(index + 1),
                    message: format!("'{host}' is not one host; write one a line, or use TOML"),
                });
            }
            let at = format!("{} line {}", self.file, index + 1);
            parsed.targets.push(TargetEntry { host: host.into(), at, ..Default::default() });
        }
        Ok(parsed)
    }

    fn toml(&self) -> Result<TargetsFile, ConfigError> {
        let document = DeTable::parse(self.text).map_err(|e| ConfigError {
            file: self.file.into(),
            line: e.span().map(|s| self.line(&s)),
            message: e.message().trim().replace('\n', ", "),
        })?;
        let mut parsed = TargetsFile::default();
        for (key, value) in document.get_ref() {
            let name: &str = key.get_ref();
            if name == "target" {
                let DeValue::Array(tables) = value.get_ref() else {
                    return Err(self.error(value.span(), "target must be written as [[target]]"));
                };
                for table in tables {
                    parsed.targets.push(self.target(table)?);
                }
            } else if !self.run_key(&mut parsed.run, name, value)?
                && !self.stream_key(&mut parsed.stream, name, value)?
            {
                let known = || ["target"].iter().chain(RUN_KEYS).chain(STREAM_KEYS);
                return Err(self.unknown(key.span(), name, "", known().copied()));
            }
        }
        Ok(parsed)
    }

    fn target(&self, table: &Spanned<DeValue<'_>>) -> Result<TargetEntry, ConfigError> {
        let DeValue::Table(keys) = table.get_ref() else {
            return Err(self.error(table.span(), "target must be written as [[target]]"));
        };
        let at = format!("{} line {}", self.file, self.line(&table.span()));
        let mut entry = TargetEntry { at, ..Default::default() };
        for (key, value) in keys {
            match &key.get_ref()[..] {
                "host" => entry.host = self.string("host", value)?,
                "name" => entry.name = Some(self.string("name", value)?),
                "first" => {
                    entry.first = Some(self.number("first", value, |t| {
                        settings::parse_count(t)
                            .map_err(|_| format!("'{t}' is not a number of hosts"))
                    })?);
                }
                name => {
                    if !self.stream_key(&mut entry.stream, name, value)? {
                        if RUN_KEYS.contains(&name) {
                            let message = format!(
                                "'{name}' holds for the whole run; move it above the first [[target]]"
                            );
                            return Err(self.error(key.span(), &message));
                        }
                        let known = || TARGET_KEYS.iter().chain(STREAM_KEYS).copied();
                        return Err(self.unknown(key.span(), name, " in [[target]]", known()));
                    }
                }
            }
        }
        if entry.host.is_empty() {
            return Err(self.error(table.span(), "this [[target]] has no 'host'"));
        }
        Ok(entry)
    }

    /// Whether `name` is a key of the run; if so its value is set.
    fn run_key(
        &self,
        run: &mut RunOptions,
        name: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<bool, ConfigError> {
        match name {
            "duration" => run.duration = Some(self.any(name, value, parse_positive_duration)?),
            "timeout" => run.timeout = Some(self.any(name, value, settings::parse_timeout)?),
            "record_interval" => {
                run.record_interval =
                    Some(self.any(name, value, settings::parse_record_interval)?);
            }
            "late_limit" => run.late_limit = Some(self.any(name, value, parse_duration)?),
            "seed" => {
                run.seed = Some(self.number(name, value, |t| {
                    t.parse().map_err(|_| format!("'{t}' is not a whole number from 0 on"))
                })?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether `name` is a key of streams; if so its value is set.
    fn stream_key(
        &self,
        stream: &mut StreamOptions,
        name: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<bool, ConfigError> {
        match name {
            "interval" => stream.interval = Some(self.any(name, value, parse_positive_duration)?),
            "count" => stream.count = Some(self.number(name, value, settings::parse_count)?),
            "size" => stream.size = Some(self.number(name, value, settings::parse_size)?),
            "dscp" => stream.dscp = Some(self.dscp_list(value)?),
            "port" => stream.port = Some(self.number(name, value, settings::parse_port)?),
            "flows" => stream.flows = Some(self.number(name, value, settings::parse_flows)?),
            "flow_ports" => stream.flow_ports = Some(self.word(name, value, str::parse)?),
            "schedule" => stream.schedule = Some(self.word(name, value, str::parse)?),
            "ttl" => stream.ttl = Some(self.number(name, value, settings::parse_ttl)?),
            "reflector" => {
                stream.reflector = Some(self.word(name, value, str::parse)?);
            }
            "source" => stream.source = Some(self.word(name, value, settings::parse_address)?),
            "source_port" => {
                stream.source_port = Some(self.number(name, value, settings::parse_port)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn dscp_list(&self, value: &Spanned<DeValue<'_>>) -> Result<Vec<u8>, ConfigError> {
        let DeValue::Array(items) = value.get_ref() else {
            return Ok(vec![self.any("dscp", value, parse_dscp)?]);
        };
        let mut list = Vec::with_capacity(items.len());
        for item in items {
            let dscp = self.any("dscp", item, parse_dscp)?;
            if list.contains(&dscp) {
                return Err(self.error(item.span(), &format!("dscp: {dscp} is listed twice")));
            }
            list.push(dscp);
        }
        if list.is_empty() {
            return Err(
                self.error(value.span(), "dscp: the list is empty; leave the key out instead")
            );
        }
        Ok(list)
    }

    fn string(&self, key: &str, value: &Spanned<DeValue<'_>>) -> Result<String, ConfigError> {
        self.word(key, value, |text| match text.trim() {
            "" => Err("must not be empty".to_string()),
            // It would reach the terminal.
            text if text.contains(char::is_control) => {
                Err(format!("{text:?} holds a control character; leave it out"))
            }
            text => Ok(text.to_string()),
        })
    }

    /// A string that `parse` accepts.
    fn word<T>(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        match scalar(value) {
            Some(s) if s.is_text => self.parsed(key, value, &s.text, parse),
            _ => Err(self.wrong_type(key, value, "a string")),
        }
    }

    /// A number that `parse` accepts.
    fn number<T>(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        match scalar(value) {
            Some(s) if !s.is_text => self.parsed(key, value, &s.text, parse),
            _ => Err(self.wrong_type(key, value, "a number")),
        }
    }

    /// A string or a number that `parse` accepts.
    fn any<T>(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        match scalar(value) {
            Some(s) => self.parsed(key, value, &s.text, parse),
            None => Err(self.wrong_type(key, value, "a string or a number")),
        }
    }

    fn parsed<T>(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        text: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        parse(text).map_err(|e| self.error(value.span(), &format!("{key}: {e}")))
    }

    fn wrong_type(&self, key: &str, value: &Spanned<DeValue<'_>>, wanted: &str) -> ConfigError {
        let found = value.get_ref().type_str();
        self.error(value.span(), &format!("{key} must be {wanted}, not of type {found}"))
    }

    fn unknown<'k>(
        &self,
        span: Range<usize>,
        name: &str,
        place: &str,
        known: impl Iterator<Item = &'k str>,
    ) -> ConfigError {
        let nearest = known
            .map(|k| (distance(name, k), k))
            .min()
            .filter(|&(d, k)| d <= 2.max(k.len() / 3))
            .map_or(String::new(), |(_, k)| format!("; did you mean '{k}'?"));
        self.error(span, &format!("unknown key '{name}'{place}{nearest}"))
    }

    fn error(&self, span: Range<usize>, message: &str) -> ConfigError {
        ConfigError {
            file: self.file.into(),
            line: Some(self.line(&span)),
            message: message.into(),
        }
    }

    fn line(&self, span: &Range<usize>) -> usize {
        let end = span.start.min(self.text.len());
        self.text.as_bytes()[..end].iter().filter(|&&b| b == b'\n').count() + 1
    }
}

/// The text of a string or number; `None` for anything else.
fn scalar(value: &Spanned<DeValue<'_>>) -> Option<Scalar> {
    let (text, is_text) = match value.get_ref() {
        DeValue::String(s) => (s.to_string(), true),
        DeValue::Integer(i) if i.radix() == 10 => (i.as_str().to_string(), false),
        DeValue::Integer(i) => {
            (u64::from_str_radix(i.as_str(), i.radix()).ok()?.to_string(), false)
        }
        DeValue::Float(f) => (f.as_str().to_string(), false),
        _ => return None,
    };
    Some(Scalar { text, is_text })
}

/// The first line that says anything decides: keys and tables are TOML, hosts are not.
fn is_toml(text: &str) -> bool {
    text.lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .find(|line| !line.is_empty())
        .is_some_and(|line| line.contains('=') || line.starts_with('['))
}

/// The same host with the same settings is a slip: its streams would be the same twice.
fn refuse_twins(file: &str, targets: &[TargetEntry]) -> Result<(), ConfigError> {
    let mut seen = std::collections::HashMap::<&str, Vec<&TargetEntry>>::new();
    for target in targets {
        let namesakes = seen.entry(&target.host).or_default();
        if let Some(twin) = namesakes.iter().find(|t| t.stream == target.stream) {
            return Err(ConfigError {
                file: file.into(),
                line: target.at.rsplit(' ').next().and_then(|n| n.parse().ok()),
                message: format!("host '{}' is there already, at {}", target.host, twin.at),
            });
        }
        namesakes.push(target);
    }
    Ok(())
}

/// Insertions, deletions and replacements between two short words (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

const TARGET_KEYS: &[&str] = &["host", "name", "first"];
const RUN_KEYS: &[&str] = &["duration", "timeout", "record_interval", "late_limit", "seed"];
const STREAM_KEYS: &[&str] = &[
    "interval",
    "count",
    "size",
    "dscp",
    "port",
    "flows",
    "flow_ports",
    "schedule",
    "ttl",
    "reflector",
    "source",
    "source_port",
];

#[cfg(test)]
mod tests;
