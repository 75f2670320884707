//! What was seen and what was left out, for people: the counters of [`Coverage`] by their
//! meaning, and the doubts that follow from them.

use sonde_results::Caveat;
use sonde_results::caveat::CaveatSet;
use sonde_results::rtt::Coverage;
use sonde_results::units::{format_count, format_share};

/// A counter; 0 if there is none of that name.
pub fn count(coverage: &Coverage, name: &str) -> u64 {
    coverage.counters.get(name).copied().unwrap_or(0)
}

/// Samples of all classes.
pub fn samples(coverage: &Coverage) -> u64 {
    let classes = ["samples_clean", "samples_recovery", "samples_delayed_ack"];
    classes.iter().map(|name| count(coverage, name)).sum()
}

/// Two or three lines: what was seen; what gave no sample, the biggest reason first; what
/// was not printed.
pub fn lines(coverage: &Coverage) -> Vec<String> {
    let n = |name| count(coverage, name);
    let mut seen = format!(
        "seen: {} packets, {} flows, {} samples",
        format_count(n("packets")),
        format_count(n("flows")),
        format_count(samples(coverage))
    );
    if n("untracked_full") > 0 {
        seen.push_str(&format!(
            "; {} packets of flows without an entry in the table ({})",
            format_count(n("untracked_full")),
            format_share(n("untracked_full"), n("packets"))
        ));
    }
    if n("requests") > 0 {
        seen.push_str(&format!(
            "; {} requests, {} answered",
            format_count(n("requests")),
            format_count(n("answered"))
        ));
    }
    if n("resynchronised") > 0 {
        seen.push_str(&format!(
            "; {} times a connection was taken up again at other sequence numbers",
            format_count(n("resynchronised"))
        ));
    }
    let mut lines = vec![seen];
    let mut reasons: Vec<(u64, &str)> =
        REASONS.iter().map(|&(name, text)| (n(name), text)).filter(|r| r.0 > 0).collect();
    reasons.sort_by_key(|&(n, _)| std::cmp::Reverse(n));
    if !reasons.is_empty() {
        let shown: Vec<String> = reasons
            .iter()
            .take(REASONS_SHOWN)
            .map(|&(n, text)| format!("{} {text}", format_count(n)))
            .collect();
        let rest: u64 = reasons.iter().skip(REASONS_SHOWN).map(|r| r.0).sum();
        let more = if rest > 0 {
            format!(", {} for other reasons", format_count(rest))
        } else {
            String::new()
        };
        lines.push(format!("left out: {}{more}", shown.join(", ")));
    }
    let lost: Vec<String> = [("events_lost", "samples"), ("flows_lost", "flows")]
        .iter()
        .filter(|(name, _)| n(name) > 0)
        .map(|(name, what)| format!("{} {what}", format_count(n(name))))
        .collect();
    if !lost.is_empty() {
        lines.push(format!("not printed: {}", lost.join(", ")));
    }
    lines
}

/// The doubts that the counters raise.
pub fn caveats(coverage: &Coverage) -> CaveatSet {
    let n = |name| count(coverage, name);
    let mut caveats = CaveatSet::default();
    let mut doubt = |caveat, when: bool| {
        if when {
            caveats.insert(caveat);
        }
    };
    doubt(Caveat::FlowsUntracked, n("untracked_full") > 0);
    doubt(Caveat::EventsLost, n("events_lost") + n("flows_lost") > 0);
    doubt(Caveat::SamplesSpaced, n("spaced") + n("slots_full") > samples(coverage) / 20);
    doubt(Caveat::PacketsContended, n("contended") * 1_000 > n("packets"));
    doubt(
        Caveat::PacketsUnreadable,
        (n("fragments") + n("malformed") + n("truncated")) * 100 > n("packets"),
    );
    doubt(Caveat::OwnDrops, n("packets_lost") > 0);
    doubt(Caveat::GroupsFull, n("groups_full") + n("histograms_full") > 0);
    caveats
}

