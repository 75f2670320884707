//! What must not be answered lest the answer be answered. Such are replies of other reflectors, our
//! own ones that come back, and what services say that answer any datagram.
//!
//! A reflector answers whatever has the length of a request, and so may what stands at the other
//! end. One datagram with a forged source would then go to and fro for ever. Four things end that,
//! each where the ones before it fail. A reply is known by its shape, a service by its port. What
//! is neither STAMP nor numbered as by a sender is answered a few times a second only. All rates
//! are limited.
//!
//! Where a packet comes from says nothing: honest senders use the reflector's own port as
//! their source (perfSONAR's twping does, and many routers).

use sonde_wire::Time;

/// Whether a packet that is not zero where a request is (`payload`) has what only a reply has. RFC
/// 8762, section 4.3.1; RFC 5357, section 4.2.1. That is a receive timestamp close to its transmit
/// timestamp or to our own time, or the echo of a timestamp of now. Only seconds are compared,
/// which lie at the same offset in NTP and PTP format.
///
/// A request of TWAMP Light may hold random padding there. It passes for a reply once in
/// 10^12 packets: 39 of 2^32 values of a second, and two octets that must be zero.
#[inline]
pub(super) fn is_reply(payload: &[u8], now: u64) -> bool {
    let Some(fields) = payload.first_chunk::<ECHO_END>() else { return false };
    // "Must be zero" in both standards; the shortest replies end before it.
    if payload.get(MBZ).is_some_and(|octets| octets != [0, 0]) {
        return false;
    }
    let second = |at: usize| {
        u32::from_be_bytes([fields[at], fields[at + 1], fields[at + 2], fields[at + 3]])
    };
    let near = |a: u32, b: u32, seconds: u32| {
        a != 0 && (a.wrapping_sub(b) as i32).unsigned_abs() <= seconds
    };
    let now = (now >> 32) as u32;
    let (sent, received, echoed) = (second(4), second(16), second(28));
    near(received, sent, DWELL) || near(received, now, AGE) || near(echoed, now, AGE)
}

/// Whether a source port belongs to services that answer what they are sent. Such a port is a
/// system port (RFC 6335, section 6) other than those of OWAMP, TWAMP and STAMP (RFC 8545). Any
/// port above may be the source of an honest sender.
#[inline]
pub(super) fn is_service(port: u16) -> bool {
    port < 1024 && !matches!(port, 861 | 862)
}

/// The sequence numbers and times of one session's requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestOrder {
    /// The greatest sequence number so far, and the middle half of its time stamp.
    sequence: u32,
    sent: u32,
    /// When all strays are forgiven, ns.
    forgiven: i64,
}

/// What the arrival of a request means to its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// No sign of a loop: answer it.
    Usual,
    /// The sender began anew: so do its replies (RFC 8762, section 4.3).
    Restart,
    /// One too many that no sender sends: do not answer.
    Stray,
}

impl RequestOrder {
    /// Of the first request.
    pub(super) fn first(sequence: u32, timestamp: u64) -> Self {
        RequestOrder { sequence, sent: middle(timestamp), forgiven: i64::MIN }
    }

    /// Files the next request. `plain`: it is zero where a STAMP request is.
    #[inline]
    pub(super) fn next(
        &mut self,
        sequence: u32,
        timestamp: u64,
        plain: bool,
        now: Time,
    ) -> Arrival {
        let sent = middle(timestamp);
        let ahead = sequence.wrapping_sub(self.sequence) as i32;
        if !plain && !(1..=MOST_LOST).contains(&ahead) && !self.forgive(now.as_nanos()) {
            return Arrival::Stray;
        }
        if ahead > 0 {
            (self.sequence, self.sent) = (sequence, sent);
            return Arrival::Usual;
        }
        // A late or doubled request of the beginning was sent before the last one. A sender
        // without a clock gives no such evidence: then its very first sequence number has to do.
        let later = sent.wrapping_sub(self.sent) as i32;
        let anew =
            ahead < 0 && sequence < BEGINNING && (later > LATER || later == 0 && sequence == 0);
        if !anew {
            return Arrival::Usual;
        }
        (self.sequence, self.sent) = (sequence, sent);
        Arrival::Restart
    }

    fn forgive(&mut self, now: i64) -> bool {
        let forgiven = self.forgiven.clamp(now, now.saturating_add(STRAY * STRAYS));
        if forgiven - now > STRAY * (STRAYS - 1) {
            return false;
        }
        self.forgiven = forgiven.saturating_add(STRAY);
        true
    }
}

/// Low half of the seconds, high half of their fraction: 18 hours in steps of 15 us in NTP
/// format, of 66 us in PTP's.
#[inline]
fn middle(timestamp: u64) -> u32 {
    (timestamp >> 16) as u32
}

