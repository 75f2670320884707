//! The Session-Reflector: STAMP (RFC 8762, RFC 8972 without authentication) and TWAMP
//! Light (RFC 5357, appendix I), stateless or stateful, over IPv4 and IPv6.
//!
//! A reply is the request turned round in its own buffer: one for one, of the same
//! length, never more. Only a request shorter than the base packet gets a longer reply
//! (RFC 8762, section 4.6), which waits in a small queue for `poll_transmit`.
//!
//! Timestamps go out in NTP format, UTC, whatever the request's own format. That is the default
//! (RFC 8762, section 4.2.1), and what TWAMP Light expects (section 4.6). Each side says with its Z
//! bit how it writes.
//!
//! A request whose UDP checksum shows it damaged is dropped; one that only lacks what a
//! network card would have completed is not (see [`sonde_wire::udp_intact`]). The reply's
//! checksum is always computed whole.
//!
//! What must not be answered, so that two that answer cannot be set against each other, is
//! in [`loops`].

mod address;
mod config;
mod counters;
mod headers;
mod limiter;
mod loops;
mod session_table;
mod shared;
mod tlv;

#[cfg(test)]
mod tests;

pub use config::{ReflectorConfig, ReflectorError};
pub use counters::{ReflectorCounters, ReflectorInterval};
pub use limiter::RateLimit;
pub use shared::ReplyCounter;

use std::collections::VecDeque;
use std::net::SocketAddr;

use sonde_wire::packet::SessionRequest;
use sonde_wire::prefix::Prefix;
use sonde_wire::stamp::{BASE_LEN, ReflectorPacket, SENDER_MIN_LEN, SenderPacket};
use sonde_wire::{
    Error, ErrorEstimate, Scale, Stamp, Time, TimestampFormat, TxDone, UdpFrame, Verdict, build,
    ethernet, ipv6, parse_udp, udp, udp_intact,
};

use crate::keyed_hash::KeyedHash;
use crate::{Instrument, Transmit};
use address::{Addresses, is_unicast, scaled_bits};
use counters::Refusal;
use headers::{REPLY_TTL, ipv4_checksum_holds, swap_macs, turn_headers};
use limiter::{Limiter, Total};
use loops::{Arrival, RequestOrder};
use session_table::{Lookup, SessionKey, SessionTable};

/// A STAMP and TWAMP-Light reflector.
pub struct Reflector {
    /// Sorted.
    ports: Vec<u16>,
    /// Sorted; IPv4 as mapped.
    local: Vec<u128>,
    allow: Vec<Prefix>,
    /// Sorted.
    ssids: Vec<u16>,
    location: bool,
    reply_dscps: u64,
    tai_offset: i64,
    error_estimate: ErrorEstimate,
    limiter: Option<Limiter>,
    total: Option<Total>,
    no_senders: Addresses,
    sessions: Option<SessionTable>,
    /// Numbers the replies from one of our ports.
    counter: Option<(u16, Box<dyn ReplyCounter>)>,
    next_sweep: Time,
    /// Replies that are longer than their requests; never more than [`QUEUE`].
    queue: VecDeque<QueuedReply>,
    counters: ReflectorCounters,
    interval: i64,
    record_start: Time,
    record_base: ReflectorCounters,
    record_due: Time,
    /// The record of what is past, and the counters at its end.
    record: Option<(ReflectorInterval, ReflectorCounters)>,
}

/// A reply that could not be made in place, but for T3 and the checksum.
struct QueuedReply {
    since: Time,
    source: SocketAddr,
    destination: SocketAddr,
    udp_offset: usize,
    len: usize,
    frame: [u8; QUEUED_FRAME],
}

