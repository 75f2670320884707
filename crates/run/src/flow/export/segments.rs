//! Messages on disk: a folder of segments, each an IPFIX file (RFC 5655) that begins with
//! all templates. So what a kill leaves can be read by anyone, and is sent by the next run.
//! How far the oldest was delivered stands in a file beside it.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use sonde_wire::ipfix::{HEADER_LEN, Header};

use super::templates::TemplateSets;
use crate::output_file::{open_lock, unlinked};

/// A message to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// As the exporter made it.
    pub bytes: Vec<u8>,
    /// Which series its sequence numbers belong to: that of this run, or an earlier one's.
    pub series: u64,
}

/// The folder. One process has it at a time.
pub struct SpoolSegments {
    folder: PathBuf,
    limit: u64,
    /// Oldest first; the last one may be written to, if it is of this run.
    list: VecDeque<Segment>,
    /// Index of the next one. One is left out between runs: where indexes do not follow
    /// each other, another series of sequence numbers begins.
    next_index: u64,
    /// The index of this run's first segment.
    series: u64,
    /// How far the oldest was delivered, for the next run.
    position: File,
    /// Held as long as the folder is.
    _lock: File,
}

struct Segment {
    index: u64,
    series: u64,
    file: File,
    length: u64,
    /// Bytes delivered, from the start.
    delivered: u64,
    /// Bytes handed out.
    handed_out: u64,
    /// From where to where templates were put in for those who begin to read here: they are
    /// not of the list of messages. Only of this run's segments: of others they are sent.
    repeated: Vec<(u64, u64)>,
    /// Domains whose templates were put in where they were needed.
    domains: Vec<u32>,
}

impl SpoolSegments {
    /// Opens the folder, makes it if need be, and finds what an earlier run left there.
    pub fn open(folder: &Path, limit: u64) -> Result<SpoolSegments> {
        let what = || format!("cannot use the spool folder {}", folder.display());
        fs::DirBuilder::new().recursive(true).mode(0o750).create(folder).with_context(what)?;
        let lock = open_lock(&folder.join(LOCK)).with_context(what)?;
        if lock.try_lock().is_err() {
            bail!(
                "the spool folder {} is in use by another run; give each its own",
                folder.display()
            );
        }
        let mut indexes: Vec<u64> = fs::read_dir(folder)
            .with_context(what)?
            .flatten()
            .filter(|e| e.file_type().is_ok_and(|kind| kind.is_file()))
            .filter_map(|e| {
                let index = e.file_name().to_str()?.strip_suffix(SUFFIX)?.parse().ok()?;
                // What has another form is not the spool's.
                (path(folder, index) == e.path()).then_some(index)
            })
            .collect();
        indexes.sort_unstable();
        let delivered = read_position(folder);
        let position = unlinked()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o640)
            .open(folder.join(POSITION))
            .with_context(what)?;
        let mut list: VecDeque<Segment> = VecDeque::new();
        for &index in &indexes {
            let file = File::open(path(folder, index)).with_context(what)?;
            let length = whole_messages(&file).with_context(what)?;
            let done = delivered.filter(|d| d.0 == index).map_or(0, |d| d.1.min(length));
            let follows = list.back().filter(|s| s.index + 1 == index);
            let series = follows.map_or(index, |s| s.series);
            list.push_back(Segment::new(index, series, file, length, done));
        }
        let next_index = indexes.last().map_or(0, |n| n + 2);
        let mut segments = SpoolSegments {
            folder: folder.to_owned(),
            limit,
            next_index,
            series: next_index,
            list,
            position,
            _lock: lock,
        };
        segments.clear();
        segments.note_position();
        Ok(segments)
    }

    /// Distinguishes this run's messages from those of earlier ones.
    pub fn series(&self) -> u64 {
        self.series
    }

    /// Adds a message at the end. False: there is no room. `handed_out`: so it counts as
    /// that. `templates`: of all messages before it.
    pub fn append(
        &mut self,
        message: &[u8],
        templates: &TemplateSets,
        handed_out: bool,
    ) -> io::Result<bool> {
        let header = header(message)?;
        let full = |s: &Segment| s.series != self.series || s.length >= SEGMENT;
        let is_new = self.list.back().is_none_or(full);
        let known = self.list.back().is_some_and(|s| s.domains.contains(&header.domain));
        let repeated = match known && !is_new {
            true => Vec::new(),
            false => templates.of_domain(header.domain, header.sequence, header.export_time),
        };
        if self.bytes() + (repeated.len() + message.len()) as u64 > self.limit {
            return Ok(false);
        }
        if is_new {
            let (index, series) = (self.next_index, self.series);
            let name = path(&self.folder, index);
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o640)
                .open(name)?;
            self.list.push_back(Segment::new(index, series, file, 0, 0));
            self.next_index += 1;
        }
        let Some(segment) = self.list.back_mut() else { return Ok(false) };
        let all = [&repeated[..], message].concat();
        if let Err(error) = segment.file.write_all_at(&all, segment.length) {
            // Half a message would make the rest unreadable.
            segment.file.set_len(segment.length)?;
            return Err(error);
        }
        if !repeated.is_empty() {
            let end = segment.length + repeated.len() as u64;
            segment.repeated.push((segment.length, end));
        }
        if !known || is_new {
            segment.domains.push(header.domain);
        }
        segment.length += all.len() as u64;
        if handed_out {
            segment.handed_out = segment.length;
        }
        Ok(true)
    }

    /// The next message that was not handed out. What cannot be read is given up.
    pub fn next(&mut self) -> io::Result<Option<Waiting>> {
        let Some(segment) = self.list.iter_mut().find(|s| s.handed_out < s.length) else {
            return Ok(None);
        };
        let at = segment.skip_repeated(segment.handed_out);
        match segment.read(at) {
            Ok(bytes) => {
                segment.handed_out = at + bytes.len() as u64;
                Ok(Some(Waiting { bytes, series: segment.series }))
            }
            Err(error) => {
                let lost = segment.length - segment.handed_out;
                let name = path(&self.folder, segment.index);
                segment.length = segment.handed_out;
                segment.series = OVER;
                let text = format!("{}: {error}; {lost} bytes of it are lost", name.display());
                Err(io::Error::new(error.kind(), text))
            }
        }
    }

    /// The oldest message that was handed out was delivered. False: none was.
    pub fn delivered(&mut self) -> bool {
        let Some(segment) = self.list.iter_mut().find(|s| s.delivered < s.handed_out) else {
            return false;
        };
        let at = segment.skip_repeated(segment.delivered);
        // It was read before; what cannot be read again will be sent again.
        if let Ok(length) = segment.message_length(at) {
            segment.delivered = (at + length).min(segment.handed_out);
            self.clear();
            self.note_position();
        }
        true
    }

    /// What was handed out and not delivered will be handed out again.
    pub fn rewind(&mut self) {
        self.list.iter_mut().for_each(|s| s.handed_out = s.delivered);
    }

    /// The templates that the next message may need; `None`: it is not on disk.
    pub fn templates(&mut self) -> Option<TemplateSets> {
        let segment = self.list.iter().find(|s| s.handed_out < s.length)?;
        let mut templates = TemplateSets::default();
        let mut at = 0;
        // Those put in at the start, and those that came into use in between.
        let end = segment.skip_repeated(segment.handed_out);
        while at < end {
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

    /// At the end: nothing stays of what was delivered.
    pub fn close(&mut self) {
        self.series = OVER;
        self.clear();
        self.note_position();
    }

    /// Notes how far the oldest segment was delivered, for the next run. If that cannot be
    /// written, the next run sends the segment from its start.
    fn note_position(&mut self) {
        let _ = match self.list.front() {
            Some(s) => {
                let text = format!("{:012} {:012}\n", s.index, s.delivered);
                self.position.write_all_at(text.as_bytes(), 0)
            }
            None => self.position.set_len(0),
        };
    }

    /// Removes what was delivered whole, except that which is being written and still short:
    /// a collector that comes and goes would make many small ones.
    fn clear(&mut self) {
        while let Some(first) = self.list.front() {
            let in_use = first.series == self.series && self.list.len() == 1;
            if first.delivered < first.length || in_use && first.length < IDLE {
                break;
            }
            // If it cannot be removed now, the next run sends it again.
            let _ = fs::remove_file(path(&self.folder, first.index));
            self.list.pop_front();
        }
    }
}

impl Segment {
    fn new(index: u64, series: u64, file: File, length: u64, delivered: u64) -> Segment {
        Segment {
            index,
            series,
            file,
            length,
            delivered,
            handed_out: delivered,
            repeated: Vec::new(),
            domains: Vec::new(),
        }
    }

    /// Where the message is that `at` leads to.
    fn skip_repeated(&self, at: u64) -> u64 {
        self.repeated.iter().find(|r| r.0 == at).map_or(at, |r| r.1)
    }

    fn message_length(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; HEADER_LEN];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(header(&bytes)?.length.into())
    }

    /// The message that begins at `at`.
    fn read(&self, at: u64) -> io::Result<Vec<u8>> {
        let mut message = vec![0; self.message_length(at)? as usize];
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
        match self::header(&header).map(|h| u64::from(h.length)) {
            Ok(n) if at + n <= length => at += n,
            _ => break,
        }
    }
    Ok(at)
}

