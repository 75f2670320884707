//! Messages on disk: a folder of segments, each an IPFIX file (RFC 5655) that begins with
//! all templates, so that what a kill leaves can be read by anyone, and is sent by the next
//! run. How far the oldest was delivered stands beside it.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use sonde_wire::ipfix::{HEADER_LEN, Header};

use super::backlog::Waiting;
use super::templates::Templates;

/// The folder. One process has it at a time.
pub struct Segments {
    folder: PathBuf,
    limit: u64,
    /// Oldest first; the last one may be written to, if it is of this run.
    list: VecDeque<Segment>,
    /// Number of the next one.
    next_number: u64,
    /// Held as long as the folder is.
    _lock: File,
}

struct Segment {
    number: u64,
    file: File,
    length: u64,
    /// Bytes delivered, from the start.
    delivered: u64,
    /// Bytes handed out.
    handed_out: u64,
    earlier: bool,
}

impl Segments {
    /// Opens the folder, makes it if need be, and finds what an earlier run left there.
    pub fn open(folder: &Path, limit: u64) -> Result<Segments> {
        let what = || format!("cannot use the spool folder {}", folder.display());
        fs::create_dir_all(folder).with_context(what)?;
        let lock = File::create(folder.join(LOCK)).with_context(what)?;
        if lock.try_lock().is_err() {
            bail!(
                "the spool folder {} is in use by another run; give each its own",
                folder.display()
            );
        }
        let mut numbers: Vec<u64> = fs::read_dir(folder)
            .with_context(what)?
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.strip_suffix(SUFFIX)?.parse().ok())
            .collect();
        numbers.sort_unstable();
        let delivered = read_position(folder);
        let mut list = VecDeque::new();
        for &number in &numbers {
            let file = File::open(path(folder, number)).with_context(what)?;
            let length = whole_messages(&file).with_context(what)?;
            let done = delivered.filter(|d| d.0 == number).map_or(0, |d| d.1.min(length));
            list.push_back(Segment {
                number,
                file,
                length,
                delivered: done,
                handed_out: done,
                earlier: true,
            });
        }
        let mut segments = Segments {
            folder: folder.to_owned(),
            limit,
            next_number: numbers.last().map_or(0, |n| n + 1),
            list,
            _lock: lock,
        };
        segments.clear();
        Ok(segments)
    }

    /// Adds a message at the end. False: there is no room. `handed_out`: so it counts as that.
    pub fn append(
        &mut self,
        message: &[u8],
        templates: &Templates,
        handed_out: bool,
    ) -> io::Result<bool> {
        let full = |s: &Segment| s.earlier || s.length >= SEGMENT;
        let first = if self.list.back().is_none_or(full) {
            templates.message(sequence(message), 0)
        } else {
            Vec::new()
        };
        if self.bytes() + (first.len() + message.len()) as u64 > self.limit {
            return Ok(false);
        }
        if self.list.back().is_none_or(full) {
            let name = path(&self.folder, self.next_number);
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(name)?;
            self.list.push_back(Segment {
                number: self.next_number,
                file,
                length: 0,
                delivered: 0,
                handed_out: 0,
                earlier: false,
            });
            self.next_number += 1;
        }
        let Some(segment) = self.list.back_mut() else { return Ok(false) };
        for part in [&first[..], message] {
            if let Err(error) = segment.write(part) {
                // Half a message would make the rest unreadable.
                segment.file.set_len(segment.length)?;
                return Err(error);
            }
        }
        if handed_out {
            segment.handed_out = segment.length;
        }
        Ok(true)
    }

    /// The next message that was not handed out.
    pub fn next(&mut self) -> io::Result<Option<Waiting>> {
        for segment in &mut self.list {
            if segment.handed_out < segment.length {
                let bytes = segment.read(segment.handed_out)?;
                segment.handed_out += bytes.len() as u64;
                return Ok(Some(Waiting { bytes, earlier: segment.earlier }));
            }
        }
        Ok(None)
    }

    /// The oldest message that was handed out was delivered. False: none was.
    pub fn delivered(&mut self) -> bool {
        let Some(segment) = self.list.front_mut() else { return false };
        if segment.delivered == segment.handed_out {
            return false;
        }
        match segment.read(segment.delivered) {
            Ok(message) => segment.delivered += message.len() as u64,
            // It was read before; what cannot be read again will be sent again.
            Err(_) => return true,
        }
        self.clear();
        true
    }

    /// What was handed out and not delivered will be handed out again.
    pub fn rewind(&mut self) {
        self.list.iter_mut().for_each(|s| s.handed_out = s.delivered);
    }

    /// The templates that the next message may need; `None`: it is not on disk.
    pub fn templates(&mut self) -> Option<Templates> {
        let segment = self.list.iter().find(|s| s.handed_out < s.length)?;
        let mut templates = Templates::default();
        let mut at = 0;
        // Those at the start, and those that came into use in between.
        while at < segment.handed_out.max(1) {
            let message = segment.read(at).ok()?;
            at += message.len() as u64;
            templates.note(&message);
        }
        Some(templates)
    }

    /// Bytes on disk that were not delivered.
    pub fn bytes(&self) -> u64 {
        self.list.iter().map(|s| s.length - s.delivered).sum()
    }

    /// Notes how far the oldest segment was delivered, for the next run.
    pub fn close(&mut self) {
        let position = self.list.front().map(|s| format!("{} {}\n", s.number, s.delivered));
        // Without it the next run sends the oldest segment from its start.
        let _ = match position {
            Some(text) => fs::write(self.folder.join(POSITION), text),
            None => fs::remove_file(self.folder.join(POSITION)),
        };
    }

    /// Removes what was delivered whole, except that which is being written.
    fn clear(&mut self) {
        while let Some(first) = self.list.front() {
            let in_use = self.list.len() == 1 && !first.earlier && first.length < IDLE;
            if first.delivered < first.length || in_use {
                break;
            }
            // If it cannot be removed now, the next run sends it again.
            let _ = fs::remove_file(path(&self.folder, first.number));
            self.list.pop_front();
            self.close();
        }
    }
}

