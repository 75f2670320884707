//! The generator of the engines in user space: writes each frame that is due into a buffer of
//! the port. The same frames as `sonde-bpf`'s, octet for octet.

use sonde_results::trial::Direction;
use sonde_wire::signature::{self, Repr, Secret};
use sonde_wire::{Time, checksum};

use super::{FCS_LEN, FastHist, HeaderTemplate, LoadSchedule, PutOff};
use crate::Paced;

/// Sends the frames of one direction, in one trial.
#[derive(Debug)]
pub struct LoadGenerator {
    headers: Vec<HeaderTemplate>,
    sizes: Vec<u32>,
    ipv6: bool,
    schedule: LoadSchedule,
    start: Time,
    put_off: PutOff,
    tag: u8,
    secret: Secret,
    next: u64,
    due: Time,
    flow: usize,
    size: usize,
    first: Time,
    last: Time,
    gaps: FastHist,
    late: FastHist,
}

impl LoadGenerator {
    /// For frames with these headers, of these sizes (octets with the FCS) in turn, the first of
    /// them due at `start`. `tag` is that of trial and direction.
    pub fn new(
        headers: Vec<HeaderTemplate>,
        sizes: &[u32],
        schedule: LoadSchedule,
        start: Time,
        tag: u8,
        secret: Secret,
    ) -> LoadGenerator {
        let put_off = PutOff::new(schedule.catch_up_ns(CATCH_UP_MOST_NS));
        assert!(!headers.is_empty() && !sizes.is_empty(), "a load has flows and sizes");
        LoadGenerator {
            ipv6: headers[0].l4_at - headers[0].l3_at == 40,
            sizes: sizes.iter().map(|&s| s - FCS_LEN as u32).collect(),
            headers,
            schedule,
            start,
            put_off,
            tag,
            secret,
            next: 0,
            due: start,
            flow: 0,
            size: 0,
            first: Time::ZERO,
            last: Time::ZERO,
            gaps: FastHist::default(),
            late: FastHist::default(),
        }
    }

    /// Frames written so far.
    #[inline]
    pub fn sent(&self) -> u64 {
        self.next
    }

    /// Fills in what is known of the departures. Frames that a port did not send after all
    /// (`unsent`) are not counted. Which of the sizes they had is not known, so that the mean is
    /// taken.
    pub fn read(&self, direction: &mut Direction, unsent: u64) {
        let from = self.schedule.counted_from;
        let octets = |frames: u64| {
            let sum =
                |sizes: &[u32]| sizes.iter().map(|&s| u64::from(s) + FCS_LEN as u64).sum::<u64>();
            let count = self.sizes.len() as u64;
            frames / count * sum(&self.sizes) + sum(&self.sizes[..(frames % count) as usize])
        };
        direction.intended = self.schedule.frames.saturating_sub(from);
        let made = self.next.saturating_sub(from);
        direction.sent = made.saturating_sub(unsent);
        let bytes = u128::from(octets(self.next).saturating_sub(octets(from)));
        direction.sent_bytes =
            (bytes * u128::from(direction.sent) / u128::from(made.max(1))) as u64;
        direction.sent_ns = [self.first.as_nanos(), self.last.as_nanos()];
        direction.gaps = self.gaps.read();
        direction.lateness = self.late.read();
    }
}

impl Paced for LoadGenerator {
    #[inline]
    fn due(&self) -> Option<Time> {
        (self.next < self.schedule.frames).then_some(self.due)
    }

    #[inline]
    fn write(&mut self, now: Time, buffer: &mut [u8]) -> Option<usize> {
        if self.next >= self.schedule.frames || now < self.due {
            return None;
        }
        let (header, len) = (&self.headers[self.flow], self.sizes[self.size] as usize);
        let frame = &mut buffer[..len];
        frame[..header.len].copy_from_slice(&header.octets[..header.len]);
        frame[header.len..].fill(0);
        let signature = Repr {
            trial: self.tag,
            stream: header.stream,
            sequence: self.next as u32,
            sent: signature::sent(now.as_nanos()),
        };
        // Never too short: sizes and headers were checked together.
        let _ = signature.emit(frame, &self.secret);
        if self.ipv6 || self.sizes.len() > 1 {
            finish_header(header, self.ipv6, frame);
        }

        let n = self.next;
        if n > self.schedule.counted_from {
            self.gaps.add(now - self.last);
        } else {
            self.first = now;
        }
        self.last = now;
        if self.schedule.leads(n) {
            let late = now - self.due;
            if n >= self.schedule.counted_from {
                self.late.add(late);
            }
            self.put_off.left(late);
        }
        self.next += 1;
        if self.schedule.leads(self.next) {
            let due_ns = self.schedule.due_ns(self.next);
            self.put_off.step(|| due_ns - self.schedule.due_ns(n));
            self.due = self.start + (due_ns + self.put_off.ns());
        }
        self.flow = if self.flow + 1 < self.headers.len() { self.flow + 1 } else { 0 };
        self.size = if self.size + 1 < self.sizes.len() { self.size + 1 } else { 0 };
        Some(len)
    }
}

/// Lengths and checksums, which depend on the frame's size or on its signature.
fn finish_header(header: &HeaderTemplate, ipv6: bool, frame: &mut [u8]) {
    let (l3_at, l4_at) = (header.l3_at, header.l4_at);
    let l4_len = (frame.len() - l4_at) as u16;
    frame[l4_at + 4..l4_at + 6].copy_from_slice(&l4_len.to_be_bytes());
    if ipv6 {
        frame[l3_at + 4..l3_at + 6].copy_from_slice(&l4_len.to_be_bytes());
        // All but the signature is zeros.
        let at = frame.len() - signature::LEN;
        let mut sum = checksum::sum(&frame[at..]);
        if (at - l4_at) % 2 == 1 {
            sum = u32::from((sum as u16).swap_bytes());
        }
        let sum = header.udp_sum + 2 * u32::from(l4_len) + sum;
        frame[l4_at + 6..l4_at + 8].copy_from_slice(&checksum::finish_udp(sum).to_be_bytes());
    } else {
        let ip_len = (frame.len() - l3_at) as u16;
        frame[l3_at + 2..l3_at + 4].copy_from_slice(&ip_len.to_be_bytes());
        let sum = checksum::finish(header.ip_sum + u32::from(ip_len));
        frame[l3_at + 10..l3_at + 12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// For [`catch_up_ns`](super::catch_up_ns): an engine in user space hands over what is due in turns,
/// which take their time.
pub const CATCH_UP_MOST_NS: i64 = 1_000_000;
