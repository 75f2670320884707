//! Interfaces that are one observation point: `--join` of `sonde rtt` and `sonde flow`. A tap
//! has a port for each direction, and each of two uplinks may carry one.

pub mod ordered;

use std::fmt;
use std::str::FromStr;

use crate::error::SettingsError;

/// What `--join` takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Join {
    /// Every interface: all are one observation point.
    All,
    /// These, by their names; of a capture by their indexes.
    These(Vec<String>),
}

impl fmt::Display for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Join::All => f.write_str("all"),
            Join::These(names) => f.write_str(&names.join(",")),
        }
    }
}

impl FromStr for Join {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Join::All);
        }
        let names: Vec<String> = text.split(',').map(Into::into).collect();
        let is_one = names.iter().all(|name| *name == names[0]);
        if is_one || names.iter().any(String::is_empty) {
            return Err(format!("'{text}' joins nothing; write all, or two or more: eth0,eth1"));
        }
        Ok(Join::These(names))
    }
}

/// For each interface the index of its observation point: its own, or the lowest of those
/// that it is joined with. `key` is the setting's, for errors.
///
/// # Errors
/// An interface that is not in `names`.
pub fn joined_points(
    key: &str,
    joins: &[Join],
    names: &[String],
) -> Result<Vec<u8>, SettingsError> {
    let mut points: Vec<u8> = (0..names.len()).map(|i| i as u8).collect();
    for join in joins {
        let joined: Vec<u8> = match join {
            Join::All => points.clone(),
            Join::These(these) => {
                let point = |name: &String| {
                    let i = names.iter().position(|n| n == name);
                    i.map(|i| points[i]).ok_or_else(|| {
                        let all = names.join(", ");
                        let why = format!("{name} is not among the interfaces {all}");
                        SettingsError::new(key, why)
                    })
                };
                these.iter().map(point).collect::<Result<_, _>>()?
            }
        };
        let lowest = joined.iter().min().copied().unwrap_or(0);
        points.iter_mut().filter(|p| joined.contains(p)).for_each(|p| *p = lowest);
    }
    Ok(points)
}

/// Whether any two interfaces are one observation point.
pub fn any(points: &[u8]) -> bool {
    points.iter().enumerate().any(|(i, point)| usize::from(*point) != i)
}

/// The interfaces of a capture that are one observation point, by their indexes in it.
#[derive(Clone, Debug, Default)]
pub struct CaptureJoins {
    all: bool,
    /// No index is in two of them.
    lists: Vec<Vec<u32>>,
}

impl CaptureJoins {
    /// What the setting `key` says of a capture.
    ///
    /// # Errors
    /// The name of an interface, instead of its index.
    pub fn new(key: &str, joins: &[Join]) -> Result<CaptureJoins, SettingsError> {
        let mut joined = CaptureJoins::default();
        for join in joins {
            let Join::These(these) = join else {
                joined.all = true;
                continue;
            };
            let index = |text: &String| {
                text.parse().map_err(|_| {
                    let why =
                        format!("in a capture interfaces have numbers, from 0 on; {text} is none");
                    SettingsError::new(key, why)
                })
            };
            let mut list: Vec<u32> = these.iter().map(index).collect::<Result<_, _>>()?;
            // What shares an interface with it is the same observation point.
            let (same, others): (Vec<Vec<u32>>, _) =
                joined.lists.into_iter().partition(|l| l.iter().any(|i| list.contains(i)));
            list.extend(same.into_iter().flatten());
            joined.lists = others;
            joined.lists.push(list);
        }
        Ok(joined)
    }

    /// The index of the observation point of this interface.
    pub fn point_of(&self, index: u32) -> u32 {
        if self.all {
            return 0;
        }
        let list = self.lists.iter().find(|list| list.contains(&index));
        list.and_then(|list| list.iter().min().copied()).unwrap_or(index)
    }
}

/// Adds to `how` the interface that the `i`th one is joined with.
pub fn describe(how: &mut String, i: usize, points: &[u8], names: &[String]) {
    let point = points.get(i).map_or(i, |point| usize::from(*point));
    if point != i
        && let Some(name) = names.get(point)
    {
        how.push_str(&format!(", joined with {name}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joins(texts: &[&str]) -> Vec<Join> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn interfaces_share_the_lowest_index() {
        let names: Vec<String> = ["a", "b", "c", "d", "e"].map(String::from).to_vec();
        for (given, want) in [
            (&[][..], [0, 1, 2, 3, 4]),
            (&["all"], [0; 5]),
            (&["b,d"], [0, 1, 2, 1, 4]),
            (&["b,d", "c,e"], [0, 1, 2, 1, 2]),
            (&["d,e", "e,b"], [0, 1, 2, 1, 1]),
        ] {
            assert_eq!(
                joined_points("metering.join", &joins(given), &names).unwrap(),
                want,
                "{given:?}"
            );
            assert_eq!(any(&want), !given.is_empty());
        }
        let error = joined_points("metering.join", &joins(&["a,x"]), &names).unwrap_err();
        assert_eq!(error.key.as_deref(), Some("metering.join"));
        let error = error.to_string();
        assert!(error.contains("x is not among the interfaces a, b, c, d, e"), "{error}");
        let mut how = String::from("tcx");
        describe(&mut how, 3, &[0, 1, 2, 1, 4], &names);
        assert_eq!(how, "tcx, joined with b");
    }

    #[test]
    fn interfaces_of_a_capture_are_named_by_index() {
        let point = |given: &[&str], index| {
            CaptureJoins::new("join", &joins(given)).unwrap().point_of(index)
        };
        assert_eq!((point(&[], 3), point(&["all"], 3)), (3, 0));
        assert_eq!((point(&["2,7", "3,9"], 7), point(&["2,7", "3,9"], 9)), (2, 3));
        assert_eq!(point(&["2,7"], 5), 5);
        // As of interfaces: joins that share one are one.
        for index in [1, 3, 4, 6] {
            assert_eq!(point(&["3,4", "6,1", "4,6"], index), 1, "{index}");
        }
        assert!(
            CaptureJoins::new("join", &joins(&["0,eth0"]))
                .unwrap_err()
                .to_string()
                .contains("eth0")
        );
    }

    #[test]
    fn one_interface_joins_nothing() {
        for text in ["", "eth0", "eth0,", ",", "ALL", "eth0,eth0"] {
            assert!(text.parse::<Join>().unwrap_err().contains("eth0,eth1"), "{text}");
        }
    }
}
