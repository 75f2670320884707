//! What a reflector counts, and the record of an interval.

use sonde_wire::Time;

use crate::counters::counters;

counters! {
    /// Since the reflector was made. Every frame put in is counted in `reflected` or in
    /// exactly one of the fields from `dropped_foreign` on.
    ReflectorCounters {
        /// Replies: handed back in place, or queued because they are longer than the request.
        reflected,
        /// Of them, replies to requests shorter than a STAMP packet (RFC 8762, section 4.6).
        reflected_short,
        /// Of them, replies to requests with TLVs.
        reflected_tlv,
        /// Of them, replies in which a TLV was flagged as not understood (RFC 8972, section 4).
        tlv_unknown,
        /// Of them, replies in which a TLV was flagged as malformed (RFC 8972, section 4).
        tlv_malformed,
        /// Of them, replies that carry the sender's sequence number although this reflector is
        /// stateful: its session table was full.
        reflected_stateless,
        /// Sessions begun: a session is one from its second request on.
        sessions_begun,
        /// Sessions ended by their timeout.
        sessions_ended,
        /// Sessions whose sender began its sequence numbers anew, and so did its replies.
        sessions_restarted,
        /// Not UDP over IP, or not to one of our addresses and ports.
        dropped_foreign,
        /// Fragments of larger packets.
        dropped_fragment,
        /// With IPv6 extension headers, which may route and must not be sent back.
        dropped_extension,
        /// Headers or lengths that contradict each other.
        dropped_malformed,
        /// Wrong IPv4 header checksum, or a UDP checksum that shows damage.
        dropped_checksum,
        /// From or to an address that nothing may be sent to or come from.
        dropped_address,
        /// A reply by its shape, another reflector's or our own: an answer would be answered.
        dropped_reply,
        /// From a port of services that answer what they are sent: 7, 19, 53, 123.
        dropped_service_port,
        /// Neither STAMP by its shape nor numbered as by a sender, and too often.
        dropped_stray,
        /// From a source that is not in the allow list.
        dropped_not_allowed,
        /// Above the rate that a source may ask.
        dropped_rate,
        /// Above the rate that all together may ask.
        dropped_rate_all,
        /// Shorter than any test packet: 14 octets.
        dropped_short,
        /// A session identifier that was not provisioned (RFC 8972, section 3).
        dropped_ssid,
        /// No room to queue the reply to a short request.
        dropped_queue,
    }
}

impl ReflectorCounters {
    /// All frames that got no reply.
    pub fn dropped(&self) -> u64 {
        self.iter().filter(|(name, _)| name.starts_with("dropped")).map(|(_, n)| n).sum()
    }
}

/// Why a frame gets no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Foreign,
    Fragment,
    Extension,
    Malformed,
    Checksum,
    Address,
    Reply,
    ServicePort,
    Stray,
    NotAllowed,
    Rate,
    RateAll,
    Short,
    Ssid,
    Queue,
}

impl Refusal {
    /// Where it is counted.
    pub(super) fn counter(self, counters: &mut ReflectorCounters) -> &mut u64 {
        match self {
            Refusal::Foreign => &mut counters.dropped_foreign,
            Refusal::Fragment => &mut counters.dropped_fragment,
            Refusal::Extension => &mut counters.dropped_extension,
            Refusal::Malformed => &mut counters.dropped_malformed,
            Refusal::Checksum => &mut counters.dropped_checksum,
            Refusal::Address => &mut counters.dropped_address,
            Refusal::Reply => &mut counters.dropped_reply,
            Refusal::ServicePort => &mut counters.dropped_service_port,
            Refusal::Stray => &mut counters.dropped_stray,
            Refusal::NotAllowed => &mut counters.dropped_not_allowed,
            Refusal::Rate => &mut counters.dropped_rate,
            Refusal::RateAll => &mut counters.dropped_rate_all,
            Refusal::Short => &mut counters.dropped_short,
            Refusal::Ssid => &mut counters.dropped_ssid,
            Refusal::Queue => &mut counters.dropped_queue,
        }
    }
}

/// What a reflector did in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReflectorInterval {
    /// Begin, inclusive.
    pub start: Time,
    /// End, exclusive.
    pub end: Time,
    /// What was counted in it.
    pub counters: ReflectorCounters,
    /// Sessions at its end.
    pub sessions: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drop_has_a_counter_of_its_own() {
        let mut counters = ReflectorCounters::default();
        let all = [
            Refusal::Foreign,
            Refusal::Fragment,
            Refusal::Extension,
            Refusal::Malformed,
            Refusal::Checksum,
            Refusal::Address,
            Refusal::Reply,
            Refusal::ServicePort,
            Refusal::Stray,
            Refusal::NotAllowed,
            Refusal::Rate,
            Refusal::RateAll,
            Refusal::Short,
            Refusal::Ssid,
            Refusal::Queue,
        ];
        for drop in all {
            *drop.counter(&mut counters) += 1;
        }
        assert_eq!(counters.dropped(), all.len() as u64);
        assert!(counters.iter().all(|(name, n)| n == u64::from(name.starts_with("dropped"))));
    }
}
