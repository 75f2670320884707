//! Burn rates as they are written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_meter::sla::{
    BurnRule, BurnSeverity, Objective, ObjectiveLimit, ObjectiveMetric, ObjectiveWindow,
};
use sonde_results::units::{SECOND, format_duration};
use sonde_run::error::SettingsError;

/// When it alerts that an error budget is spent too fast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum BurnRates {
    /// Those of a name.
    Named(BurnRatesName),
    /// The user's own pairs.
    Own(Vec<BurnSettings>),
}

/// Burn rates that have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BurnRatesName {
    /// Four pairs for a period of 30 days: 14.4 over 1 h, 6 over 6 h, 3 over 1 d, 1 over 3 d.
    Usual,
}

/// One pair of windows: it alerts while the budget burns faster than the factor in both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BurnSettings {
    /// The long window.
    #[serde(with = "sonde_run::duration")]
    #[schemars(with = "String")]
    pub long: i64,
    /// The short window, which divides the long one; absent: a twelfth of it.
    #[serde(
        default,
        with = "sonde_run::duration::option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub short: Option<i64>,
    /// So many times too fast.
    pub factor: f64,
    /// How much it matters.
    pub kind: BurnKind,
}

/// How much a pair matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BurnKind {
    /// Somebody is woken: an alert of the severity `critical`.
    Page,
    /// Somebody looks at it in working hours: `warning`.
    Ticket,
}

/// The pairs of an objective, and the percent that must be good.
pub(super) fn rules(
    rates: Option<&BurnRates>,
    objective: &Objective,
) -> Result<(Vec<BurnRule>, f64), Vec<SettingsError>> {
    let Some(rates) = rates else { return Ok((Vec::new(), 100.0)) };
    let wrong = |why: &str| vec![SettingsError::new("burn_rates", why)];
    let target = target_percent(objective).map_err(wrong)?;
    let rules: Vec<BurnRule> = match rates {
        BurnRates::Named(BurnRatesName::Usual) => BurnRule::USUAL.to_vec(),
        BurnRates::Own(own) if own.is_empty() => {
            return Err(wrong("it has no pair; write \"usual\", or leave it out"));
        }
        BurnRates::Own(own) => {
            let made = own.iter().map(BurnSettings::rule).collect::<Result<_, _>>();
            made.map_err(|why: String| wrong(&why))?
        }
    };
    let mut errors = Vec::new();
    for rule in &rules {
        errors.extend(rule.diagnose(target).into_iter().map(|error| {
            let key = match error.key.as_str() {
                "long_s" => "burn_rates.long",
                "short_s" => "burn_rates.short",
                "factor" => "burn_rates.factor",
                _ => "burn_rates",
            };
            SettingsError::new(key, &error.why)
        }));
    }
    match errors.is_empty() {
        true => Ok((rules, target)),
        false => Err(errors),
    }
}

impl BurnSettings {
    fn rule(&self) -> Result<BurnRule, String> {
        let seconds = |ns: i64| {
            let whole = (ns % SECOND == 0).then(|| u32::try_from(ns / SECOND).ok()).flatten();
            whole.ok_or_else(|| format!("{} are no whole seconds", format_duration(ns)))
        };
        Ok(BurnRule {
            long_s: seconds(self.long)?,
            short_s: seconds(self.short.unwrap_or(self.long / 12))?,
            factor: self.factor,
            severity: match self.kind {
                BurnKind::Page => BurnSeverity::Page,
                BurnKind::Ticket => BurnSeverity::Ticket,
            },
        })
    }
}

/// The percent that an objective wants good.
fn target_percent(objective: &Objective) -> Result<f64, &'static str> {
    if objective.metric.limit().is_some_and(|limit| limit.is_usual()) {
        return Err("what is usual is no budget; burn rates need a fixed limit");
    }
    match objective.metric {
        ObjectiveMetric::Availability { target_percent, .. } => Ok(target_percent),
        ObjectiveMetric::DelayPercentile { percent, .. }
        | ObjectiveMetric::IpdvPercentile { percent, .. } => Ok(percent),
        ObjectiveMetric::LossRatio { limit: ObjectiveLimit::Fixed(share) } => {
            Ok(100.0 * (1.0 - share))
        }
        ObjectiveMetric::ErroredSeconds { limit, .. } => {
            let seconds = match objective.window {
                ObjectiveWindow::Fixed { length_s, .. } => length_s,
                ObjectiveWindow::Month => 30 * 86_400,
            };
            Ok(100.0 * (1.0 - f64::from(limit) / f64::from(seconds)))
        }
        _ => Err("its samples are not good or bad one by one; burn rates are of availability, \
                  loss_ratio, errored_seconds, delay_percentile and ipdv_percentile"),
    }
}