/// Where the sender's timestamp ends in a reply.
const ECHO_END: usize = 36;
/// Behind the sender's error estimate.
const MBZ: std::ops::Range<usize> = 38..40;
/// How long a reply may have dwelt in a reflector, s.
const DWELL: u32 = 2;
/// How old a timestamp may be that comes back, s.
const AGE: u32 = 8;
/// Requests lost in a row, at most, for the next to be the same sender's.
const MOST_LOST: i32 = 65_535;
/// A sender that begins anew is seen before it has sent more.
const BEGINNING: u32 = 64;
/// A new beginning is at least a millisecond after the last request, in steps of [`middle`]. A
/// sender of several threads may exchange two requests, but not by so much.
const LATER: i32 = 64;
/// One stray is forgiven in 100 ms, and so many at once.
const STRAY: i64 = 100_000_000;
const STRAYS: i64 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1 << 32;
    const NOW: u64 = 0xed00_3780 * SECOND;

    fn at(ms: i64) -> Time {
        Time::from_nanos(1_800_000_000_000_000_000 + ms * 1_000_000)
    }

    #[test]
    fn system_ports_are_services_but_for_those_of_measurement() {
        for port in [1, 7, 19, 53, 123, 161, 1023] {
            assert!(is_service(port), "{port}");
        }
        for port in [861, 862, 1024, 8862, 20_000, 65_535] {
            assert!(!is_service(port), "{port}");
        }
    }

    #[test]
    fn zeros_and_padding_are_no_reply_and_times_are() {
        let mut payload = [0u8; 44];
        payload[4..12].copy_from_slice(&NOW.to_be_bytes());
        assert!(!is_reply(&payload, NOW), "a request");
        payload[16..44].fill(0x5a);
        assert!(!is_reply(&payload, NOW), "with padding");
        payload[38..40].fill(0);
        assert!(!is_reply(&payload, NOW), "with other padding");
        let mut reply = payload;
        reply[16..24].copy_from_slice(&(NOW - SECOND).to_be_bytes());
        assert!(is_reply(&reply, NOW));
        assert!(is_reply(&reply, NOW + (1 << 20) * SECOND), "by its own times, in any year");
        assert!(is_reply(&reply[..38], NOW + (1 << 20) * SECOND), "of the shortest kind");
        assert!(!is_reply(&reply[..35], NOW));
        // A reflector without a clock echoes ours.
        let mut echo = payload;
        echo[4..12].fill(0);
        echo[16..24].fill(0);
        echo[28..36].copy_from_slice(&(NOW - 3 * SECOND).to_be_bytes());
        assert!(is_reply(&echo, NOW) && !is_reply(&echo, NOW + 60 * SECOND));
        // A sender whose clock begins at 0 has sent at the second that zeros stand for.
        let mut request = [0u8; 44];
        request[11] = 1;
        assert!(!is_reply(&request, NOW) && !is_reply(&request, 0));
    }

    #[test]
    fn a_new_beginning_is_distinguished_from_a_late_or_doubled_request() {
        let ms = SECOND / 1000;
        let mut order = RequestOrder::first(0, NOW);
        for n in 1..10 {
            assert_eq!(order.next(n, NOW + u64::from(n) * ms, true, at(0)), Arrival::Usual);
        }
        assert_eq!(order.next(0, NOW, true, at(0)), Arrival::Usual, "doubled");
        assert_eq!(order.next(8, NOW + 8 * ms, true, at(0)), Arrival::Usual, "late");
        assert_eq!(
            order.next(1, NOW + 50 * ms, true, at(0)),
            Arrival::Restart,
            "its first was lost"
        );
        assert_eq!(order.next(2, NOW + 51 * ms, true, at(0)), Arrival::Usual);
        // Whoever has no clock is known by sequence number 0 alone.
        let mut order = RequestOrder::first(5, 0);
        assert_eq!(order.next(5, 0, true, at(0)), Arrival::Usual);
        assert_eq!(order.next(3, 0, true, at(0)), Arrival::Usual);
        assert_eq!(order.next(0, 0, true, at(0)), Arrival::Restart);
        // A sequence number that wraps goes on.
        let mut order = RequestOrder::first(u32::MAX, NOW);
        assert_eq!(order.next(0, NOW + ms, true, at(0)), Arrival::Usual);
    }

    #[test]
    fn what_is_not_stamp_has_to_be_numbered_or_is_a_stray() {
        let mut order = RequestOrder::first(0, NOW);
        for n in 1..10_000 {
            assert_eq!(
                order.next(2 * n, NOW, false, at(0)),
                Arrival::Usual,
                "a sender with padding"
            );
        }
        // Half a second of a service that always says the same, a million times a second.
        let answered = (0..500_000)
            .filter(|i| order.next(0x4552_524f, 0, false, at(i / 1000)) == Arrival::Usual)
            .count();
        assert_eq!(answered, 504);
        assert_eq!(order.next(0x4552_524f, 0, true, at(500)), Arrival::Usual, "STAMP by its shape");
        // One that turns its letters round, ten times a second, goes no faster than that.
        let mut order = RequestOrder::first(0, 0);
        let answered = (0..20_000u32)
            .filter(|&i| {
                let said = 0x2021_2223u32.wrapping_add((i % 90) * 0x0101_0101);
                order.next(said, 0, false, at(i64::from(i) * 10)) == Arrival::Usual
            })
            .count();
        assert!((2_000..=2_600).contains(&answered), "{answered}");
    }
}
