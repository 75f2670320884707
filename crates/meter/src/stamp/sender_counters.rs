//! What a sender counts beside the measurement.

use crate::counters::counters;

counters! {
    /// Every packet that is thrown away has a field.
    SenderCounters {
        /// Probes handed to the port.
        sent,
        /// Valid first replies.
        replies,
        /// Received frames that are not UDP, or damaged.
        malformed,
        /// Received frames whose UDP checksum shows them damaged.
        checksum,
        /// UDP from nobody we probe.
        strangers,
        /// In the shape of replies, from ports or addresses that we do not probe.
        other_replies,
        /// Too short for a reply.
        short,
        /// Replies whose sequence number or echoed time stamp we never sent.
        forged,
        /// Replies with another session's identifier.
        wrong_session,
        /// Replies after the timeout.
        late,
        duplicates,
        /// Replies whose delays were left out, because this host's clock was set meanwhile.
        clock_stepped,
        /// Replies whose one-way delays were left out, because no path has such.
        one_way_implausible,
        /// Replies whose time stamps are in the other format than they say.
        format_wrong,
        /// Differences of one-way delays that were left out, because no path makes such.
        peer_clock_stepped,
        /// Probes that were handed to the port and never left.
        withdrawn,
        /// Transmit stamps that never came.
        unstamped,
        /// Transmit stamps from before their probe was handed over.
        stamps_early,
        /// Times at which somebody set this host's clock, or gave the kernel TAI - UTC.
        clock_steps,
        /// By how much in all, ms.
        clock_stepped_by_ms,
        /// Transmit stamps for probes already settled.
        stamps_late,
        /// Values left out of histogram buckets for lack of memory.
        histogram_refused,
        /// Probes whose fate was open at the end: neither sent nor lost in any record.
        unresolved,
        /// Samples that nobody fetched in time.
        samples_dropped,
        /// Sends held back because too many probes of the stream were in flight.
        window_full,
    }
}
