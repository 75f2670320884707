//! The table `[maintenance.NAME]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_meter::sla::{MaintenanceTime, MaintenanceWindow, Weekday};
use sonde_results::civil_time;
use sonde_results::units::SECOND;
use sonde_run::error::SettingsError;

use super::{check_labels, seconds};
use crate::alert::route::LabelPatterns;

/// Time in which announced work is done: it is left out of availability, and judged for nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MaintenanceSettings {
    /// Whom it is about, as with objectives.
    #[serde(rename = "match")]
    pub labels: LabelPatterns,
    /// Once: its begin, as "2026-12-01T02:00:00Z".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Its end, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// In each week: the day on which it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<Weekday>,
    /// The local time at which it begins, as "02:00".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// How long it lasts.
    #[serde(with = "sonde_run::duration::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub length: Option<i64>,
    /// What local time is ahead of UTC.
    #[serde(with = "super::offset")]
    #[schemars(with = "String")]
    pub utc_offset: i64,
}

/// Announced work, and whom it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedMaintenance {
    /// Whom.
    pub labels: LabelPatterns,
    /// When.
    pub window: MaintenanceWindow,
}

impl MaintenanceSettings {
    /// The window that it stands for.
    ///
    /// # Errors
    /// All that is wrong with it, with the keys of this table.
    pub fn window(&self, name: &str) -> Result<JudgedMaintenance, Vec<SettingsError>> {
        let mut errors = check_labels(&self.labels);
        match self.when() {
            Err(error) => errors.push(error),
            Ok(when) => {
                let window = MaintenanceWindow { name: name.into(), when, entered_ns: None };
                let key = |key: &str| match key {
                    "when.end_ns" => "to",
                    "when.length_s" => "length",
                    "when.utc_offset_s" => "utc_offset",
                    _ => "start",
                };
                errors.extend(window.diagnose().iter().map(|e| match e.key.as_str() {
                    "when.end_ns" => SettingsError::new("to", "it is not after from"),
                    other => SettingsError::new(key(other), &e.why),
                }));
                if errors.is_empty() {
                    return Ok(JudgedMaintenance { labels: self.labels.clone(), window });
                }
            }
        }
        Err(errors)
    }

    fn when(&self) -> Result<MaintenanceTime, SettingsError> {
        let instant = |key: &str, text: &str| {
            civil_time::parse_rfc3339(text).ok_or_else(|| {
                let why = format!("'{text}' is no instant; write it as 2026-12-01T02:00:00Z");
                SettingsError::new(key, why)
            })
        };
        match (&self.from, &self.to, self.day, &self.start, self.length) {
            (Some(from), Some(to), None, None, None) => Ok(MaintenanceTime::Once {
                start_ns: instant("from", from)?,
                end_ns: instant("to", to)?,
            }),
            (None, None, Some(day), Some(start), Some(length)) => Ok(MaintenanceTime::Weekly {
                day,
                start_s: time_of_day(start)?,
                length_s: seconds("length", length)?,
                utc_offset_s: i32::try_from(self.utc_offset / SECOND).unwrap_or(i32::MAX),
            }),
            _ => Err(SettingsError::from(
                "write from and to, or day, start and length: those and no others".to_owned(),
            )),
        }
    }
}

fn time_of_day(text: &str) -> Result<u32, SettingsError> {
    let digits = |part: &str, most: u32| {
        let value = (part.len() == 2).then(|| part.parse::<u32>().ok()).flatten();
        value.filter(|value| *value <= most)
    };
    let time = text
        .split_once(':')
        .and_then(|(hour, minute)| Some(digits(hour, 23)? * 3_600 + digits(minute, 59)? * 60));
    time.ok_or_else(|| {
        SettingsError::new("start", format!("'{text}' is no time of day; write it as 02:00"))
    })
}