fn header(message: &[u8]) -> io::Result<Header> {
    Header::parse(message)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("no IPFIX message: {e}")))
}

/// Which segment was delivered how far by an earlier run.
fn read_position(folder: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(folder.join(POSITION)).ok()?;
    let (index, delivered) = text.trim().split_once(' ')?;
    Some((index.parse().ok()?, delivered.parse().ok()?))
}

fn path(folder: &Path, index: u64) -> PathBuf {
    folder.join(format!("{index:012}{SUFFIX}"))
}

/// Bytes of a segment, about.
const SEGMENT: u64 = 16 << 20;
/// A delivered segment that is shorter is written to further.
const IDLE: u64 = 1 << 20;
/// The series of segments that are no longer written to.
const OVER: u64 = u64::MAX;
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

        pub fn segments(&self) -> usize {
            let names = fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name());
            names.filter(|n| n.to_str().unwrap().ends_with(SUFFIX)).count()
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
        let mut templates = TemplateSets::default();
        templates.note(&template());
        let mut segments = SpoolSegments::open(&folder.0, 1 << 20).unwrap();
        (0..3).for_each(|i| assert!(segments.append(&data(i), &templates, false).unwrap()));
        drop(segments);
        let name = path(&folder.0, 0);
        let bytes = fs::read(&name).unwrap();
        fs::write(&name, &bytes[..bytes.len() - 1]).unwrap();
        let mut segments = SpoolSegments::open(&folder.0, 1 << 20).unwrap();
        let read: Vec<_> = std::iter::from_fn(|| segments.next().unwrap()).collect();
        assert_eq!(read.len(), 3);
        // To the next run the templates put in are messages like others.
        assert_eq!(read[0].bytes, templates.of_domain(7, 0, 1));
        assert_eq!((&read[2].bytes, read[2].series), (&data(1), 0));
        assert_eq!(segments.series(), 2);
        let error = SpoolSegments::open(&folder.0, 1).err().unwrap().to_string();
        assert!(error.contains("in use"), "{error}");
    }
}
