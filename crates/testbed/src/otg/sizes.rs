//! Sizes of frames, octets with the FCS, one after the other.

use sonde_server::otg::config::{Mix, Size, SizeChoice, WeightPair, WeightPairsChoice};

/// The sizes of a flow's frames in their order; from the last it goes on with the first.
///
/// # Errors
/// Sizes that no Ethernet frame has; a mix without weight.
pub fn sizes(size: &Size) -> Result<Vec<u16>, String> {
    let wanted: Vec<u64> = match size.choice {
        SizeChoice::Fixed => vec![size.fixed.map_or(SMALLEST, |n| n.0)],
        SizeChoice::Increment => {
            let i = size.increment.as_ref().ok_or("size.increment: is missing")?;
            if i.step == 0 || i.start > i.end || i.end > LARGEST {
                return Err(format!("size.increment: start <= end <= {LARGEST}, step at least 1"));
            }
            (i.start..=i.end).step_by(i.step as usize).collect()
        }
        SizeChoice::Random => {
            let r = size.random.as_ref().ok_or("size.random: is missing")?;
            if r.min > r.max {
                return Err("size.random: min is greater than max".into());
            }
            let mut rng = fastrand::Rng::with_seed(SEED);
            (0..DRAWN).map(|_| rng.u64(r.min..=r.max)).collect()
        }
        SizeChoice::WeightPairs => {
            let w = size.weight_pairs.as_ref().ok_or("size.weight_pairs: is missing")?;
            match w.choice {
                WeightPairsChoice::Predefined => mix(&pairs(w.predefined.unwrap_or_default()))?,
                WeightPairsChoice::Custom => mix(w.custom.as_deref().unwrap_or_default())?,
            }
        }
    };
    match wanted.iter().find(|n| !(SMALLEST..=LARGEST).contains(n)) {
        None => Ok(wanted.into_iter().map(|n| n as u16).collect()),
        Some(n) => Err(format!(
            "size: frames have {SMALLEST} to {LARGEST} octets with the FCS here, not {n}"
        )),
    }
}

/// Every size as often as its weight says, in an order drawn from a fixed seed.
fn mix(pairs: &[WeightPair]) -> Result<Vec<u64>, String> {
    let total: f64 = pairs.iter().map(|p| p.weight).sum();
    if pairs.iter().any(|p| p.weight < 0.0) || !total.is_finite() || total <= 0.0 {
        return Err("size.weight_pairs: needs weights, 0 or greater".into());
    }
    let whole = pairs.iter().all(|p| p.weight.fract() == 0.0) && total <= DRAWN as f64;
    let slots = if whole { total as usize } else { DRAWN };
    // The largest remainders get the slots that rounding down leaves.
    let exact: Vec<f64> = pairs.iter().map(|p| p.weight / total * slots as f64).collect();
    let mut counts: Vec<usize> = exact.iter().map(|e| (e + 1e-9) as usize).collect();
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    let remainder = |&i: &usize| exact[i] - counts[i] as f64;
    order.sort_by(|a, b| remainder(b).total_cmp(&remainder(a)));
    let left = slots - counts.iter().sum::<usize>();
    order.iter().take(left).for_each(|&i| counts[i] += 1);
    let mut sizes: Vec<u64> = pairs
        .iter()
        .zip(counts)
        .flat_map(|(pair, count)| std::iter::repeat_n(pair.size, count))
        .collect();
    fastrand::Rng::with_seed(SEED).shuffle(&mut sizes);
    Ok(sizes)
}

/// The mixes that the model names.
fn pairs(mix: Mix) -> Vec<WeightPair> {
    let of = |list: &[(u64, f64)]| {
        list.iter().map(|&(size, weight)| WeightPair { size, weight }).collect()
    };
    match mix {
        Mix::Imix => of(&[(64, 7.0), (570, 4.0), (1518, 1.0)]),
        Mix::IpsecImix => of(&[(90, 58.67), (92, 2.0), (594, 23.66), (1418, 15.67)]),
        Mix::Ipv6Imix => of(&[(60, 58.67), (496, 2.0), (594, 23.66), (1518, 15.67)]),
        Mix::StandardImix => of(&[(58, 58.67), (62, 2.0), (594, 23.66), (1518, 15.67)]),
        Mix::TcpImix => of(&[(90, 58.67), (92, 2.0), (594, 23.66), (1518, 15.67)]),
    }
}

/// Least frame of Ethernet.
const SMALLEST: u64 = 64;
/// What one buffer of the receiving engine holds.
const LARGEST: u64 = 3400;
/// Sizes that are drawn before they come again.
const DRAWN: usize = 10_000;
/// So that a configuration gives the same frames every time.
const SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<u16>, String> {
        sizes(&serde_json::from_str(text).unwrap())
    }

    fn share(sizes: &[u16], size: u16) -> f64 {
        sizes.iter().filter(|&&s| s == size).count() as f64 / sizes.len() as f64
    }

    #[test]
    fn each_kind_gives_its_sizes() {
        assert_eq!(of("{}").unwrap(), [64]);
        assert_eq!(of(r#"{"choice":"fixed","fixed":"128"}"#).unwrap(), [128]);
        let up = of(r#"{"choice":"increment","increment":{"start":64,"end":80,"step":8}}"#);
        assert_eq!(up.unwrap(), [64, 72, 80]);
        let random = of(r#"{"choice":"random","random":{"min":100,"max":102}}"#).unwrap();
        assert!((100..=102).all(|s| (share(&random, s) - 1.0 / 3.0).abs() < 0.03));
    }

    #[test]
    fn mixes_keep_their_proportions() {
        let imix = of(r#"{"choice":"weight_pairs","weight_pairs":{}}"#).unwrap();
        assert_eq!(imix.len(), 12);
        assert_eq!([64, 570, 1518].map(|s| (share(&imix, s) * 12.0) as u32), [7, 4, 1]);
        let tcp = r#"{"choice":"weight_pairs","weight_pairs":{"predefined":"tcp_imix"}}"#;
        let tcp = of(tcp).unwrap();
        assert_eq!(tcp.len(), DRAWN);
        for (size, weight) in [(90, 0.5867), (92, 0.02), (594, 0.2366), (1518, 0.1567)] {
            assert!((share(&tcp, size) - weight).abs() < 1e-9, "{size}");
        }
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for text in [
            r#"{"choice":"fixed","fixed":63}"#,
            r#"{"choice":"fixed","fixed":9000}"#,
            r#"{"choice":"increment","increment":{"start":64,"end":80,"step":0}}"#,
            r#"{"choice":"increment","increment":{"start":90,"end":80}}"#,
            r#"{"choice":"increment","increment":{"end":18446744073709551615}}"#,
            r#"{"choice":"random","random":{"min":200,"max":100}}"#,
            r#"{"choice":"weight_pairs","weight_pairs":{"choice":"custom","custom":[]}}"#,
            r#"{"choice":"weight_pairs","weight_pairs":{"choice":"custom","custom":[{"weight":-1}]}}"#,
            // 58 octets: no frame of Ethernet.
            r#"{"choice":"weight_pairs","weight_pairs":{"predefined":"standard_imix"}}"#,
        ] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
