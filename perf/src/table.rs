//! Tables in Markdown.

use sonde_results::Hist;

use crate::load::EngineResult;

/// A row an engine: of its runs the one whose T1+T4 p99.9 is the median; maxima over all.
pub fn accuracy(runs: &[Vec<EngineResult>]) {
    println!(
        "| engine | reached/s | lost | own drops | skipped | late p50/p99/max us | \
         T1 off p50/p99/p99.9/max us | T4 off p50/p99/p99.9/max us | RTT beyond the far end, p50 us | \
         pauses >50 us: n, max us |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let middle: Vec<&EngineResult> = runs.iter().map(|r| median(r)).collect();
    for outcome in &middle {
        println!(
            "| {} | {:.0} | {} | {} | {} | {} | {} | {} | {} | {}, {} |",
            outcome.name,
            outcome.rate(),
            outcome.lost(),
            outcome.own_drops,
            outcome.skipped,
            quantiles(&outcome.lateness, &[0.5, 0.99, 1.0]),
            quantiles(&outcome.t1, &[0.5, 0.99, 0.999, 1.0]),
            quantiles(&outcome.t4, &[0.5, 0.99, 0.999, 1.0]),
            quantiles(&outcome.rtt_net, &[0.5]),
            outcome.pauses.count,
            quantiles(&outcome.pauses, &[1.0]),
        );
    }
    println!("\nHow many times better than plain sockets (T1 and T4 together):\n");
    println!("| engine | p50 | p99 | p99.9 | max | worst of all runs, us |");
    println!("|---|---|---|---|---|---|");
    let plain = both(middle[0]);
    for (outcome, all) in middle.iter().zip(runs) {
        let own = both(outcome);
        let ratio = |q: f64| match (plain.quantile(q), own.quantile(q)) {
            (Some(a), Some(b)) if b > 0 => format!("{:.1}", a as f64 / b as f64),
            _ => "-".into(),
        };
        let worst: Vec<String> = all.iter().map(|o| quantiles(&both(o), &[1.0])).collect();
        println!(
            "| {} | {} | {} | {} | {} | {} |",
            outcome.name,
            ratio(0.5),
            ratio(0.99),
            ratio(0.999),
            ratio(1.0),
            worst.join(", "),
        );
    }
}

/// Every reported stamp against every independent one, in the order in which a packet
/// passes them; and the round trips between.
pub fn near_end(runs: &[EngineResult]) {
    println!("\nFrom T1 to the independent stamp, least / p0.1 / p50 / p99.9 / most, us:\n");
    println!(
        "| engine | near: tc egress | near: handed over by the driver | \
         near: let go by the driver | far: XDP, arrival |"
    );
    println!("|---|---|---|---|---|");
    for o in runs {
        let near = [&o.near.tc_egress, &o.near.handed_over, &o.near.released].map(range);
        println!("| {} | {} | {} |", o.name, near.join(" | "), range(&o.t1));
    }
    println!("\nFrom the independent stamp to T4, least / p0.1 / p50 / p99.9 / most, us:\n");
    println!("| engine | far: XDP, departure | near: tc ingress | near: in the AF_XDP ring |");
    println!("|---|---|---|---|");
    for o in runs {
        let near = [&o.near.tc_ingress, &o.near.redirected].map(range);
        println!("| {} | {} | {} | {} |", o.name, range(&o.t4), near[0], near[1]);
    }
    println!("\nRound trip, p50, us:\n");
    println!(
        "| engine | stamped at the near end | reported | difference | RTT beyond the far end | \
         packets stamped on both ways | stamps missed |"
    );
    println!("|---|---|---|---|---|---|---|");
    for o in runs {
        let difference = match (o.near.rtt.quantile(0.5), o.rtt.quantile(0.5)) {
            (Some(near), Some(reported)) => format!("{:+.2}", (reported - near) as f64 / 1e3),
            _ => "-".into(),
        };
        println!(
            "| {} | {} | {} | {difference} | {} | {} of {} | {} |",
            o.name,
            quantiles(&o.near.rtt, &[0.5]),
            quantiles(&o.rtt, &[0.5]),
            quantiles(&o.rtt_net, &[0.5]),
            o.near.rtt.count,
            o.received,
            o.near.missed,
        );
    }
}

/// A row a run.
pub fn endurance(runs: &[(u64, EngineResult)]) {
    println!(
        "| engine | asked/s | reached/s | sent | lost | own drops | skipped | late p50/p99/p99.9/max us | \
         pauses >50 us: n, max us | peak memory MiB | how |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for (rate, o) in runs {
        println!(
            "| {} | {rate} | {:.0} | {} | {} | {} | {} | {} | {}, {} | {:.0} | {} |",
            o.name,
            o.rate(),
            o.sent,
            o.lost(),
            o.own_drops,
            o.skipped,
            quantiles(&o.lateness, &[0.5, 0.99, 0.999, 1.0]),
            o.pauses.count,
            quantiles(&o.pauses, &[1.0]),
            o.peak_memory as f64 / (1 << 20) as f64,
            o.mode,
        );
    }
}

fn both(outcome: &EngineResult) -> Hist {
    let mut all = outcome.t1.clone();
    all.merge(&outcome.t4);
    all
}

fn median(runs: &[EngineResult]) -> &EngineResult {
    let mut order: Vec<&EngineResult> = runs.iter().collect();
    order.sort_by_key(|o| both(o).quantile(0.999));
    order[order.len() / 2]
}

/// Least, p0.1, p50, p99.9 and most, in us: a distance before T1 has its tail at the low end.
fn range(hist: &Hist) -> String {
    if hist.count == 0 {
        return "-".into();
    }
    format!("{} / {} / {}", us(hist.min), quantiles(hist, &[0.001, 0.5, 0.999]), us(hist.max))
}

/// In us.
fn quantiles(hist: &Hist, at: &[f64]) -> String {
    let one = |&q: &f64| hist.quantile(q).map_or("-".into(), us);
    at.iter().map(one).collect::<Vec<_>>().join(" / ")
}

fn us(ns: i64) -> String {
    let us = ns as f64 / 1e3;
    if us.abs() < 10.0 { format!("{us:.2}") } else { format!("{us:.0}") }
}
