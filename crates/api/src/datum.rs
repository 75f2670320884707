//! Readings by columns: beside each value its state, its number of samples and its caveats.
//!
//! A datum has one of six states, which every page draws apart. A column holds many of them as
//! arrays of one length: 20,000 of them take a fifth of the octets that as many objects take.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_results::Hist;
use sonde_results::caveat::CaveatSet;

/// What is known of one reading.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum<T> {
    /// It was measured.
    Value {
        /// The value, in the unit of its column.
        value: T,
        /// Samples on which it stands.
        n: u64,
        /// What casts doubt on it; with any it is doubtful.
        caveats: CaveatSet,
    },
    /// The interval is not final: answers may still come.
    Pending(String),
    /// It was due and did not come, for this reason.
    NoData(String),
    /// Nothing is configured that would measure it.
    NotMeasured(String),
    /// It is left out of sums: the name of the maintenance window, or unavailable time.
    Excluded(String),
}

/// The state of a datum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DatumState {
    /// A value that nothing casts doubt on. Zero is a value.
    Value,
    /// A value with caveats.
    Doubtful,
    /// No value yet: the interval is not final.
    Pending,
    /// No value: it was due and did not come.
    NoData,
    /// No value: nothing is configured that would measure it.
    NotMeasured,
    /// No value: the time is left out, by name.
    Excluded,
}

/// The unit of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadingUnit {
    /// Nanoseconds: delays and variations, never instants.
    Ns,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
    /// A share, 0 to 1.
    Ratio,
    /// A count.
    Count,
    /// Bits a second.
    BitsPerS,
    /// Packets a second.
    PacketsPerS,
    /// Octets.
    Octets,
}

/// A column of readings. Its arrays have one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DatumColumn {
    /// Name of the statistic: `p99`, `loss_ratio`.
    pub name: String,
    /// Unit of `values`.
    pub unit: ReadingUnit,
    /// The values; null where the state has none.
    pub values: Vec<Option<f64>>,
    /// The states.
    pub states: Vec<DatumState>,
    /// Samples on which each value stands; 0 where there is none.
    pub n: Vec<u64>,
    /// For each datum an index of `caveat_sets`.
    pub caveats: Vec<u32>,
    /// The sets of caveats that occur; the first is empty.
    pub caveat_sets: Vec<CaveatSet>,
    /// For each datum an index of `reason_texts`.
    pub reasons: Vec<u32>,
    /// Why there is no value, in words; the first is empty.
    pub reason_texts: Vec<String>,
}

impl<T> Datum<T> {
    /// A value without doubt.
    pub fn sure(value: T, n: u64) -> Datum<T> {
        Datum::Value { value, n, caveats: CaveatSet::default() }
    }

    /// Its state.
    pub fn state(&self) -> DatumState {
        match self {
            Datum::Value { caveats, .. } if caveats.is_empty() => DatumState::Value,
            Datum::Value { .. } => DatumState::Doubtful,
            Datum::Pending(_) => DatumState::Pending,
            Datum::NoData(_) => DatumState::NoData,
            Datum::NotMeasured(_) => DatumState::NotMeasured,
            Datum::Excluded(_) => DatumState::Excluded,
        }
    }
}

impl Datum<f64> {
    /// The quantile `q` (0..=1) of a histogram, ns. It is given only where at least 5 samples lie
    /// beyond it: a p99 needs 500. The maximum (`q` = 1) needs one.
    pub fn quantile(hist: &Hist, q: f64, caveats: CaveatSet) -> Datum<f64> {
        // Least and greatest are kept exactly, beside the buckets.
        let value = match q {
            0.0 => hist.min(),
            1.0 => hist.max(),
            q => hist.quantile(q),
        };
        Datum::of_quantile(value, hist.count, q, caveats)
    }

    /// The same of a quantile that stands on `n` samples; `None`: there are none.
    pub fn of_quantile(value: Option<i64>, n: u64, q: f64, caveats: CaveatSet) -> Datum<f64> {
        let Some(value) = value else { return Datum::NoData("no samples".to_owned()) };
        if q < 1.0 && q > 0.0 && !enough(n, q) {
            // The same text for any count: a column keeps each distinct one.
            return Datum::NoData("too few samples for this quantile".to_owned());
        }
        Datum::Value { value: value as f64, n, caveats }
    }
}

/// Whether `n` samples carry the quantile `q` from either end. Rounded, for 500 * (1 - 0.99) is
/// a little less than 5.
fn enough(n: u64, q: f64) -> bool {
    let beyond = n as f64 * (1.0 - q).min(q);
    beyond > 5.0 - 1e-6
}

impl DatumColumn {
    /// An empty column.
    pub fn new(name: impl Into<String>, unit: ReadingUnit) -> DatumColumn {
        DatumColumn {
            name: name.into(),
            unit,
            values: Vec::new(),
            states: Vec::new(),
            n: Vec::new(),
            caveats: Vec::new(),
            caveat_sets: vec![CaveatSet::default()],
            reasons: Vec::new(),
            reason_texts: vec![String::new()],
        }
    }

