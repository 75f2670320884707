//! A capture file written a megabyte at a time.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sonde_wire::capture::LINKTYPE_ETHERNET;
use sonde_wire::pcap::{MAX_CAPTURED_LEN, RECORD_HEADER_LEN, file_header, record_header};

use super::settings::Resolution;
use crate::whole_file;

/// A file that is being written: frames are made where they are written from.
pub(super) struct PcapFile {
    path: PathBuf,
    out: Box<dyn Write + Send>,
    /// The reader of a pipe has gone.
    unread: bool,
    buffer: Vec<u8>,
    used: usize,
    /// Octets of the longest frame.
    longest: usize,
    resolution: Resolution,
}

impl PcapFile {
    /// With its header; `longest`: the longest frame to come. `-` is what `stdout` opens.
    pub fn create(
        path: &Path,
        stdout: Option<fn() -> Box<dyn Write + Send>>,
        resolution: Resolution,
        longest: usize,
    ) -> Result<Self> {
        let out = whole_file::writer(path, stdout)
            .with_context(|| format!("cannot write {}; choose another path", path.display()))?;
        let mut header = file_header(LINKTYPE_ETHERNET, MAX_CAPTURED_LEN);
        if resolution == Resolution::Us {
            header[..4].copy_from_slice(&MAGIC_MICROS.to_le_bytes());
        }
        let mut buffer = vec![0; BUFFER];
        buffer[..header.len()].copy_from_slice(&header);
        let used = header.len();
        let path = path.to_owned();
        Ok(PcapFile { path, out, unread: false, buffer, used, longest, resolution })
    }

    /// Room for the next frame.
    #[inline]
    pub fn slot(&mut self) -> Result<&mut [u8]> {
        if self.used + RECORD_HEADER_LEN + self.longest > self.buffer.len() {
            self.write_out()?;
        }
        Ok(&mut self.buffer[self.used + RECORD_HEADER_LEN..])
    }

    /// The frame in the last slot is `len` bytes long.
    #[inline]
    pub fn commit(&mut self, unix_nanos: i64, len: usize) -> Result<()> {
        let mut header = record_header(unix_nanos, len, len as u32).with_context(|| {
            format!("a pcap file has no time {unix_nanos} ns since 1970; set a `duration`")
        })?;
        if self.resolution == Resolution::Us {
            let micros = (unix_nanos.rem_euclid(1_000_000_000) / 1_000) as u32;
            header[4..8].copy_from_slice(&micros.to_le_bytes());
        }
        self.buffer[self.used..self.used + RECORD_HEADER_LEN].copy_from_slice(&header);
        self.used += RECORD_HEADER_LEN + len;
        Ok(())
    }

    /// Writes what is buffered.
    pub fn finish(mut self) -> Result<()> {
        self.write_out()
    }

    /// Whether nobody reads the packets any more.
    pub fn is_unread(&self) -> bool {
        self.unread
    }

    fn write_out(&mut self) -> Result<()> {
        let written = match self.out.write_all(&self.buffer[..self.used]) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                self.unread = true;
                Ok(())
            }
            written => written,
        };
        self.used = 0;
        written
            .with_context(|| format!("cannot write {}; is there space left?", self.path.display()))
    }
}

const MAGIC_MICROS: u32 = 0xA1B2_C3D4;
const BUFFER: usize = 1 << 20;
