//! Bursts: descriptors over an engine's one memory region. The walk is inlined
//! into the caller; only fetching a burst is a virtual call.

use sonde_wire::{Scale, Stamp, TxDone, TxRefused, Verdict};

/// A received frame: where it lies in the engine's memory, and what is to become of it.
#[derive(Clone, Copy, Debug)]
pub struct FrameDesc {
    /// First byte (of the Ethernet header), from the start of the region.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
    /// Length it had before the engine cut it; else `len`.
    pub wire_len: usize,
    /// Octets of payload of each packet, but for the last, that the kernel joined to this frame or
    /// will cut it into (GRO, LRO, TSO). 0: it is one packet, or the engine does not know.
    pub segment: u16,
    pub stamp: Stamp,
    /// Set by the instrument; acted upon at the engine's next call.
    pub verdict: Verdict,
}

/// What one [`crate::Port::rx`] brought.
pub struct RxBurst<'a> {
    memory: &'a mut [u8],
    frames: &'a mut [FrameDesc],
    done: &'a [TxDone],
    refused: &'a [TxRefused],
    scale: Option<Scale>,
}

impl<'a> RxBurst<'a> {
    /// Over `memory`, in which every descriptor of `frames` lies.
    pub fn new(memory: &'a mut [u8], frames: &'a mut [FrameDesc], done: &'a [TxDone]) -> Self {
        RxBurst { memory, frames, done, refused: &[], scale: None }
    }

    /// The same with frames that were committed since the last burst and did not leave.
    pub fn with_refused(self, refused: &'a [TxRefused]) -> Self {
        RxBurst { refused, ..self }
    }

    /// Transmit completions. To be handled before the frames.
    #[inline]
    pub fn done(&self) -> &[TxDone] {
        self.done
    }

    /// The same on a steady scale.
    pub fn with_scale(self, scale: Option<Scale>) -> Self {
        RxBurst { scale, ..self }
    }

    /// How the time of this burst's stamps stands to UTC and TAI, where it is steady.
    #[inline]
    pub fn scale(&self) -> Option<Scale> {
        self.scale
    }

    /// Frames that never left this host. To be handled before the frames.
    #[inline]
    pub fn refused(&self) -> &[TxRefused] {
        self.refused
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there is neither frame nor completion nor refusal.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.done.is_empty() && self.refused.is_empty()
    }

    /// Frame `i` and its stamp. Panics past `len()`.
    #[inline]
    pub fn frame(&mut self, i: usize) -> (&mut [u8], Stamp) {
        let d = &self.frames[i];
        (&mut self.memory[d.offset..d.offset + d.len], d.stamp)
    }

    /// The same for those who only read, so that several frames can be looked at together.
    #[inline]
    pub fn seen(&self, i: usize) -> (&[u8], Stamp) {
        let d = &self.frames[i];
        (&self.memory[d.offset..d.offset + d.len], d.stamp)
    }

    /// Length that frame `i` had before the engine cut it. Panics past `len()`.
    #[inline]
    pub fn wire_len(&self, i: usize) -> usize {
        self.frames[i].wire_len
    }

    /// Payload of each packet on the wire that is in frame `i`; 0: it is one packet, or the
    /// engine does not know. Panics past `len()`.
    #[inline]
    pub fn segment(&self, i: usize) -> u16 {
        self.frames[i].segment
    }

    /// Says what is to become of frame `i`.
    #[inline]
    pub fn set_verdict(&mut self, i: usize, verdict: Verdict) {
        self.frames[i].verdict = verdict;
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct TxDesc {
    /// First byte, from the start of the region.
    pub offset: usize,
    /// In bytes.
    pub capacity: usize,
    /// Bytes committed.
    pub len: usize,
    /// 0: no transmit stamp wanted.
    pub cookie: u64,
}

/// Free transmit buffers of an engine.
pub struct TxBurst<'a> {
    memory: &'a mut [u8],
    free: &'a mut [TxDesc],
    used: &'a mut usize,
}

impl<'a> TxBurst<'a> {
    /// Over `memory`; `free[*used..]` may be filled, `*used` counts the filled ones.
    pub fn new(memory: &'a mut [u8], free: &'a mut [TxDesc], used: &'a mut usize) -> Self {
        TxBurst { memory, free, used }
    }

    /// The next free buffer, or `None` when the engine has no more for now.
    #[inline]
    pub fn slot(&mut self) -> Option<&mut [u8]> {
        let d = self.free.get(*self.used)?;
        Some(&mut self.memory[d.offset..d.offset + d.capacity])
    }

    /// Commits the buffer last returned by [`TxBurst::slot`] with `len` bytes.
    #[inline]
    pub fn commit(&mut self, len: usize, cookie: u64) {
        let d = &mut self.free[*self.used];
        d.len = len.min(d.capacity);
        d.cookie = cookie;
        *self.used += 1;
    }
}