impl Reflector {
    /// A reflector that begins at `now`.
    pub fn new(config: &ReflectorConfig, now: Time) -> Result<Self, ReflectorError> {
        config.check()?;
        address::check(&config.allow)?;
        let hash = KeyedHash::new([config.seed, 0]);
        let mut reflector = Reflector {
            ports: sorted(config.ports.iter().copied()),
            local: sorted(config.local.iter().map(|&a| scaled_bits(a))),
            allow: config.allow.clone(),
            ssids: sorted(config.ssids.iter().copied()),
            location: config.location,
            reply_dscps: config.reply_dscps,
            tai_offset: 0,
            error_estimate: ErrorEstimate(0),
            limiter: config.rate_limit.map(|limit| Limiter::new(limit, hash)),
            total: config.total_limit.map(Total::new),
            no_senders: Addresses::new(&config.no_senders)?,
            sessions: config
                .stateful
                .then(|| SessionTable::new(config.max_sessions, config.session_timeout, hash)),
            counter: None,
            next_sweep: now,
            queue: VecDeque::with_capacity(QUEUE),
            counters: ReflectorCounters::default(),
            interval: config.interval,
            record_start: now,
            record_base: ReflectorCounters::default(),
            record_due: now + config.interval,
            record: None,
        };
        reflector.set_clock(config.tai_offset, config.clock_synchronised, config.clock_error);
        Ok(reflector)
    }

    /// Sets how our clock stands: TAI - UTC in ns, whether it is synchronised, and its
    /// greatest error in ns.
    pub fn set_clock(&mut self, tai_offset: i64, synchronised: bool, error: i64) {
        self.tai_offset = tai_offset;
        self.error_estimate =
            ErrorEstimate::from_error_ns(error, synchronised, TimestampFormat::Ntp);
    }

    /// Replaces the addresses that no sender has ([`ReflectorConfig::no_senders`]).
    ///
    /// # Errors
    /// A prefix longer than its address.
    pub fn set_no_senders(&mut self, prefixes: &[Prefix]) -> Result<(), ReflectorError> {
        self.no_senders = Addresses::new(prefixes)?;
        Ok(())
    }

    /// Another reflector on this host answers the same sessions on `port`: `counter` numbers the
    /// replies from there from now on. One that is stateless copies the sender's all the same.
    pub fn share_sessions(&mut self, port: u16, counter: Box<dyn ReplyCounter>) {
        self.counter = Some((port, counter));
    }

    /// What has been counted so far.
    pub fn counters(&self) -> &ReflectorCounters {
        &self.counters
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.sessions.as_ref().map_or(0, SessionTable::len)
    }

    fn reflect(&mut self, frame: &mut [u8], stamp: Stamp, now: Time) -> Result<Verdict, Refusal> {
        let found = parse_udp(frame).map_err(|error| match error {
            Error::EtherType | Error::Protocol | Error::VlanDepth => Refusal::Foreign,
            Error::Fragment => Refusal::Fragment,
            Error::ExtensionDepth => Refusal::Extension,
            _ => Refusal::Malformed,
        })?;
        self.admit(frame, &found, now)?;

        let request =
            SenderPacket::new_checked(&frame[found.payload.clone()]).map_err(|_| Refusal::Short)?;
        let (sequence, short) = (request.sequence(), !request.has_base());
        let timestamp = request.timestamp();
        // What must be zero in a STAMP request is padding in one of TWAMP Light, perhaps
        // random in every packet: the identifier's field then holds no identifier.
        let padded = padded(&frame[found.payload.clone()]);
        let ssid = if padded { 0 } else { request.ssid() };
        if padded && loops::is_reply(&frame[found.payload.clone()], now.to_ntp(self.tai_offset).0) {
            return Err(Refusal::Reply);
        }
        if !self.ssids.is_empty() && self.ssids.binary_search(&ssid).is_err() {
            return Err(Refusal::Ssid);
        }
        if short && self.queue.len() == QUEUE {
            return Err(Refusal::Queue);
        }
        let key = SessionKey {
            source: scaled_bits(found.source),
            destination: scaled_bits(found.destination),
            source_port: found.source_port,
            destination_port: found.destination_port,
            ssid,
        };
        let session = self.session(key, (sequence, timestamp), !short && !padded, now)?;
        let session = self.shared(session, &found, ssid, (sequence, timestamp));

        if short {
            let reply_seq = self.next_sequence(session).unwrap_or(sequence);
            self.queue_reply(frame, &found, stamp, now, reply_seq);
            return Ok(Verdict::Release);
        }
        let mut dscp = found.dscp;
        let mut cookie = 0;
        let area = found.payload.start + BASE_LEN..found.payload.end;
        if tlv::begins_with_tlv(&frame[area.clone()]) {
            let observed = observed(frame, &found, stamp);
            let state = self.state(session);
            let outcome = tlv::answer(&mut frame[area], &observed, &state);
            dscp = outcome.dscp.unwrap_or(dscp);
            if let (true, Some(sessions), Some(index)) =
                (outcome.follow_up, &self.sessions, session)
            {
                cookie = sessions.cookie(index);
            }
            self.counters.reflected_tlv += 1;
            self.counters.tlv_unknown += u64::from(outcome.unknown);
            self.counters.tlv_malformed += u64::from(outcome.malformed);
        }
        let reply_seq = self.next_sequence(session).unwrap_or(sequence);
        self.write_base(&mut frame[found.payload.clone()], found.ttl, stamp, now, reply_seq);
        turn_headers(frame, &found, dscp);
        self.counters.reflected += 1;
        Ok(Verdict::Transmit { cookie })
    }

