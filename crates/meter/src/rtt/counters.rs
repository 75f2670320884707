//! What the matcher counts: everything seen, and every reason for leaving something out.

use crate::counters::counters;

counters! {
    /// Packets are counted as segments: a frame that holds several counts each.
    RttCounters {
        /// Packets handed in and parsed.
        packets,
        /// Packets that the filter left out.
        filtered,
        /// Packets that belong to no flow and begin none.
        untracked_kind,
        /// Packets for whose flow the table had no room.
        untracked_full,
        /// Fragments after the first: they carry no ports.
        fragments,
        /// Frames that end too early or contradict themselves; TCP options likewise.
        malformed,
        not_ip,
        /// IP packets of protocols that are not timed.
        other_protocol,
        flows,
        flows_ended,
        samples_clean,
        /// Samples taken in loss recovery.
        samples_recovery,
        /// Samples with a delayed acknowledgement.
        samples_delayed_ack,
        /// Things sent that could not be noted for lack of room.
        slots_full,
        /// Things sent that were not noted, so that the room left spans a round trip.
        spaced,
        /// Things noted that were forgotten after 64 s, or as the clock stepped back.
        stale,
        /// Things noted that became ambiguous by a retransmission or gap (Karn's rule).
        voided,
        /// Echoed timestamps whose segment acknowledged nothing new.
        no_advance,
        /// Requests sent again before they were answered.
        duplicate_ids,
        /// Acknowledgements of data that was never seen.
        ack_unseen,
        /// Packets that passed twice within a millisecond: a mirror port's copies.
        duplicated,
        /// Segments, acknowledgements and SYNs far from their connection's sequence numbers:
        /// believed only when the other side agrees.
        unconfirmed,
        /// Connections taken up again at other sequence numbers.
        resynchronised,
        /// Clean samples kept out of the histograms, so that flows weigh the same.
        unweighted,
        /// Samples without an event, by the limit asked for.
        events_limited,
        /// Events that nobody fetched in time.
        events_lost,
        /// Records of ended flows that nobody fetched in time.
        flows_lost,
        /// Samples whose group found no room and that went to the common one.
        groups_full,
        /// Echo, DNS and heartbeat requests that were noted.
        requests,
        /// Those of them that were answered.
        answered,
    }
}
