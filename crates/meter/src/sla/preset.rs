//! Objectives and rules of standards. Each names its standard, edition and grid, and whether the
//! text was read: what is from memory is no contract.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::sla::{MeasuredDirection, Standard, StandardText};

use super::objective::{Objective, ObjectiveLimit, ObjectiveMetric};
use super::rule::{AvailabilityRule, SecondRule};
use super::window::{ObjectiveWindow, SECOND};

/// A standard's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// ITU-T Y.1541, class 0: voice, conferences.
    #[serde(rename = "y1541_class_0")]
    Y1541Class0,
    /// Class 1: the same over longer paths.
    #[serde(rename = "y1541_class_1")]
    Y1541Class1,
    /// Class 2: signalling, quick transactions.
    #[serde(rename = "y1541_class_2")]
    Y1541Class2,
    /// Class 3: transactions.
    #[serde(rename = "y1541_class_3")]
    Y1541Class3,
    /// Class 4: bulk data, streaming.
    #[serde(rename = "y1541_class_4")]
    Y1541Class4,
    /// Class 6: television, circuit emulation.
    #[serde(rename = "y1541_class_6")]
    Y1541Class6,
    /// Class 7: the same over longer paths.
    #[serde(rename = "y1541_class_7")]
    Y1541Class7,
    /// ITU-T Y.1540: blocks of 5 min, unavailable above 75 % of loss.
    #[serde(rename = "y1540_75_percent_5_min")]
    Y1540Blocks5Min,
    /// ITU-T Y.1540: blocks of 1 min, unavailable above 20 % of loss.
    #[serde(rename = "y1540_20_percent_1_min")]
    Y1540Blocks1Min,
    /// ITU-T Y.1563: seconds, unavailable from 10 severely errored ones on.
    #[serde(rename = "y1563")]
    Y1563,
    /// ITU-T G.826: errored and severely errored seconds.
    #[serde(rename = "g826")]
    G826,
    /// MEF 10.x with MEF 35: small intervals of a second, a sliding window of 10.
    #[serde(rename = "mef_10")]
    Mef10,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Preset; 12] = {
        use Preset::*;
        [
            Y1541Class0,
            Y1541Class1,
            Y1541Class2,
            Y1541Class3,
            Y1541Class4,
            Y1541Class6,
            Y1541Class7,
            Y1540Blocks5Min,
            Y1540Blocks1Min,
            Y1563,
            G826,
            Mef10,
        ]
    };

    /// Greatest mean delay (ns), delay variation (ns) and loss ratio of the classes of ITU-T
    /// Y.1541, by RFC 5976, section 2.1. Class 5 promises nothing.
    fn class(self) -> Option<(u8, f64, Option<f64>, f64)> {
        const MS: f64 = 1e6;
        Some(match self {
            Preset::Y1541Class0 => (0, 100.0 * MS, Some(50.0 * MS), 1e-3),
            Preset::Y1541Class1 => (1, 400.0 * MS, Some(50.0 * MS), 1e-3),
            Preset::Y1541Class2 => (2, 100.0 * MS, None, 1e-3),
            Preset::Y1541Class3 => (3, 400.0 * MS, None, 1e-3),
            Preset::Y1541Class4 => (4, 1_000.0 * MS, None, 1e-3),
            Preset::Y1541Class6 => (6, 100.0 * MS, Some(50.0 * MS), 1e-5),
            Preset::Y1541Class7 => (7, 400.0 * MS, Some(50.0 * MS), 1e-5),
            _ => return None,
        })
    }

    /// Its standard, edition and grid, and how well they are known.
    pub fn standard(self) -> Standard {
        use StandardText::{NotRead, Quoted};
        let (name, edition, grid, text, source) = match self {
            Preset::Y1540Blocks5Min => (
                "ITU-T Y.1540",
                "1999 (as I.380) and later; which of them changed it is open",
                "blocks of 5 min on the grid of UTC, unavailable above 75 % of loss, from 1,000 \
                 packets on",
                NotRead,
                "recalled as provisional",
            ),
            Preset::Y1540Blocks1Min => (
                "ITU-T Y.1540",
                "2016 or later, not confirmed",
                "blocks of 1 min on the grid of UTC, unavailable above 20 % of loss, from 1,000 \
                 packets on",
                NotRead,
                "recalled; no text confirms it",
            ),
            Preset::Y1563 => (
                "ITU-T Y.1563",
                "edition not known",
                "intervals of 1 s, bad above 50 % of loss, 10 in a row, sliding",
                NotRead,
                "recalled",
            ),
            Preset::G826 => (
                "ITU-T G.826",
                "edition not known",
                "seconds, severely errored above 30 %, unavailable from the first of 10 in a row on",
                Quoted,
                "RFC 4805, section 3, for the 10 seconds; the ATIS glossary for the share of blocks, \
                 held against packets here",
            ),
            Preset::Mef10 => (
                "MEF 10.x, MEF 35",
                "10.2.1 to 10.4, 35 and 35.1",
                "small intervals of 1 s, bad above 50 % of loss, n = 10 in a row, p = 5, sliding",
                Quoted,
                "MEF-SOAM-PM-MIB for the defaults, mef.net on 10.2.1 for the sliding window; the \
                 rest is recalled",
            ),
            _ => (
                "ITU-T Y.1541",
                "2006 or later, as of RFC 5976",
                "one way; delay variation in each 1 min, the others in each 15 min (both recalled)",
                Quoted,
                match self {
                    Preset::Y1541Class6 | Preset::Y1541Class7 => {
                        "RFC 5976, section 2.1; that the class is provisional is recalled"
                    }
                    _ => "RFC 5976, section 2.1",
                },
            ),
        };
        Standard {
            name: name.into(),
            edition: edition.into(),
            grid: grid.into(),
            text,
            source: source.into(),
        }
    }

    /// When time is available by it, if it says so.
    pub fn rule(self) -> Option<AvailabilityRule> {
        let blocks = |minutes: i64, loss_ratio| AvailabilityRule::Blocks {
            block_ns: minutes * 60 * SECOND,
            offset_ns: 0,
            loss_ratio,
            least_packets: 1_000,
        };
        let seconds = |consecutive| AvailabilityRule::Sliding {
            interval_ns: SECOND,
            loss_ratio: 0.5,
            window: 10,
            consecutive,
        };
        match self {
            Preset::Y1540Blocks5Min => Some(blocks(5, 0.75)),
            Preset::Y1540Blocks1Min => Some(blocks(1, 0.20)),
            Preset::Y1563 => Some(seconds(None)),
            Preset::Mef10 => Some(seconds(Some(5))),
            Preset::G826 => self.second_rule().map(|rule| rule.availability()),
            _ => None,
        }
    }

    /// When a second is errored by it, if it says so.
    pub fn second_rule(self) -> Option<SecondRule> {
        let rule = SecondRule { severe_ratio: 0.3, window: 10, reordered: false };
        (self == Preset::G826).then_some(rule)
    }

    /// An availability by it, of `target_percent` in each month. Standards leave the target to the
    /// contract. `None`: it has no rule.
    pub fn availability(
        self,
        direction: MeasuredDirection,
        target_percent: f64,
    ) -> Option<Objective> {
        let metric = ObjectiveMetric::Availability { target_percent, rule: self.rule()? };
        let month = ObjectiveWindow::Month;
        let objective = Objective::new("availability", metric, direction, month);
        Some(Objective { standard: Some(self.standard()), ..objective })
    }

    /// The objectives of a class of ITU-T Y.1541: mean delay, delay variation (99.9th percentile
    /// less the minimum), loss. One way; empty: it is no class, or both ways are asked for.
    pub fn objectives(self, direction: MeasuredDirection) -> Vec<Objective> {
        let one_way = matches!(direction, MeasuredDirection::Forward | MeasuredDirection::Backward);
        let Some((class, delay, variation, loss)) = self.class().filter(|_| one_way) else {
            return Vec::new();
        };
        let of = |metric: &str, length_s, limit: ObjectiveMetric| {
            let window = ObjectiveWindow::Fixed { length_s, offset_s: 0 };
            let name = format!("Y.1541 class {class} {metric}");
            let objective = Objective::new(name, limit, direction, window);
            Objective { standard: Some(self.standard()), ..objective }
        };
        let fixed = ObjectiveLimit::Fixed;
        let mut all = vec![of("IPTD", 900, ObjectiveMetric::DelayMean { limit: fixed(delay) })];
        all.extend(variation.map(|variation| {
            let metric = ObjectiveMetric::PdvPercentile { percent: 99.9, limit: fixed(variation) };
            of("IPDV", 60, metric)
        }));
        all.push(of("IPLR", 900, ObjectiveMetric::LossRatio { limit: fixed(loss) }));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_sound_and_says_where_it_comes_from() {
        for preset in Preset::ALL {
            let standard = preset.standard();
            assert_ne!(standard.text, StandardText::Read, "no text of a standard was read");
            assert!(!standard.source.is_empty() && !standard.grid.is_empty());
            let mut objectives = preset.objectives(MeasuredDirection::Forward);
            objectives.extend(preset.availability(MeasuredDirection::Forward, 99.95));
            assert!(!objectives.is_empty());
            for objective in objectives {
                assert_eq!(objective.diagnose(), [], "{preset:?}");
                assert_eq!(objective.standard.as_ref(), Some(&standard));
                let json = serde_json::to_string(&objective).unwrap();
                assert_eq!(serde_json::from_str::<Objective>(&json).unwrap(), objective);
            }
            let name = serde_json::to_string(&preset).unwrap();
            assert_eq!(serde_json::from_str::<Preset>(&name).unwrap(), preset);
        }
    }

    #[test]
    fn classes_are_those_of_rfc_5976() {
        let words = |preset: Preset| -> Vec<String> {
            let all = preset.objectives(MeasuredDirection::Forward);
            all.iter().map(|o| o.to_string()).collect()
        };
        assert_eq!(
            words(Preset::Y1541Class0),
            [
                "mean forward delay at most 100ms in each 15 min",
                "99.9 % of forward delays at most 50ms above the least in each 1 min",
                "forward loss at most 0.1 % in each 15 min"
            ]
        );
        assert_eq!(words(Preset::Y1541Class4).len(), 2);
        assert_eq!(words(Preset::Y1541Class7)[2], "forward loss at most 0.001 % in each 15 min");
        assert_eq!(Preset::Y1541Class0.objectives(MeasuredDirection::RoundTrip), []);
    }

    #[test]
    fn what_is_recalled_is_marked() {
        let not_read: Vec<Preset> = Preset::ALL
            .into_iter()
            .filter(|p| p.standard().text == StandardText::NotRead)
            .collect();
        assert_eq!(not_read, [Preset::Y1540Blocks5Min, Preset::Y1540Blocks1Min, Preset::Y1563]);
        assert!(Preset::Y1540Blocks1Min.standard().to_string().contains("text not read"));
    }
}