    /// Whether the packet is for us, and its sender may have a reply.
    #[inline]
    fn admit(&mut self, frame: &[u8], found: &UdpFrame, now: Time) -> Result<(), Refusal> {
        let (source, destination) = (scaled_bits(found.source), scaled_bits(found.destination));
        if self.ports.binary_search(&found.destination_port).is_err()
            || !self.local.is_empty() && self.local.binary_search(&destination).is_err()
        {
            return Err(Refusal::Foreign);
        }
        if found.is_ipv6 {
            if found.l4_offset != found.l3_offset + ipv6::HEADER_LEN {
                return Err(Refusal::Extension);
            }
        } else if !ipv4_checksum_holds(&frame[found.l3_offset..found.l4_offset]) {
            return Err(Refusal::Checksum);
        }
        if !udp_intact(frame, found) {
            return Err(Refusal::Checksum);
        }
        // A group bit in either address: not a frame from one host to another.
        let group = (frame[0] | frame[6]) & 1 != 0;
        let loopback = found.source.is_loopback() != found.destination.is_loopback();
        if group
            || loopback
            || !is_unicast(found.source)
            || !is_unicast(found.destination)
            || found.source_port == 0
        {
            return Err(Refusal::Address);
        }
        if self.no_senders.contain(source) {
            return Err(Refusal::Address);
        }
        if loops::is_service(found.source_port)
            && self.ports.binary_search(&found.source_port).is_err()
        {
            return Err(Refusal::ServicePort);
        }
        if !self.allow.is_empty() && !self.allow.iter().any(|prefix| prefix.contains(found.source))
        {
            return Err(Refusal::NotAllowed);
        }
        if let Some(limiter) = &mut self.limiter
            && !limiter.admit(source, now)
        {
            return Err(Refusal::Rate);
        }
        if let Some(total) = &mut self.total
            && !total.admit(now)
        {
            return Err(Refusal::RateAll);
        }
        Ok(())
    }

    /// The session of a request, which is counted in it; `None`: served statelessly.
    ///
    /// `numbered`: the sender's sequence number and timestamp; `plain`: STAMP by its shape.
    #[inline]
    fn session(
        &mut self,
        key: SessionKey,
        numbered: (u32, u64),
        plain: bool,
        now: Time,
    ) -> Result<Option<u32>, Refusal> {
        let Some(sessions) = &mut self.sessions else { return Ok(None) };
        let (sequence, timestamp) = numbered;
        let index = match sessions.lookup(key, now) {
            Lookup::Known(index) => index,
            Lookup::Second(index) => {
                self.counters.sessions_begun += 1;
                index
            }
            Lookup::New(index) => {
                let session = sessions.session(index);
                session.order = RequestOrder::first(sequence, timestamp);
                session.received = 1;
                return Ok(Some(index));
            }
            Lookup::Full => {
                self.counters.reflected_stateless += 1;
                return Ok(None);
            }
        };
        let session = sessions.session(index);
        match session.order.next(sequence, timestamp, plain, now) {
            Arrival::Usual => {}
            // RFC 8762, section 4.3: a session's replies are numbered from 0, and this is
            // another session of the same addresses and ports.
            Arrival::Restart => {
                (session.next_sequence, session.received) = (0, 0);
                session.previous_sent = None;
                self.counters.sessions_restarted += 1;
            }
            Arrival::Stray => return Err(Refusal::Stray),
        }
        session.received = session.received.wrapping_add(1);
        Ok(Some(index))
    }

