//! How laws and shares of traffic are written, on command lines and in files: what is printed can
//! be read again, and is the same.

use std::fmt::{self, Display};
use std::str::FromStr;

use super::{ArrivalProcess, Length, ProtocolWeights, Reorder, Shares, Sizes};

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let parsed = match parts[..] {
            ["constant", n] => n.parse().ok().map(Length::Constant),
            ["geometric", mean] => mean.parse().ok().map(|mean| Length::Geometric { mean }),
            ["pareto", alpha, min, max] => match (alpha.parse(), min.parse(), max.parse()) {
                (Ok(alpha), Ok(min), Ok(max)) => Some(Length::Pareto { alpha, min, max }),
                _ => None,
            },
            _ => None,
        };
        parsed.ok_or_else(|| {
            format!(
                "'{text}' is not a law of lengths; write constant:20, geometric:20 or \
                 pareto:1.2:5:100000"
            )
        })
    }
}

impl Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Length::Constant(n) => write!(f, "constant:{n}"),
            Length::Geometric { mean } => write!(f, "geometric:{mean}"),
            Length::Pareto { alpha, min, max } => write!(f, "pareto:{alpha}:{min}:{max}"),
        }
    }
}

impl FromStr for ArrivalProcess {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let parsed = match parts[..] {
            ["constant"] => Some(ArrivalProcess::Constant),
            ["poisson"] => Some(ArrivalProcess::Poisson),
            ["bursts", packets, peak] => match (packets.parse(), peak.parse()) {
                (Ok(packets), Ok(peak)) => Some(ArrivalProcess::Bursts { packets, peak }),
                _ => None,
            },
            _ => None,
        };
        parsed.ok_or_else(|| {
            format!("'{text}' is not a law of arrivals; write constant, poisson or bursts:100:10")
        })
    }
}

impl Display for ArrivalProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArrivalProcess::Constant => f.write_str("constant"),
            ArrivalProcess::Poisson => f.write_str("poisson"),
            ArrivalProcess::Bursts { packets, peak } => write!(f, "bursts:{packets}:{peak}"),
        }
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("'{text}' is not a size; write 64..9216, imix, or 64=5,576=3,1518=2");
        if text == "imix" {
            return Ok(Sizes::imix());
        }
        once_each(text)?;
        let in_range = |size: &u16| (64..=9216).contains(size);
        if let Ok(size) = text.parse() {
            return Some(Sizes::constant(size)).filter(|_| in_range(&size)).ok_or_else(wrong);
        }
        let mix: Option<Vec<(u16, f64)>> = pairs(text)
            .map(|(size, weight)| {
                let size = size.parse().ok().filter(in_range)?;
                Some((size, weight.filter(|w| *w > 0.0 && w.is_finite())?))
            })
            .collect();
        mix.filter(|m| m.len() <= 64).map(|m| Sizes::mix(&m)).ok_or_else(wrong)
    }
}

impl Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.weights() {
            [(only, _)] => write!(f, "{only}"),
            _ if *self == Sizes::imix() => f.write_str("imix"),
            mix => list(f, mix.iter().copied()),
        }
    }
}

impl FromStr for ProtocolWeights {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut mix = ProtocolWeights { tcp: 0.0, udp: 0.0, icmp: 0.0 };
        let wrong =
            || format!("'{text}' is not a mix of protocols; write tcp=0.7,udp=0.28,icmp=0.02");
        once_each(text)?;
        for (name, weight) in pairs(text) {
            let weight = weight.filter(|w| *w >= 0.0 && w.is_finite()).ok_or_else(wrong)?;
            *match name {
                "tcp" => &mut mix.tcp,
                "udp" => &mut mix.udp,
                "icmp" => &mut mix.icmp,
                _ => return Err(wrong()),
            } = weight;
        }
        if mix.tcp + mix.udp + mix.icmp > 0.0 { Ok(mix) } else { Err(wrong()) }
    }
}

impl Display for ProtocolWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [("tcp", self.tcp), ("udp", self.udp), ("icmp", self.icmp)];
        list(f, all.into_iter().filter(|(_, weight)| *weight > 0.0))
    }
}

