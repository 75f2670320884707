//! The journal: where batches are durable before they are in segments.
//!
//! Files `0000000001.journal` and so on, each a row of frames: length of the payload (u32, little
//! endian), its CRC-32 (u32), the payload, which is a Zstandard frame. In it: version (1), number of
//! the first batch in the store, how many batches, the batches. A frame is written and synced as a
//! whole; a torn one at the end of a file was never acknowledged and is cut off. Damage elsewhere
//! costs the frames that it hits: the next one is found by the magic number of Zstandard.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::names::journal_number;
use crate::batch::Batch;
use crate::error::StoreError;
use crate::varint;

/// The file that frames go to.
pub(crate) struct Journal {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    number: u64,
    file: Box<dyn DiskFile>,
    /// Octets of whole frames.
    length: u64,
    /// What stands after those could not be cut off: nothing more goes into this file.
    closed: bool,
}

/// What a file of the journal holds.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct JournalContent {
    /// Number of the batch in the store, and the batch.
    pub(crate) batches: Vec<(u64, Batch)>,
    /// Octets up to the end of the last whole frame.
    pub(crate) length: u64,
    /// Octets after that: a torn frame.
    pub(crate) torn: u64,
    /// Octets that are no frames, and that no crash leaves: damage.
    pub(crate) damaged: u64,
}

impl Journal {
    /// Begins the file `number`.
    pub(crate) fn begin(
        disk: Arc<dyn Disk>,
        folder: &Path,
        number: u64,
    ) -> Result<Self, StoreError> {
        let path = journal_path(folder, number);
        let file = disk.create(&path).map_err(StoreError::io("create", &path))?;
        disk.sync_folder(folder).map_err(StoreError::io("sync", folder))?;
        Ok(Journal { disk, folder: folder.to_owned(), number, file, length: 0, closed: false })
    }

    /// The number of its file.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The folder of its files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Octets of whole frames in its file.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Goes on in the next file. The one before stays as it is.
    pub(crate) fn rotate(&mut self) -> Result<(), StoreError> {
        *self = Journal::begin(self.disk.clone(), &self.folder, self.number + 1)?;
        Ok(())
    }

    /// Writes a frame of batches, of which the first has the number `first` in the store, and makes
    /// it durable. After an error none of it is kept.
    pub(crate) fn write(&mut self, first: u64, batches: &[Batch]) -> Result<(), StoreError> {
        if self.closed {
            self.rotate()?;
        }
        let frame = frame_of(first, batches)
            .map_err(StoreError::io("pack a frame of", &journal_path(&self.folder, self.number)))?;
        let written = self.file.write_all(&frame).and_then(|()| self.file.flush());
        if let Err(error) = written.and_then(|()| self.file.sync()) {
            // The next frame must not stand after half a frame.
            self.closed = self.file.truncate(self.length).is_err() || self.file.sync().is_err();
            let path = journal_path(&self.folder, self.number);
            return Err(StoreError::Io { what: "write", path, cause: error });
        }
        self.length += frame.len() as u64;
        Ok(())
    }
}

/// The file of that number.
pub(crate) fn journal_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:010}.{EXTENSION}"))
}

