//! Records on their way to a file that may fail: a full disk does not stop a measurement.
//!
//! What cannot be written waits in bounded memory and is tried again with each further
//! record. A record cut short by the failure is truncated from a file, and completed first
//! elsewhere. So lines stay whole, also when the process is killed meanwhile.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write};
use std::path::Path;

use anyhow::anyhow;

use crate::error::RunError;
use crate::output_file::{OutputFile, refused};
use crate::running::Stop;
use crate::whole_file;

/// A writer of whole records.
#[derive(Debug)]
pub struct Sink<W> {
    out: W,
    /// `out` again, where it is a file that can be cut.
    file: Option<File>,
    /// Bytes not yet written; `waiting[..written]` are.
    waiting: Vec<u8>,
    written: usize,
    /// The reader of a pipe has gone: what nobody reads is not lost.
    unread: bool,
    limit: usize,
    lost: u64,
    failures: u64,
    failing: bool,
    report: Option<String>,
    name: String,
}

/// What is left undone at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsaved {
    /// Name of the file or pipe.
    pub name: String,
    /// Lines that are not in it.
    pub lost: u64,
    /// Bytes that wait for the disk.
    pub waiting: usize,
}

impl std::fmt::Display for Unsaved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: not all records could be saved ({} lost, {} bytes unwritten); free space or make it \
             writable, and run again",
            self.name, self.lost, self.waiting
        )
    }
}

impl Sink<Box<dyn Write + Send>> {
    /// To the file at `path`, which is made or emptied; `-` is what `stdout` opens.
    ///
    /// # Errors
    /// The file cannot be opened; the end was asked for while a pipe had no reader; `-` where there
    /// is no such output.
    pub fn create(
        path: &Path,
        stdout: Option<fn() -> Box<dyn Write + Send>>,
        stop: &Stop,
    ) -> Result<Self, RunError> {
        if path == Path::new("-") {
            return Ok(Sink::new(standard_output(stdout)?, STANDARD_OUTPUT));
        }
        let file = whole_file::create(path, stop).map_err(|e| refused(path, e))?;
        Ok(Sink::to_file(file, path))
    }

    /// To an open file, which is called `path`.
    pub fn to_file(file: OutputFile, path: &Path) -> Self {
        let again = if file.is_regular() { file.file().try_clone().ok() } else { None };
        let sink = Sink::new(Box::new(file) as Box<_>, &path.display().to_string());
        Sink { file: again, ..sink }
    }

    /// The file, if it is an ordinary one: while this is open, no other process writes to it.
    pub fn held(&self) -> Option<File> {
        self.file.as_ref().and_then(|file| file.try_clone().ok())
    }

    /// Whether the last write failed: what is not written waits.
    pub fn is_failing(&self) -> bool {
        self.failing
    }

    /// Whether it is an ordinary file, and no pipe or device.
    pub fn is_file(&self) -> bool {
        self.file.is_some()
    }
}

impl<W: Write> Sink<W> {
    /// Over `out`, called `name` in messages. `out` should not buffer: this does.
    pub fn new(out: W, name: &str) -> Self {
        Sink {
            out,
            file: None,
            waiting: Vec::new(),
            written: 0,
            unread: false,
            limit: WAITING_LIMIT,
            lost: 0,
            failures: 0,
            failing: false,
            report: None,
            name: name.to_string(),
        }
    }

    /// Adds a record: whole lines. While the file fails and the memory is full, it is
    /// counted as lost.
    pub fn push(&mut self, record: &[u8]) {
        if self.unread {
            return;
        }
        if self.waiting.len() - self.written + record.len() > self.limit {
            self.flush();
        }
        if self.waiting.len() - self.written + record.len() > self.limit {
            self.lost += 1;
            return;
        }
        self.waiting.extend_from_slice(record);
        if !self.failing && self.waiting.len() - self.written >= CHUNK {
            self.flush();
        }
    }

    /// Writes what waits; to be called at the end of each interval.
    pub fn flush(&mut self) {
        let result = self.write_waiting();
        self.failing = result.is_err();
        if let Err(error) = result {
            if self.failures == 0 {
                self.report = Some(format!(
                    "{}: {error}; the run goes on, up to {} MiB of records wait in memory",
                    self.name,
                    self.limit >> 20
                ));
            }
            self.failures += 1;
        }
    }

    /// The first failure, once, for the user.
    pub fn take_report(&mut self) -> Option<String> {
        self.report.take()
    }

    /// Records lost so far; more than none is worth a caveat.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The reader of the pipe has gone (EPIPE).
    pub fn is_unread(&self) -> bool {
        self.unread
    }

    /// Attempts that failed so far.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Writes the rest, or says what is missing.
    pub fn finish(mut self) -> Result<W, Unsaved> {
        self.flush();
        let left = &self.waiting[self.written..];
        let waiting = left.len();
        self.lost += left.iter().filter(|&&b| b == b'\n').count() as u64;
        if self.lost > 0 || waiting > 0 || self.failing {
            return Err(Unsaved { name: self.name, lost: self.lost, waiting });
        }
        Ok(self.out)
    }

