//! Cuts an IP packet into fragments (RFC 791, section 3.2; RFC 8200, section 4.5), which
//! leave one after the other.

use sonde_wire::checksum;

use super::frame::{Written, put16, put32};

/// A packet of which fragments are still to go.
pub(super) struct Fragments {
    /// The frame as it was before.
    frame: Box<[u8]>,
    written: Option<Written>,
    /// Flow and side that the packet counts to.
    pub slot: usize,
    pub side: u8,
    pub tcp_flags: u8,
    /// Bytes of the IP payload that have gone.
    sent: usize,
    /// Bytes of it in each fragment but the last.
    piece: usize,
    identification: u32,
}

/// One fragment that was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    /// Length of the frame.
    pub len: usize,
    /// Length of the IP packet.
    pub ip_len: usize,
    /// It has the transport header.
    pub first: bool,
}

impl Fragments {
    pub fn new(longest_frame: usize) -> Self {
        Fragments {
            frame: vec![0; longest_frame].into(),
            written: None,
            slot: 0,
            side: 0,
            tcp_flags: 0,
            sent: 0,
            piece: 0,
            identification: 0,
        }
    }

    /// Takes the frame in `buffer`, to be sent in `pieces` fragments.
    pub fn take(&mut self, buffer: &[u8], written: Written, pieces: usize) {
        self.frame[..written.len].copy_from_slice(&buffer[..written.len]);
        let payload = written.ip_len - written.ip_header;
        // All but the last are a multiple of 8 octets long.
        self.piece = payload.div_ceil(pieces).next_multiple_of(8);
        self.sent = 0;
        self.identification = self.identification.wrapping_add(1);
        self.written = Some(written);
    }

    /// Some are still to go.
    #[inline]
    pub fn waiting(&self) -> bool {
        self.written.is_some()
    }

    /// Writes the next one.
    pub fn next(&mut self, buffer: &mut [u8]) -> Option<Fragment> {
        let written = self.written?;
        let Written { ip, ip_header, ip_len, .. } = written;
        let left = ip_len - ip_header - self.sent;
        let piece = self.piece.min(left);
        let more = piece < left;
        let is_v6 = ip_header == 40;
        let header = ip_header + if is_v6 { FRAGMENT_HEADER } else { 0 };
        let (at, from) = (ip + header, ip + ip_header + self.sent);
        buffer[..ip + ip_header].copy_from_slice(&self.frame[..ip + ip_header]);
        buffer[at..at + piece].copy_from_slice(&self.frame[from..from + piece]);
        let offset = (self.sent / 8) as u16;
        let h = &mut buffer[ip..at];
        if is_v6 {
            put16(h, 4, (FRAGMENT_HEADER + piece) as u16);
            h[40] = std::mem::replace(&mut h[6], 44);
            h[41] = 0;
            put16(h, 42, offset << 3 | u16::from(more));
            put32(h, 44, self.identification);
        } else {
            put16(h, 2, (header + piece) as u16);
            let flags = offset | if more { 0x2000 } else { 0 };
            put32(h, 4, self.identification << 16 | u32::from(flags));
            put16(h, 10, 0);
            let sum = checksum::finish(checksum::sum(h));
            put16(h, 10, sum);
        }
        let first = self.sent == 0;
        self.sent += piece;
        if !more {
            self.written = None;
        }
        let end = at + piece;
        let len = end.max(60);
        buffer[end..len].fill(0);
        Some(Fragment { len, ip_len: header + piece, first })
    }
}

const FRAGMENT_HEADER: usize = 8;
