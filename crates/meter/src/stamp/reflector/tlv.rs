//! The TLVs of a request, answered where they lie (RFC 8972, section 4).
//!
//! Understood are types 1 to 5 and 7. All others are sent back with the U flag set and untouched
//! otherwise. Type 6 (Access Report) needs an access network to report on. Type 8 (HMAC) needs a
//! key, and a reflector without one cannot have understood it. Types 9 to 12 change where or how
//! often a reply goes, which an open reflector must not let a stranger do. Type 5 counts a
//! session's packets, so a stateless reflector does not understand it.

use sonde_wire::StampSource;
use sonde_wire::tlv::value::{
    ADDRESS_LEN, ClassOfService, DESTINATION_IP, DirectMeasurement, FollowUpTelemetry, MAC_LEN,
    METHOD_HARDWARE, METHOD_SOFTWARE, SOURCE_EUI48, SOURCE_EUI64, SOURCE_IP, SOURCE_IPV6,
    SOURCE_MAC, SYNC_LOCAL, TimestampInformation,
};
use sonde_wire::tlv::{
    CLASS_OF_SERVICE, DIRECT_MEASUREMENT, FOLLOW_UP_TELEMETRY, Flags, HEADER_LEN, LOCATION,
    PADDING, TIMESTAMP_INFORMATION,
};
use std::net::IpAddr;

/// What the reflector saw of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub source_port: u16,
    pub destination_port: u16,
    /// All zeros: not known.
    pub source_mac: [u8; 6],
    pub dscp: u8,
    pub ecn: u8,
    /// Where T2 was taken.
    pub stamp_source: StampSource,
}

/// What the reflector says about itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    /// Requests received and replies sent in this session, this exchange included;
    /// `None`: stateless.
    pub counters: Option<(u32, u32)>,
    /// The previous reply of this session: sequence number, time sent as on the wire, and where
    /// that was stamped. `None`: there was none, or its stamp is not known.
    pub previous: Option<(u32, u64, StampSource)>,
    /// Our clock is synchronised.
    pub synchronised: bool,
    /// Location may be reported (RFC 8972, section 4.2.2: the policy).
    pub location: bool,
    /// A bit for each DSCP that a reply may carry on request (section 4.4: the policy).
    pub dscps: u64,
}

/// What the TLVs mean for the reply as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TlvOutcome {
    /// The DSCP that the first Class of Service TLV wants and may have.
    pub dscp: Option<u8>,
    /// The previous reply was asked for, so this reply's transmit stamp will be.
    pub follow_up: bool,
    /// A TLV was not understood.
    pub unknown: bool,
    /// A TLV was malformed.
    pub malformed: bool,
}

/// Whether what follows the base packet begins with a TLV. Else it is the padding of a TWAMP-Light
/// request (RFC 8762, section 4.6), which goes back as it came.
///
/// A STAMP sender sets the U flag and clears M and I in every TLV (RFC 8972, section 4). Some
/// forget it, so a type that is understood with a length that is valid for it will do as well.
/// Zeros are neither. Random padding is taken for a TLV one time in eight; it then differs in its
/// flag octet, which no TWAMP sender reads.
#[inline]
pub(super) fn begins_with_tlv(area: &[u8]) -> bool {
    let Some((header, value)) = area.split_first_chunk::<HEADER_LEN>() else {
        return false;
    };
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let known = Flags::UNRECOGNIZED | Flags::MALFORMED | Flags::INTEGRITY;
    header[0] & known == Flags::REQUEST.0
        || header[0] == 0
            && length <= value.len()
            && length_is_valid(header[1], length) == Some(true)
}

/// Answers all TLVs in `area`, up to the first malformed one. What follows that one, and
/// what follows a header of zeros (padding behind the TLVs), stays as it is.
pub(super) fn answer(area: &mut [u8], observed: &Observed, state: &State) -> TlvOutcome {
    let mut outcome = TlvOutcome::default();
    let mut rest = area;
    while let Some((header, after)) = rest.split_first_chunk_mut::<HEADER_LEN>() {
        if *header == [0; HEADER_LEN] {
            break;
        }
        let kind = header[1];
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let whole = length <= after.len();
        let (value, next) = after.split_at_mut(length.min(after.len()));
        let understood = match kind {
            DIRECT_MEASUREMENT => state.counters.is_some(),
            kind => length_is_valid(kind, 0).is_some(),
        };
        // Section 4: each flag is set or cleared by us; the reserved ones are zero.
        header[0] = if understood { 0 } else { Flags::UNRECOGNIZED };
        outcome.unknown |= !understood;

        let valid = whole && (!understood || length_is_valid(kind, length) == Some(true));
        if !valid || kind == LOCATION && !sub_tlvs_are_valid(value) {
            if kind == FOLLOW_UP_TELEMETRY {
                // Section 4.7, erratum 8339: both fields are zeroed, as far as they are there.
                let fields = value.len().min(12);
                value[..fields].fill(0);
            }
            header[0] |= Flags::MALFORMED;
            outcome.malformed = true;
            break;
        }
        match kind {
            LOCATION => answer_location(value, observed, state.location),
            TIMESTAMP_INFORMATION => {
                let answer = TimestampInformation {
                    sync_source_in: synchronisation(state.synchronised),
                    method_in: method(observed.stamp_source),
                    sync_source_out: synchronisation(state.synchronised),
                    // T3 is read before the packet is handed over, whatever stamps it then.
                    method_out: METHOD_SOFTWARE,
                };
                value.copy_from_slice(&answer.emit());
            }
            CLASS_OF_SERVICE => {
                let dscp = answer_class_of_service(value, observed, state.dscps);
                outcome.dscp = outcome.dscp.or(dscp);
            }
            DIRECT_MEASUREMENT => {
                if let (Some((reflector_rx, reflector_tx)), Ok(asked)) =
                    (state.counters, DirectMeasurement::parse(value))
                {
                    let answer = DirectMeasurement { reflector_rx, reflector_tx, ..asked };
                    value.copy_from_slice(&answer.emit());
                }
            }
            FOLLOW_UP_TELEMETRY => {
                outcome.follow_up = true;
                let answer = state.previous.map_or(FollowUpTelemetry::default(), |previous| {
                    let (sequence, timestamp, source) = previous;
                    FollowUpTelemetry { sequence, timestamp, method: method(source) }
                });
                value.copy_from_slice(&answer.emit());
            }
            _ => {}
        }
        rest = next;
    }
    outcome
}

