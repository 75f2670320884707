//! One queue of the interface: its socket, and where each of its frames is.
//!
//! The first `rx_frames` frames go fill ring -> receive ring -> instrument and back, by the
//! transmit ring when they are reflected in place. The others wait in `free` for the sender and
//! come back by the completion ring. Of a queue that is split ([`Queue::split_sender`]) each half
//! has frames of its own.

use std::io;
use std::ops::Range;

use libc::xdp_desc;
use sonde_bpf::RxMeta;
use sonde_bpf::xsk::META_LEN;
use sonde_sys::card_clock::CardClock;
use sonde_sys::clock::tai_now;
use sonde_wire::{NotSent, Stamp, StampSource, Time, TxDone, Verdict};

use super::ring::Producer;
use super::socket::{Xsk, XskConfig, XskError};
use crate::refusal::Refusals;
use crate::{FrameDesc, TxDesc};

/// A queue in use.
#[derive(Debug)]
pub struct Queue {
    pub xsk: Xsk,
    /// What was counted here, not by the kernel.
    pub counts: QueueCounts,
    /// Where its frames begin in the region.
    base: usize,
    /// Address of its first frame in the socket's memory.
    origin: usize,
    frame_size: usize,
    rx_frames: u32,
    zero_copy: bool,
    /// Transmit stamps are asked for by metadata.
    tx_stamps: bool,
    /// Inside a packet that fills several buffers.
    in_chain: bool,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Frames that the kernel took off the ring and did not send, whose completions are to come.
    unsent: u32,
}

/// Counters of one queue. See [`crate::PortStats`].
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueCounts {
    pub rx_frames: u64,
    pub rx_invalid: u64,
    pub tx_frames: u64,
    pub tx_dropped: u64,
    pub tx_stamps: u64,
    pub tx_stamp_missing: u64,
    pub card_stamps_refused: u64,
    /// Descriptors emptied while the link was down: the kernel will count each as an
    /// invalid one, and it is in `tx_dropped` already.
    pub voided: u64,
}

/// A frame of the transmit ring.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    cookie: u64,
    /// Its transmit stamp was asked for.
    stamped: bool,
    /// Where the packet begins inside the frame.
    data: u32,
    in_flight: bool,
}

impl Queue {
    /// Over `rx_frames` + `tx_frames` frames from `base` on, which belong to this queue
    /// alone. The fill ring is stocked; the socket is not bound yet.
    pub fn new(
        config: XskConfig,
        base: usize,
        rx_frames: u32,
        tx_frames: u32,
    ) -> Result<Queue, XskError> {
        let mut xsk = Xsk::new(config)?;
        let all = rx_frames + tx_frames;
        for frame in 0..rx_frames {
            xsk.fill.push(u64::from(frame) * u64::from(config.frame_size));
        }
        xsk.fill.submit();
        Ok(Queue {
            xsk,
            counts: QueueCounts::default(),
            base,
            origin: 0,
            frame_size: config.frame_size as usize,
            rx_frames,
            zero_copy: config.zero_copy,
            tx_stamps: config.tx_metadata > 0,
            in_chain: false,
            slots: vec![Slot::default(); all as usize],
            free: (rx_frames..all).collect(),
            unsent: 0,
        })
    }

    /// A second half for another thread, with the sender's frames, with which its region
    /// has to begin: see [`Queue::sender_at`]. This one, which is bound, only receives from now on.
    pub fn split_sender(&mut self, tx_frames: u32) -> Result<Queue, XskError> {
        let xsk = self.xsk.sender(tx_frames)?;
        self.free.clear();
        self.slots.truncate(self.rx_frames as usize);
        Ok(Queue {
            xsk,
            counts: QueueCounts::default(),
            base: 0,
            origin: self.rx_frames as usize * self.frame_size,
            frame_size: self.frame_size,
            rx_frames: 0,
            zero_copy: self.zero_copy,
            tx_stamps: self.tx_stamps,
            in_chain: false,
            slots: vec![Slot::default(); tx_frames as usize],
            free: (0..tx_frames).collect(),
            unsent: 0,
        })
    }

    /// Where the frames of the sender begin in the region.
    pub fn sender_at(&self) -> usize {
        self.base + self.rx_frames as usize * self.frame_size
    }

    /// How many frames it owns.
    pub fn frames(&self) -> usize {
        self.slots.len()
    }