    fn write_waiting(&mut self) -> io::Result<()> {
        while self.written < self.waiting.len() {
            match self.out.write(&self.waiting[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.written += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if self.has_gone(&e) => break,
                Err(e) => {
                    self.take_back_half_a_line();
                    self.waiting.drain(..self.written);
                    self.written = 0;
                    return Err(e);
                }
            }
        }
        self.waiting.clear();
        self.written = 0;
        match self.out.flush() {
            Err(e) if self.has_gone(&e) => Ok(()),
            flushed => flushed,
        }
    }

    /// Whether the reader of a pipe has gone, which is noted.
    fn has_gone(&mut self, error: &io::Error) -> bool {
        self.unread |= has_reader_gone(error);
        self.unread
    }

    /// Cuts the file after its last whole line; the rest waits for the next attempt.
    fn take_back_half_a_line(&mut self) {
        let Some(file) = &mut self.file else { return };
        let whole = self.waiting[..self.written].iter().rposition(|&b| b == b'\n');
        let half = self.written - whole.map_or(0, |end| end + 1);
        if half == 0 {
            return;
        }
        let cut = file.seek(SeekFrom::End(-(half as i64))).and_then(|end| file.set_len(end));
        if cut.is_ok() {
            self.written -= half;
        }
    }
}

/// What `-` is, where the program has such an output.
pub(crate) fn standard_output(
    stdout: Option<fn() -> Box<dyn Write + Send>>,
) -> Result<Box<dyn Write + Send>, RunError> {
    let none = || RunError::Host(anyhow!("there is no standard output; name a file"));
    Ok(stdout.ok_or_else(none)?())
}

/// Whether a write failed because the reader of a pipe has gone.
pub(crate) fn has_reader_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// The name of `-` in messages.
pub(crate) const STANDARD_OUTPUT: &str = "standard output";
/// Three intervals of 20,000 streams, and a good deal more of few.
const WAITING_LIMIT: usize = 64 << 20;
const CHUNK: usize = 256 << 10;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes at most `room` bytes, then is full.
    #[derive(Debug, Default)]
    pub(crate) struct Disk {
        pub(crate) data: Vec<u8>,
        pub(crate) room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.room);
            if n == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.data.extend_from_slice(&bytes[..n]);
            self.room -= n;
            Ok(n)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_reported_once_and_made_up_for() {
        let mut sink = Sink::new(Disk { room: 4, ..Disk::default() }, "r.jsonl");
        sink.push(b"one\ntwo\n");
        sink.flush();
        let report = sink.take_report().unwrap();
        assert!(report.starts_with("r.jsonl: ") && report.contains("the run goes on"), "{report}");
        sink.push(b"three\n");
        sink.flush();
        assert_eq!((sink.take_report(), sink.failures(), sink.lost()), (None, 2, 0));
        sink.out.room = 100;
        assert_eq!(sink.finish().unwrap().data, b"one\ntwo\nthree\n");
    }

    #[test]
    fn memory_is_bounded_and_what_is_lost_is_counted() {
        let mut sink = Sink::new(Disk::default(), "r");
        sink.limit = 10;
        for record in [&b"aaaa\n"[..], b"bbbb\n", b"cccc\n"] {
            sink.push(record);
        }
        assert_eq!(sink.lost(), 1);
        sink.out.room = 100;
        sink.push(b"dddd\n");
        let unsaved = sink.finish().unwrap_err();
        assert_eq!((unsaved.lost, unsaved.waiting), (1, 0));
    }

    #[test]
    fn a_file_ends_with_a_whole_line_at_any_time() {
        let path = std::env::temp_dir().join(format!("sonde-sink-{}.jsonl", std::process::id()));
        let mut sink = Sink::create(&path, None, &Stop::default()).unwrap();
        // A disk on which the file may not grow beyond 12 bytes.
        struct Small(File, u64);
        impl Write for Small {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let room = self.1.saturating_sub(self.0.stream_position()?) as usize;
                match bytes.len().min(room) {
                    0 => Err(io::ErrorKind::StorageFull.into()),
                    n => self.0.write(&bytes[..n]),
                }
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let file = sink.file.as_ref().unwrap().try_clone().unwrap();
        sink.out = Box::new(Small(file, 12));
        let mut seen = Vec::new();
        for line in [&b"{\"a\":1}\n"[..], b"{\"b\":2}\n", b"{\"c\":3}\n"] {
            sink.push(line);
            sink.flush();
            seen.push(std::fs::read(&path).unwrap());
        }
        let unsaved = sink.finish().err().unwrap();
        let left = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(left, b"{\"a\":1}\n");
        assert!(seen.iter().all(|text| text == b"{\"a\":1}\n"), "{seen:?}");
        assert_eq!((unsaved.lost, unsaved.waiting), (2, 16));
    }

    #[test]
    fn what_nobody_reads_is_not_lost() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut sink = Sink::new(Closed, "standard output");
        sink.push(b"x\n");
        sink.flush();
        sink.push(b"y\n");
        assert!(sink.is_unread() && sink.take_report().is_none());
        assert!(sink.finish().is_ok());
    }

    #[test]
    fn dev_full_is_an_unsaved_file() {
        let mut sink = Sink::create(Path::new("/dev/full"), None, &Stop::default()).unwrap();
        sink.push(b"x\n");
        let unsaved = sink.finish().err().unwrap();
        assert_eq!((unsaved.name.as_str(), unsaved.waiting), ("/dev/full", 2));
    }

    proptest! {
        #[test]
        fn whole_records_in_order_whatever_fails(rooms in prop::collection::vec(0usize..9, 1..40)) {
            let mut sink = Sink::new(Disk::default(), "r");
            let mut expected = Vec::new();
            for (i, room) in rooms.into_iter().enumerate() {
                sink.out.room += room;
                let record = format!("{i}\n").into_bytes();
                sink.push(&record);
                expected.extend(record);
                sink.flush();
                prop_assert!(expected.starts_with(&sink.out.data));
            }
            sink.out.room = 1_000;
            prop_assert_eq!(sink.finish().unwrap().data, expected);
        }
    }
}