/// Whether `length` is valid for a type that is understood; `None`: it is not understood.
#[inline]
fn length_is_valid(kind: u8, length: usize) -> Option<bool> {
    match kind {
        PADDING => Some(true),
        LOCATION => Some(length >= PORTS),
        TIMESTAMP_INFORMATION | CLASS_OF_SERVICE => Some(length == ClassOfService::LEN),
        DIRECT_MEASUREMENT => Some(length == DirectMeasurement::LEN),
        FOLLOW_UP_TELEMETRY => Some(length == FollowUpTelemetry::LEN),
        _ => None,
    }
}

/// Checks the sub-TLVs of a Location TLV; flags the first malformed one (section 4.2.1).
/// Only the flags of that one are changed.
fn sub_tlvs_are_valid(value: &mut [u8]) -> bool {
    let mut rest = value.get_mut(PORTS..).unwrap_or_default();
    while !rest.is_empty() {
        let Some((header, after)) = rest.split_first_chunk_mut::<HEADER_LEN>() else {
            return false;
        };
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let wanted = match header[1] {
            SOURCE_MAC..=SOURCE_EUI64 => MAC_LEN,
            DESTINATION_IP..=SOURCE_IPV6 => ADDRESS_LEN,
            _ => length,
        };
        if length != wanted || length > after.len() {
            let understood = matches!(header[1], SOURCE_MAC..=SOURCE_IPV6);
            header[0] =
                if understood { Flags::MALFORMED } else { Flags::UNRECOGNIZED | Flags::MALFORMED };
            return false;
        }
        rest = &mut after[length..];
    }
    true
}

/// Fills in what was seen (section 4.2.2). Each question becomes the sub-TLV of the kind of address
/// that answers it, of the same length. Zeros stand for what is not known or not disclosed.
fn answer_location(value: &mut [u8], observed: &Observed, allowed: bool) {
    let disclose = |port: u16| if allowed { port.to_be_bytes() } else { [0; 2] };
    value[0..2].copy_from_slice(&disclose(observed.destination_port));
    value[2..4].copy_from_slice(&disclose(observed.source_port));
    // The answer's type is the question's plus one for IPv4, plus two for IPv6.
    let family = if observed.source.is_ipv4() { 1 } else { 2 };
    let mut rest = &mut value[PORTS..];
    while let Some((header, after)) = rest.split_first_chunk_mut::<HEADER_LEN>() {
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let (value, next) = after.split_at_mut(length);
        let (kind, address) = match header[1] {
            SOURCE_MAC if observed.source_mac == [0; 6] => (SOURCE_EUI64, None),
            SOURCE_MAC => (SOURCE_EUI48, None),
            DESTINATION_IP => (DESTINATION_IP + family, Some(observed.destination)),
            SOURCE_IP => (SOURCE_IP + family, Some(observed.source)),
            _ => {
                // Answers, and what is not assigned: not a sender's to ask.
                header[0] = Flags::UNRECOGNIZED;
                rest = next;
                continue;
            }
        };
        header[0] = 0;
        header[1] = kind;
        value.fill(0);
        match address {
            _ if !allowed => {}
            None => value[..6].copy_from_slice(&observed.source_mac),
            Some(IpAddr::V4(address)) => value[..4].copy_from_slice(&address.octets()),
            Some(IpAddr::V6(address)) => value.copy_from_slice(&address.octets()),
        }
        rest = next;
    }
}

/// Section 4.4 with erratum 8199: DSCP1 stays; DSCP2 and ECN say what arrived. RP is 1 where DSCP1
/// is refused, and the reply then has the request's DSCP. Returns the reply's DSCP.
fn answer_class_of_service(value: &mut [u8], observed: &Observed, dscps: u64) -> Option<u8> {
    let dscp1 = ClassOfService::parse(value).ok()?.dscp1;
    let allowed = dscps >> dscp1 & 1 != 0;
    let answer = ClassOfService {
        dscp1,
        dscp2: observed.dscp,
        ecn: observed.ecn,
        reverse_path: u8::from(!allowed),
    };
    value.copy_from_slice(&answer.emit());
    Some(if allowed { dscp1 } else { observed.dscp })
}

/// STAMP Timestamping Methods (section 5.5).
fn method(source: StampSource) -> u8 {
    match source {
        StampSource::Hardware => METHOD_HARDWARE,
        _ => METHOD_SOFTWARE,
    }
}

/// STAMP Synchronization Sources (section 5.4). The kernel says whether its clock is
/// disciplined but not by whom: NTP and PTP are not distinguished, and 0 states neither.
fn synchronisation(synchronised: bool) -> u8 {
    if synchronised { 0 } else { SYNC_LOCAL }
}

/// The two ports at the start of a Location TLV (section 4.2).
const PORTS: usize = 4;