/// Counters of what gave no sample, and their text in the display.
const REASONS: &[(&str, &str)] = &[
    ("packets_lost", "packets that passed while the ring was full"),
    ("voided", "voided by retransmissions or gaps (Karn)"),
    ("spaced", "spaced out while slots were few"),
    ("slots_full", "without a free slot"),
    ("stale", "older than 64 s"),
    ("no_advance", "echoes that acknowledge nothing new"),
    ("ack_unseen", "acknowledgements of data not seen"),
    ("duplicated", "packets seen twice within a millisecond (perhaps a mirror port copies them)"),
    ("unconfirmed", "segments far from their connection's sequence numbers, not believed"),
    ("duplicate_ids", "requests sent again before their answer"),
    ("unweighted", "beyond one a second of their flow"),
    ("contended", "packets that met a locked flow"),
    ("fragments", "fragments without ports"),
    ("malformed", "malformed or cut short"),
    ("truncated", "packets whose headers were not at hand"),
    ("other_protocol", "packets of protocols that are not timed"),
    ("not_ip", "packets that are not IP"),
    ("untracked_kind", "packets with which no flow begins"),
    ("other_link_type", "packets of link types that are not known"),
    ("bad_time", "packets with an impossible time"),
    ("no_interface", "packets of interfaces that the file does not describe"),
    ("other_block_type", "blocks of types that are not known"),
];
const REASONS_SHOWN: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn coverage(counters: &[(&str, u64)]) -> Coverage {
        Coverage { counters: counters.iter().map(|&(k, v)| (k.to_string(), v)).collect() }
    }

    #[test]
    fn the_biggest_reasons_come_first_and_the_rest_is_counted() {
        let c = coverage(&[
            ("packets", 10_000),
            ("flows", 7),
            ("samples_clean", 900),
            ("samples_recovery", 100),
            ("untracked_full", 5),
            ("spaced", 3),
            ("voided", 40),
            ("stale", 4),
            ("fragments", 2),
            ("malformed", 1),
            ("not_ip", 12),
            ("other_protocol", 20),
            ("events_lost", 9),
            ("flows_lost", 2),
            ("resynchronised", 2),
        ]);
        assert_eq!(
            lines(&c),
            [
                "seen: 10,000 packets, 7 flows, 1,000 samples; 5 packets of flows without an \
                 entry in the table (0.05%); 2 times a connection was taken up again at other \
                 sequence numbers",
                "left out: 40 voided by retransmissions or gaps (Karn), 20 packets of protocols \
                 that are not timed, 12 packets that are not IP, 4 older than 64 s, 3 spaced out \
                 while slots were few, 2 fragments without ports, 1 for other reasons",
                "not printed: 9 samples, 2 flows",
            ]
        );
        let doubts: Vec<Caveat> = caveats(&c).iter().collect();
        assert_eq!(doubts, [Caveat::FlowsUntracked, Caveat::EventsLost]);
    }

    #[test]
    fn nothing_left_out_is_no_line_and_no_doubt() {
        let c = coverage(&[("packets", 10), ("samples_clean", 1)]);
        assert_eq!(lines(&c).len(), 1);
        assert!(caveats(&c).is_empty());
        let c =
            coverage(&[("packets", 100), ("samples_clean", 20), ("fragments", 2), ("spaced", 2)]);
        let doubts: Vec<Caveat> = caveats(&c).iter().collect();
        assert_eq!(doubts, [Caveat::SamplesSpaced, Caveat::PacketsUnreadable]);
        let c = coverage(&[("packets", 100), ("packets_lost", 1)]);
        assert!(lines(&c)[1].contains("1 packets that passed while the ring was full"));
        assert_eq!(caveats(&c).iter().collect::<Vec<_>>(), [Caveat::OwnDrops]);
    }
}