    /// Appends up to `limit` received frames that [`super::ring::Consumer::refresh`] has
    /// seen. `now` is read at most once, for frames without a stamp.
    pub fn receive(
        &mut self,
        region: &mut [u8],
        limit: usize,
        burst: &mut Vec<FrameDesc>,
        card: Option<&CardClock>,
        now: &mut Option<Time>,
    ) {
        let end = burst.len() + limit;
        while burst.len() < end {
            let Some(desc) = self.xsk.rx.pop() else { break };
            let more = desc.options & libc::XDP_PKT_CONTD != 0;
            let range = self.range(&desc);
            let Some(range) = range.filter(|_| !more && !self.in_chain) else {
                // One packet, however many buffers it fills.
                self.counts.rx_invalid += u64::from(!more);
                self.in_chain = more;
                self.release(desc.addr as usize);
                continue;
            };
            let before = &mut region[range.start - META_LEN..range.start];
            let tai = |ns, seen| card.and_then(|clock| clock.tai(ns, seen));
            let (stamp, wire_len) =
                read_meta(before, tai, &mut self.counts.card_stamps_refused, now);
            burst.push(FrameDesc {
                offset: range.start,
                len: range.len(),
                wire_len: range.len().max(wire_len),
                segment: 0,
                stamp,
                verdict: Verdict::Release,
            });
            self.counts.rx_frames += 1;
        }
        self.xsk.rx.release();
        self.xsk.fill.submit();
    }

    /// A received frame comes back from the instrument.
    #[inline]
    pub fn settle(&mut self, region: &mut [u8], frame: &FrameDesc, refusals: &mut Refusals) {
        match frame.verdict {
            Verdict::Release => self.release(frame.offset - self.base),
            Verdict::Transmit { cookie } => {
                self.send(region, frame.offset, frame.len, cookie, refusals);
            }
        }
    }

    /// Offers free frames to the sender, the one used last first; how many.
    pub fn offer(&self, descs: &mut [TxDesc], headroom: usize, capacity: usize) -> usize {
        let count = self.free.len().min(descs.len());
        for (desc, frame) in descs.iter_mut().zip(self.free.iter().rev()) {
            let offset = self.base + *frame as usize * self.frame_size + headroom;
            *desc = TxDesc { offset, capacity, len: 0, cookie: 0 };
        }
        count
    }

    /// Takes the first `descs` of those offered, filled, into the transmit ring.
    pub fn accept(&mut self, region: &mut [u8], descs: &[TxDesc], refusals: &mut Refusals) {
        // Off the list first: a frame that cannot be sent goes back on it.
        self.free.truncate(self.free.len() - descs.len());
        for desc in descs {
            self.send(region, desc.offset, desc.len, desc.cookie, refusals);
        }
    }

    /// Frames that the sender may fill.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes back what was sent, and its stamps. `done` has room for every frame.
    pub fn harvest(
        &mut self,
        region: &[u8],
        card: Option<&CardClock>,
        done: &mut Vec<TxDone>,
        refusals: &mut Refusals,
    ) {
        if self.xsk.completion.refresh() == 0 {
            return;
        }
        // In zero copy the driver stamps by the card's clock.
        let card = card.filter(|_| self.zero_copy).map(|clock| (clock, tai_now()));
        while let Some(address) = self.xsk.completion.pop() {
            let frame = (address as usize).wrapping_sub(self.origin) / self.frame_size;
            let Some(slot) = self.slots.get_mut(frame) else { continue };
            if !std::mem::take(&mut slot.in_flight) {
                continue; // taken back when the link went down
            }
            if slot.stamped {
                let data = self.base + frame * self.frame_size + slot.data as usize;
                let at = data - TX_METADATA_LEN + TX_METADATA_STAMP;
                let nanos = u64::from_ne_bytes(region[at..at + 8].try_into().expect("8 bytes"));
                // The kernel leaves the zero that was there when it has no stamp.
                let stamp = match (nanos, card) {
                    (0, _) => None,
                    (nanos, Some((clock, now))) => {
                        let at = clock.tai(nanos, now);
                        self.counts.card_stamps_refused += u64::from(at.is_none());
                        at.map(|at| Stamp { at, source: StampSource::Hardware })
                    }
                    (nanos, None) => i64::try_from(nanos).ok().map(|nanos| Stamp {
                        at: Time::from_nanos(nanos),
                        source: StampSource::Driver,
                    }),
                };
                match stamp {
                    Some(stamp) => {
                        done.push(TxDone { cookie: slot.cookie, stamp });
                        self.counts.tx_stamps += 1;
                    }
                    // What the device refused is completed without a stamp.
                    None if self.unsent > 0 => {
                        self.unsent -= 1;
                        refusals.add(slot.cookie, NotSent::NoBuffer);
                    }
                    None => self.counts.tx_stamp_missing += 1,
                }
            }
            self.give_back(frame);
        }
        self.xsk.completion.release();
        self.xsk.fill.submit();
    }