/// The numbers of the files in a folder, ascending.
pub(crate) fn journal_files(folder: &Path) -> Result<Vec<u64>, StoreError> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder).map_err(StoreError::io("list", folder))? {
        let entry = entry.map_err(StoreError::io("list", folder))?;
        // A link has the type of a link here: what it points to is not the store's.
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && let Some(number) = entry.file_name().to_str().and_then(journal_number) {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads a file, up to a torn end.
pub(crate) fn read_journal(path: &Path) -> Result<JournalContent, StoreError> {
    let octets = fs::read(path).map_err(StoreError::io("read", path))?;
    parse_journal(&octets).map_err(|what| StoreError::Newer { path: path.to_owned(), what })
}

/// The batches in the octets of a file. An error: a later version wrote them.
fn parse_journal(octets: &[u8]) -> Result<JournalContent, String> {
    let mut content = JournalContent::default();
    let mut at = 0;
    while at < octets.len() {
        // A frame whose sum is right and whose content is not was written by another version.
        match frame_at(octets, at) {
            Some(payload) => {
                content.damaged += (at as u64) - content.length;
                at += HEAD + payload.len();
                content.length = at as u64;
                read_payload(payload, &mut content.batches)?;
            }
            None => match next_frame(octets, at + 1) {
                Some(next) => at = next,
                None => break,
            },
        }
    }
    let tail = &octets[content.length as usize..];
    match is_torn(tail) {
        true => content.torn = tail.len() as u64,
        false => content.damaged += tail.len() as u64,
    }
    Ok(content)
}

/// Whether what stands after the last whole frame is what a crash leaves of the next one: its begin,
/// or room of the file that was not written. Anything else was whole once.
fn is_torn(tail: &[u8]) -> bool {
    let Some(head) = tail.get(..HEAD + ZSTD_MAGIC.len()) else { return true };
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let ends_early = head.ends_with(&ZSTD_MAGIC) && HEAD + length > tail.len();
    ends_early || tail.ends_with(&[0; UNWRITTEN])
}

/// The payload of the frame that begins at `at`, if a whole one does.
fn frame_at(octets: &[u8], at: usize) -> Option<&[u8]> {
    let mut from = octets.get(at..)?;
    let length = u32::from_le_bytes(varint::take_bytes(&mut from, 4)?.try_into().ok()?);
    let crc = u32::from_le_bytes(varint::take_bytes(&mut from, 4)?.try_into().ok()?);
    let payload = varint::take_bytes(&mut from, length as usize)?;
    (payload.starts_with(&ZSTD_MAGIC) && crc32fast::hash(payload) == crc).then_some(payload)
}

/// Where the next whole frame begins, from `at` on.
fn next_frame(octets: &[u8], at: usize) -> Option<usize> {
    let starts = octets.get(at + HEAD..)?.windows(ZSTD_MAGIC.len()).enumerate();
    let mut starts = starts.filter(|(_, w)| *w == ZSTD_MAGIC).map(|(i, _)| at + i);
    starts.find(|&start| frame_at(octets, start).is_some())
}

fn frame_of(first: u64, batches: &[Batch]) -> io::Result<Vec<u8>> {
    let mut plain = vec![VERSION];
    varint::put(&mut plain, first.into());
    varint::put(&mut plain, batches.len() as u128);
    batches.iter().for_each(|batch| batch.encode(&mut plain));
    let payload = zstd::bulk::compress(&plain, 1)?;
    let length = u32::try_from(payload.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut frame = Vec::with_capacity(HEAD + payload.len());
    frame.extend(length.to_le_bytes());
    frame.extend(crc32fast::hash(&payload).to_le_bytes());
    frame.extend(payload);
    Ok(frame)
}

fn read_payload(payload: &[u8], batches: &mut Vec<(u64, Batch)>) -> Result<(), String> {
    let mut plain = Vec::new();
    let unpacked = zstd::stream::read::Decoder::new(payload)
        .and_then(|decoder| decoder.take(MOST_PLAIN).read_to_end(&mut plain));
    unpacked.map_err(|error| format!("a frame that cannot be unpacked: {error}"))?;
    let mut from = &plain[..];
    let mut read = || -> Option<()> {
        if varint::take_bytes(&mut from, 1)? != [VERSION] {
            return None;
        }
        let first = varint::take_u64(&mut from)?;
        for i in 0..varint::take_u64(&mut from)? {
            batches.push((first.checked_add(i)?, Batch::decode(&mut from)?));
        }
        Some(())
    };
    read()
        .ok_or_else(|| format!("a frame of version {}", plain.first().copied().unwrap_or_default()))
}

const EXTENSION: &str = "journal";
const VERSION: u8 = 1;
/// Length and CRC.
const HEAD: usize = 8;
/// What a Zstandard frame begins with (RFC 8878, section 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// So many zeros end no frame: the file system gave room for octets that never came.
const UNWRITTEN: usize = 16;
/// More is in no frame: memory is not filled by a damaged one.
const MOST_PLAIN: u64 = 1 << 30;

#[cfg(test)]
mod tests;