    /// Brings a session to where the counter is that others count on, too. `None`: this request is
    /// served statelessly, since that has no room for it.
    #[inline]
    fn shared(
        &mut self,
        session: Option<u32>,
        found: &UdpFrame,
        ssid: u16,
        numbered: (u32, u64),
    ) -> Option<u32> {
        let index = session?;
        let Some((port, counter)) = &mut self.counter else { return session };
        if *port != found.destination_port {
            return session;
        }
        let (sequence, timestamp) = numbered;
        let next = counter.next_sequence(&SessionRequest {
            source: found.source,
            destination: found.destination,
            source_port: found.source_port,
            ssid,
            sequence,
            timestamp,
        });
        let Some(next) = next else {
            self.counters.reflected_stateless += 1;
            return None;
        };
        let session = self.sessions.as_mut()?.session(index);
        if session.next_sequence != next {
            // The others have answered meanwhile, and each request that they counted.
            session.previous_sent = None;
            (session.next_sequence, session.received) = (next, next.wrapping_add(1));
        }
        Some(index)
    }

    /// Takes the sequence number of a session's next reply.
    #[inline]
    fn next_sequence(&mut self, session: Option<u32>) -> Option<u32> {
        let session = self.sessions.as_mut()?.session(session?);
        let sequence = session.next_sequence;
        session.next_sequence = sequence.wrapping_add(1);
        session.previous_sent = None;
        Some(sequence)
    }

    /// What TLVs may say of us and of a session whose reply is not yet numbered.
    fn state(&mut self, session: Option<u32>) -> tlv::State {
        let mut state = tlv::State {
            counters: None,
            previous: None,
            synchronised: self.error_estimate.synchronised(),
            location: self.location,
            dscps: self.reply_dscps,
        };
        if let (Some(sessions), Some(index)) = (&mut self.sessions, session) {
            let session = sessions.session(index);
            // This very exchange counts, as it does in the sender's own counter.
            state.counters = Some((session.received, session.next_sequence.wrapping_add(1)));
            state.previous = session.previous_sent.map(|sent| {
                let at = sent.at.to_ntp(self.tai_offset).0;
                (session.next_sequence.wrapping_sub(1), at, sent.source)
            });
        }
        state
    }

    /// Turns the base packet at the start of `payload` round.
    #[inline]
    fn write_base(&self, payload: &mut [u8], ttl: u8, stamp: Stamp, now: Time, sequence: u32) {
        // Only a payload shorter than the base packet is refused; there is none here.
        let Ok(mut reply) = ReflectorPacket::reflect(payload, ttl) else { return };
        reply.set_sequence(sequence);
        reply.set_receive_timestamp(stamp.at.to_ntp(self.tai_offset).0);
        // The two instants may come from different clocks; a packet never leaves before it came.
        reply.set_timestamp(now.max(stamp.at).to_ntp(self.tai_offset).0);
        reply.set_error_estimate(self.error_estimate);
    }

    /// Queues the reply to a request shorter than the base packet.
    fn queue_reply(
        &mut self,
        frame: &[u8],
        found: &UdpFrame,
        stamp: Stamp,
        now: Time,
        sequence: u32,
    ) {
        let mut reply = QueuedReply {
            // A request may have come after this turn read the clock: T3 is not before T2.
            since: now.max(stamp.at),
            source: SocketAddr::new(found.destination, found.destination_port),
            destination: SocketAddr::new(found.source, found.source_port),
            udp_offset: 0,
            len: 0,
            frame: [0; QUEUED_FRAME],
        };
        let link = found.l3_offset;
        reply.frame[..link].copy_from_slice(&frame[..link]);
        swap_macs(&mut reply.frame);
        let tos = found.dscp << 2;
        let ip = &mut reply.frame[link..];
        let Ok(headers) =
            build::emit_udp_ip(ip, reply.source, reply.destination, tos, REPLY_TTL, BASE_LEN)
        else {
            // Both addresses are of one family and all lengths are constant: it always fits.
            return;
        };
        let payload = &mut ip[headers..headers + BASE_LEN];
        let request = &frame[found.payload.clone()];
        // No more than TWAMP's header: what follows it is padding, and no session identifier.
        payload[..SENDER_MIN_LEN].copy_from_slice(&request[..SENDER_MIN_LEN]);
        self.write_base(payload, found.ttl, stamp, now, sequence);
        reply.udp_offset = link + headers - udp::HEADER_LEN;
        reply.len = link + headers + BASE_LEN;
        self.queue.push_back(reply);
    }

