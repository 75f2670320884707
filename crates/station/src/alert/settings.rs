//! The table `[alert]` of a station's configuration: who is told of what, and how.
//!
//! ```toml
//! [alert]
//! to = ["ops"]
//!
//! [[alert.route]]
//! match = { site = "ber-*" }
//! severity = "error"
//! to = ["berlin"]
//!
//! [alert.receiver.ops.webhook]
//! url = "https://hooks.example/sonde"
//! hmac_file = "/etc/sonde/ops.key"
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::units::SECOND;
use sonde_run::error::SettingsError;

use super::model::{AlertSeverity, is_link};
use super::route::{AlertRoute, GroupTiming, LabelPatterns};
use super::sink::SinkConfig;
use super::spool::SpoolLimits;

/// Who is told of alerts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AlertSettings {
    /// The folder that keeps what lasts and what is not delivered yet; absent: the path of the
    /// station's store with `.alerts` after it.
    #[serde(skip_serializing_if = "is_absent")]
    pub folder: PathBuf,
    /// Where people find this station: an address of `http` or `https`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// The receivers of what no route matches.
    pub to: Vec<String>,
    /// Labels that are a cause: alerts that agree in them are told of together.
    pub group_by: Vec<String>,
    /// How long a new group waits for other alerts of its cause.
    #[serde(with = "sonde_run::duration")]
    #[schemars(with = "String")]
    pub wait: i64,
    /// Between two notifications of a group when something changed, at least.
    #[serde(with = "sonde_run::duration")]
    #[schemars(with = "String")]
    pub interval: i64,
    /// After this time what lasts is told of again.
    #[serde(with = "sonde_run::duration")]
    #[schemars(with = "String")]
    pub repeat: i64,
    /// Where alerts go, in order.
    pub route: Vec<AlertRouteSettings>,
    /// Receivers, by name.
    pub receiver: BTreeMap<String, SinkConfig>,
    /// What waits for a receiver, at most.
    pub queue: AlertQueueSettings,
}

/// A route: alerts that match go to receivers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AlertRouteSettings {
    /// Labels and patterns that all have to match: `*` stands for any characters, a `!` before
    /// the pattern for anything else. A label that an alert does not have is an empty text.
    #[serde(rename = "match")]
    pub labels: LabelPatterns,
    /// The least severity.
    pub severity: AlertSeverity,
    /// The receivers, by name; an empty list: nobody is told.
    pub to: Vec<String>,
    /// Look at the routes after it, too.
    #[serde(rename = "continue")]
    pub goes_on: bool,
    /// As in `[alert]`; absent: as there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<Vec<String>>,
    /// As in `[alert]`; absent: as there.
    #[serde(with = "sonde_run::duration::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub wait: Option<i64>,
    /// As in `[alert]`; absent: as there.
    #[serde(with = "sonde_run::duration::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub interval: Option<i64>,
    /// As in `[alert]`; absent: as there.
    #[serde(with = "sonde_run::duration::option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub repeat: Option<i64>,
}

/// How much waits for a receiver that does not answer, and how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AlertQueueSettings {
    /// Notifications for each receiver, 1 to 100000. One more drops a repetition, else the oldest.
    pub entries: usize,
    /// Megabytes for each receiver, 1 to 1000.
    pub megabytes: u64,
    /// What is older is given up.
    #[serde(with = "sonde_run::duration")]
    #[schemars(with = "String")]
    pub keep: i64,
}

impl Default for AlertSettings {
    fn default() -> Self {
        AlertSettings {
            folder: PathBuf::new(),
            link: None,
            to: Vec::new(),
            group_by: ["alertname", "unit"].map(str::to_owned).into(),
            wait: 10 * SECOND,
            interval: 60 * SECOND,
            repeat: 4 * 3_600 * SECOND,
            route: Vec::new(),
            receiver: BTreeMap::new(),
            queue: AlertQueueSettings::default(),
        }
    }
}

impl Default for AlertRouteSettings {
    fn default() -> Self {
        AlertRouteSettings {
            labels: LabelPatterns::default(),
            severity: AlertSeverity::Info,
            to: Vec::new(),
            goes_on: false,
            group_by: None,
            wait: None,
            interval: None,
            repeat: None,
        }
    }
}

impl Default for AlertQueueSettings {
    fn default() -> Self {
        AlertQueueSettings { entries: 1_000, megabytes: 16, keep: 24 * 3_600 * SECOND }
    }
}

impl AlertSettings {
    /// Settles where the folder is, beside the store at this path if nothing says it: two stations
    /// of one host have two.
    pub(crate) fn settle_folder(&mut self, store: &Path) {
        if is_absent(&self.folder) {
            let mut beside = store.as_os_str().to_owned();
            beside.push(".alerts");
            self.folder = beside.into();
        }
    }

    /// What is no error, but not what anybody wants: receivers that nobody can mean, one text each.
    pub fn warnings(&self) -> Vec<String> {
        if self.receiver.is_empty() {
            let why = "alert: there is no receiver, so that nobody is told; write \
                       [alert.receiver.NAME.KIND], and its name into `to`";
            return vec![why.into()];
        }
        let unnamed = self.receiver.keys().filter(|name| !self.named().any(|n| n == *name));
        let unnamed = unnamed.map(|name| {
            format!(
                "alert.receiver.{name}: it is told nothing: name it in `to` of [alert] or of an \
                 [[alert.route]], or drop it"
            )
        });
        unnamed.collect()
    }

