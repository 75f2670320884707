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
        /// Too short for a reply.
        short,
        /// Replies whose sequence number or echoed time stamp we never sent.
        forged,
        /// Replies with another session's identifier.
        wrong_session,
        /// Replies after the timeout.
        late,
        /// Repeated replies.
        duplicates,
        /// Replies that precede their request: a clock was stepped.
        clock_stepped,
        /// Transmit stamps that never came.
        unstamped,
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
