//! What a configuration says that can be run, and is hardly meant.

use sonde_meter::sla::MaintenanceTime;
use sonde_results::units::{format_dscp, format_duration, parse_duration};
use sonde_run::error::{FileLine, SettingsError};
use sonde_run::probe;

use super::{Instrument, LabelPatterns, Plan, ReadFile, Unit};
use crate::judge::settings::{ObjectiveMetricName, ObjectiveSettings, WindowText};

/// All warnings of files that can be run, whose units are those of `plan`.
pub(super) fn warnings(files: &[ReadFile], plan: &Plan<Unit>) -> Vec<SettingsError> {
    files.iter().flat_map(|file| Looked { file, plan }.all()).collect()
}

/// Maintenance of these files that is over at `now_ns`, ns since 1970 UTC.
pub(super) fn ended_maintenance(files: &[ReadFile], now_ns: i64) -> Vec<SettingsError> {
    let all = files.iter().flat_map(|file| file.says.maintenance.iter().map(move |m| (file, m)));
    let over = all.filter(|(_, (name, settings))| {
        settings.window(name).is_ok_and(|judged| match judged.window.when {
            MaintenanceTime::Once { end_ns, .. } => end_ns < now_ns,
            MaintenanceTime::Weekly { .. } => false,
        })
    });
    let warning = |(file, (name, _)): (&ReadFile, (&String, _))| {
        let at = file.line_of(&["maintenance", name, "to"]);
        let key = format!("maintenance.{name}.to");
        SettingsError::new(&key, "it is over; take it away").at(Some(&at))
    };
    over.map(warning).collect()
}

struct Looked<'a> {
    file: &'a ReadFile,
    plan: &'a Plan<Unit>,
}

impl Looked<'_> {
    fn all(&self) -> Vec<SettingsError> {
        let mut found = Vec::new();
        for (name, settings) in &self.file.says.objective {
            for (key, why) in self.objective(settings) {
                found.push(self.warning(&["objective", name, key], &why));
            }
        }
        for (name, settings) in &self.file.says.maintenance {
            for (key, why) in self.labels(&settings.labels, true) {
                found.push(self.warning(&["maintenance", name, "match", key], &why));
            }
        }
        found.extend(self.routes());
        found
    }

    fn warning(&self, keys: &[&str], why: &str) -> SettingsError {
        let keys: Vec<&str> = keys.iter().flat_map(|key| key.split('.')).collect();
        SettingsError::new(&keys.join("."), why).at(Some(&self.file.line_of(&keys)))
    }

    /// Keys of an objective, each with what is said of it.
    fn objective(&self, settings: &ObjectiveSettings) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        for (key, percent) in
            [("percent", settings.percent), ("target_percent", settings.target_percent)]
        {
            if let Some(percent) = percent.filter(|percent| *percent < 1.0) {
                let meant = (percent * 1e8).round() / 1e6;
                found.push((key, format!("{percent} % is little; did you mean {meant}?")));
            }
        }
        if let Some(text) = settings.bare_delay() {
            let why = format!("'{text}' without a unit are seconds; write {text}ms or {text}s");
            found.push(("limit", why));
        }
        let unit = settings.labels.0.get("unit");
        let of_traffic = unit.is_some_and(|pattern| pattern.starts_with("rtt."));
        if of_traffic {
            return found;
        }
        if let Some(WindowText::Length(window)) = settings.window {
            let records = |settings: &probe::Settings| settings.run.clone().resolve();
            let longer = self.probes(&settings.labels).into_iter().find_map(|(id, probe)| {
                let records = records(probe).record_interval;
                (records > window).then_some((id, records))
            });
            if let Some((id, records)) = longer {
                let (window, records) = (format_duration(window), format_duration(records));
                let why = format!(
                    "{window} is shorter than the records of {id} (run.record_interval, {records}); \
                     make it as long, or the records shorter"
                );
                found.push(("window", why));
            }
        }
        let labels = self.labels(&settings.labels, false).into_iter();
        found.extend(labels.map(|(key, why)| match key {
            "target" => ("match.target", why),
            _ => ("match.class", why),
        }));
        found
    }

    /// Probes that fit the pattern of units.
    fn probes(&self, labels: &LabelPatterns) -> Vec<(&str, &probe::Settings)> {
        let units = self.plan.iter().filter(|(id, _)| fits(labels, "unit", id.as_str()));
        let probes = units.filter_map(|(id, unit)| match &unit.instrument {
            Instrument::Probe(settings) => Some((id.as_str(), &**settings)),
            _ => None,
        });
        probes.collect()
    }

    /// Labels by which nothing is found. `passive`: units that watch round trips are meant, too;
    /// their targets are known only once there is traffic.
    fn labels(&self, labels: &LabelPatterns, passive: bool) -> Vec<(&'static str, String)> {
        let judged =
            |unit: &Unit| matches!(unit.instrument, Instrument::Probe(_) | Instrument::Rtt(_));
        let judged: Vec<(&str, &Unit)> = self
            .plan
            .iter()
            .filter(|(_, unit)| judged(unit))
            .map(|(id, unit)| (id.as_str(), &**unit))
            .collect();
        let fitting = || judged.iter().filter(|(id, _)| fits(labels, "unit", id));
        if fitting().next().is_none() {
            let Some(pattern) = labels.0.get("unit").filter(|_| passive) else { return Vec::new() };
            let names = judged.iter().map(|(id, _)| (*id).to_owned()).collect();
            return vec![("unit", nothing("unit", pattern, names))];
        }
        if passive && fitting().any(|(_, unit)| matches!(unit.instrument, Instrument::Rtt(_))) {
            return Vec::new();
        }
        let probes = self.probes(labels);
        let targets: Option<Vec<String>> = probes
            .iter()
            .map(|(_, probe)| target_names(probe))
            .collect::<Option<Vec<_>>>()
            .map(|names| names.into_iter().flatten().collect());
        let classes: Vec<String> =
            probes.iter().flat_map(|(_, probe)| class_names(probe)).collect();
        let mut found = Vec::new();
        for (key, names) in [("target", targets), ("class", Some(classes))] {
            let (Some(pattern), Some(names)) = (labels.0.get(key), names) else { continue };
            if !names.iter().any(|name| fits(labels, key, name)) {
                found.push((key, nothing(key, pattern, names)));
            }
        }
        found
    }

    /// Labels in routes of alerts that no alert has.
    fn routes(&self) -> Vec<SettingsError> {
        let Some(alert) = &self.file.says.alert else { return Vec::new() };
        let lines = self.file.text.lines_of(&["alert", "route"]);
        let routes = alert.route.iter().zip(lines);
        let unknown = routes.flat_map(|(route, line)| {
            let names = route.labels.0.keys().filter(|name| !ALERT_LABELS.contains(&name.as_str()));
            names.map(move |name| {
                let at = FileLine { file: self.file.text.file.clone(), line };
                let why =
                    format!("no alert has such a label; there are {}", ALERT_LABELS.join(", "));
                SettingsError::new(&format!("alert.route.match.{name}"), why).at(Some(&at))
            })
        });
        unknown.collect()
    }
}

