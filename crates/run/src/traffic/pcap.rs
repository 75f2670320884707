//! A capture file written a megabyte at a time.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use sonde_wire::capture::LINKTYPE_ETHERNET;
use sonde_wire::pcap::{MAX_CAPTURED_LEN, RECORD_HEADER_LEN, file_header, record_header};

use super::settings::Resolution;
use crate::error::{RunError, UnsavedFile};
use crate::output_file::refused;
use crate::running::Context;
use crate::sink::{STANDARD_OUTPUT, has_reader_gone, standard_output};
use crate::whole_file;

/// A file that is being written: frames are made where they are written from.
pub(super) struct PcapFile {
    name: String,
    out: Box<dyn Write + Send>,
    /// `out` again, where it is a file that can be cut.
    file: Option<File>,
    buffer: Vec<u8>,
    used: usize,
    /// Where the frames of `buffer` end, and their times.
    frames: Vec<(usize, i64)>,
    written: Written,
    /// Why nothing more is written.
    error: Option<io::Error>,
    /// Octets of the longest frame.
    longest: usize,
    resolution: Resolution,
}

/// What a file holds: whole frames only.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    pub frames: u64,
    /// Time of the last of them, ns since 1970.
    pub last_at: Option<i64>,
    /// Octets of the file up to its end.
    octets: u64,
}

/// Why a file has ended before its time.
pub(super) enum EarlyEnd {
    /// The reader of a pipe has gone.
    Unread,
    /// It cannot be written, as of a full disk.
    Failed(UnsavedFile),
}

impl PcapFile {
    /// With its header; `longest`: the longest frame to come. `-` is the context's standard output.
    pub fn create(
        path: &Path,
        context: &Context,
        resolution: Resolution,
        longest: usize,
    ) -> Result<Self, RunError> {
        let (out, name, file): (Box<dyn Write + Send>, _, _) = if path == Path::new("-") {
            (standard_output(context.stdout)?, STANDARD_OUTPUT.to_owned(), None)
        } else {
            let out = whole_file::create(path, &context.stop).map_err(|e| refused(path, e))?;
            let again = if out.is_regular() { out.file().try_clone().ok() } else { None };
            (Box::new(out), path.display().to_string(), again)
        };
        Ok(Self::to(out, name, file, resolution, longest))
    }

    fn to(
        out: Box<dyn Write + Send>,
        name: String,
        file: Option<File>,
        resolution: Resolution,
        longest: usize,
    ) -> Self {
        let mut header = file_header(LINKTYPE_ETHERNET, MAX_CAPTURED_LEN);
        if resolution == Resolution::Us {
            header[..4].copy_from_slice(&MAGIC_MICROS.to_le_bytes());
        }
        let mut buffer = vec![0; BUFFER];
        buffer[..header.len()].copy_from_slice(&header);
        PcapFile {
            name,
            out,
            file,
            buffer,
            used: header.len(),
            frames: Vec::with_capacity(MOST_WAITING),
            written: Written::default(),
            error: None,
            longest,
            resolution,
        }
    }

    /// Room for the next frame; `None`: nothing more can be written.
    #[inline]
    pub fn slot(&mut self) -> Option<&mut [u8]> {
        if self.used + RECORD_HEADER_LEN + self.longest > self.buffer.len()
            || self.frames.len() == MOST_WAITING
        {
            self.write_out();
        }
        if self.error.is_some() {
            return None;
        }
        Some(&mut self.buffer[self.used + RECORD_HEADER_LEN..])
    }

    /// The frame in the last slot is `len` bytes long.
    #[inline]
    pub fn commit(&mut self, unix_nanos: i64, len: usize) -> Result<(), UnsavedFile> {
        let header = record_header(unix_nanos, len, len as u32);
        let mut header = header.map_err(|e| UnsavedFile {
            file: self.name.clone().into(),
            message: format!(
                "a pcap file has no time {unix_nanos} ns since 1970; set a `duration`: {e}"
            ),
            cause: Some(io::Error::new(io::ErrorKind::InvalidInput, e)),
        })?;
        if self.resolution == Resolution::Us {
            let micros = (unix_nanos.rem_euclid(1_000_000_000) / 1_000) as u32;
            header[4..8].copy_from_slice(&micros.to_le_bytes());
        }
        self.buffer[self.used..self.used + RECORD_HEADER_LEN].copy_from_slice(&header);
        self.used += RECORD_HEADER_LEN + len;
        self.frames.push((self.used, unix_nanos));
        Ok(())
    }