impl FromStr for Shares {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut shares = Shares::default();
        let wrong = |part: &str| {
            format!(
                "'{part}' is not a share of an encapsulation; write vlan=0.2 and so on, of vlan, \
                 qinq, mpls, gre, vxlan, gtpu and geneve, together at most 1"
            )
        };
        once_each(text)?;
        for (name, share) in pairs(text) {
            let share = share.filter(|s| (0.0..=1.0).contains(s)).ok_or_else(|| wrong(name))?;
            *match name {
                "vlan" => &mut shares.vlan,
                "qinq" => &mut shares.qinq,
                "mpls" => &mut shares.mpls,
                "gre" => &mut shares.gre,
                "vxlan" => &mut shares.vxlan,
                "gtpu" => &mut shares.gtpu,
                "geneve" => &mut shares.geneve,
                _ => return Err(wrong(name)),
            } = share;
        }
        let total: f64 = shares.all().iter().map(|(_, share)| share).sum();
        if total <= 1.0 + 1e-9 { Ok(shares) } else { Err(wrong(text)) }
    }
}

/// At least one, so that what is printed can be read.
impl Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shares { vlan, qinq, mpls, gre, vxlan, gtpu, geneve } = *self;
        let all = [
            ("vlan", vlan),
            ("qinq", qinq),
            ("mpls", mpls),
            ("gre", gre),
            ("vxlan", vxlan),
            ("gtpu", gtpu),
            ("geneve", geneve),
        ];
        match all.iter().all(|(_, share)| *share == 0.0) {
            true => list(f, [all[0]].into_iter()),
            false => list(f, all.into_iter().filter(|(_, share)| *share > 0.0)),
        }
    }
}

impl FromStr for Reorder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (share, distance) = text.split_once(':').unwrap_or((text, "1"));
        let distance = distance.parse().ok().filter(|distance: &u8| *distance > 0);
        let distance = distance
            .ok_or_else(|| format!("'{text}': the distance is 1..255 packets; write 0.01:3"))?;
        match share.parse() {
            Ok(share) if (0.0..=1.0).contains(&share) => Ok(Reorder { share, distance }),
            _ => Err(format!("'{share}' is not a share; write 0 to 1")),
        }
    }
}

impl Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.share, self.distance)
    }
}

/// "name=number,name=number"; a number that is none is `None`.
fn pairs(text: &str) -> impl Iterator<Item = (&str, Option<f64>)> {
    text.split(',').map(|part| match part.split_once('=') {
        Some((name, value)) => (name.trim(), value.trim().parse().ok()),
        None => (part, None),
    })
}

/// Refuses a name that stands twice: it is not known which number is meant.
fn once_each(text: &str) -> Result<(), String> {
    let mut names: Vec<&str> = pairs(text).map(|(name, _)| name).collect();
    names.sort_unstable();
    match names.windows(2).find(|two| two[0] == two[1]) {
        Some(two) => Err(format!("'{text}' has {} twice; name it once", two[0])),
        None => Ok(()),
    }
}

/// The other way round.
fn list(
    f: &mut fmt::Formatter<'_>,
    pairs: impl Iterator<Item = (impl Display, f64)>,
) -> fmt::Result {
    for (i, (name, value)) in pairs.enumerate() {
        write!(f, "{}{name}={value}", if i > 0 { "," } else { "" })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back<T: FromStr<Err = String> + Display + PartialEq + std::fmt::Debug>(texts: &[&str]) {
        for text in texts {
            let value: T = text.parse().unwrap();
            assert_eq!(value.to_string(), *text);
        }
    }

    #[test]
    fn what_is_printed_is_read_as_the_same() {
        back::<Length>(&["constant:20", "geometric:12.5", "pareto:1.2:5:100000"]);
        back::<ArrivalProcess>(&["constant", "poisson", "bursts:100:10"]);
        back::<Sizes>(&["imix", "64", "64=5,576=3,1518=2.5"]);
        back::<ProtocolWeights>(&["tcp=0.7,udp=0.28,icmp=0.02", "udp=1"]);
        back::<Shares>(&["vlan=0.2,geneve=0.1", "vlan=0"]);
        back::<Reorder>(&["0.01:3"]);
        for twice in [
            "vlan=0.1,vlan=0.1".parse::<Shares>().err(),
            "gre=0.1, vlan=0.1,gre =0.2".parse::<Shares>().err(),
            "tcp=1,udp=1,tcp=1".parse::<ProtocolWeights>().err(),
            "64=5,64=3".parse::<Sizes>().err(),
        ] {
            assert!(twice.as_ref().is_some_and(|why| why.contains("twice")), "{twice:?}");
        }
        assert_eq!("64=7,594=4,1518=1".parse::<Sizes>().unwrap().to_string(), "imix");
        assert_eq!("0.5".parse::<Reorder>().unwrap().to_string(), "0.5:1");
    }
}
