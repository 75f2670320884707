//! Frames that a port keeps as they came, until a client asks for them.

use std::collections::VecDeque;

use sonde_meter::load::FCS_LEN;
use sonde_server::otg::ports::CaptureFormat;
use sonde_sys::clock::clock_state;
use sonde_wire::{fcs, pcap};

/// Frames in the memory that was given to them, of which none is asked for later.
#[derive(Debug)]
pub struct CaptureRing {
    memory: Box<[u8]>,
    kept: VecDeque<Kept>,
    /// Where the next frame is written, if there is room.
    next: usize,
    /// Octets of each, at most, the FCS among them.
    snap: usize,
    overwrite: bool,
    /// Frames for which there was no room, or that made room.
    pub left_out: u64,
}

/// A frame in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    at: usize,
    octets: u32,
    /// On the wire, without the FCS.
    length: u32,
    /// ns TAI.
    stamp: i64,
}

impl CaptureRing {
    /// For frames of which `snap` octets are kept at most.
    ///
    /// # Errors
    /// The memory cannot be had.
    pub fn new(octets: usize, snap: usize, overwrite: bool) -> Result<CaptureRing, String> {
        let (mut memory, mut kept) = (Vec::new(), VecDeque::new());
        memory
            .try_reserve_exact(octets)
            .and_then(|()| kept.try_reserve_exact(octets / LEAST))
            .map_err(|_| {
                format!(
                    "no memory for {} MiB of captured frames; configure fewer captures",
                    octets >> 20
                )
            })?;
        memory.resize(octets, 0);
        let memory = memory.into_boxed_slice();
        Ok(CaptureRing { memory, kept, next: 0, snap, overwrite, left_out: 0 })
    }

    pub fn clear(&mut self) {
        self.kept.clear();
        (self.next, self.left_out) = (0, 0);
    }

    /// Frames that are kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Keeps a frame, which came without its FCS.
    #[inline]
    pub fn push(&mut self, frame: &[u8], stamp: i64) {
        let octets = frame.len().min(self.snap);
        if octets > self.memory.len() {
            self.left_out += 1;
            return;
        }
        let at = loop {
            let room =
                if self.kept.len() < self.memory.len() / LEAST { self.room(octets) } else { None };
            if let Some(at) = room {
                break at;
            }
            self.left_out += 1;
            if !self.overwrite {
                return;
            }
            self.kept.pop_front();
        };
        self.memory[at..at + octets].copy_from_slice(&frame[..octets]);
        self.next = at + octets;
        let (octets, length) = (octets as u32, frame.len() as u32);
        self.kept.push_back(Kept { at, octets, length, stamp });
    }

    /// Where so many octets can be written, if anywhere.
    fn room(&self, octets: usize) -> Option<usize> {
        let Some(oldest) = self.kept.front() else { return Some(0) };
        let all = self.memory.len();
        // The last octet before the oldest frame stays free: else full would look like empty.
        match self.next > oldest.at {
            true if self.next + octets <= all => Some(self.next),
            true if octets < oldest.at => Some(0),
            false if self.next + octets < oldest.at => Some(self.next),
            _ => None,
        }
    }

    /// A file of `count` frames behind the first `skip`. Each ends in its FCS: no card hands that
    /// up, so it is computed, and says nothing of the one that came.
    pub fn file(&self, format: CaptureFormat, skip: usize, count: usize) -> Vec<u8> {
        // Files count UTC (draft-ietf-opsawg-pcap, section 5).
        let offset = i64::from(clock_state().tai_offset_s) * 1_000_000_000;
        let mut file = match format {
            CaptureFormat::Pcap => pcap::file_header(ETHERNET, self.snap as u32).to_vec(),
            CaptureFormat::Pcapng => section(self.snap as u32),
        };
        for kept in self.kept.iter().skip(skip).take(count) {
            let octets = &self.memory[kept.at..][..kept.octets as usize];
            let whole = kept.octets == kept.length;
            let sum = if whole { &fcs::fcs(octets)[..] } else { &[][..] };
            let sum = &sum[..sum.len().min(self.snap - octets.len())];
            let (captured, length) = (octets.len() + sum.len(), kept.length + FCS_LEN as u32);
            let utc = kept.stamp - offset;
            match format {
                CaptureFormat::Pcap => {
                    let Ok(header) = pcap::record_header(utc, captured, length) else { continue };
                    file.extend(header);
                    file.extend(octets);
                    file.extend(sum);
                }
                CaptureFormat::Pcapng => {
                    let head = [0, (utc >> 32) as u32, utc as u32, captured as u32, length];
                    let mut body: Vec<u8> = head.iter().flat_map(|w| w.to_le_bytes()).collect();
                    body.extend(octets);
                    body.extend(sum);
                    block(&mut file, ENHANCED_PACKET, &body);
                }
            }
        }
        file
    }
}