    /// Writes what is buffered. What the file holds, and why it is not all.
    pub fn finish(mut self) -> (Written, Option<EarlyEnd>) {
        self.write_out();
        let early = self.error.map(|error| match has_reader_gone(&error) {
            true => EarlyEnd::Unread,
            false => {
                let what = match error.kind() {
                    io::ErrorKind::StorageFull => "free space",
                    _ => "make it writable",
                };
                let message = format!(
                    "cannot write {}: {error}; {} packets are in it, which are those of the truth; \
                     {what}, and run again",
                    self.name, self.written.frames
                );
                let file = self.name.into();
                EarlyEnd::Failed(UnsavedFile { file, message, cause: Some(error) })
            }
        });
        (self.written, early)
    }

    /// After a failure nothing more is written, and a file is cut after its last whole frame.
    fn write_out(&mut self) {
        let mut done = 0;
        while self.error.is_none() && done < self.used {
            match self.out.write(&self.buffer[done..self.used]) {
                Ok(0) => self.error = Some(io::ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => self.error = Some(e),
            }
        }
        let whole = self.frames.partition_point(|(end, _)| *end <= done);
        let last = whole.checked_sub(1).map(|last| self.frames[last]);
        self.written.frames += whole as u64;
        self.written.last_at = last.map(|(_, at)| at).or(self.written.last_at);
        if self.error.is_none() {
            self.written.octets += done as u64;
        } else if done > 0 {
            let header = if self.written.octets == 0 { FILE_HEADER.min(done) } else { 0 };
            self.written.octets += last.map_or(header, |(end, _)| end) as u64;
            if let Some(file) = &self.file {
                // A reader else leaves out what is cut short.
                let _ = file.set_len(self.written.octets);
            }
        }
        self.used = 0;
        self.frames.clear();
    }
}

const MAGIC_MICROS: u32 = 0xA1B2_C3D4;
const BUFFER: usize = 1 << 20;
/// Octets of the header of a file.
const FILE_HEADER: usize = 24;
/// Frames that may have to be taken out of the truth, as they were not written.
pub(super) const MOST_WAITING: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Takes so many octets, then fails.
    struct Narrow(Arc<Mutex<Vec<u8>>>, usize, io::ErrorKind);

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut taken = self.0.lock().unwrap();
            let n = bytes.len().min(self.1 - taken.len());
            if n == 0 {
                return Err(self.2.into());
            }
            taken.extend_from_slice(&bytes[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_whole_frames_count_as_written() {
        const FRAME: usize = 84;
        for (room, whole) in [(0, 0), (10, 0), (24, 0), (124, 1), (223, 1), (224, 2), (1_000, 3)] {
            for kind in [io::ErrorKind::BrokenPipe, io::ErrorKind::StorageFull] {
                let narrow = Narrow(Arc::default(), room, kind);
                let mut file =
                    PcapFile::to(Box::new(narrow), "t.pcap".into(), None, Resolution::Ns, FRAME);
                for at in 1..=3 {
                    file.slot().unwrap()[..FRAME].fill(b'\n');
                    file.commit(at, FRAME).unwrap();
                }
                let (written, early) = file.finish();
                let last_at = (whole > 0).then_some(whole as i64);
                assert_eq!((written.frames, written.last_at), (whole, last_at), "{room}");
                match early {
                    None => assert_eq!(whole, 3),
                    Some(EarlyEnd::Unread) => assert_eq!(kind, io::ErrorKind::BrokenPipe),
                    Some(EarlyEnd::Failed(error)) => {
                        let text = error.to_string();
                        assert_eq!(kind, io::ErrorKind::StorageFull);
                        assert!(text.contains(&format!("; {whole} packets are in it")), "{text}");
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_is_made_for_a_file_that_fails() {
        let narrow = Narrow(Arc::default(), 0, io::ErrorKind::StorageFull);
        let mut file = PcapFile::to(Box::new(narrow), "t".into(), None, Resolution::Ns, 60);
        let mut made = 0;
        while file.slot().is_some() {
            file.commit(0, 60).unwrap();
            made += 1;
        }
        assert!(made <= MOST_WAITING, "{made}");
    }
}