    /// The receivers that anything can go to.
    fn named(&self) -> impl Iterator<Item = &String> {
        self.route.iter().flat_map(|route| &route.to).chain(&self.to)
    }

    /// Whether they can be. Files of secrets are looked at when alerts start, not here.
    ///
    /// # Errors
    /// The first that cannot, with its key within `[alert]`.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.link.as_ref().is_some_and(|link| !is_link(link)) {
            return Err(SettingsError::new("link", "give an address of http or https"));
        }
        self.known("to", &self.to)?;
        let timing = [("wait", self.wait), ("interval", self.interval), ("repeat", self.repeat)];
        timing.into_iter().try_for_each(|(key, ns)| time_fits(key, ns))?;
        (0..self.route.len()).try_for_each(|index| self.check_route(index))?;
        for (name, config) in &self.receiver {
            if !crate::config::is_name(name) {
                let key = format!("receiver.{name}");
                return Err(SettingsError::new(&key, crate::config::bad_name(name)));
            }
            let table = format!("receiver.{name}.{}", config.kind());
            config.check().map_err(|e| e.inside(&table))?;
        }
        let AlertQueueSettings { entries, megabytes, keep } = self.queue;
        if !(1..=100_000).contains(&entries) {
            return Err(SettingsError::new("queue.entries", "give 1 to 100000"));
        }
        if !(1..=1_000).contains(&megabytes) {
            return Err(SettingsError::new("queue.megabytes", "give 1 to 1000"));
        }
        time_fits("queue.keep", keep)?;
        if !self.receiver.is_empty() && self.named().next().is_none() {
            let names: Vec<&str> = self.receiver.keys().map(String::as_str).collect();
            let why = format!(
                "nobody would be told: name receivers, as to = [\"{}\"]; there are: {}",
                names[0],
                names.join(", ")
            );
            return Err(SettingsError::new("to", why));
        }
        Ok(())
    }

    /// Whether the route at `index` can be.
    pub(crate) fn check_route(&self, index: usize) -> Result<(), SettingsError> {
        let within =
            |e: SettingsError| e.inside("route").within(format!("route {} of [alert]", index + 1));
        let route = &self.route[index];
        self.known("to", &route.to).map_err(within)?;
        let timing = [("wait", route.wait), ("interval", route.interval), ("repeat", route.repeat)];
        let given = timing.into_iter().filter_map(|(key, ns)| Some((key, ns?)));
        given.into_iter().try_for_each(|(key, ns)| time_fits(key, ns)).map_err(within)
    }

    /// The routes in order; what none of them matches goes to [`AlertSettings::to`].
    pub fn routes(&self) -> Vec<AlertRoute> {
        let rest = AlertRouteSettings { to: self.to.clone(), ..AlertRouteSettings::default() };
        self.route.iter().chain([&rest]).map(|route| self.route(route)).collect()
    }

    /// What waits for a receiver, at most.
    pub fn limits(&self) -> SpoolLimits {
        SpoolLimits { entries: self.queue.entries, bytes: self.queue.megabytes * 1_000_000 }
    }

    fn route(&self, route: &AlertRouteSettings) -> AlertRoute {
        let timing = GroupTiming {
            wait_ns: route.wait.unwrap_or(self.wait),
            interval_ns: route.interval.unwrap_or(self.interval),
            repeat_ns: route.repeat.unwrap_or(self.repeat),
            refresh: false,
            whole: false,
        };
        let to = |name: &String| {
            let sink = self.receiver.get(name);
            let own = sink.and_then(SinkConfig::timing);
            let whole = sink.is_some_and(SinkConfig::takes_whole_groups);
            (name.clone(), own.unwrap_or(GroupTiming { whole, ..timing }))
        };
        let group_by: BTreeSet<String> =
            route.group_by.as_ref().unwrap_or(&self.group_by).iter().cloned().collect();
        AlertRoute {
            labels: route.labels.clone(),
            severity: route.severity,
            receivers: route.to.iter().map(to).collect(),
            group_by,
            goes_on: route.goes_on,
        }
    }

    fn known(&self, key: &str, names: &[String]) -> Result<(), SettingsError> {
        let Some(name) = names.iter().find(|name| !self.receiver.contains_key(*name)) else {
            return Ok(());
        };
        let why = format!("there is no receiver '{name}'; write [alert.receiver.{name}.KIND]");
        Err(SettingsError::new(key, why))
    }
}

fn is_absent(folder: &Path) -> bool {
    folder.as_os_str().is_empty()
}

fn time_fits(key: &str, ns: i64) -> Result<(), SettingsError> {
    match (0..=LONGEST_NS).contains(&ns) {
        true => Ok(()),
        false => Err(SettingsError::new(key, "give up to 30 days, as \"720h\"")),
    }
}

/// For all times here.
const LONGEST_NS: i64 = 30 * 86_400 * SECOND;

#[cfg(test)]
mod tests;