    fn close_record(&mut self, now: Time) {
        // Late calls do not shift the intervals.
        let late = (now - self.record_due) / self.interval;
        let end = self.record_due + late * self.interval;
        let record = ReflectorInterval {
            start: self.record_start,
            end,
            counters: self.counters.since(&self.record_base),
            sessions: self.sessions() as u64,
        };
        // A record that nobody has taken is contained in this one.
        self.record = Some((record, self.counters));
        self.record_due = end + self.interval;
    }
}

impl Instrument for Reflector {
    type Record = ReflectorInterval;

    #[inline]
    fn input(&mut self, frame: &mut [u8], stamp: Stamp, now: Time) -> Verdict {
        match self.reflect(frame, stamp, now) {
            Ok(verdict) => verdict,
            Err(refusal) => {
                *refusal.counter(&mut self.counters) += 1;
                Verdict::Release
            }
        }
    }

    fn set_scale(&mut self, scale: Scale, _now: Time) {
        self.tai_offset = scale.utc_offset;
    }

    fn transmitted(&mut self, done: TxDone) {
        if let Some(sessions) = &mut self.sessions {
            sessions.transmitted(done);
        }
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        let mut reply = self.queue.pop_front()?;
        let Some(out) = buffer.get_mut(..reply.len) else {
            self.counters.dropped_queue += 1;
            return None;
        };
        let datagram = &mut reply.frame[reply.udp_offset..reply.len];
        let t3 = now.max(reply.since).to_ntp(self.tai_offset).0;
        datagram[udp::HEADER_LEN + 4..udp::HEADER_LEN + 12].copy_from_slice(&t3.to_be_bytes());
        build::udp_header_sum(reply.source, reply.destination, BASE_LEN)
            .and_then(|sum| build::finish_udp(datagram, sum, BASE_LEN))
            .ok()?;
        out.copy_from_slice(&reply.frame[..reply.len]);
        self.counters.reflected += 1;
        self.counters.reflected_short += 1;
        Some(Transmit { len: reply.len, cookie: 0 })
    }

    fn poll_timeout(&self) -> Option<Time> {
        let sweep = self.sessions.as_ref().map(|_| self.next_sweep);
        let queued = self.queue.front().map(|reply| reply.since);
        [sweep, queued].into_iter().flatten().chain([self.record_due]).min()
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Some(sessions) = &mut self.sessions
            && now >= self.next_sweep
        {
            self.counters.sessions_ended += sessions.sweep(now) as u64;
            self.next_sweep = now + sessions.sweep_period();
        }
        if now >= self.record_due {
            self.close_record(now);
        }
    }

    fn poll_record(&mut self, record: &mut ReflectorInterval) -> bool {
        let Some((finished, counters)) = self.record.take() else {
            return false;
        };
        *record = finished;
        self.record_start = finished.end;
        self.record_base = counters;
        true
    }
}

fn observed(frame: &[u8], found: &UdpFrame, stamp: Stamp) -> tlv::Observed {
    let mut source_mac = ethernet::Mac::default();
    source_mac.copy_from_slice(&frame[6..12]);
    tlv::Observed {
        source: found.source,
        destination: found.destination,
        source_port: found.source_port,
        destination_port: found.destination_port,
        source_mac,
        dscp: found.dscp,
        ecn: found.ecn,
        stamp_source: stamp.source,
    }
}

/// Whether a request has anything but zeros between session identifier and end of the base packet.
/// A STAMP sender has nothing else there (RFC 8762, section 4.2.1; RFC 8972, section 3).
#[inline]
fn padded(request: &[u8]) -> bool {
    let end = request.len().min(BASE_LEN);
    request.get(16..end).is_some_and(|rest| rest.iter().any(|&octet| octet != 0))
}

fn sorted<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort_unstable();
    items.dedup();
    items
}

/// Replies to short requests that can wait: more than a receive burst brings.
const QUEUE: usize = 512;
/// Two VLAN tags, IPv6, UDP and the base packet.
const QUEUED_FRAME: usize =
    ethernet::HEADER_LEN + 4 * ethernet::MAX_TAGS + ipv6::HEADER_LEN + udp::HEADER_LEN + BASE_LEN;