/// Section header and description of the interface (draft-ietf-opsawg-pcapng, sections 4.1 and
/// 4.2), with stamps in ns.
fn section(snap: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let unknown = u64::MAX.to_le_bytes();
    block(&mut file, 0x0a0d_0d0a, &[&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..], &unknown].concat());
    let mut interface = [&ETHERNET.to_le_bytes()[..], &[0; 2], &snap.to_le_bytes()].concat();
    // if_tsresol: 10^-9.
    interface.extend([9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    block(&mut file, 1, &interface);
    file
}

/// Appends a block, its body padded to a multiple of 4 octets.
fn block(file: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let padded = body.len().next_multiple_of(4);
    let total = (padded as u32 + 12).to_le_bytes();
    file.extend(kind.to_le_bytes());
    file.extend(total);
    file.extend(body);
    file.resize(file.len() + padded - body.len(), 0);
    file.extend(total);
}

/// Octets that a frame takes of the ring, at least, when its entries are counted.
const LEAST: usize = 64;
const ETHERNET: u16 = 1;
const ENHANCED_PACKET: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sonde_wire::capture::Reader;

    fn frame(length: usize, mark: u8) -> Vec<u8> {
        (0..length).map(|i| mark.wrapping_add(i as u8)).collect()
    }

    proptest! {
        /// Whatever comes, what is kept is what came last, whole and in its order.
        #[test]
        fn the_newest_are_kept(lengths in prop::collection::vec(60usize..400, 1..60)) {
            let mut ring = CaptureRing::new(1000, 300, true).unwrap();
            for (i, &length) in lengths.iter().enumerate() {
                ring.push(&frame(length, i as u8), i as i64);
            }
            let kept = ring.len();
            prop_assert!(kept >= 1 && ring.left_out == (lengths.len() - kept) as u64);
            for (index, k) in ring.kept.iter().enumerate() {
                let i = lengths.len() - kept + index;
                prop_assert_eq!((k.length as usize, k.stamp), (lengths[i], i as i64));
                let want = frame(lengths[i], i as u8);
                let octets = k.octets as usize;
                prop_assert_eq!(octets, lengths[i].min(300));
                prop_assert_eq!(&ring.memory[k.at..][..octets], &want[..octets]);
            }
        }
    }

    #[test]
    fn without_overwriting_the_first_stay() {
        let mut ring = CaptureRing::new(200, usize::MAX, false).unwrap();
        (0..5).for_each(|i| ring.push(&frame(60, i), i.into()));
        assert_eq!((ring.len(), ring.left_out, ring.kept[2].stamp), (3, 2, 2));
        ring.clear();
        ring.push(&frame(300, 0), 0);
        assert_eq!((ring.len(), ring.left_out), (0, 1));
    }

    #[test]
    fn files_have_frames_with_their_fcs_and_stamps_in_utc() {
        let mut ring = CaptureRing::new(10_000, 100, true).unwrap();
        let second = 1_700_000_000_000_000_000;
        for (i, length) in [60, 98, 61].into_iter().enumerate() {
            ring.push(&frame(length, i as u8), second + i as i64);
        }
        let utc = second - i64::from(clock_state().tai_offset_s) * 1_000_000_000;
        let check = |i: usize, nanos: i64, data: &[u8], original: u32| {
            let length = [60usize, 98, 61][i];
            let mut want = frame(length, i as u8);
            want.extend(fcs::fcs(&want));
            want.truncate(100);
            assert_eq!((nanos, data, original), (utc + i as i64, &want[..], length as u32 + 4));
        };
        let file = ring.file(CaptureFormat::Pcap, 0, usize::MAX);
        let mut reader = Reader::new(&file).unwrap();
        let file = ring.file(CaptureFormat::Pcapng, 0, usize::MAX);
        let mut other = Reader::new(&file).unwrap();
        for i in 0..3 {
            let record = reader.next().unwrap().unwrap();
            check(i, record.unix_nanos, record.data, record.original_len);
            let record = other.next().unwrap().unwrap();
            check(i, record.unix_nanos, record.data, record.original_len);
        }
        assert!(reader.next().is_none() && other.next().is_none());
        let file = ring.file(CaptureFormat::Pcap, 1, 1);
        let mut some = Reader::new(&file).unwrap();
        assert_eq!(some.next().unwrap().unwrap().unix_nanos, utc + 1);
        assert!(some.next().is_none());
    }
}