impl Segment {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.length))?;
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// The message that begins at `at`.
    fn read(&self, at: u64) -> io::Result<Vec<u8>> {
        let mut header = [0; HEADER_LEN];
        self.file.read_exact_at(&mut header, at)?;
        let length = message_length(&header)?;
        let mut message = vec![0; length];
        self.file.read_exact_at(&mut message, at)?;
        Ok(message)
    }
}

/// Bytes of the file up to the end of its last whole message.
fn whole_messages(file: &File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let mut at = 0;
    let mut header = [0; HEADER_LEN];
    while at + HEADER_LEN as u64 <= length {
        file.read_exact_at(&mut header, at)?;
        match message_length(&header) {
            Ok(n) if at + n as u64 <= length => at += n as u64,
            _ => break,
        }
    }
    Ok(at)
}

fn message_length(header: &[u8]) -> io::Result<usize> {
    let header = Header::parse(header)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("in the spool: {e}")))?;
    Ok(header.length.into())
}

fn sequence(message: &[u8]) -> u32 {
    Header::parse(message).map_or(0, |h| h.sequence)
}

/// Which segment was delivered how far by an earlier run.
fn read_position(folder: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(folder.join(POSITION)).ok()?;
    let (number, delivered) = text.trim().split_once(' ')?;
    Some((number.parse().ok()?, delivered.parse().ok()?))
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:012}{SUFFIX}"))
}

/// Bytes of a segment, about.
const SEGMENT: u64 = 16 << 20;
/// A segment that is written to is removed when it was delivered and is longer than this, so
/// that a collector that comes and goes does not make many small ones.
const IDLE: u64 = 1 << 20;
const SUFFIX: &str = ".ipfix";
const LOCK: &str = "lock";
const POSITION: &str = "delivered";

#[cfg(test)]
pub mod tests {
    use super::super::templates::tests::{data, template};
    use super::*;

    /// A folder of its own, removed with what is in it.
    pub struct Folder(pub PathBuf);

    impl Folder {
        /// A new one.
        pub fn new() -> Folder {
            use std::sync::atomic::{AtomicU32, Ordering};
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let name = format!(
                "sonde-spool-{}-{}",
                std::process::id(),
                NUMBER.fetch_add(1, Ordering::Relaxed)
            );
            Folder(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_segment_that_a_kill_cut_short_is_read_to_its_last_whole_message() {
        let folder = Folder::new();
        let mut templates = Templates::default();
        templates.note(&template());
        let mut segments = Segments::open(&folder.0, 1 << 20).unwrap();
        (0..3).for_each(|i| assert!(segments.append(&data(i), &templates, false).unwrap()));
        drop(segments);
        let name = path(&folder.0, 0);
        let bytes = fs::read(&name).unwrap();
        fs::write(&name, &bytes[..bytes.len() - 1]).unwrap();
        let mut segments = Segments::open(&folder.0, 1 << 20).unwrap();
        let read: Vec<_> = std::iter::from_fn(|| segments.next().unwrap()).collect();
        assert_eq!(read.len(), 3);
        assert_eq!(read[0].bytes, templates.message(0, 0));
        assert_eq!((&read[2].bytes, read[2].earlier), (&data(1), true));
        let error = Segments::open(&folder.0, 1).err().unwrap().to_string();
        assert!(error.contains("in use"), "{error}");
    }
}