    /// Adds a datum. A value that is no finite number has none: JSON cannot say it.
    pub fn push(&mut self, datum: Datum<f64>) {
        let datum = match datum {
            Datum::Value { value, .. } if !value.is_finite() => {
                Datum::NoData("the value is no finite number".to_owned())
            }
            other => other,
        };
        self.states.push(datum.state());
        let (value, n, caveats, reason) = match datum {
            Datum::Value { value, n, caveats } => (Some(value), n, caveats, String::new()),
            Datum::Pending(reason)
            | Datum::NoData(reason)
            | Datum::NotMeasured(reason)
            | Datum::Excluded(reason) => (None, 0, CaveatSet::default(), reason),
        };
        self.values.push(value);
        self.n.push(n);
        self.caveats.push(index_of(&mut self.caveat_sets, caveats));
        self.reasons.push(index_of(&mut self.reason_texts, reason));
    }

    /// How many data it has.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The datum at `i`; `None`: there is none, or the arrays do not fit each other.
    pub fn get(&self, i: usize) -> Option<Datum<f64>> {
        let caveats = *self.caveat_sets.get(*self.caveats.get(i)? as usize)?;
        let reason = self.reason_texts.get(*self.reasons.get(i)? as usize)?.clone();
        let (value, n) = (*self.values.get(i)?, *self.n.get(i)?);
        Some(match self.states.get(i)? {
            DatumState::Value | DatumState::Doubtful => Datum::Value { value: value?, n, caveats },
            DatumState::Pending => Datum::Pending(reason),
            DatumState::NoData => Datum::NoData(reason),
            DatumState::NotMeasured => Datum::NotMeasured(reason),
            DatumState::Excluded => Datum::Excluded(reason),
        })
    }
}

/// The index of `item`, which is added where it is new. A column has few distinct ones.
fn index_of<T: PartialEq>(all: &mut Vec<T>, item: T) -> u32 {
    let at = all.iter().position(|have| *have == item).unwrap_or_else(|| {
        all.push(item);
        all.len() - 1
    });
    at as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::Caveat;

    fn doubt(caveat: Caveat) -> CaveatSet {
        let mut set = CaveatSet::default();
        set.insert(caveat);
        set
    }

    #[test]
    fn a_column_gives_back_every_datum_as_it_was() {
        let data = [
            Datum::sure(0.0, 10),
            Datum::Value { value: 1.5, n: 3, caveats: doubt(Caveat::SenderLate) },
            Datum::Value { value: 2.5, n: 4, caveats: doubt(Caveat::SenderLate) },
            Datum::Pending("final in 3 s".into()),
            Datum::NoData("station down".into()),
            Datum::NotMeasured(String::new()),
            Datum::Excluded("night work".into()),
            Datum::NoData("station down".into()),
        ];
        let mut column = DatumColumn::new("p99", ReadingUnit::Ns);
        data.iter().cloned().for_each(|datum| column.push(datum));
        let back: Vec<_> = (0..column.len()).map(|i| column.get(i).unwrap()).collect();
        assert_eq!(back, data);
        assert_eq!(column.get(8), None);
        assert_eq!((column.caveat_sets.len(), column.reason_texts.len()), (2, 4));
        let json = serde_json::to_value(&column).unwrap();
        assert_eq!(json["values"][0], 0.0);
        assert_eq!(json["states"][1], "doubtful");
        assert_eq!(json["caveat_sets"], serde_json::json!([[], ["sender_late"]]));
        assert!(json["values"][4].is_null());
    }

    #[test]
    fn a_value_that_json_cannot_say_is_no_data() {
        let mut column = DatumColumn::new("x", ReadingUnit::Ratio);
        column.push(Datum::sure(f64::NAN, 1));
        assert_eq!(column.states, [DatumState::NoData]);
    }

    #[test]
    fn a_quantile_is_given_only_where_the_samples_carry_it() {
        let hist = |n: u64| {
            let mut hist = Hist::default();
            (0..n).for_each(|i| hist.add(1_000 + i as i64));
            hist
        };
        let state = |n, q| Datum::quantile(&hist(n), q, CaveatSet::default()).state();
        assert_eq!(state(500, 0.99), DatumState::Value);
        assert_eq!(state(499, 0.99), DatumState::NoData);
        assert_eq!(state(500, 0.01), DatumState::Value);
        assert_eq!((state(10, 0.5), state(9, 0.5)), (DatumState::Value, DatumState::NoData));
        assert_eq!((state(1, 1.0), state(1, 0.0)), (DatumState::Value, DatumState::Value));
        assert_eq!(state(0, 1.0), DatumState::NoData);
        let value = |q| Datum::quantile(&hist(15), q, CaveatSet::default());
        assert_eq!((value(0.0), value(1.0)), (Datum::sure(1e3, 15), Datum::sure(1_014.0, 15)));
    }
}