    /// Makes what is in the transmit ring leave. An error means that the socket has lost
    /// its queue for good.
    pub fn kick(
        &mut self,
        region: &[u8],
        done: &mut Vec<TxDone>,
        refusals: &mut Refusals,
    ) -> io::Result<()> {
        self.xsk.tx.submit();
        let mut left = self.xsk.tx.unconsumed();
        if left == 0 || !self.xsk.tx.needs_wakeup() {
            return Ok(());
        }
        // In copy mode a call sends at most 32 frames. It ends early, having taken one off the
        // ring, when the device refuses that one or its descriptor was emptied (see `void`). It
        // says so late; hence one call more.
        let calls = left + 2;
        for _ in 0..calls {
            let Err(error) = self.xsk.kick_tx() else {
                if self.zero_copy || self.xsk.tx.unconsumed() == 0 {
                    return Ok(());
                }
                continue;
            };
            match error.raw_os_error() {
                _ if self.zero_copy => return Ok(()), // the driver's to repeat
                Some(libc::EBUSY) => {
                    // One frame was taken off the ring and completed, but not sent: the last that
                    // was taken. One whose stamp was asked for is found by its completion.
                    self.counts.tx_dropped += 1;
                    self.counts.tx_frames -= 1;
                    let frame = self.xsk.tx.last_consumed().map(|desc| self.frame_of(&desc));
                    match frame.and_then(|frame| self.slots.get(frame)) {
                        Some(slot) if !slot.stamped => refusals.add(slot.cookie, NotSent::NoBuffer),
                        _ => self.unsent += 1,
                    }
                }
                Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => {
                    let now_left = self.xsk.tx.unconsumed();
                    if now_left == left {
                        return Ok(()); // no room in the device: the next call goes on
                    }
                    left = now_left;
                }
                Some(libc::ENXIO) => {
                    // In copy mode: see above.
                    self.void(region, done, refusals);
                    return Err(error);
                }
                _ => {
                    self.void(region, done, refusals);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Empties the transmit ring of a link that is down: what waited there must not go
    /// out, stale, when the link returns. Copy mode only, where the kernel reads the
    /// ring within our own system calls and at no other time.
    fn void(&mut self, region: &[u8], done: &mut Vec<TxDone>, refusals: &mut Refusals) {
        // What the kernel took before it stopped is complete, although the ring may not say so yet.
        // Those frames are no longer in flight when the ring is walked.
        self.harvest(region, None, done, refusals);
        let Queue { xsk: Xsk { tx, fill, .. }, slots, free, origin, .. } = self;
        let mut taken = 0;
        tx.amend_unconsumed(|desc| {
            // A descriptor without length is skipped by the kernel, and counted.
            desc.len = 0;
            let frame = (desc.addr as usize - *origin) / self.frame_size;
            if std::mem::take(&mut slots[frame].in_flight) {
                taken += 1;
                refusals.add(slots[frame].cookie, NotSent::LinkDown);
                give_back(fill, free, self.rx_frames, frame, self.frame_size);
            }
        });
        fill.submit();
        self.counts.tx_dropped += taken;
        self.counts.tx_frames -= taken;
        self.counts.voided += taken;
    }

    fn send(
        &mut self,
        region: &mut [u8],
        offset: usize,
        len: usize,
        cookie: u64,
        refusals: &mut Refusals,
    ) {
        let address = offset - self.base;
        let frame = address / self.frame_size;
        let stamped = self.tx_stamps && cookie != 0;
        let mut options = 0;
        if stamped {
            let metadata = &mut region[offset - TX_METADATA_LEN..offset];
            metadata.fill(0);
            metadata[..8].copy_from_slice(&u64::from(libc::XDP_TXMD_FLAGS_TIMESTAMP).to_ne_bytes());
            options = libc::XDP_TX_METADATA;
        }
        let addr = (self.origin + address) as u64;
        let desc = xdp_desc { addr, len: len as u32, options };
        if len == 0 || !self.xsk.tx.push(desc) {
            self.counts.tx_dropped += 1;
            refusals.add(cookie, NotSent::NoBuffer);
            self.give_back(frame);
            return;
        }
        let data = (address % self.frame_size) as u32;
        self.slots[frame] = Slot { cookie, stamped, data, in_flight: true };
        self.counts.tx_frames += 1;
    }

    /// The bytes of a received descriptor in the region, with room for metadata before them. `None`
    /// when it does not lie inside one of our frames.
    fn range(&self, desc: &xdp_desc) -> Option<Range<usize>> {
        let address = usize::try_from(desc.addr).ok()?;
        let (frame, data) = (address / self.frame_size, address % self.frame_size);
        let fits = frame < self.slots.len()
            && data >= TX_METADATA_LEN.max(META_LEN)
            && data + desc.len as usize <= self.frame_size;
        fits.then(|| self.base + address..self.base + address + desc.len as usize)
    }

    /// The frame of a descriptor of the transmit ring.
    fn frame_of(&self, desc: &xdp_desc) -> usize {
        (desc.addr as usize).wrapping_sub(self.origin) / self.frame_size
    }

    fn release(&mut self, address: usize) {
        let frame = address / self.frame_size;
        if frame < self.slots.len() {
            self.give_back(frame);
        }
    }

    #[inline]
    fn give_back(&mut self, frame: usize) {
        let Queue { xsk, free, rx_frames, frame_size, .. } = self;
        give_back(&mut xsk.fill, free, *rx_frames, frame, *frame_size);
    }
}

#[inline]
fn give_back(
    fill: &mut Producer<u64>,
    free: &mut Vec<u32>,
    rx_frames: u32,
    frame: usize,
    frame_size: usize,
) {
    if frame < rx_frames as usize {
        // Never full: it has twice as many entries as there are such frames.
        fill.push((frame * frame_size) as u64);
    } else {
        free.push(frame as u32);
    }
}

/// The stamp of the frame that follows `metadata`, and the length it had if it was cut. Both are
/// used up: the frame may come back without. `tai` turns a card's stamp into TAI, if it can be of a
/// frame that the program saw at the given time.
#[inline]
fn read_meta(
    metadata: &mut [u8],
    tai: impl Fn(u64, Time) -> Option<Time>,
    refused: &mut u64,
    now: &mut Option<Time>,
) -> (Stamp, usize) {
    let bytes: &[u8; META_LEN] = (&*metadata).try_into().expect("cut to this length");
    let read = RxMeta::read(bytes);
    metadata[..8].fill(0);
    match read {
        Some(RxMeta { ns, card, wire_len }) => {
            let wire_len = wire_len as usize;
            let seen = Time::from_nanos(i64::try_from(ns).unwrap_or(i64::MAX));
            match card.map(|card| tai(card.get(), seen)) {
                Some(Some(at)) => return (Stamp { at, source: StampSource::Hardware }, wire_len),
                Some(None) => *refused += 1,
                None => {}
            }
            (Stamp { at: seen, source: StampSource::Driver }, wire_len)
        }
        None => {
            let at = *now.get_or_insert_with(tai_now);
            (Stamp { at, source: StampSource::User }, 0)
        }
    }
}

/// `struct xsk_tx_metadata`: flags, then (on completion) the stamp, 8 bytes each, and
/// 8 more that only requests use.
pub const TX_METADATA_LEN: usize = 24;
const TX_METADATA_STAMP: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(ns: u64, card: u64) -> [u8; META_LEN] {
        let mut bytes = [0; META_LEN];
        bytes[..4].copy_from_slice(&0x534f_4e45u32.to_ne_bytes());
        bytes[8..16].copy_from_slice(&ns.to_ne_bytes());
        bytes[16..].copy_from_slice(&card.to_ne_bytes());
        bytes
    }

    fn stamp(at: i64, source: StampSource) -> Stamp {
        Stamp { at: Time::from_nanos(at), source }
    }

    fn no_card(_: u64, _: Time) -> Option<Time> {
        None
    }

    #[test]
    fn a_stamp_is_used_once() {
        let mut bytes = metadata(42, 0);
        let mut refused = 0;
        let (first, _) = read_meta(&mut bytes, no_card, &mut refused, &mut None);
        assert_eq!(first, stamp(42, StampSource::Driver));
        let mut now = Some(Time::from_nanos(77));
        let (second, _) = read_meta(&mut bytes, no_card, &mut refused, &mut now);
        assert_eq!(second, stamp(77, StampSource::User));
        assert_eq!(refused, 0);
    }

    #[test]
    fn a_cards_stamp_is_believed_when_its_clock_is_known() {
        let mut refused = 0;
        // The card is a thousand nanoseconds behind, and its stamp 2 ns before ours.
        let tai = |card: u64, seen: Time| {
            let at = Time::from_nanos(card as i64 + 1000);
            (at <= seen).then_some(at)
        };
        let (good, _) = read_meta(&mut metadata(2000, 998), tai, &mut refused, &mut None);
        assert_eq!((good, refused), (stamp(1998, StampSource::Hardware), 0));
        let (bad, _) = read_meta(&mut metadata(2000, 1001), tai, &mut refused, &mut None);
        assert_eq!((bad, refused), (stamp(2000, StampSource::Driver), 1));
    }

    #[test]
    fn without_metadata_our_clock_is_read_once_a_burst() {
        let (mut now, mut refused) = (None, 0);
        let (first, _) = read_meta(&mut [0xff; META_LEN], no_card, &mut refused, &mut now);
        let (second, _) = read_meta(&mut [0xff; META_LEN], no_card, &mut refused, &mut now);
        assert_eq!((first.source, first), (StampSource::User, second));
    }
}