impl ObjectiveSettings {
    /// The limit of a delay that is written without a unit.
    fn bare_delay(&self) -> Option<&str> {
        use ObjectiveMetricName::{DelayMean, DelayPercentile, IpdvPercentile, PdvPercentile};
        let delays = [DelayMean, DelayPercentile, IpdvPercentile, PdvPercentile];
        let is_delay = self.metric.is_some_and(|metric| delays.contains(&metric));
        let text = self.limit.as_ref().filter(|_| is_delay)?.text()?;
        let is_bare = text.trim().ends_with(|c: char| c.is_ascii_digit() || c == '.');
        (is_bare && parse_duration(text).is_ok_and(|ns| ns > 0)).then_some(text.trim())
    }
}

fn fits(labels: &LabelPatterns, label: &str, value: &str) -> bool {
    let pattern = labels.0.get(label).map(|pattern| (label.to_owned(), pattern.clone()));
    LabelPatterns(pattern.into_iter().collect()).matches(&[(label.into(), value.into())].into())
}

/// What targets are called; `None`: they are not all known, as those of a range.
fn target_names(probe: &probe::Settings) -> Option<Vec<String>> {
    let is_many = |host: &str| host.contains('/') || host.contains('-');
    let name = |target: &probe::TargetEntry| match &target.name {
        _ if probe.all_addresses || is_many(&target.host) => None,
        Some(name) => Some(name.clone()),
        None => Some(target.host.clone()),
    };
    probe.targets.iter().map(name).collect()
}

fn class_names(probe: &probe::Settings) -> Vec<String> {
    let of = |target: &probe::TargetEntry| {
        let dscp = target.stream.dscp.clone().or_else(|| probe.stream.dscp.clone());
        dscp.unwrap_or_else(|| vec![0])
    };
    probe.targets.iter().flat_map(of).map(format_dscp).collect()
}

fn nothing(what: &str, pattern: &str, mut names: Vec<String>) -> String {
    names.sort();
    names.dedup();
    let more = if names.len() > MOST_NAMES { " and others" } else { "" };
    names.truncate(MOST_NAMES);
    match names.is_empty() {
        true => format!("no {what} fits '{pattern}'; there is none"),
        false => format!("no {what} fits '{pattern}'; there are {}{more}", names.join(", ")),
    }
}

