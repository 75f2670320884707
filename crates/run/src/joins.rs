//! Interfaces that are one place: `--join` of `sonde rtt` and `sonde flow`. A tap has a port
//! for each direction, and each of two uplinks may carry one.

pub mod ordered;

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, anyhow};

/// What `--join` takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Join {
    /// Every interface.
    All,
    /// These, by their names; of a capture by their numbers.
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
        if names.len() < 2 || names.iter().any(String::is_empty) {
            return Err(format!("'{text}' joins nothing; write all, or two or more: eth0,eth1"));
        }
        Ok(Join::These(names))
    }
}

/// The place of each interface: its own number, or the lowest of those that it is joined
/// with.
pub fn places(joins: &[Join], names: &[String]) -> Result<Vec<u8>> {
    let mut places: Vec<u8> = (0..names.len()).map(|i| i as u8).collect();
    for join in joins {
        let joined: Vec<u8> = match join {
            Join::All => places.clone(),
            Join::These(these) => {
                let place = |name: &String| {
                    let i = names.iter().position(|n| n == name);
                    i.map(|i| places[i]).ok_or_else(|| {
                        anyhow!("`join`: {name} is not among the interfaces {}", names.join(", "))
                    })
                };
                these.iter().map(place).collect::<Result<_>>()?
            }
        };
        let lowest = joined.iter().min().copied().unwrap_or(0);
        places.iter_mut().filter(|p| joined.contains(p)).for_each(|p| *p = lowest);
    }
    Ok(places)
}

/// Whether any two interfaces are one place.
pub fn any(places: &[u8]) -> bool {
    places.iter().enumerate().any(|(i, place)| usize::from(*place) != i)
}

/// The interfaces of a capture that are one place, by their numbers in it.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    all: bool,
    lists: Vec<Vec<u32>>,
}

impl Numbers {
    /// What `join` says of a capture.
    pub fn new(joins: &[Join]) -> Result<Numbers> {
        let mut numbers = Numbers::default();
        for join in joins {
            let Join::These(these) = join else {
                numbers.all = true;
                continue;
            };
            let number = |text: &String| {
                text.parse().map_err(|_| {
                    anyhow!("`join`: the interfaces of a capture have numbers, and {text} is none")
                })
            };
            numbers.lists.push(these.iter().map(number).collect::<Result<_>>()?);
        }
        Ok(numbers)
    }

    /// The number that stands for the place of this interface.
    pub fn place(&self, number: u32) -> u32 {
        if self.all {
            return 0;
        }
        let list = self.lists.iter().find(|list| list.contains(&number));
        list.and_then(|list| list.iter().min().copied()).unwrap_or(number)
    }
}

/// What is told of an interface that is joined with another.
pub fn describe(how: &mut String, i: usize, places: &[u8], names: &[String]) {
    let place = places.get(i).map_or(i, |place| usize::from(*place));
    if place != i
        && let Some(name) = names.get(place)
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
    fn interfaces_share_the_lowest_number() {
        let names: Vec<String> = ["a", "b", "c", "d", "e"].map(String::from).to_vec();
        for (given, want) in [
            (&[][..], [0, 1, 2, 3, 4]),
            (&["all"], [0; 5]),
            (&["b,d"], [0, 1, 2, 1, 4]),
            (&["b,d", "c,e"], [0, 1, 2, 1, 2]),
            (&["d,e", "e,b"], [0, 1, 2, 1, 1]),
        ] {
            assert_eq!(places(&joins(given), &names).unwrap(), want, "{given:?}");
            assert_eq!(any(&want), !given.is_empty());
        }
        let error = places(&joins(&["a,x"]), &names).unwrap_err().to_string();
        assert!(error.contains("x is not among the interfaces a, b, c, d, e"), "{error}");
        let mut how = String::from("tcx");
        describe(&mut how, 3, &[0, 1, 2, 1, 4], &names);
        assert_eq!(how, "tcx, joined with b");
    }

    #[test]
    fn interfaces_of_a_capture_have_numbers() {
        let place = |given: &[&str], number| Numbers::new(&joins(given)).unwrap().place(number);
        assert_eq!((place(&[], 3), place(&["all"], 3)), (3, 0));
        assert_eq!((place(&["2,7", "3,9"], 7), place(&["2,7", "3,9"], 9)), (2, 3));
        assert_eq!(place(&["2,7"], 5), 5);
        assert!(Numbers::new(&joins(&["0,eth0"])).unwrap_err().to_string().contains("eth0"));
    }

    #[test]
    fn one_interface_joins_nothing() {
        for text in ["", "eth0", "eth0,", ",", "ALL"] {
            assert!(text.parse::<Join>().unwrap_err().contains("eth0,eth1"), "{text}");
        }
    }
}
