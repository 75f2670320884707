//! The program's counters by name.

use sonde_results::rtt::Coverage;

/// In the order of `enum counter` in `c/rtt.h`.
pub(super) const COUNTERS: [&str; 34] = [
    "packets",
    "filtered",
    "untracked_kind",
    "untracked_full",
    "fragments",
    "malformed",
    "not_ip",
    "other_protocol",
    "flows",
    "flows_ended",
    "samples_clean",
    "samples_recovery",
    "samples_delayed_ack",
    "slots_full",
    "spaced",
    "stale",
    "voided",
    "no_advance",
    "duplicate_ids",
    "ack_unseen",
    "duplicated",
    "unconfirmed",
    "resynchronised",
    "unweighted",
    "events_limited",
    "events_lost",
    "flows_lost",
    "groups_full",
    "requests",
    "answered",
    "histograms_full",
    "losses_full",
    "contended",
    "unknown_interface",
];

pub(super) fn coverage(values: [u64; COUNTERS.len()]) -> Coverage {
    Coverage { counters: COUNTERS.into_iter().map(String::from).zip(values).collect() }
}
