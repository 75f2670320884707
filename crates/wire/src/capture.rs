//! Capture files, whichever of the two formats: see [`crate::pcap`] and [`crate::pcapng`].

use crate::{pcap, pcapng};

pub use crate::capture_record::{
    CaptureError, CaptureErrorKind, LINKTYPE_C_HDLC, LINKTYPE_ETHERNET, LINKTYPE_LINUX_SLL,
    LINKTYPE_LOOP, LINKTYPE_NULL, LINKTYPE_PPP, LINKTYPE_PPP_HDLC, LINKTYPE_RAW, Record, Skipped,
};

/// Reads a capture of either format, packet by packet. Ends after the first error.
///
/// A whole file is read by [`Reader::new`]. One that comes piece by piece is read in turns:
/// [`Reader::resume`] with what there is, packets until there are no more, then
/// [`Reader::into_state`]. What was not [consumed](Reader::consumed) begins the next piece.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    /// So much of `bytes` has been read.
    at: usize,
    /// Nothing comes behind `bytes`.
    is_last: bool,
    state: ReaderState,
}

/// What has to be known of a capture to read on.
#[derive(Clone, Debug, Default)]
pub struct ReaderState {
    /// Octets before the present piece.
    base: usize,
    progress: Progress,
}

#[derive(Clone, Debug, Default)]
#[expect(clippy::large_enum_variant, reason = "without an allocator nothing can be boxed")]
enum Progress {
    /// Nothing has been read yet.
    #[default]
    Unknown,
    Pcap(pcap::FileHeader),
    Pcapng(pcapng::Section),
    /// After an error, or at the end: nothing more is read.
    Over,
}

impl<'a> Reader<'a> {
    /// `file` is the whole file; its first four octets give the format.
    ///
    /// # Errors
    /// A file header that cannot be.
    pub fn new(file: &'a [u8]) -> Result<Self, CaptureError> {
        let mut reader = Reader::resume(ReaderState::default(), file, true);
        reader.begin()?;
        Ok(reader)
    }

    /// Goes on with `bytes`, which follow what was consumed before. `is_last`: nothing comes behind
    /// them, so that half a packet at their end is an error.
    pub fn resume(state: ReaderState, bytes: &'a [u8], is_last: bool) -> Self {
        Reader { bytes, at: 0, is_last, state }
    }

    /// Octets of these bytes that have been read: whole packets and blocks.
    pub fn consumed(&self) -> usize {
        self.at
    }

    /// For [`Reader::resume`] with the bytes behind those consumed.
    pub fn into_state(mut self) -> ReaderState {
        self.state.base += self.at;
        self.state
    }

    /// What was stepped over so far, in the pieces before, too.
    pub fn skipped(&self) -> Skipped {
        match &self.state.progress {
            Progress::Pcapng(section) => section.skipped(),
            _ => Skipped::default(),
        }
    }

    /// What a pcapng file calls the interface of that index, up to 31 octets of it. `None`: it says
    /// nothing, or so many came behind that it is forgotten.
    pub fn interface_name(&self, interface: u32) -> Option<&str> {
        match &self.state.progress {
            Progress::Pcapng(section) => section.interface_name(interface),
            _ => None,
        }
    }

    /// Reads the file header; false: there is not enough of it yet.
    fn begin(&mut self) -> Result<bool, CaptureError> {
        let error = |kind| CaptureError { offset: self.state.base, kind };
        if self.bytes.len() < 4 && !self.is_last {
            return Ok(false);
        }
        let magic = self.bytes.get(..4).ok_or(error(CaptureErrorKind::Magic))?;
        let begun = if magic == pcapng::SECTION_HEADER.to_be_bytes() {
            let mut section = pcapng::Section::default();
            let begun = section.begin(self.bytes, &mut self.at);
            begun.map(|()| Progress::Pcapng(section))
        } else {
            let begun = pcap::FileHeader::of(self.bytes).map_err(error);
            begun.inspect(|_| self.at = pcap::FILE_HEADER_LEN).map(Progress::Pcap)
        };
        match begun {
            Ok(progress) => self.state.progress = progress,
            Err(error) if self.waits_for(error) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    fn waits_for(&self, error: CaptureError) -> bool {
        error.kind == CaptureErrorKind::Truncated && !self.is_last
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Record<'a>, CaptureError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if matches!(self.state.progress, Progress::Unknown) {
            match self.begin() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.state.progress = Progress::Over;
                    return Some(Err(error));
                }
            }
        }
        let (bytes, base) = (self.bytes, self.state.base);
        let result = match &mut self.state.progress {
            Progress::Pcap(header) => {
                let offset = base + self.at;
                let found = header.record(&bytes[self.at..]);
                found.map_err(|kind| CaptureError { offset, kind }).map(|found| {
                    found.map(|(record, len)| {
                        self.at += len;
                        record
                    })
                })
            }
            Progress::Pcapng(section) => section.packet(bytes, &mut self.at, base),
            Progress::Unknown | Progress::Over => return None,
        };
        match result {
            Err(error) if self.waits_for(error) => None,
            Err(error) => {
                // What was stepped over is still reported.
                self.at = bytes.len();
                match &mut self.state.progress {
                    Progress::Pcapng(section) => section.end(),
                    progress => *progress = Progress::Over,
                }
                Some(Err(error))
            }
            Ok(record) => record.map(Ok),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern crate std;
    use std::string::ToString;

    #[test]
    fn an_unknown_file_is_named_as_such() {
        for file in [&b""[..], b"abc", b"abcdefghijklmnopqrstuvwxyz"] {
            let error = Reader::new(file).unwrap_err();
            assert_eq!(error, CaptureError { offset: 0, kind: CaptureErrorKind::Magic });
        }
        assert_eq!(
            Reader::new(b"").unwrap_err().to_string(),
            "at byte 0: this is neither a pcap nor a pcapng file"
        );
    }
}
