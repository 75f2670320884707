//! Replies: which probe each answers, whether in time, and what it says.

use sonde_results::caveat::Caveat;
use sonde_wire::{Stamp, Time, parse_udp};

use super::super::probe::{Refusal, Reply};
use super::super::stream;
use super::Sender;

impl Sender {
    pub(super) fn receive(&mut self, frame: &[u8], stamp: Stamp, now: Time) -> Result<(), Refusal> {
        let udp = parse_udp(frame).map_err(|_| {
            self.doubts.add(stamp.at, Caveat::InvalidReplies);
            Refusal::Malformed
        })?;
        // Who sent it comes first: rubbish from anybody else says nothing of our path.
        let index = self.demux.lookup(udp.source, udp.source_port, udp.destination_port);
        let reply = Reply::read(frame, &udp, &self.clock, stamp.at);
        let Some(index) = index else {
            return Err(reply.map_or(Refusal::Stranger, |reply| self.stranger(&reply, stamp.at)));
        };
        let reply = reply.inspect_err(|_| {
            self.streams[index as usize].caveats.insert(Caveat::InvalidReplies);
        })?;
        let probe = &self.probes[index as usize];
        if reply.ssid != 0 && reply.ssid != probe.ssid() {
            self.streams[index as usize].caveats.insert(Caveat::OtherReplies);
            return Err(Refusal::WrongSession);
        }
        let s = &mut self.streams[index as usize];
        if reply.seq.wrapping_sub(s.settled) >= s.open() {
            // Before the window, or not yet sent. Half the sequence space lies either way.
            if s.settled.wrapping_sub(reply.seq) as i32 > 0 && s.attempts > 0 {
                s.tally.late = s.tally.late.saturating_add(1);
                return Err(Refusal::Late);
            }
            s.caveats.insert(Caveat::InvalidReplies);
            return Err(Refusal::Forged);
        }
        let at = s.index(reply.seq);
        let slot = &mut self.slots[at];
        let steps = self.clock.scale.steps;
        let then = slot.flags >> stream::STEPS_SHIFT;
        // By the stamps, whenever it is looked at. A stamp of later than now is of a clock that
        // was set a moment ago; across a step no stamp is believed.
        let rtt = stamp.at.min(now).as_nanos() - slot.t1;
        let is_late = rtt > self.config.timeout && then == steps & 255;
        if slot.flags & stream::ANSWERED != 0 {
            if is_late {
                s.tally.late = s.tally.late.saturating_add(1);
                return Err(Refusal::Late);
            }
            s.duplicate(slot.reflector_seq == reply.reflector_seq);
            self.counters.duplicates += 1;
            let sample = reply.sample(index, slot, stamp, true);
            self.keep(sample);
            return Ok(());
        }
        // The echo of what we wrote into the probe: a reply made up by somebody who
        // has not seen it does not match (RFC 8762, section 4.3.1).
        let echo = Time::from_nanos(slot.forward).to_ntp(self.utc_offsets[then as usize & 3]).0;
        if reply.echo != echo {
            s.caveats.insert(Caveat::InvalidReplies);
            return Err(Refusal::Forged);
        }
        if is_late {
            s.tally.late = s.tally.late.saturating_add(1);
            return Err(Refusal::Late);
        }
        if rtt >= 0 {
            let first = if self.heard.0 == now { self.heard.1 } else { Time::MAX };
            self.heard = (now, first.min(stamp.at));
        }
        slot.rtt = stamp.at.as_nanos() - slot.t1;
        slot.forward = reply.t2.as_nanos().saturating_sub(slot.t1);
        slot.reflector_seq = reply.reflector_seq;
        slot.flags |= stream::ANSWERED | stream::source_bits(stamp.source) << stream::T4_SHIFT;
        let dwell = reply.t3 - reply.t2;
        match u32::try_from(dwell) {
            Ok(ns) if dwell <= slot.rtt.max(0) + DWELL_TOLERANCE => slot.dwell = ns,
            _ => slot.flags |= stream::PEER_TIMES_WRONG,
        }
        if !reply.comparable {
            slot.flags |= stream::ONE_WAY_WRONG;
            self.counters.one_way_implausible += 1;
        }
        if reply.format_wrong {
            slot.flags |= stream::FORMAT_WRONG;
            self.counters.format_wrong += 1;
        }
        if slot.rtt < 0 || then != steps & 255 {
            slot.flags |= stream::CLOCK_STEPPED;
            self.counters.clock_stepped += 1;
        }
        let overtaken = s.side.seen(reply.seq, reply.reflector_seq);
        // RFC 4737, section 3.3: overtaken when a later one has been seen.
        if reply.seq.wrapping_sub(s.expected) as i32 >= 0 {
            s.expected = reply.seq.wrapping_add(1);
        } else {
            slot.flags |= stream::REORDERED;
        }
        s.peer_estimate = reply.error_estimate;
        self.counters.replies += 1;
        self.delays.add(slot.rtt);
        let sample = reply.sample(index, slot, stamp, false);
        if let Some((from, until)) = overtaken {
            // No further back than this: that it was far shows when the sequence numbers are
            // compared.
            for i in 1..=until.wrapping_sub(from).min(FARTHEST_OVERTAKEN) {
                let seq = until.wrapping_sub(i);
                if seq.wrapping_sub(s.settled) < s.open() {
                    self.slots[s.index(seq)].flags |= stream::OVERTAKEN;
                }
            }
        }
        self.keep(sample);
        Ok(())
    }

    /// What came from nobody we probe. In the shape of an answer to something that we sent a moment
    /// ago it is a reply that went astray.
    fn stranger(&mut self, reply: &Reply, at: Time) -> Refusal {
        let age = at - reply.echoed(&self.clock, at);
        if !(0..=self.config.timeout).contains(&age) {
            return Refusal::Stranger;
        }
        match self.demux.only_stream_of(reply.local_port) {
            Some(index) => self.streams[index as usize].caveats.insert(Caveat::OtherReplies),
            None => self.doubts.add(at, Caveat::OtherReplies),
        }
        Refusal::Other
    }
}

/// T3-T2 may exceed T4-T1 by this, ns: two clocks tick differently, and stamps have a resolution.
const DWELL_TOLERANCE: i64 = 2_000;
/// Requests before an overtaking one that are marked.
const FARTHEST_OVERTAKEN: u32 = 64;