/// Of alerts of a station.
const ALERT_LABELS: [&str; 9] = [
    "alertname",
    "severity",
    "station",
    "unit",
    "target",
    "class",
    "objective",
    "direction",
    "window",
];
/// In a warning.
const MOST_NAMES: usize = 10;

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use sonde_run::toml_file::TomlText;

    fn warnings_of(text: &str) -> Vec<String> {
        let text = TomlText { file: "s".into(), text: text.into() };
        let config = Config::of(&[ReadFile::parse(text).unwrap()]).unwrap();
        config.warnings.iter().map(ToString::to_string).collect()
    }

    const PROBE: &str = "[probe.a]\nstream = { dscp = [0, 46] }\n\
                         target = [{ host = '192.0.2.1', name = 'gw' }, { host = 'h' }]\n";

    #[test]
    fn what_is_hardly_meant_is_said_with_its_line() {
        for (text, wanted) in [
            (
                "[objective.o]\nmetric = 'delay_percentile'\npercent = 0.99\nlimit = '20ms'",
                "s line 6: objective.o.percent: 0.99 % is little; did you mean 99?",
            ),
            (
                "[objective.o]\npreset = 'mef_10'\ntarget_percent = 0.9995",
                "s line 6: objective.o.target_percent: 0.9995 % is little; did you mean 99.95?",
            ),
            (
                "[objective.o]\nmetric = 'delay_mean'\nlimit = '30'",
                "s line 6: objective.o.limit: '30' without a unit are seconds; write 30ms or 30s",
            ),
            (
                "[objective.o]\nmetric = 'delay_mean'\nlimit = '30ms'\nwindow = '1s'",
                "s line 7: objective.o.window: 1s is shorter than the records of probe.a \
                 (run.record_interval, 10s); make it as long, or the records shorter",
            ),
            (
                "[objective.o]\nmatch = { target = 'zz' }\nmetric = 'loss_ratio'\nlimit = 0",
                "s line 5: objective.o.match.target: no target fits 'zz'; there are gw, h",
            ),
            (
                "[objective.o]\nmatch = { class = 'FE' }\nmetric = 'loss_ratio'\nlimit = 0",
                "s line 5: objective.o.match.class: no class fits 'FE'; there are BE, EF",
            ),
            (
                "[maintenance.m]\nmatch = { unit = 'probe.b' }\nday = 'sunday'\nstart = '02:00'\n\
                 length = '1h'",
                "s line 5: maintenance.m.match.unit: no unit fits 'probe.b'; there are probe.a",
            ),
            (
                "[alert]\nto = ['a']\n[[alert.route]]\nmatch = { tarket = 'x' }\n\
                 [alert.receiver.a.webhook]\nurl = 'http://h/'",
                "s line 6: alert.route.match.tarket: no alert has such a label; there are \
                 alertname, severity, station, unit, target, class, objective, direction, window",
            ),
        ] {
            assert_eq!(warnings_of(&format!("{PROBE}{text}")), [wanted], "{text}");
        }
    }

    #[test]
    fn maintenance_is_over_after_its_end() {
        let text = "[maintenance.m]\nfrom = '1970-01-01T00:00:00Z'\nto = '1970-01-01T00:00:01Z'";
        let text = TomlText { file: "s".into(), text: text.into() };
        let files = [ReadFile::parse(text).unwrap()];
        let of = |now_ns| ended_maintenance(&files, now_ns);
        assert_eq!(of(1_000_000_000), []);
        let [over] = &of(1_000_000_001)[..] else { panic!() };
        assert_eq!(over.message, "s line 3: maintenance.m.to: it is over; take it away");
    }

    #[test]
    fn what_fits_or_may_come_is_not_said() {
        for text in [
            "[objective.o]\nmatch = { target = 'g*', class = 'EF' }\nmetric = 'delay_percentile'\n\
             percent = 99\nlimit = '30ms'\nwindow = '10m'",
            "[objective.o]\nmetric = 'loss_ratio'\nlimit = '0'",
            "[probe.b]\ntarget = [{ host = '192.0.2.0/24' }]\n[objective.o]\n\
             match = { target = '192.0.2.9' }\nmetric = 'loss_ratio'\nlimit = 0",
            "[rtt.r]\nsources = ['eth0']\n[maintenance.m]\nmatch = { target = '192.0.2.0/24' }\n\
             day = 'sunday'\nstart = '02:00'\nlength = '1h'",
            "[alert]\nto = ['a']\n[[alert.route]]\nmatch = { target = 'x', alertname = 'y' }\n\
             [alert.receiver.a.webhook]\nurl = 'http://h/'",
        ] {
            assert_eq!(warnings_of(&format!("{PROBE}{text}")), [""; 0], "{text}");
        }
    }
}
